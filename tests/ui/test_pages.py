"""The pages as HTML: what they say of real agents' turns, and what they let through to a browser."""

from __future__ import annotations

import csv
import io
import re
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from endturn.events import TurnOutcome
from endturn.telemetry import schema
from endturn.ui import server
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from endturn.ui.turns import ending
from tests.ui.support import CUT, SECOND, Served, batch, counted, demo, log, point, span, span_of_others

PAGES = ("/", "/turns", "/turns?sort=worst", "/reasons", "/alerts")


@pytest.fixture(scope="module")
def played() -> Iterator[tuple[Served, Any]]:
    """A page that the demo's agents have filled, and what the demo says of them."""
    with closing(Store()) as store, server.serving(store, server.listen("127.0.0.1", 0)) as url:
        told = demo(url, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="SPAN_ONLY")
        yield Served(url, store), told


def exported(page: Served, path: str) -> list[dict[str, str]]:
    """The rows of a table as CSV."""
    return list(csv.DictReader(io.StringIO(page.ask(f"/export/{path}").text)))


def turn_link(page: Served) -> str:
    """Where the one turn of the table leads."""
    (link,) = [link for link in page.ask("/turns").links() if link.startswith("/turns/")]
    return link


# --- What is said of turns ----------------------------------------------------------------------------------------


def test_the_overview_says_what_the_demo_says(played: tuple[Served, Any]) -> None:
    """The headline and the table, number by number."""
    page, told = played
    text, rows = page.ask("/?range=all").words, told["models"]
    cut, left = (sum(row[which] for row in rows) for which in ("truncated_turns", "unfinished_turns"))
    assert f"{left / cut:.1%}" in text
    assert f"{left} of {cut} turns that were cut off were handed over unfinished" in text
    for row in rows:
        responses = sum(row["responses"].values())
        assert re.search(rf"{re.escape(row['model'])} {row['provider']} {responses} ", text), row["model"]


def test_every_turn_has_a_page_that_says_why_it_ended(played: tuple[Served, Any]) -> None:
    """In words, with the drawing and the steps."""
    page, _ = played
    turns = page.store.read_rows("SELECT * FROM turns")
    assert len(turns) == 40
    for turn in turns:
        answer = page.ask(f"/turns/{turn['turn_id']}")
        assert ("What to change" in answer.words) == (turn["state"] != "whole"), turn
        assert "{" not in answer.words
        assert '<svg class="timeline"' in answer.text


def test_a_cut_and_continued_turn_is_drawn(played: tuple[Served, Any]) -> None:
    """Three torn ends, three links to what took them up, the text at each seam, and the budget that was left."""
    page, _ = played
    ((turn,),) = page.store.read("SELECT turn_id FROM turns WHERE state = 'finished' AND continuations = 3")
    answer = page.ask(f"/turns/{turn}")
    assert [answer.text.count(f'class="{part}"') for part in ("torn", "stitch", "link")] == [3, 3, 6]
    for says in (
        "Cut off, then finished", "somebody noticed and finished the",
        "Raise max_tokens to 128 or more: the whole answer has 128 tokens",
    ):  # fmt: skip
        assert says in answer.words
    for step, left in ((1, 120), (2, 80), (3, 40)):
        assert re.search(rf"Continuation {step} by prompt .* {left} ", answer.words)


def test_a_repair_is_no_continuation(played: tuple[Served, Any]) -> None:
    """It is counted by itself, its bar says that it worked, and the call after it is the third."""
    page, _ = played
    ((turn, row),) = page.store.read("SELECT turn_id, (continuations, repairs, calls) FROM turns WHERE repairs LIMIT 1")
    assert row == (0, 1, 3)
    said = page.ask(f"/turns/{turn}").words
    found = [each in said for each in ("repaired: schema_mismatch", "Call 3 end turn", "Call 4")]
    assert found == [True, True, False]
    assert "1 repair" in page.ask("/turns?range=all").words


def test_without_recorded_words_the_seam_says_how_to_record_them(page: Served) -> None:
    """No text, and no empty box."""
    page.told(CUT, {"endturn.continuation.index": 1})
    text = page.ask("/turns/t1").text
    assert "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in text
    assert 'class="stitch"' not in text


@pytest.mark.parametrize("outcome", TurnOutcome)
@pytest.mark.parametrize("cut_by", [None, "max_tokens", "context_window_exceeded", "missing", "end_turn"])
def test_every_outcome_has_a_sentence(outcome: TurnOutcome, cut_by: str | None) -> None:
    """With every gap filled, whatever is known of the turn."""
    for known in (True, False):
        turn: dict[str, Any] = dict.fromkeys(("model", "provider", "raw", "error", "reason"), "it" if known else None)
        turn |= {"outcome": outcome.value, "complete": False, "continuations": 2, "repairs": int(known)}
        cut = {"reason": cut_by, "max_tokens": 40 if known else None, "output_tokens": 8}
        turn |= {"for_tools": known, "lone": known}
        said = ending(turn, [cut, cut], tokens=80, repaired=False, in_tool=known)
        assert said["head"]
        assert said["why"]
        assert not re.search(r"[{}]|None|  ", " ".join(said.values()))


