"""Every question of every dashboard, asked of real data: PromQL, LogQL, TraceQL, and the way from a chart to its logs.

The demo's real agents export through the real Collector to a real Prometheus, without any rule, and a real Loki. What
these answer is compared with what the demo printed, and with what the Collector wrote to files. Tempo cannot be built
here: TraceQL is parsed by Grafana's grammar, and its names are looked for on spans.
"""

from __future__ import annotations

import math
import re
import subprocess
import time
import urllib.parse
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from endturn.telemetry import schema
from tests.generate.test_dashboards import BY_NAME, PANELS, Panel, drawn, targets
from tests.support import grammar
from tests.support.loki import Loki
from tests.support.processes import (
    LOOPBACK,
    REPOSITORY,
    Collector,
    Prometheus,
    QueryError,
    Series,
    eventually,
    free_port,
    shipped,
    written,
)
from tests.ui.support import demo

pytestmark = pytest.mark.stack

EVERYTHING = {"service": ".+", "namespace": ".+", "environment": ".*", "cluster": ".*", "provider": ".*", "model": ".*"}
MINE = {"service": "agent", "namespace": "shop", "environment": "test", "cluster": "east"}
LABELS = ("service_name", "service_namespace", "deployment_environment_name", "k8s_cluster_name")
INDEXED = dict(zip(LABELS, MINE.values(), strict=True))
TRACE = "traceId"
LOGQL = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS if panel["type"] == "logs"}
OF_TRACE, ATTEMPTED = LOGQL["Its events"], LOGQL["Continuation attempts"]
SOURCES = shipped("dashboards/provisioning/datasources/endturn.yaml")["datasources"]
PROVISIONED = {source["uid"]: source["jsonData"] for source in SOURCES}


STEP = 10
RESOURCE = "service.namespace=shop,service.version=1.2.3,deployment.environment.name=test,k8s.cluster.name=east"
DRAWN: dict[tuple[str, int], Panel] = {
    (name, panel["id"]): panel for name, board in BY_NAME.items() for panel in drawn(board) if targets(panel)
}
SILENT = shipped("tests/generate/silent.yaml")
EMPTY, PARTLY = (
    {(board, id_): why for board, panels in SILENT[which].items() for id_, why in panels.items()}
    for which in ("empty", "partly")
)
assert (EMPTY | PARTLY).keys() <= DRAWN.keys(), "declared is what there is"


def filled(text: str, values: Mapping[str, str]) -> str:
    """The query as Grafana would send it; each variable has to have a value."""
    named = re.compile(r"\$(?:([a-z_]\w*)|\{(\w+)(?::\w+)?\})")
    return named.sub(lambda found: values[found[1] or found[2]], text)


