"""What the objects of the Responses API are: whole responses, the items of their output, their usage."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.formats.errors import shortened
from endturn.formats.framing import DONE
from endturn.formats.reading import count, member, text

GIVEN: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""Calls of the client's own tools: which member holds what the tool is given. Of the API's own tools, those that the
client runs are in `client_call`."""

THOUGHTS: Final = {"summary": "summary_text", "content": "reasoning_text"}
"""The members of an item of reasoning that hold visible thinking: what their parts are called."""

ORDER: Final = "order"
"""The key of the block that says in what order the items stand."""


def is_response(body: Any) -> bool:
    """Whether something is a whole response, and no event or error."""
    if member(body, "type"):
        return False
    return (
        member(body, "object") == "response"
        or isinstance(member(body, "output"), list)
        or isinstance(member(body, "status"), str)
    )


def client_call(raw: Any) -> bool:
    """Whether an item is a call of a tool that the client runs, as the SDK's types of the items describe it."""
    match member(raw, "type"):
        case "function_call" | "custom_tool_call":
            # xAI shows the searches of its own server so.
            return not text(member(raw, "call_id")).startswith("xs_call_")
        case "computer_call" | "local_shell_call" | "apply_patch_call":
            return True
        case "shell_call":
            return member(member(raw, "environment"), "type") in (None, "local")
        case "tool_search_call":
            return bool(member(raw, "execution") == "client")
        case _:
            return False


def usage_of(usage: Any) -> Usage | None:
    """Tokens as the API counts them: cached ones are part of the input, reasoning of the output."""
    if usage is None:
        return None
    asked, answered = count(member(usage, "input_tokens")), count(member(usage, "output_tokens"))
    given, made = member(usage, "input_tokens_details"), member(usage, "output_tokens_details")
    read, written = count(member(given, "cached_tokens")), count(member(given, "cache_write_tokens"))
    reasoned = count(member(made, "reasoning_tokens"))
    if asked is None and answered is None and reasoned is None and read is None and written is None:
        return None
    return Usage(asked, answered, reasoned, read, written)


def unreadable(response: Any) -> str | None:
    """What is wrong with the response that an event carries, or that a body is."""
    if response is not None and not isinstance(response, Mapping):
        return "a part of an event is not an object"
    output = member(response, "output")
    if output is not None and not (isinstance(output, list) and all(isinstance(item, Mapping) for item in output)):
        return "a response has a list of items as its `output`"
    return None


def faulty(data: Any, whole: bool) -> str | None:
    """What is wrong with the shape of an event, or of a whole body."""
    if not isinstance(data, Mapping):
        if not whole and data == DONE:  # OpenAI ends without it; servers that speak chat too do not.
            return None
        what = "a response" if whole else "an event of a response's stream"
        return f"{what} is an object, not {shortened(repr(data), 80)}"
    if whole:
        if not is_response(data):
            return f"a response has `object`, `status` and `output`; this has {sorted(map(str, data))[:8]}"
        return unreadable(data)
    if data.get("type") == "response.output_item.done" and not isinstance(data.get("item"), Mapping):
        return "an item that is done is not an object"
    if not all(each is None or isinstance(each, Mapping) for each in (data.get("item"), data.get("part"))):
        return "a part of an event is not an object"
    return unreadable(data.get("response"))


def failed(data: Any) -> Any:
    """The error that stands where an answer should: the event or body itself."""
    if member(data, "type") == "error" or (not is_response(data) and member(data, "error")):
        return data
    return None


def output_of(blocks: Mapping[Hashable, Json]) -> Iterator[Json]:
    """The items of a response, in order, from what came of each: under its place, a kind of piece, and a number."""
    held: dict[int, list[tuple[int, str, Json]]] = {}
    for key, piece in blocks.items():
        match key:
            case (int(place), str(kind), int(number)):
                held.setdefault(place, []).append((number, kind, piece))
    for place in blocks[ORDER]["places"] if ORDER in blocks else sorted(held):
        pieces = sorted(held.get(place, ()), key=lambda piece: piece[0])
        if (item := _item(pieces)) is not None:
            yield item


def _item(pieces: list[tuple[int, str, Json]]) -> Json | None:
    """An item as it was told last, with the pieces that were not told again; None of pieces of a nameless call."""
    told: Json = {}
    given = ""
    content: list[Json] = []
    thoughts: dict[str, list[Json]] = {}
    for _, kind, piece in pieces:
        said = text(piece.get("text"))
        if kind == "item":
            told |= {name: value for name, value in piece.items() if value is not None or name not in told}
        elif kind == "given":
            given = said
        elif kind == "refusal":
            content.append({"type": kind, "refusal": said})
        elif kind == "output_text":
            content.append({"type": kind, "text": said, "annotations": []})
        else:
            thoughts.setdefault(kind, []).append({"type": THOUGHTS[kind], "text": said})
    if not told:
        if not content and not thoughts:
            return None
        told["type"] = "message" if content else "reasoning"
        told |= next(({"id": piece["id"]} for _, _, piece in pieces if piece.get("id")), {})
        if content:
            told["role"] = "assistant"
        else:
            told["summary"] = []
    gaps: Json = dict(thoughts)
    if content and text(told.get("type")) in ("message", ""):
        gaps["content"] = content
    if given and (name := GIVEN.get(text(told.get("type")))):
        gaps[name] = given
    return told | {name: value for name, value in gaps.items() if not told.get(name)}
