"""Tables of the store as files: CSV for people and spreadsheets, Parquet for programs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from endturn.ui.numbers import OF_WHOM
from endturn.ui.rows import LABELS, data
from endturn.ui.store import Store
from endturn.ui.views import View

_EXPORTS: Final = data("exports.yaml")
NAMES: Final = [f"{table}.{format_}" for table in _EXPORTS["tables"] for format_ in _EXPORTS["formats"]]
_ALIASES: Final = ", ".join(f"{label} AS {name}" for name, label in OF_WHOM.items() if name != label)


def export(store: Store, view: View, name: str) -> tuple[bytes, str] | None:
    """A table's rows within a view, with the media type; None where there is no such table."""
    if name not in NAMES:
        return None
    table, _, format_ = name.partition(".")
    (options, media), found = _EXPORTS["formats"][format_], _EXPORTS["tables"][table]
    where, parameters = view.where(found["at"])
    if (state := view.given.get("state")) and table != "numbers":
        where += " AND turn_id IN (SELECT turn_id FROM turns WHERE state = $state)"
        parameters["state"] = state
    query = found["query"].replace("@labels@", ", ".join(LABELS)).replace("@aliases@", _ALIASES)
    query = f"{query} WHERE {where} ORDER BY {found['at']}"
    if format_ == "csv":
        described = store.read(f"DESCRIBE {query}", parameters)
        query = f"SELECT {', '.join(_inert(column, kind) for column, kind, *_ in described)} FROM ({query})"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, name)
        store.read(f"COPY ({query}) TO '{file}' ({options})", parameters)
        return file.read_bytes(), media


def _inert(column: str, kind: str) -> str:
    """A column as a spreadsheet may open it: a text that would be a formula there begins with an apostrophe."""
    if kind != "VARCHAR":
        return f'"{column}"'
    return rf"""regexp_replace("{column}", '^([-=+@\t\r])', chr(39) || '\1') AS "{column}" """
