"""The chat format as each server speaks it: one habit at a time, whole, streamed, and as OpenAI's SDK hands it out."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any, cast

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from endturn.chat import ChatResponse, Json, Message, Request
from endturn.errors import ProviderError, RequestRejected
from endturn.formats import FORMATS, Context, Event, RequestSummary, ResponseSummary, format_of, framing, summarize
from endturn.formats.errors import error_of
from endturn.formats.openai_chat import FORMAT as chat
from endturn.records import Strategy
from endturn.sdk_objects import dumped
from endturn.stop import Resume, StopReason
from endturn.stop_reasons import apis
from tests.formats.replies_chat_dialects import DEEPSEEK_USAGE, LAST, SAID, XAI_USAGE, Said, bit, call, used, whole

EVIDENCE = list(
    csv.DictReader(
        (Path(__file__).parent.parent / "data" / "stop_reasons.tsv").read_text().splitlines(), delimiter="\t"
    )
)
REQUEST = Request(model="m", messages=(Message(role="user", content="hi"),))

each = pytest.mark.parametrize("said", [pytest.param(said, id=name) for name, said in SAID.items()])


def streamed(events: list[Event], ctx: Context) -> ChatResponse:
    """The response of a stream."""
    decoder = chat.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


def watched(things: Any, ctx: Context) -> ResponseSummary:
    """What a summarizer sees of a stream, or of a body in a list."""
    summarizer = chat.summarizer(ctx)
    for thing in things:
        summarizer.feed(dumped(thing))
    return summarizer.close()


def responses(said: Said) -> list[ChatResponse]:
    """The response, whole and streamed."""
    whole_ = [] if said.body is None else [chat.decode(said.body, ctx=said.context)]
    return whole_ + ([] if said.stream is None else [streamed(said.stream, said.context)])


# What each says


@each
def test_what_it_means(said: Said) -> None:
    """The stop, the text, the thinking and the calls are those of the server's own words, whole and streamed."""
    assert responses(said)
    for response in responses(said):
        stop = response.stop
        assert (stop.reason, stop.raw) == (said.reason, said.raw)
        if said.detail is not None:
            assert stop.detail == said.detail
        assert stop.suspected is said.suspected
        assert (stop.promoted_from is not None) is said.promoted
        assert stop.terminal_seen is (said.reason is not StopReason.MISSING)
        assert (response.text, response.reasoning) == (said.text, said.thought)
        assert tuple(call.name for call in response.tool_calls) == said.tools
        assert len({call.id for call in response.tool_calls} - {"", "null"}) == len(said.tools)
        if said.output is not None:
            assert response.usage is not None
            assert response.usage.output_tokens == said.output


@each
def test_the_watch_agrees(said: Said) -> None:
    """Mappings, events, bytes cut anywhere into chunks, and OpenAI's SDK's objects are read alike, and as decoded."""
    ctx, construct = said.context, cast(Any, ChatCompletionChunk).construct
    if said.body is not None:
        expected = chat.decode(said.body, ctx=ctx)
        bodies = (said.body, cast(Any, ChatCompletion).construct(**said.body))
        for seen in (
            *(watched([body], ctx) for body in bodies),
            *(summarize(chat, ctx, dumped(body)) for body in bodies),
        ):
            assert (seen.stop, seen.usage) == (expected.stop, expected.usage)
            assert (seen.tail, seen.output_chars) == (expected.text[-64:], len(expected.text))
        again = chat.decode(chat.reply(expected, stream=False), ctx=ctx)
        assert (again.text, again.reasoning, again.tool_calls) == (
            expected.text,
            expected.reasoning,
            expected.tool_calls,
        )
    if said.stream is not None:
        expected = streamed(said.stream, ctx)
        plain = [event.data for event in said.stream if event.data != framing.DONE]
        raw = b"".join(framing.frame(event) for event in said.stream)
        read = list(framing.events([raw[i : i + 7] for i in range(0, len(raw), 7)]))
        for things in (plain, said.stream, read, [construct(**chunk) for chunk in plain]):
            seen = watched(things, ctx)
            assert (seen.stop, seen.usage) == (expected.stop, expected.usage)
            assert (seen.tail, seen.output_chars) == (expected.text[-64:], len(expected.text))


