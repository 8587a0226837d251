"""Reads the text of one past answer again, from its file, when somebody looks at it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from endturn.scan.decompression import compression_of
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.registry import all_sources
from endturn.scan.scanned_file import ScannedFile

LONGEST: Final = 256 * 1024
"""Characters of a text that are returned at most."""


def text_of(turn: PastTurn, call: PastCall) -> str:
    """Return the text of a response; "" where its file does not have it any more, or never had."""
    source = next((each for each in all_sources() if each.title == turn.source), None)
    if source is None or source.text is None or call.offset is None:
        return ""
    try:
        with Path(turn.path).open("rb") as stream:
            start = 0
            if compression_of(stream.read(8)) is None:
                start = call.offset
            stream.seek(start)
            file = ScannedFile(stream, turn.path)
            records = (record for at, record in file.records() if start + at >= call.offset)
            return source.text(records)[:LONGEST]
    except (OSError, ValueError):
        return ""
