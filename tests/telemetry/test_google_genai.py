"""The google-genai SDK, observed over a scripted server; run for the previous major, too, in its own environment."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

import pytest
from google import genai

from endturn.scripted import Reply, ScriptedProvider, call, cut, fail, hang_up, pause, say, truncate
from endturn.scripted.loopback import Answer, RequestSummary, Server
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.support.announced import Announced, observed

pytestmark = [
    # Where aiohttp is installed, the SDK asks through a class of its own that aiohttp warns of.
    pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning"),
    # What closes no connection of a stream that fails or is dropped warns without us, too.
    pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:.*Interactions usage is experimental.*:UserWarning"),
]

ASK: dict[str, Any] = {"model": "gemini-3-flash", "contents": "hi", "config": {"max_output_tokens": 1000}}
TALK: dict[str, Any] = {"model": "gemini-3-flash", "input": "hi", "generation_config": {"max_output_tokens": 1000}}
INTERACTIONS = "gemini_interactions"
WORDS = "One two three four five six seven"


@pytest.fixture
def told() -> Iterator[Announced]:
    """Everything that is announced while the SDK is instrumented; nothing of ours may fail."""
    with observed() as found:
        yield found


def reasons(told: Announced) -> list[StopReason]:
    """Of the calls that ended, what was dropped among them."""
    gc.collect()
    cleanup.run()
    return told.reasons()


@contextmanager
def client(*replies: Reply, format: str = "gemini", **options: Any) -> Iterator[genai.Client]:
    """The SDK's client, asking a scripted server, without retries."""
    with ScriptedProvider(replies, format=format).serve() as url:
        http: Any = {"base_url": url, "retry_options": {"attempts": 1}}
        asking = genai.Client(api_key="none", http_options=http, **options)
        try:
            yield asking
        finally:
            asking.close()


# --- Every way of asking -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """Content or interactions, through the client or its asynchronous side."""

    format: str
    asynchronous: bool

    async def read(self, asking: Any, stream: bool) -> None:
        """Ask, and read all that comes."""
        side = asking.aio if self.asynchronous else asking
        if self.format == INTERACTIONS:
            made = side.interactions.create(**TALK, stream=stream)
        elif stream:
            made = side.models.generate_content_stream(**ASK)
        else:
            made = side.models.generate_content(**ASK)
        made = await made if isawaitable(made) else made
        if stream and self.asynchronous:
            async for _ in made:
                pass
        elif stream:
            list(made)


WAYS = [
    pytest.param(Way(format, asynchronous), id=f"{format}{' async' * asynchronous}")
    for format in ("gemini", INTERACTIONS)
    for asynchronous in (False, True)
]

SITUATIONS: dict[str, tuple[Reply, bool, StopReason]] = {
    "whole": (truncate("One two three", after=2), False, StopReason.MAX_TOKENS),
    "streamed": (truncate("One two three", after=2), True, StopReason.MAX_TOKENS),
    "cut": (cut(WORDS, after=2, tidy=True), True, StopReason.MISSING),
    "broken": (cut(WORDS, after=2), True, StopReason.MISSING),
    "an error within": (fail(503, text="One two"), True, StopReason.ERROR),
    "refused": (fail(429), False, StopReason.ERROR),
    "refused, streamed": (fail(429), True, StopReason.ERROR),
    "hung up": (hang_up(), False, StopReason.ERROR),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("reply", "stream", "reason"), SITUATIONS.values(), ids=SITUATIONS)
async def test_what_is_asked_is_one_record(
    told: Announced, way: Way, reply: Reply, stream: bool, reason: StopReason
) -> None:
    """Each attempt, with the right reason, whatever the SDK raises."""
    # google-genai 2 asks once more for an interaction where it is told to ask once.
    with client(*[reply] * 2, format=way.format) as asking:
        with suppress(Exception):
            await way.read(asking, stream)
        if way.asynchronous:
            await asking.aio.aclose()
    assert set(reasons(told)) == {reason}
    assert len(told.ended) <= (2 if reason is StopReason.ERROR else 1)
    started = told.ended[0].started
    assert (started.provider, started.model, started.maximum) == ("gcp.gemini", "gemini-3-flash", 1000)
    assert (started.operation, started.stream) == ("chat" if way.format == INTERACTIONS else "generate_content", stream)


# --- What it makes of its own ----------------------------------------------------------------------------------------


def test_tools_that_the_sdk_runs(told: Announced) -> None:
    """Automatic function calling makes several calls; each is one record, and the tools run between them."""
    seen: list[int] = []

    def clock() -> str:
        """The time."""
        seen.append(len(told.ended))
        return "12:00"

    with client(call("clock", {}), say("Noon.")) as asking:
        answer = asking.models.generate_content(model="m", contents="hi", config={"tools": [clock]})
    assert answer.text == "Noon."
    assert seen == [1]
    assert reasons(told) == [StopReason.TOOL_CALL, StopReason.END_TURN]
    assert len(told.turns) == 2


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("format", ["gemini", INTERACTIONS])
async def test_tokens_that_the_sdk_follows(told: Announced, format: str, stream: bool) -> None:
    """Each hop of a long answer is a call of the provider, with its own reason, which the SDK hides from its host."""
    with client(pause("One "), say("two."), format=format) as asking:
        await Way(format, asynchronous=False).read(asking, stream)
    assert reasons(told) == [StopReason.PAUSED, StopReason.END_TURN]


def test_an_interaction_in_the_background(told: Announced) -> None:
    """It is one call, which the first fetch ends that shows how it ended."""
    states = iter(["queued", "in_progress", "incomplete"])

    def respond(asked: RequestSummary) -> Answer:
        body = {"id": "v1_a", "object": "interaction", "status": next(states), "model": "m", "steps": []}
        content = json.dumps(body).encode()
        return Answer(headers={"content-type": "application/json"}, chunks=(content,), length=len(content))

    with Server(respond).running() as url:
        asking = genai.Client(api_key="none", http_options={"base_url": url})
        asking.interactions.create(**TALK, background=True)
        asking.interactions.get("v1_a")
        assert not told.ended
        asking.interactions.get(id="v1_a")
        asking.close()
    ended = told.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "incomplete")
