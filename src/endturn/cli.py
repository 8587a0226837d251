"""The command line, as `data/commands.toml` describes it; what runs a command is imported when it is asked for."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Final

from endturn import __version__
from endturn.errors import UsageError
from endturn.tables import shipped

DATA: Final = tomllib.loads(shipped().joinpath("commands.toml").read_text("utf-8"))
COMMANDS: Final[Mapping[str, Mapping[str, Any]]] = DATA["commands"]
WORDS: Final[Mapping[str, Any]] = {
    "int": int, "float": float, "path": Path, "boolean": argparse.BooleanOptionalAction
}  # fmt: skip
"""What stands in the file for an option's type or action, where that is no word of argparse's."""

FETCHED: Final = "ENDTURN_FETCHED"
"""The environment variable that keeps a command whose extra does not help from being started again for ever."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0 done, 1 a check found something, 2 the command cannot be carried out as given, 3 a check
        found nothing but could not look at everything.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["run"] and words[1:2] not in (["-h"], ["--help"]):
        settings: dict[str, Any] = {"command": "run", "words": words[1:]}  # the rest is another program's
    else:
        settings = vars(parser().parse_args(words))
    name = settings.pop("command")
    command = COMMANDS[name]
    extra = command.get("extra")
    try:
        status = int(resolve_name(command["runs"])(**settings))
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"endturn: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("endturn"):
            raise
        if (uv := os.environ.get("UV")) and FETCHED not in os.environ:  # `uvx` started this, and starts it again
            again = [uv, "tool", "run", "--from", _with_extra(extra), "endturn", *words]
            os.execve(uv, again, {**os.environ, FETCHED: extra})  # noqa: S606 - as `uvx` did
        hint = f"pip install 'endturn[{extra}]', or uvx --from endturn endturn {name}"
        print(f"endturn: {error.name!r} is not installed: {hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read has read enough; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _with_extra(extra: str) -> str:
    """This very endturn with an extra, from where it was installed."""
    found = distribution("endturn")
    origin = json.loads(found.read_text("direct_url.json") or "{}").get("url")  # a wheel or a checkout, not an index
    return f"endturn[{extra}] @ {origin}" if origin else f"endturn[{extra}]=={found.version}"


def parser() -> argparse.ArgumentParser:
    """What understands every command but the words after `endturn run`."""
    top = argparse.ArgumentParser(
        prog="endturn", description="Did the model end its turn, or was it cut off?", allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"endturn {__version__}")
    groups = {"": top.add_subparsers(metavar="COMMAND", required=True)}
    for name, command in COMMANDS.items():
        group, _, word = name.rpartition(" ")
        if group not in groups:
            opened = groups[""].add_parser(group, help=DATA["groups"][group])
            groups[group] = opened.add_subparsers(metavar="ACTION", required=True)
        added = groups[group].add_parser(word, help=command["summary"], description=command["description"])
        added.set_defaults(command=name)
        for option in (*_numbers(command.get("numbers")), *command["options"]):
            meant = {key: WORDS[option[key]] for key in ("type", "action") if option.get(key) in WORDS}
            settings = {key: value for key, value in option.items() if key != "name"} | meant
            added.add_argument(option["name"], **settings)
    return top


def _numbers(file: str | None) -> Iterator[dict[str, Any]]:
    """The options that are numbers, as a file of inputs describes them."""
    inputs = tomllib.loads(shipped().joinpath(file).read_text("utf-8"))["inputs"] if file else {}
    for name, about in inputs.items():
        usual = "" if "default" not in about else f", default: {about['default']:g}"
        help_ = f"{about['says']} ({about['unit'] or 'number'}{usual})".replace("%", "%%")
        settings = {"type": "float", "metavar": "N", "required": not usual, "default": about.get("default")}
        yield {"name": f"--{name}", "help": help_, **settings}


if __name__ == "__main__":
    sys.exit(main())
