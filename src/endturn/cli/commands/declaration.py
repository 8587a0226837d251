"""The declaration of a command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Protocol


class Commands(Protocol):
    """The return type of `ArgumentParser.add_subparsers`, which argparse does not export."""

    def add_parser(self, name: str, *, help: str, description: str) -> ArgumentParser:
        """Add the parser of one command."""


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[Namespace], int],
    *,
    help: str,
    description: str,
    extra: str | None = None,
) -> ArgumentParser:
    """Add the parser of a command.

    Args:
        commands: The parsers of the commands or, in a group of commands, of its actions.
        name: The command's name in its group.
        run: The function that runs the command and returns the exit status.
        help: One line for the list of commands.
        description: The text above the command's options.
        extra: The extra of endturn that the command needs.
    """
    command = commands.add_parser(name, help=help, description=description)
    full_name = command.prog.removeprefix("endturn ")
    command.set_defaults(command=full_name, run=run, extra=extra, parser=command)
    return command
