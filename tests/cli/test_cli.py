"""The command line: each command calls its function with the values of its options."""

from __future__ import annotations

import itertools
import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest.mock import create_autospec

import pytest

import endturn.cli.run
from endturn.cli import _main
from endturn.generate import plan
from endturn.ui.past_sessions import HtmlReport, LocalPage

CALLS: list[tuple[str, str, tuple[Any, ...], dict[str, Any]]] = [
    # command line; the function that it calls; that function's arguments
    (
        "demo",
        "endturn.cli.demo:command",
        (),
        {"as_json": False, "once": False, "minutes": None, "port": None, "open_browser": None},
    ),
    (
        "demo --json --once",
        "endturn.cli.demo:command",
        (),
        {"as_json": True, "once": True, "minutes": None, "port": None, "open_browser": None},
    ),
    (
        "demo --minutes 2.5",
        "endturn.cli.demo:command",
        (),
        {"as_json": False, "once": False, "minutes": 2.5, "port": None, "open_browser": None},
    ),
    (
        "demo --port 0 --no-open",
        "endturn.cli.demo:command",
        (),
        {"as_json": False, "once": False, "minutes": None, "port": 0, "open_browser": False},
    ),
    ("doctor", "endturn.cli.doctor:command", ([],), {"as_json": False, "timeout_s": 3.0}),
    (
        "doctor --json --timeout 0.5 -- python agent.py --json",
        "endturn.cli.doctor:command",
        (["python", "agent.py", "--json"],),
        {"as_json": True, "timeout_s": 0.5},
    ),
    (
        "ui",
        "endturn.ui.server:run",
        ([],),
        {
            "host": "127.0.0.1",
            "port": 4318,
            "file": None,
            "keep_days": 7,
            "most_mb": 2048,
            "traces": "",
            "open_browser": None,
            "token": None,
        },
    ),
    (
        "ui a.jsonl b.jsonl --host ::1 --port 0 --file f.duckdb --keep 0.5 --most 10"
        " --traces http://grafana/{trace_id} --no-open --token secret",
        "endturn.ui.server:run",
        ([Path("a.jsonl"), Path("b.jsonl")],),
        {
            "host": "::1",
            "port": 0,
            "file": Path("f.duckdb"),
            "keep_days": 0.5,
            "most_mb": 10,
            "traces": "http://grafana/{trace_id}",
            "open_browser": False,
            "token": "secret",
        },
    ),
    ("report a.jsonl", "endturn.ui.report:run", ([Path("a.jsonl")],), {"file": None, "format_": "md", "fail_on": []}),
    (
        "report --file f.duckdb --format html --fail-on unfinished>0 --fail-on truncated>1%",
        "endturn.ui.report:run",
        ([],),
        {"file": Path("f.duckdb"), "format_": "html", "fail_on": ["unfinished>0", "truncated>1%"]},
    ),
    (
        "scan",
        "endturn.scan:run",
        ([],),
        {"since": None, "as_json": False, "fail_on": [], "format_": None, "outputs": []},
    ),
    (
        "scan a.jsonl - --since 30d --json --fail-on unfinished>0 --format claude_code",
        "endturn.scan:run",
        ([Path("a.jsonl"), Path("-")],),
        {"since": "30d", "as_json": True, "fail_on": ["unfinished>0"], "format_": "claude_code", "outputs": []},
    ),
    (
        "scan a.eval --report r.html --ui --no-content",
        "endturn.scan:run",
        ([Path("a.eval")],),
        {
            "since": None,
            "as_json": False,
            "fail_on": [],
            "format_": None,
            "outputs": [HtmlReport(Path("r.html")), LocalPage(with_content=False)],
        },
    ),
    ("explain length", "endturn.frameworks.lookup:explain_command", ("length", None, False), {}),
    (
        "explain length --provider groq --json",
        "endturn.frameworks.lookup:explain_command",
        ("length", "groq", True),
        {},
    ),
    ("reasons", "endturn.frameworks.lookup:list_command", (None, False), {}),
    ("reasons --provider groq --json", "endturn.frameworks.lookup:list_command", ("groq", True), {}),
    ("generate", "endturn.generate.files:command", (False, Path(), None, None), {}),
    (
        "generate --check --root r --config c.toml --output o",
        "endturn.generate.files:command",
        (True, Path("r"), Path("c.toml"), Path("o")),
        {},
    ),
    (
        "plan --turns 10",
        "endturn.generate.plan:command",
        (plan.Fleet(turns=10),),
        {"as_json_list": False, "values": None},
    ),
    (
        "plan --turns 10 --trace-days 3 --json --values compose",
        "endturn.generate.plan:command",
        (plan.Fleet(turns=10, trace_days=3),),
        {"as_json_list": True, "values": "compose"},
    ),
    ("rules check", "endturn.generate.check:command", ([], None), {}),
    (
        "rules check a.yaml b.yaml --promtool p",
        "endturn.generate.check:command",
        ([Path("a.yaml"), Path("b.yaml")], "p"),
        {},
    ),
    (
        "dashboards install --grafana http://g",
        "endturn.grafana.install:command",
        (),
        {
            "url": "http://g",
            "token": None,
            "source": None,
            "alerts": False,
            "dry_run": False,
            "folder": "endturn",
            "source_options": [],
        },
    ),
    (
        "dashboards install --grafana http://g --token t --folder f --datasource prometheus=M"
        " --datasource loki=L --alerts --from d --dry-run",
        "endturn.grafana.install:command",
        (),
        {
            "url": "http://g",
            "token": "t",
            "source": Path("d"),
            "alerts": True,
            "dry_run": True,
            "folder": "f",
            "source_options": ["prometheus=M", "loki=L"],
        },
    ),
    ("dashboards export d", "endturn.grafana.assets:command", (Path("d"), False), {}),
    ("dashboards export d --force", "endturn.grafana.assets:command", (Path("d"), True), {}),
]


