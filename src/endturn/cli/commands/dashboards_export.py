"""`endturn dashboards export`: write the dashboards into a folder."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "export",
        run,
        help="Write dashboards, rules and provisioning files into a folder.",
        description=(
            "Writes the files that this version contains into a folder, to mount or load them from"
            " there. If a file exists with other contents, nothing is written without --force."
        ),
    )
    command.add_argument("target", type=Path, metavar="DIR", help="created if it does not exist")
    command.add_argument("--force", action="store_true", help="overwrite files with other contents")


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.grafana import assets

    return assets.command(args.target, args.force)
