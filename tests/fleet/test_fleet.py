"""A fleet's proof: what is sent through several agents is kept once, sampled whole, and counted as by one Collector."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

import pytest

from tests.generate.test_dashboards import BY_NAME, QUERIES
from tests.support.fleet import Fleet
from tests.support.fleet_account import COUNTERS, account, counts, responses
from tests.support.fleet_load import Load, Turns, plain_turns, traces
from tests.support.fleet_view import OWN, Labels, asked, firing
from tests.support.processes import PrometheusClient, eventually, http, metric, settled

pytestmark = pytest.mark.stack

TURNS = 1000
"""Of the library; those without it come on top."""
LASTS = 20
"""Seconds that they are played for at least, however fast the machine is: an export and a look are a second each."""
PERCENT = 25
"""Of turns that ended well, how many are kept."""
AGAIN = 5
"""Seconds until all is counted once more: longer than any part waits before it sends something again."""
WRONG = ("lost", "partial", "missed", "unchosen", "doubled", "silent", "repeated")
"""What an account of a load has none of."""


@dataclass(frozen=True)
class Played:
    """The fleet, after all load has ended and every trace is decided on.

    Attributes:
        edges: under the load a moment before, how many turns the library had played, a moment after.
    """

    fleet: Fleet
    turns: Turns
    foreign: Turns
    edges: list[tuple[float, int, float]]
    began: float
    ended: float


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder = tmp_path_factory.mktemp("fleet")
    variables = {"ENDTURN_SAMPLING_WAIT": "10s", "ENDTURN_SAMPLE_PERCENT": str(PERCENT)}
    with Fleet(folder, environment=variables) as fleet:
        began = time.time()
        share = TURNS // 3
        loads = [Load(fleet.agents[n % 2], turns=share, first=n * share, most=share // LASTS) for n in range(3)]
        foreign = plain_turns(fleet.agents, TURNS // 5, service="load-plain")
        edges = [(began, 0, began)]
        while edges[-1][1] < len(loads) * share:
            time.sleep(1)
            before, count = time.time(), sum(len(load.played()) for load in loads)
            edges.append((before, count, time.time()))
        turns = {trace: kind for load in loads for trace, kind in load.ended().items()}
        every = len(turns) + len(foreign)
        decided = "otelcol_processor_tail_sampling_global_count_traces_sampled"
        eventually(
            lambda: sum(gateway.own(decided) for gateway in fleet.gateways) == every,
            what=f"{every} traces to be decided on",
            timeout=120,
            every=1,
        )
        yield Played(fleet, turns, foreign, edges, began, time.time())


def test_all_that_was_sent_is_there_once(played: Played) -> None:
    """Truncated turns whole, other turns sampled whole at the rate that is set, each event, and what is counted in the
    ring: by the library, and from spans of others. So it stays when parts send again what was not answered.
    """
    settled(lambda: wrong(played), what="all that was sent")
    # Every series has begun at zero in the ring, too, so what panels make of it is the whole of it.
    for name, sent in zip(COUNTERS, counts(played.turns), strict=True):
        grew = f'{name}{{job="load"}}[{time.time() - played.began:.0f}s]'
        [grown] = played.fleet.query.client.query(f"sum(max_over_time({grew}) - min_over_time({grew}))")
        assert grown.value == sent, name
    time.sleep(AGAIN)
    assert not wrong(played)
    never = {"00" * 16: "truncated"}
    assert became(replace(played, turns=played.turns | never)) == {
        "lost": 1,
        "partial": 1,
        "silent": 1,
        "miscounted": 1,
    }
    assert became(played, percent=PERCENT + 20).keys() == {"missed"}
    assert became(played, percent=PERCENT - 20).keys() == {"unchosen"}


def wrong(played: Played) -> object:
    """What became of the load otherwise than it should, and turns that are not at one gateway.

    Of a truncated one there may be copies at another, where its spans came through different agents.
    """
    by_gateway = traces(played.fleet)
    copied = {span.id for spans in played.fleet.store.passed_on() for span in spans if span.copied}
    apart = []
    for trace in played.turns | played.foreign:
        *others, most = sorted((spans.get(trace, set()) for spans in by_gateway), key=len)
        apart += [trace] * (not set().union(*others) <= most & copied)
    return apart or became(played)


def became(played: Played, *, percent: int = PERCENT) -> dict[str, object]:
    """What an account of the load says is not as it should be."""
    found = account(played.fleet, played.turns, played.foreign, service="load", percent=percent, since=played.began)
    counted = (found.counted, found.plain) == (counts(played.turns), responses(played.foreign))
    return {name: count for name in WRONG if (count := getattr(found, name))} | ({} if counted else {"miscounted": 1})


def test_totals_of_any_time_are_those_of_one_sample_before_or_after(played: Played) -> None:
    """At each edge of a window, while turns are played: what was counted by then is between two samples."""
    text = f'endturn_turns_total{{job="load"}}[{played.ended - played.began:.0f}s]'
    series = [found.points for found in played.fleet.query.client.query(text, time=played.ended)]
    born = max(points[0][0] for points in series)
    edges = [edge for edge in played.edges if edge[0] > born]
    assert len(edges) > 3
    for before, count, after in edges:
        least = sum(max(value for when, value in points if when <= before) for points in series)
        most = sum(next((value for when, value in points if when > after), points[-1][1]) for points in series)
        assert least - 3 <= count <= most  # a turn of each process may have been counted, and not yet told


def test_exemplars_are_those_of_one_prometheus(played: Played) -> None:
    def different() -> object:
        one, ring = (exemplars(client, played) for client in (played.fleet.compared.client, played.fleet.query.client))
        return None if one and one == ring else {"one alone": one - ring, "the ring alone": ring - one}

    settled(different, what="the same exemplars")


def exemplars(client: PrometheusClient, played: Played) -> set[tuple[Labels, Labels, str]]:
    text = urlencode({"query": '{job="load"}', "start": played.began, "end": played.ended})
    every = [(series, each) for series in client.get(f"query_exemplars?{text}") for each in series["exemplars"]]
    return {(labels(series["seriesLabels"]), labels(each["labels"]), each["value"]) for series, each in every}


def labels(of: Mapping[str, str]) -> Labels:
    return frozenset((key, value) for key, value in of.items() if key not in OWN)


def test_each_receiver_of_the_ring_holds_a_part(played: Played) -> None:
    """Otherwise nothing here would show that the ring is asked as a whole."""
    held = [metric(receiver.http, "prometheus_tsdb_head_series") for receiver in played.fleet.receivers]
    assert len(held) == 2
    assert min(held) > max(held) / 4


def test_every_panel_shows_what_one_prometheus_shows(played: Played) -> None:
    """The same series and values from the ring as from one Prometheus that was written the same samples.

    What rules record is left out: the two evaluate them at different moments. Alerts are compared below.
    """
    marks = [(mark["name"], mark["target"]) for board in BY_NAME.values() for mark in board["annotations"]["list"]]
    queries = {f"{title}/{each['refId']}": asked(each["expr"]) for title, each in [*QUERIES, *marks]}
    direct = {place: text for place, text in queries.items() if not re.search(r"endturn:|ALERTS", text)}
    filled: set[str] = set()

    def different() -> list[object]:
        found: list[object] = []
        for place, text in direct.items():
            one, ring = (
                {labels(each.labels): each.value for each in client.query(text, time=played.ended)}
                for client in (played.fleet.compared.client, played.fleet.query.client)
            )
            filled.update([place] if one else [])
            if one.keys() != ring.keys() or any(one[key] != pytest.approx(ring[key], rel=1e-6) for key in one):
                found.append((place, text, one, ring))
        return found

    settled(different, what="the same answers", timeout=90)  # what was sent last may still be on its way
    assert len(filled) > len(direct) / 3, "empty panels are alike"


def test_every_alert_fires_as_with_one_prometheus_and_reaches_alertmanager(played: Played) -> None:
    """Under a load that goes on: what one of the two has fired the other has fired, too."""
    one: set[Labels] = set()
    ring: set[Labels] = set()
    told: set[str] = set()

    def different() -> object:
        one.update(firing(played.fleet.compared.client))
        ring.update(firing(played.fleet.rule.client))
        # It holds those, too, that another alert keeps it from sending on.
        held = http.get(f"{played.fleet.alertmanager.url}/api/v2/alerts").json()
        told.update(alert["labels"]["alertname"] for alert in held)
        untold = {dict(labels)["alertname"] for labels in ring} - told
        alike = one == ring and not untold and any(("job", "going on") in labels for labels in ring)
        return None if alike else {"one alone": one - ring, "the ring alone": ring - one, "untold": untold}

    load = Load(played.fleet.agents[0], turns=10**6, service="going on")
    try:
        settled(different, what="the same alerts", timeout=150)
    finally:
        load.stop()

    eventually(lambda: played.fleet.webhook.alerts, what="Alertmanager to send on what it was told")
