"""`endturn report`.

The indicators of what is stored, as HTML, Markdown or JSON, and whether a build may pass.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb

from endturn._version import __version__
from endturn.errors import UsageError
from endturn.telemetry import INDICATORS, FailCondition, fail_condition
from endturn.ui import otlp, panels, views
from endturn.ui.numbers import Numbers
from endturn.ui.rows import data
from endturn.ui.store import Store, opened, unreadable
from endturn.ui.views import View


def run(inputs: Sequence[Path], *, file: Path | None, format_: str, fail_on: Sequence[str]) -> int:
    """Print the report.

    Returns:
        The exit status: 1 where a condition is met, 3 where there are conditions but no metrics to
        look at, else 0.

    Raises:
        UsageError: a condition or a file cannot be read, or there is nothing to report on.
    """
    limits = [fail_condition(text) for text in fail_on]
    if not inputs and file is None:
        raise UsageError(
            "no input: pass OTLP JSON files, or with --file the database of `endturn ui --file`"
        )
    if file is not None and not file.exists():
        raise UsageError(f"--file {str(file)!r} does not exist")
    with TemporaryDirectory() as folder, closing(_opened(file, Path(folder))) as store:
        try:
            for path in inputs:
                otlp.load(store, path)
            found = _found(store, limits)
        except duckdb.Error as error:
            raise unreadable(file, error) from None
    status = (
        1
        if any(each["met"] for each in found["limits"])
        else 3
        if limits and not found["measured"]
        else 0
    )
    print(_written(found, format_))
    return status


def _opened(file: Path | None, folder: Path) -> Store:
    """A store of what a file keeps, or an empty one."""
    if file is None:
        return Store()
    copy = _copied(file, folder)
    try:
        return Store(copy)
    except UsageError as error:
        raise UsageError(str(error).replace(str(copy), str(file))) from None


def _copied(file: Path, folder: Path) -> Path:
    """A copy of a kept file.

    What else is reported on is read into it, and never into what is kept.
    """
    with closing(opened(file, read_only=True)):  # nobody writes meanwhile
        for each in (file, file.with_name(f"{file.name}.wal")):
            if each.exists():
                shutil.copy(each, folder)
    return folder / file.name


def _found(store: Store, limits: Sequence[FailCondition]) -> dict[str, Any]:
    view = View.of(store, {"range": "all"}, time.time_ns())
    asked = Numbers(store, view.scope)
    values = {name: asked.value(name) for name in INDICATORS}
    where, parameters = view.where()
    left = (
        f"SELECT turn_id, service, model, outcome FROM turns WHERE {where} AND state = 'unfinished'"
    )
    return {
        "version": __version__,
        "measured": asked.measured,
        "values": values,
        "models": panels.models(asked),
        "unfinished": store.read_rows(f"{left} ORDER BY start_ns LIMIT 100", parameters),
        "limits": [
            {"text": each.text, "value": values[each.name], "met": each.is_met(values[each.name])}
            for each in limits
        ],
    }  # fmt: skip


def _written(found: dict[str, Any], format_: str) -> str:
    if format_ == "json":
        return json.dumps(found, indent=2, allow_nan=False)
    shown = {name: panels.shown(INDICATORS[name], value) for name, value in found["values"].items()}
    environment = views.templates(escape=format_ == "html")
    environment.filters["cell"] = _cell
    template = environment.get_template(f"report.{format_}")
    return template.render(
        found, indicators=INDICATORS, shown=shown, level=panels.level, style=data("static/page.css")
    )


def _cell(text: str | None) -> str:
    """A name in a Markdown table: anybody may have chosen it."""
    return re.sub(r"([\\|`<>*_\[\]])", r"\\\1", re.sub(r"\s", " ", text or "–"))
