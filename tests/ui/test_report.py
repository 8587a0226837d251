"""`endturn report` and `pytest --endturn`: what became of turns, for CI."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endturn._version import __version__
from endturn.cli import _main
from endturn.telemetry import schema
from endturn.ui.rows import Point
from endturn.ui.store import Store
from tests.support.otlp import pairs
from tests.support.processes import REPOSITORY
from tests.ui.support import CUT, SECOND, TRACE, TRUNCATED, counted, log, point, said, span, write

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
    ("condition", "status", "row"),
    [
        ("truncation_without_continuation > 1%", 1, "| ✗ failed | `truncation_without_continuation > 1%` | 2.0% |"),
        ("truncation_without_continuation > 2%", 0, "| ✓ passed | `truncation_without_continuation > 2%` | 2.0% |"),
        ("unfinished_share>=0.02", 1, "| ✗ failed | `unfinished_share>=0.02` | 2.0% |"),
        ("unfinished > 1", 1, "| ✗ failed | `unfinished > 1` | 2 |"),
        # no responses were counted: there is no rate
        ("truncation > 0", 0, "| – no value | `truncation > 0` | nothing happened |"),
    ],
)
def test_a_condition_fails_a_build(file: Path, report: Report, condition: str, status: int, row: str) -> None:
    """By an indicator's name or title; percent or not. The report says what was measured and what it came to."""
    returned, text, _ = report("--file", file, "--fail-on", condition)
    assert returned == status
    assert row in text.splitlines()
    assert "| Truncation without continuation | 2.0% |" in text
    assert r"| `agent` | ``<b>\|`x`` | 0 | – | 100 | 2 | – | – |" in text


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
    figures = json.loads(text)
    assert (status, figures["values"]["unfinished_share"], figures["values"]["truncation"]) == (0, 0.02, None)
    assert figures["models"][0]["unfinished"] == 2
    status, text, _ = report("--file", file, "--format", "html")
    assert status == 0
    assert "2.0%" in text
    assert "&lt;b&gt;|`x" in text
    assert [word for word in ("<b>|", " src=", "<script", "<link", "url(", "@import", "://") if word in text] == []


def test_a_report_writes_nothing(file: Path, tmp_path: Path, report: Report) -> None:
    """What is read besides a kept file counts in the report, and is not in the file afterwards.

    Traces alone cannot be judged: status 3 says that a check could not look at everything.
    """
    traces, before = tmp_path / "traces.jsonl", file.read_bytes()
    cut = span(attributes=CUT | {"gen_ai.request.model": "extra"})
    ended = log("endturn.continuation_terminated", **{"endturn.turn.outcome": "not_continued"})
    traces.write_text(f"{json.dumps(cut)}\n{json.dumps(ended)}")
    status, text, _ = report("--file", file, traces)
    assert (status, "| `agent` | `extra` | not continued |" in text) == (0, True)
    assert f"- `{traces}`: 1 spans, 1 events, 0 metric points" in text
    assert file.read_bytes() == before
    assert set(tmp_path.iterdir()) == {file, traces}
    status, text, _ = report(traces, "--fail-on", "unfinished > 0")
    assert (status, "No metrics are in this file" in text) == (3, True)
    assert "| – no value | `unfinished > 0` | no metrics |" in text


# --- What it says -------------------------------------------------------------------------------------------------

NOON = 1_795_003_200 * SECOND
"""18 November 2026, 12:00:00 UTC."""


def traces(path: Path, *calls: dict[str, Any]) -> Path:
    """A file with one turn of one call each. `at` is its second after noon, `took` how many seconds it took."""
    lines = []
    for number, call in enumerate(calls, 1):
        at, took = call.pop("at", number), call.pop("took", 1)
        resource = {"service.name": call.pop("service", "agent")}
        attributes = {
            "endturn.turn.id": f"turn-{number:02}", "gen_ai.request.model": call.pop("model", "gpt-5"),
            "gen_ai.usage.output_tokens": call.pop("tokens", 40), **call,
        }  # fmt: skip
        start = NOON + at * SECOND
        request = span(
            attributes=attributes, resource=resource, start_ns=start, spanId=f"{number:016x}",
            endTimeUnixNano=str(start + took * SECOND),
        )  # fmt: skip
        lines.append(json.dumps(request))
    path.write_text("\n".join(lines))
    return path


def cut(**changed: Any) -> dict[str, Any]:
    """A call at its limit."""
    return CUT | {"gen_ai.request.max_tokens": 40} | changed


def listed(text: str) -> list[str]:
    """The turns of a report in HTML, in its order."""
    return re.findall(r'turn <code class="id">(turn-\d\d)</code>', text)


