"""Past sessions on the page and as a report: the same turns as in the summary, and their text only when asked for."""

from __future__ import annotations

import gzip
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from endturn.errors import UsageError
from endturn.scan import Summary, scan
from endturn.telemetry import fail_condition
from endturn.ui import panels, server, turns
from endturn.ui.advice import Headline
from endturn.ui.messages_card import MessagesCard
from endturn.ui.past_sessions import HtmlReport, fill
from endturn.ui.store import Store
from endturn.ui.turn_page import turn_page
from endturn.ui.views import View
from tests.scan.cases import HERE
from tests.ui.support import Served

SAID = "part 1 "
"""What the first answer of the session says that was cut four times."""


@pytest.fixture(scope="module")
def past() -> Summary:
    return scan([HERE])


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(Store()) as store:
        yield store


def shown(store: Store, turn_id: str) -> dict[str, object]:
    view = View.of(store, {"turn_id": turn_id, "range": "all"}, time.time_ns())
    page = turn_page(view, store)
    assert page is not None
    return page


def test_the_page_has_each_turn_as_the_summary_has_it(store: Store, past: Summary) -> None:
    fill(store, past.turns)
    total = past.as_json()["total"]
    states = Counter(dict(store.read_tuples("SELECT state, count(*) FROM turns GROUP BY state")))
    assert states.total() == total["turns"]
    assert states["unfinished"] == total["unfinished_turns"]
    assert states["finished"] + states["unfinished"] == total["truncated_turns"]
    assert store.read_tuples("SELECT count(*) FROM spans WHERE operation = 'chat'")[0][0] == sum(
        len(ended.past.calls) for ended in past.turns
    )
    for ended in past.turns:
        if ended.past.has_user_message:
            calls = shown(store, ended.past.id)["calls"]
            assert isinstance(calls, list)
            assert len(calls) == len(ended.past.calls)


def test_the_headline_names_only_limits_that_the_files_record(store: Store, past: Summary) -> None:
    """Without any metric: every unfinished turn is in the list, and a file that records no limit gives none."""
    fill(store, past.turns)
    overview = panels.overview(View.of(store, {"range": "all"}, time.time_ns()), store)
    headline, table = overview["headline"], overview["table"]
    assert isinstance(headline, Headline)
    assert isinstance(table, list)
    assert headline.listed == past.as_json()["total"]["unfinished_turns"]
    assert sum(change.turns for change in headline.changes) + headline.others == headline.listed
    limits = {(row["service"], row["model"]): row["requested"].text for row in table}
    assert (limits["HAR", "gpt-5-mini"], limits["Codex", "gpt-5"]) == ("50", "–")
    texts = [change.text for change in headline.changes if change.model == "claude-sonnet-4-5 of Claude Code"]
    assert texts == ["at max_tokens 32\u202f000; 128\u202f000 would not have been enough."]


def test_a_page_reads_the_answer_again_from_its_file(store: Store, past: Summary) -> None:
    fill(store, past.turns)
    (cut,) = (ended for ended in past.turns if ended.past.session.startswith("11111111"))
    page = shown(store, cut.past.id)
    assert page["answer"] == "part 1 part 2 part 3 part 4 "
    assert SAID not in str(store.read_tuples("SELECT * FROM spans")) + str(store.read_tuples("SELECT * FROM events"))
    store.past_messages = None
    assert shown(store, cut.past.id)["answer"] == ""


QUESTIONS = {
    "claude_code": {"write a long text", "hello", "delegate", "write 1"},
    "codex": {"hello", "hello cut", "say cut"},
    "pi": {"write it"},
}
"""What the user asked for in some of the sessions."""


@pytest.mark.parametrize("source", QUESTIONS)
def test_the_list_and_the_card_show_what_the_user_asked_for(store: Store, past: Summary, source: str) -> None:
    """Read again from the file each time: nothing of it is stored."""
    fill(store, past.turns)
    rows = [{"turn_id": ended.past.id} for ended in past.turns if f"/{source}/" in ended.past.path]
    assert QUESTIONS[source] <= set(turns.questions(store, rows).values())
    for ended in past.turns:
        if f"/{source}/" in ended.past.path and ended.past.has_user_message:
            said = shown(store, ended.past.id)["card"]
            assert isinstance(said, MessagesCard)
            assert said.question == turns.questions(store, [{"turn_id": ended.past.id}])[ended.past.id]
    assert store.read_tuples("SELECT count(*) FROM texts") == [(0,)]


