"""The Responses API: what its bodies and events say, requests, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import Blocks, CallFragment, ChatResponse, Delta, Json, Message, Request, Tool, ToolCall, Usage
from endturn.errors import DecodeError, ProviderError, ProviderUnavailable, RequestRejected
from endturn.formats import Context, Event, RequestSummary, Routed
from endturn.formats.framing import DONE
from endturn.formats.openai_responses import FORMAT as responses
from endturn.records import Strategy
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies_openai_responses import (
    BODIES,
    CITED,
    CLICK,
    CLOCK,
    CUT_CLOCK,
    FIND_TOOLS,
    INTERPRETED,
    LOCAL_SHELL,
    MCP,
    PATCH,
    SEARCH,
    SHELL,
    SQL,
    STREAMS,
    USAGE,
    WEATHER,
    X_SEARCH,
    added,
    begun,
    body,
    call,
    context,
    cut,
    done,
    ended,
    failed,
    named,
    no,
    part,
    said,
    say,
    think,
    thought,
    used,
    word,
)

CTX = Context()


def whole(name: str) -> ChatResponse:
    """The response of a body."""
    return responses.decode(BODIES[name], ctx=context(name))


def decoded(*output: Json) -> ChatResponse:
    """The response of a completed body with this output."""
    return responses.decode(body(list(output)), ctx=CTX)


def streamed(events: list[Event], ctx: Context = CTX) -> ChatResponse:
    """The response of a stream; what a summarizer reads from it is the same."""
    decoder, summarizer = responses.decoder(ctx), responses.summarizer(ctx)
    deltas: list[Delta] = []
    for event in events:
        deltas += decoder.feed(event)
        summarizer.feed(event.data)
    response, seen = decoder.close(), summarizer.close()
    assert (seen.stop, seen.tail, seen.output_chars) == (response.stop, response.text[-64:], len(response.text))
    assert "".join(delta.text for delta in deltas) == response.text
    assert "".join(delta.reasoning for delta in deltas) == (response.reasoning or "")
    return response


# What responses say of the stop


@pytest.mark.parametrize(
    ("name", "reason", "raw", "detail", "resume"),
    [
        ("text", "end_turn", "completed", None, "none"),
        ("length", "max_tokens", "incomplete:max_output_tokens", None, "prompt"),
        ("filtered", "safety_blocked", "incomplete:content_filter", None, "none"),
        ("messages", "unknown", "incomplete:max_messages", "server_limit", "none"),
        ("steered", "paused", "incomplete:steered", None, "server"),
        ("failed", "error", "failed:invalid_prompt", "Invalid prompt.", "none"),
        ("server error", "error", "failed:server_error", "retryable", "none"),
        ("window", "context_window_exceeded", "failed:context_length_exceeded", "Something went wrong.", "none"),
        ("policy", "safety_blocked", "failed:bio_policy", "Something went wrong.", "none"),
        ("no code", "error", "failed", None, "none"),
        ("cancelled", "cancelled", "cancelled", None, "none"),
        ("queued", "paused", "queued", None, "retrieve_same_id"),
        ("in progress", "paused", "in_progress", None, "retrieve_same_id"),
        ("asked for a job", "paused", "in_progress", None, "retrieve_same_id"),
        ("left open", "missing", "in_progress", "stream_cut", "none"),
        ("refusal", "refused", "completed", None, "none"),
        ("tool calls", "tool_call", "completed", None, "none"),
        ("unknown status", "unknown", "tired", None, "none"),
        ("unknown reason", "unknown", "incomplete:tired", None, "none"),
        ("no reason", "unknown", "incomplete", None, "none"),
        ("null", "missing", None, None, "none"),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, raw: str | None, detail: str | None, resume: str) -> None:
    """Each real-shaped body has its reason; the raw value is the status, with the reason or code that goes with it."""
    stop = whole(name).stop
    assert (stop.reason, stop.raw, stop.detail, stop.resume) == (reason, raw, detail, resume)
    assert stop.mapped == (name not in ("unknown status", "unknown reason", "no reason"))


@pytest.mark.parametrize("code", ["misalignment_policy_violation", "image_content_policy_violation"])
def test_policies_are_filters(code: str) -> None:
    """A failure over a policy is a filter's, not an accident."""
    stop = responses.decode(failed(code), ctx=CTX).stop
    assert (stop.reason, stop.raw, stop.incomplete) == (StopReason.SAFETY_BLOCKED, f"failed:{code}", True)


def test_a_limit_that_comes_late_may_be_retried() -> None:
    """A rate limit in mid-response is an error that the detail calls retryable."""
    stop = responses.decode(failed("rate_limit_exceeded"), ctx=CTX).stop
    assert (stop.reason, stop.detail) == (StopReason.ERROR, "retryable")


