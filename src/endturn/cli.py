"""The command line: one function for each command of `endturn`, and the parser that knows them all."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from endturn import __version__
from endturn.errors import UsageError


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        The exit status: 0 done, 1 a check found something, 2 the command cannot be carried out as given, 3 a check
        found nothing but could not look at everything.
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
        "controller, against a scripted provider on loopback: no keys, no network. In a terminal their telemetry goes "
        "to the page that runs on its usual port, or to one of its own, which is served until Ctrl-C; with "
        "OTEL_EXPORTER_OTLP_ENDPOINT set, it goes there.",
    )
    demo.add_argument("--json", action="store_true", help="print the result as one JSON object, and nothing else")
    demo.add_argument(
        "--once", action="store_true", help="play the script once, print the table and end (as without a terminal)"
    )
    demo.add_argument(
        "--minutes", type=float, default=0.0, metavar="N", help="play it again and again for N minutes, at a human pace"
    )
    demo.set_defaults(run=_demo)

    _add_ui(commands)

    explain = commands.add_parser(
        "explain",
        help="say what a provider's stop reason means, whether it is truncation, and how it resumes",
        description="Says what a stop reason means in every API that uses it: our word for it, whether the output was "
        "cut off, how such a response is taken up again, where the value stands, and where its meaning was read. "
        "Exits with 1 when no API is known to use it.",
    )
    explain.add_argument("raw", metavar="VALUE", help="the value as the provider sends it, e.g. pause_turn")
    explain.add_argument(
        "--provider", metavar="NAME", help="only this one's: a provider, an API or a format, e.g. openai.responses"
    )
    explain.add_argument("--json", action="store_true", help="print a JSON list instead")
    explain.set_defaults(run=_explain)

    reasons = commands.add_parser(
        "reasons",
        help="print every stop reason of every API that endturn knows",
        description="Prints the table that normalises stop reasons: API, the provider's value, our word for it, "
        "whether the output is incomplete, how it resumes, where the meaning was read. Tab-separated, a header first.",
    )
    reasons.add_argument("--provider", metavar="NAME", help="only this one's: a provider, an API or a format")
    reasons.add_argument("--json", action="store_true", help="print a JSON list instead, one object a row")
    reasons.set_defaults(run=_reasons)

    generate = commands.add_parser(
        "generate",
        help="write dashboards, rules, their tests and the reference documents from the telemetry schema",
        description="Writes every generated file of a checkout; with --check, says which ones are stale instead. With "
        "--output, writes what is put into use (dashboards, rules, runbooks, Collector files) into any folder. Needs "
        "endturn[grafana].",
    )
    generate.add_argument("--check", action="store_true", help="write nothing; exit 1 when a file is not current")
    generate.add_argument("--root", type=Path, default=Path(), metavar="DIR", help="the checkout (default: here)")
    generate.add_argument(
        "--config", type=Path, metavar="FILE", help="thresholds, objective and addresses, in TOML (docs/alerts.md)"
    )
    generate.add_argument("--output", type=Path, metavar="DIR", help="a folder instead of a checkout")
    generate.set_defaults(run=_generate)

    rules = commands.add_parser("rules", help="check alert and recording rules")
    checks = rules.add_subparsers(metavar="ACTION", required=True).add_parser(
        "check",
        help="say whether rule files are right, before they are loaded",
        description="Checks rule files, PrometheusRule manifests and Grafana's provisioned alerts: with promtool where "
        "there is one, else by parsing them. Exits with 1 when something is wrong. Needs endturn[grafana].",
    )
    checks.add_argument("files", nargs="*", type=Path, metavar="FILE", help="default: those of the current checkout")
    checks.add_argument("--promtool", metavar="PATH", help="Prometheus' promtool (default: the one on the PATH)")
    checks.set_defaults(run=_rules_check)

    _add_dashboards(commands.add_parser("dashboards", help="put the dashboards into a Grafana, or into a folder"))
    return parser


def _add_ui(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    ui = commands.add_parser(
        "ui",
        help="serve the local page, which takes OpenTelemetry and shows what became of each turn",
        description="Takes OTLP over HTTP (protobuf and JSON) on loopback, keeps it in DuckDB, and shows it as a page: "
        "no Docker, no keys, nothing leaves this machine. Needs endturn[ui].",
    )
    ui.add_argument("inputs", nargs="*", type=Path, metavar="FILE", help="OTLP JSON to read first, e.g. traces.jsonl")
    ui.add_argument("--port", type=int, default=4318, help="default: 4318, where OTLP over HTTP goes")
    ui.add_argument(
        "--host", default="127.0.0.1", help="default: 127.0.0.1; any other lets others in, unasked who they are"
    )
    ui.add_argument(
        "--file", type=Path, metavar="PATH", help="keep the telemetry in this DuckDB file (default: in memory)"
    )
    ui.add_argument("--keep", type=float, default=7, metavar="DAYS", help="forget what is older (default: 7)")
    ui.add_argument(
        "--most", type=int, default=2048, metavar="MB", help="forget the oldest beyond this (default: 2048)"
    )
    ui.add_argument("--traces", default="", metavar="URL", help="a trace's address in Grafana, with {trace_id} in it")
    ui.add_argument(
        "--open", action=argparse.BooleanOptionalAction, help="open a browser (default: where there is one)"
    )
    ui.set_defaults(run=_ui)

    report = commands.add_parser(
        "report",
        help="say what became of the turns in files of telemetry, and fail a build",
        description="Reads OTLP JSON (traces, metrics, logs, as the Collector's file exporter writes them) or the "
        "file that `endturn ui --file` keeps, and prints the indicators. Exits with 1 where a condition of --fail-on "
        "is met, with 3 where there are no metrics to look at. Needs endturn[ui].",
    )
    report.add_argument("inputs", nargs="*", type=Path, metavar="FILE", help="OTLP JSON, a request a line; .gz too")
    report.add_argument("--file", type=Path, metavar="PATH", help="a DuckDB file of `endturn ui`")
    report.add_argument("--format", choices=("md", "html", "json"), default="md", help="default: md")
    report.add_argument(
        "--fail-on", action="append", default=[], metavar="CONDITION",
        help="e.g. 'truncation_without_continuation > 1%%' or 'unfinished > 0'; again for others",
    )  # fmt: skip
    report.set_defaults(run=_report)


def _add_dashboards(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    install = actions.add_parser(
        "install",
        help="create or update them in a running Grafana, over its API",
        description="Creates or updates endturn's dashboards in a Grafana, and removes those that an earlier version "
        "left. Running it again changes nothing. Only what bears endturn's uids is ever touched.",
    )
    install.add_argument("--grafana", required=True, metavar="URL", help="e.g. https://grafana.example.org/monitoring")
    install.add_argument(
        "--token", metavar="TOKEN", help="a service account's; better in GRAFANA_TOKEN, which other users cannot see"
    )
    install.add_argument("--folder", default="endturn", metavar="UID", help="created if missing (default: endturn)")
    install.add_argument(
        "--datasource",
        action="append",
        default=[],
        metavar="TYPE=NAME",
        help="which data source to begin with, by name or uid, e.g. prometheus=Mimir; again for loki and tempo",
    )
    install.add_argument("--alerts", action="store_true", help="the alert rules too, as Grafana-managed ones")
    install.add_argument("--from", dest="source", type=Path, metavar="DIR", help="dashboards other than the shipped")
    install.add_argument("--dry-run", action="store_true", help="only read, and say what would be done")
    install.set_defaults(run=_install)
    export = actions.add_parser(
        "export",
        help="write dashboards, rules and provisioning files into a folder",
        description="Writes the files that this version ships into a folder, for those who mount or load files. Where "
        "one is there that differs, nothing is written without --force.",
    )
    export.add_argument("target", type=Path, metavar="DIR", help="created if missing")
    export.add_argument("--force", action="store_true", help="overwrite files that differ")
    export.set_defaults(run=_export)


def _run(arguments: argparse.Namespace) -> int:
    from endturn import run

    run.run(arguments.words)


def _demo(arguments: argparse.Namespace) -> int:
    if arguments.minutes < 0 or (arguments.once and arguments.minutes):
        raise UsageError("--minutes takes a positive number, and does not go with --once")
    from endturn import demo

    with_page = not (arguments.once or arguments.json or arguments.minutes) and sys.stdout.isatty()
    return demo.run(as_json=arguments.json, minutes=arguments.minutes, with_page=with_page)


def _ui(arguments: argparse.Namespace) -> int:
    with _extra("ui"):
        from endturn.ui import server
    if not 0 <= arguments.port < 1 << 16:
        raise UsageError(f"--port takes a number from 0 (any that is free) to 65535, not {arguments.port}")
    if not 0 < arguments.keep <= 36_500:
        raise UsageError(f"--keep takes a number of days, more than 0 and at most 36500, not {arguments.keep:g}")
    return server.run(
        arguments.inputs,
        host=arguments.host,
        port=arguments.port,
        file=arguments.file,
        keep_days=arguments.keep,
        most_mb=arguments.most,
        traces=arguments.traces,
        open_browser=arguments.open,
    )


def _report(arguments: argparse.Namespace) -> int:
    with _extra("ui"):
        from endturn.ui import report
    text, status = report.run(
        arguments.inputs, file=arguments.file, format_=arguments.format, fail_on=arguments.fail_on
    )
    print(text)
    return status


@contextmanager
def _extra(name: str) -> Iterator[None]:
    """Names the extra where something of it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("endturn"):
            raise
        raise UsageError(f"{error.name!r} is not installed: pip install 'endturn[{name}]'") from error


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
        raise UsageError(f"no provider, API or format is known as {name!r}; the APIs are: {', '.join(reasons.apis())}")


