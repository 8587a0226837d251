"""The scripted provider: its replies, their order, and the results in a controller."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

import httpx
import pytest
from hypothesis import given, strategies as st

from endturn.errors import DecodeError, ProviderUnavailable, RequestRejected, UsageError
from endturn.formats.apis.completions_shapes import SHAPES
from endturn.providers.http_client import Client
from endturn.testing.scripted import (
    Ending,
    Reply,
    ScriptedProvider,
    block,
    break_off,
    by_conversation,
    essay,
    fail,
    hang_up,
    partial_call,
    pause,
    reason,
    say,
    tokens,
    truncate,
)
from endturn.vocabulary.messages import Message, Request
from endturn.vocabulary.stop import StopReason
from tests.providers.test_http_client import finished

FORMATS = ("openai_chat", "anthropic")
PROSE = "It was the best of times, it was the worst of times, it was the age of wisdom."


def request(*texts: str, model: str = "m", max_tokens: int | None = None) -> Request:
    """A conversation that begins with the user, roles alternating."""
    roles: tuple[Any, Any] = ("user", "assistant")
    messages = tuple(Message(role=roles[at % 2], content=text) for at, text in enumerate(texts or ("hi",)))
    return Request(model=model, messages=messages, max_tokens=max_tokens)


def refused(provider: ScriptedProvider) -> str:
    """Return the error message for a request without a reply, in the provider's shape, marked as not retryable."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    with httpx.Client(transport=provider.transport()) as http:
        answer = http.post("http://scripted/v1/chat/completions", json=body)
    assert answer.status_code == 400
    return str(answer.json()["error"]["message"])


# --- The script's order -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("exhausted", "heard"), [("error", "ab"), ("last", "abbb"), ("cycle", "abab")])
def test_the_reply_after_the_last_one(exhausted: Any, heard: str) -> None:
    """The last or the first reply is repeated, or there is a UsageError: over HTTP, a 400 without retries."""
    provider = ScriptedProvider([say("a"), say("b")], exhausted=exhausted)
    assert "".join(provider.complete(request()).text for _ in heard) == heard
    if exhausted == "error":
        with pytest.raises(UsageError, match="2 replies is exhausted"):
            provider.complete(request())
        assert "exhausted" in refused(provider)
        assert len(provider.requests) == 4


def test_a_script_is_a_reply_a_list_or_a_function_for_all_or_by_model() -> None:
    """Each model or conversation has its own position; an unknown one is an error unless there is a "*"."""
    assert ScriptedProvider(say("one")).complete(request("hi")).text == "one"
    provider = ScriptedProvider({"a": [say("a1"), say("a2")], "b": lambda asked: say(asked.messages[0].text)})
    assert [provider.complete(request("hi", model=model)).text for model in "abab"] == ["a1", "hi", "a2", "hi"]
    with pytest.raises(UsageError, match="'c'"):
        provider.complete(request(model="c"))
    assert ScriptedProvider({"*": say("any")}).complete(request(model="c")).text == "any"
    provider = ScriptedProvider([say("1"), say("2")], key=by_conversation)
    heard = [provider.complete(request(*texts)).text for texts in (["x"], ["y"], ["x", "1", "go on"], ["y", "1", "go"])]
    assert heard == ["1", "1", "2", "2"]
    provider = ScriptedProvider([lambda asked: say(asked.messages[-1].text.upper()), say("plain")])
    assert [provider.complete(request("hi")).text for _ in range(2)] == ["HI", "plain"]
    gives_text: Any = lambda request: "one"  # noqa: E731
    with pytest.raises(UsageError, match="must return a reply"):
        ScriptedProvider(gives_text).complete(request("hi"))


def test_a_failing_function_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    """A function's exception propagates in process; over HTTP it is logged, and becomes a 400 that names it."""

    def line(asked: Request) -> Reply:
        raise LookupError("no such line")

    with pytest.raises(LookupError):
        ScriptedProvider(line).complete(request())
    assert "LookupError('no such line')" in refused(ScriptedProvider(line))
    assert "a function of the script failed" in caplog.text


def test_received_requests_are_recorded_without_credentials() -> None:
    """Requests are kept parsed and as sent, with their headers but without any key."""
    provider = ScriptedProvider([say("one"), say("two")])
    for name, path in (("openai", "/v1"), ("anthropic", "")):
        options: dict[str, Any] = {"base_url": f"http://scripted{path}", "http": provider.transport()}
        with Client(name, api_key="a-key", **options) as client:
            client(request("question", model="model-1", max_tokens=7))
    for received, format in zip(provider.received, FORMATS, strict=True):
        asked = received.request
        assert (received.format, received.stream, asked.model, asked.max_tokens) == (format, False, "model-1", 7)
        assert asked.messages[-1].text == "question"
        assert received.headers["content-type"] == "application/json"
        assert not {"authorization", "x-api-key"} & received.headers.keys()


