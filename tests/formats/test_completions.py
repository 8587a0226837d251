"""Text completions: what every service's replies say, requests in every dialect, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import ChatResponse, Json, Message, Request, Usage
from endturn.errors import DecodeError, ProviderError, UsageError
from endturn.formats import Context, Event, RequestSummary, summarize
from endturn.formats.completions import FORMAT as completions
from endturn.formats.completions_shapes import SHAPES
from endturn.records import Strategy
from endturn.stop import Resume, Stop, StopReason
from endturn.stop_reasons import rows_of
from tests.formats.replies_completions import (
    BODIES,
    STREAMS,
    chunk,
    claude,
    context,
    events,
    llamacpp,
    openai,
    sglang,
    tgi,
)

USER = Message(role="user", content="Once upon")
DIALECTS = [pytest.param(dialect, id=dialect or "openai") for dialect in SHAPES]


def whole(name: str, ctx: Context | None = None) -> ChatResponse:
    """The response of a body."""
    return completions.decode(BODIES[name], ctx=ctx or context(name))


def streamed(stream: list[Event], ctx: Context) -> ChatResponse:
    """The response of a stream."""
    decoder = completions.decoder(ctx)
    for event in stream:
        list(decoder.feed(event))
    return decoder.close()


# What replies say of the stop


@pytest.mark.parametrize(
    ("name", "reason", "raw", "detail"),
    [
        ("text", "end_turn", "stop", None),
        ("length", "max_tokens", "length", None),
        ("content_filter", "safety_blocked", "content_filter", None),
        ("unknown", "unknown", "tired", None),
        ("null", "missing", None, None),
        ("vllm: abort", "cancelled", "abort", None),
        ("vllm: repetition", "error", "repetition", "repetition"),
        ("vllm: stop string", "end_turn", "stop", "three"),
        ("vllm: stop token", "end_turn", "stop", None),
        ("fireworks: error", "error", "error", None),
        ("tgi: text", "end_turn", "eos_token", None),
        ("tgi: stop sequence", "end_turn", "stop_sequence", None),
        ("tgi: no details", "missing", None, None),
        ("llamacpp: text", "end_turn", "eos", None),
        ("llamacpp: word", "end_turn", "word", "###"),
        ("llamacpp: limit", "max_tokens", "limit", None),
        ("llamacpp: full", "context_window_exceeded", "limit+truncated=true", None),
        ("llamacpp: none", "unknown", "none", None),
        ("sglang: text", "end_turn", "stop", None),
        ("sglang: string", "end_turn", "stop", "###"),
        ("sglang: length", "max_tokens", "length", None),
        ("sglang: abort", "cancelled", "abort", "Abort in waiting queue"),
        ("watsonx: text", "end_turn", "eos_token", None),
        ("watsonx: time_limit", "error", "time_limit", "timeout"),
        ("alephalpha: maximum", "max_tokens", "maximum_tokens", None),
        ("titan: text", "end_turn", "FINISH", None),
        ("titan: length", "max_tokens", "LENGTH", None),
        ("titan: filtered", "safety_blocked", "CONTENT_FILTERED", None),
        ("llama: length", "max_tokens", "length", None),
        ("mistral: length", "max_tokens", "length", None),
        ("command: length", "max_tokens", "MAX_TOKENS", None),
        ("command: toxic", "safety_blocked", "ERROR_TOXIC", None),
        ("command: timeout", "error", "TIMEOUT", "timeout"),
        ("command: cohere", "max_tokens", "MAX_TOKENS", None),
        ("ai21: text", "end_turn", "endoftext", None),
        ("ai21: length", "max_tokens", "length", None),
        ("claude_text: text", "end_turn", "stop_sequence", "\n\nHuman:"),
        ("claude_text: length", "max_tokens", "max_tokens", None),
    ],
)
def test_reasons_of_bodies(name: str, reason: str, raw: str | None, detail: str | None) -> None:
    """Each service's body has its reason; the matched stop sequence is detail."""
    stop = whole(name).stop
    assert (stop.reason, stop.raw, stop.detail) == (reason, raw, detail)