@dataclass(frozen=True)
class Played:
    """The running path after the demo has played, and what the demo itself printed."""

    loki: Loki
    collector: Collector
    prometheus: Prometheus
    played: dict[str, Any]
    begin: float
    end: float

    def search(self, expression: str) -> dict[str, Any]:
        """What Loki answers, of everything since the start."""
        return self.loki.query_range(expression, start=self.begin - 60, end=time.time() + 60)

    def lines(self, expression: str) -> list[str]:
        """The lines that a log query gives, sorted."""
        answer = self.search(expression)
        assert answer["resultType"] == "streams"
        return sorted(line for stream in answer["result"] for _, line in stream["values"])

    def ask(self, board: str, target: dict[str, Any]) -> list[Series]:
        """One query of a panel as Grafana asks it: at the end of the range, or all along it."""
        expr = self.plain(target["expr"], board)
        if target["instant"]:
            return self.prometheus.client.query(expr, time=self.end)
        return self.prometheus.client.query_range(expr, start=self.begin, end=self.end, step=STEP)

    def plain(self, expr: str, board: str = "") -> str:
        """The query as Grafana sends it with everything chosen; of a model's board, one model."""
        long = math.ceil(self.end - self.begin)
        values = EVERYTHING | {"job": ".*", "window": "1h", "model": "gpt-5" if board == "model" else ".*"}
        # A step, and what lies between two exports.
        values |= {"__interval": f"{STEP}s", "__rate_interval": f"{STEP + 1}s"}
        return filled(expr, values | {"__range": f"{long}s", "__range_s": f"{long}"})

    def shown(self, board: str, id_: int, query: int = 0) -> dict[tuple[str, ...], float]:
        """What a tile or a table's column shows, by its labels' values; of bars their sums."""
        found = self.ask(board, DRAWN[board, id_]["targets"][query])
        return {
            tuple(value for _, value in sorted(each.labels.items())): sum(value for _, value in each.points)
            for each in found
        }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder, port = tmp_path_factory.mktemp("queries"), free_port()
    with Loki(folder) as loki, Prometheus(folder, scrapes={"collector": [f"{LOOPBACK}:{port}"]}) as prometheus:
        exporters = {"otlp_http/loki": {"endpoint": f"{loki.url}/otlp"}}
        service = {"pipelines": {"logs": {"exporters": ["file/logs", "otlp_http/loki"]}}}
        overlay = written(folder / "loki-overlay.yaml", {"exporters": exporters, "service": service})
        with Collector(folder, prometheus=prometheus.url, configs=[overlay], metrics_port=port) as collector:
            begin = math.floor(time.time()) - STEP
            variables = {"OTEL_SERVICE_NAME": "agent", "OTEL_RESOURCE_ATTRIBUTES": RESOURCE}
            played = demo(collector.url, "--once", OTEL_METRIC_EXPORT_INTERVAL="1000", **variables)
            responses = sum(sum(row["responses"].values()) for row in played["models"])
            # The demo's counters are stale once it has ended: the last sample of each is what it sent at its exit.
            prometheus.client.wait_for(f"sum(last_over_time(endturn_responses_total[1h])) >= {responses}")
            # The last step ends after everything.
            end = begin + math.ceil((time.time() - begin) / STEP) * STEP
            running = Played(loki, collector, prometheus, played, begin, end)
            eventually(
                lambda: len(running.lines('{service_name=~".+"}')) == len(collector.log_records()) > 0,
                what="every record in Loki",
            )
            eventually(lambda: time.time() > end, what="the end of the last step", timeout=2 * STEP)
            yield running


def labelled(record: dict[str, Any]) -> dict[str, str]:
    """A record as Loki labels it: attributes with underscores, as text."""
    plain = {name.replace(".", "_"): value for name, value in record["attributes"].items()}
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in plain.items()}
    return text | {"event_name": record["eventName"], "trace_id": record.get("traceId", "")}


def expected(path: Played, search: str, keep: Callable[[dict[str, str]], bool] = lambda record: True) -> list[str]:
    """What a search of ours should give, worked out from the records themselves."""
    template = re.findall(r'line_format "(.*)"', search)[0]
    names = re.findall(r'event_name=~"([^"]*)"', search)[0].replace("\\\\", "\\")

    def rendered(labels: dict[str, str]) -> str:
        return re.sub(r"\{\{\.(\w+)\}\}", lambda name: labels.get(name[1], ""), template)

    records = map(labelled, path.collector.log_records())
    return sorted(rendered(each) for each in records if re.fullmatch(names, each["event_name"]) and keep(each))


def panel_queries(kind: str) -> dict[str, str]:
    """Every query to this kind of data source in any dashboard, by where it stands."""
    asked = [(panel["title"], each) for panel in PANELS for each in panel["targets"]]
    asked += [(mark["name"], mark["target"]) for board in BY_NAME.values() for mark in board["annotations"]["list"]]
    return {
        f"{title}/{each['refId']}": each.get("query") or each["expr"]
        for title, each in asked
        if each["datasource"]["type"] == kind
    }


def runbook_queries() -> list[tuple[grammar.Language, str]]:
    """The LogQL and TraceQL that runbooks tell people to ask."""
    texts = "".join(file.read_text() for file in sorted((REPOSITORY / "docs" / "runbooks").glob("*.md")))
    queries = re.findall(r"`(\{[^`]+\}[^`]*)`", texts)
    return [("traceql" if re.search(r"\b(span|resource)\.", text) else "logql", text) for text in queries]


# PromQL


