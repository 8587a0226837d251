"""What `endturn plan` computes is what a fleet comes to: a small one, with real processes, within a fifth."""

from __future__ import annotations

from pathlib import Path

import pytest

from endturn.generate import plan
from tests.support.fleet import Fleet
from tests.support.fleet_load import Load, traces
from tests.support.processes import eventually

pytestmark = pytest.mark.stack

PROCESSES, TURNS = 2, 300
"""Of each process so many turns: of ten one is cut off and left, one is cut off and continued."""
KNOWN = {
    "calls": 1,
    "tools": 1,
    "truncated": 0.2,
    "attempts": 0.5,
    "failed": 0,
    "models": 3,
    "streams": 0,
    "sample": 25,
    "wait": 10,
}
"""A turn is a call; the span around it is as a tool's."""
CONSTANTS = {name: value for name, value, _ in plan.constants()}


def planned(turns: int) -> dict[str, float]:
    fleet = plan.Fleet(turns=turns, processes=PROCESSES, **KNOWN)
    return {figure.name: figure.compute(fleet) for figure in plan.FIGURES}


def test_a_fleet_comes_to_what_is_planned(tmp_path: Path) -> None:
    """As though all turns were made in one second: spans, and the copies of what was cut off (two of each such turn, as
    the formula of `kafka_mb` has it); bytes, before they are compressed; traces kept; events; series of the processes,
    for what rules record comes on top, and is exact."""
    variables = {"ENDTURN_SAMPLING_WAIT": f"{KNOWN['wait']}s", "ENDTURN_SAMPLE_PERCENT": str(KNOWN["sample"])}
    with Fleet(tmp_path, agents=1, gateways=1, environment=variables) as fleet:
        [agent], [gateway] = fleet.agents, fleet.gateways
        turns = PROCESSES * TURNS
        for load in [Load(agent, turns=TURNS, first=n * TURNS) for n in range(PROCESSES)]:
            load.ended()
        decided = "otelcol_processor_tail_sampling_global_count_traces_sampled"
        eventually(lambda: gateway.own(decided) == turns, what="the traces to be decided on", timeout=120, every=1)
        at_once = planned(turns)
        wanted = {name: at_once[name] for name in ("spans", "kafka_mb", "events")} | {
            "copies": 2 * turns * KNOWN["truncated"],
            "kept": at_once["kept"] * turns,
            "series": planned(1)["series"] - (3 + 3 * KNOWN["models"]),
        }

        def found() -> dict[str, float]:
            read = "otelcol_receiver_accepted_spans"
            every = 'last_over_time({job="load", __name__!~"endturn:.*|ALERTS.*"}[1h])'
            return {
                "spans": gateway.own(read, receiver="kafka/turns"),
                "copies": gateway.own(read, receiver="kafka/truncated"),
                "kafka_mb": agent.own("otelcol_kafka_exporter_bytes_uncompressed") / 1e6 * CONSTANTS["packed"],
                "kept": sum(map(len, traces(fleet))),
                "events": agent.own("otelcol_receiver_accepted_log_records"),
                "series": sum(each.value for each in fleet.query.client.query(f"count({every})")),
            }

        eventually(found, what=f"about {wanted}", until=lambda each: each == pytest.approx(wanted, rel=0.2))