def test_one_script_among_threads_is_played_once() -> None:
    provider = ScriptedProvider([say(str(number)) for number in range(500)])
    with ThreadPoolExecutor(50) as pool:
        heard = list(pool.map(lambda _: provider.complete(request()).text, range(500)))
    assert sorted(map(int, heard)) == list(range(500))


@pytest.mark.parametrize(
    ("format", "dialect"), [(name, "") for name in FORMATS] + [("completions", dialect) for dialect in SHAPES]
)
@pytest.mark.parametrize("stop", StopReason)
def test_a_scripted_reason_is_the_one_that_is_read(format: str, dialect: str, stop: StopReason) -> None:
    """A reason arrives unchanged, or is rejected: no format replaces it by another one."""
    for text, streamed in product(("", "Some text 👋🏽."), (False, True)):
        provider = ScriptedProvider([reason(stop, text)], format=format, dialect=dialect)
        try:
            response = finished(list(provider.stream(request())))[1] if streamed else provider.complete(request())
        except UsageError as error:
            assert f"no value for {stop.value!r}, only" in str(error) or (streamed and dialect == "ai21")  # noqa: PT017
        else:
            assert (response.stop_reason, response.text) == (stop, text)


@pytest.mark.parametrize(
    ("format", "reply", "message"),
    [
        ("anthropic", block(), "the anthropic format has no value for .*, only for end_turn, .* reason"),
        ("openai_chat", pause(), "the openai_chat format has no value for .*, only for end_turn, .* reason"),
        ("openai_chat", reason(StopReason.CONTEXT_WINDOW_EXCEEDED), "has no value for 'context_window_exceeded'"),
        ("gemini", reason(StopReason.TOOL_CALL), r"only content that implies it: use call\('…'\)"),
        ("openai_chat", reason(StopReason.REFUSED), r"only content that implies it: use refuse\('…'\)"),
    ],
)
def test_a_reason_without_a_value_in_the_format(format: str, reply: Reply, message: str) -> None:
    """It raises a UsageError that says what to script instead; a dialect may have a value for it."""
    with pytest.raises(UsageError, match=message):
        ScriptedProvider([reply], format=format).complete(request())
    if reply.stop is StopReason.CONTEXT_WINDOW_EXCEEDED:
        said = ScriptedProvider([reply], dialect="mistral").complete(request())
        assert (said.stop_reason, said.raw_stop_reason) == (StopReason.CONTEXT_WINDOW_EXCEEDED, "model_length")


# --- Essays -----------------------------------------------------------------------------------------------------


@given(text=st.text(min_size=1), maximum=st.integers(1, 20))
def test_a_continued_essay_is_the_essay(text: str, maximum: int) -> None:
    """An agent that appends each piece and asks to continue ends with exactly the text, and then with `end_turn`."""
    assert "".join(tokens(text)) == text
    provider, said = ScriptedProvider(essay(text)), ["Write."]
    while True:
        response = provider.complete(request(*said, max_tokens=maximum))
        said.append(response.text)
        if response.stop_reason is not StopReason.MAX_TOKENS:
            break
        assert len(tokens(response.text)) == maximum
        said.append("Continue exactly from where you left off.")
    assert response.stop_reason is StopReason.END_TURN
    assert "".join(said[1::2]) == text


def test_an_essay_continues_where_it_was_truncated() -> None:
    """A new question starts the essay from its beginning; a prefill, or merged pieces, get the rest."""
    provider = ScriptedProvider(essay(PROSE))
    first = provider.complete(request("Write.", max_tokens=4)).text
    assert provider.complete(request("Write.", first, "And the weather?", max_tokens=4)).text == first
    second = provider.complete(request("Write.", first, "continue", max_tokens=4)).text
    third = provider.complete(request("Write.", first + second, "continue")).text
    assert first + second + third == PROSE
    half = PROSE[: PROSE.index(",") + 1]
    assert half + ScriptedProvider(essay(PROSE), format="anthropic").complete(request("Write.", half)).text == PROSE


# --- As a provider function -------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
async def test_the_four_kinds_of_provider_function(format: str) -> None:
    """A function, a coroutine, an iterator and an async iterator play the same reply."""
    provider, asked = ScriptedProvider([truncate(PROSE, after=5)], exhausted="last", format=format), request()
    text = "".join(tokens(PROSE)[:5])
    whole = provider(asked)
    streams = [finished(list(provider.stream(asked))), finished([item async for item in provider.astream(asked)])]
    for said, response in [(text, whole), (text, await provider.acomplete(asked)), *streams]:
        assert said == response.text == text
        assert (response.stop, response.stop_reason) == (whole.stop, StopReason.MAX_TOKENS)
        assert response.usage is not None
        assert response.usage.output_tokens == 5


