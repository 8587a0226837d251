"""The whole path: real SDKs, one line, a scripted provider, the real Collector, Prometheus and Alertmanager, a webhook.

What is compared is what the script implies: raw counters exactly, recorded increments once every rule has caught up.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from endturn.generate import dashboards
from endturn.generate.files import rule_files
from endturn.generate.rules import RuleConfig
from endturn.scripted import ScriptedProvider, cut, essay, reason, say
from endturn.scripted.script import Script
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

FAST = RuleConfig().faster(30)
"""The shipped rules on a clock thirty times as fast: a minute is two seconds."""
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
    *(["chat", "gpt-5-mini", f"sick {n}", 8] for n in range(6)),  # cut, and left so
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
    ("sick", "openai", "gpt-5-mini", "max_tokens"): 6,
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
QUIET_PANELS = {
    "Given up": "nothing here continues within a policy",
    "Suspected truncations": "no reply claims a clean stop on a full budget",
    "Blocked tool calls": "no tools here",
    "Tool payload repairs": "no tools here",
    "Recording failures": "endturn does not fail",
    "Labels capped": "no label is unbounded",
    "Processes": "the agents have ended, longer ago than one increment's window",
    "Collector failures": "nothing is lost here, and nobody scrapes what the Collector says of itself",
}
"""Panels that have nothing to show, or only zeros, because of what the script does not do."""
LATE = 1 / FAST.overlap
"""On this clock two seconds are one evaluation: what travels longer than the offset is missed by one that counts it."""


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


def answer_elsewhere(collector: Collector) -> None:
    """Send what an agent in TypeScript would, by its own instrumentation."""
    words = {"max_tokens": "length", "end_turn": "stop"}
    for (service, provider, model, why), count in ELSEWHERE.items():
        attributes: dict[str, Value] = {
            "ai.operationId": "ai.streamText.doStream",
            "ai.model.provider": f"{provider}.chat",
            "ai.model.id": model,
            "ai.response.finishReason": words[why],
        }
        body = spans([Sent(name="ai.streamText.doStream", attributes=attributes)] * count, service=service)
        assert post(f"{collector.url}/v1/traces", body) == 200


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path_]:
    folder = tmp_path_factory.mktemp("path")
    rules = []
    for name, text in rule_files(FAST).items():
        if "/tests/" not in name:
            rules.append(folder / Path(name).name)
            rules[-1].write_text(text)
    counts = free_port()
    with (
        Webhook() as webhook,
        Alertmanager(folder, webhook=webhook.url) as alertmanager,
        Prometheus(
            folder,
            rules=rules,
            alertmanager=alertmanager.url,
            rule_query_offset=f"{OFFSET}s",
            scrapes={"collector-counts": f"127.0.0.1:{counts}"},
        ) as prometheus,
        Collector(folder, prometheus=prometheus.url, counts_port=counts) as collector,
        ScriptedProvider(SCRIPT, exhausted="last").serve() as url,
    ):
        # Born counters are told from a path that was down by the heartbeat having been there before them.
        eventually(
            lambda: prometheus.client.query("endturn:heartbeat", time=time.time() - FAST.increase - FAST.lead - OFFSET),
            what="a heartbeat older than the window of increments",
            timeout=60,
        )
        # Shorter than its export interval: all it sends is what it sends at its end.
        play(collector, url, "sick", SICK, export_interval_s=60)
        play(collector, url, "healthy", HEALTHY, export_interval_s=0.5)
        answer_elsewhere(collector)
        ended = time.time()
        eventually(
            lambda: total(prometheus.client.query("sum(endturn_responses_total)")) == sum(EVERYWHERE.values()),
            what="every response in Prometheus",
        )
        # An event stays in the increments for one window; then every rule has counted it as often as it ever will.
        time.sleep(max(0.0, ended + FAST.increase + OFFSET + 2 * FAST.interval - time.time()))
        yield Path_(prometheus, collector, webhook, ended)


def total(series: list[Series]) -> float:
    """The sum of an instant answer's values."""
    return sum(each.value for each in series)


def ask(path: Path_, expression: str) -> list[Series]:
    """A dashboard's query as Grafana would send it, with everything selected and a range over the whole run."""
    around = f"{FAST.window}s"
    for variable, value in {
        "$job": ".*",
        "$provider": ".*",
        "$model": ".*",
        "$window": around,
        "$__range": around,
        "$__rate_interval": around,
        "$__interval": around,
    }.items():
        expression = expression.replace(variable, value)
    assert "$" not in expression
    return path.prometheus.client.query(expression)


def panels() -> dict[tuple[str, str], dict[str, Any]]:
    """The dashboard's panels, by type and title."""
    board = json.loads(dashboards.files(FAST)["dashboards/overview.json"])
    return {(panel["type"], panel["title"]): panel for panel in board["panels"] if panel["type"] != "row"}


