"""What a fleet loses when one of its parts dies under load: for each fault what is promised, with counts.

Promised over any single fault: each truncated call's own span, its events and its metrics. The rest of a trace that a
dead gateway was weighing is lost with it, and is counted here. `make test-fleet` prints the table.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from tests.support.fleet import Fleet
from tests.support.fleet_load import SPANS, Load, Turns, halves, send
from tests.support.processes import Server, eventually, settled

pytestmark = [pytest.mark.stack, pytest.mark.fleet]

TURNS = int(os.environ.get("ENDTURN_FLEET_TURNS", "1000")) // 2
PERCENT = 25


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    variables = {"ENDTURN_SAMPLING_WAIT": "10s", "ENDTURN_SAMPLE_PERCENT": str(PERCENT)}
    with Fleet(tmp_path_factory.mktemp("faults"), environment=variables) as running:
        yield running


@dataclass(frozen=True)
class Account:
    """What became of a load.

    Attributes:
        cut: turns with a truncated call; of these `lost` have no truncated span in the store, `partial` not all spans,
            `silent` no event.
        kept: other turns that are in the store.
        doubled: spans that the store was given more often than as itself and as the copy of a truncated one.
        counted: responses in the ring.
    """

    sent: int
    cut: int
    lost: int
    partial: int
    kept: int
    doubled: int
    silent: int
    counted: float


def account(fleet: Fleet, turns: Turns, service: str) -> Account:
    spans = [span for n in range(len(fleet.gateways)) for span in fleet.store.spans(n) if span["traceId"] in turns]
    cut = {trace for trace, kind in turns.items() if kind != "whole"}
    truncated = {
        span["spanId"]
        for span in spans
        if span["attributes"].get("endturn.stop.truncated") or span["attributes"].get("endturn.turn.truncated")
    }
    told = {span["traceId"] for span in spans if span["attributes"].get("endturn.stop.truncated")}
    seen: dict[str, set[str]] = {}
    for span in spans:
        seen.setdefault(span["traceId"], set()).add(span["spanId"])
    times = Counter(span["spanId"] for span in spans)
    found = fleet.query.client.query(f'sum(endturn_responses_total{{job="{service}"}})')
    return Account(
        sent=len(turns),
        cut=len(cut),
        lost=len(cut - told),
        partial=sum(len(seen.get(trace, ())) != SPANS[turns[trace]] for trace in cut),
        kept=len(seen.keys() - cut),
        doubled=sum(count > 1 + (span in truncated) for span, count in times.items()),
        silent=len(cut - {record.get("traceId", "") for record in fleet.store.log_records()}),
        counted=sum(each.value for each in found),
    )


FAULTS: dict[str, Callable[[Fleet], Server]] = {
    "gateway": lambda fleet: fleet.gateways[0],
    "agent": lambda fleet: fleet.agents[0],
    "kafka": lambda fleet: fleet.kafka,
    "receiver": lambda fleet: fleet.receivers[1],
    "back end": lambda fleet: fleet.store,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_was_cut_off_survives(fleet: Fleet, fault: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed in the middle of the load, started again when the load has gone on for a while without it."""
    service = fault.replace(" ", "-")
    loads = [Load(agent, turns=TURNS // 2, first=0, service=service) for agent in fleet.agents]

    def played() -> int:
        return sum(len(load.played()) for load in loads)

    eventually(lambda: played() > TURNS // 3, what="load", timeout=120)
    part = FAULTS[fault](fleet)
    part.kill()
    eventually(lambda: played() > TURNS // 2 or fault == "agent", what="load without it", timeout=120)
    part.start()
    turns = {trace: kind for load in loads for trace, kind in load.ended().items()}
    responses = sum(1 + (kind == "continued") for kind in turns.values())

    def wrong() -> Account | None:
        found = account(fleet, turns, service)
        fine = found.lost == found.silent == 0 and found.counted == responses
        # A gateway that died took what it was weighing: nothing else may leave a trace in part.
        return None if fine and (fault == "gateway" or found.partial == 0) else found

    settled(wrong, what=f"all that is promised of {responses} responses", timeout=120)
    with capsys.disabled():
        print(f"\n{fault}: {account(fleet, turns, service)}")


def test_a_gateway_that_dies_takes_what_it_was_weighing_but_no_truncated_call(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """Turns whose first spans have come when it dies, and that are cut off later. Of other gateways they stay whole."""
    read = "otelcol_receiver_accepted_spans"
    before = sum(gateway.own(read, receiver="kafka/turns") for gateway in fleet.gateways)
    turns, around, calls = halves(300, service="weighed", every=1)
    send(fleet.agents[0], around)
    settled(
        lambda: before + 600 - sum(gateway.own(read, receiver="kafka/turns") for gateway in fleet.gateways),
        what="every span around a call to be weighed",
    )
    settled(fleet.kafka.lag, what="their offsets to be committed")
    fleet.gateways[0].kill()
    send(fleet.agents[1], calls)
    fleet.gateways[0].start()

    def lost() -> int:
        return account(fleet, turns, "weighed").lost

    settled(lost, what="every truncated call's own span", timeout=120)
    # A third of the partitions was its own, and of those nobody reads what it had read.
    settled(lambda: account(fleet, turns, "weighed").partial > len(turns) / 2, what="the others' traces, whole")
    assert account(fleet, turns, "weighed").partial > 0
    with capsys.disabled():
        print(f"\ngateway, of turns that it was weighing: {account(fleet, turns, 'weighed')}")
