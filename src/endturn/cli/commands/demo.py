"""`endturn demo`: agents on real SDKs against a scripted provider."""

from __future__ import annotations

from argparse import BooleanOptionalAction, Namespace

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "demo",
        run,
        extra="demo",
        help="Run agents on real SDKs against a scripted provider and show why each model stopped.",
        description=(
            "Runs a few dozen turns of openai and anthropic SDK agents, with and without the"
            " continuation controller, against a scripted provider on loopback. It needs no API"
            " keys and no network. With OTEL_EXPORTER_OTLP_ENDPOINT set, telemetry goes there."
            " Otherwise, in a terminal, it goes to a local page that the demo serves until Ctrl-C."
        ),
    )
    command.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help="print the result as one JSON object and nothing else",
    )
    command.add_argument(
        "--once",
        action="store_true",
        help="run the script once, print the table and exit (default without a terminal)",
    )
    command.add_argument(
        "--minutes",
        type=float,
        metavar="N",
        help="repeat the script for N minutes, at a human pace",
    )
    command.add_argument(
        "--port",
        type=int,
        help="port of the page (default: 4318, or any free one if that is in use)",
    )
    command.add_argument(
        "--open",
        dest="open_browser",
        action=BooleanOptionalAction,
        help="open a browser (default: if a display is available)",
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.cli import demo

    return demo.command(
        as_json=args.as_json,
        once=args.once,
        minutes=args.minutes,
        port=args.port,
        open_browser=args.open_browser,
    )
