"""Parse JSON of foreign files, with half characters repaired, and recognise JSON files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic_core import from_json

from endturn.scan.decompression import BLOCK

HEAD_RECORDS: Final = 16
"""The number of objects from which a file is recognised."""
_BOM: Final = b"\xef\xbb\xbf"
_ESCAPED_LETTERS: Final = (b"\\u004", b"\\u005", b"\\u006", b"\\u007")
_ESCAPES: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""Escapes of JSON; those in the group are half a character."""
_OBJECT_BEGIN: Final = re.compile(rb"\s*(?:\[\s*)?\{\s*\"")


def contains(line: bytes, needles: tuple[bytes, ...]) -> bool:
    """Return whether a line may contain one of some ASCII words, in any JSON spelling."""
    for needle in needles:
        if needle in line:
            return True
    return _may_escape_letters(line)


def _may_escape_letters(line: bytes) -> bool:
    """Return whether an ASCII letter of the line may be written as an escape."""
    return b"\\u00" in line and any(escape in line for escape in _ESCAPED_LETTERS)


def object_of(line: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object of a line; None for anything else."""
    try:
        value = value_of(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def value_of(data: bytes) -> Any:
    """Return a JSON value, with replacement characters for half characters.

    Tools that truncate text by its length leave such halves, in bytes or as escapes.

    Raises:
        ValueError: the text is not JSON.
    """
    data = data.removeprefix(_BOM)
    try:
        return from_json(data, cache_strings="keys")
    except ValueError as error:
        if "EOF" in str(error):  # it is incomplete, which cannot be repaired
            raise
        repaired = _repaired(data)
        if repaired == data:
            raise
    return from_json(repaired, cache_strings="keys")


def _repaired(data: bytes) -> bytes:
    repaired = data.decode("utf-8", "replace").encode()
    if b"\\u" in repaired:
        repaired = _ESCAPES.sub(_whole_escape, repaired)
    return repaired


def _whole_escape(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape[1] else escape[0]


def is_value(beginning: bytes) -> bool:
    """Return whether a file is one JSON value over several lines, or a list."""
    text = beginning.removeprefix(_BOM).lstrip()
    if text[:1] == b"[":
        return True
    if text[:1] != b"{":
        return False
    line, end, rest = text.partition(b"\n")
    if not end or object_of(line) is not None or line.rstrip().endswith(b"}"):
        return False
    # or it is half a line, and complete ones follow
    return object_of(rest.partition(b"\n")[0]) is None


def is_list(beginning: bytes) -> bool:
    """Return whether a file begins as a JSON list does."""
    return beginning.removeprefix(_BOM).lstrip()[:1] == b"["


def begins_like_object(beginning: bytes) -> bool:
    """Return whether a file begins as a JSON object, or a list of objects, does."""
    return _OBJECT_BEGIN.match(beginning.removeprefix(_BOM)) is not None


def is_cut_value(beginning: bytes) -> bool:
    """Return whether a complete file begins as JSON and is damaged."""
    if len(beginning) >= BLOCK or not begins_like_object(beginning):
        return False
    try:
        value_of(beginning)
    except ValueError:
        return True
    return False


def first_objects(beginning: bytes) -> list[Mapping[str, Any]]:
    """Return the first objects of a file that is one JSON value, if they can be read.

    For a list, also a longer or incomplete one, its complete objects; else the value itself, if it
    is complete.
    """
    is_whole = len(beginning) < BLOCK
    try:
        value = value_of(beginning) if is_whole else None
    except ValueError:
        value = None
    if value is None and is_list(beginning):
        value = _whole_items(beginning)
    items = value if isinstance(value, list) else [value]
    return [item for item in items[:HEAD_RECORDS] if isinstance(item, dict)]


def _whole_items(beginning: bytes) -> Any:
    """Return the items of an incomplete list, the last of which may be incomplete."""
    try:
        return from_json(_repaired(beginning.removeprefix(_BOM)), allow_partial=True)
    except ValueError:
        return None
