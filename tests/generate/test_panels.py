"""What panels and searches are made of: layout, the finishing pass, the helpers of PromQL that they rely on."""

from __future__ import annotations

import json
from typing import Any

import pytest

from endturn.errors import UsageError
from endturn.generate import layout, panels, promql, queries, rules, shown
from endturn.generate.layout import Section
from endturn.generate.panels import About, Link, Query
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import dashboard, stat
from endturn.telemetry import indicators, schema
from tests.generate.parsed import labels, parse

CONFIG = RuleConfig()
SAYS = About(id=1, title="T", question="Why?", formula="this and that", advice="Do it.", unit="short")


def figure(id_: int = 1) -> stat.Panel:
    return panels.number(About(id=id_, title="T", question="Why?", formula="so", advice="Do.", unit="s"), Query("up"))


def made(*sections: Section) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(layout.finish(layout.lay_out(dashboard.Dashboard("x").uid("x"), sections)))
    return content


def test_a_description_says_everything() -> None:
    """Question, formula, advice, and where the data come from, in this order."""
    assert SAYS.description.split("\n\n") == ["**Why?**", "This and that.", "Do it.", panels.NEEDS["process"]]


@pytest.mark.parametrize("wide", [23, 25])
def test_a_line_that_does_not_fill_the_grid_is_refused(wide: int) -> None:
    """A line of panels is exactly as wide as the grid."""
    with pytest.raises(UsageError, match="24"):
        made(Section(1, "Row", ((4, ((figure(), wide),)),)))


def test_a_folded_row_takes_no_room() -> None:
    """What follows a folded row stands right below its title; its panels are inside."""
    folded = Section(10, "Folded", ((8, ((figure(11), 24),)),), folded=True)
    content = made(folded, Section(20, "Open", ((4, ((figure(21), 24),)),)))
    places = {panel["id"]: panel["gridPos"]["y"] for panel in content["panels"]}
    assert places == {10: 0, 20: 1, 21: 2}
    assert [panel["id"] for panel in content["panels"][0]["panels"]] == [11]


def test_a_fields_link_is_bare() -> None:
    """A link on values has a title and an address; the rest that the SDK writes belongs to a dashboard's links."""
    drawn = panels.lines(SAYS, [Query("up", "up")], links=[Link("There", "/d/there")])
    [_, panel] = made(Section(10, "Row", ((4, ((drawn, 24),)),)))["panels"]
    assert panel["fieldConfig"]["defaults"]["links"] == [{"title": "There", "url": "/d/there", "targetBlank": False}]


def test_a_query_for_exemplars_says_so() -> None:
    """Exemplars are asked for where they are wanted, and nowhere else."""
    assert Query("up", exemplars=True).build("A").build().exemplar is True
    assert not Query("up").build("A").build().exemplar


def test_steps_keep_the_zeros_of_what_happened() -> None:
    """Counts per step are limited to what happened at all in the range, by the same labels."""
    found = shown.steps(indicators.RESPONSE_NUMBER.part, CONFIG, by=(schema.REASON,))
    assert "and on (endturn_stop_reason)" in found.text
    assert "[$__range] @ end()" in found.text
    assert labels(parse(found.text)) == {"endturn_stop_reason"}


def test_earlier_shifts_every_range() -> None:
    """Both sides of a rate look a day back."""
    now = rules.rate(indicators.TRUNCATION, CONFIG, by=(), window="$window")
    before = promql.earlier(now, 86400)
    assert now.text.count("[$window]") == before.text.count("[$window] offset 1d") == 3
    parse(before.text)


def test_enough_wants_the_same_labels() -> None:
    """A value and the events that it stands on are told apart by the same labels."""
    with_job = promql.Vector("a", frozenset({"job"}))
    assert (
        promql.enough(with_job, events=promql.Vector("b", frozenset({"job"})), at_least=5).text
        == "a\nand on (job)\nb >= 5"
    )
    with pytest.raises(UsageError, match="same labels"):
        promql.enough(with_job, events=promql.Vector("b", frozenset()), at_least=5)


@pytest.mark.parametrize("q", [0, 1, 1.5])
def test_a_quantile_of_now_lies_between_zero_and_one(q: float) -> None:
    """What is no quantile is refused."""
    with pytest.raises(UsageError, match="between 0 and 1"):
        promql.quantile_now(q, schema.TURN_DURATION, ())


def test_quantiles_of_now_read_both_generations() -> None:
    """A renamed metric is read under both names, and counted once where both are there."""
    text = promql.quantile_now(0.5, schema.OPERATION_DURATION, ()).text
    assert "gen_ai_client_operation_duration_seconds_bucket" in text
    assert " or rate(gen_ai_client_inference_duration_seconds_bucket" in text


@pytest.mark.parametrize("search", [*queries.TRACEQL, *queries.LOGQL], ids=lambda search: search.name)
def test_searches_name_what_is_sent(search: queries.Search) -> None:
    """With values for its variables a search has none left; without them it is refused."""
    given = {"service": "agent", "provider": "openai", "model": "gpt-5", "traceId": "0af7"}
    assert "$" not in search.plain(given)
    with pytest.raises(UsageError, match="no value"):
        search.plain({})


def test_searches_have_names_of_their_own() -> None:
    """No two searches of one kind share a name."""
    for some in (queries.TRACEQL, queries.LOGQL):
        assert len({search.name for search in some}) == len(some)
