"""Every way that a turn can go: its course explored over all sequences of what a provider and tools can do.

A generator cannot be forked, so each way is a script, played from the turn's beginning; scripts that lead to the same
configuration (the machine's state, the counters, what was asked last and how, what ends the history) have the same
future, and only the first of them is followed. The laws are checked at every step of every script that is played.
`make test` plays the first three moves of every turn, `make test-all` all of them.
"""

from __future__ import annotations

import json
import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pytest

from endturn.chat import ChatResponse, Delta, Message, Request, ToolCall
from endturn.continuation.continuation_request import repair_prompt
from endturn.continuation.machine import FINAL, TRANSITIONS, Signal, State
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import (
    Act,
    CallProvider,
    MakeRoom,
    Reply,
    Resumption,
    RunTool,
    ToolRan,
    TurnResult,
    Wait,
)
from endturn.continuation.turn import interrupt, steps
from endturn.continuation.turn_state import Setup, TurnState
from endturn.errors import ProviderUnavailable
from endturn.events import COMPLETE, Strategy, Turn, TurnOutcome
from endturn.formats import format_of
from endturn.formats.format import Format
from endturn.formats.openai_chat import FORMAT as openai_chat
from endturn.stop import StopReason
from tests.support.turns import NOW, SEARCH, ask
from tests.turns.record import asked as request_of, failure, response

# --- The table alone ----------------------------------------------------------------------------------------------

PENDING: Final = frozenset(state for state in State if state.value.endswith("Pending"))
CALLING: Final = frozenset(
    {State.REQUEST, State.REQUEST_CONTINUATION, State.RESUME_UNCHANGED, State.REPAIR, State.ASK_AGAIN}
)
LEAVE: Final = frozenset({Signal.UNDER_LIMITS, Signal.RESULTS_APPENDED})
"""The signals that are given only after a limit was asked about."""


def known(state: State) -> set[Signal]:
    """The signals that a state knows."""
    return {signal for origin, signal in TRANSITIONS if origin is state}


def reached(rows: Mapping[tuple[State, Signal], State], start: State) -> set[State]:
    """The states that can follow, by these rows, in one step or more."""
    found: set[State] = set()
    while more := {leads_to for (state, _), leads_to in rows.items() if state is start or state in found} - found:
        found |= more
    return found


@pytest.mark.parametrize("state", sorted(PENDING), ids=lambda state: state.value)
def test_a_pending_state_asks_about_limits_and_nothing_else(state: State) -> None:
    """It knows leave and refusal; leave leads to a call, refusal to the partial answer."""
    assert known(state) == {Signal.UNDER_LIMITS, Signal.LIMIT_REACHED}
    assert TRANSITIONS[state, Signal.UNDER_LIMITS] in CALLING
    assert TRANSITIONS[state, Signal.LIMIT_REACHED] is State.ABORT_PARTIAL


@pytest.mark.parametrize("state", sorted(CALLING), ids=lambda state: state.value)
def test_a_call_is_answered_or_fails_or_is_interrupted(state: State) -> None:
    """Every answer is evaluated; only a continuation may find that its way of asking is not taken, and asks anew."""
    own = {Signal.PREFILL_REFUSED} if state is State.REQUEST_CONTINUATION else set()
    assert known(state) == {Signal.RESPONSE, Signal.FAILED, Signal.INTERRUPTED} | own
    assert TRANSITIONS[state, Signal.RESPONSE] is State.EVALUATE_STOP
    assert all(TRANSITIONS[state, signal] in PENDING for signal in own)


def test_a_call_beyond_the_first_needs_leave() -> None:
    """Every way into a state that calls the provider asks about a limit first."""
    ways = {signal for (_, signal), leads_to in TRANSITIONS.items() if leads_to in CALLING}
    assert ways == LEAVE


def test_without_leave_every_run_ends() -> None:
    """No state can be come back to but by leave from a limit: limits that end, end every turn."""
    rows = {key: row for key, row in TRANSITIONS.items() if key[1] not in LEAVE}
    for state in State:
        assert state not in reached(rows, state)
        assert state in FINAL or reached(rows, state) & FINAL


# --- What can happen ----------------------------------------------------------------------------------------------

TOKENS: Final = 10
"""What every request allows, and every response that is cut uses."""


@dataclass(frozen=True, slots=True)
class Lost:
    """A stream that breaks off after this text."""

    text: str


Answer = ChatResponse | Exception | Lost


def text(number: int) -> str:
    """A text of eight characters that no other call gives. It ends in white space, which a prefill may not."""
    return f"piece{number:02} "


