"""Charts over time as inline SVG, for pages, the HTML report, and readers without scripts.

`figure(chart)` returns the whole figure: the drawing with a sentence for screen readers, its
legend, and the table of the values behind it. It needs `static/page.css`, and no script: colours
are that style sheet's variables, so one figure fits the light theme, the dark one and print.
`static/page.js` adds a readout under the pointer, which shows the cells of the table, and the
selection of a time range. The same chart gives the same text, byte for byte.

    chart = Chart(
        id="waits", title="Turn duration", kind="line", unit="seconds", start_ns=…, step_ns=…,
        series=(ChartSeries(name="plain, p50", colour="tool", values=(1.2, None, 3.4)),),
    )
    charts.figure(chart, height=220)

The plot is as wide as its place. Positions along the time axis are percentages, positions along the
axis of values are pixels, so text and strokes keep their size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from markupsafe import Markup

from endturn.ui import axes, formatting
from endturn.ui.axes import NS, Tick, Unit

MOST_STEPS: Final = 1_000
"""The most steps of a chart: a figure stays small. `numbers.step_of` gives at most 121."""
MOST_SERIES: Final = 64
"""The most series of a chart."""
MOST_IN_SENTENCE: Final = 4
"""The most series that the sentence of a chart describes; it counts the others."""
TICK_DISTANCE: Final = 42
"""The least distance of two gridlines, in pixels."""
BAR_WIDTH: Final = 0.82
"""The width of a bar, in steps."""

Values = Sequence[float | None]
"""One number for each step; None for a step without a value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """One line, or one layer of the bars.

    Attributes:
        name: its text in the legend; any text.
        colour: a colour variable of the style sheet, without its dashes: `lost`, `tool`.
        values: in the chart's unit; finite, not negative.
        dashed: draw the line dashed.
        filled: fill the area below the line.
        marked: draw a point at each value.
    """

    name: str
    colour: str
    values: Values
    dashed: bool = False
    filled: bool = False
    marked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecided:
    """A range of values that are not final yet; it is hatched.

    Attributes:
        name: its text in the legend.
        lowest: for each step the lowest possible value; None if the value is final.
        highest: for each step the highest possible value.
    """

    name: str
    lowest: Values
    highest: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The contents of a chart.

    Attributes:
        id: unique on its page: letters, digits and hyphens.
        title: the heading of the chart, used in its sentence.
        kind: lines through the end of each step, or stacked bars over each step.
        unit: of the values: a count, a share in parts of one, or a duration in seconds.
        start_ns: the beginning of the first step; Unix time.
        step_ns: the length of a step.
        series: from the lowest layer to the highest.
        undecided: the hatched range of a chart of lines.

    Raises:
        ValueError: series without steps or of different lengths, or more steps or series than a
            figure can hold.
    """

    id: str
    title: str
    kind: Literal["line", "bars"]
    unit: Unit
    start_ns: int
    step_ns: int
    series: tuple[ChartSeries, ...]
    undecided: Undecided | None = None

    def __post_init__(self) -> None:
        """Check the shape."""
        lengths = {len(values) for values in self.columns()}
        if len(lengths) > 1:
            raise ValueError(f"chart {self.id!r}: series have different lengths: {sorted(lengths)}")
        if lengths == {0}:
            raise ValueError(f"chart {self.id!r} has no steps: a chart without data has no series")
        if max(lengths, default=0) > MOST_STEPS or len(self.series) > MOST_SERIES:
            raise ValueError(
                f"chart {self.id!r}: {max(lengths)} steps of {len(self.series)} series; at most "
                f"{MOST_STEPS} of {MOST_SERIES} can be drawn, so use longer steps"
            )

    @property
    def number_of_steps(self) -> int:
        """The number of steps."""
        return max(map(len, self.columns()), default=0)

    @property
    def end_ns(self) -> int:
        """The end of the last step."""
        return self.start_ns + self.number_of_steps * self.step_ns

    def step_end_ns(self, step: int) -> int:
        """Return the end of a step."""
        return self.start_ns + (step + 1) * self.step_ns

    def columns(self) -> list[Values]:
        """Return everything that is drawn on the axis of values."""
        columns = [series.values for series in self.series]
        if self.undecided is not None:
            columns += [self.undecided.lowest, self.undecided.highest]
        return columns


def figure(
    chart: Chart, *, height: int = 220, empty: str = "Nothing in this time range."
) -> Markup:
    """Return a chart as HTML: `<figure>` with the drawing, the legend and the table of values.

    Args:
        chart: its contents.
        height: of the plot without the labels of its time axis, in pixels.
        empty: the text that replaces a chart without series.
    """
    if not chart.series:
        return Markup(
            '<figure class="plot none" id="chart-{}"><p class="empty">{}</p></figure>'
        ).format(chart.id, empty)
    return Markup(
        '<figure class="plot" id="chart-{}"><div class="chart" data-kind="{}" data-unit="{}"'
        ' data-start="{}" data-step="{}" data-steps="{}">{}'
        '<div class="hover" data-drawn=""></div></div>'
        '<figcaption class="legend">{}</figcaption>{}</figure>'
    ).format(
        chart.id, chart.kind, chart.unit, chart.start_ns // 1_000_000,
        chart.step_ns // 1_000_000,
        chart.number_of_steps, svg(chart, height=height), _legend(chart), _table(chart),
    )  # fmt: skip


def svg(chart: Chart, *, height: int = 220) -> Markup:
    """Return the drawing alone, as `<svg role="img">` with its sentence as label."""
    ticks = axes.ticks(chart.unit, _highest(chart), max(2, height // TICK_DISTANCE))
    top = ticks[-1].value
    parts = [*_gridlines(ticks, height), *_time_axis(chart, height)]
    if chart.undecided is not None:
        parts += _hatching(chart, chart.undecided, top, height)
    layers = [*(_bars(chart, top) if chart.kind == "bars" else _lines(chart, top))]
    if chart.undecided is not None:
        layers += _bounds(chart.undecided, top)
    parts.append(
        Markup('<svg class="layers" width="100%" height="{}" viewBox="0 0 {} 100"'
               ' preserveAspectRatio="none">{}</svg>').format(
            height, chart.number_of_steps, Markup("").join(layers))
    )  # fmt: skip
    return Markup('<svg width="100%" height="{}" role="img" aria-label="{}">{}</svg>').format(
        height, sentence(chart), Markup("").join(parts)
    )


def sentence(chart: Chart) -> str:
    """Return a chart in words: its title, its time range, and the values of each series."""
    start, end = (_utc(at) for at in (chart.start_ns, chart.end_ns))
    descriptions = [_describe(series, chart) for series in chart.series[:MOST_IN_SENTENCE]]
    if len(chart.series) > MOST_IN_SENTENCE:
        number = len(chart.series) - MOST_IN_SENTENCE
        descriptions.append(f"and {number} other series")
    if chart.undecided is not None:
        descriptions.append(f"{chart.undecided.name}: hatched")
    return f"{chart.title}, {start} to {end} UTC: {'; '.join(descriptions)}."


def _describe(series: ChartSeries, chart: Chart) -> str:
    values = [value for value in series.values if value is not None]
    if not values:
        return f"{series.name} without a value"
    lowest, highest, last = (_text(chart.unit, x) for x in (min(values), max(values), values[-1]))
    if chart.kind == "bars":
        step = formatting.duration(chart.step_ns / NS)
        total = _text(chart.unit, sum(values))
        return f"{series.name} {total} in all, at most {highest} in {step}, {last} in the last"
    return f"{series.name} lowest {lowest}, highest {highest}, last {last}"


def _text(unit: Unit, value: float | None) -> str:
    """Format a value of a unit."""
    match unit:
        case "count":
            return formatting.count(value)
        case "share":
            return formatting.share(value)
        case "seconds":
            return formatting.duration(value)


def _utc(at_ns: int) -> str:
    return f"{datetime.fromtimestamp(at_ns // NS, UTC):%Y-%m-%d %H:%M:%S}"


# --- The drawing ----------------------------------------------------------------------------------


def _highest(chart: Chart) -> float:
    """Return the highest value that is drawn: of the sums of each step if they are stacked."""
    if chart.kind == "bars":
        steps = zip(*(series.values for series in chart.series), strict=True)
        return max((sum(value or 0 for value in step) for step in steps), default=0)
    return max((value for values in chart.columns() for value in values if value), default=0)


def _gridlines(ticks: Sequence[Tick], height: int) -> list[Markup]:
    return [
        Markup('<line class="gridline" x2="100%" y1="{0}" y2="{0}"/><text class="axis" dx="-8"'
               ' y="{0}" dy="0.35em" text-anchor="end">{1}</text>').format(
            _number(height * (1 - tick.value / ticks[-1].value)), tick.label)
        for tick in ticks
    ]  # fmt: skip


def _time_axis(chart: Chart, height: int) -> list[Markup]:
    """Draw the labels of the time axis; narrow screens hide every other one."""
    length = chart.end_ns - chart.start_ns
    labels = []
    for number, tick in enumerate(axes.time_ticks(chart.start_ns, chart.end_ns)):
        part = (tick.at_ns - chart.start_ns) / length
        if 0.02 <= part <= 0.95:  # others would overlap the edges of the plot
            labels.append(
                Markup('<text class="axis{}" x="{}%" y="{}" text-anchor="middle" data-at="{}"'
                       ' data-precision="{}">{}</text>').format(
                    " spare" if number % 2 else "", _number(part * 100), height + 18,
                    tick.at_ns // 1_000_000, tick.precision, tick.label)
            )  # fmt: skip
    zone = Markup('<text class="axis zone" dx="-8" y="{}" text-anchor="end">UTC</text>')
    return [*labels, zone.format(height + 18)]


def _bars(chart: Chart, top: float) -> Iterable[Markup]:
    """Draw each series as one path of rectangles, on top of those before it."""
    below = [0.0] * chart.number_of_steps
    for series in chart.series:
        path = []
        for step, value in enumerate(series.values):
            if value:
                foot, below[step] = below[step], below[step] + value
                start, end = step + (1 - BAR_WIDTH) / 2, step + (1 + BAR_WIDTH) / 2
                path.append(
                    f"M{_number(start)} {_height(foot, top)}V{_height(below[step], top)}"
                    f"H{_number(end)}V{_height(foot, top)}z"
                )
        if path:
            yield Markup('<path class="f-{}" d="{}"/>').format(series.colour, "".join(path))


def _lines(chart: Chart, top: float) -> Iterable[Markup]:
    """Draw each series: the area below it, its line, its points."""
    for series in chart.series:
        for points in _runs(series.values):
            line = _path(points, top)
            if series.filled and len(points) > 1:
                area = f"{line}V100H{points[0][0]}z"
                yield Markup('<path class="area f-{}" d="{}"/>').format(series.colour, area)
            if len(points) > 1:
                dash = " dashed" if series.dashed else ""
                yield Markup('<path class="line{} c-{}" d="{}"/>').format(dash, series.colour, line)
            if series.marked or len(points) == 1:
                # A stroke without length and with round ends is a dot, at any aspect ratio.
                dots = "".join(f"M{x} {_height(value, top)}h0" for x, value in points)
                yield Markup('<path class="dots c-{}" d="{}"/>').format(series.colour, dots)


def _hatching(chart: Chart, undecided: Undecided, top: float, height: int) -> Iterable[Markup]:
    """Draw the range of undecided values, hatched, over the steps that have one."""
    name = f"hatch-{chart.id}"
    yield Markup(
        '<defs><pattern id="{}" width="6" height="6" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><path class="hatch" d="M0 0v6"/></pattern></defs>'
    ).format(name)
    width = 100 / chart.number_of_steps
    for step, (lowest, highest) in enumerate(zip(undecided.lowest, undecided.highest, strict=True)):
        if lowest is not None and highest is not None:
            lower, upper = (height * (1 - value / top) for value in (lowest, highest))
            yield Markup(
                '<rect fill="url(#{})" x="{}%" y="{}" width="{}%" height="{}"/>'
            ).format(
                name, _number(step * width), _number(upper), _number(width), _number(lower - upper)
            )  # fmt: skip


def _bounds(undecided: Undecided, top: float) -> Iterable[Markup]:
    """Draw the edges of the undecided range: thin lines, one level for each step."""
    for values in (undecided.lowest, undecided.highest):
        for points in _runs(values):
            steps = "".join(f"V{_height(value, top)}H{end}" for end, value in points)
            first, value = points[0]
            yield Markup('<path class="bound" d="M{} {}{}"/>').format(
                first - 1, _height(value, top), steps
            )


def _runs(values: Values) -> Iterable[list[tuple[int, float]]]:
    """Yield the points of each unbroken part of a line: (end of the step, value)."""
    run: list[tuple[int, float]] = []
    for end, value in enumerate([*values, None], 1):
        if value is not None:
            run.append((end, value))
        elif run:
            yield run
            run = []


def _path(points: Sequence[tuple[int, float]], top: float) -> str:
    return "M" + "L".join(f"{x} {_height(value, top)}" for x, value in points)


def _height(value: float, top: float) -> str:
    """Return the position of a value on an axis from 100 at zero to 0 at the top."""
    return _number(100 * (1 - value / top))


def _number(value: float) -> str:
    """Write a coordinate, precise to a twentieth of a pixel at the sizes of charts."""
    return f"{round(value, 2) + 0:g}" if abs(value) < 10_000 else f"{value:.0f}"


# --- Legend and table -----------------------------------------------------------------------------


def _legend(chart: Chart) -> Markup:
    items = [
        Markup('<span><i class="{} f-{}"></i>{}</span>').format(
            "dot" if chart.kind == "bars" else "stroke dashed" if series.dashed else "stroke",
            series.colour, series.name)
        for series in chart.series
    ]  # fmt: skip
    if chart.undecided is not None:
        items.append(
            Markup('<span><i class="dot hatched"></i>{}</span>').format(chart.undecided.name)
        )
    return Markup("").join(items)


def _table(chart: Chart) -> Markup:
    """Return the table of values by step; the caption counts the empty steps that are left out."""
    names = [series.name for series in chart.series]
    columns = [_cells(chart, series.values) for series in chart.series]
    if chart.undecided is not None:
        names.append(chart.undecided.name)
        columns.append(_range_cells(chart, chart.undecided))
    empty = {"", formatting.ABSENT} | ({"0"} if chart.kind == "bars" else set())
    rows = [
        _row(chart, step, cells)
        for step, cells in enumerate(zip(*columns, strict=True))
        if not empty.issuperset(cells)
    ]
    left_out = chart.number_of_steps - len(rows)
    note = f" {formatting.plural(left_out, 'step')} without a value left out." if left_out else ""
    heads = [Markup('<th scope="col" class="n">{}</th>').format(name) for name in names]
    return Markup(
        '<details class="values"><summary>Values</summary><div class="scroll"><table>'
        "<caption>{}: steps of {}.{}</caption><thead><tr>"
        '<th scope="col">Until<span class="zone"> (UTC)</span></th>{}</tr></thead>'
        "<tbody>{}</tbody></table></div></details>"
    ).format(
        chart.title,
        formatting.duration(chart.step_ns / NS),
        note,
        Markup("").join(heads),
        Markup("").join(rows),
    )


def _row(chart: Chart, step: int, cells: Iterable[str]) -> Markup:
    end = datetime.fromtimestamp(chart.step_end_ns(step) // NS, UTC)
    return Markup(
        '<tr data-step="{}"><th scope="row"><time datetime="{}">{:%Y-%m-%d %H:%M:%S}</time></th>'
        "{}</tr>"
    ).format(
        step,
        end.isoformat(),
        end,
        Markup("").join(Markup('<td class="n">{}</td>').format(cell) for cell in cells),
    )


def _cells(chart: Chart, values: Values) -> list[str]:
    return [_text(chart.unit, value) for value in values]


def _range_cells(chart: Chart, undecided: Undecided) -> list[str]:
    lowest, highest = _cells(chart, undecided.lowest), _cells(chart, undecided.highest)
    return [
        "" if low == formatting.ABSENT else f"{low} to {high}"
        for low, high in zip(lowest, highest, strict=True)
    ]
