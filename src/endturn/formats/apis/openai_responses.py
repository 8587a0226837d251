"""The Responses API of OpenAI and compatible servers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from endturn.calls import Strategy
from endturn.formats.apis import openai_responses_reader as reader
from endturn.formats.apis.openai_responses_reader import (
    CALL_INPUTS,
    COMPLETED,
    NAME,
    is_client_call,
)
from endturn.formats.apis.openai_responses_script import WORDS, script, script_error
from endturn.formats.encoding import (
    arguments_text,
    conversation,
    output_limit,
    request_body,
    tool_description,
)
from endturn.formats.format import Format, constant_path
from endturn.formats.framing import END_MARKERS
from endturn.formats.history import call_in
from endturn.formats.next_request import continuation_request, own_blocks, resend
from endturn.formats.reading import (
    first_text,
    is_object_or_missing,
    items,
    lists_objects,
    member,
    text,
)
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.settings import ANY_JSON, present
from endturn.formats.summaries import ScriptedStyle
from endturn.vocabulary import Blocks, ChatResponse, Json, Message, Request, Resume, Tool, ToolCall

_PATH: Final = rf"(?:{SEGMENTS}/(?:v1|openai))?/responses(?:/(?P<id>[^/]+))?"


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST /responses. The API has no seed: it is left out.

    A system message at the start becomes the instructions; any other keeps its position among the
    items.
    """
    messages, instructions = request.messages, None
    head = messages[0] if messages else None
    if (
        head is not None
        and head.role == "system"
        and head.blocks is None
        and isinstance(head.content, str)
    ):
        instructions, messages = head.content, messages[1:]
    tools = [_tool(tool) for tool in request.tools]
    response_format = _response_format(request.format)
    members = {
        "model": request.model or None,
        "instructions": instructions,
        "input": _input(messages, is_stored=request.extra.get("store") is not False),
        "tools": tools,
        "tool_choice": _tool_choice(request.tool_choice) if tools else None,
        "max_output_tokens": output_limit(request),
        "temperature": request.temperature,
        "previous_response_id": request.previous_id,
        "text": response_format and {"format": response_format},
        "stream": stream or None,
    }
    return request_body(members, request.extra, conversation="input")


def _tool(tool: Tool) -> Json:
    description = {
        "name": tool.name,
        "description": tool_description(tool),
        "parameters": tool.parameters,
    }
    return present({"type": "function", "strict": False, **description})


def _tool_choice(choice: str) -> str | Json | None:
    match choice:
        case "auto":
            return None
        case "none" | "required":
            return choice
        case name:
            return {"type": "function", "name": name}


def _response_format(format_: Json | None) -> Json | None:
    if not format_:
        return None
    if format_ == ANY_JSON:
        return {"type": "json_object"}
    return {"type": "json_schema", "name": "answer", "schema": format_}


def _input(messages: Iterable[Message], *, is_stored: bool) -> list[Json]:
    """Return the conversation as items.

    Args:
        is_stored: the server keeps responses.
    """
    api_items: list[Json] = []
    types: dict[str, str] = {}  # of the calls so far, by their ids
    for message, native_blocks in conversation(messages, NAME):
        if message.role == "assistant":
            types |= _types_of_calls(message, native_blocks)
            api_items += (
                _replay_items(message, native_blocks, is_stored=is_stored)
                if native_blocks
                else _answer(message)
            )
        elif native_blocks:
            api_items += native_blocks
        elif message.role == "tool":
            id_ = message.tool_call_id or ""
            type_ = f"{types.get(id_, 'function_call')}_output"
            api_items.append({"type": type_, "call_id": id_, "output": message.content})
        else:
            api_items.append({"role": message.role, "content": message.content})
    return api_items


def _answer(message: Message) -> list[Json]:
    """Return the items of an assistant message."""
    messages = [{"role": "assistant", "content": message.text}] if message.text.strip() else []
    calls = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": arguments_text(call),
        }
        for call in message.tool_calls
    ]
    return [*messages, *calls]


def _types_of_calls(message: Message, native_blocks: Iterable[Json] | None) -> dict[str, str]:
    """Return the types of a message's calls by their ids: each result has its call's type."""
    calls_by_id = {
        first_text(call, "call_id", "toolUseId", "id"): call
        for part in native_blocks or ()
        if (call := call_in(part))
    }
    return {
        call.id: calls_by_id.get(call.id, {}).get("type") or "function_call"
        for call in message.tool_calls
    }


def _replay_items(message: Message, blocks: Iterable[Json], *, is_stored: bool) -> list[Json]:
    """Return a response's items unchanged, without calls that were removed from the history since.

    Args:
        is_stored: the server keeps responses. If not, it cannot find a reasoning item by its id, so
            only items with content, encrypted or not, are sent.
    """
    answerable_ids = {"", *(call.id for call in message.tool_calls), *_answered_ids(blocks)}

    def is_replayed(item: Json) -> bool:
        if item.get("type") == "reasoning":
            return is_stored or bool(item.get("encrypted_content") or item.get("content"))
        is_ours = text(item.get("type")) in CALL_INPUTS and is_client_call(item)
        return not is_ours or text(item.get("call_id")) in answerable_ids

    return _keep_paired(blocks, is_replayed)


