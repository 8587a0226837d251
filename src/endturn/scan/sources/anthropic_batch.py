"""Results of Anthropic's message batches: JSON lines, in any order.

Each line is `{custom_id, result: {type, message}}`, where the type is `succeeded`, `errored`,
`canceled` or `expired`. Each request is a separate turn.

Source of the facts: Anthropic's documentation of the Message Batches API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.scan.batches import BatchResult, turns_of
from endturn.scan.bodies import call_of_body, failed_call, kind_of_error
from endturn.scan.fields import mapping, objects, text
from endturn.scan.head import FileHead
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source

TITLE: Final = "Anthropic batch"
NEEDLES: Final = (b'"custom_id"',)
_CANCELLED: Final = "canceled"
_TYPES: Final = frozenset({"succeeded", "errored", _CANCELLED, "expired"})


def recognises(head: FileHead) -> bool:
    """Return whether the lines are results."""
    return any(map(_is_own, head.records))


def _is_own(record: Mapping[str, Any]) -> bool:
    kind = text(mapping(record.get("result")).get("type"))
    return isinstance(record.get("custom_id"), str) and kind in _TYPES


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield a turn for each result."""
    return turns_of(_results(file))


def _results(file: ScannedFile) -> Iterator[BatchResult]:
    for offset, record in file.records(*NEEDLES):
        if not _is_own(record):
            continue
        call, name = _call_of(record), text(record["custom_id"])
        call.offset = offset
        turn = PastTurn(
            id=call.key,
            source=TITLE,
            session=name,
            calls=[call],
            is_interrupted=call.error == _CANCELLED,
        )
        request_id = text(mapping(mapping(record["result"]).get("error")).get("request_id"))
        yield BatchResult(turn, name, has_id=bool(call.response.id or request_id))


def _call_of(record: Mapping[str, Any]) -> PastCall:
    result = mapping(record.get("result"))
    name, kind = text(record.get("custom_id")), text(result.get("type"))
    if kind == "succeeded":
        message = mapping(result.get("message"))
        return call_of_body(message, format_name="anthropic", provider="anthropic", key=name)
    error = mapping(result.get("error"))
    error = mapping(error.get("error")) or error
    return failed_call(
        f"{name} {kind} {text(mapping(result.get('error')).get('request_id'))}",
        kind_of_error(error) if kind == "errored" else kind,
        provider="anthropic",
    )


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response."""
    message = mapping(mapping(next(iter(records), {}).get("result")).get("message"))
    return "".join(text(block.get("text")) for block in objects(message.get("content")))


SOURCE: Final = Source(
    name="anthropic_batch",
    title=TITLE,
    recognises=recognises,
    read=read,
    text=answer_text,
    advice="raise max_tokens of the requests, and send those whose answers were cut again",
)
