"""The service name of a program that gives itself none: the name of its script or module.

Without a name OpenTelemetry's SDK calls every Python program `unknown_service:python`, so that all
agents of a machine become one service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote

_OPTIONS_WITH_VALUE: Final = "WX"
"""Options of the interpreter whose value may be the next word (`python --help`)."""


def service_name_of_command(command: Sequence[str]) -> str | None:
    """Return the name of the script or module that a Python command line runs.

    Args:
        command: the interpreter and its arguments, as in `sys.orig_argv`.

    Returns:
        `agent` for `python agent.py` and for `python -m agent`, the folder's name for
        `python folder/__main__.py`, the package's for `python -m package.__main__`; None where the
        command names neither a script nor a module: with `-c`, standard input, or a prompt.
    """
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            return _script_name(word)
        if word.startswith("--"):
            if word == "--check-hash-based-pycs":
                next(words, None)
            continue
        for index, letter in enumerate(word[1:], start=1):
            value = word[index + 1 :]
            if letter == "m":
                return _module_name(value or next(words, ""))
            if letter == "c":
                return None
            if letter in _OPTIONS_WITH_VALUE:
                if not value:
                    next(words, None)
                break
    return None


def _script_name(path: str) -> str | None:
    script = PurePath(path)
    name = script.parent.name if script.name == "__main__.py" else script.stem
    return name if name.strip("-.") else None


def _module_name(module: str) -> str | None:
    return module.removesuffix(".__main__") or None


def is_named(environment: Mapping[str, str]) -> bool:
    """Return whether the variables of OpenTelemetry name the service.

    Source: the SDK's `OTELResourceDetector`, which reads OTEL_SERVICE_NAME and the pairs of
    OTEL_RESOURCE_ATTRIBUTES, whose values are URL-encoded.
    """
    if environment.get("OTEL_SERVICE_NAME"):
        return True
    pairs = (
        pair.partition("=") for pair in environment.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")
    )
    return any(key.strip() == "service.name" and unquote(value.strip()) for key, _, value in pairs)
