"""The Converse API of Amazon Bedrock: one format for all the models that it serves."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import quote

from endturn.formats.accumulator import ResponseAccumulator
from endturn.formats.apis.bedrock_converse_script import script, script_error
from endturn.formats.call_arguments import finished_calls, object_or_text
from endturn.formats.encoding import (
    content_parts,
    conversation,
    output_limit,
    request_body,
    system_messages,
    tool_description,
)
from endturn.formats.format import Format, PathRequest
from endturn.formats.history import call_in
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
    is_object_or_missing,
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
from endturn.formats.settings import ANY_JSON, present
from endturn.formats.summaries import Context, Framing, ScriptedStyle
from endturn.vocabulary import Json, Message, Request, Tool, Usage

NAME: Final = "bedrock_converse"

# --- Replies --------------------------------------------------------------------------------------


class ConverseReader:
    """Reads events, each an object of one member, or one whole body. In boto3, blobs are bytes."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        # of the blocks that have started, by index: it is a client's tool call
        self._client_blocks: dict[int, bool] = {}

    def __call__(self, event: Any) -> Iterator[Part]:
        """Yield the parts of an event or a body."""
        for name, payload in event.items() if isinstance(event, dict) else ():
            match name:
                case "contentBlockDelta":
                    yield from self._delta(_index(payload), member(payload, "delta"))
                case "contentBlockStart":
                    yield from self._start(
                        _index(payload), member(payload, "start"), is_closed=False
                    )
                case "contentBlockStop":
                    if self._client_blocks.get(index := _index(payload)):
                        yield ToolCallPart(index, closed=True)
                case "messageStop":
                    yield _reason(payload)
                case "metadata":
                    yield from _figures(payload)
                    yield End()
                case "output" if payload is not None:
                    yield from self._content(member(payload, "message"))
                    yield _reason(event)
                    yield from _figures(event)
                    yield End(is_body=True)
                case _ if (error := error_event(name, payload)) is not None:
                    yield ErrorPart(error)

    def _content(self, message: Any) -> Iterator[Part]:
        offset = 0
        for kind, run in runs(items(member(message, "content")), _kind):
            plain_text = None if self._keep or kind != "text" else only_text(run)
            if plain_text is not None:
                yield Text(plain_text)
            else:
                plain_calls = (
                    ()
                    if self._keep or kind != "toolUse"
                    else finished_calls(map(_plain_call, run[:-1]))
                )
                if plain_calls:
                    yield FinishedCalls(plain_calls)
                yield from self._blocks(run[len(plain_calls) :], offset + len(plain_calls))
            offset += len(run)

    def _blocks(self, blocks: Sequence[Any], first_index: int) -> Iterator[Part]:
        """Yield the parts of whole blocks, from the position of the first."""
        for index, block in enumerate(blocks, first_index):
            block_text = as_text(member(block, "text"))
            if (citations := member(block, "citationsContent")) is not None:
                # The text that citations belong to is visible text like any other.
                block_text += "".join(
                    as_text(member(part, "text")) for part in items(member(citations, "content"))
                )
            if block_text:
                yield Text(block_text)
            if (reasoning := member(block, "reasoningContent")) is not None:
                yield Reasoning(as_text(member(member(reasoning, "reasoningText"), "text")))
            yield from self._start(index, block, is_closed=True)

    def _start(self, index: int, block: Any, *, is_closed: bool) -> Iterator[Part]:
        """Yield the start of a block, or a whole block: an object whose only member is its kind."""
        tool_use = call_in(block)
        self._client_blocks[index] = tool_use is not None
        if tool_use is not None:
            # A call without an id gets one, also in its block, because the tool result has to name
            # it.
            id_, name = id_text(tool_use.get("toolUseId")), text(tool_use.get("name"))
            tool_use = {**tool_use, "toolUseId": id_ or mint_id(name, index)}
            call_input = as_arguments(tool_use.get("input", {}))
            yield ToolCallPart(
                index,
                tool_use["toolUseId"],
                name,
                "" if call_input is None else call_input,
                closed=is_closed,
            )
            block = {**block, "toolUse": tool_use}
        if self._keep and isinstance(block, dict):
            yield Block(index, block)

    def _delta(self, index: int, delta: Any) -> Iterator[Part]:
        """Yield a piece of a block. Text and reasoning blocks have no start event."""
        for kind, content in delta.items() if isinstance(delta, dict) else ():
            piece = content
            match kind:
                case "text":
                    piece = as_text(content)
                    yield Text(piece)
                case "reasoningContent":
                    yield Reasoning(as_text(member(content, "text")))
                case "toolUse":
                    if index not in self._client_blocks:
                        return  # the start of this call is missing, so it has no name
                    call_input = as_arguments(member(content, "input"))
                    piece = {
                        "input": json.dumps(call_input)
                        if isinstance(call_input, dict)
                        else call_input or ""
                    }
                    if self._client_blocks[index]:
                        yield ToolCallPart(index, arguments=piece["input"])
                case "toolResult":
                    piece = {"content": [*items(content)]}
                case "citation":
                    kind, piece = "citations", [content]
            if self._keep:
                self._client_blocks.setdefault(index, False)
                yield Block(index, {kind: piece})


