"""What a body or an event is where it is no answer: not an object at all, or an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from endturn.formats.errors import shortened
from endturn.formats.framing import DONE


def error_beside(*members: str) -> Callable[[Any], Any]:
    """Finds the error that a body or an event has in the place of an answer: beside none of these members."""

    def failed(data: Any) -> Any:
        reports = isinstance(data, Mapping) and data.get("error") and not any(data.get(name) for name in members)
        return data if reports else None

    return failed


def an_object(
    whole: str, event: str, faulty: Callable[[Mapping[str, Any], bool], str | None], *, done: bool = True
) -> Callable[[Any, bool], str | None]:
    """Says what is wrong with a body or an event that is no object; of an object, what `faulty` says.

    Args:
        whole, event: what the format calls a body, and an event.
        done: a stream may end with `[DONE]`, of this format or as chat's do, from servers that speak both.
    """

    def checked(data: Any, is_whole: bool) -> str | None:
        if done and data == DONE and not is_whole:
            return None
        if not isinstance(data, Mapping):
            return f"{whole if is_whole else event} is an object, not {shortened(repr(data), 80)}"
        return faulty(data, is_whole)

    return checked