def test_a_refusal_in_one_part_is_a_refusal() -> None:
    """Text before it does not make the answer whole; both are what the user reads."""
    response = whole("half a refusal")
    assert (response.stop.reason, response.text) == (StopReason.REFUSED, "Well. No.")


@pytest.mark.behaviour(3)
def test_a_stream_without_its_terminal_is_cut() -> None:
    """Whatever items were done: only the terminal event is an end."""
    stop = streamed(STREAMS["text"][:-1]).stop
    assert (stop.reason, stop.raw, stop.detail) == (StopReason.MISSING, "in_progress", "stream_cut")
    assert not stop.terminal_seen
    assert stop.truncated


def test_incomplete_is_a_terminal() -> None:
    """`response.incomplete` ends a stream as `response.completed` does: nothing was lost on the way."""
    stop = streamed(STREAMS["cut call"]).stop
    assert (stop.reason, stop.terminal_seen, stop.resume) == (StopReason.MAX_TOKENS, True, Resume.PROMPT)


def test_the_response_counts_and_not_its_event() -> None:
    """vLLM ends a cut stream with `response.completed`; the response in it says that it is incomplete."""
    stop = streamed(STREAMS["loose"]).stop
    assert (stop.reason, stop.raw) == (StopReason.MAX_TOKENS, "incomplete:max_output_tokens")


@pytest.mark.parametrize(
    ("word", "status", "raw"),
    [
        ("completed", None, "completed"),
        ("completed", "in_progress", "completed"),
        ("cancelled", "cancelled", "cancelled"),
        ("done", "completed", "completed"),
        ("done", None, None),
    ],
)
def test_terminals_of_other_servers(word: str, status: str | None, raw: str | None) -> None:
    """An event of the end stands for a status that is missing or stale; OpenRouter's `done` says nothing by itself."""
    stop = streamed(named(*begun(), *said(0, "Hm"), ended(body([say("Hm")], status), word))).stop
    assert stop.raw == raw


@pytest.mark.parametrize("status", ["completed", "failed", "incomplete"])
def test_no_status_is_an_end_before_the_end(status: str) -> None:
    """What the first event claims of its response ends nothing."""
    head = {"type": "response.created", "response": body([], status)}
    assert streamed(named(head, *said(0, "Hm"))).stop.reason is StopReason.MISSING


def test_a_nested_status_is_not_ours() -> None:
    """A tool's output may hold the status of another response."""
    assert whole("server tools").stop.raw == "completed"
    assert streamed(STREAMS["unheard of"][:-1]).stop.reason is StopReason.MISSING


@pytest.mark.behaviour(9)
def test_the_first_terminal_wins() -> None:
    """A later error is detail; a later response is somebody else's."""
    late = {"type": "error", "code": "server_error", "message": "too late", "param": None}
    other = [*begun(), *said(0, "Other"), ended(cut([say("Other")]))]
    response = streamed([*STREAMS["text"], *named(*other, late)])
    assert (response.stop.reason, response.stop.detail) == (StopReason.END_TURN, "too late")
    assert "Other" not in response.text


@pytest.mark.behaviour(8, 9)
@pytest.mark.parametrize(
    ("error", "kind", "reason", "raw"),
    [
        pytest.param(
            {"type": "error", "code": "server_error", "message": "boom", "param": None},
            ProviderUnavailable,
            "error",
            "server_error",
            id="the event itself",
        ),
        pytest.param(
            {"type": "error", "error": {"type": "server_error", "code": None, "message": "boom"}},
            ProviderUnavailable,
            "error",
            "server_error",
            id="in a member",
        ),
        pytest.param(
            {"error": {"message": "boom", "code": 503}}, ProviderUnavailable, "error", "error", id="without a type"
        ),
        pytest.param(
            {"type": "error", "code": "context_length_exceeded", "message": "Your input exceeds the context window."},
            RequestRejected,
            "context_window_exceeded",
            "context_length_exceeded",
            id="the window",
        ),
    ],
)
def test_errors_inside_a_stream(error: Json, kind: type[ProviderError], reason: str, raw: str) -> None:
    """An error before the end is raised with what had arrived; the summary says it; a failure after it adds nothing."""
    events = named(*begun(), *said(0, "So far")[:-3])
    decoder, summarizer = responses.decoder(CTX), responses.summarizer(CTX)
    for event in events:
        list(decoder.feed(event))
    with pytest.raises(kind, match=r"boom|context window") as caught:
        list(decoder.feed(Event("error", error)))
    for event in [*events, Event("error", error), *named(ended(failed("rate_limit_exceeded")))]:
        summarizer.feed(event)
    partial = caught.value.partial
    assert partial is not None
    assert partial.text == "So far"
    assert partial.stop == summarizer.close().stop
    assert (partial.stop.reason, partial.stop.raw) == (reason, raw)
    assert summarizer.broken


