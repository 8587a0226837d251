"""Answers as frameworks hand them out, read in place for why the model stopped. No framework is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Unpack

from endturn.errors import UsageError
from endturn.formats.reading import count, items, member, text, text_or_none
from endturn.frameworks.paths import METADATA, PROVIDERS_REASON, READS, answer_of, asked, at, holds, speaks, wrong
from endturn.frameworks.rows import (
    REASONS,
    chosen,
    meaning,
    relayed,
    stop_of,
    tables_in,
    tables_of,
)
from endturn.stop import Resume, Row, Stop, StopFacts, StopReason, find_row, raw_text


def langchain(answer: object, *, maximum: int | None = None, window: int | None = None) -> Stop:
    """Why a LangChain answer stopped.

    Args:
        answer: an AIMessage, a chunk or a sum of chunks, a generation, an LLMResult or ChatResult (its first
            generation counts), their `response_metadata` or `generation_info`, or the state of a LangGraph graph (the
            last AI message of its `messages` counts).
        maximum: the output limit that was asked for, if any: a clean end that used it up is suspected.
        window: the model's context window, where known.

    Raises:
        UsageError: that is no answer of LangChain's, or a state without one.
    """
    answer = _langchain_answer(answer)
    generation = at(answer, "generations/0/0", "generations/0") or answer
    message = member(generation, "message") or generation
    found = (at(generation, each) for each in ("message/response_metadata", "response_metadata", "generation_info"))
    metadata: list[Any] = [each for each in found if isinstance(each, Mapping) and each] or [answer]
    raw, row, detail = _said(metadata, member(answer, "llm_output"))
    broken = items(member(message, "invalid_tool_calls"))
    streaming = member(message, "type") == "AIMessageChunk" and member(message, "chunk_position") != "last"
    refused = any(member(part, "type") == "refusal" for part in items(member(message, "content")))
    return stop_of(
        raw,
        row,
        terminal_seen=not streaming or raw_text(raw) is not None,
        calls=len(items(member(message, "tool_calls"))) + len(broken),
        calls_closed=not broken,
        output_tokens=count(at(message, "usage_metadata/output_tokens")),
        prompt_tokens=count(at(message, "usage_metadata/input_tokens")),
        maximum=maximum,
        window=window,
        refused=refused or bool(text(at(message, "additional_kwargs/refusal"))),
        detail=detail,
    )


_OTHERS: Final = ("human", "system", "tool", "function", "remove")
"""LangChain's `type` of messages that no model wrote; of their chunks, the class's name."""


def _langchain_answer(answer: Any) -> Any:
    """An answer of LangChain's; the last AI message of a graph's state."""
    speaks("langchain", answer)
    if text(member(answer, "type")).lower().removesuffix("messagechunk") in _OTHERS:
        raise wrong("langchain", answer)
    history = member(answer, "messages")
    if isinstance(history, list | tuple) and not holds("langchain", answer):
        for each in reversed(history):
            if member(each, "type") in ("ai", "AIMessageChunk"):
                return each
        raise UsageError(
            f"langchain() reads {READS['langchain']}; this state has no AI message among its {len(history)}"
        )
    if isinstance(answer, Mapping) and (not answer or any(name in answer for name in METADATA)):
        return answer
    return answer_of("langchain", answer)


def _said(metadata: Sequence[Any], llm_output: Any) -> tuple[object, Row | None, str | None]:
    """The raw value, its row and the detail beside it, from the first place that has one."""
    for known in metadata:
        tables = tables_of(text(member(known, "model_provider")))
        status = member(known, "status")
        if text(status) and (member(known, "object") == "response" or member(known, "incomplete_details") is not None):
            return *_responses(known), None
        for path, formats in PROVIDERS_REASON.items():
            if raw_text(raw := at(known, path)) is not None:
                whose = tuple(rows for name in formats for rows in tables_in(name, rest=True))
                # LangChain's own word (its JavaScript sets one) counts for a value that no table has.
                own = REASONS["langchain"].get(text(member(known, "normalized_finish_reason")))
                own = None if own is None or own.reason is StopReason.UNKNOWN else own
                return raw, meaning(raw, (*whose, *tables)) or own, text_or_none(member(known, "stop_sequence"))
        if blocked := at(known, "prompt_feedback/block_reason"):
            return blocked, _BLOCKED, None
    blocked = at(llm_output, "prompt_feedback/block_reason")
    return blocked, _BLOCKED if blocked else None, None


def _responses(known: Any) -> tuple[str, Row | None]:
    """A status of OpenAI's Responses with what explains it, spelled as in its table."""
    status = text(member(known, "status")).lower()
    why = {
        "incomplete": member(member(known, "incomplete_details"), "reason"),
        "failed": member(member(known, "error"), "code"),
        "queued": "background" if member(known, "background") else None,
        "in_progress": "background" if member(known, "background") else "foreground EOF",
    }.get(status)
    raw = f"{status}:{why}" if status in ("incomplete", "failed") and why else f"{status}({why})" if why else status
    home = tables_in("openai_responses")
    # A failure without a row of its own is a failure still; a job's state is nobody else's word.
    return raw, meaning(raw, home, any_provider=False) or meaning(status, home)


