"""Every question of every dashboard, asked of real data: PromQL, LogQL, TraceQL, and the way from a chart to its logs.

The demo's real agents export through the real Collector to a real Prometheus, without any rule, whose answers are
compared with what the demo printed. Loki and Tempo are not built here: what a search of events finds is worked out from
the records that the Collector wrote to a file, and what a search of spans names is looked for on the spans there.
"""

from __future__ import annotations

import math
import re
import time
import urllib.parse
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from endturn.generate.boards.stop_reasons import REASON_GROUPS
from endturn.telemetry import schema
from tests.generate.test_dashboards import BY_NAME, PANELS, Panel, drawn, targets
from tests.support import searches
from tests.support.grammar import parsed
from tests.support.processes import LOOPBACK, Collector, Prometheus, Series, eventually, free_port, http, shipped
from tests.support.searches import EVERYTHING, TRACE, filled
from tests.ui.support import demo

pytestmark = pytest.mark.stack

MINE = {"service": "agent", "namespace": "shop", "environment": "test", "cluster": "east"}
LOGQL = {panel["title"]: panel["targets"][0]["expr"] for panel in PANELS if panel["type"] == "logs"}
OF_TRACE, ATTEMPTED = LOGQL["Its events"], LOGQL["Continuations, one by one"]
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


@dataclass(frozen=True)
class Played:
    """The running path after the demo has played, and what the demo itself printed."""

    collector: Collector
    prometheus: Prometheus
    played: dict[str, Any]
    begin: float
    end: float

    def lines(self, text: str) -> list[str]:
        """The lines that a search of events gives, sorted."""
        return searches.search(text).lines(self.collector.log_records())

    def counted(self, metric: str, *by: str) -> dict[tuple[str, ...], float]:
        """What Prometheus has of a counter, by labels, without what is zero."""
        found = self.prometheus.client.query(
            f"sum by ({','.join(by)}) (last_over_time({metric}[1h])) > 0", time=self.end
        )
        return {tuple(each.labels.get(name, "") for name in by): each.value for each in found}

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