USED = CUT | {"gen_ai.request.max_tokens": 8, "gen_ai.usage.output_tokens": 8}
IN_TOOL = {"gen_ai.output.messages": '[{"parts": [{"type": "tool_call", "name": "weather", "arguments": {}}]}]'}
EARLY, FAILED = USED | {"gen_ai.usage.output_tokens": 6}, {"endturn.stop.reason": "error", "error.type": "500"}


@pytest.mark.parametrize(
    ("event", "calls", "says"),
    [
        ("not_continued", [USED | IN_TOOL], "reached its limit of 8 tokens within a tool call, and nothing asked"),
        ("not_continued", [EARLY], "broke off after 6 of at most 8 tokens"),
        ("not_continued", [EARLY], "max_tokens is not the cause"),
        ("not_continued", [CUT], "and nothing asked for the rest"),
        ("not_continued", [CUT, CUT | {"endturn.continuation.index": 1}], "asked for the rest once; the last piece"),
        ("", [{"endturn.stop.reason": "tool_call", "endturn.stop.raw": "tool_calls"}], "The model asked for tools"),
        ("", [FAILED, {}], "The model finished"),
    ],
)
def test_the_sentence_is_true(page: Served, event: str, calls: list[dict[str, Any]], says: str) -> None:
    """Of turns whose outcome alone does not tell what happened."""
    page.told(*calls, begun_ns=0)
    if event:
        page.post("logs", log("endturn.continuation_terminated", **{"endturn.turn.outcome": event}))
    assert says in page.ask("/turns/t1").words


@pytest.mark.parametrize(("age_s", "head"), [(1, "Cut off, and waiting"), (1260, "nothing took it up")])
def test_another_instrumentation_s_cut_call_does_not_wait_for_ever(
    page: Served, monkeypatch: pytest.MonkeyPatch, age_s: int, head: str
) -> None:
    """It knows no turns, so nothing will say how they end; without metrics the overview counts them all the same."""
    known = {schema.OPERATION.key: "chat", schema.FINISH_REASONS.key: ["length"]}
    page.post("traces", span_of_others(known, start_ns=time.time_ns() - age_s * SECOND))
    link = turn_link(page)
    said = page.ask(link).words
    assert head in said
    assert "Tokens – in, – out" in said
    left = "1 of 1 turns that were cut off was handed over unfinished" in page.ask("/").words
    assert left == (age_s > 30)
    monkeypatch.setattr("endturn.ui.store.SWEEP_S", 0.0)
    monkeypatch.setattr("endturn.ui.store.LINGER_NS", 0)
    for _ in range(2):  # the writer looks for such turns between batches
        page.store.write(Batch())
    assert "nothing took it up" in page.ask(link).words


@pytest.mark.parametrize(("age_s", "state"), [(300, "open"), (900, "unfinished")])
def test_a_cut_turn_whose_events_do_not_come_ends(page: Served, age_s: int, state: str) -> None:
    """Where only traces are sent here. What comes later still counts."""
    page.post("traces", span(start_ns=time.time_ns() - age_s * SECOND, attributes=CUT))
    assert page.store.read("SELECT state FROM turns") == [(state,)]
    page.post("logs", log(schema.CONTINUATION_TERMINATED.name, **{schema.OUTCOME.key: "completed"}))
    assert page.store.read("SELECT state FROM turns") == [("finished",)]


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
    row = r'<tr class="seen">.*?</td><td>.*?</td><td>([^<]*)</td><td class="n">(\d+)'
    assert re.findall(row, page.ask("/reasons").text) == [(api, "1")]


def test_a_retry_replaces_the_attempt_that_failed_alone(page: Served) -> None:
    """What had been cut off before it is still a part of the answer."""
    first = CUT | {schema.OUTPUT_TOKENS.key: 3, schema.REQUEST_MAX_TOKENS.key: 3}
    page.post("traces", span(spanId=f"{1:016x}", start_ns=SECOND, attributes=first))
    for index, said, strategy in ((1, FAILED, "prompt"), (2, {schema.OUTPUT_TOKENS.key: 5}, "retry")):
        nth = {schema.CONTINUATION_INDEX.key: index}
        start = (index + 1) * SECOND
        page.post(
            "traces", span(spanId=f"{index + 1:016x}", start_ns=start, links=[f"{1:016x}"], attributes=said | nth)
        )
        page.post("logs", log(schema.CONTINUATION_ATTEMPT.name, **nth, **{schema.STRATEGY.key: strategy}))
    answer = page.ask("/turns/t1")
    assert "the whole answer has 8 tokens" in answer.words
    assert re.findall(r'<rect class="([^"]*)" x="1.5"', answer.text) == ["f-cut", "f-good"]


