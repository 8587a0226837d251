"""One file that is scanned: its lines, JSON value, database or members, and its damage."""

from __future__ import annotations

import io
import sqlite3
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final

from endturn.errors import UsageError
from endturn.scan.archives import read_member
from endturn.scan.databases import SQLITE, connect, connect_to, may_have_log
from endturn.scan.decompression import BLOCK, ZIP, Incomplete, blocks, compression_of
from endturn.scan.head import FileHead, FileShape
from endturn.scan.json_values import (
    HEAD_RECORDS,
    contains,
    first_objects,
    is_cut_value,
    is_list,
    is_value,
    object_of,
    value_of,
)
from endturn.scan.text_encoding import is_utf32, utf8_blocks

LONGEST_LINE: Final = 64 * 1024 * 1024
"""The maximum length of a line in bytes; a longer one is skipped and counted."""
LARGEST_VALUE: Final = 512 * 1024 * 1024
"""The maximum size of a file that is one JSON value, or is held in memory; larger ones are skipped.
"""
_MOST_PROBLEMS: Final = 20
"""The maximum number of members of an archive whose damage is described."""
HEAD_BYTES: Final = 1 << 20
"""The maximum number of bytes of complete lines from which a file is recognised."""

_TAR: Final = slice(257, 263)
"""The bytes that identify a tar archive."""
_BLANKS: Final = b" \t\r\n\0"


@dataclass(slots=True)
class Damage:
    """The parts of a file that could not be read.

    Attributes:
        damaged_lines: lines that are not a JSON object; long_lines: lines above LONGEST_LINE.
        is_last_line_incomplete: the last line is half a record, since the file is being written or
            was truncated.
        problem: why the rest of the file could not be read; "" if it could.
    """

    damaged_lines: int = 0
    long_lines: int = 0
    is_last_line_incomplete: bool = False
    problem: str = ""


