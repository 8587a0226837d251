"""The committed dashboards: sound by structure, true to the schema, and exactly what the SDK's own models hold."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endturn.generate import files as generated
from endturn.generate import layout, queries
from endturn.generate.dashboards import BOARDS
from endturn.generate.declare import VARIABLES
from endturn.generate.panels import NEEDS
from endturn.generate.sdk import JSONEncoder, models
from endturn.stop import StopReason
from endturn.telemetry import indicators, schema
from tests.generate.parsed import known, labels, parse, selectors
from tests.support.processes import REPOSITORY

FILES = sorted((REPOSITORY / "dashboards").glob("*.json"))
UNITS = {"percentunit", "s", "short", "locale", "currencyUSD", "bytes", "none"}
BUILT_IN = {
    "1",
    "__all",
    "__rate_interval",
    "__interval",
    "__range",
    "__url_time_range",
    "__field",
    "__data",
    "__value",
}
BY_FILE = {board.file: board for board in BOARDS}
SOURCES = {kind: {"type": kind, "uid": f"${{{kind}_datasource}}"} for kind in ("prometheus", "tempo", "loki")}
SERVING_ALL = "endturn:heartbeat", "endturn:collector_"
"""What is not of one service: the Collector serves all."""
WORDS_OF_VLLM = {"stop", "length", "abort", "error", "repetition"}

# Rules of dashboard linters that these dashboards do not follow, and why not.
EXCLUDED = {
    "template-instance, target-instance": "nobody asks for one process, and no recorded series has `instance`",
    "target-job on the Collector's and Prometheus' own metrics": "they serve all services",
    "target-logql-auto": "no metric is made of logs",
    "panel-title-description on rows": "a row's title is its question",
}

Panel = dict[str, Any]


def load(file: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(file.read_text())
    return content


@pytest.fixture(params=FILES, ids=lambda file: str(file.stem))
def file(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


@pytest.fixture
def board(file: Path) -> dict[str, Any]:
    return load(file)


@pytest.fixture
def drawn(board: dict[str, Any]) -> list[Panel]:
    """The panels that show something, of open and of collapsed rows."""
    every = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", []))]
    return [panel for panel in every if panel["type"] != "row"]


def targets(panel: Panel) -> list[dict[str, Any]]:
    """The panel's questions to Prometheus."""
    found: list[dict[str, Any]] = panel["targets"]
    return found if panel["datasource"]["type"] == "prometheus" else []


def strings(node: Any) -> list[str]:
    """Every text of a JSON value."""
    match node:
        case dict():
            return [text for value in node.values() for text in strings(value)]
        case list():
            return [text for value in node for text in strings(value)]
        case str():
            return [node]
        case _:
            return []


def test_there_are_dashboards() -> None:
    """The committed files are the declared dashboards, and no two share a uid."""
    assert {file.stem for file in FILES} == set(BY_FILE)
    assert len({board.uid for board in BOARDS}) == len(BOARDS) == 6


def test_the_sdk_reads_back_what_it_wrote(board: dict[str, Any]) -> None:
    """Through the SDK's models and back nothing is lost: no field is misspelt or unknown."""
    from grafana_foundation_sdk.cog import plugins

    plugins.register_default_plugins()
    again = json.loads(JSONEncoder().encode(models.Dashboard.from_json(board)))
    assert layout.clean(again) == board


def test_the_dashboard_itself(board: dict[str, Any]) -> None:
    """Classic schema 42, a fixed uid, not editable in place, one crosshair, nothing that changes by itself."""
    assert board["schemaVersion"] == 42
    assert re.fullmatch("endturn-[a-z-]+", board["uid"])
    assert (board["editable"], board["graphTooltip"]) == (False, 1)
    assert not {"id", "version", "iteration", "__inputs"} & set(board)


