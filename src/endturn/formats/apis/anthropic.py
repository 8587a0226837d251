"""The Messages API of Anthropic and compatible servers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from endturn.formats.accumulator import ResponseAccumulator
from endturn.formats.call_arguments import finished_calls, object_or_text
from endturn.formats.encoding import (
    content_parts,
    conversation,
    output_limit,
    request_body,
    system_messages,
    tool_description,
)
from endturn.formats.errors import error_words
from endturn.formats.format import Format, constant_path, error_without
from endturn.formats.framing import DONE, END_MARKERS
from endturn.formats.next_request import block_resumer, replayable_blocks
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
    items,
    lists_objects,
    member,
    member_getter,
    mint_id,
    only_text,
    runs,
    text,
    text_or_none,
)
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.scripting import (
    SIGNATURE,
    ScriptedBlock,
    scripted_blocks,
    scripted_events,
    scripted_model,
    scripted_reason,
    uncached_input,
    words,
)
from endturn.formats.settings import ANY_JSON, present
from endturn.formats.summaries import Context, Event, ScriptedStyle
from endturn.vocabulary import (
    ChatResponse,
    Json,
    Message,
    Request,
    Row,
    StopReason,
    Tool,
    Usage,
    raw_text,
    rows_of,
)

NAME: Final = "anthropic"

# "The request is a compaction request … nothing is sampled after the block": the compaction is the
# complete answer.
_COMPACTION_ROWS: Final = {
    "compaction": Row(StopReason.END_TURN, source="anthropic 2.12 compaction")
}

# --- Replies --------------------------------------------------------------------------------------

_CLIENT_CALL: Final = "tool_use"
"""Blocks of other types that end in `_tool_use` are calls of tools that the server runs."""
_DELTA_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "text_delta": ("text",),
    "thinking_delta": ("thinking",),
    "input_json_delta": ("partial_json",),
    "signature_delta": ("signature",),
    "compaction_delta": ("content", "encrypted_content"),
}
"""The members that each type of delta adds to its block."""


class AnthropicReader:
    """Reads events, or one whole message.

    Only the type at the top level counts, since a tool's result may hold a message.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._head: Any = None
        self._block_types: dict[int, str] = {}  # of the blocks that have started, by index
        self._usage_fields: Json = {}  # the latest figure of each field
        self._has_reason = False

    def __call__(self, event: Any) -> Iterator[Part]:
        """Yield the parts of an event or a body."""
        # GitHub Copilot's proxy sends `[DONE]` in place of `message_stop`, older vLLM after it.
        if event == DONE:
            if self._has_reason:
                yield End()
            return
        index = count(member(event, "index")) or 0
        match member(event, "type"):
            case "content_block_delta":
                yield from self._delta(index, member(event, "delta"))
            case "content_block_start":
                yield from self._block(index, member(event, "content_block"))
            case "content_block_stop" if self._block_types.get(index) == _CLIENT_CALL:
                yield ToolCallPart(index, closed=True)
            case "message_start":
                self._head = member(event, "message")
                # The output count is not final here, unless a proxy or a cached reply sends the
                # finished message.
                is_start = member(self._head, "stop_reason") is None
                yield from self._message_head(
                    self._head, without="output_tokens" if is_start else ""
                )
            case "message_delta":
                yield from self._content(self._head)
                yield from self._reason(member(event, "delta"))
                yield from self._usage(member(event, "usage"))
            case "message_stop":
                yield from self._content(self._head)
                yield from self._reason(self._head)
                yield End()
            case "error":
                yield ErrorPart(member(event, "error") or "error")
            case "message" | None as kind if kind or member(event, "content") is not None:
                # A body; or the message once more at the end of its stream, as one-api and its
                # forks send it.
                is_repeat = self._head is not None or bool(self._block_types)
                self._head = self._head or event
                yield from self._message_head(event)
                yield from self._content(event)
                yield from self._reason(event)
                if self._has_reason or not is_repeat:
                    yield End()

    def _message_head(self, message: Any, *, without: str = "") -> Iterator[Part]:
        yield Head(id_text(member(message, "id")) or None, text_or_none(member(message, "model")))
        yield from self._usage(member(message, "usage"), without=without)

    def _content(self, message: Any) -> Iterator[Part]:
        """Yield the blocks of a whole message, unless events of their own have reported them."""
        content = member(message, "content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else items(content)
        offset = 0
        for kind, run in runs(() if self._block_types else blocks, _kind):
            plain_text = None if self._keep or kind != "text" else only_text(run, kind)
            if plain_text is not None:
                self._block_types[offset] = "text"
                yield Text(plain_text)
            else:
                plain_calls = (
                    ()
                    if self._keep or kind != _CLIENT_CALL
                    else finished_calls(map(_plain_call, run[:-1]))
                )
                if plain_calls:
                    yield FinishedCalls(plain_calls)
                for index, block in enumerate(run[len(plain_calls) :], offset + len(plain_calls)):
                    yield from self._block(index, block)
                    if kind == _CLIENT_CALL:
                        yield ToolCallPart(index, closed=True)
            offset += len(run)

    def _block(self, index: int, block: Any) -> Iterator[Part]:
        kind = self._block_types[index] = _kind(block)
        if kind == _CLIENT_CALL:
            # A call without an id gets one, also in its block, because the tool result has to name
            # it.
            id_ = id_text(member(block, "id")) or mint_id(
                id_text(member(self._head, "id")) or None, index
            )
            yield ToolCallPart(
                index, id_, text(block.get("name")), as_arguments(block.get("input")), closed=False
            )
            block = {**block, "id": id_} if self._keep else block
        elif kind == "text":
            block_text = as_text(block.get("text"))
            yield Text(block_text)
            block = {**block, "text": block_text} if self._keep else block
        elif kind == "thinking":
            yield Reasoning(as_text(member(block, "thinking")))
        elif kind == "fallback":
            # "The fallback model producing the content that follows this block."
            yield Head(model=text_or_none(member(member(block, "to"), "model")), replaces=True)
        if self._keep and isinstance(block, Mapping):
            yield Block(index, dict(block), begins=True)

    def _delta(self, index: int, delta: Any) -> Iterator[Part]:
        kind = text(member(delta, "type"))
        if index not in self._block_types:
            if kind not in ("text_delta", "thinking_delta"):
                return
            # Text counts even if its block has no start event.
            yield from self._block(index, {"type": kind.removesuffix("_delta")})
        if kind == "text_delta":
            yield Text(as_text(member(delta, "text")))
        elif kind == "thinking_delta":
            yield Reasoning(as_text(member(delta, "thinking")))
        elif kind == "input_json_delta" and self._block_types[index] == _CLIENT_CALL:
            yield ToolCallPart(index, arguments=as_arguments(member(delta, "partial_json")))
        if self._keep and kind == "citations_delta":
            yield Block(index, {"citations": [member(delta, "citation")]})
        elif self._keep:
            yield Block(
                index,
                {
                    name: _piece(delta[name])
                    for name in _DELTA_MEMBERS.get(kind, ())
                    if name in delta
                },
            )

    def _reason(self, holder: Any) -> Iterator[Part]:
        raw, stop_sequence = (
            member(holder, "stop_reason"),
            text_or_none(member(holder, "stop_sequence")),
        )
        self._has_reason = self._has_reason or raw_text(raw) is not None
        yield Reason(
            raw,
            detail=stop_sequence
            or text_or_none(member(member(holder, "stop_details"), "category")),
        )

    def _usage(self, usage: Any, *, without: str = "") -> Iterator[Part]:
        """Yield the usage. The figures of `message_delta` are cumulative and may lack the input."""
        figures = usage if isinstance(usage, Mapping) else {}
        self._usage_fields |= {
            name: value for name, value in figures.items() if value is not None and name != without
        }
        if (totals := usage_of(self._usage_fields)) is not None:
            yield Tokens(totals)


def usage_of(figures: Any) -> Usage | None:
    """Return the usage as Anthropic counts it.

    "Total input tokens in a request is the summation of" the three figures of input.
    """
    if not figures:
        return None
    get = member_getter(figures)
    input_tokens = count(get("input_tokens"))
    cache_read_tokens = count(get("cache_read_input_tokens"))
    cache_write_tokens = count(get("cache_creation_input_tokens"))
    if input_tokens is not None:
        input_tokens += (cache_read_tokens or 0) + (cache_write_tokens or 0)
    return usage_of_counts(
        input_tokens,
        count(get("output_tokens")),
        count(member(get("output_tokens_details"), "thinking_tokens")),
        cache_read_tokens,
        cache_write_tokens,
    )


def _kind(block: Any) -> str:
    return text(member(block, "type"))


def _plain_call(block: Json) -> tuple[Any, Any, Any]:
    """Return a call's id, name and input."""
    return block["id"], block["name"], block["input"]


def _piece(value: Any) -> Any:
    """Return a piece of a block; a number is turned back into its text."""
    return as_text(value) if isinstance(value, bool | int | float) else value


def _rows_of(ctx: Context) -> Mapping[str, Row]:
    # Anthropic's own client for Bedrock uses InvokeModel too.
    dialect = "bedrock" if ctx.provider == "aws.bedrock" else ctx.dialect
    rows = rows_of(NAME, dialect)
    return {**rows, **_COMPACTION_ROWS} if ctx.request.compaction else rows


def _blocks(accumulator: ResponseAccumulator) -> Iterable[Json]:
    """Yield the content blocks, with each call's input as the object that its pieces form."""
    for _, block in sorted(cast(dict[int, Json], accumulator.blocks).items()):
        if raw := text(block.pop("partial_json", "")):
            block["input"] = object_or_text(raw)
        yield block


# --- Requests -------------------------------------------------------------------------------------

_DEFAULT_LIMIT: Final = 4096
"""The limit of a request that has none: the API demands one."""


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST /v1/messages."""
    system = system_messages(request, NAME)
    parts = [part for message in system for part in content_parts(message.content, _text_block)]
    tools = [_tool(tool) for tool in request.tools]
    members = {
        "model": request.model or None,
        "max_tokens": output_limit(request) or _DEFAULT_LIMIT,
        "messages": _messages(request.messages),
        "system": system[0].content if len(system) == 1 else parts,
        "tools": tools,
        "tool_choice": _tool_choice(request.tool_choice) if tools else None,
        "temperature": request.temperature,
        "output_config": _output_config(request.format),
        "stream": stream or None,
    }
    return request_body(members, request.extra, conversation="messages")


def _tool(tool: Tool) -> Json:
    return present(
        {"name": tool.name, "description": tool_description(tool), "input_schema": tool.parameters}
    )


def _tool_choice(choice: str) -> Json | None:
    match choice:
        case "auto":
            return None
        case "none":
            return {"type": "none"}
        case "required":
            return {"type": "any"}
        case name:
            return {"type": "tool", "name": name}


def _output_config(format_: Json | None) -> Json | None:
    """Return a JSON Schema; the API cannot request JSON without one."""
    if not format_ or format_ == ANY_JSON:
        return None
    return {"format": {"type": "json_schema", "schema": format_}}


def _messages(messages: Iterable[Message]) -> list[Json]:
    """Return the conversation without system messages.

    Tool results that follow each other are one message.
    """
    api_messages: list[Json] = []
    results: list[Json] | None = None  # the content of the last message, where it holds results
    for message, native_blocks in conversation(messages, NAME):
        if message.role == "tool":
            content = [*native_blocks] if native_blocks else [_result(message)]
            if results is None:
                results = content
                api_messages.append({"role": "user", "content": results})
            else:
                results += content
        elif message.role == "assistant":
            blocks = _answer(message, native_blocks)
            is_text = (
                isinstance(message.content, str) and not native_blocks and not message.tool_calls
            )
            if blocks:
                api_messages.append(
                    {"role": "assistant", "content": message.content if is_text else blocks}
                )
                results = None
        elif native_blocks:
            api_messages += native_blocks
            results = None
        elif message.role == "user" and message.content != []:
            api_messages.append({"role": "user", "content": message.content})
            results = None
    return api_messages


def _answer(message: Message, native_blocks: Sequence[Json] | None) -> list[Json]:
    """Return the blocks of an assistant message."""
    if native_blocks:
        return replayable_blocks(native_blocks, message.tool_calls)
    calls = [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
        for call in message.tool_calls
    ]
    return [*replayable_blocks(content_parts(message.content, _text_block)), *calls]


def _result(message: Message) -> Json:
    result = {
        "type": "tool_result",
        "tool_use_id": message.tool_call_id or "",
        "content": message.content,
    }
    return {**result, "is_error": True} if message.is_error else result


def _text_block(text: str) -> Json:
    return {"type": "text", "text": text}


# --- Scripted responses ---------------------------------------------------------------------------


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as the API would: a message, or the events of its stream.

    Raises:
        UsageError: the API has no value for the stop reason.
    """
    stop = scripted_reason(NAME, response.stop, dialect)
    return scripted_events(_events(response, stop), "type") if stream else _message(response, stop)


def _message(response: ChatResponse, stop: str | None) -> Json:
    content: list[Json] = []
    if response.reasoning:
        content.append({"type": "thinking", "thinking": response.reasoning, "signature": SIGNATURE})
    if response.text:
        content.append({"type": "text", "text": response.text})
    content += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments or {}}
        for call in response.tool_calls
    ]
    message = {
        "id": response.id,
        "type": "message",
        "role": "assistant",
        "model": scripted_model(response),
        "content": content,
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": _usage(response.usage),
    }
    return present(message, nulls=("stop_sequence",))


