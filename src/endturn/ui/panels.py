"""The overview: which indicators it shows, how each is drawn, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from endturn.telemetry import INDICATORS, TRUNCATED_TURNS, UNFINISHED_TURNS, Indicator, schema
from endturn.ui.bounds import finite
from endturn.ui.numbers import BY_MODEL, STEP, Numbers, quantile, step_of
from endturn.ui.rows import METRICS, data
from endturn.ui.span_counts import span_counts
from endturn.ui.store import Store
from endturn.ui.views import COLOURS, NS, View, colour, count, share, words

LIVELY_S: Final = 60
"""The headline's trend looks back on so much at least."""
PANELS: Final[dict[str, Any]] = data("panels.yaml")
MOST_SERIES: Final = 24
"""How many words a chart tells apart; the others are one."""
MOST_BUCKETS: Final = 40
"""How many bounds a histogram shows as they came; where there are more, those of the panel are
shown."""


def overview(view: View, store: Store) -> dict[str, Any]:
    """Everything that the overview's template shows."""
    asked = Numbers(store, view.scope, step_of(view.scope.end_ns - view.scope.start_ns))
    where, parameters = view.where()
    values = {name: asked.value(name) for name in INDICATORS}
    if not asked.measured:
        total, table = span_counts(view, store)
        values |= total
    return {
        "anything": asked.measured or bool(store.read("SELECT 1 FROM turns LIMIT 1")),
        "measured": asked.measured,
        "waiting": store.read(
            f"SELECT count(*) FROM turns WHERE {where} AND state = 'open'", parameters
        )[0][0],
        "values": values,
        "stats": [_stat(values, **each) for each in PANELS["stats"]],
        "remarks": [_stat(values, name) for name in PANELS["remarks"] if values[name]],
        "bars": PANELS["bars"],
        "indicators": INDICATORS,
        "level": level,
        "histograms": [_histogram(asked, each) for each in PANELS["histograms"]],
        "medians": asked.quantiles(0.5, schema.TURN_DURATION, (schema.CONTINUED.label,)),
        "table": models(asked) if asked.measured else table,
        "charts": [_trend(asked), *(_bars(asked, each) for each in PANELS["bars"]), _waits(asked)],
    }


def level(indicator: Indicator, value: float | None) -> str:
    """How bad a value is, by the indicator's thresholds."""
    limits = indicator.thresholds
    if limits is None or value is None or value < limits.look:
        return ""
    return "act" if value >= limits.act else "look"


def _stat(values: Mapping[str, float | None], of: str, title: str = "") -> dict[str, Any]:
    indicator, value = INDICATORS[of], values[of]
    about = {"indicator": indicator, "title": title or indicator.title}
    return about | {"level": level(indicator, value), "shown": shown(indicator, value)}


def shown(indicator: Indicator, value: float | None) -> str:
    """An indicator's value, as people read it."""
    return count(value) if indicator.whole is None else share(value)


def models(asked: Numbers) -> list[dict[str, Any]]:
    """Services and models, the one with most unfinished turns first."""
    by = tuple(BY_MODEL.values())
    counts = {
        name: asked.number(INDICATORS[name].count, by)
        for name in ("responses", "turns", "unfinished")
    }
    shares = {
        name: asked.share(INDICATORS[name], by) for name in ("truncation", "unfinished_share")
    }
    rows = [
        dict(zip(BY_MODEL, labels, strict=True))
        | {name: found.get(labels, 0.0) for name, found in counts.items()}
        | {name: found.get(labels) for name, found in shares.items()}
        for labels in sorted({*counts["responses"], *counts["turns"]})
    ]
    return sorted(
        rows, key=lambda row: (-row["unfinished"], -(row["truncation"] or 0), -row["responses"])
    )


# --- Charts ---------------------------------------------------------------------------------------


