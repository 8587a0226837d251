"""A request as a format's body, in the shapes that `data/request_shapes.json` has.

Of each format, and of a dialect that has a body of its own:

- `body`: where the settings stand. `names` is what a dialect calls a member instead; null: it does not have it.
- `tool`, `choice`: a tool; how a choice that is not the model's own is said. Without a `choice`, "none" offers no
  tools. `offers` says that a tool which is chosen is offered alone, `chooses` that a choice needs no tools of ours.
- `merges`: which objects are joined with those in `extra`, beside the settings.
- `json`, `schema`: how an answer is asked for that is any JSON, or has a schema.
- `user`, `assistant`: messages, or items of a conversation; an assistant's holds its `$calls`, or they follow it.
  Formats whose messages are lists of parts have a `text` and a `message` around them instead, its role by `roles`.
- `call`, `result`: a call, and a tool's result. `joins` says which messages become one: those of one role, or results.
- `apart`: roles that stand beside the conversation. `whole`: roles whose blocks are sent in place of the message.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

from endturn.chat import Json, Message, Request, Tool, ToolCall
from endturn.formats.history import call_in
from endturn.formats.next_request import own_blocks, sent_back
from endturn.formats.reading import first, items, text
from endturn.formats.scripting import filled, written_arguments
from endturn.formats.settings import ANY_JSON, LIMIT_MEMBERS, with_extra
from endturn.tables import shipped

Replay = Callable[[Message, Sequence[Json]], list[Json]]
"""An assistant's blocks as they are sent back, of a message that holds some of the format's own."""


@cache
def _shapes() -> Json:
    return cast(Json, json.loads(shipped().joinpath("request_shapes.json").read_text("utf-8")))


def _still_taken(message: Message, own: Sequence[Json]) -> list[Json]:
    return sent_back(own, message.tool_calls)


def encoded(
    format: str, request: Request, *, stream: bool, dialect: str = "", replay: Replay = _still_taken, **own: Any
) -> Json:
    """A request's body; the members of its `extra` win.

    Args:
        own: what the format's shapes have names for, beside what all have, or says in another way.
    """
    shape = _shapes().get(f"{format} {dialect}") or _shapes()[format]
    schema = None if request.format == ANY_JSON else request.format
    system = [each for each in request.messages if each.role == "system" and own_blocks(each, format) is None]
    parts = [part for each in system for part in _parts(shape, each.content)] or None
    said: Json = {
        "model": request.model or None,
        "limit": None if LIMIT_MEMBERS & request.extra.keys() else request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "stream": stream or None,
        "streams": stream,
        "previous_id": request.previous_id,
        "token": request.token,
        "schema": schema,
        "schema_text": json.dumps(schema),
        "system": system[0].content if len(system) == 1 else parts,
        "system_parts": parts,
        "system_text": "\n\n".join(each.text for each in system) or None,
        **_tools(shape, request),
    }
    said["format"] = request.format and filled(shape.get("json" if schema is None else "schema"), said)
    said["messages"] = _conversation(format, shape, own.pop("messages", request.messages), replay)
    names, body = shape.get("names", {}).get(dialect, {}), filled(shape["body"], said | own)
    body = {
        names.get(name, name): value
        for name, value in body.items()
        if names.get(name, name) and (value not in ({}, []) or shape["body"][name] == "$messages")
    }
    return with_extra(body, request.extra, shape.get("merges", ()))


def encodes(format: str, replay: Replay = _still_taken) -> Callable[..., Json]:
    """How a format writes a request of which its shape says all."""

    def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
        return encoded(format, request, stream=stream, dialect=dialect, replay=replay)

    return encode


def _tools(shape: Json, request: Request) -> Json:
    """The tools that are offered, and which of them must be called, if any."""
    choice, choices = request.tool_choice, cast(Any, shape.get("choice"))
    offered = [] if choice == "none" and choices is None else request.tools
    if "offers" in shape:
        offered = [tool for tool in offered if tool.name == choice] or offered
    tools = [filled(shape.get("tool"), _about(tool)) for tool in offered] or None
    is_free = choices is None or choice == "auto" or not (tools or "chooses" in shape)
    chosen = None if is_free else filled(choices.get(choice, choices["one"]), {"name": choice})
    return {"tools": tools, "choice": chosen}


def _about(tool: Tool) -> Json:
    described = tool.description if tool.description.strip() else None  # an empty one is refused
    return {"name": tool.name, "description": described, "parameters": tool.parameters}


# --- The conversation -------------------------------------------------------------------------------------------------


def _conversation(format: str, shape: Json, messages: Iterable[Message], replay: Replay) -> list[Json]:
    """The messages in the format's shape, without one of the assistant's that says nothing, which APIs refuse."""
    written: list[Json] = []
    last: list[Json] = []  # the parts of the last message that is written
    before: object = None  # what the next message must be to be joined with it
    calls: dict[str, Json] = {}  # what is said of each, for its result
    for message in messages:
        own = own_blocks(message, format)
        if own and message.role in shape.get("whole", _ROLES):
            written += own
            before = None
            continue
        if message.role in shape.get("apart", ()):
            continue
        if message.role == "assistant":
            calls |= _known(message, own)
            parts = _answer(shape, message, own, replay)
        elif message.role == "tool":
            parts = [*own] if own else [filled(shape["result"], _result(shape, message, calls))]
        else:
            said = _said(shape, message)
            parts = [filled(shape["user"], said)] if "user" in shape else said["parts"]
        if "message" not in shape or not parts:
            written += parts
            continue
        role = "user" if message.role == "tool" else message.role
        kind = role if "joins" in shape else message.role == "tool"
        if kind and kind == before:
            last += parts
        else:
            is_text = isinstance(message.content, str) and message.role != "tool" and not (own or message.tool_calls)
            about = {"role": shape.get("roles", {}).get(role, role), "parts": parts}
            written.append(filled(shape["message"], {**about, "content": message.content if is_text else parts}))
            last = parts
        before = kind
    return written


_ROLES: Final = ("system", "user", "tool")


def _parts(shape: Json, content: str | list[Json]) -> list[Json]:
    return [filled(shape.get("text"), {"text": content})] if isinstance(content, str) else content


def _said(shape: Json, message: Message, calls: Sequence[Json] = ()) -> Json:
    content = message.content if message.text.strip() or message.role != "assistant" else None
    parts = _parts(shape, message.content)
    return {"role": message.role, "text": message.text, "content": content, "parts": parts, "calls": calls or None}


def _answer(shape: Json, message: Message, own: Sequence[Json] | None, replay: Replay) -> list[Json]:
    """An assistant's message: one, or parts, or items."""
    holds_calls = "tool_calls" in shape.get("assistant", {})
    if own and not (holds_calls and message.tool_calls and not own[0].get("tool_calls")):
        return replay(message, own)
    calls = [filled(shape["call"], _call(call)) for call in message.tool_calls]
    if holds_calls:
        says = [filled(shape["assistant"], _said(shape, message, calls))]
        return says if calls or message.text.strip() else []
    if "assistant" in shape:
        says = [filled(shape["assistant"], _said(shape, message))] if message.text.strip() else []
    else:
        says = sent_back(_parts(shape, message.content))
    return [*says, *calls]


