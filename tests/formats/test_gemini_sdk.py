"""google-genai 3.4.0 asks a scripted server: it takes the replies for the real thing; a summary reads its objects."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from google import genai
from google.genai import errors, types
from google.oauth2.credentials import Credentials

from endturn.chat import Usage
from endturn.formats import Context, ResponseSummary, summarize
from endturn.formats.gemini import FORMAT as gemini
from endturn.scripted import (
    Reply,
    ScriptedProvider,
    block,
    call,
    cut,
    fail,
    partial_call,
    pause,
    reason,
    say,
    think,
    truncate,
)
from endturn.sdk_objects import dumped
from endturn.stop import Stop, StopReason

# Where aiohttp is installed, the SDK asks through a class of its own that aiohttp warns of.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")

MODEL = "gemini-3-flash"
CASES: dict[str, tuple[Reply, str, StopReason, str]] = {
    "say": (say("Grüezi 👋🏽."), "Grüezi 👋🏽.", StopReason.END_TURN, "STOP"),
    "truncate": (truncate("One two three", after=2), "One two", StopReason.MAX_TOKENS, "MAX_TOKENS"),
    "block": (block("So"), "So", StopReason.SAFETY_BLOCKED, "SAFETY"),
    "call": (call("weather", {"city": "Zürich"}, text="Hm."), "Hm.", StopReason.TOOL_CALL, "STOP"),
    "cut call": (partial_call("weather", {"city": "Zürich"}, after=2), "", StopReason.MAX_TOKENS, "MAX_TOKENS"),
    "thinking alone": (think("Let me see"), "", StopReason.MAX_TOKENS, "MAX_TOKENS"),
    "thinking": (think("Let me see", text="Yes"), "Yes", StopReason.END_TURN, "STOP"),
    "malformed call": (reason("MALFORMED_FUNCTION_CALL"), "", StopReason.ERROR, "MALFORMED_FUNCTION_CALL"),
}
each_case = pytest.mark.parametrize(("reply", "text", "expected", "raw"), CASES.values(), ids=CASES)


def options(url: str) -> types.HttpOptions:
    """Where the SDK asks."""
    return types.HttpOptions(base_url=url)


@contextmanager
def sdk(provider: ScriptedProvider) -> Iterator[Any]:
    """The SDK's models, synchronous."""
    with provider.serve() as url, genai.Client(api_key="none", http_options=options(url)) as client:
        yield client.models


@asynccontextmanager
async def async_sdk(provider: ScriptedProvider) -> AsyncIterator[Any]:
    """The SDK's models, asynchronous."""
    with provider.serve() as url, genai.Client(api_key="none", http_options=options(url)) as client:
        async with client.aio as models:
            yield models.models


def asked(**config: Any) -> dict[str, Any]:
    """The arguments of a call."""
    return {"model": MODEL, "contents": "hi", "config": {"max_output_tokens": 1000, **config}}


def watching(arguments: dict[str, Any]) -> Any:
    """A summarizer of a call."""
    return gemini.summarizer(Context(provider="gcp.gemini", asked=gemini.request_summary(arguments)))


def see_all(summarizer: Any, chunks: Iterable[Any]) -> None:
    """Show a summarizer a whole stream."""
    for chunk in chunks:
        summarizer.feed(dumped(chunk))


def check(seen: ResponseSummary, text: str, expected: StopReason, raw: str) -> None:
    """What a summarizer saw is what the script says."""
    assert (seen.tail, seen.stop.reason, seen.stop.raw) == (text, expected, raw)
    assert seen.model == MODEL
    assert seen.usage is not None


@each_case
def test_bodies(reply: Reply, text: str, expected: StopReason, raw: str) -> None:
    """Not streamed, synchronous."""
    with sdk(ScriptedProvider([reply])) as models:
        summarizer = watching(asked())
        summarizer.feed(dumped(models.generate_content(**asked())))
    check(summarizer.close(), text, expected, raw)


@each_case
def test_streams(reply: Reply, text: str, expected: StopReason, raw: str) -> None:
    """Streamed, synchronous."""
    with sdk(ScriptedProvider([reply])) as models:
        summarizer = watching(asked())
        see_all(summarizer, models.generate_content_stream(**asked()))
    check(summarizer.close(), text, expected, raw)


