"""Charts as SVG: what is drawn where, what a screen reader hears, and what names may contain."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, strategies as st

from endturn.ui import charts
from endturn.ui.charts import Chart, ChartSeries, Undecided
from tests.ui.support import SECOND

START = 1_796_027_400 * SECOND  # 2026-11-30 08:30:00 UTC
MINUTE = 60 * SECOND
HOSTILE = """</title><script>alert(1)</script>'"&<svg onload=alert(1)>"""


def chart(**changed: Any) -> Chart:
    """Three minutes of durations, one of them without a value."""
    plain = ChartSeries(name="plain, p50", colour="tool", values=(60.0, None, 150.0, 120.0), dashed=True, marked=True)
    return Chart(**{
        "id": "waits", "title": "Turn duration", "kind": "line", "unit": "seconds", "start_ns": START,
        "step_ns": MINUTE, "series": (plain,), **changed,
    })  # fmt: skip


def bars(**changed: Any) -> Chart:
    """Two stacked layers over two minutes."""
    series = (
        ChartSeries(name="end turn", colour="good", values=(2, 0)),
        ChartSeries(name="max tokens", colour="cut", values=(2, 4)),
    )
    return chart(
        **{"id": "reasons", "title": "Responses", "kind": "bars", "unit": "count", "series": series, **changed}
    )


def tree(figure: str) -> ElementTree.Element:
    """The figure, which is well-formed XML too."""
    return ElementTree.fromstring(figure)


def words(element: ElementTree.Element) -> str:
    return " ".join("".join(element.itertext()).split())


def one(figure: ElementTree.Element, name: str, **attributes: str) -> ElementTree.Element:
    """The one element of a name with these attributes."""
    (match,) = [
        each
        for each in figure.iter(name)
        if all(each.get(key.strip("_")) == value for key, value in attributes.items())
    ]
    return match


# --- The drawing --------------------------------------------------------------------------------------------------


def test_a_line_goes_through_the_end_of_each_step() -> None:
    """It is broken where a value is missing; a value that stands alone is a dot. The axis ends at 2 min 30 s."""
    figure = tree(charts.figure(chart(), height=250))
    assert one(figure, "svg", class_="layers").get("viewBox") == "0 0 4 100"
    assert one(figure, "path", class_="line dashed c-tool").get("d") == "M3 0L4 20"
    dots = [each.get("d") for each in figure.iter("path") if each.get("class") == "dots c-tool"]
    assert dots == ["M1 60h0", "M3 0h0M4 20h0"]
    labels = [each for each in figure.iter("text") if each.get("class") == "axis" and each.get("dx") == "-8"]
    assert [(each.text, each.get("y")) for each in labels] == [
        ("0", "250"), ("30 s", "200"), ("1 min", "150"), ("1 min 30 s", "100"), ("2 min", "50"), ("2 min 30 s", "0"),
    ]  # fmt: skip


def test_bars_stand_on_each_other() -> None:
    """Each over its step; nothing is drawn for zero."""
    figure = tree(charts.figure(bars(), height=200))
    good, cut = (one(figure, "path", class_=f"f-{colour}").get("d") for colour in ("good", "cut"))
    assert good == "M0.09 100V50H0.91V100z"
    assert cut == "M0.09 50V0H0.91V50zM1.09 100V0H1.91V100z"


def test_an_area_is_below_its_line() -> None:
    """Down to zero, between the first and the last point."""
    filled = ChartSeries(name="share", colour="lost", values=(0.5, 1.0), filled=True)
    figure = tree(charts.figure(chart(unit="share", series=(filled,))))
    assert one(figure, "path", class_="area f-lost").get("d") == "M1 50L2 0V100H1z"
    assert one(figure, "path", class_="line c-lost").get("d") == "M1 50L2 0"