FILE: Final = json.loads(Path(__file__).with_name("worlds.json").read_text("utf-8"))
"""`answers`: what a provider may give, in the words of tests/turns; `worlds`: what a turn is explored under, and which
outcomes no exploration of it may miss: one that did would prove little."""
ANSWERS: Final[Mapping[str, Any]] = FILE["answers"]
TOOLS: Final[Mapping[str, Reply]] = {"found": ToolRan("found"), "raised": ToolRan("KeyError: 'x'", is_error=True)}
ROOM: Final[Mapping[str, Reply]] = {"room": ask("shorter", tools=(SEARCH, NOW), max_tokens=TOKENS), "no room": None}


def answer(name: str, said: str, beginning: str = "") -> Answer:
    """What a provider gives that has this to say; of a response that is fetched again, after what it said before."""
    given = json.loads(json.dumps(ANSWERS[name]).replace("<text>", said))
    if "lost" in given:
        return Lost(beginning + given["lost"])
    if "raises" in given:
        error = failure(given)
        if isinstance(error, ProviderUnavailable) and error.partial is not None:
            error.partial = error.partial.but(text=beginning + error.partial.text)
        assert isinstance(error, Exception)
        return error
    made = response({**given, "tokens": TOKENS if "max_tokens" in given or given.get("suspected") else 10})
    return made.but(text=beginning + made.text)


# --- One turn, driven by a script -----------------------------------------------------------------------------------


class TokenFormat:
    """A format that knows every way of taking a pause up, and prompts like a chat: what a course asks of one."""

    name = "gemini"
    reasons = openai_chat.reasons

    @staticmethod
    def resume(
        request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
    ) -> Request:
        """The next request."""
        if strategy == Strategy.NATIVE_TOKEN:
            return request.but(token=cut.token)
        return openai_chat.resume(request, cut, prompt=prompt, strategy=strategy, dialect=dialect)


TOKEN_WIRE: Final[Any] = TokenFormat