def test_ids_are_given_and_unique(board: dict[str, Any]) -> None:
    """Every panel and row has an id of its own, so that links to it last."""
    ids = Counter(inner["id"] for panel in board["panels"] for inner in (panel, *panel.get("panels", [])))
    assert all(id_ > 0 and times == 1 for id_, times in ids.items())


def test_nothing_overlaps_or_sticks_out(board: dict[str, Any]) -> None:
    """Each cell of the grid belongs to one panel, the grid is 24 wide, and so is each folded row when it is opened."""
    folded = [panel["panels"] for panel in board["panels"] if panel.get("panels")]
    for some in (board["panels"], *folded):
        taken: Counter[tuple[int, int]] = Counter()
        for panel in some:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24
            taken.update((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))
        assert max(taken.values()) == 1
        rows = {y for _, y in taken}
        assert len(taken) == 24 * len(rows) == 24 * (max(rows) - min(rows) + 1), "there are no holes"


def test_panels_of_a_folded_row_stand_below_it(board: dict[str, Any]) -> None:
    """Where a row is opened, its panels begin under it."""
    for row in board["panels"]:
        if row.get("panels"):
            assert row["collapsed"]
            assert min(panel["gridPos"]["y"] for panel in row["panels"]) == row["gridPos"]["y"] + 1


def test_panels_say_what_they_show(drawn: list[Panel]) -> None:
    """A title, and a description: a question, how it is answered, what to do, and where the data come from."""
    for panel in drawn:
        assert panel["title"]
        assert re.match(r"\*\*.+\?\*\*\n\n[A-Z0-9*].+\.\n\n.+\.\n\n.+\.$", panel["description"], re.DOTALL), panel[
            "title"
        ]
        assert panel["description"].rpartition("\n\n")[2] in NEEDS.values()
    titles = [(panel["title"], panel["type"]) for panel in drawn]
    assert len(titles) == len(set(titles))


def test_numbers_have_units_limits_and_words_for_nothing(drawn: list[Panel]) -> None:
    """What is shown when there is nothing, a known unit, thresholds; a trace and log lines have no numbers."""
    for panel in drawn:
        if panel["type"] not in ("traces", "logs"):
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["noValue"], panel["title"]
            assert defaults["unit"] in UNITS, panel["title"]
            assert defaults["thresholds"]["steps"][0]["value"] is None


def test_panels_that_the_collector_fills_say_so(drawn: list[Panel]) -> None:
    """Only what reads nothing else of ours than responses, suspected truncations and unmapped reasons may claim it."""
    filled = r"endturn[_:](responses|truncations_suspected|stop_reasons_unmapped)(_total|:increase5m)"
    for panel in drawn:
        read = {name for target in targets(panel) for name, _ in selectors(target["expr"])}
        ours = {name for name in read if name.startswith(("endturn", "gen_ai"))}
        if panel["description"].endswith(NEEDS["responses"]):
            assert ours, panel["title"]
            assert all(re.fullmatch(filled, name) for name in ours), panel["title"]
        elif ours and all(re.fullmatch(filled, name) for name in ours):
            pytest.fail(f"{panel['title']} needs nothing in the process, and does not say so")


def test_data_comes_from_the_chosen_source(board: dict[str, Any], drawn: list[Panel]) -> None:
    """Panels, queries, variables and annotations name the data source by a variable, never a fixed one."""
    offered = {each["query"] for each in board["templating"]["list"] if each["type"] == "datasource"}
    for panel in drawn:
        kind = panel["datasource"]["type"]
        assert kind in offered
        for thing in (panel, *panel["targets"]):
            assert thing["datasource"] == SOURCES[kind]
    dynamic = [each for each in board["templating"]["list"] if each["type"] == "query"]
    for thing in (*dynamic, *board["annotations"]["list"]):
        assert thing["datasource"] == SOURCES["prometheus"]


