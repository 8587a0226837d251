"""InvokeModel: whose words a model speaks, what its envelope adds, and requests in every family's format."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from endturn.chat import ChatResponse, Json, Message, Request, ToolCall, Usage
from endturn.events import Strategy
from endturn.formats import Context, Event, RequestSummary, bedrock_invoke_families as families, format_of, summarize
from endturn.formats.bedrock_invoke import FORMAT as bedrock_invoke
from endturn.formats.bedrock_invoke_families import FAMILIES, of
from endturn.stop import Stop, StopReason
from tests.formats.others_bedrock_invoke import OTHERS, PICTURES, PROFILE, RANKED, VECTOR
from tests.formats.replies_bedrock_invoke import BODIES, MODELS, chunk, context
from tests.formats.replies_completions import llama, mistral

USER = Message(role="user", content="Once upon")


def whole(name: str) -> ChatResponse:
    """The response of a body."""
    return bedrock_invoke.decode(BODIES[name], ctx=context(name))


def streamed(stream: list[Event], ctx: Context) -> ChatResponse:
    """The response of a stream."""
    decoder = bedrock_invoke.decoder(ctx)
    for event in stream:
        list(decoder.feed(event))
    return decoder.close()


# Families


@pytest.mark.parametrize(
    ("model", "family"),
    [
        ("anthropic.claude-3-haiku-20240307-v1:0", "claude"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude"),
        ("global.anthropic.claude-opus-4-5-20251101-v1:0", "claude"),
        ("arn:aws:bedrock:eu-west-1:111122223333:inference-profile/eu.anthropic.claude-opus-4-20250514-v1:0", "claude"),
        ("arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-v2", "claude_text"),
        ("anthropic.claude-v2:1", "claude_text"),
        ("anthropic.claude-instant-v1", "claude_text"),
        ("apac.amazon.nova-pro-v1:0", "nova"),
        ("amazon.titan-text-lite-v1", "titan"),
        ("us.meta.llama4-scout-17b-instruct-v1:0", "llama"),
        ("mistral.mistral-7b-instruct-v0:2", "mistral"),
        ("mistral.mistral-large-2407-v1:0", "chat"),
        ("us.mistral.pixtral-large-2502-v1:0", "chat"),
        ("cohere.command-text-v14", "command"),
        ("cohere.command-light-text-v14", "command"),
        ("cohere.command-r-v1:0", "command_r"),
        ("ai21.j2-mid-v1", "ai21"),
        ("ai21.jamba-1-5-large-v1:0", "chat"),
        ("us.deepseek.r1-v1:0", "text"),
        ("deepseek.v3-v1:0", "chat"),
        ("openai.gpt-oss-20b-1:0", "chat"),
        ("qwen.qwen3-32b-v1:0", "chat"),
        ("titan", "titan"),
    ],
)
def test_the_models_id_tells_the_family(model: str, family: str) -> None:
    """Without the region that a profile begins with, and the ARN around it; a dialect is one too."""
    assert of(model) == FAMILIES[family]


@pytest.mark.parametrize("model", ["", "m", "arn:aws:bedrock:us-east-1:1:imported-model/abc", "claudia"])
def test_an_unknown_id_tells_nothing(model: str) -> None:
    """Then what is said tells."""
    assert of(model) is None


@pytest.mark.parametrize("name", [name for name in BODIES if ": " in name])
def test_what_is_said_tells_the_family(name: str) -> None:
    """A body is known without its model, and means the same."""
    unknown = bedrock_invoke.decode(BODIES[name], ctx=Context("", "aws.bedrock", RequestSummary(maximum=1000)))
    assert (unknown.text, unknown.stop.reason) == (whole(name).text, whole(name).stop.reason)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_an_unknown_model_replies_as_it_is_asked(stream: bool) -> None:
    """In the chat format, whatever it says: a refusal and calls have words there."""
    calls = (ToolCall(id="call_1", name="f", arguments={"a": 1}),)
    for response in (
        ChatResponse(text="No.", stop=Stop(StopReason.REFUSED), model="m"),
        ChatResponse(tool_calls=calls, stop=Stop(StopReason.TOOL_CALL), model="m"),
    ):
        said = bedrock_invoke.reply(response, stream=stream)
        ctx = Context("", "aws.bedrock", RequestSummary(model="m"))
        again = streamed(said, ctx) if isinstance(said, list) else bedrock_invoke.decode(said, ctx=ctx)
        assert (again.stop.reason, again.text) == (response.stop.reason, response.text)
        assert [(made.id, made.arguments) for made in again.tool_calls] == [
            (made.id, made.arguments) for made in response.tool_calls
        ]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_has_its_table(family: str) -> None:
    """Its rows are those of the format that reads it; under "" stands what no two families dispute."""
    inner = FAMILIES[family]
    assert bedrock_invoke.reasons[family] == format_of(inner.format).reasons[inner.dialect]
    for raw, row in bedrock_invoke.reasons[family].items():
        agreed = bedrock_invoke.reasons[""].get(raw)
        assert agreed is None or (agreed.reason, agreed.incomplete) == (row.reason, row.incomplete)


# The envelope


@pytest.mark.parametrize("name", ["titan: text", "claude: tool use", "nova: call", "mistral: length"])
def test_a_body_may_arrive_in_any_form(name: str) -> None:
    """Parsed, as text, as bytes, or in boto3's response, whose stream decode reads and a summarizer leaves alone."""
    expected, data = whole(name), json.dumps(BODIES[name]).encode()
    answer = {"ResponseMetadata": {"HTTPHeaders": {}}, "contentType": "application/json"}
    for body in (data, data.decode(), bytearray(data), {**answer, "body": data}, {**answer, "body": io.BytesIO(data)}):
        stream = body.get("body") if isinstance(body, dict) else None
        seen = summarize(bedrock_invoke, context(name), body)
        if isinstance(stream, io.BytesIO):
            assert stream.tell() == 0
            assert seen.stop.reason is StopReason.MISSING
        else:
            assert seen.stop == expected.stop
        assert bedrock_invoke.decode(body, ctx=context(name)) == expected


