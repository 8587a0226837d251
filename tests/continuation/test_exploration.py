"""Explore all courses of a turn: all sequences of actions of a provider, tools and a host.

Each course is a script, played from the turn's beginning until it has no answer left, where the turn is interrupted.
The resumption (next request, counters, end of the history) identifies the turn's state: scripts that lead to the same
state have the same future, and only the first of them is continued. Every script is checked against the laws. `make
test` plays the first two or three moves of every turn, `make test-all` all of them.
"""

from __future__ import annotations

import json
import logging
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest

from endturn.calls.outcomes import COMPLETE, Strategy, TurnOutcome
from endturn.calls.turn_scope import current_turn
from endturn.continuation import refused_prefills
from endturn.continuation.continuation_request import repair_prompt
from endturn.continuation.controller import ContinuationController, Resumption, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.errors import RequestRejected
from endturn.formats import format_of
from endturn.vocabulary.messages import ChatResponse, Delta, Request, ToolCall
from endturn.vocabulary.stop import StopReason
from tests.support.turns import NOW, SEARCH, ask, assert_sendable
from tests.turns.record import asked as request_of, scripted

TOKENS: Final = 10
"""What every request allows, and every response that is cut uses."""
FILE: Final = json.loads(Path(__file__).with_name("worlds.json").read_text("utf-8"))
"""`answers`: what a provider may give, in the words of tests/turns; `worlds`: what a turn is explored under, and which
outcomes no exploration of it may miss: one that did would prove little."""
TOOLS: Final = ("found", "raised")
ROOM: Final[Mapping[str, Request | None]] = {
    "room": ask("shorter", tools=(SEARCH, NOW), max_tokens=TOKENS),
    "no room": None,
}
OF_A_MODE: Final = ("JSON", "done", "end, long")
"""Answers of a turn that asks for JSON, or has a mode."""


class Waiting(BaseException):
    """The script has no further answer."""


def answer(name: str, said: str, beginning: str = "") -> Any:
    """Return a provider's answer with this text, after the earlier text of a response that is fetched again."""
    given = scripted(json.loads(json.dumps(FILE["answers"][name]).replace("<text>", said)))
    if isinstance(given, list):
        return [Delta(text=beginning + words(given))]
    if isinstance(given, ChatResponse):
        return given.but(text=beginning + given.text)
    if words(given):
        given.partial = given.partial.but(text=beginning + words(given))
    return given


def words(given: Any) -> str:
    """Return the text that arrived."""
    if isinstance(given, Exception):
        given = getattr(given, "partial", None) or Delta()
    return str(given[0].text if isinstance(given, list) else given.text)


class World:
    """The settings of the exploration: small limits, so that every sequence is short."""

    def __init__(self, case: Mapping[str, Any]) -> None:
        self.case = case
        self.policy = ContinuationPolicy(**case["policy"])
        self.format = case.get("format", "gemini")  # it knows every way of taking a pause up
        self.request = request_of({"tools": ["search", "now"], "max_tokens": TOKENS, **case.get("request", {})})
        usual = [name for name in FILE["answers"] if not name.startswith(OF_A_MODE)]
        self.answers = tuple(case.get("answers", usual))


WORLDS: Final = {name: World(case) for name, case in FILE["worlds"].items()}


@dataclass
class Played:
    """The result of playing a script.

    Attributes:
        calls: each call to the provider, with how it asks; answers: what it gave.
        ran: the calls that were run, with the number of the answer that asked for them.
        shown: the joined deltas; said: the provider's text, by part of the answer.
        waits: for which moves; none at the turn's end. result: None where the first call failed.
    """

    script: Iterator[str]
    calls: list[tuple[Request, Strategy | None]] = field(default_factory=list)
    answers: list[Any] = field(default_factory=list)
    ran: list[tuple[int, ToolCall]] = field(default_factory=list)
    shown: str = ""
    said: list[str] = field(default_factory=list)
    waits: Sequence[str] = ()
    result: TurnResult | None = None

    def move(self, moves: Sequence[str]) -> str:
        """Return the next move, one of these."""
        for name in self.script:
            return name
        self.waits = moves
        raise Waiting


