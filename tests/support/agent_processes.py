"""A program of somebody's framework under `endturn run`, in a process of its own: what it exports."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from endturn.cli import run
from endturn.testing.scripted import Reply, ScriptedProvider, call, say

REPOSITORY: Final = Path(__file__).parents[2]

TOOL_LOOP = [call("weather", {"city": "Oslo"}), say("It rains.")]
"""What an agent with the tool `weather` is answered: two calls in one run."""

PRELUDE = """
import os
URL = os.environ["PROVIDER_URL"] + "/v1"
def weather(city: str) -> str:
    \"\"\"Say what the weather is.

    Args:
        city: The city's name.
    \"\"\"
    return f"It rains in {city}."
"""


class Exported:
    """What a process wrote by the console exporters.

    Attributes:
        spans: in the order in which they ended.
        turns: how many turns ended so, by outcome.
    """

    def __init__(self, written: str) -> None:
        self.spans: list[dict[str, Any]] = []
        self.turns: Counter[str] = Counter()
        for document in _documents(written):
            if "context" in document:
                self.spans.append(document)
            points = {
                (metric["name"], json.dumps(point["attributes"])): point
                for resource in document.get("resource_metrics", ())
                for scope in resource["scope_metrics"]
                for metric in scope["metrics"]
                for point in metric["data"]["data_points"]
            }
            turns = {
                point["attributes"]["endturn.turn.outcome"]: point["value"]
                for (name, _), point in points.items()
                if name == "endturn.turns" and point["value"]
            }
            self.turns = Counter(turns) if points else self.turns

    def named(self, beginning: str) -> list[dict[str, Any]]:
        """The spans whose names begin so."""
        return [span for span in self.spans if span["name"].startswith(beginning)]


def _documents(written: str) -> Iterator[dict[str, Any]]:
    decoder, at = json.JSONDecoder(), 0
    while (at := written.find("{", at)) >= 0:
        try:
            document, at = decoder.raw_decode(written, at)
        except ValueError:
            at += 1
        else:
            yield document


def exported(code: str, replies: Sequence[Reply] = TOOL_LOOP, **variables: str) -> Exported:
    """Run a program as `endturn run` does, in this Python, against a scripted provider; it ends well."""
    with ScriptedProvider(list(replies), exhausted="last").serve() as url:
        given = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ENDTURN_"))}
        paths = [str(REPOSITORY / "src"), str(REPOSITORY), *filter(None, [given.get("PYTHONPATH")])]
        given |= {"PROVIDER_URL": url, "PYTHONPATH": os.pathsep.join(paths), "OTEL_LOGS_EXPORTER": "none"}
        given |= {"OTEL_TRACES_EXPORTER": "console", "OTEL_METRICS_EXPORTER": "console", **variables}
        command = [sys.executable, "-W", "ignore", "-c", PRELUDE + code]
        ran = subprocess.run(
            command,
            env=run.environment(given),
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert "Overriding" not in ran.stderr, ran.stderr
    assert "endturn" not in ran.stderr, ran.stderr
    return Exported(ran.stdout)


def assert_one_turn(seen: Exported, agent: str = "invoke_agent") -> None:
    """One run is one turn, within the agent's span, which has been exported with both calls below it."""
    assert seen.turns == {"completed": 1}
    told = [span for span in seen.named(agent) if "endturn.turn.id" in span["attributes"]]
    assert [span["attributes"]["endturn.turn.iterations"] for span in told] == [2], [
        span["name"] for span in seen.spans
    ]
    calls = [span for span in seen.spans if "endturn.stop.reason" in span["attributes"]]
    assert [span["attributes"]["endturn.stop.reason"] for span in calls] == ["tool_call", "end_turn"]
    (trace,) = {span["context"]["trace_id"] for span in (*told, *calls)}
    parents = {span["context"]["span_id"] for span in seen.spans} | {None}
    orphans = [
        span["name"] for span in seen.spans if span["context"]["trace_id"] == trace and span["parent_id"] not in parents
    ]
    assert orphans == []
