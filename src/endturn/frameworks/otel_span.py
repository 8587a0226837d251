"""OpenTelemetry: the stop reason in a span's attributes, as instrumentations write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from endturn.formats import count, items, member, text_or_none
from endturn.frameworks._response_fields import (
    first_item,
    first_present,
    reject_plain_value,
    unsupported,
)
from endturn.frameworks.rows import (
    REASONS,
    find_provider_row,
    find_responses_row,
    provider_tables,
    restrict_resume,
    stop_of,
)
from endturn.vocabulary import Stop, raw_text

_EXPECTED: Final = "a span's attributes or its finish reasons"


def otel(finished: object, *, provider: str | None = None, status: str | None = None) -> Stop:
    """Return why a response stopped, from its span, in the spelling of any instrumentation.

    A span of `fetch_response` repeats the reasons of the response that it fetched: leave it out
    when you count.

    Args:
        finished: a span, its attributes, or its `gen_ai.response.finish_reasons` alone. The first
            choice counts.
        provider: as `gen_ai.provider.name`. Defaults to that attribute.
        status: as `gen_ai.response.status`, for a response without a reason so far. Defaults to
            that attribute.

    Raises:
        UsageError: the value is none of these, or a span of something other than a model call.
    """
    if isinstance(finished, str | list | tuple):
        _check_reasons(finished)
        attributes: Mapping[str, Any] = {}
        reasons: Any = finished
    else:
        attributes = _span_attributes(finished)
        reasons = first_present(
            member(attributes, "gen_ai.response.finish_reasons"),
            member(attributes, "llm.finish_reason"),  # OpenInference
        )
        provider = provider or text_or_none(member(attributes, "gen_ai.provider.name"))
        status = status or text_or_none(member(attributes, "gen_ai.response.status"))
    raw = reasons if isinstance(reasons, str) else first_item(reasons)
    if raw_text(raw) is None and status:
        raw, row = find_responses_row({"status": status, "background": True})
    else:
        tables = (REASONS["otel.util-genai"], *provider_tables(provider or ""))
        row = find_provider_row(raw, tables)
    return stop_of(
        raw,
        restrict_resume(row),
        output_tokens=count(member(attributes, "gen_ai.usage.output_tokens")),
        maximum=count(member(attributes, "gen_ai.request.max_tokens")),
    )


def _check_reasons(reasons: Any) -> None:
    """Raise if an item of the list is neither text nor None."""
    for reason in items(reasons):
        if not isinstance(reason, str | None):
            raise unsupported("otel", _EXPECTED, reason)


def _span_attributes(span: Any) -> Mapping[str, Any]:
    """Return the attributes of a model call's span; none for a span that is not recording."""
    reject_plain_value("otel", _EXPECTED, span)
    attributes = member(span, "attributes")
    if attributes is None:
        if isinstance(span, Mapping):
            attributes = span
        elif hasattr(span, "get_span_context"):
            attributes = {}
    if not isinstance(attributes, Mapping):
        raise unsupported("otel", _EXPECTED, span)
    is_model_call = any(str(name).startswith(("gen_ai.", "llm.")) for name in attributes)
    if attributes and not is_model_call:
        raise unsupported("otel", _EXPECTED, attributes)
    return attributes
