"""`endturn report`: prints a report about stored telemetry, and checks the --fail-on conditions."""

from __future__ import annotations

import io
import json
import re
import shutil
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import duckdb

from endturn._version import __version__
from endturn.errors import UsageError
from endturn.telemetry import INDICATORS, fail_condition
from endturn.ui import otlp, panels, views
from endturn.ui.axes import NS
from endturn.ui.formatting import count
from endturn.ui.limits import NeededLimit
from endturn.ui.report_figures import ROWS, Figures, ReportInput, figures
from endturn.ui.rows import Contents, read_file
from endturn.ui.store import Store, open_database, unreadable_error

HEAD: Final = [
    "unfinished_share", "turns", "truncated_turns", "unfinished", "responses", "truncation",
    "continuations",
]  # fmt: skip
"""The indicators that every report shows; it shows others only if they are not zero."""
ORDER: Final = (
    "Unfinished: a response was truncated and nothing completed it. First the turns that spent "
    "the most output tokens, then those that took longest."
)
_MONTHS: Final = (
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
)  # fmt: skip
"""Month names in English, independent of the locale."""
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def run(inputs: Sequence[Path], *, file: Path | None, format_: str, fail_on: Sequence[str]) -> int:
    """Print the report.

    Returns:
        The exit status: 1 if a condition is met, 3 if there are conditions but no metrics, else 0.

    Raises:
        UsageError: a condition or a file cannot be read, or there is nothing to report on.
    """
    conditions = [fail_condition(text) for text in fail_on]
    if not inputs and file is None:
        raise UsageError(
            "no input: pass OTLP JSON files, or with --file the database of `endturn ui --file`"
        )
    if file is not None and not file.exists():
        raise UsageError(f"--file {str(file)!r} does not exist")
    with TemporaryDirectory() as folder, closing(_open_copy(file, Path(folder))) as store:
        try:
            files = [] if file is None else [ReportInput(_name(file), _contents(store))]
            files += [ReportInput(_name(path), otlp.load(store, path)) for path in inputs]
            report = figures(store, files, conditions, all_turns=format_ == "json")
        except duckdb.Error as error:
            raise unreadable_error(file, error) from None
    if isinstance(sys.stdout, io.TextIOWrapper):  # a locale that lacks ✓ must not fail a build
        sys.stdout.reconfigure(encoding="utf-8", errors="replace")
    print(render(report, format_))
    if any(limit.met for limit in report.limits):
        return 1
    return 3 if conditions and not report.measured else 0


def _open_copy(file: Path | None, folder: Path) -> Store:
    """Open a copy of a file, or an empty store."""
    if file is None:
        return Store()
    copy = _copy(file, folder)
    try:
        return Store(copy)
    except UsageError as error:
        raise UsageError(str(error).replace(str(copy), str(file))) from None


def _copy(file: Path, folder: Path) -> Path:
    """Copy a database: the other inputs are read into the copy, never into the file itself."""
    # while it is open, no other process writes to it
    with closing(open_database(file, read_only=True)):
        for path in (file, file.with_name(f"{file.name}.wal")):
            if path.exists():
                shutil.copy(path, folder)
    return folder / file.name


def _name(path: Path) -> str:
    """Return the name of a file as text; it may contain bytes that are not text."""
    return str(path).encode("utf-8", "replace").decode()


def _contents(store: Store) -> Contents:
    spans, events, points = (
        store.read_tuples(f"SELECT count(*) FROM {table}")[0][0]
        for table in ("spans", "events", "(SELECT DISTINCT series, at_ns FROM increments)")
    )
    return Contents(spans, events, points)


def render(report: Figures, format_: str) -> str:
    """Return the report in a format: html, md or json."""
    if format_ == "json":
        return json.dumps(report.as_json(), indent=2, allow_nan=False)
    environment = views.templates(escape=format_ == "html")
    filters = (moment, markdown_code, markdown_text, needed_text)
    environment.filters |= {function.__name__: function for function in filters}
    return environment.get_template(f"report.{format_}").render(
        report=report,
        version=__version__,
        indicators=INDICATORS,
        texts={
            name: panels.format_value(INDICATORS[name], value)
            for name, value in report.values.items()
        },
        level=panels.level,
        period=period,
        most_rows=ROWS,
        reasons=_reasons(report),
        head=HEAD,
        others=[name for name in INDICATORS if name not in HEAD and report.values[name]],
        list_title=_list_title(report),
        order=ORDER,
        missing=_missing(report),
        style=style(),
    )


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """One row of the table of stop reasons: a reason, its responses, and their share."""

    name: str
    number: float
    share: float


def _reasons(report: Figures) -> list[ReasonRow]:
    """Return responses by stop reason with their shares; beyond `ROWS` the rest is one row."""
    total = sum(report.reasons.values())
    numbers = list(report.reasons.items())
    if rest := numbers[ROWS:]:
        numbers[ROWS:] = [(f"{len(rest)} other reasons", sum(number for _, number in rest))]
    return [ReasonRow(name, number, number / total) for name, number in numbers]


def _list_title(report: Figures) -> str:
    listed, total = len(report.unfinished), report.unfinished_total
    if listed < total:
        return f"The {listed} worst of {count(total)} unfinished turns"
    return "The unfinished turn" if total == 1 else f"All {total} unfinished turns, worst first"


def _missing(report: Figures) -> str:
    """Return a sentence about unfinished turns that only metrics count, or ""."""
    number = round(report.values["unfinished"] or 0)
    if number <= report.unfinished_total:
        return ""
    if not report.unfinished_total:
        return "The unfinished turns cannot be listed: no spans or events of them were passed."
    return (
        f"The metrics count {count(number)} unfinished turns; spans or events of "
        f"{count(report.unfinished_total)} were passed."
    )


def style() -> str:
    """Return the style sheet of a report, which is a single file."""
    return f"{read_file('static/page.css')}\n{read_file('static/report.css')}"


def period(start_ns: int, end_ns: int) -> str:
    """Format a period in UTC, with one date if it is within a day."""
    start, end = (datetime.fromtimestamp(ns / NS, UTC) for ns in (start_ns, end_ns))
    until = f"{end:%H:%M:%S}" if start.date() == end.date() else moment(end_ns)
    return f"{moment(start_ns)} – {until} UTC"


def moment(ns: int) -> str:
    """Format a moment in UTC, such as 28 Nov 2026, 09:46:03."""
    time = datetime.fromtimestamp(ns / NS, UTC)
    return f"{time.day} {_MONTHS[time.month - 1]} {time:%Y, %H:%M:%S}"


def needed_text(limit: NeededLimit) -> str:
    """Return the limit that would have been enough, or the reason why none is known."""
    if limit.tokens is not None:
        return count(limit.tokens)
    return limit.word if limit.above is None else f"above {count(limit.above)}"


def markdown_code(name: str | None) -> str:
    """Format a name as code in a Markdown table, so that no part of it acts as markup."""
    if not name:
        return "–"
    text = _CONTROL.sub(" ", name)
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    space = " " if "`" in text[:1] + text[-1:] else ""
    return f"{fence}{space}{text}{space}{fence}".replace("|", r"\|")


def markdown_text(text: str) -> str:
    """Escape a sentence for Markdown."""
    return re.sub(r"([\\|`<>*_\[\]~$&@#])", r"\\\1", _CONTROL.sub(" ", text))
