"""What a second call's options change: whoever asks for less of what was said to be recorded gets less, always."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from endturn.telemetry.content import narrower
from endturn.telemetry.messages import Redact
from endturn.telemetry.otel_providers import Options


def given(options: Options) -> dict[str, Any]:
    """The options that were given a value."""
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {name: value for name, value in values.items() if value is not None}


def overruled(before: Options, asked: Options) -> Options:
    """The options of whoever started it for the host, and over them those of the host's own call."""
    return replace(before, **given(asked))


def guarded(before: Options, asked: Options) -> tuple[Options, list[str]]:
    """The options of the host's first call, with what a later one keeps back besides.

    Returns:
        The options, and the names of those of the later call that are not taken.
    """
    limits = [limit for limit in (before.content_max_chars, asked.content_max_chars) if limit is not None]
    kept: dict[str, Any] = {
        "redact": _both(before.redact, asked.redact),
        "content": narrower(before.content, asked.content),
        "content_max_chars": min(limits, default=None),
    }
    after = replace(before, **kept)
    refused = [name for name, value in given(asked).items() if not _same(getattr(after, name), value)]
    return after, [name for name in refused if name != "redact"]


def _same(one: Any, other: Any) -> bool:
    return bool((one.strip().upper() == other.strip().upper()) if isinstance(one, str) else one == other)


def _both(before: Redact | None, asked: Redact | None) -> Redact | None:
    """Each redaction after the other, but one that is the same, or the same function made again, only once."""
    if before is None or asked is None:
        return before or asked
    earlier = before.redactions if isinstance(before, _InTurn) else (before,)
    return _InTurn((*(each for each in earlier if _code(each) != _code(asked)), asked))


def _code(redact: Redact) -> object:
    """What tells a function from others: its code, where it belongs to no object."""
    return redact if hasattr(redact, "__self__") else getattr(redact, "__code__", redact)


@dataclass(frozen=True)
class _InTurn:
    """Redactions, one after the other."""

    redactions: tuple[Redact, ...]

    def __call__(self, text: str) -> str:
        for redact in self.redactions:
            text = redact(text)
        return text
