"""Whether a text is strictly a JSON object: pure, and never lenient by guessing."""

from __future__ import annotations

import json
import re
from typing import Final

from endturn.chat import Json
from endturn.formats.reading import strict


class Malformed(ValueError):
    """A text that is no strict JSON object. `issue`: `incomplete_json` where it is the beginning of a longer text."""

    def __init__(self, issue: str, message: str) -> None:
        super().__init__(message)
        self.issue = issue


def strict_object(text: str) -> Json:
    """The JSON object that a text is, and nothing else.

    Raises:
        Malformed: it is none, has a key twice, or holds a number that JSON does not know.
    """
    try:
        value = strict(text)
    except json.JSONDecodeError as error:
        issue = "incomplete_json" if _is_beginning(text, error) else "invalid_json"
        raise Malformed(issue, str(error)) from None
    except ValueError as error:
        raise Malformed("invalid_json", str(error)) from None
    if not isinstance(value, dict):
        raise Malformed("invalid_json", f"it is of type {type(value).__name__}")
    return value


_STUB: Final = re.compile(r"tr?u?|fa?l?s?|nu?l?|-|\.|\.?\d*[eE][+-]?|u[0-9a-fA-F]{0,4}")
"""The beginning of a literal, of a number's fraction or exponent, of an escape."""


def _is_beginning(text: str, error: json.JSONDecodeError) -> bool:
    """Whether what the parser stumbled over is the end of the text, and so the text may have been longer."""
    rest = text[error.pos :].rstrip()
    return not rest or error.msg.startswith("Unterminated string") or _STUB.fullmatch(rest) is not None