def test_headers_tell_the_tokens_of_a_body() -> None:
    """Those of HTTP, and those that boto3 keeps beside the body."""
    headers = {"X-Amzn-Bedrock-Input-Token-Count": "12", "x-amzn-bedrock-output-token-count": "9"}
    body, ctx = mistral("One", "length"), context("mistral:")
    assert bedrock_invoke.decode(body, ctx=ctx, headers=headers).usage == Usage(12, 9)
    answer = {"ResponseMetadata": {"HTTPHeaders": headers}, "body": json.dumps(body)}
    assert summarize(bedrock_invoke, ctx, answer).usage == Usage(12, 9)
    assert bedrock_invoke.decode(llama("One", "stop", 3, 4), ctx=ctx, headers=headers).usage == Usage(3, 4)


# Requests


@pytest.mark.parametrize(
    ("family", "body"),
    [
        (
            "claude",
            {
                "anthropic_version": "bedrock-2023-05-31",
                "max_tokens": 7,
                "messages": [{"role": "user", "content": "Once upon"}],
            },
        ),
        (
            "nova",
            {
                "messages": [{"role": "user", "content": [{"text": "Once upon"}]}],
                "inferenceConfig": {"maxTokens": 7},
            },
        ),
        ("titan", {"inputText": "Once upon", "textGenerationConfig": {"maxTokenCount": 7}}),
        ("llama", {"prompt": "Once upon", "max_gen_len": 7}),
        ("mistral", {"prompt": "Once upon", "max_tokens": 7}),
        ("command", {"prompt": "Once upon", "max_tokens": 7, "stream": True}),
        ("command_r", {"message": "Once upon", "max_tokens": 7}),
        ("ai21", {"prompt": "Once upon", "maxTokens": 7}),
        ("claude_text", {"prompt": "\n\nHuman: Once upon\n\nAssistant:", "max_tokens_to_sample": 7}),
        ("jamba", {"messages": [{"role": "user", "content": "Once upon"}], "max_tokens": 7}),
        ("deepseek", {"prompt": "Once upon", "max_tokens": 7}),
        ("gpt_oss", {"messages": [{"role": "user", "content": "Once upon"}], "max_completion_tokens": 7}),
        ("imported", {"messages": [{"role": "user", "content": "Once upon"}], "max_tokens": 7}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_request_is_written_for_its_family(family: str, body: Json) -> None:
    """The limit has the family's name; model and streaming are in the path alone, but for Cohere's `stream`."""
    asked = Request(model=MODELS[family], messages=(USER,), max_tokens=7)
    assert bedrock_invoke.encode(asked, stream=True) == body


@pytest.mark.parametrize(
    ("body", "family"),
    [
        ({"anthropic_version": "bedrock-2023-05-31", "messages": [{"role": "user", "content": "hi"}]}, "anthropic"),
        ({"messages": [{"role": "user", "content": [{"text": "hi"}]}], "inferenceConfig": {}}, "bedrock_converse"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "openai_chat"),
        ({"message": "hi"}, "cohere"),
        ({"prompt": "hi", "max_gen_len": 7}, "completions"),
        ({"inputText": "hi"}, "completions"),
    ],
    ids=["claude", "nova", "chat", "command_r", "llama", "titan"],
)
def test_a_request_to_an_unknown_model_is_read_by_its_shape(body: Json, family: str) -> None:
    """As to an application's own inference profile, whose id says nothing."""
    body = {"model": "arn:aws:bedrock:us-east-1:1:application-inference-profile/x", **body}
    assert families.asked(body).format == family


def test_a_dialect_says_the_family_where_the_id_does_not() -> None:
    """For a profile of one's own."""
    asked = Request(model="arn:aws:bedrock:us-east-1:1:application-inference-profile/x", messages=(USER,))
    assert bedrock_invoke.encode(asked, dialect="titan") == {"inputText": "Once upon"}
    ctx = Context("llama", "aws.bedrock")
    assert bedrock_invoke.decode(llama("x", "length"), ctx=ctx).stop.reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize(
    ("family", "last"),
    [("claude", "user"), ("nova", "user"), ("llama", "assistant"), ("titan", "assistant"), ("jamba", "user")],
)
def test_a_continuation_asks_as_the_family_does(family: str, last: str) -> None:
    """A nudge where there are messages; the text appended where there is a prompt."""
    asked = Request(model=MODELS[family], messages=(USER,))
    cut = ChatResponse(text=" a time", stop=Stop(StopReason.MAX_TOKENS))
    resumed = bedrock_invoke.resume(asked, cut, prompt="Go on.", strategy=Strategy.PROMPT)
    assert (resumed.messages[0], resumed.messages[-1].role) == (USER, last)
    if last == "assistant":
        body = bedrock_invoke.encode(resumed)
        assert "Once upon a time" in (body.get("prompt"), body.get("inputText"))


@pytest.mark.parametrize("form", ["bytes", "text", "object"])
def test_inspect_reads_boto3s_arguments(form: str) -> None:
    """The model's id beside the body; the limit under the family's name."""
    body = {"inputText": "hi", "textGenerationConfig": {"maxTokenCount": 7, "temperature": 0.5}}
    forms: dict[str, Any] = {"bytes": json.dumps(body).encode(), "text": json.dumps(body), "object": body}
    seen = bedrock_invoke.request_summary({"modelId": MODELS["titan"], "body": forms[form]})
    assert (seen.model, seen.maximum, seen.temperature, seen.stream_usage) == (MODELS["titan"], 7, 0.5, True)


def test_inspect_leaves_a_stream_alone() -> None:
    """A body that only its owner may read."""
    stream = io.BytesIO(b"{}")
    assert bedrock_invoke.request_summary({"modelId": "m", "body": stream}).model == "m"
    assert stream.tell() == 0


@pytest.mark.parametrize("model", OTHERS)
def test_what_asks_for_no_text(model: str) -> None:
    """Embeddings, rankings, pictures: the model's id tells, and where a profile hides it, the body does."""
    body, _ = OTHERS[model]
    ids = (model, f"us.{model}", f"arn:aws:bedrock:us-east-1::foundation-model/{model}")
    assert not any(bedrock_invoke.request_summary({"modelId": each, "body": "{}"}).generates for each in ids)
    assert not bedrock_invoke.request_summary({"modelId": PROFILE, "body": json.dumps(body)}).generates
    assert not bedrock_invoke.request_summary({"model": PROFILE, **body}).generates


@pytest.mark.parametrize("model", [PROFILE, "openai.gpt-oss-20b-1:0", "amazon.titan-text-lite-v1"])
@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "hi"}], "taskType": "chat"},
        {"message": "hi", "documents": [{"text": "a"}], "query": "hi"},
        {"prompt": "hi"},
        {"prompt": "hi", "max_gen_len": 7, "images": ["aGk="]},
        {"inputText": "hi", "textGenerationConfig": {}},
        {"inputPrompt": "hi", "mediaSource": {}},
        {"inputs": "hi"},
        {},
    ],
)
def test_what_asks_for_text(model: str, body: Json) -> None:
    """Whatever else it holds; and what does not tell."""
    assert bedrock_invoke.request_summary({"modelId": model, "body": json.dumps(body)}).generates


