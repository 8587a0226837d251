"""The search field: ids lead to their turn, words filter the list, and nothing is searched silently less."""

from __future__ import annotations

import json
import time
from typing import Any
from urllib.parse import quote

import pytest

from endturn.telemetry import schema
from endturn.ui.rows import Batch
from tests.support.otlp import pairs
from tests.ui.support import CUT, SECOND, TRACE, Served, log, point, span

ONE, OTHER = "0" * 15 + "1", "0" * 15 + "2"
"""Ids of the spans of two turns in different traces."""
OTHER_TRACE = "f" * 32


def words(question: str, answer: str) -> dict[str, str]:
    """The attributes of a call with these messages."""
    parts = [{"type": "text", "content": question}], [{"type": "text", "content": answer}]
    return {
        "gen_ai.input.messages": json.dumps([{"role": "user", "parts": parts[0]}]),
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": parts[1]}]),
    }


def send(page: Served, span_id: str, attributes: dict[str, Any], **more: Any) -> None:
    assert page.post("traces", span(spanId=span_id, attributes=attributes, **more)).status == 200


@pytest.fixture
def filled(page: Served) -> Served:
    """Two turns of one conversation, in two traces."""
    about = {"gen_ai.conversation.id": "thread 7"}
    send(page, ONE, {"endturn.turn.id": "first", "gen_ai.response.id": "chatcmpl-1"} | about)
    send(page, OTHER, {"endturn.turn.id": "second", "gen_ai.response.id": "chatcmpl-2"} | about, traceId=OTHER_TRACE)
    return page


def target(page: Served, path: str) -> tuple[int, str | None]:
    answer = page.ask(path)
    return answer.status, answer.headers.get("location")


@pytest.mark.parametrize(
    "text",
    ["first", TRACE, TRACE.upper(), "0af76519-16cd-43dd-8448-eb211c80319c", ONE, f"00-{TRACE}-{ONE}-01", "chatcmpl-1",
     f"  {TRACE} "],
)  # fmt: skip
def test_an_id_leads_to_its_turn(filled: Served, text: str) -> None:
    assert target(filled, f"/search?q={quote(text)}") == (303, "/turns/first")
    assert filled.ask("/turns/first").status == 200


def test_an_id_of_several_turns_leads_to_their_list(filled: Served) -> None:
    """Of whatever time, and whoever's: the filters of the page before do not hide one."""
    assert target(filled, "/search?q=thread+7&model=none&range=15m") == (303, "/turns?q=thread+7&range=all")
    text = filled.ask("/turns?q=thread+7&range=all").words
    assert "The turns of the id thread 7" in text
    assert "All 2" in text


def test_an_address_with_the_id_of_a_trace_leads_to_its_turn(filled: Served) -> None:
    assert target(filled, f"/turns/{OTHER_TRACE}") == (303, "/turns/second")
    send(filled, "0" * 15 + "3", {"endturn.turn.id": "third"}, traceId=OTHER_TRACE)
    assert target(filled, f"/turns/{OTHER_TRACE}") == (303, f"/turns?q={OTHER_TRACE}&range=all")
    assert filled.ask(f"/turns/{'0' * 32}").status == 404


def test_a_span_of_something_else_leads_to_the_turn_of_its_trace(filled: Served) -> None:
    request = span(spanId="ab" * 8)
    (found,) = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    found["attributes"] = pairs({"http.request.method": "POST"})
    filled.post("traces", request)
    assert target(filled, f"/search?q={'ab' * 8}") == (303, "/turns/first")


def test_an_id_may_be_any_text(page: Served) -> None:
    odd = "run/7?a=b#c %2F"
    send(page, ONE, {"endturn.turn.id": odd})
    status, address = target(page, f"/search?q={quote(odd, safe='')}")
    assert (status, address) == (303, "/turns/run%2F7%3Fa%3Db%23c%20%252F")
    assert odd in page.ask(address or "").words


def test_words_filter_the_list_where_messages_are_recorded(page: Served) -> None:
    """All of them, in any case, in the question, the answer or a name; within the filters that are set."""
    send(page, ONE, {"endturn.turn.id": "one"} | words("Where is my ORDER?", "In Überlingen, on the lake."))
    send(page, OTHER, {"endturn.turn.id": "two"} | words("Cancel the order", "Done."))
    for text, turns in (
        ("order", {"one", "two"}), ("order lake", {"one"}), ("ÜBERLINGEN", {"one"}), ("rder whe", {"one"}),
        ("gpt-5", {"one", "two"}), ("agent done", {"two"}), ("zebra", set()), ("100%_", set()),
    ):  # fmt: skip
        links = page.ask(f"/turns?q={quote(text)}").links()
        assert {link.partition("?")[0].removeprefix("/turns/") for link in links if link.startswith("/turns/")} == turns
    assert target(page, "/search?q=order&model=gpt-5") == (303, "/turns?model=gpt-5&q=order")
    answer = page.ask("/turns?q=zebra").words
    assert "No turn of this time range has these words." in answer
    assert "in the user's last message or in the answer" in answer
    assert "/turns/one?" not in page.ask("/turns?q=order&model=other").text