def play(
    world: World, script: Sequence[str], start: Resumption | None = None, policy: ContinuationPolicy | None = None
) -> Played:
    """Play a turn from its beginning, through the whole script."""
    refused_prefills.forget()  # each turn is the first of a process: a script says all that came before
    played = Played(iter(script))
    if start is not None:
        played.said = [start.superseded.text if start.superseded is not None else ""]

    def provider(request: Request) -> Any:
        turn = current_turn()
        assert turn is not None
        strategy = None if turn.continuation is None else turn.continuation.strategy
        played.calls.append((request, strategy))
        name = played.move(world.answers)
        beginning = played.said.pop() if strategy is Strategy.RETRIEVE else ""
        kind = "piece" if start is None else "resumed"  # what comes again would be a repetition
        given = answer(
            name, f"{kind}{len(played.calls):02} ", beginning
        )  # white space ends it, which a prefill may not
        played.answers.append(given)
        played.said.append(words(given) or beginning)
        if isinstance(given, Exception):
            raise given
        return iter(given) if isinstance(given, list) else given

    def run(call: ToolCall) -> str:
        if played.move(TOOLS) == "raised":
            played.ran.append((len(played.answers), call))
            raise KeyError("x")
        played.ran.append((len(played.answers), call))
        return "found"

    provider.__dict__.update(retrieves=world.case.get("retrieves", True))
    policy = policy or world.policy
    if world.case.get("makes_room"):
        policy = policy.model_copy(update={"on_context_exceeded": lambda *_: ROOM[played.move(tuple(ROOM))]})
    controller = ContinuationController(
        provider, tools=None if world.case.get("hand_over") else {"search": run, "now": run}, policy=policy,
        format=world.format, clock=lambda: 0.0, sleep=lambda seconds: None,
    )  # fmt: skip
    try:
        for item in controller.stream(start or world.request):
            if isinstance(item, TurnResult):
                played.result = item
            else:
                played.shown += item.text
    except Waiting as error:
        played.result = error.turn_result  # type: ignore[attr-defined]
    except Exception:
        assert len(played.answers) == 1
        assert not played.shown
    return played


def place(world: World, played: Played) -> tuple[object, ...]:
    """Return the state that determines the rest of a turn, as far as its result shows it."""
    result = played.result
    assert result is not None
    on, counters = result.resumption, None
    following: tuple[object, ...] = (result.requests,)
    if on is not None:
        sent, used = on.next, on.counters
        counters = (used.iterations, used.attempts, used.resumes, used.repairs, used.again, used.tokens, used.ceiling)
        following = (
            (on.strategy, sent.max_tokens, sent.token == "same", sent.retrieve, sent.tool_choice, bool(sent.extra)),
            (bool(on.answer.strip()), on.shown == on.answer, on.is_discarded, on.superseded is None, len(on.pending)),
            (used.chars if world.policy.continuation_max_output_chars < 1_000 else 0, sent.messages[0].text),
            round(used.cost, 6) if world.policy.max_cost else 0,
        )
    ends = [
        (each.role, each.synthetic, each.stop_reason, bool(each.text.strip()), len(each.tool_calls), each.is_error)
        for each in result.segments[-4 if world.policy.mode else -2 :]
    ]
    refused = any(isinstance(each, RequestRejected) for each in played.answers)
    return played.waits, counters, *following, *ends, refused


# --- The laws -------------------------------------------------------------------------------------------------------


def check_calls(world: World, played: Played) -> None:
    """Check that no limit is exceeded, and that a provider accepts the last request."""
    policy, base = world.policy, world.request
    kinds = [kind for _, kind in played.calls]
    # A prefill that was rejected, or brought no continuation, is followed by a prompt, and is no attempt.
    refusals = sum(kind == (Strategy.PREFILL, Strategy.PROMPT) for kind in pairwise(kinds))
    assert refusals <= 1
    limits = {
        (None,): policy.max_iterations,
        (Strategy.PROMPT, Strategy.PREFILL): policy.continuation_max_attempts + refusals,
        (Strategy.REPAIR,): policy.continuation_tool_repair_attempts,
        (Strategy.RETRY,): 1,
        (Strategy.RESEND, Strategy.NATIVE_TOKEN, Strategy.RETRIEVE): policy.continuation_max_resumes,
    }
    for limited, limit in limits.items():
        assert sum(kind in limited for kind in kinds) <= limit
    request, kind = played.calls[-1]
    assert (request.retrieve is not None) == (kind is Strategy.RETRIEVE)
    assert request.token is None or kind in (Strategy.NATIVE_TOKEN, Strategy.RETRY)
    made_room = request.messages[0].text == "shorter"
    begins = ROOM["room"] if made_room else base
    assert begins is not None
    assert request.messages[: len(begins.messages)] == begins.messages
    kept = ("model", "tools", "temperature", "format", "seed")
    assert made_room or [getattr(request, name) for name in kept] == [getattr(base, name) for name in kept]
    assert_sendable(request.messages)
    last = request.messages[-1]
    before = played.answers[len(played.calls) - 2] if len(played.calls) > 1 else None
    names = [each.name for each in before.tool_calls] if isinstance(before, ChatResponse) else []
    match kind:
        case Strategy.PROMPT | Strategy.REPAIR:
            prompt = repair_prompt(policy.prompt, names) if kind is Strategy.REPAIR else policy.prompt
            assert (last.role, last.text, last.synthetic) == ("user", prompt, True)
        case Strategy.PREFILL:
            sent = format_of(world.format).encode(request)["messages"][-1]["content"][-1]["text"]
            assert last.role == "assistant"
            assert sent == sent.rstrip() != ""
        case None:
            assert not last.synthetic
            assert made_room or request.max_tokens == base.max_tokens
    if kind in (Strategy.PROMPT, Strategy.PREFILL, Strategy.REPAIR, Strategy.RETRY):
        earlier = [given for given in played.answers[: len(played.calls) - 1] if isinstance(given, ChatResponse)]
        spent = sum(TOKENS for given in earlier if given.stop.reason is StopReason.MAX_TOKENS)
        budget = policy.continuation_max_total_completion_tokens or 4 * TOKENS
        assert isinstance(budget, int)
        assert request.max_tokens is not None
        assert 0 < request.max_tokens <= budget - spent


