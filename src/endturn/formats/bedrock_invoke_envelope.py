"""What comes around an invoked model's own words, whole or streamed; its family's format reads what is within."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from endturn.chat import ChatResponse, Delta, Json, Usage
from endturn.errors import DecodeError
from endturn.formats.bedrock_invoke_families import Family, spoken, with_reasons
from endturn.formats.errors import broken, error_of, label_of, shortened
from endturn.formats.format import Decoder as FamilyDecoder, Summarizer as FamilyWatch
from endturn.formats.reading import count, member, text
from endturn.formats.summaries import Context, Event, ResponseSummary
from endturn.stop import Row, Stop, StopReason, find_stop

NAME: Final = "bedrock_invoke"

METRICS: Final = "amazon-bedrock-invocationMetrics"
"""The member that Bedrock adds to a stream's last event, whatever the family."""

GUARDRAIL: Final = "amazon-bedrock-guardrailAction"
"""The member by which a body, or a stream's last event, says what a guardrail did: NONE or INTERVENED."""

GUARDED: Final = "guardrail"
"""The detail of a Stop that the family's own word does not tell: it goes on saying that the model ended well."""

_ADDED: Final = "amazon-bedrock-"
_CLEAN: Final = (StopReason.END_TURN, StopReason.TOOL_CALL)

_HEADERS: Final = ("x-amzn-bedrock-input-token-count", "x-amzn-bedrock-output-token-count")
"""What an answer's headers say of its tokens, for families whose bodies do not."""

_NOTHING: Final = find_stop(None, {}, terminal_seen=False)
# The Stop of a response in nobody's words: it may be no text at all, such as an embedding.
_FOREIGN: Final = Stop(StopReason.UNKNOWN, detail="unreadable")


class Envelope:
    """What comes around a family's own words: bytes, exceptions, figures, a guardrail's action.

    Attributes:
        family: whose words they are, once something was said.
        error: the first exception of the stream, its name as its type.
        over: what Bedrock adds to the last event has come.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._spent: Usage | None = None
        self._guarded = False
        self._is_foreign = False
        self.family: Family | None = None
        self.error: Json | None = None
        self.over = False

    def opened(self, thing: Any) -> Json | None:
        """The family's words in an event, a body, or a response of boto3, whose stream is left alone; None for none."""
        if isinstance(thing, Event):
            thing = thing.data
        if member(thing, "ResponseMetadata") is not None:
            self.read_headers(member(member(thing, "ResponseMetadata"), "HTTPHeaders"))
            thing = member(thing, "body")
        elif member(thing, "chunk") is not None:
            thing = _unpacked(member(member(thing, "chunk"), "bytes"))
        said = _parsed(thing)
        if not isinstance(said, dict):
            self._is_foreign |= isinstance(said, list)
            return None
        name = next(iter(said), "")
        if isinstance(name, str) and name.endswith("Exception"):
            self.error = self.error or {**(said[name] if isinstance(said[name], dict) else {}), "type": name}
            return None
        if (metrics := said.get(METRICS)) is not None:
            self.over = True
            self._spend(count(member(metrics, "inputTokenCount")), count(member(metrics, "outputTokenCount")))
        # At first its name was that of ApplyGuardrail: GUARDRAIL_INTERVENED.
        self._guarded |= text(said.get(GUARDRAIL)).endswith("INTERVENED")
        if METRICS in said or GUARDRAIL in said:
            said = {name: value for name, value in said.items() if not name.startswith(_ADDED)}
        if self.family is None:
            self.family = spoken(self._ctx, said)
            # Some streams in the chat format begin with no choice.
            self._is_foreign |= bool(said) and "choices" not in said
        return with_reasons(said)

    def read_headers(self, headers: Any) -> None:
        """Read what an answer's headers say of its tokens."""
        if isinstance(headers, Mapping):
            known = {str(name).lower(): value for name, value in headers.items()}
            self._spend(*(_digits(known.get(name)) for name in _HEADERS))

    def _spend(self, asked: int | None, answered: int | None) -> None:
        if asked is not None or answered is not None:
            self._spent = Usage(asked, answered)

    @property
    def context(self) -> Context:
        """What the family's format must know."""
        return self._ctx if self.family is None else self.family.context(self._ctx)

    @property
    def nothing(self) -> Stop:
        """The Stop where no family's words arrived."""
        return _FOREIGN if self._is_foreign and self.family is None and self.error is None else _NOTHING

    def told(self, own: ResponseSummary | ChatResponse) -> Json:
        """The Stop and the usage, where the family's format says this: of the usage, its own figures count first."""
        return {"stop": self._stop(own.stop), "usage": own.usage or self._spent}

    def _stop(self, own: Stop) -> Stop:
        """A guardrail replaced what the model said, whose reason then still looks clean.

        An exception before the end breaks the answer, a later one is detail.
        """
        if self._guarded and own.raw is not None and own.reason in _CLEAN:
            own = find_stop(own.raw, {own.raw: Row(StopReason.SAFETY_BLOCKED, True, detail=GUARDED)})
        if self.error is None:
            return own
        return replace(own, detail=label_of(self.error)) if own.terminal_seen else broken(self.error)


