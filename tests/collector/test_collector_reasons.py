"""Spans of any instrumentation get their stop reason in the real Collector: the one that the library reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn import frameworks
from endturn.formats import dialect_in, format_of
from endturn.frameworks import lookup
from endturn.generate.emitters import SOURCES
from endturn.vocabulary.providers import PROVIDERS
from endturn.vocabulary.stop import TRUNCATED
from endturn.vocabulary.stop_reason_tables import apis
from tests.support.otlp import Sent, Value, post, spans
from tests.support.processes import Collector, eventually

pytestmark = pytest.mark.stack

SPOKEN = {name: (known.format, dialect_in(format_of(known.format), name)) for name, known in PROVIDERS.items()}
"""Provider → the format that it speaks, and in which dialect."""
CASES: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("reasons.yaml").read_text())
FINISH = "gen_ai.response.finish_reasons"


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("reasons")) as running:
        yield running
        # Those are logged, and would be logged for every such span.
        failed = [line for line in running.log.read_text().splitlines() if "failed to" in line.lower()]
    assert failed == [], "no statement ends in an error, whatever was sent"


def through(collector: Collector, every: dict[str, Sent]) -> dict[str, dict[str, Value]]:
    """The attributes of these spans behind the Collector, by the key of each."""
    marked = [replace(each, attributes=dict(each.attributes) | {"test.key": key}) for key, each in every.items()]
    assert post(f"{collector.url}/v1/traces", spans(marked)) == 200

    def arrived() -> dict[str, dict[str, Value]]:
        found = {str(span["attributes"].get("test.key")): span["attributes"] for span in collector.spans()}
        return found if every.keys() <= found.keys() else {}

    return eventually(arrived, what=f"{len(every)} spans")


def told(attributes: dict[str, Value]) -> tuple[object, ...]:
    return tuple(attributes.get(f"endturn.stop.{name}") for name in ("reason", "raw", "truncated"))


def test_every_row_of_the_vocabulary_goes_through_the_collector(collector: Collector) -> None:
    """Each raw value of each API, under each provider that speaks it, is judged as the library judges that span."""
    sent: dict[str, Sent] = {}
    expected: dict[str, tuple[object, ...]] = {}
    assert len(lookup.table()) > 400
    for entry in lookup.table():
        for provider in {name for name, spoken in SPOKEN.items() if spoken in entry.formats} or {""}:
            key = f"{entry.api.name}|{entry.raw}|{provider}"
            attributes: dict[str, Value] = {"gen_ai.operation.name": "chat", FINISH: [entry.raw]}
            attributes |= {"gen_ai.provider.name": provider} if provider else {}
            sent[key] = Sent(attributes=attributes)
            stop = frameworks.otel(attributes)
            expected[key] = str(stop.reason), stop.raw, stop.truncated
            if not stop.mapped and entry.api.name in apis("frameworks") and not entry.formats:
                # A framework's own word: the library's reader of spans does not take it, the Collector does.
                expected[key] = entry.normalized, stop.raw, entry.truncated
    # Each attribute that the emitters' page names is one from which the Collector takes a reason.
    for name in (each.attribute for each in SOURCES if not each.span):
        sent[name] = Sent(attributes={name: "max_tokens"})
        expected[name] = "max_tokens", "max_tokens", True
    # The words of Vercel's AI SDK are its own: its `other` tells nothing, where Google's is a failure.
    for raw, row in frameworks.REASONS["vercel.v4"].items():
        inner = {"ai.operationId": "ai.streamText.doStream", "ai.response.finishReason": raw}
        sent[f"vercel|{raw}"] = Sent(attributes={**inner, FINISH: [raw]})
        expected[f"vercel|{raw}"] = str(row.reason), raw, row.reason in TRUNCATED
    found = {key: told(attributes) for key, attributes in through(collector, sent).items()}
    assert {key: (found[key], want) for key, want in expected.items() if found[key] != want} == {}


def test_spans_of_others_are_understood(collector: Collector) -> None:
    """Each instrumentation's place and spelling is read; what is no answer of a model is left alone."""
    sent = {
        name: Sent(
            attributes={key: value for key, value in case.items() if key not in ("=", "also", "name", "failed")},
            name=case.get("name", "chat"),
            failed=case.get("failed", False),
        )
        for name, case in CASES.items()
    }
    found = through(collector, sent)
    wrong: dict[str, Any] = {}
    for name, case in CASES.items():
        reason, raw = case["="]
        want = {"endturn.stop.reason": reason, "endturn.stop.raw": raw, **case.get("also", {})}
        if reason and "endturn.stop.reason" not in case:
            want["endturn.stop.truncated"] = reason in TRUNCATED
        got = {key: found[name].get(key) for key in want}
        wrong |= {name: (got, want)} if got != want else {}
    assert wrong == {}
    assert frameworks.otel(sent["exactly full"].attributes).suspected