@pytest.mark.parametrize(("board", "id_"), DRAWN, ids=[f"{board}-{id_}" for board, id_ in DRAWN])
def test_every_panel_answers(path: Played, board: str, id_: int) -> None:
    """Each query runs; what comes back empty, or only as zeros, is declared with the reason; nothing is NaN."""
    panel = DRAWN[board, id_]
    answers = [path.ask(board, target) for target in panel["targets"]]
    values = [value for answer in answers for series in answer for _, value in series.points]
    assert not any(math.isnan(value) for value in values), "NaN"
    if (board, id_) in EMPTY:
        assert not any(values), f"{panel['title']} shows something: {EMPTY[board, id_]!r} does not hold"
    elif (board, id_) in PARTLY:
        assert any(answers)
        assert not all(answers), f"{panel['title']} shows everything: {PARTLY[board, id_]!r} does not hold"
    else:
        assert all(answers), [t["expr"] for t, answer in zip(panel["targets"], answers, strict=True) if not answer]
        # What a legend puts in is a label that the series have.
        for target, answer in zip(panel["targets"], answers, strict=True):
            named = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", ""))) - {"cluster"}
            assert all(named <= set(series.labels) for series in answer), panel["title"]


@pytest.mark.parametrize("name", BY_NAME)
def test_every_variable_offers_something(path: Played, name: str) -> None:
    """Each filter offers the demo's services, environments, providers and models; the hidden ones its parts."""
    rows = path.played["models"]
    wanted = {
        "job": {"shop/agent"},
        "environment": {"test"},
        "cluster": set(),
        "provider": {row["provider"] for row in rows},
        "model": {row["model"] for row in rows},
        "service": {"agent"},
        "namespace": {"shop"},
    }
    for each in BY_NAME[name]["templating"]["list"]:
        if each["type"] == "query":
            found = re.fullmatch(r"label_values\((.+), (\w+)\)", each["query"]["query"])
            assert found
            match = urllib.parse.quote(path.plain(found[1]))
            bounds = f"start={path.begin:.3f}&end={path.end:.3f}"
            values = path.prometheus.client.get(f"label/{found[2]}/values?match[]={match}&{bounds}")
            shown = each.get("regex", "").strip("/")
            assert {m[1] if (m := re.search(shown, v)) and shown else v for v in values} == wanted[each["name"]]


@pytest.mark.parametrize("name", BY_NAME)
def test_every_annotation_runs(path: Played, name: str) -> None:
    """The demo's version is marked as deployed."""
    marks = {each["name"]: path.plain(each["target"]["expr"]) for each in BY_NAME[name]["annotations"]["list"]}
    times = {"start": path.begin, "end": path.end, "step": 1.0}
    found = path.prometheus.client.query_range(marks["Deployments"], **times)
    assert ("shop/agent", "1.2.3") in {(s.labels["job"], s.labels["service_version"]) for s in found}
    assert path.prometheus.client.query_range(marks["Alerts"], **times) == []


def test_panels_show_what_the_demo_printed(path: Played) -> None:
    """Tiles; tables by service, by model, and by model and reason; bars, with each response in one step: exactly."""
    rows = {(row["provider"], row["model"]): row for row in path.played["models"]}
    counts: dict[tuple[str, ...], Any] = {
        (why, *key): count for key, row in rows.items() for why, count in row["responses"].items()
    }
    reasons: Counter[str] = Counter()
    for (why, *_), count in counts.items():
        reasons[why] += count
    cut = reasons["max_tokens"] + reasons["missing"]
    turns, truncated, left = (
        sum(row[key] for row in rows.values()) for key in ("turns", "truncated_turns", "unfinished_turns")
    )
    service = ("test", "shop/agent")
    wanted: dict[tuple[str, int, int], dict[tuple[str, ...], float]] = {
        ("overview", 11, 0): {(): left / truncated},
        ("overview", 12, 0): {(): cut / (reasons.total() - reasons["error"])},
        ("overview", 13, 0): {(): left},
        ("continuations", 11, 0): {(): truncated},
        ("overview", 21, 0): {service: reasons.total()},
        ("overview", 21, 2): {service: turns},
        ("overview", 21, 3): {service: left},
        ("overview", 41, 0): {key: sum(row["responses"].values()) for key, row in rows.items()},
        ("overview", 41, 2): {key: row["unfinished_turns"] for key, row in rows.items()},
        ("stop-reasons", 22, 0): counts,
        ("overview", 31, 0): {(why,): count for why, count in reasons.items()},
    }
    assert truncated > left > 0
    assert {panel: path.shown(*panel) for panel in wanted} == wanted


