"""Ollama's own API in lines of JSON: `/api/chat`, and the responses of `/api/generate`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from endturn.formats.accumulator import ResponseAccumulator
from endturn.formats.call_arguments import finished_calls
from endturn.formats.encoding import (
    conversation,
    function_tool,
    output_limit,
    replays_message,
    request_body,
)
from endturn.formats.errors import error_words
from endturn.formats.format import Format, constant_path, error_without
from endturn.formats.framing import END_MARKERS
from endturn.formats.next_request import message_resumer, unfinished_message, without_lost_calls
from endturn.formats.parts import (
    Block,
    End,
    ErrorPart,
    FinishedCalls,
    Head,
    Part,
    Reason,
    Reasoning,
    Text,
    Tokens,
    ToolCallPart,
    usage_of_counts,
)
from endturn.formats.reading import (
    as_arguments,
    as_text,
    count,
    id_text,
    is_object_or_missing,
    items,
    member,
    member_getter,
    mint_id,
    number_or_text,
    text,
    text_or_none,
)
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.scripting import (
    scripted_blocks,
    scripted_events,
    scripted_model,
    scripted_reason,
    words,
)
from endturn.formats.settings import ANY_JSON, present
from endturn.formats.summaries import Context, Event, Framing, ScriptedStyle
from endturn.vocabulary import ChatResponse, Json, Message, Request, StopReason, ToolCall, Usage

NAME: Final = "ollama"

_PATH: Final = rf"{SEGMENTS}/api/(?:chat|(?P<prompt>generate))"


class OllamaReader:
    """Reads lines, or one body, which is a stream's only line, the one with `done: true`.

    The server truncates a prompt that does not fit the window, and the response does not report it:
    `prompt_eval_count` counts only the rest. Responses have no id.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._is_named = False
        self._call_count = 0

    def __call__(self, line: Any) -> Iterator[Part]:
        """Yield the parts of a line."""
        if error := member(line, "error"):
            yield ErrorPart(error)
            return
        if not self._is_named:
            self._is_named = True
            yield Head(None, text_or_none(member(line, "model")))
        message = member(line, "message")
        if message is None:  # of /api/generate
            message = {"content": member(line, "response"), "thinking": member(line, "thinking")}
        if thinking := number_or_text(member(message, "thinking")):
            yield Reasoning(thinking)
        yield Text(as_text(member(message, "content")))
        tool_calls = items(member(message, "tool_calls"))
        if (
            not self._keep
            and len(tool_calls) > 1
            and isinstance(member(tool_calls[-1], "function"), Mapping)
        ):
            plain_calls = finished_calls(map(_plain_call, tool_calls[:-1]))
            self._call_count += len(plain_calls)
            yield FinishedCalls(plain_calls)
            tool_calls = tool_calls[len(plain_calls) :]
        for call in tool_calls:
            if isinstance(function := member(call, "function"), Mapping):
                # Each call arrives complete, in one line. A minted id is unique to this response,
                # and is stored in the block.
                id_ = id_text(member(call, "id")) or mint_id(
                    member(line, "created_at"), self._call_count
                )
                arguments = as_arguments(function.get("arguments"))
                yield ToolCallPart(
                    self._call_count, id_, text(function.get("name")), arguments, closed=True
                )
                self._call_count += 1
                if self._keep:
                    yield Block("message", {"tool_calls": [{**call, "id": id_}]})
        if member(line, "done") is True:
            yield Reason(member(line, "done_reason"))
            if (usage := usage_of(line)) is not None:
                yield Tokens(usage)
            yield End()


def usage_of(figures: Any) -> Usage | None:
    """Return the usage as Ollama counts it."""
    get = member_getter(figures)
    return usage_of_counts(count(get("prompt_eval_count")), count(get("eval_count")))


def _plain_call(call: Json) -> tuple[Any, Any, Any]:
    """Return a call's id, name and arguments."""
    function = call["function"]
    return call["id"], function["name"], function["arguments"]


def _blocks(accumulator: ResponseAccumulator) -> Iterable[Json]:
    """Yield the one message, as the server takes it back."""
    answer_text, thinking_text = "".join(accumulator.text), "".join(accumulator.reasoning)
    if answer_text or thinking_text or accumulator.calls:
        thinking = {"thinking": thinking_text} if thinking_text else {}
        yield {
            "role": "assistant",
            "content": answer_text,
            **accumulator.blocks.get("message", {}),
            **thinking,
        }


