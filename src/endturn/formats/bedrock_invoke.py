"""InvokeModel of Amazon Bedrock: an envelope around each model family's own format."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, unquote

from endturn.chat import ChatResponse, Json, Request
from endturn.formats import bedrock_invoke_envelope as envelope, completions, openai_chat
from endturn.formats.bedrock_converse_reply import reply_error as reply_error
from endturn.formats.bedrock_invoke_envelope import (
    GUARDED,
    GUARDRAIL,
    METRICS,
    NAME as NAME,
)
from endturn.formats.bedrock_invoke_families import CHAT, FAMILIES, Family, asked, generates, of
from endturn.formats.format import Decoder, Format, Summarizer
from endturn.formats.framing import DONE
from endturn.formats.reading import SEGMENTS, text
from endturn.formats.summaries import Context, Event, Framing, RequestSummary, Route, Routed, Voice
from endturn.records import Strategy
from endturn.stop import Row, StopReason

PROVIDER: Final = "aws.bedrock"
FRAMING: Final = Framing.EVENTSTREAM
VOICE: Final = Voice("msg_", "toolu_", "x-amzn-requestid")


def _agreed(tables: Iterable[Mapping[str, Row]]) -> dict[str, Row]:
    """The rows of all tables, without those whose word means different things to different families."""
    found: dict[str, Row] = {}
    disputed: set[str] = set()
    for table in tables:
        for raw, row in table.items():
            first = found.setdefault(raw, row)
            if (first.reason, first.incomplete, first.resume) != (row.reason, row.incomplete, row.resume):
                disputed.add(raw)
    return {raw: row for raw, row in found.items() if raw not in disputed}


_TABLES: Final = {name: family.inner.reasons[family.dialect] for name, family in FAMILIES.items()}
REASONS: Final[Mapping[str, Mapping[str, Row]]] = {"": _agreed(_TABLES.values()), **_TABLES}
"""family → raw value → row; under "" what no two families dispute. A response is judged by its family's own table."""

_OPENAI: Final = re.compile(r"openai\.")
"""Its models know the chat format's newer name of the limit; the others know the older one alone."""

_PATH: Final = re.compile(rf"{SEGMENTS}/model/(.+)/invoke(-with-response-stream)?")


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a request goes: the model is part of the path, quoted as botocore does, an ARN's ':' and '/' too."""
    return Route("POST", f"/model/{quote(request.model, safe='')}/invoke{'-with-response-stream' if stream else ''}")


def routed(method: str, path: str) -> Routed | None:
    """`/model/…/invoke` or `invoke-with-response-stream`, after whatever a gateway puts before it."""
    found = _PATH.fullmatch(path.partition("?")[0]) if method == "POST" else None
    return None if found is None else Routed(unquote(found[1]), found[2] is not None)


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body in the format of the model's family; model and streaming are said by the path.

    Args:
        dialect: the family, where the model's id does not tell it. A model of no known family, such as an imported
            one, is asked in the chat format.
    """
    family = _family(request, dialect)
    body = family.inner.encode(request, stream=stream, dialect=family.dialect)
    said_twice = {"model", "stream_options"} | ({"stream"} if family != FAMILIES["command"] else set())
    body = {name: value for name, value in body.items() if name not in said_twice}
    if family == FAMILIES["claude"]:
        return {"anthropic_version": "bedrock-2023-05-31", **body}
    if family == CHAT and not _OPENAI.search(request.model) and "max_completion_tokens" in body:
        limit = body.pop("max_completion_tokens")
        return {"max_tokens": limit, **body}
    return body


def _family(request: Request, dialect: str) -> Family:
    return of(dialect or request.model) or CHAT


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response, as the family's own format asks."""
    family = _family(request, dialect)
    return family.inner.resume(request, cut, prompt=prompt, strategy=strategy, dialect=family.dialect)


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a call of boto3 (`modelId`, `body`), or a request's body (`model`), asks for. A stream is left unread."""
    model = text(kwargs.get("modelId")) or text(kwargs.get("model"))
    body = kwargs.get("body", kwargs)
    if isinstance(body, str | bytes | bytearray):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            body = {}
    said = {**body, "model": model} if isinstance(body, Mapping) else {"model": model}
    seen = asked(said).inner.request_summary(said)
    return replace(
        seen,
        model=model,
        stream=kwargs.get("stream") is True,
        stream_usage=True,
        generates=generates(said),
    )


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as Bedrock would send it, in the words of the family of its model, else of its blocks, else as chat.

    Raises:
        UsageError: the family does not stream, or has no word for the reason.
    """
    family = of(dialect or response.model or "")
    if family is None:
        # What names no model and has no blocks is a text completion's.
        without = "completions" if response.model is None else CHAT.format
        written = without if response.blocks is None else response.blocks.format
        family = next((each for each in FAMILIES.values() if each.format == written), CHAT)
    if family.format == "completions":
        said = completions.reply(response, stream=stream, dialect=family.dialect)
    else:
        said = family.inner.reply(response, stream=stream, dialect=family.dialect)
    stop = response.stop
    guarded = {GUARDRAIL: "INTERVENED"} if (stop.reason, stop.detail) == (StopReason.SAFETY_BLOCKED, GUARDED) else {}
    if not isinstance(said, list):
        return said | guarded
    chunks = [event.data for event in said if event.data != DONE]
    usage = response.usage
    if chunks and stop.terminal_seen:
        chunks[-1] = {**chunks[-1], **guarded}
    if chunks and usage is not None and stop.terminal_seen:
        metrics = {"inputTokenCount": usage.input_tokens or 0, "outputTokenCount": usage.output_tokens or 0}
        chunks[-1] = {**chunks[-1], METRICS: {**metrics, "invocationLatency": 1, "firstByteLatency": 1}}
    return [Event(None, {"chunk": {"bytes": json.dumps(chunk).encode()}}) for chunk in chunks]


class _Envelope(Format):
    """A format whose replies hold another's."""

    __slots__ = ()

    def summarizer(self, ctx: Context) -> Summarizer:
        return envelope.Summarizer(ctx)  # type: ignore[return-value]

    def decoder(self, ctx: Context) -> Decoder:
        return envelope.Decoder(ctx)  # type: ignore[return-value]

    def decode(self, body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
        return envelope.decode(body, ctx=ctx, headers=headers)


FORMAT: Final = _Envelope(
    name=NAME,
    provider=PROVIDER,
    framing=FRAMING,
    reasons=REASONS,
    voice=VOICE,
    replies=openai_chat.FORMAT.replies,
    route=route,
    routed=routed,
    request_summary=request_summary,
    encode=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)
