"""What SDKs have of their own beside plain calls and streams: routes, clients of other clouds, helpers, middleware.

What all of them do alike is in tests/instrumentation/test_exchanges.py.
"""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import anthropic
import cohere
import groq
import httpx
import httpx2
import mistralai.client
import ollama
import openai
import pytest
import together
from anthropic.lib.bedrock import AnthropicBedrockMantle
from opentelemetry.instrumentation.utils import suppress_instrumentation

from endturn.formats import Event, Framing
from endturn.formats.framing import frame
from endturn.instrumentation.instrument import uninstrument
from endturn.stop import StopReason
from endturn.telemetry import cleanup
from tests.formats import replies_completions as texts, replies_openai_responses as responses
from tests.formats.recorded import RECORDED
from tests.formats.replies import DONE_EVENT, anthropic_stream, chat_body, message, named, said, say, use, used
from tests.telemetry.mocked import (
    ASK,
    CHUNKS,
    CUT,
    CUT_STREAM,
    STREAM,
    WHOLE,
    Answer,
    Body,
    Records,
    Server,
    body,
    chat,
    claude,
    events,
    settle,
)

CLAUDE: dict[str, Any] = {"model": "claude-sonnet-5-5", "max_tokens": 17, "messages": ASK["messages"]}
CUT_MESSAGE = message([say("Hello the")], "max_tokens")
MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")])
CUT_MESSAGES = anthropic_stream([said("w0 ", "w1 ", "w2 ")], "max_tokens")
OVERLOADED = named({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})

RESPONSE: dict[str, Any] = {"model": "gpt-5.6-mini", "input": "hi"}
CUT_RESPONSE = responses.cut([responses.say("Hello the", status="incomplete")])
SAID = [*responses.begun(), *responses.said(0, "w0 ", "w1 ", "w2 ")]
RESPONSES = responses.named(*SAID, responses.ended(responses.body([responses.say("w0 w1 w2 ")])))
CUT_RESPONSES = responses.named(*SAID, responses.ended(CUT_RESPONSE))

PROMPT: dict[str, Any] = {"model": "gpt-5.6-instruct", "prompt": "Once upon", "max_tokens": 9}
TEXT = [texts.chunk(" a"), texts.chunk(" time", "length"), texts.usage_chunk()]
KEYS: dict[str, Any] = {"aws_access_key": "a", "aws_secret_key": "s", "aws_region": "us-east-1", "max_retries": 0}


# --- Routes and clients --------------------------------------------------------------------------------------------


def answering(library: Any, whole: Any, stream: list[bytes], kind: str = "text/event-stream") -> Any:
    """An HTTP client that is answered whole or streamed, as the request asks."""

    def answer(request: Any) -> Any:
        if b'"stream":true' not in request.content.replace(b": ", b":") and "stream" not in request.url.path:
            return library.Response(200, json=whole)
        return library.Response(200, headers={"content-type": kind}, content=b"".join(stream))

    return library.Client(transport=library.MockTransport(answer))


def over_chat(library: Any = httpx2) -> Any:
    return answering(library, CUT, [frame(event) for event in CUT_STREAM])


def over_text(library: Any = httpx2) -> Any:
    return answering(library, texts.openai(" a time", "length"), [frame(event) for event in TEXT])


def over_messages() -> Any:
    return answering(httpx2, CUT_MESSAGE, [frame(event) for event in CUT_MESSAGES])


def over_responses() -> Any:
    return answering(httpx2, CUT_RESPONSE, [frame(event) for event in CUT_RESPONSES])


def over_lines(whole: Any, stream: list[Event]) -> Any:
    lines = [frame(event, Framing.NDJSON) for event in stream]
    return answering(httpx, whole, lines, "application/stream+json")


def both(create: Callable[..., Any], **asked: Any) -> None:
    """Whole and streamed."""
    create(**asked)
    list(create(**asked, stream=True))


