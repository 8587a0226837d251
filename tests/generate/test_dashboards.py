"""The committed dashboards: valid structure, Grafana's types, and queries of existing series only."""

from __future__ import annotations

import colorsys
import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.generate import dashboards
from endturn.generate.boards import frame, palettes, panels, stop_reasons
from endturn.generate.config import RuleConfig
from endturn.generate.dashboards import BOARDS
from endturn.generate.queries import SERVICE, VARIABLES, Queries
from endturn.telemetry import INDICATORS, schema
from tests.support.processes import REPOSITORY
from tests.support.promql import filled, selectors
from tests.support.promtool import evaluate, oldest

NAMES = tuple(BOARDS)
# After ours, which silences the SDK's warning that it has another format too.
from grafana_foundation_sdk.builders.dashboard import Dashboard  # noqa: E402
from grafana_foundation_sdk.cog import plugins  # noqa: E402
from grafana_foundation_sdk.cog.builder import Builder  # noqa: E402
from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402
from grafana_foundation_sdk.models import dashboard as models  # noqa: E402

SOURCES = {each.type_val: each.to_json() for each in (panels.PROMETHEUS, panels.TEMPO, panels.LOKI)}

UNITS = {"percentunit", "s", "short", "currencyUSD", "bytes", "none"}
BUILT_IN = re.compile("1|__(rate_interval|interval|range|range_s|all|url_time_range|field|data|value)")
"""Names of Grafana's own variables; 1 is the first group of a label_replace."""
BY_NAME: dict[str, dict[str, Any]] = {
    name: json.loads((REPOSITORY / "dashboards" / f"{name}.json").read_text()) for name in NAMES
}

Panel = dict[str, Any]


def drawn(board: dict[str, Any]) -> list[Panel]:
    """Return the panels with content, in open and in collapsed rows."""
    every = [inner for panel in board["panels"] for inner in (panel, *panel.get("panels", []))]
    return [panel for panel in every if panel["type"] != "row"]


def targets(panel: Panel) -> list[dict[str, Any]]:
    """Return the panel's Prometheus queries."""
    return [each for each in panel["targets"] if each["datasource"]["type"] == "prometheus"]


def strings(node: Any) -> Iterator[str]:
    """Yield every text of a JSON value."""
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for each in node.values() if isinstance(node, dict) else node:
            yield from strings(each)


def shows(panel: Panel, target: dict[str, Any]) -> bool:
    """Whether the panel shows a query's values; it may only sort rows by them."""
    columns: dict[str, str] = {}
    for step in panel.get("transformations", []):
        columns |= step["options"].get("renameByName", {})
    dropped = [step["options"].get("excludeByName", {}) for step in panel.get("transformations", [])]
    return not any(columns.get(f"Value #{target['refId']}") in names for names in dropped)


@pytest.fixture(params=NAMES)
def board(request: pytest.FixtureRequest) -> dict[str, Any]:
    name: str = request.param
    return BY_NAME[name]


PANELS = [panel for board in BY_NAME.values() for panel in drawn(board)]
QUERIES = [(panel["title"], each) for panel in PANELS for each in targets(panel)]


def test_there_are_six_dashboards() -> None:
    """Each file has its own uid; the first one has few panels; no query is on two panels."""
    assert {file.stem for file in (REPOSITORY / "dashboards").glob("*.json")} == set(NAMES)
    assert len({board["uid"] for board in BY_NAME.values()}) == len(NAMES) == 6
    assert len(drawn(BY_NAME["overview"])) <= 16
    titles = Counter(panel["title"] for panel in PANELS)
    asked = Counter(
        (each["expr"], each["instant"]) for panel in PANELS for each in targets(panel) if shows(panel, each)
    )
    assert {*titles.values(), *asked.values()} == {1}


# --- Grafana's types ----------------------------------------------------------------------------------------------


def _as(node: Any, held: Any) -> Any:
    """Return the value, with only those members of dictionaries that the node has, too."""
    match node, held:
        case dict(), dict():
            return {key: _as(value, held.get(key, ...)) for key, value in node.items()}
        case list(), list():
            return [_as(one, other) for one, other in zip(node, held, strict=True)]
    return held


def test_grafanas_types_accept_every_dashboard(board: dict[str, Any]) -> None:
    """The Foundation SDK reads and writes each without loss: no field is misspelt or unknown, as one would be here."""
    plugins.register_default_plugins()
    again = json.loads(JSONEncoder().encode(models.Dashboard.from_json(board | {"timezon": "utc"})))
    assert _as(board | {"timezon": "utc"}, again) == board | {"timezon": ...}


