"""Responses of agents in other languages are counted by the real Collector, once, in series that nobody else writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.support.otlp import Sent, Value, post, spans
from tests.support.processes import REPOSITORY, Collector, Prometheus, eventually, free_port, samples

pytestmark = pytest.mark.stack

LENGTH: dict[str, Value] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5",
    "gen_ai.response.finish_reasons": ["length"],
}
STOP = LENGTH | {"gen_ai.response.finish_reasons": ["stop"]}
FULL = STOP | {"gen_ai.usage.output_tokens": 64, "gen_ai.request.max_tokens": 64}
RESPONSES = "endturn_responses_total"

Counts = dict[tuple[tuple[str, str], ...], float]


def send(collector: Collector, *every: Sent, service: str = "agent", scope: str = "test") -> None:
    assert post(f"{collector.url}/v1/traces", spans(every, service=service, scope=scope)) == 200


def scraped(collector: Collector, name: str) -> Counts:
    """The samples of a metric as the Collector offers them for scraping, by their labels."""
    found: Counts = {}
    for labels, value in samples(collector.counts_address, name).items():
        pairs = (pair.partition("=") for pair in labels.replace('"', "").split(","))
        found[tuple(sorted((key, text) for key, _, text in pairs))] = value
    return found


def reads(collector: Collector, name: str, total: float) -> Counts:
    """The samples of a metric, once they add up to that."""
    return eventually(
        lambda: found if sum((found := scraped(collector, name)).values()) == total else {},
        what=f"{name} to reach {total}; it has {scraped(collector, name)}",
    )


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    variables = {"ENDTURN_COLLECTOR_ID": "here", "ENDTURN_UNCOUNTED_SCOPES": "^com[.]anthropic[.]"}
    with Collector(tmp_path, environment=variables) as running:
        yield running


def test_a_response_is_counted_once_under_the_librarys_names(collector: Collector) -> None:
    """By provider, model and reason; not what a process counted itself, a repeated answer, an excluded scope.

    A clean claim on a full budget is a suspected truncation beside it; a sampled span counts for those it stands for.
    """
    send(
        collector,
        *[Sent(attributes=LENGTH)] * 3,
        Sent(attributes=STOP | {"endturn.counted": True, "endturn.stop.reason": "end_turn"}),
        Sent(attributes=STOP | {"endturn.counted": False}),
        Sent(attributes=LENGTH | {"gen_ai.operation.name": "fetch_response"}),
        *[Sent(attributes=FULL)] * 2,
        Sent(attributes=LENGTH, state="ot=th:c"),  # sampled at its head: one of four
        Sent(attributes={"gen_ai.response.finish_reasons": ["because"]}),
        Sent(name="no model"),
    )
    send(collector, Sent(attributes=LENGTH), scope="com.anthropic.sdk.python")
    found = reads(collector, RESPONSES, 11)

    def labels(reason: str, provider: str = "openai", model: str = "gpt-5") -> tuple[tuple[str, str], ...]:
        return (
            ("endturn_stop_reason", reason),
            ("gen_ai_provider_name", provider),
            ("gen_ai_request_model", model),
            ("instance", "here"),
            ("job", "agent"),
        )

    assert found == {labels("max_tokens"): 7, labels("end_turn"): 3, labels("unknown", "unknown", "unknown"): 1}
    assert sum(scraped(collector, "endturn_truncations_suspected_total").values()) == 2
    unmapped = scraped(collector, "endturn_stop_reasons_unmapped_total")
    assert [(dict(each)["gen_ai_provider_name"], value) for each, value in unmapped.items()] == [("unknown", 1)]


def test_a_word_that_tells_nothing_is_unknown_but_not_drift(collector: Collector) -> None:
    """A value with a row that says nothing is counted as unknown, and not as a value without a row."""
    send(collector, Sent(attributes=STOP | {"gen_ai.response.finish_reasons": ["FINISH_REASON_UNSPECIFIED"]}))
    [labels] = reads(collector, RESPONSES, 1)
    assert dict(labels)["endturn_stop_reason"] == "unknown"
    assert scraped(collector, "endturn_stop_reasons_unmapped_total") == {}


def test_a_share_that_divides_nothing_is_counted_whole(collector: Collector) -> None:
    """At 51 %, 100 spans are 196 responses: each stands for 1.96, of which no part is cut off."""
    send(collector, *[Sent(attributes=LENGTH, state="ot=th:7d70a3d70a3d70")] * 100)
    found = eventually(
        lambda: [n for n in scraped(collector, RESPONSES).values() if n > 190], what="the adjusted count"
    )
    assert found == [pytest.approx(100 / 0.51)]


def test_what_senders_write_does_not_become_a_label_of_any_length(collector: Collector) -> None:
    """Names are cut at 128 characters, what is no text is unknown, and so is a reason that is none of ours."""
    long = "é" * 100_000
    send(
        collector,
        Sent(attributes=LENGTH | {"gen_ai.request.model": long, "gen_ai.provider.name": long}),
        Sent(attributes=LENGTH | {"gen_ai.request.model": ["a", "b"]}),
        Sent(attributes=LENGTH | {"endturn.stop.reason": "typed by somebody"}),
        Sent(attributes=LENGTH | {"endturn.stop.reason": ["max_tokens"]}),
        service=long,
    )
    cut = "é" * 128
    names = ("endturn_stop_reason", "gen_ai_provider_name", "gen_ai_request_model", "job")
    found = {
        tuple(dict(labels)[name] for name in names): value for labels, value in reads(collector, RESPONSES, 4).items()
    }
    assert found == {
        ("max_tokens", cut, cut, cut): 1,
        ("max_tokens", "openai", "unknown", cut): 1,
        ("unknown", "openai", "gpt-5", cut): 2,
    }


def test_two_collectors_do_not_write_one_series(tmp_path: Path) -> None:
    """One service behind two Collectors is two series, by the Collectors' ids, and their sum is what was sent."""
    ports = {"collector-counts": free_port(), "other": free_port()}
    config = yaml.safe_load((REPOSITORY / "stack" / "prometheus.yml").read_text())
    [job] = [each for each in config["scrape_configs"] if each["job_name"] == "collector-counts"]
    assert job["honor_labels"] is True
    addresses = {"collector-counts": f"127.0.0.1:{ports['collector-counts']}"}
    others = tuple(
        Collector(tmp_path / name, counts_port=port, environment={"ENDTURN_COLLECTOR_ID": f"id-{name}"})
        for name, port in ports.items()
    )
    prometheus = Prometheus(tmp_path / "prometheus", scrapes=addresses)
    file = tmp_path / "prometheus" / "prometheus.yml"
    written = yaml.safe_load(file.read_text())
    for each in written["scrape_configs"]:
        if each["job_name"] == "collector-counts":
            each["static_configs"][0]["targets"] = [f"127.0.0.1:{port}" for port in ports.values()]
    file.write_text(yaml.safe_dump(written))
    with others[0], others[1], prometheus:
        for n in range(6):
            send(others[n % 2], *[Sent(attributes=LENGTH)] * (10 + n))
        total = sum(10 + n for n in range(6))
        eventually(
            lambda: prometheus.client.query(f"sum({RESPONSES}) == {total}"),
            what="all responses of both Collectors",
        )
        series = prometheus.client.query(RESPONSES)
        assert {each.labels["instance"]: each.value for each in series} == {"id-collector-counts": 36, "id-other": 39}
        assert {each.labels["job"] for each in series} == {"agent"}
        assert not any("exported_job" in each.labels for each in series)
        # Each series only ever rises: two writers in one would make it jump to and fro.
        for each in prometheus.client.query(f"{RESPONSES}[5m]"):
            values = [value for _, value in each.points]
            assert values == sorted(values)