@pytest.mark.parametrize("format", FORMATS)
def test_a_function_fails_as_a_client_does(format: str) -> None:
    """Failures, lost connections and half bodies raise a client's exceptions; a broken stream ends as `missing`."""
    replies = [fail(429, retry_after_s=3), hang_up(), break_off("One two"), break_off("One two", tidy=True), fail(401)]
    provider = ScriptedProvider([*replies, break_off("One two")], format=format)
    for kind in (ProviderUnavailable, ProviderUnavailable, ProviderUnavailable, DecodeError, RequestRejected):
        with pytest.raises(kind):
            provider.complete(request())
    said, response = finished(list(provider.stream(request())))
    assert (said, response.text) == ("One two", "One two")
    assert (response.stop_reason, response.stop.detail) == (StopReason.MISSING, "connection")


def test_endings_can_be_set_on_any_reply() -> None:
    """A call whose connection is lost midway has so many tokens, is not closed, and its stop is `missing`."""
    reply = partial_call("write", {"path": "a.txt"}, after=1).but(ending=Ending.BROKEN)
    arrived = tokens('{"path": "a.txt"}')[0]
    for whole in (reply.but(ending=Ending.COMPLETE), partial_call("write", {"path": "a.txt"})):
        said = ScriptedProvider([whole]).complete(request(max_tokens=1))  # where the script does not say, that ends it
        assert [made.arguments_raw for made in said.tool_calls] == [arrived]
    for format in FORMATS:
        _, response = finished(list(ScriptedProvider([reply], format=format).stream(request())))
        assert response.stop_reason is StopReason.MISSING
        (made,) = response.tool_calls
        assert (made.name, made.closed, made.arguments_raw, made.arguments) == ("write", False, arrived, None)


# --- Over HTTP ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "content", "status"),
    [
        ("gateway/v1/messages", '{"model": "m", "max_tokens": 9, "messages": [{"role": "user"}]}', 200),
        ("v1/embeddings", "{}", 404),
        ("v1/chat/completions", "not json", 400),
        ("v1/messages", '{"model": "m"}', 400),
    ],
)
def test_which_requests_are_calls(path: str, content: str, status: int) -> None:
    """Another endpoint is a 404 and a malformed body a 400, in the provider's error shape; neither plays a reply."""
    provider = ScriptedProvider([say("here")])
    with httpx.Client(transport=provider.transport()) as client:
        assert client.get("http://scripted/v1/models").status_code == 404
        answer = client.post(f"http://scripted/{path}", content=content)
    assert (answer.status_code, len(provider.received)) == (status, status == 200)
    assert status == 200 or answer.json()["error"]["message"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_leaves_the_block_at_once() -> None:
    """The server's thread is not in the child: it neither waits for it nor stops the parent's server."""
    code = """
import os, sys, httpx
from endturn.testing.scripted import ScriptedProvider, say
with ScriptedProvider(say("hi")).serve() as url:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        print(httpx.post(f"{url}/v1/chat/completions", json=body).status_code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20)
    assert done.stdout == "200\n", done.stderr


def test_stopping_ends_open_streams_and_threads() -> None:
    """Leaving `serve` while a client still reads closes its connection and leaves no thread and no port."""
    before = threading.active_count()
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx.Client() as client:
        with ScriptedProvider([say("one two").but(pace_s=30)]).serve() as url:
            assert url.startswith("http://127.0.0.1:")
            reading = client.stream("POST", f"{url}/v1/chat/completions", json=body)
            answer = reading.__enter__()
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
        reading.__exit__(None, None, None)
        assert threading.active_count() <= before
        with pytest.raises(httpx.ConnectError):
            client.post(url)


# --- Wrong scripts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            ["a secret"],
            r"^a script's lines must be replies, like say\('…'\), or functions, not a str$",
        ),
        (
            "a secret",
            r"^a script must be a list of replies, \[say\('…'\)\], or a function, not a str$",
        ),
        (
            {"m": ["a secret"]},
            r"^a script's lines must be replies, like say\('…'\), or functions, not a str$",
        ),
        (5, "a list of replies"),
    ],
)
def test_rejects_values_that_are_no_script(script: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ScriptedProvider(script)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"exhausted": "stop"}, "exhausted='stop': use one of error, last, cycle"),
        ({"format": "morse"}, "morse"),
    ],
)
def test_rejects_wrong_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ScriptedProvider([], **options)
