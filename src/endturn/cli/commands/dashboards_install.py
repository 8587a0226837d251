"""`endturn dashboards install`: put the dashboards into a running Grafana."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "install",
        run,
        extra="grafana",
        help="Create or update the dashboards in a running Grafana, over its API.",
        description=(
            "Creates or updates endturn's dashboards in a Grafana, and removes those that an"
            " earlier version installed and this one no longer has. A second run changes nothing."
            " Objects without an endturn uid are never changed."
        ),
    )
    command.add_argument(
        "--grafana",
        dest="url",
        required=True,
        metavar="URL",
        help="e.g. https://grafana.example.org/monitoring",
    )
    command.add_argument(
        "--token",
        help="service account token; prefer the variable GRAFANA_TOKEN, which other users "
        "cannot see",
    )
    command.add_argument(
        "--folder",
        default="endturn",
        metavar="UID",
        help="created if it does not exist (default: endturn)",
    )
    command.add_argument(
        "--datasource",
        dest="datasources",
        action="append",
        default=[],
        metavar="TYPE=NAME",
        help=(
            "data source to select first, by name or uid, e.g. prometheus=Mimir; repeat for loki "
            "and tempo"
        ),
    )
    command.add_argument(
        "--alerts",
        action="store_true",
        help="install the alert rules too, as Grafana-managed rules",
    )
    command.add_argument(
        "--from",
        dest="source",
        type=Path,
        metavar="DIR",
        help="install the dashboards of this folder instead",
    )
    command.add_argument(
        "--dry-run", action="store_true", help="change nothing; print what would change"
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.grafana import install

    return install.command(
        url=args.url,
        token=args.token,
        source=args.source,
        alerts=args.alerts,
        dry_run=args.dry_run,
        folder=args.folder,
        source_options=args.datasources,
    )