def test_a_failed_response_is_a_response() -> None:
    """A stream that ends with `response.failed` raises nothing: it says itself what became of it."""
    response = streamed(STREAMS["failed"])
    assert (response.stop.reason, response.text) == (StopReason.ERROR, "So far")


@pytest.mark.parametrize("asked", [False, True])
def test_a_job_is_paused_not_cut(asked: bool) -> None:
    """A background response goes on when its stream breaks; either side of the call may say that it is one."""
    events = named(*begun(background=not asked), *said(0, "So far")[:-3])
    stop = streamed(events, Context(asked=RequestSummary(background=asked))).stop
    assert (stop.reason, stop.raw, stop.resume) == (StopReason.PAUSED, "in_progress", Resume.RETRIEVE_SAME_ID)
    head = body([], "queued", background=True)
    queued = named({"type": "response.created", "response": head}, {"type": "response.queued", "response": head})
    assert streamed(queued).stop.raw == "queued"
    assert streamed([*events, *named(ended(body([say("So far")])))]).stop.reason is StopReason.END_TURN


def test_leaving_a_stream_changes_nothing() -> None:
    """The reason comes with the terminal: a reader that left before has none."""
    summarizer = responses.summarizer(CTX)
    for event in STREAMS["text"][:-1]:
        summarizer.feed(event)
    assert summarizer.close(left=True).stop == summarizer.close().stop


# Calls


@pytest.mark.behaviour(5)
@pytest.mark.parametrize(
    ("item", "client"),
    [
        pytest.param(WEATHER, True, id="function"),
        pytest.param(SQL, True, id="custom"),
        pytest.param(CLICK, True, id="computer"),
        pytest.param(LOCAL_SHELL, True, id="local shell"),
        pytest.param(SHELL, True, id="shell here"),
        pytest.param({**SHELL, "environment": None}, True, id="shell"),
        pytest.param({**SHELL, "environment": {"type": "container_reference"}}, False, id="shell there"),
        pytest.param(PATCH, True, id="patch"),
        pytest.param(FIND_TOOLS, True, id="tool search here"),
        pytest.param({**FIND_TOOLS, "execution": "server"}, False, id="tool search there"),
        pytest.param(SEARCH, False, id="web search"),
        pytest.param(INTERPRETED, False, id="code interpreter"),
        pytest.param(MCP, False, id="mcp"),
        pytest.param({"type": "file_search_call", "status": "completed"}, False, id="file search"),
        pytest.param({"type": "mcp_approval_request", "id": "m", "arguments": "{}"}, False, id="mcp approval"),
        pytest.param(X_SEARCH, False, id="xAI's search"),
    ],
)
def test_calls_of_the_clients_promote(item: Json, client: bool) -> None:
    """Only a call that the client has to run asks for tools; the API's own are done by the time the response is."""
    response = decoded(item)
    assert response.stop.reason is (StopReason.TOOL_CALL if client else StopReason.END_TURN)
    assert response.stop.promoted_from is (StopReason.END_TURN if client else None)
    shown = client and item["type"] in ("function_call", "custom_tool_call")
    assert [each.id for each in response.tool_calls] == ([item["call_id"]] if shown else [])
    again = streamed(named(*begun(), added(0, {**item, "status": "in_progress"}), done(0, item), ended(body([item]))))
    assert (again.stop, again.tool_calls) == (response.stop, response.tool_calls)


def test_a_call_that_the_output_answers_is_the_servers() -> None:
    """Its result beside it says that it ran already."""
    result = {"type": "function_call_output", "id": "fco_1", "call_id": "call_a", "output": "14 °C"}
    response = decoded(WEATHER, result, say("Cold."))
    assert (response.stop.reason, response.tool_calls) == (StopReason.END_TURN, ())
    sent = responses.encode(Request(model="m", messages=(response.message(),)))
    assert sent["input"] == [WEATHER, result, say("Cold.")]


def test_a_custom_tool_takes_text() -> None:
    """What it is given is no JSON object, and streams in events of its own."""
    where = {"item_id": "ctc_1", "output_index": 0}
    events = named(
        *begun(),
        added(0, {**SQL, "input": ""}),
        {"type": "response.custom_tool_call_input.delta", **where, "delta": "SELECT "},
        {"type": "response.custom_tool_call_input.delta", **where, "delta": "1"},
        {"type": "response.custom_tool_call_input.done", **where, "input": "SELECT 1"},
        done(0, SQL),
        ended(body([SQL])),
    )
    assert streamed(events).tool_calls == (ToolCall(id="call_c", name="sql", arguments_raw="SELECT 1"),)


@pytest.mark.behaviour(24, 34)
@pytest.mark.parametrize("name", ["cut call", "cut call that says completed"])
def test_the_last_call_of_a_cut_response_is_open(name: str) -> None:
    """vLLM says `completed` of every item, the one that the limit cut included; earlier ones are whole."""
    assert [each.closed for each in whole(name).tool_calls] == [True, False]


