"""The formats by name, and the dialects that a format has."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from endturn.errors import UsageError, did_you_mean
from endturn.formats.names import FORMATS as FORMATS
from endturn.formats.summaries import (
    TAIL as TAIL,
    Attempt as Attempt,
    Context as Context,
    Event as Event,
    Framing as Framing,
    RequestSummary as RequestSummary,
    ResponseSummary as ResponseSummary,
    Route as Route,
    Routed as Routed,
    ScriptedStyle as ScriptedStyle,
)
from endturn.vocabulary import COMPATIBLE

if TYPE_CHECKING:
    from endturn.formats.format import Format


@cache
def format_of(name: str) -> Format:
    """Return the format of that name.

    Raises:
        UsageError: there is none.
    """
    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r}; the formats are: {', '.join(FORMATS)}")
    format: Format = import_module(f"endturn.formats.apis.{name}").FORMAT
    return format


def summarize(format: Format, ctx: Context, body: Any) -> ResponseSummary:
    """Summarize a whole body for telemetry."""
    summarizer = format.summarizer(ctx)
    summarizer.feed(body)
    return summarizer.close()


def dialect_in(format: Format, provider: str) -> str:
    """Return a provider's dialect in a format.

    Its own if the format has it, else that of compatible servers, else the format's home.

    Args:
        provider: as in `gen_ai.provider.name`; it may be unknown.
    """
    from endturn.vocabulary import PROVIDERS

    dialect = PROVIDERS[provider].dialect if provider in PROVIDERS else COMPATIBLE
    # In other formats "mistral" is the family of models on Bedrock.
    if dialect in format.reasons and (dialect != "mistral" or format.name == "openai_chat"):
        return dialect
    return COMPATIBLE if COMPATIBLE in format.reasons else ""


def checked_dialect(format: Format, dialect: str) -> str:
    """Return a dialect's name after checking it.

    Raises:
        UsageError: the format has no such dialect.
    """
    if dialect not in format.reasons:
        dialects = ", ".join(filter(None, format.reasons)) or "none"
        raise UsageError(f"{format.name} has no dialect {dialect!r}; it has: {dialects}")
    return dialect


def check_any_dialect(dialect: str) -> None:
    """Check a dialect of a format that is not known yet.

    Raises:
        UsageError: no format has such a dialect.
    """
    dialects = sorted({one for name in FORMATS for one in format_of(name).reasons} - {""})
    if dialect and dialect not in dialects:
        raise UsageError(f"no format has a dialect {dialect!r}; {did_you_mean(dialect, dialects)}")
