"""The examples do what they say, each as its user runs it, against a scripted provider."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, NamedTuple

import pytest

from endturn.testing.scripted import Reply, ScriptedProvider, call, partial_call, say, truncate
from tests.support.processes import REPOSITORY

ASKS = call("weather", {"city": "Oslo"})
CUT = truncate("It rains in Oslo, and it will go on", after=4)
CUT_CALL = partial_call("weather", {"city": "Oslo"}, after=1)
FRAMEWORKS = {"pydantic_ai_agent": "pydantic_ai", "langgraph_agent": "langgraph", "openai_agents": "agents"}
AGENTS = [name for name, package in FRAMEWORKS.items() if find_spec(package)]
"""The examples whose framework is installed; tests/environments/frameworks has those of the others."""

AS_A_USER = """
import json, os, runpy, sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from endturn.instrumentation._instrument import uninstrument
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


class Ran(NamedTuple):
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
            "PYTHONPATH": str(REPOSITORY / "src"),
        }
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", AS_A_USER, str(REPOSITORY / "examples" / f"{name}.py")],
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


def test_a_handwritten_loop() -> None:
    """A tool is run, a cut answer is finished: three calls, three spans, one turn."""
    ran = run("handwritten_loop", ASKS, CUT, say(" and it will go on."))
    assert ran.calls == ["tool_call", "max_tokens", "end_turn"]
    assert ran.seen == [
        "call to gpt-5-mini: tool_call (tool_calls)",
        "call to gpt-5-mini: max_tokens (length, truncated)",
        "continuation 1: prompt",
        "call to gpt-5-mini: end_turn (stop)",
        "turn of 3 calls: completed",
    ]
    assert ran.printed == ["It rains in Oslo, and it will go on."]
    first, second, third = ran.spans
    assert first["endturn.turn.id"] == second["endturn.turn.id"] == third["endturn.turn.id"]
    assert (third["endturn.continuation.index"], third["endturn.turn.iteration"]) == (1, 3)


@pytest.mark.parametrize(
    ("name", "replies", "reasons", "outcome"),
    [
        ("httpx_only", [CUT], ["max_tokens"], "not_continued"),
        ("handwritten_loop", [CUT_CALL], ["max_tokens"], "not_continued"),
        *((name, [ASKS, say("It rains.")], ["tool_call", "end_turn"], "completed") for name in AGENTS),
        *((name, [ASKS, CUT], ["tool_call", "max_tokens"], "not_continued") for name in AGENTS),
    ],
)
def test_a_run_is_one_turn(name: str, replies: list[Reply], reasons: list[str], outcome: str) -> None:
    """Of as many calls and spans as requests; no framework looks at the reason, so a cut answer ends it too."""
    ran = run(name, *replies)
    assert (ran.calls, ran.requests) == (reasons, len(reasons))
    assert ran.seen[-1] == f"turn of {len(reasons)} calls: {outcome}"
    assert outcome != "completed" or ran.printed == ["It rains."]
    assert len({span["endturn.turn.id"] for span in ran.spans if "endturn.turn.id" in span}) == 1


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_and_a_cut_tool_call(name: str) -> None:
    """Whatever the framework makes of the cut payload, the truncation is seen."""
    ran = run(name, CUT_CALL, say("Never mind."))
    assert ran.calls[0] == "max_tokens"
    assert len(ran.calls) == ran.requests
    assert ran.seen[0].endswith("truncated)")