@each_case
async def test_asynchronous(reply: Reply, text: str, expected: StopReason, raw: str) -> None:
    """Both, asynchronous."""
    async with async_sdk(ScriptedProvider([reply, reply])) as models:
        summarizer = watching(asked())
        summarizer.feed(dumped(await models.generate_content(**asked())))
        check(summarizer.close(), text, expected, raw)
        summarizer = watching(asked())
        async for chunk in await models.generate_content_stream(**asked()):
            summarizer.feed(dumped(chunk))
        check(summarizer.close(), text, expected, raw)


def test_calls_reach_the_sdk() -> None:
    """Several calls in order, with their ids and arguments, streamed and not."""
    reply = call("read", {"path": "a b.txt"}, id="fc-1").also("list", {}, id="fc-2")
    with sdk(ScriptedProvider([reply, reply])) as models:
        whole = models.generate_content(**asked()).function_calls
        chunks = list(models.generate_content_stream(**asked()))
    for found in (whole, [each for chunk in chunks for each in chunk.function_calls or ()]):
        assert [(each.id, each.name, each.args) for each in found] == [
            ("fc-1", "read", {"path": "a b.txt"}),
            ("fc-2", "list", {}),
        ]


def test_the_sdks_request_is_understood() -> None:
    """What it sends is a Request of ours, the model and the streaming read from the path."""
    provider = ScriptedProvider([say("a"), say("b")])
    config = {
        "system_instruction": "Be brief.",
        "temperature": 0.5,
        "tools": [{"function_declarations": [{"name": "f", "parameters_json_schema": {"type": "object"}}]}],
        "tool_config": {"function_calling_config": {"mode": "ANY", "allowed_function_names": ["f"]}},
    }
    with sdk(provider) as models:
        models.generate_content(**asked(**config))
        list(models.generate_content_stream(**asked()))
    first, second = provider.received
    assert (first.format, first.stream, second.stream) == ("gemini", False, True)
    request = first.request
    assert (request.model, request.max_tokens, request.temperature, request.tool_choice) == (MODEL, 1000, 0.5, "f")
    assert [(message.role, message.content) for message in request.messages] == [
        ("system", "Be brief."),
        ("user", "hi"),
    ]
    assert [tool.parameters for tool in request.tools] == [{"type": "object"}]


def test_a_conversation_of_the_sdk_is_understood() -> None:
    """Its history of calls and results comes back as messages, each result with the call that it answers."""
    provider = ScriptedProvider([call("clock", {}), say("Noon.")])
    with sdk(provider) as models:
        answer = models.generate_content(**asked())
        result = types.Part.from_function_response(name="clock", response={"output": "12:00"})
        history = ["hi", answer.candidates[0].content, types.Content(role="user", parts=[result])]
        models.generate_content(model=MODEL, contents=history)
    _, said, result_message = provider.requests[1].messages
    assert [each.name for each in said.tool_calls] == ["clock"]
    assert (result_message.role, result_message.content) == ("tool", "12:00")
    assert result_message.tool_call_id == said.tool_calls[0].id


@pytest.mark.behaviour(14)
def test_the_sdk_follows_tokens_by_itself() -> None:
    """A pause is asked for again with its token, and nobody above the SDK hears of it; usage is summed."""
    provider = ScriptedProvider([pause("One "), say("two."), pause("One "), say("two.")])
    with sdk(provider) as models:
        summarizer = watching(asked())
        summarizer.feed(dumped(models.generate_content(**asked())))
        body = summarizer.close()
        summarizer = watching(asked())
        see_all(summarizer, models.generate_content_stream(**asked()))
        stream = summarizer.close()
    for seen in (body, stream):
        assert (seen.tail, seen.stop.reason, seen.usage) == ("One two.", StopReason.END_TURN, Usage(2, 3))
    tokens = [request.token for request in provider.requests]
    assert (tokens[0], tokens[2]) == (None, None)
    assert None not in (tokens[1], tokens[3])


def test_a_token_that_the_sdk_is_told_not_to_follow() -> None:
    """The pause is seen, and the token is on the candidate, as bytes."""
    with sdk(ScriptedProvider([pause("So far")])) as models:
        answer = models.generate_content(**asked(automatic_continuation=False))
    stop = summarize(gemini, Context(), dumped(answer)).stop
    assert (stop.reason, stop.raw) == (StopReason.PAUSED, "CONTINUATION")
    assert isinstance(answer.candidates[0].continuation_token, bytes)
    assert gemini.decode(dumped(answer), ctx=Context()).token is not None


