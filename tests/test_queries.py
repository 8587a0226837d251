"""The dashboards' LogQL on a real Loki, their TraceQL in Grafana's grammar, and the way from a chart to its logs.

Events come from the demo's real agents through the real Collector. Each answer is compared with what the Collector
wrote to a file of the same records. Tempo cannot be built here: TraceQL is parsed, its names are looked for on spans.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import pytest
import yaml

from endturn.telemetry import schema
from tests.support import grammar
from tests.support.loki import Loki
from tests.support.processes import REPOSITORY, Collector, Prometheus, QueryError, eventually

EVERYTHING = {"service": ".+", "namespace": ".+", "environment": ".*", "cluster": ".*", "provider": ".*", "model": ".*"}
RESOURCE = "service.namespace=shop,deployment.environment.name=test,k8s.cluster.name=east"
TRACE = "traceId"
TURNS = json.loads((REPOSITORY / "dashboards" / "turns.json").read_text())["panels"]
LOGQL = {panel["title"]: panel["targets"][0]["expr"] for panel in TURNS if panel["type"] == "logs"}
OF_TRACE, ATTEMPTED = LOGQL["Its events"], LOGQL["Continuation attempts"]
LABEL = re.compile(r"\{\{\.(\w+)\}\}")
DASHBOARDS = REPOSITORY / "dashboards"
Records = list[dict[str, Any]]


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
    folder = tmp_path_factory.mktemp("queries")
    with Loki(folder) as loki, Prometheus(folder) as prometheus:
        overlay = folder / "loki-overlay.yaml"
        exporters = {"otlp_http/loki": {"endpoint": f"{loki.url}/otlp"}}
        pipelines = {"logs": {"exporters": ["file/logs", "otlp_http/loki"]}}
        overlay.write_text(yaml.safe_dump({"exporters": exporters, "service": {"pipelines": pipelines}}))
        started = time.time()
        with Collector(folder, prometheus=prometheus.url, configs=[overlay]) as collector:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
                "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
                "OTEL_SERVICE_NAME": "agent",
                "OTEL_RESOURCE_ATTRIBUTES": RESOURCE,
            }
            demo = [sys.executable, "-m", "endturn.cli", "demo", "--json"]
            subprocess.run(demo, env=environment, check=True, timeout=120, capture_output=True)
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


def expected(records: Records, search: str, keep: Callable[[dict[str, str]], bool]) -> list[str]:
    """What a search of ours should give, worked out from the records themselves."""
    template = re.findall(r'line_format "(.*)"', search)[0]
    names = re.findall(r'event_name=~"([^"]*)"', search)[0].replace("\\\\", "\\")
    kept = [each for each in map(labelled, records) if re.fullmatch(names, each["event_name"]) and keep(each)]
    return sorted(_rendered(template, each) for each in kept)


def _rendered(template: str, labels: dict[str, str]) -> str:
    return LABEL.sub(lambda label: labels.get(label[1], ""), template)


def panel_queries(kind: str) -> dict[str, str]:
    """Every query to this kind of data source in any dashboard, by where it stands."""

    def within(content: Any, where: str) -> Iterator[tuple[str, str]]:
        match content:
            case {"datasource": {"type": found}, **rest} if found == kind:
                for key in ("expr", "query"):
                    if isinstance(text := rest.get(key), str):
                        yield where, text
        inner = content.items() if isinstance(content, dict) else enumerate(content)
        for name, each in inner:
            if isinstance(each, dict | list):
                yield from within(each, f"{where}/{name}")

    return {
        place: text
        for file in sorted(DASHBOARDS.glob("*.json"))
        for place, text in within(json.loads(file.read_text()), file.stem)
    }


def runbook_queries() -> dict[str, tuple[str, str]]:
    """The LogQL and TraceQL that runbooks tell people to ask, by runbook."""
    found = {}
    for file in sorted((REPOSITORY / "docs" / "runbooks").glob("*.md")):
        for number, text in enumerate(re.findall(r"`(\{[^`]+\}[^`]*)`", file.read_text())):
            is_traceql = re.search(r"\b(span|resource)\.", text)
            found[f"{file.stem} {number}"] = ("traceql" if is_traceql else "logql", text)
    return found


def provisioned() -> dict[str, dict[str, Any]]:
    """The provisioned data sources, by uid."""
    file = DASHBOARDS / "provisioning" / "datasources" / "endturn.yaml"
    return {source["uid"]: source for source in yaml.safe_load(file.read_text())["datasources"]}


# LogQL


@pytest.mark.stack
@pytest.mark.parametrize("title", [title for title in LOGQL if title != "Its events"])
def test_a_search_finds_exactly_its_events(path: Path_, title: str) -> None:
    """With everything selected a dashboard's LogQL gives one line for each such event, with that event's values."""
    wanted = expected(path.collector.log_records(), LOGQL[title], lambda record: True)
    assert wanted, f"the demo has nothing for {title!r}"
    assert path.lines(plain(LOGQL[title], EVERYTHING)) == wanted


@pytest.mark.stack
def test_the_selected_model_narrows_a_search(path: Path_) -> None:
    """Provider and model, as Grafana sends several of them, leave only their events."""
    wanted = expected(
        path.collector.log_records(),
        ATTEMPTED,
        lambda record: record["gen_ai_request_model"] in {"gpt-5", "claude-sonnet-4-5"},
    )
    chosen = EVERYTHING | {"provider": "openai|anthropic", "model": "gpt-5|claude-sonnet-4-5"}
    assert path.lines(plain(ATTEMPTED, chosen)) == wanted
    assert 0 < len(wanted) < len(path.lines(plain(ATTEMPTED, EVERYTHING)))


@pytest.mark.stack
def test_the_selected_service_narrows_a_search(path: Path_) -> None:
    """By its name, namespace, environment and cluster; events that say no namespace or cluster are never left out."""
    everything = path.lines(plain(ATTEMPTED, EVERYTHING))
    mine = {"service": "agent", "namespace": "shop", "environment": "test", "cluster": "east"}
    assert path.lines(plain(ATTEMPTED, EVERYTHING | mine)) == everything != []
    for name in mine:
        assert path.lines(plain(ATTEMPTED, EVERYTHING | mine | {name: "another"})) == [], name
    for label in ("service_namespace", "k8s_cluster_name"):
        assert path.lines(plain(ATTEMPTED.replace(label, "not_said"), EVERYTHING | mine)) == everything, label


@pytest.mark.stack
def test_a_traces_events_are_found_by_its_id(path: Path_) -> None:
    """One trace's events, by the search of the dashboard and by the link from Tempo, are those that carry its id."""
    records = path.collector.log_records()
    trace = next(record["traceId"] for record in records if record["eventName"] == "endturn.continuation_attempt")
    wanted = expected(records, OF_TRACE, lambda record: record["trace_id"] == trace)
    assert len(wanted) > 2
    assert path.lines(plain(OF_TRACE, EVERYTHING | {TRACE: trace})) == wanted
    link = provisioned()["tempo"]["jsonData"]["tracesToLogsV2"]
    [tag] = link["tags"]
    asked = link["query"].replace("$${__tags}", f'{tag["value"]}="agent"').replace("$${__trace.traceId}", trace)
    assert len(path.lines(asked)) == len(wanted)


