"""Workers of Celery, RQ and billiard: none runs exit handlers, and none loses what it recorded, in any signal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import fakeredis
import pytest
import redis
import rq

from endturn.testing.scripted import ScriptedProvider, essay
from tests.support.processes import LOOPBACK, REPOSITORY, eventually, free_port
from tests.support.receiver import Receiver, receiving

ENDTURN = [sys.executable, "-c", "from endturn.cli._main import main; main()"]
TASKS = 3
RQ_WORKER = """
import redis, rq, rq.worker
connection = redis.Redis(port={port})
# What fakeredis says of a client, redis-py cannot read.
connection.set_response_callback("CLIENT INFO", lambda *_, **__: {{"addr": "unknown"}})
rq.worker.{kind}([rq.Queue(connection=connection)], connection=connection).work(burst=True)
"""


@dataclass(frozen=True)
class World:
    """A provider, a receiver of telemetry, and a folder for the workers."""

    provider: str
    received: Receiver
    folder: Path

    def variables(self, way: str, **more: str) -> dict[str, str]:
        """A worker's environment: nothing of OpenTelemetry's but where signals go. No interval of an exporter ends
        before the worker does."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ENDTURN_"))}
        return own | {
            "OPENAI_BASE_URL": f"{self.provider}/v1",
            "OPENAI_API_KEY": "none",
            "OTEL_EXPORTER_OTLP_ENDPOINT": self.received.url,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_METRIC_EXPORT_INTERVAL": "600000",
            "OTEL_BSP_SCHEDULE_DELAY": "600000",
            "OTEL_BLRP_SCHEDULE_DELAY": "600000",
            "FOLDER": str(self.folder),
            "WAY": way,
            **more,
        }

    def done(self) -> int:
        """How many tasks have had their answer."""
        return len(list(self.folder.glob("done-*")))

    def saw(self, calls: int, log: str) -> None:
        """Compare what arrived with what was asked: each answer once in every signal, its turn ended."""
        received = self.received
        assert received.counts("endturn.responses", "endturn.stop.reason") == {"max_tokens": calls}, log
        assert received.total("endturn.truncation.exits") == calls, log
        assert [*chain(*received.spans.values())] == ["chat cut"] * calls, log
        events = [*chain(*received.events.values())]
        assert events.count("endturn.stop_reason_observed") == calls, log


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A scripted provider over HTTP, and a receiver."""
    for name in ("queue", "processed", "control"):
        (tmp_path / name).mkdir()
    words = essay("Twelve short words make an answer that the limit of tokens will cut.")
    with ScriptedProvider(words, exhausted="last").serve() as url, receiving() as received:
        yield World(url, received, tmp_path)


@pytest.mark.parametrize("way", ["configure", "own", "run"])
@pytest.mark.parametrize("most", [1, 0], ids=["recycled children", "a warm shutdown"])
def test_celery(world: World, way: str, most: int) -> None:
    """A child that is recycled after its task, and one that ends with the worker, have exported all by then. None uses
    a connection of the worker, which has asked and exported before."""
    in_parent = 0 if way == "own" else 1
    variables = world.variables(way, MOST_TASKS=str(most), PARENT="exports" if in_parent else "")
    code = f"from tests.environments.workers.tasks import ask\nfor i in range({TASKS}): ask.delay(i)"
    quiet = variables | {"OTEL_SDK_DISABLED": "true", "PARENT": ""}
    subprocess.run([sys.executable, "-c", code], env=quiet, cwd=REPOSITORY, check=True)
    command = [sys.executable, "-m", "celery", "-A", "tests.environments.workers.tasks", "worker", "-P", "prefork"]
    command += ["-c", "1", "-l", "INFO", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    if way == "run":
        command = [*ENDTURN, "run", "--", *command]
    log = world.folder / "log"
    with log.open("wb") as sink:
        worker = subprocess.Popen(command, env=variables, cwd=REPOSITORY, stdout=sink, stderr=sink)
        try:
            eventually(lambda: world.done() == TASKS, what="all tasks to be done", timeout=120)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(90)
    said = log.read_text()
    assert worker.returncode == 0, said
    assert "Warm shutdown" in said
    world.saw(TASKS + in_parent, said)
    assert world.received.shared == [], "two processes exported over one connection"


@pytest.mark.parametrize("way", ["configure", "own", "run"])
@pytest.mark.parametrize("kind", ["Worker", "SpawnWorker"])
def test_rq(world: World, way: str, kind: str) -> None:
    """A work horse, forked or spawned, has exported all before it ends, whether its job succeeds or fails."""
    port = free_port()
    server = fakeredis.TcpFakeServer((LOOPBACK, port), server_type="redis")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        queue = rq.Queue(connection=redis.Redis(LOOPBACK, port))
        for number in range(TASKS):
            queue.enqueue("tests.environments.workers.tasks.call", number)
        code = RQ_WORKER.format(port=port, kind=kind)
        command = [sys.executable, "-c", code]
        if way == "run":
            command = [*ENDTURN, "run", "--", *command]
        variables = world.variables(way, FAIL="1")
        ran = subprocess.run(
            command, env=variables, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False
        )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    said = ran.stdout + ran.stderr
    assert (ran.returncode, world.done()) == (0, TASKS), said
    world.saw(TASKS, said)


@pytest.mark.parametrize("way", ["configure", "own"])
def test_billiard(world: World, way: str) -> None:
    """A process of billiard's own, forked, ends with its finalizers."""
    code = """
import billiard
from tests.environments.workers.tasks import call
workers = [billiard.Process(target=call, args=(number,)) for number in range(2)]
for worker in workers: worker.start()
for worker in workers: worker.join()
"""
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=world.variables(way), cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    world.saw(2, ran.stdout + ran.stderr)


def test_rq_keeps_its_own_methods_when_nobody_observes() -> None:
    """What is wrapped to learn of a horse's end is put back."""
    import endturn

    methods = ("handle_job_success", "handle_job_failure", "handle_job_retry")
    before = [getattr(rq.worker.Worker, name) for name in methods]
    endturn.instrument()
    during = [getattr(rq.worker.Worker, name) for name in methods]
    endturn.uninstrument()
    assert [getattr(rq.worker.Worker, name) for name in methods] == before
    assert all(new is not old for new, old in zip(during, before, strict=True))
