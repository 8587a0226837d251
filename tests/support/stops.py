"""The fields of a Stop that readers of frameworks set, and values that no reader accepts."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from endturn.vocabulary.stop import Stop


class StopFields(NamedTuple):
    """Fields of a Stop as public values. The defaults are those of a recognised, plain reason."""

    reason: str
    raw: str | None
    resume: str = "none"
    detail: str | None = None
    promoted_from: str | None = None
    suspected: bool = False
    mapped: bool = True

    @classmethod
    def of(cls, stop: Stop) -> StopFields:
        """Return the fields of a Stop."""
        promoted_from = None if stop.promoted_from is None else stop.promoted_from.value
        return cls(
            stop.reason.value,
            stop.raw,
            stop.resume.value,
            stop.detail,
            promoted_from,
            stop.suspected,
            stop.mapped,
        )


WRONG_TYPES: Final[dict[str, dict[str, Any]]] = {
    "numbers for objects": {
        "kind": "response",
        "finish_reason": 3,
        "finishReason": [],
        "gen_ai.system": 1,
        "generations": "x",
        "choices": 3,
        "response_metadata": [1],
        "provider_details": 3,
        "parts": 7,
    },
    "a nested reason": {
        "kind": "response",
        "finish_reason": {"type": {"type": 1}},
        "finishReason": [],
        "gen_ai.system": 1,
        "generations": [[]],
        "choices": [None],
        "usage": [],
        "state": {},
    },
    "numbers for texts": {
        "kind": "response",
        "finish_reason": 3,
        "finishReason": [],
        "gen_ai.system": 1,
        "generations": None,
        "response_metadata": {"finish_reason": 3, "model_provider": 5, "status": 2},
        "unified": 5,
        "raw": [],
    },
    "text for a number": {
        "kind": "response",
        "finish_reason": 3,
        "finishReason": [],
        "gen_ai.system": 1,
        "generations": {},
        "gen_ai.response.finish_reasons": [None],
        "gen_ai.request.max_tokens": "many",
    },
}
"""Responses of several frameworks at once, whose fields have values of the wrong types."""

CONTENT: Final = "Hi."
"""The text in NOT_RESPONSES, which an error message must not repeat."""

NOT_RESPONSES: Final[dict[str, Any]] = {
    "a list with a number": ["stop", 3],
    "a chat message": {"role": "assistant", "content": CONTENT},
    "a LangChain human message": {"type": "human", "content": CONTENT, "id": None},
    "a Pydantic AI request": {
        "kind": "request",
        "parts": [{"part_kind": "user-prompt", "content": CONTENT}],
        "instructions": None,
    },
    "an update of a graph": {"model": {"messages": []}},
    "attributes of an HTTP span": {"http.request.method": "POST", "http.response.status_code": 200},
    "a span as OTLP JSON": {
        "attributes": [{"key": "gen_ai.request.model", "value": {"stringValue": "m"}}],
    },
}
"""Values that no reader accepts."""

PLAIN_VALUES: Final[dict[str, Any]] = {
    "None": None,
    "text": "stop",
    "a number": 3,
    "a list": ["stop"],
}
"""Values without fields."""
