"""Text completions: what every service's replies say, requests in every dialect, and what a continuation sends."""

from __future__ import annotations

from typing import Any

import pytest

from endturn.chat import ChatResponse, Json, Message, Request, Usage
from endturn.errors import UsageError
from endturn.events import Strategy
from endturn.formats import Context, Event, RequestSummary
from endturn.formats.completions import FORMAT as completions, SHAPES
from endturn.stop import Stop, StopReason
from endturn.stop_reasons import rows_of
from tests.formats.replies_completions import (
    BODIES,
    STREAMS,
    chunk,
    context,
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


# Replies that are read


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
    with pytest.raises(UsageError, match="cannot fetch a response"):
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
