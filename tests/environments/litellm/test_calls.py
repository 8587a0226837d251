"""LiteLLM over OpenAI's SDK, and over a client of its own: each exchange is one record and one span."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import litellm
import openai
import pytest
from litellm import acompletion, aresponses, atext_completion, completion, responses, text_completion

import endturn
from endturn.events import CallEnded, Strategy, TurnOutcome
from endturn.scripted import Reply, ScriptedProvider, call, cut, fail, hang_up, say, truncate
from endturn.scripted.loopback import Answer, RequestSummary, Server
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.environments.litellm.conftest import end_what_is_open
from tests.support.announced import Announced

ASK: list[Any] = [{"role": "user", "content": "Count."}]
HALF = truncate("One two three four", after=2)
WHOLE = say("One two three four.")

OVER = {"openai": ("openai/gpt-4o", "/v1"), "anthropic": ("anthropic/claude-sonnet-4-5", "")}
"""Over OpenAI's SDK; over LiteLLM's own HTTP client."""


@pytest.fixture(params=OVER)
def over(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Asking:
    """Calls to a scripted provider through LiteLLM."""

    def __init__(self, over: str, url: str) -> None:
        self.model, path = OVER[over]
        self.provider, self.bare = self.model.split("/")
        self.how: dict[str, Any] = {"api_base": url + path, "api_key": "none", "max_retries": 0}

    def ask(self, messages: list[Any] = ASK, **more: Any) -> Any:
        return completion(self.model, messages, **self.how, **more)

    async def aask(self, messages: list[Any] = ASK, **more: Any) -> Any:
        return await acompletion(model=self.model, messages=messages, **self.how, **more)


@pytest.fixture
def asking(over: str) -> Iterator[Callable[..., Asking]]:
    """Starts a provider that says these replies."""
    running: list[Any] = []

    def start(*replies: Reply) -> Asking:
        serving = ScriptedProvider(list(replies)).serve()
        running.append(serving)
        return Asking(over, serving.__enter__())

    yield start
    for serving in running:
        serving.__exit__(None, None, None)


def settle(seen: Announced) -> None:
    """Have what was dropped noticed: the threads that LiteLLM logs with hold a stream for a while longer."""
    for _ in range(200):
        gc.collect()
        cleanup.run()
        if any(isinstance(record, CallEnded) for record in seen.records):
            return
        time.sleep(0.02)


# --- One call ------------------------------------------------------------------------------------------------------


def check(seen: Announced, asked: Asking, *, stream: bool = False) -> None:
    one = seen.only()
    assert (one.stop.reason, one.stop.raw) == (
        StopReason.MAX_TOKENS,
        "max_tokens" if one.stop.raw == "max_tokens" else "length",
    )
    assert (one.started.provider, one.started.model) == (asked.provider, asked.bare)
    assert (one.started.server_address, one.started.operation) == ("127.0.0.1", "chat")
    assert one.started.stream is stream
    assert one.output_chars == len("One two")


def test_a_call(seen: Announced, asking: Callable[..., Asking]) -> None:
    """One record, with LiteLLM's prefix of the model taken off."""
    asked = asking(HALF)
    answer = asked.ask()
    assert isinstance(answer, litellm.ModelResponse)
    check(seen, asked)


def test_an_async_call(seen: Announced, asking: Callable[..., Asking]) -> None:
    """The function that the async one runs in a thread makes no second record."""
    asked = asking(HALF)
    asyncio.run(asked.aask())
    check(seen, asked)


def test_a_stream(seen: Announced, asking: Callable[..., Asking]) -> None:
    """It stays LiteLLM's own stream, and its end is the call's."""
    asked = asking(HALF)
    stream = asked.ask(stream=True)
    assert type(stream) is litellm.CustomStreamWrapper
    assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    end_what_is_open()
    check(seen, asked, stream=True)


def test_an_async_stream(seen: Announced, asking: Callable[..., Asking]) -> None:
    """The same, asynchronously."""
    asked = asking(HALF)

    async def main() -> None:
        async for _ in await asked.aask(stream=True):
            pass

    asyncio.run(main())
    settle(seen)
    check(seen, asked, stream=True)


def test_a_tool_call(seen: Announced, asking: Callable[..., Asking]) -> None:
    """Its reason is a tool call, whole and streamed."""
    asked = asking(call("search", {"q": "x"}), call("search", {"q": "x"}))
    asked.ask()
    for _ in asked.ask(stream=True):
        pass
    end_what_is_open()
    assert [one.stop.reason for one in seen.calls] == [StopReason.TOOL_CALL] * 2


# --- The ends of streams -------------------------------------------------------------------------------------------

PACED = say("A long enough answer to be left before its end, in a good many pieces of text.").but(pace_s=0.01)


def test_a_stream_that_is_dropped(seen: Announced, asking: Callable[..., Asking]) -> None:
    """A host that breaks off and forgets the stream cancelled it."""
    stream = asking(PACED).ask(stream=True)
    next(stream)
    del stream
    settle(seen)
    assert seen.only().stop.reason is StopReason.CANCELLED


