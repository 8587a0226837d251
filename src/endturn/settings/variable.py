"""One environment variable: its names, its kind, and its meaning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Generic, Literal

from endturn.settings.kinds import Kind, Value

SIGNALS: Final = ("TRACES", "METRICS", "LOGS")
"""The signals, as names of variables contain them."""

Section = Literal["destination", "recording", "other"]
"""Where a variable is documented: where signals go, what is recorded, or another page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable(Generic[Value]):
    """One environment variable, or the variables of the signals that share a meaning.

    Attributes:
        names: the variable; or those of the signals, which take precedence over the first one.
        kind: how its text is read.
        default: the value if it is not set, as documented; "" if there is none.
        meaning: one or two sentences of Markdown.
        fallback: the effect of a value that cannot be used.
        keyword: the keyword of `configure()` and `instrument()` with the same meaning.
        section: where it is documented.
        is_secret: its value is never shown.
        has_sdk_raise: the SDK raises, or logs a traceback, for a value that cannot be used, so it
            is set up as if the variable were unset.
    """

    names: tuple[str, ...]
    kind: Kind[Value]
    meaning: str
    default: str = ""
    fallback: str = "it is treated as unset"
    keyword: str = ""
    section: Section = "destination"
    is_secret: bool = False
    has_sdk_raise: bool = False

    @property
    def name(self) -> str:
        """The first of its names."""
        return self.names[0]


def with_signals(name: str) -> tuple[str, ...]:
    """Return a general OTLP variable, and those of the signals."""
    return (name, *(name.replace("_OTLP_", f"_OTLP_{signal}_") for signal in SIGNALS))
