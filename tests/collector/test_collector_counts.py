"""Responses of agents in other languages are counted by the real Collector, once, in series that nobody else writes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.generate.queries import ALL, events_for_rules, events_in
from tests.support.otlp import Sent, post, spans
from tests.support.processes import Collector, Prometheus, eventually, samples, written

pytestmark = pytest.mark.stack

LONG = "é" * 100_000
TEXT = Path(__file__).with_name("counts.yaml").read_text()
ROWS: dict[str, Any] = yaml.safe_load(TEXT.replace("LONG", LONG).replace("CUT", LONG[:128]))
RESPONSES, SUSPECTED = "endturn_responses_total", "endturn_truncations_suspected_total"
LABELS = ("endturn_stop_reason", "gen_ai_provider_name", "gen_ai_request_model", "deployment_environment_name")


def send(collector: Collector, service: str, row: dict[str, Any]) -> None:
    every = [Sent(attributes=row["attributes"], state=row.get("state", ""))] * row.get("times", 1)
    body = spans(every, service=service, scope=row.get("scope", "test"), resource=row.get("resource"))
    assert post(f"{collector.url}/v1/traces", body) == 200


def counted(collector: Collector, metric: str) -> dict[str, dict[str, float]]:
    """The samples of a metric as the Collector offers them for scraping, by service and the other labels."""
    found: dict[str, dict[str, float]] = {}
    for text, value in samples(collector.counts_address, metric).items():
        labels = dict(pair.split("=") for pair in text.replace('"', "").split(","))
        assert re.fullmatch(r"here/[0-9a-f]{8}", labels["instance"])
        assert labels.keys() <= {"instance", "job", *LABELS}
        found.setdefault(labels["job"], {})[", ".join(labels[name] for name in LABELS if name in labels)] = value
    return found


def test_a_response_is_counted_once_under_the_librarys_names(tmp_path: Path) -> None:
    """Each row of `counts.yaml`."""
    variables = {"ENDTURN_COLLECTOR_ID": "here", "ENDTURN_UNCOUNTED_SCOPES": "^com[.]anthropic[.]"}
    wanted = {
        row.get("service", name)[:128]: {labels: pytest.approx(count) for labels, count in row["counts"].items()}
        for name, row in ROWS.items()
        if row["counts"]
    }
    with Collector(tmp_path, environment=variables) as collector:
        for name, row in ROWS.items():
            send(collector, row.get("service", name), row)
        eventually(lambda: counted(collector, RESPONSES) == wanted, what="what is wanted")
        for metric, name in ((SUSPECTED, "suspected"), ("endturn_stop_reasons_unmapped_total", "unmapped")):
            found = {service: sum(counts.values()) for service, counts in counted(collector, metric).items()}
            assert found == {service: row[name] for service, row in ROWS.items() if name in row}


def test_one_service_with_names_without_end_leaves_no_room_for_a_new_one(tmp_path: Path) -> None:
    """What has a counter is counted on; a new service's responses are in none, and only the limit's counter says so."""
    few = {"processors": {"deltatocumulative/counted": {"max_streams": 5}}}
    row, label = ROWS["a truncated answer"] | {"times": 1}, "max_tokens, openai, {}"
    with Collector(
        tmp_path, configs=[written(tmp_path / "few.yaml", few)], environment={"ENDTURN_COLLECTOR_ID": "here"}
    ) as collector:
        send(collector, "first", row)
        wanted = {"first": {label.format("gpt-5"): 1.0}}
        eventually(lambda: counted(collector, RESPONSES) == wanted, what="the first service")
        for n in range(20):
            named = row["attributes"] | {"gen_ai.request.model": f"model-{n}"}
            send(collector, "hostile", row | {"attributes": named})
        send(collector, "new", row)
        send(collector, "first", row)
        over = "otelcol_deltatocumulative_datapoints"
        eventually(lambda: collector.own(over, error="limit") == 17, what="what found no room")
        eventually(
            lambda: counted(collector, RESPONSES)["first"] == {label.format("gpt-5"): 2.0}, what="the first again"
        )
        assert counted(collector, RESPONSES).keys() == {"first", "hostile"}
        assert len(counted(collector, RESPONSES)["hostile"]) == 4


def test_two_collectors_do_not_write_one_series(tmp_path: Path) -> None:
    """One service behind two Collectors is two series, also if both have one id, and their sum is what was sent."""
    first, second = (
        Collector(tmp_path / name, environment={"ENDTURN_COLLECTOR_ID": "one"}) for name in ("first", "second")
    )
    addresses = [first.counts_address, second.counts_address]
    with first, second, Prometheus(tmp_path / "prometheus", scrapes={"collector-counts": addresses}) as prometheus:
        for collector, count in ((first, 36), (second, 39)):
            send(collector, "agent", ROWS["a truncated answer"] | {"times": count})
        prometheus.client.wait_for(f"sum({RESPONSES}) == 75")
        series = prometheus.client.query(RESPONSES)
        assert sorted(each.value for each in series) == [36, 39]
        assert {each.labels["instance"].partition("/")[0] for each in series} == {"one"}
        assert {each.labels["job"] for each in series} == {"agent"}
        assert not any("exported_job" in each.labels for each in series)


def test_the_first_responses_of_a_series_are_counted_in_a_window(tmp_path: Path) -> None:
    """A counter's first sample holds its first responses already; its start time lets Prometheus see a zero before.

    A Collector that was stopped or killed counts in series of its own afterwards, each exact in the same way, whether
    it has counted more or less than before when it is next looked at.
    """
    row = ROWS["a truncated answer"]
    collector = Collector(tmp_path / "collector", environment={"ENDTURN_COLLECTOR_ID": "one"})
    address = {"collector-counts": [collector.counts_address]}
    with Prometheus(tmp_path / "prometheus", scrapes=address) as prometheus, collector:

        def await_total(value: int) -> None:
            prometheus.client.wait_for(f'sum({RESPONSES}{{job="agent"}}) == {value}')

        def counted_in_an_hour(query: str) -> float:
            [series] = prometheus.client.query(query)
            return series.value

        send(collector, "agent", row | {"times": 30})
        await_total(30)
        send(collector, "agent", row | {"times": 10})
        await_total(40)
        number = events_in(RESPONSES, by=ALL, over="1h")
        growth = events_for_rules(RESPONSES, by=ALL, over=3600, memory=900)
        assert counted_in_an_hour(number) == counted_in_an_hour(growth) == 40
        for end, times in ((collector.kill, 50), (collector.stop, 7)):
            end()
            prometheus.client.wait_for('up{job="collector-counts"} == 0')
            collector.start()
            send(collector, "agent", row | {"times": times})
            await_total(times)
        assert counted_in_an_hour(number) == counted_in_an_hour(growth) == 97
        every = prometheus.client.query(f"{RESPONSES}[1h]")
        assert sorted(max(value for _, value in series.points) for series in every) == [7, 40, 50]
        assert {series.points[0][1] for series in every} == {0}