def test_a_stream_that_is_never_read(seen: Announced, asking: Callable[..., Asking]) -> None:
    """Where nothing was sent before the first read, it is a record all the same."""
    stream = asking(PACED).ask(stream=True)
    del stream
    settle(seen)
    assert seen.only().stop.reason is StopReason.CANCELLED


def test_an_async_stream_that_is_closed(seen: Announced, asking: Callable[..., Asking]) -> None:
    """`aclose` cancels."""
    asked = asking(PACED)

    async def main() -> None:
        stream = await asked.aask(stream=True)
        async for _ in stream:
            break
        await stream.aclose()

    asyncio.run(main())
    settle(seen)
    assert seen.only().stop.reason is StopReason.CANCELLED


def test_a_task_that_is_cancelled(seen: Announced, asking: Callable[..., Asking]) -> None:
    """So does cancelling the task that reads."""
    asked = asking(PACED)

    async def main() -> None:
        begun = asyncio.Event()

        async def read() -> None:
            async for _ in await asked.aask(stream=True):
                begun.set()

        task = asyncio.create_task(read())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task

    asyncio.run(main())
    settle(seen)
    assert seen.only().stop.reason is StopReason.CANCELLED


def test_a_stream_that_loses_its_end(seen: Announced, asking: Callable[..., Asking]) -> None:
    """LiteLLM closes it with a `stop` that nobody sent, or raises: the reason is missing."""
    asked = asking(cut("One two three", after=2, tidy=True))
    try:
        said = [chunk.choices[0].finish_reason for chunk in asked.ask(stream=True)]
    except litellm.exceptions.MidStreamFallbackError:
        said = []
    assert said[-1:] in ([], ["stop"])
    assert seen.only().stop.reason is StopReason.MISSING


# --- Errors, retries, fallbacks ------------------------------------------------------------------------------------


def test_an_error(seen: Announced, asking: Callable[..., Asking]) -> None:
    """It is raised as LiteLLM raises it, and recorded as an error."""
    with pytest.raises(litellm.exceptions.RateLimitError):
        asking(fail(429)).ask()
    one = seen.only()
    assert one.stop.reason is StopReason.ERROR
    assert one.error is not None


def test_a_connection_that_is_refused(seen: Announced, asking: Callable[..., Asking]) -> None:
    """A server that hangs up before it answers is an error."""
    with pytest.raises(openai.APIError):
        asking(hang_up()).ask()
    assert seen.only().stop.reason is StopReason.ERROR


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
def test_the_router_s_retries(seen: Announced, asking: Callable[..., Asking], asynchronous: bool) -> None:
    """Each is a call of its own to the provider: two errors, then an answer."""
    asked = asking(fail(500), fail(500), HALF)
    deployment = {"model_name": "m", "litellm_params": {"model": asked.model, **asked.how}}
    router = litellm.Router([deployment], num_retries=2, retry_after=0, disable_cooldowns=True)
    if asynchronous:
        asyncio.run(router.acompletion("m", ASK))
    else:
        router.completion("m", ASK)
    assert [one.stop.reason for one in seen.calls] == [StopReason.ERROR, StopReason.ERROR, StopReason.MAX_TOKENS]
    assert len(seen.spans) == 3


def test_the_router_s_stream(seen: Announced, asking: Callable[..., Asking]) -> None:
    """What the Router puts around a stream to fall back in its midst makes no second record."""
    asked = asking(HALF)
    router = litellm.Router([{"model_name": "m", "litellm_params": {"model": asked.model, **asked.how}}])

    async def main() -> None:
        async for _ in await router.acompletion("m", ASK, stream=True):
            pass

    asyncio.run(main())
    settle(seen)
    check(seen, asked, stream=True)


def test_a_fallback(seen: Announced, asking: Callable[..., Asking]) -> None:
    """The model that failed and the one that took its place are two calls."""
    asked = asking(fail(500), WHOLE)
    asked.ask(fallbacks=[{"model": asked.model}], num_retries=0)
    assert [one.stop.reason for one in seen.calls] == [StopReason.ERROR, StopReason.END_TURN]


# --- No exchange ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_mock(seen: Announced, stream: bool) -> None:
    """What LiteLLM says by itself asks nobody."""
    answer = completion("anthropic/claude-sonnet-4-5", ASK, mock_response="Hi there, you.", stream=stream)
    for _ in answer if stream else ():
        pass
    assert not seen.records


# --- Text completions and Responses --------------------------------------------------------------------------------


def _text(url: str, asynchronous: bool, stream: bool) -> None:
    how: dict[str, Any] = {
        "model": "text-completion-openai/gpt-3.5-turbo-instruct",
        "prompt": "Count.",
        "api_base": f"{url}/v1",
        "api_key": "none",
        "stream": stream,
    }
    _run(text_completion, atext_completion, asynchronous, stream, how)


def _responses(url: str, asynchronous: bool, stream: bool) -> None:
    how: dict[str, Any] = {
        "model": "openai/gpt-4o",
        "input": "Count.",
        "api_base": f"{url}/v1",
        "api_key": "none",
        "stream": stream,
    }
    _run(responses, aresponses, asynchronous, stream, how)


