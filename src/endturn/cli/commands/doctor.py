"""`endturn doctor`: check an environment."""

from __future__ import annotations

from argparse import Namespace

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "doctor",
        run,
        help="Check which libraries are observed here, and whether the OTLP receivers respond.",
        description=(
            "Lists the observed libraries, other instrumentations, the effective settings"
            " and the destination of each signal, and sends an empty export request to each. It"
            " changes nothing and sends no content. Exits with 1 if there is a problem."
        ),
    )
    command.add_argument(
        "program",
        nargs="*",
        metavar="COMMAND",
        help="after --: the program that `endturn run` would start, for its service name",
    )
    command.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help="print the result as one JSON object and nothing else",
    )
    command.add_argument(
        "--timeout",
        type=float,
        default=3.0,
        metavar="SECONDS",
        help="how long each step of a check waits (default: 3)",
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.cli import doctor

    return doctor.command(args.program, as_json=args.as_json, timeout_s=args.timeout)