class ScannedFile:
    """One file, opened for reading only.

    A source reads it by one of `records`, `value`, `database` and `members`. Read errors are
    recorded in `damage` and never raised.

    Args:
        stream: the file's bytes, perhaps compressed; at its beginning.
        name: the file as it is shown.
        path: where it is on the disk; None for standard input and members of an archive.

    Attributes:
        name, path: as above.
        damage: the parts that could not be read so far.
        head: the beginning, by which the source is recognised.
    """

    def __init__(self, stream: BinaryIO, name: str, path: Path | None = None) -> None:
        self.name, self.path = name, path
        self.damage = Damage()
        self._blocks = self._safe_blocks(stream)
        self._first = self._beginning()
        self._lines: Iterator[tuple[int, bytes]] = iter(())
        self.head = self._read_head()

    # --- Reading, for sources ---------------------------------------------------------------------

    def records(self, *needles: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the JSON objects of the lines, each with the offset of its line in bytes.

        For a file that is a list, its objects, each with its index in the list; for an object,
        that.

        Args:
            needles: a line is parsed only if it contains one of them. This filter is for speed and
                may pass any line, so check its meaning after parsing. A line with an escaped ASCII
                letter always passes. None: each line is parsed. A line that is not parsed is
                checked for damage only by its first and last characters.
        """
        damage = self.damage
        if self.head.shape is FileShape.VALUE:
            yield from self._items()
            return
        last: tuple[int, bytes] | None = None
        for item in self._lines:
            if last is not None:
                line = last[1]
                if not needles or contains(line, needles):
                    parsed = object_of(line)
                    if parsed is not None:
                        yield last[0], parsed
                    elif line.strip(_BLANKS):
                        damage.damaged_lines += 1
                elif line[-1:] != b"}" or line[:1] != b"{":
                    # it may have been truncated before the needle
                    damage.damaged_lines += _is_torn(line)
            last = item
        if last is None:
            return
        # the last line, which may be half a record
        parsed = object_of(last[1])
        if parsed is not None:
            yield last[0], parsed
        elif last[1].strip(_BLANKS):
            damage.is_last_line_incomplete = True

    def _items(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the file's object, or those of its list, each with its index there."""
        value = self.value()
        if value is None:
            return
        for place, item in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(item, dict):
                yield place, item
            else:
                self.damage.damaged_lines += 1

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and the bytes of each line, without its end."""
        return self._lines

    def value(self) -> Any:
        """Return the file's JSON value; None if it is damaged or too large."""
        if self.head.shape is FileShape.LINES:
            return next((record for _, record in self.records()), None)
        data = self._data()
        if data is None or self.damage.problem:
            return None
        try:
            return value_of(data)
        except ValueError as error:
            self.damage.problem = f"it is damaged JSON: {_first_line(error)}"
            return None

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection | None]:
        """Open the file as a SQLite database, without changing its folder.

        Where a `-wal` or `-journal` file exists, both are copied to a temporary folder and read
        there: it holds the latest rows, and SQLite deletes it when it closes. Otherwise the file is
        opened as immutable, so that SQLite creates no other files. For a database that is
        compressed or from standard input, a log is not available, which is recorded as damage.

        Yields:
            The connection; None if it cannot be opened. Errors of SQLite within the block end it,
            and are recorded as damage.
        """
        if not self._is_on_disk() and may_have_log(self._first) and not self.damage.problem:
            self.damage.problem = (
                "its write-ahead log is not at hand, and may hold its newest rows: scan it in the"
                " folder where it was written"
            )
        with self._connection() as connection:
            yield connection

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection | None]:
        try:
            if self._is_on_disk() and self.path is not None:
                with (
                    TemporaryDirectory(prefix="endturn-scan-") as folder,
                    closing(connect(self.path, Path(folder))) as connection,
                ):
                    yield connection
            elif (data := self._data()) is None:
                yield None
            else:
                with closing(connect_to(data)) as connection:
                    yield connection
        except (sqlite3.Error, OSError) as error:
            self.note_damaged_database(error)

    def note_damaged_database(self, error: Exception) -> None:
        """Record that a part of the database cannot be read."""
        self.damage.problem = f"the database is damaged: {error}"

    def members(self) -> Iterator[tuple[str, bytes]]:
        """Yield the names and bytes of the files in an archive, one after the other.

        Members that are above LARGEST_VALUE, damaged or encrypted are left out, and recorded as
        damage.
        """
        problems: list[str] = []
        with self._archive() as (stream, archive):
            if archive is None:
                return
            for member in archive.infolist():
                if member.is_dir():
                    continue
                try:
                    if member.file_size > LARGEST_VALUE:
                        raise Incomplete("is too large, and was skipped")
                    data = read_member(stream, archive, member)
                except Incomplete as error:
                    problems.append(f"{member.filename!r} {error}")
                    continue
                except UsageError as error:  # what decompresses it is not installed
                    problems.append(f"{member.filename!r} cannot be read: {error}")
                    continue
                yield member.filename, data
        if problems:
            more = len(problems) - _MOST_PROBLEMS
            rest = [f"and {more} more members"] if more > 0 else []
            earlier = [self.damage.problem] if self.damage.problem else []  # recorded by the source
            self.damage.problem = "; ".join([*earlier, *problems[:_MOST_PROBLEMS], *rest])

    @contextmanager
    def _archive(self) -> Iterator[tuple[BinaryIO, zipfile.ZipFile | None]]:
        """Open the file as a zip file; None if its directory is damaged."""
        with self._archive_stream() as stream:
            try:
                archive = zipfile.ZipFile(stream)
            except Exception as error:  # a damaged directory may raise almost anything
                self.damage.problem = self.damage.problem or f"the zip file is damaged: {error}"
                yield stream, None
                return
            with archive:
                yield stream, archive

    # --- Recognition ------------------------------------------------------------------------------

    @property
    def unsupported_form(self) -> str:
        """The reason why no source can read the file, and the remedy; "" if one may."""
        beginning = self._first
        if beginning[_TAR] in (b"ustar\0", b"ustar "):
            return "it is a tar archive: unpack it"
        if compression_of(beginning) is not None:
            return "it is compressed twice: unpack it"
        if is_utf32(beginning):
            return "it is in UTF-32: convert it to UTF-8"
        return ""

    def _read_head(self) -> FileHead:
        beginning = self._first
        if beginning.startswith(SQLITE):
            return FileHead(FileShape.DATABASE, names=self._tables(), path=self.path)
        if beginning.startswith(ZIP):
            return FileHead(FileShape.ARCHIVE, names=self._member_names(), path=self.path)
        if is_value(beginning):
            return FileHead(
                FileShape.VALUE,
                first_objects(beginning),
                beginning[: 1 << 16],
                path=self.path,
                is_list=is_list(beginning),
                is_damaged=is_cut_value(beginning),
            )
        is_json = beginning[:4096].lstrip(b" \t\r\n\xef\xbb\xbf")[:1] == b"{"
        # the first line may be damaged
        if not is_json and b"\n{" not in beginning:
            return FileHead(FileShape.LINES, text=beginning[: 1 << 16], path=self.path)
        lines = _lines(chain([beginning], self._blocks), self.damage)
        lines_so_far, records, size = [], [], 0
        for offset, line in lines:
            lines_so_far.append((offset, line))
            size += len(line)
            if (parsed := object_of(line)) is not None:
                records.append(parsed)
            if len(records) >= HEAD_RECORDS or size > HEAD_BYTES:
                break
        self._lines = chain(lines_so_far, lines)
        return FileHead(FileShape.LINES, records, beginning[: 1 << 16], path=self.path)

    def _tables(self) -> list[str]:
        with self._connection() as connection:
            if connection is None:
                return []
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            return [str(name) for (name,) in connection.execute(query)]
        return []

    def _member_names(self) -> list[str]:
        with self._archive() as (_, archive):
            return [] if archive is None else archive.namelist()

    # --- Bytes ------------------------------------------------------------------------------------

    def _beginning(self) -> bytes:
        """Return the first BLOCK bytes, or all if there are fewer."""
        pieces, size = [], 0
        for piece in self._blocks:
            pieces.append(piece)
            size += len(piece)
            if size >= BLOCK:
                break
        return b"".join(pieces)

    def _data(self) -> bytes | None:
        """Return all bytes of the file; None if they are too many."""
        pieces, size = [self._first], len(self._first)
        for piece in self._blocks:
            size += len(piece)
            if size > LARGEST_VALUE:
                break
            pieces.append(piece)
        if size > LARGEST_VALUE:
            self.damage.problem = (
                f"it cannot be read by lines, and more than {LARGEST_VALUE >> 20} MiB would not"
                " fit into memory: it was skipped"
            )
            return None
        self._first, self._blocks = b"".join(pieces), iter(())
        return self._first

    def _is_on_disk(self) -> bool:
        """Return whether the file is on disk and not compressed."""
        if self.path is None:
            return False
        with self.path.open("rb") as file:
            return file.read(len(SQLITE)) == self._first[: len(SQLITE)]

    def _archive_stream(self) -> BinaryIO:
        """Return the bytes of a zip file, at their beginning."""
        if self._is_on_disk() and self.path is not None:
            return self.path.open("rb")
        return io.BytesIO(self._data() or b"")

    def _safe_blocks(self, stream: BinaryIO) -> Iterator[bytes]:
        try:
            yield from utf8_blocks(blocks(stream))
        except Incomplete as error:
            self.damage.problem = str(error)
        except OSError as error:
            self.damage.problem = f"it cannot be read: {error.strerror or error}"


def _lines(source: Iterator[bytes], damage: Damage) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each line, without its end. Memory is bounded by LONGEST_LINE."""
    offset = 0
    pending: list[bytes] = []  # of the present line
    pending_size = 0
    is_skipping = False
    for block in source:
        first, *rest = block.split(b"\n")
        if not rest:
            pending_size += len(first)
            if pending_size > LONGEST_LINE:
                pending, is_skipping = [], True
            elif first and not is_skipping:
                pending.append(first)
            continue
        size = pending_size + len(first)
        if is_skipping or size > LONGEST_LINE:
            damage.long_lines += 1
        else:
            yield offset, b"".join([*pending, first]) if pending else first
        offset += size + 1
        last = rest.pop()
        for line in rest:
            yield offset, line
            offset += len(line) + 1
        pending, pending_size, is_skipping = [last] if last else [], len(last), False
    if is_skipping:
        damage.long_lines += 1
    elif pending:
        yield offset, b"".join(pending)


def _is_torn(line: bytes) -> bool:
    """Return whether a line is neither blank nor has the braces of a JSON object."""
    words = line.strip(_BLANKS).removeprefix(b"\xef\xbb\xbf").lstrip()
    return words != b"" and not (words.startswith(b"{") and words.endswith(b"}"))


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