def test_turns_without_an_attempt_are_those_that_were_not_continued(path: Played) -> None:
    """The bucket *none* holds what the turns themselves say: asking for a cut tool call again is an attempt, too."""
    ended = (
        'sum by (endturn_turn_continued) (max_over_time(endturn_turns_total{endturn_turn_truncated="true"}[$__range]))'
    )
    found = path.prometheus.client.query(path.plain(ended), time=path.end)
    turns = {each.labels["endturn_turn_continued"]: each.value for each in found}
    attempts = {float(le): count for (le,), count in path.shown("continuations", 22).items()}
    assert attempts[0] == turns["false"] > 0
    assert attempts[math.inf] == turns["false"] + turns["true"]


# LogQL


@pytest.mark.parametrize("title", [title for title in LOGQL if title != "Its events"])
def test_a_search_finds_exactly_its_events(path: Played, title: str) -> None:
    """With everything selected a dashboard's LogQL gives one line for each such event, with that event's values."""
    wanted = expected(path, LOGQL[title])
    assert wanted, f"the demo has nothing for {title!r}"
    assert path.lines(filled(LOGQL[title], EVERYTHING)) == wanted


def test_what_is_selected_narrows_a_search(path: Played) -> None:
    """Provider and model, as Grafana sends several of them, leave only their events; so do the four of a service.

    Events that say no namespace or cluster are never left out.
    """
    everything = path.lines(filled(ATTEMPTED, EVERYTHING))
    models = {"gpt-5", "claude-sonnet-4-5"}
    wanted = expected(path, ATTEMPTED, lambda record: record["gen_ai_request_model"] in models)
    chosen = EVERYTHING | {"provider": "openai|anthropic", "model": "|".join(models)}
    assert path.lines(filled(ATTEMPTED, chosen)) == wanted
    assert 0 < len(wanted) < len(everything)
    assert path.lines(filled(ATTEMPTED, EVERYTHING | MINE)) == everything
    for name in MINE:
        assert path.lines(filled(ATTEMPTED, EVERYTHING | MINE | {name: "another"})) == [], name
    for label in ("service_namespace", "k8s_cluster_name"):
        assert path.lines(filled(ATTEMPTED.replace(label, "not_said"), EVERYTHING | MINE)) == everything, label


def test_a_traces_events_are_found_by_its_id(path: Played) -> None:
    """One trace's events, by the search of the dashboard and by the link from Tempo, are those that carry its id."""
    attempts = [each for each in path.collector.log_records() if each["eventName"] == "endturn.continuation_attempt"]
    trace = attempts[0]["traceId"]
    wanted = expected(path, OF_TRACE, lambda record: record["trace_id"] == trace)
    assert len(wanted) > 2
    assert path.lines(filled(OF_TRACE, EVERYTHING | {TRACE: trace})) == wanted
    link = PROVISIONED["tempo"]["tracesToLogsV2"]
    [tag] = link["tags"]
    asked = link["query"].replace("$${__tags}", f'{tag["value"]}="agent"').replace("$${__trace.traceId}", trace)
    assert len(path.lines(asked)) == len(wanted)


def test_every_logql_that_is_shipped_runs(path: Played) -> None:
    """As it stands in a dashboard, its variables filled in; that of a runbook finds something where there is an event.

    The check has teeth: a broken query is refused by the same call.
    """
    texts = set(panel_queries("loki").values())
    assert texts == set(LOGQL.values())
    for text in texts:
        path.search(filled(text, EVERYTHING | {TRACE: "0" * 32}))
    asked = {text for language, text in runbook_queries() if language == "logql"}
    assert asked
    names = {record["eventName"] for record in path.collector.log_records()}
    for text in asked:
        [name] = re.findall(r'event_name="([^"]+)"', text)
        assert bool(path.lines(text)) == (name in names), text
    with pytest.raises(QueryError, match="parse error"):
        path.search('{service_name="agent"} | event_name=')


