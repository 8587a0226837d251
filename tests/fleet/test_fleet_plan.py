"""What `endturn plan` computes is what a fleet comes to: a small one, with real processes, within a fifth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from endturn import plan
from tests.support.fleet import Fleet
from tests.support.fleet_load import Load, Turns, traces
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
WITHIN = 0.2
CONSTANTS = {each.name: each.value for each in plan.CONSTANTS}


@dataclass(frozen=True)
class Played:
    """The fleet, after every trace is decided on; what the plan says of it, were all of it made in one second."""

    fleet: Fleet
    turns: Turns
    planned: dict[str, float]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("plan")
    variables = {"ENDTURN_SAMPLING_WAIT": f"{KNOWN['wait']}s", "ENDTURN_SAMPLE_PERCENT": str(KNOWN["sample"])}
    with Fleet(folder, agents=1, gateways=1, environment=variables) as fleet:
        loads = [Load(fleet.agents[0], turns=TURNS, first=n * TURNS) for n in range(PROCESSES)]
        turns = {trace: kind for load in loads for trace, kind in load.ended().items()}
        decided = "otelcol_processor_tail_sampling_global_count_traces_sampled"
        eventually(
            lambda: fleet.gateways[0].own(decided) == len(turns),
            what="the traces to be decided on",
            timeout=120,
            every=1,
        )
        figures = plan.figures(turns=len(turns), processes=PROCESSES, **KNOWN)
        yield Played(fleet, turns, {each.name: each.value for each in figures})


def test_spans_come_to_the_gateways_as_planned(played: Played) -> None:
    [gateway] = played.fleet.gateways
    read = gateway.own("otelcol_receiver_accepted_spans", receiver="kafka/turns")
    assert read == pytest.approx(played.planned["spans"], rel=WITHIN)


def test_copies_of_what_was_cut_off_come_to_them_as_planned(played: Played) -> None:
    """Two spans of each truncated turn, as the formula of `kafka_mb` has it."""
    [gateway] = played.fleet.gateways
    read = gateway.own("otelcol_receiver_accepted_spans", receiver="kafka/truncated")
    assert read == pytest.approx(2 * len(played.turns) * KNOWN["truncated"], rel=WITHIN)


def test_kafka_takes_the_bytes_that_are_planned(played: Played) -> None:
    """Before they are compressed: how well they can be is a matter of what they say."""
    [agent] = played.fleet.agents
    written = agent.own("otelcol_kafka_exporter_bytes_uncompressed")
    assert written / 1e6 * CONSTANTS["packed"] == pytest.approx(played.planned["kafka_mb"], rel=WITHIN)


def test_the_share_of_traces_is_kept_that_is_planned(played: Played) -> None:
    def kept() -> int:
        return sum(map(len, traces(played.fleet)))

    expected = played.planned["kept"] * len(played.turns)
    eventually(lambda: kept() == pytest.approx(expected, rel=WITHIN), what=f"some {expected:.0f} traces")


def test_events_are_told_as_planned(played: Played) -> None:
    [agent] = played.fleet.agents
    told = agent.own("otelcol_receiver_accepted_log_records")
    assert told == pytest.approx(played.planned["events"], rel=WITHIN)


def test_the_ring_holds_the_series_that_are_planned(played: Played) -> None:
    """Of the agents' processes: what rules record comes on top, and is exact."""
    figures = {each.name: each.value for each in plan.figures(turns=1, processes=PROCESSES, **KNOWN)}
    planned = figures["series"] - (3 + 3 * KNOWN["models"])

    def held() -> float:
        every = 'last_over_time({job="load", __name__!~"endturn:.*|ALERTS.*"}[1h])'
        return sum(each.value for each in played.fleet.query.client.query(f"count({every})"))

    eventually(lambda: held() == pytest.approx(planned, rel=WITHIN), what=f"some {planned:.0f} series")
