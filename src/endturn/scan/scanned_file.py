"""One file that is read: its lines, its JSON value, its database or its members, and its damage."""

from __future__ import annotations

import re
import shutil
import sqlite3
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO, Final

from pydantic_core import from_json

from endturn.scan.decompression import BLOCK, ZIP, Incomplete, blocks, zstd_decompressor
from endturn.scan.head import Head, Shape

LONGEST_LINE: Final = 64 * 1024 * 1024
"""Bytes of a line that is read; a longer one is skipped and counted."""
LARGEST_VALUE: Final = 512 * 1024 * 1024
"""Bytes of a file that is one JSON value; a larger one is skipped."""
HEAD_RECORDS: Final = 16
HEAD_BYTES: Final = 1 << 20
"""Lines, and bytes in whole lines, from which a file is recognised."""
SQLITE: Final = b"SQLite format 3\0"
_COPY_ATTEMPTS: Final = 5
"""Copies of a database that is being written, until one is of a single moment."""
_ZSTD: Final = 93
"""The compression method of zip members that zipfile knows since Python 3.14."""
_ESCAPED_LETTERS: Final = (b"\\u004", b"\\u005", b"\\u006", b"\\u007")
_BOM: Final = b"\xef\xbb\xbf"
_ESCAPES: Final = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\.",
    re.DOTALL,
)
"""Escapes of JSON; those in the group are half a character."""


@dataclass(slots=True)
class Damage:
    """What of a file could not be read.

    Attributes:
        damaged_lines: lines that are no JSON object; long_lines: lines above LONGEST_LINE.
        is_last_line_incomplete: the last line is half a record, as of a file that is being written
            or was cut.
        problem: why the rest of the file could not be read, in words; "" where it could.
    """

    damaged_lines: int = 0
    long_lines: int = 0
    is_last_line_incomplete: bool = False
    problem: str = ""


