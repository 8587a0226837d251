"""Tables of the package's `data` folder.

One row per line, a tab between two cells; lines with `#` are comments.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


@cache
def package_data() -> Traversable:
    """Return the package's data folder, which may be in a zip file."""
    folder = Path(__file__).parents[1] / "data"
    if folder.is_dir():
        return folder
    from importlib.resources import files  # importing it takes longer than reading all tables

    return files("endturn").joinpath("data")


def read_tsv(folder: Traversable, name: str, widths: range) -> Iterator[tuple[str, list[str]]]:
    """Yield each row's file and line number, then its cells. The first line names the columns.

    Args:
        widths: the numbers of cells that a row may have.

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
            raise ValueError(
                f"{path}:{number}: {len(cells)} cells, not {widths[-1]}: separate two "
                f"cells by one tab"
            )
        yield f"{path}:{number}", cells