@pytest.mark.parametrize("tidy", [True, False], ids=["tidy", "broken"])
def test_a_cut_stream_is_missing(tidy: bool) -> None:
    """The SDK ends without an error where the HTTP message is whole, and raises where it is not."""
    with sdk(ScriptedProvider([cut("One two three", after=2, tidy=tidy)])) as models:
        summarizer = watching(asked())
        chunks = models.generate_content_stream(**asked())
        if tidy:
            see_all(summarizer, chunks)
        else:
            with pytest.raises(Exception, match="incomplete chunked read"):
                see_all(summarizer, chunks)
    seen = summarizer.close()
    assert (seen.tail, seen.stop.reason, seen.stop.terminal_seen) == ("One two", StopReason.MISSING, False)


def test_failures_are_the_sdks_own() -> None:
    """Error answers have the code, the status and the message of the real service."""
    with sdk(ScriptedProvider([fail(429), fail(400, "context_length_exceeded"), fail(500)])) as models:
        for code, status in ((429, "RESOURCE_EXHAUSTED"), (400, "INVALID_ARGUMENT"), (500, "INTERNAL")):
            with pytest.raises(errors.APIError) as raised:
                models.generate_content(**asked())
            assert (raised.value.code, raised.value.status) == (code, status)
            assert raised.value.message


def test_a_failure_inside_a_stream() -> None:
    """The SDK raises it after the text."""
    with sdk(ScriptedProvider([fail(503, text="So far")])) as models:
        summarizer = watching(asked())
        with pytest.raises(errors.ServerError, match="overloaded"):
            see_all(summarizer, models.generate_content_stream(**asked()))
    assert summarizer.close().tail == "So far"


def test_a_reason_that_the_sdk_does_not_know() -> None:
    """It warns, and makes a member of it: its value is what is read."""
    provider = ScriptedProvider([reason("A_NEW_REASON", "Hm")])
    with sdk(provider) as models, pytest.warns(UserWarning, match="A_NEW_REASON"):
        answer = models.generate_content(**asked())
    assert summarize(gemini, Context(), dumped(answer)).stop == Stop(StopReason.UNKNOWN, "A_NEW_REASON", mapped=False)
    assert gemini.decode(dumped(answer), ctx=Context()).stop.raw == "A_NEW_REASON"


VERTEX: dict[str, dict[str, Any]] = {
    "express": {"api_key": "none"},
    "project": {
        "project": "p",
        "location": "europe-west6",
        "credentials": cast(Any, Credentials)(token="none", expiry=datetime.max - timedelta(days=1)),
    },
}


@pytest.mark.parametrize("known", VERTEX.values(), ids=VERTEX)
async def test_vertex(known: dict[str, Any]) -> None:
    """Vertex AI's paths, with a key and with a project: synchronous, streamed, asynchronous."""
    provider = ScriptedProvider([say("Oui.")], exhausted="last")
    with provider.serve() as url, genai.Client(vertexai=True, http_options=options(url), **known) as client:
        for answer in (client.models.generate_content(**asked()), *client.models.generate_content_stream(**asked())):
            assert answer.model_version == MODEL
        async with client.aio as models:
            answer = await models.models.generate_content(**asked())
    assert summarize(gemini, Context(), dumped(answer)).stop.reason is StopReason.END_TURN
    assert [(each.format, each.request.model, each.stream) for each in provider.received] == [
        ("gemini", MODEL, False),
        ("gemini", MODEL, True),
        ("gemini", MODEL, False),
    ]


@pytest.mark.parametrize(
    ("dialect", "members"),
    [("", types.FinishReason), ("vertex", types.FinishReason), ("promptFeedback", types.BlockedReason)],
)
def test_the_installed_sdk_knows_no_reason_without_a_row(dialect: str, members: Any) -> None:
    """A canary: a new release with a new reason fails here first, and names it."""
    # As declared: the enumeration has grown by what the tests made it read.
    declared = [name for name in vars(members) if name in members.__members__]
    assert len(declared) > 7, "the SDK no longer lists its reasons where they were"
    assert [name for name in declared if members[name].value not in gemini.reasons[dialect]] == []
