"""The command line: `endturn run`, `endturn demo`, `endturn explain`, `endturn reasons`, `endturn generate`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from endturn import __version__
from endturn.errors import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0 done, 1 a check found something, 2 the command cannot be carried out as given.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["run"] and words[1:2] not in (["-h"], ["--help"]):
        arguments = argparse.Namespace(run=_run, words=words[1:])  # the rest is another program's
    else:
        arguments = _parser().parse_args(words)
    try:
        status = int(arguments.run(arguments))
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"endturn: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read has read enough; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="endturn", description="Did the model end its turn, or was it cut off?", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"endturn {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="run a program whose model calls are observed, without a line of its own",
        usage="endturn run [--] COMMAND [ARGUMENT ...]",
        description="Runs a program with traces, metrics and logs of its model calls exported over OTLP, as the "
        "OTEL_* variables say. COMMAND is a program on the PATH (python, gunicorn), a .py file, -m MODULE or -c CODE; "
        "the last three run in the Python that endturn is installed in. The program's exit status, signals and "
        "terminal are its own. An agent that sets up OpenTelemetry itself keeps what it sets up.",
    )
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")

    demo = commands.add_parser(
        "demo",
        help="run real SDK agents against a scripted provider and print why the models stopped",
        description="Runs a few dozen turns of real openai and anthropic agents, with and without the continuation "
        "controller, against a scripted provider on loopback: no keys, no network. With OTEL_EXPORTER_OTLP_ENDPOINT "
        "set, their telemetry goes there.",
    )
    demo.add_argument("--json", action="store_true", help="print the result as one JSON object, and nothing else")
    demo.add_argument("--once", action="store_true", help="play the script once and end (the default)")
    demo.add_argument(
        "--minutes", type=float, default=0.0, metavar="N", help="play it again and again for N minutes, at a human pace"
    )
    demo.set_defaults(run=_demo)

    explain = commands.add_parser(
        "explain",
        help="say what a provider's stop reason means, whether it is truncation, and how it resumes",
        description="Says what a stop reason means in every API that uses it: our word for it, whether the output was "
        "cut off, how such a response is taken up again, where the value stands, and where its meaning was read. "
        "Exits with 1 when no API is known to use it.",
    )
    explain.add_argument("raw", metavar="VALUE", help="the value as the provider sends it, e.g. pause_turn")
    explain.add_argument(
        "--provider", metavar="NAME", help="only this one's: a provider, an API or a wire, e.g. openai.responses"
    )
    explain.add_argument("--json", action="store_true", help="print a JSON list instead")
    explain.set_defaults(run=_explain)

    reasons = commands.add_parser(
        "reasons",
        help="print every stop reason of every API that endturn knows",
        description="Prints the table that normalises stop reasons: API, the provider's value, our word for it, "
        "whether the output is incomplete, how it resumes, where the meaning was read. Tab-separated, a header first.",
    )
    reasons.add_argument("--provider", metavar="NAME", help="only this one's: a provider, an API or a wire")
    reasons.add_argument("--json", action="store_true", help="print a JSON list instead, one object a row")
    reasons.set_defaults(run=_reasons)

    generate = commands.add_parser(
        "generate",
        help="write dashboards, rules, their tests and the reference documents from the telemetry schema",
        description="Writes every generated file of a checkout; with --check, says which ones are stale instead.",
    )
    generate.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is not current")
    generate.add_argument("--root", type=Path, default=Path(), metavar="DIR", help="the checkout (default: here)")
    generate.set_defaults(run=_generate)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    from endturn import run

    run.run(arguments.words)


def _demo(arguments: argparse.Namespace) -> int:
    if arguments.minutes < 0 or (arguments.once and arguments.minutes):
        raise UsageError("--minutes takes a positive number, and does not go with --once")
    from endturn import demo

    return demo.run(as_json=arguments.json, minutes=arguments.minutes)


def _explain(arguments: argparse.Namespace) -> int:
    from endturn import reasons

    _check_provider(arguments.provider)
    found = reasons.explain(arguments.raw, arguments.provider)
    if arguments.json:
        print(json.dumps([entry.as_json() for entry in found], ensure_ascii=False, indent=2))
        return 0 if found else 1
    if not found:
        whose = f" of {arguments.provider}" if arguments.provider else ""
        like = reasons.like(arguments.raw, arguments.provider)
        hint = f"; did you mean {' or '.join(map(repr, like))}?" if like else ""
        print(f"no API{whose} is known to use {arguments.raw!r}{hint}", file=sys.stderr)
        print("endturn records such a value as `unknown`, keeps it verbatim, and never continues it.", file=sys.stderr)
        return 1
    print(reasons.explained(found))
    return 0


def _reasons(arguments: argparse.Namespace) -> int:
    from endturn import reasons

    _check_provider(arguments.provider)
    known = reasons.table()
    rows = [each.as_json() for each in known if not arguments.provider or reasons.is_of(each, arguments.provider)]
    if arguments.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    print("\t".join(rows[0]))
    for row in rows:
        print("\t".join(row.values()))
    return 0


def _check_provider(name: str | None) -> None:
    from endturn import reasons

    if name is not None and not any(reasons.is_of(entry, name) for entry in reasons.table()):
        raise UsageError(f"no provider, API or wire is known as {name!r}; the APIs are: {', '.join(reasons.apis())}")


def _generate(arguments: argparse.Namespace) -> int:
    from endturn import generate

    changes = generate.run(arguments.root, check=arguments.check)
    for change in changes:
        # A file that is generated by nothing is not ours to delete.
        print(change if arguments.check or change.kind == "orphan" else f"wrote {change.path}")
    if arguments.check and changes:
        print("not current: run `endturn generate`, and commit what it writes", file=sys.stderr)
    return 1 if arguments.check and changes else 0


if __name__ == "__main__":
    sys.exit(main())
