"""OTLP: the text of an answer is read again from its span, if the instrumentation recorded it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endturn.scan import scan, text_of


def span(identity: str, **attributes: str) -> dict[str, Any]:
    members = {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "m",
        "gen_ai.response.finish_reasons": "length", **attributes,
    }  # fmt: skip
    pairs = [{"key": key, "value": {"stringValue": value}} for key, value in members.items()]
    return {"traceId": "t" * 32, "spanId": identity, "name": "chat m", "kind": 3, "attributes": pairs}


PARTS = [
    {"type": "reasoning", "content": "hm"},
    {"type": "text", "content": "half "},
    {"type": "text", "content": "a text"},
]
MESSAGES = json.dumps([{"role": "assistant", "finish_reason": "length", "parts": PARTS}])
RECORDED = {
    "the conventions' messages": {"gen_ai.output.messages": MESSAGES},
    "OpenLLMetry's attribute": {"gen_ai.completion.0.content": "half a text"},
    "OpenInference's attribute": {"llm.output_messages.0.message.content": "half a text"},
    "nothing": {},
    "no JSON": {"gen_ai.output.messages": "[{"},
}


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("is_compact", [True, False], ids=["lines", "one value"])
def test_the_text_of_a_span_is_read_again(name: str, is_compact: bool, tmp_path: Path) -> None:
    other = span("a" * 16, **{"gen_ai.completion.0.content": "another text"})
    spans = [other, span("b" * 16, **RECORDED[name])]
    request = {"resourceSpans": [{"scopeSpans": [{"scope": {"name": "s"}, "spans": spans}]}]}
    (tmp_path / "spans").write_text(json.dumps(request, indent=None if is_compact else 1), encoding="utf-8")
    calls = {call.key[-16:]: text_of(ended.past, call) for ended in scan([tmp_path]).turns for call in ended.past.calls}
    text = "half a text" if name not in ("nothing", "no JSON") else ""
    assert calls == {"a" * 16: "another text", "b" * 16: text}
