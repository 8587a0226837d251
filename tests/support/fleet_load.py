"""Load for a fleet: processes that play turns with endturn, and an agent that tells of its calls without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Final

import httpx

from tests.support.fleet import Fleet, Member
from tests.support.otlp import Sent, Value, spans
from tests.support.processes import REPOSITORY, eventually, http

SPANS: Final = {"truncated": 3, "continued": 4, "whole": 3}
"""A turn's: of the request, of the turn, and one for each call."""
Turns = dict[str, str]
"""What kind each trace is of."""
BATCH: Final = 100
"""How many turns one request has spans of."""
PLAYED: Final = 1000
"""How many turns of a load the library plays at most: some tens a second, where two cores run the whole fleet, too."""
LASTS: Final = 40
"""Seconds that such a load takes at least: it is not to be over, on a fast machine, before a part is killed."""
CALL: Final[dict[str, Value]] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-5",
}


class Load:
    """A process that plays turns and sends them to an agent."""

    def __init__(self, agent: Member, *, turns: int, first: int = 0, service: str = "load", most: int = 1000) -> None:
        """It begins to count at `first`, and plays `most` turns a second at most."""
        self.turns = turns
        environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")} | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": agent.url,
            "OTEL_SERVICE_NAME": service,
            "OTEL_BSP_MAX_QUEUE_SIZE": "20000",
            "OTEL_BLRP_MAX_QUEUE_SIZE": "20000",
            "OTEL_METRIC_EXPORT_INTERVAL": "1000",
        }
        command = [sys.executable, str(REPOSITORY / "tests" / "apps" / "load.py"), *map(str, (turns, first, most))]
        # A file, for a pipe that nobody reads fills up.
        self._told = tempfile.NamedTemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=self._told)

    def played(self) -> Turns:
        """What it has played so far."""
        whole = Path(self._told.name).read_text().rpartition("\n")[0]  # it may be writing another line
        return dict(json.loads(line) for line in whole.splitlines())

    def ended(self) -> Turns:
        """What it has played, once it has played all, and ended."""
        self._process.communicate(timeout=1800)
        assert self._process.returncode == 0
        turns = self.played()
        self._told.close()
        assert len(turns) == self.turns
        return turns

    def stop(self) -> None:
        """End it before it has played all."""
        self._process.kill()
        self._process.communicate()
        self._told.close()


class MixedLoad:
    """Turns that are sent to all agents at once: some of the library, and in step with them those of an agent without.

    Two processes play what the library does; what it would not play in time has no library in it, and costs little.

    Attributes:
        taken: when which number of responses of the agent without had been taken.
        unsure: responses in requests that were sent once more, and may have been counted before.
    """

    def __init__(self, agents: Sequence[Member], turns: int, service: str) -> None:
        self.service = service
        self.own = min(turns // 2, PLAYED) // len(agents) * len(agents)
        self.plain = f"{service}-plain"
        self._agents = agents
        each = self.own // len(agents)
        self._loads = [Load(agent, turns=each, service=service, most=max(1, each // LASTS)) for agent in agents]
        self._plain: Turns = {}
        self.taken: list[tuple[float, int]] = [(0, 0)]
        self.unsure = 0
        self._sender = Thread(target=self._send, args=(turns - self.own,))
        self._sender.start()

    def played(self) -> float:
        """What part of it has been played."""
        return sum(len(load.played()) for load in self._loads) / self.own

    def ended(self) -> tuple[Turns, Turns]:
        """What was played of the library and of the others, once all of it was. Ask once."""
        self._sender.join()
        return {trace: kind for load in self._loads for trace, kind in load.ended().items()}, self._plain

    def _send(self, count: int) -> None:
        for first in range(0, count, BATCH):
            while self.played() < first / count:
                time.sleep(0.2)
            some, around, calls = halves(min(BATCH, count - first), service=self.plain)
            send(self._agents[0], around)
            self.unsure += len(some) * send(self._agents[-1], calls)
            self._plain |= some
            self.taken.append((time.time(), len(self._plain)))


def plain_turns(agents: Sequence[Member], count: int, *, service: str = "elsewhere") -> Turns:
    """Turns of an agent that does not use endturn: spans of its own, each trace's sent through different agents."""
    turns: Turns = {}
    for first in range(0, count, BATCH):
        some, around, calls = halves(min(BATCH, count - first), service=service)
        send(agents[0], around)
        send(agents[-1], calls)
        turns |= some
    return turns


def halves(count: int, *, service: str, every: int = 10) -> tuple[Turns, bytes, bytes]:
    """Such turns as two requests: the spans around each call, and the calls. One of `every` so many is cut off."""
    turns: Turns = {}
    around: list[Sent] = []
    calls: list[Sent] = []
    for n in range(count):
        trace, kind = os.urandom(16), "whole" if n % every else "truncated"
        reason = ["stop" if kind == "whole" else "length"]
        around += [Sent(name="request", trace=trace), Sent(name="agent", trace=trace)]
        calls.append(Sent(trace=trace, attributes=CALL | {"gen_ai.response.finish_reasons": reason}))
        turns[trace.hex()] = kind
    return turns, spans(around, service=service), spans(calls, service=service)


def send(agent: Member, body: bytes) -> int:
    """As an SDK does: what is not taken is sent again. How many times it came, and was not said to be taken."""
    unsure = 0

    def taken() -> bool:
        nonlocal unsure
        try:
            answer = http.post(f"{agent.url}/v1/traces", content=body, headers={"Content-Type": "application/json"})
        except httpx.ConnectError:  # nobody is there
            return False
        except httpx.HTTPError:
            unsure += 1
            return False
        unsure += not answer.is_success
        return answer.is_success

    eventually(taken, what=f"{agent.name} to take spans", timeout=120)
    return unsure


def traces(fleet: Fleet) -> list[dict[str, set[str]]]:
    """By gateway: the ids of each trace's spans that it has passed on."""
    every: list[dict[str, set[str]]] = []
    for passed_on in fleet.store.passed_on():
        every.append({})
        for span in passed_on:
            every[-1].setdefault(span.trace, set()).add(span.id)
    return every
