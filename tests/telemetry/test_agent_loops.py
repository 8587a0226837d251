"""Agents' tool loops as people write them, over the vendors' SDKs: a user's question is one turn.

Each agent of `tests/support/agent_loops.py` runs a tool twice, and hands the last answer back, which a limit has
truncated. The provider is scripted, on loopback; calls are observed as `endturn.instrument()` observes them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest

from endturn.calls.outcomes import TurnKind, TurnOutcome
from endturn.instrumentation._instrument import uninstrument
from endturn.instrumentation.decorators import observe_turn
from endturn.testing.scripted import ScriptedProvider, by_conversation, call, fail, pause, say, truncate
from endturn.vocabulary.stop import StopReason
from tests.support.agent_loops import AGENTS, STREAMING, TOOL, openai_responses_background
from tests.support.announced import Records, observed

# SDKs whose clients cannot be closed.
pytestmark = [
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

ANSWER = "The tides are the rise and fall of the sea that the moon"
SCRIPT = [call(TOOL, {"query": "tides"}), call(TOOL, {"query": "moon"}), truncate(ANSWER)]


@pytest.fixture
def records() -> Iterator[Records]:
    with observed() as found:
        yield found
    gc.collect()  # what an SDK left unclosed warns here, where that is expected
    gc.freeze()  # the modules that an agent imported are not looked at again


def ways() -> list[Any]:
    return [*((name, False) for name in AGENTS), *((name, True) for name in STREAMING)]


@pytest.mark.parametrize(("name", "stream"), ways())
def test_a_question_is_one_turn(records: Records, name: str, stream: bool) -> None:
    """Three calls of a tool loop, the last one truncated: one turn, which was not continued."""
    with ScriptedProvider(SCRIPT).serve() as url:
        AGENTS[name](url, "What are tides?", stream)
    assert records.turns == []  # it waits for a continuation
    uninstrument()  # as when the process ends
    (ended,) = records.turns
    assert (ended.turn.kind, ended.turn.iterations) == (TurnKind.IMPLICIT, 3)
    assert (ended.outcome, ended.complete) == (TurnOutcome.NOT_CONTINUED, False)


@pytest.mark.parametrize(("name", "stream"), [way for way in ways() if not way[0].endswith("_threads")])
def test_declared_or_not_it_is_the_same_turn(records: Records, name: str, stream: bool) -> None:
    """`observe_turn` around the agent says the same. A thread that is not given the context is no part of its turn."""
    with ScriptedProvider(SCRIPT).serve() as url:
        observe_turn(AGENTS[name])(url, "What are tides?", stream)
    (ended,) = records.turns
    assert (ended.turn.kind, ended.turn.iterations) == (TurnKind.OBSERVED, 3)
    assert (ended.outcome, ended.complete) == (TurnOutcome.NOT_CONTINUED, False)


def test_responses_in_the_background_are_one_turn(records: Records) -> None:
    """Each is over when it is fetched whole; the next one names it."""
    script = [reply for step in SCRIPT for reply in (pause(), pause(), step)]
    with ScriptedProvider(script).serve() as url:
        openai_responses_background(url, "What are tides?", False)
    uninstrument()
    (ended,) = records.turns
    assert (ended.turn.iterations, ended.outcome) == (3, TurnOutcome.NOT_CONTINUED)


@pytest.mark.parametrize("name", ["openai_async", "openai_threads", "anthropic_async", "anthropic_threads"])
def test_agents_at_once_have_turns_of_their_own(records: Records, name: str) -> None:
    """Eight ask the same question at the same time, each in a thread of its own."""
    with ScriptedProvider(SCRIPT, key=by_conversation).serve() as url, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: AGENTS[name](url, f"What are tides? {number}", number % 2 > 0), range(8)))
    uninstrument()
    assert records.told() == ["None 3 not_continued"] * 8


def test_a_stream_that_is_left_at_its_reason(records: Records) -> None:
    """A host that reads no further than the reason, and keeps the stream: its results belong to the same turn."""
    from openai import OpenAI

    messages: list[Any] = [{"role": "user", "content": "What are tides?"}]
    with ScriptedProvider(SCRIPT[1:]).serve() as url, OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        asked: dict[str, Any] = {"model": "m", "stream": True}
        stream = client.chat.completions.create(messages=messages, **asked)
        chunks = []
        for chunk in stream:
            chunks.append(chunk)
            if chunk.choices and chunk.choices[0].finish_reason:
                break
        (call_id,) = {each.id for chunk in chunks for each in chunk.choices[0].delta.tool_calls or () if each.id}
        function = {"name": TOOL, "arguments": "{}"}
        messages.append(
            {"role": "assistant", "tool_calls": [{"id": call_id, "type": "function", "function": function}]}
        )
        messages.append({"role": "tool", "tool_call_id": call_id, "content": "42"})
        list(client.chat.completions.create(messages=messages, **asked))
        stream.close()
    uninstrument()
    (ended,) = records.turns
    assert (ended.turn.iterations, ended.outcome) == (2, TurnOutcome.NOT_CONTINUED)


def test_results_end_no_stream_of_another_agent(records: Records) -> None:
    """A server that counts its calls gives two agents the same id: one's results do not end the other's stream."""
    from openai import OpenAI

    script = [call(TOOL, {"query": "tides"}, id="call_0"), truncate(ANSWER)]
    with ScriptedProvider(script).serve() as url, OpenAI(base_url=f"{url}/v1", api_key="none") as client:
        asked: dict[str, Any] = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
        stream = client.chat.completions.create(messages=[{"role": "user", "content": "What are tides?"}], **asked)
        for chunk in stream:
            if chunk.choices and chunk.choices[0].finish_reason:
                break
        tool_call = {"id": "call_0", "type": "function", "function": {"name": TOOL, "arguments": "{}"}}
        other: list[Any] = [
            {"role": "user", "content": "What is Mars?"},
            {"role": "assistant", "tool_calls": [tool_call]},
            {"role": "tool", "tool_call_id": "call_0", "content": "42"},
        ]
        list(client.chat.completions.create(messages=other, **asked))
        list(stream)
    first = next(ended for ended in records.ended if ended.stop.reason is StopReason.TOOL_CALL)
    assert first.usage is not None
    assert first.usage.output_tokens is not None


@pytest.mark.parametrize("name", ["openai_chat", "anthropic", "converse"])
def test_what_an_sdk_retries_is_one_turn(records: Records, name: str) -> None:
    """Two failed attempts and an answer are three calls of one turn: the SDK marks them in a header."""
    script = [fail(500), fail(503), truncate(ANSWER)]
    with ScriptedProvider(script).serve() as url:
        AGENTS[name](url, "What are tides?", False)
    uninstrument()  # as when the process ends
    (ended,) = records.turns
    assert (ended.turn.iterations, ended.outcome) == (3, TurnOutcome.NOT_CONTINUED)


def test_retries_of_calls_at_once_are_told_apart(records: Records) -> None:
    """One prompt is asked twice at once, and both first attempts fail: two turns of two calls."""
    from openai import OpenAI

    def ask(url: str) -> None:
        with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=1) as client:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])

    script = [fail(500), fail(500), say("Hello."), say("Hello.")]
    with ScriptedProvider(script).serve() as url, ThreadPoolExecutor(2) as pool:
        list(pool.map(ask, [url, url]))
    uninstrument()
    assert sorted(records.told()) == ["None 2 completed"] * 2


def test_a_new_call_repeats_no_failed_one(records: Records) -> None:
    """The SDK says that it is a first attempt: what failed before is a turn of its own."""
    from openai import InternalServerError, OpenAI

    with (
        ScriptedProvider([fail(500), say("Hello.")]).serve() as url,
        OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
    ):
        ask = partial(client.chat.completions.create, model="m", messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(InternalServerError):
            ask()
        ask()
    uninstrument()
    assert sorted(records.told()) == ["None 1 completed", "None 1 provider_error"]
