"""The demo and the command line, run as a stranger runs them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import pytest

from endturn.cli import _main
from endturn.cli.demo import report
from tests.support.processes import REPOSITORY
from tests.ui.conftest import page
from tests.ui.support import Served

__all__ = ["page"]  # a fixture


def without_otel() -> dict[str, str]:
    """The environment without any OTEL_ variable of ours."""
    return {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}


EXPECTED: dict[str, dict[str, Any]] = {
    "gpt-5-mini": {"truncated_turns": 2, "unfinished_turns": 2, "continued_turns": 0},
    "gpt-5": {"truncated_turns": 3, "unfinished_turns": 0, "continued_turns": 3},
    "gpt-5-nano": {"truncated_turns": 3, "unfinished_turns": 1, "continued_turns": 3},
    "claude-sonnet-5-5": {"blocked_tool_calls": 2, "unfinished_turns": 0},
    "claude-opus-4-1": {"responses": {"refused": 2}},
    "gpt-4.1": {"responses": {"missing": 2}},
    "gpt-oss-120b": {"responses": {"unknown": 2}},
}


def test_the_demo_shows_what_its_script_makes_happen() -> None:
    """By model: one-shot agents give up what is cut, loops and the controller do not, a cut tool call is not run."""
    done = subprocess.run(
        [sys.executable, "-m", "endturn", "demo", "--once", "--json"],
        env=without_otel(), cwd=REPOSITORY, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    played = json.loads(done.stdout)
    models = {row["model"]: row for row in played["models"]}
    for name, figures in EXPECTED.items():
        assert models[name].items() >= figures.items()
    assert sum(row["turns"] for row in models.values()) == 40
    text = report(played)
    assert [name for name in models if name not in text] == []
    assert "40 turns" in text
    assert "See it as a page:" in text
    assert "make" not in text  # where endturn is installed from a wheel there is no Makefile
    assert "The telemetry went to http://there" in report(played | {"exported_to": "http://there"})


def test_what_uvx_started_fetches_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By starting itself again, from where it was installed; without uv the message says the command."""
    started: list[list[str]] = []

    def execve(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        started.append([path, *arguments])
        monkeypatch.setattr(os, "environ", environment)
        raise SystemExit

    for name in ("endturn.cli.demo", "endturn.cli.demo_agents"):
        monkeypatch.delitem(sys.modules, name, raising=False)
        monkeypatch.delattr(name, raising=False)
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setenv("UV", "/bin/uv")
    with pytest.raises(SystemExit):
        _main.main(["demo", "--once"])
    ((*command, requirement, name, word, option),) = started
    assert command == ["/bin/uv", "/bin/uv", "tool", "run", "--from"]
    assert requirement == f"endturn[demo] @ {REPOSITORY.as_uri()}"
    assert (name, word, option) == ("endturn", "demo", "--once")
    assert _main.main(["demo", "--once"]) == 2  # once more would be for ever
    assert len(started) == 1
    assert "uvx --from endturn endturn demo" in capsys.readouterr().err


def test_an_endpoint_where_nothing_listens_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The demo says so at once, instead of playing to nobody."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    assert _main.main(["demo"]) == 2
    assert "nothing listens at OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:1" in capsys.readouterr().err


PLAY = "import sys; from endturn.cli import demo; from endturn.ui import server; server.PORT = int(sys.argv[1])"


def test_a_page_that_runs_is_not_filled_with_the_demo(page: Served) -> None:
    """The demo says that it has one of its own."""
    port = page.url.rpartition(":")[2]
    command = [sys.executable, "-c", f"{PLAY}; demo.run(with_page=True)", port]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=without_otel()
    ) as playing:
        assert playing.stdout is not None
        assert playing.stdout.readline().startswith(f"Port {port} is in use")
        assert page.url not in playing.stdout.readline()
        while "stays at" not in playing.stdout.readline():
            pass
        playing.send_signal(signal.SIGINT)
        playing.communicate(timeout=30)
    assert page.store.read_tuples("SELECT count(*) FROM spans") == [(0,)]


def test_a_port_has_the_page_served_there_without_a_terminal(page: Served) -> None:
    """A free one with 0; one that is in use is refused, as the page must not be elsewhere."""
    command = [sys.executable, "-m", "endturn", "demo", "--no-open", "--port"]
    busy = page.url.rpartition(":")[2]
    refused = subprocess.run([*command, busy], capture_output=True, text=True, env=without_otel(), check=False)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert f"an endturn page already runs at {page.url}" in refused.stderr
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, text=True, env=without_otel()) as playing:
        assert playing.stdout is not None
        first = playing.stdout.readline()
        playing.send_signal(signal.SIGINT)
        playing.communicate(timeout=60)
    assert first.startswith("endturn's page is at http://127.0.0.1:")
    assert page.url not in first


def test_a_mistake_in_the_endpoint_is_named_before_anything_is_played(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "localhost:4318")
    assert _main.main(["demo"]) == 2
    assert "has no scheme (http:// or https://): set it to http://localhost:4318" in capsys.readouterr().err
