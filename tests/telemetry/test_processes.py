"""Forked, spawned and pre-forked processes, and trio: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
import trio

from endturn.scripted import ScriptedProvider
from tests.support.agents import APPS, SCRIPT, World, world
from tests.support.processes import LOOPBACK, eventually, free_port
from tests.telemetry.mocked import Records, settle

ONE_ID = {"OTEL_RESOURCE_ATTRIBUTES": "service.instance.id=pod-7,service.name=workers"}
INSTANCE = re.compile(r"pod-7-\d+-[0-9a-f]{4}")


@pytest.fixture
def agents() -> Iterator[World]:
    with world() as made:
        yield made


# --- Processes -----------------------------------------------------------------------------------------------------


def way_of(where: str, way: str, *, slow: bool = False) -> Any:
    return pytest.param(where, way, id=f"{where}, {way}", marks=[pytest.mark.slow] * slow)


@pytest.mark.parametrize(
    ("where", "way"),
    [
        way_of("main", "fork"),  # os.fork: gunicorn, below
        way_of("main", "forkserver", slow=True),
        way_of("main", "spawn", slow=True),  # under one id: below
        way_of("task", "fork", slow=True),
        way_of("task", "forkserver"),
        way_of("endturn run", "fork", slow=True),
        way_of("endturn run", "forkserver", slow=True),
        way_of("endturn run", "os.fork"),
        way_of("opentelemetry-instrument", "fork"),
        way_of("opentelemetry-instrument", "spawn", slow=True),
    ],
)
def test_workers_lose_nothing(agents: World, where: str, way: str) -> None:
    """However workers are started, and wherever telemetry is set up: each has a name and counts of its own.

    `multiprocessing` ends forked workers without exit handlers; the cut answer's turn, which still waits for its
    continuation then, is not lost either.
    """
    variables = {"PARENT": "1", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}
    command: list[str | Path] = [sys.executable]
    if where in ("main", "task"):
        variables |= {"CONFIGURE": where, **ONE_ID}
    else:
        command = ["opentelemetry-instrument", "python"] if "opentelemetry" in where else ["endturn", "run", "python"]
    if where == "task":
        del variables["PARENT"]  # the parent is not observed
    agents.run(*command, APPS / "workers.py", way, "2", env=variables)
    parent = "PARENT" in variables
    agents.saw(done=4 + parent, cut=2 + parent)
    counted = {name: sums.get("endturn.responses", 0) for name, sums in agents.received.sums.items()}
    assert sorted(count for count in counted.values() if count) == [2, 3, 3] if parent else [3, 3]
    if where in ("main", "task"):
        assert all(INSTANCE.fullmatch(name) for name in counted)


@pytest.mark.parametrize(
    ("where", "preload"),
    [
        pytest.param("one line", True, id="one line, preload"),
        pytest.param("one line", False, id="one line in each worker", marks=pytest.mark.slow),
        pytest.param("endturn run", False, id="endturn run"),
        pytest.param("opentelemetry-instrument", True, id="opentelemetry-instrument, preload", marks=pytest.mark.slow),
    ],
)
def test_pre_forked_workers_of_a_server(agents: World, tmp_path: Path, where: str, preload: bool) -> None:
    """gunicorn's workers: each counts its own requests, and exports them when the server is told to stop."""
    start = {"one line": [], "endturn run": ["endturn", "run"]}.get(where, [where])
    variables = agents.variables(
        **ONE_ID, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf", **({"CONFIGURE": "1"} if where == "one line" else {})
    )
    port = free_port()
    command = [*start, "gunicorn", "--workers=2", f"--bind={LOOPBACK}:{port}", "--no-control-socket"]
    command += ["--preload"] * preload + ["tests.apps.web:app"]
    log = tmp_path / "log"

    def get(path: str) -> str:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{port}/{path}", timeout=30) as answer:
            return str(answer.read().decode())

    with log.open("wb") as sink:
        server = subprocess.Popen(command, env=variables, stdout=sink, stderr=sink)
        try:
            eventually(lambda: answers(get), what="gunicorn to answer")
            with ThreadPoolExecutor(4) as pool:
                served = list(pool.map(get, ["done", "done", "cut"] * 4))
        finally:
            server.send_signal(signal.SIGTERM)
            assert server.wait(60) == 0, log.read_text()
    assert "Traceback" not in log.read_text()
    agents.saw(done=8, cut=4)
    by_worker = sorted(served.count(worker) for worker in set(served))
    counted = [sums.get("endturn.responses", 0) for sums in agents.received.sums.values()]
    assert sorted(count for count in counted if count) == by_worker


def answers(get: Any) -> bool:
    try:
        return bool(get(""))
    except OSError:
        return False


def test_workers_under_one_configured_id_are_told_apart(agents: World) -> None:
    """Four spawned processes: four ids, and each process's own sums under its own."""
    code = "from bare import ask; import endturn; endturn.configure()\n" + "ask('done', '1')\n" * 3
    variables = agents.variables(**ONE_ID, PYTHONPATH=str(APPS))
    workers = [subprocess.Popen([sys.executable, "-c", code], env=variables) for _ in range(4)]
    assert [worker.wait(60) for worker in workers] == [0] * 4
    assert [sums["endturn.responses"] for sums in agents.received.sums.values()] == [3] * 4
    assert all(INSTANCE.fullmatch(name) for name in agents.received.sums)


# --- trio ----------------------------------------------------------------------------------------------------------


# trio warns of the SDKs' own generators when a stream is closed early, observed or not.
@pytest.mark.filterwarnings("ignore:Async generator:ResourceWarning")
def test_async_clients_on_trio(records: Records) -> None:
    """Whole, streamed, left, at once and cancelled: calls that run in one thread have turns of their own."""
    ask: Any = {"messages": [{"role": "user", "content": "?"}], "max_tokens": 8}

    async def main() -> None:
        with ScriptedProvider(SCRIPT, exhausted="last").serve() as url:
            async with (
                openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as chat,
                anthropic.AsyncAnthropic(base_url=url, api_key="none", max_retries=0) as claude,
            ):
                await chat.chat.completions.create(model="cut", **ask)
                async with await chat.chat.completions.create(model="done", stream=True, **ask) as left:
                    await anext(left)
                async with claude.messages.stream(model="done", **ask) as stream:
                    await stream.get_final_message()
                async with trio.open_nursery() as nursery:
                    for _ in range(5):
                        nursery.start_soon(partial(claude.messages.create, model="done", **ask))
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await claude.messages.create(model="done", **ask)

    trio.run(main)
    settle()
    assert [str(record.stop.reason) for record in records.ended] == [
        "max_tokens", "cancelled", *["end_turn"] * 6, "cancelled",
    ]  # fmt: skip
    assert len({record.started.turn.id for record in records.ended}) == len(records.started) == 9
