"""Laws of a turn, over random scripts of responses, policies and chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, closing, suppress
from itertools import count, islice
from typing import Any

import pytest
from hypothesis import given, strategies as st

from endturn.calls.outcomes import TurnOutcome
from endturn.calls.records import DispatchBlocked, TurnEnded
from endturn.continuation import refused_prefills
from endturn.continuation.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.errors import ProviderError, ProviderUnavailable, RequestRejected
from endturn.vocabulary import REPLACEMENT_CHARACTER
from endturn.vocabulary.messages import ChatResponse, Delta, Request, ToolCall
from endturn.vocabulary.stop import Resume, StopReason
from tests.support.turns import NOW, SEARCH, Played, ask, assert_sendable, call, heard, said


def as_it_comes(given: ChatResponse) -> ChatResponse:
    """Only a tool call may be suspected, and only a missing reason has no terminal."""
    reason = given.stop.reason
    suspected = given.stop.suspected and reason is StopReason.TOOL_CALL
    return given.with_stop(suspected=suspected, terminal_seen=reason is not StopReason.MISSING)


WORDS = ["Hello, ", "world", " and then the answer goes on for a while. ", "```py\nx = 1\n", "Continuing:\n", "\ufffd",
         "", " ", "1 ", '{"a": 1}', '{"a": ']  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS), max_size=4).map("".join)
ARGUMENTS = st.sampled_from(['{"q": "x"}', "{}", "", '{"q": "ha', "[]"])
CALLS = st.lists(
    st.builds(call, st.sampled_from(["search", "now", "gone"]), ARGUMENTS, st.sampled_from("ab"), closed=st.booleans()),
    max_size=2,
)
SAID: st.SearchStrategy[Any] = st.builds(
    said,
    TEXTS,
    st.sampled_from([StopReason.MAX_TOKENS, StopReason.TOOL_CALL, StopReason.PAUSED, *StopReason]),
    calls=CALLS,
    tokens=st.none() | st.integers(0, 120),
    suspected=st.booleans(),
    resume=st.sampled_from(Resume),
    reasoning=st.sampled_from([None, None, "Hm."]),
    token=st.sampled_from([None, "t"]),
    id=st.sampled_from([None, "r"]),
)
"""Any response that a provider could give, likely or not."""
FAILURES = st.sampled_from([ProviderUnavailable("no"), RequestRejected("no", status=400)])
SCRIPTS = st.lists(SAID.map(as_it_comes) | FAILURES, min_size=1, max_size=8)
POLICIES = st.builds(
    ContinuationPolicy,
    continuation_max_attempts=st.integers(0, 3),
    continuation_tool_repair_attempts=st.integers(0, 2),
    continuation_max_resumes=st.integers(0, 3),
    continuation_max_total_completion_tokens=st.none() | st.just("none") | st.integers(1, 500),
    continuation_strategies=st.sampled_from(
        [("native_token", "resend", "prefill", "prompt"), ("resend", "prompt"), ("prompt", "prefill"), ("prefill",), ()]
    ),
    json_reask=st.booleans(),
    max_identical_calls=st.none() | st.integers(1, 2),
    continuation_max_output_chars=st.integers(1, 300),
    max_iterations=st.integers(1, 4),
    dispatch=st.sampled_from(["verified_terminal", "tool_call_only", "any_parsed"]),
    on_reasoning_only=st.sampled_from(["stop", "escalate_once", "reasoning_off_once"]),
    max_cost=st.sampled_from([None, 1e-4, 4e-4]),
    prices=st.just({"m": (1, 1), "claude-sonnet-4-5": (0, 1)}),
    stream_json=st.sampled_from(["held", "eager"]),
    min_overlap=st.just(4),
    max_overlap=st.integers(4, 64),
    continuation_attempts_per=st.sampled_from(["turn", "answer"]),
    promote=st.booleans(),
    on_cut_call=st.sampled_from(["repair", "drop"]),
    history=st.sampled_from(["collapsed", "segments"]),
)


REQUEST = ask(tools=(SEARCH, NOW))
CLAUDE = REQUEST.but(model="claude-sonnet-4-5")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
ASKED = st.sampled_from(
    [
        *(("openai_chat", REQUEST.but(**each)) for each in ({}, {"max_tokens": None}, {"format": SCHEMA})),
        ("anthropic", CLAUDE),
        ("anthropic", CLAUDE.but(format={"type": "json_object"})),
        ("anthropic", CLAUDE.but(extra={"thinking": {"type": "enabled", "budget_tokens": 20}})),
    ]
)
"""A format, and what is asked over it: text and JSON, of a model that takes a prefill and of one that does not."""
FormatAndRequest = tuple[str, Request]


def settings(policy: ContinuationPolicy, format: str, run: Callable[[ToolCall], str]) -> dict[str, Any]:
    """Return a controller's arguments; ids and times are the same in every turn."""
    return {
        "tools": {"search": run, "now": run}, "policy": policy, "format": format, "clock": lambda: 0.0,
        "sleep": lambda seconds: None, "new_id": lambda: "t",
    }  # fmt: skip


