"""InvokeModel of Amazon Bedrock: an envelope around each model family's own format."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

from endturn.chat import ChatResponse, Json, Request, Usage
from endturn.errors import DecodeError
from endturn.events import Strategy
from endturn.formats import bedrock_invoke_families as families, fold
from endturn.formats.bedrock_converse import reply_error as reply_error
from endturn.formats.errors import shortened
from endturn.formats.format import Format
from endturn.formats.framing import DONE, parse
from endturn.formats.parts import End, Fault, InFormat, Part, Tokens, Unreadable, Vocabulary
from endturn.formats.reading import count, member, text
from endturn.formats.routes import SEGMENTS, routed_by
from endturn.formats.summaries import Context, Event, Framing, RequestSummary, Route, Voice
from endturn.stop import Row, StopReason

NAME: Final = "bedrock_invoke"


def _agreed(tables: Iterable[Mapping[str, Row]]) -> dict[str, Row]:
    """The rows of all tables, without those whose word means different things to different families."""
    meanings: dict[str, dict[object, Row]] = {}
    for raw, row in (each for table in tables for each in table.items()):
        meanings.setdefault(raw, {}).setdefault((row.reason, row.incomplete, row.resume), row)
    return {raw: row for raw, rows in meanings.items() if len(rows) == 1 for row in rows.values()}


_TABLES: Final = {name: family.inner.reasons[family.dialect] for name, family in families.FAMILIES.items()}
REASONS: Final[Mapping[str, Mapping[str, Row]]] = {"": _agreed(_TABLES.values()), **_TABLES}
"""family → raw value → row; under "" what no two families dispute. A response is judged by its family's own table."""

_METRICS: Final = "amazon-bedrock-invocationMetrics"
"""The member that Bedrock adds to a stream's last event, whatever the family."""

_GUARDRAIL: Final = "amazon-bedrock-guardrailAction"
"""The member by which a body, or a stream's last event, says what a guardrail did: NONE or INTERVENED."""

_GUARDED: Final = Row(StopReason.SAFETY_BLOCKED, True, detail="guardrail")
"""What the family's own word does not tell: it goes on saying that the model ended well."""

_BESIDE: Final = frozenset({_METRICS, _GUARDRAIL, "choices"})
"""What a family's own reader does not know, or not by this name: a reason stands elsewhere in choices."""

_HEADERS: Final = ("x-amzn-bedrock-input-token-count", "x-amzn-bedrock-output-token-count")
"""What an answer's headers say of its tokens, for families whose bodies do not."""

# --- Replies ----------------------------------------------------------------------------------------------------------


class Reader:
    """Takes what Bedrock puts around a family's words, and passes them on to the reader of the family's format."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._ctx, self._keep = ctx, keep
        self._replies: fold.Reply | None = None
        self._read: fold.Reader | None = None

    def __call__(self, event: Any) -> Iterator[Part]:
        """The parts of an event, a body, or a response of boto3: telemetry leaves its stream to its owner."""
        said = _unwrapped(event)
        if self._read is not None and isinstance(said, dict) and "chunk" in event and _BESIDE.isdisjoint(said):
            return self._read(said)  # Nothing but the family's words, as nearly all chunks are.
        return self._with_envelope(event, said)

    def _with_envelope(self, event: Any, said: Any) -> Iterator[Part]:
        yield from _headers(member(member(event, "ResponseMetadata"), "HTTPHeaders"))
        if self._keep and hasattr(said, "read"):
            said = _unwrapped(said.read())
        if isinstance(said, list):
            yield Unreadable()
        if not isinstance(said, dict):
            return
        if (exception := _exception(said)) is not None:
            yield Fault(exception)
            return
        if self._read is None and (family := families.spoken(self._ctx, said)) is not None:
            self._replies, self._ctx = family.inner.replies, family.context(self._ctx)
            self._read = self._replies.reader(self._ctx, self._keep)
            yield InFormat(self._replies, self._ctx)
        if self._read is None or self._replies is None:
            if said and "choices" not in said:  # some streams in the chat format begin with no choice
                yield Unreadable()
            return
        yield from self._read(families.with_reasons(said) if "choices" in said else said)
        # At first its name was that of ApplyGuardrail: GUARDRAIL_INTERVENED.
        if text(said.get(_GUARDRAIL)).endswith("INTERVENED"):
            yield Vocabulary(_guarded(self._replies.rows(self._ctx)))
        if (metrics := said.get(_METRICS)) is not None:
            yield from _tokens(member(metrics, "inputTokenCount"), member(metrics, "outputTokenCount"))
            if not self._replies.has_end:
                yield End()


def _unwrapped(thing: Any) -> Any:
    """What an event or a body holds, parsed: boto3 gives a chunk's bytes as they are, JSON has them in base64."""
    chunk = member(thing, "chunk")
    if chunk is None and member(thing, "ResponseMetadata") is not None:
        thing = member(thing, "body")
    elif chunk is not None:
        thing = member(chunk, "bytes")
    try:
        if isinstance(thing, bytes):
            return parse(thing)
        if isinstance(thing, str | bytearray):
            return parse(thing if chunk is None else base64.b64decode(thing, validate=True))
    except (DecodeError, ValueError):  # base64's is one, too
        return None
    return thing


def _exception(said: Json) -> Json | None:
    """An exception as an error, its type beside its message."""
    name = next(iter(said), "")
    if not isinstance(name, str) or not name.endswith("Exception"):
        return None
    return {**(said[name] if isinstance(said[name], dict) else {}), "type": name}


