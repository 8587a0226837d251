"""The pages as HTML: what they say of real agents' turns, and what they let through to a browser."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime
from html import unescape
from typing import Any

import duckdb
import pytest

from endturn.events import TurnOutcome
from endturn.telemetry import schema
from endturn.ui import otlp, server
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from endturn.ui.turns import ending
from tests.ui.support import SECOND, Served, log, point, span, span_of_others

PAGES = ("/", "/turns", "/turns?sort=worst", "/reasons", "/alerts")
HOSTILE = """</script><img src=x onerror="document.title='hit'">'";--{{7*7}}"""


@pytest.fixture(scope="module")
def demo() -> Iterator[tuple[Served, dict[str, Any]]]:
    """A page that the demo's agents have filled, and what the demo says of them."""
    store = Store()
    with server.serving(store, server.listen("127.0.0.1", 0)) as url:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        }
        command = [sys.executable, "-m", "endturn.cli", "demo", "--json"]
        done = subprocess.run(command, env=environment, check=True, timeout=120, capture_output=True, text=True)
        yield Served(url, store), json.loads(done.stdout)
    store.close()


def words(page: str) -> str:
    """The words of a page, without scripts and tags."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"(?s)<script.*?</script>|<[^>]+>", " ", page)))


def links(page: str, attribute: str = "href") -> list[str]:
    """Where a page's tags lead, or what they load."""
    return [unescape(value) for value in re.findall(rf'\b{attribute}="([^"]*)"', page)]


def test_the_overview_says_what_the_demo_says(demo: tuple[Served, dict[str, Any]]) -> None:
    """The headline and the table, number by number."""
    page, played = demo
    text = words(page.ask("/?range=all").text)
    rows = played["models"]
    cut = sum(row["truncated_turns"] for row in rows)
    left = sum(row["unfinished_turns"] for row in rows)
    assert f"{left / cut:.1%}" in text
    assert f"{left} of {cut} turns that were cut off were handed over unfinished" in text
    for row in rows:
        responses = sum(row["responses"].values())
        assert re.search(rf"{re.escape(row['model'])} {row['provider']} {responses} ", text), row["model"]


def test_every_turn_has_a_page_that_says_why_it_ended(demo: tuple[Served, dict[str, Any]]) -> None:
    """In words, with the drawing and the steps."""
    page, _ = demo
    turns = page.store.read_rows("SELECT * FROM turns")
    assert len(turns) == 40
    for turn in turns:
        text = page.ask(f"/turns/{turn['turn_id']}").text
        said = words(text)
        assert ("What to change" in said) == (turn["state"] != "whole"), turn
        assert "{" not in said
        assert '<svg class="timeline"' in text


def test_a_cut_and_continued_turn_is_drawn(demo: tuple[Served, dict[str, Any]]) -> None:
    """Three torn ends, three links to what took them up, the text at each seam, and the budget that was left."""
    page, _ = demo
    query = "SELECT turn_id FROM turns WHERE state = 'finished' AND continuations = 3"
    ((turn,),) = page.store.read(query)
    text = page.ask(f"/turns/{turn}").text
    assert text.count('class="torn"') == 3
    assert text.count('class="stitch"') == 3
    assert text.count('class="link"') == 6
    said = words(text)
    assert "Cut off, then finished" in said
    assert "somebody noticed and finished the" in said
    assert "Raise max_tokens to 128 or more: the whole answer has 128 tokens" in said
    for step, left in ((1, 120), (2, 80), (3, 40)):
        assert re.search(rf"Continuation {step} by prompt .* {left} ", said)


def test_without_recorded_words_the_seam_says_how_to_record_them(page: Served) -> None:
    """No text, and no empty box."""
    page.post(
        "traces",
        span(spanId="a1" * 8, attributes={"endturn.stop.reason": "max_tokens", "endturn.stop.truncated": True}),
    )
    page.post("traces", span(spanId="a2" * 8, attributes={"endturn.continuation.index": 1}))
    text = page.ask("/turns/t1").text
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in text
    assert 'class="stitch"' not in text


