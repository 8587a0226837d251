"""What the objects of the Responses API are: whole responses, the items of their output, their usage."""

from __future__ import annotations

from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.wires.reading import count, member, text

CALLS: Final = frozenset({"function_call", "custom_tool_call"})
"""Calls of the client's own tools. Those of the API's tools that the client runs are in `client_call`."""


class Item:
    """One item of the output while it arrives. The members in the second row belong to whoever keeps the content.

    Attributes:
        call_id: what a call's result names it by; minted where the server gave none.
        client: a call that the client runs. closed: the server ended the item, and did not say that it is cut.
        waits: the server ended the item, and said that it is in progress.
        said: the content parts whose text was given out.
    """

    __slots__ = (
        *("call_id", "client", "closed", "id", "kind", "said", "waits"),
        *("block", "parts", "pieces", "position", "thoughts"),
    )

    def __init__(self) -> None:
        self.kind = ""
        self.id = ""
        self.call_id = ""
        self.client = False
        self.closed = False
        self.waits = False
        self.said: set[int] = set()
        self.block: Json | None = None
        self.parts: dict[int, tuple[str, list[str]]] = {}
        self.pieces: list[str] = []
        self.position: int | None = None
        self.thoughts: dict[tuple[str, int], list[str]] = {}


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