@pytest.mark.stack
def test_every_logql_of_every_dashboard_runs(path: Path_) -> None:
    """Loki accepts each query as it stands in the dashboard, with its variables filled in."""
    texts = panel_queries("loki")
    assert set(LOGQL.values()) == set(texts.values())
    for text in texts.values():
        path.ask(plain(text, EVERYTHING | {TRACE: "0" * 32}))


@pytest.mark.stack
def test_what_runbooks_say_to_ask_is_answered(path: Path_) -> None:
    """Each LogQL of a runbook finds something where there is such an event."""
    asked = {text for language, text in runbook_queries().values() if language == "logql"}
    assert asked
    names = {record["eventName"] for record in path.collector.log_records()}
    for text in asked:
        [name] = re.findall(r'event_name="([^"]+)"', text)
        assert bool(path.lines(text)) == (name in names), text


@pytest.mark.stack
def test_loki_refuses_what_is_no_logql(path: Path_) -> None:
    """The check has teeth: a broken query is refused by the same call."""
    with pytest.raises(QueryError, match="parse error"):
        path.ask('{service_name="agent"} | event_name=')


@pytest.mark.stack
def test_events_are_indexed_by_service_alone(path: Path_) -> None:
    """A process's id is not an index label, so that streams do not grow with processes; it stays searchable."""
    since = path.started - 60
    assert path.loki.label_values("service_name", start=since) == ["agent"]
    assert path.loki.label_values("deployment_environment_name", start=since) == ["test"]
    assert path.loki.label_values("k8s_cluster_name", start=since) == ["east"]
    assert path.loki.label_values("service_namespace", start=since) == ["shop"]
    assert path.loki.label_values("service_instance_id", start=since) == []
    assert path.lines('{service_name="agent"} | service_instance_id!=""')


