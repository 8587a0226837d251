"""InvokeModel of Amazon Bedrock: an envelope around each model family's own format.

The model's id decides which format that is, else the shape of the JSON.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from endturn.calls import Strategy
from endturn.errors import DecodeError
from endturn.formats.accumulator import Reader as Reader
from endturn.formats.apis import bedrock_converse, completions_shapes
from endturn.formats.apis.bedrock_converse_script import script_error
from endturn.formats.apis.completions_request import dialect_of
from endturn.formats.errors import safe_excerpt
from endturn.formats.format import Format, PathRequest
from endturn.formats.framing import DONE, parse
from endturn.formats.parts import End, ErrorPart, InFormat, Part, Tokens, Unreadable, Vocabulary
from endturn.formats.reading import count, items, member, text
from endturn.formats.registry import format_of
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import Context, Event, Framing, RequestSummary, ScriptedStyle
from endturn.vocabulary import (
    ChatResponse,
    Json,
    Request,
    Row,
    StopReason,
    Usage,
    package_data,
    read_tsv,
    with_fallback,
)

NAME: Final = "bedrock_invoke"

# --- Families -------------------------------------------------------------------------------------


class _Family(NamedTuple):
    """The models that share a format: the format that reads it, and that format's dialect."""

    format: str
    dialect: str = ""

    @property
    def inner(self) -> Format:
        return format_of(self.format)


_FAMILIES: Final[Mapping[str, _Family]] = {
    "claude": _Family("anthropic", "bedrock"),
    "nova": _Family("bedrock_converse"),
    "command_r": _Family("cohere", "v1"),
    "chat": _Family("openai_chat", "compatible"),
    "text": _Family("completions"),
    "titan": _Family("completions", "titan"),
    "llama": _Family("completions", "llama"),
    "mistral": _Family("completions", "mistral"),
    "command": _Family("completions", "command"),
    "ai21": _Family("completions", "ai21"),
    "claude_text": _Family("completions", "claude_text"),
}
"""dialect of `bedrock_invoke` → the family. "chat" is OpenAI's chat format, "text" its
completions."""

_CHAT: Final = _FAMILIES["chat"]

_MODELS: Final = tuple(
    (re.compile(model), family)
    for _, (model, family, _source) in read_tsv(package_data(), "bedrock_models.tsv", range(3, 4))
)
_NO_TEXT: Final = "none"
"""The family of models that embed, rank, or generate images or speech: none has a stop reason."""

# The id of an inference profile begins with its region; an ARN ends with the id.
_REGION: Final = re.compile(r"(?:us|us-gov|eu|apac|jp|au|ca|sa|me|af|il|uk|global)\.")

_NON_TEXT_MEMBERS: Final = frozenset(
    {
        # Embeddings: of Titan, Nova, Cohere, Marengo, Hugging Face.
        *(
            "dimensions",
            "embeddingConfig",
            "embeddingTypes",
            "taskType",
            "texts",
            "input_type",
            "embedding_types",
        ),
        *("inputType", "inputImage", "encoding_format", "text_inputs"),
        # Pictures: of Stability, Luma. Nova's are a `taskType`, too.
        *(
            "text_prompts",
            "aspect_ratio",
            "output_format",
            "negative_prompt",
            "style_preset",
            "cfg_scale",
            "image",
        ),
    }
)
"""Members that only requests for something other than text have."""
_VECTORS: Final = ("embedding", "embeddings", "embeddingsByType")

_MESSAGES_TYPES: Final = re.compile(
    r"error|message(?:_start|_delta|_stop)?|content_block_(?:start|delta"
    r"|stop)"
)
_COHERE_TYPES: Final = re.compile(
    r"(?:message|content|tool-plan|tool-call|citation)-(?:start|delta|end)"
)
_CONVERSE_EVENTS: Final = (
    *(
        "messageStart",
        "contentBlockStart",
        "contentBlockDelta",
        "contentBlockStop",
        "messageStop",
        "metadata",
    ),
)


def _undisputed_rows(tables: Iterable[Mapping[str, Row]]) -> dict[str, Row]:
    """Return the rows of all tables, except words whose meaning differs between families."""
    meanings: dict[str, dict[object, Row]] = {}
    for raw, row in (entry for table in tables for entry in table.items()):
        meanings.setdefault(raw, {}).setdefault((row.reason, row.incomplete, row.resume), row)
    return {raw: row for raw, rows in meanings.items() if len(rows) == 1 for row in rows.values()}


_TABLES: Final = {name: family.inner.reasons[family.dialect] for name, family in _FAMILIES.items()}
REASONS: Final[Mapping[str, Mapping[str, Row]]] = {
    "": _undisputed_rows(_TABLES.values()),
    **_TABLES,
}
"""family → raw value → row; under "" the rows on which all families agree. A response is read with
its family's own table."""

