"""InvokeModel's answers, written out by hand: each family's own words (Bedrock user guide, bedrock-runtime 2023-09-30).

Streams are as boto3 1.44 gives them: `{"chunk": {"bytes": …}}`, the last with Bedrock's own figures.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any, Final

from endturn.formats import Context, Event, RequestSummary
from endturn.formats.framing import DONE
from tests.formats import replies
from tests.formats.recorded import RECORDED
from tests.formats.replies_completions import ai21, claude, command, llama, mistral, titan, titan_chunk

Json = dict[str, Any]
CHAT: Final = RECORDED["openai_chat"]
INTERVENED: Final = {
    "amazon-bedrock-guardrailAction": "INTERVENED",
    "amazon-bedrock-trace": {"guardrail": {"actionReason": "Guardrail blocked."}},
}
METRICS: Final = {"inputTokenCount": 12, "outputTokenCount": 9, "invocationLatency": 350, "firstByteLatency": 90}

MODELS: Final = {
    "claude": "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "nova": "amazon.nova-lite-v1:0",
    "titan": "amazon.titan-text-express-v1",
    "llama": "arn:aws:bedrock:us-east-1:111122223333:inference-profile/us.meta.llama3-3-70b-instruct-v1:0",
    "mistral": "mistral.mixtral-8x7b-instruct-v0:1",
    "command": "cohere.command-text-v14",
    "command_r": "cohere.command-r-plus-v1:0",
    "ai21": "ai21.j2-ultra-v1",
    "claude_text": "anthropic.claude-v2:1",
    "jamba": "ai21.jamba-1-5-mini-v1:0",
    "large": "mistral.mistral-large-2402-v1:0",
    "deepseek": "us.deepseek.r1-v1:0",
    "gpt_oss": "openai.gpt-oss-120b-1:0",
    "imported": "arn:aws:bedrock:us-east-1:111122223333:imported-model/abcdef123456",
}
"""family → the id of a model of it."""


def chunk(data: Json, **more: Any) -> Event:
    """One event of a response stream, as boto3 has it."""
    return Event(None, {"chunk": {"bytes": json.dumps({**data, **more}).encode()}})


def chunks(*data: Json, counted: bool = True) -> list[Event]:
    """A stream; its last event has the figures."""
    events = [chunk(each) for each in data]
    if counted:
        events[-1] = chunk(data[-1], **{"amazon-bedrock-invocationMetrics": METRICS})
    return events


def nova(content: list[Json], reason: str | None = "end_turn") -> Json:
    """A body of Amazon Nova: Converse's, without its metrics."""
    usage = {"inputTokens": 12, "outputTokens": 9, "totalTokens": 21}
    return {"output": {"message": {"content": content, "role": "assistant"}}, "stopReason": reason, "usage": usage}


def nova_text(*pieces: str, reason: str = "end_turn") -> list[Event]:
    """A stream of Amazon Nova: the events of ConverseStream as JSON."""
    usage = {"inputTokens": 12, "outputTokens": 9}
    said: list[Json] = [{"contentBlockDelta": {"delta": {"text": piece}, "contentBlockIndex": 0}} for piece in pieces]
    ending: list[Json] = [{"contentBlockStop": {"contentBlockIndex": 0}}, {"messageStop": {"stopReason": reason}}]
    return chunks({"messageStart": {"role": "assistant"}}, *said, *ending, {"metadata": {"usage": usage}})


def command_r(text: str, reason: str = "COMPLETE") -> Json:
    """A body of Command R: Cohere's chat API v1."""
    history = [{"role": "USER", "message": "hi"}, {"role": "CHATBOT", "message": text}]
    return {
        "response_id": "r-1",
        "text": text,
        "generation_id": "g-1",
        "chat_history": history,
        "finish_reason": reason,
    }


def _unnamed(events: Sequence[Event]) -> list[Json]:
    return [event.data for event in events if event.data != DONE]


_CALL = {"toolUse": {"toolUseId": "tooluse_1", "name": "weather", "input": {"city": "Zürich"}}}
_STOPPED = {"index": 0, "message": {"role": "assistant", "content": "Hm"}, "stop_reason": "length"}

