"""Reads the text of one past message again, from its file, when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from endturn.scan.decompression import compression_of
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.registry import all_sources
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source

LONGEST: Final = 256 * 1024
"""Characters of a text that are returned at most."""

_Read = Callable[[Iterable[Mapping[str, Any]]], str]


def text_of(turn: PastTurn, call: PastCall) -> str:
    """Return the text of a response; "" where its file does not have it any more, or never had."""
    source = _source_of(turn)
    return "" if source is None else _read(turn.path, call.offset, source.text)


def question_of(turn: PastTurn, *, is_quick: bool = False) -> str:
    """Return the text of the user's message that began a turn; "" as above.

    Args:
        is_quick: "" also of a compressed file, which has to be read from its beginning.
    """
    source = _source_of(turn)
    if source is None:
        return ""
    return _read(turn.path, turn.offset, source.question, is_quick=is_quick)


def _source_of(turn: PastTurn) -> Source | None:
    return next((each for each in all_sources() if each.title == turn.source), None)


def _read(path: str, offset: int | None, read: _Read | None, *, is_quick: bool = False) -> str:
    if read is None or offset is None:
        return ""
    try:
        with Path(path).open("rb") as stream:
            is_compressed = compression_of(stream.read(8)) is not None
            if is_compressed and is_quick:
                return ""
            start = 0 if is_compressed else offset
            stream.seek(start)
            file = ScannedFile(stream, path)
            records = (record for at, record in file.records() if start + at >= offset)
            return read(records)[:LONGEST]
    except (OSError, ValueError):
        return ""