def _kind(block: Any) -> str:
    """Return the name of a block's only member; "" if it has several."""
    return next(iter(block)) if isinstance(block, dict) and len(block) == 1 else ""


def _plain_call(block: Json) -> tuple[Any, Any, Any]:
    """Return a call's id, name and input."""
    tool_use = block["toolUse"]
    return tool_use["toolUseId"], tool_use["name"], tool_use["input"]


def _index(payload: Any) -> int:
    return count(member(payload, "contentBlockIndex")) or 0


def _reason(holder: Any) -> Part:
    # The stop sequence is reported only if the request asked for it:
    # additionalModelResponseFieldPaths ["/stop_sequence"], and for streams
    # ["/delta/stop_sequence"], since the fields are those of the model's own last event.
    stop_sequence, fields = None, member(holder, "additionalModelResponseFields")
    if fields is not None:
        stop_sequence = text_or_none(
            member(fields, "stop_sequence") or member(member(fields, "delta"), "stop_sequence")
        )
    return Reason(member(holder, "stopReason"), detail=stop_sequence)


def usage_of(figures: Any) -> Usage | None:
    """Return the usage as Converse counts it.

    `inputTokens` neither went into a cache nor came from one (user guide, "Prompt caching").
    """
    if not figures:
        return None
    get = member_getter(figures)
    input_tokens = count(get("inputTokens"))
    cache_read_tokens = count(get("cacheReadInputTokens"))
    cache_write_tokens = count(get("cacheWriteInputTokens"))
    if input_tokens is not None:
        input_tokens += (cache_read_tokens or 0) + (cache_write_tokens or 0)
    return usage_of_counts(
        input_tokens,
        count(get("outputTokens")),
        cache_read_tokens=cache_read_tokens,
        cache_write_tokens=cache_write_tokens,
    )


def _figures(holder: Any) -> Iterator[Part]:
    if (totals := usage_of(member(holder, "usage"))) is not None:
        yield Tokens(totals)
    # The model that a prompt router chose; the API names no other.
    if (router := member(member(holder, "trace"), "promptRouter")) is not None:
        yield Head(model=text_or_none(member(router, "invokedModelId")))


def error_event(name: str, payload: Any) -> Json | None:
    """Return an exception event as an error with its type; None for any other event."""
    if not name.endswith("Exception") and not text(member(payload, "message")):
        return None
    return {**(payload if isinstance(payload, dict) else {}), "type": name}


def _blocks(accumulator: ResponseAccumulator) -> Iterable[Json]:
    """Yield the content blocks in the shape of a body, from their pieces; bytes in base64."""
    for block in accumulator.blocks.values():
        match block:
            case {"citations": citations, **rest}:
                text_part = {"text": text(rest.get("text"))}
                block = {"citationsContent": {"content": [text_part], "citations": citations}}
            case {"toolUse": {**tool_use}}:
                raw = tool_use.get("input") or {}
                block = {
                    "toolUse": {
                        **tool_use,
                        "input": object_or_text(raw) if isinstance(raw, str) else raw,
                    }
                }
            case {"reasoningContent": {"text": _} | {"signature": _} as reasoning}:
                block = {"reasoningContent": {"reasoningText": {"text": "", **reasoning}}}
        yield json.loads(json.dumps(block, default=lambda blob: base64.b64encode(blob).decode()))


def _error_body(data: Any) -> Any:
    """Return the exception in place of an answer; None if there is none."""
    errors = (error_event(*event) for event in (data.items() if isinstance(data, dict) else ()))
    return next(filter(None, errors), None)


# --- Requests -------------------------------------------------------------------------------------


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST /model/…/converse.

    The path has the model, and requests a stream or not.
    """
    system = [
        part
        for message in system_messages(request, NAME)
        for part in content_parts(message.content, _text_block)
    ]
    tools = [_tool(tool) for tool in request.tools]
    choice = _tool_choice(request.tool_choice) if tools else None
    members = {
        "messages": _messages(request.messages),
        "system": system,
        "inferenceConfig": present(
            {"maxTokens": output_limit(request), "temperature": request.temperature}
        ),
        "toolConfig": present({"tools": tools or None, "toolChoice": choice}),
        "outputConfig": _output_config(request.format),
    }
    return request_body(
        members, request.extra, conversation="messages", merges=("toolConfig", "outputConfig")
    )


def _tool(tool: Tool) -> Json:
    schema = {"json": tool.parameters}
    return {
        "toolSpec": present(
            {"name": tool.name, "description": tool_description(tool), "inputSchema": schema}
        )
    }


def _tool_choice(choice: str) -> Json | None:
    """Return the API's form of a tool choice; the API has none for "none"."""
    match choice:
        case "auto" | "none":
            return None
        case "required":
            return {"any": {}}
        case name:
            return {"tool": {"name": name}}


