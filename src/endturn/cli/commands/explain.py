"""`endturn explain`: explain a stop reason."""

from __future__ import annotations

from argparse import Namespace

from endturn.cli.commands.declaration import Commands, add_command


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "explain",
        run,
        help="Explain a provider's stop reason: its meaning, if it is a truncation, how to resume.",
        description=(
            "Explains a stop reason in every API that uses it: the normalised reason, whether the"
            " output is truncated, how to resume the response, which field holds the value, and the"
            " source of its meaning. Exits with 1 if no known API uses it."
        ),
    )
    command.add_argument(
        "raw", metavar="VALUE", help="the value as the provider sends it, e.g. pause_turn"
    )
    command.add_argument(
        "--provider",
        metavar="NAME",
        help="only this provider, API or format, e.g. openai.responses",
    )
    command.add_argument(
        "--json", action="store_true", dest="as_json", help="print a JSON list instead"
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    from endturn.frameworks import lookup

    return lookup.explain_command(args.raw, args.provider, args.as_json)
