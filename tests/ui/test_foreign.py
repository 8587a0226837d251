"""What anybody may send: every word, number and JSON that ingestion keeps, in every place, and then every page."""

from __future__ import annotations

import copy
import json
import re
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from endturn.errors import UsageError
from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS
from endturn.ui import bounds, otlp, report, report_figures
from endturn.ui.rows import METRICS, Batch
from endturn.ui.store import Store
from tests.support.otlp import pairs
from tests.ui.support import CUT, SECOND, TRACE, Served, log, numbers, point, slow, span, span_of_others, written

NOW = time.time_ns()
WORDS = ["{model:x<300000000}", "'; DROP TABLE turns; --"]
MORE_WORDS = [
    "{{ 7*7 }}", "",
    "{", "}", "{nothing}", "{0}", "{model.upper}", "{model!r:>99999999}", "%s", "%n", "%(a)s", "{% raw %}", "$x",
    "@labels@", "\0", "\u202e\U000e0041",
]  # fmt: skip
OTHERS = {
    "openinference.span.kind": "LLM", "llm.model_name": "m", "llm.provider": "openai", "input.value": "{}",
    "llm.invocation_parameters": "{}", "output.value": "{}", "gen_ai.response.finish_reasons": "[]",
}  # fmt: skip
PAGES = ("/", "/turns", "/turns?sort=worst", "/reasons", "/alerts", "/?range=all", "/turns?range=all")
FILES = tuple(f"/export/{name}.csv?range=all" for name in ("turns", "calls", "events", "numbers"))
NOTED = (
    schema.TOOL_DISPATCH_BLOCKED, schema.TOOL_PAYLOAD_REPAIR, schema.TERMINATION_SIGNAL, schema.STOP_REASON_UNMAPPED,
    schema.CONTINUATION_ATTEMPT, schema.CONTINUATION_TERMINATED,
)  # fmt: skip


COLUMNS = (
    schema.OUTCOME.key, schema.REASON.key, schema.RAW.key, schema.PROVIDER.key, schema.REQUEST_MODEL.key,
    schema.AGENT.key, schema.OPERATION.key, schema.TURN_ID.key, schema.ERROR_TYPE.key, schema.OUTPUT_MESSAGES.key,
)  # fmt: skip
"""The attributes that pages show of a call."""
MEMBERS = {"traces": "resourceSpans", "logs": "resourceLogs", "metrics": "resourceMetrics"}