@pytest.mark.parametrize("odd", [{schema.ATTEMPTS_LEFT.key: "many"}, {schema.CONTINUATION_INDEX.key: [1]}], ids=str)
def test_an_event_s_odd_attributes_leave_its_turn_a_page(page: Served, odd: dict[str, Any]) -> None:
    """What is no number is as if it had not been said."""
    page.told({schema.CONTINUATION_INDEX.key: 1})
    page.post("logs", log(schema.CONTINUATION_ATTEMPT.name, **{schema.CONTINUATION_INDEX.key: 1} | odd))
    assert page.ask("/turns/t1").status == 200


def test_a_long_turn_says_what_it_leaves_out(page: Served) -> None:
    """It shows how the turn began, and how it ended."""
    page.store.write(batch(span(), count=250, start_ns=lambda n: n, raw="raw{n}"))
    text = page.ask("/turns/t1").text
    assert "50 spans of its middle are not shown" in text
    assert [f"raw{n}" in text for n in (0, 120, 249)] == [True, False, True]


# --- Searches, choices, addresses ---------------------------------------------------------------------------------


def test_the_vocabulary_is_searched_and_says_what_was_seen(played: tuple[Served, Any]) -> None:
    """By value, by our word, by API; what has no row stands on top. The other ranges keep the search."""
    page, _ = played
    answer = page.ask("/reasons?range=all&q=pause_turn")
    for says in ("anthropic.messages", "paused", "In no table: tokens_exhausted (2 times)"):
        assert says in answer.words
    assert [link for link in answer.links() if link.startswith("?") and "q=pause" not in link] == []
    assert page.ask("/reasons").words.count("anthropic.messages") > 5
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
    assert (answer.status, says in answer.words) == (status, True)
    assert any(link in answer.links() for link in ("/turns", "/", "?range=all"))


def test_a_filter_is_undone(page: Served) -> None:
    """The link keeps what is no filter."""
    page.told({})
    undo = '<a class="dim" href="?state=whole">Reset</a>'
    found = [undo in page.ask(f"/turns?state=whole{more}").text for more in ("", "&model=gpt-5", "&range=1h")]
    assert found == [False, True, True]


@pytest.mark.parametrize(("sort", "says"), [("newest", "← Newer|Older →"), ("worst", "← Back|More →")])
def test_pages_are_named_by_their_order(page: Served, monkeypatch: pytest.MonkeyPatch, sort: str, says: str) -> None:
    """Only under the newest are the next ones older; the last says how to see the others, however far one goes."""
    page.store.write(batch(span(), count=120, turn_id="{n:016x}"))
    text = page.ask(f"/turns?sort={sort}&page=1").text
    assert re.findall(r"← \w+|\w+ →", text) == says.split("|")
    assert '<td class="minor"><span class="name">agent</span></td>' in text
    monkeypatch.setattr("endturn.ui.turns.DEEPEST", 1)  # a page costs a sort of all those before it
    assert "Choose a shorter time" not in page.ask("/turns").text
    deepest = page.ask("/turns?page=10000").words
    assert ("51–100 of 120" in deepest, "Choose a shorter time" in deepest) == (True, True)


def test_a_turn_s_id_may_be_any_text(page: Served) -> None:
    """The table's link leads to its page."""
    odd = "run/7?a=b#c %2F"
    page.told({"endturn.turn.id": odd})
    answer = page.ask(turn_link(page))
    assert (answer.status, odd in answer.words) == (200, True)


def test_many_names_leave_a_page_its_size(page: Served) -> None:
    """Those with most have a row, the others are counted together."""
    points = [point(schema.RESPONSES, n + 1, gen_ai_request_model=f"m{n}") for n in range(300)]
    page.store.write(Batch(points=points))
    text = page.ask("/").text
    assert len(text) < 100_000
    assert "250 others" in text
    assert ['<span class="name">m299<' in text, '<span class="name">m249<' in text] == [True, False]