@pytest.mark.parametrize("outcome", TurnOutcome)
@pytest.mark.parametrize("cut_by", [None, "max_tokens", "context_window_exceeded", "missing", "end_turn"])
def test_every_outcome_has_a_sentence(outcome: TurnOutcome, cut_by: str | None) -> None:
    """With every gap filled, whatever is known of the turn."""
    for known in (True, False):
        turn: dict[str, Any] = dict.fromkeys(("model", "provider", "raw", "error", "reason"), "it" if known else None)
        turn |= {"outcome": outcome.value, "complete": False, "continuations": 2, "repairs": int(known)} | {
            "for_tools": known,
            "lone": known,
        }
        cut = {"reason": cut_by, "max_tokens": 40 if known else None, "output_tokens": 8}
        said = ending(turn, [cut, cut], tokens=80, repaired=False, in_tool=known)
        assert said["head"]
        assert said["why"]
        assert not re.search(r"[{}]|None|  ", " ".join(said.values()))


CUT = {"endturn.stop.reason": "max_tokens", "endturn.stop.raw": "length", "endturn.stop.truncated": True}
USED = {"gen_ai.request.max_tokens": 8, "gen_ai.usage.output_tokens": 8}
IN_TOOL = {"gen_ai.output.messages": '[{"parts": [{"type": "tool_call", "name": "weather", "arguments": {}}]}]'}


@pytest.mark.parametrize(
    ("event", "calls", "says"),
    [
        (
            "not_continued",
            [CUT | USED | IN_TOOL],
            "reached its limit of 8 tokens within a tool call, and nothing asked",
        ),
        ("not_continued", [CUT | USED | {"gen_ai.usage.output_tokens": 6}], "broke off after 6 of at most 8 tokens"),
        ("not_continued", [CUT | USED | {"gen_ai.usage.output_tokens": 6}], "max_tokens is not the cause"),
        ("not_continued", [CUT], "and nothing asked for the rest"),
        ("not_continued", [CUT, CUT | {"endturn.continuation.index": 1}], "asked for the rest once; the last piece"),
        ("", [{"endturn.stop.reason": "tool_call", "endturn.stop.raw": "tool_calls"}], "The model asked for tools"),
        ("", [{"endturn.stop.reason": "error", "error.type": "500"}, {}], "The model finished"),
    ],
)
def test_the_sentence_is_true(page: Served, event: str, calls: list[dict[str, Any]], says: str) -> None:
    """Of turns whose outcome alone does not tell what happened."""
    for number, attributes in enumerate(calls, 1):
        page.post("traces", span(spanId=f"{number:016x}", start_ns=number * SECOND, attributes=attributes))
    if event:
        page.post("logs", log("endturn.continuation_terminated", **{"endturn.turn.outcome": event}))
    assert says in words(page.ask("/turns/t1").text)


@pytest.mark.parametrize(("age_s", "head"), [(1, "Cut off, and waiting"), (1260, "nothing took it up")])
def test_another_instrumentation_s_cut_call_does_not_wait_for_ever(
    page: Served, monkeypatch: pytest.MonkeyPatch, age_s: int, head: str
) -> None:
    """It knows no turns, so nothing will say how they end; without metrics the overview counts them all the same."""
    known = {schema.OPERATION.key: "chat", schema.FINISH_REASONS.key: ["length"]}
    page.post("traces", span_of_others(known, start_ns=time.time_ns() - age_s * SECOND))
    (link,) = [link for link in links(page.ask("/turns").text) if link.startswith("/turns/")]
    said = words(page.ask(link).text)
    assert head in said
    assert "Tokens – in, – out" in said
    left = "1 of 1 turns that were cut off was handed over unfinished" in words(page.ask("/").text)
    assert left == (age_s > 30)
    monkeypatch.setattr("endturn.ui.store.SWEEP_S", 0.0)
    monkeypatch.setattr("endturn.ui.store.LINGER_NS", 0)
    for _ in range(2):  # the writer looks for such turns between batches
        page.store.write(Batch())
    assert "nothing took it up" in words(page.ask(link).text)


