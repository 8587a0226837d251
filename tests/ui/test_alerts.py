"""The page's alerts fire and stay quiet on the very series on which promtool says that the rules do."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from endturn.generate import promql
from endturn.generate.alerts import EXAMPLE, Alert, alerts
from endturn.generate.config import Limits, RuleConfig
from endturn.telemetry import schema
from endturn.ui.alerts import CONDITIONS, evaluate, measured
from endturn.ui.numbers import Numbers, Scope
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from tests.support.faster import seconds
from tests.ui.support import SECOND, Answer, Served, point, write

ALERTS = alerts(RuleConfig())
EVERY = [
    pytest.param(alert, example, fires, id=f"{alert.name}: {example['says']}")
    for alert in ALERTS
    if CONDITIONS[alert.name]
    for examples, fires in ((alert.fires, True), (alert.quiet, False))
    for example in examples
]


def _values(text: str) -> Iterator[float | None]:
    """Values in promtool's notation: `0+5x480`, `9x280`, `_x40`, `7`."""
    for word in text.split():
        found = re.fullmatch(r"(_|-?[\d.]+)(?:([+-][\d.]+))?(?:x(\d+))?", word)
        assert found, word
        first, step, times = found.groups()
        for n in range(int(times or 0) + (first != "_" or not times)):
            yield None if first == "_" else float(first) + n * float(step or 0)


@pytest.mark.parametrize(("alert", "example", "fires"), EVERY)
def test_an_alert_is_true_where_the_rule_fires(alert: Alert, example: dict[str, Any], fires: bool) -> None:
    """Each example of `alerts.yaml`, at its time."""
    begun, after = time.time_ns() - 100 * 3600 * SECOND, seconds(example["at"])
    every = seconds(example.get("every", "15s"))
    with closing(Store()) as store:
        for text, values in example["series"].items():
            name, _, inner = text.partition("{")
            labels = dict(EXAMPLE) | dict(re.findall(r'(\w+)="([^"]*)"', inner))
            labels |= {"service": labels.pop("job")}
            points = [
                point(promql.metric(name), value, begun + n * every * SECOND, started_ns=begun, **labels)
                for n, value in enumerate(_values(values))
                if value is not None and n * every <= after
            ]
            store.write(Batch(points=points))
        # A rule goes on firing for a while when its condition is over, which the page does not.
        for ago in (0, seconds(alert.keep)) if fires else (0,):
            scope = Scope(start_ns=0, end_ns=begun + (after - ago) * SECOND)
            if found := evaluate(measured(Numbers(store, scope), alert.name, Limits().values)):
                break
    assert bool(found) == fires, found
    if fires:
        ((of, value),) = found.items()
        assert of[0] == example["labels"]["job"]
        shows, percent = example["shows"].rstrip("%"), example["shows"].endswith("%")
        assert value == (pytest.approx(float(shows) / 100, rel=0.05) if percent else float(shows))


def test_the_page_lists_every_alert(page: Served) -> None:
    """Those that need Prometheus or a Collector too, as such."""
    answer = page.ask("/alerts")
    assert [alert.name for alert in ALERTS if f'id="{alert.name}"' not in answer.text] == []
    assert set(CONDITIONS) == {alert.name for alert in ALERTS}, "ui/conditions.yaml has no row, perhaps an empty one"
    assert answer.text.count("not here") == sum(not groups for groups in CONDITIONS.values())
    assert "@" not in answer.words


def test_a_row_says_how_far_it_is_from_its_limit(page: Served) -> None:
    """A quiet one its value, limit and least number; a true one leads to its turns."""
    outcome: dict[str, Any] = {schema.OUTCOME.label: "not_continued"}

    def come(unfinished: int, instance: str) -> Answer:
        write(page.store, point(schema.TURNS, 40, instance=instance, **outcome | {schema.TRUNCATED.label: "true"}))
        write(page.store, point(schema.TRUNCATION_EXITS, unfinished, instance=instance, **outcome))
        return page.ask("/alerts")

    text = come(4, "one").words
    assert "10.0% (limit 7.2%) · 4 (at least 10)" in text
    assert "Unfinished turns of turns 1 h 10.0% above 7.2%" in text
    assert "No condition is true" in text
    assert "make up" not in text
    assert 'href="/turns?range=1h&amp;state=unfinished&amp;service=agent"' in come(8, "two").text