# --- Requests -------------------------------------------------------------------------------------


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST /api/chat.

    The API has no tool choice: with "none", no tools are sent.
    """
    tools = () if request.tool_choice == "none" else request.tools
    settings = {
        "num_predict": output_limit(request),
        "temperature": request.temperature,
        "seed": request.seed,
    }
    members = {
        "model": request.model or None,
        "messages": _messages(request.messages),
        "stream": stream,
        "tools": [function_tool(tool) for tool in tools],
        "format": "json" if request.format == ANY_JSON else request.format,
        "options": present(settings),
    }
    return request_body(members, request.extra, conversation="messages")


def _messages(messages: Iterable[Message]) -> list[Json]:
    api_messages: list[Json] = []
    names: dict[str, str] = {}  # of the calls so far, by their ids
    for message, native_blocks in conversation(messages, NAME):
        if message.role == "assistant":
            names |= {call.id: call.name for call in message.tool_calls}
            api_messages += _answer(message, native_blocks)
        elif native_blocks:
            api_messages += native_blocks
        elif message.role == "tool":
            id_ = message.tool_call_id or ""
            result = {
                "role": "tool",
                "content": message.text,
                "tool_call_id": id_,
                "tool_name": names.get(id_),
            }
            api_messages.append(present(result))
        else:
            api_messages.append({"role": message.role, "content": message.text})
    return api_messages


def _answer(message: Message, native_blocks: Sequence[Json] | None) -> list[Json]:
    """Return an assistant message in a list; an empty list for an empty message."""
    if native_blocks and replays_message(message, native_blocks):
        replay = without_lost_calls(message, native_blocks[0])
        return [replay] if "tool_calls" in replay or text(replay.get("content")).strip() else []
    calls = [_api_call(call) for call in message.tool_calls]
    api_message = {"role": "assistant", "content": message.text, "tool_calls": calls or None}
    return [present(api_message)] if calls or message.text.strip() else []


def _unfinished(message: Json, answer_text: str | None) -> Json:
    """Return the message of a truncated response without its calls."""
    members = {name: value for name, value in message.items() if name != "tool_calls"}
    return members if answer_text is None else {**members, "content": answer_text}


# --- Scripted responses ---------------------------------------------------------------------------


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as the server would: a body, or the lines of a stream.

    Raises:
        UsageError: the API has no value for the stop reason.
    """
    stop = scripted_reason(NAME, response.stop, dialect)
    if stream:
        return scripted_events(_lines(response, stop))
    calls = [_api_call(call) for call in response.tool_calls]
    message = {
        "content": response.text,
        "thinking": response.reasoning or None,
        "tool_calls": calls or None,
    }
    return _line(response, message) | _end(response, stop)


def _api_call(call: ToolCall) -> Json:
    return {"id": call.id, "function": {"name": call.name, "arguments": call.arguments or {}}}


def _line(response: ChatResponse, message: Json) -> Json:
    """Return a line other than the last."""
    api_message = {"role": "assistant", "content": "", **present(message)}
    return {
        "model": scripted_model(response),
        "created_at": "2026-01-01T00:00:00Z",
        "message": api_message,
        "done": False,
    }


def _end(response: ChatResponse, stop: str | None) -> Json:
    """Return the members of a response's last line; only that has usage figures."""
    if stop is None:
        return {"done": False}
    usage = response.usage or Usage()
    return present(
        {
            "done": True,
            "done_reason": stop or None,
            "total_duration": 1,
            "prompt_eval_count": usage.input_tokens,
            "eval_count": usage.output_tokens,
        }
    )


def _lines(response: ChatResponse, stop: str | None) -> Iterator[Json]:
    for block in scripted_blocks(response):
        if block.call is not None:
            yield _line(response, {"tool_calls": [_api_call(block.call)]})
            continue
        for word in words(block.text):
            yield _line(response, {"thinking" if block.is_reasoning else "content": word})
    if response.stop.terminal_seen:
        yield _line(response, {}) | _end(response, stop)


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body, or the line of a stream that reports an error."""
    body = {"error": error_words(NAME, status, code, message).message}
    return Event(None, body) if stream else body


def _misshapen_member(data: Json) -> str | None:
    """Return `message` if it is no object."""
    return None if is_object_or_missing(data.get("message")) else "message"


FORMAT: Final = Format(
    name=NAME,
    provider="ollama",
    framing=Framing.NDJSON,
    voice=ScriptedStyle("", "call_", "x-request-id", {StopReason.TOOL_CALL: "stop"}),
    path=constant_path("/api/chat"),
    match_path=routed_by(_PATH),
    is_request=lambda body, _: "model" in body and ("messages" in body or "prompt" in body),
    body=encode,
    resume=message_resumer(NAME, _unfinished),
    unfinished=unfinished_message(_unfinished),
    one_message=True,
    reader=OllamaReader,
    labels=("a response", "a line of a stream"),
    required_members=("message", "response"),
    misshapen_member=_misshapen_member,
    error_in=error_without(),
    blocks=_blocks,
    end_markers=(*END_MARKERS, b"true"),
    has_end=True,
    reply=script,
    reply_error=script_error,
)