@pytest.mark.parametrize(
    ("name", "reason", "raw"),
    [
        ("cut", "missing", None),
        ("two prompts", "end_turn", "stop"),
        ("tgi: text", "end_turn", "eos_token"),
        ("llamacpp: full", "context_window_exceeded", "limit+truncated=true"),
        ("sglang: text", "end_turn", "stop"),
        ("watsonx: text", "end_turn", "eos_token"),
        ("watsonx: cut", "missing", None),
        ("alephalpha: text", "max_tokens", "maximum_tokens"),
        ("titan: text", "end_turn", "FINISH"),
        ("llama: text", "max_tokens", "length"),
        ("mistral: text", "end_turn", "stop"),
        ("command: text", "end_turn", "COMPLETE"),
        ("command: cohere", "max_tokens", "MAX_TOKENS"),
        ("command: cohere's error", "context_window_exceeded", "ERROR_LIMIT"),
        ("claude_text: text", "end_turn", "stop_sequence"),
    ],
)
def test_reasons_of_streams(name: str, reason: str, raw: str | None) -> None:
    """Each service's stream ends with its reason."""
    stop = streamed(STREAMS[name], context(name)).stop
    assert (stop.reason, stop.raw) == (reason, raw)


@pytest.mark.behaviour(3)
def test_not_finished_is_no_terminal() -> None:
    """watsonx says it on every event but the last: a stream that ends with it is cut."""
    stop = streamed(STREAMS["watsonx: cut"], context("watsonx: cut")).stop
    assert (stop.reason, stop.terminal_seen) == (StopReason.MISSING, False)
    assert streamed(STREAMS["watsonx: text"], context("watsonx: text")).text == "One two"


@pytest.mark.parametrize("dialect", DIALECTS)
def test_nobody_need_say_whose_reply_it_is(dialect: str) -> None:
    """Without a dialect a body is known by its members, and judged by its own service's words."""
    for name in BODIES:
        if name.partition(": ")[0] == dialect and dialect:
            assert whole(name, Context(asked=RequestSummary(maximum=1000))).stop == whole(name).stop
    for name, stream in STREAMS.items():
        if name.partition(": ")[0] == dialect and dialect:
            expected = streamed(stream, context(name))
            assert streamed(stream, Context(asked=RequestSummary(maximum=1000))).stop == expected.stop


def test_no_word_means_two_things() -> None:
    """Of all dialects' words, none has two meanings: a reply of nobody's in particular can be judged by their union."""
    every = rows_of("completions", "never heard of")
    for rows in completions.reasons.values():
        for raw, row in rows.items():
            assert (every[raw].reason, every[raw].incomplete) == (row.reason, row.incomplete), raw


@pytest.mark.parametrize(
    ("stopped", "raw"),
    [("stopped_eos", "eos"), ("stopped_word", "word"), ("stopped_limit", "limit")],
)
def test_older_llamacpp_says_it_in_booleans(stopped: str, raw: str) -> None:
    """Before `stop_type` there were three booleans; of a full window they say the limit, too."""
    body = {name: value for name, value in llamacpp("x").items() if name != "stop_type"}
    body |= {"stopped_eos": False, "stopped_word": False, "stopped_limit": False, stopped: True}
    assert completions.decode(body, ctx=Context("llamacpp")).stop.raw == raw
    full = completions.decode({**body, "truncated": True}, ctx=Context("llamacpp")).stop
    assert full.reason == ("context_window_exceeded" if raw == "limit" else "end_turn")


def test_tgi_answers_one_prompt_in_a_list() -> None:
    """Its root path does, as the hosted API did."""
    stop = completions.decode([tgi("One", "length")], ctx=Context("tgi")).stop
    assert stop.reason is StopReason.MAX_TOKENS


def test_tgi_special_tokens_are_no_text() -> None:
    """The end's token is in the stream, and not in the text."""
    assert streamed(STREAMS["tgi: text"], context("tgi: text")).text == "Grüezi 👋🏽"


@pytest.mark.parametrize(("name", "text"), [("sglang: text", "Grüezi 👋🏽"), ("sglang: apart", "One two two")])
def test_sglang_repeats_the_text(name: str, text: str) -> None:
    """Each event holds the whole text so far; servers with `--stream-output` send pieces, equal ones too."""
    assert streamed(STREAMS[name], context(name)).text == text


def test_sglang_answers_several_prompts_in_a_list() -> None:
    """The first counts; all reasons are seen."""
    body = [sglang("a", {"type": "stop"}), sglang("b", {"type": "length"})]
    seen = summarize(completions, Context("sglang"), body)
    assert (seen.stop.raw, seen.reasons, seen.tail) == ("stop", ("stop", "length"), "a")


@pytest.mark.behaviour(11)
def test_choice_0_counts() -> None:
    """Of several choices or prompts, whatever their order in the stream."""
    assert whole("several").stop.reason is StopReason.MAX_TOKENS
    assert summarize(completions, Context(), BODIES["several"]).reasons == ("length", "stop")
    response = streamed(STREAMS["two prompts"], Context())
    assert (response.text, response.stop.raw) == ("aA", "stop")


