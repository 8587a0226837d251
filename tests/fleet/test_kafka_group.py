"""Gateways of one group, as a real Kafka sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.fleet import PARTITIONS, Kafka, Member
from tests.support.processes import collector_files, eventually

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

        def shares() -> list[float]:
            return [
                each.own("otelcol_kafka_receiver_partition_start") - each.own("otelcol_kafka_receiver_partition_close")
                for each in (one, other)
            ]

        with one, other:
            eventually(lambda: shares() == [PARTITIONS, PARTITIONS], what="balance", timeout=60)
            assert "FENCED" not in one.log.read_text() + other.log.read_text()
