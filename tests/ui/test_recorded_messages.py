"""Messages of spans and events, in the spellings in which instrumentations record them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from endturn.ui.recorded_messages import ContentEvent, RecordedCall, has_content, question_of, read_call

QUESTION, ANSWER = "Where is my order?", "It is in the"


def js(value: object) -> str:
    return json.dumps(value)


ATTRIBUTES: dict[str, dict[str, Any]] = {
    # github.com/open-telemetry/semantic-conventions-genai, gen-ai-input-messages.json
    "the conventions": {
        "gen_ai.input.messages": js([{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}]),
        "gen_ai.output.messages": js([
            {"role": "assistant", "parts": [{"type": "text", "content": ANSWER}], "finish_reason": "length"}
        ]),
    },
    "the conventions, as OTLP values": {
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}],
        "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}],
    },
    # opentelemetry-semantic-conventions-ai 0.4: SpanAttributes.LLM_PROMPTS, LLM_COMPLETIONS
    "OpenLLMetry": {
        "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": QUESTION,
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content": ANSWER,
        "gen_ai.completion.0.finish_reason": "length",
    },
    "OpenLLMetry, with parts": {
        "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": js([{"type": "text", "text": QUESTION}]),
        "gen_ai.completion.0.content": ANSWER,
    },
    # openinference-semantic-conventions: MessageAttributes, MessageContentAttributes
    "OpenInference": {
        "llm.input_messages.0.message.role": "user", "llm.input_messages.0.message.content": QUESTION,
        "llm.output_messages.0.message.role": "assistant", "llm.output_messages.0.message.content": ANSWER,
        "input.value": js({"messages": []}), "output.value": "{}",
    },
    "OpenInference, with parts": {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.contents.0.message_content.type": "text",
        "llm.input_messages.0.message.contents.0.message_content.text": QUESTION,
        "llm.output_messages.0.message.content": ANSWER,
    },
    "OpenInference, bodies of OpenAI's Responses alone": {
        "input.value": js({"model": "gpt-5", "input": [{"role": "user", "content": QUESTION}]}),
        "output.value": js({"object": "response", "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]},
        ]}),
    },
    # ai-sdk.dev/docs/ai-sdk-core/telemetry
    "Vercel's AI SDK": {
        "ai.prompt.messages": js([{"role": "user", "content": [{"type": "text", "text": QUESTION}]}]),
        "ai.response.text": ANSWER,
    },
    # logfire/_internal/integrations/llm_providers/openai.py
    "Logfire": {
        "request_data": js({"model": "gpt-5", "messages": [{"role": "user", "content": QUESTION}]}),
        "response_data": js({"message": {"role": "assistant", "content": ANSWER}}),
    },
    "Logfire, streamed": {
        "request_data": js({"messages": [{"role": "user", "content": QUESTION}]}),
        "response_data": js({"combined_chunk_content": ANSWER, "chunk_count": 2}),
    },
    "Logfire's events": {
        "events": js([
            {"event.name": "gen_ai.user.message", "role": "user", "content": QUESTION},
            {"event.name": "gen_ai.choice", "index": 0, "message": {"role": "assistant", "content": ANSWER}},
        ]),
    },
    # langfuse.com/integrations/native/opentelemetry
    "Langfuse": {
        "langfuse.observation.input": js([{"role": "user", "content": QUESTION}]),
        "langfuse.observation.output": js({"role": "assistant", "content": ANSWER}),
    },
    # google/adk-python, telemetry.py
    "Google's ADK": {
        "gcp.vertex.agent.llm_request": js({"contents": [{"role": "user", "parts": [{"text": QUESTION}]}]}),
        "gcp.vertex.agent.llm_response": js({"content": {"role": "model", "parts": [{"text": ANSWER}]}}),
    },
    # mlflow.org/docs/latest/genai/tracing
    "MLflow": {
        "mlflow.spanInputs": js({"messages": [{"role": "user", "content": QUESTION}]}),
        "mlflow.spanOutputs": js({"choices": [{"message": {"role": "assistant", "content": ANSWER}}]}),
    },
    "LangSmith": {
        "gen_ai.prompt": js({"messages": [{"role": "user", "content": QUESTION}]}),
        "gen_ai.completion": js({"role": "assistant", "content": ANSWER}),
    },
    "LangChain's messages": {
        "gen_ai.prompt": js([[{"type": "human", "content": QUESTION}]]),
        "gen_ai.completion": js([{"type": "ai", "content": ANSWER}]),
    },
}  # fmt: skip
EVENTS: dict[str, list[ContentEvent]] = {
    # semantic-conventions 1.36, docs/gen-ai/gen-ai-events.md
    "log events before 1.37": [
        ContentEvent("gen_ai.user.message", {"content": QUESTION}, {}),
        ContentEvent("gen_ai.choice", {"index": 0, "finish_reason": "length", "message": {"content": ANSWER}}, {}),
    ],
    "log events before 1.37, with bodies as text": [
        ContentEvent("gen_ai.user.message", js({"content": QUESTION}), {}),
        ContentEvent("gen_ai.choice", js({"message": {"content": ANSWER}}), {}),
    ],
    "events of a span, with attributes": [
        ContentEvent("gen_ai.user.message", None, {"content": QUESTION}),
        ContentEvent("gen_ai.choice", "", {"message": ANSWER, "finish_reason": "max_tokens"}),
    ],
    "Azure's events": [
        ContentEvent("gen_ai.user.message", None, {"gen_ai.event.content": js({"role": "user", "content": QUESTION})}),
        ContentEvent("gen_ai.choice", None, {"gen_ai.event.content": js({"message": {"content": ANSWER}})}),
    ],
    "events of conventions before 1.30": [
        ContentEvent("gen_ai.content.prompt", None, {"gen_ai.prompt": js([{"role": "user", "content": QUESTION}])}),
        ContentEvent("gen_ai.content.completion", None, {"gen_ai.completion": js([{"content": ANSWER}])}),
    ],
    "the details of the conventions": [
        ContentEvent("gen_ai.client.inference.operation.details", None, {
            "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text", "content": QUESTION}]}],
            "gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "text", "content": ANSWER}]}],
        }),
    ],
}  # fmt: skip
CALLS: dict[str, tuple[dict[str, Any], list[ContentEvent]]] = {
    name: (attributes, []) for name, attributes in ATTRIBUTES.items()
}
CALLS |= {name: ({}, events) for name, events in EVENTS.items()}


@pytest.mark.parametrize(("attributes", "events"), CALLS.values(), ids=list(CALLS))
def test_every_spelling_gives_the_question_and_the_answer(
    attributes: dict[str, Any], events: list[ContentEvent]
) -> None:
    call = read_call(attributes, events)
    assert [(message.role, message.text()) for message in call.input] == [("user", QUESTION)]
    assert [(message.role, message.text()) for message in call.output] == [("assistant", ANSWER)]
    assert not call.is_unreadable
    assert has_content(attributes) is bool(attributes)


PARTS: list[tuple[dict[str, Any], tuple[str, str]]] = [
    ({"type": "tool_call", "name": "pay", "arguments": {"to": "A"}}, ("tool call", 'pay({"to": "A"})')),
    ({"type": "tool_use", "name": "pay", "input": {"to": "A"}}, ("tool call", 'pay({"to": "A"})')),
    ({"type": "function", "function": {"name": "pay", "arguments": '{"to": "A'}}, ("tool call", 'pay({"to": "A)')),
    ({"functionCall": {"name": "pay", "args": {}}}, ("tool call", "pay({})")),
    ({"toolUse": {"name": "pay", "input": {}}}, ("tool call", "pay({})")),
    ({"type": "tool-call", "toolName": "pay", "input": {}}, ("tool call", "pay({})")),
    ({"type": "tool_call_response", "id": "1", "response": "sent"}, ("tool result", "sent")),
    ({"type": "tool_result", "content": [{"type": "text", "text": "sent"}]}, ("tool result", "sent")),
    ({"functionResponse": {"name": "pay", "response": {"ok": True}}}, ("tool result", '{"ok": true}')),
    ({"type": "reasoning", "content": "Hm"}, ("reasoning", "Hm")),
    ({"type": "thinking", "thinking": "Hm", "signature": "x"}, ("reasoning", "Hm")),
    ({"type": "blob", "mime_type": "image/png", "modality": "image", "content": "aGk=", "size": 27},
     ("image, image/png, 27 bytes", "")),
    ({"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}, ("image", "")),
    ({"type": "input_audio", "input_audio": {"data": "aGk="}}, ("audio", "")),
    ({"inlineData": {"mimeType": "image/png", "data": "aGk="}}, ("inlineData", "")),
    ({"type": "something", "data": "unknown"}, ("something", "")),
]  # fmt: skip


@pytest.mark.parametrize(("part", "shown"), PARTS, ids=[js(part)[:40] for part, _ in PARTS])
def test_a_part_that_is_no_text_is_named_and_its_data_are_not_shown(
    part: dict[str, Any], shown: tuple[str, str]
) -> None:
    messages = js([{"role": "assistant", "parts": [part]}])
    (message,) = read_call({"gen_ai.output.messages": messages}).output
    assert [(each.kind, each.text) for each in message.parts] == [shown]


def test_the_last_message_of_the_user_is_no_result_of_a_tool() -> None:
    conversation = [
        {"role": "user", "content": "First"}, {"role": "assistant", "content": "Yes"},
        {"role": "user", "content": "Second"},
        {"role": "assistant", "content": [{"type": "tool_use", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "r"}]},
    ]  # fmt: skip
    question = question_of(read_call({"gen_ai.input.messages": js(conversation)}))
    assert question is not None
    assert question.text() == "Second"
    assert question_of(RecordedCall()) is None


def test_each_choice_is_a_message_with_its_own_reason() -> None:
    choices = [
        {"role": "assistant", "parts": [{"type": "text", "content": str(n)}], "finish_reason": reason}
        for n, reason in enumerate(("stop", "length"))
    ]
    call = read_call({"gen_ai.output.messages": js(choices), "endturn.content.cut": True})
    assert [(message.text(), message.finish_reason) for message in call.output] == [("0", "stop"), ("1", "length")]
    assert call.is_shortened


@pytest.mark.parametrize("text", ['[{"parts": [', "[" * 990, '{"a":' * 400, "[[[1]]]x"])
def test_what_cannot_be_read_is_said(text: str) -> None:
    call = read_call({"gen_ai.output.messages": text})
    assert (call.is_empty, call.is_unreadable) == (True, True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("role", "parts", "content", "type", "text", "message", "tool_calls", "choices", "output",
                             "function", "arguments", "messages", "thinking", "functionCall", "response", "size")),
            inner, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip
NAMES = st.sampled_from((
    "gen_ai.input.messages", "gen_ai.output.messages", "gen_ai.system_instructions", "gen_ai.prompt.0.content",
    "gen_ai.prompt.1", "gen_ai.completion.0.tool_calls.0.name", "llm.input_messages.0.message.contents.0.x", "events",
    "request_data", "output.value", "ai.response.toolCalls", "gen_ai.event.content",
))  # fmt: skip


@settings(max_examples=300)
@given(st.dictionaries(NAMES, JSON | JSON.map(json.dumps), max_size=4), JSON)
@example({"gen_ai.input.messages": [{"type": []}]}, None)
def test_no_value_raises(attributes: dict[str, Any], body: Any) -> None:
    events = [ContentEvent(name, body, attributes) for name in ("gen_ai.choice", "gen_ai.user.message")]
    call = read_call(attributes, events)
    for message in (*call.input, *call.output):
        assert isinstance(message.role, str)
        assert all(isinstance(part.text, str) and isinstance(part.kind, str) for part in message.parts)
