"""The files to scan: all files below folders, each once, and those that cannot be read."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from endturn.errors import UsageError
from endturn.scan.registry import all_sources

STDIN: Final = Path("-")


@dataclass(slots=True)
class Discovery:
    """Walks over files and folders.

    Attributes:
        unreadable: path → the reason, for folders and files that could not be opened.
    """

    unreadable: dict[str, str] = field(default_factory=dict)
    _visited: set[tuple[int, int]] = field(default_factory=set)

    def files(self, inputs: Iterable[Path]) -> Iterator[Path]:
        """Yield every file once, even if several links lead to it, or links form a circle.

        Raises:
            UsageError: an input does not exist.
        """
        for path in inputs:
            if path == STDIN:
                yield path
                continue
            try:
                status = path.stat()
            except FileNotFoundError:
                raise UsageError(f"{str(path)!r} does not exist") from None
            except OSError as error:
                self._note(path, error)
                continue
            if stat.S_ISDIR(status.st_mode):
                if self._is_new(status):
                    yield from self._below(path)
            # an input may be a pipe, such as from `<(zstdcat …)`
            elif not stat.S_ISREG(status.st_mode) or self._is_new(status):
                yield path

    def _below(self, top: Path) -> Iterator[Path]:
        folders = [top]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as entries:
                    children = sorted(entries, key=lambda entry: entry.name)
            except OSError as error:
                self._note(folder, error)
                continue
            subfolders = []
            for entry in children:
                path = Path(entry.path)
                try:
                    status = entry.stat()
                except OSError as error:
                    if not entry.is_symlink():  # a dangling link is not a file
                        self._note(path, error)
                    continue
                if stat.S_ISDIR(status.st_mode):
                    if self._is_new(path.stat()):
                        subfolders.append(path)
                elif stat.S_ISREG(status.st_mode) and self._is_new(path.stat()):
                    yield path
            folders += reversed(subfolders)

    def _is_new(self, status: os.stat_result) -> bool:
        identity = status.st_dev, status.st_ino
        if status.st_ino and identity in self._visited:
            return False
        self._visited.add(identity)
        return True

    def _note(self, path: Path, error: OSError) -> None:
        self.unreadable[str(path)] = error.strerror or str(error)


def default_places(environment: Mapping[str, str], home: Path) -> Sequence[Path]:
    """Return the existing folders and files of this machine where sources keep their files."""
    places = dict.fromkeys(
        place for source in all_sources() for place in source.places(environment, home)
    )
    return [place for place in places if place.exists()]