def _chart(
    id_: str, kind: str, unit: str, asked: Numbers, series: list[Any], every: int = 1
) -> dict[str, Any]:
    """A chart with the end of each step, in seconds; `every` so many steps are one."""
    start, step_ns = asked.scope.start_ns, asked.step_ns * every
    x = [(start + (n + 1) * step_ns) / NS for n in range(math.ceil(asked.number_of_steps / every))]
    for each in series:
        each["y"] = finite(each["y"])
    return {"id": id_, "kind": kind, "unit": unit, "x": x, "step": step_ns / NS, "series": series}


def _bars(asked: Numbers, bars: dict[str, str]) -> dict[str, Any]:
    found = asked.steps(INDICATORS[bars["of"]].count, (bars["by"],))
    order = [*COLOURS]

    def rank(name: str) -> int:
        return order.index(name) if name in order else len(order)

    names = sorted((name for (name,) in found), key=rank)
    rest: list[float] = []
    if len(names) > MOST_SERIES:  # anybody may send any word
        names.sort(key=lambda name: -sum(found[name,]))
        rest = [
            sum(values)
            for values in zip(*(found[name,] for name in names[MOST_SERIES:]), strict=True)
        ]
        names = sorted(names[:MOST_SERIES], key=rank)
    series = [{"name": words(name), "colour": colour(name), "y": found[name,]} for name in names]
    if rest:
        series.append({"name": "others", "colour": "unknown", "y": rest})
    return _chart(bars["id"], "bars", "count", asked, series)


def _trend(asked: Numbers) -> dict[str, Any]:
    """The headline over time.

    At each step of the last tenth of the range, so that single turns make no spikes.
    """
    length = max(1, asked.number_of_steps // 10, math.ceil(LIVELY_S * NS / asked.step_ns))
    empty = [0.0] * asked.number_of_steps
    counts = (UNFINISHED_TURNS, TRUNCATED_TURNS)
    part, whole = (asked.steps(count, ()).get((), empty) for count in counts)
    recent = [slice(max(0, n + 1 - length), n + 1) for n in range(asked.number_of_steps)]
    y = [sum(part[steps]) / sum(whole[steps]) if any(whole[steps]) else None for steps in recent]
    return _chart(
        "trend",
        "line",
        "share",
        asked,
        [{"name": "not continued", "colour": "lost", "y": y, "fill": True}],
    )


def _waits(asked: Numbers) -> dict[str, Any]:
    """Durations over time, in steps four times as long: a quantile of one turn says little."""
    found = asked.buckets(schema.TURN_DURATION, (schema.CONTINUED.label, f"{STEP} // 4"))
    steps = range(math.ceil(asked.number_of_steps / 4)) if found else ()
    series = [
        {
            "name": f"{'continued' if continued == 'true' else 'plain'}, "
                    f"p{q * 100:.0f}", "colour": hue,
            "y": [quantile(q, found[continued, n]) if (continued,
                                                       n) in found else None for n in steps],
            "dash": q < 0.9, "points": True,
        }
        for continued, q, hue in PANELS["waits"]
    ]  # fmt: skip
    return _chart("waits", "line", "seconds", asked, series if found else [], every=4)


def _histogram(asked: Numbers, histogram: dict[str, Any]) -> dict[str, Any]:
    counts = asked.buckets(METRICS[histogram["of"]]).get((), {})
    if len(counts) > MOST_BUCKETS:
        counts = _coarser(counts, sorted(histogram["buckets"]))
    whole, highest = sum(counts.values()), max(counts.values(), default=0)
    rows = [
        {
            "label": label,
            "colour": hue,
            "count": found,
            "part": found / whole,
            "length": found / highest,
        }
        for bound, found in sorted(counts.items())
        for label, hue in (histogram["buckets"].get(bound, (f"{bound:g}", "tool")),)
    ]
    while rows and not rows[-1]["count"]:
        rows.pop()
    return {"panel": histogram, "whole": whole, "rows": rows}


def _coarser(counts: Mapping[float, float], bounds: Sequence[float]) -> dict[float, float]:
    """The counts of buckets in fewer ones: each in the first whose upper bound is not lower."""
    coarse = dict.fromkeys(bounds, 0.0)
    for bound, number in counts.items():
        coarse[next((each for each in bounds if bound <= each), math.inf)] += number
    return coarse
