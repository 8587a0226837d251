"""Cohere's chat API: v2, of our client and of scripted servers.

Also the requests, bodies and events of v1.

A v2 reply is a message of content (text, thinking), a plan and calls; v1's holds a text and calls.
Events hold them in pieces. Over HTTP, v1 streams lines of JSON, v2 server-sent events;
Bedrock's Command R speaks v1 within AWS's messages. Events of v1, each as an object, are read here
too: the dialect "v1" has its stop reasons.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.formats.accumulator import ResponseAccumulator
from endturn.formats.apis.cohere_request import encode, unfinished
from endturn.formats.call_arguments import arguments, finished_calls
from endturn.formats.encoding import arguments_text, function_call
from endturn.formats.errors import error_words, label_of
from endturn.formats.format import Format
from endturn.formats.framing import DONE, END_MARKERS
from endturn.formats.next_request import message_resumer, unfinished_message
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
)
from endturn.formats.reading import (
    as_arguments,
    as_text,
    count,
    first_member,
    id_text,
    items,
    lists_objects,
    member,
    member_getter,
    mint_id,
    only_text,
    text,
)
from endturn.formats.request_summary import SEGMENTS, routed_by, summarize_request
from endturn.formats.scripting import (
    ScriptedBlock,
    scripted_blocks,
    scripted_events,
    scripted_reason,
    words,
)
from endturn.formats.settings import present
from endturn.formats.summaries import Context, Event, RequestSummary, ScriptedStyle
from endturn.vocabulary import ChatResponse, Json, ToolCall, Usage, raw_text

NAME: Final = "cohere"

# --- Replies --------------------------------------------------------------------------------------

_CONTENT_KINDS: Final = ("text", "thinking")
"""The kinds of content that are read; other ones go back as they are."""


class CohereReader:
    """Reads events or a body of either version, each known by its shape.

    v2's events have a `type`, v1's an `event_type`; v2's body has a `message`, v1's a `text`.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._id: str | None = None
        self._call_count = 0
        self._has_text = False

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """Yield the parts of an event or a body."""
        delta = member(event, "delta")
        message = member(delta, "message")
        match member(event, "type") or member(event, "event_type"):
            case "content-delta" if not self._keep:
                yield Text(as_text(member(member(message, "content"), "text")))
            case "content-delta" | "content-start":
                yield from self._content(member(event, "index"), member(message, "content"))
            case "tool-plan-delta":
                yield from self._plan(member(message, "tool_plan"))
            case "tool-call-start":
                yield self._call(_first_entry(member(message, "tool_calls")))
            case "tool-call-delta" if self._call_count:
                function = member(_first_entry(member(message, "tool_calls")), "function")
                yield ToolCallPart(
                    self._call_count - 1, arguments=as_arguments(member(function, "arguments"))
                )
            case "tool-call-end" if self._call_count:
                yield ToolCallPart(self._call_count - 1, closed=True)
            case "citation-start":
                yield from self._citations(member(message, "citations"))
            case "message-start" | "stream-start":
                yield self._head(event)
            case "message-end":
                yield from _end(
                    member(delta, "finish_reason"), member(delta, "usage"), member(delta, "error")
                )
            case "text-generation":
                yield from self._content(0, event)
            case "tool-calls-chunk":
                call = member(event, "tool_call_delta")
                yield from self._content(0, event if text(member(event, "text")) else call)
                if text(member(call, "name")):
                    yield self._call(call)
                elif self._call_count:
                    yield ToolCallPart(
                        self._call_count - 1, arguments=as_arguments(member(call, "parameters"))
                    )
            case "tool-calls-generation":
                yield from self._final_response(event)
            case "stream-end":
                response = member(event, "response")
                yield from self._final_response(response)
                yield self._head(response)
                reason = member(event, "finish_reason") or member(response, "finish_reason")
                yield from _end(reason, member(response, "meta"), member(event, "error"))
            case "error":
                yield ErrorPart(member(event, "error") or event)
            case None:
                yield from self._body(event)

    def _body(self, body: Any) -> Iterator[Part]:
        """Yield the parts of a body of either version, or of an error in its place."""
        message = member(body, "message")
        is_v2 = isinstance(message, Mapping)
        if not is_v2 and (error := member(body, "error") or (body if text(message) else None)):
            yield ErrorPart(error)
            return
        holder, content = (
            (message, member(message, "content")) if is_v2 else (body, member(body, "text"))
        )
        if content is None and not is_v2 and member(body, "tool_calls") is None:
            return
        yield self._head(body)
        is_plain = isinstance(content, str | bool | int | float)
        plain_text = None if self._keep or is_plain else only_text(items(content), "text")
        if plain_text:
            self._has_text, content = True, None
            yield Text(plain_text)
        for index, part in enumerate([{"text": content}] if is_plain else items(content)):
            yield from self._content(index, part)
        yield from self._plan(member(holder, "tool_plan"))
        yield from self._citations(member(message, "citations"))
        reason, usage = member(body, "finish_reason"), member(body, "usage") or member(body, "meta")
        # Without a reason, only the arguments show whether a call is complete.
        is_closed = None if raw_text(reason) is None else True
        tool_calls = items(member(holder, "tool_calls"))
        if is_closed and not self._keep and len(tool_calls) > 1:
            plain_calls = finished_calls(map(_plain_call, tool_calls[:-1]))
            self._call_count += len(plain_calls)
            yield FinishedCalls(plain_calls)
            tool_calls = tool_calls[len(plain_calls) :]
        for raw in tool_calls:
            call = self._call(raw, is_closed)
            if is_closed is None:
                call_arguments = call.arguments
                call = call._replace(
                    closed=isinstance(call_arguments, dict) or arguments(call_arguments) is not None
                )
            yield call
        yield from _end(reason, usage, None)
        yield End(is_body=True)

    def _final_response(self, response: Any) -> Iterator[Part]:
        """Yield the final response of a stream: the text, if none has come, and every call."""
        if not self._has_text:
            yield from self._content(0, {"text": member(response, "text")})
        if calls := items(member(response, "tool_calls")):
            self._call_count = 0
            for call in calls:
                yield self._call(call, True)

    def _content(self, index: Any, content: Any) -> Iterator[Part]:
        """Yield a piece of content; its kind is its `type`, or the member that it has."""
        kind = text(member(content, "type")) or next(
            (name for name in _CONTENT_KINDS if as_text(member(content, name))), ""
        )
        piece = as_text(member(content, kind))
        if kind == "text":
            self._has_text = self._has_text or piece != ""
            yield Text(piece)
        elif kind == "thinking":
            yield Reasoning(piece)
        if self._keep and kind:
            yield Block(
                (count(index), kind),
                {"type": kind, kind: piece} if kind in _CONTENT_KINDS else dict(content),
            )

    def _plan(self, plan: Any) -> Iterator[Part]:
        """Yield a piece of the plan that precedes calls: thinking that the provider shows."""
        if piece := text(plan):
            yield Reasoning(piece)
            yield Block("message", {"tool_plan": piece})

    def _citations(self, citations: Any) -> Iterator[Part]:
        """Yield the citations of a body, or the one of an event."""
        if entries := [entry for entry in _as_list(citations) if isinstance(entry, Mapping)]:
            yield Block("message", {"citations": entries})

    def _call(self, call: Any, is_closed: bool | None = None) -> ToolCallPart:
        """Return a call at its start.

        V2's is a `function` with `arguments` in JSON, v1's has `parameters` and no id.
        """
        function, number = member(call, "function") or call, self._call_count
        self._call_count += 1
        call_arguments = as_arguments(first_member(function, "arguments", "parameters"))
        id_ = id_text(member(call, "id")) or mint_id(self._id, number)
        return ToolCallPart(
            number,
            id_,
            text(member(function, "name")),
            "" if call_arguments is None else call_arguments,
            closed=is_closed,
        )

    def _head(self, holder: Any) -> Part:
        ids = (id_text(member(holder, name)) for name in ("id", "generation_id", "response_id"))
        self._id = self._id or next(filter(None, ids), None)
        return Head(self._id)


