"""The Interactions API: what its events say, requests, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import ChatResponse, Message, Request, Tool, Usage
from endturn.errors import DecodeError, ProviderError
from endturn.formats import Context, Event, RequestSummary
from endturn.formats.errors import error_of
from endturn.formats.gemini_interactions import FORMAT as gemini_interactions
from endturn.records import Strategy
from endturn.stop import Resume, StopReason
from tests.formats.replies_gemini_interactions import (
    BEGIN,
    BODIES,
    STREAMS,
    call,
    called,
    completed,
    context,
    created,
    delta,
    error,
    output,
    said,
    start,
    thought,
    update,
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


@pytest.mark.parametrize(
    ("name", "reason", "resume", "detail"),
    [
        ("text", "end_turn", "none", None),
        ("incomplete", "max_tokens", "prompt", None),
        ("incomplete within a thought", "max_tokens", "prompt", None),
        ("function call", "tool_call", "none", None),
        ("completed with a call", "tool_call", "none", None),
        ("cut call", "max_tokens", "prompt", None),
        ("server tools", "end_turn", "none", None),
        ("native token", "paused", "native_token", None),
        ("server budget", "max_tokens", "none", "server_budget"),
        ("working", "paused", "retrieve_same_id", None),
        ("queued", "paused", "retrieve_same_id", None),
        ("failed", "error", "none", "An unexpected error occurred."),
        ("blocked", "safety_blocked", "none", "Blocked."),
        ("malformed", "error", "repair", "Malformed call."),
        ("cancelled", "cancelled", "none", None),
        ("unknown", "unknown", "none", None),
        ("null", "missing", "none", None),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, resume: str, detail: str | None) -> None:
    """Each real-shaped body has its reason, and how it is taken up again."""
    stop = whole(name).stop
    assert (stop.reason, stop.resume, stop.detail) == (reason, resume, detail)
    assert stop.raw == BODIES[name].get("status")


@pytest.mark.behaviour(5)
def test_calls_promote_completed() -> None:
    """`completed` beside a call of the client's happens; a search that the server ran promotes nothing."""
    assert streamed(STREAMS["completed with a call"]).stop.promoted_from is StopReason.END_TURN
    assert whole("function call").stop.promoted_from is None
    assert (whole("server tools").stop.promoted_from, whole("server tools").tool_calls) == (None, ())


@pytest.mark.behaviour(3)
def test_interaction_completed_is_the_terminal() -> None:
    """It comes even where the interaction is not complete; a stream without it is missing its end."""
    assert streamed(STREAMS["incomplete"]).stop.raw == "incomplete"
    stop = streamed(STREAMS["incomplete"][:-2]).stop
    assert (stop.reason, stop.raw, stop.terminal_seen) == (StopReason.MISSING, "in_progress", False)


def test_an_end_without_a_status_is_no_end() -> None:
    """Nothing is invented for it."""
    stop = streamed([*BEGIN, *said(0, "Hm"), completed(None)]).stop
    assert (stop.reason, stop.terminal_seen) == (StopReason.MISSING, False)


def test_a_status_update_is_the_end_where_nothing_follows() -> None:
    """The SDK takes the last status that it saw; output after it shows that it was none."""
    final = [*BEGIN, *said(0, "So", closed=False), update("requires_action")]
    assert streamed(final).stop.reason is StopReason.TOOL_CALL
    assert streamed([*final, delta(0, "text", text=" far")]).stop.reason is StopReason.MISSING
    assert streamed([*final, completed("completed")]).stop.reason is StopReason.END_TURN


@pytest.mark.parametrize("status", ["in_progress", "queued"])
def test_an_unfinished_interaction_goes_on_only_in_the_background(status: str) -> None:
    """In the foreground its stream was cut; in the background it can be fetched, however much had come."""
    events = [created(status=status), update(status), *said(0, "So", closed=False)]
    assert streamed(events).stop.reason is StopReason.MISSING
    stop = streamed(events, BACKGROUND).stop
    assert (stop.reason, stop.raw, stop.resume) == (StopReason.PAUSED, status, Resume.RETRIEVE_SAME_ID)