@each
def test_before_its_terminal_a_stream_is_missing(said: Said) -> None:
    """No prefix of a stream ends clean before its reason, read by the decoder or the summarizer."""
    for size in range(len(said.stream or ())):
        begun = (said.stream or [])[:size]
        seen = watched(begun, said.context)
        assert seen.stop == streamed(begun, said.context).stop
        # Usage comes last, and tells whether it was the window.
        windowed = said.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
        assert seen.stop.reason in (StopReason.MISSING, said.reason, *[StopReason.MAX_TOKENS] * windowed)
        named = any(choice.get("finish_reason") for event in begun for choice in event.data["choices"])
        assert seen.stop.terminal_seen is named


# The vocabulary


CHATS = [row for row in EVIDENCE if row["api"] in {api.name for api in apis("openai_chat").values()}]


@pytest.mark.behaviour(2)
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['api']}-{row['raw']}") for row in CHATS])
def test_every_row_of_the_evidence_is_in_its_dialect(row: Json) -> None:
    """What was read in the servers' own sources is what the dialect of that name says, through a body."""
    dialect = next(name for name, api in apis("openai_chat").items() if api.name == row["api"])
    stop = chat.decode(whole({"content": "x"}, row["raw"]), ctx=Context(dialect=dialect)).stop
    assert (stop.reason, stop.raw) == (row["normalized"], row["raw"])
    assert (stop.incomplete, stop.resume) == (row["incomplete"] == "yes", row["resume"])
    assert (stop.detail or "") == row["detail"]


def test_every_api_of_the_chat_format_has_a_dialect() -> None:
    """None of the evidence's chat APIs is without a table."""
    named = {row["api"] for row in EVIDENCE if row["api"].endswith(".chat")}
    named |= {"moonshot(moonpalace)", "xai.grpc"}
    assert named <= {api.name for api in apis("openai_chat").values()}


UPSTREAM = ("anthropic.messages", "google.generateContent", "bedrock.converse", "cohere.v2", "cohere.v1")
NATIVE = [row for row in EVIDENCE if row["api"] in UPSTREAM]


@pytest.mark.parametrize("dialect", ["openrouter", "litellm", "a gateway nobody knows"])
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['api']}-{row['raw']}") for row in NATIVE])
def test_a_gateway_passes_on_every_word_of_the_model_behind_it(row: Json, dialect: str) -> None:
    """Each upstream's word means through a gateway what it means at home; only its own way of resuming is left out."""
    member = {"provider_specific_fields": {"native_finish_reason": row["raw"]}}
    stop = chat.decode(whole({"content": "x"}, "stop", member), ctx=Context(dialect=dialect)).stop
    assert (stop.reason, stop.raw) == (row["normalized"], row["raw"])
    assert stop.incomplete is (row["incomplete"] == "yes")
    assert stop.resume in (row["resume"], Resume.NONE)
    assert stop.resume not in (Resume.NATIVE_TOKEN, Resume.RESEND_UNCHANGED, Resume.SERVER)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != chat.name])
def test_no_gateway_word_means_something_else_at_home(name: str) -> None:
    """Where another format's own table has a word that a gateway passes on, it is the same reason."""
    gateway, home = chat.reasons["openrouter"], format_of(name).reasons[""]
    assert [raw for raw in home.keys() & gateway.keys() if home[raw].reason is not gateway[raw].reason] == []


