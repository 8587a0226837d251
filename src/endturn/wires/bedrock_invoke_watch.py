"""What an invoked model's response says of its stop: its envelope, and the family's own watch within."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from endturn.chat import Json, Usage
from endturn.stop import Row, Stop, StopReason, find_stop
from endturn.wires import Context, Event, Seen
from endturn.wires import Watch as FamilyWatch
from endturn.wires.bedrock_invoke_families import Family, spoken, with_reasons
from endturn.wires.failure import broken, label_of
from endturn.wires.reading import count, member, text

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


NOTHING: Final = find_stop(None, {}, terminal_seen=False)
"""The Stop of a response of which nothing arrived."""

FOREIGN: Final = Stop(StopReason.UNKNOWN, detail="unreadable")
"""The Stop of a response in nobody's words: it may be no text at all, such as an embedding."""


class Envelope:
    """What comes around a family's own words: bytes, exceptions, figures, a guardrail's action.

    Attributes:
        family: whose words they are, once something was said.
        error: the first exception of the stream, its name as its type.
        over: what Bedrock adds to the last event has come.
    """

    __slots__ = ("_ctx", "_guarded", "_is_foreign", "_spent", "error", "family", "over")

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._spent: tuple[int | None, int | None] = (None, None)
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
            self._is_foreign = self._is_foreign or isinstance(said, list)
            return None
        name = next(iter(said), "")
        if isinstance(name, str) and name.endswith("Exception"):
            self.error = self.error or {**(said[name] if isinstance(said[name], dict) else {}), "type": name}
            return None
        metrics = said.get(METRICS)
        if metrics is not None:
            self.over = True
            self._spent = count(member(metrics, "inputTokenCount")), count(member(metrics, "outputTokenCount"))
        action = said.get(GUARDRAIL)
        if action is not None:
            # At first its name was that of ApplyGuardrail: GUARDRAIL_INTERVENED.
            self._guarded = self._guarded or text(action).endswith("INTERVENED")
        if metrics is not None or action is not None:
            said = {name: value for name, value in said.items() if not name.startswith(_ADDED)}
        if self.family is None:
            self.family = spoken(self._ctx, said)
            # Some streams in the chat format begin with no choice.
            self._is_foreign = self._is_foreign or (bool(said) and "choices" not in said)
        return with_reasons(said)

    def read_headers(self, headers: Any) -> None:
        """Read what an answer's headers say of its tokens."""
        if not isinstance(headers, Mapping):
            return
        known = {str(name).lower(): value for name, value in headers.items()}
        asked, answered = (_digits(known.get(name)) for name in _HEADERS)
        if asked is not None or answered is not None:
            self._spent = asked, answered

    @property
    def context(self) -> Context:
        """What the family's wire must know."""
        return self._ctx if self.family is None else self.family.context(self._ctx)

    @property
    def nothing(self) -> Stop:
        """The Stop where no family's words arrived."""
        return FOREIGN if self._is_foreign and self.family is None and self.error is None else NOTHING

    def usage(self, own: Usage | None) -> Usage | None:
        """The family's own figures; where it gave none, Bedrock's."""
        return Usage(*self._spent) if own is None and self._spent != (None, None) else own

    def stop(self, own: Stop) -> Stop:
        """The family's own Stop, unless a guardrail replaced what the model said, whose reason then still looks clean.

        An exception before its end breaks the answer, a later one is detail.
        """
        if self._guarded and own.raw is not None and own.reason in _CLEAN:
            own = find_stop(own.raw, {own.raw: Row(StopReason.SAFETY_BLOCKED, True, detail=GUARDED)})
        if self.error is None:
            return own
        return replace(own, detail=label_of(self.error)) if own.terminal_seen else broken(self.error)


class Watch:
    """Reads what an invoked model's response says of its stop, in place: events and bodies, as boto3 gives them too."""

    __slots__ = ("_envelope", "_inner")

    def __init__(self, ctx: Context) -> None:
        self._envelope = Envelope(ctx)
        self._inner: FamilyWatch | None = None

    def see(self, event: Any) -> None:
        """Read one event, or one whole body. Never raises over what a provider sent."""
        envelope = self._envelope
        said = envelope.opened(event)
        if said is None or envelope.family is None:
            return
        if self._inner is None:
            self._inner = envelope.family.inner.watch(envelope.context)
        self._inner.see(said)

    def close(self, *, left: bool = False) -> Seen:
        """What was seen: what the family's own watch saw, and what the envelope adds."""
        own, envelope = self._own(left=left), self._envelope
        return replace(own, stop=envelope.stop(own.stop), usage=envelope.usage(own.usage))

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

    def _own(self, *, left: bool = False) -> Seen:
        if self._inner is None:
            return Seen(NOTHING if left else self._envelope.nothing)
        return self._inner.close(left=left)


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
    return (
        int(value)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16
        else count(value)
    )
