"""`endturn ui`: serve the local page."""

from __future__ import annotations

from argparse import ArgumentParser, BooleanOptionalAction, Namespace
from pathlib import Path

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "ui",
        run,
        extra="ui",
        help="Serve a local page that receives OpenTelemetry data and shows how each turn ended.",
        description=(
            "Receives OTLP over HTTP (protobuf and JSON) on loopback, stores it in DuckDB and"
            " shows it as a page. It needs no Docker and no API keys, and no data leaves this"
            " machine. Requires endturn[ui]."
        ),
    )
    command.add_argument(
        "inputs",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="OTLP JSON files to load at the start, e.g. traces.jsonl",
    )
    command.add_argument(
        "--port", type=int, default=4318, help="default: 4318, the standard port of OTLP over HTTP"
    )
    command.add_argument(
        "--host",
        default="127.0.0.1",
        help="default: 127.0.0.1; with another address, other machines need a token",
    )
    command.add_argument(
        "--token",
        metavar="TEXT",
        help=(
            "token that browsers and exporters must send; prefer the variable ENDTURN_UI_TOKEN"
            " (default: none on loopback, otherwise a generated one)"
        ),
    )
    _add_storage_options(command)
    command.add_argument(
        "--traces",
        default="",
        metavar="URL",
        help="URL of a trace in Grafana, with the placeholder {trace_id}",
    )
    command.add_argument(
        "--open",
        dest="open_browser",
        action=BooleanOptionalAction,
        help="open a browser (default: if a display is available)",
    )


def _add_storage_options(command: ArgumentParser) -> None:
    command.add_argument(
        "--file",
        type=Path,
        metavar="PATH",
        help="store the telemetry in this DuckDB file instead of in memory",
    )
    command.add_argument(
        "--keep",
        dest="keep_days",
        type=float,
        default=7,
        metavar="DAYS",
        help="delete older data (default: 7)",
    )
    command.add_argument(
        "--most",
        dest="most_mb",
        type=int,
        default=2048,
        metavar="MB",
        help="delete the oldest data above this size (default: 2048)",
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.ui import server

    return server.run(
        args.inputs,
        host=args.host,
        port=args.port,
        file=args.file,
        keep_days=args.keep_days,
        most_mb=args.most_mb,
        traces=args.traces,
        open_browser=args.open_browser,
        token=args.token,
    )
