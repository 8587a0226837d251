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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

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
    collector_files,
    eventually,
    free_port,
    metric,
    otlp_items,
    require_stack,
)

PARTITIONS: Final = 12
"""Four for each gateway."""
TURNS, TRUNCATED = "endturn.turns", "endturn.truncated"
TIMES: Final = 15
"""How much faster the rules' clock is: an export is a second."""
OFFSET: Final = 2
"""How many seconds ago rules look."""


class Kafka(Server):
    """One broker that is its own controller, in KRaft mode, with the two topics."""

    def __init__(self, folder: Path, *, partition_bytes: int = -1) -> None:
        require_stack("kafka")
        self.port, controller = free_port(), free_port()
        self.address = f"{LOOPBACK}:{self.port}"
        self._java = ["java", "-Xmx256m", "-Xlog:disable", "-cp", f"{build.recipes()['kafka'].folder}/*"]
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "kafka.properties"
        file.write_text(
            "process.roles=broker,controller\nnode.id=1\n"
            f"controller.quorum.voters=1@{LOOPBACK}:{controller}\ncontroller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://{self.address},CONTROLLER://{LOOPBACK}:{controller}\n"
            "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT\n"
            f"log.dirs={folder / 'kafka'}\nauto.create.topics.enable=false\n"
            "offsets.topic.replication.factor=1\noffsets.topic.num.partitions=3\n"
            "group.initial.rebalance.delay.ms=2000\n"
        )
        format_ = [*self._java, "kafka.tools.StorageTool", "format", "-t", "endturnendturnendturnA", "-c", str(file)]
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
            self._ask("TopicCommand", "--create", "--topic", topic, *options)

    def lag(self) -> int:
        """How many records of the turns' topic the gateways have not yet said that they read."""
        table = self._ask("consumer.group.ConsumerGroupCommand", "--describe", "--group", "endturn-turns")
        head, *rows = [line.split() for line in table.splitlines() if line.strip()]
        read = {row[head.index("PARTITION")]: row[head.index("LAG")] for row in rows}
        assert len(read) == PARTITIONS
        return sum(int(lag) if lag != "-" else 0 for lag in read.values())

    def _ask(self, tool: str, *options: str) -> str:
        command = [*self._java, f"org.apache.kafka.tools.{tool}", "--bootstrap-server", self.address, *options]
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


class Store(Server):
    """In place of Tempo and Loki: a Collector with a way in, and a file, for each gateway; one for all logs."""

    def __init__(self, folder: Path, gateways: int) -> None:
        self.folder = folder
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
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / "store.yaml"
        file.write_text(yaml.safe_dump(config))
        super().__init__(
            "store",
            [require_stack("collector")["otelcol"], f"--config={file}"],
            log=folder / "store.log",
            ready=f"http://{LOOPBACK}:{health}/",
        )

    def spans(self, gateway: int) -> list[dict[str, Any]]:
        """Every span that a gateway has passed on."""
        return otlp_items(self.folder / f"gateway_{gateway}.json", "resourceSpans", "scopeSpans", "spans")

    def log_records(self) -> list[dict[str, Any]]:
        """Every log record of any agent."""
        return otlp_items(self.folder / "logs.json", "resourceLogs", "scopeLogs", "logRecords")


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
