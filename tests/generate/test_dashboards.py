"""The committed dashboards: sound by structure, true to the schema, and what Grafana's own types hold."""

from __future__ import annotations

import json
import re
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.errors import UsageError
from endturn.generate import alerts, dashboards
from endturn.generate.config import RuleConfig
from endturn.generate.dashboards import NEEDS
from endturn.generate.promql import UnknownName
from endturn.stop import StopReason
from endturn.telemetry import schema
from tests.generate.parsed import parse, selectors
from tests.support.processes import REPOSITORY

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models import dashboard as models

BOARDS: dict[str, dict[str, Any]] = {
    file.stem: json.loads(file.read_text()) for file in sorted((REPOSITORY / "dashboards").glob("*.json"))
}
UNITS = {"percentunit", "s", "short", "locale", "currencyUSD", "bytes", "none"}
UNASKED = {"placement", "repeatDirection", "auto", "auto_count", "auto_min", "builtIn", "footer", "icon", "type",
           "asDropdown", "tags", "keepTime", "includeVars", "tooltip"}  # fmt: skip
"""What Grafana's models add to annotations, links and variables where nothing is said."""
COMMON = yaml.safe_load((Path(dashboards.__file__).parent / "boards" / "common.yaml").read_text())

Panel = dict[str, Any]


@pytest.fixture(params=BOARDS)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    return BOARDS[request.param]


def panels(board: dict[str, Any]) -> list[Panel]:
    """The panels that show something, of open and of folded rows."""
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


def test_there_are_six_and_the_first_is_short() -> None:
    """No two share a uid; the Overview has at most 16 panels; no title is a question."""
    assert set(BOARDS) == set(dashboards.NAMES)
    assert len({board["uid"] for board in BOARDS.values()}) == 6
    assert len(panels(BOARDS["overview"])) <= 16
    assert not [
        text for board in BOARDS.values() for panel in board["panels"] if (text := panel["title"]).endswith("?")
    ]


def test_one_fact_stands_on_one_board() -> None:
    """No two panels of different dashboards ask the same."""
    asked = Counter(
        frozenset(target.get("expr", target.get("query", "")) for target in panel["targets"])
        for board in BOARDS.values()
        for panel in panels(board)
    )
    assert [list(each) for each, times in asked.items() if times > 1] == []