def usage_of(figures: Any) -> Usage | None:
    """Return the usage as Cohere counts it.

    `tokens` are those that the model read and wrote, `billed_units` those that are paid for.
    """
    if not figures:
        return None
    get = member_getter(figures)
    counted = member_getter(get("tokens"))
    input_tokens, output_tokens = count(counted("input_tokens")), count(counted("output_tokens"))
    if (billed := get("billed_units")) is not None:
        if input_tokens is None:
            input_tokens = count(member(billed, "input_tokens"))
        if output_tokens is None:
            output_tokens = count(member(billed, "output_tokens"))
    if (cached_tokens := get("cached_tokens")) is not None:
        cached_tokens = count(cached_tokens)
    if input_tokens is output_tokens is cached_tokens is None:
        return None
    return Usage(input_tokens, output_tokens, cache_read_tokens=cached_tokens)


def _end(reason: Any, usage: Any, error: Any) -> Iterator[Part]:
    """Yield the end of a response. Without a reason it is no end, but an error or nothing."""
    if (totals := usage_of(usage)) is not None:
        yield Tokens(totals)
    if raw_text(reason) is not None:
        yield Reason(reason, detail=label_of(error) if error else None)
        yield End()
    elif error:
        yield ErrorPart(error)


def _plain_call(call: Json) -> tuple[Any, Any, Any]:
    """Return the id, name and arguments of a call of v2."""
    function = call["function"]
    return call["id"], function["name"], function["arguments"]