def test_sparse_counters_go_on_counting(tmp_path: Path) -> None:
    """A response every ten minutes for an hour, scaled to seconds: 6 in one series that was never away.

    One that forgets sooner than the next response comes loses its series each time.
    """
    shipped = yaml.safe_load((REPOSITORY / "collector" / "stop_reasons.yaml").read_text())
    assert shipped["processors"]["deltatocumulative/counted"]["max_stale"].endswith(":-24h}")
    assert shipped["exporters"]["prometheus/counted"]["metric_expiration"].endswith(":-24h}")
    day, pause = 24 * 3600, 600  # a pause is a second here, or longer
    with (
        Collector(tmp_path / "lasting", environment={"ENDTURN_COLLECTOR_STALE": f"{day // pause}s"}) as lasting,
        Collector(tmp_path / "forgetful", environment={"ENDTURN_COLLECTOR_STALE": "1s"}) as forgetting,
    ):
        for n in range(1, 7):
            for each in (lasting, forgetting):
                send(each, Sent(attributes=LENGTH))
            reads(lasting, RESPONSES, n)
            eventually(lambda: scraped(forgetting, RESPONSES), what="the forgetful one's series")
            eventually(lambda: not scraped(forgetting, RESPONSES), what="the forgetful one to lose its series")
            assert sum(scraped(lasting, RESPONSES).values()) == n


def test_a_restarted_collector_goes_on_in_its_series(tmp_path: Path) -> None:
    """Its id stays: after a restart the same series begins again at zero, which every query understands as a reset."""
    for _ in range(2):
        with Collector(tmp_path, environment={"HOSTNAME": "machine"}) as collector:
            send(collector, Sent(attributes=LENGTH))
            [labels] = reads(collector, RESPONSES, 1)
            assert dict(labels)["instance"] == "machine"
