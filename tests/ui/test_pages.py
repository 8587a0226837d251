"""The pages as HTML: what they say of real agents' turns, and what they let through to a browser."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import Any

import duckdb
import pytest

from endturn.calls.outcomes import TurnOutcome
from endturn.telemetry import schema
from endturn.ui import server
from endturn.ui.endings import TurnFacts, ending
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from tests.ui.support import Served, batch, demo, numbers, point, span, span_of_others, turn_link

PAGES = ("/", "/turns", "/turns?sort=worst", "/reasons", "/alerts")


@pytest.fixture(scope="module")
def played() -> Iterator[tuple[Served, Any]]:
    """A page that the demo's agents have filled, and what the demo says of them: gzipped, and metrics as deltas."""
    how = {"COMPRESSION": "gzip", "METRICS_TEMPORALITY_PREFERENCE": "delta"}
    variables = {f"OTEL_EXPORTER_OTLP_{name}": value for name, value in how.items()}
    variables |= {
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "30",  # also how long its end waits: all is to arrive, however slow the machine
    }
    with closing(Store()) as store, server.serving(store, server.listen("127.0.0.1", 0)) as url:
        told = demo(url, **variables)
        yield Served(url, store), told


# --- What is said of turns ----------------------------------------------------------------------------------------


def test_the_overview_says_what_the_demo_says(played: tuple[Served, Any]) -> None:
    """The headline and the table, number by number; each response is a span, a count and a measurement."""
    page, told = played
    text, rows = page.ask("/?range=all").words, told["models"]
    cut, left = (sum(row[which] for row in rows) for which in ("truncated_turns", "unfinished_turns"))
    assert f"{left / cut:.1%}" in text
    assert f"{left} of {cut} truncated turns were not continued. Show the {left}" in text
    for row in rows:
        responses = sum(row["responses"].values())
        numbers_of = (
            rf"{re.escape(row['model'])} {row['provider']} {row['unfinished_turns']} .* {responses} {row['turns']} "
        )
        assert re.search(numbers_of, text), row["model"]
    every = sum(sum(row["responses"].values()) for row in rows)
    measured = sum(numbers(page.store).buckets(schema.OPERATION_DURATION)[()].values())
    assert (page.store.read_tuples("SELECT count(*) FROM spans WHERE reason IS NOT NULL"), measured) == (
        [(every,)],
        every,
    )


def test_every_turn_has_a_page_that_says_why_it_ended(played: tuple[Served, Any]) -> None:
    """In words, with the drawing and the steps."""
    page, _ = played
    turns = page.store.read_rows("SELECT * FROM turns")
    assert len(turns) == 40
    for turn in turns:
        answer = page.ask(f"/turns/{turn['turn_id']}")
        assert ("What to change" in answer.words) == (turn["state"] != "whole"), turn
        assert not re.search(r"\{\w+\}", answer.words)
        assert '<svg class="timeline"' in answer.text


def test_a_cut_and_continued_turn_is_drawn(played: tuple[Served, Any]) -> None:
    """Three torn ends, three links to what took them up, the text at each seam, and the budget that was left."""
    page, _ = played
    ((turn,),) = page.store.read_tuples("SELECT turn_id FROM turns WHERE state = 'finished' AND continuations = 3")
    answer = page.ask(f"/turns/{turn}")
    assert [answer.text.count(f'class="{part}"') for part in ("torn", "stitch", "link")] == [3, 3, 6]
    for says in (
        "Cut off, then finished", "somebody noticed and finished the",
        "Raise max_tokens to 128 or more: the whole answer has 128 tokens",
    ):  # fmt: skip
        assert says in answer.words
    for step, left in ((1, 120), (2, 80), (3, 40)):
        assert re.search(rf"Call {step + 1}, continuation {step} by prompt .* {left} ", answer.words)


def test_a_repair_is_no_continuation(played: tuple[Served, Any]) -> None:
    """It is counted by itself, its bar says that it worked, and the call after it is the third."""
    page, _ = played
    ((turn, row),) = page.store.read_tuples(
        "SELECT turn_id, (continuations, repairs, calls) FROM turns WHERE repairs LIMIT 1"
    )
    assert row == (0, 1, 3)
    said = page.ask(f"/turns/{turn}").words
    found = [each in said for each in ("repaired: schema_mismatch", "Call 2, repair", "Call 3 end turn", "Call 4")]
    assert found == [True, True, True, False]
    assert "1 repair" in page.ask("/turns?range=all").words


@pytest.mark.parametrize("outcome", TurnOutcome)
@pytest.mark.parametrize("cut_by", [None, "max_tokens", "context_window_exceeded", "missing", "end_turn"])
def test_every_outcome_has_a_sentence(outcome: TurnOutcome, cut_by: str | None) -> None:
    """With every gap filled, whatever is known of the turn."""
    for known, went_on, has_tools in product((True, False), repeat=3):
        words: dict[str, Any] = dict.fromkeys(("model", "provider", "raw", "error"), "it" if known else "")
        facts = TurnFacts(
            outcome=outcome.value, continuations=2, repairs=int(known), reason=cut_by or "", cuts=2, used=8, tokens=80,
            limit=40 if known else None, asks_for_tools=known, is_lone=known, went_on=went_on, has_tools=has_tools,
            is_in_tool_call=known and has_tools, **words,
        )  # fmt: skip
        texts = astuple(ending(facts))
        assert all(texts[:2])
        assert not re.search(r"[{}]|None|  | [.,]", " ".join(texts))
        # Only an agent that has tools is told what to do with a tool call.
        assert has_tools or outcome is not TurnOutcome.NOT_CONTINUED or "tool" not in " ".join(texts)
        if outcome is TurnOutcome.NOT_CONTINUED and cut_by == "max_tokens" and not known:
            assert texts[2].startswith("Raise max_tokens")  # what helps most comes first