def mistral() -> Any:
    return mistralai.client.Mistral(api_key="n", client=over_chat())


def each(resource: Any, **asked: Any) -> None:
    """The same, where they are two methods."""
    resource.complete(**asked)
    list(resource.stream(**asked))


def cohere_v1(whole: Any, stream: list[Event]) -> Any:
    return cohere.Client(api_key="n", base_url="http://proxy", httpx_client=over_lines(whole, stream))


def v1_generate() -> None:
    texts_of = RECORDED["completions"]
    asking = cohere_v1(texts_of.bodies["command-cohere"], texts_of.streams["command-cohere-streamed"])
    asked: Any = {"model": "command", "prompt": "One", "max_tokens": 9, "num_generations": 1}
    asking.generate(**asked)
    list(asking.generate_stream(**asked))


def v1_chat() -> None:
    chats = RECORDED["cohere"]
    asking = cohere_v1(chats.bodies["v1-limit"], chats.streams["v1-limit-streamed"])
    asking.chat(message="hi", model="command-r")
    list(asking.chat_stream(message="hi", model="command-r"))


def ollama_generate() -> None:
    whole = {"model": "m", "response": "One two", "done": True, "done_reason": "length"}
    answers = over_lines(whole, [Event(None, whole)])
    asking = ollama.Client("http://gpu.internal:8000", transport=answers._transport)
    asking.generate("m", "hi")
    list(asking.generate("m", "hi", stream=True))


def azure(http: Any, **more: Any) -> openai.AzureOpenAI:
    here = {"azure_endpoint": "http://gateway.local", **more}
    return openai.AzureOpenAI(api_key="n", api_version="2025-03-01", http_client=http, **here)


@dataclass(frozen=True)
class Asked:
    """A route, asked twice: whole and streamed.

    Attributes:
        ask: asks.
        provider, model, operation, reason: what both records say.
    """

    ask: Callable[[], object]
    provider: str
    model: str
    operation: str = "chat"
    reason: StopReason = StopReason.MAX_TOKENS


def on_claude(make: Callable[..., Any], provider: str, **how: Any) -> Asked:
    return Asked(lambda: both(make(http_client=over_messages(), **how).messages.create, **CLAUDE), provider,
                 CLAUDE["model"])  # fmt: skip


