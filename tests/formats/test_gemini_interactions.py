"""The Interactions API: what its events say, requests, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import ChatResponse, Message, Request, Tool
from endturn.errors import ProviderError
from endturn.events import Strategy
from endturn.formats import Context, Event, RequestSummary
from endturn.formats.errors import error_of
from endturn.formats.gemini_interactions import FORMAT as gemini_interactions
from endturn.stop import StopReason
from tests.formats.replies_gemini_interactions import (
    BEGIN,
    BODIES,
    call,
    called,
    completed,
    context,
    output,
    said,
    thought,
)

api = gemini_interactions
CTX = Context(provider="gcp.gemini")
BACKGROUND = Context(asked=RequestSummary(background=True))
HI = (Message(role="user", content="hi"),)


def whole(name: str, ctx: Context | None = None) -> ChatResponse:
    """The response of a body."""
    return api.decode(BODIES[name], ctx=ctx or context(name))


def streamed(events: list[Event], ctx: Context = CTX) -> ChatResponse:
    """The response of a stream."""
    decoder = api.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


# What responses say of the stop


def test_an_error_answer_of_a_filter() -> None:
    """An answer that is refused has the filter's code."""
    body = b'{"error": {"code": "spii", "message": "Sensitive information."}}'
    failure = error_of(400, {}, body, ctx=CTX)
    assert failure.stop is not None
    assert (failure.stop.reason, failure.stop.raw) == (StopReason.SAFETY_BLOCKED, "spii")
    assert error_of(503, {}, b"<html>", ctx=CTX).stop is None
    with pytest.raises(ProviderError, match="malformed"):
        api.decode({"error": {"code": "invalid_request", "message": "malformed"}}, ctx=CTX)


# Native continuation


def test_a_token_continues_the_interaction_that_gave_it() -> None:
    """The server kept the input; where it keeps nothing, the same input goes along."""
    sent = Request(model="m", messages=HI, max_tokens=64)
    cut = whole("native token")
    body = api.encode(api.resume(sent, cut, prompt="", strategy=Strategy.NATIVE_TOKEN))
    assert (body["continuation_token"], body["previous_interaction_id"]) == ("tok_1", "v1_ChdGUVFJ")
    assert "input" not in body
    stateless = api.encode(api.resume(sent.but(extra={"store": False}), cut, prompt=""))
    assert stateless["continuation_token"] == "tok_1"
    assert (stateless["input"], "previous_interaction_id" in stateless) == (api.encode(sent)["input"], False)


# What responses hold


def test_an_agent_stands_for_a_model() -> None:
    """Agents answer without a model."""
    assert whole("agent").model == "deep-research-preview"
    assert api.request_summary({"agent": "deep-research-preview", "background": True}).model == "deep-research-preview"


# Requests


def test_a_request_is_written_and_read() -> None:
    """Limits and choice stand in the generation's settings, the schema in the response's format."""
    sent = Request(
        model="m",
        messages=(Message(role="system", content="Be brief."), *HI),
        tools=(Tool(name="f", description="d"),),
        tool_choice="f",
        max_tokens=64,
        temperature=0.5,
        seed=7,
        format={"type": "object"},
        previous_id="v1_0",
        extra={"store": True, "generation_config": {"thinking_level": "low"}},
    )
    body = api.encode(sent, stream=True)
    assert body["generation_config"] == {
        "max_output_tokens": 64,
        "temperature": 0.5,
        "seed": 7,
        "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["f"]}},
        "thinking_level": "low",
    }
    assert body["response_format"] == {"type": "text", "mime_type": "application/json", "schema": {"type": "object"}}
    assert body["input"] == [{"type": "user_input", "content": [{"type": "text", "text": "hi"}]}]
    assert (body["system_instruction"], body["previous_interaction_id"]) == ("Be brief.", "v1_0")
    assert body["tools"][0] == {
        "type": "function",
        "name": "f",
        "description": "d",
        "parameters": {"type": "object", "properties": {}},
    }


def test_a_result_names_its_function() -> None:
    """It has the call's id, and the name where the call is in the history; a result of any shape survives."""
    response = whole("function call")
    answer = Message(role="tool", tool_call_id="un6k8t18", content="14 °C", is_error=True)
    steps = api.encode(Request(model="m", messages=(*HI, response.message(), answer)))["input"]
    assert [step["type"] for step in steps] == ["user_input", "thought", "function_call", "function_result"]
    assert steps[-1] == {
        "type": "function_result",
        "call_id": "un6k8t18",
        "result": "14 °C",
        "name": "weather",
        "is_error": True,
    }


def test_a_replay_keeps_what_the_api_takes() -> None:
    """No call that left the history, no thought without its signature, no empty output."""
    steps = [thought("cut", None), thought("whole"), output(""), call("a", "f"), output("Yes.")]
    told = api.decode({**BODIES["empty"], "steps": steps}, ctx=CTX).message().but(tool_calls=())
    assert api.encode(Request(model="m", messages=(told,)))["input"] == [thought("whole"), output("Yes.")]


