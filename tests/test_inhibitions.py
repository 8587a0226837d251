"""One fact, one alert: the real Alertmanager, with the shipped inhibitions, says nothing twice."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.processes import Alertmanager, Webhook, eventually

pytestmark = pytest.mark.stack

SHOP = {"job": "shop/agent", "deployment_environment_name": "prod"}
COLLECTOR = {"job": "collector", "instance": "collector:8888"}


def told(folder: Path, firing: list[dict[str, str]]) -> set[tuple[str, str]]:
    """The alerts that Alertmanager tells somebody of, by name and service, of those that fire."""
    with Webhook() as webhook, Alertmanager(folder, webhook=webhook.url, group_wait="1s") as alertmanager:
        httpx.post(
            f"{alertmanager.url}/api/v2/alerts", json=[{"labels": labels} for labels in firing]
        ).raise_for_status()

        def states() -> list[str]:
            every = httpx.get(f"{alertmanager.url}/api/v2/alerts").json()
            return [each["status"]["state"] for each in every]

        eventually(lambda: len(states()) == len(firing) and "unprocessed" not in states(), what="every alert judged")
        active = httpx.get(f"{alertmanager.url}/api/v2/alerts?inhibited=false").json()
    return {(each["labels"]["alertname"], each["labels"].get("job", "")) for each in active}


def test_the_page_silences_milder_words_about_the_same_service(tmp_path: Path) -> None:
    """Of that service in that environment alone; what is about something else is told."""
    milder = ("EndturnBudgetBurning", "EndturnTruncatedNotContinued", "EndturnContinuationsExhausted")
    firing = [{"alertname": name} | SHOP for name in ("EndturnTurnsUnfinished", *milder, "EndturnStopReasonUnknown")]
    firing += [{"alertname": "EndturnBudgetBurning", "job": "shop/other"}]
    firing += [{"alertname": "EndturnBudgetBurning", "job": "shop/agent", "deployment_environment_name": "dev"}]
    assert told(tmp_path, firing) == {
        ("EndturnTurnsUnfinished", "shop/agent"),
        ("EndturnStopReasonUnknown", "shop/agent"),
        ("EndturnBudgetBurning", "shop/other"),
        ("EndturnBudgetBurning", "shop/agent"),  # in dev
    }


def test_a_collector_that_is_down_explains_what_follows(tmp_path: Path) -> None:
    """Absent telemetry and drops follow from it; a model's truncation does not."""
    follows = [{"alertname": "EndturnCollectorLosing"} | COLLECTOR]
    follows += [{"alertname": name} | SHOP for name in ("EndturnTelemetryAbsent", "EndturnSdkDropping")]
    firing = [{"alertname": "EndturnCollectorDown"}, *follows, {"alertname": "EndturnResponsesTruncated"} | SHOP]
    assert told(tmp_path, firing) == {("EndturnCollectorDown", ""), ("EndturnResponsesTruncated", "shop/agent")}


def test_one_collector_of_several_explains_only_what_it_loses_itself(tmp_path: Path) -> None:
    """What others lose, a service that reports no more, and one that drops, is told: others answer."""
    firing = [{"alertname": name} | COLLECTOR for name in ("EndturnCollectorDown", "EndturnCollectorLosing")]
    firing += [{"alertname": name} | SHOP for name in ("EndturnTelemetryAbsent", "EndturnSdkDropping")]
    firing += [{"alertname": "EndturnCollectorLosing", "job": "gateway", "instance": "two:8888"}]
    assert told(tmp_path, firing) == {
        ("EndturnCollectorDown", "collector"),
        ("EndturnTelemetryAbsent", "shop/agent"),
        ("EndturnSdkDropping", "shop/agent"),
        ("EndturnCollectorLosing", "gateway"),
    }
