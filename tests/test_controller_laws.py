"""Laws of a turn, over random scripts of responses, policies and chunks."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endturn.chat import ChatResponse, Delta, Message, ToolCall
from endturn.continuation.policy import ContinuationPolicy
from endturn.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.errors import ProviderUnavailable
from endturn.records import CallEnded, ContinuationAttempted, DispatchBlocked, TurnEnded
from endturn.stop import Resume, StopReason
from tests.support.turns import NOW, SEARCH, Played, ask, heard, said

WORDS = [
    "Hello, ",
    "world",
    " and then the answer goes on for a while. ",
    "```py\nx = 1\n",
    "Continuing:\n",
    "",
    " ",
    "1 ",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map("".join)
CALLS = st.lists(
    st.builds(
        ToolCall,
        id=st.sampled_from(["a", "b"]),
        name=st.sampled_from(["search", "now", "gone"]),
        arguments_raw=st.sampled_from(['{"q": "x"}', "{}", "", '{"q": "ha', "[]"]),
        closed=st.booleans(),
    ),
    max_size=2,
)


@st.composite
def responses(draw: st.DrawFn) -> ChatResponse:
    """Any response that a provider could give, likely or not."""
    reason = draw(st.sampled_from([StopReason.MAX_TOKENS, StopReason.TOOL_CALL, StopReason.PAUSED, *StopReason]))
    return said(
        draw(TEXTS),
        reason,
        calls=draw(CALLS),
        tokens=draw(st.none() | st.integers(0, 120)),
        suspected=draw(st.booleans()) and reason is StopReason.TOOL_CALL,
        resume=draw(st.sampled_from(Resume)),
        terminal_seen=reason is not StopReason.MISSING,
    )


SCRIPTS = st.lists(responses() | st.just(ProviderUnavailable("no")), min_size=1, max_size=8)
POLICIES = st.builds(
    ContinuationPolicy,
    continuation_max_attempts=st.integers(0, 3),
    continuation_tool_repair_attempts=st.integers(0, 2),
    continuation_max_resumes=st.integers(0, 3),
    continuation_max_total_completion_tokens=st.none() | st.integers(1, 500),
    continuation_max_output_chars=st.integers(1, 300),
    max_iterations=st.integers(1, 4),
    dispatch=st.sampled_from(["verified_terminal", "tool_call_only", "any_parsed"]),
    min_overlap=st.just(4),
    max_overlap=st.integers(4, 64),
)


class Turns:
    """One script played as often as wanted, from the beginning each time; its end repeats."""

    def __init__(self, script: list[Any], policy: ContinuationPolicy) -> None:
        self.script = script
        self.policy = policy
        self.ran: list[tuple[int, str]] = []
        self.provider = Played()

    def _play(self, chunk: int | None) -> Played:
        # More calls than any policy of this test allows: a turn that went on for ever would run out.
        self.provider = Played(*(self.script * 20)[:60], chunk=chunk)
        self.ran = []
        return self.provider

    def tools(self) -> dict[str, Any]:
        """Tools that note which call ran in answer to which request."""

        def note(call: ToolCall) -> str:
            self.ran.append((len(self.provider.requests), call.id))
            return "found"

        return {"search": note, "now": note}

    def stream(self, chunk: int | None) -> tuple[list[Delta], TurnResult | None]:
        """The turn as a stream; None where its first call failed."""
        controller = ContinuationController(
            self._play(chunk), tools=self.tools(), policy=self.policy, clock=lambda: 0.0, new_id=lambda: "t"
        )
        items: list[Any] = []
        try:
            items.extend(controller.stream(REQUEST))
        except ProviderUnavailable:
            return [], None
        return items[:-1], items[-1]

    def run(self, chunk: int | None) -> TurnResult | None:
        """The turn as a whole."""
        controller = ContinuationController(
            self._play(chunk), tools=self.tools(), policy=self.policy, clock=lambda: 0.0, new_id=lambda: "t"
        )
        try:
            return controller.run(REQUEST)
        except ProviderUnavailable:
            return None

    async def run_async(self, chunk: int | None) -> TurnResult | None:
        """The same on the async controller, over an async provider function."""
        played = self._play(chunk)
        controller = AsyncContinuationController(
            played.coroutine if chunk is None else played.asynchronous,
            tools=self.tools(), policy=self.policy, clock=lambda: 0.0, new_id=lambda: "t",
        )  # fmt: skip
        try:
            return await controller.run(REQUEST)
        except ProviderUnavailable:
            return None


REQUEST = ask(tools=(SEARCH, NOW))


def same(a: TurnResult | None, b: TurnResult | None) -> bool:
    """Equal but for the exception object, which is made once per script."""
    return a == b


@pytest.mark.behaviour(30)
@pytest.mark.behaviour(32)
@settings(max_examples=300, deadline=None)
@given(script=SCRIPTS, policy=POLICIES, chunk=st.integers(1, 9))
def test_run_stream_and_async_agree(script: list[Any], policy: ContinuationPolicy, chunk: int) -> None:
    """run equals stream, sync equals async, and the joined deltas are the text, whatever the chunks."""
    turns = Turns(script, policy)
    whole = turns.run(None)
    deltas, streamed = turns.stream(None)
    assert same(whole, streamed)
    assert same(whole, asyncio.run(turns.run_async(None)))
    pieces, in_pieces = turns.stream(chunk)
    assert same(in_pieces, turns.run(chunk))
    assert same(in_pieces, asyncio.run(turns.run_async(chunk)))
    if whole is not None and in_pieces is not None:
        assert "".join(delta.text for delta in deltas) == whole.text
        assert "".join(delta.text for delta in pieces) == in_pieces.text == whole.text
        assert in_pieces.messages == whole.messages


@pytest.mark.behaviour(17)
@pytest.mark.behaviour(33)
@pytest.mark.behaviour(34)
@pytest.mark.behaviour(37)
@settings(max_examples=500, deadline=None)
@given(script=SCRIPTS, policy=POLICIES)
def test_every_turn_ends_within_its_limits(script: list[Any], policy: ContinuationPolicy) -> None:
    """Every run ends, no limit is exceeded, no cut call is dispatched, no call twice."""
    turns = Turns(script, policy)
    with heard() as records:
        result = turns.run(None)
    provider = turns.provider
    ended = [record for record in records if isinstance(record, TurnEnded)]
    assert len(ended) == 1
    assert sum(isinstance(record, CallEnded) for record in records) == len(provider.requests)
    allowed = (
        policy.max_iterations
        + policy.continuation_max_attempts
        + policy.continuation_tool_repair_attempts
        + policy.continuation_max_resumes
    )
    assert len(provider.requests) <= allowed
    attempts = [record for record in records if isinstance(record, ContinuationAttempted)]
    for strategy, limit in (
        ("prompt", policy.continuation_max_attempts),
        ("repair", policy.continuation_tool_repair_attempts),
        ("resend", policy.continuation_max_resumes),
    ):
        assert sum(attempt.continuation.strategy == strategy for attempt in attempts) <= limit
    assert len(turns.ran) == len(set(turns.ran))
    played = (script * 20)[:60]
    if policy.dispatch != "any_parsed":
        for number, call_id in turns.ran:
            response = played[number - 1]
            assert response.stop.reason is StopReason.TOOL_CALL
            assert not response.stop.suspected
            assert all(call.closed for call in response.tool_calls)
            assert call_id in {call.id for call in response.tool_calls}
    if result is None:
        return
    assert result.outcome is ended[0].outcome
    assert result.complete == ended[0].complete
    if result.complete:
        assert result.notice is None
        assert result.stop is not None
        assert not result.stop.truncated
    limit = policy.continuation_max_total_completion_tokens or 400
    clamped = [request.max_tokens for request in provider.requests if request.messages[-1].synthetic]
    assert all(maximum is not None and maximum <= min(limit, 100) for maximum in clamped)


@pytest.mark.behaviour(21)
@pytest.mark.behaviour(22)
@pytest.mark.behaviour(24)
@pytest.mark.behaviour(25)
@settings(max_examples=300, deadline=None)
@given(script=SCRIPTS, policy=POLICIES)
def test_every_history_can_be_sent(script: list[Any], policy: ContinuationPolicy) -> None:
    """In every request and in the result: the prefix unchanged, no dangling call, no empty message, no nudge left."""
    turns = Turns(script, policy)
    result = turns.run(None)
    for request in turns.provider.requests:
        assert request.messages[: len(REQUEST.messages)] == REQUEST.messages
        assert_sendable(request.messages, paused=True)
    if result is not None:
        assert result.messages[: len(REQUEST.messages)] == REQUEST.messages
        assert not any(message.synthetic for message in result.messages)
        assert_sendable(result.messages[:-1] if result.calls else result.messages)
        spoken = [message for message in result.segments if message.role == "assistant"]
        if all(message.text.strip() for message in spoken):  # one that says nothing leaves no message
            assert "".join(m.text for m in result.messages if m.role == "assistant") == result.text


def assert_sendable(messages: tuple[Message, ...], *, paused: bool = False) -> None:
    """What providers refuse is not there. A paused answer is resent as it is, whatever it holds."""
    last = messages[-1]
    for index, message in enumerate(messages):
        if message.role != "assistant" or (paused and message.stop_reason is StopReason.PAUSED):
            continue
        assert message.text.strip() or message.tool_calls
        answered = []
        for follower in messages[index + 1 :]:
            if follower.role != "tool":
                break
            answered.append(follower.tool_call_id)
        asked = [call.id for call in message.tool_calls]
        assert len(set(asked)) == len(asked)
        assert answered == asked or message is last


@settings(max_examples=200, deadline=None)
@given(script=SCRIPTS, policy=POLICIES)
def test_what_was_not_run_is_announced_as_blocked(script: list[Any], policy: ContinuationPolicy) -> None:
    """Every response with calls either runs or hands over some of them, or says why none was run."""
    turns = Turns(script, policy)
    with heard(DispatchBlocked) as blocked:
        turns.run(None)
    responses = (script * 20)[: len(turns.provider.requests)]
    with_calls = {
        number
        for number, response in enumerate(responses, 1)
        if isinstance(response, ChatResponse) and response.tool_calls
    }
    ran = {number for number, _ in turns.ran}
    assert len(blocked) == len(with_calls - ran)


@settings(max_examples=200, deadline=None)
@given(script=SCRIPTS, policy=POLICIES)
def test_whatever_has_a_handle_can_be_taken_up(script: list[Any], policy: ContinuationPolicy) -> None:
    """An unfinished turn goes on from its handle to a whole answer, its text kept as the beginning."""
    turns = Turns(script, policy)
    result = turns.run(None)
    if result is None or result.resumption is None:
        return
    assert not result.complete
    finished = ContinuationController(Played(said("The end.")), policy=policy, tools={}).run(result.resume())
    assert finished.complete
    assert finished.text.startswith(result.text)
    assert finished.iterations == result.iterations + 1
    assert_sendable(finished.messages)