@pytest.mark.behaviour(6)
def test_a_full_budget_is_suspect() -> None:
    """A clean reason with all the tokens that were asked for."""
    ctx = Context(asked=RequestSummary(maximum=9))
    assert completions.decode(openai("x"), ctx=ctx).stop.suspected
    assert not whole("text").stop.suspected


@pytest.mark.behaviour(7)
def test_a_full_window_is_told_by_usage() -> None:
    """`length` is the window's where prompt and output fill it."""
    stop = completions.decode(openai("x", "length"), ctx=Context(window=21)).stop
    assert (stop.reason, stop.resume) == (StopReason.CONTEXT_WINDOW_EXCEEDED, Resume.NONE)


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        ("text", Usage(12, 9)),
        ("tgi: length", Usage(12, 2)),
        ("llamacpp: text", Usage(12, 9)),
        ("sglang: text", Usage(12, 3, None, 4)),
        ("watsonx: text", Usage(12, 3)),
        ("alephalpha: text", Usage(12, 9)),
        ("titan: text", Usage(12, 9)),
        ("llama: text", Usage(12, 2)),
        ("mistral: text", None),
    ],
)
def test_usage_of_streams(name: str, usage: Usage | None) -> None:
    """Figures grow, and some services say 0 or nothing on later events: the largest is kept."""
    assert streamed(STREAMS[name], context(name)).usage == usage


def test_cohere_says_what_was_counted_and_what_is_paid() -> None:
    """Its own API, in numbers with a point; what the model saw counts."""
    assert whole("command: cohere").usage == Usage(12, 9)
    assert whole("command: text").usage is None


# Errors


@pytest.mark.behaviour(9)
def test_an_error_after_the_end_is_detail() -> None:
    """First terminal wins, and nothing is raised."""
    stop = streamed(STREAMS["error after length"], Context()).stop
    assert (stop.reason, stop.detail) == (StopReason.MAX_TOKENS, "too late")


@pytest.mark.parametrize(
    ("dialect", "first", "error"),
    [
        ("", chunk("Well").data, {"error": {"message": "boom", "type": "server_error"}}),
        ("tgi", tgi("Well", None), {"error": "boom", "error_type": "generation"}),
        ("watsonx", {}, {"errors": [{"code": "server_error", "message": "boom"}], "trace": "t", "status_code": 500}),
        (
            "claude_text",
            claude("Well", None),
            {"type": "error", "error": {"type": "overloaded_error", "message": "boom"}},
        ),
    ],
    ids=["openai", "tgi", "watsonx", "claude"],
)
def test_an_error_in_a_stream_is_raised(dialect: str, first: Json, error: Json) -> None:
    """Before any reason it breaks the answer; what had come is its partial."""
    ctx = Context(dialect, "acme")
    with pytest.raises(ProviderError, match="boom") as raised:
        streamed(events(first, error), ctx)
    assert raised.value.partial is not None
    assert raised.value.partial.text == ("Well" if first else "")
    assert raised.value.partial.stop.reason is StopReason.ERROR
    summarizer = completions.summarizer(ctx)
    for each in (first, error):
        summarizer.feed(each)
    assert summarizer.broken
    assert summarizer.close().stop.reason is StopReason.ERROR


@pytest.mark.behaviour(8)
def test_an_error_under_200_is_raised() -> None:
    """A body with nothing but an error is one, and says what it says of the window."""
    said = "`inputs` tokens + `max_new_tokens` must be <= 2048. Given: 2000 `inputs` tokens and 100 `max_new_tokens`"
    with pytest.raises(ProviderError) as raised:
        completions.decode({"error": said, "error_type": "validation"}, ctx=Context("tgi"))
    assert raised.value.stop is not None
    assert raised.value.stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


def test_another_format_is_a_decode_error() -> None:
    """An object of no known shape is not an answer that says nothing."""
    with pytest.raises(DecodeError, match="choices"):
        completions.decode({"hello": 1}, ctx=Context())
    with pytest.raises(DecodeError, match="not objects"):
        completions.decode({"choices": ["x"]}, ctx=Context())


def test_leaving_a_stream_keeps_its_reason() -> None:
    """The reason is the terminal: it counts where whoever read the stream stopped there."""
    summarizer = completions.summarizer(Context())
    summarizer.feed(chunk("x", "length").data)
    assert summarizer.close(left=True).stop == summarizer.close().stop
    assert summarizer.close().stop.reason is StopReason.MAX_TOKENS


