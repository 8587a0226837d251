"""The argument parser of the command line, whose errors suggest the nearest valid word."""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Sequence
from typing import Final, NoReturn

from endturn.errors import did_you_mean

_CHOICE: Final = re.compile(r"argument (\S+): invalid choice: '?([^']*?)'? \(choose from (.*)\)")


class Parser(ArgumentParser):
    """A parser whose errors show the usage of the command and suggest a command or option."""

    def error(self, message: str) -> NoReturn:
        """Print the usage and the error, and exit with 2."""
        match = _CHOICE.fullmatch(message)
        if match is not None:
            name, word, choices = match.groups()
            words = re.findall(r"[\w.-]+", choices)
            message = f"{name} {word!r} is unknown; {did_you_mean(word, words)}"
        super().error(message)


def parse(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Parse a command line.

    Raises:
        SystemExit: with status 2 if an argument is wrong; the usage of the command is printed.
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
    options: Iterable[str] = set(re.findall(r"--[\w-]+", usage))
    hint = did_you_mean(option, options) if options else ""
    return hint if hint.startswith("did you mean") else ""
