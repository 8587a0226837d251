"""The oldest supported majors of the SDKs, and those between: instrumented, each in its own environment."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from endturn.scripted import ScriptedProvider, call, essay, fail, pause, truncate
from tests.sdks.build import Env, envs

pytestmark = pytest.mark.environments

ROOT = Path(__file__).parent.parent
EXPECTED = {
    "openai whole": ("length", ["max_tokens"]),
    "openai raw": ("length", ["max_tokens"]),
    "openai streamed": ("length", ["max_tokens"]),
    "openai asynchronous": ("length", ["max_tokens"]),
    "openai tools": ("tool_calls", ["tool_call"]),
    "openai overflow": ("context_length_exceeded", ["context_window_exceeded"]),
    "openai text": ("length", ["max_tokens"]),
    "responses whole": ("incomplete: max_output_tokens", ["max_tokens"]),
    "responses raw": ("incomplete: max_output_tokens", ["max_tokens"]),
    "responses streamed": ("incomplete: max_output_tokens", ["max_tokens"]),
    "responses asynchronous": ("incomplete: max_output_tokens", ["max_tokens"]),
    "responses left": ("response.created", ["cancelled"]),
    "responses fetched": ("in_progress, incomplete: max_output_tokens", ["max_tokens"]),
    "anthropic whole": ("max_tokens", ["max_tokens"]),
    "anthropic streamed": ("max_tokens", ["max_tokens"]),
    "anthropic helper": ("max_tokens", ["max_tokens"]),
    "anthropic asynchronous": ("max_tokens", ["max_tokens"]),
}


@pytest.mark.parametrize("env", [pytest.param(env, id=name) for name, env in envs().items() if not env.tests])
def test_each_environment(env: Env) -> None:
    """Every way of asking gives the SDK's own reason, and exactly one record of ours."""
    assert env.built, f"{env.says}: not installed: python tests/sdks/build.py {env.name}"
    provider = ScriptedProvider(
        {
            "*": essay("One two three four five six."),
            "tools": lambda request: call("clock"),
            "overflow": lambda request: fail(400, "context_length_exceeded"),
            "job": lambda request: pause(),
            "": lambda request: truncate("One two three four five six.", after=2),  # a fetch names no model
        }
    )
    with provider.serve() as url:
        ran = subprocess.run(
            [env.python, "-W", "ignore", ROOT / "tests" / "sdks" / "probe.py", url],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "ANTHROPIC_OPEN_TELEMETRY": "false"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert ran.returncode == 0, ran.stderr[-3000:]
    found = json.loads(ran.stdout.splitlines()[-1])
    assert found["calls"], "no SDK was found"
    told = {says: (each["reason"], each["recorded"]) for says, each in found["calls"].items()}
    assert told == {says: expected for says, expected in EXPECTED.items() if says in told}
    for package in env.packages:
        name, _, pinned = package.partition("==")
        assert found["versions"].get(name, pinned) == pinned
        assert name not in ("openai", "anthropic") or name in found["versions"]