@pytest.mark.parametrize(
    ("raw", "native", "reason", "kept"),
    [
        ("length", "MAX_TOKENS", "max_tokens", "MAX_TOKENS"),
        ("length", "max_output_tokens", "max_tokens", "max_output_tokens"),
        ("stop", "completed", "end_turn", "completed"),
        ("stop", "end_turn", "end_turn", "end_turn"),
        ("tool_calls", "tool_use", "tool_call", "tool_use"),
        ("length", "CONTINUATION", "paused", "CONTINUATION"),
        ("stop", "pause_turn", "paused", "pause_turn"),
        ("stop", "compaction", "paused", "compaction"),
        ("stop", "MALFORMED_FUNCTION_CALL", "error", "MALFORMED_FUNCTION_CALL"),
        ("content_filter", "OTHER", "error", "OTHER"),
        ("content_filter", "refusal", "refused", "refusal"),
        ("stop", "guardrail_intervened", "safety_blocked", "guardrail_intervened"),
        ("stop", "repetition", "error", "repetition"),
        ("stop", "REASON_MAX_CONTEXT", "context_window_exceeded", "REASON_MAX_CONTEXT"),
        ("length", "STOP", "max_tokens", "length"),
        ("stop", "next year's word", "end_turn", "stop"),
        ("stop", "", "end_turn", "stop"),
    ],
)
def test_openrouters_native_reason_comes_first(raw: str, native: str, reason: str, kept: str) -> None:
    """The upstream's word counts where it has a row, unless it would hide that the answer is cut; streamed too."""
    member, ctx = {"native_finish_reason": native}, Context(dialect="openrouter")
    for stop in (
        chat.decode(whole({"content": "x"}, raw, member), ctx=ctx).stop,
        streamed([bit({"content": "x"}), bit({"content": ""}, raw, member), LAST], ctx).stop,
    ):
        assert (stop.reason, stop.raw) == (reason, kept)


def test_a_native_stop_beside_calls_is_promoted() -> None:
    """Gemini behind OpenRouter: `tool_calls` of the gateway, STOP of the model, and complete calls."""
    body = whole({"tool_calls": [call("f")]}, "tool_calls", {"native_finish_reason": "STOP"})
    stop = chat.decode(body, ctx=Context(dialect="openrouter")).stop
    assert (stop.reason, stop.incomplete) == (StopReason.TOOL_CALL, False)


# Errors that the servers send


def test_comments_between_events_are_no_events() -> None:
    """OpenRouter and DeepSeek keep a connection open with comments; a body may begin with empty lines."""
    events = SAID["deepseek: thinking beside the answer"].stream or []
    raw = b": OPENROUTER PROCESSING\n\n".join([b"", *(framing.frame(event) for event in events), b": keep-alive\n\n"])
    assert list(framing.events([raw])) == events


@pytest.mark.parametrize(
    ("dialect", "error", "reason"),
    [
        pytest.param(
            "openrouter",
            {"error": {"code": 502, "message": "Provider returned error", "metadata": {"provider_name": "X"}}},
            StopReason.ERROR,
            id="openrouter",
        ),
        pytest.param(
            "cerebras",
            {"error": {"message": "Encountered a server error", "type": "server_error"}, "status_code": 500},
            StopReason.ERROR,
            id="cerebras",
        ),
        pytest.param(
            "vllm",
            {"error": {"message": "EngineCore died", "type": "InternalServerError", "param": None, "code": 500}},
            StopReason.ERROR,
            id="vllm",
        ),
        pytest.param("tgi", {"error": "CUDA error", "error_type": "generation"}, StopReason.ERROR, id="tgi"),
        pytest.param(
            "llamacpp",
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size, try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 5000,
                    "n_ctx": 4096,
                }
            },
            StopReason.CONTEXT_WINDOW_EXCEEDED,
            id="llamacpp",
        ),
        pytest.param(
            "azure",
            {"error": {"code": "content_filter", "message": "The response was filtered", "status": 400}},
            StopReason.SAFETY_BLOCKED,
            id="azure",
        ),
    ],
)
def test_errors_within_streams(dialect: str, error: Json, reason: StopReason) -> None:
    """Before any reason an error chunk is raised with what had come; the summary says the same stop."""
    ctx = Context(dialect=dialect, provider=dialect)
    begun = bit({"role": "assistant", "content": "One"})
    decoder = chat.decoder(ctx)
    list(decoder.feed(begun))
    with pytest.raises(ProviderError) as raised:
        decoder.feed(Event(None, error))
    assert raised.value.partial is not None
    assert raised.value.partial.text == "One"
    stop = watched([begun, error], ctx).stop
    assert stop == raised.value.partial.stop
    assert (stop.reason, stop.terminal_seen) == (reason, True)