@pytest.mark.behaviour(5)
def test_a_program_that_waits_for_a_call() -> None:
    """A call of the server's program says "in_progress" for as long as it waits: a completed response asks for it."""
    silent = [*STREAMS["program's call"][:-1], Event(None, ended(body([])))]
    for found in (whole("program's call"), streamed(STREAMS["program's call"]), streamed(silent)):
        (asked,) = found.tool_calls
        assert (asked.name, asked.arguments, asked.closed) == ("stock", {"sku": "x"}, True)
        assert (found.stop.reason, found.stop.promoted_from) == (StopReason.TOOL_CALL, StopReason.END_TURN)
    assert not streamed(STREAMS["program's call"][:-1]).tool_calls[0].closed


@pytest.mark.behaviour(24)
def test_a_program_that_was_cut_asks_for_nothing() -> None:
    """An incomplete response's last call is open; so is one that says of itself that it is cut, whatever the status."""
    cut_off = whole("cut program's call")
    assert (cut_off.stop.reason, cut_off.tool_calls[0].closed) == (StopReason.MAX_TOKENS, False)
    found = responses.decode(body([{**WEATHER, "status": "incomplete"}]), ctx=CTX)
    assert (found.stop.reason, found.tool_calls[0].closed) == (StopReason.END_TURN, False)


def test_a_cut_call_in_a_stream_is_open() -> None:
    """The API ends a cut item too, and says `incomplete` of it."""
    calls = streamed(STREAMS["cut call"]).tool_calls
    assert [(each.closed, each.arguments_raw) for each in calls] == [
        (True, WEATHER["arguments"]),
        (False, '{"zone": "Eu'),
    ]
    cut_short = streamed(named(*begun(), *used(0, CLOCK, "{}", whole=False)))
    assert [(each.id, each.closed) for each in cut_short.tool_calls] == [("call_b", False)]
    assert cut_short.stop.reason is StopReason.MISSING


def test_a_call_without_an_id_gets_one() -> None:
    """The same for the same call of the same response; in the item too, so that its result is understood."""
    response = whole("no call id")
    ids = [each.id for each in response.tool_calls]
    assert ids == [each.id for each in whole("no call id").tool_calls]
    assert len(set(ids)) == 2
    assert response.blocks is not None
    assert [item["call_id"] for item in response.blocks.items] == ids


def test_call_fragments() -> None:
    """The first has the id and the name, the others the arguments; they are told once."""
    decoder = responses.decoder(CTX)
    found = [delta.call for event in STREAMS["tool calls"] for delta in decoder.feed(event)]
    assert found == [
        CallFragment(0, "call_a", "weather"),
        CallFragment(0, arguments='{"city": "Zür'),
        CallFragment(0, arguments='ich", "days": [1, 2]}'),
        CallFragment(1, "call_b", "clock"),
        CallFragment(1, arguments="{}"),
    ]


# What other servers leave out


def test_what_no_event_told_is_in_the_end() -> None:
    """vLLM has items without any event; the terminal's output holds them, and they are given out with it."""
    response = streamed(STREAMS["only the end"])
    assert (response.text, response.reasoning) == ("Looking.", "Look.")
    assert [(each.id, each.closed) for each in response.tool_calls] == [("call_a", True)]
    assert response.stop.reason is StopReason.TOOL_CALL


def test_what_the_end_repeats_is_told_once() -> None:
    """Items are recognised where the terminal numbers and names them otherwise; what the stream left out is added."""
    start = [*begun(), *said(3, "Looking.", item=say("Looking.", id="x"))]
    last = body([think("Look."), say("Looking.", id="y"), WEATHER])
    response = streamed(named(*start, ended(last)))
    assert (response.text, len(response.tool_calls)) == ("Looking.", 1)
    assert response.blocks is not None
    assert [item["type"] for item in response.blocks.items] == ["reasoning", "message", "function_call"]


def test_an_end_without_output_keeps_what_came() -> None:
    """ChatGPT's backend and vLLM close with an empty output, or none; the items are those of the stream."""
    without: tuple[Json, Json] = ({"output": []}, {"output": None})
    for nothing in without:
        events = named(*begun(), *thought(0, think("Hm"), "Hm"), *used(1, WEATHER, WEATHER["arguments"]))
        last = named(ended(body([]) | nothing))
        response = streamed([*events, *last])
        assert response.blocks == Blocks("openai_responses", (think("Hm"), WEATHER))
        assert response.stop.reason is StopReason.TOOL_CALL