def _as_list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else (value,)


def _first_entry(value: Any) -> Any:
    """Return the value that an event holds; some servers send it in a list."""
    return next(iter(_as_list(value)), None)


def _blocks(accumulator: ResponseAccumulator) -> Iterable[Json]:
    """Yield the one message, in v2's shape for both versions."""
    blocks = accumulator.blocks
    message_members = blocks.pop("message", {})
    calls = []
    for call in accumulator.calls.values():
        arguments_text = (
            "".join(call.pieces)
            if call.arguments_object is None
            else json.dumps(call.arguments_object, ensure_ascii=False)
        )
        calls.append(
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": arguments_text},
            }
        )
    answer = {"content": [*blocks.values()], "tool_calls": calls, **message_members}
    if any(answer.values()):
        yield {"role": "assistant", **{name: value for name, value in answer.items() if value}}


def _error_body(data: Any) -> Any:
    """Return the error in place of an answer; `message-end` has it in its delta."""
    message, kind = member(data, "message"), member(data, "type")
    if (
        kind == "error"
        or member(data, "error")
        or (text(message) and member(data, "event_type") is None)
    ):
        return None if isinstance(message, Mapping) and not kind else data
    error = member(member(data, "delta"), "error")
    return {"error": error} if error else None


# --- Requests -------------------------------------------------------------------------------------


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """Summarize a request.

    In v1, the tool results and the new message follow the history.
    """
    message, results = kwargs.get("message"), items(kwargs.get("tool_results"))
    if items(kwargs.get("messages")) or not isinstance(message, str):
        return summarize_request(NAME, kwargs)
    history = [*items(kwargs.get("chat_history"))]
    history += [{"role": "TOOL", "tool_results": results}] if results else []
    history += [{"role": "user", "content": message}] if message else []
    return summarize_request(
        NAME, kwargs, history=history, system=text(kwargs.get("preamble")) or None
    )


# --- Scripted responses, of v2 --------------------------------------------------------------------