_ROWS: Final = with_fallback(NAME, REASONS[""])


def _family_name(model: str) -> str | None:
    """Return the family for the id of a model or an inference profile, or for an ARN.

    The name of a dialect is returned as it is. None for an unknown model.
    """
    if model in _FAMILIES:
        return model
    id_ = _REGION.sub("", model.rpartition("/")[2], count=1)
    return next((family for pattern, family in _MODELS if pattern.match(id_)), None)


def _family_of(model: str) -> _Family | None:
    return _FAMILIES.get(_family_name(model) or "")


def _generates(body: Mapping[str, Any]) -> bool:
    """Return whether a request's body, `model` in it, asks a model to generate text.

    The model's id decides, else the members of the body. An inference profile's ARN may hide an id.
    A request that gives no evidence counts as one for text.
    """
    family_name = _family_name(text(body.get("model")))
    if family_name is not None:
        return family_name != _NO_TEXT
    if not {"messages", "message"}.isdisjoint(body):
        return True
    # Titan's text models get `textGenerationConfig` beside `inputText`, its embedding models not.
    is_embedding = "inputText" in body and "textGenerationConfig" not in body
    return (
        not is_embedding
        and _NON_TEXT_MEMBERS.isdisjoint(body)
        and not {"query", "documents"} <= body.keys()
    )


def _family_by_shape(payload: Any) -> _Family | None:
    """Return the family of a reply by its shape; None if the shape does not decide."""
    scores = (member(entry, "relevance_score") for entry in items(member(payload, "results")))
    if any(entry is not None for entry in (*(member(payload, name) for name in _VECTORS), *scores)):
        return None
    kind, choices = text(member(payload, "type")), member(payload, "choices")
    if _MESSAGES_TYPES.fullmatch(kind):
        return _FAMILIES["claude"]
    if member(member(payload, "output"), "message") is not None or any(
        member(payload, name) for name in _CONVERSE_EVENTS
    ):
        return _FAMILIES["nova"]
    if any(
        member(payload, name) is not None
        for name in ("event_type", "generation_id", "chat_history")
    ):
        return _FAMILIES["command_r"]
    if _COHERE_TYPES.fullmatch(kind) or isinstance(member(payload, "message"), Mapping):
        return _Family("cohere")  # v2, as `api_version` in the request asks for.
    if choices is not None:
        if any(
            member(choice, name) is not None
            for choice in items(choices)
            for name in ("message", "delta")
        ):
            return _CHAT
        return _FAMILIES["text"] if items(choices) else None
    dialect = completions_shapes.shape_of(payload, "")
    return None if dialect is None else _Family("completions", dialect)


def _request_family(body: Mapping[str, Any]) -> _Family:
    """Return the family that a request's body, `model` in it, is written for."""
    family = _family_of(text(body.get("model")))
    if family is not None and (family.format != "completions" or "messages" not in body):
        return family
    if "anthropic_version" in body:
        return _FAMILIES["claude"]
    if isinstance(body.get("message"), str):
        return _FAMILIES["command_r"]
    if "inferenceConfig" in body or "schemaVersion" in body:
        return _FAMILIES["nova"]
    return _CHAT if "messages" in body else _Family("completions", dialect_of(body))


# --- Replies --------------------------------------------------------------------------------------

_METRICS: Final = "amazon-bedrock-invocationMetrics"
"""The member that Bedrock adds to a stream's last event, whatever the family."""

_GUARDRAIL: Final = "amazon-bedrock-guardrailAction"
"""The member by which a body, or a stream's last event, reports a guardrail's action: NONE or
INTERVENED."""

_GUARDRAIL_ROW: Final = Row(StopReason.SAFETY_BLOCKED, True, detail="guardrail")
"""The row of a response that a guardrail replaced; the family's own reason still looks clean."""

_ENVELOPE_MEMBERS: Final = frozenset({_METRICS, _GUARDRAIL, "choices"})
"""Members that a family's own reader does not know, or not by this name: in choices the reason has
another member."""

_HEADERS: Final = ("x-amzn-bedrock-input-token-count", "x-amzn-bedrock-output-token-count")
"""The response headers that count tokens, for families whose bodies do not."""