def by(series: list[Series], *labels: str) -> dict[tuple[str, ...], float]:
    return {tuple(each.labels.get(label, "") for label in labels): each.value for each in series}


def shown(path: Path_, kind: str, title: str) -> list[Series]:
    """What a panel's first query answers."""
    return ask(path, panels()[kind, title]["targets"][0]["expr"])


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
        ("gpt-5-mini", "true", "false", "not_continued"): 6,
        ("gpt-5-nano", "true", "true", "completed"): 3,
        ("gpt-5", "false", "false", "completed"): 2,
        ("gpt-4.1", "true", "false", "not_continued"): 1,
        ("claude-haiku-4-5", "false", "false", "completed"): 1,
        ("claude-opus-4-1", "false", "false", "unknown_reason"): 1,
    }
    exits = path.prometheus.client.query("sum by (job, gen_ai_request_model) (endturn_truncation_exits_total) > 0")
    assert by(exits, "job", "gen_ai_request_model") == {("sick", "gpt-5-mini"): 6, ("sick", "gpt-4.1"): 1}
    continuations = path.prometheus.client.query("endturn_continuations_total > 0")
    assert by(continuations, "job", "endturn_continuation_strategy") == {
        ("sick", "prompt"): 3,
        ("healthy", "prompt"): 3,
    }


@pytest.mark.parametrize(("kind", "title"), sorted(panels()))
def test_every_query_of_the_dashboard_answers(path: Path_, kind: str, title: str) -> None:
    """Each panel's queries run on the real Prometheus; what comes back empty is declared, with the reason."""
    answers = [ask(path, target["expr"]) for target in panels()[kind, title]["targets"]]
    if title in QUIET_PANELS:
        assert all(total(answer) == 0 for answer in answers), QUIET_PANELS[title]
    else:
        assert all(answers)
        assert all(each.value == each.value for answer in answers for each in answer), "NaN"


def test_the_dashboard_shows_what_the_script_implies(path: Path_) -> None:
    """The headline is 7 of 13 truncated turns left unfinished, and the counts beside it are the script's."""
    assert total(shown(path, "stat", "Responses")) == pytest.approx(sum(EVERYWHERE.values()), rel=LATE)
    assert total(shown(path, "stat", "Turns")) == pytest.approx(len(SICK) + len(HEALTHY), rel=LATE)
    assert total(shown(path, "stat", "Continuations")) == pytest.approx(6, rel=LATE)
    truncated = sum(count for (*_, why), count in EVERYWHERE.items() if why in ("max_tokens", "missing"))
    share = truncated / sum(EVERYWHERE.values())
    assert total(shown(path, "stat", "Truncation rate")) == pytest.approx(share, rel=LATE)
    assert total(shown(path, "stat", "Truncation without continuation")) == pytest.approx(7 / 13, rel=LATE)
    assert by(shown(path, "timeseries", "Truncation without continuation"), "gen_ai_request_model") == {
        ("gpt-5-mini",): pytest.approx(1.0),
        ("gpt-5-nano",): pytest.approx(0.0),
        ("gpt-4.1",): pytest.approx(1.0),
    }
    reasons = by(shown(path, "timeseries", "Responses by stop reason"), "endturn_stop_reason")
    assert {reason: count for (reason,), count in reasons.items() if count} == {
        "end_turn": pytest.approx(19, rel=LATE),
        "max_tokens": pytest.approx(16, rel=LATE),
        "missing": 1,
        "unknown": 1,
    }


def test_uncontinued_truncations_reach_the_webhook_and_healthy_turns_do_not(path: Path_) -> None:
    """The central alert fires, through Alertmanager, for the job that left answers unfinished, no healthy one."""
    name = "EndturnTruncatedTurnsNotContinued"
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
    unfinished = {each for each, _ in fired if each.startswith("EndturnTruncatedTurns")}
    assert {job for each, job in fired if each in unfinished} == {"sick"}
    # Of an agent without endturn nobody knows what it made of its truncated answers: it has a ticket of its own.
    assert fired <= {
        *((each, "sick") for each in unfinished),
        ("EndturnStopReasonUnknown", "sick"),
        ("EndturnResponsesTruncated", "elsewhere"),
    }
    alert = next(alert for alert in path.webhook.alerts if alert["labels"]["alertname"] == name)
    # 7 of 10 turns; on this clock a count may be one short.
    assert re.match(r"(6|7)\d(\.\d+)?% of the truncated turns of sick", alert["annotations"]["summary"])
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
    """A counter born at 6 has a zero before it in Prometheus, so plain functions see it too."""
    found = path.prometheus.client.query('endturn_responses_total{job="sick",gen_ai_request_model="gpt-5-mini"}[5m]')
    values = [
        value for series in found if series.labels["endturn_stop_reason"] == "max_tokens" for _, value in series.points
    ]
    assert values[0] == 0
    assert values[-1] == 6
