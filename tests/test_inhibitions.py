"""One fact, one alert: the real Alertmanager, with the shipped inhibitions, says nothing twice."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.processes import Alertmanager, Webhook, eventually

pytestmark = pytest.mark.stack

SHOP = {"job": "shop/agent", "deployment_environment_name": "prod"}
ONE, TWO = ({"job": "collector", "instance": f"{name}:8888"} for name in ("one", "two"))
KAFKA, TEMPO = {"exporter": "kafka/turns"}, {"exporter": "otlp_grpc/tempo"}
Labels = dict[str, str]


def told(folder: Path, firing: list[Labels]) -> list[Labels]:
    """The labels of the alerts that Alertmanager tells somebody of, of those that fire."""
    with Webhook() as webhook, Alertmanager(folder, webhook=webhook.url, group_wait="1s") as alertmanager:
        httpx.post(
            f"{alertmanager.url}/api/v2/alerts", json=[{"labels": labels} for labels in firing]
        ).raise_for_status()

        def states() -> list[str]:
            every = httpx.get(f"{alertmanager.url}/api/v2/alerts").json()
            return [each["status"]["state"] for each in every]

        eventually(lambda: len(states()) == len(firing) and "unprocessed" not in states(), what="every alert judged")
        active = httpx.get(f"{alertmanager.url}/api/v2/alerts?inhibited=false").json()
    return [each["labels"] for each in active]


def alerts(labels: Labels, *names: str) -> list[Labels]:
    return [{"alertname": f"Endturn{name}"} | labels for name in names]


MILDER = ("BudgetBurning", "TruncatedNotContinued", "ContinuationsExhausted")
CASES = {
    "the page silences milder words about the same service in the same environment": (
        alerts(SHOP, *MILDER),
        [
            *alerts(SHOP, "TurnsUnfinished", "StopReasonUnknown"),
            *alerts({"job": "shop/other"}, "BudgetBurning"),
            *alerts(SHOP | {"deployment_environment_name": "dev"}, "BudgetBurning"),
        ],
    ),
    "where most Collectors are down all that follows is silent, and a model's truncation is not": (
        [
            *alerts(ONE, "CollectorDown", "CollectorLosing"),
            *alerts(ONE | KAFKA, "QueueFull", "QueueFilling", "ExportStalled"),
            *alerts({"receiver": "kafka/turns"}, "GatewaysBehind"),
            *alerts(SHOP, "TelemetryAbsent", "SdkDropping"),
        ],
        [*alerts({}, "CollectorsDown"), *alerts(SHOP, "ResponsesTruncated")],
    ),
    "one Collector of several explains only what is its own: others answer": (
        [*alerts(ONE, "CollectorLosing"), *alerts(ONE | KAFKA, "QueueFilling", "ExportStalled")],
        [
            *alerts(ONE, "CollectorDown"),
            *alerts(TWO, "CollectorLosing"),
            *alerts(SHOP, "TelemetryAbsent", "SdkDropping"),
        ],
    ),
    "Kafka that is away is told of as such, and not as a queue that fills": (
        alerts(ONE | KAFKA, "QueueFilling"),
        [*alerts(ONE | KAFKA, "ExportStalled"), *alerts(ONE | TEMPO, "QueueFilling")],
    ),
    "a queue that is full was filling; that nothing is taken is why": (
        alerts(ONE | KAFKA, "QueueFilling"),
        [*alerts(ONE | KAFKA, "QueueFull", "ExportStalled"), *alerts(TWO | KAFKA, "QueueFilling")],
    ),
    "a full queue alone silences that it fills, of no other exporter": (
        alerts(ONE | KAFKA, "QueueFilling"),
        [*alerts(ONE | KAFKA, "QueueFull"), *alerts(ONE | TEMPO, "QueueFilling")],
    ),
    "a back end that takes nothing keeps gateways from reading": (
        [*alerts(ONE | TEMPO, "QueueFilling"), *alerts({"receiver": "kafka/turns"}, "GatewaysBehind")],
        alerts(ONE | TEMPO, "ExportStalled"),
    ),
    "what is deleted was not read": (
        alerts({"receiver": "kafka/turns"}, "GatewaysBehind"),
        alerts({"topic": "endturn.turns"}, "KafkaDeleting"),
    ),
}
"""What is silent, and what is told, when both fire."""


@pytest.mark.parametrize("case", CASES)
def test_one_fact_is_told_once(case: str, tmp_path: Path) -> None:
    silent, loud = CASES[case]
    found = told(tmp_path, [*silent, *loud])
    assert {frozenset(each.items()) for each in found} == {frozenset(each.items()) for each in loud}
