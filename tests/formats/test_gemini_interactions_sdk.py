"""The real Google SDK's interactions, asking a scripted provider over a socket: streamed and not, sync and async."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, get_args

import pytest
from google import genai
from google.genai._gaos.types.interactions.interaction import InteractionStatus
from google.genai._interactions import APIStatusError, BadRequestError

from endturn.formats import Context
from endturn.formats.gemini_interactions import FORMAT as gemini_interactions
from endturn.scripted import Reply, ScriptedProvider, call, cut, fail, pause, say, think, truncate
from endturn.sdk_objects import dumped
from endturn.stop import StopReason

CASES = {
    "text": (say("All of it. 👋🏽"), "All of it. 👋🏽", StopReason.END_TURN),
    "incomplete": (truncate("One two three", after=2), "One two", StopReason.MAX_TOKENS),
    "thinking": (think("Let me see", text="Yes"), "Yes", StopReason.END_TURN),
    "calls": (call("read", {"path": "a b.txt"}, text="Reading.").also("list", {}), "Reading.", StopReason.TOOL_CALL),
}
each = pytest.mark.parametrize("name", CASES)


def options(url: str) -> Any:
    """A client's options: the provider's address, no retries."""
    return {"base_url": url, "retry_options": {"attempts": 1}}


@contextmanager
def client(*replies: Reply) -> Iterator[genai.Client]:
    """A client of a server that plays these replies."""
    with ScriptedProvider(replies, format="gemini_interactions").serve() as url:
        asking = genai.Client(api_key="none", http_options=options(url))
        try:
            yield asking
        finally:
            asking.close()


@asynccontextmanager
async def async_client(*replies: Reply) -> Any:
    """The same, asynchronous."""
    with ScriptedProvider(replies, format="gemini_interactions").serve() as url:
        asking = genai.Client(api_key="none", http_options=options(url))
        try:
            yield asking.aio
        finally:
            await asking.aio.aclose()
            asking.close()


def text_of(events: list[Any]) -> str:
    """The visible text of a stream's events."""
    return "".join(e.delta.text for e in events if e.event_type == "step.delta" and e.delta.type == "text")


def seen(things: list[Any]) -> StopReason:
    """What a summarizer makes of the SDK's objects."""
    summarizer = gemini_interactions.summarizer(Context())
    for thing in things:
        summarizer.feed(dumped(thing))
    return summarizer.close().stop.reason


@each
def test_create(name: str) -> None:
    """An interaction, and the events of a stream, are the SDK's objects, and the summarizer reads them."""
    reply, text, reason = CASES[name]
    with client(reply, reply) as asking:
        body: Any = asking.interactions.create(model="m", input="hi")
        events = list(asking.interactions.create(model="m", input="hi", stream=True))
    assert body.output_text == text
    assert text_of(events) == text
    assert events[-1].event_type == "interaction.completed"
    assert (seen([body]), seen(events)) == (reason, reason)
    assert gemini_interactions.decode(dumped(body), ctx=Context()).text == text


@each
async def test_create_async(name: str) -> None:
    """The same with the asynchronous client."""
    reply, text, reason = CASES[name]
    async with async_client(reply, reply) as asking:
        body = await asking.interactions.create(model="m", input="hi")
        stream = await asking.interactions.create(model="m", input="hi", stream=True)
        events = [event async for event in stream]
    assert text_of(events) == text
    assert (seen([body]), seen(events)) == (reason, reason)


@pytest.mark.parametrize("stream", [False, True])
def test_the_sdk_follows_tokens_by_itself(stream: bool) -> None:
    """It asks again with the token and the interaction that gave it; the summarizer reads all hops as one response."""
    provider = ScriptedProvider([pause("Chapter one. "), say("Chapter two.")], format="gemini_interactions")
    with provider.serve() as url:
        asking = genai.Client(api_key="none", http_options=options(url))
        answer: Any = asking.interactions.create(model="m", input="hi", stream=stream)
        things = list(answer) if stream else [answer]
        asking.close()
    summarizer = gemini_interactions.summarizer(Context())
    for thing in things:
        summarizer.feed(dumped(thing))
    found = summarizer.close()
    assert (found.stop.reason, found.tail) == (StopReason.END_TURN, "Chapter one. Chapter two.")
    first, second = provider.received
    assert (second.request.previous_id, "input" in second.body) == ("v1_00000001", False)
    assert second.request.token == second.body["continuation_token"]
    assert first.request.token is None


def test_a_response_is_fetched() -> None:
    """GET of an interaction's id."""
    with client(say("Done.")) as asking:
        assert seen([asking.interactions.get("v1_a")]) is StopReason.END_TURN


def test_a_cut_stream_ends_without_its_end() -> None:
    """The SDK just stops; the summarizer says that the end is missing."""
    with client(cut("One two three", after=2, tidy=True)) as asking:
        events = list(asking.interactions.create(model="m", input="hi", stream=True))
    assert text_of(events) == "One two"
    assert seen(events) is StopReason.MISSING


def test_failures_are_the_sdks_own() -> None:
    """An error answer raises the SDK's class; an error in a stream is an event, which the summarizer reads."""
    with client(fail(400), fail(500, text="So far")) as asking:
        with pytest.raises(BadRequestError) as raised:
            asking.interactions.create(model="m", input="hi")
        assert isinstance(raised.value, APIStatusError)
        events = list(asking.interactions.create(model="m", input="hi", stream=True))
    assert text_of(events) == "So far"
    assert seen(events) is StopReason.ERROR


def test_no_status_is_without_a_row() -> None:
    """Canary: every status that the installed SDK declares has its row."""
    literal, *_ = get_args(InteractionStatus)
    missing = set(get_args(literal)) - set(gemini_interactions.reasons[""])
    assert not missing, f"stop_reasons.tsv has no row of gemini_interactions for {sorted(missing)}"