def test_deltas_without_items_are_text() -> None:
    """Neither the item nor its part need have begun, and places may be missing."""
    response = streamed(STREAMS["loose"])
    assert (response.text, response.usage) == ("The answer is", Usage(3, 2))
    bare: list[Json] = [{"type": "response.output_text.delta", "delta": each} for each in ("a", "b")]
    assert streamed(named(*begun(), *bare, ended(body([])))).text == "ab"
    nowhere: Json = {"type": "response.output_text.delta", "output_index": None, "content_index": None, "delta": "a"}
    assert streamed(named(*begun(), nowhere, nowhere, ended(body([say("aa")])))).text == "aa"


def test_items_that_are_not_counted() -> None:
    """A server that gives every item the index 0 means as many items as it begins."""
    events = [*begun(), *thought(0, think("Hm"), "Hm"), *said(0, "So"), *used(0, WEATHER, WEATHER["arguments"])]
    response = streamed(named(*events, ended(body([think("Hm"), say("So"), WEATHER]))))
    assert (response.text, response.reasoning) == ("So", "Hm")
    assert response.blocks is not None
    assert [item["type"] for item in response.blocks.items] == ["reasoning", "message", "function_call"]


def test_parts_that_come_whole() -> None:
    """A part without pieces is told by the first event that holds it, and not again by those that repeat it."""
    there = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    for kept in range(3):
        finishing: list[Json] = [
            {"type": "response.output_text.done", **there, "text": "So."},
            {"type": "response.content_part.done", **there, "part": part("So.")},
            done(0, say("So.")),
        ]
        events = named(*begun(), added(0, say()), *finishing[kept:], ended(body([say("So.")])))
        assert streamed(events).text == "So."
    given = {"item_id": "fc_call_a", "output_index": 0, "arguments": WEATHER["arguments"]}
    whole_call = [
        added(0, {**WEATHER, "arguments": ""}),
        {"type": "response.function_call_arguments.done", **given},
        done(0, WEATHER),
    ]
    decoder = responses.decoder(CTX)
    found = [delta.call for event in named(*begun(), *whole_call) for delta in decoder.feed(event)]
    assert "".join(each.arguments for each in found if each) == WEATHER["arguments"]


def test_two_parts_of_one_message() -> None:
    """Each is told once: the one in pieces, the other whole."""
    both = say("One. ", "Two.")
    events = named(*begun(), added(0, say()), word(0, "One. "), done(0, both), ended(body([both])))
    assert streamed(events).text == "One. Two."


def test_an_item_that_is_nothing_is_passed_over() -> None:
    """Some servers announce items without saying which."""
    empty = {"type": "response.output_item.added", "output_index": 0, "item": None}
    assert streamed(named(*begun(), empty, *said(1, "So"), ended(body([say("So")])))).text == "So"


def test_done_at_the_end_is_no_event() -> None:
    """Servers that speak chat too send its last word here as well."""
    assert streamed([*STREAMS["text"], Event(None, DONE)]).stop.reason is StopReason.END_TURN


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_item.done", "output_index": 0, "item": None},
        {"type": "response.output_item.added", "output_index": 0, "item": "x"},
        {"type": "response.completed", "response": ["x"]},
        {"type": "response.completed", "response": {"output": {"0": "x"}}},
        {"type": "response.completed", "response": {"output": ["x"]}},
    ],
    ids=["no item", "item", "response", "output", "output item"],
)
def test_wrong_shapes_in_a_stream(event: Json) -> None:
    """What cannot be read does not look like an answer that says nothing."""
    with pytest.raises(DecodeError):
        list(responses.decoder(CTX).feed(Event(None, event)))


def test_bodies_that_are_none() -> None:
    """An error under a status of success is raised; other JSON is not a response."""
    with pytest.raises(ProviderError, match="boom"):
        responses.decode({"error": {"message": "boom"}}, ctx=CTX)
    others: tuple[Json, ...] = (
        {"choices": []},
        {"type": "message", "output": []},
        {"status": "completed", "output": {}},
    )
    for wrong in others:
        with pytest.raises(DecodeError):
            responses.decode(wrong, ctx=CTX)


# Content


def test_usage() -> None:
    """Cached tokens are part of the input, reasoning of the output; what is not said is not zero."""
    assert whole("text").usage == Usage(31, 17, 5, 8, 3)
    bare = body([], usage={"input_tokens": 3, "output_tokens": 2.0})
    assert responses.decode(bare, ctx=CTX).usage == Usage(3, 2)
    assert responses.decode(body([], usage=None), ctx=CTX).usage is None


@pytest.mark.behaviour(6)
def test_a_used_up_budget_is_suspected() -> None:
    """The output tokens, reasoning included, that the request allowed."""
    ctx = Context(asked=responses.request_summary({"max_output_tokens": 17}))
    assert responses.decode(BODIES["text"], ctx=ctx).stop.suspected