def _usage(usage: Usage | None) -> Json:
    """Return the usage of a response, which the API always reports."""
    usage = usage or Usage()
    thinking = present({"thinking_tokens": usage.reasoning_tokens})
    return present(
        {
            "input_tokens": uncached_input(usage),
            "output_tokens": usage.output_tokens or 0,
            "cache_read_input_tokens": usage.cache_read_tokens,
            "cache_creation_input_tokens": usage.cache_write_tokens,
            "output_tokens_details": thinking or None,
        }
    )


def _events(response: ChatResponse, stop: str | None) -> Iterator[Json]:
    usage = _usage(response.usage)
    message: Json = {
        "id": response.id,
        "type": "message",
        "role": "assistant",
        "model": scripted_model(response),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    yield {
        "type": "message_start",
        "message": present(message, nulls=("stop_reason", "stop_sequence")),
    }
    for block in scripted_blocks(response):
        for data in _block_events(block):
            yield {"type": data["type"], "index": block.index, **data}
        if not block.breaks_off:
            yield {"type": "content_block_stop", "index": block.index}
    if response.stop.terminal_seen:
        delta = present({"stop_reason": stop, "stop_sequence": None}, nulls=("stop_sequence",))
        yield {"type": "message_delta", "delta": delta, "usage": usage}
        yield {"type": "message_stop"}


def _block_events(block: ScriptedBlock) -> Iterator[Json]:
    """Yield the events of one block, without its end event and its index."""
    if block.is_reasoning:
        empty: Json = {"type": "thinking", "thinking": "", "signature": ""}
        kind, holder = "thinking_delta", "thinking"
    elif block.call is not None:
        empty = {"type": "tool_use", "id": block.call.id, "name": block.call.name, "input": {}}
        kind, holder = "input_json_delta", "partial_json"
    else:
        empty = {"type": "text", "text": ""}
        kind, holder = "text_delta", "text"
    yield {"type": "content_block_start", "content_block": empty}
    pieces = words(block.text) if block.call is None else ["", *words(block.text)]
    for piece in pieces:
        yield {"type": "content_block_delta", "delta": {"type": kind, holder: piece}}
    if block.is_reasoning:
        yield {
            "type": "content_block_delta",
            "delta": {"type": "signature_delta", "signature": SIGNATURE},
        }


def script_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """Write an error answer's body, or the error event of a stream."""
    error = error_words(NAME, status, code, message)
    about = {"type": error.type, "message": error.message}
    body = {"type": "error", "error": about, "request_id": f"req_{number:08d}"}
    return Event("error", body) if stream else body


def _misshapen_member(data: Json) -> str | None:
    """Return `content[]` if it does not hold objects."""
    return None if lists_objects(data.get("content")) else "content[]"


FORMAT: Final = Format(
    name=NAME,
    provider="anthropic",
    voice=ScriptedStyle("msg_", "toolu_", "request-id"),
    path=constant_path("/v1/messages"),
    match_path=routed_by(rf"{SEGMENTS}/v1/messages"),
    is_request=lambda body, _: (
        "messages" in body and ("max_tokens" in body or "anthropic_version" in body)
    ),
    body=encode,
    resume=block_resumer(NAME, _text_block),
    text_block=_text_block,
    reader=AnthropicReader,
    own_rows=_rows_of,
    labels=("a message", "an event of a message stream"),
    required_members=("content",),
    event_types=r"ping|error|message(?:_start|_delta|_stop)?|content_block_(?:start|delta|stop)",
    misshapen_member=_misshapen_member,
    error_in=error_without("content"),
    blocks=_blocks,
    has_end=True,
    end_markers=(*END_MARKERS, b"message_stop", b'"message"', b'"content"'),
    reply=script,
    reply_error=script_error,
)
