"""The page's alerts fire and stay quiet on the very series on which promtool says that the rules do."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from endturn.generate.alerts import ALERTS
from endturn.generate.alerts.conditions import PrometheusOnly
from endturn.generate.alerts.model import Alert, Firing, Quiet
from endturn.generate.promql import metric
from endturn.telemetry import schema
from endturn.ui.alerts import SETTINGS, compare, evaluate
from endturn.ui.numbers import Numbers, Scope
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from tests.ui.support import SECOND, Answer, Served, point, write

ON_PAGE = [alert for alert in ALERTS if not isinstance(alert.condition(SETTINGS), PrometheusOnly)]
EXAMPLES = [
    pytest.param(alert, example, id=f"{alert.name}: {example.title}") for alert in ON_PAGE for example in alert.examples
]


def _values(text: str) -> Iterator[float | None]:
    """Values in promtool's notation: `0+5x480`, `9x280`, `_x40`, `7`."""
    for word in text.split():
        found = re.fullmatch(r"(_|-?[\d.]+)(?:([+-][\d.]+))?(?:x(\d+))?", word)
        assert found, word
        first, step, times = found.groups()
        for n in range(int(times or 0) + (first != "_" or not times)):
            yield None if first == "_" else float(first) + n * float(step or 0)


@pytest.mark.parametrize(("alert", "example"), EXAMPLES)
def test_an_alert_is_true_where_the_rule_fires(alert: Alert, example: Firing | Quiet) -> None:
    """Each example of the alerts, at its time."""
    begun, after = time.time_ns() - 100 * 3600 * SECOND, int(example.at.total_seconds())
    every = int(example.interval.total_seconds())
    with closing(Store()) as store:
        for series in example.series:
            labels = dict(series.labels)
            labels["service"] = labels.pop("job")
            points = [
                point(metric(series.name), value, begun + n * every * SECOND, started_ns=begun, **labels)
                for n, value in enumerate(_values(series.values))
                if value is not None and n * every <= after
            ]
            store.write(Batch(points=points))
        # A rule goes on firing for a while when its condition is over, which the page does not.
        keeps = int(alert.keep_firing.total_seconds())
        for ago in (0, keeps) if isinstance(example, Firing) else (0,):
            scope = Scope(start_ns=0, end_ns=begun + (after - ago) * SECOND)
            true = evaluate(compare(alert.condition(SETTINGS), Numbers(store, scope)))
            if true:
                break
    assert bool(true) == isinstance(example, Firing), true
    if isinstance(example, Firing):
        ((labels_of, value),) = true.items()
        assert labels_of[0] == example.labels["job"]
        number, is_share = example.value.rstrip("%"), example.value.endswith("%")
        assert value == (pytest.approx(float(number) / 100, rel=0.05) if is_share else float(number))


def test_the_page_lists_every_alert(page: Served) -> None:
    """Those that need Prometheus or a Collector too, as such."""
    answer = page.ask("/alerts")
    assert [alert.name for alert in ALERTS if f'id="{alert.name}"' not in answer.text] == []
    assert answer.text.count("not here") == len(ALERTS) - len(ON_PAGE)


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