@pytest.mark.parametrize(
    ("method", "path", "retrieve", "stream"),
    [
        ("POST", "/v1beta/interactions?alt=sse", None, None),
        ("POST", "/v1/interactions", None, None),
        ("POST", "/v1beta1/projects/p/locations/global/interactions", None, None),
        ("GET", "/v1beta/interactions/v1_a?stream=true", "v1_a", True),
        ("GET", "/v1beta/interactions/v1_a", "v1_a", False),
    ],
)
def test_paths(method: str, path: str, retrieve: str | None, stream: bool | None) -> None:
    """Interactions are made at one path, and fetched below it."""
    routed = api.routed(method, path)
    assert routed is not None
    assert (routed.retrieve, routed.stream, routed.model) == (retrieve, stream, None)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1beta/interactions/v1_a/cancel"),
        ("POST", "/v1beta/interactions/v1_a"),
        ("GET", "/v1beta/interactions"),
        ("POST", "/v1/chat/completions"),
    ],
)
def test_paths_of_others(method: str, path: str) -> None:
    """What is neither made nor fetched is not ours."""
    assert api.routed(method, path) is None


def test_a_response_is_fetched_by_its_id() -> None:
    """The id goes into the path, quoted; nothing is sent."""
    sent = Request(model="m", messages=(), retrieve="v1/a")
    assert api.route(sent, stream=True) == ("GET", "/interactions/v1%2Fa?stream=true")
    assert api.encode(sent) == {}


def test_inspect_reads_bodies_and_arguments() -> None:
    """The body, the SDK's keyword arguments, and its one request object."""
    body = {
        "model": "m",
        "input": "hi",
        "system_instruction": "Be brief.",
        "generation_config": {"max_output_tokens": 64, "temperature": 0.5, "top_p": 0.9, "seed": 7},
        "response_format": [{"type": "text", "mime_type": "application/json"}],
        "previous_interaction_id": "v1_0",
        "background": True,
        "stream": True,
    }
    for asked in (api.request_summary(body),):
        assert (asked.model, asked.maximum, asked.temperature, asked.top_p, asked.seed) == ("m", 64, 0.5, 0.9, 7)
        assert (asked.previous_id, asked.background, asked.stream, asked.json_format) == ("v1_0", True, True, True)
        assert (asked.system, asked.history, asked.length) == ("Be brief.", ({"role": "user", "content": "hi"},), 1)


@pytest.mark.parametrize(
    ("form", "json"),
    [
        ({"type": "text", "mime_type": "application/json", "schema": {}}, True),
        ({"type": "object", "properties": {}}, True),
        ({"type": "text"}, False),
        ({"type": "audio", "mime_type": "audio/wav"}, False),
        (None, False),
    ],
)
def test_json_formats(form: Any, json: bool) -> None:
    """The format's MIME type, or a bare schema."""
    assert api.request_summary({"response_format": form}).json_format is json


# Continuations


def test_resume_asks_for_the_rest() -> None:
    """The partial answer without its cut call or trailing thought, then the nudge; no tool is forced again."""
    sent = Request(model="m", messages=HI, tool_choice="f", extra={"generation_config": {"tool_choice": "any"}})
    cut = streamed([*BEGIN, *said(0, "Once"), *called(1, "a", "f", '{"x', closed=False), completed("incomplete")])
    after = api.resume(sent, cut, prompt="Go on.")
    assert api.encode(after)["input"][1:] == [
        output("Once"),
        {"type": "user_input", "content": [{"type": "text", "text": "Go on."}]},
    ]
    assert (after.messages[0], after.messages[-1].synthetic) == (HI[0], True)
    assert "tool_choice" not in api.encode(after)["generation_config"]
    alone = api.resume(sent, whole("incomplete within a thought"), prompt="Go on.")
    assert [each.role for each in alone.messages] == ["user", "user"]


def test_resume_by_prefill_and_resend() -> None:
    """The partial answer stands last; or the whole answer verbatim."""
    sent = Request(model="m", messages=HI)
    cut = whole("incomplete")
    assert api.encode(api.resume(sent, cut, prompt="x", strategy=Strategy.PREFILL))["input"][-1] == output(
        "Once upon a"
    )
    assert api.resume(sent, cut, prompt="x", strategy=Strategy.RESEND).messages[-1] == cut.message()


def test_a_search_without_its_result_is_not_replayed() -> None:
    """A tool of the server that had begun when the limit struck."""
    search = BODIES["server tools"]["steps"][0]
    cut = api.decode({**BODIES["incomplete"], "steps": [output("Once"), search]}, ctx=CTX)
    after = api.resume(Request(model="m", messages=HI), cut, prompt="Go on.")
    assert [step["type"] for step in api.encode(after)["input"]] == ["user_input", "model_output", "user_input"]
