"""One environment variable: its names, its type, and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, Literal

from endturn.settings.kinds import Value, ValueKind

SIGNALS: Final = ("TRACES", "METRICS", "LOGS")
"""The signals, as they appear in names of variables."""

Section = Literal["destination", "recording", "other"]
"""The part of the documentation that describes a variable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Generic[Value]):
    """One environment variable, or the variables of the signals that share a meaning.

    Attributes:
        names: its name; or a general name, then one for each signal, which takes precedence.
        kind: its type.
        default: the value if it is not set, as documented; "" if there is none.
        meaning: one or two sentences of Markdown.
        fallback: the effect of a value that cannot be used.
        keyword: the keyword of `configure()` and `instrument()` with the same meaning.
        section: where it is documented.
        is_secret: its value is never shown.
        sdk_raises: the SDK raises, or logs a traceback, for a value that cannot be used, so
            the SDK is set up as if the variable were unset.
    """

    names: tuple[str, ...]
    kind: ValueKind[Value]
    meaning: str
    default: str = ""
    fallback: str = "it is treated as unset"
    keyword: str = ""
    section: Section = "destination"
    is_secret: bool = False
    sdk_raises: bool = False

    @property
    def name(self) -> str:
        """The general name."""
        return self.names[0]


def with_signals(name: str) -> tuple[str, ...]:
    """Return the name of a general OTLP variable, then its names for each signal."""
    return (name, *(name.replace("_OTLP_", f"_OTLP_{signal}_") for signal in SIGNALS))