def _answered_ids(blocks: Iterable[Json]) -> set[str]:
    """Return the ids of calls whose results are among the items: the server ran them."""
    return {
        text(item.get("call_id")) for item in blocks if text(item.get("type")).endswith("_output")
    } - {""}


def _keep_paired(blocks: Iterable[Json], keep: Callable[[Json], bool]) -> list[Json]:
    """Return the items to keep, without empty messages, and without reasoning that lost its items.

    "Item 'rs_…' of type 'reasoning' was provided without its required following item": a 400.
    """
    replay: list[Json] = []
    reasoning: list[Json] = []
    last_kind = ""
    for item in blocks:
        kind = text(item.get("type"))
        if kind == "reasoning":
            reasoning = (reasoning if last_kind == kind else []) + ([item] if keep(item) else [])
        elif keep(item) and (item.get("role") != "assistant" or _visible(item).strip()):
            replay += [*reasoning, item]
            reasoning = []
        last_kind = kind
    return replay


def _visible(item: Json) -> str:
    """Return the text of a message, including refusals."""
    content = item.get("content")
    parts = items(content)
    return text(content) + "".join(
        text(member(part, "text")) or text(member(part, "refusal")) for part in parts
    )


def resume(
    request: Request,
    response: ChatResponse,
    *,
    prompt: str,
    strategy: str = Strategy.PROMPT,
    dialect: str = "",
) -> Request:
    """Return the request for the rest of a truncated response.

    The original's messages come first, unchanged.

    A response that is still running is fetched. The API accepts no prefill, so a prompt is sent
    instead.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Unused for a fetch or a resend.
        strategy: `prompt`; `resend` (the answer verbatim, nothing after it).
    """
    if response.stop.resume is Resume.RETRIEVE_SAME_ID:
        return request.but(retrieve=response.id)
    request = request.but(retrieve=None)
    if (resend_request := resend(request, response, strategy)) is not None:
        return resend_request
    native_blocks = own_blocks(response, NAME)
    text_messages = (
        [{"role": "assistant", "content": response.text}] if response.text.strip() else []
    )
    blocks = text_messages if native_blocks is None else _unfinished(native_blocks)
    answer = (
        response.message().but(tool_calls=(), blocks=Blocks(NAME, tuple(blocks)))
        if blocks
        else None
    )
    return continuation_request(request, answer, prompt=prompt, strategy=Strategy.PROMPT)


def _unfinished(blocks: Sequence[Json], calls: Sequence[ToolCall] = ()) -> list[Json]:
    """Return the items of a truncated response that may be replayed.

    Without calls that have no result, and reasoning that has no items.
    """
    results = _answered_ids(blocks) | {call.id for call in calls}

    def is_replayable(item: Json) -> bool:
        if is_client_call(item):
            return text(item.get("call_id")) in results
        return not text(item.get("type")).endswith("_call") or item.get("status") in (
            COMPLETED,
            "failed",
            None,
        )

    return _keep_paired(blocks, is_replayable)


def _is_request(body: Mapping[str, Any], _: str) -> bool:
    if "model" not in body:
        return "prompt" in body and "input" in body
    return not body.keys().isdisjoint(("input", "prompt", "previous_response_id", "conversation"))


def _misshapen_member(data: Json) -> str | None:
    """Return the path of what should be an object; None if all are objects."""
    if not lists_objects(data.get("output")):
        return "output[]"
    response = data.get("response")
    if response is not None and not (
        isinstance(response, dict) and lists_objects(response.get("output"))
    ):
        return "response.output[]"
    for name in ("item", "part"):
        if not is_object_or_missing(data.get(name)):
            return name
    return None


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    voice=ScriptedStyle("resp_", "call_", "x-request-id", WORDS),
    path=constant_path("/responses"),
    match_path=routed_by(_PATH),
    is_request=_is_request,
    body=encode,
    resume=resume,
    unfinished=_unfinished,
    can_fetch=True,
    reader=reader.ResponsesReader,
    own_rows=reader.rows,
    labels=("a response", "an event of a response's stream"),
    event_types=r"error|response\..+",
    other_members=("output", "response", "item", "part"),
    misshapen_member=_misshapen_member,
    own_shape_error=reader.shape_error,
    error_in=reader.error_of,
    blocks=reader.output_of,
    end_markers=(
        *END_MARKERS,
        *map(str.encode, reader.ENDS),
        b'"output"',
        b'"status"',
        b'"response"',
    ),
    has_end=True,
    reply=script,
    reply_error=script_error,
)