@pytest.mark.parametrize(("age_s", "state"), [(300, "open"), (900, "unfinished")])
def test_a_cut_turn_whose_events_do_not_come_ends(page: Served, age_s: int, state: str) -> None:
    """Where only traces are sent here. What comes later still counts."""
    page.post("traces", span(start_ns=time.time_ns() - age_s * SECOND, attributes=CUT))
    assert page.store.read("SELECT state FROM turns") == [(state,)]
    page.post("logs", log(schema.CONTINUATION_TERMINATED.name, **{schema.OUTCOME.key: "completed"}))
    assert page.store.read("SELECT state FROM turns") == [("finished",)]


def test_a_repair_is_no_continuation(demo: tuple[Served, dict[str, Any]]) -> None:
    """It is counted by itself, its bar says that it worked, and the call after it is the third."""
    page, _ = demo
    ((turn, row),) = page.store.read("SELECT turn_id, (continuations, repairs, calls) FROM turns WHERE repairs LIMIT 1")
    assert row == (0, 1, 3)
    said = words(page.ask(f"/turns/{turn}").text)
    assert "repaired: schema_mismatch" in said
    assert "Call 3 end turn" in said
    assert "Call 4" not in said
    assert "1 repair" in words(page.ask("/turns?range=all").text)


def test_events_within_a_millisecond_stand_in_the_order_of_cause(page: Served) -> None:
    """A clock that is read twice does not end a turn before its last call."""
    at = time.time_ns()
    page.post("traces", span(start_ns=at - SECOND))
    names = [schema.STOP_REASON_OBSERVED.name, schema.TOOL_DISPATCH_BLOCKED.name, schema.CONTINUATION_TERMINATED.name]
    for n, name in enumerate(reversed(names)):
        page.post("logs", log(name, timeUnixNano=str(at + n * 40_000)))
    assert re.findall(r'<span class="dim">(endturn\.\w+)</span>', page.ask("/turns/t1").text) == names


@pytest.mark.parametrize(("operation", "api"), [("chat", "openai.chat"), ("text_completion", "openai.completions")])
def test_a_stop_is_counted_under_one_api(page: Served, operation: str, api: str) -> None:
    """Of a provider whose APIs share a value, under the one that the span's operation is of."""
    page.post("traces", span(attributes={"gen_ai.operation.name": operation, **CUT}))
    seen = re.findall(
        r'<tr class="seen">.*?</td><td>.*?</td><td>([^<]*)</td><td class="n">(\d+)', page.ask("/reasons").text
    )
    assert seen == [(api, "1")]


def test_a_retry_replaces_the_attempt_that_failed_alone(page: Served) -> None:
    """What had been cut off before it is still a part of the answer."""
    calls: list[dict[str, Any]] = [
        CUT | {schema.OUTPUT_TOKENS.key: 3, schema.REQUEST_MAX_TOKENS.key: 3},
        {schema.REASON.key: "error", schema.ERROR_TYPE.key: "500"},
        {schema.OUTPUT_TOKENS.key: 5},
    ]
    for index, (said, strategy) in enumerate(zip(calls, ("", "prompt", "retry"), strict=True)):
        nth = {schema.CONTINUATION_INDEX.key: index} if index else {}
        linked = [f"{1:016x}"] if index else []
        page.post(
            "traces",
            span(spanId=f"{index + 1:016x}", start_ns=(index + 1) * SECOND, links=linked, attributes=said | nth),
        )
        if index:
            page.post("logs", log(schema.CONTINUATION_ATTEMPT.name, **nth | {schema.STRATEGY.key: strategy}))
    text = page.ask("/turns/t1").text
    assert "the whole answer has 8 tokens" in words(text)
    assert re.findall(r'<rect class="([^"]*)" x="1.5"', text) == ["f-cut", "f-good"]