class ScannedFile:
    """One file, opened for reading only.

    A source reads it by one of `records`, `value`, `database` and `members`. Whatever cannot be
    read is noted in `damage` and never raised.

    Args:
        stream: the file's bytes, perhaps compressed; at its beginning.
        name: the file as it is shown.
        path: where it is on the disk; None for standard input and members of an archive.

    Attributes:
        name, path: as above.
        damage: what could not be read so far.
        head: the beginning, by which the source is recognised.
    """

    def __init__(self, stream: BinaryIO, name: str, path: Path | None = None) -> None:
        self.name, self.path = name, path
        self.damage = Damage()
        self._blocks = self._safe_blocks(stream)
        self._first = next(self._blocks, b"")
        self._lines: Iterator[tuple[int, bytes]] = iter(())
        self.head = self._read_head()

    # --- Reading, for sources ---

    def records(self, *needles: bytes) -> Iterator[tuple[int, Mapping[str, Any]]]:
        """Yield the JSON objects of the lines, each with the offset of its line in bytes.

        Args:
            needles: a line is parsed only if it contains one of them. This is a test for speed that
                may let any line through: check what it means after parsing. A line in which an
                ASCII letter is escaped passes always. None: each line is parsed.
        """
        damage = self.damage
        last: tuple[int, bytes] | None = None
        for item in self._lines:
            if last is not None:
                line = last[1]
                if not needles or contains(line, needles):
                    parsed = _parsed(line)
                    if parsed is not None:
                        yield last[0], parsed
                    elif line.strip(b" \t\r\0"):
                        damage.damaged_lines += 1
            last = item
        if last is None:
            return
        # the last line, which may be half a record
        parsed = _parsed(last[1])
        if parsed is not None:
            yield last[0], parsed
        elif last[1].strip(b" \t\r\n\0"):
            damage.is_last_line_incomplete = True

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """Yield the offset and the bytes of each line, without its end."""
        return self._lines

    def value(self) -> Any:
        """Return the JSON value that the file is; None where it is damaged or too large."""
        if self.head.shape is Shape.LINES:
            return next((record for _, record in self.records()), None)
        pieces, size = [], 0
        for piece in chain([self._first], self._blocks):
            size += len(piece)
            if size > LARGEST_VALUE:
                self.damage.problem = (
                    f"it is one JSON value of more than {LARGEST_VALUE >> 20} MiB, which would not"
                    " fit into memory: it was skipped"
                )
                return None
            pieces.append(piece)
        if self.damage.problem:
            return None
        try:
            return _from_json(b"".join(pieces))
        except ValueError as error:
            self.damage.problem = f"it is damaged JSON: {_first_line(error)}"
            return None

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection | None]:
        """Open the SQLite database that the file is, without changing its folder.

        Where a `-wal` or `-journal` file exists, both are copied to a temporary folder and read
        there: it holds the latest rows, and SQLite deletes it when it closes. Otherwise the file
        is opened as immutable, so that SQLite makes no file beside it.

        Yields:
            The connection; None where it cannot be opened. Errors of SQLite within the block end
            it, and are noted as damage.
        """
        if self.path is None:
            self.damage.problem = "a database must be given by its path"
            yield None
            return
        try:
            with (
                TemporaryDirectory(prefix="endturn-scan-") as folder,
                closing(_opened_database(self.path, Path(folder))) as connection,
            ):
                yield connection
        except (sqlite3.Error, OSError) as error:
            self.damage.problem = f"the database is damaged: {error}"

    def members(self) -> Iterator[tuple[str, bytes]]:
        """Yield the names and bytes of the files in an archive, one after the other.

        Members above LARGEST_VALUE and damaged ones are left out, and noted.
        """
        if self.path is None:
            self.damage.problem = "a zip file must be given by its path"
            return
        try:
            with zipfile.ZipFile(self.path) as archive:
                for member in archive.infolist():
                    if member.is_dir():
                        continue
                    if member.file_size > LARGEST_VALUE:
                        self.damage.problem = f"{member.filename!r} is too large, and was skipped"
                        continue
                    try:
                        yield member.filename, _member(self.path, archive, member)
                    except (zipfile.BadZipFile, OSError, EOFError, ValueError, Incomplete) as error:
                        self.damage.problem = f"{member.filename!r} is damaged: {error}"
        except (zipfile.BadZipFile, OSError, NotImplementedError) as error:
            self.damage.problem = f"the zip file is damaged: {error}"

    # --- Recognition ---

    def _read_head(self) -> Head:
        beginning = self._first
        if beginning.startswith(SQLITE):
            return Head(Shape.DATABASE, names=self._tables(), path=self.path)
        if beginning.startswith(ZIP):
            return Head(Shape.ARCHIVE, names=self._member_names(), path=self.path)
        if _is_value(beginning):
            return Head(
                Shape.VALUE, _records_of_value(beginning), beginning[: 1 << 16], path=self.path
            )
        is_json = beginning[:4096].lstrip(b" \t\r\n" + _BOM)[:1] == b"{"
        # the first line may be damaged
        if not is_json and b"\n{" not in beginning:
            return Head(Shape.LINES, text=beginning[: 1 << 16], path=self.path)
        lines = _lines(chain([beginning], self._blocks), self.damage)
        kept, records, size = [], [], 0
        for offset, line in lines:
            kept.append((offset, line))
            size += len(line)
            if (parsed := _parsed(line)) is not None:
                records.append(parsed)
            if len(records) >= HEAD_RECORDS or size > HEAD_BYTES:
                break
        self._lines = chain(kept, lines)
        return Head(Shape.LINES, records, beginning[: 1 << 16], path=self.path)

    def _tables(self) -> list[str]:
        with self.database() as connection:
            if connection is None:
                return []
            query = "SELECT name FROM sqlite_master WHERE type = 'table'"
            return [str(name) for (name,) in connection.execute(query)]
        return []

    def _member_names(self) -> list[str]:
        if self.path is None:
            return []
        try:
            with zipfile.ZipFile(self.path) as archive:
                return archive.namelist()
        except (zipfile.BadZipFile, OSError) as error:
            self.damage.problem = f"the zip file is damaged: {error}"
            return []

    def _safe_blocks(self, stream: BinaryIO) -> Iterator[bytes]:
        try:
            yield from blocks(stream)
        except Incomplete as error:
            self.damage.problem = str(error)
        except OSError as error:
            self.damage.problem = f"it cannot be read: {error.strerror or error}"