def test_variables_follow_the_time_range_and_each_other(file: Path, board: dict[str, Any]) -> None:
    """Each filter is refreshed with the time range, and offers only what the filters before it leave."""
    declared = BY_FILE[file.stem]
    every = [each for each in board["templating"]["list"] if each["type"] == "query"]
    filters = [each for each in every if each["name"] != queries.SERVICE]
    wanted = {label: name for label, name in VARIABLES.items() if label in declared.filters}
    assert [each["name"] for each in filters] == list(wanted.values())
    for place, (each, label) in enumerate(zip(filters, wanted, strict=True)):
        one = declared.one and label != "job"
        assert (each["refresh"], each["multi"], each["includeAll"]) == (2, not one, not one)
        assert each["allValue"] == ".*", "a link from elsewhere may say that all are meant"
        assert one or each["current"]["value"] == "$__all"
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"])
        assert found is not None
        assert found[2] == label
        ((name, asked),) = selectors(found[1])
        assert name in known()
        assert asked == set(list(wanted)[:place])
    names = [each["name"] for each in board["templating"]["list"]]
    sources = [f"{kind}_datasource" for kind in declared.sources]
    hidden = [queries.SERVICE, queries.TRACE] if "tempo" in declared.sources else []
    assert names == [*sources, *wanted.values(), *(["window"] if declared.window else []), *hidden]


def test_every_variable_is_used_and_exists(board: dict[str, Any], drawn: list[Panel]) -> None:
    """Queries and links use each variable of the dashboard, and no other."""
    used = {
        name
        for text in strings([*drawn, *board["annotations"]["list"], *board["templating"]["list"]])
        for name in re.findall(r"\$\{?(\w+)", text)
    }
    own = {each["name"] for each in board["templating"]["list"]}
    assert used - BUILT_IN == own


def test_queries_read_what_exists(drawn: list[Panel]) -> None:
    """Every query is understood, and reads declared or recorded series by labels that they have."""
    series = known()
    for panel in drawn:
        for target in targets(panel):
            for name, asked in selectors(target["expr"]):
                assert name in series, f"{panel['title']}: {name}"
                assert asked <= series[name], f"{panel['title']}: {name}"


def test_filters_reach_every_query_of_our_own(file: Path, drawn: list[Panel]) -> None:
    """No query of ours ignores the chosen service; what has provider and model does not ignore those either."""
    series, offered = known(), {label for label in VARIABLES if label in BY_FILE[file.stem].filters}
    for panel in drawn:
        for target in targets(panel):
            for name, asked in selectors(target["expr"]):
                if name.startswith(("endturn", "gen_ai")) and not name.startswith(SERVING_ALL):
                    assert offered & series[name] <= asked, f"{panel['title']}: {name}"


def test_rates_use_the_rate_interval_and_nothing_else_does(drawn: list[Panel]) -> None:
    """`$__rate_interval` stands in `rate` alone, and every `rate` has it."""
    for panel in drawn:
        for target in targets(panel):
            windows = re.findall(r"(\w+)\([^()\[]*\[(\$?\w+)(?::\w+)?\]", target["expr"])
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
            for each in panel.get("fieldConfig", {"overrides": []})["overrides"]
            if each["matcher"]["id"] == "byName"
        }
        columns = {
            name
            for step in panel.get("transformations", [])
            for name in step["options"].get("renameByName", {}).values()
        }
        legends = {target["legendFormat"] for target in targets(panel) if "{{" not in target.get("legendFormat", "{{")}
        traces = {"traceID"} if panel["datasource"]["type"] == "tempo" else set()  # Grafana's own column
        assert names <= columns | legends | values | WORDS_OF_VLLM | traces, panel["title"]


def test_reasons_have_their_colours() -> None:
    """Every stop reason has one fixed colour, no two share one, and every panel of reasons uses them all."""
    assert set(indicators.REASON_COLOURS) == set(StopReason)
    assert len(set(indicators.REASON_COLOURS.values())) == len(StopReason)
    drawn = [panel for file in FILES for panel in load(file)["panels"]]
    found = [panel for panel in drawn if panel["title"] == "Responses by stop reason"]
    assert len(found) == 3
    for panel in found:
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

    assert not keys(board) & layout.NOISE


