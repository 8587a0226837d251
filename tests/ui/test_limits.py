"""The limits of requests and the ones that would do: from turns as they are stored, never one that is not known."""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.telemetry import ENOUGH_EVENTS, schema
from endturn.ui import panels
from endturn.ui.advice import Headline, TurnCounts, headline
from endturn.ui.limits import (
    CutCause,
    Model,
    TruncationGroup,
    needed_limit,
    requested_limits,
    room_for,
    truncated_turns,
)
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from endturn.ui.views import View
from tests.ui.support import SECOND, Served, batch, point, span, write

NUMBERS = itertools.count(1)
Piece = tuple[str, int | None]
"""A stop reason and its output tokens."""


@dataclass(frozen=True)
class Agent:
    """One service that uses one model, and writes its turns to a store."""

    store: Store
    model: str = "gpt-5-mini"
    service: str = "agent"
    limit: int | None = 30
    begun: int = field(default_factory=lambda: time.time_ns() - 60 * SECOND)

    def turn(self, *pieces: Piece, outcome: str = "", strategies: Sequence[str] = ()) -> str:
        """One turn: its first call, then continuations of it; the outcome that its last event has, if there is one."""
        number = next(NUMBERS)
        turn_id = f"turn{number}"
        rows = Batch()
        for place, (reason, tokens) in enumerate(pieces):
            attributes: dict[str, Any] = {
                "gen_ai.request.model": self.model, "endturn.turn.id": turn_id, "endturn.stop.reason": reason,
                "endturn.stop.truncated": reason in ("max_tokens", "context_window_exceeded", "missing"),
            }  # fmt: skip
            if tokens is not None:
                attributes["gen_ai.usage.output_tokens"] = tokens
            if self.limit is not None:
                attributes["gen_ai.request.max_tokens"] = self.limit
            if place:
                attributes["endturn.continuation.index"] = place
            start = self.begun + number * 1_000_000 + place * 1000
            request = span(
                spanId=f"{number * 100 + place:016x}", start_ns=start, attributes=attributes,
                resource={"service.name": self.service},
            )  # fmt: skip
            rows.spans += batch(request).spans
        for place, strategy in enumerate(strategies, 1):
            attributes = {schema.CONTINUATION_INDEX.key: place, schema.STRATEGY.key: strategy}
            rows.events.append(self._event(turn_id, schema.CONTINUATION_ATTEMPT.name, attributes))
        if outcome:
            ended = self._event(turn_id, schema.CONTINUATION_TERMINATED.name, {})
            rows.events.append(ended | {"outcome": outcome, "at_ns": self.begun + number * 1_000_000 + SECOND})
        self.store.write(rows)
        return turn_id

    def _event(self, turn_id: str, name: str, attributes: dict[str, Any]) -> dict[str, Any]:
        return {
            "at_ns": self.begun, "service": self.service, "environment": None, "cluster": None, "trace_id": "",
            "span_id": f"{next(NUMBERS):x}", "name": name, "severity": "info", "body": "", "provider": "openai",
            "model": self.model, "turn_id": turn_id, "outcome": None, "attributes": json.dumps(attributes),
        }  # fmt: skip


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(Store()) as store:
        yield store


def view(store: Store, **chosen: str) -> View:
    return View.of(store, {"range": "all", **chosen}, time.time_ns())


def overview_headline(store: Store, **chosen: str) -> Headline:
    """The headline of the overview."""
    shown = panels.overview(view(store, **chosen), store)["headline"]
    assert isinstance(shown, Headline)
    return shown


def groups(store: Store) -> Sequence[TruncationGroup]:
    return truncated_turns(view(store), store)


CUT, ENDED = ("max_tokens", 30), ("end_turn", 40)


# --- The limit that would do --------------------------------------------------------------------------------------


def test_the_pieces_of_a_finished_answer_say_how_long_it_is(store: Store) -> None:
    """30 + 30 + 40 tokens fit into 128; four that nobody continued say nothing beyond the limit."""
    agent = Agent(store)
    agent.turn(CUT, CUT, ENDED)
    agent.turn(CUT, ("end_turn", 5))
    for _ in range(4):
        agent.turn(CUT, outcome="not_continued")
    agent.turn(("end_turn", 20))
    [group] = groups(store)
    assert group == TruncationGroup(
        model=Model("agent", "openai", "gpt-5-mini"), cause=CutCause.MAX_TOKENS, unfinished=4, lowest=30, highest=30,
        whole_answers=2, longest_whole=100, longest_open=30,
    )  # fmt: skip
    needed = needed_limit([group])
    assert (needed.tokens, needed.answers) == (128, 2)
    assert needed.note == "The longest of 2 truncated answers that were finished has 100 tokens."