def test_groqs_malformed_call_is_to_be_repaired() -> None:
    """HTTP 400 `tool_use_failed`: the model wrote a call that Groq could not parse; it was not the host's fault."""
    body = b"""{"error": {"message": "Failed to call a function. Please adjust your prompt.", "type":
        "invalid_request_error", "code": "tool_use_failed", "failed_generation": "<function=f>{\\"a\\": "}}"""
    error = error_of(400, {}, body, ctx=Context(dialect="groq", provider="groq"))
    assert type(error) is RequestRejected
    assert error.stop is not None
    assert (error.stop.reason, error.stop.resume) == (StopReason.ERROR, Resume.REPAIR)
    assert "failed_generation" in (error.body or "")


# What each counts


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        pytest.param(DEEPSEEK_USAGE, (20, 9, 6, 16), id="deepseek's cache"),
        pytest.param(XAI_USAGE, (12, 387, 386, 4), id="xai, reasoning beside"),
        pytest.param(
            used(12, 387, completion_tokens_details={"reasoning_tokens": 386}), (12, 387, 386, None), id="within"
        ),
        pytest.param(
            {**used(21, 0), "total_tokens": 81, "completion_tokens_details": {"reasoning_tokens": 60}},
            (21, 60, 60, None),
            id="gemini behind a gateway",
        ),
        pytest.param({"prompt_tokens": 5.0, "completion_tokens": 2.0}, (5, 2, None, None), id="numbers with a point"),
        pytest.param({**used(1158, 20), "cached_tokens": 1024}, (1158, 20, None, 1024), id="moonshot's cache"),
    ],
)
def test_usage(usage: Json, expected: tuple[int | None, ...]) -> None:
    """Output is everything generated: reasoning that is counted beside the completion is added, never twice."""
    found = chat.decode(whole({"content": "x"}, "stop", usage=usage), ctx=Context()).usage
    assert found is not None
    assert (found.input_tokens, found.output_tokens, found.reasoning_tokens, found.cache_read_tokens) == expected


# What each is asked


def test_mistrals_thinking_goes_back_in_its_parts() -> None:
    """Content in parts is kept in parts, a stream's pieces joined; Mistral refuses members that it does not know."""
    said = SAID["mistral: thinking in parts"]
    assert said.body is not None
    parts = said.body["choices"][0]["message"]["content"]
    for response in responses(said):
        (message,) = chat.encode(REQUEST.but(messages=(response.message(),)), dialect="mistral")["messages"]
        assert message == {"role": "assistant", "content": parts}
        cut = response.with_stop(reason=StopReason.MAX_TOKENS).but(text="It is 42\n")
        resumed = chat.resume(REQUEST, cut, prompt="", strategy=Strategy.PREFILL, dialect="mistral")
        last = chat.encode(resumed, dialect="mistral")["messages"][-1]
        assert last == {
            "role": "assistant",
            "content": [parts[0], parts[2], {"type": "text", "text": "It is 42"}],
            "prefix": True,
        }


def test_a_message_of_thinking_alone_is_not_sent() -> None:
    """Once its calls are gone, a message that holds nothing but a thought says nothing."""
    content = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]
    message = chat.decode(whole({"content": content, "tool_calls": [call("f")]}, "tool_calls"), ctx=Context()).message()
    assert chat.encode(REQUEST.but(messages=(message.but(tool_calls=()),)))["messages"] == []
    assert chat.encode(REQUEST.but(messages=(message,)))["messages"][0]["content"] == content