def test_events_are_indexed_by_service_alone(path: Played) -> None:
    """A process's id is not an index label, so that streams do not grow with processes; it stays searchable."""
    found = {name: path.loki.label_values(name, start=path.begin - 60) for name in (*INDEXED, "service_instance_id")}
    assert found == {name: [value] for name, value in INDEXED.items()} | {"service_instance_id": []}
    assert path.lines('{service_name="agent"} | service_instance_id!=""')


def test_loki_tells_its_own_health(path: Played) -> None:
    """`loki -health`, the health check of Compose, says yes while it runs, and no where nothing does."""
    for url, status in ((f"{path.loki.url}/ready", 0), ("http://127.0.0.1:9/ready", 1)):
        asked = [path.loki.command[0], "-health", f"-health.url={url}"]
        assert subprocess.run(asked, check=False, capture_output=True).returncode == status


# From a chart to its trace and its logs


def test_an_exemplar_leads_to_a_trace_and_its_events(path: Played) -> None:
    """The label that Prometheus' data source links by holds a real trace's id, by which Loki has its events."""
    [link] = PROVISIONED["prometheus"]["exemplarTraceIdDestinations"]
    around = f"start={path.begin - 60:.0f}&end={time.time() + 60:.0f}"
    series = eventually(
        lambda: path.prometheus.client.get(f"query_exemplars?query=endturn_turn_duration_seconds_bucket&{around}"),
        what="exemplars of turns' durations",
    )
    traces = {exemplar["labels"][link["name"]] for each in series for exemplar in each["exemplars"]}
    assert traces <= {span["traceId"] for span in path.collector.spans()}
    [derived] = PROVISIONED["loki"]["derivedFields"]
    some = next(iter(traces & {record.get("traceId") for record in path.collector.log_records()}))
    assert path.lines(f'{{service_name="agent"}} | {derived["matcherRegex"]}="{some}"')


# TraceQL, and both grammars


def test_every_query_fits_grafanas_grammar() -> None:
    """TraceQL and LogQL of dashboards, runbooks and links parse as in Grafana's editor; slips of the pen do not."""
    values = EVERYTHING | {TRACE: "0" * 32}
    panels = {text for text in panel_queries("tempo").values() if text != f"${TRACE}"}
    asked: list[tuple[grammar.Language, str]] = [("traceql", text) for text in panels]
    asked += [("traceql", filled(text, values)) for text in panels]
    asked += [("logql", filled(text, values)) for text in panel_queries("loki").values()]
    asked += [*runbook_queries(), ("logql", '{service_name="agent"} | trace_id = "0"')]
    assert {language for language, _ in runbook_queries()} == {"traceql", "logql"}
    assert panels
    assert grammar.errors(asked) == [[] for _ in asked]
    wrong: list[tuple[grammar.Language, str]] = [
        ("traceql", "{ span.endturn.stop.truncated == true }"),
        ("traceql", "{ span.a = true } | selct(span.b)"),
        ("logql", '{service_name="agent" | event_name="x"'),
    ]
    assert all(grammar.errors(wrong))


def test_the_spans_have_what_traceql_names(path: Played) -> None:
    """Each attribute that a TraceQL search names is on real spans, with the type that it is compared with."""
    texts = " ".join(panel_queries("tempo").values())
    spans = path.collector.spans()
    found: dict[str, set[type]] = {}
    for name, value in (pair for span in spans for pair in span["attributes"].items()):
        found.setdefault(name, set()).add(type(value))
    assert set(re.findall(r"span\.([a-z_.]+[a-z])", texts)) - found.keys() == set()
    asked = set(re.findall(r"resource\.([a-z0-9_.]+)", texts))
    assert len(asked) == 4
    assert all(asked <= span["resource"].keys() for span in spans)
    assert (found[schema.STOP_TRUNCATED.key], found[schema.CONTINUATION_INDEX.key]) == ({bool}, {int})
