"""`endturn generate`: write the generated files."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "generate",
        run,
        extra="grafana",
        help="Generate dashboards, rules, rule tests and reference documents from the telemetry "
        "schema.",
        description=(
            "Writes every generated file of a checkout; with --check, lists the stale ones"
            " instead. With --output, writes the files to deploy (dashboards, rules, runbooks,"
            " Collector files) into any folder. Requires endturn[grafana]."
        ),
    )
    command.add_argument(
        "--check", action="store_true", help="write nothing; exit with 1 if a file is stale"
    )
    command.add_argument(
        "--root", type=Path, default=".", metavar="DIR", help="the checkout (default: .)"
    )
    command.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="thresholds, objective and addresses (docs/alerts.md)",
    )
    command.add_argument(
        "--output", type=Path, metavar="DIR", help="write to this folder instead of a checkout"
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.generate import files

    return files.command(args.check, args.root, args.config, args.output)
