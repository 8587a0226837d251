"""Command-line agents: a scan of their sessions matches the replies of a scripted provider."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from endturn.scan import scan
from endturn.testing.scripted import Reply, ScriptedProvider, break_off, call, fail, say, truncate
from endturn.vocabulary import Request
from tests.sdks.build import envs

pytestmark = pytest.mark.environments

SECONDS = 240
REASONS = ("tool_call", "error", "half a text", "max_tokens", "end_turn")
TITLE = "a title call"


@dataclass(frozen=True)
class Agent:
    """A command-line agent.

    Attributes:
        environment: in `tests/sdks/envs.toml`; program: the command.
        arguments: of one run without a terminal.
        tool: a tool call that needs no permission.
        set_up: writes its settings for a provider's URL into the home, and returns environment variables.
        sent: what the provider sends, in order, apart from answers to calls for a title.
        logged: the same as the session has it: the list of what is not there, or is there as something else.
    """

    environment: str
    program: str
    arguments: Sequence[str]
    tool: tuple[str, Mapping[str, Any]]
    set_up: Callable[[Path, str], Mapping[str, str]]
    sent: Sequence[str]
    logged: Sequence[str]


def claude(home: Path, url: str) -> Mapping[str, str]:
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "none",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def codex(home: Path, url: str) -> Mapping[str, str]:
    settings = f"""
        model = "m"
        model_provider = "local"
        [model_providers.local]
        name = "local"
        base_url = "{url}/v1"
        env_key = "KEY"
        wire_api = "responses"
    """
    write(home / ".codex" / "config.toml", settings)
    return {"KEY": "none"}


def opencode(home: Path, url: str) -> Mapping[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {"m": {"limit": {"context": 100_000, "output": 8000}}},
    }
    settings = {"provider": {"local": provider}, "model": "local/m", "autoupdate": False, "share": "disabled"}
    write(home / ".config" / "opencode" / "opencode.json", json.dumps(settings))
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def pi(home: Path, url: str) -> Mapping[str, str]:
    model = {
        "id": "m", "name": "m", "reasoning": False, "input": ["text"], "contextWindow": 100_000, "maxTokens": 8000,
        "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0),
    }  # fmt: skip
    local = {"baseUrl": f"{url}/v1", "apiKey": "none", "api": "openai-completions", "models": [model]}
    write(home / ".pi" / "agent" / "models.json", json.dumps({"providers": {"local": local}}))
    return {"PI_OFFLINE": "1"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


AGENTS = [
    # Each attempt that failed has a line, and the text of a stream that broke is lost. It goes on by itself with what
    # was cut.
    Agent(
        "claude-code", "claude", ("-p", "go"), ("Read", {"file_path": "notes.txt"}), claude,
        sent=REASONS, logged=("tool_call", "error", "error", "max_tokens", "end_turn"),
    ),
    # Attempts that were repeated leave no line, whether they failed or broke off. A cut answer ends the turn.
    Agent(
        "codex", "codex", ("exec", "--skip-git-repo-check", "go"), ("update_plan", {"plan": []}), codex,
        sent=REASONS[:-1], logged=("tool_call", "max_tokens"),
    ),
    # So do those of opencode, and so does the call for the session's title.
    Agent(
        "opencode", "opencode", ("run", "go"), ("read", {"filePath": "notes.txt"}), opencode,
        sent=REASONS[:-1], logged=("tool_call", "max_tokens"),
    ),
    # The OpenAI SDK within pi repeats what failed; pi repeats what broke off, and has a line for it.
    Agent(
        "pi", "pi", ("-p", "--provider", "local", "--model", "m", "go"), ("read", {"path": "notes.txt"}), pi,
        sent=REASONS[:-1], logged=("tool_call", "error", "max_tokens"),
    ),
]  # fmt: skip


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.environment)
def test_a_session_has_the_provider_s_facts(agent: Agent, tmp_path: Path) -> None:
    installed = envs()[agent.environment]
    assert installed.built, f"not installed: python tests/sdks/build.py {agent.environment}"
    name, arguments = agent.tool
    replies = {
        "tool_call": call(name, dict(arguments)),
        "error": fail(500),
        "half a text": break_off("one two three four", after=2),
        "max_tokens": truncate("one two three four", after=2),
        "end_turn": say("all of it"),
    }
    journal: list[str] = []

    def reply(request: Request) -> Reply:
        if not request.tools:  # a call for a title
            return say("A title")
        assert len(journal) < len(agent.sent), journal
        journal.append(agent.sent[len(journal)])
        return replies[journal[-1]]

    project = tmp_path / "project"
    write(project / "notes.txt", "hello")
    with ScriptedProvider(reply).serve() as url:
        variables = agent.set_up(tmp_path, url)
        ran = subprocess.run(
            [installed.program(agent.program), *agent.arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "dumb", "LANG": "C.UTF-8", **variables},
            cwd=project, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
    assert journal == [*agent.sent], ran.stdout + ran.stderr
    (turn,) = [ended for ended in scan([tmp_path]).turns if ended.past.has_user_message]
    assert [call.response.stop.reason.value for call in turn.past.calls] == [*agent.logged]
    assert turn.turn.truncated
    assert turn.turn.unfinished is (agent.logged[-1] == "max_tokens")