@pytest.mark.behaviour(9)
def test_an_error_after_the_end_is_detail() -> None:
    """First terminal wins, and nothing is raised."""
    stop = streamed(STREAMS["error after the end"]).stop
    assert (stop.reason, stop.detail) == (StopReason.END_TURN, "too late")


@pytest.mark.parametrize(
    ("code", "reason", "status"),
    [
        ("gateway_timeout", "error", 504),
        ("service_unavailable", "error", 503),
        ("api_error", "error", 500),
        ("prohibited_content", "safety_blocked", 500),
        ("unexpected_tool_call", "error", 500),
    ],
)
def test_an_error_in_a_stream(code: str, reason: str, status: int) -> None:
    """It raises with what had arrived; its code says the status it stands for, or that a filter struck."""
    events = [*BEGIN, *said(0, "So far", closed=False), error(code, "What happened.")]
    with pytest.raises(ProviderError) as raised:
        streamed(events)
    partial = raised.value.partial
    assert partial is not None
    assert (partial.text, partial.stop.reason, partial.stop.raw) == ("So far", reason, code)
    assert raised.value.status == status
    summarizer = api.summarizer(CTX)
    for event in events:
        summarizer.feed(event)
    assert summarizer.broken
    assert summarizer.close().stop == partial.stop


def test_an_error_answer_of_a_filter() -> None:
    """An answer that is refused has the filter's code."""
    body = b'{"error": {"code": "spii", "message": "Sensitive information."}}'
    failure = error_of(400, {}, body, ctx=CTX)
    assert failure.stop is not None
    assert (failure.stop.reason, failure.stop.raw) == (StopReason.SAFETY_BLOCKED, "spii")
    assert error_of(503, {}, b"<html>", ctx=CTX).stop is None
    with pytest.raises(ProviderError, match="malformed"):
        api.decode({"error": {"code": "invalid_request", "message": "malformed"}}, ctx=CTX)


@pytest.mark.behaviour(6)
def test_a_used_up_budget_is_suspected() -> None:
    """Thinking counts against the limit."""
    assert whole("text", Context(asked=RequestSummary(maximum=335))).stop.suspected
    assert not whole("text", Context(asked=RequestSummary(maximum=336))).stop.suspected


# Native continuation


def test_the_token_of_the_end_is_the_response_s() -> None:
    """The end is the authority: it replaces a checkpoint's token, and without one there is none."""
    assert streamed(STREAMS["native token"]).token == "tok_1"
    assert whole("native token").token == "tok_1"
    events = [*BEGIN, *said(0, "So"), update("in_progress", continuation_token="tok_0"), completed("completed")]
    assert streamed(events).token is None
    assert (whole("token spent").token, whole("token spent").stop.reason) == (None, StopReason.PAUSED)


def test_a_checkpoint_is_a_cut_stream_s_token_where_nothing_came_after() -> None:
    """What came after it would be generated, and read, again."""
    events = [*BEGIN, *said(0, "So", closed=False), update("in_progress", continuation_token="tok_0")]
    response = streamed(events)
    assert (response.stop.reason, response.token) == (StopReason.MISSING, "tok_0")
    assert streamed([*events, delta(0, "text", text=" far")]).token is None


def test_hops_that_the_sdk_joins_are_one_response() -> None:
    """It goes on with the token by itself: the steps follow, the usage is summed, the last status counts."""
    first = [*BEGIN, *said(0, "Chapter one. "), completed("requires_continuation", continuation_token="tok_1")]
    second = [created("v1_2"), *said(0, "Chapter two."), completed("completed", id="v1_2")]
    response = streamed([*first, *second])
    assert (response.text, response.stop.reason, response.id) == (
        "Chapter one. Chapter two.",
        StopReason.END_TURN,
        "v1_2",
    )
    assert response.usage == Usage(22, 670, 490, 0)
    cut_between = [*BEGIN, *said(0, "One. "), update("in_progress", continuation_token="tok_0"), *second]
    assert streamed(cut_between).text == "One. Chapter two."


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