def test_reasoning_is_shown_and_kept() -> None:
    """Summaries, and the open reasoning of open models, are shown; the encrypted content stays in the blocks."""
    response = whole("reasoning")
    assert response.reasoning == "**Multiplying**\n\nsix times seven"
    assert response.blocks is not None
    assert list(response.blocks.items) == BODIES["reasoning"]["output"]
    assert whole("open reasoning").reasoning == "six times seven"
    where = {"item_id": "rs_1", "output_index": 0, "content_index": 0}
    events = named(
        *begun(),
        {"type": "response.reasoning_text.delta", **where, "delta": "six times "},
        {"type": "response.reasoning_text.delta", **where, "delta": "seven"},
        {"type": "response.reasoning_text.done", **where, "text": "six times seven"},
    )
    assert streamed(events).reasoning == "six times seven"


def test_encrypted_reasoning_is_of_the_item_that_is_done() -> None:
    """What an item has when it begins may be half of it, and a terminal that leaves it out takes nothing away."""
    early = added(0, {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAA"})
    last = think() | {"encrypted_content": None}
    response = streamed(named(*begun(), early, done(0, think()), *said(1, "42"), ended(body([last, say("42")]))))
    assert response.blocks is not None
    assert response.blocks.items[0]["encrypted_content"] == "gAAAAB"


def test_citations_stay_in_the_blocks() -> None:
    """A message is kept with its annotations, and the search that they are from before it."""
    response = streamed(STREAMS["search"])
    assert response.blocks == Blocks("openai_responses", (SEARCH, say(CITED)))
    assert response.text == "High at noon."


# Paths


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/responses", Routed()),
        ("POST", "/v1/responses", Routed()),
        ("POST", "/openai/v1/responses?api-version=preview", Routed()),
        ("POST", "/openai/responses?api-version=2025-03-01-preview", Routed()),
        ("POST", "/gateway/acct/v1/responses", Routed()),
        ("GET", "/v1/responses/resp_1", Routed(stream=False, retrieve="resp_1")),
        ("GET", "/v1/responses/resp_1?stream=true&starting_after=7", Routed(stream=True, retrieve="resp_1")),
        ("GET", "/v1/responses", None),
        ("POST", "/v1/responses/resp_1", None),
        ("POST", "/v1/responses/resp_1/cancel", None),
        ("GET", "/v1/responses/resp_1/input_items", None),
        ("POST", "/v1/chat/completions", None),
    ],
)
def test_paths(method: str, path: str, expected: Routed | None) -> None:
    """A response is made with POST and fetched with GET; what else is done to one is another matter."""
    assert responses.routed(method, path) == expected


@pytest.mark.behaviour(13)
def test_a_response_is_fetched_by_its_id() -> None:
    """Nothing is sent; a stream may begin after the events that are known."""
    fetch = Request(model="m", messages=(), retrieve="resp/1")
    assert responses.encode(fetch, stream=True) == {}
    assert responses.route(fetch, stream=False) == ("GET", "/responses/resp%2F1")
    assert responses.route(fetch, stream=True) == ("GET", "/responses/resp%2F1?stream=true")
    later = responses.route(fetch.but(extra={"starting_after": 7}), stream=True)
    assert later == ("GET", "/responses/resp%2F1?stream=true&starting_after=7")
    assert responses.routed(*later) == Routed(stream=True, retrieve="resp/1")


# Requests


SCHEMA: Json = {"type": "object", "properties": {"n": {"type": "integer"}}}
REQUEST = Request(
    model="gpt-5.6",
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content="hi"),
        Message(
            role="assistant", content="Looking.", tool_calls=(ToolCall(id="call_1", name="f", arguments={"a": 1}),)
        ),
        Message(role="tool", content="14 °C", tool_call_id="call_1"),
        Message(role="system", content="Now be long."),
        Message(role="user", content=[{"type": "input_text", "text": "and?"}]),
    ),
    tools=(Tool(name="f", description="F.", parameters=SCHEMA), Tool(name="g")),
    tool_choice="f",
    max_tokens=64,
    temperature=0.5,
    format=SCHEMA,
    previous_id="resp_0",
    extra={"background": True},
)
BODY: Json = {
    "model": "gpt-5.6",
    "instructions": "Be brief.",
    "input": [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Looking."},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a": 1}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "14 °C"},
        {"role": "system", "content": "Now be long."},
        {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
    ],
    "tools": [
        {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False, "description": "F."},
        {"type": "function", "name": "g", "parameters": {"type": "object", "properties": {}}, "strict": False},
    ],
    "tool_choice": {"type": "function", "name": "f"},
    "max_output_tokens": 64,
    "temperature": 0.5,
    "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA}},
    "previous_response_id": "resp_0",
    "background": True,
}


def test_encode() -> None:
    """The whole body: a leading system message is the instructions, a later one keeps its place; tools are flat."""
    assert responses.encode(REQUEST) == BODY
    assert responses.encode(REQUEST, stream=True) == BODY | {"stream": True}


