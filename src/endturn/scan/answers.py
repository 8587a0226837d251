"""Reads the text of one past answer again, from its file, when somebody looks at it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from endturn.errors import UsageError
from endturn.scan.decompression import compression_of
from endturn.scan.json_values import is_list
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.registry import all_sources
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.text_encoding import utf16_of

LONGEST: Final = 256 * 1024
"""Characters of a text that are returned at most."""
_BEGINNING: Final = 4096


def text_of(turn: PastTurn, call: PastCall) -> str:
    """Return the text of a response; "" where its file does not have it any more, or never had."""
    source = next((source for source in all_sources() if source.title == turn.source), None)
    if source is None:
        return ""
    path = Path(turn.path)
    try:
        with path.open("rb") as stream:
            if source.stored_text is not None:
                stored = source.stored_text(ScannedFile(stream, turn.path, path), call.key)
                return stored[:LONGEST]
            if source.text is None or call.offset is None:
                return ""
            start = call.offset if _has_plain_lines(stream.read(_BEGINNING)) else 0
            stream.seek(start)
            file = ScannedFile(stream, turn.path)
            records = (record for at, record in file.records() if start + at >= call.offset)
            return source.text(records, call.key)[:LONGEST]
    except (OSError, ValueError, UsageError):
        return ""


def _has_plain_lines(beginning: bytes) -> bool:
    """Return whether the offset of a record is its place on the disk."""
    is_packed = compression_of(beginning) is not None or utf16_of(beginning) is not None
    return not is_packed and not is_list(beginning)
