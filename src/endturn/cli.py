"""The command line: a function for each command of `endturn`, with its options above it and its help as docstring."""

from __future__ import annotations

import argparse
import inspect
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from endturn import __version__, demo, grafana_api, install, plan, reasons, run, shipped
from endturn.errors import UsageError

Run = Callable[..., int]
"""Runs a command; its keywords are the options'."""
Option = tuple[tuple[str, ...], dict[str, Any]]
"""The arguments of `add_argument`."""
COMMANDS: Final[dict[str, tuple[Run, str, tuple[Option, ...]]]] = {}
"""Name → what runs it, the extra that it needs, its options."""
GROUPS: Final = {
    "rules": "Check alert and recording rules.",
    "dashboards": "Put the dashboards into a Grafana, or into a folder.",
}


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
    function, extra, _ = COMMANDS[settings.pop("command")]
    try:
        status = int(function(**settings))
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"endturn: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        if not extra or (error.name or "").startswith("endturn"):
            raise
        print(f"endturn: {error.name!r} is not installed: pip install 'endturn[{extra}]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # whoever read has read enough; what is still buffered goes nowhere
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def parser() -> argparse.ArgumentParser:
    """What understands every command but the words after `endturn run`."""
    top = argparse.ArgumentParser(
        prog="endturn", description="Did the model end its turn, or was it cut off?", allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"endturn {__version__}")
    groups = {"": top.add_subparsers(metavar="COMMAND", required=True)}
    for name, (function, _, options) in COMMANDS.items():
        group, _, word = name.rpartition(" ")
        if group not in groups:
            opened = groups[""].add_parser(group, help=GROUPS[group])
            groups[group] = opened.add_subparsers(metavar="ACTION", required=True)
        summary, _, description = (inspect.getdoc(function) or "").partition("\n\n")
        command = groups[group].add_parser(word, help=summary, description=description or summary)
        command.set_defaults(command=name)
        for names, settings in options:
            command.add_argument(*names, **settings)
    return top


def _command(name: str, *options: Option, extra: str = "") -> Callable[[Run], Run]:
    """Makes a command of a function, whose docstring is its help."""

    def add(function: Run) -> Run:
        COMMANDS[name] = function, extra, options
        return function

    return add


def _option(*names: str, **settings: Any) -> Option:
    return names, settings


def _flag(name: str, help_: str, **settings: Any) -> Option:
    return _option(name, action="store_true", help=help_, **settings)


PROVIDER: Final = _option(
    "--provider", metavar="NAME", help="only this one's: a provider, an API or a format, e.g. openai.responses"
)


@_command("run", _option("words", nargs="*", metavar="COMMAND", help="the program and its arguments"))
def _run(words: list[str]) -> int:
    """Run a program whose model calls are observed, without a line of its own.

    Traces, metrics and logs of its model calls are exported over OTLP, as the OTEL_* variables say. COMMAND is a
    program on the PATH (python, gunicorn), a .py file, -m MODULE or -c CODE; the last three run in the Python that
    endturn is installed in. The program's exit status, signals and terminal are its own. An agent that sets up
    OpenTelemetry itself keeps what it sets up.
    """
    run.run(words)


@_command(
    "demo",
    _flag("--json", "print the result as one JSON object, and nothing else", dest="as_json"),
    _flag("--once", "play the script once, print the table and end (as without a terminal)"),
    _option("--minutes", type=float, default=0.0, metavar="N", help="play it again for N minutes, at a human pace"),
)
def _demo(as_json: bool, once: bool, minutes: float) -> int:
    """Run real SDK agents against a scripted provider and print why the models stopped.

    Runs a few dozen turns of real openai and anthropic agents, with and without the continuation controller, against a
    scripted provider on loopback: no keys, no network. In a terminal their telemetry goes to the page that runs on its
    usual port, or to one of its own, which is served until Ctrl-C; with OTEL_EXPORTER_OTLP_ENDPOINT set, it goes there.
    """
    if minutes < 0 or (once and minutes):
        raise UsageError("--minutes takes a positive number, and does not go with --once")
    with_page = not (once or as_json or minutes) and sys.stdout.isatty()
    return demo.run(as_json=as_json, minutes=minutes, with_page=with_page)


@_command(
    "ui",
    _option("inputs", nargs="*", type=Path, metavar="FILE", help="OTLP JSON to read first, e.g. traces.jsonl"),
    _option("--port", type=int, default=4318, help="default: 4318, where OTLP over HTTP goes"),
    _option("--host", default="127.0.0.1", help="default: 127.0.0.1; any other lets others in, unasked"),
    _option("--file", type=Path, metavar="PATH", help="keep the telemetry in this DuckDB file, not in memory"),
    _option(
        "--keep", dest="keep_days", type=float, default=7, metavar="DAYS", help="forget what is older (default: 7)"
    ),
    _option(
        "--most", dest="most_mb", type=int, default=2048, metavar="MB", help="forget the oldest beyond (default: 2048)"
    ),
    _option("--traces", default="", metavar="URL", help="a trace's address in Grafana, with {trace_id} in it"),
    _option(
        "--open",
        dest="open_browser",
        action=argparse.BooleanOptionalAction,
        help="a browser (default: where there is one)",
    ),
    extra="ui",
)
def _ui(port: int, keep_days: float, **settings: Any) -> int:
    """Serve the local page, which takes OpenTelemetry and shows what became of each turn.

    Takes OTLP over HTTP (protobuf and JSON) on loopback, keeps it in DuckDB, and shows it as a page: no Docker, no
    keys, nothing leaves this machine. Needs endturn[ui].
    """
    from endturn.ui import server

    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port takes a number from 0 (any that is free) to 65535, not {port}")
    if not 0 < keep_days <= 36_500:
        raise UsageError(f"--keep takes a number of days, more than 0 and at most 36500, not {keep_days:g}")
    if settings["most_mb"] < 1:
        raise UsageError(f"--most takes a number of megabytes, 1 or more, not {settings['most_mb']}")
    return server.run(port=port, keep_days=keep_days, **settings)


@_command(
    "report",
    _option("inputs", nargs="*", type=Path, metavar="FILE", help="OTLP JSON, a request a line; .gz too"),
    _option("--file", type=Path, metavar="PATH", help="a DuckDB file of `endturn ui`"),
    _option("--format", dest="format_", choices=("md", "html", "json"), default="md", help="default: md"),
    _option(
        "--fail-on",
        action="append",
        default=[],
        metavar="CONDITION",
        help="e.g. 'truncation_without_continuation > 1%%' or 'unfinished > 0'; again for others",
    ),
    extra="ui",
)
def _report(**settings: Any) -> int:
    """Say what became of the turns in files of telemetry, and fail a build.

    Reads OTLP JSON (traces, metrics, logs, as the Collector's file exporter writes them) or the file that `endturn ui
    --file` keeps, and prints the indicators. Exits with 1 where a condition of --fail-on is met, with 3 where there are
    no metrics to look at. Needs endturn[ui].
    """
    from endturn.ui import report

    text, status = report.run(**settings)
    print(text)
    return status


@_command(
    "explain",
    _option("raw", metavar="VALUE", help="the value as the provider sends it, e.g. pause_turn"),
    PROVIDER,
    _flag("--json", "print a JSON list instead", dest="as_json"),
)
def _explain(raw: str, provider: str | None, as_json: bool) -> int:
    """Say what a provider's stop reason means, whether it is truncation, and how it resumes.

    Says what a stop reason means in every API that uses it: our word for it, whether the output was cut off, how such a
    response is taken up again, where the value stands, and where its meaning was read. Exits with 1 when no API is
    known to use it.
    """
    _check_provider(provider)
    found = reasons.explain(raw, provider)
    if as_json:
        print(json.dumps([entry.as_json() for entry in found], ensure_ascii=False, indent=2))
    elif found:
        print(reasons.explained(found))
    else:
        whose = f" of {provider}" if provider else ""
        like = reasons.like(raw, provider)
        hint = f"; did you mean {' or '.join(map(repr, like))}?" if like else ""
        print(f"no API{whose} is known to use {raw!r}{hint}", file=sys.stderr)
        print("endturn records such a value as `unknown`, keeps it verbatim, and never continues it.", file=sys.stderr)
    return 0 if found else 1


@_command("reasons", PROVIDER, _flag("--json", "print a JSON list instead, one object a row", dest="as_json"))
def _reasons(provider: str | None, as_json: bool) -> int:
    """Print every stop reason of every API that endturn knows.

    Prints the table that normalises stop reasons: API, the provider's value, our word for it, whether the output is
    incomplete, how it resumes, where the meaning was read. Tab-separated, a header first.
    """
    _check_provider(provider)
    known = reasons.table()
    rows = [each.as_json() for each in known if not provider or reasons.is_of(each, provider)]
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    for cells in (rows[0], *(row.values() for row in rows)):
        print("\t".join(cells))
    return 0


def _check_provider(name: str | None) -> None:
    if name is not None and not any(reasons.is_of(entry, name) for entry in reasons.table()):
        raise UsageError(f"no provider, API or format is known as {name!r}; the APIs are: {', '.join(reasons.apis())}")


@_command(
    "generate",
    _flag("--check", "write nothing; exit 1 when a file is not current"),
    _option("--root", type=Path, default=Path(), metavar="DIR", help="the checkout (default: here)"),
    _option("--config", type=Path, metavar="FILE", help="thresholds, objective and addresses (docs/alerts.md)"),
    _option("--output", type=Path, metavar="DIR", help="a folder instead of a checkout"),
    extra="grafana",
)
def _generate(check: bool, root: Path, config: Path | None, output: Path | None) -> int:
    """Write dashboards, rules, their tests and the reference documents from the telemetry schema.

    Writes every generated file of a checkout; with --check, says which ones are stale instead. With --output, writes
    what is put into use (dashboards, rules, runbooks, Collector files) into any folder. Needs endturn[grafana].
    """
    from endturn.generate import files
    from endturn.generate.config import read

    changes = files.run(output or root, check, read(config) if config else None, own=not output)
    for change in changes:
        # A file that is generated by nothing is not ours to delete.
        print(change if check or change.kind == "orphan" else f"wrote {change.path}")
    if check and changes:
        print("not current: run `endturn generate`, and commit what it writes", file=sys.stderr)
    return 1 if check and changes else 0


@_command(
    "plan",
    *(
        _option(
            f"--{each.name.replace('_', '-')}",
            type=float,
            default=each.default,
            required=each.default is None,
            metavar="N",
            help=f"{each.says.replace('%', '%%')} ({each.unit.replace('%', '%%') or 'number'}"
            + ("" if each.default is None else f", default: {each.default:g}")
            + ")",
        )
        for each in plan.INPUTS
    ),
    _flag("--json", "print a JSON list instead, one object a figure", dest="as_json"),
    _option("--values", choices=("compose", "kustomize"), help="print the fleet's settings instead"),
)
def _plan(as_json: bool, values: plan.Values | None, **known: float) -> int:
    """Say what a fleet needs: series, Kafka, gateways, disks.

    Computes them from turns per second and what else is known, by formulas over constants that were measured, and
    prints each figure with its formula; docs/plan.md has the constants and where they are from.
    """
    if values:
        print(plan.as_values(plan.settings(**known), values))
    elif as_json:
        print(json.dumps(plan.as_json(plan.figures(**known)), ensure_ascii=False, indent=2))
    else:
        print(plan.as_table(plan.figures(**known)))
    return 0


@_command(
    "rules check",
    _option("files", nargs="*", type=Path, metavar="FILE", help="default: those of the current checkout"),
    _option("--promtool", metavar="PATH", help="Prometheus' promtool (default: the one on the PATH)"),
    extra="grafana",
)
def _rules_check(files: list[Path], promtool: str | None) -> int:
    """Say whether rule files are right, before they are loaded.

    Checks rule files, PrometheusRule manifests and Grafana's provisioned alerts: with promtool where there is one, else
    by parsing them. Exits with 1 when something is wrong. Needs endturn[grafana].
    """
    from endturn.generate import check

    results = check.check(files, promtool=promtool)
    for result in results:
        print(result)
    return 1 if any(result.problems for result in results) else 0


@_command(
    "dashboards install",
    _option("--grafana", dest="url", required=True, metavar="URL", help="e.g. https://grafana.example.org/monitoring"),
    _option("--token", help="a service account's; better in GRAFANA_TOKEN, which other users cannot see"),
    _option("--folder", default="endturn", metavar="UID", help="created if missing (default: endturn)"),
    _option(
        "--datasource",
        dest="asked",
        action="append",
        default=[],
        metavar="TYPE=NAME",
        help="which one to begin with, by name or uid, e.g. prometheus=Mimir; again for loki and tempo",
    ),
    _flag("--alerts", "the alert rules too, as Grafana-managed ones"),
    _option("--from", dest="source", type=Path, metavar="DIR", help="dashboards other than the shipped"),
    _flag("--dry-run", "only read, and say what would be done"),
    extra="grafana",
)
def _install(
    url: str, token: str, source: Path | None, alerts: bool, dry_run: bool, folder: str, asked: list[str]
) -> int:
    """Create or update the dashboards in a running Grafana, over its API.

    Creates or updates endturn's dashboards in a Grafana, and removes those that an earlier version left. Running it
    again changes nothing. Only what bears endturn's uids is ever touched.
    """
    if not (token := (token or os.environ.get("GRAFANA_TOKEN") or "").strip()):
        raise UsageError("no token: create a service account in Grafana, and set GRAFANA_TOKEN to a token of it")
    sources = dict(map(_pair, asked))
    source = source or shipped.folder()
    boards = shipped.dashboards(source)
    groups = shipped.rule_groups(source) if alerts else []
    refused = False
    with grafana_api.connect(url, token, dry_run=dry_run) as grafana:
        if grafana_api.exposes_token(url):
            print("endturn: the token goes to another machine over plain http", file=sys.stderr)
        print(f"Grafana {grafana.get('/api/health').get('version', 'of unknown version')} at {grafana.url}")
        for done in install.install(grafana, boards, groups, folder=folder, asked=sources):
            refused |= done.what == "refused"
            would = dry_run and done.what in install.WRITES
            print(f"{'would be ' if would else ''}{done}")
    if dry_run:
        print("nothing was changed: --dry-run", file=sys.stderr)
    return 1 if refused else 0


def _pair(text: str) -> tuple[str, str]:
    kind, equals, name = text.partition("=")
    if not (kind and equals and name):
        raise UsageError(f"--datasource takes TYPE=NAME, e.g. prometheus=Mimir, not {text!r}")
    return kind, name


@_command(
    "dashboards export",
    _option("target", type=Path, metavar="DIR", help="created if missing"),
    _flag("--force", "overwrite files that differ"),
)
def _export(target: Path, force: bool) -> int:
    """Write dashboards, rules and provisioning files into a folder.

    Writes the files that this version ships into a folder, for those who mount or load files. Where one is there that
    differs, nothing is written without --force.
    """
    for file in shipped.export(target, force=force):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
