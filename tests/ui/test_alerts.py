"""The page's alerts fire and stay quiet on the very series on which promtool says that the rules do."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest

from endturn.generate import promql
from endturn.generate.alerts import EXAMPLE, Alert, alerts
from endturn.generate.config import Limits, RuleConfig
from endturn.telemetry import schema
from endturn.ui.alerts import CONDITIONS, evaluate, measured
from endturn.ui.numbers import Numbers, Scope
from endturn.ui.rows import LABELS, Batch, Point, SeriesKey
from endturn.ui.store import Store
from tests.ui.support import SECOND, Served, point, write

EVERY: list[tuple[Alert, dict[str, Any], bool]] = [
    (alert, dict(example), fires)
    for alert in alerts(RuleConfig())
    if alert.name in CONDITIONS
    for examples, fires in ((alert.fires, True), (alert.quiet, False))
    for example in examples
]


@pytest.mark.parametrize(("alert", "example", "fires"), EVERY, ids=[f"{a.name}: {e['says']}" for a, e, _ in EVERY])
def test_an_alert_is_true_where_the_rule_fires(alert: Alert, example: dict[str, Any], fires: bool) -> None:
    """Each example of `alerts.yaml`, at its time."""
    store = Store()
    begun = time.time_ns() - 100 * 3600 * SECOND
    every = _seconds(example.get("every", "15s"))
    for text, values in example["series"].items():
        key = _series(text)
        points = [
            Point(key, begun, begun + n * every * SECOND, False, (value,))
            for n, value in enumerate(_values(values))
            if value is not None and n * every <= _seconds(example["at"])
        ]
        store.write(Batch(points=points))
    at = begun + _seconds(example["at"]) * SECOND
    # A rule goes on firing for a while when its condition is over, which the page does not.
    ago = (0, _seconds(alert.keep)) if fires else (0,)
    tried = (Scope(start_ns=0, end_ns=at - seconds * SECOND) for seconds in ago)
    found = next(
        filter(None, (evaluate(measured(Numbers(store, scope), alert.name, Limits().values)) for scope in tried)), {}
    )
    store.close()
    assert bool(found) == fires, found
    if fires:
        ((labels, value),) = found.items()
        assert labels[0] == example["labels"]["job"]
        if example["shows"].endswith("%"):
            assert value == pytest.approx(float(example["shows"].rstrip("%")) / 100, rel=0.05)
        else:
            assert value == float(example["shows"])


def test_the_page_lists_every_alert(page: Served) -> None:
    """Those that need Prometheus or a Collector too, as such."""
    text = page.ask("/alerts").text
    for alert in alerts(RuleConfig()):
        assert f'id="{alert.name}"' in text
    assert text.count("not here") == len(alerts(RuleConfig())) - len(CONDITIONS)
    assert "@" not in re.sub(r"<[^>]+>", "", text)


def test_a_row_says_how_far_it_is_from_its_limit(page: Served) -> None:
    """A quiet one its value, limit and least number; a true one leads to its turns."""
    outcome: dict[str, Any] = {schema.OUTCOME.label: "not_continued"}
    truncated = outcome | {schema.TRUNCATED.label: "true"}

    def come(unfinished: int, instance: str) -> str:
        at = time.time_ns()
        write(page.store, point(schema.TURNS, 40, at, instance=instance, **truncated))
        write(page.store, point(schema.TRUNCATION_EXITS, unfinished, at, instance=instance, **outcome))
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.ask("/alerts").text))

    text = come(4, "one")
    assert "10.0% (limit 7.2%) · 4 (at least 10)" in text
    assert "Unfinished turns of turns 1 h 10.0% above 7.2%" in text
    assert "No condition is true" in text
    assert "make up" not in text
    come(8, "two")
    assert 'href="/turns?range=1h&amp;state=unfinished&amp;service=agent"' in page.ask("/alerts").text


def _seconds(text: str) -> int:
    return sum(int(number) * {"s": 1, "m": 60, "h": 3600}[unit] for number, unit in re.findall(r"(\d+)([smh])", text))


def _series(text: str) -> SeriesKey:
    name, _, inner = text.partition("{")
    labels = dict(EXAMPLE) | dict(re.findall(r'(\w+)="([^"]*)"', inner))
    metric = promql.metric(name)
    carried = {attribute.label for attribute in metric.attributes}
    said = tuple(labels.get(label) if label in carried else None for label in LABELS)
    return SeriesKey(metric.name, labels["job"], labels["instance"], said)


def _values(text: str) -> Iterator[float | None]:
    """Values in promtool's notation: `0+5x480`, `9x280`, `_x40`, `7`."""
    for word in text.split():
        found = re.fullmatch(r"(_|-?[\d.]+)(?:([+-][\d.]+))?(?:x(\d+))?", word)
        assert found, word
        first, step, times = found.groups()
        for n in range(int(times or 0) + (first != "_" or not times)):
            yield None if first == "_" else float(first) + n * float(step or 0)
