"""Read one file: recognise its source, and collect its turns and its damage."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from endturn.errors import UsageError
from endturn.scan.files import STDIN
from endturn.scan.head import FileHead, FileShape
from endturn.scan.json_values import begins_like_object
from endturn.scan.past_calls import PastTurn
from endturn.scan.record_digests import add_digests
from endturn.scan.registry import is_companion, recognise, source_named
from endturn.scan.scanned_file import Damage, ScannedFile

STDIN_NAME = "standard input"


@dataclass(slots=True)
class FileResult:
    """The result of reading one file, or one member of an archive.

    Attributes:
        name: the file as it is shown; source: the name of its source, None for an unknown file.
        turns: the file's turns, including copies.
        size: bytes on the disk.
        is_companion: it belongs to a source, and holds no calls.
        unreadable: why it could not be opened; "" if it could.
    """

    name: str
    source: str | None = None
    turns: list[PastTurn] = field(default_factory=list)
    damage: Damage = field(default_factory=Damage)
    size: int = 0
    is_companion: bool = False
    unreadable: str = ""


def read_file(path: Path, forced: str | None = None) -> list[FileResult]:
    """Read one file, or each member of an archive that no source reads itself.

    Args:
        path: the file; `-` is standard input.
        forced: the name of the source that reads it, without recognition.
    """
    if path == STDIN:
        if sys.stdin is None:  # such as after `<&-`
            return [FileResult(STDIN_NAME, unreadable="it is closed")]
        return _results(sys.stdin.buffer, STDIN_NAME, None, forced)
    name = str(path)
    try:
        with path.open("rb") as stream:
            results = _results(stream, name, path, forced)
            if len(results) == 1:
                results[0].size = path.stat().st_size
            return results
    except OSError as error:
        return [FileResult(name, unreadable=error.strerror or str(error))]


def _results(
    stream: BinaryIO, name: str, path: Path | None, forced: str | None
) -> list[FileResult]:
    try:
        file = ScannedFile(stream, name, path)
        if file.unsupported_form:
            return [FileResult(name, unreadable=file.unsupported_form)]
        source = forced or _source_of(file.head)
        if file.head.shape is FileShape.ARCHIVE and not _reads_archives(source):
            return list(_members(file, forced))
        return [_read_with(file, source)]
    except UsageError as error:  # the package that decompresses it is not installed
        return [FileResult(name, unreadable=str(error))]


def _member_result(data: bytes, name: str, forced: str | None) -> FileResult:
    """Read a member of an archive; an inner archive only if a source reads it."""
    try:
        file = ScannedFile(io.BytesIO(data), name)
        if file.unsupported_form:
            return FileResult(name, unreadable=file.unsupported_form)
        source = forced or _source_of(file.head)
        if file.head.shape is FileShape.ARCHIVE and not _reads_archives(source):
            return FileResult(name, unreadable="it is an archive within an archive: unpack it")
        return _read_with(file, source)
    except UsageError as error:  # what decompresses it is not installed
        return FileResult(name, unreadable=str(error))


def _reads_archives(source: str | None) -> bool:
    return source is not None and FileShape.ARCHIVE in source_named(source).shapes


def _members(file: ScannedFile, forced: str | None) -> Iterator[FileResult]:
    before = file.damage.problem
    for member, data in file.members():
        yield _member_result(data, f"{file.name}!{member}", forced)
    if file.damage.problem or before:
        yield FileResult(file.name, source="zip", damage=file.damage)


def _source_of(head: FileHead) -> str | None:
    source = recognise(head)
    return None if source is None else source.name


def _read_with(file: ScannedFile, name: str | None) -> FileResult:
    name = name or _source_of(file.head)
    if name is None:
        if file.damage.problem == "" and _is_broken_json(file.head):
            file.damage.problem = "it begins like JSON, and is damaged"
        return FileResult(file.name, damage=file.damage, is_companion=is_companion(file.head))
    source = source_named(name)
    result = FileResult(file.name, name, damage=file.damage)
    try:
        for turn in source.read(file):
            turn.path = file.name
            result.turns.append(turn)
    # a bug in one source must not end the scan of all other files
    except Exception as error:
        file.damage.problem = f"{source.title} failed to read it ({type(error).__name__})"
    for turn in result.turns:
        for call in turn.calls:
            call.path = file.name
    if file.path is not None and (source.text is not None or source.question is not None):
        with suppress(OSError):  # it was deleted meanwhile
            add_digests(file.path, result.turns)
    return result


def _is_broken_json(head: FileHead) -> bool:
    if head.shape is FileShape.LINES:
        return begins_like_object(head.text) and not head.records
    return head.is_damaged