def test_an_answer_is_compared_with_its_own_limit(store: Store) -> None:
    """Cut at 3 and finished with 5 tokens: it was finished, though another was cut at 8."""
    Agent(store, limit=3).turn(("max_tokens", 3), ("end_turn", 2))
    Agent(store, limit=8).turn(("max_tokens", 8), outcome="not_continued")
    needed = needed_limit(groups(store))
    assert (needed.tokens, needed.word, needed.answers) == (None, "unknown", 1)
    assert needed.note == "An answer that was cut off later is as long as the longest that was finished."
    words = overview_headline(store).changes[0].text
    assert "none of its truncated answers was finished" not in words


@pytest.mark.parametrize(
    ("strategy", "tokens"), [("prompt", 80), ("prefill", 80), ("repair", 50), ("retrieve", 50), ("resend", 50)]
)
def test_a_piece_that_was_asked_for_anew_is_not_counted(store: Store, strategy: str, tokens: int) -> None:
    """30 tokens, then 50: together 80, or 50 where the second is the whole answer again."""
    Agent(store).turn(CUT, ("end_turn", 50), strategies=[strategy])
    assert groups(store)[0].longest_whole == tokens


def test_tool_loops_are_answers_of_their_own(store: Store) -> None:
    """A limit is of one call: the call after the cut answer begins another, and is not added to it."""
    agent = Agent(store)
    turn_id = agent.turn(CUT, ("tool_call", 40))
    attributes = {
        "gen_ai.request.model": "gpt-5-mini", "endturn.turn.id": turn_id, "endturn.turn.iteration": 2,
        "gen_ai.usage.output_tokens": 500, "gen_ai.request.max_tokens": 1000,
    }  # fmt: skip
    store.write(batch(span(attributes=attributes, start_ns=time.time_ns() - SECOND)))
    assert groups(store)[0].longest_whole == 70


def test_what_is_not_known_is_never_a_limit(store: Store) -> None:
    """A piece without its tokens makes the length of an answer unknown; a turn that waits says nothing at all."""
    agent = Agent(store)
    agent.turn(("max_tokens", None), ENDED)
    agent.turn(CUT)
    [group] = groups(store)
    assert (group.whole_answers, group.longest_whole) == (0, None)
    assert (needed_limit([group]).tokens, needed_limit([group]).word) == (None, "none finished")


def made(cause: CutCause = CutCause.MAX_TOKENS, **changed: Any) -> TruncationGroup:
    """Turns of one model, cut at 30 tokens and not continued, but for what is changed."""
    usual: dict[str, Any] = {
        "model": Model("agent", "openai", "gpt-5-mini"), "cause": cause, "unfinished": 1, "lowest": 30, "highest": 30,
        "whole_answers": 0, "longest_whole": None, "longest_open": 30,
    }  # fmt: skip
    return TruncationGroup(**usual | changed)


