"""Credentials and message content do not pass the real Collector, under any name that is known for either."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.generate.redacted_names import names_of
from tests.support.otlp import Sent, Value, body, pairs, post, spans
from tests.support.processes import AGENT, ALL_IN_ONE, GATEWAY, Collector, collector_files, eventually

pytestmark = pytest.mark.stack

WORDS = yaml.safe_load(Path(__file__).with_name("content.yaml").read_text())
KEPT, PROGRAMS = WORDS["kept"].split(), WORDS["programs"]
CONTENT = [
    *WORDS["content"].split(),
    *names_of("content", "content_trees", "errors"),
    *(f"{name}.below" for name in names_of("content_trees")),
    *(f"{name}.0.content" for name in names_of("content_lists")),
]
CREDENTIALS = [
    *WORDS["credentials"].split(),
    *names_of("credentials", "credential_trees"),
    *(f"{name}.below" for name in names_of("credential_trees")),
]
URLS = names_of("urls")
Item = dict[str, Any]


def planted(where: str, *keys: str) -> dict[str, str]:
    """A secret under each key, which says where it was."""
    return {key: f"planted<{where}: {key}>" for key in keys}


def planted_urls(where: str) -> dict[str, str]:
    """A secret as the user of each URL and in a parameter, and a parameter that stays."""
    address = {"url.query": "", "url.fragment": "", "http.target": "/v1/chat"}
    return {
        name: f"{address.get(name, f'https://u:planted<{where}: user of {name}>@h/v1')}?"
        f"key=planted<{where}: {name}>&alt=sse".removeprefix("" if address.get(name, name) else "?")
        for name in URLS
    }


def signals(*names: str, kept: Mapping[str, str], texts: bool) -> dict[str, bytes]:
    """The bodies of a request of each signal, with a secret under these names in every place.

    `texts` plants one also where nothing has a name: in the status, in bodies, in fields of the events of programs.
    """
    now = str(time.time_ns())
    every_name = [name for name in names if name not in names_of("errors")]
    resource = {"service.name": "agent", "service.version": "kept", **planted("resource", *every_name)}
    resource |= planted_urls("resource")
    scope = {"name": "test", "attributes": pairs(planted("scope", *every_name))}

    def record(content: Any, attributes: dict[str, str], name: str = "") -> dict[str, Any]:
        return {"timeUnixNano": now, "eventName": name, "body": content, "attributes": pairs(attributes)}

    def structured(where: str, *keys: str) -> dict[str, Any]:
        return {"kvlistValue": {"values": pairs(planted(where, *keys) | planted_urls(where))}}

    def in_event(name: str, *keys: str) -> dict[str, str]:
        return planted(f"span event {name}", *keys) | planted_urls(f"span event {name}")

    programs = PROGRAMS if texts else {}
    events = {name: [*names, *keys] for name, keys in programs.items()} | {"exception": [*names]}
    span = {
        "traceId": os.urandom(16).hex(),
        "spanId": os.urandom(8).hex(),
        "name": "chat",
        "startTimeUnixNano": now,
        "endTimeUnixNano": now,
        "status": {"code": 2, "message": "planted<status>" if texts else ""},
        "attributes": pairs(planted("span", *names, f" {names[0]} ") | planted_urls("span") | {**kept}),
        "events": [
            {"name": name, "timeUnixNano": now, "attributes": pairs(in_event(name, *keys))}
            for name, keys in events.items()
        ],
    }
    records = [
        record(structured("body without a name", *every_name), planted("log", *names) | planted_urls("log") | {**kept}),
        record({"stringValue": "listening"}, {"message": "kept"}),
    ]
    for name, keys in programs.items():
        by_attribute = {"event.name": name, **planted(f"log by attribute {name}", *keys)}
        records.append(record(structured(name, "content"), planted(f"log {name}", *keys), name))
        records.append(record({"stringValue": f"planted<body of {name}>"}, by_attribute))
    gauge = {"name": "here", "gauge": {"dataPoints": [{"timeUnixNano": now, "asInt": "1"}]}}
    every = {"spans": [span], "logRecords": records, "metrics": [gauge]}
    return {kind: body(kind, items, resource=resource, scope=scope) for kind, items in every.items()}


CONFIGURATIONS = {
    "collector": ALL_IN_ONE,
    "agent": AGENT,
    "gateway": GATEWAY,
    # Redaction laid before the file that it belongs over holds, too.
    "redaction before collector": collector_files("redaction", "collector", "stop_reasons"),
    "redaction before agent": collector_files("redaction", "agent"),
}


def passed(config: Sequence[Path], folder: Path, sent: Mapping[str, bytes]) -> tuple[str, Item, list[Item]]:
    """What a Collector writes of these signals: all of it as text, its one span, its records."""
    with Collector(folder, config=config, environment={"ENDTURN_COLLECTOR_TOKEN": "token"}) as collector:
        for kind, content in sent.items():
            path = {"spans": "traces", "logRecords": "logs"}.get(kind, kind)
            assert post(f"{collector.url}/v1/{path}", content, headers={"Authorization": "Bearer token"}) == 200
        every = (collector.spans, collector.log_records, collector.metrics)
        eventually(lambda: all(read() for read in every), what="everything that was sent")
        [span], records, _ = (read() for read in every)
    return "".join(collector.file(kind).read_text() for kind in ("traces", "logs", "metrics")), span, records


def leaked(written: str) -> list[str]:
    """Where the secrets that passed were planted."""
    return [part.partition(">")[0] for part in written.split("planted<")[1:]]


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=list(CONFIGURATIONS))
def test_nothing_planted_passes_and_what_is_no_content_stays(config: Sequence[Path], tmp_path: Path) -> None:
    """On spans, events, records, bodies, resources and scopes, under each name of the table.

    Names, models, classes of errors and stop reasons are there afterwards, and so is an application's own line.
    """
    kept = dict.fromkeys(KEPT, "kept")
    written, span, records = passed(config, tmp_path, signals(*CONTENT, *CREDENTIALS, kept=kept, texts=True))
    assert leaked(written) == []
    assert [key for key in KEPT if key not in span["attributes"]] == []
    assert span["status"]["code"] == 2
    assert [event["name"] for event in span["events"]] == [*PROGRAMS, "exception"]
    assert any(KEPT[0] in record["attributes"] for record in records)
    [plain] = [record for record in records if "message" in record["attributes"]]
    assert plain["body"] == {"stringValue": "listening"}
    for item in (span, *(record for record in records if "url.full" in record["attributes"])):
        assert item["attributes"]["url.full"] == "https://REDACTED@h/v1?key=REDACTED&alt=sse"
        assert item["attributes"]["url.query"] == item["attributes"]["url.fragment"] == "key=REDACTED&alt=sse"
    assert {key: value for key, value in span["resource"].items() if key not in URLS} == {
        "service.name": "agent",
        "service.version": "kept",
    }


OPEN = {"collector": ALL_IN_ONE[:-1], "agent": AGENT[:-1]}
"""Without redaction.yaml, for whoever wants to see content."""


@pytest.mark.parametrize("config", OPEN.values(), ids=list(OPEN))
def test_credentials_never_pass_where_content_may(config: Sequence[Path], tmp_path: Path) -> None:
    """Without redaction.yaml everything in the table that is no credential passes, and no credential does."""
    written, span, _ = passed(
        config, tmp_path, signals(*CREDENTIALS, kept=dict.fromkeys([*KEPT, *CONTENT], "kept"), texts=False)
    )
    assert leaked(written) == []
    assert [key for key in (*KEPT, *CONTENT) if key not in span["attributes"]] == []


PARAMETERS = {
    "https://h/callback#access_token=planted<fragment>&state=1": "https://h/callback#access_token=REDACTED&state=1",
    "https://h/?q[api_key]=planted<brackets>&q%5Btoken%5D=planted<encoded>#top": (
        "https://h/?q[api_key]=REDACTED&q%5Btoken%5D=REDACTED#top"
    ),
    "https://h/token?assertion=planted<assertion>&pwd=planted<pwd>": "https://h/token?assertion=REDACTED&pwd=REDACTED",
    "https://h/v1?monkey_business=1&page=2#tokens": "https://h/v1?monkey_business=1&page=2#tokens",
}
"""URLs, and what is left of them."""


def test_secret_parameters_are_replaced_wherever_a_url_has_them(tmp_path: Path) -> None:
    """In the query and in the fragment, in brackets; a URL that is no text is left as it is."""
    with Collector(tmp_path) as collector:
        urls: list[Value] = [*PARAMETERS, 7]
        sent = [Sent(name=str(url), attributes={"url.full": url}) for url in urls]
        assert post(f"{collector.url}/v1/traces", spans(sent)) == 200
        eventually(lambda: len(collector.spans()) == len(sent), what="the spans")
        found = {span["name"]: span["attributes"]["url.full"] for span in collector.spans()}
    assert found == {**PARAMETERS, "7": 7}


OWN: dict[str, Value] = {"endturn.span.attribute_count": 2, "gen_ai.request.model": "gpt-5"}
ADDED = {
    "input.value": "planted<added>",
    "openai.api_key": "planted<added>",
    "url.full": "https://h/?key=planted<added>",
}


def test_a_span_that_endturn_alone_wrote_is_not_searched_and_any_other_is(tmp_path: Path) -> None:
    """Its scope is endturn's, and it has as many attributes as it says: none was added, and none dropped."""
    cases: dict[str, tuple[str, dict[str, Value]]] = {
        "not searched": (
            "endturn",
            {**OWN, "gen_ai.request.model": "", "prompt": ""} | {"endturn.span.attribute_count": 3},
        ),
        "added to": ("endturn", OWN | ADDED),
        "one too many": ("endturn", OWN | ADDED | {"endturn.span.attribute_count": 6}),
        "with content": ("endturn", {**ADDED, "gen_ai.request.model": "gpt-5"}),
        "of another scope": ("test", OWN | ADDED | {"endturn.span.attribute_count": 5}),
        "no number": ("endturn", OWN | ADDED | {"endturn.span.attribute_count": "5"}),
    }
    with Collector(tmp_path) as collector:
        for name, (scope, attributes) in cases.items():
            assert (
                post(f"{collector.url}/v1/traces", spans([Sent(name=name, attributes=attributes)], scope=scope)) == 200
            )
        eventually(lambda: len(collector.spans()) == len(cases), what="the spans")
        found = {span["name"]: span["attributes"] for span in collector.spans()}
    assert "prompt" in found.pop("not searched")
    assert leaked(collector.file("traces").read_text()) == []
    for name, attributes in found.items():
        assert attributes.keys().isdisjoint({"input.value", "openai.api_key"}), name
        assert attributes["url.full"] == "https://h/?key=REDACTED"


def test_an_agent_leaves_what_a_gateway_reads(tmp_path: Path) -> None:
    """Behind the agent's redaction a gateway still finds the reason, and the limit that stood among parameters."""
    sent = [
        Sent(name="old", attributes={"gen_ai.completion.0.finish_reason": "length"}),
        Sent(name="limit", attributes={"llm.invocation_parameters": '{"max_tokens": 64, "system": "planted"}'}),
        Sent(name="no limit", attributes={"llm.invocation_parameters": '{"max_tokens": 99999999999999999999999}'}),
        Sent(name="no text", attributes={"llm.invocation_parameters": ['"max_tokens": 64']}),
    ]
    with Collector(tmp_path, config=AGENT) as agent:
        assert post(f"{agent.url}/v1/traces", spans(sent)) == 200
        eventually(lambda: len(agent.spans()) == len(sent), what="the spans")
        found = {span["name"]: span["attributes"] for span in agent.spans()}
    assert found == {
        "old": {"gen_ai.completion.0.finish_reason": "length"},
        "limit": {"gen_ai.request.max_tokens": 64},
        "no limit": {},
        "no text": {},
    }
