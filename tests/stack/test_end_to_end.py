"""The whole path: real SDKs, one line, a scripted provider, the real Collector, Prometheus and Alertmanager, a webhook.

What is compared is what the script implies: raw counters exactly, recorded counts, the alert, traces and events.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from endturn.testing.scripted import ScriptedProvider, break_off, essay, reason, say
from endturn.testing.scripted.script import Script
from tests.support import faster
from tests.support.processes import REPOSITORY, Alertmanager, Collector, Prometheus, Webhook, eventually, free_port

pytestmark = pytest.mark.stack

TIMES = 30
"""How much faster the rules' clock is: a minute is two seconds, the export interval half a second."""
WINDOW = 315 / TIMES
"""What a recorded count looks back on."""
OFFSET = 2
"""How many seconds ago rules look."""

LONG = "Twelve short words make an answer that the limit of tokens will cut."  # 15 scripted tokens
SCRIPT: Script = {
    "gpt-5-mini": essay(LONG),
    "gpt-5-nano": essay(LONG),
    "gpt-5": [say("Done.")],
    "gpt-4.1": [break_off(LONG, after=5)],
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


Path_ = tuple[Prometheus, Collector, Webhook]
"""The running path, after the agents have run and ended."""


def play(collector: Collector, url: str, job: str, turns: list[list[Any]], *, export_interval_s: float) -> None:
    """Run the agent in a process of its own until it has played its turns and ended by itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
        "OTEL_SERVICE_NAME": job,
        "OTEL_METRIC_EXPORT_INTERVAL": str(int(export_interval_s * 1000)),
    }
    program, told = REPOSITORY / "tests" / "apps" / "agent.py", json.dumps({"url": url, "turns": turns})
    subprocess.run([sys.executable, str(program), told], env=environment, check=True, timeout=60)


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
            scrapes={"collector-counts": [f"127.0.0.1:{counts}"]},
        ) as prometheus,
        Collector(folder, prometheus=prometheus.url, counts_port=counts) as collector,
        ScriptedProvider(SCRIPT, exhausted="last").serve() as url,
    ):
        # Shorter than its export interval: all it sends is what it sends at its end.
        play(collector, url, "sick", SICK, export_interval_s=60)
        play(collector, url, "healthy", HEALTHY, export_interval_s=0.5)
        ended = time.time()
        prometheus.client.wait_for(f"sum(endturn_responses_total) == {sum(RESPONSES.values())}")
        # An event stays in the counts for one window; then every rule has counted it as often as it ever will.
        time.sleep(max(0.0, ended + WINDOW + OFFSET + 2 * 60 / TIMES - time.time()))
        yield prometheus, collector, webhook


def test_responses_and_turns_are_counted_as_the_script_implies(path: Path_) -> None:
    """Exactly, also of a process shorter than one export interval, and not by the Collector a second time.

    A cut turn that nobody took up is not_continued; one that a plain loop took up is recognised, and complete.
    """

    prometheus, *_ = path

    def found(expression: str, *labels: str) -> dict[tuple[str, ...], float]:
        series = prometheus.client.query(expression)
        return {tuple(each.labels.get(label, "") for label in labels): each.value for each in series}

    model = "gen_ai_request_model"
    responses = found("endturn_responses_total > 0", "job", "gen_ai_provider_name", model, "endturn_stop_reason")
    assert responses == RESPONSES
    assert found("sum(endturn_responses_total)") == {(): sum(RESPONSES.values())}
    how = ("endturn_turn_truncated", "endturn_turn_continued", "endturn_turn_outcome")
    assert found('endturn_turns_total{job="sick"} > 0', model, *how) == {
        ("gpt-5-mini", "true", "false", "not_continued"): 12,
        ("gpt-5-nano", "true", "true", "completed"): 3,
        ("gpt-5", "false", "false", "completed"): 2,
        ("gpt-4.1", "true", "false", "not_continued"): 1,
        ("claude-haiku-4-5", "false", "false", "completed"): 1,
        ("claude-opus-4-1", "false", "false", "unknown_reason"): 1,
    }
    exits = found("sum by (job, gen_ai_request_model) (endturn_truncation_exits_total) > 0", "job", model)
    assert exits == {("sick", "gpt-5-mini"): 12, ("sick", "gpt-4.1"): 1}
    continuations = found("endturn_continuations_total > 0", "job", "endturn_continuation_strategy")
    assert continuations == {("sick", "prompt"): 3, ("healthy", "prompt"): 3}
    # Two samples a moment apart, as of a process that ends at once, are in five recorded counts or in six.
    for name, count in (("turns", len(SICK) + len(HEALTHY)), ("truncated", 19), ("unfinished", 13)):
        recorded = found(f"sum(sum_over_time(endturn:service_{name}:count5m[5m])) / 5")
        assert recorded == {(): pytest.approx(count, rel=0.2)}, name


def test_uncontinued_truncations_reach_the_webhook_and_healthy_turns_do_not(path: Path_) -> None:
    """The central alert fires, through Alertmanager, for the job that left answers unfinished, no healthy one."""
    *_, webhook = path
    name = "EndturnTurnsUnfinished"
    [alert, *_] = eventually(
        lambda: [alert for alert in webhook.alerts if alert["labels"]["alertname"] == name],
        what="the alert at the webhook",
        timeout=60,
    )
    firing = [each["labels"] for each in webhook.alerts if each["status"] == "firing"]
    assert {labels.get("job") for labels in firing if labels["alertname"] == name} == {"sick"}
    assert "healthy" not in {labels.get("job") for labels in firing}
    assert re.match(r"6\d(\.\d+)?% of the turns of sick", alert["annotations"]["summary"])  # 13 of 20
    runbook = alert["annotations"]["runbook_url"].rpartition("/docs/")[2]
    assert (REPOSITORY / "docs" / runbook).is_file()


def test_traces_and_events_arrive_and_carry_no_content(path: Path_) -> None:
    """One span for each call, one stop_reason_observed for each response, linked continuations; no text, no key."""
    _, collector, _ = path
    eventually(lambda: len(collector.spans()) >= sum(RESPONSES.values()), what="all spans")
    written = collector.spans()
    ours = [span for span in written if "endturn.stop.reason" in span["attributes"]]
    assert len(ours) == sum(RESPONSES.values())
    # Anthropic's SDK makes its own span; ours is written onto it instead of beside it.
    assert len([s for s in written if s["attributes"].get("endturn.stop.raw") == "some_new_reason"]) == 1
    continued = [span for span in ours if "endturn.continuation.index" in span["attributes"]]
    assert len(continued) == 6
    assert all(span["links"] for span in continued)
    events = collector.log_records()
    observed = [event for event in events if event.get("eventName") == "endturn.stop_reason_observed"]
    assert len(observed) == sum(RESPONSES.values())
    everything = collector.file("traces").read_text() + collector.file("logs").read_text()
    for secret in ("planted-secret", "Twelve short words", "sick 1"):
        assert secret not in everything
