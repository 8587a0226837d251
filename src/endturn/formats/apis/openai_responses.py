"""The Responses API of OpenAI, and of those who speak it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from endturn.calls import Strategy
from endturn.formats.apis import openai_responses_reader as reader
from endturn.formats.apis.openai_responses_reader import COMPLETED, GIVEN, NAME, client_call
from endturn.formats.apis.openai_responses_script import WORDS, script, script_error
from endturn.formats.encoding import (
    conversation,
    output_limit,
    request_body,
    tool_description,
    written_arguments,
)
from endturn.formats.format import Format
from endturn.formats.framing import END_WORDS
from endturn.formats.history import call_in
from endturn.formats.next_request import asking_on, own_blocks, resent
from endturn.formats.reading import first, items, member, text
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.settings import ANY_JSON, present
from endturn.formats.summaries import Voice
from endturn.vocabulary import Blocks, ChatResponse, Json, Message, Request, Resume, Tool, ToolCall

_PATH: Final = rf"(?:{SEGMENTS}/(?:v1|openai))?/responses(?:/(?P<id>[^/]+))?"


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST /responses. The API has no seed: it is left out.

    A system message that stands first is the instructions; any other keeps its place among the
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
        "input": _input(messages, stored=request.extra.get("store") is not False),
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
    about = {
        "name": tool.name,
        "description": tool_description(tool),
        "parameters": tool.parameters,
    }
    return present({"type": "function", "strict": False, **about})


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


def _input(messages: Iterable[Message], *, stored: bool) -> list[Json]:
    """The conversation as items.

    Args:
        stored: the server keeps responses.
    """
    written: list[Json] = []
    types: dict[str, str] = {}  # of the calls so far, by their ids
    for message, own in conversation(messages, NAME):
        if message.role == "assistant":
            types |= _types_of_calls(message, own)
            written += _replayed(message, own, stored=stored) if own else _answer(message)
        elif own:
            written += own
        elif message.role == "tool":
            id_ = message.tool_call_id or ""
            type_ = f"{types.get(id_, 'function_call')}_output"
            written.append({"type": type_, "call_id": id_, "output": message.content})
        else:
            written.append({"role": message.role, "content": message.content})
    return written


def _answer(message: Message) -> list[Json]:
    """The items of an assistant's message."""
    says = [{"role": "assistant", "content": message.text}] if message.text.strip() else []
    calls = [
        {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": written_arguments(call),
        }
        for call in message.tool_calls
    ]
    return [*says, *calls]


def _types_of_calls(message: Message, own: Iterable[Json] | None) -> dict[str, str]:
    """The types of a message's calls, by their ids: a result is of the same type."""
    sent = {
        text(first(call, "call_id", "toolUseId", "id")): call
        for part in own or ()
        if (call := call_in(part))
    }
    return {
        call.id: sent.get(call.id, {}).get("type") or "function_call" for call in message.tool_calls
    }


def _replayed(message: Message, blocks: Iterable[Json], *, stored: bool) -> list[Json]:
    """The items of a response as they came, but for calls that were taken out of the history since.

    Args:
        stored: the server keeps responses. Where it does not, it cannot find a reasoning item by
            its id: only one that brings its content, encrypted or not, is sent.
    """
    held = {"", *(call.id for call in message.tool_calls), *_answered(blocks)}

    def stays(item: Json) -> bool:
        if item.get("type") == "reasoning":
            return stored or bool(item.get("encrypted_content") or item.get("content"))
        is_ours = text(item.get("type")) in GIVEN and client_call(item)
        return not is_ours or text(item.get("call_id")) in held

    return _paired(blocks, stays)


def _answered(blocks: Iterable[Json]) -> set[str]:
    """The calls whose results stand beside them: the server ran them."""
    return {
        text(item.get("call_id")) for item in blocks if text(item.get("type")).endswith("_output")
    } - {""}


def _paired(blocks: Iterable[Json], keep: Callable[[Json], bool]) -> list[Json]:
    """The items to keep, without empty messages, and without reasoning whose own items all went.

    "Item 'rs_…' of type 'reasoning' was provided without its required following item": a 400.
    """
    kept: list[Json] = []
    thoughts: list[Json] = []
    after = ""
    for item in blocks:
        kind = text(item.get("type"))
        if kind == "reasoning":
            thoughts = (thoughts if after == kind else []) + ([item] if keep(item) else [])
        elif keep(item) and (item.get("role") != "assistant" or _visible(item).strip()):
            kept += [*thoughts, item]
            thoughts = []
        after = kind
    return kept


def _visible(item: Json) -> str:
    """The text of a message, its refusals included."""
    content = item.get("content")
    parts = items(content)
    return text(content) + "".join(
        text(member(part, "text")) or text(member(part, "refusal")) for part in parts
    )


def resume(
    request: Request,
    cut: ChatResponse,
    *,
    prompt: str,
    strategy: str = Strategy.PROMPT,
    dialect: str = "",
) -> Request:
    """The request that asks for the rest of a cut response.

    The original's messages stand first, unchanged.

    A response that is still being made is fetched. The API takes no prefill: it is prompted
    instead.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used where nothing is asked.
        strategy: `prompt`; `resend` (the answer verbatim, nothing after it).
    """
    if cut.stop.resume is Resume.RETRIEVE_SAME_ID:
        return request.but(retrieve=cut.id)
    request = request.but(retrieve=None)
    if (again := resent(request, cut, strategy)) is not None:
        return again
    own = own_blocks(cut, NAME)
    written = [{"role": "assistant", "content": cut.text}] if cut.text.strip() else []
    blocks = written if own is None else _unfinished(own)
    answer = (
        cut.message().but(tool_calls=(), blocks=Blocks(NAME, tuple(blocks))) if blocks else None
    )
    return asking_on(request, answer, prompt=prompt, strategy=Strategy.PROMPT)


def _unfinished(blocks: Sequence[Json], calls: Sequence[ToolCall] = ()) -> list[Json]:
    """The items of a cut response that may be replayed.

    No call without its result, no reasoning without its items.
    """
    results = _answered(blocks) | {call.id for call in calls}

    def whole(item: Json) -> bool:
        if client_call(item):
            return text(item.get("call_id")) in results
        return not text(item.get("type")).endswith("_call") or item.get("status") in (
            COMPLETED,
            "failed",
            None,
        )

    return _paired(blocks, whole)


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    voice=Voice("resp_", "call_", "x-request-id", WORDS),
    paths={"": "/responses"},
    routed=routed_by(_PATH),
    body=encode,
    resume=resume,
    unfinished=_unfinished,
    fetches=True,
    reader=reader.Reader,
    own_rows=reader.rows,
    called=("a response", "an event of a response's stream"),
    kinds=r"error|response\..+",
    objects=("output[]", "response.output[]", "item", "part"),
    own_faulty=reader.faulty,
    failed=reader.failed,
    blocks=reader.output_of,
    end_words=(*END_WORDS, *map(str.encode, reader.ENDS), b'"output"', b'"status"', b'"response"'),
    has_end=True,
    reply=script,
    reply_error=script_error,
)
