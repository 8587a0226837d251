"""Agents and gateways of a real Kafka: how gateways share it, who is let in where it asks, and who is not."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.fleet import USER, Kafka, Member, Store, balanced
from tests.support.otlp import Sent, post, spans
from tests.support.processes import ALL_IN_ONE, LOOPBACK, collector_files, eventually, free_port, require_stack

pytestmark = pytest.mark.stack

TLS = collector_files("kafka_tls")
AGENT = (*ALL_IN_ONE, *collector_files("kafka_agent"), *TLS)
GATEWAY = (*collector_files("kafka_gateway"), *TLS)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    with Kafka(tmp_path_factory.mktemp("kafka")) as running:
        running.create_topics()
        yield running


def test_gateways_without_an_id_share_the_partitions(
    kafka: Kafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that nobody named are two members of the group: neither drives the other out."""
    monkeypatch.delenv("HOSTNAME", raising=False)
    one, other = (Member(tmp_path, name, GATEWAY[:1], ENDTURN_KAFKA=kafka.address) for name in ("one", "other"))
    for each in (one, other):
        del each.env["ENDTURN_COLLECTOR_ID"]
    with one, other:
        balanced([one, other])
        assert "FENCED" not in one.log.read_text() + other.log.read_text()


def test_spans_go_through_a_kafka_that_asks_who_it_is(kafka: Kafka, tmp_path: Path) -> None:
    """Encrypted, with SCRAM. A wrong password, and a certificate that nobody vouches for, let nothing through.

    Of its addresses each is asked: nobody listens at the first.
    """
    user, password = USER
    with Store(tmp_path) as store:
        right = {
            "ENDTURN_KAFKA": f"{LOOPBACK}:{free_port()},{kafka.secured}",
            "ENDTURN_KAFKA_CA": str(kafka.certificate),
            "ENDTURN_KAFKA_USER": user,
            "ENDTURN_KAFKA_PASSWORD": password,
        }
        to_store = {"ENDTURN_TEMPO_ENDPOINT": f"{LOOPBACK}:{store.ports[0]}", "ENDTURN_SAMPLE_PERCENT": "100"}
        to_store["ENDTURN_TEMPO_INSECURE"] = "true"
        with (
            Member(tmp_path, "gateway", GATEWAY, **right, **to_store),
            Member(tmp_path, "agent", AGENT, **right) as agent,
            Member(tmp_path, "stranger", AGENT, **right | {"ENDTURN_KAFKA_PASSWORD": "another"}) as stranger,
            Member(tmp_path, "doubter", AGENT, **right | {"ENDTURN_KAFKA_CA": ""}) as doubter,
        ):
            traces = {each.name: os.urandom(16) for each in (agent, stranger, doubter)}
            for each in (agent, stranger, doubter):
                assert post(f"{each.url}/v1/traces", spans([Sent(trace=traces[each.name])])) == 200
            eventually(lambda: "SASL_AUTHENTICATION_FAILED" in stranger.log.read_text(), what="a refusal")
            eventually(lambda: "certificate signed by unknown authority" in doubter.log.read_text(), what="a doubt")
            eventually(lambda: store.passed_on()[0], what="the span")
            assert {span.trace for span in store.passed_on()[0]} == {traces["agent"].hex()}
            assert password not in agent.log.read_text()


@pytest.mark.parametrize("files", [AGENT, GATEWAY], ids=["agent", "gateway"])
def test_without_a_user_it_does_not_start(files: tuple[Path, ...]) -> None:
    command = [str(require_stack("collector")["otelcol"]), "validate", *(f"--config={file}" for file in files)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ENDTURN_")}
    refused = subprocess.run(command, env=clean, capture_output=True, text=True, check=False)
    assert refused.returncode
    assert "username is required" in refused.stderr