def provider(script: list[Any], chunk: int | None, *, retrieves: bool = False) -> Played:
    """Return a provider that plays the script; its end repeats more often than any policy of these tests allows."""
    return Played(*(script * 20)[:60], chunk=chunk, retrieves=retrieves)


async def whole(controller: Any, request: Request) -> TurnResult | None:
    """Return a turn's result from either controller; None if its first call failed."""
    refused_prefills.forget()  # each turn is the first of a process
    try:
        ran = controller.run(request)
        result: TurnResult = await ran if isinstance(controller, AsyncContinuationController) else ran
    except ProviderError:
        return None
    return result


@pytest.mark.behaviour(30, 32)
@given(script=SCRIPTS, policy=POLICIES, asked=ASKED, retrieves=st.booleans(), chunk=st.integers(1, 9))
def test_run_stream_and_async_agree(
    script: list[Any], policy: ContinuationPolicy, asked: FormatAndRequest, retrieves: bool, chunk: int
) -> None:
    """run equals stream, sync equals async, and the joined deltas are the text, whatever the chunks."""
    format, request = asked
    given_to_all = settings(policy, format, lambda call: "found")
    results: list[TurnResult | None] = []
    for size in (None, chunk):
        ways = [provider(script, size, retrieves=retrieves) for _ in range(3)]
        awaited = ways[2].coroutine if size is None else ways[2].asynchronous
        try:
            refused_prefills.forget()
            *deltas, last = ContinuationController(ways[0], **given_to_all).stream(request)
            assert isinstance(last, TurnResult)
            assert "".join(delta.text for delta in deltas if isinstance(delta, Delta)) == last.text
        except ProviderError:
            last = None
        results.append(last)
        for controller in (ContinuationController(ways[1], **given_to_all),
                           AsyncContinuationController(awaited, **given_to_all)):  # fmt: skip
            assert asyncio.run(whole(controller, request)) == last
        assert len(ways[0].requests) == len(ways[1].requests) == len(ways[2].requests)
    at_once, in_pieces = results
    # A refusal to continue is no part of the answer, unless its words were shown already (docs/continuing.md).
    later = [each for each in script[1:] if isinstance(each, ChatResponse)]
    is_declined = any(each.stop.reason is StopReason.REFUSED and each.text for each in later)
    if at_once is not None and in_pieces is not None:
        if is_declined:
            # What stands for half a character at the end is dropped once words follow it.
            assert in_pieces.text.startswith(at_once.text.removesuffix(REPLACEMENT_CHARACTER))
            assert in_pieces.outcome == at_once.outcome
        else:
            assert (in_pieces.text, in_pieces.messages) == (at_once.text, at_once.messages)


@pytest.mark.behaviour(42)
@given(script=SCRIPTS, policy=POLICIES, asked=ASKED)
def test_a_truncated_turn_is_unfinished_or_complete(
    script: list[Any], policy: ContinuationPolicy, asked: FormatAndRequest
) -> None:
    """The announced turn is complete like its result, and unfinished exactly if a truncated turn is not complete."""
    format, request = asked
    controller = ContinuationController(provider(script, None), **settings(policy, format, lambda _: "found"))
    with heard(TurnEnded) as ended:
        try:
            result = controller.run(request)
        except ProviderError:
            return
    ((turn, complete),) = [(record.turn, record.complete) for record in ended]
    assert complete == result.complete
    assert turn.unfinished == (turn.truncated and not complete)


