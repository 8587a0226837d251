"""Calls of model APIs in HTTP archives (HAR), which browsers and proxies save.

A request is a model call if its path is that of a format. The body of its answer is read as in live
instrumentation; a stream without an end in the archive broke off. Headers and queries, which hold
keys, are not read.

Source of the facts: the HAR 1.2 specification.
"""

from __future__ import annotations

import binascii
import json
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from endturn.errors import DecodeError
from endturn.formats import FORMATS, begins_stream, decoder, format_of
from endturn.scan.bodies import call_of_body, failed_call, turn_id
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import Evidence, PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Stop, StopReason, provider_at

TITLE: Final = "HAR"
BROKEN_OFF_STOP: Final = Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
"""The stop of a stream that has no end in the archive."""


def recognises(head: FileHead) -> bool:
    """Return whether the value is an archive."""
    if not head.records:
        words = (b'"log"', b'"version"', b'"creator"')
        return head.shape is FileShape.VALUE and all(word in head.text for word in words)
    log = mapping(head.records[0].get("log"))
    return isinstance(log.get("entries"), list) and "version" in log


@dataclass(frozen=True, slots=True)
class _HarRequest:
    """A request of a model API: its format, provider, and body, with the facts from its path."""

    format_name: str
    provider: str
    host: str
    body: Mapping[str, Any]


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield the turns of an archive's model calls."""
    turns: list[PastTurn] = []
    waiting: dict[str, PastTurn] = {}
    at_once: Counter[str] = Counter()
    for entry in objects(mapping(mapping(file.value()).get("log")).get("entries")):
        request = _request_of(mapping(entry.get("request")))
        if request is None:
            continue
        moment = f"{entry.get('startedDateTime')} {request.host}"
        at_once[moment] += 1
        call = _call_of(entry, request, f"{moment} {at_once[moment]}")
        # a request that repeats a turn's messages belongs to it if it contains tool results
        identity = turn_id(request.host, request.body.get("messages"))
        turn = waiting.get(identity or "")
        if turn is None or not turn.calls[-1].tool_calls:
            turn = PastTurn(id=call.key, source=TITLE, project=request.host)
            turn.started_ns = call.started_ns
            turns.append(turn)
        turn.calls.append(call)
        if identity is not None:
            waiting[identity] = turn
    yield from turns


def _request_of(request: Mapping[str, Any]) -> _HarRequest | None:
    """Return a request of a model API; None for any other."""
    try:
        url = urlsplit(text(request.get("url")))
        host, port = url.hostname or "", url.port
    except ValueError:
        return None
    method, path = text(request.get("method")), url.path.rstrip("/")
    while path:
        for name in FORMATS:
            routed = format_of(name).match_path(method, path)
            if routed is not None and routed.retrieve is None:
                body = dict(_parsed(mapping(request.get("postData")).get("text")))
                if routed.model:
                    body["model"] = routed.model
                return _HarRequest(name, provider_at(host, port), host, body)
        # a gateway may prefix the format's path
        path = path[path.find("/", 1) :] if path.find("/", 1) > 0 else ""
    return None


def _call_of(entry: Mapping[str, Any], request: _HarRequest, key: str) -> PastCall:
    response = mapping(entry.get("response"))
    status, started = count(response.get("status")), entry.get("startedDateTime")
    if status is None or not 200 <= status < 300:
        model = text(request.body.get("model"))
        error = str(status) if status else "connection"
        call = failed_call(key, error, model=model, provider=request.provider)
    else:
        body, is_stream = _body_of(mapping(response.get("content")), request.format_name)
        call = call_of_body(
            body,
            format_name=request.format_name,
            provider=request.provider,
            request=request.body,
            key=key,
        )
        if is_stream and body and call.evidence is Evidence.NOT_RECORDED:
            call.evidence = Evidence.RECORDED
            call.response = replace(call.response, stop=BROKEN_OFF_STOP)
    call.started_ns = time_ns(started)
    duration = entry.get("time")
    if call.started_ns is not None and isinstance(duration, int | float) and 0 < duration < 1e9:
        call.ended_ns = call.started_ns + int(duration * 1e6)
    return call


def _body_of(content: Mapping[str, Any], format_name: str) -> tuple[Any, bool]:
    """Return the body of an answer, or the events of a stream, and whether it is a stream."""
    data = text(content.get("text")).encode("utf-8", "replace")
    if content.get("encoding") == "base64":
        try:
            data = b64decode(data)
        except (binascii.Error, ValueError):
            return None, False
    framing = format_of(format_name).framing
    stripped = data.lstrip()
    if stripped[:1] in (b"{", b"["):
        try:
            return json.loads(data), False
        except (ValueError, RecursionError):
            pass
    if not data or not begins_stream(stripped, framing):
        return None, False
    reading = decoder(framing)
    events: list[Any] = []
    try:
        events.extend(event.data for event in reading.feed(data))
        events.extend(event.data for event in reading.close())
    except DecodeError:
        pass  # events before the damage count
    return events, True


def _parsed(data: Any) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(data))
    except (TypeError, ValueError, RecursionError):
        return {}


SOURCE: Final = Source(
    name="har",
    title=TITLE,
    shapes=(FileShape.VALUE,),
    recognises=recognises,
    read=read,
    advice="raise the limit of the requests",
)