def test_a_cut_answer_of_a_session_has_its_torn_end(store: Store, past: Summary) -> None:
    fill(store, past.turns)
    (cut,) = (ended for ended in past.turns if ended.past.session.startswith("11111111"))
    said = shown(store, cut.past.id)["card"]
    assert isinstance(said, MessagesCard)
    assert said.question == "write a long text"
    assert [(end.text, end.mark[:8]) for end in said.ends] == [("part 1 part 2 part 3 part 4 ", "cut here")]


def test_the_page_says_once_that_the_file_has_changed(store: Store, tmp_path: Path) -> None:
    (session,) = (HERE / "claude_code" / "four-cuts-then-gave-up").rglob("*.jsonl")
    path = tmp_path / "session.jsonl"
    path.write_bytes(session.read_bytes())
    found = scan([path])
    fill(store, found.turns)
    path.write_bytes(session.read_bytes().replace(b"write a long text", b"words of another!").replace(b"uuid", b"UUID"))
    (cut,) = found.turns
    page = shown(store, cut.past.id)
    assert page["answer"] == "(The file has changed since the scan. Scan it again.)"
    said = page["card"]
    assert isinstance(said, MessagesCard)
    assert said.question == "(The file has changed since the scan. Scan it again.)"


def test_a_compressed_file_is_read_for_its_turn_alone(store: Store, tmp_path: Path) -> None:
    """The list would have to unpack one from its beginning for each row."""
    (session,) = (HERE / "claude_code").glob("two-529-then-answer/**/*.jsonl")
    packed = tmp_path / "session.jsonl.gz"
    packed.write_bytes(gzip.compress(session.read_bytes()))
    past = scan([packed])
    fill(store, past.turns)
    (ended,) = past.turns
    assert turns.questions(store, [{"turn_id": ended.past.id}]) == {}
    said = shown(store, ended.past.id)["card"]
    assert isinstance(said, MessagesCard)
    assert said.question == "hello"


def test_without_content_no_page_has_text(store: Store, past: Summary) -> None:
    fill(store, past.turns, with_content=False)
    rows = [{"turn_id": ended.past.id, "start_ns": 0} for ended in past.turns]
    assert turns.questions(store, rows) == {}
    (cut,) = (ended for ended in past.turns if ended.past.session.startswith("11111111"))
    with server.serving(store, server.listen("127.0.0.1", 0)) as url:
        page = Served(url, store)
        text = page.ask(f"/turns/{cut.past.id}").words
        found = page.ask("/turns?range=all&q=long").words
    assert "the scan ran with --no-content" in text
    assert "Messages of past sessions stay in their files, and are not searched." in found
    assert "OTEL_INSTRUMENTATION" not in text + found  # nothing that is set now records the past
    answers = [shown(store, ended.past.id)["answer"] for ended in past.turns if ended.past.has_user_message]
    assert set(answers) == {""}


@pytest.mark.parametrize("source", ["claude_code", "codex", "pi"])
def test_each_answer_of_a_line_format_has_its_text(store: Store, past: Summary, source: str) -> None:
    fill(store, past.turns)
    texts = []
    for ended in past.turns:
        if f"/{source}/" in ended.past.path:
            page = shown(store, ended.past.id)
            texts.append(page["answer"])
    assert any(texts)


def test_the_report_has_the_figures_and_no_text(tmp_path: Path, past: Summary) -> None:
    HtmlReport(tmp_path / "report.html")(past, past.as_json())
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "left unfinished" in page
    assert "11111111-1111-4111-8111-111111111111" in page
    assert SAID not in page
    assert "http://" not in page
    with pytest.raises(UsageError, match="cannot be written"):
        HtmlReport(tmp_path / "no" / "report.html")(past, past.as_json())


def test_the_report_shortens_no_list_silently(tmp_path: Path, past: Summary) -> None:
    """Files that could not be read, and conditions that are therefore uncertain."""
    figures = past.as_json([fail_condition("truncation > 99%"), fail_condition("unfinished > 0")])
    unreadable = {f"file-{number:02}": "permission denied" for number in range(23)}
    figures |= {"certain": False}
    figures |= {"files": figures["files"] | {"complete": False, "damaged": {}, "unreadable": unreadable}}
    HtmlReport(tmp_path / "report.html")(past, figures)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    words = " ".join(re.sub("<[^>]+>", " ", page).split())
    assert "file-19 : permission denied and 3 more files: endturn scan --json lists all of them" in words
    assert "file-20" not in words
    assert "? Uncertain truncation &gt; 99% it is" in words
    assert "✗ Failed unfinished &gt; 0 it is" in words
    assert re.search(r"<h1>\d+ of \d+ truncated turns were left unfinished\.", page)
