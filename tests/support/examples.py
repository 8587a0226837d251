"""Runs a file of `examples/` as a user does, against a scripted provider, and tells what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endturn.scripted import Reply, ScriptedProvider

ROOT = Path(__file__).resolve().parents[2]

_AS_A_USER = """
import json, os, runpy, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from endturn.instrumentation.instrument import uninstrument
kept = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(kept))
trace.set_tracer_provider(provider)
path = sys.argv[1]
sys.path.insert(0, os.path.dirname(path))
sys.argv = [path, "What is the weather in Oslo?"]
try:
    runpy.run_path(path, run_name="__main__")
except Exception as error:
    print("raised", type(error).__name__)
finally:
    uninstrument()
    print("SPANS " + json.dumps([dict(span.attributes or {}) for span in kept.get_finished_spans()]))
"""


@dataclass(frozen=True, slots=True)
class Ran:
    """What came of it.

    Attributes:
        seen: the lines that `telling` printed, without their mark.
        printed: the others.
        spans: the attributes of each span, by order of their ends.
        requests: how often the provider was asked.
    """

    seen: list[str]
    printed: list[str]
    spans: list[Mapping[str, Any]]
    requests: int

    @property
    def calls(self) -> list[str]:
        """The reasons of the calls, by their spans."""
        return [span["endturn.stop.reason"] for span in self.spans if "endturn.stop.reason" in span]


def run(name: str, *replies: Reply) -> Ran:
    """Run an example; the replies are what the model says."""
    provider = ScriptedProvider(list(replies))
    with provider.serve() as url:
        told = {
            "OPENAI_BASE_URL": f"{url}/v1",
            "OPENAI_API_KEY": "none",
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "LANGSMITH_TRACING": "false",
            "PYTHONPATH": str(ROOT / "src"),
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", _AS_A_USER, str(ROOT / "examples" / f"{name}.py")],
            env={**os.environ, **told},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    lines = done.stdout.splitlines()
    (spans,) = (line.removeprefix("SPANS ") for line in lines if line.startswith("SPANS "))
    mark = "[endturn] "
    return Ran(
        [line.removeprefix(mark) for line in lines if line.startswith(mark)],
        [line for line in lines if not line.startswith((mark, "SPANS "))],
        json.loads(spans),
        len(provider.requests),
    )