def _lines(source: Iterator[bytes], damage: Damage) -> Iterator[tuple[int, bytes]]:
    """Yield offset and bytes of each line, without its end. Memory is bounded by LONGEST_LINE."""
    offset = 0
    pending: list[bytes] = []  # of the line that is not at its end yet
    pending_size = 0
    is_skipping = False
    for block in source:
        first, *more = block.split(b"\n")
        if not more:
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
        last = more.pop()
        for line in more:
            yield offset, line
            offset += len(line) + 1
        pending, pending_size, is_skipping = [last] if last else [], len(last), False
    if is_skipping:
        damage.long_lines += 1
    elif pending:
        yield offset, b"".join(pending)


def contains(line: bytes, needles: tuple[bytes, ...]) -> bool:
    """Return whether a line may hold one of some words of ASCII, as JSON may spell them."""
    for needle in needles:
        if needle in line:
            return True
    return _may_escape_letters(line)


def _may_escape_letters(line: bytes) -> bool:
    """Return whether an ASCII letter of the line may be spelled by its number."""
    return b"\\u00" in line and any(escape in line for escape in _ESCAPED_LETTERS)


def _parsed(line: bytes) -> Mapping[str, Any] | None:
    """Return the JSON object of a line; None for anything else."""
    try:
        value = _from_json(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _from_json(data: bytes) -> Any:
    """Return a JSON value, with replacement characters for what is half a character.

    Tools that cut text by its length leave such halves, in bytes or as escapes.

    Raises:
        ValueError: it is no JSON.
    """
    data = data.removeprefix(_BOM)
    try:
        return from_json(data, cache_strings="keys")
    except ValueError as error:
        if "EOF" in str(error):  # it is cut, which no repair mends
            raise
        repaired = data.decode("utf-8", "replace").encode()
        if b"\\u" in repaired:
            repaired = _ESCAPES.sub(_whole_escape, repaired)
        if repaired == data:
            raise
    return from_json(repaired, cache_strings="keys")


def _whole_escape(escape: re.Match[bytes]) -> bytes:
    return b"\\ufffd" if escape[1] else escape[0]


def _is_value(beginning: bytes) -> bool:
    """Return whether a file is one JSON value over several lines, or a list."""
    text = beginning.removeprefix(_BOM).lstrip()
    if text[:1] == b"[":
        return True
    if text[:1] != b"{":
        return False
    line, end, rest = text.partition(b"\n")
    if not end or _parsed(line) is not None or line.rstrip().endswith(b"}"):
        return False
    # or it is half a line, and whole ones follow
    return _parsed(rest.partition(b"\n")[0]) is None


def _records_of_value(beginning: bytes) -> list[Mapping[str, Any]]:
    if len(beginning) >= BLOCK:
        return []  # there is more of it
    try:
        value = _from_json(beginning)
    except ValueError:
        return []
    items = value if isinstance(value, list) else [value]
    return [item for item in items[:HEAD_RECORDS] if isinstance(item, dict)]


def _opened_database(path: Path, folder: Path) -> sqlite3.Connection:
    beside = [path.with_name(f"{path.name}-{ending}") for ending in ("wal", "journal")]
    originals = [path, *(each for each in beside if each.exists())]
    if len(originals) == 1:
        return sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)
    for _ in range(_COPY_ATTEMPTS):
        before = [(each.stat().st_size, each.stat().st_mtime_ns) for each in originals]
        for original in originals:
            shutil.copyfile(original, folder / original.name)
        if before == [(each.stat().st_size, each.stat().st_mtime_ns) for each in originals]:
            break  # nobody wrote meanwhile
    return sqlite3.connect(folder / path.name)


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    if member.compress_type != _ZSTD:
        return archive.read(member)
    with path.open("rb") as file:
        file.seek(member.header_offset)
        header = file.read(30)
        if header[:4] != ZIP[0]:
            raise zipfile.BadZipFile("its header is missing")
        lengths = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
        file.seek(sum(lengths), 1)
        compressed = file.read(member.compress_size)
    pieces = []
    while compressed:
        decompressor = zstd_decompressor()
        pieces.append(decompressor.decompress(compressed))
        if not decompressor.eof:
            raise Incomplete("the zstd data ends before its end")
        compressed = decompressor.unused_data
    return b"".join(pieces)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
