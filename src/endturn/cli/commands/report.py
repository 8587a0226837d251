"""`endturn report`: summarise the turns in files of telemetry."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "report",
        run,
        extra="ui",
        help="Summarise the turns in files of telemetry; fail a build when a limit is exceeded.",
        description=(
            "Reads OTLP JSON (traces, metrics and logs, as the Collector's file exporter writes"
            " them) or the database of `endturn ui --file`, and prints the indicators. Exits with 1"
            " if a --fail-on condition is met, and with 3 if there are no metrics to evaluate."
            " Requires endturn[ui]."
        ),
    )
    command.add_argument(
        "inputs",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="OTLP JSON, one request per line; also gzipped (.gz)",
    )
    command.add_argument("--file", type=Path, metavar="PATH", help="a DuckDB file of `endturn ui`")
    command.add_argument(
        "--format", dest="format_", choices=["md", "html", "json"], default="md", help="default: md"
    )
    command.add_argument(
        "--fail-on",
        action="append",
        default=[],
        metavar="CONDITION",
        help="e.g. 'truncation_without_continuation > 1%%' or 'unfinished > 0'; repeat for several",
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.ui import report

    return report.run(args.inputs, file=args.file, format_=args.format_, fail_on=args.fail_on)
