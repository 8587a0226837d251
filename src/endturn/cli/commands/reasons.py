"""`endturn reasons`: list the stop reasons."""

from __future__ import annotations

from argparse import Namespace

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "reasons",
        run,
        help="List every stop reason of every known API.",
        description=(
            "Prints the table that normalises stop reasons: API, the provider's value, the"
            " normalised reason, whether the output is incomplete, how to resume it, and the source"
            " of the meaning. The columns are separated by tabs; the first line is a header."
        ),
    )
    command.add_argument(
        "--provider",
        metavar="NAME",
        help="only this provider, API or format, e.g. openai.responses",
    )
    command.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help="print a JSON list instead, one object per row",
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.frameworks import lookup

    return lookup.list_command(args.provider, args.as_json)