@pytest.mark.stack
def test_loki_tells_its_own_health(path: Path_) -> None:
    """`loki -health`, the health check of Compose, says yes while it runs, and no where nothing does."""
    for url, status in ((f"{path.loki.url}/ready", 0), ("http://127.0.0.1:9/ready", 1)):
        asked = [path.loki.command[0], "-health", f"-health.url={url}"]
        assert subprocess.run(asked, check=False, capture_output=True).returncode == status


# From a chart to its trace and its logs


@pytest.mark.stack
def test_an_exemplar_leads_to_a_trace_and_its_events(path: Path_) -> None:
    """The label that Prometheus' data source links by holds a real trace's id, by which Loki has its events."""
    [link] = provisioned()["prometheus"]["jsonData"]["exemplarTraceIdDestinations"]
    around = f"start={path.started - 60:.0f}&end={time.time() + 60:.0f}"
    series = eventually(
        lambda: path.prometheus.client.get(f"query_exemplars?query=endturn_turn_duration_seconds_bucket&{around}"),
        what="exemplars of turns' durations",
    )
    exemplars = [exemplar["labels"] for each in series for exemplar in each["exemplars"]]
    traces = {labels[link["name"]] for labels in exemplars}
    assert traces <= {span["traceId"] for span in path.collector.spans()}
    [derived] = provisioned()["loki"]["jsonData"]["derivedFields"]
    some = next(iter(traces & {record.get("traceId") for record in path.collector.log_records()}))
    assert path.lines(f'{{service_name="agent"}} | {derived["matcherRegex"]}="{some}"')


# TraceQL, and both grammars


@pytest.mark.stack
def test_traceql_fits_grafanas_grammar() -> None:
    """Every TraceQL of dashboards and runbooks, with and without its variables filled in, parses without an error."""
    panels = [text for text in panel_queries("tempo").values() if text != f"${TRACE}"]
    filled = [plain(text, EVERYTHING) for text in panels]
    runbooks = [text for language, text in runbook_queries().values() if language == "traceql"]
    assert panels
    assert runbooks
    asked: list[tuple[Literal["traceql"], str]] = [("traceql", text) for text in (*panels, *filled, *runbooks)]
    assert grammar.errors(asked) == [[] for _ in asked]


@pytest.mark.stack
def test_logql_fits_grafanas_grammar() -> None:
    """Every LogQL of dashboards, runbooks and the data sources' links parses in the grammar of Grafana's editor."""
    values = EVERYTHING | {TRACE: "0" * 32}
    asked = [plain(text, values) for text in panel_queries("loki").values()]
    asked += [text for language, text in runbook_queries().values() if language == "logql"]
    asked.append('{service_name="agent"} | trace_id = "0"')
    assert grammar.errors([("logql", text) for text in asked]) == [[] for _ in asked]


@pytest.mark.stack
@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("traceql", "{ span.endturn.stop.truncated == true }"),
        ("traceql", "{ span.a = true } | selct(span.b)"),
        ("logql", '{service_name="agent" | event_name="x"'),
    ],
)
def test_the_grammars_refuse_what_is_wrong(language: Any, text: str) -> None:
    """The check has teeth: slips of the pen are found."""
    assert grammar.errors([(language, text)]) != [[]]


@pytest.mark.stack
def test_the_spans_have_what_traceql_names(path: Path_) -> None:
    """Each attribute that a TraceQL search names is on real spans, with the type that it is compared with."""
    found: dict[str, set[type]] = {}
    for span in path.collector.spans():
        for name, value in span["attributes"].items():
            found.setdefault(name, set()).add(type(value))
    named = {name for text in panel_queries("tempo").values() for name in re.findall(r"span\.([a-z_.]+[a-z])", text)}
    assert named - found.keys() == set()
    resources = [span["resource"] for span in path.collector.spans()]
    asked = {name for text in panel_queries("tempo").values() for name in re.findall(r"resource\.([a-z0-9_.]+)", text)}
    assert len(asked) == 4
    assert all(asked <= each.keys() for each in resources)
    assert found[schema.STOP_TRUNCATED.key] == {bool}
    assert found[schema.CONTINUATION_INDEX.key] == {int}
