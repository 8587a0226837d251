"""Results of a batch in OpenAI's format, which Azure and others write too: JSON lines.

Each line is `{id, custom_id, response: {status_code, request_id, body}, error}`, in any order; the
failed requests are in a separate file. Each request is a separate turn.

Source of the facts: OpenAI's documentation of the Batch API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.scan.batches import BatchResult, turns_of
from endturn.scan.bodies import call_of_body, failed_call, format_in, kind_of_error
from endturn.scan.fields import count, items, mapping, objects, text, time_ns
from endturn.scan.head import FileHead
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source

TITLE: Final = "OpenAI batch"
NEEDLES: Final = (b'"custom_id"',)
_EXPIRED: Final = "batch_expired"
_CANCELLED: Final = "batch_cancelled"


def recognises(head: FileHead) -> bool:
    """Return whether the lines are results."""
    return any(map(_is_own, head.records))


def _is_own(record: Mapping[str, Any]) -> bool:
    if not isinstance(record.get("custom_id"), str) or "result" in record:
        return False
    response = mapping(record.get("response"))
    has_error = "response" in record and isinstance(record.get("error"), dict)
    return has_error or isinstance(response.get("body"), dict)


def is_companion(head: FileHead) -> bool:
    """Return whether the lines are a batch's requests."""
    return any(
        "custom_id" in record and isinstance(record.get("body", record.get("params")), dict)
        for record in head.records
    )


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield a turn for each result."""
    return turns_of(_results(file))


def _results(file: ScannedFile) -> Iterator[BatchResult]:
    for offset, record in file.records(*NEEDLES):
        if not _is_own(record):
            continue
        call = _call_of(record)
        if call is None:
            continue
        call.offset = offset
        name = text(record.get("custom_id"))
        turn = PastTurn(
            id=call.key,
            source=TITLE,
            session=name,
            calls=[call],
            started_ns=call.started_ns,
            is_interrupted=call.error == _CANCELLED,
        )
        yield BatchResult(turn, name, has_id=bool(call.response.id or _request_id(record)))


def _request_id(record: Mapping[str, Any]) -> str:
    """Return the id of a request in its batch; "" if it has none."""
    return text(record.get("id")) or text(mapping(record.get("response")).get("request_id"))


def _call_of(record: Mapping[str, Any]) -> PastCall | None:
    """Return the call of a result; None if it is not a model's answer, such as an embedding."""
    response = mapping(record.get("response"))
    body, status = mapping(response.get("body")), count(response.get("status_code"))
    name = f"{_request_id(record)} {text(record.get('custom_id'))}"
    format_name = format_in(body)
    error = record.get("error") or (body.get("error") if format_name is None else None)
    if error:
        return failed_call(name, kind_of_error({"code": mapping(error).get("code")}, status, error))
    if format_name is None:
        return None
    is_echo = format_name == "openai_responses"  # its body repeats the settings of the request
    call = call_of_body(body, format_name=format_name, request=body if is_echo else None, key=name)
    # servers with a copy of the API may send ids that are not unique
    call.key = f"{call.key} {text(record.get('custom_id'))}"
    call.started_ns = time_ns(body.get("created")) or time_ns(body.get("created_at"))
    call.ended_ns = time_ns(body.get("completed_at"))
    return call


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response."""
    body = mapping(mapping(next(iter(records), {}).get("response")).get("body"))
    choice = next(iter(objects(body.get("choices"))), {})
    words = text(mapping(choice.get("message")).get("content")) or text(choice.get("text"))
    return words or "".join(
        text(mapping(part).get("text"))
        for item in objects(body.get("output"))
        for part in items(item.get("content"))
    )


SOURCE: Final = Source(
    name="openai_batch",
    title=TITLE,
    recognises=recognises,
    is_companion=is_companion,
    read=read,
    text=answer_text,
    advice="raise max_completion_tokens (max_output_tokens) of the requests, and send those"
    " whose answers were cut again",
)