def test_counts_are_steps_of_whole_increments(drawn: list[Panel]) -> None:
    """Bars of counts have steps no shorter than the increments' window, or events would be spread over several."""
    for panel in drawn:
        if any("$__interval" in target["expr"] for target in targets(panel)):
            assert panel["interval"] == "5m" or panel["type"] == "stat", panel["title"]


def test_links_resolve(board: dict[str, Any], drawn: list[Panel]) -> None:
    """Links lead to dashboards of ours and set variables that they have; others to committed documents."""
    variables = {
        content["uid"]: {each["name"] for each in content["templating"]["list"]} for content in map(load, FILES)
    }
    for url in [text for text in strings(drawn) if text.startswith("/d/")]:
        uid, _, query = url.removeprefix("/d/").partition("?")
        asked = set(re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", query))
        assert {one or other for one, other in asked} <= variables[uid], url
        assert query.endswith("${__url_time_range}")
    for link in board["links"]:
        if link["type"] == "link":
            assert (REPOSITORY / link["url"].partition("/blob/main/")[2]).exists(), link["title"]
    [others] = [link for link in board["links"] if link["type"] == "dashboards"]
    assert set(others["tags"]) <= set(board["tags"])
    assert (others["includeVars"], others["keepTime"]) == (True, True)


def test_runbooks_that_descriptions_name_exist(drawn: list[Panel]) -> None:
    """An alert that a description mentions has its page."""
    for panel in drawn:
        for name in re.findall(r"Endturn[A-Z]\w+", panel["description"]):
            assert f"docs/runbooks/{name}.md" in generated.files(), panel["title"]


def test_table_links_name_columns(drawn: list[Panel]) -> None:
    """A link of a table's cell takes its values from columns that the table has."""
    for panel in drawn:
        if panel["type"] == "table":
            columns = {
                name
                for step in panel.get("transformations", [])
                for name in step["options"].get("renameByName", {}).values()
            }
            for text in strings(panel["fieldConfig"]):
                assert set(re.findall(r"\$\{__data\.fields\.(\w+)\}", text)) <= columns, panel["title"]


def test_alerts_and_deployments_are_marked(board: dict[str, Any]) -> None:
    """Charts are marked where an alert fired and where a version came up, by labels that these series have."""
    marks = {each["name"]: each for each in board["annotations"]["list"]}
    assert set(marks) == {"Alerts", "Deployments"}
    series = known()
    for each in marks.values():
        for name, asked in selectors(each["target"]["expr"]):
            assert asked <= series[name]
        assert each["enable"]
        assert not each["hide"]
    assert set(re.findall(r"\{\{(\w+)\}\}", marks["Deployments"]["titleFormat"])) <= labels(
        parse(marks["Deployments"]["target"]["expr"])
    )


def test_exemplars_are_asked_of_histograms_themselves(drawn: list[Panel]) -> None:
    """Only buckets as they were exported have exemplars: a recorded series has none to show."""
    asked = [target["expr"] for panel in drawn for target in targets(panel) if target.get("exemplar")]
    assert all("_bucket{" in expression and ":increase" not in expression for expression in asked)
    if any(panel["title"] == "Call duration" for panel in drawn):
        assert len(asked) == 2


def test_traces_and_logs_are_asked_by_known_names(drawn: list[Panel]) -> None:
    """Queries to Tempo and Loki are those of one module, all of them, where other tests parse and run them."""
    asked = {
        target["query"] if panel["datasource"]["type"] == "tempo" else target["expr"]
        for panel in drawn
        if panel["datasource"]["type"] != "prometheus"
        for target in panel["targets"]
    }
    if asked:
        assert asked == {search.text for search in (*queries.TRACEQL, *queries.LOGQL, queries.ONE_TRACE)}
