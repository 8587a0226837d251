"""Calls that LiteLLM logged: its standard payload as JSON, one per file or per line.

LiteLLM writes it to S3, to GCS and to other places. It holds the provider's response in OpenAI's
format, unless messages are not logged. Rows of its table of spend logs are read too; their response
is empty unless the proxy was told to store it.

Source of the facts: LiteLLM's documentation and types of StandardLoggingPayload.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.scan.bodies import call_of_body, failed_call, format_in, kind_of_error, turn_id
from endturn.scan.fields import mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import canonical

TITLE: Final = "LiteLLM"
NEEDLES: Final = (b'"call_type"',)
_PAYLOAD: Final = frozenset({"call_type", "status", "startTime", "endTime", "trace_id"})
_SPEND: Final = frozenset({"call_type", "request_id", "spend", "startTime", "endTime"})
_NO_CHAT: Final = (
    "embedding", "image", "moderation", "speech", "transcription", "rerank", "file", "batch",
    "assistant", "thread", "search", "ocr", "video", "vector_store",
)  # fmt: skip
"""Parts of call types that do not request a model's answer."""


def recognises(head: FileHead) -> bool:
    """Return whether the records are payloads, or rows of the table of spend logs."""
    if head.shape is FileShape.VALUE and not head.records:
        return all(f'"{name}"'.encode() in head.text for name in _PAYLOAD)
    return any(map(_is_own, head.records))


def _is_own(record: Mapping[str, Any]) -> bool:
    return record.keys() >= _PAYLOAD or record.keys() >= _SPEND


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of the payloads in a file."""
    turns: dict[str, PastTurn] = {}
    for offset, record in _records(file):
        call_type = text(record.get("call_type"))
        # an answer from LiteLLM's cache is a copy of an earlier one
        is_cached = record.get("cache_hit") in (True, "True")
        if not _is_own(record) or is_cached or any(word in call_type for word in _NO_CHAT):
            continue
        call = _call_of(record)
        call.offset = offset
        session = text(record.get("trace_id")) or text(record.get("session_id"))
        identity = turn_id(session, record.get("messages")) or call.key
        if identity not in turns:
            metadata = mapping(record.get("metadata"))
            turns[identity] = PastTurn(
                id=identity,
                source=TITLE,
                session=session,
                project=text(metadata.get("user_api_key_alias")),
                started_ns=call.started_ns,
            )
        turns[identity].calls.append(call)
    for turn in turns.values():
        turn.calls.sort(key=lambda call: call.started_ns or 0)
        turn.started_ns = turn.calls[0].started_ns
        yield turn


def _records(file: ScannedFile) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    if file.head.shape is FileShape.LINES:
        yield from file.records(*NEEDLES)
        return
    value = file.value()
    for record in objects(value if isinstance(value, list) else [value]):
        yield None, record


def _call_of(record: Mapping[str, Any]) -> PastCall:
    identity = text(record.get("id")) or text(record.get("request_id"))
    model = text(record.get("model"))
    provider = canonical(text(record.get("custom_llm_provider")))
    status = text(record.get("status")) or text(mapping(record.get("metadata")).get("status"))
    if status == "failure":
        error = mapping(record.get("error_information"))
        kind = kind_of_error(None, error.get("error_code"), error.get("error_class"))
        call = failed_call(identity, kind, model=model, provider=provider)
    else:
        body = _body(record.get("response"))
        call = call_of_body(
            body,
            format_name=format_in(body) or "openai_chat",
            provider=provider,
            request={**mapping(record.get("model_parameters")), "model": model},
            key=identity,
        )
    call.started_ns = time_ns(record.get("startTime"))
    call.ended_ns = time_ns(record.get("endTime"))
    return call


def _body(response: Any) -> Mapping[str, Any]:
    if isinstance(response, str):
        try:
            response = json.loads(response)
        except (ValueError, RecursionError):
            return {}
    return mapping(response)


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response."""
    body = _body(next(iter(records), {}).get("response"))
    choice = next(iter(objects(body.get("choices"))), {})
    blocks = objects(body.get("content"))
    return text(mapping(choice.get("message")).get("content")) or "".join(
        text(block.get("text")) for block in blocks
    )


SOURCE: Final = Source(
    name="litellm",
    title=TITLE,
    shapes=(FileShape.LINES, FileShape.VALUE),
    recognises=recognises,
    read=read,
    text=answer_text,
    advice="raise max_tokens of the requests, or in litellm_params of the model",
)
