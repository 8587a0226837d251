"""Scripted replies in the real SDKs: they take them for the real thing, in process and from the server."""

from __future__ import annotations

import json

import anthropic
import httpx2
import openai
import pytest

from endturn.scripted import (
    ScriptedProvider,
    call,
    cut,
    empty,
    fail,
    hang_up,
    partial_call,
    reason,
    refuse,
    say,
    think,
    tokens,
    truncate,
)
from endturn.stop import StopReason
from tests.support.sdks import FORMATS, WAYS, Heard, sdk

CASES = {
    "say": (say("All of it."), ("All of it.", "stop", "end_turn")),
    "truncate": (truncate("One two three", after=2), ("One two", "length", "max_tokens")),
    "empty": (empty(), ("", "stop", "end_turn")),
    "unknown value": (reason("some_new_value", "Hm"), ("Hm", "some_new_value", "some_new_value")),
    "null": (reason(None, "Hm"), ("Hm", None, None)),
    "a reason of ours": (reason(StopReason.MAX_TOKENS, "Hm"), ("Hm", "length", "max_tokens")),
    "thinking alone": (think("Let me see"), ("", "length", "max_tokens")),
    "thinking, then text": (think("Let me see", text="Yes"), ("Yes", "stop", "end_turn")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", CASES)
def test_replies_reach_the_sdk(name: str, format: str, way: str) -> None:
    """Each kind of reply arrives in the real SDK, streamed and not, with its text and the format's own reason."""
    reply, (text, chat, messages) = CASES[name]
    expected = chat if format == "openai_chat" else messages
    with sdk(ScriptedProvider([reply, reply]), format, way) as asking:
        for heard in (asking.ask(), asking.stream()):
            assert (heard.text, heard.reason) == (text, expected)


@pytest.mark.parametrize("format", FORMATS)
def test_a_refusal_is_said_as_the_format_says_it(format: str) -> None:
    """Chat puts a refusal in the message's own member, Anthropic in the stop reason."""
    with sdk(ScriptedProvider([refuse("No."), refuse("No.")]), format, "transport") as asking:
        for heard in (asking.ask(), asking.stream()):
            if format == "openai_chat":
                assert (heard.refusal, heard.text, heard.reason) == ("No.", "", "stop")
            else:
                assert (heard.text, heard.reason) == ("No.", "refusal")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", FORMATS)
def test_calls_reach_the_sdk(format: str, way: str) -> None:
    """Several tool calls arrive in order, their arguments parse, and the reason asks for tools."""
    reply = call("read", {"path": "a b.txt"}, text="Reading.").also("list", {})
    with sdk(ScriptedProvider([reply, reply]), format, way) as asking:
        for heard in (asking.ask(), asking.stream()):
            assert [(name, json.loads(raw or "{}")) for name, raw in heard.calls] == [
                ("read", {"path": "a b.txt"}),
                ("list", {}),
            ]
            assert heard.text == "Reading."
            assert heard.reason == ("tool_calls" if format == "openai_chat" else "tool_use")


@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_call_is_cut_in_the_stream(format: str) -> None:
    """A tool call's JSON ends where the script says, and the reason is the token limit."""
    reply = partial_call("write", {"path": "a.txt", "text": "long enough"}, after=3)
    with sdk(ScriptedProvider([reply]), format, "transport") as asking:
        heard = asking.stream()
    (name, raw), *rest = heard.calls
    assert (name, rest) == ("write", [])
    assert raw == "".join(tokens('{"path": "a.txt", "text": "long enough"}')[:3])
    assert heard.reason == ("length" if format == "openai_chat" else "max_tokens")


@pytest.mark.parametrize("tidy", [False, True], ids=["broken", "tidy"])
@pytest.mark.parametrize("after", [0, 1, 3], ids=lambda n: f"after {n}")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_cut_stream_keeps_what_came(format: str, way: str, after: int, tidy: bool) -> None:
    """A stream that is cut delivers the text before the cut and no reason; a broken one raises in the SDK."""
    heard = Heard()
    with sdk(ScriptedProvider([cut("One two three four", after=after, tidy=tidy)]), format, way) as asking:
        if tidy:
            asking.stream(heard=heard)
        else:
            broken = asking.lost if format == "openai_chat" else httpx2.RemoteProtocolError
            with pytest.raises(broken):
                asking.stream(heard=heard)
    assert (heard.text, heard.reason) == ("".join(tokens("One two three four")[:after]), None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_body_that_never_completes_is_a_lost_connection(format: str, way: str) -> None:
    """A cut reply that is not streamed, and a connection that closes at once, are connection errors of the SDK."""
    with sdk(ScriptedProvider([cut("One two"), hang_up(), say("Again")]), format, way) as asking:
        for _ in range(2):
            with pytest.raises(asking.lost):
                asking.ask()
        assert asking.ask().text == "Again"


FAILURES = {
    "rate limit": (fail(429, retry_after_s=2), openai.RateLimitError, anthropic.RateLimitError),
    "context": (fail(400, "context_length_exceeded"), openai.BadRequestError, anthropic.BadRequestError),
    "key": (fail(401), openai.AuthenticationError, anthropic.AuthenticationError),
    "model": (fail(404), openai.NotFoundError, anthropic.NotFoundError),
    "overloaded": (fail(529), openai.InternalServerError, anthropic.InternalServerError),
    "server": (fail(500), openai.InternalServerError, anthropic.InternalServerError),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", FAILURES)
def test_failures_are_the_sdks_own(name: str, format: str) -> None:
    """Each failure raises the SDK's own class, with the request's id, and the code or the type of the real service."""
    reply, *kinds = FAILURES[name]
    with sdk(ScriptedProvider([reply, reply]), format, "server") as asking:
        for attempt in (asking.ask, asking.stream):
            with pytest.raises(asking.status) as caught:
                attempt()
            error = caught.value
            assert isinstance(error, openai.APIStatusError | anthropic.APIStatusError)
            assert isinstance(error, kinds[FORMATS.index(format)])
            assert error.request_id
            assert error.type
            if name == "rate limit":
                assert error.response.headers["retry-after"] == "2"
            if name == "context" and isinstance(error, openai.APIStatusError):
                assert error.code == "context_length_exceeded"


@pytest.mark.parametrize("format", FORMATS)
def test_a_failure_inside_a_stream(format: str) -> None:
    """A failure with text is an error event after that text."""
    heard = Heard()
    kind = openai.APIError if format == "openai_chat" else anthropic.APIError
    with sdk(ScriptedProvider([fail(529, text="So far")]), format, "server") as asking, pytest.raises(kind):
        asking.stream(heard=heard)
    assert heard.text == "So far"


# --- The rest of the SDKs ---------------------------------------------------------------------------------------