class InvokeReader:
    """The reader of Bedrock's envelope around a family's events.

    It passes the content to the reader of the family's format.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._ctx, self._keep = ctx, keep
        self._format: Format | None = None
        self._reader: Reader | None = None

    def __call__(self, event: Any) -> Iterator[Part]:
        """Yield the parts of an event, of a body, or of a body with its headers."""
        payload = _payload_of(event)
        if (
            self._reader is not None
            and isinstance(payload, dict)
            and _ENVELOPE_MEMBERS.isdisjoint(payload)
            and "chunk" in event
        ):
            return self._reader(payload)  # nearly all chunks have only the family's members
        return self._with_envelope(event, payload)

    def _with_envelope(self, event: Any, payload: Any) -> Iterator[Part]:
        yield from _headers(member(member(event, "ResponseMetadata"), "HTTPHeaders") or {})
        if isinstance(payload, list):
            yield Unreadable()
        if not isinstance(payload, dict):
            return
        if (error := _error_event(payload)) is not None:
            yield ErrorPart(error)
            return
        if self._reader is None and (family := self._family(payload)) is not None:
            self._format = family.inner
            self._ctx = replace(self._ctx, dialect=family.dialect)
            self._reader = self._format.reader(self._ctx, self._keep)
            yield InFormat(self._format, self._ctx)
        if self._reader is None or self._format is None:
            # some streams in the chat format begin with a chunk without choices
            if payload and "choices" not in payload:
                yield Unreadable()
            return
        yield from self._reader(_with_reasons(payload) if "choices" in payload else payload)
        # At first its name was that of ApplyGuardrail: GUARDRAIL_INTERVENED.
        if text(payload.get(_GUARDRAIL)).endswith("INTERVENED"):
            yield Vocabulary(_with_guardrail(self._format.rows(self._ctx)))
        if (metrics := payload.get(_METRICS)) is not None:
            yield from _tokens(
                member(metrics, "inputTokenCount"), member(metrics, "outputTokenCount")
            )
            if not self._format.has_end:
                yield End()

    def _family(self, payload: Json) -> _Family | None:
        """Return the family of a response: by its shape, else by the model's id.

        Some models have two formats, so the shape wins; between text formats the id is the better
        evidence.
        """
        by_model, by_shape = (
            _family_of(self._ctx.dialect or self._ctx.request.facts.model),
            _family_by_shape(payload),
        )
        if by_model is None or by_shape is None:
            return by_shape or by_model
        return by_model if by_model.format == by_shape.format == "completions" else by_shape


def _payload_of(event: Any) -> Any:
    """Return the JSON that an event or a body wraps.

    Boto3 has a chunk's bytes, JSON has them in base64.
    """
    if member(event, "ResponseMetadata") is not None:
        return member(event, "body")
    if (chunk := member(event, "chunk")) is None:
        return event
    encoded = member(chunk, "bytes")
    try:
        return parse(
            encoded
            if isinstance(encoded, bytes)
            else base64.b64decode(text(encoded), validate=True)
        )
    except (DecodeError, ValueError):  # binascii.Error is one, too
        return None


def _error_event(payload: Json) -> Json | None:
    """Return an exception as an error with its type; None if the payload is none."""
    name = next(iter(payload), "")
    return bedrock_converse.error_event(name, payload[name]) if name.endswith("Exception") else None


def _with_guardrail(rows: Mapping[str, Row]) -> Mapping[str, Row]:
    """Return a family's table for a response that a guardrail replaced.

    The reason of such a response still looks clean.
    """
    clean = (StopReason.END_TURN, StopReason.TOOL_CALL)
    return {raw: _GUARDRAIL_ROW if row.reason in clean else row for raw, row in rows.items()}


def _with_reasons(reply: Json) -> Json:
    """Return a reply of OpenAI's format with `stop_reason` of its choices as `finish_reason`.

    Mistral's chat and DeepSeek-R1 call the member `stop_reason` on Bedrock (user guide, "Mistral AI
    chat completion", "DeepSeek models").
    """
    return {**reply, "choices": [_with_reason(choice) for choice in items(reply.get("choices"))]}


def _with_reason(choice: Any) -> Any:
    if member(choice, "stop_reason") is None or member(choice, "finish_reason") is not None:
        return choice
    return {**choice, "finish_reason": choice["stop_reason"], "stop_reason": None}


def _tokens(input_tokens: Any, output_tokens: Any) -> Iterator[Part]:
    if (usage := Usage(count(input_tokens), count(output_tokens))) != Usage():
        yield Tokens(usage, is_fallback=True)


def _headers(headers: Mapping[str, str]) -> Iterator[Part]:
    """Yield the usage that the response headers count."""
    values = {name.lower(): value for name, value in headers.items()}
    figures = (values.get(name, "") for name in _HEADERS)
    return _tokens(
        *(int(figure) if re.fullmatch(r"[0-9]{1,15}", figure) else None for figure in figures)
    )


def _shape_error(data: Any, is_body: bool) -> str | None:
    payload = _payload_of(data)
    if (family := _family_by_shape(payload)) is not None:
        return family.inner.shape_error(payload, is_body)
    if isinstance(payload, dict) and not is_body:
        return None
    message = "the body of an invoked model is an object of its family's format"
    if not is_body:
        message = "an event of an invoked model's stream is a chunk that holds one JSON object"
    return f"{message}, not {safe_excerpt(repr(data), 80)}"


def _error_body(data: Any) -> Any:
    payload = _payload_of(data)
    if not isinstance(payload, dict):
        return None
    if (family := _family_by_shape(payload)) is not None:
        return family.inner.error_in(payload)
    return _error_event(payload) or (payload if payload.get("error") else None)


# --- Requests -------------------------------------------------------------------------------------

_OPENAI: Final = re.compile(r"openai\.")
"""Its models accept the chat format's newer name of the limit; the others accept only the older
one."""


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body in the format of the model's family; the path has model and streaming.

    Args:
        dialect: the family, if the model's id does not decide it. A model of an unknown family,
            such as an imported one, gets a request in the chat format.
    """
    family = _family_of(dialect or request.model) or _CHAT
    body = family.inner.encode(request, stream=stream, dialect=family.dialect)
    path_members = {"model", "stream_options"} | (
        {"stream"} if family != _FAMILIES["command"] else set()
    )
    body = {name: value for name, value in body.items() if name not in path_members}
    if family == _FAMILIES["claude"]:
        return {"anthropic_version": "bedrock-2023-05-31", **body}
    if family == _CHAT and not _OPENAI.search(request.model) and "max_completion_tokens" in body:
        body["max_tokens"] = body.pop("max_completion_tokens")
    return body


