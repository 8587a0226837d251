"""Whether what was said is recorded, where, and how much of it.

Nothing unless the host asks for it.

The variables are those of the GenAI conventions. What is recorded passes through the host's
redaction first, and is then cut to a length; where the redaction fails it is lost, never shown as
it was.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeVar

from endturn.calls import Content, listeners, log_exception
from endturn.errors import UsageError
from endturn.telemetry import schema
from endturn.vocabulary import cleaned

log = logging.getLogger("endturn")

Value = TypeVar("Value")

Redact = Callable[[str], str]
"""Is given each text before it is recorded, and gives what may be."""

CAPTURE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
EMIT_EVENT: Final = "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"
MAX_CHARS: Final = "ENDTURN_CONTENT_MAX_CHARS"
REDACT: Final = "ENDTURN_REDACT"

LONGEST: Final = 8_192
"""Characters of one text that are recorded, where the host does not say."""


PLACES: Final = {
    "NO_CONTENT": (False, False),
    "SPAN_ONLY": (True, False),
    "EVENT_ONLY": (False, True),
    "SPAN_AND_EVENT": (True, True),
}
"""Where what was said is recorded, by the words of the conventions' variable: on spans, on
events."""
WORDS: Final = ", ".join(PLACES)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPolicy:
    """What is recorded of what is said.

    Attributes:
        on_span, on_event: where it stands.
        details: the event `gen_ai.client.inference.operation.details` is emitted, with what was
            said or without.
        longest: characters of one text; an attribute holds 8 times as many.
        redact: is given every text before it is recorded.
    """

    on_span: bool = False
    on_event: bool = False
    details: bool = False
    longest: int = LONGEST
    redact: Redact | None = None

    @classmethod
    def of(cls, content: str | None, max_chars: int | None, redact: Redact | None) -> ContentPolicy:
        """What the arguments say, and the environment where they do not.

        Raises:
            UsageError: an argument cannot be used. A variable that cannot is warned of: nothing is
                captured then.
        """
        on_span, on_event = _places(content)
        why = "is neither true nor false: it is as if it were not set"
        details = variable(
            EMIT_EVENT, {"TRUE": True, "FALSE": False}.__getitem__, otherwise=on_event, why=why
        )
        if isinstance(max_chars, bool) or not (
            max_chars is None or (isinstance(max_chars, int) and max_chars > 0)
        ):
            raise UsageError(
                f"content_max_chars={max_chars!r}: give a number of characters, at least 1"
            )
        if redact is not None and not callable(redact):
            raise UsageError(
                f"redact must be a function from text to text, not a value of type "
                f"{type(redact).__name__}"
            )
        why = f"is no number of characters: {LONGEST:,} are recorded"
        longest = max_chars or variable(MAX_CHARS, _characters, otherwise=LONGEST, why=why)
        redact = redact or _named_redaction()
        return cls(
            on_span=on_span,
            on_event=on_event and details,
            details=details,
            longest=longest,
            redact=redact,
        )

    def attributes(self, content: Content, stop_sequences: tuple[str, ...] = ()) -> dict[str, Any]:
        """What was said, as the attributes of an event; `{}` where the redaction failed.

        `as_text` is for spans.
        """
        # With pydantic, which takes long to import: only where what was said is wanted.
        from endturn.formats import tools_of
        from endturn.telemetry.messages import MessageWriter, RedactionFailed

        writer = MessageWriter(self.longest, self.redact)
        found: dict[str, Any] = {}
        try:
            if (request := content.request) is not None:
                beside = int(
                    content.beside
                    and bool(request.messages)
                    and request.messages[0].role == "system"
                )
                system = writer.attribute(writer.message, request.messages[:beside])
                found[schema.SYSTEM_INSTRUCTIONS.key] = [
                    part for each in system for part in each["parts"]
                ]
                # The newest are kept where there is no room for all.
                newest = writer.attribute(writer.message, reversed(request.messages[beside:]))
                found[schema.INPUT_MESSAGES.key] = newest[::-1]
                found[schema.TOOL_DEFINITIONS.key] = writer.attribute(
                    writer.tool, tools_of(request)
                )
            found[schema.OUTPUT_MESSAGES.key] = writer.attribute(writer.answer, content.responses)
            found[schema.REQUEST["stop_sequences"].key] = tuple(map(writer.text, stop_sequences))
        except RedactionFailed as failed:
            if listeners.is_strict():
                raise
            listeners.count_loss("redact")
            name = getattr(self.redact, "__qualname__", type(self.redact).__qualname__)
            why = "failed; what was said in such calls is not recorded"
            say_once(f"the redaction {name}", why, error=failed.__cause__)
            return {}
        found[schema.CONTENT_CUT.key] = writer.cut or content.is_cut
        return {key: cleaned(value) for key, value in found.items() if value}


def as_text(found: Mapping[str, Any]) -> dict[str, Any]:
    """The same for a span, whose attributes are flat.

    JSON in place of lists, as other instrumentations write it.
    """
    return {
        key: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, list)
        else value
        for key, value in found.items()
    }


_said: set[str] = set()


def say_once(what: str, why: str, *, error: BaseException | None = None) -> None:
    """Warn of a variable that cannot be used, or of what failed, the first time."""
    if what not in _said:
        _said.add(what)
        if error is None:
            log.warning("endturn: %s %s", what, why)
        else:
            log_exception(logging.WARNING, "endturn: %s %s", what, why, error=error)


def variable(name: str, read: Callable[[str], Value], *, otherwise: Value, why: str) -> Value:
    """What a variable says, whatever its case; where that cannot be read, it is said once."""
    word = os.environ.get(name, "").strip().upper()
    try:
        return read(word) if word else otherwise
    except (KeyError, ValueError):
        say_once(name, why)
        return otherwise


def _places(given: str | None) -> tuple[bool, bool]:
    if given is None:
        # `true` is none of them: it is an older generation's word, for something else.
        words = {"FALSE": PLACES["NO_CONTENT"], **PLACES}
        why = f"is none of {WORDS}: no content is recorded"
        return variable(CAPTURE, words.__getitem__, otherwise=PLACES["NO_CONTENT"], why=why)
    if not isinstance(given, str) or given.strip().upper() not in PLACES:
        raise UsageError(f"content={given!r}: use one of {WORDS}")
    return PLACES[given.strip().upper()]


def _characters(word: str) -> int:
    if int(word) < 1:
        raise ValueError
    return int(word)


def _named_redaction() -> Redact | None:
    """The redaction that a variable names, imported when it is first needed.

    Its module may be the agent's own.
    """
    name = os.environ.get(REDACT, "").strip()
    if not name:
        return None
    if not all(name.partition(":")):
        say_once(
            REDACT,
            f"is not module:function: {name!r} redacts nothing, so nothing of what "
            f"was said is recorded",
        )

    def redact(text: str) -> str:
        shown: str = _resolve(name)(text)
        return shown

    redact.__qualname__ = name
    return redact


@cache
def _resolve(name: str) -> Any:
    """Return the function of that name, imported once."""
    from pkgutil import resolve_name

    return resolve_name(name)
