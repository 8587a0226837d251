"""`endturn scan`: read past sessions and logs, and report which answers were truncated."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from endturn.errors import UsageError
from endturn.scan.copies import without_copies
from endturn.scan.files import Discovery, default_places
from endturn.scan.live_records import ended_turns
from endturn.scan.past_calls import PastTurn
from endturn.scan.reading import FileResult
from endturn.scan.registry import source_named
from endturn.scan.summary import Summary
from endturn.scan.table import text_of
from endturn.scan.workers import read_files, usable_cores
from endturn.telemetry import fail_condition

Output = Callable[[Summary, Mapping[str, Any]], None]
_REDRAW_S: Final = 0.1
_BAR: Final = 40
"""The width of the progress bar in characters."""
_UNITS: Final = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def run(
    inputs: Sequence[Path],
    *,
    since: str | None = None,
    as_json: bool = False,
    fail_on: Sequence[str] = (),
    format_: str | None = None,
    outputs: Sequence[Output] = (),
) -> int:
    """Scan, and print the results.

    Args:
        inputs: files and folders, `-` for standard input; empty for this machine's default places.
        since: the time to look back, such as 30d.
        as_json: print one JSON object instead of text.
        fail_on: conditions, such as `truncation > 1%`.
        format_: the name of the source that reads each file, without recognition.
        outputs: functions that are called with the summary and its figures after printing.

    Returns:
        The exit status: 1 where a condition is met, 3 where there are conditions but no recorded
        stop reason to look at, or a part of the files could not be read, 130 after Ctrl-C, else 0.

    Raises:
        UsageError: an argument is wrong, or there is nothing to scan.
    """
    conditions = [fail_condition(text) for text in fail_on]
    since_ns = None if since is None else time.time_ns() - duration_ns(since)
    if format_ is not None:
        source_named(format_)
    places = list(inputs) or default_places(os.environ, _home())
    if not places:
        raise UsageError("no sessions of a known agent are here: pass files or folders")
    figures = scan(
        places,
        since_ns=since_ns,
        format_=format_,
        processes=usable_cores(),
        progress=_progress(),
    )
    result = figures.as_json(conditions)
    print(json.dumps(result, indent=2, allow_nan=False) if as_json else text_of(result))
    for output in outputs:
        output(figures, result)
    if figures.is_interrupted:
        return 130
    if any(limit["met"] for limit in result["limits"]):
        return 1
    return 3 if conditions and not result["certain"] else 0


def scan(
    inputs: Iterable[Path],
    *,
    since_ns: int | None = None,
    format_: str | None = None,
    processes: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Summary:
    """Read files and folders.

    Args:
        inputs: files and folders; `-` is standard input.
        since_ns: turns that began earlier are left out.
        format_: the name of the source that reads each file.
        processes: how many may read at once, if there is enough to read. More than one needs a
            `__main__` that can be imported.
        progress: is called with the numbers of files so far and in total; with zeros at the end.

    Raises:
        UsageError: an input does not exist.
    """
    discovery = Discovery()
    results: list[FileResult] = []
    paths: list[Path] | None = None
    read_count = 0
    is_interrupted = False
    try:
        paths = list(discovery.files(inputs))
        for number, file_results in enumerate(read_files(paths, format_, processes=processes), 1):
            results += file_results
            read_count = number
            if progress is not None:
                progress(number, len(paths))
    except KeyboardInterrupt:
        is_interrupted = True
    if progress is not None:
        progress(0, 0)
    turns, copies = without_copies(turn for result in results for turn in result.turns)
    untimed = older_turns = older_calls = 0
    if since_ns is not None:
        untimed = sum(_began_ns(turn) is None for turn in turns)
        older = [turn for turn in turns if (_began_ns(turn) or since_ns) < since_ns]
        older_turns = sum(turn.has_user_message for turn in older)
        older_calls = sum(len(turn.calls) for turn in older)
        turns = [turn for turn in turns if (_began_ns(turn) or 0) >= since_ns]
    results.sort(key=lambda result: result.name)
    return Summary(
        turns=ended_turns(turns),
        results=results,
        copies=copies,
        untimed=untimed,
        older_turns=older_turns,
        older_calls=older_calls,
        unreadable=discovery.unreadable,
        is_interrupted=is_interrupted,
        unread=None if paths is None else len(paths) - read_count,
    )


def _home() -> Path:
    """Return the user's home folder; if there is none, a folder that does not exist."""
    try:
        return Path.home()
    except RuntimeError:
        return Path("~")


def _began_ns(turn: PastTurn) -> int | None:
    times = [turn.started_ns, *(call.started_ns or call.ended_ns for call in turn.calls)]
    return next((moment for moment in times if moment is not None), None)


def duration_ns(text: str) -> int:
    """Return a duration such as 30d in nanoseconds.

    Raises:
        UsageError: the text is not a duration.
    """
    match = re.fullmatch(r"\s*(\d{1,9}\.?\d{0,9})\s*([mhdw])\s*", text)
    if not match:
        raise UsageError(f"--since must be a number with m, h, d or w, such as 30d, not {text!r}")
    return int(float(match[1]) * _UNITS[match[2]] * 1e9)


def _progress() -> Callable[[int, int], None] | None:
    """Return the function that draws a progress bar; None without a terminal."""
    if not sys.stderr.isatty():
        return None
    drawn_s = 0.0

    def show(files: int, all_files: int) -> None:
        nonlocal drawn_s
        now_s = time.monotonic()
        if not all_files:
            sys.stderr.write("\r\x1b[K")
        elif now_s - drawn_s > _REDRAW_S:
            drawn_s = now_s
            bar = "━" * (_BAR * files // all_files)
            sys.stderr.write(f"\r{bar:<{_BAR}} {files:,} of {all_files:,} files\x1b[K")
        sys.stderr.flush()

    return show