def test_the_result_of_a_custom_tool() -> None:
    """It answers in the words of the call."""
    history = (decoded(SQL).message(), Message(role="tool", content="1", tool_call_id="call_c"))
    assert responses.encode(Request(model="m", messages=history))["input"] == [
        SQL,
        {"type": "custom_tool_call_output", "call_id": "call_c", "output": "1"},
    ]


@pytest.mark.behaviour(22, 23, 24)
@pytest.mark.parametrize(
    ("output", "kept", "sent"),
    [
        pytest.param([think(), WEATHER, CLOCK], "call_b", [think(), CLOCK], id="a call that left"),
        pytest.param([think(), WEATHER, say("So")], "", [think(), say("So")], id="a call before the text"),
        pytest.param([think(), WEATHER, think(id="rs_2"), say("So")], "", [think(id="rs_2"), say("So")], id="its own"),
        pytest.param([think(), WEATHER], "", [], id="reasoning for a call that left"),
        pytest.param([think(), SEARCH, X_SEARCH, say("So")], "", [think(), SEARCH, X_SEARCH, say("So")], id="server's"),
        pytest.param([say("  ")], "", [], id="blank"),
        pytest.param([say(no("No."))], "", [say(no("No."))], id="refusal"),
    ],
)
def test_replays(output: list[Json], kept: str, sent: list[Json]) -> None:
    """No call that left the history, no reasoning without the items that it led to, no empty message."""
    message = decoded(*output).message()
    message = message.but(tool_calls=tuple(each for each in message.tool_calls if each.id == kept))
    assert responses.encode(Request(model="m", messages=(message,)))["input"] == sent


def test_reasoning_that_nobody_stored_is_not_sent_by_its_id() -> None:
    """With `store` off only reasoning that brings its content can be read back: the other is a 404."""
    bare = think(id="rs_2")
    del bare["encrypted_content"]
    message = decoded(think(), say("One"), bare, say("Two")).message()
    sent = Request(model="m", messages=(message,), extra={"store": False})
    assert responses.encode(sent)["input"] == [think(), say("One"), say("Two")]
    assert bare in responses.encode(sent.but(extra={}))["input"]


def test_inspect() -> None:
    """An SDK's arguments are read in place; what is no value of the right kind is none."""
    given = [{"role": "user", "content": "hi"}]
    asked = responses.request_summary(
        {
            "model": "m",
            "input": given,
            "instructions": "Be brief.",
            "max_output_tokens": 9,
            "background": True,
            "stream": True,
            "text": {"format": {"type": "json_schema"}},
            "previous_response_id": "resp_0",
            "temperature": object(),
        }
    )
    assert asked.history is given
    assert (asked.model, asked.maximum, asked.background, asked.stream) == ("m", 9, True, True)
    assert (asked.json_format, asked.previous_id, asked.temperature) == (True, "resp_0", None)
    assert (asked.system, asked.length) == ("Be brief.", 1)
    assert responses.request_summary({"input": "hi"}).history == given
    assert responses.request_summary({"text_format": Tool}).json_format


# Continuations


@pytest.mark.behaviour(21, 25, 27)
def test_resume_by_prompt() -> None:
    """The original messages first, then the partial answer, then the nudge; a forced tool choice goes back to auto."""
    request = responses.resume(REQUEST, whole("length"), prompt="Go on.")
    after = responses.encode(request)
    assert after["input"] == [
        *BODY["input"],
        say("The answer is", status="incomplete"),
        {"role": "user", "content": "Go on."},
    ]
    assert request.messages[-1].synthetic
    assert "tool_choice" not in after
    assert (after["tools"], after["text"]) == (BODY["tools"], BODY["text"])


@pytest.mark.behaviour(22, 23, 24)
@pytest.mark.parametrize(
    ("output", "kept"),
    [
        pytest.param([think(), say("So"), CUT_CLOCK], [think(), say("So")], id="a cut call"),
        pytest.param([say("So"), think()], [say("So")], id="reasoning at the end"),
        pytest.param([think()], [], id="reasoning only"),
        pytest.param([think(), CLICK], [], id="a click that was not made"),
        pytest.param([say("So"), {**SEARCH, "status": "searching"}], [say("So")], id="a search without its result"),
        pytest.param([think(), SEARCH, X_SEARCH, say("So")], [think(), SEARCH, X_SEARCH, say("So")], id="searches"),
        pytest.param([say("  ")], [], id="blank"),
        pytest.param([], [], id="nothing"),
    ],
)
def test_resume_replays_what_may_be_replayed(output: list[Json], kept: list[Json]) -> None:
    """No call without its result, no reasoning without what follows it, no empty message."""
    response = responses.decode(cut(output), ctx=CTX)
    sent = responses.encode(responses.resume(REQUEST, response, prompt="Go on."))["input"]
    assert sent[len(BODY["input"]) :] == [*kept, {"role": "user", "content": "Go on."}]


