"""The overview: which indicators it shows, how each is drawn, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS, Indicator
from endturn.ui import numbers
from endturn.ui.numbers import Numbers, step_of
from endturn.ui.rows import data
from endturn.ui.store import Store
from endturn.ui.views import COLOURS, NS, View, colour, count, share, words

LIVELY_S: Final = 60
"""The headline's trend looks back on so much at least."""
PANELS: Final[dict[str, Any]] = data("panels.yaml")
ADVICE_WAITS: Final = "The gap between the two is what truncation costs in time; a larger max_tokens closes it."


def overview(view: View, store: Store) -> dict[str, Any]:
    """Everything that the overview's template shows."""
    asked = Numbers(store, view.scope)
    step_ns = step_of(view.scope.end_ns - view.scope.start_ns)
    (seen, turned) = store.read("SELECT (SELECT count(*) FROM series), (SELECT count(*) FROM turns)")[0]
    charts = [_trend(asked, step_ns), *(_bars(asked, each, step_ns) for each in PANELS["bars"]), _waits(asked, step_ns)]
    headline = INDICATORS["unfinished_share"]
    assert headline.whole is not None
    return {
        "anything": bool(seen or turned),
        "measured": bool(seen),
        "headline": headline,
        "rate": asked.share(headline).get(()),
        "unfinished": asked.total(headline.count),
        "truncated": asked.total(headline.whole),
        "turns": asked.total(INDICATORS["turns"].count),
        "responses": asked.total(INDICATORS["responses"].count),
        "stats": [_stat(asked, **each) for each in PANELS["stats"]],
        "remarks": [found for name in PANELS["remarks"] if (found := _stat(asked, name))["value"]],
        "bars": PANELS["bars"],
        "indicators": INDICATORS,
        "histograms": [_histogram(asked, each) for each in PANELS["histograms"]],
        "wait": _added_wait(asked),
        "waits_advice": ADVICE_WAITS,
        "table": models(asked),
        "charts": charts,
    }


def level(indicator: Indicator, value: float | None) -> str:
    """How bad a value is, by the indicator's thresholds."""
    limits = indicator.thresholds
    if limits is None or value is None or value < limits.look:
        return ""
    return "act" if value >= limits.act else "look"


def _stat(asked: Numbers, of: str, title: str = "") -> dict[str, Any]:
    indicator, value = INDICATORS[of], asked.value(of)
    return {
        "indicator": indicator, "title": title or indicator.title, "value": value, "level": level(indicator, value),
        "shown": shown(indicator, value),
    }  # fmt: skip


def shown(indicator: Indicator, value: float | None) -> str:
    """An indicator's value, as people read it."""
    return count(value) if indicator.whole is None else share(value)


def models(asked: Numbers) -> list[dict[str, Any]]:
    """Services and models, the one with most unfinished turns first."""
    by = (numbers.SERVICE, schema.PROVIDER.label, schema.REQUEST_MODEL.label)
    responses = asked.number(INDICATORS["responses"].count, by)
    truncation = asked.share(INDICATORS["truncation"], by)
    turns = asked.number(INDICATORS["turns"].count, by)
    unfinished = asked.number(INDICATORS["unfinished"].count, by)
    shares = asked.share(INDICATORS["unfinished_share"], by)
    rows = [
        {
            "service": labels[0], "provider": labels[1], "model": labels[2], "responses": responses.get(labels, 0.0),
            "truncation": truncation.get(labels), "turns": turns.get(labels, 0.0),
            "unfinished": unfinished.get(labels, 0.0), "share": shares.get(labels),
            "truncation_level": level(INDICATORS["truncation"], truncation.get(labels)),
            "share_level": level(INDICATORS["unfinished_share"], shares.get(labels)),
        }
        for labels in sorted({*responses, *turns})
    ]  # fmt: skip
    return sorted(rows, key=lambda row: (-row["unfinished"], -(row["truncation"] or 0), -row["responses"]))


