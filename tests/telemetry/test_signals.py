"""Every attribute that the schema lists for a signal is emitted: by exchanges over HTTP, from body to signal.

What tells of a call is shown by exchanges.yaml alone, so that a reader that leaves a setting out fails here; what tells
of turns and tools by scenes.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import yaml

from endturn.calls import On, facts_in, listeners, members_of
from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.instrumentation._instrument import instrument, uninstrument
from endturn.instrumentation.decorators import observe_turn
from endturn.telemetry import cleanup, schema
from endturn.telemetry.otel_providers import Options
from tests.telemetry.scenes import SCENES
from tests.telemetry.stage import METRICS, Stage
from tests.telemetry.test_recorder import RECORDED, plain

EXCHANGES: Final[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("exchanges.yaml").read_text())
CHAT: Final = "http://gateway.example:8080/v1/chat/completions"

OF_A_CALL: Final = {
    *(each.name for each in schema.METRICS if each.name.startswith("gen_ai.")),
    *(each.name for each in (schema.RESPONSES, schema.BUDGET_USED, schema.SUSPECTED_METRIC, schema.UNMAPPED)),
    *(each.name for each in (schema.STOP_REASON_OBSERVED, schema.STOP_REASON_UNMAPPED, schema.INFERENCE_DETAILS)),
    schema.CHAT_SPAN.name,
}
"""The signals that tell of a single call."""
SIGNALS: Final[tuple[schema.Span | schema.LogEvent | schema.Metric, ...]] = (
    *schema.SPANS, *schema.EVENTS, *schema.METRICS,
)  # fmt: skip
DECLARED: Final = [(signal.name, attribute.key) for signal in SIGNALS for attribute in signal.attributes]

Emitted = dict[str, set[str]]
"""The attributes that were emitted, by the signal's name."""


def answer(row: dict[str, Any]) -> httpx.Response:
    """The response of an exchange."""
    if "events" in row:
        data = [*(json.dumps(each) for each in row["events"]), "[DONE]"]
        chunks = [f"data: {each}\n\n".encode() for each in data]
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=iter(chunks))
    return httpx.Response(row.get("status", 200), json=row["answer"])


def exchange(row: dict[str, Any]) -> None:
    """Make an exchange, in its turn."""

    def send() -> None:
        client = httpx.Client(transport=httpx.MockTransport(lambda request: answer(row)))
        with client, client.stream("POST", row.get("url", CHAT), json=row["request"]) as response:
            assert list(response.iter_bytes())

    (observe_turn(**row["turn"])(send) if "turn" in row else send)()


def signal_of(span: dict[str, Any]) -> str:
    """The schema's name of a span of ours."""
    operation = span["attributes"]["gen_ai.operation.name"]
    return {"invoke_agent": schema.TURN_SPAN, "execute_tool": schema.TOOL_SPAN}.get(operation, schema.CHAT_SPAN).name


def emitted(stage: Stage) -> Emitted:
    """What the signals of a stage have."""
    found: Emitted = {}
    raw = stage.spans.get_finished_spans()
    for span, ended in zip(stage.finished(), raw, strict=True):
        if "gen_ai.operation.name" in span["attributes"]:
            found.setdefault(signal_of(span), set()).update(ended.attributes or {})
    for event in stage.events():
        found.setdefault(event["name"], set()).update(event)
    for name, points in stage.points().items():
        keys = [attribute.key for attribute in METRICS[name].attributes]
        for values in points:
            found.setdefault(name, set()).update(
                key for key, value in zip(keys, values, strict=True) if value is not None
            )
    return found


@pytest.fixture(scope="module")
def exchanged() -> Iterator[Stage]:
    """The stage on which all exchanges were recorded, one after another."""
    stage = Stage()
    instrument(
        **stage.providers(),
        content="SPAN_AND_EVENT",
        content_max_chars=10,
        semconv="gen_ai_latest_experimental/dup",
    )
    try:
        with listeners.strict():
            for row in EXCHANGES.values():
                exchange(row)
        yield stage
    finally:
        uninstrument()
        cleanup.run()


@pytest.fixture(scope="module")
def of_calls(exchanged: Stage) -> Emitted:
    """What the exchanges emit."""
    return emitted(exchanged)


@pytest.fixture(scope="module")
def of_turns() -> Emitted:
    """What the scenes emit."""
    found: Emitted = {}
    with listeners.strict():
        for name, row in RECORDED.items():
            stage = Stage(options=Options(**row.get("options", {})))
            SCENES[name](stage)
            for signal, attributes in emitted(stage).items():
                found.setdefault(signal, set()).update(attributes)
    return found


@pytest.mark.parametrize("name", EXCHANGES)
def test_an_exchange_is_recorded(exchanged: Stage, name: str) -> None:
    """The call's span has what the row says."""
    calls = [span for span in exchanged.finished() if signal_of(span) == schema.CHAT_SPAN.name]
    assert len(calls) == len(EXCHANGES)
    found, expected = calls[list(EXCHANGES).index(name)]["attributes"], EXCHANGES[name]["span"]
    assert {key: plain(found.get(key)) for key in expected} == expected


@pytest.mark.parametrize(("signal", "attribute"), DECLARED)
def test_every_attribute_is_emitted(of_calls: Emitted, of_turns: Emitted, signal: str, attribute: str) -> None:
    """An attribute without an exchange that has it would not be missed."""
    # The exchanges record content, and a span with content does not say how many attributes it has.
    is_of_a_call = signal in OF_A_CALL and attribute != schema.ATTRIBUTE_COUNT.key
    assert attribute in (of_calls if is_of_a_call else of_turns).get(signal, ())


FACTS = {
    **facts_in(EndpointFacts),
    **facts_in(RequestFacts),
    **facts_in(ResponseFacts),
    **members_of(ResponseFacts, "stop"),
    **members_of(ResponseFacts, "usage"),
}
SIGNALS_OF = {
    On.CALL: schema.INFERENCE,
    On.LABEL: schema.OPERATIONS,
    On.OWN: schema.CALL,
    On.STOP: schema.STOP_REASON_OBSERVED.attributes,
}


@pytest.mark.parametrize("flag", On)
def test_each_signal_has_the_facts_that_are_declared_for_it(flag: On) -> None:
    """A flag that the schema does not read for this kind of fact would leave the attribute out, silently."""
    declared = {fact.key for fact in FACTS.values() if flag in fact.on and not fact.opt_in}
    assert declared
    assert declared <= {attribute.key for attribute in SIGNALS_OF[flag]}
