"""The chat format: its dialects' habits, requests, and what a continuation sends."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, Tool, ToolCall
from endturn.errors import DecodeError, UsageError
from endturn.events import Strategy
from endturn.formats import Context, Event, RequestSummary
from endturn.formats.openai_chat import FORMAT as chat
from endturn.stop import Resume, Stop, StopReason
from tests.formats.replies import (
    CHAT,
    CHAT_STREAMS,
    IMAGE,
    WEATHER,
    chat_body,
    chunk,
)

CTX = Context()


def streamed(*events: Event, ctx: Context = CTX) -> ChatResponse:
    """The response of a stream."""
    decoder = chat.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


# What a replay sends


def test_missing_ids_are_minted_alike() -> None:
    """Body and stream mint the same ids, distinct within a response and across responses; blocks carry them."""
    body = CHAT["no call id"]
    response = chat.decode(body, ctx=CTX)
    ids = [call.id for call in response.tool_calls]
    assert len(set(ids)) == 2
    assert all(id_.startswith("call_") for id_ in ids)
    assert response.blocks is not None
    assert [call["id"] for call in response.blocks.items[0]["tool_calls"]] == ids
    other = chat.decode({**body, "id": "chatcmpl-other"}, ctx=CTX)
    assert not set(ids) & {call.id for call in other.tool_calls}


@pytest.mark.behaviour(23)
def test_members_that_a_replay_needs_are_kept() -> None:
    """Gemini's thought signature stands on the call, OpenRouter's reasoning details on the message."""
    signature = {"google": {"thought_signature": "c2ln"}}
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    events = [
        chunk({"reasoning": "hm", "reasoning_details": details}),
        chunk({"tool_calls": [{"index": 0, **WEATHER, "extra_content": signature}]}),
        chunk({}, "tool_calls"),
    ]
    response = streamed(*events)
    body = chat.encode(Request(model="m", messages=(response.message(),)))
    (message,) = body["messages"]
    assert message["tool_calls"] == [{**WEATHER, "extra_content": signature}]
    assert message["reasoning_details"] == details
    assert response.reasoning == "hm"


@pytest.mark.behaviour(23)
@pytest.mark.parametrize("stream", [False, True])
def test_a_spoken_answer_is_sent_back_by_its_id(stream: bool) -> None:
    """The transcript is the text, as what the user hears; OpenAI takes the audio's id back, and nothing else of it."""
    response = streamed(*CHAT_STREAMS["audio"]) if stream else chat.decode(CHAT["audio"], ctx=CTX)
    assert response.text == ("Good day." if stream else "Hi.")
    assert response.blocks is not None
    assert response.blocks.items[0]["audio"]["transcript"] == response.text
    (message,) = chat.encode(Request(model="m", messages=(response.message(),)))["messages"]
    assert (message["content"], message["audio"]) == (None, {"id": "audio_abc"})
    cut = chat.encode(chat.resume(REQUEST, response, prompt="Go on."))["messages"][-2]
    assert cut == {"role": "assistant", "content": response.text}


def test_a_spoken_answer_without_an_id_is_sent_back_as_text() -> None:
    """Qwen's audio has no id to come back by; sound alone, without either, says nothing."""
    response = streamed(chunk({"audio": {"transcript": "Good day."}}), chunk({}, "stop"))
    (message,) = chat.encode(Request(model="m", messages=(response.message(),)))["messages"]
    assert (message["content"], "audio" in message) == ("Good day.", False)
    mute = chat.decode(chat_body({"audio": {"data": "UklGRg=="}}), ctx=CTX)
    assert chat.encode(Request(model="m", messages=(mute.message(),)))["messages"] == []


@pytest.mark.behaviour(23)
def test_pictures_stay_in_the_history() -> None:
    """An answer of nothing but images (Gemini's through OpenRouter) is kept, whole as streamed, and sent back."""
    events = [chunk({"content": "", "images": [IMAGE]}), chunk({"images": [{**IMAGE, "index": 1}]}), chunk({}, "stop")]
    for response, images in (
        (chat.decode(CHAT["images"], ctx=CTX), [IMAGE]),
        (streamed(*events), [IMAGE, {**IMAGE, "index": 1}]),
    ):
        assert response.text == ""
        (message,) = chat.encode(Request(model="m", messages=(response.message(),)))["messages"]
        assert message == {"role": "assistant", "content": None, "images": images}
    assert events[0].data["choices"][0]["delta"]["images"] == [IMAGE]  # The host's own list is not grown.


def test_a_body_without_choices_is_a_decode_error() -> None:
    """An object of another kind is not an answer that says nothing."""
    with pytest.raises(DecodeError, match="choices"):
        chat.decode({"ok": True}, ctx=CTX)


# Requests

