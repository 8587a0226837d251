"""The dashboards' TraceQL and LogQL, from names that the schema declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from endturn.errors import UsageError
from endturn.telemetry import schema
from endturn.telemetry.schema import Attribute, Event

SERVICE: Final = "service"
"""The hidden variable with the bare names of the chosen services: `job` holds namespace/name."""
TRACE: Final = "traceId"
"""The hidden variable with the one trace to draw."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """One query of a dashboard, with Grafana's variables in it."""

    name: str
    text: str

    def plain(self, values: Mapping[str, str]) -> str:
        """The query as Grafana would send it; raises UsageError for a variable without a value."""
        text = self.text
        for name, value in values.items():
            for spelling in (f"${{{name}:pipe}}", f"${name}"):
                text = text.replace(spelling, value)
        if "$" in text:
            raise UsageError(f"{self.name!r} has a variable that was given no value: {text}")
        return text


def _span(attribute: Attribute) -> str:
    if not any(attribute in span.attributes for span in schema.SPANS):
        raise UsageError(f"no span has {attribute.key!r}")
    return f"span.{attribute.key}"


_CHOSEN: Final = f'resource.service.name =~ "${{{SERVICE}:pipe}}"'
_MODEL: Final = (
    f'{_span(schema.PROVIDER)} =~ "${{provider:pipe}}" && {_span(schema.REQUEST_MODEL)} =~ "${{model:pipe}}"'
)


def _traces(name: str, condition: str, *shown: Attribute) -> Search:
    select = f" | select({', '.join(map(_span, shown))})" if shown else ""
    return Search(name=name, text=f"{{ {_CHOSEN} && {condition} }}{select}")


TRUNCATED_RESPONSES: Final = _traces(
    "truncated responses",
    f"{_span(schema.STOP_TRUNCATED)} = true && {_MODEL}",
    schema.PROVIDER, schema.REQUEST_MODEL, schema.REASON, schema.RAW, schema.TURN_ID,
)  # fmt: skip
UNFINISHED_TURNS: Final = _traces(
    "unfinished turns",
    f"{_span(schema.TRUNCATED)} = true && {_span(schema.COMPLETE)} = false",
    schema.OUTCOME, schema.CONTINUATIONS, schema.TURN_ID,
)  # fmt: skip
CONTINUATIONS: Final = _traces(
    "continuations",
    f"{_span(schema.CONTINUATION_INDEX)} >= 1 && {_MODEL}",
    schema.PROVIDER, schema.REQUEST_MODEL, schema.CONTINUATION_INDEX, schema.REASON, schema.TURN_ID,
)  # fmt: skip
ONE_TRACE: Final = Search(name="one trace", text=f"${TRACE}")
"""No TraceQL: where a query is a bare id, Grafana asks Tempo for that trace."""

TRACEQL: Final = (TRUNCATED_RESPONSES, UNFINISHED_TURNS, CONTINUATIONS)


def _label(attribute: Attribute) -> str:
    """As Loki keeps an attribute beside the line."""
    return attribute.label


def _events(name: str, *events: Event, shown: tuple[Attribute, ...], where: str = "") -> Search:
    for event in events:
        for attribute in shown:
            if not any(attribute in each.attributes for each in events):
                raise UsageError(f"{event.name!r} has no {attribute.key!r}")
    names = "|".join(event.name.replace(".", "\\\\.") for event in events)
    line = " ".join(f"{{{{.{_label(attribute)}}}}}" for attribute in shown)
    text = f'{{service_name=~"${SERVICE}"}} | event_name=~"{names}"{where} | line_format "{{{{.event_name}}}} {line}"'
    return Search(name=name, text=text)


_OF_MODEL: Final = f' | {_label(schema.PROVIDER)}=~"$provider" | {_label(schema.REQUEST_MODEL)}=~"$model"'

ENDED: Final = _events(
    "how truncated turns ended",
    schema.CONTINUATION_TERMINATED,
    shown=(schema.REQUEST_MODEL, schema.OUTCOME, schema.ATTEMPTS, schema.TOKENS_SO_FAR, schema.TURN_ID),
    where=_OF_MODEL,
)
ATTEMPTED: Final = _events(
    "continuations",
    schema.CONTINUATION_ATTEMPT,
    shown=(schema.REQUEST_MODEL, schema.CONTINUATION_INDEX, schema.STRATEGY, schema.ATTEMPTS_LEFT, schema.TURN_ID),
    where=_OF_MODEL,
)
TOOLS: Final = _events(
    "tool payloads",
    schema.TOOL_PAYLOAD_REPAIR,
    schema.TOOL_DISPATCH_BLOCKED,
    shown=(schema.REQUEST_MODEL, schema.ISSUE, schema.BLOCK_REASON, schema.SUCCEEDED, schema.TURN_ID),
    where=_OF_MODEL,
)
UNMAPPED: Final = _events(
    "stop reasons without a row",
    schema.STOP_REASON_UNMAPPED,
    shown=(schema.PROVIDER, schema.REQUEST_MODEL, schema.RAW),
    where=_OF_MODEL,
)
OF_TRACE: Final = _events(
    "one trace's events",
    *(event for event in schema.EVENTS if event is not schema.INFERENCE_DETAILS),
    shown=(schema.REQUEST_MODEL, schema.REASON, schema.RAW, schema.STRATEGY, schema.OUTCOME, schema.SIGNAL),
    where=f' | trace_id="${TRACE}"',
)

LOGQL: Final = (ENDED, ATTEMPTED, TOOLS, UNMAPPED, OF_TRACE)
