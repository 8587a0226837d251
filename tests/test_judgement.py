"""Judgement that needs more than the value: each fact through decode, the decoder and the watch of every format."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import httpx
import openai
import pydantic
import pytest

from endturn import hooks
from endturn.chat import ChatResponse, Delta, Message, Request
from endturn.clients import Client
from endturn.errors import ProviderError, RequestRejected
from endturn.formats import Context, Event, RequestSummary, format_of, framing, summarize
from endturn.instrumentation.instrument import instrument, uninstrument
from endturn.stop import Resume, Stop, StopReason
from endturn.telemetry import cleanup
from tests.formats.replies import chat_body, chunk, usage_chunk
from tests.formats.replies_judgement import SENDERS, Json, Part, Sent, Spent
from tests.telemetry.mocked import ASK, Answer, Records, achat, body, chat, events

END = {
    "openai_chat": "stop",
    "anthropic": "end_turn",
    "openai_responses": "completed",
    "gemini": "STOP",
    "gemini_interactions": "completed",
    "bedrock_converse": "end_turn",
    "cohere": "COMPLETE",
    "ollama": "stop",
}
"""What each format says of a finished turn."""
LIMIT = {
    "openai_chat": "length",
    "anthropic": "max_tokens",
    "openai_responses": "incomplete:max_output_tokens",
    "gemini": "MAX_TOKENS",
    "gemini_interactions": "incomplete",
    "bedrock_converse": "max_tokens",
    "cohere": "MAX_TOKENS",
    "ollama": "length",
}
"""Of a used-up limit."""
TOOLS = {
    **END,
    "openai_chat": "tool_calls",
    "anthropic": "tool_use",
    "gemini_interactions": "requires_action",
    "bedrock_converse": "tool_use",
    "cohere": "TOOL_CALL",
}
"""Of calls; four formats have no word for them."""
TEXT: Part = ("text", "Grüezi 👋🏽. ")
CALL: Part = ("call", "weather")

each_format = pytest.mark.parametrize("name", SENDERS)


def sent(name: str, word: str, *parts: Part, spent: Spent = Spent()) -> Sent:  # noqa: B008 - frozen
    """A response in a format, whole and streamed."""
    return SENDERS[name](parts, word, spent)


def streamed(name: str, made: list[Event], ctx: Context) -> ChatResponse:
    """What the decoder makes of a stream."""
    decoder = format_of(name).decoder(ctx)
    deltas: list[Delta] = [delta for event in made for delta in decoder.feed(event)]
    response = decoder.close()
    assert "".join(delta.text for delta in deltas) == response.text
    return response


def judged(name: str, said: Sent, ctx: Context | None = None) -> list[ChatResponse]:
    """The response as decode and the decoder have it; the watch must have read the same of both."""
    api, ctx = format_of(name), ctx or Context()
    whole, made = said
    responses = [api.decode(whole, ctx=ctx), streamed(name, made, ctx)]
    for response, things in zip(responses, cast(list[list[Any]], [[whole], made]), strict=True):
        watch = api.summarizer(ctx)
        for thing in things:
            watch.feed(thing)
        seen = watch.close()
        assert (seen.stop, seen.usage) == (response.stop, response.usage)
        assert (seen.tail, seen.output_chars) == (response.text[-64:], len(response.text))
    assert responses[0].stop == responses[1].stop
    assert responses[0].text == responses[1].text
    return responses


@pytest.fixture
def records() -> Iterator[Records]:
    """Everything that is announced while the SDKs are instrumented."""
    found = Records()
    stop = hooks.subscribe(found.append)
    instrument()
    try:
        yield found
    finally:
        uninstrument()
        cleanup.run()
        stop()


# Promotion


@pytest.mark.behaviour(5)
@each_format
def test_complete_calls_under_a_clean_end_are_calls(name: str) -> None:
    """A forced choice of one tool gives `stop` and a complete call, in chat; Gemini has no other word for it at all."""
    for response in judged(name, sent(name, END[name], TEXT, CALL)):
        stop = response.stop
        assert (stop.reason, stop.promoted_from) == (StopReason.TOOL_CALL, StopReason.END_TURN)
        assert (stop.raw, stop.incomplete, stop.terminal_seen) == (END[name], False, True)
        assert [(call.name, call.arguments, call.closed) for call in response.tool_calls] == [
            ("weather", {"city": "Zürich"}, True)
        ]


@pytest.mark.behaviour(5)
@pytest.mark.parametrize("name", ["anthropic", "openai_responses", "gemini", "gemini_interactions", "bedrock_converse"])
def test_tools_that_the_server_runs_promote_nothing(name: str) -> None:
    """A search that the provider made itself asks nothing of the client."""
    for response in judged(name, sent(name, END[name], ("server", "search"), TEXT)):
        assert (response.stop.reason, response.stop.promoted_from) == (StopReason.END_TURN, None)
        assert response.tool_calls == ()


@each_format
def test_calls_under_a_used_up_limit_are_not_promoted(name: str) -> None:
    """What the limit cut is cut, however whole its last call looks."""
    for response in judged(name, sent(name, LIMIT[name], CALL, CALL)):
        assert (response.stop.reason, response.stop.promoted_from) == (StopReason.MAX_TOKENS, None)
        assert response.stop.truncated


# A full budget


@pytest.mark.behaviour(6)
@each_format
@pytest.mark.parametrize("maximum", [16, 17, 18, None])
@pytest.mark.parametrize("parts", [(TEXT,), (CALL,)], ids=["text", "call"])
def test_a_clean_reason_at_a_full_budget_is_suspected(name: str, parts: tuple[Part, ...], maximum: int | None) -> None:
    """vLLM says `tool_calls`, Ollama's Anthropic endpoint `tool_use`, of a turn that the limit cut: the usage tells."""
    word = TOOLS[name] if CALL in parts else END[name]
    ctx = Context(asked=RequestSummary(maximum=maximum))
    for response in judged(name, sent(name, word, *parts), ctx):
        assert response.stop.reason is (StopReason.TOOL_CALL if CALL in parts else StopReason.END_TURN)
        assert response.stop.suspected is (maximum is not None and maximum <= 17)
        assert not response.stop.truncated