@pytest.mark.parametrize("odd", [{schema.ATTEMPTS_LEFT.key: "many"}, {schema.CONTINUATION_INDEX.key: [1]}], ids=str)
def test_an_event_s_odd_attributes_leave_its_turn_a_page(page: Served, odd: dict[str, Any]) -> None:
    """What is no number is as if it had not been said."""
    page.post("traces", span(attributes={schema.CONTINUATION_INDEX.key: 1}))
    page.post("logs", log(schema.CONTINUATION_ATTEMPT.name, **{schema.CONTINUATION_INDEX.key: 1} | odd))
    assert page.ask("/turns/t1").status == 200


def test_a_long_turn_says_what_it_leaves_out(page: Served) -> None:
    """It shows how the turn began, and how it ended."""
    (row,) = otlp.read("traces", otlp.JSON, json.dumps(span()).encode()).spans
    page.store.write(Batch(spans=[row | {"span_id": f"{n:016x}", "start_ns": n, "raw": f"raw{n}"} for n in range(250)]))
    text = page.ask("/turns/t1").text
    assert "50 spans of its middle are not shown" in text
    assert [f"raw{n}" in text for n in (0, 120, 249)] == [True, False, True]


def test_the_vocabulary_is_searched_and_says_what_was_seen(demo: tuple[Served, dict[str, Any]]) -> None:
    """By value, by our word, by API; and what has no row stands on top."""
    page, _ = demo
    text = words(page.ask("/reasons?range=all&q=pause_turn").text)
    assert "anthropic.messages" in text
    assert "paused" in text
    assert "In no table: tokens_exhausted (2 times)" in text
    assert words(page.ask("/reasons").text).count("anthropic.messages") > 5
    assert "No such value" in page.ask("/reasons?q=nonsense").text


def test_what_is_empty_says_what_would_fill_it(page: Served) -> None:
    """With the line to copy."""
    for path in ("/", "/turns"):
        text = page.ask(path).text
        assert f"export OTEL_EXPORTER_OTLP_ENDPOINT={page.url}" in text
        assert "data-copy" in text


@pytest.mark.parametrize(
    ("path", "status", "says"),
    [("/turns/none", 404, "This turn is not here"), ("/metrics", 404, "There is no such page"),
     ("/turns?range=zzz", 200, "There is no time range zzz : this is all")],
)  # fmt: skip
def test_what_is_not_there_is_said_with_a_way_back(page: Served, path: str, status: int, says: str) -> None:
    """On a page of its own, or above what is shown instead."""
    answer = page.ask(path)
    assert (answer.status, says in words(answer.text)) == (status, True)
    assert any(link in links(answer.text) for link in ("/turns", "/", "?range=all"))


def test_a_filter_is_undone(page: Served) -> None:
    """The link keeps what is no filter."""
    page.post("traces", span())
    undo = '<a class="dim" href="?state=whole">Reset</a>'
    assert [undo in page.ask(f"/turns?state=whole{more}").text for more in ("", "&model=gpt-5", "&range=1h")] == [
        False, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize(("sort", "says"), [("newest", "← Newer|Older →"), ("worst", "← Back|More →")])
def test_pages_are_named_by_their_order(page: Served, sort: str, says: str) -> None:
    """Only under the newest are the next ones older."""
    (row,) = otlp.read("traces", otlp.JSON, json.dumps(span()).encode()).spans
    ids = [f"{n:016x}" for n in range(101)]
    page.store.write(Batch(spans=[row | {"span_id": each, "turn_id": each} for each in ids]))
    text = page.ask(f"/turns?sort={sort}&page=1").text
    assert re.findall(r"← \w+|\w+ →", text) == says.split("|")
    assert '<td class="minor"><span class="name">agent</span></td>' in text


@pytest.mark.parametrize("path", PAGES)
def test_a_page_runs_nothing_that_is_not_its_own(demo: tuple[Served, dict[str, Any]], path: str) -> None:
    """No inline script or style, nothing of another site, and a policy that says so."""
    page, _ = demo
    answer = page.ask(path)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not re.findall(r"<[^>]*\s(?:style|on\w+)=", answer.text)
    loaded = links(answer.text, "src") + links("".join(re.findall(r"<link[^>]*>", answer.text)))
    assert len(loaded) == 5
    assert all(value.startswith("/static/") for value in loaded)
    assert re.findall(r"<script(?![^>]*src=)[^>]*>", answer.text) == (
        ['<script type="application/json" id="charts">'] if path == "/" else []
    )
    for value in loaded:
        assert page.ask(value).status == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1", 200), ("localhost:9", 200), ("[::1]:80", 200), ("evil.example", 421),
     ("127.0.0.1.evil.example", 421), ("", 421)],
)  # fmt: skip
def test_another_name_for_this_machine_is_refused(page: Served, host: str, status: int) -> None:
    """A site that points its own name at 127.0.0.1 reads nothing."""
    assert page.ask("/", headers={"Host": host}).status == status


