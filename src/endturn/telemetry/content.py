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
from typing import Any, Final

from endturn import settings
from endturn.calls import Content, listeners, log_exception
from endturn.telemetry import schema
from endturn.vocabulary import cleaned

log = logging.getLogger("endturn")

Redact = Callable[[str], str]
"""Is given each text before it is recorded, and gives what may be."""

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

        The arguments have been checked. A variable that cannot be used is warned of: nothing is
        captured then.
        """
        on_span, on_event = _places(content)
        details = settings.value_of(settings.EMIT_EVENT, on_event)
        longest = max_chars or settings.value_of(settings.CONTENT_MAX_CHARS, LONGEST)
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
        attributes: dict[str, Any] = {}
        try:
            if (request := content.request) is not None:
                beside = int(
                    content.beside
                    and bool(request.messages)
                    and request.messages[0].role == "system"
                )
                system = writer.attribute(writer.message, request.messages[:beside])
                attributes[schema.SYSTEM_INSTRUCTIONS.key] = [
                    part for message in system for part in message["parts"]
                ]
                # The newest are kept where there is no room for all.
                newest = writer.attribute(writer.message, reversed(request.messages[beside:]))
                attributes[schema.INPUT_MESSAGES.key] = newest[::-1]
                attributes[schema.TOOL_DEFINITIONS.key] = writer.attribute(
                    writer.tool, tools_of(request)
                )
            attributes[schema.OUTPUT_MESSAGES.key] = writer.attribute(
                writer.answer, content.responses
            )
            attributes[schema.REQUEST["stop_sequences"].key] = tuple(
                map(writer.text, stop_sequences)
            )
        except RedactionFailed as failed:
            if listeners.is_strict():
                raise
            listeners.count_loss("redact")
            name = getattr(self.redact, "__qualname__", type(self.redact).__qualname__)
            _report_failed_redaction(name, failed.__cause__)
            return {}
        attributes[schema.CONTENT_CUT.key] = writer.cut or content.is_cut
        return {key: cleaned(value) for key, value in attributes.items() if value}


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


class _NoRedaction(Exception):
    """The function that ENDTURN_REDACT names cannot be imported."""


_failed_redactions: set[str] = set()
"""Names of redactions whose failure has been logged."""


def _report_failed_redaction(name: str, error: BaseException | None) -> None:
    """Log the first failure of a redaction.

    Its exception's text may quote what was said, an import's does not.
    """
    if name in _failed_redactions:
        return
    _failed_redactions.add(name)
    effect = "what was said in such calls is not recorded"
    if isinstance(error, _NoRedaction):
        log.warning(
            "endturn: %s=%r cannot be imported (%s); %s",
            *(settings.REDACT.name, name, error, effect),
        )
    else:
        log_exception(
            logging.WARNING, "endturn: the redaction %s failed; %s", name, effect, error=error
        )


def _places(content: str | None) -> tuple[bool, bool]:
    word = content or settings.value_of(settings.CAPTURE_CONTENT, "NO_CONTENT")
    return PLACES[word.strip().upper()]


def _named_redaction() -> Redact | None:
    """The redaction that a variable names, imported when it is first needed.

    Its module may be the agent's own.
    """
    settings.value_of(settings.REDACT, "")  # reports a name that is none
    name = os.environ.get(settings.REDACT.name, "").strip()
    if not name:
        return None

    def redact(text: str) -> str:
        try:
            function = _resolve(name)
        except (Exception, SystemExit) as error:  # a module may be a script that ends with exit()
            raise _NoRedaction(f"{type(error).__name__}: {error}") from None
        redacted: str = function(text)
        return redacted

    redact.__qualname__ = name
    return redact


@cache
def _resolve(name: str) -> Any:
    """Return the function of that name, imported once."""
    from pkgutil import resolve_name

    return resolve_name(name)
