"""Tells whether a file still has the records that a scan found in it."""

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
"""Bytes of a file that tell if the offset of a record is its place on the disk."""
_RECORD_BYTES: Final = 4096
"""Bytes of a record of which the digest is made at most."""
_BUFFER: Final = 1 << 14
"""Bytes that are read at a time: several short records, and not all of a long one."""


def has_plain_lines(beginning: bytes) -> bool:
    """Return whether the offset of a record is its place on the disk."""
    is_packed = compression_of(beginning) is not None or utf16_of(beginning) is not None
    return not is_packed and not is_list(beginning)


def add_digests(path: Path, turns: Iterable[PastTurn]) -> None:
    """Have turns and calls remember how their records begin, or else the state of their file.

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
    """Yield what has a record of its own, with the offset of that."""
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
    """Return a checksum of a file's size and time: of a packed one no part can be read alone."""
    status = path.stat()
    return crc32(f"{status.st_size} {status.st_mtime_ns}".encode())