@each_format
def test_what_says_that_it_was_cut_is_not_suspected(name: str) -> None:
    """`suspected` is for clean reasons; a cut one needs none."""
    for response in judged(name, sent(name, LIMIT[name], TEXT), Context(asked=RequestSummary(maximum=17))):
        assert (response.stop.reason, response.stop.suspected) == (StopReason.MAX_TOKENS, False)


# The window


@pytest.mark.behaviour(7)
@each_format
@pytest.mark.parametrize(
    ("window", "maximum", "reason"),
    [
        pytest.param(48, None, StopReason.CONTEXT_WINDOW_EXCEEDED, id="full"),
        pytest.param(47, None, StopReason.CONTEXT_WINDOW_EXCEEDED, id="more than full"),
        pytest.param(49, None, StopReason.MAX_TOKENS, id="one left"),
        pytest.param(None, None, StopReason.MAX_TOKENS, id="unknown, no limit asked for"),
        pytest.param(48, 17, StopReason.MAX_TOKENS, id="the limit was used up as well"),
        pytest.param(48, 100, StopReason.CONTEXT_WINDOW_EXCEEDED, id="before the limit"),
    ],
)
def test_the_window_is_told_from_the_limit(
    name: str, window: int | None, maximum: int | None, reason: StopReason
) -> None:
    """31 tokens of prompt and 17 of output: one word for both limits, and the sum says which it was."""
    ctx = Context(asked=RequestSummary(maximum=maximum), window=window)
    for response in judged(name, sent(name, LIMIT[name], TEXT), ctx):
        assert (response.stop.reason, response.stop.raw) == (reason, LIMIT[name])
        assert response.stop.resume is (Resume.PROMPT if reason is StopReason.MAX_TOKENS else Resume.NONE)
        assert response.stop.truncated


@pytest.mark.behaviour(7)
def test_a_window_that_the_server_reports() -> None:
    """LM Studio's own API tells the window of the loaded model beside the answer; nobody has to know it before."""
    said = chat_body({"content": "One"}, "length", usage={"prompt_tokens": 29_986, "completion_tokens": 14})
    reported = said | {"model_info": {"arch": "qwen2", "context_length": 30_000}}
    api, ctx = format_of("openai_chat"), Context(dialect="lmstudio", window=131_072)
    assert api.decode(said, ctx=ctx).stop.reason is StopReason.MAX_TOKENS
    assert api.decode(reported, ctx=ctx).stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
    assert summarize(api, ctx, reported).stop.reason is StopReason.CONTEXT_WINDOW_EXCEEDED


# Nothing but thinking