def test_where_a_service_runs_is_chosen(page: Served) -> None:
    """By environment and cluster, on spans and metrics; the choice is only offered where there is one."""
    assert 'name="environment"' not in page.ask("/turns").text
    now = time.time_ns()
    for n, where in enumerate(("staging", "production"), 1):
        resource = {"deployment.environment.name": where, "k8s.cluster.name": f"eu-{n}"}
        traces = span(spanId=f"{n:016x}", attributes={"endturn.turn.id": where}, resource=resource)
        assert page.post("traces", traces).status == 200
        assert page.post("metrics", counted((now - SECOND, now, n), delta=True, resource=resource)).status == 200
    for query in ("environment=production", "cluster=eu-2"):
        assert "None of the 2 turns" in page.ask(f"/?{query}").words
        text = page.ask(f"/turns?{query}").text
        assert ("/turns/production?" in text, "/turns/staging?" in text) == (True, False)
        assert '<select name="environment">' in text
        assert "production" in page.ask(f"/export/numbers.csv?{query}").text


@pytest.mark.parametrize(
    "query",
    ["range=x", "from=1&to=0", "from=9999999999999999&to=1", "from=a&to=b", "page=-1", "page=99999999", "page=x",
     "sort=drop", "state=%27", "service=%27%3B+DROP+TABLE+turns", "model=%00", "range=all&service=no"],
)  # fmt: skip
def test_an_address_that_makes_no_sense_shows_a_page(played: tuple[Served, Any], query: str) -> None:
    """What cannot be read of it is as if it were not there."""
    assert [played[0].ask(f"{path}?{query}").status for path in ("/", "/turns", "/reasons", "/alerts")] == [200] * 4


# --- What a browser is let do -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PAGES)
def test_a_page_runs_nothing_that_is_not_its_own(played: tuple[Served, Any], path: str) -> None:
    """No inline script or style, nothing of another site, and a policy that says so."""
    page, _ = played
    answer = page.ask(path)
    assert answer.status == 200
    policy = answer.headers["content-security-policy"]
    assert [word in policy for word in ("default-src 'none'", "unsafe", "http")] == [True, False, False]
    assert not re.findall(r"<[^>]*\s(?:style|on\w+)=", answer.text)
    linked = [*re.findall(r'<link[^>]*\bhref="([^"]*)"', answer.text), *answer.links("src")]
    assert [page.ask(value).status for value in linked if value.startswith("/static/")] == [200] * 5
    assert len(linked) == 5
    scripts = re.findall(r"<script(?![^>]*src=)[^>]*>", answer.text)
    assert scripts == ['<script type="application/json" id="charts">'] * (path == "/")


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
    said = {"Origin": page.url if origin == "own" else origin} if origin else {}
    assert page.ask("/v1/traces", b"", {"Content-Type": "application/x-protobuf", **said}).status == status


# --- Tables to take away ------------------------------------------------------------------------------------------


def test_tables_come_as_csv_and_parquet(played: tuple[Served, Any], tmp_path: Path) -> None:
    """All of them, within the view."""
    page, _ = played
    rows = exported(page, "turns.csv?range=all&model=gpt-5")
    assert [row["model"] for row in rows] == ["gpt-5"] * 8
    assert all(datetime.fromisoformat(row["started"]).tzinfo for row in rows)
    said = page.ask("/export/turns.csv?range=all").headers["content-disposition"]
    assert 'filename="endturn-turns.csv"' in said
    for table in ("turns", "calls", "events", "numbers"):
        file = tmp_path / f"{table}.parquet"
        file.write_bytes(page.ask(f"/export/{table}.parquet?range=all").content)
        ((count,),) = duckdb.connect().execute(f"SELECT count(*) FROM '{file}'").fetchall()
        assert count >= 40
    assert page.ask("/export/secrets.csv").status == 404


def test_a_spreadsheet_runs_nothing_of_a_csv(page: Served) -> None:
    """A text that would be a formula there begins with an apostrophe; a number does not."""
    texts = ("=1+1", "@cmd", "+1", "-1", "plain = not")
    page.told(*({"endturn.stop.raw": raw, "gen_ai.usage.output_tokens": -n} for n, raw in enumerate(texts, 1)))
    written = {"'=1+1": "-1", "'@cmd": "-2", "'+1": "-3", "'-1": "-4", "plain = not": "-5"}
    assert {row["raw"]: row["output_tokens"] for row in exported(page, "calls.csv")} == written


def test_tables_hold_what_the_tab_shows(page: Served) -> None:
    """Unfinished turns, and their calls and events alone."""
    page.told({}, CUT | {"endturn.turn.id": "t2"})
    for turn, outcome in (("t1", "completed"), ("t2", "not_continued")):
        ended = {"endturn.turn.id": turn, "endturn.turn.outcome": outcome}
        page.post("logs", log("endturn.continuation_terminated", **ended))
    for table in ("turns", "calls", "events"):
        assert [row["turn_id"] for row in exported(page, f"{table}.csv?state=unfinished")] == ["t2"]
