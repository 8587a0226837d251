"""The google-genai SDK, observed over a scripted server; run for the previous major, too, in its own environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from inspect import isawaitable
from typing import Any

import pytest
from google import genai

from endturn.events import CallEnded
from endturn.scripted import Reply, ScriptedProvider, cut, fail, hang_up, truncate
from endturn.scripted.loopback import Answer, RequestSummary, Server
from endturn.stop import StopReason
from tests.support.announced import observed, settle

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
WORDS = "One two three four five six seven"


@contextmanager
def client(*replies: Reply, format: str = "gemini") -> Iterator[genai.Client]:
    """The SDK's client, asking a scripted server, without retries."""
    with ScriptedProvider(replies, format=format).serve() as url:
        http: Any = {"base_url": url, "retry_options": {"attempts": 1}}
        asking = genai.Client(api_key="none", http_options=http)
        try:
            yield asking
        finally:
            asking.close()


async def read(side: Any, format: str, stream: bool) -> None:
    """Ask for content, or in an interaction, by the client or its asynchronous side, and read all that comes."""
    if format == "gemini":
        made = getattr(side.models, "generate_content_stream" if stream else "generate_content")(**ASK)
    else:
        made = side.interactions.create(**TALK, stream=stream)
    made = await made if isawaitable(made) else made
    if hasattr(made, "__aiter__"):
        async for _ in made:
            pass
    elif stream:
        list(made)


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


@pytest.mark.parametrize("format", ["gemini", "gemini_interactions"])
@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(("reply", "stream", "reason"), SITUATIONS.values(), ids=SITUATIONS)
async def test_what_is_asked_is_one_record(
    format: str, asynchronous: bool, reply: Reply, stream: bool, reason: StopReason
) -> None:
    """Each attempt, with the right reason, whatever the SDK raises."""
    # google-genai 2 asks once more for an interaction where it is told to ask once.
    with observed() as told:
        with client(reply, reply, format=format) as asking:
            with suppress(Exception):
                await read(asking.aio if asynchronous else asking, format, stream)
            if asynchronous:
                await asking.aio.aclose()
        settle()
    assert set(told.reasons()) == {reason}
    assert len(told.ended) <= (2 if reason is StopReason.ERROR else 1)
    started = told.ended[0].started
    assert (started.provider, started.model, started.maximum) == ("gcp.gemini", "gemini-3-flash", 1000)
    assert (started.operation, started.stream) == ("generate_content" if format == "gemini" else "chat", stream)


def test_an_interaction_in_the_background() -> None:
    """It is one call, which the first fetch ends that shows how it ended."""
    states = iter(["queued", "in_progress", "incomplete"])

    def respond(asked: RequestSummary) -> Answer:
        body = {"id": "v1_a", "object": "interaction", "status": next(states), "model": "m", "steps": []}
        content = json.dumps(body).encode()
        return Answer(headers={"content-type": "application/json"}, chunks=(content,), length=len(content))

    with observed() as told, Server(respond).running() as url:
        asking = genai.Client(api_key="none", http_options={"base_url": url})
        asking.interactions.create(**TALK, background=True)
        asking.interactions.get("v1_a")
        assert not any(isinstance(record, CallEnded) for record in told)
        asking.interactions.get(id="v1_a")
        asking.close()
    ended = told.only()
    assert (ended.stop.reason, ended.stop.raw) == (StopReason.MAX_TOKENS, "incomplete")