@pytest.mark.behaviour(15)
@each_format
def test_a_budget_that_was_thought_away(name: str) -> None:
    """gpt-5-mini, Gemini, DeepSeek, Claude: cut with no visible character; nothing to promote or to go on with."""
    counted = name not in ("bedrock_converse", "cohere", "ollama")  # These do not say how much was thinking.
    for response in judged(name, sent(name, LIMIT[name], ("thought", "Let me see"), spent=Spent(31, 64, 64))):
        assert (response.text, response.tool_calls, response.reasoning) == ("", (), "Let me see")
        assert (response.stop.reason, response.stop.promoted_from) == (StopReason.MAX_TOKENS, None)
        assert response.usage is not None
        assert response.usage.output_tokens == 64
        assert response.usage.reasoning_tokens == (64 if counted else None)


def test_hidden_thinking_leaves_an_empty_answer() -> None:
    """OpenAI shows no thinking: `length`, content "", and every token of the completion is reasoning."""
    for response in judged("openai_chat", sent("openai_chat", "length", ("text", ""), spent=Spent(31, 64, 64))):
        assert (response.text, response.reasoning, response.stop.raw) == ("", None, "length")
        assert response.usage is not None
        assert response.usage.output_tokens == response.usage.reasoning_tokens == 64


# No terminal


@pytest.mark.behaviour(3)
@each_format
@pytest.mark.parametrize("parts", [(TEXT,), (TEXT, CALL)], ids=["text", "call"])
def test_a_stream_that_stops_anywhere_is_missing(name: str, parts: tuple[Part, ...]) -> None:
    """However whole the text and the calls are: without its terminal, a stream was cut."""
    api = format_of(name)
    made = sent(name, TOOLS[name] if CALL in parts else END[name], *parts)[1]
    whole = streamed(name, made, Context())
    for size in range(len(made)):
        response = streamed(name, made[:size], Context())
        if response.stop.terminal_seen:
            assert response.text == whole.text
            continue
        assert (response.stop.reason, response.stop.truncated) == (StopReason.MISSING, True)
        assert response.stop.promoted_from is None
        watch = api.summarizer(Context())
        for event in made[:size]:
            watch.feed(event)
        assert watch.close().stop == response.stop


# The first terminal


@pytest.mark.behaviour(9)
def test_the_first_reason_stays() -> None:
    """OpenRouter: `length`, then an error, then `length`; LiteLLM's proxies: `length`, then `stop`."""
    made = [
        chunk({"content": "One"}),
        chunk({}, "length"),
        chunk({}, "length", error={"code": 400, "message": "Token limit reached"}),
        chunk({"content": "!"}, "stop"),
        usage_chunk(),
    ]
    response = streamed("openai_chat", made, Context(dialect="openrouter"))
    assert (response.text, response.stop.raw, response.stop.detail) == ("One", "length", "Token limit reached")
    assert response.stop.reason is StopReason.MAX_TOKENS


@pytest.mark.behaviour(9)
@pytest.mark.parametrize("name", ["anthropic", "openai_responses", "gemini", "bedrock_converse", "cohere"])
def test_what_follows_the_end_changes_nothing(name: str) -> None:
    """Another response's end after the first one's: a proxy's retry within one stream."""
    made = sent(name, LIMIT[name], TEXT)[1]
    first = streamed(name, made, Context()).stop
    again = [*made, *sent(name, END[name])[1][-2:]]
    watch = format_of(name).summarizer(Context())
    for event in again:
        watch.feed(event)
    assert (watch.close().stop.reason, watch.close().stop.raw) == (first.reason, first.raw)


# Reasons that are not ours


@pytest.mark.behaviour(10)
@each_format
def test_reasons_within_what_is_said_are_not_ours(name: str) -> None:
    """An answer, or a call's arguments, may hold a whole response of some provider, reason and all."""
    foreign = json.dumps(
        {"finish_reason": "length", "stop_reason": "max_tokens", "status": "incomplete", "done_reason": "length"}
    )
    for response in judged(name, sent(name, END[name], ("text", foreign))):
        assert (response.stop.reason, response.stop.raw) == (StopReason.END_TURN, END[name])


@pytest.mark.behaviour(10)
def test_an_advisors_reason_is_not_the_messages() -> None:
    """Anthropic: the result of an advisor, or of a tool that ran a model, says why *that* model stopped."""
    inner = {"type": "advisor_result", "text": "Do it.", "stop_reason": "max_tokens"}
    block = {"type": "advisor_tool_result", "tool_use_id": "srvtoolu_1", "content": inner}
    whole, made = sent("anthropic", "end_turn", TEXT)
    whole = whole | {"content": [block, *whole["content"]]}
    begun: Json = {"type": "content_block_start", "index": 7, "content_block": block}
    ended: Json = {"type": "content_block_stop", "index": 7}
    made = [made[0], Event(begun["type"], begun), Event(ended["type"], ended), *made[1:]]
    for response in judged("anthropic", (whole, made)):
        assert (response.stop.reason, response.stop.raw) == (StopReason.END_TURN, "end_turn")