AZURE = "https://me.openai.azure.com/openai"
VERTEX: dict[str, Any] = {"region": "global", "project_id": "p", "access_token": "t"}
ROUTES = {
    "groq": Asked(lambda: both(groq.Groq(api_key="n", http_client=over_chat(httpx)).chat.completions.create, **ASK),
                  "groq", ASK["model"]),
    "together": Asked(lambda: both(together.Together(api_key="n",
                                                     http_client=over_chat(httpx)).chat.completions.create, **ASK),
                      "together", ASK["model"]),
    "together: completions": Asked(lambda: both(together.Together(api_key="n", http_client=over_text(httpx))
                                                .completions.create, **PROMPT), "together", PROMPT["model"],
                                   "text_completion"),
    "azure: chat": Asked(lambda: both(azure(over_chat()).chat.completions.create, **ASK), "azure.ai.openai",
                         ASK["model"]),
    "azure: completions": Asked(lambda: both(azure(over_text()).completions.create, **PROMPT), "azure.ai.openai",
                                PROMPT["model"], "text_completion"),
    "azure: responses": Asked(lambda: both(azure(over_responses()).responses.create, **RESPONSE), "azure.ai.openai",
                              RESPONSE["model"]),
    "azure through the plain client": Asked(
        lambda: both(openai.OpenAI(api_key="n", base_url=f"{AZURE}/v1", http_client=over_responses()).responses.create,
                     **RESPONSE), "azure.ai.openai", RESPONSE["model"]),
    "azure by its deployment's URL": Asked(
        lambda: both(openai.OpenAI(api_key="n", base_url=f"{AZURE}/deployments/x", http_client=over_responses())
                     .responses.create, **RESPONSE), "azure.ai.openai", RESPONSE["model"]),
    "claude on vertex": on_claude(anthropic.AnthropicVertex, "gcp.vertex_ai", **VERTEX),
    "claude on vertex, by a gateway": on_claude(anthropic.AnthropicVertex, "gcp.vertex_ai", **VERTEX,
                                                base_url="http://gateway.local"),
    "claude on foundry": on_claude(anthropic.AnthropicFoundry, "azure.ai.inference", api_key="k", resource="me"),
    "claude on foundry, by a gateway": on_claude(anthropic.AnthropicFoundry, "anthropic", api_key="k",
                                                 base_url="http://gateway.local"),
    "claude on mantle": on_claude(AnthropicBedrockMantle, "aws.bedrock", api_key="k", aws_region="us-east-1"),
    "claude within AWS": on_claude(anthropic.AnthropicAWS, "anthropic", api_key="k", aws_region="us-east-1",
                                   workspace_id="w"),
    "claude's beta": Asked(lambda: both(anthropic.Anthropic(api_key="k", http_client=over_messages())
                                        .beta.messages.create, **CLAUDE), "anthropic", CLAUDE["model"]),
    "mistral: fim": Asked(lambda: each(mistral().fim, model="codestral", prompt="def"), "mistral_ai", "codestral"),
    "mistral: agents": Asked(lambda: each(mistral().agents, agent_id="a", messages=ASK["messages"]), "mistral_ai", ""),
    "cohere: v1": Asked(v1_chat, "cohere", "command-r", reason=StopReason.CONTEXT_WINDOW_EXCEEDED),
    "cohere: generate": Asked(v1_generate, "cohere", "command", "text_completion"),
    "ollama: generate": Asked(ollama_generate, "ollama", "m", "text_completion"),
}  # fmt: skip


@pytest.mark.parametrize("asked", ROUTES.values(), ids=ROUTES)
def test_a_route(records: Records, asked: Asked) -> None:
    """Path and host say who answers and in which format, wherever the SDK puts the model."""
    asked.ask()
    assert [ended.stop.reason for ended in records.ended] == [asked.reason] * 2
    assert [started.stream for started in records.started] == [False, True]
    found = {(started.provider, started.model, started.operation) for started in records.started}
    assert found == {(asked.provider, asked.model, asked.operation)}


def aws(*made: Event) -> httpx2.Response:
    """A stream as Bedrock sends it: each event in the bytes of a chunk, each chunk in a message of AWS's."""
    pieces = []
    for event in made:
        envelope = {"chunk": {"bytes": json.dumps(event.data).encode()}}
        if event.data.get("type", "").endswith("Exception"):
            envelope = {event.data["type"]: {"message": event.data["message"]}}
        pieces.append(frame(Event(None, envelope), Framing.EVENTSTREAM))
    return httpx2.Response(200, headers={"content-type": "application/vnd.amazon.eventstream"}, stream=Body(pieces))


BROKEN = Event(None, {"type": "modelStreamErrorException", "message": "The model is gone."})


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(lambda: body(CUT_MESSAGE), StopReason.MAX_TOKENS, id="whole"),
        pytest.param(lambda: aws(*CUT_MESSAGES), StopReason.MAX_TOKENS, id="streamed"),
        pytest.param(lambda: aws(*CUT_MESSAGES[:-2]), StopReason.MISSING, id="ended without a word"),
        pytest.param(lambda: aws(*MESSAGES[:4], BROKEN), StopReason.ERROR, id="an exception"),
    ],
)
def test_claude_on_bedrock(records: Records, reply: Callable[[], httpx2.Response], reason: StopReason) -> None:
    """AWS's frames; the path has the model, and its suffix says whether it streams."""
    made = reply()
    streams = made.headers["content-type"] != "application/json"
    server = Server(made)
    asking = anthropic.AnthropicBedrock(**KEYS, http_client=server.http())
    with suppress(anthropic.APIError):
        found: Any = asking.messages.create(**CLAUDE, stream=streams)
        list(found)
    assert server.requests[0].url.path == f"/model/{CLAUDE['model']}/invoke{'-with-response-stream' * streams}"
    ended = records.only()
    assert ended.stop.reason is reason
    assert (ended.started.provider, ended.started.model) == ("aws.bedrock", CLAUDE["model"])


