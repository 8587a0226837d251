"""What a fleet loses when one of its parts dies under load: for each fault what is promised, with counts.

Promised over any single fault: each truncated call's own span, its events and its metrics. The rest of a trace that a
dead gateway was weighing is lost with it, and is counted here. `make test-fleet` prints the rows of docs/fleet.md.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from tests.support.fleet import Fleet, Member, Metrics, Receiver
from tests.support.fleet_account import Account, account, counts, responses
from tests.support.fleet_load import Load, MixedLoad, Turns, halves, plain_turns, send
from tests.support.fleet_view import Labels, fired, firing, sampled, shown, told, total
from tests.support.processes import REPOSITORY, Server, eventually, settled

pytestmark = [pytest.mark.stack, pytest.mark.fleet]

PERCENT = 25
READ = "otelcol_receiver_accepted_spans"
DOWN, MOST_DOWN, STALLED = "EndturnCollectorDown", "EndturnCollectorsDown", "EndturnExportStalled"
QUEUES, SILENT, UNREAD = "Queues", "Services, the longest silent first", "Spans in Kafka that were not read"
ENDED = "Traces that ended with a gateway"


@dataclass(frozen=True)
class Fault:
    """Parts that are killed at once, and started again.

    Attributes:
        panel: where an operator sees it, and by which name it stands there ({service} is the load's).
        alert: what fires meanwhile; nothing else does.
        seconds: how long they are away at least, and until the load has gone on without them.
        deletes: Kafka keeps less than comes meanwhile.
        takes: what they were weighing is lost with them.
        at: after what part of the load they are killed. Late: more is counted before than after, or Prometheus does not
            see that a counter begins again.
    """

    parts: Callable[[Fleet], Sequence[Server]]
    panel: tuple[str, str] | None = None
    alert: str | None = None
    seconds: float = 20
    deletes: bool = False
    takes: bool = False
    at: float = 1 / 3


FAULTS = {
    "nothing": Fault(lambda fleet: []),
    "a gateway": Fault(lambda fleet: fleet.gateways[:1], ("Collectors", "silent"), DOWN, takes=True),
    "an agent": Fault(lambda fleet: fleet.agents[-1:], ("Collectors", "silent"), DOWN, at=2 / 3),
    "an agent's Prometheus": Fault(lambda fleet: fleet.writers[-1:], (SILENT, "{service}-plain")),
    "Kafka": Fault(lambda fleet: [fleet.kafka], (QUEUES, "kafka/turns, traces")),
    "the receiver that is written to": Fault(lambda fleet: fleet.receivers[:1], (SILENT, "{service}"), seconds=30),
    "another receiver": Fault(lambda fleet: fleet.receivers[1:], (SILENT, "{service}"), seconds=30),
    "the back end": Fault(lambda fleet: [fleet.store], (QUEUES, "otlp_grpc/tempo, traces"), STALLED, seconds=120),
    "a full topic": Fault(lambda fleet: fleet.gateways, (UNREAD, "turns"), MOST_DOWN, deletes=True, takes=True),
}
TURNS = int(os.environ.get("ENDTURN_FLEET_TURNS", "9000")) // len(FAULTS)
"""For each fault."""
OF_LOAD = {
    "EndturnTurnsUnfinished",
    "EndturnBudgetBurning",
    "EndturnTruncatedNotContinued",
    "EndturnContinuationsExhausted",
    "EndturnResponsesTruncated",  # the share is of the series that a ring without one receiver still shows
}
"""Alerts that tell of turns like these. Any other tells of what carries them."""
LATE = {"EndturnGatewaysBehind", "EndturnKafkaDeleting"}
"""Alerts that may fire where gateways are away, by how long that is on the rules' clock."""
AGAIN = 10
"""Seconds until all is counted once more: longer than any part waits before it sends something again."""
WAIT = "45s"
"""Longer than any agent is away: a trace comes through two, and is to be whole when it is decided on."""
QUEUE = 64 << 20
"""Bytes. Of a gibibyte a load of seconds is no part that anybody sees."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    variables = {
        "ENDTURN_SAMPLING_WAIT": WAIT,
        "ENDTURN_SAMPLE_PERCENT": str(PERCENT),
        "ENDTURN_COLLECTOR_QUEUE_BYTES": str(QUEUE),
    }
    with Fleet(tmp_path_factory.mktemp("faults"), environment=variables) as running:
        seen = 'count(up{job="collector"} == 1) == 5'  # until then there is an alert that there are none
        eventually(lambda: running.query.client.query(seen), what="all Collectors to be seen")
        yield running


def weighed(fleet: Fleet) -> float:
    """Traces that the gateways have not decided on."""
    return sum(gateway.own("otelcol_processor_tail_sampling_sampling_traces_on_memory") for gateway in fleet.gateways)


def read(fleet: Fleet) -> float:
    """Spans of turns that the gateways have read since each was started."""
    return sum(gateway.own(READ, receiver="kafka/turns") for gateway in fleet.gateways)


def sent(fleet: Fleet) -> float:
    """Spans of turns that the agents have sent to Kafka since each was started."""
    return sum(agent.own("otelcol_exporter_sent_spans", exporter="kafka/turns") for agent in fleet.agents)


def names(alerts: set[Labels], name: str = "") -> set[str]:
    """What these are called, but of those that tell of another fault's load."""
    others = {_service(each) for each in FAULTS} - {_service(name)}
    every = (dict(labels) for labels in alerts)
    return {alert["alertname"] for alert in every if alert.get("job", "").removesuffix("-plain") not in others}


def _service(name: str) -> str:
    return re.sub(r"\W", "-", name)


@pytest.mark.parametrize("name", FAULTS)
def test_what_was_cut_off_survives(fleet: Fleet, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Killed in the middle of the load, started again when the load has gone on for a while without it."""
    fault, parts, service = FAULTS[name], FAULTS[name].parts(fleet), _service(name)
    settled(lambda: names(firing(fleet.rule.client, pending=True)) - OF_LOAD, what="alerts to end", timeout=180)
    if fault.deletes:
        fleet.kafka.keep(retention_bytes=1 << 10, segment_ms=1000)
    began, sent_before, read_before = time.time(), sent(fleet), read(fleet)
    load = MixedLoad(fleet.agents, TURNS, service)
    eventually(lambda: load.played() > fault.at, what="load", timeout=600)
    saw = _break(fleet, name, load, began)
    own, plain = load.ended()

    def now() -> Account:
        return account(fleet, own, plain, service=service, percent=PERCENT, since=began)

    def missing() -> object:
        found, unscraped = now(), _unscraped(fleet, load, saw, began) if fleet.agents[-1] in parts else 0
        fine = found.lost == found.silent == found.unchosen == 0 and found.counted == counts(own)
        fine &= responses(plain) - unscraped <= found.plain <= responses(plain) + load.unsure
        # A gateway that died took what it was weighing: nothing else may leave a trace in part, or out.
        fine &= fault.takes or found.partial == found.missed == 0
        # What an id chooses is decided on at once, and is not weighed: a few may have been in its hands.
        fine &= fault.deletes or found.missed <= found.kept / 50
        # What holds no spans makes nobody send them again, and what holds no events not those.
        fine &= found.doubled == 0 or not all(isinstance(part, Receiver | Metrics) for part in parts)
        fine &= found.repeated == 0 or not {*fleet.agents, fleet.store}.isdisjoint(parts)
        return (fleet.kafka.lag() or weighed(fleet)) if fine else (found, unscraped, load.unsure)

    settled(missing, what=f"all that is promised of {responses(own)} and {responses(plain)} responses", timeout=300)
    time.sleep(AGAIN)
    assert not missing(), "what is sent again is counted again"
    found = now()
    row, more = _row(name, own, plain, found, saw.text), f"{found}, {saw}, unsure {load.unsure}"
    by_rule, by_mail = names(fired(fleet.query.client, began), name), names(told(fleet.webhook, began), name)
    assert by_mail & OF_LOAD, "nothing reaches Alertmanager, or it sends nothing on"
    beside = OF_LOAD | (LATE if fault.deletes else set())
    silenced = {DOWN} if fault.alert == MOST_DOWN else set()  # until most are back: then it tells of the last
    assert by_mail - beside - silenced == saw.expected
    assert by_rule - beside == saw.expected | silenced
    assert fault.deletes == (found.partial > found.cut / 4)
    if fault.deletes:  # what the panel goes on showing is what was lost
        unread = sent(fleet) - sent_before - (saw.had_read - read_before) - read(fleet)
        shows = shown(fleet.query.client, UNREAD, "turns", since=began)
        row += f"; {unread:,.0f} deleted"
        # What a gateway reads before anybody scrapes it for the first time no rate knows of.
        assert 0.9 * unread <= shows <= 1.1 * unread + read(fleet)
        assert found.partial + found.missed <= unread
    with capsys.disabled():
        print(f"\n{row} |\n{more}")


def _unscraped(fleet: Fleet, load: MixedLoad, saw: Seen, since: float) -> int:
    """What a Collector that was killed had counted of the agent without since somebody looked."""
    looked = sampled(fleet.query.client, f'endturn_responses_total{{job="{load.plain}"}}', since)
    last = max(moment for moment in looked if moment < saw.killed)
    return saw.taken - max(count for moment, count in load.taken if moment <= last)


def _row(name: str, own: Turns, plain: Turns, found: Account, saw: str) -> str:
    """A row of the table of docs/fleet.md, but for its end."""
    turns = len(own) + len(plain)
    rest = turns - found.cut
    cells = [name, *(f"{count:,}" for count in (turns, found.cut, found.lost, found.partial))]
    cells += [f"{found.kept / rest:.1%}" if rest else "", f"{found.doubled:,}"]
    cells += [f"{found.counted[0]:,.0f} of {responses(own):,}" if own else ""]
    cells += [f"{found.plain:,.0f} of {responses(plain):,}" if plain else "", saw]
    return f"| {' | '.join(cells)}"


@dataclass(frozen=True)
class Seen:
    """While the parts of a fault were away.

    Attributes:
        text: what the panel showed at most under this load before and meanwhile, and the alert.
        expected: the alerts that are to fire.
        killed: when they were killed; the gateways `had_read` so many spans then.
        taken: how many responses of the agent without had been taken when they came back.
    """

    text: str = ""
    expected: frozenset[str] = frozenset()
    killed: float = 0
    had_read: float = 0
    taken: int = 0


def _break(fleet: Fleet, name: str, load: MixedLoad, began: float) -> Seen:
    """Kill the fault's parts, look at what an operator sees (more than twice of what was there), start them again."""
    fault, parts = FAULTS[name], FAULTS[name].parts(fleet)
    if fault.panel is None:
        return Seen()
    title, legend = fault.panel[0], fault.panel[1].format(service=load.service)

    def most(since: float) -> float:
        return shown(fleet.query.client, title, legend, since=began, lately=time.time() - since)

    def is_counted() -> bool:
        counts = (f'endturn_responses_total{{job="{job}"}}' for job in (load.service, load.plain))
        return all(total(fleet.query.client, each, began) for each in counts)

    eventually(is_counted, what="counts in the ring")
    before, had_read = most(began), read(fleet)
    expected = frozenset({fault.alert} if fault.alert else ())
    killed = time.time()
    for part in parts:
        part.kill()
    try:
        eventually(lambda: most(killed) > 2 * before, what=f"more than {2 * before:g}: {title}", timeout=120, every=1)
        eventually(lambda: expected <= names(firing(fleet.rule.client), name), what=f"{expected}", timeout=120, every=1)
        paused = not {*fleet.agents}.isdisjoint(parts)
        eventually(lambda: paused or load.played() > 1 / 2, what="load without it", timeout=600)
        eventually(lambda: time.time() - killed > fault.seconds, what="it", timeout=fault.seconds + 60, every=1)
        if fault.deletes:
            eventually(lambda: load.played() == 1, what="all of the load", timeout=600, every=1)
            settled(lambda: _is_mostly_kept(fleet), what="records to be deleted unread", timeout=120)
            fleet.kafka.keep()
        during, taken = most(killed), load.taken[-1][1]
    finally:
        for part in parts:
            part.start()
    text = "; ".join([f"*{title}*: {before:.3g} → {during:.3g}", *expected])
    return Seen(text, expected, killed, had_read, taken)


def _is_mostly_kept(fleet: Fleet) -> bool:
    """Of what was not read. Kafka begins another file, and deletes those before it, only when something comes."""
    plain_turns(fleet.agents, 100, service="later")
    return fleet.kafka.deleted() < fleet.kafka.lag() / 2


def test_a_gateway_that_dies_takes_what_it_was_weighing_but_no_truncated_call(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """Turns whose first spans have come when it dies, and that are cut off later. Of other gateways they stay whole.

    What it took along is what the dashboard says that it took along.
    """
    began, before = time.time(), read(fleet)
    dying, *others = fleet.gateways
    let_go = -_let_go(*fleet.gateways)
    turns, around, calls = halves(300, service="weighed-plain", every=1)
    send(fleet.agents[0], around)
    settled(lambda: before + 600 - read(fleet), what="every span around a call to be weighed")
    settled(fleet.kafka.lag, what="their offsets to be committed")
    let_go += _let_go(dying)
    dying.kill()
    send(fleet.agents[1], calls)
    dying.start()

    def now() -> Account:
        return account(fleet, {}, turns, service="weighed", percent=PERCENT, since=began)

    def missing() -> object:
        found = now()
        return found if found.lost or found.plain != responses(turns) else None

    settled(missing, what="every truncated call's own span, and its count", timeout=120)
    # A third of the partitions was its own, and of those nobody reads what it had read.
    settled(lambda: now().partial > len(turns) / 2, what="the others' traces, whole")
    let_go += _let_go(*others)  # on a slow machine the wait is over before the calls come

    def different() -> object:
        partial = now().partial
        told = shown(fleet.query.client, ENDED, dying.metrics_address, since=began, lately=time.time() - began)
        return None if told == partial - let_go > 0 else {"in part": partial, "let go": let_go, "shown": told}

    settled(different, what="what was lost, on the panel")
    found = now()
    seen = f"*{ENDED}*: {found.partial - let_go:.0f}"
    with capsys.disabled():
        row = _row("a gateway, of turns cut off after it died", {}, turns, found, seen)
        print(f"\n{row} |\n{found}, {let_go:.0f} were let go")


def _let_go(*gateways: Member) -> float:
    """Traces that these have decided not to keep."""
    decided = "otelcol_processor_tail_sampling_global_count_traces_sampled"
    return sum(gateway.own(decided, sampled="false") for gateway in gateways)


def test_a_prometheus_agent_does_not_write_again_what_it_had_read(
    fleet: Fleet, capsys: pytest.CaptureFixture[str]
) -> None:
    """There are no samples from shortly before it died until it is back, of a process that ended meanwhile none at all.

    The Collector hands over what that had counted, but Prometheus passes on nothing from before its own start.
    """
    began, agent, writer = time.time(), fleet.agents[-1], fleet.writers[-1]
    up = f'up{{job="collector", instance="{agent.metrics_address}"}}'
    eventually(lambda: sampled(fleet.query.client, up, began)[5:], what="samples")
    killed = time.time()
    writer.kill()
    own = Load(agent, turns=20, service="ended").ended()
    started = time.time()
    writer.start()
    queue = {"exporter": "otlp_http/prometheus"}
    settled(lambda: agent.own("otelcol_exporter_queue_size", **queue), what="the Collector to hand over what it has")
    eventually(lambda: sampled(fleet.query.client, up, started), what="samples again")
    time.sleep(AGAIN)
    moments = sampled(fleet.query.client, up, began)
    last, first = max(each for each in moments if each < started), min(each for each in moments if each > started)
    found = account(fleet, own, {}, service="ended", percent=PERCENT, since=began)
    gap = f"no samples from {killed - last:.1f} s before it was killed to {first - started:.1f} s after it was started"
    with capsys.disabled():
        row = _row("an agent's Prometheus, of a process that ended meanwhile", own, {}, found, gap)
        print(f"\n{row} |\n{found}")
    assert killed - last < 15
    assert (found.lost, found.partial, found.missed, found.unchosen, found.silent) == (0, 0, 0, 0, 0)
    assert found.counted == (0, 0, 0)


def test_the_documentation_names_what_is_seen() -> None:
    """Each fault that is tried has a row in docs/fleet.md, with its panel and its alert."""
    text = (REPOSITORY / "docs" / "fleet.md").read_text()
    promised = text.partition("\n## What survives what\n")[2].lstrip().partition("\n\n")[0]
    rows = {row[0]: row for row in (re.split(r" ?\| ?", line)[1:-1] for line in promised.splitlines())}
    for name, fault in FAULTS.items():
        if fault.panel is not None:
            assert f"*{fault.panel[0]}*" in rows[name][-1]
            assert (fault.alert or "no alert") in rows[name][-1]