def everywhere(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """A request of each signal, with a value in every place that takes one."""
    requests: dict[str, list[Any]] = {signal: [] for signal in MEMBERS}
    for signal, request in _each(value):
        requests[signal] += request[MEMBERS[signal]]
    return ((signal, {MEMBERS[signal]: resources}) for signal, resources in requests.items())


def _each(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    text = value if isinstance(value, str) else "word"
    keys = [attribute.key for attribute in schema.ATTRIBUTES]
    for n, key in enumerate(COLUMNS):
        about = {"endturn.turn.id": f"turn{n}", **CUT, key: value}
        yield "traces", span(spanId=f"{n + 1:016x}", attributes=about, start_ns=NOW + n)
    resource = {"service.name": value, "service.namespace": value, "service.instance.id": value}
    resource |= {"deployment.environment.name": value, "k8s.cluster.name": value}
    status = {"code": 2, "message": text}
    yield "traces", span(attributes=dict.fromkeys(keys, value), resource=resource, status=status, name=text)
    for n, kind in enumerate(("invoke_agent", "execute_tool", "chat")):
        about = dict.fromkeys(keys, value) | {"gen_ai.operation.name": kind, "endturn.turn.id": "turn1"}
        yield "traces", span(spanId=f"{n + 1:08x}" * 2, attributes=about, resource=resource, name=text)
    for n, key in enumerate(OTHERS):
        raised = [{"name": text, "attributes": pairs({"exception.type": value})}]
        more: dict[str, Any] = {"status": status, "events": raised} if n % 2 else {}
        yield "traces", span_of_others(OTHERS | {key: value}, spanId=f"{n + 0xA0:016x}", **more)
    for event in NOTED:
        about = {attribute.key: value for attribute in schema.ATTRIBUTES if attribute is not schema.TURN_ID}
        request = log(event.name, **about, **{"endturn.turn.id": "turn1"})
        (record,) = request["resourceLogs"][0]["scopeLogs"][0]["logRecords"]
        yield "logs", copy.deepcopy(request)
        record |= {"severityText": text, "body": pairs({"body": value})[0]["value"], "eventName": text or "name"}
        yield "logs", request
    for metric in METRICS.values():
        labels = pairs({attribute.key: value for attribute in metric.attributes})
        count: dict[str, Any] = {"timeUnixNano": str(NOW), "startTimeUnixNano": str(NOW - SECOND), "attributes": labels}
        if metric.instrument == "histogram":
            count |= {"sum": 1, "bucketCounts": ["0", "1"], "explicitBounds": [1]}
        else:
            count["asInt"] = "1"
        data = {"dataPoints": [count], "aggregationTemporality": 2, "isMonotonic": True}
        about = {"name": metric.name, "histogram" if metric.instrument == "histogram" else "sum": data}
        scoped = {"resource": {"attributes": pairs(resource)}, "scopeMetrics": [{"metrics": [about]}]}
        yield "metrics", {"resourceMetrics": [scoped]}


def send(page: Served, value: Any) -> list[tuple[str, dict[str, Any]]]:
    """Send a value in every place; what cannot be is refused in part, never with an error of the server's."""
    requests = list(everywhere(value))
    assert {page.post(*request).status for request in requests} == {200}
    return requests


def check_pages(page: Served, most: int = 1_000_000) -> dict[str, str]:
    """Ask for every page, that of every turn included: each is there, of bounded length, its charts too."""
    texts = {}
    links = {link for link in page.ask("/turns?range=all").links() if link.startswith("/turns/")}
    links |= {link for link in page.ask("/turns?range=all&page=1").links() if link.startswith("/turns/")}
    assert links
    for path in (*PAGES, *FILES, *sorted(links)):
        answer = page.ask(path)
        assert (path, answer.status) == (path, 200), answer.text[:500]
        assert (path, len(answer.content) // most) == (path, 0) or path in FILES
        texts[path] = answer.text
        for figure in re.findall(r'(?s)<figure class="plot.*?</figure>', answer.text):
            drawn = re.findall(r' (?:d|x|y|x1|x2|y1|y2|width|height)="([^"]*)"', figure)
            assert not [text for text in drawn if not re.fullmatch(r"[MLHVhvz\d. ]+%?", text)]
    assert page.ask("/export/turns.parquet?range=all").status == 200
    return texts


@pytest.mark.parametrize("word", [*WORDS, *slow(MORE_WORDS)])
def test_a_word_is_a_value_wherever_it_stands(
    page: Served, tmp_path: Path, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Never a template, a format or a query: each page and report is there, and shows it as it came."""
    requests = send(page, word)
    texts = check_pages(page)
    assert not any("built-in method" in text or ">49<" in text for text in texts.values())
    if word not in ("", "\0"):  # an empty outcome is none; HTML has no NUL
        assert word.replace("_", " ") in unescape(re.sub("<[^>]+>", " ", texts["/turns/turn0?range=all"]))
    file = tmp_path / "all.jsonl"
    file.write_bytes(b"\n".join(written(request) for _, request in requests))
    for format_ in ("md", "html", "json"):
        assert report.run([file], file=None, format_=format_, fail_on=[]) == 0
        printed = capsys.readouterr().out
        assert len(printed) < 200_000
        if format_ == "json":
            json.loads(printed, parse_constant=pytest.fail)


@pytest.mark.parametrize("depth", [990, *slow([50, 900, 1000, 20_000])])
@pytest.mark.parametrize("piece", ['[{"parts":[{"type":"text","content":', *slow(["[", '{"a":'])])
def test_json_in_an_attribute_may_be_nested_however_deeply(page: Served, depth: int, piece: str) -> None:
    """Whole and cut: what cannot be read of it is not shown."""
    ends = {"[": "]", "{": "}"}
    close = "".join(ends[letter] for letter in reversed(piece) if letter in ends)
    for text in (piece * depth, piece * depth + "1" + close * depth):
        for n, key in enumerate((schema.OUTPUT_MESSAGES.key, *OTHERS)):
            about = {"endturn.turn.id": f"t{n}", schema.OUTPUT_MESSAGES.key: text, key: text}
            assert page.post("traces", span(spanId=f"{n + 1:016x}", attributes=CUT | about)).status == 200
            assert page.post("traces", span_of_others(OTHERS | {key: text}, spanId=f"{n + 99:016x}")).status == 200
    links = {link for link in page.ask("/turns").links() if link.startswith("/turns/")}
    assert {page.ask(path).status for path in links} == {200}


def test_no_word_is_longer_than_a_page_bears(page: Served) -> None:
    """Stored words are bounded, in every column; two long words that differ still do."""
    for ending in ("a", "b"):
        send(page, "x" * 5000 + ending)
    for table in ("spans", "events", "turns", "series"):
        texts = page.store.read_tuples(
            "SELECT column_name FROM duckdb_columns() WHERE table_name = $1 AND data_type = 'VARCHAR'", [table]
        )
        for (column,) in texts:
            most = {"attributes": bounds.ROW + 20_000, "body": bounds.TEXT, "links": bounds.LINKS * 20}
            ((longest,),) = page.store.read_tuples(f"SELECT max(length({column})) FROM {table}")
            assert (longest or 0) <= most.get(column, bounds.WORD), (table, column)
    turns = page.store.read_tuples("SELECT DISTINCT turn_id FROM turns WHERE turn_id LIKE 'xxx%'")
    services = page.store.read_tuples("SELECT DISTINCT service FROM series")
    assert (len(turns), len(services)) == (2, 2)
    check_pages(page)


def test_messages_have_a_bound_of_their_own(page: Served) -> None:
    """An answer of half a million characters is kept and shown by its beginning; a longer one is said to be."""
    parts = [{"type": "text", "content": "word " * 80_000}]
    for n, text in enumerate((json.dumps([{"parts": parts}]), json.dumps([{"parts": parts * 2}]))):
        for index in (None, 1):
            about: dict[str, Any] = {"endturn.turn.id": f"t{n}", schema.OUTPUT_MESSAGES.key: text}
            about |= {"endturn.continuation.index": index} if index else CUT
            start = NOW + (index or 0) * SECOND
            page.post("traces", span(spanId=f"{10 * n + (index or 0) + 1:016x}", attributes=about, start_ns=start))
    whole, cut = (page.ask(f"/turns/t{n}").words for n in (0, 1))
    assert ("word word word" in whole, "cannot show" in whole) == (True, False)
    assert ("word word word" in cut, "cannot show" in cut) == (False, True)
    assert len(whole) < bounds.CONTENT


def test_many_attributes_leave_a_row_and_a_page_their_size(page: Served) -> None:
    """Those that the pages read are kept first."""
    many = {f"a{n}": "x" * 1000 for n in range(5000)} | {schema.TOOL_NAME.key: "the tool"}
    page.post("traces", span(attributes=CUT))
    page.post("traces", span(spanId="a1" * 8, attributes=many | {"gen_ai.operation.name": "execute_tool"}))
    page.post("logs", log("name", **many))
    kept = [
        json.loads(text)
        for (text,) in page.store.read_tuples("SELECT attributes FROM spans UNION FROM (SELECT attributes FROM events)")
    ]
    assert max(map(len, kept)) == bounds.ATTRIBUTES
    text = page.ask("/turns/t1").text
    assert ("the tool" in text, "and others" in text, len(text) < 100_000) == (True, True, True)


@pytest.mark.parametrize(
    "number", [2**63 - 1, float("nan"), *slow([-1, -(2**63), 0, 2**53, 1.7e308, -1.7e308, float("inf"), True])]
)
def test_a_number_may_be_any(page: Served, number: float) -> None:
    """Whole or not, beyond every column or not; twice, since two of them may add up to more."""
    spans: list[Any] = []
    for n, attribute in enumerate(schema.ATTRIBUTES):
        for kind in ("chat", "chat", "invoke_agent"):
            about = {"gen_ai.operation.name": kind, "endturn.turn.id": f"t{n // 8}", attribute.key: number}
            spans += span(spanId=f"{len(spans) + 1:016x}", attributes=CUT | about)["resourceSpans"]
    for each in ({"resourceSpans": spans}, span(attributes=CUT)):
        text = written(each).replace(b"NaN", b'"NaN"').replace(b"Infinity", b'"Infinity"')
        assert page.ask("/v1/traces", text, {"Content-Type": otlp.JSON}).text == "{}"
    check_pages(page)


def test_sums_stay_finite(page: Served) -> None:
    """A value that could add up to infinity is refused; one that an earlier version stored makes no page fail."""
    for value in (1.7e308, 1e19):
        data = [{"timeUnixNano": str(NOW + n), "asDouble": value} for n in range(20)]
        sums = {"isMonotonic": True, "aggregationTemporality": 1, "dataPoints": data}
        metrics = [{"name": schema.TURNS.name, "sum": sums}]
        answer = page.post("metrics", {"resourceMetrics": [{"scopeMetrics": [{"metrics": metrics}]}]})
        told = json.loads(answer.content)["partialSuccess"]
        assert (answer.status, told["rejectedDataPoints"], "1e+18" in told["errorMessage"]) == (200, "20", True)
    page.post("traces", span(attributes=CUT))
    labels = {"endturn_turn_truncated": "true", "endturn_turn_outcome": "not_continued"}
    for metric in METRICS.values():
        values = (1.7e308,) * (len(metric.buckets) + 2 if metric.instrument == "histogram" else 1)
        carried: dict[str, Any] = {
            name: value for name, value in labels.items() if name in {a.label for a in metric.attributes}
        }
        points = [point(metric, values, NOW, instance=str(n), **carried) for n in range(20)]
        page.store.write(Batch(points=points))
    check_pages(page)
    figures = report_figures.figures(page.store, [], [], all_turns=True)
    json.loads(report.render(figures, "json"), parse_constant=pytest.fail)
    assert numbers(page.store).number(INDICATORS["turns"].count)


def test_many_words_leave_a_chart_its_size(page: Served) -> None:
    """The most frequent ones are told apart, the others are one; none is left out of the sum."""
    points = [point(schema.RESPONSES, 1000 + n, endturn_stop_reason=f"reason {n}", instance=str(n)) for n in range(500)]
    page.store.write(Batch(points=points))
    (figure,) = re.findall(r'(?s)<figure class="plot" id="chart-reasons">.*?</figure>', page.ask("/").text)
    table = ElementTree.fromstring(figure).find(".//table")
    assert table is not None
    names = ["".join(each.itertext()) for each in table.findall("thead//th")][1:]
    assert (len(names), names[-1], "reason 499" in names, "reason 0" in names) == (25, "others", True, False)
    values = [str(each.text).replace("\u202f", "") for each in table.iter("td")]
    assert sum(map(int, values)) == sum(range(1000, 1500))


def test_every_moment_can_be_shown(page: Served) -> None:
    """From 1970 until the last that is stored."""
    last = bounds.TIME_NS - 1
    for n, (start, end) in enumerate(((1, last), (1, 1), (last, last), (NOW, last))):
        times = {"startTimeUnixNano": str(start), "endTimeUnixNano": str(end)}
        about = {"endturn.turn.id": f"t{n}"}
        assert page.post("traces", span(spanId=f"{n + 1:016x}", attributes=about, **times)).text == "{}"
        assert page.post("logs", log("x", timeUnixNano=str(end), **about)).text == "{}"
        page.store.write(Batch(points=[point(schema.TURNS, 1, end, instance=str(n))]))
    check_pages(page)
    assert page.ask(f"/turns?from=1&to={(1 << 43) - 1}").status == 200


def test_ids_of_any_length_identify_nothing(page: Served) -> None:
    """A span's own are checked; those of a parent, a link or an event are left out where they are too long."""
    long = "ab" * 100_000
    request = span(parentSpanId=long, attributes=CUT)
    (found,) = request["resourceSpans"][0]["scopeSpans"][0]["spans"]
    found["links"] = [{"traceId": TRACE, "spanId": long}] * 9 + [{"traceId": TRACE, "spanId": "ab" * 8}] * 300
    page.post("traces", request)
    record = log("x")
    record["resourceLogs"][0]["scopeLogs"][0]["logRecords"][0] |= {"traceId": long, "spanId": long}
    page.post("logs", record)
    assert page.store.read_tuples("SELECT parent_id, length(links) < 3000 FROM spans") == [(None, True)]
    assert page.store.read_tuples("SELECT trace_id, span_id FROM events") == [(None, None)]


def test_a_file_of_deep_json_is_refused_by_its_line(tmp_path: Path) -> None:
    """With a sentence, on whatever line it stands."""
    deep, file = '{"resourceSpans":' + "[" * 100_000 + "]" * 100_000 + "}", tmp_path / "deep.jsonl"
    store = Store()
    for text in (deep, f"{json.dumps(span())}\n{deep}"):
        file.write_text(text)
        with pytest.raises(UsageError, match=r"too deeply|not JSON"):
            otlp.load(store, file)
    store.close()