QUESTION: Final = ask(tools=(SEARCH, NOW), max_tokens=TOKENS)


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a turn is explored under.

    Attributes:
        answers: the names of what the provider may give.
        hand_over: the host runs its tools itself.
        retrieves: the provider function fetches responses that are still being made.
    """

    policy: ContinuationPolicy
    request: Request = QUESTION
    format: Format = TOKEN_WIRE
    answers: tuple[str, ...]
    reached: frozenset[TurnOutcome] = frozenset()
    hand_over: bool = False
    retrieves: bool = True

    def course(self, start: Request | Resumption, refused: set[tuple[str, str]]) -> TurnState:
        """A turn in this world, at a time that stands still."""
        setup = Setup(
            policy=self.policy,
            format=self.format,
            provider="p",
            runnable=None if self.hand_over else frozenset({"search", "now", "finish_task"}),
            retrieves=self.retrieves,
            refused=refused,
        )
        return TurnState(start, setup, turn=Turn(id="t"), clock=lambda: 0.0, tell=None)

    @property
    def budget(self) -> int:
        """Output tokens of cut responses, and of what was asked because of them."""
        limit = self.policy.continuation_max_total_completion_tokens
        return limit if isinstance(limit, int) else 4 * TOKENS

    @property
    def most_calls(self) -> int:
        """How many calls the limits add up to: the last two are the question that may be asked once more, and the
        prefill that a model may refuse.
        """
        policy = self.policy
        return (
            policy.max_iterations
            + policy.continuation_max_attempts
            + policy.continuation_tool_repair_attempts
            + policy.continuation_max_resumes
            + 2
        )


@dataclass(slots=True)
class Played:
    """What came of a script: where the turn stands after it, or how it ended.

    Attributes:
        act: what it waits for; None at its end.
        calls: each call to the provider, with how it asks; answers: what the provider gave.
        ran: the calls that were run, with the number of the provider's call that asked for them.
        shown: the deltas, joined; said: what the provider has said, by part of the answer.
    """

    state: TurnState
    refused: set[tuple[str, str]]
    act: Act | None = None
    result: TurnResult | None = None
    raised: Exception | None = None
    calls: list[tuple[Request, Strategy | None]] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    ran: list[tuple[int, ToolCall]] = field(default_factory=list)
    shown: str = ""
    said: list[str] = field(default_factory=list)


def words(given: Answer) -> str:
    """The text that arrived."""
    if isinstance(given, Lost):
        return given.text
    if isinstance(given, Exception):
        partial = getattr(given, "partial", None)
        return "" if partial is None else str(partial.text)
    return given.text


def play(world: World, script: Sequence[str], start: Request | Resumption | None = None) -> Played:
    """A turn from its beginning, through the whole script, to the next act for which the script has no answer."""
    refused: set[tuple[str, str]] = set()
    state = world.course(world.request if start is None else start, refused)
    played = Played(state, refused)
    if isinstance(start, Resumption):
        played.said = [start.passing.text if start.passing is not None else ""]
    course, reply, at = steps(state), None, 0
    while True:
        try:
            act = course.send(reply)
        except StopIteration as end:
            played.result = end.value
            return played
        except Exception as error:
            played.raised = error
            return played
        reply = None
        if isinstance(act, Delta):
            played.shown += act.text
        elif not isinstance(act, Wait):
            if isinstance(act, CallProvider):
                asked = state.turn.continuation
                played.calls.append((act.request, None if asked is None else asked.strategy))
            if at == len(script):
                played.act = act
                return played
            reply = _reply(played, act, script[at])
            at += 1


def _reply(played: Played, act: Act, move: str) -> Reply:
    match act:
        case RunTool():
            played.ran.append((len(played.answers), act.call))
            return TOOLS[move]
        case MakeRoom():
            return ROOM[move]
        case CallProvider(incoming=incoming):
            is_again = played.calls[-1][1] is Strategy.RETRIEVE
            beginning = played.said.pop() if is_again else ""
            given = answer(move, text(len(played.calls)), beginning)
            played.answers.append(given)
            played.said.append(words(given) or beginning)
            last, error = None, None
            if isinstance(given, Lost):
                played.shown += "".join(delta.text for delta in incoming.feed(Delta(text=given.text)))
            elif isinstance(given, Exception):
                last, error = getattr(given, "partial", None), given
            else:
                last = given
            played.shown += "".join(delta.text for delta in incoming.close(last))
            return error
        case _:
            raise AssertionError(act)


def moves(world: World, act: Act) -> Sequence[str]:
    """The names of all that can follow an act."""
    match act:
        case RunTool():
            return tuple(TOOLS)
        case MakeRoom():
            return tuple(ROOM)
        case _:
            return world.answers


def configuration(played: Played) -> tuple[object, ...]:
    """All that the rest of a turn depends on."""
    now = played.state
    counters, sent = now.counters, now.sent
    policy, limit = now.policy, now.policy.continuation_max_output_chars
    tail, segments, guard = sent.messages[-1], now.segments, now.guard
    last = segments[-1] if segments else None
    return (
        type(played.act).__name__,
        now.machine.state,
        now.strategy,
        now.issue,
        (counters.iterations, counters.attempts, counters.resumes, counters.repairs, counters.again),
        (counters.tokens, min(counters.chars, limit) if limit < 1_000 else 0, counters.ceiling),
        round(counters.cost, 6) if policy.max_cost is not None else 0,
        (bool(now.text.answer.strip()), now.text.shown == now.text.answer, now.text.held > 0),
        (sent.max_tokens, sent.token == "same", sent.retrieve, sent.tool_choice, bool(sent.extra)),
        (tail.role, tail.synthetic, tail.stop_reason, bool(tail.text.strip()), len(tail.tool_calls)),
        last and (last.role, last.synthetic, last.stop_reason, bool(last.text.strip()), len(last.tool_calls)),
        (len(now.calls), len(now.answers), bool(played.refused)),
        sent.messages[0].text,
        guard and (bool(guard._last), len(guard._results), guard._trivial, guard._nothing_yet),
    )


# --- The laws -------------------------------------------------------------------------------------------------------


def check_calls(world: World, played: Played) -> None:
    """No limit is exceeded, and the last request is one that a provider takes."""
    policy, base = world.policy, world.request
    kinds = [kind for _, kind in played.calls]
    assert len(kinds) <= world.most_calls
    assert kinds.count(None) <= policy.max_iterations
    refusals = len(played.refused)
    assert kinds.count(Strategy.PROMPT) + kinds.count(Strategy.PREFILL) <= policy.continuation_max_attempts + refusals
    assert kinds.count(Strategy.REPAIR) <= policy.continuation_tool_repair_attempts
    assert kinds.count(Strategy.RETRY) <= 1
    resumes = sum(kind in (Strategy.RESEND, Strategy.NATIVE_TOKEN, Strategy.RETRIEVE) for kind in kinds)
    assert resumes <= policy.continuation_max_resumes
    if not played.calls:
        return
    request, kind = played.calls[-1]
    assert (request.retrieve is not None) == (kind is Strategy.RETRIEVE)
    assert request.token is None or kind in (Strategy.NATIVE_TOKEN, Strategy.RETRY)
    made_room = request.messages[0].text == "shorter"
    begins = base if not made_room else ROOM["room"]
    assert isinstance(begins, Request)
    assert request.messages[: len(begins.messages)] == begins.messages
    kept = ("model", "tools", "temperature", "format", "seed")
    assert made_room or [getattr(request, name) for name in kept] == [getattr(base, name) for name in kept]
    assert_sendable(request.messages)
    last = request.messages[-1]
    answered = played.answers[len(played.calls) - 2] if len(played.calls) > 1 else None
    names = [each.name for each in answered.tool_calls] if isinstance(answered, ChatResponse) else []
    match kind:
        case Strategy.PROMPT | Strategy.REPAIR:
            asked = repair_prompt(policy.prompt, names) if kind is Strategy.REPAIR else policy.prompt
            assert (last.role, last.text, last.synthetic) == ("user", asked, True)
        case Strategy.PREFILL:
            assert last.role == "assistant"
            sent = world.format.encode(request)["messages"][-1]["content"][-1]["text"]
            assert sent
            assert sent == sent.rstrip()
        case None:
            assert not last.synthetic
            assert made_room or request.max_tokens == base.max_tokens
    if kind in (Strategy.PROMPT, Strategy.PREFILL, Strategy.REPAIR, Strategy.RETRY):
        spent = sum(
            TOKENS
            for given in played.answers[: len(played.calls) - 1]
            if isinstance(given, ChatResponse) and given.stop.reason is StopReason.MAX_TOKENS
        )
        assert request.max_tokens is not None
        assert 0 < request.max_tokens <= world.budget - spent


def check_tools(world: World, played: Played) -> None:
    """Nothing ran but whole batches of a verified terminal, each call once."""
    assert len({(number, asked.id) for number, asked in played.ran}) == len(played.ran)
    if world.policy.dispatch == "any_parsed":
        return
    for number, asked in played.ran:
        given = played.answers[number - 1]
        assert isinstance(given, ChatResponse)
        assert given.stop.reason is StopReason.TOOL_CALL
        assert given.stop.terminal_seen
        assert not given.stop.suspected
        assert all(each.closed for each in given.tool_calls)
        assert asked.id in {each.id for each in given.tool_calls}


def check_result(world: World, played: Played, result: TurnResult) -> None:
    """The end of a turn is told as it is, and its history can be sent and gone on with."""
    if result.outcome is TurnOutcome.CANCELLED:  # nobody was there any more to be shown what was held back
        assert result.text.startswith(played.shown)
    else:
        assert result.text == played.shown
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
    assert played.state.machine.state in FINAL or result.outcome is TurnOutcome.CANCELLED
    assert result.requests == len(played.answers) + (played.act is not None and isinstance(played.act, CallProvider))
    assert not any(message.synthetic for message in result.messages)
    assert_sendable(result.messages[:-1] if result.calls else result.messages)
    spoken = [message for message in result.segments if message.role == "assistant"]
    if all(message.text.strip() or message.tool_calls for message in spoken):
        told = "".join(message.text for message in result.messages if message.role == "assistant")
        assert told.endswith(result.answer)
        assert told == result.text or callable(world.policy.on_context_exceeded)  # what was shown, and then replaced
    if result.resumption is not None:
        assert not result.complete
        check_resumption(world, result)


def check_resumption(world: World, result: TurnResult) -> None:
    """A turn that can be taken up goes on to a whole answer: nothing lost, nothing twice."""
    if world.request.format is not None:
        return
    assert_sendable(result.resume().next.messages)
    says = "end" if world.policy.mode is None else "end, long"
    roomy = replace(world, policy=world.policy.model_copy(update={"continuation_max_output_chars": 120_000}))
    again = play(roomy, [says], result.resume())
    assert again.result is not None
    assert again.result.complete
    assert again.result.text == result.text + words(answer(says, text(1)))
    assert_sendable(again.result.messages)


def assert_sendable(messages: Sequence[Message]) -> None:
    """No dangling call, no answer to none, no empty assistant message; nudges are the user's and follow an answer."""
    for index, message in enumerate(messages):
        follower = messages[index + 1] if index + 1 < len(messages) else None
        if message.role != "assistant":
            assert message.role == "tool" or not message.tool_calls
            continue
        if message.stop_reason is StopReason.PAUSED:
            assert not message.tool_calls
            continue
        assert message.text.strip() or message.tool_calls
        asked = [each.id for each in message.tool_calls]
        answered = [m.tool_call_id for m in messages[index + 1 : index + 1 + len(asked)]]
        assert answered == asked
        beyond = messages[index + 1 + len(asked)] if index + 1 + len(asked) < len(messages) else None
        assert beyond is None or beyond.role != "tool"
        assert not asked or follower is not None


