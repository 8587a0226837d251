"""The whole path: real SDKs, one line, a scripted provider, the real Collector, Prometheus and Alertmanager, a webhook.

What is compared is what the script implies, exactly: raw counters, what panels make of them, recorded counts.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from endturn.generate import promql
from endturn.scripted import ScriptedProvider, cut, essay, reason, say
from endturn.scripted.script import Script
from tests.support import faster
from tests.support.otlp import Sent, Value, post, spans
from tests.support.processes import (
    REPOSITORY,
    Alertmanager,
    Collector,
    Prometheus,
    Series,
    Webhook,
    eventually,
    free_port,
)

pytestmark = pytest.mark.stack

TIMES = 30
"""How much faster the rules' clock is: a minute is two seconds, the export interval half a second."""
WINDOW = 315 / TIMES
"""What a recorded count looks back on."""
OFFSET = 2
"""How many seconds ago rules look (Prometheus' rule_query_offset)."""

LONG = "Twelve short words make an answer that the limit of tokens will cut."  # 15 scripted tokens
SCRIPT: Script = {
    "gpt-5-mini": essay(LONG),
    "gpt-5-nano": essay(LONG),
    "gpt-5": [say("Done.")],
    "gpt-4.1": [cut(LONG, after=5)],
    "claude-haiku-4-5": [say("Done.")],
    "claude-opus-4-1": [reason("some_new_reason", "Done.")],
}
SICK = [
    *(["chat", "gpt-5-mini", f"sick {n}", 8] for n in range(12)),  # cut, and left so
    *(["chat_loop", "gpt-5-nano", f"sick {n}", 8] for n in range(3)),  # cut once, asked for again, finished
    *(["chat", "gpt-5", f"sick {n}", 8] for n in range(2)),
    ["chat_stream", "gpt-4.1", "sick", 8],  # the connection is lost
    ["messages_stream", "claude-haiku-4-5", "sick", 8],
    ["messages", "claude-opus-4-1", "sick", 8],
]
HEALTHY = [
    *(["chat", "gpt-5", f"healthy {n}", 8] for n in range(5)),
    *(["chat_loop", "gpt-5-nano", f"healthy {n}", 8] for n in range(3)),
]
RESPONSES = {
    ("sick", "openai", "gpt-5-mini", "max_tokens"): 12,
    ("sick", "openai", "gpt-5-nano", "max_tokens"): 3,
    ("sick", "openai", "gpt-5-nano", "end_turn"): 3,
    ("sick", "openai", "gpt-5", "end_turn"): 2,
    ("sick", "openai", "gpt-4.1", "missing"): 1,
    ("sick", "anthropic", "claude-haiku-4-5", "end_turn"): 1,
    ("sick", "anthropic", "claude-opus-4-1", "unknown"): 1,
    ("healthy", "openai", "gpt-5", "end_turn"): 5,
    ("healthy", "openai", "gpt-5-nano", "max_tokens"): 3,
    ("healthy", "openai", "gpt-5-nano", "end_turn"): 3,
}
ELSEWHERE = {
    ("elsewhere", "openai", "gpt-5-mini", "max_tokens"): 4,
    ("elsewhere", "openai", "gpt-5-mini", "end_turn"): 4,
}
"""What an agent in another language answers, without endturn: the Collector counts it, from the AI SDK's spans."""
EVERYWHERE = RESPONSES | ELSEWHERE


@dataclass(frozen=True)
class Path_:
    """The running path, after the agents have run and ended."""

    prometheus: Prometheus
    collector: Collector
    webhook: Webhook
    ended: float


