"""The text output of `endturn scan`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

MOST_TURNS: Final = 20
"""The maximum number of turns in a list; `--json` has all."""
MOST_ROWS: Final = 40
MOST_NAMES: Final = 5

Row = Mapping[str, Any]


def text_of(figures: Row) -> str:
    """Return the report on a scan.

    Args:
        figures: as `Summary.as_json` gives them.
    """
    figures = _printable(figures)
    run = {row["turn"] for row in figures["ran_cut_tool_calls"]}
    parts = [
        _turn_list(
            figures["ran_cut_tool_calls"],
            "Truncated tool calls that were run. Check what they did:",
        ),
        _turn_list(
            [row for row in figures["not_continued"] if row["turn"] not in run],
            "Truncated and left unfinished:",
        ),
        _table(figures["rows"]),
        _finished(figures["finished_after_truncation"]),
        _totals(figures),
        _evidence(figures["evidence"]),
        _files(figures),
        "\n".join(f"To change: {line}" for line in figures["advice"]),
        _limits(figures),
    ]
    return "\n\n".join(part for part in parts if part)


def _limits(figures: Row) -> str:
    lines = []
    for limit in figures["limits"]:
        state = "FAILED" if limit["met"] else "passed" if figures["certain"] else "UNCERTAIN"
        value = "unknown" if limit["value"] is None else format(limit["value"], ".4g")
        lines.append(f"{state}: {limit['text']} (it is {value})")
    if not figures["certain"] and not all(limit["met"] for limit in figures["limits"]):
        is_complete = figures["files"]["complete"]
        lines.append(
            "UNCERTAIN: no stop reason is recorded."
            if is_complete
            else "UNCERTAIN: a part of the files could not be read, see above."
        )
    return "\n".join(lines)


def _printable(value: Any) -> Any:
    """Return figures without characters that control a terminal or cannot be encoded."""
    if isinstance(value, dict):
        return {_printable(name): _printable(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_printable(inner) for inner in value]
    if not isinstance(value, str) or value.isprintable():
        return value
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in value)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _turn_list(turns: Sequence[Row], title: str) -> str:
    if not turns:
        return ""
    head = ("agent", "project", "session", "time", "model", "limit", "reason", "continued")
    rows = [
        (
            row["agent"] + (" (sub-agent)" if row["sub_agent"] else ""),
            _tail(row["project"]),
            row["session"] or "–",
            row["time"] or "–",
            row["model"] or "–",
            _count(row["limit"]),
            row["reason"],
            f"{row['continuations']} times" if row["continuations"] else "no",
        )
        for row in turns[:MOST_TURNS]
    ]
    lines = [title, *("  " + line for line in _columns([head, *rows]))]
    if len(turns) > MOST_TURNS:
        lines.append(f"  and {len(turns) - MOST_TURNS} more (--json lists all)")
    return "\n".join(lines)


def _share(row: Row, name: str, rate: str) -> str:
    if not row[name]:
        return "–"
    return str(row[name]) if row[rate] is None else f"{row[name]} ({row[rate]:.0%})"


COLUMNS: Final[dict[str, Callable[[Row], str]]] = {
    "agent": lambda row: row["agent"] or "–",
    "model": lambda row: row["model"] or "–",
    "project": lambda row: _tail(row["project"]),
    "turns": lambda row: str(row["turns"]),
    "truncated": lambda row: _share(row, "truncated_turns", "truncation_rate"),
    "continued": lambda row: str(row["continued_turns"] or "–"),
    "unfinished": lambda row: _share(row, "unfinished_turns", "unfinished_rate"),
    "responses by reason": lambda row: (
        ", ".join(f"{reason} {count}" for reason, count in row["responses"].items()) or "–"
    ),
}
"""The columns of the table with each agent's model in a project."""


def _table(rows: Sequence[Row]) -> str:
    if not rows:
        return ""
    most = sorted(
        rows,
        key=lambda row: (-row["unfinished_turns"], -row["truncated_turns"], -row["turns"]),
    )[:MOST_ROWS]
    cells = [[*COLUMNS], *([cell(row) for cell in COLUMNS.values()] for row in most)]
    lines = _columns(cells)
    lines.insert(1, "─" * max(map(len, lines)))
    if len(rows) > MOST_ROWS:
        lines.append(f"and {len(rows) - MOST_ROWS} more rows (--json has all)")
    return "\n".join(lines)