@pytest.mark.parametrize("body", [{"inputText": "hi"}, {"texts": ["hi"]}, {"query": "hi", "documents": []}])
def test_a_known_model_is_asked_for_text(body: Json) -> None:
    """Its id counts above what the request looks like."""
    assert bedrock_invoke.request_summary({"modelId": MODELS["titan"], "body": json.dumps(body)}).generates


@pytest.mark.parametrize(
    "body",
    [*(answer for _, answer in OTHERS.values() if answer), PICTURES, RANKED, [VECTOR], {"message": "A cat."}],
    ids=lambda body: next(iter(body), "") if isinstance(body, dict) else "list",
)
def test_what_is_in_nobodys_words_is_not_cut(body: Any) -> None:
    """An answer that holds no text, of a model that nobody knows, is `unknown`; cut in its midst it is `missing`."""
    ctx, data = Context("", "aws.bedrock", RequestSummary(model=PROFILE)), json.dumps(body).encode()
    for form in (body, data, Event(None, {"chunk": {"bytes": data}})):
        stop = summarize(bedrock_invoke, ctx, form).stop
        assert (stop.reason, stop.detail, stop.truncated) == (StopReason.UNKNOWN, "unreadable", False)
    assert summarize(bedrock_invoke, ctx, data[:-1]).stop.reason is StopReason.MISSING
    if isinstance(body, dict):
        assert streamed([chunk(body)], ctx).stop.reason is StopReason.UNKNOWN
    summarizer = bedrock_invoke.summarizer(ctx)
    summarizer.feed(data)
    assert summarizer.close(left=True).stop.reason is StopReason.MISSING


@pytest.mark.parametrize("stream", [False, True])
def test_the_model_is_in_the_path(stream: bool) -> None:
    """Quoted as botocore does, an ARN too; and read back, whatever stands before."""
    path = bedrock_invoke.route(Request(model=MODELS["llama"], messages=()), stream=stream).path
    assert "/" not in path.removeprefix("/model/").partition("/invoke")[0]
    routed = bedrock_invoke.routed("POST", "/gateway" + path)
    assert routed is not None
    assert (routed.model, routed.stream) == (MODELS["llama"], stream)
    assert bedrock_invoke.routed("POST", "/model/m/converse") is None