@pytest.mark.parametrize("name", ["cut call"])
def test_a_cut_call_is_not_closed(name: str) -> None:
    """Of an incomplete response the last call is never closed, not in a body, nor where its step was ended."""
    ended = [*BEGIN, *called(0, "a", "f", "{}"), *called(1, "b", "g", "{}"), completed("incomplete")]
    for response in (whole(name), streamed(STREAMS[name]), streamed(ended)):
        assert [each.closed for each in response.tool_calls] == [True, False]
    cut = streamed(STREAMS[name])
    assert (cut.tool_calls[1].arguments, cut.tool_calls[1].arguments_raw) == (None, '{"body": "line')


def test_arguments_are_joined() -> None:
    """They stream as pieces of JSON, after an empty object."""
    response = streamed(STREAMS["function call"])
    assert [(each.id, each.arguments) for each in response.tool_calls] == [("un6k8t18", {"city": "Łódź"})]
    assert response.reasoning == "I need"


def test_usage() -> None:
    """Thinking is beside the output, what tools put into the prompt beside the input; the rest are totals so far."""
    assert whole("text").usage == Usage(11, 335, 245, 0)
    assert whole("cached and tools").usage == Usage(150, 15, 5, 80)
    assert streamed(STREAMS["usage of steps"]).usage == Usage(30, 3)


def test_steps_are_kept_as_a_body_has_them() -> None:
    """Signatures, the server's tools, images and citations: what a replay needs."""
    for name in ("server tools", "image"):
        response = streamed(STREAMS[name])
        assert response.blocks is not None
        assert list(response.blocks.items) == BODIES[name]["steps"]
    blocks = streamed(STREAMS["text in the start"]).blocks
    assert blocks is not None
    assert blocks.items[0]["signature"] == "EpoG"


def test_text_of_a_thought_is_not_shown() -> None:
    """Only output is visible, whatever the deltas are called."""
    events = [*BEGIN, start(0, {"type": "thought"}), delta(0, "text", text="secret"), *said(1, "Yes.")]
    assert streamed([*events, completed("completed")]).text == "Yes."


def test_repeated_input_is_no_answer() -> None:
    """An interaction that was fetched with its input: the answer is what follows the last of it."""
    response = whole("input repeated")
    assert response.text == "Hello."
    assert response.blocks is not None
    assert len(response.blocks.items) == 1


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
    for asked in (api.request_summary(body), api.request_summary({"request": {"body": body}})):
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


# Bodies before revision 2026-05-20


def test_outputs_are_read_where_there_are_no_steps() -> None:
    """An older body says the same without steps: its content becomes a step of output, as it is sent back today."""
    found = whole("outputs")
    assert (found.stop.reason, found.text, found.tool_calls) == (StopReason.END_TURN, "Elbrus, 5642 m. Ja.", ())
    assert found.blocks is not None
    assert [step["type"] for step in found.blocks.items] == [
        "thought",
        "google_search_call",
        "google_search_result",
        "model_output",
    ]
    assert whole("outputs cut").stop.reason is StopReason.MAX_TOKENS


def test_a_call_among_outputs_is_a_call() -> None:
    """`requires_action` comes with what it requires."""
    found = whole("outputs with a call")
    (asked,) = found.tool_calls
    assert found.stop.reason is StopReason.TOOL_CALL
    assert (asked.id, asked.name, asked.arguments, asked.closed) == ("r7b1dyif", "weather", {"city": "Łódź"}, True)
    assert found.reasoning == "I need"


def test_outputs_at_the_end_of_a_stream() -> None:
    """An end that alone tells what was said may tell it so, too."""
    found = streamed([*BEGIN, completed("completed", outputs=[{"type": "text", "text": "All of it."}])])
    assert (found.stop.reason, found.text) == (StopReason.END_TURN, "All of it.")


@pytest.mark.parametrize("given", ["text", {"type": "text"}, ["text"]], ids=["text", "object", "list of text"])
def test_outputs_that_cannot_be_read_are_said_so(given: object) -> None:
    """An answer that nobody can read is no answer that says nothing."""
    with pytest.raises(DecodeError):
        api.decode({"id": "v1_1", "status": "completed", "outputs": given}, ctx=CTX)
