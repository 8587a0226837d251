"""The committed dashboards: sound by structure, true to the schema, and exactly what the SDK's own models hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endturn.generate import panels
from endturn.generate.declare import VARIABLES
from endturn.generate.sdk import JSONEncoder, models
from endturn.stop import StopReason
from endturn.telemetry import indicators, schema
from tests.generate.parsed import known, labels, parse, selectors
from tests.support.processes import REPOSITORY

FILES = sorted((REPOSITORY / "dashboards").glob("*.json"))
UNITS = {"percentunit", "s", "short", "locale"}
BUILT_IN = {"__rate_interval", "__interval", "__range"}

Panel = dict[str, Any]


def load(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content


@pytest.fixture(params=FILES, ids=lambda file: str(file.stem))
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    return load(request.param)


@pytest.fixture
def drawn(board: dict[str, Any]) -> list[Panel]:
    """The panels that show something, of open and of collapsed rows."""
    every = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", []))]
    return [panel for panel in every if panel["type"] != "row"]


def targets(panel: Panel) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = panel["targets"]
    return found


def test_there_are_dashboards() -> None:
    """The overview is among the committed files."""
    assert [file.name for file in FILES] == ["overview.json"]


def test_the_sdk_reads_back_what_it_wrote(board: dict[str, Any]) -> None:
    """Through the SDK's models and back nothing is lost: no field is misspelt or unknown."""
    from grafana_foundation_sdk.cog import plugins

    plugins.register_default_plugins()
    again = json.loads(JSONEncoder().encode(models.Dashboard.from_json(board)))
    assert panels._clean(again) == board


def test_the_dashboard_itself(board: dict[str, Any]) -> None:
    """Classic schema 42, a fixed uid, not editable in place, one crosshair, nothing that changes by itself."""
    assert board["schemaVersion"] == 42
    assert re.fullmatch("endturn-[a-z-]+", board["uid"])
    assert (board["editable"], board["graphTooltip"]) == (False, 1)
    assert not {"id", "version", "iteration", "__inputs"} & set(board)


def test_ids_are_given_and_unique(board: dict[str, Any]) -> None:
    """Every panel and row has an id of its own, so that links to it last."""
    ids = Counter(panel["id"] for panel in board["panels"])
    assert all(id_ > 0 and times == 1 for id_, times in ids.items())