def scraped_twice(collector: Collector, prometheus: Prometheus) -> bool:
    """Whether Prometheus has two samples of each series that the Collector shows of itself: a rate needs as many."""
    text = http.get(f"http://{collector.metrics_address}/metrics").text
    shown = Counter(re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#"))
    samples = prometheus.client.query('{__name__=~"otelcol_.+"}[1h]')
    twice = Counter(series.labels["__name__"] for series in samples if len(series.points) > 1)
    return all(twice[name] >= count for name, count in shown.items() if name.startswith("otelcol_"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    folder, port = tmp_path_factory.mktemp("queries"), free_port()
    scrapes = {"collector": [f"{LOOPBACK}:{port}"]}
    with (
        Prometheus(folder, scrapes=scrapes) as prometheus,
        Collector(folder, prometheus=prometheus.url, metrics_port=port) as collector,
    ):
        begin = math.floor(time.time()) - STEP
        variables = {"OTEL_SERVICE_NAME": "agent", "OTEL_RESOURCE_ATTRIBUTES": RESOURCE}
        played = demo(collector.url, "--once", OTEL_METRIC_EXPORT_INTERVAL="1000", **variables)
        responses = sum(sum(row["responses"].values()) for row in played["models"])
        # The demo's counters are stale once it has ended: the last sample of each is what it sent at its exit.
        prometheus.client.wait_for(f"sum(last_over_time(endturn_responses_total[1h])) >= {responses}")
        running = Played(collector, prometheus, played, begin, math.inf)
        eventually(
            lambda: collector.own("otelcol_exporter_sent_spans") == len(collector.spans()) > 0,
            what="the spans, counted",
        )
        eventually(
            lambda: collector.own("otelcol_exporter_sent_log_records") == len(collector.log_records()) > 0,
            what="the events, counted",
        )
        eventually(lambda: scraped_twice(collector, prometheus), what="two samples of all that the Collector counts")
        # The last step ends after everything.
        end = begin + math.ceil((time.time() - begin) / STEP) * STEP
        eventually(lambda: time.time() > end, what="the end of the last step", timeout=2 * STEP)
        yield replace(running, end=end)


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
    truncated, left = (sum(row[key] for row in rows.values()) for key in ("truncated_turns", "unfinished_turns"))
    service = ("test", "shop/agent")
    wanted: dict[tuple[str, int, int], dict[tuple[str, ...], float]] = {
        ("overview", 11, 0): {(): left / truncated},
        ("overview", 12, 0): {(): cut / (reasons.total() - reasons["error"])},
        ("overview", 13, 0): {(): left},
        ("continuations", 11, 0): {(): truncated},
        ("overview", 21, 0): {service: reasons.total()},
        ("overview", 21, 2): {service: left},
        ("overview", 41, 0): {key: sum(row["responses"].values()) for key, row in rows.items()},
        ("overview", 41, 2): {key: row["unfinished_turns"] for key, row in rows.items()},
        ("overview", 31, 0): {(why,): count for why, count in reasons.items()},
    }
    assert truncated > left > 0
    assert {panel: path.shown(*panel) for panel in wanted} == wanted
    for place, group in enumerate(REASON_GROUPS.values()):
        by_model = {key: sum(row["responses"].get(why, 0) for why in group) for key, row in rows.items()}
        shown = path.shown("stop-reasons", 22, place)
        assert {key: n for key, n in shown.items() if n} == {key: n for key, n in by_model.items() if n}


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


def test_a_search_finds_what_was_counted(path: Played) -> None:
    """With everything chosen, one line for each turn, attempt and repair that was counted, with its values."""
    found = {title: path.lines(filled(text, EVERYTHING)) for title, text in LOGQL.items() if title != "Its events"}
    forms = {
        "Endings": r"(\S+) (?P<what>\w+) continuations=\d+ tokens=\d+ turn=\S+",
        "Continuations, one by one": r"(\S+) continuation=\d+ (?P<what>\w+) left=\d* turn=\S+",
        "Truncated tool calls": r"endturn\.tool_(payload_repair|dispatch_blocked) \S+ (?P<what>\w+) turn=\S+",
        "Unmapped stop reasons": r"(\S+) (\S+) (?P<what>\S+)",
    }
    assert found.keys() == forms.keys()
    rows = {
        title: [match.groups() for line in lines if (match := re.fullmatch(forms[title], line))]
        for title, lines in found.items()
    }
    assert {title: len(each) for title, each in rows.items()} == {title: len(lines) for title, lines in found.items()}

    def counts(title: str, *places: int) -> Counter[tuple[str, ...]]:
        return Counter(tuple(row[place] for place in places) for row in rows[title])

    model = "gen_ai_request_model"
    printed = path.played["models"]
    assert counts("Endings", 0) == {
        (row["model"],): row["truncated_turns"] for row in printed if row["truncated_turns"]
    }
    exits = path.counted("endturn_truncation_exits_total", model, "endturn_turn_outcome")
    assert {ending: n for ending, n in counts("Endings", 0, 1).items() if ending[1] != "completed"} == exits
    assert sum(exits.values()) == sum(row["unfinished_turns"] for row in printed)
    attempts = path.counted("endturn_continuations_total", model, "endturn_continuation_strategy")
    assert counts("Continuations, one by one", 0, 1) == attempts
    [repairs] = path.counted("endturn_tool_payload_repairs_total").values()
    assert counts("Truncated tool calls", 0)["payload_repair",] == repairs
    unmapped = path.counted("endturn_stop_reasons_unmapped_total", "gen_ai_provider_name", model)
    assert counts("Unmapped stop reasons", 0, 1).keys() == unmapped.keys()


def test_what_is_chosen_narrows_a_search(path: Played) -> None:
    """Provider and model, as Grafana sends several of them, leave only their events; so do the four of a service.

    Events that say no namespace or cluster are never left out.
    """
    everything = path.lines(filled(ATTEMPTED, EVERYTHING))
    models = {"gpt-5", "claude-sonnet-5-5"}
    chosen = EVERYTHING | {"provider": "openai|anthropic", "model": "|".join(models)}
    wanted = [line for line in everything if line.split()[0] in models]
    assert path.lines(filled(ATTEMPTED, chosen)) == wanted
    assert 0 < len(wanted) < len(everything)
    assert path.lines(filled(ATTEMPTED, EVERYTHING | MINE)) == everything
    for name in MINE:
        assert path.lines(filled(ATTEMPTED, EVERYTHING | MINE | {name: "another"})) == [], name
    for label in ("service_namespace", "k8s_cluster_name"):
        assert path.lines(filled(ATTEMPTED.replace(label, "not_said"), EVERYTHING | MINE)) == everything, label


def test_a_traces_events_are_found_by_its_id(path: Played) -> None:
    """One trace's events, by the search of the dashboard and by the link from Tempo, are those that carry its id."""
    records = path.collector.log_records()
    trace = next(each["traceId"] for each in records if each["eventName"] == "endturn.continuation_attempt")
    carry = Counter(each["eventName"] for each in records if each.get("traceId") == trace)
    assert carry.total() > 2
    lines = path.lines(filled(OF_TRACE, EVERYTHING | {TRACE: trace}))
    assert Counter(line.split()[0] for line in lines) == carry
    link = PROVISIONED["tempo"]["tracesToLogsV2"]
    [tag] = link["tags"]
    asked = link["query"].replace("$${__tags}", f'{tag["value"]}="agent"').replace("$${__trace.traceId}", trace)
    assert len(path.lines(asked)) == carry.total()


def test_records_carry_what_searches_of_events_name(path: Played) -> None:
    """Each record says its event's name in the attribute of which Loki makes a label, and what the index is of.

    A process's id is no part of that, and is there to be searched for.
    """
    for record in path.collector.log_records():
        labels = searches.labelled(record)
        assert labels[searches.EVENT] == record["eventName"]
        assert [labels[name] for name in searches.INDEXED] == [*MINE.values()]
        assert record["resource"][schema.INSTANCE]


# From a chart to its trace and its logs


def test_an_exemplar_leads_to_a_trace_and_its_events(path: Played) -> None:
    """The label that Prometheus' data source links by holds a real trace's id, which that trace's events carry."""
    [link] = PROVISIONED["prometheus"]["exemplarTraceIdDestinations"]
    around = f"start={path.begin - 60:.0f}&end={time.time() + 60:.0f}"
    series = eventually(
        lambda: path.prometheus.client.get(f"query_exemplars?query=endturn_turn_duration_seconds_bucket&{around}"),
        what="exemplars of turns' durations",
    )
    traces = {exemplar["labels"][link["name"]] for each in series for exemplar in each["exemplars"]}
    assert traces <= {span["traceId"] for span in path.collector.spans()}
    [derived] = PROVISIONED["loki"]["derivedFields"]
    held = {searches.labelled(record)[derived["matcherRegex"]] for record in path.collector.log_records()}
    assert traces & held


# TraceQL


def test_the_spans_have_what_traceql_names(path: Played) -> None:
    """Each attribute that a TraceQL search of a dashboard names is on real spans, with the type that is compared."""
    asked = [each for each in searches.every() if each.language == "traceql" and each.file.endswith(".json")]
    assert len(asked) == 2
    fields = [
        node.text.split(".", 1)
        for tree in parsed([("traceql", each.asked) for each in asked])
        for node in tree.every("AttributeField")
    ]
    spans = path.collector.spans()
    found: dict[str, set[type]] = {}
    for name, value in (pair for span in spans for pair in span["attributes"].items()):
        found.setdefault(name, set()).add(type(value))
    assert {name for scope, name in fields if scope == "span"} - found.keys() == set()
    resource = {name for scope, name in fields if scope == "resource"}
    assert len(resource) == 4
    assert all(resource <= span["resource"].keys() for span in spans)
    assert (found[schema.STOP_TRUNCATED.key], found[schema.CONTINUATION_INDEX.key]) == ({bool}, {int})