def test_members_beside_the_choice_are_not_its_reason() -> None:
    """A chat body may carry another response: in `usage`, in a message's annotations, in a tool's result."""
    odd = {"finish_reason": "length", "choices": [{"finish_reason": "length"}]}
    said = chat_body({"content": "One", "annotations": [odd], "metadata": odd}, "stop", extra=odd)
    assert format_of("openai_chat").decode(said, ctx=Context()).stop.raw == "stop"


# Refusals


@pytest.mark.parametrize("name", ["openai_chat", "openai_responses"])
def test_a_refusal_is_said_in_the_content(name: str) -> None:
    """OpenAI says `stop`, or `completed`, of a refusal; the message's own member, or a part of it, says the rest."""
    for response in judged(name, sent(name, END[name], ("refusal", "I can't help with that."))):
        assert (response.stop.reason, response.stop.raw) == (StopReason.REFUSED, END[name])
        assert response.text == "I can't help with that."
        assert not response.stop.truncated


def test_a_refusal_may_be_a_part_of_the_content() -> None:
    """Content in parts: one of them is of the type `refusal`; streamed in pieces it is one refusal."""
    parts = [{"type": "refusal", "refusal": "I can't "}, {"type": "refusal", "refusal": "help."}]
    made = [*(chunk({"content": [part]}) for part in parts), chunk({}, "stop")]
    for response in judged("openai_chat", (chat_body({"content": parts}, usage=None), made)):
        assert (response.text, response.stop.reason) == ("I can't help.", StopReason.REFUSED)
        assert response.blocks is not None
        assert "refusal" not in response.blocks.items[0]


def test_a_refusal_that_was_cut_is_cut() -> None:
    """The limit's word outranks the refusal; so does a stream's missing end."""
    api = format_of("openai_chat")
    assert api.decode(chat_body({"refusal": "I can"}, "length"), ctx=Context()).stop.reason is StopReason.MAX_TOKENS
    assert streamed("openai_chat", [chunk({"refusal": "I can"})], Context()).stop.reason is StopReason.MISSING


# Errors that are reasons


ERRORS: dict[str, tuple[int, Json, StopReason, Resume]] = {
    "window": (
        400,
        {
            "message": "This model's maximum context length is 8192 tokens. Please reduce the length of the messages.",
            "type": "invalid_request_error",
            "param": "messages",
            "code": "context_length_exceeded",
        },
        StopReason.CONTEXT_WINDOW_EXCEEDED,
        Resume.NONE,
    ),
    "filter": (
        400,
        {
            "message": "The response was filtered due to the prompt triggering Azure's content management policy.",
            "type": None,
            "param": "prompt",
            "code": "content_filter",
            "status": 400,
            "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {}},
        },
        StopReason.SAFETY_BLOCKED,
        Resume.NONE,
    ),
    "call": (
        400,
        {
            "message": "Failed to call a function. Please adjust your prompt. See 'failed_generation'.",
            "type": "invalid_request_error",
            "code": "tool_use_failed",
            "failed_generation": '<function=weather>{"city": ',
        },
        StopReason.ERROR,
        Resume.REPAIR,
    ),
}


@pytest.mark.behaviour(8)
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_an_error_answer_that_is_a_reason_in_the_sdk(records: Records, kind: str, stream: bool) -> None:
    """The openai SDK raises its own exception, sync and async; recorded is the reason, in the one vocabulary."""
    status, error, reason, resume = ERRORS[kind]
    with pytest.raises(openai.BadRequestError):
        chat(body({"error": error}, status)).chat.completions.create(**ASK, stream=stream)
    with pytest.raises(openai.BadRequestError):
        await achat(body({"error": error}, status)).chat.completions.create(**ASK, stream=stream)
    assert len(records.ended) == 2
    for ended in records.ended:
        assert isinstance(ended.error, RequestRejected)
        assert (ended.stop.reason, ended.stop.raw, ended.stop.resume) == (reason, error["code"], resume)


@pytest.mark.behaviour(8)
@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_error_answer_that_is_a_reason_in_our_client(kind: str, stream: bool) -> None:
    """Our client raises it as the host's request being refused, with the reason in `stop`."""
    status, error, reason, resume = ERRORS[kind]
    answer = httpx.MockTransport(lambda _: httpx.Response(status, json={"error": error}))
    asked = Request(model="m", messages=(Message(role="user", content="hi"),))
    with Client("openai", api_key="none", http=answer) as client:
        ask = (lambda: list(client.stream(asked))) if stream else (lambda: [client(asked)])
        with pytest.raises(RequestRejected) as raised:
            ask()
    stop = cast(Stop, raised.value.stop)
    assert (stop.reason, stop.raw, stop.resume) == (reason, error["code"], resume)


