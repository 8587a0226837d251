"""`endturn scan`: say which answers were cut off, from what agents already wrote."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "scan",
        run,
        help="Say which answers were cut off, from the sessions and logs that agents wrote.",
        description=(
            "Reads session files of coding agents, logs and exports, and says why each model"
            " stopped, which turns were truncated and which of them were continued. Nothing is"
            " written, and nothing leaves this machine. Exits with 1 if a --fail-on condition is"
            " met, and with 3 if no stop reason was recorded."
        ),
    )
    command.add_argument(
        "inputs",
        nargs="*",
        type=Path,
        metavar="PATH",
        help="files and folders, also compressed (gz, zst, xz, zip); - is standard input"
        " (default: the sessions of agents on this machine)",
    )
    command.add_argument(
        "--since", metavar="AGE", help="leave out older turns: a number with m, h, d or w, e.g. 30d"
    )
    command.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help="print the result as one JSON object and nothing else",
    )
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


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn import scan

    return scan.run(
        args.inputs,
        since=args.since,
        as_json=args.as_json,
        fail_on=args.fail_on,
        format_=args.format_,
    )