_BLOCKED: Final = Row(StopReason.SAFETY_BLOCKED, True, source="google-genai 3.4 BlockedReason")
"""Gemini refused the prompt: whatever it says, a filter withheld the answer."""


def litellm(answer: object, *, maximum: int | None = None, window: int | None = None) -> Stop:
    """Why a LiteLLM answer stopped.

    LiteLLM says `stop` for what it does not know, for errors, and for nothing at all (1.106, 1.109); what the provider
    said survives in `provider_specific_fields.native_finish_reason` where it differs, but in no chunk of a stream. A
    value that cannot be checked so has "litellm" for a detail.

    Args:
        answer: a ModelResponse, a chunk, one of their choices (the first counts), or these as mappings.
        maximum, window: as in `langchain`.

    Raises:
        UsageError: that is no answer of LiteLLM's.
    """
    answer = answer_of("litellm", answer)
    choice = at(answer, "choices/0") or answer
    native = at(choice, "provider_specific_fields/native_finish_reason", "native_finish_reason")
    word, part = member(choice, "finish_reason"), member(choice, "message")
    raw, row = _upstream(native, word)
    legacy = member(part, "function_call")
    return stop_of(
        raw,
        row,
        terminal_seen=part is not None or raw_text(raw) is not None,
        calls=len(items(member(part, "tool_calls"))) + bool(legacy),
        output_tokens=count(at(answer, "usage/completion_tokens")),
        prompt_tokens=count(at(answer, "usage/prompt_tokens")),
        maximum=maximum,
        window=window,
        refused=bool(text(member(part, "refusal"))),
        detail="litellm" if raw_text(native) is None and raw_text(word) is not None else None,
    )


def _upstream(native: object, word: object) -> tuple[object, Row | None]:
    """What LiteLLM's upstream said, where LiteLLM tells. It cannot hand on the upstream's own way of resuming."""
    row = relayed(meaning(native, (REASONS["litellm"],)), resumes=(Resume.PROMPT, Resume.REPAIR))
    if raw_text(native) is not None and row is None:
        return native, None  # LiteLLM's word for what it does not know is `stop`.
    return chosen(native, row, word, meaning(word, (REASONS["litellm"],)))


def vercel(finish_reason: object, *, provider: str | None = None) -> Stop:
    """What a finish reason of Vercel's AI SDK means.

    Args:
        finish_reason: `{unified, raw}` (v4 of its specification), a result's `{finishReason, rawFinishReason}`, or the
            word alone. The provider's value counts where any table has it.
        provider: whose value it is, by any name ("openai", "amazon-bedrock").

    Raises:
        UsageError: that is no finish reason, and holds none.
    """
    word, raw = finish_reason, None
    if finish_reason is not None and not isinstance(finish_reason, str):
        speaks("vercel", finish_reason)
        # An empty object is a reason that did not come.
        found = finish_reason if finish_reason == {} else answer_of("vercel", finish_reason)
        word = at(found, "unified/unified", "finishReason/unified", "unified", "finishReason")
        raw = at(found, "raw", "rawFinishReason", "unified/raw", "finishReason/raw")
    return _framed(raw, meaning(raw, tables_of(provider or "")), word, REASONS["vercel.v4"])


