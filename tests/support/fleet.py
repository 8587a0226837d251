"""A fleet on one machine: agents, Kafka, a group of gateways, a hash ring of Thanos receivers, and what asks them.

    with Fleet(tmp_path) as fleet:
        ...  # send OTLP to fleet.agents[0].url, look at fleet.store.spans(1), ask fleet.query.client

Every part runs as itself, with the configurations that are shipped. Only addresses, ports and intervals differ. In
place of Tempo and Loki stands one Collector that writes what comes from each gateway to a file of its own.
"""

from __future__ import annotations

import json
import socket
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import yaml

from stack import build
from tests.support import faster
from tests.support.processes import (
    ALL_IN_ONE,
    LOOPBACK,
    REPOSITORY,
    Alertmanager,
    PrometheusClient,
    Server,
    Webhook,
    Written,
    collector_files,
    eventually,
    free_port,
    metric,
    require_stack,
)

PARTITIONS: Final = 12
"""Four for each gateway."""
TURNS, TRUNCATED = "endturn.turns", "endturn.truncated"
USER = ("endturn", "planted-password")
"""Whom Kafka lets in where it asks."""
TIMES: Final = 15
"""How much faster the rules' clock is: an export is a second."""
OFFSET: Final = 2
"""How many seconds ago rules look."""


class Kafka(Server):
    """One broker that is its own controller, in KRaft mode, with the two topics. It deletes once a second."""

    def __init__(self, folder: Path, *, certificate: tuple[Path, Path] | None = None) -> None:
        """With a certificate and its key it also listens at `secured`, for `USER`."""
        require_stack("kafka")
        self.port, secured, controller = free_port(), free_port(), free_port()
        self.address, self.secured = f"{LOOPBACK}:{self.port}", f"{LOOPBACK}:{secured}"
        self._java = ["java", "-Xmx256m", "-Xlog:disable", "-cp", f"{build.recipes()['kafka'].folder}/*"]
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "kafka.properties"
        listeners = [f"PLAINTEXT://{self.address}", f"CONTROLLER://{LOOPBACK}:{controller}"]
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL",
            "log.dirs": str(folder / "kafka"),
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "3",
            "group.initial.rebalance.delay.ms": "2000",
            "log.retention.check.interval.ms": "1000",
        }
        format_ = [*self._java, "kafka.tools.StorageTool", "format", "-t", "endturnendturnendturnA", "-c", str(file)]
        if certificate is not None:
            listeners.append(f"SASL_SSL://{self.secured}")
            both = folder / "kafka.pem"
            both.write_text("".join(part.read_text() for part in reversed(certificate)))
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(both),
                "sasl.enabled.mechanisms": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                    "org.apache.kafka.common.security.scram.ScramLoginModule required;"
                ),
            }
            name, password = USER
            format_ += ["--add-scram", f"SCRAM-SHA-512=[name={name},password={password}]"]
        settings["listeners"] = ",".join(listeners)
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        subprocess.run(format_, check=True, capture_output=True)
        super().__init__(
            "kafka",
            [*self._java, "kafka.Kafka", str(file)],
            log=folder / "kafka.log",
            ready=self._listens,
            timeout=60.0,
        )

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((LOOPBACK, self.port)) == 0

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


class Member(Server):
    """A Collector of the fleet, as it is shipped. It waits a second at most between attempts."""

    def __init__(self, folder: Path, name: str, configs: Sequence[Path], **environment: str) -> None:
        self.ports = {each: free_port() for each in ("GRPC", "HTTP", "HEALTH", "METRICS", "COUNTS")}
        self.url = f"http://{LOOPBACK}:{self.ports['HTTP']}"
        self.metrics_address = f"{LOOPBACK}:{self.ports['METRICS']}"
        self.counts_address = f"{LOOPBACK}:{self.ports['COUNTS']}"
        super().__init__(
            name,
            [require_stack("collector")["otelcol"], *(f"--config={config}" for config in configs)],
            log=folder / f"{name}.log",
            ready=f"http://{LOOPBACK}:{self.ports['HEALTH']}/",
            env={f"ENDTURN_COLLECTOR_{key}_PORT": str(port) for key, port in self.ports.items()}
            | {
                "ENDTURN_COLLECTOR_HOST": LOOPBACK,
                "ENDTURN_COLLECTOR_ID": name,
                "ENDTURN_COLLECTOR_DATA": str(folder / name),
                "ENDTURN_RETRY_SECONDS": "1",
            }
            | environment,
        )

    def own(self, name: str, **labels: str) -> float:
        """What it counts of itself: the sum of a metric's samples that carry these labels, 0 without any."""
        return metric(self.metrics_address, name, **labels)


class Span(NamedTuple):
    """What is looked at of a span in the store."""

    trace: str
    id: str
    cut: bool
    """Its call was cut off."""
    copied: bool
    """A copy of it comes through the topic of what was cut off."""