def _output_config(format_: Json | None) -> Json | None:
    """Return a JSON Schema as text; the API cannot request JSON without one."""
    if not format_ or format_ == ANY_JSON:
        return None
    structure = {"jsonSchema": {"schema": json.dumps(format_)}}
    return {"textFormat": {"type": "json_schema", "structure": structure}}


def _messages(messages: Iterable[Message]) -> list[Json]:
    """Return the conversation without system messages.

    Messages of one role that follow each other are one.
    """
    api_messages: list[Json] = []
    role = ""  # of the last message
    for message, native_blocks in conversation(messages, NAME):
        if message.role == "system":
            if native_blocks:
                api_messages += native_blocks
                role = ""
            continue
        if message.role == "assistant":
            blocks = _answer(message, native_blocks)
        elif message.role == "tool":
            blocks = [*native_blocks] if native_blocks else [_result(message)]
        else:
            blocks = content_parts(message.content, _text_block)
        if not blocks:
            continue
        next_role = "assistant" if message.role == "assistant" else "user"
        if next_role == role:
            api_messages[-1]["content"] += blocks
        else:
            api_messages.append({"role": next_role, "content": blocks})
        role = next_role
    return api_messages


def _answer(message: Message, native_blocks: Iterable[Json] | None) -> list[Json]:
    """Return the blocks of an assistant message.

    Some models add a type to a call, which the API refuses.
    """
    if native_blocks:
        return [
            _without_type(block) for block in replayable_blocks(native_blocks, message.tool_calls)
        ]
    calls = [
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments or {}}}
        for call in message.tool_calls
    ]
    return [*replayable_blocks(content_parts(message.content, _text_block)), *calls]


def _result(message: Message) -> Json:
    content = content_parts(message.content, _text_block)
    result = {"toolUseId": message.tool_call_id or "", "content": content}
    return {"toolResult": {**result, "status": "error"} if message.is_error else result}


def _without_type(block: Json) -> Json:
    tool_use = call_in(block)
    return (
        block
        if tool_use is None
        else {"toolUse": {name: tool_use[name] for name in tool_use if name != "type"}}
    )


def _text_block(text: str) -> Json:
    return {"text": text}


def _path(request: PathRequest) -> str:
    method = "converse-stream" if request.stream else "converse"
    return f"/model/{quote(request.model, safe='')}/{method}"


_LABELS: Final = ("an answer of Converse", "an event of a Converse stream")


def _content(body: Json) -> Any:
    """Return the blocks of a body; None if they are missing."""
    return member(member(body.get("output"), "message"), "content")


def _misshapen_member(data: Json) -> str | None:
    """Return `output.message.content[]` if it, or what holds it, is misshapen."""
    output = data.get("output")
    message = output.get("message") if isinstance(output, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    is_valid = (
        is_object_or_missing(output) and is_object_or_missing(message) and lists_objects(content)
    )
    return None if is_valid else "output.message.content[]"


def _shape_error(body: Json, is_body: bool) -> str | None:
    """Return a sentence on a body without content."""
    if is_body and _content(body) is None:
        return (
            f"{_LABELS[0]} must have `output.message.content`; this has "
            f"{sorted(map(str, body))[:8]}"
        )
    return None


FORMAT: Final = Format(
    name=NAME,
    provider="aws.bedrock",
    framing=Framing.EVENTSTREAM,
    voice=ScriptedStyle("", "tooluse_", "x-amzn-requestid"),
    # The model is quoted as botocore does, an ARN's ':' and '/' too.
    path=_path,
    match_path=routed_by(
        rf"{SEGMENTS}/model/(?P<model>.+)/converse(?:(?P<stream>-stream)"
        rf"|(?P<whole>))"
    ),
    is_request=lambda body, _: "messages" in body or "promptVariables" in body,
    body=encode,
    resume=block_resumer(NAME, _text_block, forced_tool_path="toolConfig.toolChoice"),
    text_block=_text_block,
    reader=ConverseReader,
    labels=_LABELS,
    other_members=("output",),
    misshapen_member=_misshapen_member,
    own_shape_error=_shape_error,
    error_in=_error_body,
    blocks=_blocks,
    reply=script,
    reply_error=script_error,
)