def test_nothing_overlaps_or_sticks_out(board: dict[str, Any]) -> None:
    """Each cell of the grid belongs to one panel, and the grid is 24 wide."""
    taken: Counter[tuple[int, int]] = Counter()
    for panel in board["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        taken.update((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))
    assert max(taken.values()) == 1
    height = max(y for _, y in taken) + 1
    assert len(taken) == 24 * height, "there are no holes"


def test_panels_say_what_they_show(drawn: list[Panel]) -> None:
    """A title, a description with a question, what is shown when there is nothing, a known unit, thresholds."""
    for panel in drawn:
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["title"]
        assert re.match(r"\*\*.+\?\*\*\n\n[A-Z0-9].+\.\n\n.+\.$", panel["description"], re.DOTALL), panel["title"]
        assert defaults["noValue"], panel["title"]
        assert defaults["unit"] in UNITS, panel["title"]
        assert defaults["thresholds"]["steps"][0]["value"] is None
    titles = [(panel["title"], panel["type"]) for panel in drawn]
    assert len(titles) == len(set(titles))


def test_data_comes_from_the_chosen_source(board: dict[str, Any], drawn: list[Panel]) -> None:
    """Panels, queries and variables name the data source by the variable, never a fixed one."""
    variable = {"type": "prometheus", "uid": "${prometheus_datasource}"}
    queries = [target for panel in drawn for target in targets(panel)]
    dynamic = [each for each in board["templating"]["list"] if each["type"] == "query"]
    for thing in (*drawn, *queries, *dynamic):
        assert thing["datasource"] == variable


def test_variables_follow_the_time_range_and_each_other(board: dict[str, Any]) -> None:
    """Each filter is refreshed with the time range, offers all, and only what the filters before it leave."""
    filters = [each for each in board["templating"]["list"] if each["type"] == "query"]
    assert [each["name"] for each in filters] == list(VARIABLES.values())
    for place, (each, label) in enumerate(zip(filters, VARIABLES, strict=True)):
        assert (each["refresh"], each["multi"], each["includeAll"], each["allValue"]) == (2, True, True, ".*")
        assert each["current"]["value"] == "$__all"
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"])
        assert found is not None
        assert found[2] == label
        ((name, asked),) = selectors(found[1])
        assert name in known()
        assert asked == set(list(VARIABLES)[:place])
    assert [each["name"] for each in board["templating"]["list"]] == [
        "prometheus_datasource",
        *VARIABLES.values(),
        "window",
    ]


def test_every_variable_is_used_and_exists(board: dict[str, Any], drawn: list[Panel]) -> None:
    """Queries use each variable of the dashboard, and no other."""
    used = {name for panel in drawn for target in targets(panel) for name in re.findall(r"\$(\w+)", target["expr"])}
    own = {each["name"] for each in board["templating"]["list"]}
    assert used - BUILT_IN == own - {"prometheus_datasource"}


def test_queries_read_what_exists(drawn: list[Panel]) -> None:
    """Every query is understood, and reads declared or recorded series by labels that they have."""
    series = known()
    for panel in drawn:
        for target in targets(panel):
            for name, asked in selectors(target["expr"]):
                assert name in series, f"{panel['title']}: {name}"
                assert asked <= series[name], f"{panel['title']}: {name}"


def test_filters_reach_every_query_of_our_own(drawn: list[Panel]) -> None:
    """No query of ours ignores the chosen service; what has provider and model does not ignore those either."""
    series = known()
    for panel in drawn:
        for target in targets(panel):
            for name, asked in selectors(target["expr"]):
                if name.startswith(("endturn", "gen_ai")) and name != "endturn:heartbeat":
                    assert set(VARIABLES) & series[name] <= asked, f"{panel['title']}: {name}"


def test_rates_use_the_rate_interval_and_nothing_else_does(drawn: list[Panel]) -> None:
    """`$__rate_interval` stands in `rate` alone, and every `rate` has it."""
    for panel in drawn:
        for target in targets(panel):
            windows = re.findall(r"(\w+)\([^()\[]*\[(\$?\w+)\]", target["expr"])
            assert all((name == "rate") == (window == "$__rate_interval") for name, window in windows), panel["title"]


def test_legends_name_labels_that_survive(drawn: list[Panel]) -> None:
    """What a legend puts in for a label is a label that the query's result has."""
    for panel in drawn:
        for target in targets(panel):
            named = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
            assert named <= labels(parse(target["expr"])), panel["title"]


def test_several_series_have_a_legend(drawn: list[Panel]) -> None:
    """A query over time whose result has labels tells them in its legend, so that no series is named by its query."""
    for panel in drawn:
        if panel["type"] == "timeseries":
            assert all(target.get("legendFormat") for target in targets(panel)), panel["title"]


def test_overrides_name_what_is_there(drawn: list[Panel]) -> None:
    """An override by name means a column of the table, a legend without placeholders, or a value of its label."""
    values = {str(value) for attribute in schema.ATTRIBUTES for value in attribute.values}
    for panel in drawn:
        names = {
            each["matcher"]["options"]
            for each in panel["fieldConfig"]["overrides"]
            if each["matcher"]["id"] == "byName"
        }
        columns = {
            name
            for step in panel.get("transformations", [])
            for name in step["options"].get("renameByName", {}).values()
        }
        legends = {target["legendFormat"] for target in targets(panel) if "{{" not in target.get("legendFormat", "{{")}
        assert names <= columns | legends | values, panel["title"]


def test_reasons_have_their_colours(drawn: list[Panel]) -> None:
    """Every stop reason has one fixed colour, no two share one, and the panel of reasons uses them all."""
    assert set(indicators.REASON_COLOURS) == set(StopReason)
    assert len(set(indicators.REASON_COLOURS.values())) == len(StopReason)
    [panel] = [panel for panel in drawn if panel["title"] == "Responses by stop reason"]
    painted = {
        each["matcher"]["options"]: each["properties"][0]["value"]["fixedColor"]
        for each in panel["fieldConfig"]["overrides"]
    }
    assert painted == {reason.value: colour for reason, colour in indicators.REASON_COLOURS.items()}


def test_the_sdks_noise_is_gone(board: dict[str, Any]) -> None:
    """Nothing that the SDK writes unasked is left: `placement` would hide links and annotations."""

    def keys(node: Any) -> set[str]:
        match node:
            case dict():
                return set(node) | {key for value in node.values() for key in keys(value)}
            case list():
                return {key for value in node for key in keys(value)}
            case _:
                return set()

    assert not keys(board) & panels.NOISE


def test_counts_are_steps_of_whole_increments(drawn: list[Panel]) -> None:
    """Bars of counts have steps no shorter than the increments' window, or events would be spread over several."""
    for panel in drawn:
        if any("$__interval" in target["expr"] for target in targets(panel)):
            assert panel["interval"] == "5m", panel["title"]