@given(script=SCRIPTS, policy=POLICIES)
def test_calls_that_were_not_run_are_announced_as_blocked(script: list[Any], policy: ContinuationPolicy) -> None:
    """All calls of a response are run or handed over, or the reason is announced once."""
    played, ran = provider(script, None), set[tuple[int, str]]()

    def note(call: ToolCall) -> str:
        ran.add((len(played.requests), call.id))
        return "found"

    with heard(DispatchBlocked) as blocked, suppress(ProviderError):
        ContinuationController(played, **settings(policy, "openai_chat", note)).run(REQUEST)
    came = {
        (number, call.id)
        for number, response in enumerate((script * 20)[: len(played.requests)], 1)
        if isinstance(response, ChatResponse)
        for call in response.tool_calls
    }
    assert len(blocked) == len({number for number, _ in came - ran})


# --- Being stopped --------------------------------------------------------------------------------------------------


class Stopped(BaseException):
    """An exception that stops a turn from outside."""


@pytest.mark.behaviour(18)
@given(
    script=SCRIPTS,
    policy=POLICIES,
    asked=ASKED,
    at=st.integers(0, 40),
    way=st.sampled_from(["plain", "async", "left"]),
    raised=st.sampled_from([Stopped, GeneratorExit]),
)
def test_a_stopped_turn_keeps_its_partial_result(
    script: list[Any],
    policy: ContinuationPolicy,
    asked: FormatAndRequest,
    at: int,
    way: str,
    raised: type[BaseException],
) -> None:
    """A turn is stopped at any effect, or its stream abandoned after any item.

    No stream stays open, the turn ends once, its text is the shown text, and its history can be sent.
    """
    format, request = asked
    played, acts, streams, seen = provider(script, 3), count(), list[Request](), list[Any]()

    def act(call: ToolCall | None = None) -> str:
        """Return a call of the provider, a piece of its stream, or a tool."""
        if next(acts) == at and way != "left":
            raise raised
        return "found"

    def stream(request: Request) -> Iterator[Delta | ChatResponse]:
        act()
        streams.append(request)
        try:
            for item in played(request):
                act()
                yield item  # type: ignore[misc]
        finally:
            streams.remove(request)

    async def awaited(request: Request) -> AsyncIterator[Delta | ChatResponse]:
        with closing(stream(request)) as items:  # type: ignore[type-var]
            for item in items:
                await asyncio.sleep(0)
                yield item

    given_to_both = settings(policy, format, act)

    async def watched() -> None:
        controller = AsyncContinuationController(awaited, **given_to_both)
        async with aclosing(controller.stream(request)) as items:  # type: ignore[type-var]
            async for item in items:
                seen.append(item)

    result: TurnResult | None = None
    stopped_by: BaseException | None = None
    with heard(TurnEnded) as ended:
        try:
            if way == "async":
                asyncio.run(watched())
            else:
                turn = ContinuationController(stream, **given_to_both).stream(request)
                with closing(turn) as items:  # type: ignore[type-var]
                    seen.extend(islice(items, at if way == "left" else None))
        except (Stopped, GeneratorExit) as error:
            result = error.turn_result  # type: ignore[union-attr]
            stopped_by = error
        except ProviderError:
            pass
    assert streams == []
    assert len(ended) == (way != "left" or at > 0)
    if result is None:
        return
    assert result.outcome is ended[0].outcome is TurnOutcome.CANCELLED
    assert ended[0].error is stopped_by
    assert not result.complete
    shown = "".join(item.text for item in seen)
    assert result.text.startswith(shown)
    if request.format is None:  # what was held back for a seam is kept, too
        assert len(result.text) - len(shown) <= policy.max_overlap
    assert result.messages[: len(request.messages)] == request.messages
    assert_sendable(result.messages)