# --- All of it ------------------------------------------------------------------------------------------------------

Key = tuple[object, ...]


@dataclass(slots=True)
class Explored:
    """What was found: by configuration, where each move leads (None: the turn is over)."""

    ways: dict[Key, list[Key | None]] = field(default_factory=dict)
    outcomes: set[TurnOutcome | None] = field(default_factory=set)
    played: int = 0

    def paths(self, start: Key) -> int:
        """How many different whole turns that stands for."""
        counted: dict[Key, int] = {}

        def count(key: Key) -> int:
            if key not in counted:
                counted[key] = sum(1 if way is None else count(way) for way in self.ways[key])
            return counted[key]

        return count(start)


def explore(world: World, most: float) -> tuple[Explored, Key]:
    """Every configuration that so many moves lead to, and every move in each. A broken law names the script."""
    explored = Explored()
    first = play(world, ())
    start = configuration(first)
    explored.ways[start] = []
    assert first.act is not None
    waiting: deque[tuple[tuple[str, ...], Key, Sequence[str]]] = deque([((), start, moves(world, first.act))])
    while waiting:
        script, key, following = waiting.popleft()
        for move in following:
            longer = (*script, move)
            try:
                played = play(world, longer)
                explored.played += 1
                check_calls(world, played)
                check_tools(world, played)
                if played.act is None:
                    explored.ways[key].append(None)
                    explored.outcomes.add(_ended(world, played))
                    continue
                found = configuration(played)
                explored.ways[key].append(found)
                if found not in explored.ways:
                    explored.ways[found] = []
                    check_interrupted(world, played)
                    if len(longer) < most:
                        waiting.append((longer, found, moves(world, played.act)))
            except Exception as error:
                error.add_note(f"after the script {longer!r}")
                raise
    return explored, start


