"""Turns over our clients and a scripted provider that speaks the real formats: bytes out, bytes in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from endturn.chat import Request, ToolCall
from endturn.clients import AsyncClient, Client
from endturn.continuation.policy import PROMPT
from endturn.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.errors import ProviderUnavailable
from endturn.events import CallEnded
from endturn.scripted import Reply, ScriptedProvider, call, cut, essay, partial_call, pause, say, think, truncate
from tests.support.turns import SEARCH, ask, heard

FORMATS = {"openai_chat": ("openai", "/v1"), "anthropic": ("anthropic", "")}
ESSAY = "".join(f"Sentence {number} of the essay is not like the others. " for number in range(12))

Turned = tuple[ScriptedProvider, TurnResult]
Turner = Callable[..., Any]


def turner(format: str, *, stream: bool) -> Turner:
    """Plays one turn of a script over a real client."""
    provider, path = FORMATS[format]

    async def turn(script: Any, request: Request, **settings: Any) -> Turned:
        scripted = ScriptedProvider(script)
        options: dict[str, Any] = {"api_key": "k", "base_url": f"http://scripted{path}", "http": scripted.transport()}
        with Client(provider, **options) as client:
            ask_it = client.stream if stream else client
            result = ContinuationController(ask_it, **settings).run(request)
        again = ScriptedProvider(script)
        options["http"] = again.transport()
        async with AsyncClient(provider, **options) as client_async:
            ask_async = client_async.stream if stream else client_async
            other = await AsyncContinuationController(ask_async, **settings).run(request)
        assert (other.text, other.outcome, other.status) == (result.text, result.outcome, result.status)
        assert [received.body for received in again.received] == [received.body for received in scripted.received]
        return scripted, result

    return turn


@pytest.fixture(params=[(format, stream) for format in FORMATS for stream in (False, True)], ids=str)
def turn(request: pytest.FixtureRequest) -> Turner:
    """Every format, streamed and not."""
    format, stream = request.param
    return turner(format, stream=stream)


def search(asked: ToolCall) -> str:
    """A tool."""
    assert asked.arguments == {"q": "a long question"}
    return "found"


async def test_max_tokens_then_the_rest(turn: Turner) -> None:
    """A cut answer is continued over the wire, and merged."""
    scripted, result = await turn([truncate("Hello, wonderful wo", after=None), say("rld.")], ask())
    assert (result.text, result.outcome, result.continuations) == ("Hello, wonderful world.", "completed", 1)
    last = scripted.received[1].body["messages"]
    assert [message["role"] for message in last] == ["user", "assistant", "user"]
    assert PROMPT in str(last[-1]["content"]) or PROMPT in str(last[-1]["content"][0].get("text"))


async def test_repeated_max_tokens_until_the_cap(turn: Turner) -> None:
    """An essay that needs more than four answers ends at the retry limit, with its beginning in order."""
    _, result = await turn(essay(ESSAY), ask(max_tokens=10))
    assert result.outcome == "retry_limit"
    assert ESSAY.startswith(result.text)
    assert len(result.text) > 40


async def test_a_partial_tool_call_then_a_repaired_payload(turn: Turner) -> None:
    """The cut call does not run, the repaired one does, and its result goes back."""
    scripted, result = await turn(
        [partial_call("search", {"q": "a long question"}), call("search", {"q": "a long question"}), say("Done.")],
        ask(tools=(SEARCH,)),
        tools={"search": search},
    )
    assert (result.outcome, result.text, len(result.tool_results)) == ("completed", "Done.", 1)
    assert "tool" not in {message.role for message in scripted.received[1].request.messages}
    assert not any(message.tool_calls for message in scripted.received[1].request.messages)


@pytest.mark.behaviour(3)
@pytest.mark.parametrize("format", FORMATS)
async def test_a_stream_that_breaks_is_missing(format: str) -> None:
    """A stream that ends before its terminal keeps what it gave, and is no success."""
    _, result = await turner(format, stream=True)([cut("Half of the answer is here"), say(".")], ask())
    assert (result.outcome, result.complete) == ("stream_cut", False)
    assert result.text
    assert "Half of the answer is here".startswith(result.text)
    assert result.resume().text == result.text


@pytest.mark.behaviour(3)
@pytest.mark.parametrize("format", FORMATS)
async def test_a_whole_body_that_breaks_is_the_providers_failure(format: str) -> None:
    """Nothing of a broken body can be used: on the first call the client's exception passes through."""
    with pytest.raises(ProviderUnavailable):
        await turner(format, stream=False)([cut("Half of the answer is here")], ask())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.behaviour(23)
async def test_signed_thinking_is_kept_and_a_pause_is_resent_as_it_was(stream: bool) -> None:
    """Anthropic: whole thinking goes back before its text; a paused answer goes back block by block."""
    turn = turner("anthropic", stream=stream)
    thinking: Reply = think("Let me think.", text="Hello, wo")
    scripted, result = await turn([thinking.but(stop=truncate("x").stop), say("rld.")], ask())
    assert result.text == "Hello, world."
    blocks = scripted.received[1].body["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "text"]
    assert blocks[0]["signature"]
    scripted, result = await turn([pause("Looking. "), say("Found.")], ask())
    assert (result.text, result.outcome, result.continuations) == ("Looking. Found.", "completed", 0)
    assert [message["role"] for message in scripted.received[1].body["messages"]] == ["user", "assistant"]


@pytest.mark.behaviour(42)
async def test_the_client_below_announces_each_call_once(turn: Turner) -> None:
    """Controller and client see the same call; there is one record of it, with the turn."""
    with heard(CallEnded) as ended:
        await turn([truncate("Hello, wo"), say("rld.")], ask())
    assert len(ended) == 4  # two calls, sync and async
    assert [record.started.continuation is not None for record in ended] == [False, True] * 2
    assert all(record.started.stream == ended[0].started.stream for record in ended)
