"""Gateways of one group, as a real Kafka sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleet import Kafka, Member, balanced
from tests.support.processes import collector_files

pytestmark = pytest.mark.stack

GATEWAY = collector_files("kafka_gateway")


def test_gateways_without_an_id_share_the_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that nobody named are two members of the group: neither drives the other out."""
    monkeypatch.delenv("HOSTNAME", raising=False)
    with Kafka(tmp_path) as kafka:
        kafka.create_topics()
        one, other = (Member(tmp_path, name, GATEWAY, ENDTURN_KAFKA=kafka.address) for name in ("one", "other"))
        for each in (one, other):
            del each.env["ENDTURN_COLLECTOR_ID"]
        with one, other:
            balanced([one, other])
            assert "FENCED" not in one.log.read_text() + other.log.read_text()
