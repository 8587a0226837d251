"""Whether what was said is recorded, where, and how much of it: nothing unless the host asks for it.

The variables are those of the GenAI conventions. What is recorded passes through the host's redaction first, and is
then cut to a length; where the redaction fails it is lost, never shown as it was.
"""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from typing import Any, Final

from endturn.errors import UsageError
from endturn.records import Content
from endturn.telemetry import parts, schema
from endturn.telemetry.attributes import raw_shown
from endturn.telemetry.bounded import Bound, Redact, RedactionFailed

log = logging.getLogger("endturn")

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EMIT_EVENT: Final = "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"
MAX_CHARS: Final = "ENDTURN_CONTENT_MAX_CHARS"
REDACT: Final = "ENDTURN_REDACT"

_NAMED: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")

LONGEST: Final = 8_192
"""Characters of one text that are recorded, where the host does not say."""


class Capture(StrEnum):
    """Where what was said is recorded: the words of the conventions' variable."""

    NO_CONTENT = "NO_CONTENT"
    SPAN_ONLY = "SPAN_ONLY"
    EVENT_ONLY = "EVENT_ONLY"
    SPAN_AND_EVENT = "SPAN_AND_EVENT"


@dataclass(frozen=True, slots=True, kw_only=True)
class Capturing:
    """What is recorded of what is said.

    Attributes:
        on_span, on_event: where it stands.
        details: the event `gen_ai.client.inference.operation.details` is emitted, with what was said or without.
        longest: characters of one text; an attribute holds 8 times as many.
        redact: is given every text before it is recorded.
    """

    on_span: bool = False
    on_event: bool = False
    details: bool = False
    longest: int = LONGEST
    redact: Redact | None = None

    @classmethod
    def of(cls, content: str | None, max_chars: int | None, redact: Redact | None) -> Capturing:
        """What the arguments say, and the environment where they do not.

        Raises:
            UsageError: an argument cannot be used. A variable that cannot is warned of: nothing is captured then.
        """
        capture = _capture(content)
        on_event = capture in (Capture.EVENT_ONLY, Capture.SPAN_AND_EVENT)
        details = _flag(EMIT_EVENT, otherwise=on_event)
        if redact is not None and not callable(redact):
            raise UsageError(f"redact is a function from text to text, not a value of type {type(redact).__name__}")
        named = os.environ.get(REDACT, "").strip()
        if named and not _NAMED.fullmatch(named):
            say_once(
                REDACT, f"is not module:function: {named!r} redacts nothing, so nothing of what was said is recorded"
            )
        return cls(
            on_span=capture in (Capture.SPAN_ONLY, Capture.SPAN_AND_EVENT),
            on_event=on_event and details,
            details=details,
            longest=_longest(max_chars),
            redact=redact or (_Named(named) if named else None),
        )

    @property
    def takes_content(self) -> bool:
        """Whether what was said is wanted anywhere."""
        return self.on_span or self.on_event

    def attributes(self, content: Content) -> dict[str, Any]:
        """What was said, as the attributes of an event; `{}` where the redaction failed. `as_text` is for spans."""
        bounds: list[Bound] = []

        def bounded(kept: Iterable[Any], *, newest: bool = False) -> list[Any]:
            bound = Bound(self.longest, self.redact)
            bounds.append(bound)
            return bound.all(list(kept), newest=newest)

        found: dict[str, Any] = {}
        try:
            if content.request is not None:
                system, messages = parts.asked(content.request, beside=content.beside)
                found[schema.SYSTEM_INSTRUCTIONS.key] = bounded(system)
                found[schema.INPUT_MESSAGES.key] = bounded(messages, newest=True)
                found[schema.TOOL_DEFINITIONS.key] = bounded(parts.tools(content.request))
            found[schema.OUTPUT_MESSAGES.key] = bounded(
                parts.answered(each, schema.finish_reason(each.stop.reason, raw_shown(each.stop)))
                for each in content.responses
            )
        except RedactionFailed:
            return {}
        found = {key: value for key, value in found.items() if value}
        if any(bound.cut for bound in bounds):
            found[schema.CONTENT_CUT.key] = True
        return found


def narrower(before: str | None, asked: str | None) -> str | None:
    """Of two words for where what was said is recorded, what both allow; None, which the environment decides, is one.

    Raises:
        UsageError: one is no such word.
    """
    if asked is None:
        return before
    one, other = _capture(before), _capture(asked)
    if Capture.SPAN_AND_EVENT in (one, other):
        return other if one is Capture.SPAN_AND_EVENT else one
    return one if one is other else Capture.NO_CONTENT


def as_text(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a span, whose attributes are flat: JSON in place of lists, as other instrumentations write it."""
    return {
        key: json.dumps(value, ensure_ascii=False, separators=(",", ":")) if isinstance(value, list) else value
        for key, value in found.items()
    }


class _Named:
    """A redaction named by a variable, `module:function`, imported when first needed: its module may be the agent's."""

    __slots__ = ("_function", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._function: Redact | None = None

    def __call__(self, text: str) -> str:
        if self._function is None:
            module, _, path = self.name.partition(":")
            found: Any = import_module(module)
            for each in path.split("."):
                found = getattr(found, each)
            self._function = found
        return self._function(text)


_said: set[str] = set()


def say_once(variable: str, told: str) -> None:
    """Warn of a variable that cannot be used, the first time that it is read."""
    if variable not in _said:
        _said.add(variable)
        log.warning("endturn: %s %s", variable, told)


def _capture(given: str | None) -> Capture:
    if given is not None:
        try:
            return Capture(given.strip().upper())
        except (ValueError, AttributeError):
            raise UsageError(f"content={given!r}: use one of {', '.join(Capture)}") from None
    word = os.environ.get(CAPTURE, "").strip().upper()
    if word in ("", "FALSE"):
        return Capture.NO_CONTENT
    try:
        return Capture(word)
    except ValueError:
        # `true` too: it is an older generation's word, for something else.
        say_once(CAPTURE, f"is none of {', '.join(Capture)}: no content is recorded")
        return Capture.NO_CONTENT


def _flag(variable: str, *, otherwise: bool) -> bool:
    word = os.environ.get(variable, "").strip().lower()
    if word in ("true", "false"):
        return word == "true"
    if word:
        say_once(variable, "is neither true nor false: it is as if it were not set")
    return otherwise


def _longest(given: int | None) -> int:
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise UsageError(f"content_max_chars={given!r}: give a number of characters, 1 or more")
        return given
    word = os.environ.get(MAX_CHARS, "").strip()
    if word.isascii() and word.isdigit() and int(word) > 0:
        return int(word)
    if word:
        say_once(MAX_CHARS, f"is no number of characters: {LONGEST:,} are recorded")
    return LONGEST