def test_the_head_names_period_files_and_version(tmp_path: Path, report: Report) -> None:
    """With how many records of each kind every file has; the verdict is the heading."""
    file = traces(tmp_path / "a.jsonl", cut(at=0), cut(at=60, took=30), {"at": 90, "took": 4})
    _, text, _ = report(file)
    assert text.startswith(
        "# endturn: 2 of 2 truncated turns were not continued.\n\n"
        r"- 2: `gpt-5` at max\_tokens 40; none of its truncated answers was finished, so no limit is known to be"
        " enough.\n\n"
        f"18 Nov 2026, 12:00:00 – 12:01:34 UTC. endturn {__version__}. File:\n\n"
        f"- `{file}`: 3 spans, 0 events, 0 metric points\n"
    )
    _, page, _ = report(file, "--format", "html")
    assert "<h1>2 of 2 truncated turns were not continued.</h1>" in page
    assert re.search(r"<dd>18 Nov 2026, 12:00:00 – 12:01:34 UTC <span class=\"dim n\">[^<]+</span></dd>", page)
    _, text, _ = report(file, "--format", "json")
    figures = json.loads(text)
    assert figures["period"] == {"start": "2026-11-18T12:00:00.000+00:00", "end": "2026-11-18T12:01:34.000+00:00"}
    assert figures["files"] == [{"name": str(file), "spans": 3, "events": 0, "metric_points": 0}]
    assert figures["verdict"] == "2 of 2 truncated turns were not continued."


@pytest.mark.parametrize(
    ("points", "verdict"),
    [
        ([], "No call to a model is recorded."),
        ([point(schema.RESPONSES, 5, endturn_stop_reason="max_tokens")],
         "5 of 5 responses were truncated; which turns they belong to is not recorded."),
        ([point(schema.TURNS, 9, endturn_turn_truncated="false", endturn_turn_outcome="completed")],
         "None of the 9 turns that ended was truncated."),
        ([point(schema.TURNS, 4, **TRUNCATED)], "All 4 truncated turns were finished."),
        ([point(schema.TURNS, 4, **TRUNCATED), point(schema.TRUNCATION_EXITS, 1, endturn_turn_outcome="retry_limit")],
         "1 of 4 truncated turns was continued, but not finished."),
    ],
)  # fmt: skip
def test_the_verdict_is_a_sentence(tmp_path: Path, report: Report, points: list[Point], verdict: str) -> None:
    file = tmp_path / "page.duckdb"
    store = Store(file)
    write(store, *points)
    store.close()
    _, text, _ = report("--file", file)
    assert text.splitlines()[0] == f"# endturn: {verdict}"


def test_the_report_says_which_limit_to_change(tmp_path: Path, report: Report) -> None:
    """The limit now, and the one that would do where an answer was finished; for programs too."""
    whole = {"endturn.turn.id": "turn-01", "endturn.turn.iteration": 2, "endturn.continuation.index": 1, "tokens": 60}
    file = traces(tmp_path / "a.jsonl", cut(), whole, cut(), cut(), cut(model="other"))
    change = "at max_tokens 40; 128 would have been enough for the one that was finished."
    _, page, _ = report(file, "--format", "html")
    words = " ".join(re.sub("<[^>]+>", " ", page).split())
    assert f"2 of them: gpt-5 {change}" in words
    assert "1 more: other at max_tokens 40; none of its truncated answers was finished" in words
    assert re.search('data-label="Limit now">40</td><td class="n" data-label="Would do"><b>128</b>', page)
    _, text, _ = report(file)
    assert "| `agent` | `gpt-5` | 4 | 75.0% | 3 | 2 | 40 | 128 |" in text
    assert "| `agent` | `other` | 1 | 100% | 1 | 1 | 40 | none finished |" in text
    _, text, _ = report(file, "--format", "json")
    row = json.loads(text)["models"][0]
    limits = {name: row[name] for name in ("model", "limit_lowest", "limit_highest", "limit_needed")}
    assert limits == {"model": "gpt-5", "limit_lowest": 40, "limit_highest": 40, "limit_needed": 128}


