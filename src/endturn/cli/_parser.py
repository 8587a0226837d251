"""The argument parser of the command line, whose errors suggest the nearest word."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from endturn.errors import did_you_mean

_CHOICE: Final = re.compile(r"argument (\S+): invalid choice: '?([^']*?)'? \(choose from (.*)\)")


class Parser(ArgumentParser):
    """A parser that suggests commands and options, below the usage of the command in question."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with 2."""
        match = _CHOICE.fullmatch(message)
        if match is not None:
            name, word, choices = match.groups()
            known = re.findall(r"[\w.-]+", choices)
            message = f"{name} {word!r} is unknown; {did_you_mean(word, known)}"
        super().error(message)


def parse(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Parse a command line.

    Raises:
        SystemExit: with 2, after the usage of the command whose arguments are wrong.
    """
    args, unknown = parser.parse_known_args(argv)
    if unknown:
        command: ArgumentParser = args.parser
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        hints = [_nearest(option, command.format_usage()) for option in options]
        command.error(
            "; ".join([f"unrecognized arguments: {' '.join(unknown)}", *filter(None, hints)])
        )
    return args


def _nearest(option: str, usage: str) -> str:
    known: Iterable[str] = set(re.findall(r"--[\w-]+", usage))
    hint = did_you_mean(option, known) if known else ""
    return hint if hint.startswith("did you mean") else ""
