"""The overview: which indicators it shows, how each is drawn, and their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS, Indicator
from endturn.ui import numbers
from endturn.ui.numbers import Numbers, step_of
from endturn.ui.store import Store
from endturn.ui.views import COLOURS, NS, View, count, seconds, share, words

LIVELY_S: Final = 60
"""A bar is never shorter than a second, and the headline's trend looks back on at least so much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stat:
    """One number. `worth` says that it is shown only where it is not zero."""

    of: str
    title: str = ""
    worth: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """An indicator over time, stacked by a label."""

    id: str
    of: str
    by: schema.Attribute
    title: str
    wide: int
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """A histogram's buckets over the whole range."""

    id: str
    of: schema.Metric
    title: str
    question: str
    advice: str
    kind: Literal["attempts", "shares"]


STATS: Final = (
    Stat(of="truncation"),
    Stat(of="unfinished"),
    Stat(of="continuations"),
    Stat(of="continuation_tokens", title="Tokens spent on continuing"),
)
REMARKS: Final = tuple(
    Stat(of=name, worth=True)
    for name in ("given_up", "suspected", "unknown", "blocked", "repairs", "recording_failures", "capped")
)
BARS: Final = (
    Bars(id="reasons", of="responses", by=schema.REASON, title="Responses by stop reason", wide=8, unit="responses"),
    Bars(id="endings", of="unfinished", by=schema.OUTCOME, title="Unfinished turns by outcome", wide=4, unit="turns"),
    Bars(
        id="strategies", of="continuations", by=schema.STRATEGY, title="Continuations by strategy", wide=4,
        unit="continuations",
    ),
    Bars(
        id="tokens", of="continuation_tokens", by=schema.TOKEN_TYPE, title="Tokens spent on continuing", wide=4,
        unit="tokens",
    ),
)  # fmt: skip
HISTOGRAMS: Final = (
    Histogram(
        id="attempts", of=schema.TURN_CONTINUATIONS, title="Attempts per truncated turn", kind="attempts",
        question="How many continuations does a truncated turn take?",
        advice="Mostly one: fine. Often three or more: max_tokens is far too small for what is asked.",
    ),
    Histogram(
        id="budget", of=schema.BUDGET_USED, title="Budget used", kind="shares",
        question="How close to max_tokens do answers come, before any is cut?",
        advice="Much at 95% and above: raise max_tokens before it cuts.",
    ),
)  # fmt: skip
ATTEMPTS: Final = {0: "none", 1: "1", 2: "2", 3: "3", 4: "4", 5: "5", 8: "6–8", 13: "9–13", math.inf: "> 13"}
WAITS: Final = tuple(
    (f"{kind}, p{q * 100:.0f}", q, colour, ((schema.CONTINUED, frozenset({continued})),))
    for kind, continued, colour in (("continued", "true", "cut"), ("plain", "false", "tool"))
    for q in (0.5, 0.95)
)
"""The lines of the chart of durations."""
ADVICE_WAITS: Final = "The gap between the two is what truncation costs in time; a larger max_tokens closes it."
UNITS: Final[Mapping[str, Callable[[float | None], str]]] = {"share": share, "seconds": seconds, "count": count}


def overview(view: View, store: Store) -> dict[str, Any]:
    """Everything that the overview's template shows."""
    asked = Numbers(store, view.scope)
    step_ns = step_of(view.scope.end_ns - view.scope.start_ns)
    (seen, turned) = store.read("SELECT (SELECT count(*) FROM series), (SELECT count(*) FROM turns)")[0]
    charts = [_trend(asked, step_ns), *(_bars(asked, each, step_ns) for each in BARS), _waits(asked, step_ns)]
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
        "stats": [_stat(asked, each) for each in STATS],
        "remarks": [found for each in REMARKS if (found := _stat(asked, each))["value"]],
        "bars": BARS,
        "indicators": INDICATORS,
        "histograms": [_histogram(asked, each) for each in HISTOGRAMS],
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


def _stat(asked: Numbers, stat: Stat) -> dict[str, Any]:
    indicator = INDICATORS[stat.of]
    value = asked.value(stat.of)
    shown = share(value) if indicator.whole is not None else count(value)
    return {
        "indicator": indicator, "title": stat.title or indicator.title, "value": value, "shown": shown,
        "level": level(indicator, value),
    }  # fmt: skip


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


def _bars(asked: Numbers, bars: Bars, step_ns: int) -> dict[str, Any]:
    found = asked.steps(INDICATORS[bars.of].count, (bars.by.label,), step_ns)
    order = list(COLOURS)
    named = sorted(
        ((labels[0], values) for labels, values in found.items()),
        key=lambda each: order.index(each[0]) if each[0] in order else len(order),
    )
    return {
        "id": bars.id, "kind": "bars", "unit": "count", "x": _times(asked, step_ns), "step": step_ns / NS,
        "series": [{"name": words(name), "colour": COLOURS.get(name, "unknown"), "y": y} for name, y in named],
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
    for name, q, colour, only in WAITS:
        found = asked.stepped_quantiles(q, schema.TURN_DURATION, step_ns, only)
        series.append({"name": name, "colour": colour, "y": found, "dash": q < 0.9, "points": True})
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


def _histogram(asked: Numbers, histogram: Histogram) -> dict[str, Any]:
    counts = asked.buckets(histogram.of).get((), {})
    whole = sum(counts.values())
    bounds = sorted(counts)
    rows: list[dict[str, Any]] = []
    for n, bound in enumerate(bounds):
        if histogram.kind == "attempts":
            label, colour = ATTEMPTS.get(bound, f"{bound:g}"), "lost" if bound == 0 else "good" if bound < 3 else "cut"
        else:
            before = bounds[n - 1] if n else 0
            label = "over" if bound == math.inf else f"{before * 100:.3g}–{bound * 100:.3g}%"
            colour = "tool" if bound <= 0.9 else "cut" if bound < 1 else "lost"
        rows.append({"label": label, "count": counts[bound], "part": counts[bound] / whole, "colour": colour})
    while rows and not rows[-1]["count"]:
        rows.pop()
    highest = max((row["part"] for row in rows), default=1)
    return {"panel": histogram, "whole": whole, "rows": [row | {"length": row["part"] / highest} for row in rows]}