@pytest.mark.behaviour(8)
def test_an_error_within_a_stream_that_is_a_reason(records: Records) -> None:
    """A window that fills up within a stream: the SDK raises, the record has the reason and what had come."""
    made = [chunk({"role": "assistant", "content": "One"}), Event(None, {"error": ERRORS["window"][1]})]
    with pytest.raises(openai.APIError):
        list(chat(events(*made)).chat.completions.create(**ASK, stream=True))
    ended = records.only()
    assert (ended.stop.reason, ended.output_chars) == (StopReason.CONTEXT_WINDOW_EXCEEDED, 3)
    with pytest.raises(ProviderError) as raised:
        streamed("openai_chat", made, Context())
    assert raised.value.partial is not None
    assert raised.value.partial.text == "One"
    # The SDK shows no error chunk to whoever watches its objects, but says the same in its exception.
    assert replace(raised.value.partial.stop, detail=None) == replace(ended.stop, detail=None)


# Exceptions that the SDK makes of reasons


@pytest.mark.parametrize(
    ("word", "kind", "reason"),
    [
        pytest.param("length", openai.LengthFinishReasonError, StopReason.MAX_TOKENS, id="length"),
        pytest.param("content_filter", openai.ContentFilterFinishReasonError, StopReason.SAFETY_BLOCKED, id="filter"),
    ],
)
async def test_what_parse_raises_keeps_reason_and_usage(
    records: Records, word: str, kind: type[Exception], reason: StopReason
) -> None:
    """`chat.completions.parse` raises over a cut answer; reason, usage and id are recorded, sync and async."""
    said = chat_body({"content": '{"val'}, word)
    with pytest.raises(kind):
        chat(body(said)).chat.completions.parse(**ASK, response_format=Answer)
    with pytest.raises(kind):
        await achat(body(said)).chat.completions.parse(**ASK, response_format=Answer)
    for ended in records.ended:
        assert ended.error is None
        assert (ended.stop.reason, ended.stop.raw, ended.response_id) == (reason, word, "chatcmpl-Cq7")
        assert ended.usage is not None
        assert (ended.usage.input_tokens, ended.usage.output_tokens) == (31, 17)


def test_parse_of_a_refusal_and_of_nonsense(records: Records) -> None:
    """A refusal is returned unparsed; what does not fit the model raises, and was an end of the turn."""
    refused = chat(body(chat_body({"refusal": "I can't."}))).chat.completions.parse(**ASK, response_format=Answer)
    assert refused.choices[0].message.parsed is None
    with pytest.raises(pydantic.ValidationError):
        chat(body(chat_body({"content": '{"value": "x"}'}))).chat.completions.parse(**ASK, response_format=Answer)
    assert [ended.stop.reason for ended in records.ended] == [StopReason.REFUSED, StopReason.END_TURN]


# Servers that forget the reason


@pytest.mark.behaviour(3)
def test_done_without_a_reason_in_the_sdk(records: Records) -> None:
    """The SDK's loop ends at [DONE] as if all were well; the record says `missing`, in both ways to read a stream."""
    made = [chunk({"role": "assistant", "content": "One"}), usage_chunk(), Event(None, framing.DONE)]
    assert len(list(chat(events(*made)).chat.completions.create(**ASK, stream=True))) == 2
    with chat(events(*made)).chat.completions.stream(**ASK) as stream:
        stream.until_done()
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MISSING, StopReason.MISSING]


@pytest.mark.behaviour(11)
def test_several_choices_in_the_sdk(records: Records) -> None:
    """n = 2: one record, of choice 0; both raw reasons are in it, streamed too."""
    second: Any = {"index": 1, "message": {"role": "assistant", "content": "two"}, "finish_reason": "stop"}
    said = chat_body({"content": "one"}, "length")
    said["choices"].append(second)
    chat(body(said)).chat.completions.create(**ASK, n=2)
    made = [
        *(chunk({"content": word}, index=index) for index, word in enumerate(("one", "two"))),
        chunk({}, "stop", index=1),
        chunk({}, "length"),
        Event(None, framing.DONE),
    ]
    list(chat(events(*made)).chat.completions.create(**ASK, n=2, stream=True))
    for ended in records.ended:
        assert (ended.stop.reason, ended.reasons, ended.output_chars) == (StopReason.MAX_TOKENS, ("length", "stop"), 3)
    assert len(records.ended) == 2
