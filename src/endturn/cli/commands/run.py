"""`endturn run`: run a program and record its model calls."""

from __future__ import annotations

from argparse import Namespace

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "run",
        run,
        help="Run a program and record its model calls, without a change to its code.",
        description=(
            "Exports traces, metrics and logs of the program's model calls over OTLP, as the"
            " OTEL_* variables configure. COMMAND is a program on the PATH (python, gunicorn), a"
            " .py file, -m MODULE or -c CODE; the last three run in the Python that endturn is"
            " installed in. The program keeps its exit status, signals and terminal. A program that"
            " sets up OpenTelemetry itself keeps its own setup."
        ),
    )
    command.add_argument(
        "program", nargs="*", metavar="COMMAND", help="the program and its arguments"
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.cli.run import run as run_program

    run_program(args.program)