_ID: Final = "c14c80c3-18eb-4519-9460-0000"
"""The start of scripted ids: with eight digits more they are UUIDs, as Cohere's are."""


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as v2 of the API would: a body, or the events of its stream.

    Raises:
        UsageError: the API has no value for the stop reason.
    """
    stop = scripted_reason(NAME, response.stop, dialect)
    if stream:
        return scripted_events(_events(response, stop), "type")
    content: list[Json] = []
    if response.reasoning:
        content.append({"type": "thinking", "thinking": response.reasoning})
    if response.text:
        content.append({"type": "text", "text": response.text})
    calls = [function_call(call, arguments_text(call)) for call in response.tool_calls]
    message = present(
        {"role": "assistant", "content": content or None, "tool_calls": calls or None}
    )
    body = {
        "id": response.id,
        "message": message,
        "finish_reason": stop,
        "usage": _usage(response.usage),
    }
    return present(body, nulls=("finish_reason",))


def _usage(usage: Usage | None) -> Json | None:
    if usage is None:
        return None
    tokens = present({"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens})
    figures = {
        "tokens": tokens or None,
        "billed_units": tokens or None,
        "cached_tokens": usage.cache_read_tokens,
    }
    return present(figures) or None


def _events(response: ChatResponse, stop: str | None) -> Iterator[Json | str]:
    message = {
        "role": "assistant",
        "content": [],
        "tool_plan": "",
        "tool_calls": [],
        "citations": [],
    }
    yield present({"type": "message-start", "id": response.id, "delta": {"message": message}})
    for block in scripted_blocks(response):
        yield from _content_events(block) if block.call is None else _call_events(block, block.call)
    if response.stop.terminal_seen:
        delta = present(
            {"finish_reason": stop, "usage": _usage(response.usage)}, nulls=("finish_reason",)
        )
        yield {"type": "message-end", "delta": delta}
        yield DONE


def _content_events(block: ScriptedBlock) -> Iterator[Json]:
    kind = "thinking" if block.is_reasoning else "text"

    def event(type_: str, content: Json) -> Json:
        return {"type": type_, "index": block.index, "delta": {"message": {"content": content}}}

    yield event("content-start", {"type": kind, kind: ""})
    for word in words(block.text):
        yield event("content-delta", {kind: word})
    if not block.breaks_off:
        yield {"type": "content-end", "index": block.index}


def _call_events(block: ScriptedBlock, call: ToolCall) -> Iterator[Json]:
    def event(type_: str, tool_calls: Json) -> Json:
        return {
            "type": type_,
            "index": block.call_index,
            "delta": {"message": {"tool_calls": tool_calls}},
        }

    yield event("tool-call-start", function_call(call, ""))
    for word in words(block.text):
        yield event("tool-call-delta", {"function": {"arguments": word}})
    if call.closed and not block.breaks_off:
        yield {"type": "tool-call-end", "index": block.call_index}


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body, or the end of a stream that reports an error."""
    error = error_words(NAME, status, code, message)
    if not stream:
        return {"id": f"{_ID}{number:08d}", "message": error.message}
    delta = {
        "error": error.message,
        "finish_reason": "TIMEOUT" if status in (408, 504) else "ERROR",
    }
    return Event("message-end", {"type": "message-end", "delta": delta})


def _misshapen_member(data: Json) -> str | None:
    """Return `tool_calls[]` if it does not hold objects."""
    return None if lists_objects(data.get("tool_calls")) else "tool_calls[]"


FORMAT: Final = Format(
    name=NAME,
    provider="cohere",
    voice=ScriptedStyle(_ID, "tool_", "x-debug-trace-id"),
    path=lambda request: "/v1/chat" if request.dialect == "v1" else "/v2/chat",
    match_path=routed_by(rf"{SEGMENTS}/v2/chat"),
    is_request=lambda body, dialect: (
        "message" in body if dialect == "v1" else "model" in body and "messages" in body
    ),
    body=encode,
    resume=message_resumer(NAME, unfinished),
    unfinished=unfinished_message(unfinished),
    one_message=True,
    own_summary=request_summary,
    reader=CohereReader,
    labels=("a chat response", "an event of a chat stream"),
    required_members=("message", "text", "tool_calls"),
    event_types=r"debug|error|[a-z]+(?:-[a-z]+)*-(?:start|delta|end|generation|chunk)",
    misshapen_member=_misshapen_member,
    error_in=_error_body,
    blocks=_blocks,
    end_markers=(*END_MARKERS, b"message-end", b"stream-end", b'"message":"', b'"message": "'),
    has_end=True,
    reply=script,
    reply_error=script_error,
)