TOOL = Tool(name="weather", description="The weather.", parameters={"type": "object", "properties": {"city": {}}})
REQUEST = Request(
    model="m",
    messages=(
        Message(role="system", content="Be brief."),
        Message(role="user", content=[{"type": "text", "text": "Weather?"}]),
        Message(role="assistant", tool_calls=(ToolCall(id="a", name="weather", arguments_raw='{"city": "x"}'),)),
        Message(role="tool", content="Rain.", tool_call_id="a"),
        Message(role="user", content="Thanks. And?"),
    ),
    tools=(TOOL,),
    tool_choice="required",
    max_tokens=64,
    temperature=0.5,
    seed=7,
    format={"type": "object"},
    extra={"top_p": 0.9},
)


def test_encode() -> None:
    """A request as the SDK would send it."""
    body = chat.encode(REQUEST, stream=True)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool", "user"]
    assert body["tools"][0]["function"]["parameters"] == TOOL.parameters
    assert (body["tool_choice"], body["max_completion_tokens"], body["top_p"]) == ("required", 64, 0.9)
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert body["stream_options"] == {"include_usage": True}
    assert chat.encode(REQUEST, dialect="mistral")["max_tokens"] == 64
    assert "stream_options" not in chat.encode(REQUEST, stream=True, dialect="mistral")
    assert "max_completion_tokens" not in chat.encode(REQUEST.but(extra={"max_tokens": 5}))
    with pytest.raises(UsageError, match="fetch"):
        chat.encode(REQUEST.but(retrieve="resp_1"))


@pytest.mark.behaviour(24)
def test_a_call_stripped_from_a_message_is_stripped_from_its_mirror() -> None:
    """Blocks never replay a call that is no longer in the history; a message that says nothing then is not sent."""
    message = chat.decode(CHAT["tool calls"], ctx=CTX).message()
    kept = message.but(tool_calls=message.tool_calls[:1])
    assert chat.encode(Request(model="m", messages=(kept,)))["messages"][0]["tool_calls"] == [WEATHER]
    assert chat.encode(Request(model="m", messages=(message.but(tool_calls=()),)))["messages"] == [
        {"role": "assistant", "content": "Looking."}
    ]
    silent = chat.decode(CHAT["forced tool"], ctx=CTX).message().but(tool_calls=())
    assert chat.encode(Request(model="m", messages=(silent,)))["messages"] == []


@pytest.mark.behaviour(23)
def test_thinking_goes_back_where_it_came_from() -> None:
    """DeepSeek refuses a history of tool calls without the thinking that led to them."""
    body = chat_body({"content": "x", "reasoning_content": "hm", "tool_calls": [WEATHER]}, "tool_calls")
    message = chat.decode(body, ctx=CTX).message()
    for each in (message, message.but(tool_calls=())):
        assert chat.encode(Request(model="m", messages=(each,)))["messages"][0]["reasoning_content"] == "hm"
    details = [{"type": "reasoning.encrypted", "data": "x"}]
    cut = chat.decode(
        chat_body({"content": "So", "reasoning_details": details, "tool_calls": [WEATHER]}, "length"), ctx=CTX
    )
    resumed = chat.encode(chat.resume(REQUEST, cut, prompt="Go on."))["messages"][-2]
    assert resumed == {"role": "assistant", "content": "So", "reasoning_details": details}


# Continuations


@pytest.mark.behaviour(21, 25, 27)
def test_resume_by_prompt() -> None:
    """The original messages first, then the partial answer, then the nudge; a forced tool choice goes back to auto."""
    cut = chat.decode(CHAT["length"], ctx=CTX)
    request = chat.resume(REQUEST, cut, prompt="Go on.")
    before, after = chat.encode(REQUEST), chat.encode(request)
    assert after["messages"][:5] == before["messages"]
    assert after["messages"][5:] == [
        {"role": "assistant", "content": "The answer is"},
        {"role": "user", "content": "Go on."},
    ]
    assert request.messages[-1].synthetic
    assert "tool_choice" not in after
    for name in ("model", "tools", "temperature", "seed", "response_format", "max_completion_tokens"):
        assert after[name] == before[name]


@pytest.mark.behaviour(22, 24)
@pytest.mark.parametrize("name", ["reasoning only", "cut call", "empty"])
def test_resume_sends_no_empty_message_and_no_call(name: str) -> None:
    """Where nothing visible came, there is no assistant message; cut calls are in no mirror."""
    request = chat.resume(REQUEST, chat.decode(CHAT[name], ctx=CTX), prompt="Go on.")
    assert [message.role for message in request.messages[5:]] == ["user"]


@pytest.mark.behaviour(22)
@pytest.mark.parametrize(
    ("dialect", "last", "extra"),
    [
        ("", {"role": "assistant", "content": "So:"}, {}),
        ("mistral", {"role": "assistant", "content": "So:", "prefix": True}, {}),
        (
            "vllm",
            {"role": "assistant", "content": "So:"},
            {"continue_final_message": True, "add_generation_prompt": False},
        ),
    ],
)
def test_resume_by_prefill(dialect: str, last: Json, extra: Json) -> None:
    """The partial answer is the last message, without its trailing whitespace, marked as the dialect wants it."""
    cut = chat.decode(chat_body({"content": "So:\n"}, "length"), ctx=CTX)
    body = chat.encode(chat.resume(REQUEST, cut, prompt="", strategy=Strategy.PREFILL, dialect=dialect))
    assert body["messages"][-1] == last
    assert {name: body[name] for name in extra} == extra


