"""Check whether a file still has the records that a scan read from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final
from zlib import crc32

from endturn.scan.decompression import compression_of
from endturn.scan.json_values import is_list
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.text_encoding import utf16_of

BEGINNING: Final = 4096
"""The number of bytes that show whether a record's offset is its position in the file on disk."""
_RECORD_BYTES: Final = 4096
"""The maximum number of bytes of a record that enter its digest."""
_BUFFER: Final = 1 << 14
"""The number of bytes that are read at a time: several short records, or a part of a long one."""


def has_plain_lines(beginning: bytes) -> bool:
    """Return whether a record's offset is its position in the file on disk."""
    is_packed = compression_of(beginning) is not None or utf16_of(beginning) is not None
    return not is_packed and not is_list(beginning)


def add_digests(path: Path, turns: Iterable[PastTurn]) -> None:
    """Store in turns and calls a digest of their records, or else of the state of their file.

    Raises:
        OSError: the file cannot be read any more.
    """
    if not path.is_file():
        return
    with path.open("rb", buffering=_BUFFER) as stream:
        is_plain = has_plain_lines(stream.read(BEGINNING))
        state = 0 if is_plain else file_digest(path)
        for record, offset in _records(turns):
            record.digest = record_digest(stream, offset) if is_plain else state


def _records(turns: Iterable[PastTurn]) -> Iterator[tuple[PastTurn | PastCall, int]]:
    """Yield the turns and calls that have their own record, with its offset."""
    for turn in turns:
        if turn.offset is not None:
            yield turn, turn.offset
        for call in turn.calls:
            if call.offset is not None:
                yield call, call.offset


def record_digest(stream: BinaryIO, offset: int) -> int:
    """Return a checksum of the beginning of a line; the position of the stream changes."""
    stream.seek(offset)
    return crc32(stream.readline(_RECORD_BYTES).rstrip(b"\r\n"))


def file_digest(path: Path) -> int:
    """Return a checksum of a file's size and time, for files that cannot be read in parts."""
    status = path.stat()
    return crc32(f"{status.st_size} {status.st_mtime_ns}".encode())
