"""`endturn report` and `pytest --endturn`: what became of turns, for CI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from endturn import cli
from endturn.telemetry import schema
from endturn.ui.store import Store
from tests.support.processes import REPOSITORY
from tests.ui.support import SECOND, log, point, said, span, write

TRUNCATED = "endturn_turn_truncated"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A hundred truncated turns, two of them unfinished, of a model with a name that is markup."""
    path = tmp_path / "page.duckdb"
    store = Store(path)
    now = time.time_ns()
    labels = {TRUNCATED: "true", schema.OUTCOME.label: "completed", schema.REQUEST_MODEL.label: "<b>|`x"}
    write(store, point(schema.TURNS, 100, now, started_ns=now - 60 * SECOND, **labels))  # type: ignore[arg-type]
    left = {schema.REQUEST_MODEL.label: "<b>|`x", **said(schema.OUTCOME, "not_continued")}
    write(store, point(schema.TRUNCATION_EXITS, 2, now, **left))
    store.close()
    return path


@pytest.mark.parametrize(
    ("condition", "status", "sign"),
    [
        ("truncation_without_continuation > 1%", 1, "❌"),
        ("truncation_without_continuation > 2%", 0, "✅"),
        ("unfinished_share>=0.02", 1, "❌"),
        ("unfinished > 1", 1, "❌"),
        ("truncation > 0", 0, "➖"),  # no responses were counted: there is no rate
    ],
)
def test_a_condition_fails_a_build(
    file: Path, condition: str, status: int, sign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By an indicator's name or title; percent or not."""
    assert cli.main(["report", "--file", str(file), "--fail-on", condition]) == status
    text = capsys.readouterr().out
    assert f"{sign} `{condition}`" in text
    assert "| Truncation without continuation | 2.0% |" in text
    assert r"\<b\>\|\`x" in text


def test_what_a_file_counted_is_judged_however_old(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A counter that began long before the file did, and a span without a start, hide nothing of what is in it."""
    now = time.time_ns()
    labels = [{"key": key, "value": {"boolValue": True}} for key in (schema.TRUNCATED.key, schema.CONTINUED.key)]
    labels += [{"key": schema.OUTCOME.key, "value": {"stringValue": "not_continued"}}]
    counted = {
        "startTimeUnixNano": str(now - 7200 * SECOND),
        "timeUnixNano": str(now),
        "asInt": "10",
        "attributes": labels,
    }
    sums = [
        {"name": name, "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [counted]}}
        for name in (schema.TURNS.name, schema.TRUNCATION_EXITS.name)
    ]
    file = tmp_path / "run.jsonl"
    requests = ({"resourceMetrics": [{"scopeMetrics": [{"metrics": sums}]}]}, span(start_ns=0))
    file.write_text("".join(f"{json.dumps(request)}\n" for request in requests))
    assert cli.main(["report", str(file), "--fail-on", "truncation_without_continuation > 1%"]) == 1
    assert "100" in capsys.readouterr().out


def test_json_has_the_numbers(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unrounded, by the indicators' names."""
    assert cli.main(["report", "--file", str(file), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["values"]["unfinished_share"] == 0.02
    assert found["values"]["truncation"] is None
    assert found["models"][0]["unfinished"] == 2


def test_html_stands_alone(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One file, that loads and runs nothing."""
    assert cli.main(["report", "--file", str(file), "--format", "html"]) == 0
    text = capsys.readouterr().out
    assert "2.0%" in text
    assert "<b>|" not in text
    assert "src=" not in text
    assert "<script" not in text


def test_a_report_writes_nothing(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is read besides a kept file counts in the report, and is not in the file afterwards."""
    traces, kept = tmp_path / "traces.jsonl", file.read_bytes()
    cut = {"endturn.stop.reason": "max_tokens", "endturn.stop.truncated": True, "gen_ai.request.model": "extra"}
    ended = log("endturn.continuation_terminated", **{"endturn.turn.outcome": "not_continued"})
    traces.write_text(f"{json.dumps(span(attributes=cut))}\n{json.dumps(ended)}")
    assert cli.main(["report", "--file", str(file), str(traces)]) == 0
    assert "extra: not" in capsys.readouterr().out
    assert file.read_bytes() == kept
    assert set(tmp_path.iterdir()) == {file, traces}


def test_traces_alone_cannot_be_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 3: a check that could not look at everything."""
    traces = tmp_path / "traces.jsonl"
    traces.write_text(json.dumps(span()))
    assert cli.main(["report", str(traces), "--fail-on", "unfinished > 0"]) == 3
    assert "No metrics" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--fail-on", "trunction > 1", "x"], "did you mean 'truncation'?"),
        (["--fail-on", "truncation is bad", "x"], "--fail-on takes NAME > NUMBER"),
        (["--fail-on", "unfinished > .", "x"], "--fail-on takes NAME > NUMBER"),
        ([], "report on what?"),
        (["none.jsonl"], "cannot be read"),
        (["--file", "none.duckdb"], "there is no file 'none.duckdb'"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit status 2, and a sentence."""
    assert cli.main(["report", *arguments]) == 2
    assert says in capsys.readouterr().err


TESTS = """
import pytest
from openai import OpenAI
from endturn.scripted import ScriptedProvider, essay, say

@pytest.fixture(scope="module")
def url():
    with ScriptedProvider({"cut": essay("word " * 99), "whole": [say("all of it")]}, exhausted="cycle").serve() as url:
        yield url

def ask(url, model):
    with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        messages = [{"role": "user", "content": "why?"}]
        return client.chat.completions.create(model=model, messages=messages, max_tokens=9)

def test_unnoticed(url):
    assert ask(url, "cut").choices[0].message.content

def test_whole(url):
    assert ask(url, "whole").choices[0].message.content

@pytest.mark.endturn_unfinished
def test_known(url):
    ask(url, "cut")

def test_fails_by_itself(url):
    ask(url, "cut")
    assert False, "its own reason"

@pytest.fixture
def asked_before(url):
    ask(url, "cut")

@pytest.fixture
def asked_after(url):
    yield
    ask(url, "cut")

def test_set_up(asked_before): pass
def test_torn_down(asked_after): pass
"""


@pytest.mark.parametrize("option", [True, False], ids=["--endturn", "without"])
def test_a_test_whose_turn_was_cut_off_fails(tmp_path: Path, option: bool) -> None:
    """With the option, fixtures included; a marked one, a whole one and one that fails by itself are as they were."""
    (tmp_path / "test_agent.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "-o", "addopts=",
         *(["--endturn"] if option else []), str(tmp_path)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    summary = done.stdout.strip().splitlines()[-1]
    assert ("3 failed, 3 passed, 1 error" if option else "1 failed, 5 passed") in summary, done.stdout
    assert "its own reason" in done.stdout
    assert ("cut off and handed over unfinished:\n  openai, cut: not_continued, 1 call," in done.stdout) == option
