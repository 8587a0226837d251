"""The chat completions format, as OpenAI wrote it and as everyone else speaks it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from endturn.chat import Blocks, ChatResponse, Json, Message, Request
from endturn.events import Strategy
from endturn.formats.format import Format
from endturn.formats.framing import DONE
from endturn.formats.next_request import asking_on, own_blocks, resent
from endturn.formats.openai_chat_reader import NAME, REPLY, shows
from endturn.formats.reading import items, member, text
from endturn.formats.request_summary import SEGMENTS, asked, routed_by
from endturn.formats.scripting import chat_error, function_call, raw_reason, words, written_usage
from endturn.formats.settings import FUNCTION
from endturn.formats.summaries import Event, Framing, RequestSummary, Route, Voice
from endturn.stop import StopReason
from endturn.stop_reasons import COMPATIBLE, rows_of, tables

# OpenAI's newer models refuse `max_tokens`; these servers know nothing else.
_OLD_LIMIT: Final = frozenset({"mistral", "deepseek", "together", "fireworks", "zai", "moonshot", "tgi", "ollama"})

_USAGE: Final = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "prompt_tokens_details.cached_tokens": "cache_read_tokens",
    "prompt_tokens_details.cache_write_tokens": "cache_write_tokens",
    "completion_tokens_details.reasoning_tokens": "reasoning_tokens",
}
_PATH: Final = (
    rf"(?:{SEGMENTS}/v1)?/chat/completions|{SEGMENTS}/openai/deployments/(?P<model>[^/]+)/chat/completions"
    rf"|(?:{SEGMENTS}/v1)?/text/chat(?P<stream>_stream)?"
)


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a chat request goes; watsonx serves it below `/text`, and streams elsewhere."""
    if dialect == "watsonx":
        return Route("POST", "/text/chat_stream" if stream else "/text/chat")
    return Route("POST", "/chat/completions")


_GOES_ON: Final[Mapping[str, Any]] = {"continue_final_message": True, "add_generation_prompt": False}
"""How vLLM and SGLang are told to go on with a last message that is the assistant's own."""


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /chat/completions.

    Args:
        dialect: whose; it decides the name of the output limit, and whether a stream's usage must be asked for.
    """
    body: Json = {
        "model_id" if dialect == "watsonx" else "model": request.model,
        "messages": _messages(request.messages),
    }
    if request.tools:
        body["tools"] = [FUNCTION.written(tool) for tool in request.tools]
        if request.tool_choice != "auto":
            body["tool_choice"] = _choice(request.tool_choice)
    limited = {"max_tokens", "max_completion_tokens"} & request.extra.keys()
    settings = {
        "max_tokens" if dialect in _OLD_LIMIT else "max_completion_tokens": None if limited else request.max_tokens,
        "temperature": request.temperature,
        "random_seed" if dialect == "mistral" else "seed": request.seed,
        "response_format": request.format and _format(request.format),
    }
    body |= {name: value for name, value in settings.items() if value is not None}
    if stream and dialect != "watsonx":
        body["stream"] = True
        # Without it a stream has no usage, and a used-up budget cannot be told from an answer that fits. Mistral sends
        # usage always, and refuses the member (openai/openai-agents-python#442).
        if dialect != "mistral":
            body["stream_options"] = {"include_usage": True}
    return body | request.extra


def _choice(tool_choice: str) -> str | Json:
    named = tool_choice not in ("none", "required")
    return {"type": "function", "function": {"name": tool_choice}} if named else tool_choice


def _messages(messages: tuple[Message, ...]) -> list[Json]:
    written = [each for message in messages if (each := _written(message)) is not None]
    # A prefill that was answered is a message like any other: marked, it may only be the last.
    return [{name: value for name, value in each.items() if name != "prefix"} for each in written[:-1]] + written[-1:]


def _written(message: Message) -> Json | None:
    """One message in the format's shape; None for an assistant message that says nothing, which servers refuse."""
    if own := own_blocks(message, NAME):
        return _replayed(message, own[0])
    if message.role == "tool":
        return {"role": "tool", "tool_call_id": message.tool_call_id or "", "content": message.content}
    if message.role != "assistant":
        return {"role": message.role, "content": message.content}
    if not message.content and not message.tool_calls:
        return None
    written: Json = {"role": "assistant", "content": message.content or None}
    if message.tool_calls:
        written["tool_calls"] = [function_call(call) for call in message.tool_calls]
    return written


def _replayed(message: Message, block: Json) -> Json | None:
    """A message as the provider wrote it, but for calls that were taken out of the history since."""
    if message.role != "assistant":
        return block
    kept = {call.id for call in message.tool_calls}
    calls = [call for call in items(block.get("tool_calls")) if member(call, "id") in kept]
    written = {name: value for name, value in block.items() if name not in ("tool_calls", "function_call", "audio")}
    audio = text(member(block.get("audio"), "id"))
    if audio:
        written["audio"] = {"id": audio}  # All that OpenAI takes back of an answer that was spoken.
    elif not written.get("content") and text(member(block.get("audio"), "transcript")):
        written["content"] = block["audio"]["transcript"]
    if calls:
        written["tool_calls"] = calls
    elif message.tool_calls and block.get("function_call") is not None:
        written["function_call"] = block["function_call"]
    says = _says(written.get("content")) or written.get("refusal") or shows(written)
    return written if calls or "function_call" in written or says else None