class Store(Server):
    """In place of Tempo and Loki: a Collector with a way in, and a file, for each gateway; one for all logs."""

    def __init__(self, folder: Path, gateways: int) -> None:
        self.ports = [free_port() for _ in range(gateways)]
        self.logs_port, metrics, health = free_port(), free_port(), free_port()
        self.loki = f"http://{LOOPBACK}:{self.logs_port}"
        ways = [f"gateway_{n}" for n in range(gateways)]
        taken = {"protocols": {"http": {"endpoint": f"{LOOPBACK}:{self.logs_port}", "logs_url_path": "/otlp/v1/logs"}}}
        config = {
            "receivers": {
                f"otlp/{way}": {"protocols": {"grpc": {"endpoint": f"{LOOPBACK}:{port}"}}}
                for way, port in zip(ways, self.ports, strict=True)
            }
            | {"otlp/logs": taken},
            "exporters": {
                f"file/{way}": {"path": str(folder / f"{way}.json"), "append": True, "flush_interval": "100ms"}
                for way in [*ways, "logs"]
            },
            "extensions": {"health_check": {"endpoint": f"{LOOPBACK}:{health}"}},
            "service": {
                "extensions": ["health_check"],
                "pipelines": {
                    f"traces/{way}": {"receivers": [f"otlp/{way}"], "exporters": [f"file/{way}"]} for way in ways
                }
                | {"logs": {"receivers": ["otlp/logs"], "exporters": ["file/logs"]}},
                "telemetry": {
                    "metrics": {
                        "readers": [{"pull": {"exporter": {"prometheus": {"host": LOOPBACK, "port": metrics}}}}]
                    }
                },
            },
        }
        self._files = [Written(folder / f"{way}.json", "resourceSpans", "scopeSpans", "spans") for way in ways]
        self._log = Written(folder / "logs.json", "resourceLogs", "scopeLogs", "logRecords")
        self._spans: list[list[Span]] = [[] for _ in ways]
        self._told: Counter[tuple[str, str]] = Counter()
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "store.yaml"
        file.write_text(yaml.safe_dump(config))
        super().__init__(
            "store",
            [require_stack("collector")["otelcol"], f"--config={file}"],
            log=folder / "store.log",
            ready=f"http://{LOOPBACK}:{health}/",
        )

    def spans(self, gateway: int) -> list[Span]:
        """Every span that a gateway has passed on."""
        for span in self._files[gateway].read():
            cut = bool(span["attributes"].get("endturn.stop.truncated"))
            copied = cut or bool(span["attributes"].get("endturn.turn.truncated"))
            self._spans[gateway].append(Span(span["traceId"], span["spanId"], cut, copied))
        return self._spans[gateway]

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


class Metrics(Server):
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
        address = f"{LOOPBACK}:{free_port()}"
        self.url = f"http://{address}"
        self.client = PrometheusClient(self.url)
        config = yaml.safe_load((REPOSITORY / "stack" / "prometheus-agent.yml").read_text())
        [write] = config["remote_write"]
        config["global"] = {"scrape_interval": "1s", "scrape_timeout": "1s"}
        scrapes = scrapes or {}
        config["remote_write"] = [write | {"url": url} for url in writes]
        config["scrape_configs"] = [
            scrape | {"static_configs": [{"targets": scrapes[scrape["job_name"]]}]}
            for scrape in config["scrape_configs"]
            if scrape["job_name"] in scrapes
        ]
        features = ["--web.enable-otlp-receiver", "--enable-feature=created-timestamp-zero-ingestion,exemplar-storage"]
        if writes:
            features += ["--agent", f"--storage.agent.path={folder / name}"]
        else:
            features += ["--web.enable-remote-write-receiver", f"--storage.tsdb.path={folder / name}"]
        if rules is not None:
            config["rule_files"] = [str(rules)]
            config["global"]["rule_query_offset"] = f"{OFFSET}s"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{name}.yml"
        file.write_text(yaml.safe_dump(config))
        super().__init__(
            name,
            [
                require_stack("prometheus")["prometheus"],
                f"--config.file={file}",
                f"--web.listen-address={address}",
                *features,
            ],
            log=folder / f"{name}.log",
            ready=f"{self.url}/-/ready",
        )


class Fleet:
    """Everything, started in the order of the flow and stopped in the reverse of it."""

    def __init__(
        self,
        folder: Path,
        *,
        agents: int = 2,
        gateways: int = 3,
        receivers: int = 2,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.kafka = Kafka(folder)
        self.store = Store(folder, gateways)
        self.webhook = Webhook()
        self.receivers = _ring(folder, receivers)
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
            agent = Member(folder, f"agent-{n}", files, ENDTURN_LOKI_URL=self.store.loki, **every)
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

    def members(self) -> Iterator[Server]:
        """In the order in which they are started."""
        yield from (self.store, *self.receivers, self.query, self.rule, self.compared)
        yield from (*self.writers, *self.gateways, *self.agents)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            webhook = stack.enter_context(self.webhook)
            self.alertmanager = stack.enter_context(Alertmanager(self._folder, webhook=webhook.url))
            self.rule.command.append(f"--alertmanagers.url={self.alertmanager.url}")
            stack.enter_context(self.kafka)
            self.kafka.create_topics()
            for server in self.members():
                stack.enter_context(server)
            self.await_balance()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._stack.__exit__(*raised)

    def await_balance(self) -> None:
        """Wait until every gateway reads its share of both topics."""
        share = 2 * PARTITIONS // len(self.gateways)

        def shares() -> list[float]:
            return [
                gateway.own("otelcol_kafka_receiver_partition_start")
                - gateway.own("otelcol_kafka_receiver_partition_close")
                for gateway in self.gateways
            ]

        eventually(lambda: shares() == [share] * len(self.gateways), what="balance", timeout=90)


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


def _ring(folder: Path, size: int) -> list[Receiver]:
    folder.mkdir(parents=True, exist_ok=True)
    hashring = folder / "hashring.json"
    members = [Receiver(folder, f"receive-{n}", f"{LOOPBACK}:{free_port()}", hashring) for n in range(size)]
    hashring.write_text(json.dumps([{"endpoints": [member.grpc for member in members]}]))
    return members
