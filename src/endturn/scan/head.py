"""The beginning of a file, by which its source is recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class FileShape(StrEnum):
    """How a file is built."""

    LINES = "lines"
    """One JSON value to a line."""
    VALUE = "value"
    """One JSON value, over several lines or on one."""
    DATABASE = "database"
    """A SQLite database."""
    ARCHIVE = "archive"
    """A zip file."""


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file, by which its source is recognised.

    Attributes:
        shape: LINES also for a file that is one JSON value on one line.
        records: the first JSON objects of LINES, at most 16; of a VALUE the first objects of its
            list, or, if it is short enough to be read whole, the object that it is.
        text: the first bytes, at most 64 KiB, for a VALUE that is longer.
        names: of a DATABASE its tables, of an ARCHIVE its members.
        path: the file, for sources that need the folder around it; None for standard input.
        is_list: a VALUE is a list.
        is_damaged: a VALUE is cut or damaged, as far as its beginning shows.
    """

    shape: FileShape
    records: Sequence[Mapping[str, Any]] = ()
    text: bytes = b""
    names: Sequence[str] = ()
    path: Path | None = None
    is_list: bool = False
    is_damaged: bool = False