def _finished(rows: Sequence[Row]) -> str:
    """List the limits that would have sufficed for truncated answers that were completed later."""
    rows_with_limit = [row for row in rows if row["sufficient_limit"] is not None]
    if not rows_with_limit:
        return ""
    most: dict[tuple[str, str, int | None], int] = {}
    for row in rows_with_limit:
        key = row["agent"], row["model"], row["limit"]
        most[key] = max(most.get(key, 0), row["sufficient_limit"])
    lines = ["Answers that were whole in the end, and the limit that would have held them:"]
    lines += _columns([
        (f"  {agent}", model or "–", f"limit {_count(limit)}", f"needed {_count(sufficient_limit)}")
        for (agent, model, limit), sufficient_limit in sorted(most.items(), key=str)
    ])  # fmt: skip
    return "\n".join(lines)


def _totals(figures: Row) -> str:
    total = figures["total"]
    responses = sum(total["responses"].values())
    if not responses and not total["failed_attempts"] and not total["turns"]:
        if figures["older_calls"]:
            return (
                f"No model calls since then: all {figures['older_calls']:,} began before --since."
            )
        return "No model calls were found."
    text = (
        f"{_plural(total['turns'], 'turn')} with {_plural(responses, 'response')}."
        f" {_plural(total['truncated_turns'], 'turn')} had a truncated response;"
        f" {total['unfinished_turns']} of these were left unfinished."
    )
    if total["failed_turns"]:
        text += f" {_plural(total['failed_turns'], 'turn')} ended with an error."
    if total["failed_attempts"]:
        text += f" {_plural(total['failed_attempts'], 'attempt')} failed."
    return text


def _evidence(rows: Sequence[Row]) -> str:
    unrecorded = [row for row in rows if row["not_recorded"] or row["other_record"]]
    if not unrecorded:
        return ""
    head = ("", "recorded", "by another record", "not recorded")
    cells = [
        (
            f"  {row['agent']} {row['tool_version']}".rstrip(),
            str(row["recorded"]), str(row["other_record"]), str(row["not_recorded"]),
        )
        for row in unrecorded
    ]  # fmt: skip
    return "\n".join([
        "Where the stop reasons are from. What is not recorded counts in no rate:",
        *_columns([head, *cells]),
    ])  # fmt: skip


def _files(figures: Row) -> str:
    files = figures["files"]
    lines = [f"{_plural(files['read'], 'file')} read ({files['bytes'] / 1e6:.1f} MB)."]
    if figures["interrupted"]:
        unread = files["unread"]
        rest = "they were not listed yet" if unread is None else f"{_plural(unread, 'file')} left"
        lines.append(f"Interrupted: the figures are of the files read until then; {rest}.")
    if figures["copies_removed"]:
        lines.append(f"{_plural(figures['copies_removed'], 'copied response')} counted once.")
    if figures["older_turns"]:
        lines.append(f"{_plural(figures['older_turns'], 'older turn')} left out by --since.")
    if figures["turns_without_time"]:
        lines.append(
            f"{_plural(figures['turns_without_time'], 'turn')} without a time left out by --since."
        )
    if files["unknown"]:
        names = files["unknown"]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        lines.append(
            f"{_plural(len(names), 'file')} of unknown format: "
            f"{', '.join(names[:MOST_NAMES])}{more}."
        )
    for what, reasons in (("Damaged", files["damaged"]), ("Not readable", files["unreadable"])):
        first_rows = list(reasons.items())[:MOST_NAMES]
        lines += [f"{what}: {name}: {reason}" for name, reason in first_rows]
        if len(reasons) > MOST_NAMES:
            lines.append(f"{what}: {len(reasons) - MOST_NAMES} more (--json lists all)")
    for name, what in (
        ("damaged_lines", "line was no JSON object, and skipped"),
        ("long_lines", "line was longer than 64 MiB, and skipped"),
        ("incomplete_last_lines", "file ends within a record"),
    ):
        if number := files[name]:
            lines.append(f"{number} × {what}.")
    return "\n".join(lines)


def _tail(path: str, most: int = 32) -> str:
    if not path:
        return "–"
    return path if len(path) <= most else "…" + path[1 - most :]


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