def test_the_worst_turns_come_first_and_the_others_are_counted(tmp_path: Path, report: Report) -> None:
    """Those that spent the most tokens, then those that took longest. Nothing is left out without a word."""
    calls = [cut(tokens=10) for _ in range(23)]
    calls[20] |= {"tokens": 90}
    calls[3] |= {"tokens": 50, "took": 2}
    calls[7] |= {"tokens": 50, "took": 9}
    file = traces(tmp_path / "a.jsonl", *calls, {}, {})
    _, page, _ = report(file, "--format", "html")
    assert listed(page)[:4] == ["turn-21", "turn-08", "turn-04", "turn-23"]
    assert len(listed(page)) == 20
    assert "The 20 worst of 23 unfinished turns" in page
    assert "First the turns that spent the most output tokens, then those that took longest." in page
    assert "and 3 more: endturn report --format json lists all of them" in page
    _, text, _ = report(file)
    assert len(re.findall(r"`turn-\d\d` \|$", text, re.M)) == 20
    assert "and 3 more: `endturn report --format json` lists all of them" in text
    _, text, _ = report(file, "--format", "json")
    rows = json.loads(text)["unfinished"]
    assert [row["turn_id"] for row in rows][:3] == ["turn-21", "turn-08", "turn-04"]
    assert len(rows) == 23
    assert rows[0] == {
        "turn_id": "turn-21", "trace_id": TRACE, "service": "agent", "provider": "openai", "model": "gpt-5",
        "reason": "max_tokens", "outcome": "not_continued", "calls": 1, "continuations": 0, "output_tokens": 90,
        "start": "2026-11-18T12:00:21.000+00:00", "duration_seconds": 1.0,
    }  # fmt: skip


def test_each_listed_turn_says_when_who_why_and_what_to_change(tmp_path: Path, report: Report) -> None:
    file = traces(tmp_path / "a.jsonl", cut(service="support", model="gpt-5-mini", took=150))
    _, page, _ = report(file, "--format", "html")
    (turn,) = re.findall(r'(?s)<ol class="worst">(.*?)</ol>', page)
    words = " ".join(re.sub("<[^>]+>", " ", turn).split())
    assert words.startswith(
        "gpt-5-mini in support 18 Nov 2026, 12:00:01 The answer reached its limit of 40 tokens, and nothing"
    )
    assert "What to change" in words
    assert "Raise max_tokens above 40" in words
    assert re.search(rf"40 output tokens in 1 call, 2 min 30 s · turn turn-01 · trace {TRACE}$", words)


def test_services_beyond_the_first_fifty_are_counted(tmp_path: Path, report: Report) -> None:
    file = traces(tmp_path / "a.jsonl", *({"service": f"service-{n:02}"} for n in range(53)))
    for format_ in ("html", "md"):
        _, text, _ = report(file, "--format", format_)
        assert list(dict.fromkeys(re.findall(r"service-\d\d", text))) == [f"service-{n:02}" for n in range(50)]
        assert "and 3 more services and models" in text
    _, text, _ = report(file, "--format", "json")
    assert len(json.loads(text)["models"]) == 53


def test_stop_reasons_are_one_bar(tmp_path: Path, report: Report) -> None:
    """As wide as their shares, with a label for those who do not see it; counted from spans where no metrics are."""
    calls = [{}, {}, {}, {}, {}, cut(), cut(), {"endturn.stop.reason": "tool_call", "endturn.stop.raw": "tool_calls"}]
    _, page, _ = report(traces(tmp_path / "a.jsonl", *calls), "--format", "html")
    (bar,) = re.findall(r'(?s)<svg class="shares".*?</svg>', page)
    label = "Responses by stop reason: end turn 62.5%, max tokens 25.0%, tool call 12.5%"
    assert f'role="img" aria-label="{label}"' in bar
    rectangles = re.findall(r'class="f-(\w+)" x="([\d.]+)%" width="([\d.]+)%"', bar)
    assert rectangles == [("good", "0", "62.5"), ("cut", "62.5", "25.0"), ("tool", "87.5", "12.5")]
    words = " ".join(re.sub("<[^>]+>", " ", page).split())
    assert "end turn 5 62.5% max tokens 2 25.0% tool call 1 12.5%" in words


def test_the_trend_is_drawn_in_the_page(tmp_path: Path, report: Report) -> None:
    """As SVG, with its values in a table behind it; where nothing was truncated the page says so."""
    _, page, _ = report(traces(tmp_path / "a.jsonl", cut(at=0), {"at": 300}, cut(at=600)), "--format", "html")
    (figure,) = re.findall(r'(?s)<figure class="plot" id="chart-trend">.*?</figure>', page)
    assert re.search(r'<svg [^>]*role="img" aria-label="[^"]*highest 100%', figure)
    assert "<table" in figure
    _, page, _ = report(traces(tmp_path / "b.jsonl", {}, {}), "--format", "html")
    assert "No truncated turn ended in this period." in page