def test_the_old_text_format_of_claude(records: Records) -> None:
    """Older clients have a method for it, every client can be asked to post it."""
    asked = {"model": "claude-2.1", "prompt": "\n\nHuman: hi\n\nAssistant:", "max_tokens_to_sample": 17}
    claude(body(texts.claude(" Hello the", "max_tokens", None))).post("/v1/complete", body=asked, cast_to=object)
    ended = records.only()
    assert (ended.stop.raw, ended.started.operation, ended.started.maximum) == ("max_tokens", "text_completion", 17)


# --- Helpers -------------------------------------------------------------------------------------------------------


@anthropic.beta_tool
def clock(zone: str) -> str:
    """What time it is.

    Args:
        zone: where.
    """
    return f"noon in {zone}"


def run_tools() -> None:
    client = claude(body(message([use("toolu_1", "clock", {"zone": "Europe"})], "tool_use")), body(CUT_MESSAGE))
    assert client.beta.messages.tool_runner(**CLAUDE, tools=[clock]).until_done().stop_reason == "max_tokens"


def run_tools_streamed() -> None:
    asked = used("toolu_1", "clock", '{"zone": ', '"Europe"}')
    client = claude(events(*anthropic_stream([asked], "tool_use")), events(*CUT_MESSAGES))
    for answer in client.beta.messages.tool_runner(**CLAUDE, tools=[clock], stream=True):
        list(answer)


def finish(helper: Any, method: str = "until_done") -> Any:
    with helper as stream:
        return getattr(stream, method)()


def chats(*replies: httpx2.Response) -> Any:
    return chat(*replies).chat.completions


END, LIMIT = [StopReason.END_TURN], [StopReason.MAX_TOKENS]
PARSED: dict[str, Any] = {**CLAUDE, "output_format": Answer}
HELPERS: dict[str, tuple[Callable[[], object], list[StopReason]]] = {
    "openai: parse": (
        lambda: chats(body(chat_body({"content": '{"value": 7}'}))).parse(**ASK, response_format=Answer),
        END,
    ),
    "openai: parse, cut": (lambda: chats(body(CUT)).parse(**ASK, response_format=Answer), LIMIT),
    "openai: stream": (lambda: finish(chats(events(*STREAM)).stream(**ASK)), END),
    "openai responses: parse": (
        lambda: chat(body(responses.body([responses.say('{"value": 7}')]))).responses.parse(
            **RESPONSE, text_format=Answer
        ),
        END,
    ),
    "openai responses: parse, cut": (
        lambda: chat(body(responses.cut([responses.say('{"val', status="incomplete")]))).responses.parse(
            **RESPONSE, text_format=Answer
        ),
        LIMIT,
    ),
    "openai responses: stream": (lambda: finish(chat(events(*RESPONSES)).responses.stream(**RESPONSE)), END),
    "openai responses: stream, cut": (
        lambda: finish(chat(events(*CUT_RESPONSES)).responses.stream(**RESPONSE), "get_final_response"),
        LIMIT,
    ),
    "claude: parse": (
        lambda: claude(body(message([say('{"value": 7}')]))).messages.parse(**CLAUDE, output_format=Answer),
        END,
    ),
    "claude: stream, cut": (lambda: finish(claude(events(*CUT_MESSAGES)).messages.stream(**CLAUDE)), LIMIT),
    "claude: stream that chokes on a cut text": (
        lambda: finish(claude(events(*anthropic_stream([said('{"val')], "max_tokens"))).messages.stream(**PARSED)),
        [StopReason.CANCELLED],  # it parses at a block's end, before any reason has come
    ),
    "claude: stream of a cut call": (
        lambda: finish(
            claude(events(*anthropic_stream([used("t", "write", '{"b": "li')], "max_tokens"))).messages.stream(**CLAUDE)
        ),
        LIMIT,
    ),
    "claude: stream, overloaded": (
        lambda: finish(claude(events(*MESSAGES[:5], OVERLOADED)).messages.stream(**CLAUDE)),
        [StopReason.ERROR],
    ),
    "claude: beta stream": (lambda: finish(claude(events(*CUT_MESSAGES)).beta.messages.stream(**CLAUDE)), LIMIT),
    "claude: tools": (run_tools, [StopReason.TOOL_CALL, *LIMIT]),
    "claude: tools, streamed": (run_tools_streamed, [StopReason.TOOL_CALL, *LIMIT]),
}


