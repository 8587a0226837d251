"""`endturn run`: starts a program whose model calls are observed, without a line of its own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn

from endturn.errors import UsageError
from endturn.instrumentation import zero_code

SITE: Final = Path(__file__).parent / "site"
"""Where the `sitecustomize` is that Python imports at its start."""

USAGE: Final = "endturn run [--] COMMAND [ARGUMENT …], or FILE.py, or -m MODULE, or -c CODE"


def run(words: Sequence[str]) -> NoReturn:
    """Become the program. Its signals, its exit status and its terminal are its own.

    Raises:
        UsageError: there is nothing to run, it cannot be found or started, or the SDK is not installed.
    """
    command = resolved(words)
    for warning in zero_code.check():
        print(f"endturn: {warning}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(command[0], command, environment(os.environ))  # noqa: S606 (what was asked for)
    except OSError as error:
        raise UsageError(f"{command[0]} could not be started: {error.strerror}") from None


def resolved(words: Sequence[str]) -> list[str]:
    """The program's path and its arguments. What Python is given (a `.py` file, -m, -c) runs in the Python of endturn.

    Raises:
        UsageError: there is nothing to run, or it cannot be found.
    """
    words = list(words[1:] if words[:1] == ["--"] else words)
    if not words:
        raise UsageError(f"nothing to run: {USAGE}")
    if words[0] in ("-m", "-c") or words[0].endswith(".py"):
        if words[0].endswith(".py") and not Path(words[0]).is_file():
            raise UsageError(f"{words[0]!r} is not a file")
        if len(words) == 1 and words[0] in ("-m", "-c"):
            raise UsageError(f"{words[0]} of what? {USAGE}")
        return [sys.executable, *words]
    if words[0].startswith("-"):
        raise UsageError(f"{words[0]!r} is no option of endturn run: {USAGE}")
    found = shutil.which(words[0])
    if found is None:
        raise UsageError(f"{words[0]!r} is not a program on the PATH, nor a path to one")
    return [found, *words[1:]]


def environment(given: dict[str, str] | os._Environ[str]) -> dict[str, str]:
    """The program's variables: the given ones, our folder before its PYTHONPATH, and a protocol where none is set."""
    changed = dict(given)
    site = str(SITE)
    before = changed.get("PYTHONPATH")
    others = [entry for entry in before.split(os.pathsep) if entry != site] if before else []
    changed["PYTHONPATH"] = os.pathsep.join([site, *others])
    changed["ENDTURN_RUN"] = "1"
    # OpenTelemetry's own default is gRPC, whose exporter is another package.
    changed.setdefault("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    return changed