def _ended(world: World, played: Played) -> TurnOutcome | None:
    if played.result is None:
        assert isinstance(played.raised, Exception)
        assert not played.shown
        assert len(played.answers) == 1
        return None
    check_result(world, played, played.result)
    return played.result.outcome


def check_interrupted(world: World, played: Played) -> None:
    """A turn that is stopped here keeps what it has."""
    result = interrupt(played.state, None)
    assert result.outcome is TurnOutcome.CANCELLED
    if world.request.format is None:
        check_result(world, played, result)


def room(request: Request, response: ChatResponse) -> None:
    """Stands for the host's function: what it gives is the script's."""


OF_A_MODE: Final = ("JSON", "done", "end, long")
"""Answers of a turn that asks for JSON, or has a mode."""


def world(case: dict[str, Any]) -> World:
    """A world of the file; each has small limits, so that every sequence is short."""
    policy = case["policy"] | ({"on_context_exceeded": room} if case.get("makes_room") else {})
    return World(
        policy=ContinuationPolicy(**policy),
        request=request_of({"tools": ["search", "now"], "max_tokens": TOKENS, **case.get("request", {})}),
        format=format_of(case["format"]) if "format" in case else TOKEN_WIRE,
        answers=tuple(case.get("answers", [name for name in ANSWERS if not name.startswith(OF_A_MODE)])),
        hand_over=case.get("hand_over", False),
        retrieves=case.get("retrieves", True),
        reached=frozenset(map(TurnOutcome, case["reached"])),
    )


WORLDS: Final = {name: world(case) for name, case in FILE["worlds"].items()}


@pytest.mark.behaviour(17, 18, 21, 22, 24, 25, 33, 34, 37)
@pytest.mark.parametrize("steps", [3, pytest.param(math.inf, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", WORLDS)
def test_every_way_a_turn_can_go(caplog: pytest.LogCaptureFixture, name: str, steps: float) -> None:
    """Whatever a provider and tools do, the laws hold at every step, and the turn ends."""
    caplog.set_level(logging.CRITICAL, "endturn")
    explored, start = explore(WORLDS[name], steps)
    if steps == math.inf:
        turns = explored.paths(start)  # each ends: one that came back to a configuration would count for ever
        assert turns >= explored.played / len(WORLDS[name].answers)
        assert explored.outcomes >= WORLDS[name].reached