def resume(
    request: Request,
    response: ChatResponse,
    *,
    prompt: str,
    strategy: str = Strategy.PROMPT,
    dialect: str = "",
) -> Request:
    """Return the request for the rest of a truncated response, as the family's format does."""
    family = _family_of(dialect or request.model) or _CHAT
    return family.inner.resume(
        request, response, prompt=prompt, strategy=strategy, dialect=family.dialect
    )


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """Summarize a request body, or a call of boto3 (`modelId`, `body`)."""
    model = text(kwargs.get("modelId")) or text(kwargs.get("model"))
    body = kwargs.get("body", kwargs)
    if isinstance(body, bytes | str):
        try:
            body = parse(body)
        except DecodeError:
            body = None
    members = {
        **(body if isinstance(body, Mapping) else {}),
        "model": model,
        "stream": kwargs.get("stream") is True,
    }
    summary = _request_family(members).inner.request_summary(members)
    summary.stream_usage, summary.generates = True, _generates(members)
    return summary


# --- Scripted responses ---------------------------------------------------------------------------


def script(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """Write a scripted response as Bedrock would: in the format of its model's family.

    A model of an unknown family answers in the chat format.

    Raises:
        UsageError: the family does not stream, or has no raw value for the reason.
    """
    family = _family_of(dialect or response.model or "") or _CHAT
    reply = family.inner.reply(response, stream=stream, dialect=family.dialect)
    if not isinstance(reply, list):
        return reply
    chunks = [event.data for event in reply if event.data != DONE]
    usage = response.usage
    if chunks and usage is not None and response.stop.terminal_seen:
        metrics = {
            "inputTokenCount": usage.input_tokens or 0,
            "outputTokenCount": usage.output_tokens or 0,
        }
        chunks[-1] = {
            **chunks[-1],
            _METRICS: {**metrics, "invocationLatency": 1, "firstByteLatency": 1},
        }
    return [Event(None, {"chunk": {"bytes": json.dumps(chunk).encode()}}) for chunk in chunks]


def _path(request: PathRequest) -> str:
    method = "invoke-with-response-stream" if request.stream else "invoke"
    return f"/model/{quote(request.model, safe='')}/{method}"


FORMAT: Final = Format(
    name=NAME,
    provider="aws.bedrock",
    framing=Framing.EVENTSTREAM,
    voice=ScriptedStyle("msg_", "toolu_", "x-amzn-requestid"),
    # The model is quoted as botocore does, an ARN's ':' and '/' too.
    path=_path,
    match_path=routed_by(
        rf"{SEGMENTS}/model/(?P<model>.+)/invoke(?:(?P<stream>-with-response-stream)"
        rf"|(?P<whole>))"
    ),
    is_request=lambda body, _: (
        not body.keys().isdisjoint(("messages", "prompt", "inputText", "message", "input"))
    ),
    body=encode,
    resume=resume,
    own_summary=request_summary,
    inner=lambda body: _request_family(body).inner,
    reader=InvokeReader,
    labels=("the body of an invoked model", "an event of an invoked model's stream"),
    own_shape_error=_shape_error,
    error_in=_error_body,
    headers=_headers,
    own_rows=lambda ctx: _ROWS,
    own_reasons=REASONS,
    reply=script,
    reply_error=script_error,
)