@pytest.mark.parametrize(("ask", "reasons"), HELPERS.values(), ids=HELPERS)
def test_a_helper(records: Records, ask: Callable[[], object], reasons: list[StopReason]) -> None:
    """Whatever it makes of an answer, or raises of a cut one: each request is one record with the answer's reason."""
    with suppress(ValueError, RuntimeError, anthropic.APIStatusError, openai.LengthFinishReasonError):
        ask()
    settle()
    assert [ended.stop.reason for ended in records.ended] == reasons


# --- The end of a stream -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "dropped"])
@pytest.mark.parametrize(
    ("open_stream", "is_last"),
    [
        pytest.param(
            lambda: chats(events(*CUT_STREAM)).create(**ASK, stream=True),
            lambda event: event.choices[0].finish_reason,
            id="openai",
        ),
        pytest.param(
            lambda: claude(events(*CUT_MESSAGES)).messages.create(**CLAUDE, stream=True),
            lambda event: event.type == "message_delta",
            id="claude",
        ),
    ],
)
def test_a_stream_that_is_left_after_its_reason_came(
    records: Records, open_stream: Callable[[], Any], is_last: Callable[[Any], Any], how: str
) -> None:
    """Hosts stop at the event that has it: that reason stands."""
    stream: Any = open_stream()
    for event in stream:
        if is_last(event):
            break
    if how == "closed":
        stream.close()
    event = stream = None
    settle()
    assert (records.only().stop.reason, records.ended[0].stop.truncated) == (StopReason.MAX_TOKENS, True)


def test_an_error_after_the_reason_is_a_detail(records: Records) -> None:
    """The answer was cut; what happened to the stream afterwards changes nothing."""
    with pytest.raises(openai.APIConnectionError):
        list(chats(events(*CUT_STREAM[:-2], error=httpx2.ReadError("gone"))).create(**ASK, stream=True))
    with pytest.raises(anthropic.APIStatusError):
        list(claude(events(*CUT_MESSAGES[:-1], OVERLOADED)).messages.create(**CLAUDE, stream=True))
    assert [(ended.stop.reason, ended.stop.detail) for ended in records.ended] == [
        (StopReason.MAX_TOKENS, "ReadError"),
        (StopReason.MAX_TOKENS, "Overloaded"),
    ]


@pytest.mark.behaviour(3)
def test_a_connection_that_is_lost_after_the_reason(records: Records) -> None:
    """Without `message_stop`, and without a host that had read enough, a stream of Claude is cut."""
    list(claude(events(*CUT_MESSAGES[:-1])).messages.create(**CLAUDE, stream=True))
    with pytest.raises(httpx2.ReadError):
        list(claude(events(*CUT_MESSAGES[:-1], error=httpx2.ReadError("x"))).messages.create(**CLAUDE, stream=True))
    assert [ended.stop.reason for ended in records.ended] == [StopReason.MISSING] * 2