def test_two_thoughts_with_signatures_stay_two() -> None:
    """A signature ends a thought; the next piece begins another."""
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "a"}], "signature": "s1"}
    other = {"type": "thinking", "thinking": [{"type": "text", "text": "b"}], "signature": "s2"}
    response = chat.decode(whole({"content": [thought, other]}, "stop"), ctx=Context())
    assert response.blocks is not None
    assert response.blocks.items[0]["content"] == [thought, other]
    assert response.reasoning == "ab"


def test_the_words_of_a_request() -> None:
    """Mistral says `random_seed`, IBM `model_id` and streams at a path of its own; whatever the dialect."""
    asked = REQUEST.but(seed=7, max_tokens=9)
    mistral = chat.encode(asked, stream=True, dialect="mistral")
    assert (mistral["random_seed"], mistral["max_tokens"], mistral["stream"]) == (7, 9, True)
    assert "stream_options" not in mistral
    assert chat.request_summary(mistral).seed == 7
    watsonx = chat.encode(asked, stream=True, dialect="watsonx")
    assert (watsonx["model_id"], "model" in watsonx, "stream" in watsonx) == ("m", False, False)
    method, path = chat.route(asked, stream=True, dialect="watsonx")
    routed = chat.routed(method, f"/ml/v1{path}?version=2025-04-23")
    assert routed is not None
    assert routed.stream is True
    assert chat.routed("POST", "/ml/v1/text/chat?version=2025-04-23") is not None


def test_vllm_goes_on_with_a_prefill() -> None:
    """`continue_final_message` without a generation prompt makes the last message the beginning of the answer."""
    cut = chat.decode(whole({"content": "One, two "}, "length"), ctx=Context(dialect="vllm"))
    resumed = chat.resume(REQUEST, cut, prompt="", strategy=Strategy.PREFILL, dialect="vllm")
    body = chat.encode(resumed, dialect="vllm")
    assert body["messages"] == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "One, two"}]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


# Several choices, and none


@pytest.mark.behaviour(11)
def test_several_choices_are_judged_each() -> None:
    """With n > 1 choice 0 is the answer, whatever order the chunks come in; every choice's raw reason is told."""
    ctx = Context(asked=RequestSummary(choices=2))
    choices = [whole({"content": text}, reason)["choices"][0] for text, reason in (("a", "length"), ("b", "stop"))]
    body = whole({}, None) | {"choices": [choices[0], {**choices[1], "index": 1}]}
    stream = [
        bit({"content": "b"}, None, {"index": 1}),
        bit({"content": "a"}),
        bit({}, "stop", {"index": 1}),
        bit({}, "length"),
        LAST,
    ]
    assert chat.decode(body, ctx=ctx).text == streamed(stream, ctx).text == "a"
    for things in ([body], stream):
        seen = watched(things, ctx)
        assert (seen.stop.reason, seen.reasons) == (StopReason.MAX_TOKENS, ("length", "stop"))
    cut = watched(stream[:-2], ctx)
    assert (cut.stop.reason, cut.reasons) == (StopReason.MISSING, (None, "stop"))


@pytest.mark.behaviour(3)
@pytest.mark.parametrize("dialect", ["", "copilot", "lmstudio", "a server that nobody named"])
@pytest.mark.parametrize("reason", [None, "", " "], ids=["null", "empty", "blank"])
def test_done_is_no_reason(dialect: str, reason: str | None) -> None:
    """A stream that ends with [DONE], usage and all, but said no finish reason is missing, with calls as without."""
    for delta in ({"content": "One"}, {"tool_calls": [call("f", index=0)]}):
        stream = [bit({"role": "assistant"}), bit(delta, reason), bit({}, reason, usage=used(5, 2)), LAST]
        seen = watched(stream, Context(dialect=dialect))
        assert (seen.stop.reason, seen.stop.truncated, seen.stop.raw) == (StopReason.MISSING, True, None)
        assert streamed(stream, Context(dialect=dialect)).stop == seen.stop
