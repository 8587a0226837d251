"""LogQL and TraceQL of dashboards, links and documents: Grafana's grammars read them, the schema has what they name."""

from __future__ import annotations

import re

import pytest

from tests.support.grammar import Language, parsed
from tests.support.processes import shipped
from tests.support.searches import BESIDE, EVENT, EVERYTHING, INDEXED, Search, every, label, strange

pytestmark = pytest.mark.stack  # the grammars are run by Node

NAME = re.compile(r"(?<![\w.])(?:resource\.|span\.)?((?:endturn|gen_ai|service|deployment|k8s|event|trace)[\w.]*)")
"""A name of ours in a search, without what it is of."""
ALL = '{service_name=~".+"}'

WRONG: list[tuple[Language, str, str]] = [
    ("logql", '{service_name="agent" | event_name="x"', "no logql"),
    ("logql", f"{ALL} | event_name=", "no logql"),
    ("logql", '{service_nam="agent"}', "service_nam is no index label"),
    ("logql", '{event_name="endturn.continuation_attempt"}', "event_name is no index label"),
    ("logql", f'{ALL} | event_name="endturn.continued"', "no event is endturn.continued"),
    ("logql", f'{ALL} | event_name="endturn.continuation.attempt"', "no event is endturn.continuation.attempt"),
    (
        "logql",
        f'{ALL} | event_name=~"endturn\\\\.tool_payload_repair|endturn\\\\.blocked"',
        r"no event is endturn\.blocked",
    ),
    ("logql", f'{ALL} | endturn_stop_reasons="missing"', "endturn.stop_reason_observed has no endturn_stop_reasons"),
    (
        "logql",
        f'{ALL} | event_name="endturn.continuation_attempt" | endturn_turn_outcome="completed"',
        "endturn.continuation_attempt has no endturn_turn_outcome",
    ),
    (
        "logql",
        f'{ALL} | event_name="endturn.continuation_terminated" | endturn_turn_outcome="finished"',
        "endturn_turn_outcome is never finished",
    ),
    (
        "logql",
        f'{ALL} | event_name="endturn.stop_reason_unmapped" | line_format "{{{{.endturn_stop_reason}}}}"',
        "no line has endturn_stop_reason",
    ),
    ("traceql", "{ span.endturn.stop.truncated == true }", "no traceql"),
    ("traceql", "{ span.endturn.stop.truncated = true } | selct(span.endturn.stop.raw)", "no traceql"),
    ("traceql", "{ span.endturn.stop_truncated = true }", "no span has endturn.stop_truncated"),
    ("traceql", "{ span.endturn.stop.truncated = true } | select(span.endturn.raw)", "no span has endturn.raw"),
    ("traceql", '{ resource.service = "agent" }', "no resource has service"),
    ("traceql", "{ .endturn.stop.truncated = true }", "endturn.stop.truncated of what?"),
    ("traceql", '{ span.endturn.stop.truncated = "true" }', 'endturn.stop.truncated is a boolean, not "true"'),
    ("traceql", '{ span.endturn.continuation.index = "1" }', 'endturn.continuation.index is a int, not "1"'),
    ("traceql", '{ span.endturn.stop.reason = "length" }', "endturn.stop.reason is never length"),
    (
        "traceql",
        "{ span.endturn.stop.truncated = true && span.endturn.turn.truncated = true }",
        "no span has all of ['endturn.stop.truncated', 'endturn.turn.truncated']",
    ),
]


def test_every_search_says_what_there_is() -> None:
    """As it stands, and with its variables filled in."""
    searches = every()
    assert {each.file for each in searches} >= {"turns.json", "Tempo", "install.md", "EndturnBudgetBurning.md"}
    assert {(each.language, each.file.endswith(".md")) for each in searches} == {
        (language, document) for language in ("logql", "traceql") for document in (True, False)
    }
    as_it_stands = parsed([(each.language, each.text) for each in searches if "__" not in each.text])
    assert [tree.text for tree in as_it_stands if tree.errors] == []
    trees = parsed([(each.language, each.asked) for each in searches])
    found = {(each.file, each.text): strange(each.language, tree) for each, tree in zip(searches, trees, strict=True)}
    assert {where: wrong for where, wrong in found.items() if wrong} == {}


