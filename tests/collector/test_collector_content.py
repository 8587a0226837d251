"""What people wrote and models answered does not pass the real Collector, wherever an application put it."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.otlp import Sent, body, pairs, post, spans
from tests.support.processes import AGENT, ALL_IN_ONE, GATEWAY, Collector, collector_files, eventually

pytestmark = pytest.mark.stack

WORDS = yaml.safe_load(Path(__file__).with_name("content.yaml").read_text())
CONTENT, KEPT, PROGRAMS = WORDS["content"].split(), WORDS["kept"].split(), WORDS["programs"]


def planted(where: str, *keys: str) -> dict[str, str]:
    """A secret under each key, which says where it was."""
    return {key: f"planted<{where}: {key}>" for key in keys}


def signals() -> dict[str, bytes]:
    """The bodies of a request of each signal, with something planted in every place."""
    now = str(time.time_ns())
    kept = dict.fromkeys(KEPT, "kept")
    command = ("process.command_args", "process.command_line")
    resource = {"service.name": "agent", **planted("resource", "gen_ai.input.messages", *command)}
    scope = {"name": "test", "attributes": pairs(planted("scope", "gen_ai.input.messages", "input.value"))}

    def record(content: Any, attributes: dict[str, str], name: str = "") -> dict[str, Any]:
        return {"timeUnixNano": now, "eventName": name, "body": content, "attributes": pairs(attributes)}

    def structured(where: str, key: str) -> dict[str, Any]:
        return {"kvlistValue": {"values": pairs(planted(where, key))}}

    events = {name: ["gen_ai.event.content", *keys] for name, keys in PROGRAMS.items()}
    events["exception"] = ["exception.message", "exception.stacktrace"]
    span = {
        "traceId": os.urandom(16).hex(),
        "spanId": os.urandom(8).hex(),
        "name": "chat",
        "startTimeUnixNano": now,
        "endTimeUnixNano": now,
        "status": {"code": 2, "message": "planted<status>"},
        "attributes": pairs({**planted("span", *CONTENT, " gen_ai.input.messages "), **kept}),
        "events": [
            {"name": name, "timeUnixNano": now, "attributes": pairs(planted(f"span event {name}", *keys))}
            for name, keys in events.items()
        ],
    }
    records = [
        record(structured("body without a name", "gen_ai.input.messages"), {**planted("log", *CONTENT), **kept}),
        record({"stringValue": "listening"}, {"message": "kept"}),
    ]
    for name, keys in PROGRAMS.items():
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


@pytest.mark.parametrize("config", CONFIGURATIONS.values(), ids=list(CONFIGURATIONS))
def test_nothing_planted_passes_and_what_is_no_content_stays(config: Sequence[Path], tmp_path: Path) -> None:
    """On spans, events, records, bodies, resources and scopes, in each place that somebody is known to use.

    Names, models, classes of errors and stop reasons are there afterwards, and so is an application's own line.
    """
    with Collector(tmp_path, config=config, environment={"ENDTURN_COLLECTOR_TOKEN": "token"}) as collector:
        for kind, content in signals().items():
            path = {"spans": "traces", "logRecords": "logs"}.get(kind, kind)
            assert post(f"{collector.url}/v1/{path}", content, headers={"Authorization": "Bearer token"}) == 200
        every = (collector.spans, collector.log_records, collector.metrics)
        eventually(lambda: all(read() for read in every), what="everything that was sent")
        [span], records, _ = (read() for read in every)
    written = "".join(collector.file(kind).read_text() for kind in ("traces", "logs", "metrics"))
    assert [part.partition(">")[0] for part in written.split("planted<")[1:]] == []
    assert [key for key in KEPT if key not in span["attributes"]] == []
    assert span["status"]["code"] == 2
    assert [event["name"] for event in span["events"]] == [*PROGRAMS, "exception"]
    assert any(KEPT[0] in record["attributes"] for record in records)
    [plain] = [record for record in records if "message" in record["attributes"]]
    assert plain["body"] == {"stringValue": "listening"}


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
