"""The gateway keeps every trace with a truncated, continued, repaired or failed turn, however late that turns out."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.telemetry import schema
from endturn.vocabulary.stop import StopReason
from tests.support.otlp import Sent, post, spans
from tests.support.processes import GATEWAY, Collector, eventually, shipped

pytestmark = pytest.mark.stack

TOKEN = "planted-token"
WAIT = 3
"""Seconds to a decision here; the shipped gateway waits ten minutes."""
SHIPPED = {"ENDTURN_COLLECTOR_TOKEN": TOKEN, "ENDTURN_SAMPLE_PERCENT": "0"}
TRACES = yaml.safe_load(Path(__file__).with_name("sampling.yaml").read_text())
CUT, PLAIN = TRACES["kept"]["a truncated answer of another language"], TRACES["dropped"]["a plain answer"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    variables = SHIPPED | {"ENDTURN_SAMPLING_WAIT": f"{WAIT}s"}
    with Collector(tmp_path_factory.mktemp("sampling"), config=GATEWAY, environment=variables) as running:
        yield running


def send(gateway: Collector, *every: Sent) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    assert post(f"{gateway.url}/v1/traces", spans(every), headers=headers) == 200


def names(gateway: Collector, trace: bytes) -> set[str]:
    """The spans of a trace that were kept."""
    return {span["name"] for span in gateway.spans() if span["traceId"] == trace.hex()}


def around(told: dict[str, Any], trace: bytes) -> tuple[Sent, ...]:
    """A trace: the span in question, and an unremarkable one beside it."""
    how = {key: told[key] for key in ("failed", "events") if key in told}
    attributes = {key: value for key, value in told.items() if key not in how}
    return Sent(name="told", trace=trace, attributes=attributes, **how), Sent(name="beside", trace=trace)


def test_traces_are_kept_and_dropped_whole(gateway: Collector) -> None:
    """Each kind of unfinished or repaired turn keeps all of its trace; of the rest only the share (here none) stays."""
    every = TRACES["kept"] | TRACES["dropped"]
    traces = {name: os.urandom(16) for name in every}
    send(gateway, *(span for name, told in every.items() for span in around(told, traces[name])))
    whole = {"told", "beside"}
    eventually(lambda: all(names(gateway, traces[name]) == whole for name in TRACES["kept"]), what="the kept traces")
    assert [name for name in TRACES["dropped"] if names(gateway, traces[name])] == []


def test_a_turn_below_a_root_that_has_ended_is_kept_whole(gateway: Collector) -> None:
    """The root of a remote caller has ended, and arrived, before the turn below it is cut off: both are kept."""
    trace, root = os.urandom(16), os.urandom(8)
    send(gateway, Sent(name="root", trace=trace))
    time.sleep(WAIT / 3)  # a turn takes its time: what is tested is that the trace is not judged in between
    assert names(gateway, trace) == set()
    send(gateway, Sent(name="turn", trace=trace, parent=root, attributes={"endturn.turn.truncated": True}))
    eventually(lambda: names(gateway, trace) == {"root", "turn"}, what="the root and the turn")


def test_a_kept_trace_is_seen_at_once(tmp_path: Path) -> None:
    """With the shipped wait of ten minutes, too: the cut answer and what came before it are there within seconds."""
    trace = os.urandom(16)
    with Collector(tmp_path, config=GATEWAY, environment=SHIPPED) as gateway:
        send(gateway, Sent(name="before", trace=trace, attributes=PLAIN))
        send(gateway, Sent(name="cut", trace=trace, attributes=CUT))
        eventually(lambda: names(gateway, trace) == {"before", "cut"}, what="the kept trace")
        send(gateway, Sent(name="after", trace=trace, attributes=PLAIN))
        eventually(lambda: names(gateway, trace) == {"before", "cut", "after"}, what="what came after")


def test_a_turn_longer_than_the_wait_loses_only_what_was_unremarkable(gateway: Collector) -> None:
    """What is cut off after its trace was let go is kept by itself, and what comes after that, too; all is counted."""
    trace = os.urandom(16)
    decided = "otelcol_processor_tail_sampling_global_count_traces_sampled"
    in_memory = "otelcol_processor_tail_sampling_sampling_traces_on_memory"
    eventually(lambda: gateway.own(in_memory) == 0, what="the traces of other tests to be let go")
    let_go = gateway.own(decided, sampled="false")
    send(gateway, Sent(name="early", trace=trace, attributes=PLAIN))
    eventually(lambda: gateway.own(decided, sampled="false") > let_go, what="the trace to be let go")
    send(gateway, Sent(name="late", trace=trace, attributes=CUT))
    eventually(lambda: names(gateway, trace) == {"late"}, what="the late cut")
    send(gateway, Sent(name="afterwards", trace=trace, attributes=PLAIN))
    eventually(lambda: names(gateway, trace) == {"late", "afterwards"}, what="what came after the decision to keep")


GATEWAY_FILE = shipped("collector/gateway.yaml")


def test_what_is_kept_is_named_as_the_schema_names_it() -> None:
    """The conditions that keep a trace read attributes and events that there are, and reasons of ours."""
    policies = GATEWAY_FILE["processors"]["tail_sampling"]["policies"]
    conditions = str(policies[0]["ottl_condition"])
    attributes = set(re.findall(r'span\.attributes\["([^"]+)"\]', conditions))
    assert attributes <= {attribute.key for attribute in schema.ATTRIBUTES}
    assert set(re.findall(r'spanevent\.name == "([^"]+)"', conditions)) <= {event.name for event in schema.EVENTS}
    [reasons] = re.findall(r'"\^\(([a-z_|]+)\)\$"', conditions)
    calm = {StopReason.END_TURN, StopReason.TOOL_CALL, StopReason.PAUSED, StopReason.CANCELLED}
    assert set(reasons.split("|")) == set(StopReason) - calm


def test_the_shipped_gateway_waits_long_enough_and_counts_before_it_samples() -> None:
    """Ten minutes whatever the root does, room for half as many traces again, what was kept remembered, no more.

    Logs are not sampled at all.
    """
    tail, pipelines = GATEWAY_FILE["processors"]["tail_sampling"], GATEWAY_FILE["service"]["pipelines"]
    assert tail["decision_wait"] == "${env:ENDTURN_SAMPLING_WAIT:-10m}"
    assert "decision_wait_after_root_received" not in tail
    assert tail["sampling_strategy"] == "span-ingest"
    traces = tail["expected_new_traces_per_sec"] * 600 * 3 // 2
    assert tail["num_traces"] == f"${{env:ENDTURN_SAMPLING_TRACES:-{traces}}}"
    sizes = {"sampled_cache_size": f"${{env:ENDTURN_SAMPLING_CACHE:-{10 * traces}}}", "non_sampled_cache_size": 0}
    assert tail["decision_cache"] == sizes
    assert "signal_to_metrics" in pipelines["traces"]["exporters"]
    assert "processors" not in pipelines["traces"]
    assert pipelines["traces/sampled"]["processors"] == ["tail_sampling"]
    assert "logs" not in pipelines