def test_a_wrong_name_in_any_of_them_is_noticed() -> None:
    """Each name in each search, misspelt: attributes, labels, fields of a line, events."""
    planted = {
        (each.language, f"{text[: name.end(1)]}x{text[name.end(1) :]}")
        for each in every()
        for text in [each.asked]
        for name in NAME.finditer(text)
    }
    assert len(planted) > 60
    asked = sorted(planted)
    trees = parsed(asked)
    assert [text for (language, text), tree in zip(asked, trees, strict=True) if not strange(language, tree)] == []


def test_what_is_wrong_with_a_search_is_said() -> None:
    trees = parsed([(language, text) for language, text, _ in WRONG])
    found = {text: strange(language, tree) for (language, text, _), tree in zip(WRONG, trees, strict=True)}
    assert {text: said for _, text, said in WRONG if not any(each.startswith(said) for each in found[text])} == {}


def test_a_search_that_does_more_is_not_taken_for_checked() -> None:
    """What parses, and is no selector with filters and a line, is refused until somebody checks it here."""
    more = (f"sum(count_over_time({ALL}[5m]))", f"{ALL} | json", f'{ALL} |= "cut"', f"{ALL} | n > 3")
    for tree in parsed([("logql", text) for text in more]):
        assert tree.errors == []
        with pytest.raises(AssertionError, match="not understood"):
            Search.of(tree)


FOUND = {
    ALL: "ab",
    '{service_name="shop"}': "",
    '{service_name=~"shop"}': "",
    '{service_name="shop-a", k8s_cluster_name=~"east|"}': "ab",
    '{service_name="shop-a", k8s_cluster_name=~"east"}': "b",
    f'{ALL} | event_name=~"endturn\\\\..+" | gen_ai_request_model=~"gpt-5|x"': "a",
    f'{ALL} | gen_ai_request_model!="gpt-5"': "b",
    f'{ALL} | endturn_turn_complete="false"': "a",
    f'{ALL} | gen_ai_request_model!~"gpt.*" | trace_id="2"': "b",
}


def test_a_search_finds_as_loki_documents() -> None:
    """Whole values alone match; a label that is not there is empty; names have `_`, truth is a word."""
    resource = {"service.name": "shop-a"}
    one = {"event.name": "endturn.x", "gen_ai.request.model": "gpt-5", "endturn.turn.complete": False, "is": "a"}
    records = [
        {"resource": resource, "traceId": "1", "attributes": one},
        {"resource": resource | {"k8s.cluster.name": "east"}, "traceId": "2", "attributes": {"is": "b"}},
    ]
    trees = parsed([("logql", f'{text} | line_format "{{{{.is}}}}"') for text in FOUND])
    found = {text: Search.of(tree).lines(records) for text, tree in zip(FOUND, trees, strict=True)}
    assert {text: "".join(lines) for text, lines in found.items()} == FOUND


def test_names_that_loki_makes_are_those_that_the_files_say() -> None:
    """The event's name is copied into an attribute, of which Loki makes the label; the index is of the service alone.

    A process's id is not in it, so that streams do not grow with processes.
    """
    collector = shipped("collector/collector.yaml")
    [copied] = collector["processors"]["transform/keep_event_name"]["log_statements"]
    target = re.findall(r'log\.attributes\["([^"]+)"\], log\.event_name', copied)
    assert [label(name) for name in target] == [EVENT]
    assert "transform/keep_event_name" in collector["service"]["pipelines"]["logs"]["processors"]
    assert INDEXED == ("service_name", "service_namespace", "deployment_environment_name", "k8s_cluster_name")
    limits = shipped("stack/loki.yaml")["limits_config"]["otlp_config"]["resource_attributes"]
    assert (limits["ignore_defaults"], [each["action"] for each in limits["attributes_config"]]) == (
        True,
        ["index_label"],
    )
    assert EVERYTHING.keys() == {"service", "namespace", "environment", "cluster", "provider", "model"}
    [derived] = [
        field
        for source in shipped("dashboards/provisioning/datasources/endturn.yaml")["datasources"]
        for field in source["jsonData"].get("derivedFields", [])
    ]
    assert derived["matcherType"] == "label"
    assert derived["matcherRegex"] in BESIDE