def play(collector: Collector, url: str, job: str, turns: list[list[Any]], *, export_interval_s: float) -> None:
    """Run the agent in a process of its own until it has played its turns and ended by itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": job,
        "OTEL_METRIC_EXPORT_INTERVAL": str(int(export_interval_s * 1000)),
    }
    subprocess.run(
        [sys.executable, str(REPOSITORY / "tests" / "apps" / "agent.py"), json.dumps({"url": url, "turns": turns})],
        env=environment,
        check=True,
        timeout=60,
    )


def answer_elsewhere(collector: Collector, times: Callable[[int], int]) -> None:
    """Send what an agent in TypeScript would, by its own instrumentation; of each kind so many of its number."""
    words = {"max_tokens": "length", "end_turn": "stop"}
    for (service, provider, model, why), count in ELSEWHERE.items():
        attributes: dict[str, Value] = {
            "ai.operationId": "ai.streamText.doStream",
            "ai.model.provider": f"{provider}.chat",
            "ai.model.id": model,
            "ai.response.finishReason": words[why],
        }
        body = spans([Sent(name="ai.streamText.doStream", attributes=attributes)] * times(count), service=service)
        assert post(f"{collector.url}/v1/traces", body) == 200


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path_]:
    folder = tmp_path_factory.mktemp("path")
    counts = free_port()
    with (
        Webhook() as webhook,
        Alertmanager(folder, webhook=webhook.url) as alertmanager,
        Prometheus(
            folder,
            rules=faster.rules(folder, TIMES),
            alertmanager=alertmanager.url,
            rule_query_offset=f"{OFFSET}s",
            scrapes={"collector-counts": f"127.0.0.1:{counts}"},
        ) as prometheus,
        Collector(folder, prometheus=prometheus.url, counts_port=counts) as collector,
        ScriptedProvider(SCRIPT, exhausted="last").serve() as url,
    ):
        # Shorter than its export interval: all it sends is what it sends at its end.
        play(collector, url, "sick", SICK, export_interval_s=60)
        play(collector, url, "healthy", HEALTHY, export_interval_s=0.5)
        # What the Collector counts is born without a zero: what comes before its first scrape is not seen to come.
        answer_elsewhere(collector, lambda count: 1)
        eventually(
            lambda: len(prometheus.client.query('endturn_responses_total{job="elsewhere"}')) == len(ELSEWHERE),
            what="the first responses of other languages",
        )
        answer_elsewhere(collector, lambda count: count - 1)
        ended = time.time()
        eventually(
            lambda: total(prometheus.client.query("sum(endturn_responses_total)")) == sum(EVERYWHERE.values()),
            what="every response in Prometheus",
        )
        # An event stays in the counts for one window; then every rule has counted it as often as it ever will.
        time.sleep(max(0.0, ended + WINDOW + OFFSET + 2 * 60 / TIMES - time.time()))
        yield Path_(prometheus, collector, webhook, ended)


def total(series: list[Series]) -> float:
    """The sum of an instant answer's values."""
    return sum(each.value for each in series)


def ask(path: Path_, form: str) -> list[Series]:
    """What a panel's expression answers over the whole run."""
    return path.prometheus.client.query(promql.expand(f"@{form}@", {}))


def by(series: list[Series], *labels: str) -> dict[tuple[str, ...], float]:
    return {tuple(each.labels.get(label, "") for label in labels): each.value for each in series}


def test_every_response_is_counted_once_by_its_reason(path: Path_) -> None:
    """The raw counters are exactly what the script implies, also of a process shorter than one export interval."""
    found = path.prometheus.client.query("endturn_responses_total > 0")
    labels = ("job", "gen_ai_provider_name", "gen_ai_request_model", "endturn_stop_reason")
    assert by(found, *labels) == EVERYWHERE


def test_turns_are_counted_by_how_they_ended(path: Path_) -> None:
    """A cut turn that nobody took up is not_continued; one that a plain loop took up is recognised, and complete."""
    found = by(
        path.prometheus.client.query('endturn_turns_total{job="sick"} > 0'),
        "gen_ai_request_model",
        "endturn_turn_truncated",
        "endturn_turn_continued",
        "endturn_turn_outcome",
    )
    assert found == {
        ("gpt-5-mini", "true", "false", "not_continued"): 12,
        ("gpt-5-nano", "true", "true", "completed"): 3,
        ("gpt-5", "false", "false", "completed"): 2,
        ("gpt-4.1", "true", "false", "not_continued"): 1,
        ("claude-haiku-4-5", "false", "false", "completed"): 1,
        ("claude-opus-4-1", "false", "false", "unknown_reason"): 1,
    }
    exits = path.prometheus.client.query("sum by (job, gen_ai_request_model) (endturn_truncation_exits_total) > 0")
    assert by(exits, "job", "gen_ai_request_model") == {("sick", "gpt-5-mini"): 12, ("sick", "gpt-4.1"): 1}
    continuations = path.prometheus.client.query("endturn_continuations_total > 0")
    assert by(continuations, "job", "endturn_continuation_strategy") == {
        ("sick", "prompt"): 3,
        ("healthy", "prompt"): 3,
    }


