"""`endturn rules check`: check rule files."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "check",
        run,
        extra="grafana",
        help="Check rule files before they are loaded.",
        description=(
            "Checks rule files, PrometheusRule manifests and Grafana's provisioned alerts: with"
            " promtool if it is installed, otherwise by parsing them. Exits with 1 if a file has a"
            " problem. Requires endturn[grafana]."
        ),
    )
    command.add_argument(
        "files",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="default: the rule files of the current checkout",
    )
    command.add_argument(
        "--promtool", metavar="PATH", help="Prometheus' promtool (default: the one on the PATH)"
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.generate import check

    return check.command(args.files, args.promtool)