def test_without_metrics_the_figures_are_counted_from_spans(tmp_path: Path, report: Report) -> None:
    """The truncation rate too, of all and of each model; errors are no responses in it."""
    error = {"endturn.stop.reason": "error", "error.type": "timeout"}
    file = traces(tmp_path / "a.jsonl", {}, {}, cut(), cut(model="other"), {}, error)
    _, text, _ = report(file)
    for row in (
        "| Truncation without continuation | 100% |", "| Turns | 6 |", "| Truncated turns | 2 |",
        "| Unfinished turns | 2 |", "| Responses | 6 |", "| Truncation rate | 40.0% |",
        "| `agent` | `gpt-5` | 5 | 25.0% | 5 | 1 | 40 | none finished |",
        "| `agent` | `other` | 1 | 100% | 1 | 1 | 40 | none finished |",
    ):  # fmt: skip
        assert row in text.splitlines()
    assert "the figures are counted from spans and events" in text


@pytest.mark.parametrize("content", [json.dumps({"resourceSpans": []}), ""])
def test_a_report_on_nothing_says_so(tmp_path: Path, report: Report, content: str) -> None:
    """A file whose spans are no model calls; an empty file, as of a job without calls."""
    file = tmp_path / "a.jsonl"
    file.write_text(content)
    for format_ in ("md", "html", "json"):
        status, text, _ = report(file, "--format", format_)
        assert (status, "No call to a model is recorded." in text) == (0, True)
    assert json.loads(text)["period"] is None


def test_unfinished_turns_without_spans_are_said_to_be_missing(file: Path, tmp_path: Path, report: Report) -> None:
    _, text, _ = report("--file", file)
    assert "The unfinished turns cannot be listed: no spans or events of them were passed." in text
    _, text, _ = report("--file", file, traces(tmp_path / "a.jsonl", cut()))
    assert "The metrics count 2 unfinished turns; spans or events of 1 were passed." in text


@pytest.mark.parametrize(
    ("name", "markdown"),
    [
        ("a|b", r"`a\|b`"),
        ("<b>@all</b> **x** [y](http://z)", "`<b>@all</b> **x** [y](http://z)`"),
        ("two\nlines\x1b[31m", "`two lines [31m`"),
        ("``", "``` `` ```"),
        ("a`b", "``a`b``"),
        ("مرحبا", "`مرحبا`"),
    ],
)
def test_a_name_stands_for_itself_in_markdown(tmp_path: Path, report: Report, name: str, markdown: str) -> None:
    """Nobody who chooses a service's name can put a row, a link, a mention or an escape sequence into a report."""
    _, text, _ = report(traces(tmp_path / "a.jsonl", {"service": name}))
    assert f"| {markdown} | `gpt-5` | 1 | 0% | 1 | 0 | – | none cut |" in text.splitlines()


def test_a_terminal_without_the_signs_fails_no_build(file: Path) -> None:
    """The report is UTF-8, as the page says of itself, whatever the locale is."""
    command = [sys.executable, "-m", "endturn", "report", "--file", str(file), "--fail-on", "unfinished > 2"]
    done = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
    assert "✓ passed" in done.stdout.decode("utf-8")


def test_a_report_has_no_message_text(tmp_path: Path, report: Report) -> None:
    message = '[{"role": "user", "parts": [{"type": "text", "content": "my secret question"}]}]'
    file = traces(tmp_path / "a.jsonl", cut(**{"gen_ai.input.messages": message, "gen_ai.output.messages": message}))
    for format_ in ("md", "html", "json"):
        assert "secret" not in report(file, "--format", format_)[1]


@pytest.mark.browser
def test_a_report_is_readable_at_any_width(tmp_path: Path, report: Report) -> None:
    """Nothing overflows, an id stays on one line, and the browser asks for nothing but the file."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert binary, "no Chromium: apt-get install chromium"
    names = ["<img src=x onerror=alert(1)>", "x" * 200, "مرحبا", "arn:aws:bedrock:eu-west-1:123456789012:model/a-v1:0"]
    calls = [cut(service=name, model=name) for name in names]
    page = tmp_path / "report.html"
    page.write_text(report(traces(tmp_path / "a.jsonl", *calls), "--format", "html")[1], encoding="utf-8")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        tab = browser.new_page()
        requests: set[str] = set()
        tab.on("request", lambda request: requests.add(request.url))
        for width in (360, 768, 1440):
            tab.set_viewport_size({"width": width, "height": 800})
            tab.goto(page.as_uri())
            assert requests == {page.as_uri()}
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            lines = tab.locator("code.id").evaluate_all("codes => codes.map(code => code.getClientRects().length)")
            assert set(lines) == {1}
        browser.close()


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