def test_times_stand_below_the_plot() -> None:
    """In UTC; the script writes them in the reader's zone, with the same precision."""
    figure = tree(
        charts.figure(chart(step_ns=5 * MINUTE, series=(ChartSeries(name="a", colour="tool", values=(1.0,) * 4),)))
    )
    times = [(each.text, each.get("x"), each.get("data-at"), each.get("data-precision"))
             for each in figure.iter("text") if each.get("data-at")]  # fmt: skip
    assert times == [
        ("08:35", "25%", "1796027700000", "minute"),
        ("08:40", "50%", "1796028000000", "minute"),
        ("08:45", "75%", "1796028300000", "minute"),
    ]
    assert one(figure, "text", class_="axis zone").text == "UTC"


def test_what_is_undecided_is_hatched() -> None:
    """From the lowest value that is possible to the highest, with a thin line along both."""
    share = ChartSeries(name="not continued", colour="lost", values=(0.5, None, None))
    undecided = Undecided(name="not yet decided", lowest=(None, 0.25, 0.0), highest=(None, 0.75, 1.0))
    figure = tree(charts.figure(chart(unit="share", series=(share,), undecided=undecided), height=100))
    areas = [[each.get(name) for name in ("x", "y", "width", "height")]
             for each in figure.iter("rect") if each.get("fill") == "url(#hatch-waits)"]  # fmt: skip
    assert areas == [["33.33%", "25", "33.33%", "50"], ["66.67%", "0", "33.33%", "100"]]
    bounds = [each.get("d") for each in figure.iter("path") if each.get("class") == "bound"]
    assert bounds == ["M1 75V75H2V100H3", "M1 25V25H2V0H3"]
    assert words(one(figure, "figcaption")) == "not continuednot yet decided"
    assert "not yet decided: hatched" in charts.sentence(chart(unit="share", series=(share,), undecided=undecided))
    assert "25.0% to 75.0%" in words(one(figure, "table"))


# --- What stands beside it ----------------------------------------------------------------------------------------


def test_a_chart_has_a_sentence() -> None:
    """Title, time range, and the lowest, the highest and the last value of each series."""
    figure = tree(charts.figure(chart()))
    assert one(figure, "svg", role="img").get("aria-label") == (
        "Turn duration, 2026-11-30 08:30:00 to 2026-11-30 08:34:00 UTC: "
        "plain, p50 lowest 1 min, highest 2 min 30 s, last 2 min."
    )
    assert charts.sentence(bars()) == (
        "Responses, 2026-11-30 08:30:00 to 2026-11-30 08:32:00 UTC: end turn 2 in all, at most 2 in 1 min, 0 in the "
        "last; max tokens 6 in all, at most 4 in 1 min, 4 in the last."
    )
    many = tuple(ChartSeries(name=f"reason {n}", colour="unknown", values=(n,)) for n in range(25))
    assert charts.sentence(bars(series=many)).endswith(
        "reason 3 3 in all, at most 3 in 1 min, 3 in the last; and 21 other series."
    )
    assert "plain without a value" in charts.sentence(
        chart(series=(ChartSeries(name="plain", colour="tool", values=(None,)),))
    )


def test_a_chart_has_a_table_of_its_values() -> None:
    """A row for each step that has a value, by its number and its end; how many are left out is told."""
    figure = tree(charts.figure(chart()))
    table = one(figure, "table")
    assert words(one(table, "caption")) == "Turn duration: steps of 1 min. 1 step without a value left out."
    assert [words(each) for each in table.iter("th")] == [
        "Until (UTC)", "plain, p50", "2026-11-30 08:31:00", "2026-11-30 08:33:00", "2026-11-30 08:34:00",
    ]  # fmt: skip
    assert [words(each) for each in table.iter("td")] == ["1 min", "2 min 30 s", "2 min"]
    assert [each.get("data-step") for each in table.iter("tr")] == [None, "0", "2", "3"]
    assert [words(each) for each in one(tree(charts.figure(bars())), "table").iter("td")] == ["2", "2", "0", "4"]