@pytest.mark.parametrize(("line", "function", "args", "kwargs"), CALLS, ids=[row[0] for row in CALLS])
def test_a_command_calls_its_function(
    line: str,
    function: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every option arrives under the parameter that it is for; the function's status is the exit status."""
    module, _, name = function.partition(":")
    double = create_autospec(resolve_name(function), return_value=1)
    monkeypatch.setattr(resolve_name(module), name, double)
    assert _main.main(line.split()) == 1
    double.assert_called_once_with(*args, **kwargs)


@pytest.mark.parametrize("program", ["", "python app.py --json -- -x", "-- app --help", "-m app -h"])
def test_run_takes_all_words_after_it(program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is an option of endturn."""
    double = create_autospec(endturn.cli.run.run, side_effect=SystemExit(3))
    monkeypatch.setattr(endturn.cli.run, "run", double)
    with pytest.raises(SystemExit):
        _main.main(["run", *program.split()])
    double.assert_called_once_with(program.split())


def parsers(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    """The parsers of all commands."""
    groups = [action for action in parser._actions if isinstance(action, _SubParsersAction)]
    for child in groups[0].choices.values() if groups else ():
        yield from parsers(child)
    if not groups:
        yield parser


@pytest.mark.parametrize("parser", [*parsers(_main.parser())], ids=lambda parser: str(parser.prog))
def test_every_option_is_tested(parser: ArgumentParser) -> None:
    """A new command or option needs a row above; every input of a plan, a row of tests/generate/test_plan.py."""
    name = parser.prog.removeprefix("endturn ")
    rows = [row[0].split() for row in CALLS if f"{row[0]} ".startswith(f"{name} ")]
    assert rows or name == "run"
    tested = {"--help", *itertools.chain(*rows)}
    tested |= {option.flag for option in plan.OPTIONS} if name == "plan" else set()
    for action in parser._actions:
        assert tested & set(action.option_strings) or not action.option_strings, action.dest


@pytest.mark.parametrize(
    "parser",
    [_main.parser(), *parsers(_main.parser())],
    ids=lambda parser: str(parser.prog),
)
def test_every_option_has_a_help_text(parser: ArgumentParser) -> None:
    """A text that argparse can format: a `%` in it is doubled."""
    assert parser.format_help()
    assert all(action.help for action in parser._actions if not isinstance(action, _SubParsersAction))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("demo --minutes -1", "--minutes must be more than 0 and at most 525600, not -1"),
        ("demo --minutes 0", "--minutes must be more than 0 and at most 525600, not 0"),
        ("demo --minutes nan", "--minutes must be more than 0 and at most 525600, not nan"),
        ("demo --minutes inf", "--minutes must be more than 0 and at most 525600, not inf"),
        ("ui --traces foo", "--traces must be an http(s) URL that contains {trace_id}, not 'foo'"),
        ("ui --traces https://grafana.example.com/explore", "contains {trace_id}, not 'https://grafana.example.com/"),
        ("ui --traces javascript:{trace_id}", "--traces must be an http(s) URL"),
        ("demo --once --minutes 1", "--once and --minutes exclude each other"),
        ("demo --once --port 0", "--port cannot be combined with --once, --minutes or --json"),
        ("demo --port 65536", "--port must be from 0 (any free port) to 65535, not 65536"),
        ("doctor --timeout 0", "--timeout must be more than 0 and at most 60 seconds, not 0"),
        ("doctor -- no-such-program", "'no-such-program' is neither a program on the PATH"),
        ("dashboards install --token t --grafana grafana.example.org", "takes an address like"),
        ("dashboards install --token t --grafana http://admin:pw@127.0.0.1", "without credentials"),
        ("dashboards install --token t --grafana http://127.0.0.1:9", "cannot reach Grafana at http://127.0.0.1:9"),
        ("generate --root /nowhere", "is not a checkout of endturn"),
        ("run", "nothing to run"),
        ("run no-such-program", "'no-such-program' is neither a program on the PATH"),
        ("run nowhere/agent.py", "'nowhere/agent.py' does not exist, or is not a file"),
        ("run -m", "-m needs an argument"),
        ("ui --no-open --host=", "--host must not be empty: pass an address"),
        ("ui --no-open --port 0 --keep=nan", "--keep must be more than 0 and at most 36500 days"),
        ("ui --no-open --port 0 --keep=inf", "--keep must be more than 0 and at most 36500 days"),
        ("ui --no-open --port 0 --keep=-1", "--keep must be more than 0 and at most 36500 days"),
        ("ui --no-open --port 0 --keep=0", "--keep must be more than 0 and at most 36500 days"),
        ("ui --no-open --port 0 --keep=1e9", "--keep must be more than 0 and at most 36500 days"),
        ("report --fail-on 'trunction > 1' x", "did you mean 'truncation'?"),
        ("report --fail-on 'truncation is bad' x", "--fail-on must be NAME > NUMBER"),
        ("report --fail-on 'unfinished > .' x", "--fail-on must be NAME > NUMBER"),
        ("report --fail-on 'truncation > 1' x", "truncation is a share, of which 1 is 100 %; write 'truncation > 1%'"),
        ("scan --fail-on 'truncation > 1' .", "truncation is a share, of which 1 is 100 %; write 'truncation > 1%'"),
        (
            "scan --fail-on 'truncation_without_continuation >= 5.5' .",
            "write 'truncation_without_continuation >= 5.5%'",
        ),
        ("report", "no input: pass OTLP JSON files"),
        ("report none.jsonl", "cannot be read"),
        ("report --file none.duckdb", "--file 'none.duckdb' does not exist"),
        ("explain stop --provider acme", "'acme'"),
        ("explain stop --provider acme", "openai.responses"),
        ("reasons --provider acme", "'acme'"),
        ("reasons --provider acme", "openai.responses"),
        ("run --reload x", "endturn run has no option '--reload'"),
    ],
)
def test_a_wrong_argument_is_one_line_and_exit_status_2(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is wrong, and no traceback."""
    assert _main.main(shlex.split(line)) == 2
    printed = capsys.readouterr()
    assert (message in printed.err, printed.err.count("\n"), printed.out) == (True, 1, ""), printed.err


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        ("reasons --provider bedrock_converse", ["api\traw\tnormalized\t", "bedrock.converse\tend_turn\tend_turn\t"]),
        (
            "reasons --json --provider groq",
            [
                '"api": "groq.chat",\n    "raw": "length",\n    "normalized": "max_tokens",\n'
                '    "incomplete": "yes",\n    "resume": "prompt"'
            ],
        ),
        ("explain length --json --provider groq", ['[\n  {\n    "api": "groq.chat",\n    "raw": "length"']),
        ("explain pause_turn --provider anthropic", ["paused", "no, but the output is incomplete", "resend_unchanged"]),
        ("explain length --provider openai.chat", ["max_tokens", "truncated  yes", "prompt", "openai 3"]),
        ("explain MAX_TOKENS --provider gcp.gemini", ["max_tokens", "candidates[i].finishReason"]),
        ("explain max_output_tokens --provider openai", ["incomplete:max_output_tokens: max_tokens"]),
        ("explain model_length --provider mistral_ai", ["context_window_exceeded"]),
        ("explain STOPSTOP --provider google", ["STOP: end_turn"]),
        ("explain not_finished", ["not an end"]),
        ("explain SAFETY --provider gcp.vertex_ai", ["google.generateContent", "google.promptFeedback"]),
        ("explain FINISH --provider aws.bedrock", ["bedrock.invoke.titan"]),
        ("explain tool_use_failed", ["error answers", "resume     repair"]),
        ("explain context_length_exceeded --provider openai", ["failed:context_length_exceeded"]),
        ("explain length --provider mistralai", ["max_tokens"]),
        ("explain MAX_TOKENS --provider vertexai", ["max_tokens"]),
        ("explain length --provider z-ai", ["max_tokens"]),
    ],
)
def test_a_command_prints(line: str, parts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Stop reasons as a table, as JSON and as text."""
    assert _main.main(shlex.split(line)) == 0
    printed = capsys.readouterr().out
    assert [part for part in parts if part not in printed] == []


@pytest.mark.parametrize(
    ("line", "usage", "message"),
    [
        ("runn agent.py", "usage: endturn [-h]", "COMMAND 'runn' is unknown; did you mean 'run'?"),
        ("zzz", "usage: endturn [-h]", "COMMAND 'zzz' is unknown; there are: dashboards, demo, doctor, "),
        ("rules chek", "usage: endturn rules [-h]", "ACTION 'chek' is unknown; did you mean 'check'?"),
        ("ui --prot 5", "usage: endturn ui [-h]", "unrecognized arguments: --prot; did you mean '--port'?"),
        ("demo --no-opn", "usage: endturn demo [-h]", "did you mean '--no-open'?"),
        ("doctor --zzz", "usage: endturn doctor [-h]", "unrecognized arguments: --zzz\n"),
        ("dashboards install --grafna x", "usage: endturn dashboards install [-h]", "--grafana"),
    ],
)
def test_a_mistyped_word_is_answered_with_the_nearest(
    line: str, usage: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Below the usage of the command in question."""
    with pytest.raises(SystemExit) as exits:
        _main.main(line.split())
    printed = capsys.readouterr().err
    assert (exits.value.code, printed.startswith(usage), message in printed) == (2, True, True), printed


def test_without_a_command_all_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert _main.main([]) == 0
    printed = capsys.readouterr().out
    assert [name for name in ("run", "doctor", "demo", "ui") if f"\n    {name} " not in printed] == []


def test_an_unknown_stop_reason_is_exit_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    """The message suggests a known one; JSON is an empty list."""
    assert _main.main(["explain", "max_tokenz"]) == 1
    message = capsys.readouterr().err
    assert [part for part in ("'max_tokenz'", "did you mean 'max_tokens'", "`unknown`") if part not in message] == []
    assert _main.main(["explain", "max_tokenz", "--json"]) == 1
    assert capsys.readouterr().out == "[]\n"
