"""Replies of Bedrock's Converse API, as botocore 1.44.5's service model `bedrock-runtime` shapes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from endturn.formats import Event, Framing, framing

Json = dict[str, Any]

# Neither typed nor with stubs.
botocore_eventstream: Any = import_module("botocore.eventstream")
botocore_parsers: Any = import_module("botocore.parsers")
botocore_session: Any = import_module("botocore.session")

USAGE: Json = {"inputTokens": 31, "outputTokens": 17, "totalTokens": 48}
CACHED: Json = {
    "inputTokens": 10,
    "outputTokens": 17,
    "totalTokens": 50,
    "cacheReadInputTokens": 20,
    "cacheWriteInputTokens": 3,
    "cacheDetails": [{"ttl": "5m", "inputTokens": 3}],
}
ROUTED = "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.anthropic.claude-sonnet-4-5-20250929-v1:0"


def converse_body(content: list[Json], reason: Any = "end_turn", /, **more: Any) -> Json:
    """An answer of Converse."""
    return {
        "metrics": {"latencyMs": 771},
        "output": {"message": {"content": content, "role": "assistant"}},
        "stopReason": reason,
        "usage": USAGE,
        **more,
    }


def say(text: str) -> Json:
    """A block of text."""
    return {"text": text}


def use(id_: str, name: str, given: Any, **more: Any) -> Json:
    """A block that calls a tool."""
    return {"toolUse": {"toolUseId": id_, "name": name, "input": given, **more}}


def thought(text: str, signature: str | None = None) -> Json:
    """A block of thinking."""
    signed = {} if signature is None else {"signature": signature}
    return {"reasoningContent": {"reasoningText": {"text": text, **signed}}}


THOUGHT = thought("six times seven", "EqQBCgIYAhIM")
REDACTED: Json = {"reasoningContent": {"redactedContent": "RW84QkNnST0="}}
SEARCH = use("srvtoolu_1", "nova_grounding", {"query": "tides"}, type="server_tool_use")
FOUND: Json = {
    "toolResult": {"toolUseId": "srvtoolu_1", "type": "nova_grounding_result", "content": [{"text": "High at noon."}]}
}
CITATION: Json = {
    "title": "Tides",
    "location": {"web": {"url": "https://tides.example", "domain": "tides.example"}},
    "sourceContent": [{"text": "High tide at noon"}],
}
CITED: Json = {"citationsContent": {"content": [{"text": "High at noon."}], "citations": [CITATION]}}

BODIES: dict[str, Json] = {
    "text": converse_body([say("Grüezi 👋🏽, the answer is 42.\n\n  Done. ")], usage=CACHED),
    "length": converse_body([say("The answer is")], "max_tokens"),
    "reasoning only": converse_body([thought("Let me think about")], "max_tokens"),
    "reasoning": converse_body([THOUGHT, REDACTED, say("42")]),
    "tool use": converse_body(
        [say("Looking."), use("tooluse_a", "weather", {"city": "Zürich"}), use("tooluse_b", "clock", {})], "tool_use"
    ),
    # As some models give them, with a type that the service's model does not know.
    "typed tool use": converse_body(
        [
            say("Both."),
            use("tooluse_a", "r", {"ref": "R1"}, type="tool_use"),
            use("tooluse_b", "c", {}, type="tool_use"),
        ],
        "tool_use",
    ),
    "unsaid typed tool use": converse_body([use("tooluse_a", "clock", {"zone": "CET"}, type="tool_use")]),
    "unsaid tool use": converse_body([use("tooluse_a", "clock", {"zone": "CET"})]),
    # As it was recorded: the last call's input is a whole, empty object.
    "cut call that parses": converse_body(
        [use("tooluse_a", "weather", {"city": "x"}), use("tooluse_b", "clock", {})], "max_tokens"
    ),
    "no call id": converse_body([use("", "clock", {})], "tool_use"),
    "input that is no object": converse_body([use("tooluse_a", "clock", '{"zone": ')], "malformed_tool_use"),
    "malformed output": converse_body([], "malformed_model_output"),
    "stop sequence": converse_body([say("One two ")], "stop_sequence"),
    "stop sequence, told": converse_body(
        [say("One two ")], "stop_sequence", additionalModelResponseFields={"stop_sequence": "three"}
    ),
    "guardrail": converse_body(
        [say("Sorry, the model cannot answer this question.")],
        "guardrail_intervened",
        trace={"guardrail": {"actionReason": "Guardrail blocked.", "modelOutput": ["…"]}},
    ),
    "filtered": converse_body([], "content_filtered"),
    "window": converse_body([say("It was")], "model_context_window_exceeded"),
    "server tools": converse_body([SEARCH, FOUND, CITED]),
    "prompt router": converse_body([say("ok")], trace={"promptRouter": {"invokedModelId": ROUTED}}),
    "empty": converse_body([]),
    "unknown": converse_body([say("Hm")], "tired"),
    "unknown with a call": converse_body([use("tooluse_a", "clock", {})], "tired"),
    "null": converse_body([say("Hm")], None),
    "a picture": converse_body([{"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}, say("There.")]),
    "a guarded text": converse_body([{"guardContent": {"text": {"text": "checked"}}}, say("ok")]),
}


def event(name: str, **payload: Any) -> Event:
    """One event; the service fills messages up with letters of no meaning, so that their length tells nothing."""
    return Event(None, {name: {**payload, "p": "abcdefghijkl"}})


def delta(index: int, **content: Any) -> Event:
    """A piece of a block."""
    return event("contentBlockDelta", delta=content, contentBlockIndex=index)


def start(index: int, **content: Any) -> Event:
    """The start of a block, which text and reasoning do not have."""
    return event("contentBlockStart", start=content, contentBlockIndex=index)


def stop(index: int) -> Event:
    """The end of a block."""
    return event("contentBlockStop", contentBlockIndex=index)


def said(index: int, *pieces: str) -> list[Event]:
    """A block of text."""
    return [*(delta(index, text=piece) for piece in pieces), stop(index)]


def used(index: int, id_: str, name: str, *pieces: str, closed: bool = True, **more: Any) -> list[Event]:
    """A block that calls a tool."""
    begun = [start(index, toolUse={"toolUseId": id_, "name": name, **more})]
    begun += [delta(index, toolUse={"input": piece}) for piece in pieces]
    return [*begun, stop(index)] if closed else begun


def stream(content: list[list[Event]], reason: Any = "end_turn", /, usage: Json = USAGE, **more: Any) -> list[Event]:
    """A stream of Converse: the reason, then what it cost."""
    return [
        event("messageStart", role="assistant"),
        *(each for block in content for each in block),
        event("messageStop", stopReason=reason, **more),
        event("metadata", usage=usage, metrics={"latencyMs": 771}),
    ]


STREAMS: dict[str, list[Event]] = {
    "text": stream([said(0, *(f"wörd {i} " for i in range(150)))], usage=CACHED),
    "tool use": stream(
        [
            said(0, "Look", "ing."),
            used(1, "tooluse_a", "weather", "", '{"city": "Zür', 'ich 👋🏽"}'),
            used(2, "tooluse_b", "clock", ""),
        ],
        "tool_use",
    ),
    "unsaid tool use": stream([used(0, "tooluse_a", "clock", "{}")]),
    "cut call": stream(
        [used(0, "tooluse_a", "weather", "{}"), used(1, "tooluse_b", "write", '{"body": "line\n', closed=False)],
        "max_tokens",
    ),
    "cut call, closed": stream([used(0, "tooluse_a", "f", "{}"), used(1, "tooluse_b", "g", "")], "max_tokens"),
    "reasoning": stream(
        [
            [
                delta(0, reasoningContent={"text": "six times "}),
                delta(0, reasoningContent={"text": "seven"}),
                delta(0, reasoningContent={"signature": "EqQBCgIYAhIM"}),
                stop(0),
            ],
            [delta(1, reasoningContent={"redactedContent": "RW84QkNnST0="}), stop(1)],
            said(2, "42"),
        ]
    ),
    "reasoning only": stream([[delta(0, reasoningContent={"text": "Let me think"})]], "max_tokens"),
    "server tools": stream(
        [
            used(0, "srvtoolu_1", "nova_grounding", '{"query": ', '"tides"}', type="server_tool_use"),
            [
                start(1, toolResult={"toolUseId": "srvtoolu_1", "type": "nova_grounding_result"}),
                delta(1, toolResult=[{"text": "High at noon."}]),
                stop(1),
            ],
            [delta(2, text="High "), delta(2, text="at noon."), delta(2, citation=CITATION), stop(2)],
        ]
    ),
    "a picture": stream(
        [
            [
                start(0, image={"format": "png"}),
                delta(0, image={"source": {"bytes": "iVBORw0KGgo="}}),
                stop(0),
            ],
            said(1, "There."),
        ]
    ),
    "guardrail": stream([said(0, "Sorry.")], "guardrail_intervened"),
    "filtered": stream([said(0, "Well, ")], "content_filtered"),
    "stop sequence": stream([said(0, "One")], "stop_sequence", additionalModelResponseFields={"stop_sequence": "two"}),
    "window": stream([said(0, "It was")], "model_context_window_exceeded"),
    "malformed tool use": stream([used(0, "tooluse_a", "f", '{"a": ', closed=False)], "malformed_tool_use"),
    "empty": stream([]),
    "unknown": stream([said(0, "Hm")], "tired"),
    "null": stream([said(0, "Hm")], None),
    "prompt router": [
        *stream([said(0, "ok")])[:-1],
        event(
            "metadata",
            usage=USAGE,
            metrics={"latencyMs": 5},
            trace={"promptRouter": {"invokedModelId": ROUTED}},
        ),
    ],
    "cut": stream([said(0, "It was ", "the best")])[:-3],
    "a new event": [*stream([said(0, "ok")])[:-1], event("somethingNew", what={"message": "hi"})],
}


@cache
def _operation(name: str) -> Any:
    return botocore_session.get_session().get_service_model("bedrock-runtime").operation_model(name)


def body_object(body: Json) -> Any:
    """A body as boto3's client gives it: a dictionary, its blobs as bytes, with metadata of the answer."""
    answer = {"status_code": 200, "headers": {"x-amzn-requestid": "1f"}, "body": json.dumps(body).encode()}
    return botocore_parsers.create_parser("rest-json").parse(answer, _operation("Converse").output_shape)


class _Raw:
    """The bytes that boto3's stream reads."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def stream(self) -> Iterator[bytes]:
        for each in self._events:
            yield framing.frame(each, Framing.EVENTSTREAM)


def event_objects(events: Sequence[Event]) -> list[Any]:
    """A stream's events as boto3's client gives them; it leaves out what its model does not know."""
    shape = _operation("ConverseStream").output_shape.members["stream"]
    parser = botocore_parsers.EventStreamJSONParser()
    return list(botocore_eventstream.EventStream(_Raw(events), shape, parser, "ConverseStream"))
