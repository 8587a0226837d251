"""Invocation logs that Amazon Bedrock writes to S3: JSON lines, mostly in gzip.

Each record holds the body of a request and that of its answer; for a stream, the latter is a list
of its events. A body that is large, or not text, is in a separate file or missing: then the answer
is unknown. Each record is a turn of its own.

Source of the facts: AWS's documentation of model invocation logging.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from endturn.scan.bodies import call_of_body, failed_call, kind_of_error
from endturn.scan.fields import count, mapping, objects, text, time_ns
from endturn.scan.head import FileHead, FileShape
from endturn.scan.past_calls import PastCall, PastTurn
from endturn.scan.scanned_file import ScannedFile
from endturn.scan.source import Source
from endturn.vocabulary import Usage

TITLE: Final = "Bedrock log"
PROVIDER: Final = "aws.bedrock"
SCHEMA: Final = "ModelInvocationLog"
NEEDLES: Final = (SCHEMA.encode(),)
_NO_CHAT: Final = ("embed", "rerank", "stable-", "image", "canvas", "reel", "sonic")
"""Parts of the names of models that do not generate text."""


def recognises(head: FileHead) -> bool:
    """Return whether the records are invocation logs."""
    return any(record.get("schemaType") == SCHEMA for record in head.records)


def read(file: ScannedFile) -> Iterator[PastTurn]:
    """Yield a turn for each record."""
    for offset, record in _records(file):
        model = text(record.get("modelId")).rpartition("/")[2]
        is_chat = not any(word in model for word in _NO_CHAT)
        if record.get("schemaType") != SCHEMA or not is_chat:
            continue
        call = _call_of(record, model)
        call.offset = offset
        yield PastTurn(
            id=call.key,
            source=TITLE,
            session=text(record.get("requestId")),
            project=text(mapping(record.get("requestMetadata")).get("project")),
            calls=[call],
            started_ns=call.started_ns,
        )


def _records(file: ScannedFile) -> Iterator[tuple[int | None, Mapping[str, Any]]]:
    if file.head.shape is FileShape.LINES:
        yield from file.records(*NEEDLES)
        return
    value = file.value()
    for record in objects(value if isinstance(value, list) else [value]):
        yield None, record


def _call_of(record: Mapping[str, Any], model: str) -> PastCall:
    input_record, output_record = mapping(record.get("input")), mapping(record.get("output"))
    key = text(record.get("requestId")) or f"{record.get('timestamp')} {model}"
    started_ns = time_ns(record.get("timestamp"))
    if error := record.get("errorCode"):
        call = failed_call(key, kind_of_error(None, error), model=model, provider=PROVIDER)
    else:
        is_converse = text(record.get("operation")).startswith("Converse")
        call = call_of_body(
            _parsed(output_record.get("outputBodyJson")),
            format_name="bedrock_converse" if is_converse else "bedrock_invoke",
            provider=PROVIDER,
            request={**mapping(_parsed(input_record.get("inputBodyJson"))), "model": model},
        )
        call.request = replace(call.request, model=model)
        call.key = key
        _add_counts(call, input_record, output_record)
    call.started_ns = started_ns
    return call


def _add_counts(
    call: PastCall, input_record: Mapping[str, Any], output_record: Mapping[str, Any]
) -> None:
    """Use the counts of the record if the body has none."""
    usage = call.response.usage
    if usage is None or usage.output_tokens is None:
        counted = Usage(
            input_tokens=count(input_record.get("inputTokenCount")),
            output_tokens=count(output_record.get("outputTokenCount")),
        )
        call.response = replace(call.response, usage=counted)


def _parsed(body: Any) -> Any:
    """Return a body, which may be JSON text in a JSON string."""
    if not isinstance(body, str):
        return body
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


SOURCE: Final = Source(
    name="bedrock_log",
    title=TITLE,
    shapes=(FileShape.LINES, FileShape.VALUE),
    recognises=recognises,
    read=read,
    advice="raise maxTokens (max_tokens) of the requests",
)
