"""`endturn run`: run a program and record its model calls, without a change to its code."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NoReturn

from endturn import settings
from endturn.errors import UsageError
from endturn.instrumentation import zero_code

SITE: Final = Path(__file__).parents[1] / "site"
"""Folder of the `sitecustomize` module, which Python imports when it starts."""

USAGE: Final = "endturn run [--] COMMAND [ARGUMENT …], or FILE.py, or -m MODULE, or -c CODE"


def run(words: Sequence[str]) -> NoReturn:
    """Replace this process by the program, which keeps its signals, exit status and terminal.

    Raises:
        UsageError: No program is named, it cannot be found or started, or the SDK is not installed.
    """
    command = resolve_program(words)
    problems = zero_code.check()
    for sentence in problems.values():
        print(f"endturn: {sentence}", file=sys.stderr)
    if (name := zero_code.default_service_name(command)) is not None:
        print(
            f"endturn: service.name is {name!r}, unless the program sets another; OTEL_SERVICE_NAME"
            " changes it",
            file=sys.stderr,
        )
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(command[0], command, environment(os.environ, problems))  # noqa: S606 (the user named it)
    except OSError as error:
        raise UsageError(f"{command[0]} could not be started: {error.strerror}") from None


def resolve_program(words: Sequence[str]) -> list[str]:
    """Return the path of the program and its arguments.

    A `.py` file, -m and -c run in the Python in which endturn is installed.

    Raises:
        UsageError: No program is named, or it cannot be found.
    """
    words = list(words[1:] if words[:1] == ["--"] else words)
    if not words:
        raise UsageError(f"nothing to run: {USAGE}")
    if words[0] in ("-m", "-c") or words[0].endswith(".py"):
        if words[0].endswith(".py") and not Path(words[0]).is_file():
            raise UsageError(f"{words[0]!r} does not exist, or is not a file")
        if len(words) == 1 and words[0] in ("-m", "-c"):
            raise UsageError(f"{words[0]} needs an argument: {USAGE}")
        return [sys.executable, *words]
    if words[0].startswith("-"):
        raise UsageError(f"endturn run has no option {words[0]!r}: {USAGE}")
    path = shutil.which(words[0])
    if path is None:
        raise UsageError(f"{words[0]!r} is neither a program on the PATH nor the path of a program")
    return [path, *words[1:]]


def environment(host: Mapping[str, str], reported: Iterable[str] = ()) -> dict[str, str]:
    """Return the environment of the program.

    endturn's folder is first in PYTHONPATH, and the OTLP protocol is set unless the host sets one.

    Args:
        host: the environment of the command.
        reported: the keys of problems that this command has already printed.
    """
    changed = dict(host)
    site = str(SITE)
    before = changed.get("PYTHONPATH")
    others = [entry for entry in before.split(os.pathsep) if entry != site] if before else []
    changed["PYTHONPATH"] = os.pathsep.join([site, *others])
    changed["ENDTURN_RUN"] = "1"
    if fingerprints := ",".join(map(settings.fingerprint, reported)):
        changed[settings.REPORTED] = fingerprints
    # OpenTelemetry's own default is gRPC, whose exporter is in another package.
    changed.setdefault("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
    return changed
