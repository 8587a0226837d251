"""The interface of a source: one module of `endturn.scan.sources` for each kind of file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import PastTurn
from endturn.scan.scanned_file import ScannedFile


def _no_places(environment: Mapping[str, str], home: Path) -> Iterable[Path]:
    return ()


def _never(head: FileHead) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One kind of file with past calls.

    Attributes:
        name: as in `--format`, the name of the module.
        title: the usual name of the tool or the format.
        shapes: the shapes that such a file may have.
        recognises: returns whether a file is of this kind, from its beginning, never from its name.
            It must not raise for any JSON objects.
        is_companion: returns whether a file belongs to this source but holds no calls: such files
            are neither read nor counted as unknown.
        read: yields the turns of a file. It ignores unknown records, never fails on a missing or
            mistyped field, keeps no message text, and adds no facts that the file lacks.
        places: the folders and files where the tool keeps its files on this machine.
        text: returns what an answer says, from the records of its file that begin with the answer's
            first, and the key of its call; None where it is not read again.
        stored_text: returns the same from the file and the key of the call, for files that are not
            read by lines.
        question: returns the user's message that began a turn, from the records that begin with it.
        advice: the setting of the tool that ends truncations, for the last line of the summary.
    """

    name: str
    title: str
    shapes: Sequence[FileShape] = (FileShape.LINES,)
    recognises: Callable[[FileHead], bool]
    is_companion: Callable[[FileHead], bool] = _never
    read: Callable[[ScannedFile], Iterator[PastTurn]]
    places: Callable[[Mapping[str, str], Path], Iterable[Path]] = field(default=_no_places)
    text: Callable[[Iterable[Mapping[str, Any]], str], str] | None = None
    stored_text: Callable[[ScannedFile, str], str] | None = None
    question: Callable[[Iterable[Mapping[str, Any]]], str] | None = None
    advice: str = ""