def check_tools(world: World, played: Played) -> None:
    """Check that only complete batches of a verified terminal ran, each call once."""
    assert len({(number, call.id) for number, call in played.ran}) == len(played.ran)
    for number, call in played.ran if world.policy.dispatch != "any_parsed" else ():
        given = played.answers[number - 1]
        assert isinstance(given, ChatResponse)
        assert given.stop.reason is StopReason.TOOL_CALL
        assert given.stop.terminal_seen
        assert not given.stop.suspected
        assert all(each.closed for each in given.tool_calls)
        assert call.id in {each.id for each in given.tool_calls}


def check_result(world: World, played: Played, result: TurnResult) -> None:
    """Check that the end of a turn is reported correctly, and that its history can be sent and continued."""
    assert (result.outcome is TurnOutcome.CANCELLED and bool(played.waits)) or not played.waits
    # Of a turn that is interrupted nobody was there to be shown what was held back.
    assert result.text.startswith(played.shown) if played.waits else result.text == played.shown
    all_said = "".join(played.said)
    is_bounded = len(all_said) > world.policy.continuation_max_output_chars
    if world.request.format is None and world.policy.mode is None and not is_bounded:
        # With a format, or in a mode, what is replaced was not shown.
        is_declined = result.outcome in (TurnOutcome.REFUSED, TurnOutcome.TOOL_REPAIR_FAILED)
        assert all_said.startswith(result.text) if is_declined else result.text == all_said
    assert result.complete == (result.outcome in COMPLETE)
    assert result.complete or result.notice is not None
    assert result.notice is None or not result.complete or result.repairs
    if result.complete:
        last = played.answers[-1]
        assert isinstance(last, ChatResponse)
        assert not last.stop.truncated
    assert result.requests == len(played.calls)
    assert not any(message.synthetic for message in result.messages)
    assert_sendable(result.messages[:-1] if result.calls else result.messages)
    spoken = [message for message in result.segments if message.role == "assistant"]
    if all(message.text.strip() or message.tool_calls for message in spoken):
        told = "".join(message.text for message in result.messages if message.role == "assistant")
        assert told.endswith(result.answer)
        assert told == result.text or world.case.get("makes_room")  # what was shown, and then replaced
    if result.resumption is not None:
        assert not result.complete
        check_resumption(world, result)


def check_resumption(world: World, result: TurnResult) -> None:
    """Check that a resumable turn continues to a complete answer, without lost or repeated text."""
    if world.request.format is not None:
        return
    assert_sendable(result.resume().next.messages)
    says = "end" if world.policy.mode is None else "end, long"
    roomy = world.policy.model_copy(update={"continuation_max_output_chars": 120_000})
    again = play(world, [says], result.resume(), roomy).result
    assert again is not None
    assert again.complete
    assert again.text == result.text + words(answer(says, "resumed01 "))
    assert_sendable(again.messages)


# --- All of it ------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(17, 18, 21, 22, 24, 25, 33, 34, 37)
@pytest.mark.parametrize("to_its_end", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WORLDS)
def test_every_way_a_turn_can_go(caplog: pytest.LogCaptureFixture, name: str, to_its_end: bool) -> None:
    """Whatever a provider and tools do, the laws hold at every step, and the turn ends."""
    caplog.set_level(logging.CRITICAL, "endturn")
    world, outcomes, places = WORLDS[name], set(), set()
    most = math.inf if to_its_end else world.case.get("moves", 3)
    waiting: deque[tuple[str, ...]] = deque([()])
    while waiting:
        script = waiting.popleft()
        played = play(world, script)
        try:
            check_calls(world, played)
            check_tools(world, played)
            if played.result is None:
                continue
            if played.waits:
                found = place(world, played)
                if found in places:
                    continue
                places.add(found)
                waiting += [(*script, move) for move in played.waits] if len(script) < most else []
            else:
                outcomes.add(played.result.outcome)
            if world.request.format is None or not played.waits:
                check_result(world, played, played.result)
        except Exception as error:
            error.add_note(f"after the script {script!r}")
            raise
    assert not to_its_end or outcomes >= {TurnOutcome(outcome) for outcome in world.case["reached"]}