def _generate(arguments: argparse.Namespace) -> int:
    from endturn import generate

    config = generate.read_config(arguments.config) if arguments.config else None
    changes = generate.run(arguments.output or arguments.root, arguments.check, config, own=not arguments.output)
    for change in changes:
        # A file that is generated by nothing is not ours to delete.
        print(change if arguments.check or change.kind == "orphan" else f"wrote {change.path}")
    if arguments.check and changes:
        print("not current: run `endturn generate`, and commit what it writes", file=sys.stderr)
    return 1 if arguments.check and changes else 0


def _rules_check(arguments: argparse.Namespace) -> int:
    from endturn import generate

    results = generate.check_rules(arguments.files, promtool=arguments.promtool)
    for result in results:
        print(result)
    return 1 if any(result.problems for result in results) else 0


def _install(arguments: argparse.Namespace) -> int:
    from endturn import grafana_api, install, shipped

    token = (arguments.token or os.environ.get("GRAFANA_TOKEN") or "").strip()
    if not token:
        raise UsageError("no token: create a service account in Grafana, and set GRAFANA_TOKEN to a token of it")
    asked = dict(_pair(text) for text in arguments.datasource)
    source = arguments.source or shipped.folder()
    boards = shipped.dashboards(source)
    groups = shipped.rule_groups(source) if arguments.alerts else []
    refused = 0
    with grafana_api.connect(arguments.grafana, token) as grafana:
        if grafana_api.exposes_token(arguments.grafana):
            print("endturn: the token goes to another machine over plain http", file=sys.stderr)
        health = grafana.get("/api/health").body
        print(f"Grafana {health.get('version', 'of unknown version')} at {grafana.url}")
        used = sorted(install.types(boards) | ({"prometheus"} if groups else set()))
        uids, remarks = install.sources(grafana, asked, used)
        if groups and "prometheus" not in uids:
            raise UsageError("alert rules need to know their data source: say --datasource prometheus=NAME")
        for done in install.install(
            grafana,
            boards,
            groups,
            folder=arguments.folder,
            asked={kind: uids[kind] for kind in asked},
            uids=uids,
            dry_run=arguments.dry_run,
        ):
            refused += done.what == "refused"
            what = f"would be {done.what}" if arguments.dry_run and done.what in install.WRITES else done.what
            width = 18 if arguments.dry_run else 9
            print(f"{what:<{width}} {done.kind:<9} {done.uid}{f': {done.detail}' if done.detail else ''}")
    for remark in remarks:
        print(f"endturn: {remark}", file=sys.stderr)
    if arguments.dry_run:
        print("nothing was changed: --dry-run", file=sys.stderr)
    return 1 if refused else 0


def _pair(text: str) -> tuple[str, str]:
    kind, equals, name = text.partition("=")
    if not (kind and equals and name):
        raise UsageError(f"--datasource takes TYPE=NAME, e.g. prometheus=Mimir, not {text!r}")
    return kind, name


def _export(arguments: argparse.Namespace) -> int:
    from endturn import shipped

    for file in shipped.export(arguments.target, force=arguments.force):
        print(file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
