"""Read the text of one past message from its file, on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from endturn.errors import UsageError
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.record_digests import BEGINNING, file_digest, has_plain_lines, record_digest
from endturn.scan.registry import all_sources
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source

LONGEST: Final = 256 * 1024
"""The maximum number of characters of a returned text."""
CHANGED: Final = "(The file has changed since the scan. Scan it again.)"
"""The placeholder for the text of a record that is no longer at its offset."""

_TextReader = Callable[[Iterable[Mapping[str, Any]], str], str]


def text_of(turn: PastTurn, call: PastCall) -> str:
    """Return the text of a response.

    Returns:
        "" if its file is gone or never had the text; CHANGED if the file has another record at this
        offset.
    """
    source = _source_of(turn)
    if source is None:
        return ""
    return _text_from_file(call, call.key, source.text, stored_text=source.stored_text)


def question_of(turn: PastTurn, *, is_quick: bool = False) -> str:
    """Return the text of the user's message that began a turn; "" and CHANGED as in `text_of`.

    Args:
        is_quick: return "" if the file must be read from its beginning, such as a compressed one.
    """
    source = _source_of(turn)
    if source is None or source.question is None:
        return ""
    question = source.question
    return _text_from_file(turn, "", lambda records, _: question(records), is_quick=is_quick)


def _source_of(turn: PastTurn) -> Source | None:
    return next((source for source in all_sources() if source.title == turn.source), None)


def _text_from_file(
    record: PastTurn | PastCall,
    key: str,
    reader: _TextReader | None,
    *,
    stored_text: Callable[[ScannedFile, str], str] | None = None,
    is_quick: bool = False,
) -> str:
    offset = record.offset
    if stored_text is None and (reader is None or offset is None):
        return ""
    path = Path(record.path)
    try:
        with path.open("rb") as stream:
            if stored_text is not None:
                return stored_text(ScannedFile(stream, record.path, path), key)[:LONGEST]
            assert reader is not None
            assert offset is not None
            is_plain = has_plain_lines(stream.read(BEGINNING))
            if is_quick and not is_plain:
                return ""
            digest = record_digest(stream, offset) if is_plain else file_digest(path)
            if record.digest not in (None, digest):
                return CHANGED
            start = offset if is_plain else 0
            stream.seek(start)
            file = ScannedFile(stream, record.path)
            records = (record for at, record in file.records() if start + at >= offset)
            return reader(records, key)[:LONGEST]
    except (OSError, ValueError, UsageError):
        return ""
