"""Results of Gemini's batches, from its own API or from Vertex AI: JSON lines, in any order.

The Gemini API writes `{key, response}` or `{key, error}`; Vertex AI writes `{status,
processed_time, request, response}`, with the error as the text of `status`. Each request is a
separate turn.

Source of the facts: Google's documentation of both batch APIs.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

from endturn.scan.batches import BatchResult, turns_of
from endturn.scan.bodies import call_of_body, failed_call, kind_of_error
from endturn.scan.fields import mapping, objects, text, time_ns
from endturn.scan.head import FileHead
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source

TITLE: Final = "Gemini batch"
NEEDLES: Final = (b'"response"', b'"error"')


def recognises(head: FileHead) -> bool:
    """Return whether the lines are results."""
    return any(map(_is_own, head.records))


def _is_own(record: Mapping[str, Any]) -> bool:
    if _is_of_vertex(record):
        return True
    if not isinstance(record.get("key"), str):
        return False
    response = mapping(record.get("response"))
    is_error = "code" in mapping(record.get("error")) or "status" in mapping(record.get("error"))
    return is_error or "candidates" in response or "promptFeedback" in response


def _is_of_vertex(record: Mapping[str, Any]) -> bool:
    request = mapping(record.get("request"))
    return "status" in record and "response" in record and isinstance(request.get("contents"), list)


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield a turn for each result."""
    return turns_of(_results(file))


def _results(file: ScannedFile) -> Iterator[BatchResult]:
    for offset, record in file.records(*NEEDLES):
        if not _is_of_vertex(record) and not isinstance(record.get("key"), str):
            continue
        if not isinstance(record.get("response"), dict) and not record.get("error"):
            continue
        call, name = _call_of(record), text(record.get("key"))
        call.offset = offset
        turn = PastTurn(id=call.key, source=TITLE, session=name, calls=[call])
        # no two batches of Vertex AI have results with the same request and time
        has_moment = _is_of_vertex(record) and call.ended_ns is not None
        yield BatchResult(turn, name, has_id=bool(call.response.id) or has_moment)


def _call_of(record: Mapping[str, Any]) -> PastCall:
    request, response = mapping(record.get("request")), mapping(record.get("response"))
    provider = "gcp.vertex_ai" if _is_of_vertex(record) else "gcp.gemini"
    at_ns = time_ns(record.get("processed_time"))
    failure = record.get("error") or text(record.get("status"))
    if failure and not response.get("candidates"):
        # the status of Vertex AI is the error's text, which may quote the request
        name = text(record.get("key")) or _digest(request)
        call = failed_call(f"{name} {at_ns}", kind_of_error(failure), provider=provider)
    else:
        # several batches may have the same keys, and early responses have no id
        name = "" if response.get("responseId") else _digest(record)
        call = call_of_body(
            response, format_name="gemini", provider=provider, request=request or None, key=name
        )
    call.started_ns, call.ended_ns = time_ns(response.get("createTime")), at_ns
    return call


def _digest(record: Mapping[str, Any]) -> str:
    data = json.dumps(record, sort_keys=True).encode("utf-8", "replace")
    return blake2b(data, digest_size=16).hexdigest()


def answer_text(records: Iterable[Mapping[str, Any]], key: str) -> str:
    """Return the text of a response."""
    response = mapping(next(iter(records), {}).get("response"))
    candidate = next(iter(objects(response.get("candidates"))), {})
    parts = objects(mapping(candidate.get("content")).get("parts"))
    return "".join(text(part.get("text")) for part in parts if not part.get("thought"))


SOURCE: Final = Source(
    name="gemini_batch",
    title=TITLE,
    recognises=recognises,
    read=read,
    text=answer_text,
    advice="raise maxOutputTokens of the requests, and send those whose answers were cut again",
)