def pydantic_ai(response: object, *, maximum: int | None = None) -> Stop:
    """Why a Pydantic AI ModelResponse stopped: its state first, then the provider's value, then its own word.

    Args:
        response: a ModelResponse, one as `ModelMessagesTypeAdapter` dumps it, or a run's result (its last response).
        maximum: as in `langchain`.

    Raises:
        UsageError: that is no ModelResponse, and has none.
    """
    response = _model_response(response)
    details = member(response, "provider_details") or member(response, "vendor_details")
    raw, word, state = member(details, "finish_reason"), member(response, "finish_reason"), member(response, "state")
    row = meaning(raw, tables_of(text(member(response, "provider_name"))))
    if raw_text(raw) is None and raw_text(member(details, "block_reason")) is not None:
        raw, row = member(details, "block_reason"), _BLOCKED
    stop = _framed(
        raw,
        row,
        word,
        REASONS["pydantic-ai"],
        # Calls of tools that the provider runs are "builtin-tool-call".
        calls=sum(member(part, "part_kind") == "tool-call" for part in items(member(response, "parts"))),
        terminal_seen=state != "incomplete",
        output_tokens=count(at(response, "usage/output_tokens")),
        prompt_tokens=count(at(response, "usage/input_tokens")),
        maximum=maximum,
        detail=text_or_none(member(details, "refusal_category")),
    )
    if state == "suspended" and stop.reason is not StopReason.PAUSED:
        # Anthropic's pause_turn has its own row; the other case is a background job, polled by its id.
        return Stop(StopReason.PAUSED, raw_text(raw), resume=Resume.RETRIEVE_SAME_ID, incomplete=True)
    if state == "interrupted":
        if stop.reason is StopReason.MISSING or stop.promoted_from is StopReason.MISSING:
            return Stop(StopReason.CANCELLED, detail="interrupted", terminal_seen=False, incomplete=True)
        return replace(stop, detail="interrupted")  # It had come whole: the run stopped before it acted on it.
    if member(details, "refusal") is not None and raw_text(raw) is None and stop.reason is StopReason.SAFETY_BLOCKED:
        return replace(stop, reason=StopReason.REFUSED)  # The model's own words, kept in place of the reason.
    return stop


def _model_response(response: Any) -> Any:
    """A ModelResponse; the last one of a run's result."""
    speaks("pydantic_ai", response)
    if member(response, "kind") == "response":
        return response
    run = () if isinstance(response, Mapping) else (asked(lambda: response.response),)
    history = items(asked(lambda: response.all_messages())) if run else ()
    found = next((each for each in (*run, *reversed(history)) if member(each, "kind") == "response"), None)
    if found is None:
        raise wrong("pydantic_ai", response)
    return found


def otel(finished: object, *, provider: str | None = None, status: str | None = None) -> Stop:
    """Why a response stopped, from what its span says, in whatever spelling its instrumentation uses.

    A span of `fetch_response` repeats the reasons of the response that it fetched: whoever counts leaves it out.

    Args:
        finished: a span, its attributes, or its `gen_ai.response.finish_reasons` alone. The first position counts.
        provider: as `gen_ai.provider.name`; read from the attributes where they have it.
        status: as `gen_ai.response.status`, for a response that has no reason yet.

    Raises:
        UsageError: that is none of these; a span that tells of no model is not.
    """
    if not isinstance(finished, str | list | tuple):
        known: Any = _span_attributes(finished)
        reasons = at(known, "gen_ai.response.finish_reasons", "llm.finish_reason")  # the second is OpenInference's
        provider = provider or text_or_none(member(known, "gen_ai.provider.name"))
        status = status or text_or_none(member(known, "gen_ai.response.status"))
    else:
        known, reasons = None, finished
        if (other := next((each for each in items(finished) if not isinstance(each, str | None)), None)) is not None:
            raise wrong("otel", other)
    raw: Any = reasons if isinstance(reasons, str) else next(iter(items(reasons)), None)
    if raw_text(raw) is None and status:
        raw, row = _responses({"status": status, "background": True})
    else:
        row = meaning(raw, (REASONS["otel.util-genai"], *tables_of(provider or "")))
    return stop_of(
        raw,
        relayed(row),
        output_tokens=count(member(known, "gen_ai.usage.output_tokens")),
        maximum=count(member(known, "gen_ai.request.max_tokens")),
    )


def _span_attributes(span: Any) -> Mapping[str, Any]:
    """The attributes of a span that tells of a model; of one that records nothing, none."""
    speaks("otel", span)
    known = member(span, "attributes")
    if known is None:
        known = span if isinstance(span, Mapping) else {} if hasattr(span, "get_span_context") else None
    if not isinstance(known, Mapping) or (
        known and not any(str(name).startswith(("gen_ai.", "llm.")) for name in known)
    ):
        raise wrong("otel", known if isinstance(known, Mapping) else span)
    return known


def _framed(raw: object, row: Row | None, word: object, words: Mapping[str, Row], **known: Unpack[StopFacts]) -> Stop:
    """The Stop of a response for which a framework gives its own word beside the provider's value."""
    word_row = find_row(raw_text(word) or "", words)
    if word_row is not None and word_row.reason is StopReason.TOOL_CALL:
        # A framework that says "tool call" where the provider said "stop" has seen the calls.
        known["calls"] = known.get("calls") or 1
    return stop_of(*chosen(raw, row, word, word_row), **known)