# Requests


@pytest.mark.parametrize(
    ("dialect", "body"),
    [
        ("", {"model": "m", "prompt": "Once upon", "max_tokens": 7, "temperature": 0.5, "seed": 3}),
        (
            "tgi",
            {
                "inputs": "Once upon",
                "parameters": {"details": True, "max_new_tokens": 7, "temperature": 0.5, "do_sample": True, "seed": 3},
            },
        ),
        ("llamacpp", {"model": "m", "prompt": "Once upon", "n_predict": 7, "temperature": 0.5, "seed": 3}),
        ("sglang", {"text": "Once upon", "sampling_params": {"max_new_tokens": 7, "temperature": 0.5}}),
        (
            "watsonx",
            {
                "model_id": "m",
                "input": "Once upon",
                "parameters": {"max_new_tokens": 7, "temperature": 0.5, "random_seed": 3},
            },
        ),
        ("alephalpha", {"model": "m", "prompt": "Once upon", "maximum_tokens": 7, "temperature": 0.5}),
        ("titan", {"inputText": "Once upon", "textGenerationConfig": {"maxTokenCount": 7, "temperature": 0.5}}),
        ("llama", {"prompt": "Once upon", "max_gen_len": 7, "temperature": 0.5}),
        ("mistral", {"prompt": "Once upon", "max_tokens": 7, "temperature": 0.5}),
        ("command", {"prompt": "Once upon", "max_tokens": 7, "temperature": 0.5}),
        ("ai21", {"prompt": "Once upon", "maxTokens": 7, "temperature": 0.5}),
        (
            "claude_text",
            {"prompt": "\n\nHuman: Once upon\n\nAssistant:", "max_tokens_to_sample": 7, "temperature": 0.5},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_dialect_has_its_own_names(dialect: str, body: Json) -> None:
    """Limit, temperature and seed stand where the service has them; and are read back from there."""
    asked = Request(model="m", messages=(USER,), max_tokens=7, temperature=0.5, seed=3)
    assert completions.encode(asked, dialect=dialect) == body
    seen = completions.request_summary({"model": "m", **body})
    assert (seen.model, seen.maximum, seen.temperature) == ("m", 7, 0.5)


def test_tgi_is_not_asked_for_temperature_0() -> None:
    """It refuses 0: greedy decoding is the absence of sampling."""
    body = completions.encode(Request(model="m", messages=(USER,), temperature=0), dialect="tgi")
    assert body["parameters"] == {"details": True, "do_sample": False}


@pytest.mark.parametrize(
    ("messages", "prompt"),
    [
        ((USER,), "Once upon"),
        ((Message(role="system", content="Be brief."), USER), "Be brief.\n\nUser: Once upon\n\nAssistant: "),
        (
            (USER, Message(role="assistant", content="a time."), Message(role="user", content="And?")),
            "User: Once upon\n\nAssistant: a time.\n\nUser: And?\n\nAssistant: ",
        ),
        ((USER, Message(role="assistant", content=" a time")), "Once upon a time"),
        (
            (USER, Message(role="assistant", content=" a"), Message(role="assistant", content=" time")),
            "Once upon a time",
        ),
        (
            (Message(role="system", content="Be brief."), USER, Message(role="assistant", content="a")),
            "Be brief.\n\nUser: Once upon\n\nAssistant: a",
        ),
        ((Message(role="user", content=[{"type": "text", "text": "Hi"}]),), "Hi"),
    ],
    ids=["one", "system", "history", "begun", "begun twice", "begun after a transcript", "parts"],
)
def test_the_prompt(messages: tuple[Message, ...], prompt: str) -> None:
    """One user message is the prompt itself; more are a transcript; what the answer begins with follows as it is."""
    assert completions.encode(Request(model="m", messages=messages))["prompt"] == prompt


def test_claude_is_asked_as_it_must_be() -> None:
    """Its text format demands `Human:` and `Assistant:`; a prompt that has them is sent as it is."""
    written = completions.encode(Request(model="m", messages=(USER,)), dialect="claude_text")
    assert written == {"prompt": "\n\nHuman: Once upon\n\nAssistant:", "max_tokens_to_sample": 4096}


def test_a_request_without_a_prompt_is_refused() -> None:
    """Nor can a completion be fetched."""
    with pytest.raises(UsageError, match="fetched"):
        completions.encode(Request(model="", messages=(), retrieve="cmpl-1"))


@pytest.mark.parametrize("strategy", [Strategy.PROMPT, Strategy.PREFILL, Strategy.RESEND])
@pytest.mark.behaviour(21)
def test_a_continuation_is_the_prompt_and_the_text_so_far(strategy: Strategy) -> None:
    """Whatever the strategy: no nudge, the text appended, white space at its end left out."""
    asked = Request(model="m", messages=(USER,), extra={"stop": ["."]})
    cut = ChatResponse(text=" a time ", stop=Stop(StopReason.MAX_TOKENS, "length"))
    resumed = completions.resume(asked, cut, prompt="Continue.", strategy=strategy)
    assert completions.encode(resumed) == {"model": "m", "prompt": "Once upon a time", "stop": ["."]}
    again = completions.resume(resumed, cut.but(text=" there was"), prompt="Continue.", strategy=strategy)
    assert completions.encode(again)["prompt"] == "Once upon a time there was"


def test_nothing_is_appended_where_nothing_was_said() -> None:
    """Never an empty assistant message."""
    asked = Request(model="m", messages=(USER,))
    cut = ChatResponse(text="\n", stop=Stop(StopReason.MAX_TOKENS, "length"))
    assert completions.resume(asked, cut, prompt="").messages == (USER,)


# Paths


@pytest.mark.parametrize(
    ("dialect", "whole_path", "stream_path"),
    [
        ("", "/completions", "/completions"),
        ("fireworks", "/completions", "/completions"),
        ("tgi", "/generate", "/generate_stream"),
        ("sglang", "/generate", "/generate"),
        ("llamacpp", "/completion", "/completion"),
        ("watsonx", "/text/generation?version=2023-05-02", "/text/generation_stream?version=2023-05-02"),
        ("alephalpha", "/complete", "/complete"),
    ],
)
def test_paths(dialect: str, whole_path: str, stream_path: str) -> None:
    """Each service has its own, and a server knows it."""
    asked = Request(model="m", messages=(USER,))
    for stream, path in ((False, whole_path), (True, stream_path)):
        route = completions.route(asked, stream=stream, dialect=dialect)
        assert route.path == path
        for before in ("", "/gateway" if "generate" in path else "/gateway/v1"):
            routed = completions.routed("POST", before + path)
            assert routed is not None
            assert routed.stream in (None, stream)


@pytest.mark.parametrize(
    "path",
    [
        "/api/generate",
        "/v1/chat/completions",
        "/chat/completions",
        "/v1/complete/x",
        "/openai/deployments/m/chat/completions",
    ],
)
def test_other_formats_paths_are_not_ours(path: str) -> None:
    """Ollama generates at a path of its own, and chat is not completion."""
    assert completions.routed("POST", path) is None


def test_azure_has_the_model_in_the_path() -> None:
    """A deployment's name."""
    routed = completions.routed("POST", "/openai/deployments/gpt-35/completions?api-version=2024-10-21")
    assert routed is not None
    assert routed.model == "gpt-35"


@pytest.mark.parametrize("dialect", ["titan", "llama", "mistral", "command", "ai21", "claude_text"])
def test_bedrocks_families_have_no_path_here(dialect: str) -> None:
    """They are reached through `bedrock_invoke`."""
    with pytest.raises(UsageError, match="bedrock_invoke"):
        completions.route(Request(model="m", messages=()), stream=False, dialect=dialect)


# Replies


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("reason", ["end_turn", "max_tokens"])
def test_replies_in_every_dialect(dialect: str, reason: str) -> None:
    """A reply in a service's own shape is read back as what it was, whole and streamed."""
    response = ChatResponse(text="One two 👋🏽", stop=Stop(StopReason(reason)), usage=Usage(12, 9), id="r-1", model="m")
    ctx = Context(dialect)
    read = [completions.decode(completions.reply(response, stream=False, dialect=dialect), ctx=ctx)]
    if dialect != "ai21":
        stream: Any = completions.reply(response, stream=True, dialect=dialect)
        read.append(streamed(stream, ctx))
        cut: Any = completions.reply(response.with_stop(terminal_seen=False), stream=True, dialect=dialect)
        assert streamed(cut, ctx).stop.reason is StopReason.MISSING
    else:
        with pytest.raises(UsageError, match="stream"):
            completions.reply(response, stream=True, dialect=dialect)
    for each in read:
        assert (each.text, each.stop.reason) == (response.text, reason)
        assert each.usage is None or each.usage.output_tokens == 9