def test_a_search_of_names_alone_says_how_messages_are_recorded(page: Served) -> None:
    send(page, ONE, {})
    text = page.ask("/turns?q=gpt").words
    assert "No message is recorded in this time range: OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT" in text
    assert "/turns/t1?q=gpt" in page.ask("/turns?q=gpt").text


def test_a_bounded_search_says_so(page: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest texts are searched, and the first words looked for."""
    monkeypatch.setattr("endturn.ui.search.MOST_TEXTS", 2)
    now = time.time_ns()
    for number in range(4):
        turn = {"endturn.turn.id": f"turn{number}"} | words("an order", "yes")
        send(page, f"{number + 1:016x}", turn, start_ns=now - (9 - number) * SECOND)
    answer = page.ask("/turns?q=order")
    assert "The newest 2 recorded messages were searched, not older ones." in answer.words
    assert [f"/turns/turn{n}?" in answer.text for n in range(4)] == [False, False, True, True]
    monkeypatch.setattr("endturn.ui.search.MOST_MATCHES", 1)
    answer = page.ask("/turns?q=order")
    assert "More than 1 turns have these words: the newest are listed." in answer.words
    assert [f"/turns/turn{n}?" in answer.text for n in range(4)] == [False, False, False, True]
    text = page.ask("/turns?q=a+b+c+d+e+f+g").words
    assert "Not looked for, since only the first 5 words are: f g." in text


def test_long_messages_are_searched_at_their_ends(page: Served) -> None:
    send(page, ONE, words("alpha " + "x " * 2000 + "omega", "first " + "y " * 4000 + "middle " + "y " * 4000 + "last"))
    for text, found in (("alpha", True), ("omega", False), ("first", True), ("middle", False), ("last", True)):
        answer = page.ask(f"/turns?q={text}")
        assert ("/turns/t1?" in answer.text) is found
        assert "Of a long message the beginning is searched, of a long answer both ends." in answer.words


def test_a_search_is_in_the_files_of_the_list(page: Served) -> None:
    send(page, ONE, {"endturn.turn.id": "one"} | words("order", "yes"))
    send(page, OTHER, CUT | {"endturn.turn.id": "two"} | words("parcel", "no"))
    page.post("logs", log("endturn.stopped", **{"endturn.turn.id": "two"}))
    for table in ("turns", "calls"):
        text = page.ask(f"/export/{table}.csv?q=order").text
        assert ("one" in text, "two" in text) == (True, False)
    assert "two" not in page.ask("/export/events.csv?q=order").text
    assert 'href="/export/turns.csv?q=order"' in page.ask("/turns?q=order").text
    assert 'href="/export/turns.csv"' in page.ask("/reasons?q=length").text  # another search


def test_the_field_works_without_scripts_and_stays_in_its_page(filled: Served) -> None:
    """It is on every page; what it searches is not carried to pages that search something else."""
    for path in ("/", "/turns", "/turns/first", "/reasons", "/alerts", "/nothing"):
        text = filled.ask(path).text
        assert '<form class="find" action="/search" method="get"' in text
        assert 'name="q"' in text
    text = filled.ask("/turns?q=gpt&model=gpt-5").text
    assert 'href="/reasons?model=gpt-5"' in text
    assert '<input type="hidden" name="model" value="gpt-5">' in text
    assert target(filled, "/search?q=") == (303, "/turns")


@pytest.mark.parametrize("text", ["' OR 1=1 --", "%", "\\", "$word0", '"', "\x00", "{0}", "x" * 5000, "ß İ"])
def test_any_text_can_be_searched(filled: Served, text: str) -> None:
    assert filled.ask(f"/search?q={quote(text)}").status == 303
    assert filled.ask(f"/turns?q={quote(text)}").status == 200
    assert filled.ask(f"/export/turns.csv?q={quote(text)}").status == 200


# --- Filters that match nothing -----------------------------------------------------------------------------------


def test_a_filter_that_matches_nothing_says_so(filled: Served) -> None:
    """It is no diagnosis of metrics; the way back is a link."""
    for path in ("/", "/turns", "/reasons", "/alerts"):
        answer = filled.ask(f"{path}?service=nobody&range=all")
        assert "Nothing that is stored here is of service nobody." in answer.words
        assert "There are spans, but no metrics" not in answer.words
        assert path == "/alerts" or "OTEL_METRICS_EXPORTER" not in answer.words
        assert 'href="?range=all">Show all</a>' in answer.text
        assert "Nothing that is stored" not in filled.ask(f"{path}?service=agent").words


def test_a_filter_that_metrics_alone_match_is_none_of_these(filled: Served) -> None:

    filled.store.write(Batch(points=[point(schema.TURNS, 1, service="counted")]))
    assert "Nothing that is stored" not in filled.ask("/?service=counted").words
