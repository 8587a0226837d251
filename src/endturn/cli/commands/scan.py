"""`endturn scan`: find truncated responses in session files and logs of agents."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, BooleanOptionalAction, Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "scan",
        run,
        extra="ui",
        help="Find truncated responses in the session files and logs of agents.",
        description=(
            "Reads session files of coding agents, logs and exports, and reports why each model"
            " stopped, which turns were truncated and which of them were continued. It changes no"
            " file that it reads, and no data leaves this machine. With --fail-on, exits with 1 if"
            " a condition is met, and with 3 if no stop reason was recorded, or a part of the files"
            " could not be read. --ui and --report require endturn[ui]."
        ),
    )
    command.add_argument(
        "inputs",
        nargs="*",
        type=_path,
        metavar="PATH",
        help="files and folders, also compressed (gz, zst, xz, zip); - is standard input"
        " (default: the sessions of agents on this machine)",
    )
    command.add_argument(
        "--since", metavar="AGE", help="leave out older turns: a number with m, h, d or w, e.g. 30d"
    )
    _add_outputs(command)
    command.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="CONDITION",
        help="e.g. 'truncation > 1%%' or 'unfinished > 0'; repeat for several",
    )
    command.add_argument(
        "--format",
        dest="format_",
        metavar="NAME",
        help="read each file as this format, e.g. claude_code (default: by the file's content)",
    )


def _add_outputs(command: ArgumentParser) -> None:
    command.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help="print the result as one JSON object and nothing else",
    )
    command.add_argument(
        "--ui", action="store_true", help="then serve the turns on the local page, until Ctrl-C"
    )
    command.add_argument(
        "--content",
        action=BooleanOptionalAction,
        default=None,
        help="show the text of answers, read again from their files (default: in --ui but not in"
        " --report)",
    )
    command.add_argument(
        "--report",
        type=_report_path,
        metavar="FILE",
        help="also write the result to this file as HTML",
    )


def _path(text: str) -> Path:
    """Return the path of an argument.

    Raises:
        ArgumentTypeError: it is empty, for example because a shell variable is not set.
    """
    if not text:
        raise ArgumentTypeError("a path is empty; pass '.' for the current folder")
    return Path(text)


def _report_path(text: str) -> Path:
    """Return the path of a report.

    Raises:
        ArgumentTypeError: it is empty, or `-`: standard output has the result as text.
    """
    if text == "-":
        raise ArgumentTypeError(
            "standard output has the result as text; pass the name of a file, such as past.html"
            " (./- for a file of this name)"
        )
    return _path(text)


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn import scan

    outputs: list[Callable[[scan.Summary, Mapping[str, Any]], None]] = []
    if args.report or args.ui:
        from endturn.ui import past_sessions

        if args.report:
            outputs.append(past_sessions.HtmlReport(args.report, with_content=args.content is True))
        if args.ui:
            outputs.append(past_sessions.LocalPage(with_content=args.content is not False))
    return scan.run(
        args.inputs,
        since=args.since,
        as_json=args.as_json,
        fail_on=args.fail_on,
        format_=args.format_,
        outputs=outputs,
    )
