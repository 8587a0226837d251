"""Properties of the formats beyond the files of replies and requests."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from endturn.formats import FORMATS, Context, Event, RequestSummary, format_of
from endturn.formats.apis.completions_shapes import SHAPES
from endturn.formats.errors import error_of, safe_excerpt
from endturn.vocabulary.messages import Json, Request
from tests.formats.recorded import RECORDED, streamed

chat, completions = format_of("openai_chat"), format_of("completions")


@pytest.mark.parametrize(
    ("name", "shows", "another"),
    [
        ("openai_chat", "no-call-id", {"id": "chatcmpl-other"}),
        ("ollama", "tool-calls", {"created_at": "2026-10-01T09:31:00Z"}),
    ],
)
def test_a_minted_call_id_is_unique_to_its_response(name: str, shows: str, another: Json) -> None:
    """Minted ids differ within a response and between responses, and are in the block too."""
    body = RECORDED[name].bodies[shows]
    first, again = (format_of(name).decode(each, ctx=Context()) for each in (body, {**body, **another}))
    ids = [call.id for response in (first, again) for call in response.tool_calls]
    assert len(set(ids)) == len(ids) == 4
    assert all(id_.startswith("call_") for id_ in ids)
    assert first.blocks is not None
    assert [call["id"] for call in first.blocks.items[0]["tool_calls"]] == ids[:2]


# --- Requests -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"model": ..., "messages": ..., "max_tokens": ..., "response_format": ..., "message": ...},
        {"model": None, "messages": None, "max_tokens": object(), "n": object(), "stream": object()},
        {"messages": iter([]), "max_tokens": True, "n": 0, "temperature": "hot", "response_format": SimpleNamespace()},
    ],
)
def test_sentinels_of_sdks_count_as_missing(kwargs: Json) -> None:
    """So are iterators and nonsense."""
    assert chat.request_summary(kwargs) == RequestSummary(stream_usage=False)
    assert format_of("cohere").request_summary(kwargs) == RequestSummary()


def test_the_hosts_lists_are_not_changed() -> None:
    """Images of a stream are joined in other lists."""
    images = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}]
    delta = {"content": "", "images": images}
    response = streamed(chat, [Event(None, {"choices": [{"index": 0, "delta": delta}]})] * 2, Context())
    assert response.blocks is not None
    assert response.blocks.items[0]["images"] == images * 2
    assert len(images) == 1


@pytest.mark.parametrize("name", FORMATS)
def test_encoding_leaves_the_hosts_messages_alone(name: str) -> None:
    """Messages that an API needs as one are joined in the body, not in the host's lists of parts."""
    messages = [{"role": "user", "content": [{"text": word}]} for word in ("one", "two")]
    request = Request.model_validate({"model": "m", "messages": messages})
    body = format_of(name).encode(request)
    assert [message.content for message in request.messages] == [[{"text": "one"}], [{"text": "two"}]]
    assert format_of(name).encode(request) == body


# --- The members of a request, where its host is not known --------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "dialect", "members"),
    [
        ("anthropic", "", "messages max_tokens"),
        ("anthropic", "", "messages anthropic_version"),
        ("bedrock_converse", "", "messages"),
        ("bedrock_converse", "", "promptVariables"),
        ("bedrock_invoke", "", "messages"),
        ("bedrock_invoke", "", "prompt"),
        ("bedrock_invoke", "", "inputText"),
        ("bedrock_invoke", "", "message"),
        ("bedrock_invoke", "", "input"),
        ("cohere", "", "model messages"),
        ("cohere", "v1", "message"),
        ("completions", "", "prompt"),
        ("completions", "", "inputs"),
        ("completions", "", "input model_id"),
        ("gemini", "", "contents"),
        ("gemini_interactions", "", "model input"),
        ("gemini_interactions", "", "agent input"),
        ("gemini_interactions", "", "previous_interaction_id"),
        ("ollama", "", "model messages"),
        ("ollama", "", "model prompt"),
        ("openai_chat", "", "messages"),
        ("openai_chat", "", "prompt model"),
        ("openai_responses", "", "model input"),
        ("openai_responses", "", "model prompt"),
        ("openai_responses", "", "model previous_response_id"),
        ("openai_responses", "", "model conversation"),
        ("openai_responses", "", "prompt input"),
    ],
)
def test_a_request_is_known_by_its_members(name: str, dialect: str, members: str) -> None:
    """All of them, and no others: a body that lacks one is of another API."""
    body = dict.fromkeys(members.split(), "x")
    assert format_of(name).is_request(body, dialect)
    for member in body:
        lacking = {other: "x" for other in body if other != member} | {"temperature": 1}
        assert not format_of(name).is_request(lacking, dialect)


# --- Completions in every service's words -------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", SHAPES, ids=lambda dialect: dialect or "openai")
def test_the_dialect_of_a_completion_is_recognised(dialect: str) -> None:
    """Without a dialect, a reply is recognised by its members, and read with its service's stop reasons."""
    recorded = RECORDED["completions"]
    ours = {name: ctx for name, ctx in recorded.contexts.items() if ctx.dialect == dialect}
    assert ours
    for name, ctx in ours.items():
        assert recorded.read(name, ctx).stop == recorded.read(name, replace(ctx, dialect="")).stop


# --- Errors: tests/replies/*/requests/error.json and test_errors.py have their contents -----------

KEYS = yaml.safe_load(Path(__file__).with_name("keys.yaml").read_text())


@pytest.mark.parametrize(("said", "secret"), KEYS, ids=lambda value: value[:12])
def test_no_key_of_any_provider_leaks(said: str, secret: str) -> None:
    """Keys of Google, AWS, Azure, Hugging Face and Cohere, by their form, and wherever a text names a key."""
    raised = error_of(401, {}, json.dumps({"error": {"message": said}}).encode(), ctx=Context())
    assert secret not in f"{raised} {raised.body} {safe_excerpt(said)}"


def test_bodies_are_shortened() -> None:
    """An exception does not contain a page of HTML, which costs little to search."""
    raised = error_of(502, {}, b"<p>bad gateway</p>" * 100_000, ctx=Context())
    assert (len(raised.body or ""), len(str(raised)) < 400) == (1_000, True)