# --- Structure ----------------------------------------------------------------------------------------------------


def test_panels_have_an_id_and_a_place(board: dict[str, Any]) -> None:
    """Each panel has a unique id, so that links stay valid.

    Panels do not overlap on the grid, 24 wide, also in collapsed rows.
    """
    ids = Counter(inner["id"] for panel in board["panels"] for inner in (panel, *panel.get("panels", [])))
    assert all(id_ > 0 and times == 1 for id_, times in ids.items())
    for some in (board["panels"], *(panel["panels"] for panel in board["panels"] if panel.get("panels"))):
        taken: Counter[tuple[int, int]] = Counter()
        for panel in some:
            at = panel["gridPos"]
            taken.update((x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"]))
        lines = {y for _, y in taken}
        assert set(taken.values()) == {1}
        assert set(taken) == {(x, y) for x in range(24) for y in range(min(lines), max(lines) + 1)}


def test_panels_have_a_complete_description(board: dict[str, Any]) -> None:
    """The title is a noun; the description has a question, its formula, advice and the data source."""
    for panel in drawn(board):
        says = panel["description"]
        assert re.match(r"\*\*.+\?\*\*\n\n[A-Z0-9*`].+\.\n\n.+\.\n\n.+\.$", says, re.DOTALL), panel["title"]
        assert says.rpartition("\n\n")[2] in panels.SOURCES
        for name in re.findall(r"Endturn[A-Z]\w+", says):
            assert (REPOSITORY / "docs" / "runbooks" / f"{name}.md").exists(), panel["title"]
    assert not [panel["title"] for panel in (*board["panels"], *drawn(board)) if "?" in panel["title"]]


def test_numbers_have_units_and_a_text_for_no_value(board: dict[str, Any]) -> None:
    """Numbers have a text for no value, a known unit and thresholds; bars name what they count."""
    for panel in drawn(board):
        if panel["type"] not in ("traces", "logs"):
            defaults = panel["fieldConfig"]["defaults"]
            assert defaults["noValue"], panel["title"]
            assert defaults["unit"] in UNITS, panel["title"]
            assert defaults["thresholds"]["steps"][0]["value"] is None
            if defaults.get("custom", {}).get("drawStyle") == "bars":
                assert defaults["custom"]["axisLabel"].endswith("per step"), panel["title"]


# --- Data ---------------------------------------------------------------------------------------------------------


def test_data_comes_from_the_chosen_source(board: dict[str, Any]) -> None:
    """Panels, queries, variables and annotations name the data source by a variable, never a fixed one."""
    offered = {each["query"] for each in board["templating"]["list"] if each["type"] == "datasource"}
    for panel in drawn(board):
        kind = panel["datasource"]["type"]
        assert kind in offered
        assert all(thing["datasource"] == SOURCES[kind] for thing in (panel, *panel["targets"]))
    queries = [each for each in board["templating"]["list"] if each["type"] == "query"]
    assert all(each["datasource"] == SOURCES["prometheus"] for each in (*queries, *board["annotations"]["list"]))


def test_variables_offer_the_values_that_earlier_ones_leave(board: dict[str, Any]) -> None:
    """Filters are in order; "all" of a filter also matches series without its label."""
    filters = [each for each in board["templating"]["list"] if each["name"] in VARIABLES]
    assert [each["name"] for each in filters] == [*VARIABLES][: len(filters)]
    for place, each in enumerate(filters):
        found = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"])
        assert found
        [(name, asked)] = selectors(found[1])
        assert name == schema.RESPONSES.prometheus
        assert [label for label, _ in asked] == [*VARIABLES.values()][:place]
        assert (each["refresh"], each["allValue"]) == (2, ".*")


def test_every_variable_is_used_and_exists(board: dict[str, Any]) -> None:
    """Queries and links use each variable of the dashboard, and no other."""
    asking = [*drawn(board), *board["annotations"]["list"], *board["templating"]["list"]]
    used = {name for text in strings(asking) for name in re.findall(r"\$\{?(\w+)", text)}
    ours = {name for name in used if not BUILT_IN.fullmatch(name)}
    assert ours == {each["name"] for each in board["templating"]["list"]}


def test_filters_reach_every_query_of_our_own(board: dict[str, Any]) -> None:
    """No query of ours ignores a filter whose label its series have."""
    chosen = {VARIABLES[each["name"]] for each in board["templating"]["list"] if each["name"] in VARIABLES}
    labels = {metric.prometheus: {a.label for a in metric.attributes} for metric in schema.METRICS}
    for panel in drawn(board):
        for target in targets(panel):
            for name, asked in selectors(target["expr"]):
                if name.startswith(("endturn", "gen_ai", "otel_sdk")):
                    base = re.sub(r"_(bucket|sum|count)$", "", name)
                    had = {*SERVICE, *labels.get(base, ())}
                    assert chosen & had <= {label for label, _ in asked}, f"{panel['title']}: {name}"


def test_filters_reach_every_search_of_events_and_spans() -> None:
    """The filters narrow these too: environment, cluster, and service with its namespace."""
    service = {"service", "namespace", "environment", "cluster"}
    searches = [
        (panel["title"], each)
        for panel in PANELS
        for each in panel["targets"]
        if each["datasource"]["type"] in ("loki", "tempo") and panel["type"] != "traces"
    ]
    assert len(searches) == 7
    for title, each in searches:
        used = set(re.findall(r"\$\{?(\w+)", each.get("query") or each["expr"]))
        assert used == service | ({"traceId"} if title == "Its events" else {"provider", "model"}), title


def test_recorded_series_are_read_by_the_budget_alone_and_exemplars_are_of_buckets() -> None:
    """Everything else works without any rule; only buckets as they were exported have exemplars."""
    reading = {title for title, each in QUERIES for name, _ in selectors(each["expr"]) if name.startswith("endturn:")}
    assert reading == {"Budget left", "Services, worst first"}
    shown = [each["expr"] for _, each in QUERIES if each.get("exemplar")]
    assert ["_bucket{" in expr for expr in shown] == [True, True]


def test_panels_with_data_from_the_collector_name_it() -> None:
    """Only panels that read just responses, suspected truncations and unmapped reasons may claim it."""
    filled = {each.prometheus for each in schema.OF_SPANS}
    claims = set()
    for panel in PANELS:
        read = {name for each in targets(panel) for name, _ in selectors(each["expr"]) if name.startswith("endturn")}
        if panel["description"].endswith(panels.FROM_RESPONSES):
            claims.add(panel["title"])
            assert read, panel["title"]
            assert read <= filled, panel["title"]
    assert "Truncated" in claims


def test_the_oldest_prometheus_reads_every_query(tmp_path: Path) -> None:
    """Prometheus 2.42 understands each, with values for the dashboard's variables."""
    marks = [mark["target"] for board in BY_NAME.values() for mark in board["annotations"]["list"]]
    asked = [each["expr"] for each in (*(each for _, each in QUERIES), *marks)]
    rules = [{"record": f"panel:{number}", "expr": filled(expr)} for number, expr in enumerate(asked)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run([oldest(), "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


@pytest.mark.stack
def test_traces_lost_with_a_gateway_are_shown_if_it_is_back_within_a_day(tmp_path: Path) -> None:
    """Once, in the step in which it is back."""
    [panel] = [each for each in PANELS if each["title"] == "Traces that ended with a gateway"]
    expr = panel["targets"][0]["expr"].replace("$__interval", "10m")
    series: dict[str, str] = {}
    told: list[tuple[str, str, dict[str, float]]] = []
    for away in (1, 60, 20 * 60, 25 * 60):  # minutes
        own = f'{{job="collector",instance="{away}"}}'
        series[f"otelcol_processor_tail_sampling_sampling_traces_on_memory{own}"] = f"50x20 stale _x{away - 1} 1x20"
        series[f"otelcol_process_uptime{own}"] = f"0+60x20 stale _x{away - 1} 5+60x20"
        told.append((expr, f"{20 + away + 6}m", {f'{{instance="{away}"}}': 50.0} if away < 24 * 60 else {}))
    evaluate(tmp_path, series, told, interval="1m")


# --- Looks and links ----------------------------------------------------------------------------------------------


PALETTES: dict[str, tuple[palettes.Palette, tuple[str, ...]]] = {
    "stop reasons": (palettes.STOP_REASONS, schema.REASON.values),
    "strategies": (palettes.STRATEGIES, schema.STRATEGY.values),
    "repair results": (palettes.REPAIR_RESULTS, schema.REPAIR_RESULT.values),
    "token types": (palettes.TOKEN_TYPES, schema.TOKEN_TYPE.values),
}


@pytest.mark.parametrize("name", PALETTES)
def test_each_value_of_a_closed_set_has_its_own_color(name: str) -> None:
    palette, values = PALETTES[name]
    assert set(palette) == set(values)
    assert len(set(palette.values())) == len(palette)


def test_outcomes_have_colors_of_their_own() -> None:
    assert set(palettes.OUTCOMES) <= set(schema.OUTCOME.values)
    assert len(set(palettes.OUTCOMES.values())) == len(palettes.OUTCOMES)


PALETTE_OF_NAMES = {
    **palettes.PROVIDERS, **palettes.SERVICES, "other": palettes.OTHER_PROVIDERS, "plain": palettes.PLAIN
}  # fmt: skip


@pytest.mark.parametrize("name", PALETTE_OF_NAMES)
def test_the_color_of_a_model_or_service_is_no_verdict(name: str) -> None:
    """It is neither red nor orange nor green."""
    red, green, blue = (int(PALETTE_OF_NAMES[name][place : place + 2], 16) / 255 for place in (1, 3, 5))
    hue, _, saturation = colorsys.rgb_to_hls(red, green, blue)
    assert saturation < 0.2 or 170 < 360 * hue < 340


def test_charts_of_models_and_services_use_those_colors() -> None:
    """With threshold lines, the classic palette would paint some model red."""
    for panel in PANELS:
        legends = " ".join(each.get("legendFormat", "") for each in targets(panel))
        thresholds = panel["fieldConfig"]["defaults"].get("custom", {}).get("thresholdsStyle")
        if thresholds and "{{" in legends and "vllm" not in panel["title"].lower():
            mode = panel["fieldConfig"]["defaults"]["color"]
            assert mode["mode"] == "shades", panel["title"]
            assert mode["fixedColor"] in PALETTE_OF_NAMES.values(), panel["title"]


def test_each_stop_reason_is_in_one_part_of_a_models_bar() -> None:
    parts = Counter(str(reason) for reasons in stop_reasons.REASON_GROUPS.values() for reason in reasons)
    assert parts == dict.fromkeys(schema.REASON.values, 1)
    colors = [palettes.STOP_REASONS[reasons[0]] for reasons in stop_reasons.REASON_GROUPS.values()]
    assert len(set(colors)) == len(colors)


# --- On a laptop --------------------------------------------------------------------------------------------------

COLUMN = 40.3
"""Width in pixels of one of the grid's 24 columns, on a page 1000 pixels wide."""


def title_width(title: str) -> float:
    """Return a title's approximate width in Grafana's font, in pixels."""
    narrow, wide = set("ijlrtfI ,.:;·'|()"), set("mwMW_")
    return 7.8 * sum(0.55 if each in narrow else 1.35 if each in wide else 1 for each in title)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_title_fits(panel: Panel) -> None:
    """A title fits next to the description's icon, without an ellipsis."""
    assert title_width(panel["title"]) + 64 <= COLUMN * panel["gridPos"]["w"] - 8


TABLES = [panel for panel in PANELS if panel["type"] == "table" and targets(panel)]


@pytest.mark.parametrize("panel", TABLES, ids=lambda panel: panel["title"])
def test_a_tables_columns_fit(panel: Panel) -> None:
    """All columns are visible: Grafana gives 150 pixels to a column without a width."""
    [columns] = [
        step["options"]["renameByName"] for step in panel["transformations"] if "renameByName" in step["options"]
    ]
    overrides = {each["matcher"]["options"]: each["properties"] for each in panel["fieldConfig"]["overrides"]}
    properties = [{each["id"]: each["value"] for each in overrides.get(name, [])} for name in columns.values()]
    widths = [each.get("custom.width", 150) for each in properties if not each.get("custom.hidden")]
    assert len(widths) <= 8
    assert sum(widths) <= COLUMN * panel["gridPos"]["w"] - 10


# --- Nothing is not health ----------------------------------------------------------------------------------------

NEUTRAL = {"text", "transparent", "blue", panels.GREY}
"""Colors that judge nothing."""
JUDGED = {"Not continued", "Truncated", "Unfinished", "Incomplete turns"}
"""Tiles that are green at zero. *Budget left* is green at the other end, and has a minimum of its own."""


def colorings(panel: Panel) -> Iterator[tuple[str, str, Any]]:
    """Yield the colorings of a panel's values or columns: name, kind, and thresholds or mappings."""
    config = panel["fieldConfig"]
    properties = [("", each, config["defaults"].get(each)) for each in ("thresholds", "mappings", "color")]
    for override in config["overrides"]:
        name = override["matcher"]["options"]
        properties += [(name, each["id"], each["value"]) for each in override["properties"]]
    for name, kind, value in properties:
        if kind in ("thresholds", "mappings", "color") and value:
            yield name, kind, value


def colors_of_nothing(panel: Panel) -> Iterator[str]:
    """Return the colors of a missing value: the lowest step, and mappings of null."""
    for _, kind, value in colorings(panel):
        if kind == "thresholds":
            assert value["steps"][0]["value"] is None, panel["title"]
            yield value["steps"][0]["color"]
        elif kind == "mappings":
            for mapping in value:
                if mapping["type"] == "special" and "null" in mapping["options"]["match"]:
                    yield mapping["options"]["result"]["color"]
                if mapping["type"] == "value":
                    yield from (each["color"] for text, each in mapping["options"].items() if text in ("", "null"))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_missing_value_has_no_verdict_color(panel: Panel) -> None:
    """It is neither green nor orange nor red, in the panel and in each column; a tile's text for no value is grey."""
    assert set(colors_of_nothing(panel)) <= NEUTRAL
    if panel["type"] == "stat":
        [nothing] = panel["fieldConfig"]["defaults"]["mappings"]
        assert nothing["options"]["match"] == "null+nan"
        assert nothing["options"]["result"]["color"] == panels.GREY == "#8e8e8e"
    if panel["type"] in ("stat", "gauge", "bargauge", "table"):  # Grafana's own default is green from the lowest value
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"], panel["title"]


def test_green_needs_enough_turns() -> None:
    """Each tile or column with a green step needs a minimum of turns, and its text for no value names it."""
    green = set()
    for panel in PANELS:
        for name, kind, value in colorings(panel):
            if kind != "thresholds" or not any(each["color"] == "green" for each in value["steps"]):
                continue
            green.add(name or panel["title"])
            if panel["type"] == "stat":
                [target] = targets(panel)
                least = re.search(r"^below (\d+) ", panel["fieldConfig"]["defaults"]["noValue"])
                assert least, panel["title"]
                assert f">= {least[1]}" in target["expr"], panel["title"]
            else:
                asked = [each["expr"] for each in targets(panel) if "endturn:service_turns" in each["expr"]]
                assert [">= 100" in expr for expr in asked] == [True], panel["title"]
    assert green == {*JUDGED, "Budget left"}


@pytest.mark.stack
@pytest.mark.parametrize("title", sorted(JUDGED))
def test_a_zero_of_few_turns_is_not_shown(tmp_path: Path, title: str) -> None:
    """No value for 0 and 19 turns, zero for 20; one bad turn of two is shown as 50%."""
    [panel] = [each for each in PANELS if each["title"] == title]
    [target] = targets(panel)
    calls = 'gen_ai_provider_name="openai",gen_ai_request_model="m",job="a"'
    cut = f'{calls},endturn_turn_truncated="true"'
    wholes = {
        "Not continued": f'endturn_turns_total{{{cut},endturn_turn_outcome="completed"}}',
        "Truncated": f'endturn_responses_total{{{calls},endturn_stop_reason="end_turn"}}',
        "Unfinished": f'endturn_turns_total{{{calls},endturn_turn_outcome="completed"}}',
        "Incomplete turns": f'endturn_turn_output_count{{{calls},endturn_turn_complete="true"}}',
    }
    bads = {
        "Not continued": f'endturn_truncation_exits_total{{{calls},endturn_turn_outcome="not_continued"}}',
        "Truncated": f'endturn_responses_total{{{calls},endturn_stop_reason="max_tokens"}}',
        "Unfinished": f'endturn_truncation_exits_total{{{calls},endturn_turn_outcome="not_continued"}}',
        "Incomplete turns": f'endturn_turn_output_count{{{calls},endturn_turn_complete="false"}}',
    }
    expr = filled(target["expr"])
    share = {"Unfinished": 1.0, "Not continued": 0.5, "Truncated": 1 / 3, "Incomplete turns": 1 / 3}
    for number, bad, value in ((0, 0, None), (19, 0, None), (20, 0, 0.0), (2, 1, share[title])):
        folder = tmp_path / f"{number}-{bad}"
        folder.mkdir()
        series = {wholes[title]: f"0 {number}x20"} if number else {"up": "1x20"}
        series |= {bads[title]: f"0 {bad}x20"} if bad else {}
        evaluate(folder, series, [(expr, "4m", {} if value is None else {"{}": value})])


def test_counts_have_one_style() -> None:
    """Counts are 1.39 K, never 1,390; only limits, which users type, are exact."""
    plain = {panel["title"] for panel in PANELS if panel["fieldConfig"]["defaults"].get("unit") == "none"}
    assert plain - {panel["title"] for panel in PANELS if not targets(panel)} == {
        "Alerts firing", "Collectors", "Limit needed", "Limit now"}  # fmt: skip


def test_links_resolve(board: dict[str, Any]) -> None:
    """Links lead to existing dashboards and documents.

    They set existing variables, always the complete service, and with a model its provider. A link of a table's cell
    uses existing columns.
    """
    variables = {each["uid"]: {v["name"] for v in each["templating"]["list"]} for each in BY_NAME.values()}
    for url in [text for text in strings(drawn(board)) if text.startswith("/d/")]:
        uid, _, query = url.removeprefix("/d/").partition("?")
        asked = {one or other for one, other in re.findall(r"var-(\w+)=|\$\{(\w+):queryparam\}", query)}
        assert asked <= variables[uid], url
        assert {"job", "environment", "cluster"} <= asked, url
        assert ("model" in asked) == ("provider" in asked), url
        assert query.endswith("${__url_time_range}")
    for link in board["links"]:
        if link["type"] == "link":
            path, _, anchor = link["url"].partition("/blob/main/")[2].partition("#")
            assert (REPOSITORY / path).exists(), link["title"]
            heading = anchor.replace("-", " ")
            assert not anchor or re.search(rf"(?im)^#+ {heading}$", (REPOSITORY / path).read_text()), link["title"]
    for panel in drawn(board):
        steps = [step["options"].get("renameByName", {}) for step in panel.get("transformations", [])]
        columns = {name for renamed in steps for name in renamed.values()}
        named = {n for text in strings(panel) for n in re.findall(r'__data\.fields\["([^"]+)"\]', text)}
        assert named <= columns, panel["title"]


# --- The code that builds them ------------------------------------------------------------------------------------


def test_the_committed_files_are_current() -> None:
    assert {f"dashboards/{name}.json": json.dumps(board, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
            for name, board in BY_NAME.items()} == dashboards.files(RuleConfig())  # fmt: skip


def test_importing_the_dashboards_emits_no_warning() -> None:
    """The SDK's first import warns, which `-W error` would make fatal."""
    code = "import endturn.generate.dashboards"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=REPOSITORY)


@pytest.mark.parametrize("module", ["endturn.ui.server", "endturn.ui.report", "endturn.grafana.install"])
def test_only_the_generator_imports_the_sdk(module: str) -> None:
    """The local page, and installing or exporting the shipped dashboards, read the committed files."""
    code = f"import sys, {module}; print([name for name in sys.modules if name.startswith('grafana_foundation_sdk')])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_without_the_sdk_generate_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['grafana_foundation_sdk'] = None\n"
        "from endturn.cli._main import main\n"
        f"sys.exit(main(['generate', '--check', '--root', {str(REPOSITORY)!r}]))"
    )
    variables = {key: value for key, value in os.environ.items() if key != "UV"}  # uvx would start it again
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables, check=False)
    assert done.returncode == 2
    assert "pip install 'endturn[grafana]'" in done.stderr


def test_without_the_sdk_the_shipped_dashboards_are_exported(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['grafana_foundation_sdk'] = None\n"
        "from endturn.cli._main import main\n"
        f"sys.exit(main(['dashboards', 'export', {str(tmp_path)!r}]))"
    )
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads((tmp_path / "overview.json").read_text()) == BY_NAME["overview"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: frame.to_json(frame_with(panels.stat_panel(1, "a"), panels.stat_panel(1, "b"))), "unique"),
        (lambda: frame.to_json(frame_with(panels.stat_panel(1, "a").span(16), panels.stat_panel(2, "b").span(16))),
         "panel 'b' does not fit on its line"),
        (lambda: Queries().ratio(INDICATORS["turns"]), "'Turns' is a number, not a share"),
    ],
    ids=["equal ids", "too wide", "no share"],
)  # fmt: skip
def test_rejects_panels_that_grafana_cannot_draw(build: Callable[[], str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build()


def frame_with(*drawn: Builder[models.Panel]) -> Dashboard:
    board = frame.new_dashboard(uid="x", title="X", description="X.", config=RuleConfig())
    for panel in drawn:
        board.with_panel(panel)
    return board