class Summarizer:
    """Reads what telemetry needs of a response, from events or a body, as boto3 gives them too."""

    def __init__(self, ctx: Context) -> None:
        self._envelope = Envelope(ctx)
        self._inner: FamilyWatch | None = None

    def feed(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        said, family = self._envelope.opened(event), self._envelope.family
        if said is not None and family is not None:
            if self._inner is None:
                self._inner = family.inner.summarizer(self._envelope.context)
            self._inner.feed(said)

    def close(self, *, left: bool = False) -> ResponseSummary:
        """What was seen."""
        own = self._own(left=left)
        return replace(own, **self._envelope.told(own))

    @property
    def over(self) -> bool:
        """Bedrock's figures have come."""
        return self._envelope.over

    @property
    def broken(self) -> bool:
        """An exception, or the family's own error, came before the end."""
        if self._envelope.error is not None and not self._own().stop.terminal_seen:
            return True
        return self._inner is not None and self._inner.broken

    def _own(self, *, left: bool = False) -> ResponseSummary:
        if self._inner is None:
            return ResponseSummary(_NOTHING if left else self._envelope.nothing)
        return self._inner.close(left=left)


class Decoder:
    """Builds a response from a stream's events; `close` may be called at any point."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._envelope = Envelope(ctx)
        self._inner: FamilyDecoder | None = None

    def feed(self, event: Event) -> Iterable[Delta]:
        """The deltas of one event.

        Raises:
            DecodeError: the event is no object, or what it holds is not of its family's format.
            ProviderError: the stream reports an error before its end; `partial` holds what had arrived.
        """
        envelope, data = self._envelope, event.data
        if not isinstance(data, Mapping):
            raise _faulty("an event of an invoked model's stream is an object", data, self._ctx)
        known, said, family = envelope.error, envelope.opened(data), envelope.family
        if envelope.error is not known and not self._own().stop.terminal_seen:
            failure = error_of(200, {}, envelope.error, ctx=self._ctx)
            failure.partial = self.close()
            raise failure
        if said is None and "chunk" in data:
            raise _faulty("a chunk holds one JSON object", data, self._ctx)
        if said is None or family is None:
            return ()
        if self._inner is None:
            self._inner = family.inner.decoder(envelope.context)
        return self._inner.feed(Event(None, said))

    def close(self) -> ChatResponse:
        """What arrived, as a response."""
        own = self._own()
        return own.but(**self._envelope.told(own))

    def _own(self) -> ChatResponse:
        return ChatResponse(stop=self._envelope.nothing) if self._inner is None else self._inner.close()


def decode(body: Any, *, ctx: Context, headers: Mapping[str, str] | None = None) -> ChatResponse:
    """A whole body as a response: parsed or not, or boto3's response, whose stream is read.

    Raises:
        DecodeError: it is not in the format of any family.
        ProviderError: it is an error that came under a status of success.
    """
    envelope = Envelope(ctx)
    envelope.read_headers(headers)
    unread = member(body, "body")
    if hasattr(unread, "read") and isinstance(body, Mapping):
        body = {**body, "body": unread.read()}
    said, family = envelope.opened(body), envelope.family
    if said is None or family is None:
        raise _faulty("the body of an invoked model is an object of its family's format", body, ctx)
    own = family.inner.decode(said, ctx=envelope.context, headers=headers)
    return own.but(**envelope.told(own))


def _faulty(expected: str, found: Any, ctx: Context) -> DecodeError:
    said = f"{expected}, not {shortened(repr(found), 80)}"
    return DecodeError(said, provider=ctx.provider, body=shortened(repr(found)))


def _unpacked(content: Any) -> Any:
    """The bytes of a chunk: as they are from boto3, in base64 as JSON has them."""
    if not isinstance(content, str):
        return content
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        return content


def _parsed(content: Any) -> Any:
    """A body as JSON; None where it is none, or a stream that only its owner may read."""
    if not isinstance(content, str | bytes | bytearray):
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _digits(value: Any) -> int | None:
    """A header's figure."""
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16
    return count(int(value) if is_number else value)
