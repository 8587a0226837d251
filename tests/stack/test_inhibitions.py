"""One fact, one alert: the real Alertmanager, with the shipped inhibitions, says nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Alertmanager, Webhook, eventually, http, shipped

pytestmark = pytest.mark.stack

CASES = shipped("tests/data/inhibitions.yaml")


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_one_fact_is_told_once(case: dict[str, Any], tmp_path: Path) -> None:
    """Each row of `inhibitions.yaml`."""
    silent, loud = (
        [{"alertname": f"Endturn{name}", **each["of"]} for each in case[which] for name in each["alerts"]]
        for which in ("silent", "told")
    )
    firing = [{"labels": labels} for labels in (*silent, *loud)]
    with Webhook() as webhook, Alertmanager(tmp_path, webhook=webhook.url, group_wait="1s") as alertmanager:
        url = f"{alertmanager.url}/api/v2/alerts"
        http.post(url, json=firing).raise_for_status()

        def judged() -> bool:
            states = [each["status"]["state"] for each in http.get(url).json()]
            return len(states) == len(firing) and "unprocessed" not in states

        eventually(judged, what="every alert judged")
        told = [each["labels"] for each in http.get(f"{url}?inhibited=false").json()]
    assert {frozenset(each.items()) for each in told} == {frozenset(each.items()) for each in loud}