def _says(content: Any) -> bool:
    """Whether there is more in a content than thinking."""
    if isinstance(content, list):
        return any(member(part, "type") != "thinking" for part in content)
    return bool(content)


def _format(format_: Json) -> Json:
    if format_ == {"type": "json_object"}:
        return format_
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": format_}}


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response. The original's messages stand first, unchanged.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by prefill and resend.
        strategy: `prompt`; `prefill` (the partial answer is the last message, its trailing whitespace stripped: servers
            refuse it there); `resend` (the answer verbatim, nothing after it).
        dialect: how a server is told to go on with a prefill.
    """
    if (again := resent(request, cut, strategy)) is not None:
        return again
    extra = {name: value for name, value in request.extra.items() if name not in _GOES_ON}
    said = cut.text.rstrip() if strategy == Strategy.PREFILL else cut.text
    # Without its calls, which are cut. Thinking that led to visible text is whole, and goes back where it came from.
    partial = cut.message().but(content=said, tool_calls=(), blocks=_visible(cut, said))
    messages = request.messages
    if messages and messages[-1].role == "assistant":
        # The answer that was cut went on with a prefill: both are one message, and servers take no two in a row.
        said = messages[-1].text + said
        messages, partial = messages[:-1], partial.but(content=said, blocks=None)
    if strategy == Strategy.PREFILL and dialect in ("mistral", "deepseek"):
        block = partial.blocks.items[0] if partial.blocks is not None else {"role": "assistant", "content": said}
        partial = partial.but(blocks=Blocks(NAME, ({**block, "prefix": True},)))
    elif strategy == Strategy.PREFILL and dialect in ("vllm", "sglang"):
        extra |= _GOES_ON
    so_far = request.but(messages=messages, extra=extra)
    return asking_on(so_far, partial if said.strip() else None, prompt=prompt, strategy=strategy)


def _visible(cut: ChatResponse, said: str) -> Blocks | None:
    """The message of a cut response without its calls; None where another format wrote it, or it holds no content."""
    own = own_blocks(cut, NAME)
    if not own or not own[0].get("content"):
        return None
    gone = ("tool_calls", "function_call", "refusal")
    kept = {name: value for name, value in own[0].items() if name not in gone}
    content = kept["content"]
    if isinstance(content, list):
        before = [part for part in content if member(part, "type") not in ("text", "refusal")]
        kept["content"] = [*before, {"type": "text", "text": said}]
    else:
        kept["content"] = said
    return Blocks(NAME, (kept,))


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for."""
    return asked(NAME, kwargs, items(kwargs.get("messages")))


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A scripted response as a server of this format sends it: a body, or the events of a stream."""
    raw = raw_reason(response.stop, rows_of(NAME, dialect or COMPATIBLE))
    declines = response.stop.reason is StopReason.REFUSED and response.stop.raw == "stop"
    spoken = "refusal" if declines else "content"
    head = {"id": response.id, "created": 0, "model": response.model}
    spent = {"prompt_tokens": 0, "completion_tokens": 0, **written_usage(response.usage, _USAGE, "total_tokens")}
    usage = {} if response.usage is None else {"usage": spent}
    calls = [function_call(call) for call in response.tool_calls]
    if not stream:
        message: Json = {"role": "assistant", "content": None, spoken: response.text or None}
        if response.reasoning:
            message["reasoning_content"] = response.reasoning
        if calls:
            message["tool_calls"] = calls
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": raw}
        return {**head, "object": "chat.completion", "choices": [choice], **usage}

    head["object"] = "chat.completion.chunk"
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": word} for word in words(response.reasoning)]
    deltas += [{spoken: word} for word in words(response.text)]
    for index, call in enumerate(calls):
        # Mistral sends a call whole, and its SDK takes nothing else.
        pieces = [call] if dialect == "mistral" else _call_pieces(call)
        deltas += [{"tool_calls": [{**piece, "index": index}]} for piece in pieces]
    choices: list[Json] = [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas]
    if raw is not None:
        choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": raw})
    events = [Event(None, {**head, "choices": [choice]}) for choice in choices]
    if not response.stop.terminal_seen:
        return events
    if usage:
        events.append(Event(None, {**head, "choices": [], **usage}))
    return [*events, Event(None, DONE)]


def _call_pieces(call: Json) -> list[Json]:
    function = call["function"]
    begin = {**call, "function": {**function, "arguments": ""}}
    return [begin, *({"function": {"arguments": word}} for word in words(function["arguments"]))]


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body; within a stream, the chunk that it is."""
    body = chat_error(status, code, message)
    return Event(None, body) if stream else body


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    framing=Framing.SSE,
    reasons=tables(NAME),
    # A refusal is a member of the message, and its reason is the usual one.
    voice=Voice("chatcmpl-", "call_", "x-request-id", {StopReason.REFUSED: "stop"}),
    replies=REPLY,
    route=route,
    routed=routed_by(_PATH),
    request_summary=request_summary,
    body=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)
