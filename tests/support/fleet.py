"""A fleet on one machine: agents, Kafka, a group of gateways, a hash ring of Thanos receivers, and what asks them.

    with Fleet(tmp_path) as fleet:
        ...  # send OTLP to fleet.agents[0].url, look at fleet.store.passed_on(), ask fleet.query.client

Every part runs as itself, with the configurations that are shipped. Only addresses, ports and intervals differ. In
place of Tempo and Loki stands one Collector that writes what comes from each gateway to a file of its own.
"""

from __future__ import annotations

import json
import socket
import string
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from stack import build
from tests.support import faster
from tests.support.processes import (
    ALL_IN_ONE,
    LOOPBACK,
    REPOSITORY,
    Alertmanager,
    Collector,
    Engine,
    PrometheusClient,
    Server,
    Webhook,
    Written,
    collector_files,
    eventually,
    free_port,
    require_stack,
    scraping,
    self_signed,
    shipped,
)

PARTITIONS: Final = 12
GATEWAYS: Final = 3
TURNS, TRUNCATED = "endturn.turns", "endturn.truncated"
USER = ("endturn", "planted-password")
"""Whom Kafka lets in where it asks."""
TIMES: Final = 15
"""How much faster the rules' clock is: an export is a second."""
OFFSET: Final = 2
"""How many seconds ago rules look."""