NEEDED: dict[str, tuple[list[TruncationGroup], int | None, int | None, str]] = {
    "nothing truncated": ([], None, None, "none cut"),
    "none finished": ([made()], None, None, "none finished"),
    "finished": ([made(whole_answers=1, longest_whole=129)], 256, None, ""),
    "as long as a round number": ([made(whole_answers=1, longest_whole=128)], 128, None, ""),
    "short": ([made(whole_answers=1, longest_whole=31)], 64, None, ""),
    "an unfinished one is longer": ([made(whole_answers=1, longest_whole=43, longest_open=60)], None, 60, ""),
    "an unfinished one is as long": ([made(whole_answers=1, longest_whole=60, longest_open=60)], None, 60, ""),
    "asked for anew, and shorter": ([made(whole_answers=2, longest_whole=8, longest_open=None)], None, None, "unknown"),
    "limits differ": ([made(highest=500, whole_answers=1, longest_whole=100)], None, None, "unknown"),
    "no limit in the requests": (
        [made(lowest=None, highest=None, whole_answers=1, longest_whole=100, longest_open=None)], 128, None, ""),
    "context window": ([made(CutCause.CONTEXT_WINDOW)], None, None, "context full"),
    "stream": ([made(CutCause.MISSING, whole_answers=3, longest_whole=900)], None, None, "stream broke"),
    "another limit": ([made(CutCause.OTHER_LIMIT)], None, None, "not max_tokens"),
    "stream and limit": (
        [made(CutCause.MISSING, unfinished=9), made(whole_answers=1, longest_whole=100)], 128, None, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_the_limit_that_would_do(name: str) -> None:
    truncated, tokens, above, word = NEEDED[name]
    needed = needed_limit(truncated)
    assert (needed.tokens, needed.above, needed.word) == (tokens, above, word)
    assert needed.note.endswith(".")


lengths = st.none() | st.integers(1, 1 << 40)


@given(st.lists(st.tuples(st.sampled_from(CutCause), lengths, lengths, lengths), max_size=5))
def test_a_limit_is_above_all_that_is_known_to_be_too_little(rows: list[tuple[CutCause, Any, Any, Any]]) -> None:
    """Above each limit that cut an answer and each unfinished answer, and room for each finished one; else a reason."""
    truncated = [
        made(cause, lowest=limit, highest=limit, whole_answers=int(bool(whole)), longest_whole=whole, longest_open=rest)
        for cause, limit, whole, rest in rows
    ]
    needed = needed_limit(truncated)
    at_limit = [group for group in truncated if group.cause is CutCause.MAX_TOKENS]
    if needed.tokens is not None:
        assert needed.tokens > max((group.highest or 0 for group in at_limit), default=0)
        assert needed.tokens > max((group.longest_open or 0 for group in at_limit), default=0)
        assert needed.tokens >= max((group.longest_whole or 0 for group in at_limit), default=0)
        assert needed.answers > 0
    assert (needed.tokens is None) == bool(needed.word or needed.above)


@given(st.integers(1, 1 << 40))
def test_room_is_less_than_twice_the_answer(tokens: int) -> None:
    assert tokens <= room_for(tokens) < max(65, 2 * tokens)


# --- The limit of requests ----------------------------------------------------------------------------------------


def test_limits_of_requests(store: Store) -> None:
    """One number, a range, or none, each with what it is of; continuations do not count."""
    Agent(store, "one").turn(CUT, ENDED)
    for limit in (30, 500, None):
        Agent(store, "several", limit=limit).turn(("end_turn", 20))
    Agent(store, "none", limit=None).turn(("end_turn", 20))
    limits = {of.model: limit for of, limit in requested_limits(view(store), store).items()}
    assert {name: limit.text for name, limit in limits.items()} == {"one": "30", "several": "30 to 500", "none": "–"}
    assert limits["one"].note == ""
    assert limits["several"].note == ("2 of 3 requests set max_tokens. Requests set different limits, the latest 500.")
    assert limits["none"].note.startswith("No request says its max_tokens")
    assert (limits["one"].calls, limits["several"].calls) == (1, 3)


# --- The headline -------------------------------------------------------------------------------------------------


def said(store: Store, **chosen: str) -> tuple[str, list[str]]:
    """The headline's sentence, and what to change."""
    shown = overview_headline(store, **chosen)
    return shown.sentence, [f"{each.turns}: {each.model} {each.text}" for each in shown.changes]


def test_the_headline_says_what_to_change(store: Store) -> None:
    """By model and cause, most turns first; a broken stream and a full window have other cures."""
    mini = Agent(store)
    mini.turn(CUT, CUT, ENDED)
    for _ in range(4):
        mini.turn(CUT, outcome="not_continued")
    large = Agent(store, "gpt-5", limit=500)
    for _ in range(3):
        large.turn(("missing", 5), outcome="not_continued")
    large.turn(("max_tokens", 12), outcome="not_continued")
    Agent(store, "old", limit=8000).turn(("context_window_exceeded", 700), outcome="not_continued")
    Agent(store, "old", limit=8000).turn(("context_window_exceeded", 700), outcome="not_continued")
    sentence, changes = said(store)
    assert sentence == "10 of 11 truncated turns were not continued."
    assert changes == [
        "4: gpt-5-mini at max_tokens 30; 128 would have been enough for the one that was finished.",
        "3: gpt-5 broke off before a stop reason arrived: max_tokens is not the cause, timeouts of proxies may be.",
        "2: old filled the context window: a larger max_tokens does not help, a shorter history does.",
    ]
    shown = overview_headline(store)
    assert (shown.listed, shown.others, shown.link) == (10, 1, "/turns?range=all&state=unfinished")
    assert shown.changes[0].link.endswith("service=agent&provider=openai&model=gpt-5-mini")
    assert said(store, model="gpt-5")[1][1] == (
        "1: gpt-5 broke off below max_tokens 500, which is not the cause: look for a lower limit of a gateway, of the "
        "model, or for reasoning."
    )


def test_a_long_name_keeps_its_end(store: Store) -> None:
    """Where the model stands in an ARN."""
    arn = "arn:aws:bedrock:eu-central-1:123456789012:inference-profile/eu.anthropic.claude-sonnet-4-5-v1:0"
    Agent(store, arn).turn(("missing", 5), outcome="not_continued")
    assert said(store)[1][0].startswith("1: …file/eu.anthropic.claude-sonnet-4-5-v1:0 broke off before")


def test_an_unknown_limit_is_not_named(store: Store) -> None:
    """Neither the one now, nor the one that would do."""
    Agent(store, limit=None).turn(CUT, outcome="not_continued")
    assert said(store) == (
        "The one truncated turn was not continued.",
        ["1: gpt-5-mini at an unknown limit; none of its truncated answers was finished, so no limit is known to be "
         "enough."],
    )  # fmt: skip


def test_a_limit_that_was_not_enough_either(store: Store) -> None:
    """Five pieces of 30 tokens, given up: 150 would not have been enough."""
    Agent(store).turn(CUT, ENDED)
    Agent(store).turn(*[CUT] * 5, outcome="retry_limit")
    assert said(store) == (
        "1 of 2 truncated turns was continued, but not finished.",
        ["1: gpt-5-mini at max_tokens 30; 150 would not have been enough."],
    )


def test_several_services_are_told_apart(store: Store) -> None:
    """A model of one service may have another limit in another; chosen alone the name is the model's."""
    Agent(store, service="writer").turn(CUT, outcome="not_continued")
    Agent(store, service="reader", limit=64).turn(("max_tokens", 64), outcome="not_continued")
    assert [each.partition(";")[0] for each in said(store)[1]] == [
        "1: gpt-5-mini of reader at max_tokens 64", "1: gpt-5-mini of writer at max_tokens 30",
    ]  # fmt: skip
    assert [each.partition(";")[0] for each in said(store, service="writer")[1]] == ["1: gpt-5-mini at max_tokens 30"]


ENDINGS: dict[str, tuple[dict[str, Any], str, str]] = {
    "nothing": ({"turns": 0}, "No turn ended in this time range.", ""),
    "unknown": ({"turns": None}, "No turn ended in this time range.", ""),
    "one whole": ({"turns": 1}, "The one turn that ended was not truncated.", ""),
    "all whole": ({"turns": 900}, "None of the 900 turns that ended was truncated.", ""),
    "one finished": ({"turns": 1, "truncated": 1}, "The one truncated turn was finished.", ""),
    "few finished": ({"turns": 90, "truncated": 19}, "All 19 truncated turns were finished.", ""),
    "all finished": ({"turns": 90, "truncated": 20}, "All 20 truncated turns were finished.", "good"),
    "one waits": ({"turns": 90, "truncated": 20, "waiting": 1}, "All 20 truncated turns were finished.", ""),
    "one": ({"truncated": 1, "unfinished": 1}, "The one truncated turn was continued, but not finished.", "lost"),
    "both": (
        {"truncated": 9, "unfinished": 3, "not_continued": 1},
        "3 of 9 truncated turns stayed unfinished: 1 was not continued, 2 not to the end.", "lost"),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDINGS)
def test_a_good_number_of_few_turns_is_no_verdict(store: Store, name: str) -> None:
    """Nothing is no verdict either: only 20 truncated turns that were all finished are green."""
    numbers, sentence, color = ENDINGS[name]
    zero: dict[str, Any] = {"turns": 90, "truncated": 0, "unfinished": 0, "not_continued": 0, "waiting": 0}
    shown = headline(TurnCounts(**zero | numbers), [], view(store))
    assert (shown.sentence, shown.color) == (sentence, color)
    assert ENOUGH_EVENTS == 20


# --- On the page --------------------------------------------------------------------------------------------------


def test_the_page_shows_the_limits_beside_each_other(page: Served) -> None:
    """With metrics, from which the numbers of turns come, and without."""
    agent = Agent(page.store)
    agent.turn(CUT, CUT, ENDED)
    agent.turn(CUT, outcome="not_continued")
    for _ in range(2):
        answer = page.ask("/?range=all")
        assert "1 of 2 truncated turns was not continued. Show the 1" in answer.words
        assert "1 : gpt-5-mini at max_tokens 30; 128 would have been enough for the one that was finished." in (
            answer.words
        )
        assert "Limit now Limit that would do" in answer.words
        assert " 30 128 " in answer.words
        labels: dict[str, Any] = {schema.REQUEST_MODEL.label: "gpt-5-mini", schema.TRUNCATED.label: "true"}
        write(page.store, point(schema.TURNS, 2, **labels | {schema.OUTCOME.label: "completed"}))
        write(page.store, point(schema.TRUNCATION_EXITS, 1, gen_ai_request_model="gpt-5-mini",
                                endturn_turn_outcome="not_continued"))  # fmt: skip


def test_metrics_alone_say_no_limit(page: Served) -> None:
    """The number is known, its limits are not: a dash, and why."""
    write(page.store, point(schema.TURNS, 2, endturn_turn_truncated="true", endturn_turn_outcome="completed"))
    write(page.store, point(schema.TRUNCATION_EXITS, 1, endturn_turn_outcome="not_continued"))
    answer = page.ask("/?range=all")
    assert "1 of 2 truncated turns was not continued." in answer.words
    assert "Their spans are not here, so the page cannot say what to change." in answer.words
    assert "– no spans" in answer.words
    assert "Show the" not in answer.words


def test_nothing_is_green_without_twenty_turns(page: Served) -> None:
    """Neither an empty page, nor spans alone, nor 19 truncated turns that were all finished; 20 are."""

    def greens(path: str) -> int:
        return len(re.findall(r'class="[^"]*\bc-good\b', page.ask(path).text))

    paths = ("/?range=all", "/alerts", "/alerts/EndturnTurnsUnfinished")
    assert [greens(path) for path in paths] == [0, 0, 0]
    page.post("traces", span())
    assert [greens(path) for path in paths] == [0, 0, 0]
    for more, huge in ((19, 0), (1, 1)):
        write(page.store, point(schema.TURNS, more, instance=str(more), endturn_turn_truncated="true",
                                endturn_turn_outcome="completed"))  # fmt: skip
        assert [greens(path) for path in paths] == [huge, 0, 0]


# --- Remarks ------------------------------------------------------------------------------------------------------

REMARKS: dict[str, tuple[list[tuple[Any, float, dict[str, Any]]], str]] = {
    "repairs that worked": (
        [(schema.REPAIRS, 2, {"endturn_repair_result": "succeeded"})],
        "2 truncated tool calls were asked for again; 2 came whole."),
    "repairs of every kind": (
        [(schema.REPAIRS, 1, {"endturn_repair_result": "succeeded"}),
         (schema.REPAIRS, 2, {"endturn_repair_result": "failed"}),
         (schema.REPAIRS, 1, {"endturn_repair_result": "not_attempted"})],
        "3 truncated tool calls were asked for again; 1 came whole; 1 was not asked for again."),
    "a repair that failed": (
        [(schema.REPAIRS, 1, {"endturn_repair_result": "failed"})],
        "1 truncated tool call was asked for again; none came whole."),
    "blocked": (
        [(schema.BLOCKED, 2, {"endturn_block_reason": "truncated"}),
         (schema.BLOCKED, 1, {"endturn_block_reason": "unknown_tool"})],
        "3 tool calls were not run: 2 truncated, 1 unknown tool."),
    "given up": (
        [(schema.TRUNCATION_EXITS, 1, {"endturn_turn_outcome": "retry_limit"})],
        "1 truncated turn was continued until a limit of the policy ended it: 1 retry limit."),
    "suspected": (
        [(schema.SUSPECTED_METRIC, 1, {})],
        "1 answer reports a normal stop, but used the entire token limit, and may be truncated."),
    "unknown": (
        [(schema.UNMAPPED, 2, {})],
        "2 responses have a stop reason that no table has, so nobody knows if they are complete."),
    "lost": (
        [(schema.LISTENER_FAILURES, 1, {"endturn_listener_name": "Recorder"})],
        "1 record was lost by endturn itself; the logger endturn of the agent has the exception."),
    "capped": (
        [(schema.SERIES_CAPPED, 4, {"endturn_series_capped_label": "model"})],
        "4 measurements were recorded as other , since a label has too many values: 4 model."),
}  # fmt: skip


@pytest.mark.parametrize("name", REMARKS)
def test_a_remark_is_a_sentence_about_its_number(page: Served, name: str) -> None:
    points, sentence = REMARKS[name]
    for metric, value, labels in points:
        write(page.store, point(metric, value, **labels))
    assert sentence in page.ask("/?range=all").words.replace(" ;", ";")