# --- Charts -------------------------------------------------------------------------------------------------------


def _times(asked: Numbers, step_ns: int) -> list[float]:
    """The end of each step, in seconds."""
    start = asked.scope.start_ns
    return [(start + (n + 1) * step_ns) / NS for n in range(asked.number_of_steps(step_ns))]


def _bars(asked: Numbers, bars: dict[str, str], step_ns: int) -> dict[str, Any]:
    found = asked.steps(INDICATORS[bars["of"]].count, (bars["by"],), step_ns)
    order = [*COLOURS]
    names = sorted((name for (name,) in found), key=lambda name: order.index(name) if name in order else len(order))
    return {
        "id": bars["id"], "kind": "bars", "unit": "count", "x": _times(asked, step_ns), "step": step_ns / NS,
        "series": [{"name": words(name), "colour": colour(name), "y": found[name,]} for name in names],
    }  # fmt: skip


def _trend(asked: Numbers, step_ns: int) -> dict[str, Any]:
    """The headline over time: at each step of the last tenth of the range, so that single turns make no spikes."""
    indicator = INDICATORS["unfinished_share"]
    assert indicator.whole is not None
    length = max(1, asked.number_of_steps(step_ns) // 10, math.ceil(LIVELY_S * NS / step_ns))
    empty = [0.0] * asked.number_of_steps(step_ns)
    part = _summed(asked.steps(indicator.count, (), step_ns).get((), empty), length)
    whole = _summed(asked.steps(indicator.whole, (), step_ns).get((), empty), length)
    y = [p / w if w else None for p, w in zip(part, whole, strict=True)]
    return {
        "id": "trend", "kind": "line", "unit": "share", "x": _times(asked, step_ns), "step": step_ns / NS,
        "series": [{"name": "not continued", "colour": "lost", "y": y, "fill": True}],
    }  # fmt: skip


def _summed(values: Sequence[float], length: int) -> list[float]:
    return [sum(values[max(0, n + 1 - length) : n + 1]) for n in range(len(values))]


def _waits(asked: Numbers, step_ns: int) -> dict[str, Any]:
    """Durations over time, in steps four times as long: a quantile of one turn says little."""
    step_ns *= 4
    series: list[dict[str, Any]] = []
    for continued, q, hue in PANELS["waits"]:
        only = ((schema.CONTINUED, frozenset({continued})),)
        y = asked.stepped_quantiles(q, schema.TURN_DURATION, step_ns, only)
        name = f"{'continued' if continued == 'true' else 'plain'}, p{q * 100:.0f}"
        series.append({"name": name, "colour": hue, "y": y, "dash": q < 0.9, "points": True})
    return {
        "id": "waits", "kind": "line", "unit": "seconds", "x": _times(asked, step_ns), "step": step_ns / NS,
        "series": series if any(any(each["y"]) for each in series) else [],
    }  # fmt: skip


def _added_wait(asked: Numbers) -> dict[str, float | None]:
    """The median durations of continued and of plain turns, and what lies between."""
    found = asked.quantiles(0.5, schema.TURN_DURATION, (schema.CONTINUED.label,))
    continued, plain = found.get(("true",)), found.get(("false",))
    added = None if continued is None or plain is None else continued - plain
    return {"continued": continued, "plain": plain, "added": added}


def _histogram(asked: Numbers, histogram: dict[str, Any]) -> dict[str, Any]:
    metric = next(metric for metric in schema.METRICS if metric.name == histogram["of"])
    counts = asked.buckets(metric).get((), {})
    whole, highest = sum(counts.values()), max(counts.values(), default=0)
    rows = [
        {"label": label, "colour": hue, "count": found, "part": found / whole, "length": found / highest}
        for bound, found in sorted(counts.items())
        for label, hue in (histogram["buckets"].get(bound, (f"{bound:g}", "tool")),)
    ]
    while rows and not rows[-1]["count"]:
        rows.pop()
    return {"panel": histogram, "whole": whole, "rows": rows}