def _run(
    ask: Callable[..., Any], aask: Callable[..., Awaitable[Any]], asynchronous: bool, stream: bool, how: dict[str, Any]
) -> None:
    if not asynchronous:
        answer = ask(**how)
        for _ in answer if stream else ():
            pass
        return

    async def main() -> None:
        answer = await aask(**how)
        if stream:
            async for _ in answer:
                pass

    asyncio.run(main())


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize(
    ("ask", "operation"), [(_text, "text_completion"), (_responses, "chat")], ids=["text", "responses"]
)
def test_other_functions(
    seen: Announced, ask: Callable[[str, bool, bool], None], operation: str, asynchronous: bool, stream: bool
) -> None:
    """Text completions and Responses, in every way: one record, the right reason."""
    with ScriptedProvider([HALF]).serve() as url:
        ask(url, asynchronous, stream)
    one = seen.only()
    assert one.stop.reason is StopReason.MAX_TOKENS
    assert (one.started.operation, one.started.provider) == (operation, "openai")


def test_responses_of_a_provider_that_has_none(seen: Announced) -> None:
    """LiteLLM makes it a chat completion: that one is the call."""
    with ScriptedProvider([HALF]).serve() as url:
        responses(model="anthropic/claude-sonnet-4-5", input="Count.", api_base=url, api_key="none")
    assert seen.only().stop.reason is StopReason.MAX_TOKENS


EMBED: dict[str, Any] = {"input": ["hi"]}
PAINT: dict[str, Any] = {"prompt": "a cat"}
RANK: dict[str, Any] = {"query": "hi", "documents": ["a"]}
TITAN, CANVAS = "bedrock/amazon.titan-embed-text-v2:0", "bedrock/amazon.nova-canvas-v1:0"
AWS = {"aws_region_name": "us-east-1", "aws_access_key_id": "none", "aws_secret_access_key": "none"}


@pytest.mark.parametrize(
    ("ask", "asked"),
    [
        pytest.param(litellm.embedding, {"model": "openai/m", **EMBED}, id="embedding"),
        pytest.param(litellm.embedding, {"model": "cohere/m", **EMBED}, id="embedding, cohere"),
        pytest.param(litellm.embedding, {"model": "ollama/m", **EMBED}, id="embedding, ollama"),
        pytest.param(litellm.embedding, {"model": TITAN, **EMBED, **AWS}, id="embedding, bedrock"),
        pytest.param(litellm.image_generation, {"model": "openai/dall-e-3", **PAINT}, id="image"),
        pytest.param(litellm.image_generation, {"model": CANVAS, **PAINT, **AWS}, id="image, bedrock"),
        pytest.param(litellm.rerank, {"model": "cohere/m", **RANK}, id="rerank"),
        pytest.param(litellm.moderation, {"model": "openai/omni-moderation-latest", "input": "hi"}, id="moderation"),
    ],
)
def test_what_is_no_text(seen: Announced, ask: Callable[..., Any], asked: dict[str, Any]) -> None:
    """Embeddings, rankings, pictures, classes: asked, whatever is made of the answer, and not recorded."""
    arrived: list[RequestSummary] = []
    answer = Answer(headers={"content-type": "application/json"}, chunks=(b'{"data": [], "results": []}',))
    with Server(lambda request: arrived.append(request) or answer).running() as url:
        base = {"aws_bedrock_runtime_endpoint": url} if "bedrock" in asked["model"] else {"api_base": url}
        with contextlib.suppress(Exception):
            ask(**{"api_key": "none", "max_retries": 0, **asked, **base})
    assert arrived
    assert not seen.records


# --- Turns, and what is around -------------------------------------------------------------------------------------


def test_a_loop_that_continues(seen: Announced, asking: Callable[..., Asking]) -> None:
    """A host's own loop over LiteLLM: one turn, completed by its continuation."""
    asked = asking(HALF, WHOLE)
    messages = list(ASK)
    answer = asked.ask(messages)
    messages += [answer.choices[0].message, {"role": "user", "content": "Continue."}]
    asked.ask(messages)
    (turn,) = seen.turns
    assert (turn.outcome, turn.turn.iterations, turn.turn.inferred) == (TurnOutcome.COMPLETED, 2, True)
    assert [attempt.continuation.strategy for attempt in seen.attempts] == [Strategy.PROMPT]


def test_a_decorator_around_it_makes_no_second_record(seen: Announced, asking: Callable[..., Asking]) -> None:
    """Not even where the stream is read later."""
    asked = asking(HALF, HALF)
    observed = endturn.observe_provider_call(provider="somebody")(asked.ask)
    observed()
    for _ in observed(stream=True):
        pass
    end_what_is_open()
    assert [one.started.provider for one in seen.calls] == [asked.provider] * 2


def test_calls_in_many_threads(seen: Announced, asking: Callable[..., Asking]) -> None:
    """Each is one record."""
    asked = asking(*[HALF] * 8)
    threads = [threading.Thread(target=asked.ask, args=([{"role": "user", "content": str(n)}],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.stop.reason for one in seen.calls] == [StopReason.MAX_TOKENS] * 8
