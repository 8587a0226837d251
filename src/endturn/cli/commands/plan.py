"""`endturn plan`: compute the capacity that a fleet needs."""

from __future__ import annotations

from argparse import Namespace

from endturn.cli.commands.declaration import Commands, add_command
from endturn.generate import plan


def add_parser(commands: Commands) -> None:
    """Declare the command and its options."""
    command = add_command(
        commands,
        "plan",
        run,
        help="Compute the capacity that a fleet needs: series, Kafka, gateways, disks.",
        description=(
            "Computes the size of each part of a fleet from the turns per second at the busiest"
            " time and from other figures of the agents. Prints each figure with its formula."
            " docs/plan.md lists the constants and their sources."
        ),
    )
    for option in plan.OPTIONS:
        default = "" if option.default is None else f", default: {option.default:g}"
        command.add_argument(
            option.flag,
            type=float,
            metavar="N",
            required=option.default is None,
            default=option.default,
            help=f"{option.input.meaning} ({option.input.unit or 'number'}{default})".replace(
                "%", "%%"
            ),
        )
    command.add_argument(
        "--json",
        action="store_true",
        dest="as_json",
        help="print a JSON list instead, one object per figure",
    )
    command.add_argument(
        "--values",
        choices=["compose", "kustomize"],
        help="print the settings of the fleet's deployment instead",
    )


def run(args: Namespace) -> int:
    """Run the command, and return its exit status."""
    fleet = plan.Fleet(**{option.name: getattr(args, option.name) for option in plan.OPTIONS})
    return plan.command(fleet, as_json_list=args.as_json, values=args.values)
