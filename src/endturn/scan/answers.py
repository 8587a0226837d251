"""Reads the text of one past message again, from its file, when somebody looks at it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from endturn.errors import UsageError
from endturn.scan.decompression import compression_of
from endturn.scan.json_values import is_list
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.registry import all_sources
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.scan.text_encoding import utf16_of

LONGEST: Final = 256 * 1024
"""Characters of a text that are returned at most."""
_BEGINNING: Final = 4096

_Read = Callable[[Iterable[Mapping[str, Any]], str], str]


def text_of(turn: PastTurn, call: PastCall) -> str:
    """Return the text of a response; "" where its file does not have it any more, or never had."""
    source = _source_of(turn)
    if source is None:
        return ""
    return _read(turn, call.offset, call.key, source.text, stored_text=source.stored_text)


def question_of(turn: PastTurn, *, is_quick: bool = False) -> str:
    """Return the text of the user's message that began a turn; "" as above.

    Args:
        is_quick: "" also of a file that has to be read from its beginning, as a compressed one.
    """
    source = _source_of(turn)
    if source is None or source.question is None:
        return ""
    question = source.question
    return _read(turn, turn.offset, "", lambda records, _: question(records), is_quick=is_quick)


def _source_of(turn: PastTurn) -> Source | None:
    return next((source for source in all_sources() if source.title == turn.source), None)


def _read(
    turn: PastTurn,
    offset: int | None,
    key: str,
    read: _Read | None,
    *,
    stored_text: Callable[[ScannedFile, str], str] | None = None,
    is_quick: bool = False,
) -> str:
    if stored_text is None and (read is None or offset is None):
        return ""
    path = Path(turn.path)
    try:
        with path.open("rb") as stream:
            if stored_text is not None:
                return stored_text(ScannedFile(stream, turn.path, path), key)[:LONGEST]
            assert read is not None
            assert offset is not None
            has_offsets = _has_plain_lines(stream.read(_BEGINNING))
            if is_quick and not has_offsets:
                return ""
            start = offset if has_offsets else 0
            stream.seek(start)
            file = ScannedFile(stream, turn.path)
            records = (record for at, record in file.records() if start + at >= offset)
            return read(records, key)[:LONGEST]
    except (OSError, ValueError, UsageError):
        return ""


def _has_plain_lines(beginning: bytes) -> bool:
    """Return whether the offset of a record is its place on the disk."""
    is_packed = compression_of(beginning) is not None or utf16_of(beginning) is not None
    return not is_packed and not is_list(beginning)