BODIES: dict[str, Json] = {
    "claude: text": replies.ANTHROPIC["text"],
    "claude: length": replies.ANTHROPIC["length"],
    "claude: tool use": replies.ANTHROPIC["tool use"],
    "claude: refusal": replies.ANTHROPIC["refusal"],
    # The guardrail's word in the place of the model's; or beside it, and the text is the guardrail's.
    "claude: guardrail": replies.message([replies.say("Sorry.")], "guardrail_intervened"),
    "claude: guarded": {**replies.ANTHROPIC["text"], **INTERVENED},
    "claude: not guarded": {**replies.ANTHROPIC["text"], "amazon-bedrock-guardrailAction": "NONE"},
    "llama: guarded": {**llama("Sorry."), **INTERVENED},
    "titan: guarded": {**titan("Sorry."), **INTERVENED},
    "nova: text": nova([{"text": "Grüezi 👋🏽"}]),
    "nova: length": nova([{"text": "The answer"}], "max_tokens"),
    "nova: call": nova([{"text": "Looking."}, _CALL], "tool_use"),
    "titan: text": titan("Grüezi 👋🏽"),
    "titan: length": titan("The answer", "LENGTH"),
    "titan: filtered": titan("", "CONTENT_FILTERED"),
    "llama: text": llama("Grüezi 👋🏽"),
    "llama: length": llama("The answer", "length"),
    "mistral: text": mistral("Grüezi 👋🏽"),
    "mistral: length": mistral("The answer", "length"),
    "command: text": command("Grüezi 👋🏽"),
    "command: length": command("The answer", "MAX_TOKENS"),
    "ai21: length": ai21("The answer", {"reason": "length", "length": 9}),
    "claude_text: text": claude("Grüezi 👋🏽"),
    "claude_text: messages": replies.ANTHROPIC["text"],
    "command_r: text": command_r("Grüezi 👋🏽"),
    "command_r: length": command_r("The answer", "MAX_TOKENS"),
    "jamba: text": CHAT.bodies["text"],
    "jamba: length": CHAT.bodies["length"],
    "gpt_oss: calls": CHAT.bodies["tool calls"],
    "large: chat": {"id": "c-1", "model": "mistral-large-2402", "choices": [_STOPPED]},
    "deepseek: length": {"choices": [{"text": "<think>\nHm", "stop_reason": "length"}]},
    "imported: chat": CHAT.bodies["text"],
    "imported: llama": llama("Hm", "length"),
    "told: nova": nova([{"text": "Hm"}]),
}

STREAMS: dict[str, list[Event]] = {
    "claude: text": chunks(*_unnamed(replies.ANTHROPIC_STREAMS["text"])),
    "claude: guardrail": chunks(
        *_unnamed(replies.anthropic_stream([replies.said("Sorry.")], "guardrail_intervened")),
    ),
    "claude: guarded": [
        *chunks(*_unnamed(replies.ANTHROPIC_STREAMS["text"])[:-1], counted=False),
        chunk({"type": "message_stop", "amazon-bedrock-invocationMetrics": METRICS, **INTERVENED}),
    ],
    "titan: guarded": chunks(titan_chunk("Sor"), {**titan_chunk("ry.", "FINISH"), **INTERVENED}),
    "nova: text": nova_text("Gr", "üezi ", "👋🏽"),
    "nova: length": nova_text("The", " answer", reason="max_tokens"),
    "titan: text": chunks(titan_chunk("One"), titan_chunk(" two", "FINISH")),
    "llama: length": chunks(llama("One", None, 12, 1), llama("", "length", None, 9)),
    "mistral: text": chunks(mistral("One", None), mistral(" two", None), mistral("", "stop")),
    "command: text": chunks({"is_finished": False, "text": "One"}, {"is_finished": True, "finish_reason": "COMPLETE"}),
    "claude_text: text": chunks(claude("One", None), claude("", "stop_sequence")),
    "command_r: text": chunks(
        {"event_type": "text-generation", "is_finished": False, "text": "One"},
        {
            "event_type": "stream-end",
            "is_finished": True,
            "finish_reason": "MAX_TOKENS",
            "response": command_r("One", "MAX_TOKENS"),
        },
    ),
    "jamba: calls": chunks(*_unnamed(CHAT.streams["tool calls"])),
    "deepseek: length": chunks(
        {"choices": [{"text": "One", "stop_reason": None}]}, {"choices": [{"text": " two", "stop_reason": "length"}]}
    ),
    "imported: text": chunks(*_unnamed(RECORDED["completions"].streams["length"]), counted=False),
    "cut": chunks(mistral("One", None), mistral(" two", None), counted=False),
    "exception after the end": [
        *chunks(mistral("One", None), mistral("", "length")),
        Event(None, {"modelStreamErrorException": {"message": "too late", "originalStatusCode": 500}}),
    ],
    "over HTTP": [
        Event(None, {"chunk": {"bytes": base64.b64encode(json.dumps(each).encode()).decode(), "p": "abcd"}})
        for each in (titan_chunk("One"), titan_chunk(" two", "LENGTH"))
    ],
}


def context(name: str) -> Context:
    """The model that a reply's name begins with."""
    return Context("", "aws.bedrock", RequestSummary(maximum=1000, model=MODELS.get(name.partition(":")[0], "")))


def body_object(body: Json) -> Any:
    """A body as boto3's stream gives it, read."""
    return json.dumps(body).encode()


def event_objects(stream: Sequence[Event]) -> list[Any]:
    """A stream's events as boto3 gives them."""
    return [event.data for event in stream]
