"""Kafka's addresses: one, or several of which each is asked."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.fleet import Member
from tests.support.fleet_load import plain_turns
from tests.support.processes import ALL_IN_ONE, LOOPBACK, collector_files, eventually

pytestmark = pytest.mark.stack

ROLES = {"agent": (*ALL_IN_ONE, *collector_files("kafka_agent")), "gateway": collector_files("kafka_gateway")}


@pytest.mark.parametrize("brokers", [1, 2])
@pytest.mark.parametrize("role", ROLES)
def test_each_address_is_asked(role: str, brokers: int, tmp_path: Path) -> None:
    """Until one answers as Kafka does, which none does here."""
    with ExitStack() as stack:
        listening = [stack.enter_context(socket.create_server((LOOPBACK, 0))) for _ in range(brokers)]
        for each in listening:
            each.setblocking(False)
        addresses = ",".join(f"{LOOPBACK}:{each.getsockname()[1]}" for each in listening)
        member = stack.enter_context(Member(tmp_path, role, ROLES[role], ENDTURN_KAFKA=addresses))
        if role == "agent":  # it asks when there is something to send
            plain_turns([member, member], 1)
        asked: set[socket.socket] = set()

        def every() -> bool:
            for each in listening:
                try:
                    each.accept()[0].close()
                except BlockingIOError:
                    continue
                asked.add(each)
            return len(asked) == brokers

        eventually(every, what="a connection to each address", timeout=60)
