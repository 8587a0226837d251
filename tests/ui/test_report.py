"""`endturn report` and `pytest --endturn`: what became of turns, for CI."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endturn.cli import _main
from endturn.telemetry import schema
from endturn.ui.store import Store
from tests.support.otlp import pairs
from tests.support.processes import REPOSITORY
from tests.ui.support import CUT, SECOND, TRUNCATED, counted, log, point, said, span, write

Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A hundred truncated turns, two of them unfinished, of a model with a name that is markup."""
    path = tmp_path / "page.duckdb"
    store, model, now = Store(path), said(schema.REQUEST_MODEL, "<b>|`x"), time.time_ns()
    write(store, point(schema.TURNS, 100, now, started_ns=now - 60 * SECOND, **TRUNCATED | model))
    write(store, point(schema.TRUNCATION_EXITS, 2, now, **model, **said(schema.OUTCOME, "not_continued")))
    store.close()
    return path


@pytest.fixture
def report(capsys: pytest.CaptureFixture[str]) -> Report:
    """Runs the command: its status, and what it says on either stream."""

    def run(*arguments: object) -> tuple[int, str, str]:
        status = _main.main(["report", *map(str, arguments)])
        return status, *capsys.readouterr()

    return run


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
def test_a_condition_fails_a_build(file: Path, report: Report, condition: str, status: int, sign: str) -> None:
    """By an indicator's name or title; percent or not."""
    found, text, _ = report("--file", file, "--fail-on", condition)
    assert found == status
    assert f"{sign} `{condition}`" in text
    assert "| Truncation without continuation | 2.0% |" in text
    assert r"\<b\>\|\`x" in text


def test_what_a_file_counted_is_judged_however_old(tmp_path: Path, report: Report) -> None:
    """A counter that began long before the file did, and a span without a start, hide nothing of what is in it."""
    now, file = time.time_ns(), tmp_path / "run.jsonl"
    labels: dict[str, Any] = {schema.TRUNCATED.key: True, schema.CONTINUED.key: True}
    labels |= {schema.OUTCOME.key: "not_continued"}
    old: Any = ((now - 7200 * SECOND, now, 10),)
    sums = [counted(*old, metric=m, attributes=pairs(labels)) for m in (schema.TURNS, schema.TRUNCATION_EXITS)]
    file.write_text("".join(f"{json.dumps(request)}\n" for request in (*sums, span(start_ns=0))))
    status, text, _ = report(file, "--fail-on", "truncation_without_continuation > 1%")
    assert (status, "100" in text) == (1, True)


def test_a_report_is_written_for_programs_and_for_browsers(file: Path, report: Report) -> None:
    """JSON has the numbers, unrounded, by the indicators' names; HTML stands alone: it loads and runs nothing."""
    status, text, _ = report("--file", file, "--format", "json")
    found = json.loads(text)
    assert (status, found["values"]["unfinished_share"], found["values"]["truncation"]) == (0, 0.02, None)
    assert found["models"][0]["unfinished"] == 2
    status, text, _ = report("--file", file, "--format", "html")
    assert (status, [each in text for each in ("2.0%", "<b>|", "src=", "<script")]) == (0, [True, False, False, False])


def test_a_report_writes_nothing(file: Path, tmp_path: Path, report: Report) -> None:
    """What is read besides a kept file counts in the report, and is not in the file afterwards.

    Traces alone cannot be judged: status 3 says that a check could not look at everything.
    """
    traces, before = tmp_path / "traces.jsonl", file.read_bytes()
    cut = span(attributes=CUT | {"gen_ai.request.model": "extra"})
    ended = log("endturn.continuation_terminated", **{"endturn.turn.outcome": "not_continued"})
    traces.write_text(f"{json.dumps(cut)}\n{json.dumps(ended)}")
    status, text, _ = report("--file", file, traces)
    assert (status, "extra: not" in text) == (0, True)
    assert file.read_bytes() == before
    assert set(tmp_path.iterdir()) == {file, traces}
    status, text, _ = report(traces, "--fail-on", "unfinished > 0")
    assert (status, "No metrics" in text) == (3, True)


TESTS = """
import pytest
from openai import OpenAI
from endturn.testing.scripted import ScriptedProvider, essay, say

@pytest.fixture(scope="module")
def client():
    script = {"cut": essay("word " * 99), "whole": [say("all of it")]}
    with ScriptedProvider(script, exhausted="cycle").serve() as url:
        yield OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0)

def ask(client, model):
    messages = [{"role": "user", "content": "why?"}]
    return client.chat.completions.create(model=model, messages=messages, max_tokens=9)

def test_unnoticed(client): ask(client, "cut")
def test_whole(client): ask(client, "whole")

@pytest.mark.endturn_unfinished
def test_known(client): ask(client, "cut")

def test_fails_by_itself(client):
    ask(client, "cut")
    assert False, "its own reason"

@pytest.fixture
def asked_before(client): ask(client, "cut")

@pytest.fixture
def asked_after(client):
    yield
    ask(client, "cut")

def test_set_up(asked_before): pass
def test_torn_down(asked_after): pass
"""


RUN = """
import pytest
options = ["-q", "-p", "no:cacheprovider", "--strict-markers", "-o", "addopts=", "."]
pytest.main(options)
print("WITH")
pytest.main(["--endturn", *options])
"""


def test_a_test_whose_turn_was_cut_off_fails(tmp_path: Path) -> None:
    """With the option, fixtures included; a marked one, a whole one and one that fails by itself are as they were."""
    (tmp_path / "test_agent.py").write_text(TESTS)
    command, environment = [sys.executable, "-c", RUN], os.environ | {"PYTHONPATH": str(REPOSITORY)}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    without, _, with_option = done.stdout.partition("WITH\n")
    for text, summary in ((without, "1 failed, 5 passed"), (with_option, "3 failed, 3 passed, 1 error")):
        assert summary in text.strip().splitlines()[-1], done.stdout
        assert "its own reason" in text
    unfinished = "truncated turns were returned unfinished:\n  openai, cut: not_continued, 1 call,"
    assert (unfinished in without, unfinished in with_option) == (False, True)