def lost(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """What is in our JSON and not in theirs, or other there."""
    match ours, theirs:
        case dict(), dict():
            missing = [f"{path}/{key}" for key in ours.keys() - theirs.keys()]
            added = [f"+{path}/{key}" for key in theirs.keys() - ours.keys() - UNASKED]
            both = [
                each for key in ours.keys() & theirs.keys() for each in lost(ours[key], theirs[key], f"{path}/{key}")
            ]
            return missing + added + both
        case list(), list() if len(ours) == len(theirs):
            return [
                each for n, pair in enumerate(zip(ours, theirs, strict=True)) for each in lost(*pair, f"{path}[{n}]")
            ]
        case _:
            return [] if ours == theirs else [f"{path}: {ours!r}, {theirs!r}"]


def test_grafanas_models_keep_all_of_it(board: dict[str, Any]) -> None:
    """Through the Foundation SDK's models and back nothing is lost: no field is misspelt or unknown."""
    register_default_plugins()
    again = json.loads(JSONEncoder().encode(models.Dashboard.from_json(board)))
    assert lost(board, again) == []


def test_the_dashboard_itself(board: dict[str, Any]) -> None:
    """Classic schema 42, a fixed uid, not editable in place, one crosshair; filters for where a service runs."""
    assert board["schemaVersion"] == 42
    assert re.fullmatch("endturn-[a-z-]+", board["uid"])
    assert (board["editable"], board["graphTooltip"]) == (False, 1)
    names = [each["name"] for each in board["templating"]["list"] if each["type"] == "query"]
    assert names[:3] == ["job", "environment", "cluster"]


def test_nothing_overlaps_or_sticks_out(board: dict[str, Any]) -> None:
    """Each cell of the grid belongs to one panel, the grid is 24 wide, ids are unique."""
    folded = [panel["panels"] for panel in board["panels"] if panel.get("panels")]
    for some in (board["panels"], *folded):
        taken: Counter[tuple[int, int]] = Counter()
        for panel in some:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24, panel["title"]
            taken.update((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))
        assert max(taken.values()) == 1
        rows = {y for _, y in taken}
        assert len(taken) == 24 * len(rows) == 24 * (max(rows) - min(rows) + 1), "there are no holes"
    ids = Counter(inner["id"] for panel in board["panels"] for inner in (panel, *panel.get("panels", [])))
    assert set(ids.values()) == {1}


def test_panels_say_what_they_show(board: dict[str, Any]) -> None:
    """A question, how it is answered, what to do, where the data come from; words for nothing, and a known unit."""
    for panel in panels(board):
        assert re.match(r"\*\*.+\?\*\*\n\n[A-Z0-9*`].+\.\n\n.+\.\n\n.+\.$", panel["description"], re.DOTALL), panel[
            "title"
        ]
        assert panel["description"].rpartition("\n\n")[2] in NEEDS.values()
        assert "@" not in panel["description"]
        if panel["type"] not in ("traces", "logs"):
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["noValue"], panel["title"]
            assert defaults["unit"] in UNITS, panel["title"]
        if panel["type"] == "timeseries" and panel["fieldConfig"]["defaults"]["unit"] not in ("percentunit", "bytes"):
            assert panel["fieldConfig"]["defaults"]["custom"]["axisLabel"], panel["title"]


def test_panels_that_the_collector_fills_say_so(board: dict[str, Any]) -> None:
    """Only what reads nothing else of ours than responses, suspected truncations and unmapped reasons may claim it."""
    filled = {each.prometheus for each in (schema.RESPONSES, schema.SUSPECTED_METRIC, schema.UNMAPPED)}
    for panel in panels(board):
        read = {name for target in targets(panel) for name, _ in selectors(target["expr"])}
        ours = {name for name in read if name.startswith(("endturn", "gen_ai"))}
        says = panel["description"].endswith(NEEDS["responses"])
        assert says == bool(ours and ours <= filled), panel["title"]


def test_every_variable_is_used_and_exists(board: dict[str, Any]) -> None:
    """Queries and links use each variable of the dashboard, and no other but Grafana's own."""
    texts = strings([panels(board), board["annotations"]["list"], board["templating"]["list"]])
    used = {name for text in texts for name in re.findall(r"\$\{?(\w+)", text)}
    own = {each["name"] for each in board["templating"]["list"]}
    assert {name for name in used if not name.startswith("__") and name != "1"} == own


def test_filters_reach_every_query_of_our_own(board: dict[str, Any]) -> None:
    """No query of ours ignores the chosen service; what has provider and model does not ignore those either."""
    names = [each["name"] for each in board["templating"]["list"]]
    offered = {label for label, name in alerts.VARIABLES.items() if name in names}
    for panel in panels(board):
        for target in targets(panel):
            for name, asked in selectors(target["expr"]):
                if name.startswith("endturn:"):
                    wanted = offered & {"job", "deployment_environment_name", "cluster"}
                elif name.startswith(("endturn", "gen_ai")):
                    wanted = offered
                else:
                    continue
                assert wanted <= {label for label, _ in asked}, f"{panel['title']}: {name}"


def test_only_the_budget_reads_what_is_recorded() -> None:
    """Every panel up to a day works without any rule."""
    readers = {
        panel["title"]
        for board in BOARDS.values()
        for panel in panels(board)
        for target in targets(panel)
        if "endturn:" in target["expr"]
    }
    assert readers == {"Error budget left", "Services, worst first"}


def test_nothing_that_people_read_is_extrapolated(board: dict[str, Any]) -> None:
    """Tiles, tables and bars count by the highest value less the lowest; `increase` is for shares and quantiles."""
    for panel in panels(board):
        for target in targets(panel):
            if panel["type"] in ("stat", "table", "bargauge") and "increase(" in target["expr"]:
                guarded = "unless resets(" in target["expr"]
                share = "histogram_quantile" in target["expr"]
                assert guarded or share, panel["title"]


def test_series_are_told_apart(board: dict[str, Any]) -> None:
    """A legend at the right of every chart wide enough for one, named by labels, never by its query."""
    for panel in panels(board):
        if panel["type"] == "timeseries":
            assert all(target.get("legendFormat") for target in targets(panel)), panel["title"]
            place = "right" if panel["gridPos"]["w"] >= 8 else "bottom"
            legend = panel["options"]["legend"]
            assert (legend["displayMode"], legend["placement"]) == ("table", place), panel["title"]


def test_meanings_have_their_colours() -> None:
    """Every stop reason has one fixed colour, no two share one; names that are painted are values of the schema."""
    reasons = COMMON["colours"]["reasons"]
    assert set(reasons) == set(StopReason)
    assert len(set(reasons.values())) == len(StopReason)
    assert list(reasons.values()).count("yellow") == 0
    declared = {str(value) for attribute in schema.ATTRIBUTES for value in attribute.values}
    for name in ("reasons", "outcomes", "strategies", "results", "tokens"):
        assert set(COMMON["colours"][name]) <= declared, name


def test_links_resolve(board: dict[str, Any]) -> None:
    """Links lead to dashboards of ours and set variables that they have; others to committed documents."""
    variables = {each["uid"]: {one["name"] for one in each["templating"]["list"]} for each in BOARDS.values()}
    for url in [text for text in strings(panels(board)) if text.startswith("/d/")]:
        uid, _, query = url.removeprefix("/d/").partition("?")
        asked = set(re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", query))
        assert {one or other for one, other in asked} <= variables[uid], url
        assert query.endswith("${__url_time_range}")
    for link in board["links"]:
        if link["type"] == "link":
            assert (REPOSITORY / link["url"].partition("/blob/main/")[2]).exists(), link["title"]
    for panel in panels(board):
        columns = {
            name
            for step in panel.get("transformations", [])
            for name in step["options"].get("renameByName", {}).values()
        }
        for text in strings(panel.get("fieldConfig", {})):
            assert set(re.findall(r'\$\{__data\.fields\["([^"]+)"\]\}', text)) <= columns, panel["title"]
        for name in re.findall(r"Endturn[A-Z]\w+", panel["description"]):
            assert (REPOSITORY / "docs" / "runbooks" / f"{name}.md").exists(), panel["title"]


def test_traces_and_events_are_asked_by_names_that_there_are() -> None:
    """TraceQL and LogQL name attributes and events of the schema."""
    labels = {attribute.label for attribute in schema.ATTRIBUTES} | {"event_name", "service_name", "trace_id"}
    keys = {attribute.key for attribute in schema.ATTRIBUTES}
    for panel in panels(BOARDS["turns"]):
        for target in panel["targets"]:
            text = target.get("expr", "") + target.get("query", "")
            assert set(re.findall(r"span\.([a-z_.]+[a-z])", text)) <= keys, panel["title"]
            assert (set(re.findall(r"\{\{\.(\w+)\}\}|\| (\w+)=", text)) and True) or not text.startswith(
                "{service_name"
            )
            assert {one or two for one, two in re.findall(r"\{\{\.(\w+)\}\}|\| (\w+)=", text)} <= labels, panel["title"]
            events = re.findall(r'event_name=~"([^"+]+)"', text)
            names = {name for each in events for name in each.replace("\\\\.", ".").split("|")}
            assert names <= {event.name for event in schema.EVENTS}, panel["title"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"of": "truncatoin"}, "there is no indicator 'truncatoin'"),
        ({"show": "pie"}, "there is no way to show 'pie'"),
        ({"expr": "@number(truncatoin, all, 1h)@"}, "no indicator 'truncatoin'; the nearest is 'truncation'"),
        ({"expr": "@numbre(truncation, all, 1h)@"}, "there is no form numbre"),
        ({"expr": "sum(endturn_turns)"}, "declares no metric 'endturn_turns'; the nearest is 'endturn_turns_total'"),
        ({"expr": 'sum(endturn_turns_total{outcome="x"})'}, "declares no label 'outcome'"),
    ],
)
def test_a_row_that_names_what_there_is_not_is_refused(row: dict[str, Any], complaint: str) -> None:
    """With the nearest name, where it is a slip of the pen."""
    good = {"id": 1, "show": "stat", "of": "truncation", "w": 4, "expr": "@number(truncation, all, 1h)@"}
    assert dashboards.panel(good, (), {})["title"] == "Truncation rate"
    with pytest.raises((UsageError, UnknownName), match=re.escape(complaint)):
        dashboards.panel(good | row, (), {})


def test_the_objective_is_the_configurations() -> None:
    """Another objective over another time is drawn as such."""
    config = RuleConfig.model_validate({"alerts": {"objective": 0.99}, "period": "7d"})
    [budget] = [each for each in panels(dashboards.board("overview", config)) if each["title"] == "Error budget left"]
    assert "0.99 over 7d" in budget["description"]
    assert "[7d]" in budget["targets"][0]["expr"]
    assert "/ 0.01" in budget["targets"][0]["expr"]
    assert parse(budget["targets"][0]["expr"])
