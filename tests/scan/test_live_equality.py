"""The same turns, live and from their log: a scan of exported telemetry has the counts of a listener."""

from __future__ import annotations

import base64
import gzip
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from endturn.scan import scan
from tests.support.processes import REPOSITORY
from tests.support.serving import ReceivedRequest, serving

COUNTED = ("turns", "truncated_turns", "continued_turns", "unfinished_turns")
IDS = ("traceId", "spanId", "parentSpanId")


def with_hexadecimal_ids(value: Any) -> Any:
    """OTLP JSON has ids in hexadecimal, where protobuf's JSON has base64."""
    match value:
        case dict():
            return {
                key: base64.b64decode(inner).hex() if key in IDS else with_hexadecimal_ids(inner)
                for key, inner in value.items()
            }
        case list():
            return [with_hexadecimal_ids(inner) for inner in value]
    return value


@pytest.mark.slow
def test_the_spans_of_the_demo_match_its_listeners_counts(tmp_path: Path) -> None:
    lines: list[str] = []

    def keep(asked: ReceivedRequest) -> tuple[int, bytes, str]:
        if asked.path == "/v1/traces":
            body = gzip.decompress(asked.body) if asked.headers.get("Content-Encoding") == "gzip" else asked.body
            request = MessageToDict(ExportTraceServiceRequest.FromString(body))
            lines.append(json.dumps(with_hexadecimal_ids(request)))
        return 200, b"", "application/x-protobuf"

    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    with serving(keep, 0) as url:
        done = subprocess.run(
            [sys.executable, "-m", "endturn", "demo", "--once", "--json"],
            env=environment | {"OTEL_EXPORTER_OTLP_ENDPOINT": url},
            cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    (tmp_path / "spans").write_text("\n".join(lines), encoding="utf-8")
    past: dict[str, dict[str, Any]] = {}
    for row in scan([tmp_path / "spans"]).as_json()["rows"]:
        known = past.setdefault(row["model"], dict.fromkeys(COUNTED, 0) | {"responses": {}})
        for name in COUNTED:
            known[name] += row[name]
        for reason, count in row["responses"].items():
            known["responses"][reason] = known["responses"].get(reason, 0) + count
        if row["failed_attempts"]:
            known["responses"]["error"] = known["responses"].get("error", 0) + row["failed_attempts"]
    models = json.loads(done.stdout)["models"]
    live = {row["model"]: {name: row[name] for name in (*COUNTED, "responses")} for row in models}
    assert past == live