def _call(call: ToolCall) -> Json:
    given = {"arguments": call.arguments or {}, "arguments_text": written_arguments(call)}
    return {"id": call.id, "name": call.name, **given}


def _known(message: Message, own: Sequence[Json] | None) -> dict[str, Json]:
    """A call's id → what its result says of it. An id that we minted, the API does not know."""
    sent = {
        text(first(call, "call_id", "toolUseId", "id")): call
        for part in own or ()
        if (call := call_in(part)) is not None
    }
    return {
        call.id: {
            "name": call.name,
            "sent_id": call.id if own is None or call.id in sent else None,
            "kind": sent.get(call.id, {}).get("type"),
        }
        for call in message.tool_calls
    }


def _result(shape: Json, message: Message, calls: Mapping[str, Json]) -> Json:
    """What is said of a tool's result."""
    id_, failed = message.tool_call_id or "", message.is_error
    call = calls.get(id_, {"name": None, "sent_id": id_, "kind": None})
    return {
        **_said(shape, message),
        **call,
        "id": id_,
        "called": call["name"] or id_,
        "kind": f"{call['kind'] or 'function_call'}_output",
        "failed": failed or None,
        "status": "error" if failed else None,
        "error": message.text if failed else None,
        "output": None if failed else message.text,
        "media": [part for part in items(message.content) if "text" not in part] or None,
    }
