"""One response as every provider would send it: what it holds in neutral words, written out in each format's own shape.

Shapes as of openai 3.54 (chat, Responses), anthropic 2.12, google-genai 3.4 (generateContent, Interactions), botocore
1.44 (Converse), cohere 7.3 (v2) and Ollama's server of 2026-10.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from endturn.formats import Event
from endturn.formats.framing import DONE

Json = dict[str, Any]
Part = tuple[str, str]
"""("text" | "thought" | "call" | "refusal" | "server", what it says; of a call its name)."""
GIVEN = {"city": "Zürich"}


@dataclass(frozen=True)
class Spent:
    """Tokens: of the prompt, of the output with its thinking, and of the thinking alone."""

    prompt: int = 31
    output: int = 17
    thought: int = 0


Sent = tuple[Json, list[Event]]
"""A body, and the events of a stream that says the same."""
Sender = Callable[[Sequence[Part], str, Spent], Sent]


def _said(parts: Sequence[Part], kind: str) -> str:
    return "".join(said for name, said in parts if name == kind)


def _named(data: Json, name: str = "type") -> Event:
    return Event(data[name], data)


def chat(parts: Sequence[Part], word: str, spent: Spent = Spent()) -> Sent:
    """OpenAI's chat completions; thinking as DeepSeek has it."""
    usage = {
        "prompt_tokens": spent.prompt,
        "completion_tokens": spent.output,
        "total_tokens": spent.prompt + spent.output,
        "completion_tokens_details": {"reasoning_tokens": spent.thought},
    }
    message: Json = {"role": "assistant", "content": _said(parts, "text"), "refusal": _said(parts, "refusal") or None}
    if thought := _said(parts, "thought"):
        message["reasoning_content"] = thought
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": name, "arguments": json.dumps(GIVEN)}}
        for i, (kind, name) in enumerate(parts)
        if kind == "call"
    ]
    if calls:
        message["tool_calls"] = calls
    head = {"id": "chatcmpl-1", "created": 1763700000, "model": "m"}

    def chunk(delta: Json, reason: str | None = None) -> Event:
        return Event(None, {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})

    events = [chunk({"role": "assistant", "content": "", "refusal": None})]
    index = 0
    for kind, said in parts:
        if kind == "call":
            function: Json = {"name": said, "arguments": ""}
            first = {"index": index, "id": calls[index]["id"], "type": "function", "function": function}
            events.append(chunk({"tool_calls": [first]}))
            events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": json.dumps(GIVEN)}}]}))
            index += 1
        else:
            events.append(chunk({{"text": "content", "thought": "reasoning_content"}.get(kind, kind): said}))
    events += [chunk({}, word), Event(None, {**head, "choices": [], "usage": usage}), Event(None, DONE)]
    return {**head, "choices": [{"index": 0, "message": message, "finish_reason": word}], "usage": usage}, events


