"""The headline over time: turns at the time of their last response, and what is not decided yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from endturn.telemetry import schema
from endturn.ui.charts import Chart
from endturn.ui.numbers import Numbers
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from endturn.ui.trend import trend
from endturn.ui.views import View
from tests.ui.support import SECOND, TRUNCATED, batch, point, said, span

START = 4_102_444_800 * SECOND  # 2100-01-01: no turn has waited too long
MINUTE = 60 * SECOND
STEPS = 10


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(Store()) as opened:
        yield opened


def turn(store: Store, id_: str, minute: float, *, outcome: str | None, truncated: bool = True) -> None:
    """A truncated turn that ends in a minute of the range, with an outcome; None: it waits."""
    columns = {"span_id": id_, "turn_id": id_, "truncated": truncated, "outcome": outcome}
    columns |= {"complete": outcome == "completed", "reason": "max_tokens"}
    end = START + int(minute * MINUTE)
    request = span(start_ns=end - SECOND, endTimeUnixNano=str(end))
    rows = [row | columns for row in batch(request).spans]
    store.write(Batch(spans=rows))


def drawn(store: Store) -> Chart:
    """The trend of ten minutes, in steps of one."""
    end = START + STEPS * MINUTE
    view = View.of(store, {"from": str(START // 1_000_000), "to": str(end // 1_000_000)}, end)
    return trend(view, store, Numbers(store, view.scope, MINUTE))


def test_each_step_is_the_share_of_the_turns_before_it(store: Store) -> None:
    """Of the last minute where the range has ten. Turns that were not truncated do not count."""
    turn(store, "a", 0.5, outcome="completed")
    turn(store, "b", 2.2, outcome="not_continued")
    turn(store, "c", 2.4, outcome="completed")
    turn(store, "d", 2.6, outcome="completed", truncated=False)
    chart = drawn(store)
    assert chart.series[0].values == [0, None, 0.5, None, None, None, None, None, None, None]
    assert chart.undecided is None


def test_a_turn_that_waits_makes_a_range(store: Store) -> None:
    """From all of them finished to all of them unfinished; never zero."""
    turn(store, "a", 2.2, outcome="not_continued")
    turn(store, "b", 9.1, outcome="not_continued")
    turn(store, "c", 9.2, outcome="completed")
    turn(store, "d", 9.3, outcome=None)
    turn(store, "e", 9.4, outcome=None)
    chart = drawn(store)
    assert chart.undecided is not None
    assert chart.series[0].values == [None, None, 1, *[None] * 7]
    assert chart.undecided.lowest == [*[None] * 9, 0.25]
    assert chart.undecided.highest == [*[None] * 9, 0.75]


def test_turns_that_only_wait_are_drawn(store: Store) -> None:
    """Nothing is known of them yet: from none to all."""
    turn(store, "a", 9.5, outcome=None)
    chart = drawn(store)
    assert chart.undecided is not None
    assert (chart.undecided.lowest[-1], chart.undecided.highest[-1]) == (0, 1)
    assert chart.series


def test_nothing_truncated_is_no_trend(store: Store) -> None:
    """An empty chart, not a line at zero."""
    turn(store, "a", 2, outcome="completed", truncated=False)
    assert drawn(store).series == ()


@pytest.mark.parametrize(("stored", "values"), [(8, 0.0), (9, 1.0)])
def test_metrics_are_counted_where_spans_are_sampled(store: Store, stored: int, values: float) -> None:
    """Ten truncated turns by metrics, none unfinished; fewer than nine of them are stored, each unfinished."""
    for n in range(stored):
        turn(store, f"t{n}", 5.5, outcome="not_continued")
    at = START + int(5.5 * MINUTE)
    points = [
        point(schema.TURNS, 10, at, started_ns=at - SECOND, **TRUNCATED),
        point(schema.TRUNCATION_EXITS, 0, at, started_ns=at - SECOND, **said(schema.OUTCOME, "not_continued")),
    ]
    store.write(Batch(points=points))
    assert drawn(store).series[0].values == [*[None] * 5, values, *[None] * 4]
