"""Replies of generateContent, written out by hand: v1beta of the Gemini API and v1 of Vertex AI, as google-genai 3.4.0
reads them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from google.genai import types

from endturn.formats import Event

Json = dict[str, Any]
HEAD: Json = {"modelVersion": "gemini-3-flash", "responseId": "mAitaLmkHPPlz7IPvtfUqQ4"}
USAGE: Json = {
    "promptTokenCount": 30,
    "candidatesTokenCount": 12,
    "thoughtsTokenCount": 5,
    "cachedContentTokenCount": 8,
    "totalTokenCount": 47,
    "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 30}],
}


def say(text: str, **more: Any) -> Json:
    """A part with text."""
    return {"text": text, **more}


def call(name: str, args: Json | None = None, id_: str | None = None, **more: Any) -> Json:
    """A part with a call."""
    function: Json = {"name": name}
    if id_ is not None:
        function["id"] = id_
    if args is not None:
        function["args"] = args
    return {"functionCall": function, **more}


def candidate(parts: list[Json] | None = None, reason: str | None = None, **more: Any) -> Json:
    """A candidate."""
    content: Json = {"role": "model"} if parts is None else {"parts": parts, "role": "model"}
    found: Json = {"content": content, "index": 0, **more}
    return found if reason is None else {**found, "finishReason": reason}


def body(parts: list[Json] | None, reason: str | None = "STOP", **more: Any) -> Json:
    """A response of one candidate."""
    return {"candidates": [candidate(parts, reason, **more)], "usageMetadata": USAGE, **HEAD}


def chunk(parts: list[Json] | None = None, reason: str | None = None, **more: Any) -> Event:
    """A chunk of a stream: the usage so far is in each, all of it in the last."""
    said = {"promptTokenCount": 30, "totalTokenCount": 30} if reason is None else USAGE
    return Event(None, {"candidates": [candidate(parts, reason, **more)], "usageMetadata": said, **HEAD})


def partial(*pieces: Json, more: bool = True, **named: Any) -> Json:
    """A piece of a call whose arguments Vertex AI streams."""
    function: Json = dict(named)
    if pieces:
        function["partialArgs"] = list(pieces)
    if more:
        function["willContinue"] = True
    return {"functionCall": function}


def blocked(reason: str) -> Json:
    """A response without an answer: the prompt was blocked."""
    return {
        "promptFeedback": {
            "blockReason": reason,
            "safetyRatings": [{"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH", "blocked": True}],
        },
        "usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4},
        **HEAD,
    }


SIGNATURE = "EqQBCqEBAdHtim+q8/abcw=="
THOUGHT = say("**Six** times seven", thought=True)
WEATHER = call("weather", {"city": "Zürich", "days": [1, 2]}, "fc-1", thoughtSignature=SIGNATURE)
CLOCK = call("clock", {})
CODE: Json = {"executableCode": {"language": "PYTHON", "code": "print(6 * 7)"}}
RAN: Json = {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "42\n"}}
SEARCH: Json = {
    "toolCall": {"id": "t-1", "toolType": "GOOGLE_SEARCH_WEB", "args": {"queries": ["tides"]}},
    "thoughtSignature": SIGNATURE,
}
FOUND: Json = {"toolResponse": {"id": "t-1", "toolType": "GOOGLE_SEARCH_WEB", "response": {"results": "High noon"}}}
ERROR: Json = {"code": 503, "message": "The model is overloaded. Please try again later.", "status": "UNAVAILABLE"}

BODIES: dict[str, Json] = {
    "text": body([say("Grüezi 👋🏽, the answer is 42.\n\n  Done. ")]),
    "several parts": body([say("One. "), say("Two.", thoughtSignature=SIGNATURE), say(" Three.")]),
    "length": body([say("The answer is")], "MAX_TOKENS"),
    # Recorded of gemini-2.5: the thinking used the whole limit up.
    "reasoning only": {
        "candidates": [{"content": {"role": "model"}, "finishReason": "MAX_TOKENS", "index": 0}],
        "usageMetadata": {"promptTokenCount": 11, "thoughtsTokenCount": 97, "totalTokenCount": 108},
        **HEAD,
    },
    "visible reasoning only": body([THOUGHT], "MAX_TOKENS"),
    "reasoning": body([THOUGHT, say("42", thoughtSignature=SIGNATURE)]),
    "tool calls": body([say("Looking."), WEATHER, CLOCK]),
    "no arguments": body([call("clock")]),
    "same call twice": body([CLOCK, CLOCK]),
    "cut call": body([WEATHER, CLOCK], "MAX_TOKENS"),
    "server tools": body([SEARCH, FOUND, CODE, RAN, say("High noon, 42.")]),
    "server and client tools": body([CODE, RAN, CLOCK]),
    "image": body([say("Here:"), {"inlineData": {"mimeType": "image/png", "data": "aW1n"}}]),
    "paused": body([say("So far")], "CONTINUATION", continuationToken="bmV4dA=="),
    "safety": body(None, "SAFETY", safetyRatings=[{"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH"}]),
    "recitation": body([say("Call me Ishmael. Some")], "RECITATION", citationMetadata={"citationSources": []}),
    "malformed call": body(
        None, "MALFORMED_FUNCTION_CALL", finishMessage="Malformed function call: print(default_api.weather(city="
    ),
    "other": body(None, "OTHER"),
    "unknown": body([say("Hm")], "A_NEW_REASON"),
    "unspecified": body([say("Hm")], "FINISH_REASON_UNSPECIFIED"),
    "empty": body([say("")]),
    "null": body([say("Hm")], None),
    "null with a call": body([CLOCK], None),
    "nothing": {"usageMetadata": {"promptTokenCount": 4, "totalTokenCount": 4}, **HEAD},
    "blocked prompt": blocked("PROHIBITED_CONTENT"),
    "several": {
        "candidates": [candidate([say("a")], "STOP"), {**candidate([say("b")], "MAX_TOKENS"), "index": 1}],
        "usageMetadata": USAGE,
        **HEAD,
    },
    "vertex": {
        "candidates": [{**candidate([say("Oui.")], "STOP"), "avgLogprobs": -0.25}],
        "usageMetadata": {
            "promptTokenCount": 7,
            "candidatesTokenCount": 2,
            "toolUsePromptTokenCount": 40,
            "totalTokenCount": 49,
            "trafficType": "ON_DEMAND",
        },
        "modelVersion": "gemini-2.5-pro",
        "createTime": "2026-11-21T09:00:00.000Z",
        "responseId": "0q4fafzqD9",
    },
}

STREAMS: dict[str, list[Event]] = {
    "text": [
        chunk([say("Grüezi ")]),
        chunk([say("👋🏽, the ")]),
        chunk([say("answer is 42.\n\n")]),
        chunk([say("  Done. ")], "STOP"),
    ],
    "long text": [*(chunk([say(f"{number} ")]) for number in range(200)), chunk([say("")], "STOP")],
    "length": [chunk([say("The answer")]), chunk([say(" is")]), chunk(None, "MAX_TOKENS")],
    "reasoning": [
        chunk([say("**Six** ", thought=True)]),
        chunk([say("times seven", thought=True)]),
        chunk([say("4")]),
        chunk([say("2")]),
        chunk([say("", thoughtSignature=SIGNATURE)], "STOP"),
    ],
    # The call and the reason come in different chunks.
    "tool calls": [chunk([say("Looking.")]), chunk([WEATHER]), chunk([CLOCK]), chunk([say("")], "STOP")],
    "calls in one chunk": [chunk([WEATHER, CLOCK], "STOP")],
    "cut call": [chunk([WEATHER]), chunk([CLOCK]), chunk(None, "MAX_TOKENS")],
    # Vertex AI with `streamFunctionCallArguments`.
    "streamed arguments": [
        chunk([partial(name="write", id="fc-2")]),
        chunk([partial({"jsonPath": "$.path", "stringValue": "a.txt"})]),
        chunk([partial({"jsonPath": "$.text", "stringValue": "Grüe", "willContinue": True})]),
        chunk([partial({"jsonPath": "$.text", "stringValue": "zi", "willContinue": True})]),
        chunk(
            [partial({"jsonPath": "$.lines[0].n", "numberValue": 7}, {"jsonPath": "$.lines[0].on", "boolValue": True})]
        ),
        chunk([partial({"jsonPath": "$['no.ne']", "nullValue": "NULL_VALUE"}, more=False)]),
        chunk([partial(more=False)]),
        chunk([CLOCK]),
        chunk(None, "STOP"),
    ],
    "streamed arguments, cut": [
        chunk([partial(name="write")]),
        chunk([partial({"jsonPath": "$.path", "stringValue": "a.t", "willContinue": True})]),
        chunk(None, "MAX_TOKENS"),
    ],
    "server tools": [chunk([CODE]), chunk([RAN]), chunk([say("42.")]), chunk(None, "STOP")],
    "paused": [
        chunk([say("So")], continuationToken="Y2hlY2s="),
        chunk([say(" far")]),
        chunk(None, "CONTINUATION", continuationToken="bmV4dA=="),
    ],
    "safety": [chunk([say("Once upon")]), chunk(None, "SAFETY")],
    "malformed call": [chunk([say("Hm")]), chunk(None, "MALFORMED_FUNCTION_CALL", finishMessage="print(")],
    "blocked prompt": [Event(None, blocked("SAFETY"))],
    "cut": [chunk([say("Once ")]), chunk([say("upon")])],
    "cut in a call": [chunk([CLOCK])],
    # gemini-pro 1.0 said STOP with every chunk.
    "a reason with every chunk": [
        chunk([say("Once ")], "STOP"),
        chunk([say("upon ")], "STOP"),
        chunk([say("a time")], "STOP"),
    ],
    # A translating proxy says STOP with chunks that hold no words, before the text too.
    "a reason too early": [chunk([], "STOP"), chunk([say("Once ")]), chunk([say("upon")]), chunk([], "STOP")],
    "traffic": [
        Event(None, {"candidates": [candidate([say("O")])], "usageMetadata": {"trafficType": "ON_DEMAND"}, **HEAD}),
        Event(None, {"candidates": [candidate([say("ui")])], "usageMetadata": {"trafficType": "ON_DEMAND"}, **HEAD}),
        chunk([say(".")], "STOP"),
        Event(None, {"usageMetadata": {"trafficType": "ON_DEMAND"}, **HEAD}),
    ],
    "several": [
        Event(
            None,
            {"candidates": [candidate([say(word)]), {**candidate([say("x")]), "index": 1}], **HEAD},
        )
        for word in ("Once ", "upon")
    ]
    + [Event(None, {"candidates": [{**candidate([say("y")], "SAFETY"), "index": 1}], **HEAD}), chunk(None, "STOP")],
}


def body_object(reply: Json) -> types.GenerateContentResponse:
    """A body as the SDK hands it out."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # The SDK warns of reasons that it does not know.
        return types.GenerateContentResponse.model_validate(reply)


def event_objects(events: Sequence[Event]) -> list[Any]:
    """Chunks as the SDK hands them out."""
    return [body_object(event.data) for event in events]
