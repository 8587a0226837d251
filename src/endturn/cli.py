"""The command line: `endturn demo`, `endturn generate`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from endturn import __version__
from endturn.errors import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0 done, 1 a check found something, 2 the command cannot be carried out as given.
    """
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except UsageError as error:
        print(f"endturn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="endturn", description="Did the model end its turn, or was it cut off?", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"endturn {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    demo = commands.add_parser(
        "demo",
        help="run real SDK agents against a scripted provider and print why the models stopped",
        description="Runs a few dozen turns of real openai and anthropic agents, with and without the continuation "
        "controller, against a scripted provider on loopback: no keys, no network. With OTEL_EXPORTER_OTLP_ENDPOINT "
        "set, their telemetry goes there.",
    )
    demo.add_argument("--json", action="store_true", help="print the result as one JSON object, and nothing else")
    demo.add_argument("--once", action="store_true", help="play the script once and end (the default)")
    demo.add_argument(
        "--minutes", type=float, default=0.0, metavar="N", help="play it again and again for N minutes, at a human pace"
    )
    demo.set_defaults(run=_demo)

    generate = commands.add_parser(
        "generate",
        help="write dashboards, rules, their tests and the reference documents from the telemetry schema",
        description="Writes every generated file of a checkout; with --check, says which ones are stale instead.",
    )
    generate.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is not current")
    generate.add_argument("--root", type=Path, default=Path(), metavar="DIR", help="the checkout (default: here)")
    generate.set_defaults(run=_generate)
    return parser


def _demo(arguments: argparse.Namespace) -> int:
    if arguments.minutes < 0 or (arguments.once and arguments.minutes):
        raise UsageError("--minutes takes a positive number, and does not go with --once")
    from endturn import demo

    return demo.run(as_json=arguments.json, minutes=arguments.minutes)


def _generate(arguments: argparse.Namespace) -> int:
    from endturn import generate

    stale = generate.run(arguments.root, check=arguments.check)
    for line in stale:
        print(line)
    return 1 if arguments.check and stale else 0