def test_panels_and_rules_say_what_the_script_implies(path: Path_) -> None:
    """13 of 19 truncated turns are left unfinished, 13 of 30 turns; the counts beside it are the script's, exactly."""
    assert total(ask(path, "number(responses, all, 5m)")) == sum(EVERYWHERE.values()) - len(ELSEWHERE)
    assert total(ask(path, "number(turns, all, 5m)")) == len(SICK) + len(HEALTHY)
    assert total(ask(path, "number(continuations, all, 5m)")) == 6
    truncated = sum(count for (*_, why), count in RESPONSES.items() if why in ("max_tokens", "missing"))
    asked = promql.expand("@portion(truncation, all, 5m)@", {}, ['job!="elsewhere"'])
    assert total(path.prometheus.client.query(asked)) == pytest.approx(truncated / sum(RESPONSES.values()))
    assert total(ask(path, "portion(unfinished_share, all, 5m)")) == pytest.approx(13 / 19)
    assert by(ask(path, "portion(unfinished_share, call, 5m)"), "gen_ai_request_model") == {
        ("gpt-5-mini",): 1,
        ("gpt-5-nano",): 0,
        ("gpt-4.1",): 1,
    }
    # Two samples a moment apart, as of a process that ends at once, are in five recorded counts or in six.
    counts = {
        name: total(path.prometheus.client.query(f"sum(sum_over_time(endturn:service_{name}:count5m[5m])) / 5"))
        for name in ("turns", "truncated", "unfinished")
    }
    for name, count in (("turns", len(SICK) + len(HEALTHY)), ("truncated", 19), ("unfinished", 13)):
        assert counts[name] == pytest.approx(count, rel=0.2), name


def test_uncontinued_truncations_reach_the_webhook_and_healthy_turns_do_not(path: Path_) -> None:
    """The central alert fires, through Alertmanager, for the job that left answers unfinished, no healthy one."""
    name = "EndturnTurnsUnfinished"
    eventually(
        lambda: [alert for alert in path.webhook.alerts if alert["labels"]["alertname"] == name],
        what="the alert at the webhook",
        timeout=60,
    )
    fired = {
        (alert["labels"]["alertname"], alert["labels"].get("job"))
        for alert in path.webhook.alerts
        if alert["status"] == "firing"
    }
    assert (name, "sick") in fired
    assert {job for each, job in fired if each == name} == {"sick"}
    # Of an agent without endturn nobody knows what it made of its truncated answers: it has no turns.
    assert "healthy" not in {job for _, job in fired}
    alert = next(alert for alert in path.webhook.alerts if alert["labels"]["alertname"] == name)
    assert re.match(r"6\d(\.\d+)?% of the turns of sick", alert["annotations"]["summary"])  # 13 of 20
    runbook = alert["annotations"]["runbook_url"].rpartition("/docs/")[2]
    assert (REPOSITORY / "docs" / runbook).is_file()


def test_traces_and_events_arrive_and_carry_no_content(path: Path_) -> None:
    """One span for each call, one stop_reason_observed for each response, linked continuations; no text, no key."""
    eventually(lambda: len(path.collector.spans()) >= sum(EVERYWHERE.values()), what="all spans")
    written = path.collector.spans()
    ours = [span for span in written if "endturn.stop.reason" in span["attributes"]]
    assert len(ours) == sum(EVERYWHERE.values())
    # Anthropic's SDK makes its own span; ours is written onto it instead of beside it.
    assert len([s for s in written if s["attributes"].get("endturn.stop.raw") == "some_new_reason"]) == 1
    continued = [span for span in ours if "endturn.continuation.index" in span["attributes"]]
    assert len(continued) == 6
    assert all(span["links"] for span in continued)
    events = path.collector.log_records()
    observed = [event for event in events if event.get("eventName") == "endturn.stop_reason_observed"]
    assert len(observed) == sum(RESPONSES.values())
    everything = path.collector.file("traces").read_text() + path.collector.file("logs").read_text()
    for secret in ("planted-secret", "Twelve short words", "sick 1"):
        assert secret not in everything


def test_zero_samples_stand_before_first_increments(path: Path_) -> None:
    """A counter born at 12 has a zero before it in Prometheus, so plain functions see it too."""
    found = path.prometheus.client.query('endturn_responses_total{job="sick",gen_ai_request_model="gpt-5-mini"}[5m]')
    values = [
        value for series in found if series.labels["endturn_stop_reason"] == "max_tokens" for _, value in series.points
    ]
    assert values[0] == 0
    assert values[-1] == 12