def test_resume_by_resending() -> None:
    """A pause gets the answer back verbatim and no user message."""
    cut = chat.decode(CHAT["reasoning"], ctx=CTX).with_stop(resume=Resume.RESEND_UNCHANGED)
    request = chat.resume(REQUEST, cut, prompt="")
    assert request.messages == (*REQUEST.messages, cut.message())


# What is asked


def test_inspect_reads_in_place() -> None:
    """The history is the host's own list, its length as it was."""
    messages = [{"role": "user", "content": "hi"}]
    asked = chat.request_summary(
        {
            "model": "m",
            "messages": messages,
            "max_tokens": 5,
            "max_completion_tokens": 9,
            "n": 2,
            "stream": True,
            "response_format": {"type": "json_schema"},
            "temperature": 0.5,
            "seed": 3,
        }
    )
    assert asked.history is messages
    assert asked == RequestSummary(
        "m",
        9,
        2,
        stream=True,
        stream_usage=False,
        output_type="json",
        temperature=0.5,
        seed=3,
        history=messages,
        length=1,
    )


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"model": None, "messages": None, "max_tokens": object(), "n": object(), "stream": object()},
        {"messages": iter([]), "max_tokens": True, "n": 0, "temperature": "hot", "response_format": SimpleNamespace()},
    ],
)
def test_inspect_survives_anything(kwargs: Json) -> None:
    """Sentinels, iterators and nonsense are as good as nothing."""
    assert chat.request_summary(kwargs) == RequestSummary(stream_usage=False)


def test_a_reply_without_usage_or_terminal_is_what_it_is() -> None:
    """A missing stop is written as a stream without a finish reason; blocks of another format are not used."""
    response = ChatResponse(text="x", stop=Stop(StopReason.MISSING), blocks=Blocks("anthropic", ({"type": "text"},)))
    events = chat.reply(response, stream=True)
    assert isinstance(events, list)
    assert all(event.data == "[DONE]" or event.data["choices"][0]["finish_reason"] is None for event in events)
    body = chat.reply(response.but(stop=Stop(StopReason.MAX_TOKENS, "max_tokens")), stream=False)
    assert isinstance(body, dict)
    assert body["choices"][0]["message"]["content"] == "x"
    assert "usage" not in body


# --- Prefills, one after another --------------------------------------------------------------------------------------


def _cut_text(text: str) -> ChatResponse:
    return chat.decode(chat_body({"content": text}, "length"), ctx=CTX)


@pytest.mark.behaviour(14)
@pytest.mark.parametrize(
    ("dialect", "mark"),
    [("mistral", {"prefix": True}), ("vllm", {}), ("sglang", {})],
    ids=["mistral", "vllm", "sglang"],
)
def test_a_second_prefill_goes_on_with_the_first(dialect: str, mark: Json) -> None:
    """Both parts are one last message; servers take neither two in a row, nor a mark on any but the last."""
    asked = Request(model="m", messages=(Message(role="user", content="hi"),))
    once = chat.resume(asked, _cut_text("One "), prompt="", strategy="prefill", dialect=dialect)
    twice = chat.resume(once, _cut_text(" two "), prompt="", strategy="prefill", dialect=dialect)
    sent = chat.encode(twice, dialect=dialect)
    assert sent["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "One two", **mark},
    ]
    assert ("continue_final_message" in sent) == (dialect != "mistral")


@pytest.mark.behaviour(14)
@pytest.mark.parametrize("dialect", ["mistral", "vllm"])
def test_a_prompt_after_a_prefill_carries_none_of_its_marks(dialect: str) -> None:
    """The answer so far is one message, and the nudge is what is answered."""
    asked = Request(model="m", messages=(Message(role="user", content="hi"),))
    once = chat.resume(asked, _cut_text("One"), prompt="", strategy="prefill", dialect=dialect)
    sent = chat.encode(chat.resume(once, _cut_text(" two"), prompt="Go on.", dialect=dialect), dialect=dialect)
    assert [(message["role"], message["content"]) for message in sent["messages"]] == [
        ("user", "hi"),
        ("assistant", "One two"),
        ("user", "Go on."),
    ]
    assert not {"continue_final_message", "add_generation_prompt"} & sent.keys()
    assert not any("prefix" in message for message in sent["messages"])


@pytest.mark.behaviour(22)
def test_a_prefill_that_was_answered_loses_its_mark() -> None:
    """In the history of later requests it is an assistant message like any other."""
    marked = Message(
        role="assistant",
        content="x",
        blocks=Blocks("openai_chat", ({"role": "assistant", "content": "x", "prefix": True},)),
    )
    sent = chat.encode(Request(model="m", messages=(marked, Message(role="user", content="and?"))), dialect="mistral")
    assert sent["messages"][0] == {"role": "assistant", "content": "x"}