class Kafka(Server):
    """One broker, with the two topics; at `secured` it lets in `USER` alone."""

    def __init__(self, folder: Path) -> None:
        require_stack("kafka")
        ports = {each: free_port() for each in ("plain", "secured", "controller")}
        addresses = {name: f"{LOOPBACK}:{port}" for name, port in ports.items()}
        self.address, self.secured = addresses["plain"], addresses["secured"]
        folder.mkdir(parents=True, exist_ok=True)
        self.certificate, key = self_signed(folder)
        (folder / "kafka.pem").write_text(key.read_text() + self.certificate.read_text())
        file = folder / "kafka.properties"
        template = string.Template((REPOSITORY / "tests" / "data" / "kafka.properties").read_text())
        file.write_text(template.substitute(addresses, folder=folder))
        self._java = ["java", "-Xmx256m", "-Xlog:disable", "-cp", f"{build.recipes()['kafka'].folder}/*"]
        name, password = USER
        user = ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        format_ = [*self._java, "kafka.tools.StorageTool", "format", "-t", "endturnendturnendturnA", "-c", str(file)]
        subprocess.run([*format_, *user], check=True, capture_output=True)

        def listens() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex((LOOPBACK, ports["plain"])) == 0

        command = [*self._java, "kafka.Kafka", str(file)]
        super().__init__("kafka", command, log=folder / "kafka.log", ready=listens, timeout=60.0)

    def create_topics(self) -> None:
        """As an operator does, once."""
        for topic in (TURNS, TRUNCATED):
            options = ["--partitions", str(PARTITIONS), "--replication-factor", "1"]
            options += ["--config", "max.message.bytes=4194304"]
            self._ask("org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic, *options)

    def keep(self, **settings: int) -> None:
        """Set how much of the turns' topic is kept, by settings of a topic; without any, as it is by default."""
        change = ["--add-config", ",".join(f"{name.replace('_', '.')}={value}" for name, value in settings.items())]
        unset = ["--delete-config", "retention.bytes,segment.ms"]
        entity = ["--entity-type", "topics", "--entity-name", TURNS]
        self._ask("kafka.admin.ConfigCommand", "--alter", *entity, *(change if settings else unset))

    def lag(self) -> int:
        """How many records of the turns' topic the gateways have not yet said that they read."""
        return sum(int(row["LAG"]) if row["LAG"] != "-" else 0 for row in self._read().values())

    def deleted(self) -> int:
        """How many records are not there any more that the gateways have not said that they read."""
        told = self._ask("org.apache.kafka.tools.GetOffsetShell", "--topic", TURNS, "--time", "earliest")
        first = {partition: int(offset) for _, partition, offset in (line.split(":") for line in told.split())}
        read = {partition: row["CURRENT-OFFSET"] for partition, row in self._read().items()}
        return sum(max(0, first[each] - int(offset)) for each, offset in read.items() if offset != "-")

    def _read(self) -> dict[str, dict[str, str]]:
        """What the broker says of each partition of the turns' topic and who reads it."""
        group = "endturn-turns"
        table = self._ask("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
        head, *rows = [words for line in table.splitlines() if (words := line.split())[:1] in (["GROUP"], [group])]
        found = {row["PARTITION"]: row for row in (dict(zip(head, row, strict=False)) for row in rows)}
        assert len(found) == PARTITIONS
        return found

    def _ask(self, tool: str, *options: str) -> str:
        command = [*self._java, tool, "--bootstrap-server", self.address, *options]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Member(Collector):
    """A Collector of the fleet, as it is shipped. It waits a second at most between attempts."""

    def __init__(self, folder: Path, name: str, configs: Sequence[Path], **environment: str) -> None:
        own = {"ENDTURN_COLLECTOR_ID": name, "ENDTURN_RETRY_SECONDS": "1"}
        super().__init__(folder / name, name, config=configs, to_files=False, environment=own | environment)

    def partitions(self) -> float:
        """How many partitions it reads, of both topics."""
        opened, closed = (self.own(f"otelcol_kafka_receiver_partition_{what}") for what in ("start", "close"))
        return opened - closed


class Span(NamedTuple):
    """What is looked at of a span in the store."""

    trace: str
    id: str
    cut: bool
    """Its call was cut off."""
    copied: bool
    """A copy of it comes through the topic of what was cut off."""


class Store(Collector):
    """In place of Tempo and Loki: a Collector with a way in, and a file, for each gateway; one for all logs."""

    def __init__(self, folder: Path) -> None:
        self.ports = [free_port() for _ in range(GATEWAYS)]
        variables = {f"GATEWAY_{n}": f"{LOOPBACK}:{port}" for n, port in enumerate(self.ports)}
        variables["FOLDER"] = str(folder)
        file = REPOSITORY / "tests" / "data" / "store.yaml"
        super().__init__(folder, "store", config=[file], to_files=False, environment=variables)
        self._files = [Written(folder / f"gateway_{n}.json") for n in range(GATEWAYS)]
        self._log = Written(folder / "logs.json")
        self._spans: list[list[Span]] = [[] for _ in range(GATEWAYS)]
        self._told: Counter[tuple[str, str]] = Counter()

    def passed_on(self) -> list[list[Span]]:
        """By gateway: every span that it has passed on."""
        for file, spans in zip(self._files, self._spans, strict=True):
            for span in file.read():
                cut = bool(span["attributes"].get("endturn.stop.truncated"))
                copied = cut or bool(span["attributes"].get("endturn.turn.truncated"))
                spans.append(Span(span["traceId"], span["spanId"], cut, copied))
        return self._spans

    def told(self) -> Counter[tuple[str, str]]:
        """How often any agent has told each event of each trace, by the trace's id and the event's name."""
        self._told.update((record.get("traceId", ""), record.get("eventName", "")) for record in self._log.read())
        return self._told


class Thanos(Server):
    """One of its commands, on free ports."""

    def __init__(self, folder: Path, command: str, *options: str, name: str = "") -> None:
        self.name = name or command
        self.http, self.grpc = f"{LOOPBACK}:{free_port()}", f"{LOOPBACK}:{free_port()}"
        self.url = f"http://{self.http}"
        self.client = PrometheusClient(self.url)
        listening = [f"--http-address={self.http}", f"--grpc-address={self.grpc}"]
        super().__init__(
            self.name,
            [require_stack("thanos")["thanos"], command, *listening, *options],
            log=folder / f"{self.name}.log",
            ready=f"{self.url}/-/ready",
        )


class Metrics(Engine):
    """Prometheus: as the agent beside a Collector (`stack/prometheus-agent.yml`), or whole, to compare with."""

    def __init__(
        self,
        folder: Path,
        name: str,
        *,
        writes: Sequence[str] = (),
        scrapes: Mapping[str, Sequence[str]] | None = None,
        rules: Path | None = None,
    ) -> None:
        config = shipped("stack/prometheus-agent.yml")
        [write] = config["remote_write"]
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        config["remote_write"] = [write | {"url": url} for url in writes]
        config["scrape_configs"] = scraping(config, scrapes or {})
        if rules is not None:
            config["rule_files"] = [str(rules)]
            config["global"]["rule_query_offset"] = f"{OFFSET}s"
        flags = ["--web.enable-otlp-receiver", "--enable-feature=created-timestamp-zero-ingestion,exemplar-storage"]
        if writes:
            flags += ["--agent", f"--storage.agent.path={folder / name}"]
        else:
            flags += ["--web.enable-remote-write-receiver", f"--storage.tsdb.path={folder / name}"]
        super().__init__(folder, "prometheus", config, *flags, name=name)
        self.client = PrometheusClient(self.url)


def balanced(gateways: Sequence[Member]) -> None:
    """Wait until each reads its share of both topics."""
    share = 2 * PARTITIONS // len(gateways)
    eventually(lambda: all(each.partitions() == share for each in gateways), what="balance", timeout=90)


class Fleet:
    """Everything, started in the order of the flow and stopped in the reverse of it."""

    def __init__(
        self,
        folder: Path,
        *,
        agents: int = 2,
        gateways: int = GATEWAYS,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.kafka = Kafka(folder)
        self.store = Store(folder)
        self.webhook = Webhook()
        self.receivers = _ring(folder)
        [rules] = faster.rules(folder, TIMES)
        self.compared = Metrics(folder, "prometheus", rules=rules)
        writes = [f"http://{self.receivers[0].remote_write}/api/v1/receive", f"{self.compared.url}/api/v1/write"]
        every = {"ENDTURN_KAFKA": self.kafka.address, "ENDTURN_TEMPO_INSECURE": "true"} | dict(environment or {})
        self.gateways = [
            Member(
                folder,
                f"gateway-{n}",
                collector_files("kafka_gateway"),
                ENDTURN_TEMPO_ENDPOINT=f"{LOOPBACK}:{self.store.ports[n]}",
                **every,
            )
            for n in range(gateways)
        ]
        self.writers: list[Metrics] = []
        self.agents: list[Member] = []
        files = (*ALL_IN_ONE, *collector_files("kafka_agent"))
        for n in range(agents):
            agent = Member(folder, f"agent-{n}", files, ENDTURN_LOKI_URL=self.store.url, **every)
            beside = [agent, *(self.gateways if n == 0 else [])]
            scrapes = {
                "collector": [each.metrics_address for each in beside],
                "collector-counts": [agent.counts_address],
            }
            writer = Metrics(folder, f"writer-{n}", writes=writes, scrapes=scrapes)
            agent.env["ENDTURN_PROMETHEUS_URL"] = writer.url
            self.agents.append(agent)
            self.writers.append(writer)
        endpoints = [f"--endpoint={receiver.grpc}" for receiver in self.receivers]
        replicas = ["--query.replica-label=receive", "--query.replica-label=rule"]
        self.query = Thanos(folder, "query", *endpoints, *replicas)
        self.rule = Thanos(
            folder,
            "rule",
            '--label=rule="1"',
            f"--data-dir={folder / 'rule'}",
            f"--rule-file={rules}",
            f"--rule-query-offset={OFFSET}s",
            f"--query={self.query.url}",
            "--alert.label-drop=rule",
            "--resend-delay=2s",
        )
        self.query.command.append(f"--endpoint={self.rule.grpc}")
        self._folder = folder
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            webhook = stack.enter_context(self.webhook)
            self.alertmanager = stack.enter_context(Alertmanager(self._folder, webhook=webhook.url))
            self.rule.command.append(f"--alertmanagers.url={self.alertmanager.url}")
            stack.enter_context(self.kafka)
            self.kafka.create_topics()
            behind: Sequence[Server] = (self.store, *self.receivers, self.query, self.rule, self.compared)
            for server in (*behind, *self.writers, *self.gateways, *self.agents):
                stack.enter_context(server)
            balanced(self.gateways)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)


class Receiver(Thanos):
    """A member of the hash ring."""

    def __init__(self, folder: Path, name: str, remote_write: str, hashring: Path) -> None:
        self.remote_write = remote_write
        super().__init__(
            folder,
            "receive",
            f"--remote-write.address={remote_write}",
            f"--tsdb.path={folder / name}",
            f'--label=receive="{name}"',
            f"--receive.hashrings-file={hashring}",
            "--receive.hashrings-algorithm=ketama",
            "--tsdb.max-exemplars=100000",
            "--tsdb.out-of-order.time-window=30m",
            f"--receive.capnproto-address={LOOPBACK}:{free_port()}",
            name=name,
        )
        self.command.append(f"--receive.local-endpoint={self.grpc}")


def _ring(folder: Path) -> list[Receiver]:
    hashring = folder / "hashring.json"
    members = [Receiver(folder, f"receive-{n}", f"{LOOPBACK}:{free_port()}", hashring) for n in range(2)]
    hashring.write_text(json.dumps([{"endpoints": [member.grpc for member in members]}]))
    return members