def test_a_prefill_is_a_prompt() -> None:
    """The API does not go on with an assistant's message that stands last."""
    by_prompt = responses.resume(REQUEST, whole("length"), prompt="Go on.")
    assert responses.resume(REQUEST, whole("length"), prompt="Go on.", strategy=Strategy.PREFILL) == by_prompt


def test_resend() -> None:
    """The answer verbatim, and nothing after it."""
    sent = responses.encode(responses.resume(REQUEST, whole("tool calls"), prompt="", strategy=Strategy.RESEND))
    assert sent["input"] == [*BODY["input"], *BODIES["tool calls"]["output"]]


@pytest.mark.behaviour(13)
def test_a_job_is_fetched() -> None:
    """The request that made it is not sent again; what was fetched and cut is asked on as what was made."""
    fetch = responses.resume(REQUEST, whole("queued"), prompt="Go on.")
    assert (fetch.retrieve, fetch.messages) == ("resp_68a1", REQUEST.messages)
    onward = responses.resume(fetch, whole("length"), prompt="Go on.")
    assert responses.encode(onward)["input"][-1]["content"] == "Go on."


def test_a_response_of_another_format_is_resumed_by_its_text() -> None:
    """Blocks of another format are not this one's to send."""
    foreign = ChatResponse(text="So", stop=Stop(StopReason.MAX_TOKENS, "length"))
    sent = responses.encode(responses.resume(REQUEST, foreign, prompt="Go on."))["input"]
    assert sent[-2] == {"role": "assistant", "content": "So"}


# Replies


@pytest.mark.parametrize(
    ("stop", "status", "more"),
    [
        (Stop(StopReason.END_TURN, "stop"), "completed", {}),
        (Stop(StopReason.TOOL_CALL, "tool_use"), "completed", {}),
        (Stop(StopReason.MAX_TOKENS, "length"), "incomplete", {"incomplete_details": {"reason": "max_output_tokens"}}),
        (Stop(StopReason.PAUSED), "in_progress", {"background": True}),
        (Stop(StopReason.CANCELLED), "cancelled", {}),
        (Stop(StopReason.UNKNOWN, "new", mapped=False), "new", {}),
        (
            Stop(StopReason.UNKNOWN, "incomplete:new", mapped=False),
            "incomplete",
            {"incomplete_details": {"reason": "new"}},
        ),
        (Stop(StopReason.MISSING), None, {}),
    ],
    ids=lambda value: value.reason.value if isinstance(value, Stop) else "",
)
def test_reasons_of_other_formats_are_said_in_the_apis_words(stop: Stop, status: str | None, more: Json) -> None:
    """A reply says what its Stop means, whoever's word that was."""
    written: Any = responses.reply(ChatResponse(text="Hm", stop=stop), stream=False)
    assert written["status"] == status
    assert {name: written[name] for name in more} == more


def test_an_error_is_said_with_its_code() -> None:
    """A failure that a script asks for has a code and a message, as the API's have."""
    written: Any = responses.reply(ChatResponse(stop=Stop(StopReason.ERROR)), stream=False)
    assert (written["status"], written["error"]["code"]) == ("failed", "server_error")
    assert written["error"]["message"]


def test_the_events_of_a_reply() -> None:
    """The API's whole sequence, numbered from 0, each event named by its type."""
    response = responses.decode(body([think("Hm"), say("So it is."), call("c", "f", "{}")]), ctx=CTX)
    events: Any = responses.reply(response, stream=True)
    assert [event.data["sequence_number"] for event in events] == list(range(len(events)))
    assert all(event.name == event.data["type"] for event in events)
    assert [event.name.removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        *["output_text.delta"] * 3,
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]


def test_a_cut_reply_leaves_its_last_item_open() -> None:
    """Neither the part nor the item is done, and nothing ends the response."""
    stop = Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
    events: Any = responses.reply(ChatResponse(reasoning="Hm", text="So far", stop=stop), stream=True)
    names = [event.name.removeprefix("response.") for event in events]
    assert names[-1] == "output_text.delta"
    assert names.count("output_item.done") == 1


def test_errors_of_a_reply() -> None:
    """An error answer is the provider's usual one; in a stream it is an event whose members are the error's."""
    answer: Any = responses.reply_error(429, None, None)
    assert answer["error"]["code"] == "rate_limit_exceeded"
    event = responses.reply_error(500, None, "boom", stream=True)
    assert isinstance(event, Event)
    assert event.name == "error"
    assert (event.data["type"], event.data["code"], event.data["message"]) == ("error", "server_error", "boom")


def test_usage_of_a_reply_is_whole() -> None:
    """The SDK's types have every member: what is not known is zero."""
    written: Any = responses.reply(ChatResponse(stop=Stop(StopReason.END_TURN), usage=Usage(7, 9)), stream=False)
    assert written["usage"].keys() == USAGE.keys()
    assert written["usage"]["input_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
