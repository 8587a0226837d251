"""The policy for captured content: whether, where and how much of it is recorded.

By default none is recorded. The variables are those of the GenAI conventions. Each text passes
through the host's redaction and is then shortened. If the redaction fails, the content is dropped.
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
from endturn.vocabulary import fix_json_surrogates

log = logging.getLogger("endturn")

Redact = Callable[[str], str]
"""Returns the text to record in place of a text."""

LONGEST: Final = 8_192
"""The default maximum number of characters of one text."""


PLACES: Final = {
    "NO_CONTENT": (False, False),
    "SPAN_ONLY": (True, False),
    "EVENT_ONLY": (False, True),
    "SPAN_AND_EVENT": (True, True),
}
"""The signals with content (spans, events), by the values of the conventions' variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentPolicy:
    """The settings for captured content.

    Attributes:
        on_span, on_event: the signals that have it.
        details: the event `gen_ai.client.inference.operation.details` is emitted, with or without
            content.
        longest: maximum number of characters of one text; an attribute holds 8 times as many.
        redact: the host's redaction, called with every text.
    """

    on_span: bool = False
    on_event: bool = False
    details: bool = False
    longest: int = LONGEST
    redact: Redact | None = None

    @classmethod
    def of(cls, content: str | None, max_chars: int | None, redact: Redact | None) -> ContentPolicy:
        """Return the policy of these arguments; None stands for the environment's variable.

        The arguments must be valid. An invalid variable is logged, and nothing is captured.
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
        """Return the content as attributes of an event; `{}` if the redaction failed.

        `as_text` converts them for spans.
        """
        # With pydantic, which takes long to import: only if content is recorded.
        from endturn.formats import tools_of
        from endturn.telemetry.messages import MessageWriter, RedactionFailed

        writer = MessageWriter(self.longest, self.redact)
        attributes: dict[str, Any] = {}
        try:
            if (request := content.request) is not None:
                system_count = int(
                    content.is_system_separate
                    and bool(request.messages)
                    and request.messages[0].role == "system"
                )
                system = writer.attribute(writer.message, request.messages[:system_count])
                attributes[schema.SYSTEM_INSTRUCTIONS.key] = [
                    part for message in system for part in message["parts"]
                ]
                # If there is no room for all messages, the newest are kept.
                newest = writer.attribute(writer.message, reversed(request.messages[system_count:]))
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
        except RedactionFailed as failure:
            if listeners.is_strict():
                raise
            listeners.count_loss("redact")
            name = getattr(self.redact, "__qualname__", type(self.redact).__qualname__)
            _report_failed_redaction(name, failure.__cause__)
            return {}
        attributes[schema.CONTENT_CUT.key] = writer.is_incomplete or content.is_cut
        return {key: fix_json_surrogates(value) for key, value in attributes.items() if value}


def as_text(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes for a span: lists as JSON, as other instrumentations write them."""
    return {
        key: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if isinstance(value, list)
        else value
        for key, value in attributes.items()
    }


class _NoRedaction(Exception):
    """The function that ENDTURN_REDACT names cannot be imported."""


_failed_redactions: set[str] = set()
"""The names of redactions whose failure has been logged."""


def _report_failed_redaction(name: str, error: BaseException | None) -> None:
    """Log the first failure of a redaction.

    The text of its exception may quote content, so it is logged only if the import failed.
    """
    if name in _failed_redactions:
        return
    _failed_redactions.add(name)
    effect = "the content of these calls is not recorded"
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
    """Return the redaction that ENDTURN_REDACT names; None if it is not set.

    It is imported at its first use, because its module may be the agent's own.
    """
    settings.value_of(settings.REDACT, "")  # logs an invalid name
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
