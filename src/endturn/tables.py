"""Tables of the package's `data` folder: a line each row, a tab between two cells, `#` before what is for people."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def shipped() -> Traversable:
    """The folder that comes with the package."""
    return files("endturn").joinpath("data")


def lines(folder: Traversable, name: str, widths: range) -> Iterator[tuple[str, list[str]]]:
    """The cells of each row, after the file and the number of its line. The first line names the columns.

    Args:
        widths: how many cells a row may have.

    Raises:
        ValueError: a row has another number of cells.
    """
    file = folder.joinpath(name)
    path = str(file)
    for number, line in enumerate(file.read_text("utf-8").splitlines(), 1):
        if number == 1 or not line or line.startswith("#"):
            continue
        cells = line.split("\t")
        if len(cells) not in widths:
            raise ValueError(f"{path}:{number}: {len(cells)} cells, not {widths[-1]}: one tab stands between two cells")
        yield f"{path}:{number}", cells
