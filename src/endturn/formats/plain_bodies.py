"""Read the facts of whole response bodies of the usual shape, without their text.

The readers of `endturn.formats.apis` accept whatever a server may send, and read each part of it. A
scan of millions of batch results needs only the reason, the usage and the ids, and nearly all
bodies have the same few members. A body with any other member gets None here; `summarize` reads it,
and is the source of truth: for bodies that both read, they return the same facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count as count_from
from typing import Any, Final, NamedTuple, TypeGuard

from endturn.calls import RequestedCall, ResponseFacts
from endturn.formats.apis import anthropic, gemini
from endturn.formats.apis.openai_chat import usage_of as chat_usage
from endturn.formats.call_arguments import finished_calls
from endturn.formats.chat_answers import NO_REASON
from endturn.formats.reading import mint_id
from endturn.formats.summaries import Context
from endturn.vocabulary import NO_GENERATION, Row, Usage, find_stop


class PlainFacts(NamedTuple):
    """The facts of a plain body.

    Attributes:
        response: as in the summary of the body, without the number of its characters.
        tool_calls: the client tool calls.
    """

    response: ResponseFacts
    tool_calls: Sequence[RequestedCall]


class _BodyMembers(NamedTuple):
    """The members of a body that count, in any format."""

    id: str
    model: str | None
    raw: str
    usage: Usage | None
    tool_calls: Sequence[RequestedCall] = ()
    detail: str | None = None
    is_refused: bool = False


def plain_facts(
    format_name: str, context: Context, rows: Mapping[str, Row], body: Mapping[str, Any]
) -> PlainFacts | None:
    """Return the facts of a whole body; None if it is not of the usual shape.

    Args:
        format_name: as in `endturn.formats.FORMATS`.
        context: of the response.
        rows: the stop reasons of the response, by their words.
        body: as JSON has it.
    """
    reader = _READERS.get(format_name)
    members = None if reader is None or context.window is not None else reader(body)
    if members is None or not members.raw.isascii() or not members.raw.strip():
        return None
    row = rows.get(members.raw)
    if row is None or row.detail == NO_GENERATION or context.request.compaction:
        return None
    usage = members.usage
    stop = find_stop(
        members.raw,
        rows,
        calls=len(members.tool_calls),
        calls_closed=not row.incomplete,
        output_tokens=None if usage is None else usage.output_tokens,
        prompt_tokens=None if usage is None else usage.input_tokens,
        maximum=context.request.facts.max_tokens,
        refused=members.is_refused,
        detail=members.detail,
    )
    response = ResponseFacts(
        stop=stop, id=members.id, model=members.model, usage=usage, reasons=(members.raw,)
    )
    return PlainFacts(response, members.tool_calls)


def _is_word(value: Any) -> TypeGuard[str]:
    return value.__class__ is str and value != "" and value.isascii()


# --- Chat completions -----------------------------------------------------------------------------

_CHAT_EXTRAS: Final = frozenset({"stats", "model_info", "error", "x_groq", "base_resp", "errors"})
_CHOICE_MEMBERS: Final = frozenset({"index", "message", "logprobs", "finish_reason"})
_CALL_MEMBERS: Final = frozenset({"id", "type", "function", "index"})


def _chat_members(body: Mapping[str, Any]) -> _BodyMembers | None:
    choices, id_, model = body.get("choices"), body.get("id"), body.get("model")
    if (
        choices.__class__ is not list
        or len(choices) != 1
        or not (_is_word(id_) and _is_word(model) and _CHAT_EXTRAS.isdisjoint(body))
    ):
        return None
    choice = choices[0]
    if choice.__class__ is not dict or choice.get("index") != 0:
        return None
    if any(choice[name] is not None for name in choice.keys() - _CHOICE_MEMBERS):
        return None
    message, raw = choice.get("message"), choice.get("finish_reason")
    if message.__class__ is not dict or raw.__class__ is not str or raw in NO_REASON:
        return None
    content, refusal = message.get("content"), message.get("refusal")
    if not (content is None or content.__class__ is str) or not (refusal is None or refusal == ""):
        return None
    if message.get("function_call") or message.get("audio"):
        return None
    calls: Sequence[RequestedCall] = ()
    if tool_calls := message.get("tool_calls"):
        calls = _chat_calls(tool_calls)
        if not calls:
            return None
    return _BodyMembers(id_, model, raw, chat_usage(body.get("usage")), calls)


def _chat_calls(tool_calls: Any) -> Sequence[RequestedCall]:
    """Return the calls of a message; none of them if one is not plain."""
    if tool_calls.__class__ is not list:
        return ()
    for call in tool_calls:
        if call.__class__ is not dict or not call.keys() <= _CALL_MEMBERS:
            return ()
        if call.get("id") == "null":
            return ()
    return finished_calls(
        (call["id"], call["function"]["name"], call["function"]["arguments"]) for call in tool_calls
    )


# --- Anthropic ------------------------------------------------------------------------------------

_BLOCKS: Final = frozenset({"text", "thinking", "redacted_thinking"})


def _anthropic_members(body: Mapping[str, Any]) -> _BodyMembers | None:
    content, raw = body.get("content"), body.get("stop_reason")
    id_, model, detail = body.get("id"), body.get("model"), body.get("stop_sequence")
    if (
        body.get("type") != "message"
        or content.__class__ is not list
        or raw.__class__ is not str
        or not (_is_word(id_) and _is_word(model))
        or not (detail is None or _is_word(detail))
        or body.get("stop_details") is not None
    ):
        return None
    blocks = []
    for block in content:
        if block.__class__ is not dict:
            return None
        kind = block.get("type")
        if kind == "tool_use":
            blocks.append(block)
        elif kind.__class__ is not str or kind not in _BLOCKS:
            return None
    calls: Sequence[RequestedCall] = ()
    if blocks:
        calls = finished_calls((block["id"], block["name"], block["input"]) for block in blocks)
        if not calls or not all(block["input"].__class__ is dict for block in blocks):
            return None
    return _BodyMembers(id_, model, raw, anthropic.usage_of(body.get("usage")), calls, detail)


# --- Gemini ---------------------------------------------------------------------------------------

_GEMINI_MEMBERS: Final = frozenset(
    {"candidates", "usageMetadata", "modelVersion", "responseId", "createTime"}
)
_TEXT_MEMBERS: Final = frozenset({"text", "thought", "thoughtSignature"})
_CALL_PART: Final = frozenset({"functionCall", "thoughtSignature"})
_CALL: Final = frozenset({"id", "name", "args"})


def _gemini_members(body: Mapping[str, Any]) -> _BodyMembers | None:
    candidates, id_, model = (
        body.get("candidates"),
        body.get("responseId"),
        body.get("modelVersion"),
    )
    if (
        not body.keys() <= _GEMINI_MEMBERS
        or candidates.__class__ is not list
        or len(candidates) != 1
        or not (_is_word(id_) and _is_word(model))
    ):
        return None
    candidate = candidates[0]
    if candidate.__class__ is not dict or candidate.get("index", 0) != 0:
        return None
    content, raw = candidate.get("content"), candidate.get("finishReason")
    if content.__class__ is not dict or raw.__class__ is not str or "." in raw:
        return None
    if "continuationToken" in candidate:
        return None
    parts = content.get("parts", [])
    if parts.__class__ is not list:
        return None
    functions = []
    for part in parts:
        if part.__class__ is not dict:
            return None
        if "functionCall" in part and part.keys() <= _CALL_PART:
            functions.append(part["functionCall"])
        elif not part.keys() <= _TEXT_MEMBERS:
            return None
    calls: Sequence[RequestedCall] = ()
    if functions:
        calls = _gemini_calls(functions, id_)
        if not calls:
            return None
    return _BodyMembers(id_, model, raw, gemini.usage_of(body.get("usageMetadata")), calls)


def _gemini_calls(functions: Sequence[Any], response_id: str) -> Sequence[RequestedCall]:
    """Return the calls of a candidate; none of them if one is not plain."""
    for call in functions:
        if call.__class__ is not dict or not call.keys() <= _CALL:
            return ()
        if call.get("args").__class__ is not dict:
            return ()
    return finished_calls(
        (call.get("id") or mint_id(response_id, number, call["name"]), call["name"], call["args"])
        for number, call in zip(count_from(), functions, strict=False)
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], _BodyMembers | None]]] = {
    "openai_chat": _chat_members,
    "anthropic": _anthropic_members,
    "gemini": _gemini_members,
}
