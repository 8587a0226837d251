"""The chat format as each server speaks it: its vocabulary, its errors, and what it is asked."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from endturn.chat import ChatResponse, Json, Message, Request
from endturn.errors import RequestRejected
from endturn.events import Strategy
from endturn.formats import FORMATS, Context, Event, format_of, framing
from endturn.formats.errors import error_of
from endturn.formats.openai_chat import FORMAT as chat
from endturn.stop import Resume, StopReason
from endturn.stop_reasons import apis
from tests.formats.replies import CHAT_STREAMS, WEATHER, chat_body
from tests.replies.record import HERE

EVIDENCE = list(
    csv.DictReader(
        (Path(__file__).parent.parent / "data" / "stop_reasons.tsv").read_text().splitlines(), delimiter="\t"
    )
)
REQUEST = Request(model="m", messages=(Message(role="user", content="hi"),))


def streamed(events: list[Event], ctx: Context) -> ChatResponse:
    """The response of a stream."""
    decoder = chat.decoder(ctx)
    for event in events:
        list(decoder.feed(event))
    return decoder.close()


# The vocabulary


CHATS = [row for row in EVIDENCE if row["api"] in {api.name for api in apis("openai_chat").values()}]


@pytest.mark.behaviour(2)
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['api']}-{row['raw']}") for row in CHATS])
def test_every_row_of_the_evidence_is_in_its_dialect(row: Json) -> None:
    """What was read in the servers' own sources is what the dialect of that name says, through a body."""
    dialect = next(name for name, api in apis("openai_chat").items() if api.name == row["api"])
    stop = chat.decode(chat_body({"content": "x"}, row["raw"]), ctx=Context(dialect=dialect)).stop
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
    body = chat_body({"content": "x"}, "stop")
    body["choices"][0]["provider_specific_fields"] = {"native_finish_reason": row["raw"]}
    stop = chat.decode(body, ctx=Context(dialect=dialect)).stop
    assert (stop.reason, stop.raw) == (row["normalized"], row["raw"])
    assert stop.incomplete is (row["incomplete"] == "yes")
    assert stop.resume in (row["resume"], Resume.NONE)
    assert stop.resume not in (Resume.NATIVE_TOKEN, Resume.RESEND_UNCHANGED, Resume.SERVER)


@pytest.mark.parametrize("name", [name for name in FORMATS if name != chat.name])
def test_no_gateway_word_means_something_else_at_home(name: str) -> None:
    """Where another format's own table has a word that a gateway passes on, it is the same reason."""
    gateway, home = chat.reasons["openrouter"], format_of(name).reasons[""]
    assert [raw for raw in home.keys() & gateway.keys() if home[raw].reason is not gateway[raw].reason] == []


# Errors that the servers send


def test_comments_between_events_are_no_events() -> None:
    """OpenRouter and DeepSeek keep a connection open with comments; a body may begin with empty lines."""
    events = CHAT_STREAMS["text"]
    raw = b": OPENROUTER PROCESSING\n\n".join([b"", *(framing.frame(event) for event in events), b": keep-alive\n\n"])
    assert list(framing.events([raw])) == events


def test_groqs_malformed_call_is_to_be_repaired() -> None:
    """HTTP 400 `tool_use_failed`: the model wrote a call that Groq could not parse; it was not the host's fault."""
    body = b"""{"error": {"message": "Failed to call a function. Please adjust your prompt.", "type":
        "invalid_request_error", "code": "tool_use_failed", "failed_generation": "<function=f>{\\"a\\": "}}"""
    error = error_of(400, {}, body, ctx=Context(dialect="groq", provider="groq"))
    assert type(error) is RequestRejected
    assert error.stop is not None
    assert (error.stop.reason, error.stop.resume) == (StopReason.ERROR, Resume.REPAIR)
    assert "failed_generation" in (error.body or "")


# What each is asked


def test_mistrals_thinking_goes_back_in_its_parts() -> None:
    """Content in parts is kept in parts, a stream's pieces joined; Mistral refuses members that it does not know."""
    name = HERE / "openai_chat" / "what-it-means-mistral-thinking-in-parts"
    body = json.loads(name.with_suffix(".json").read_text())["body"]
    events = json.loads(name.with_name(f"{name.name}-streamed.json").read_text())["events"]
    parts = body["choices"][0]["message"]["content"]
    ctx = Context(dialect="mistral")
    for response in (chat.decode(body, ctx=ctx), streamed([Event(None, event["data"]) for event in events], ctx)):
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
    message = chat.decode(
        chat_body({"content": content, "tool_calls": [WEATHER]}, "tool_calls"), ctx=Context()
    ).message()
    assert chat.encode(REQUEST.but(messages=(message.but(tool_calls=()),)))["messages"] == []
    assert chat.encode(REQUEST.but(messages=(message,)))["messages"][0]["content"] == content


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
    cut = chat.decode(chat_body({"content": "One, two "}, "length"), ctx=Context(dialect="vllm"))
    resumed = chat.resume(REQUEST, cut, prompt="", strategy=Strategy.PREFILL, dialect="vllm")
    body = chat.encode(resumed, dialect="vllm")
    assert body["messages"] == [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "One, two"}]
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)
