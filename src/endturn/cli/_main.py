"""The entry point of the command line: runs a command and maps its errors to an exit status."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Final

from endturn._version import __version__
from endturn.cli._parser import Parser, parse
from endturn.cli.commands import (
    dashboards_export,
    dashboards_install,
    demo,
    doctor,
    explain,
    generate,
    plan,
    reasons,
    report,
    rules_check,
    run,
    scan,
    ui,
)
from endturn.errors import UsageError

FETCHED: Final = "ENDTURN_FETCHED"
"""Environment variable that marks a command restarted with its extra, so that it is restarted only
once."""
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of an output that is full."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: The command and its arguments. Defaults to the arguments of the process.

    Returns:
        The exit status: 0 success, 1 a check found a problem, 2 the command or its arguments are
        wrong, 3 a check found no problem but lacked data.
    """
    _replace_unencodable_characters()
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == ["run"] and argv[1:2] not in (["-h"], ["--help"]):
        # Everything after `run` belongs to another program, so argparse must not interpret it.
        args = Namespace(command="run", run=run.run, extra=None, program=argv[1:])
    elif not argv:
        parser().print_help()
        return 0
    else:
        args = parse(parser(), argv)
    try:
        status = int(args.run(args))
        if sys.stdout is not None:  # None if it is closed, such as by `>&-`
            sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"endturn: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if not args.extra or (error.name or "").startswith("endturn"):
            raise
        if (uv := os.environ.get("UV")) and FETCHED not in os.environ:
            # `uvx` started this process: start it again, with the extra installed.
            restart = [uv, "tool", "run", "--from", _requirement(args.extra), "endturn", *argv]
            os.execve(uv, restart, {**os.environ, FETCHED: args.extra})  # noqa: S606 - as `uvx` did
        hint = f"pip install 'endturn[{args.extra}]', or uvx --from endturn endturn {args.command}"
        print(f"endturn: {error.name!r} is not installed: {hint}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # e.g. `| head`
        _discard_output()
        return 0
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        _discard_output()
        print(f"endturn: the output cannot be written: {error.strerror}", file=sys.stderr)
        return 2


def _replace_unencodable_characters() -> None:
    """Write `?` for characters that the encoding of the output lacks, instead of raising."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _discard_output() -> None:
    """Discard buffered output, which Python would otherwise try to write when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _requirement(extra: str) -> str:
    """Return the pip requirement for endturn with an extra, from the same origin as this one."""
    from importlib.metadata import distribution

    installed = distribution("endturn")
    # set if it was not installed from an index
    origin = json.loads(installed.read_text("direct_url.json") or "{}").get("url")
    if origin:
        return f"endturn[{extra}] @ {origin}"
    return f"endturn[{extra}]=={installed.version}"


def parser() -> ArgumentParser:
    """Build the parser of all commands."""
    top = Parser(
        prog="endturn",
        description="Did the model end its turn, or was it cut off?",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"endturn {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    run.add_parser(commands)
    doctor.add_parser(commands)
    demo.add_parser(commands)
    ui.add_parser(commands)
    report.add_parser(commands)
    scan.add_parser(commands)
    explain.add_parser(commands)
    reasons.add_parser(commands)
    generate.add_parser(commands)
    plan.add_parser(commands)
    rules = commands.add_parser("rules", help="Check alert and recording rules.")
    rules_check.add_parser(rules.add_subparsers(metavar="ACTION", required=True))
    dashboards = commands.add_parser("dashboards", help="Install or export the Grafana dashboards.")
    actions = dashboards.add_subparsers(metavar="ACTION", required=True)
    dashboards_install.add_parser(actions)
    dashboards_export.add_parser(actions)
    return top
