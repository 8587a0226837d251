"""The beginning of a file, by which its source is recognised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any


class FileShape(StrEnum):
    """The structure of a file."""

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
        records: the first JSON objects of LINES, at most 16; for a VALUE the first objects of its
            list, or the object itself if it is short enough to be read completely.
        text: the first bytes, at most 64 KiB, for a longer VALUE.
        names: the tables of a DATABASE, the members of an ARCHIVE.
        path: the file, for sources that need its folder; None for standard input.
        is_list: a VALUE is a list.
        is_damaged: a VALUE is incomplete or damaged, as far as its beginning shows.
    """

    shape: FileShape
    records: Sequence[Mapping[str, Any]] = ()
    text: bytes = b""
    names: Sequence[str] = ()
    path: Path | None = None
    is_list: bool = False
    is_damaged: bool = False