@pytest.mark.parametrize("lost", [False, True])
def test_a_stream_without_a_reason_read_to_done(records: Records, lost: bool) -> None:
    """It is `missing`; what follows `[DONE]` is not the answer, nor is its failure that of the call."""
    reply = events(*CHUNKS, DONE_EVENT, error=httpx2.ReadError("gone") if lost else None)
    assert len(list(chats(reply).with_raw_response.create(**ASK, stream=True).parse())) == len(CHUNKS)
    ended = records.only()
    assert (ended.stop.reason, ended.error) == (StopReason.MISSING, None)


def test_a_raw_answer_read_by_nobody(records: Records) -> None:
    """Its host has cancelled; an iterator over its bytes is enough to read it."""
    with chats(body(CUT)).with_streaming_response.create(**ASK):
        pass
    b"".join(chats(events(*CUT_STREAM)).with_raw_response.create(**ASK, stream=True).http_response.iter_bytes())
    assert [ended.stop.reason for ended in records.ended] == [StopReason.CANCELLED, StopReason.MAX_TOKENS]


# --- What is between an SDK and its provider -----------------------------------------------------------------------


def test_a_transport_that_hands_a_call_on_makes_no_other(records: Records) -> None:
    """A transport that sends what it is given by another HTTP client is a part of the call."""
    inner = httpx2.Client(transport=httpx2.MockTransport(lambda request: body(WHOLE)))

    def forward(request: httpx2.Request) -> httpx2.Response:
        answer = inner.post(str(request.url), content=request.content, headers={"content-type": "application/json"})
        return httpx2.Response(200, content=answer.content, headers={"content-type": "application/json"})

    http = httpx2.Client(transport=httpx2.MockTransport(forward))
    openai.OpenAI(api_key="none", max_retries=0, http_client=http).chat.completions.create(**ASK)
    assert records.only().started.model == ASK["model"]


def test_other_calls_of_the_responses_api_pass(records: Records) -> None:
    """To fetch a response again, or to count its input, is no call of a model."""
    client = chat(*[body(CUT_RESPONSE) for _ in range(6)])
    client.responses.create(**RESPONSE)
    client.responses.retrieve("resp_68a1")
    client.responses.delete("resp_68a1")
    client.responses.compact(model="m", input="x")
    client.responses.input_items.list("resp_68a1")
    client.responses.input_tokens.count(model="m", input="x")
    assert records.only().stop.reason is StopReason.MAX_TOKENS


# --- What a host does with its instrumentation ---------------------------------------------------------------------


def test_a_host_may_have_nothing_observed(records: Records) -> None:
    """OpenTelemetry's own way to say so counts here too."""
    with suppress_instrumentation():
        chats(body(WHOLE)).create(**ASK)
    assert not records.ended


def test_a_stream_that_is_open_when_instrumentation_ends(records: Records) -> None:
    """`uninstrument`, and the end of the process, end what is still being read."""
    stream = chats(events(*STREAM)).create(**ASK, stream=True)
    next(stream)
    uninstrument()
    assert records.only().stop.reason is StopReason.CANCELLED
    assert len(list(stream)) == 7  # `[DONE]` is none
    assert len(records.ended) == 1


@pytest.mark.parametrize("read", [pytest.param(0, id="never read"), pytest.param(2, id="read in part")])
def test_an_abandoned_stream_goes_at_once(records: Records, read: int) -> None:
    """No cycle of ours keeps a dropped stream: its response is freed without the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        stream: Any = claude(events(*MESSAGES)).messages.create(**CLAUDE, stream=True)
        here = weakref.ref(stream)
        for _ in range(read):
            next(stream)
        del stream
        assert here() is None
        cleanup.run()
    finally:
        gc.enable()
    ended = records.only()
    assert (ended.stop.reason, ended.stop.detail) == (StopReason.CANCELLED, "abandoned")