def anthropic(parts: Sequence[Part], word: str, spent: Spent = Spent()) -> Sent:
    """Anthropic's Messages."""
    usage: Json = {"input_tokens": spent.prompt, "output_tokens": spent.output}
    if spent.thought:
        usage["output_tokens_details"] = {"thinking_tokens": spent.thought}
    content: list[Json] = []
    events: list[Json] = []
    for index, (kind, said) in enumerate(parts):
        match kind:
            case "thought":
                block: Json = {"type": "thinking", "thinking": said, "signature": ""}
                begun, delta = {**block, "thinking": ""}, {"type": "thinking_delta", "thinking": said}
            case "call" | "server":
                tool = "tool_use" if kind == "call" else "server_tool_use"
                block = {"type": tool, "id": f"{tool}_{index}", "name": said, "input": GIVEN}
                begun = {**block, "input": {}}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(GIVEN)}
            case _:
                block, begun = {"type": "text", "text": said}, {"type": "text", "text": ""}
                delta = {"type": "text_delta", "text": said}
        content.append(block)
        events += [
            {"type": "content_block_start", "index": index, "content_block": begun},
            {"type": "content_block_delta", "index": index, "delta": delta},
            {"type": "content_block_stop", "index": index},
        ]
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    body = {**head, "content": content, "stop_reason": word, "usage": usage}
    start: Json = {
        **head,
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": spent.prompt, "output_tokens": 1},
    }
    events.insert(0, {"type": "message_start", "message": start})
    events += [
        {"type": "message_delta", "delta": {"stop_reason": word, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    return body, [_named(event) for event in events]


def responses(parts: Sequence[Part], word: str, spent: Spent = Spent()) -> Sent:
    """OpenAI's Responses; `word` is the status, after a colon the reason why it is incomplete."""
    status, _, why = word.partition(":")
    output: list[Json] = []
    events: list[Json] = []
    for index, (kind, said) in enumerate(parts):
        at = {"output_index": index, "item_id": f"item_{index}"}
        begun: Json
        match kind:
            case "thought":
                item: Json = {"type": "reasoning", "summary": [{"type": "summary_text", "text": said}]}
                begun = {**item, "summary": []}
                pieces = [{"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": said}]
            case "call":
                arguments = json.dumps(GIVEN)
                item = {"type": "function_call", "call_id": f"call_{index}", "name": said, "arguments": arguments}
                begun = {**item, "arguments": ""}
                pieces = [{"type": "response.function_call_arguments.delta", "delta": arguments}]
            case "server":
                item = begun = {"type": "web_search_call", "action": {"type": "search", "query": said}}
                pieces = []
            case _:
                name, part = ("refusal", "refusal") if kind == "refusal" else ("output_text", "text")
                content: Json = {"type": name, part: said}
                item = {"type": "message", "role": "assistant", "content": [content]}
                begun = {**item, "content": []}
                pieces = [
                    {"type": "response.content_part.added", "content_index": 0, "part": {**content, part: ""}},
                    {"type": f"response.{name}.delta", "content_index": 0, "delta": said},
                    {"type": f"response.{name}.done", "content_index": 0, part: said},
                    {"type": "response.content_part.done", "content_index": 0, "part": content},
                ]
        item |= {"id": at["item_id"], "status": "completed"}
        output.append(item)
        events += [
            {
                "type": "response.output_item.added",
                "output_index": index,
                "item": {**begun, "id": at["item_id"], "status": "in_progress"},
            },
            *({**piece, **at} for piece in pieces),
            {"type": "response.output_item.done", "output_index": index, "item": item},
        ]
    head: Json = {"id": "resp_1", "object": "response", "model": "m", "error": None, "background": False}
    usage = {
        "input_tokens": spent.prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": spent.output,
        "output_tokens_details": {"reasoning_tokens": spent.thought},
        "total_tokens": spent.prompt + spent.output,
    }
    details = {"reason": why} if why else None
    body = {**head, "status": status, "incomplete_details": details, "output": output, "usage": usage}
    start = {**head, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    events.insert(0, {"type": "response.created", "response": start})
    events.append({"type": f"response.{status}", "response": body})
    return body, [_named({**event, "sequence_number": number}) for number, event in enumerate(events)]


def gemini(parts: Sequence[Part], word: str, spent: Spent = Spent()) -> Sent:
    """Gemini's generateContent, which has no word for a call: the part says it."""
    usage = {
        "promptTokenCount": spent.prompt,
        "candidatesTokenCount": spent.output - spent.thought,
        "thoughtsTokenCount": spent.thought,
        "totalTokenCount": spent.prompt + spent.output,
    }
    written: list[Json] = []
    for kind, said in parts:
        match kind:
            case "call":
                written.append({"functionCall": {"name": said, "args": GIVEN}})
            case "server":
                written.append({"executableCode": {"language": "PYTHON", "code": said}})
            case _:
                written.append({"text": said} | ({"thought": True} if kind == "thought" else {}))
    head = {"modelVersion": "m", "responseId": "r1", "usageMetadata": usage}

    def chunk(pieces: list[Json], reason: str | None = None) -> Json:
        first: Json = {"content": {"role": "model", "parts": pieces}, "index": 0}
        return {**head, "candidates": [first if reason is None else {**first, "finishReason": reason}]}

    events = [Event(None, chunk([piece])) for piece in written]
    return chunk(written, word), [*events, Event(None, chunk([{"text": ""}], word))]


def interactions(parts: Sequence[Part], word: str, spent: Spent = Spent()) -> Sent:
    """Google's Interactions."""
    steps: list[Json] = []
    events: list[Json] = []
    for index, (kind, said) in enumerate(parts):
        step: Json
        begun: Json
        match kind:
            case "thought":
                content = {"type": "text", "text": said}
                step, begun = {"type": "thought", "summary": [content]}, {"type": "thought"}
                delta: Json | None = {"type": "thought_summary", "content": content}
            case "call":
                begun = {"type": "function_call", "id": f"c{index}", "name": said, "arguments": {}}
                step, delta = {**begun, "arguments": GIVEN}, {"type": "arguments_delta", "arguments": json.dumps(GIVEN)}
            case "server":
                step = begun = {"type": "google_search_call", "id": f"s{index}", "arguments": {"queries": [said]}}
                delta = None
            case _:
                step = {"type": "model_output", "content": [{"type": "text", "text": said}]}
                begun, delta = {"type": "model_output"}, {"type": "text", "text": said}
        steps.append(step)
        events.append({"event_type": "step.start", "index": index, "step": begun})
        if delta is not None:
            events.append({"event_type": "step.delta", "index": index, "delta": delta})
        events.append({"event_type": "step.stop", "index": index})
    usage = {
        "total_input_tokens": spent.prompt,
        "total_output_tokens": spent.output - spent.thought,
        "total_thought_tokens": spent.thought,
        "total_tokens": spent.prompt + spent.output,
    }
    head = {"id": "v1_1", "object": "interaction", "model": "m"}
    whole = {**head, "status": word, "steps": steps, "usage": usage}
    start = {"event_type": "interaction.created", "interaction": {**head, "status": "in_progress"}}
    end = {"event_type": "interaction.completed", "interaction": {**head, "status": word, "usage": usage}}
    named = [_named(event, "event_type") for event in (start, *events, end)]
    return whole, [*named, Event("done", DONE)]


def bedrock(parts: Sequence[Part], word: str, spent: Spent = Spent()) -> Sent:
    """Bedrock's Converse."""
    usage = {
        "inputTokens": spent.prompt,
        "outputTokens": spent.output,
        "totalTokens": spent.prompt + spent.output,
    }
    content: list[Json] = []
    events: list[tuple[str, Json]] = [("messageStart", {"role": "assistant"})]
    for index, (kind, said) in enumerate(parts):
        at = {"contentBlockIndex": index}
        match kind:
            case "thought":
                content.append({"reasoningContent": {"reasoningText": {"text": said}}})
                events.append(("contentBlockDelta", {"delta": {"reasoningContent": {"text": said}}, **at}))
            case "call" | "server":
                tool = {"toolUseId": f"tooluse_{index}", "name": said}
                if kind == "server":
                    tool["type"] = "server_tool_use"
                content.append({"toolUse": {**tool, "input": GIVEN}})
                events.append(("contentBlockStart", {"start": {"toolUse": tool}, **at}))
                events.append(("contentBlockDelta", {"delta": {"toolUse": {"input": json.dumps(GIVEN)}}, **at}))
            case _:
                content.append({"text": said})
                events.append(("contentBlockDelta", {"delta": {"text": said}, **at}))
        events.append(("contentBlockStop", at))
    events += [("messageStop", {"stopReason": word}), ("metadata", {"usage": usage, "metrics": {"latencyMs": 7}})]
    body = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": word, "usage": usage}
    return {**body, "metrics": {"latencyMs": 7}}, [Event(None, {name: data}) for name, data in events]


def cohere(parts: Sequence[Part], word: str, spent: Spent = Spent()) -> Sent:
    """Cohere's v2 chat."""
    usage = {"tokens": {"input_tokens": float(spent.prompt), "output_tokens": float(spent.output)}}
    content: list[Json] = []
    calls: list[Json] = []
    start = {"role": "assistant", "content": [], "tool_calls": []}
    events: list[Json] = [{"type": "message-start", "id": "c1", "delta": {"message": start}}]
    for index, (kind, said) in enumerate(parts):
        if kind == "call":
            function = {"name": said, "arguments": json.dumps(GIVEN)}
            calls.append({"id": f"call_{index}", "type": "function", "function": function})
            begun: Json = {**calls[-1], "function": {"name": said, "arguments": ""}}
            piece: Json = {"function": {"arguments": function["arguments"]}}
            named, member, first, more = "tool-call", "tool_calls", begun, piece
        else:
            key = "thinking" if kind == "thought" else "text"
            content.append({"type": key, key: said})
            named, member, first, more = "content", "content", {"type": key, key: ""}, {key: said}
        events += [
            {"type": f"{named}-start", "index": index, "delta": {"message": {member: first}}},
            {"type": f"{named}-delta", "index": index, "delta": {"message": {member: more}}},
            {"type": f"{named}-end", "index": index},
        ]
    events.append({"type": "message-end", "delta": {"finish_reason": word, "usage": usage}})
    message = {"role": "assistant", "content": content} | ({"tool_calls": calls} if calls else {})
    body = {"id": "c1", "finish_reason": word, "message": message, "usage": usage}
    return body, [*(_named(event) for event in events), Event(None, DONE)]


def ollama(parts: Sequence[Part], word: str, spent: Spent = Spent()) -> Sent:
    """Ollama's own chat, whose `stop` stands beside calls too."""
    head = {"model": "m", "created_at": "2026-10-01T09:30:00Z"}
    counts = {"prompt_eval_count": spent.prompt, "eval_count": spent.output}
    calls = [{"function": {"name": name, "arguments": GIVEN}} for kind, name in parts if kind == "call"]
    message: Json = {"role": "assistant", "content": _said(parts, "text")}
    if thought := _said(parts, "thought"):
        message["thinking"] = thought
    if calls:
        message["tool_calls"] = calls
    lines: list[Json] = []
    for kind, said in parts:
        piece: Json = {"role": "assistant", "content": said if kind == "text" else ""}
        if kind == "thought":
            piece["thinking"] = said
        elif kind == "call":
            piece["tool_calls"] = [{"function": {"name": said, "arguments": GIVEN}}]
        lines.append({**head, "message": piece, "done": False})
    end = {**head, "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": word, **counts}
    return {**end, "message": message}, [Event(None, line) for line in (*lines, end)]


SENDERS: dict[str, Sender] = {
    "openai_chat": chat,
    "anthropic": anthropic,
    "openai_responses": responses,
    "gemini": gemini,
    "gemini_interactions": interactions,
    "bedrock_converse": bedrock,
    "cohere": cohere,
    "ollama": ollama,
}
"""The name of a format → what writes in its format."""