def _guarded(rows: Mapping[str, Row]) -> Mapping[str, Row]:
    """A family's table where a guardrail replaced what the model said, whose reason then still looks clean."""
    clean = (StopReason.END_TURN, StopReason.TOOL_CALL)
    return {raw: _GUARDED if row.reason in clean else row for raw, row in rows.items()}


def _tokens(asked: Any, answered: Any) -> Iterator[Part]:
    usage = Usage(count(asked), count(answered))
    if usage != Usage():
        yield Tokens(usage, beside=True)


def _headers(headers: Any) -> Iterator[Part]:
    """What an answer's headers say of its tokens."""
    if isinstance(headers, Mapping):
        known = {str(name).lower(): text(value) for name, value in headers.items()}
        figures = (known.get(name, "") for name in _HEADERS)
        yield from _tokens(*(int(each) if re.fullmatch(r"[0-9]{1,15}", each) else None for each in figures))


def _faulty(data: Any, whole: bool) -> str | None:
    said = _unwrapped(data)
    if hasattr(said, "read"):
        return None
    family = families.told(said) if isinstance(said, dict) else None
    if family is not None:
        return family.inner.replies.faulty(said, whole)
    if isinstance(said, dict) and not whole:
        return None
    expected = "the body of an invoked model is an object of its family's format"
    if not whole:
        expected = "an event of an invoked model's stream is a chunk that holds one JSON object"
    return f"{expected}, not {shortened(repr(data), 80)}"


def _failed(data: Any) -> Any:
    said = _unwrapped(data)
    if not isinstance(said, dict):
        return None
    if (family := families.told(said)) is not None:
        return family.inner.replies.failed(said)
    return _exception(said) or (said if said.get("error") else None)


# --- Requests ---------------------------------------------------------------------------------------------------------

_OPENAI: Final = re.compile(r"openai\.")
"""Its models know the chat format's newer name of the limit; the others know the older one alone."""

_PATH: Final = rf"{SEGMENTS}/model/(?P<model>.+)/invoke(?:(?P<stream>-with-response-stream)|(?P<whole>))"


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a request goes: the model is part of the path, quoted as botocore does, an ARN's ':' and '/' too."""
    return Route("POST", f"/model/{quote(request.model, safe='')}/invoke{'-with-response-stream' if stream else ''}")


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body in the format of the model's family; model and streaming are said by the path.

    Args:
        dialect: the family, where the model's id does not tell it. A model of no known family, such as an imported
            one, is asked in the chat format.
    """
    family = _family(dialect or request.model)
    body = family.inner.encode(request, stream=stream, dialect=family.dialect)
    said_twice = {"model", "stream_options"} | ({"stream"} if family != families.FAMILIES["command"] else set())
    body = {name: value for name, value in body.items() if name not in said_twice}
    if family == families.FAMILIES["claude"]:
        return {"anthropic_version": "bedrock-2023-05-31", **body}
    if family == families.CHAT and not _OPENAI.search(request.model) and "max_completion_tokens" in body:
        body["max_tokens"] = body.pop("max_completion_tokens")
    return body


def _family(model: str) -> families.Family:
    return families.of(model) or families.CHAT


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response, as the family's own format asks."""
    family = _family(dialect or request.model)
    return family.inner.resume(request, cut, prompt=prompt, strategy=strategy, dialect=family.dialect)


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a call of boto3 (`modelId`, `body`), or a request's body (`model`), asks for. A stream is left unread."""
    model = text(kwargs.get("modelId")) or text(kwargs.get("model"))
    body = _unwrapped(kwargs.get("body", kwargs))
    said = {**(body if isinstance(body, Mapping) else {}), "model": model}
    seen, streams = families.asked(said).inner.request_summary(said), kwargs.get("stream") is True
    return replace(seen, model=model, stream=streams, stream_usage=True, generates=families.generates(said))


# --- Scripted replies -------------------------------------------------------------------------------------------------


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as Bedrock would send it, in the words of the family of its model, of an unknown one as chat.

    Raises:
        UsageError: the family does not stream, or has no word for the reason.
    """
    family = _family(dialect or response.model or "")
    said = family.inner.reply(response, stream=stream, dialect=family.dialect)
    if not isinstance(said, list):
        return said
    chunks = [event.data for event in said if event.data != DONE]
    usage = response.usage
    if chunks and usage is not None and response.stop.terminal_seen:
        metrics = {"inputTokenCount": usage.input_tokens or 0, "outputTokenCount": usage.output_tokens or 0}
        chunks[-1] = {**chunks[-1], _METRICS: {**metrics, "invocationLatency": 1, "firstByteLatency": 1}}
    return [Event(None, {"chunk": {"bytes": json.dumps(chunk).encode()}}) for chunk in chunks]


FORMAT: Final = Format(
    name=NAME,
    provider="aws.bedrock",
    framing=Framing.EVENTSTREAM,
    reasons=REASONS,
    voice=Voice("msg_", "toolu_", "x-amzn-requestid"),
    replies=fold.Reply(
        name=NAME, reader=Reader, rows=lambda ctx: REASONS[""], faulty=_faulty, failed=_failed, headers=_headers
    ),
    route=route,
    routed=routed_by(_PATH),
    request_summary=request_summary,
    body=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)
