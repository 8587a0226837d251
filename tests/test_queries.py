"""The dashboards' LogQL on a real Loki, their TraceQL in Grafana's grammar, and the way from a chart to its logs.

Events come from the demo's real agents through the real Collector. Each answer is compared with what the Collector
wrote to a file of the same records. Tempo cannot be built here: TraceQL is parsed, its names are looked for on spans.
"""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from endturn.telemetry import schema
from tests.generate.test_dashboards import BY_NAME, PANELS
from tests.support import grammar
from tests.support.loki import Loki
from tests.support.processes import REPOSITORY, Collector, Prometheus, QueryError, eventually, shipped, written
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


@dataclass(frozen=True)
class Path_:
    """The running path, after the demo has played."""

    loki: Loki
    collector: Collector
    prometheus: Prometheus
    started: float

    def ask(self, expression: str) -> dict[str, Any]:
        """A range query over everything since the start."""
        return self.loki.query_range(expression, start=self.started - 60, end=time.time() + 60)

    def lines(self, expression: str) -> list[str]:
        """The lines that a log query gives, sorted."""
        answer = self.ask(expression)
        assert answer["resultType"] == "streams"
        return sorted(line for stream in answer["result"] for _, line in stream["values"])


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path_]:
    folder, started = tmp_path_factory.mktemp("queries"), time.time()
    with Loki(folder) as loki, Prometheus(folder) as prometheus:
        exporters = {"otlp_http/loki": {"endpoint": f"{loki.url}/otlp"}}
        service = {"pipelines": {"logs": {"exporters": ["file/logs", "otlp_http/loki"]}}}
        overlay = written(folder / "loki-overlay.yaml", {"exporters": exporters, "service": service})
        with Collector(folder, prometheus=prometheus.url, configs=[overlay]) as collector:
            resource = "service.namespace=shop,deployment.environment.name=test,k8s.cluster.name=east"
            demo(collector.url, OTEL_SERVICE_NAME="agent", OTEL_RESOURCE_ATTRIBUTES=resource)
            running = Path_(loki, collector, prometheus, started)
            eventually(
                lambda: len(running.lines('{service_name=~".+"}')) == len(collector.log_records()) > 0,
                what="every record in Loki",
            )
            yield running


def labelled(record: dict[str, Any]) -> dict[str, str]:
    """A record as Loki labels it: attributes with underscores, as text."""
    plain = {name.replace(".", "_"): value for name, value in record["attributes"].items()}
    text = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in plain.items()}
    return text | {"event_name": record["eventName"], "trace_id": record.get("traceId", "")}


def plain(text: str, values: dict[str, str]) -> str:
    """The query as Grafana would send it."""
    for name, value in values.items():
        for spelling in (f"${{{name}:pipe}}", f"${name}"):
            text = text.replace(spelling, value)
    assert "$" not in text, text
    return text


def expected(path: Path_, search: str, keep: Callable[[dict[str, str]], bool] = lambda record: True) -> list[str]:
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


# LogQL


@pytest.mark.parametrize("title", [title for title in LOGQL if title != "Its events"])
def test_a_search_finds_exactly_its_events(path: Path_, title: str) -> None:
    """With everything selected a dashboard's LogQL gives one line for each such event, with that event's values."""
    wanted = expected(path, LOGQL[title])
    assert wanted, f"the demo has nothing for {title!r}"
    assert path.lines(plain(LOGQL[title], EVERYTHING)) == wanted


def test_what_is_selected_narrows_a_search(path: Path_) -> None:
    """Provider and model, as Grafana sends several of them, leave only their events; so do the four of a service.

    Events that say no namespace or cluster are never left out.
    """
    everything = path.lines(plain(ATTEMPTED, EVERYTHING))
    models = {"gpt-5", "claude-sonnet-4-5"}
    wanted = expected(path, ATTEMPTED, lambda record: record["gen_ai_request_model"] in models)
    chosen = EVERYTHING | {"provider": "openai|anthropic", "model": "|".join(models)}
    assert path.lines(plain(ATTEMPTED, chosen)) == wanted
    assert 0 < len(wanted) < len(everything)
    assert path.lines(plain(ATTEMPTED, EVERYTHING | MINE)) == everything
    for name in MINE:
        assert path.lines(plain(ATTEMPTED, EVERYTHING | MINE | {name: "another"})) == [], name
    for label in ("service_namespace", "k8s_cluster_name"):
        assert path.lines(plain(ATTEMPTED.replace(label, "not_said"), EVERYTHING | MINE)) == everything, label


def test_a_traces_events_are_found_by_its_id(path: Path_) -> None:
    """One trace's events, by the search of the dashboard and by the link from Tempo, are those that carry its id."""
    attempts = [each for each in path.collector.log_records() if each["eventName"] == "endturn.continuation_attempt"]
    trace = attempts[0]["traceId"]
    wanted = expected(path, OF_TRACE, lambda record: record["trace_id"] == trace)
    assert len(wanted) > 2
    assert path.lines(plain(OF_TRACE, EVERYTHING | {TRACE: trace})) == wanted
    link = PROVISIONED["tempo"]["tracesToLogsV2"]
    [tag] = link["tags"]
    asked = link["query"].replace("$${__tags}", f'{tag["value"]}="agent"').replace("$${__trace.traceId}", trace)
    assert len(path.lines(asked)) == len(wanted)


def test_every_logql_that_is_shipped_runs(path: Path_) -> None:
    """As it stands in a dashboard, its variables filled in; that of a runbook finds something where there is an event.

    The check has teeth: a broken query is refused by the same call.
    """
    texts = set(panel_queries("loki").values())
    assert texts == set(LOGQL.values())
    for text in texts:
        path.ask(plain(text, EVERYTHING | {TRACE: "0" * 32}))
    asked = {text for language, text in runbook_queries() if language == "logql"}
    assert asked
    names = {record["eventName"] for record in path.collector.log_records()}
    for text in asked:
        [name] = re.findall(r'event_name="([^"]+)"', text)
        assert bool(path.lines(text)) == (name in names), text
    with pytest.raises(QueryError, match="parse error"):
        path.ask('{service_name="agent"} | event_name=')


def test_events_are_indexed_by_service_alone(path: Path_) -> None:
    """A process's id is not an index label, so that streams do not grow with processes; it stays searchable."""
    found = {name: path.loki.label_values(name, start=path.started - 60) for name in (*INDEXED, "service_instance_id")}
    assert found == {name: [value] for name, value in INDEXED.items()} | {"service_instance_id": []}
    assert path.lines('{service_name="agent"} | service_instance_id!=""')


def test_loki_tells_its_own_health(path: Path_) -> None:
    """`loki -health`, the health check of Compose, says yes while it runs, and no where nothing does."""
    for url, status in ((f"{path.loki.url}/ready", 0), ("http://127.0.0.1:9/ready", 1)):
        asked = [path.loki.command[0], "-health", f"-health.url={url}"]
        assert subprocess.run(asked, check=False, capture_output=True).returncode == status


# From a chart to its trace and its logs


def test_an_exemplar_leads_to_a_trace_and_its_events(path: Path_) -> None:
    """The label that Prometheus' data source links by holds a real trace's id, by which Loki has its events."""
    [link] = PROVISIONED["prometheus"]["exemplarTraceIdDestinations"]
    around = f"start={path.started - 60:.0f}&end={time.time() + 60:.0f}"
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
    asked += [("traceql", plain(text, values)) for text in panels]
    asked += [("logql", plain(text, values)) for text in panel_queries("loki").values()]
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


def test_the_spans_have_what_traceql_names(path: Path_) -> None:
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