def test_a_legend_shows_lines_as_they_are_drawn() -> None:
    """A dashed line is a dash, a layer is a square."""
    lines = replace(chart(), series=(*chart().series, ChartSeries(name="p95", colour="tool", values=(1,) * 4)))
    swatches = [[each.get("class") for each in tree(charts.figure(shown)).iter("i")] for shown in (lines, bars())]
    assert swatches == [["stroke dashed f-tool", "stroke f-tool"], ["dot f-good", "dot f-cut"]]


def test_a_chart_without_series_says_so() -> None:
    """In a sentence of its own."""
    figure = tree(charts.figure(chart(series=()), empty="No turn ended."))
    assert (words(figure), figure.find(".//svg")) == ("No turn ended.", None)


# --- What is held whatever is drawn -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["line", "bars"])
def test_names_are_text(kind: str) -> None:
    """Whatever they contain, they stand in the legend, the table and the sentence as they are."""
    series = (ChartSeries(name=HOSTILE, colour="tool", values=(1,)),)
    figure = charts.figure(chart(kind=kind, unit="count", series=series, title=HOSTILE))
    assert not re.search(r"<script|<svg onload|<title", figure)
    assert words(one(tree(figure), "figcaption")) == HOSTILE
    assert HOSTILE in str(one(tree(figure), "svg", role="img").get("aria-label"))


def test_a_chart_needs_nothing_but_the_style_sheet() -> None:
    """No colour of its own, so that each theme and print have theirs; no inline style, which the policy blocks."""
    undecided = Undecided(name="?", lowest=(0, 0, 0, 0), highest=(1, 1, 1, 1))
    figure = charts.figure(chart(undecided=undecided)) + charts.figure(bars())
    assert not re.search(r"\sstyle=|\son\w+=|https?:|#[0-9a-f]{3,6}\b(?<!#hatch)|rgb", figure)
    assert re.findall(r'(?:fill|stroke)="([^"]*)"', figure) == ["url(#hatch-waits)"] * 4


NUMBERS = st.one_of(st.none(), st.floats(0, 1e15), st.just(1e300))


@given(
    st.sampled_from(["line", "bars"]), st.sampled_from(["count", "share", "seconds"]),
    st.lists(st.lists(NUMBERS, min_size=3, max_size=3), min_size=1, max_size=4), st.integers(40, 300),
)  # fmt: skip
def test_any_values_can_be_drawn(kind: Any, unit: Any, columns: list[list[float | None]], height: int) -> None:
    """Within the plot, in the same way each time."""
    series = tuple(ChartSeries(name="a", colour="tool", values=values, marked=True, filled=True) for values in columns)
    drawn = chart(kind=kind, unit=unit, series=series)
    figure = charts.figure(drawn, height=height)
    assert figure == charts.figure(drawn, height=height)
    assert "nan" not in figure
    assert "inf" not in figure
    for path in one(tree(figure), "svg", class_="layers").iter("path"):
        pairs = re.findall(r"[ML]([\d.]+) ([\d.]+)", str(path.get("d")))
        assert "-" not in str(path.get("d"))
        assert all(float(x) <= 3 and float(y) <= 100 for x, y in pairs)


def test_a_figure_stays_small() -> None:
    """As long as its steps; more of them than can be told apart are refused."""
    many = tuple(ChartSeries(name=f"s{n}", colour="tool", values=(123_456,) * 120) for n in range(25))
    assert len(charts.figure(bars(series=many))) < 200_000
    with pytest.raises(ValueError, match="'waits': 1001 steps of 1 series; at most 1000 of 64 can be drawn"):
        chart(series=(ChartSeries(name="a", colour="tool", values=(1,) * 1001),))
    with pytest.raises(ValueError, match="series have different lengths: \\[1, 4\\]"):
        chart(series=(*chart().series, ChartSeries(name="a", colour="tool", values=(1,))))
    with pytest.raises(ValueError, match="has no steps"):
        chart(series=(ChartSeries(name="a", colour="tool", values=()),))
