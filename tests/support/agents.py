"""Agents in processes of their own: what they ask, where their telemetry goes, how they ended."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from endturn.scripted import ScriptedProvider, essay, say
from endturn.scripted.script import Script
from tests.support.processes import REPOSITORY
from tests.support.receiver import Receiver, receiving

APPS = REPOSITORY / "tests" / "apps"
BIN = Path(sys.executable).parent
"""Where the commands of the environment's packages are."""
SCRIPT: Script = {
    "done": [say("Done.")],
    "cut": essay("Twelve short words make an answer that the limit of tokens will cut."),
}
"""`done` ends its turn; `cut` is cut off by any limit of less than 15 tokens."""


@dataclass(frozen=True)
class World:
    """A provider and a receiver of telemetry.

    Attributes:
        provider: its address.
        received: what has arrived.
    """

    provider: str
    received: Receiver

    def variables(self, **more: str) -> dict[str, str]:
        """An agent's environment: nothing of ours or OpenTelemetry's but where signals go, and `more`."""
        foreign = ("OTEL_", "ENDTURN_", "PYTHONPATH", "PYTHONWARNINGS")
        return {
            **{name: value for name, value in os.environ.items() if not name.startswith(foreign)},
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "OPENAI_BASE_URL": f"{self.provider}/v1",
            "OPENAI_API_KEY": "sk-planted-secret",
            "ANTHROPIC_BASE_URL": self.provider,
            "ANTHROPIC_API_KEY": "sk-ant-planted-secret",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.received.url,
            "OTEL_METRIC_EXPORT_INTERVAL": "600000",  # none of these agents lives that long
            **more,
        }

    def run(
        self, *command: str | Path, status: int = 0, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, which is to have this status."""
        done = subprocess.run(
            [str(word) for word in command],
            env=self.variables(**(env or {})),
            cwd=cwd or REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
        return done

    def saw(self, done: int, cut: int) -> None:
        """Compare all that arrived with what the agents asked: each response once, in every signal."""
        received, calls = self.received, done + cut
        reasons = {reason: count for reason, count in (("end_turn", done), ("max_tokens", cut)) if count}
        assert received.counts("endturn.responses", "endturn.stop.reason") == reasons
        assert received.total("endturn.turns") == calls
        assert received.total("endturn.truncation.exits") == cut
        spans = [name for names in received.spans.values() for name in names]
        assert sorted(spans) == ["chat cut"] * cut + ["chat done"] * done
        events = [name for names in received.events.values() for name in names]
        assert events.count("endturn.stop_reason_observed") == calls
        assert events.count("endturn.continuation_terminated") == cut


@contextmanager
def world() -> Iterator[World]:
    """A scripted provider over HTTP, and a receiver."""
    with ScriptedProvider(SCRIPT, exhausted="last").serve() as url, receiving() as received:
        yield World(url, received)