@pytest.mark.parametrize(("origin", "status"), [(None, 200), ("own", 200), ("http://evil.example", 403), ("null", 403)])
def test_another_site_cannot_write(page: Served, origin: str | None, status: int) -> None:
    """A page elsewhere makes a browser post here: its Origin gives it away."""
    headers = {"Content-Type": "application/x-protobuf"}
    if origin:
        headers["Origin"] = page.url if origin == "own" else origin
    assert page.ask("/v1/traces", b"", headers).status == status


@pytest.mark.parametrize(
    "query",
    ["range=x", "from=1&to=0", "from=9999999999999999&to=1", "from=a&to=b", "page=-1", "page=99999999", "page=x",
     "sort=drop", "state=%27", "service=%27%3B+DROP+TABLE+turns", "model=%00", "range=all&service=no"],
)  # fmt: skip
def test_an_address_that_makes_no_sense_shows_a_page(demo: tuple[Served, dict[str, Any]], query: str) -> None:
    """What cannot be read of it is as if it were not there."""
    page, _ = demo
    for path in ("/", "/turns", "/reasons", "/alerts"):
        assert page.ask(f"{path}?{query}").status == 200


def test_tables_come_as_csv_and_parquet(
    demo: tuple[Served, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All of them, within the view."""
    page, _ = demo
    answer = page.ask("/export/turns.csv?range=all&model=gpt-5")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert len(rows) == 8
    assert {row["model"] for row in rows} == {"gpt-5"}
    assert all(datetime.fromisoformat(row["started"]).tzinfo for row in rows)
    assert 'filename="endturn-turns.csv"' in answer.headers["content-disposition"]
    for table in ("turns", "calls", "events", "numbers"):
        file = tmp_path_factory.mktemp("export") / "table.parquet"
        file.write_bytes(page.ask(f"/export/{table}.parquet?range=all").content)
        ((count,),) = duckdb.connect().execute(f"SELECT count(*) FROM '{file}'").fetchall()
        assert count >= 40
    assert page.ask("/export/secrets.csv").status == 404


def test_a_spreadsheet_runs_nothing_of_a_csv(page: Served) -> None:
    """A text that would be a formula there begins with an apostrophe; a number does not."""
    for n, raw in enumerate(("=1+1", "@cmd", "+1", "-1", "plain = not"), 1):
        attributes = {"endturn.stop.raw": raw, "gen_ai.usage.output_tokens": -n}
        page.post("traces", span(spanId=f"{n:016x}", attributes=attributes))
    rows = csv.DictReader(io.StringIO(page.ask("/export/calls.csv").text))
    assert {row["raw"]: row["output_tokens"] for row in rows} == {
        "'=1+1": "-1", "'@cmd": "-2", "'+1": "-3", "'-1": "-4", "plain = not": "-5",
    }  # fmt: skip


def test_tables_hold_what_the_tab_shows(page: Served) -> None:
    """Unfinished turns, and their calls and events alone."""
    page.post("traces", span(spanId="a1" * 8))
    page.post("traces", span(spanId="a2" * 8, attributes=CUT | {"endturn.turn.id": "t2"}))
    for turn in ("t1", "t2"):
        outcome = {"endturn.turn.id": turn, "endturn.turn.outcome": "not_continued" if turn == "t2" else "completed"}
        page.post("logs", log("endturn.continuation_terminated", **outcome))
    for table in ("turns", "calls", "events"):
        rows = csv.DictReader(io.StringIO(page.ask(f"/export/{table}.csv?state=unfinished").text))
        assert [row["turn_id"] for row in rows] == ["t2"]


def test_a_turn_s_id_may_be_any_text(page: Served) -> None:
    """The table's link leads to its page."""
    odd = "run/7?a=b#c %2F"
    page.post("traces", span(attributes={"endturn.turn.id": odd}))
    (link,) = [link for link in links(page.ask("/turns").text) if link.startswith("/turns/")]
    answer = page.ask(link)
    assert (answer.status, odd in words(answer.text)) == (200, True)


def test_the_last_page_of_many_turns_says_how_to_see_the_others(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """However far an address goes: a page costs a sort of all those before it."""
    monkeypatch.setattr("endturn.ui.turns.DEEPEST", 1)
    batch = Batch()
    for number in range(120):
        request = span(spanId=f"{number:016x}", attributes={"endturn.turn.id": f"t{number}"})
        batch.add(otlp.read("traces", otlp.JSON, json.dumps(request).encode()))
    page.store.write(batch)
    assert "Choose a shorter time" not in page.ask("/turns").text
    deepest = words(page.ask("/turns?page=10000").text)
    assert "51–100 of 120" in deepest
    assert "Choose a shorter time" in deepest


def test_many_names_leave_a_page_its_size(page: Served) -> None:
    """Those with most have a row, the others are counted together."""
    now = time.time_ns()
    points = [point(schema.RESPONSES, n + 1, now, gen_ai_request_model=f"m{n}") for n in range(300)]
    page.store.write(Batch(points=points))
    text = page.ask("/").text
    assert len(text) < 100_000
    assert "250 others" in text
    assert '<span class="name">m299<' in text
    assert '<span class="name">m249<' not in text


def test_a_search_outlives_another_range(page: Served) -> None:
    """Every range's link holds it, and so do the filters."""
    ranges = [link for link in links(page.ask("/reasons?q=pause").text) if link.startswith("?")]
    assert len(ranges) == 6
    assert all("q=pause" in link for link in ranges)


def test_where_a_service_runs_is_chosen(page: Served) -> None:
    """By environment and cluster, on spans and metrics; the choice is only offered where there is one."""
    assert 'name="environment"' not in page.ask("/turns").text
    for n, where in enumerate(("staging", "production"), 1):
        resource = {"attributes": [
            {"key": "deployment.environment.name", "value": {"stringValue": where}},
            {"key": "k8s.cluster.name", "value": {"stringValue": f"eu-{n}"}},
        ]}  # fmt: skip
        traces = span(spanId=f"{n:016x}", attributes={"endturn.turn.id": where})
        traces["resourceSpans"][0]["resource"] = resource
        assert page.post("traces", traces).status == 200
        points = [{"startTimeUnixNano": str(time.time_ns() - SECOND), "timeUnixNano": str(time.time_ns()), "asInt": n}]
        counter = {"name": schema.TURNS.name, "sum": {"aggregationTemporality": 1, "dataPoints": points}}
        metrics = {"resourceMetrics": [{"resource": resource, "scopeMetrics": [{"metrics": [counter]}]}]}
        assert page.post("metrics", metrics).status == 200
    for query in ("environment=production", "cluster=eu-2"):
        assert "None of the 2 turns" in words(page.ask(f"/?{query}").text)
        text = page.ask(f"/turns?{query}").text
        assert ("/turns/production?" in text, "/turns/staging?" in text) == (True, False)
        assert '<select name="environment">' in text
        assert "production" in page.ask(f"/export/numbers.csv?{query}").text