def test_a_cut_call_of_others_ends_when_the_writer_looks(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between batches; no event would say so."""
    page.post("traces", span_of_others({schema.OPERATION.key: "chat", schema.FINISH_REASONS.key: ["length"]}))
    link = turn_link(page)
    assert "Cut off, and waiting" in page.ask(link).words
    monkeypatch.setattr("endturn.ui.store.SWEEP_S", 0.0)
    monkeypatch.setattr("endturn.ui.store.LINGER_NS", 0)
    for _ in range(2):
        page.store.write(Batch())
    assert "nothing took it up" in page.ask(link).words


# --- Searches, choices, addresses ---------------------------------------------------------------------------------


def test_many_turns_are_paged(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only under the newest are the next ones older; the last says how to see the others, however far one goes."""
    page.store.write(batch(span(), count=120, turn_id="{n:016x}"))
    for sort, says in (("newest", ["← Newer", "Older →"]), ("worst", ["← Back", "More →"])):
        text = page.ask(f"/turns?sort={sort}&page=1").text
        assert re.findall(r"← \w+|\w+ →", text) == says
        assert '<td class="minor"><span class="name">agent</span></td>' in text
    monkeypatch.setattr("endturn.ui.turns.DEEPEST", 1)  # a page costs a sort of all those before it
    assert "Choose a shorter time" not in page.ask("/turns").text
    deepest = page.ask("/turns?page=10000").words
    assert ("51–100 of 120" in deepest, "Choose a shorter time" in deepest) == (True, True)


def test_what_is_long_leaves_a_page_its_size(page: Served) -> None:
    """Of a turn how it began and how it ended; of many names those with most, the others are counted together."""
    page.store.write(batch(span(), count=250, start_ns=lambda n: n, raw="raw{n}"))
    text = page.ask("/turns/t1").text
    assert "50 spans of its middle are not shown" in text
    assert [f"raw{n}" in text for n in (0, 120, 249)] == [True, False, True]
    points = [point(schema.RESPONSES, n + 1, gen_ai_request_model=f"m{n}") for n in range(300)]
    page.store.write(Batch(points=points))
    text = page.ask("/").text
    assert len(text) < 100_000
    assert "250 others" in text
    assert ['<span class="name">m299<' in text, '<span class="name">m249<' in text] == [True, False]


@pytest.mark.parametrize(
    "query",
    ["range=x", "from=1&to=0", "from=9999999999999999&to=1", "from=a&to=b", "page=-1", "page=99999999", "page=x",
     "sort=drop", "state=%27", "service=%27%3B+DROP+TABLE+turns", "model=%00", "range=all&service=no"],
)  # fmt: skip
def test_an_address_that_makes_no_sense_shows_a_page(played: tuple[Served, Any], query: str) -> None:
    """What cannot be read of it is as if it were not there."""
    assert [played[0].ask(f"{path}?{query}").status for path in ("/", "/turns", "/reasons", "/alerts")] == [200] * 4


CHARTS = ("trend", "reasons", "endings", "waits", "strategies", "tokens")


def test_charts_are_drawn_without_scripts(played: tuple[Served, Any]) -> None:
    """Each one is in the page, with what a screen reader says of it and its values."""
    text = played[0].ask("/?range=all").text
    for name in CHARTS:
        (figure,) = re.findall(rf'(?s)<figure class="plot" id="chart-{name}">.*?</figure>', text)
        (label,) = re.findall(r'role="img" aria-label="([^"]*)"', figure)
        assert re.search(r", \d{4}-\d\d-\d\d \d\d:\d\d:\d\d to \d{4}-.* UTC: .* last", label)
        assert re.search(r'<path class="(line|dots|f-)', figure)
        assert '<tr data-step="' in figure


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
    assert [page.ask(value).status for value in linked if value.startswith("/static/")] == [200] * 3
    assert len(linked) == 3
    assert not re.findall(r"<script(?![^>]*src=)[^>]*>", answer.text)


HOSTS = {
    "127.0.0.1": 200, "localhost:9": 200, "[::1]:80": 200, "evil.example": 421, "127.0.0.1.evil.example": 421, "": 421,
}  # fmt: skip


def test_another_site_neither_reads_nor_writes(page: Served) -> None:
    """Not by a name of its own for 127.0.0.1; nor where a page of it makes a browser post: its Origin gives it away."""
    assert {host: page.ask("/", headers={"Host": host}).status for host in HOSTS} == HOSTS
    kind = {"Content-Type": "application/x-protobuf"}
    assert page.ask("/v1/traces", b"", kind).status == 200
    origins = {page.url: 200, "http://evil.example": 403, "null": 403}
    assert {each: page.ask("/v1/traces", b"", kind | {"Origin": each}).status for each in origins} == origins


# --- Tables to take away ------------------------------------------------------------------------------------------


def test_tables_come_as_csv_and_parquet(played: tuple[Served, Any], tmp_path: Path) -> None:
    """All of them, within the view."""
    page, _ = played
    answer = page.ask("/export/turns.csv?range=all&model=gpt-5")
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert [row["model"] for row in rows] == ["gpt-5"] * 8
    assert all(datetime.fromisoformat(row["started"]).tzinfo for row in rows)
    assert 'filename="endturn-turns.csv"' in answer.headers["content-disposition"]
    for table in ("turns", "calls", "events", "numbers"):
        file = tmp_path / f"{table}.parquet"
        file.write_bytes(page.ask(f"/export/{table}.parquet?range=all").content)
        ((count,),) = duckdb.connect().execute(f"SELECT count(*) FROM '{file}'").fetchall()
        assert count >= 40
