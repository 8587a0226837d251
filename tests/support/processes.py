"""Real servers for tests: the natively built Collector, Prometheus and Alertmanager, on free loopback ports.

    require_stack("collector", "prometheus")
    with Prometheus(tmp_path) as prometheus, Collector(tmp_path, prometheus=prometheus.url) as collector:
        ...  # send OTLP to collector.url, ask prometheus.client

They run the project's own configuration files; what a test needs differently is laid over them here.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import not_
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlsplit

import httpx
import pytest
import yaml

from stack import build
from tests.support.serving import ReceivedRequest, serving

REPOSITORY = Path(__file__).resolve().parents[2]
LOOPBACK = "127.0.0.1"
TAIL = 30  # lines of a server's log that go into an error

T = TypeVar("T")

_held: list[socket.socket] = []

http = httpx.Client(trust_env=False, timeout=30)
"""Loopback only: a proxy of the environment must not come between."""


def require_stack(*parts: str) -> dict[str, Path]:
    """The binaries of these parts (all by default), by name; fails the test where they are not built."""
    recipes = build.recipes()
    wanted = [recipes[part] for part in parts or recipes]
    if missing := [recipe.part for recipe in wanted if not recipe.built]:
        go = build.versions()["go"]["minimum"]
        advice = f"Run `make stack`; it needs Go {go} or newer (go.dev/dl, or your system's packages)"
        pytest.fail(f"not built: {', '.join(missing)}. {advice}")
    return {name: recipe.folder / name for recipe in wanted for name in recipe.binaries}


def free_port() -> int:
    """A TCP port of the loopback interface for one server of this process, also while that is away.

    It stays bound here, without listening: the kernel gives it to nobody else, and who binds it with SO_REUSEADDR, as
    servers do, may listen.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind((LOOPBACK, 0))
    _held.append(held)
    port: int = held.getsockname()[1]
    return port


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-days", "2", "-subj", "/CN=localhost", "-addext", f"subjectAltName=IP:{LOOPBACK}"),
            *("-keyout", str(key), "-out", str(certificate)),
        ],
        check=True,
        capture_output=True,
    )
    return certificate, key


def eventually(
    ask: Callable[[], T],
    *,
    what: str,
    timeout: float = 30.0,
    every: float = 0.1,
    until: Callable[[T], object] = bool,
) -> T:
    """The first answer of `ask` that will do; fails the test with `what` and the last when none comes in time."""
    deadline = time.monotonic() + timeout
    while not until(answer := ask()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout:g} s for {what}; the last answer was {answer!r}")
        time.sleep(every)
    return answer


def settled(wrong: Callable[[], object], *, what: str, timeout: float = 60.0) -> None:
    """Wait until nothing is wrong any more; fails with what still is."""
    eventually(wrong, what=what, timeout=timeout, every=1, until=not_)


def samples(address: str, name: str) -> dict[str, float]:
    """The samples of a metric that is scraped there, by their labels as they are written."""
    lines = http.get(f"http://{address}/metrics").text.splitlines()
    found = [line.rsplit(" ", 1) for line in lines if line.startswith((f"{name}{{", f"{name} "))]
    return {series.removeprefix(name).strip("{}"): float(value) for series, value in found}


def metric(address: str, name: str, **labels: str) -> float:
    """The sum of a metric's samples that carry these labels, 0 without any."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(value for series, value in samples(address, name).items() if all(pair in series for pair in wanted))


class StartError(Exception):
    """A server did not become ready; the message ends with its log."""


class Server:
    """One child process: started and waited for on entry, stopped on exit, and nothing else's process ever touched."""

    def __init__(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        log: Path,
        ready: str | Callable[[], bool],
        env: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        """`ready` is the URL that answers 200 then, or what says so."""
        self.name = name
        self.command = [str(part) for part in command]
        self.log = log
        self.ready = ready
        self.env = dict(env or {})
        self.timeout = timeout
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process and return once it is ready; raises `StartError`."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as sink:
            # A session of its own, so that a Ctrl-C at the test run reaches it through us, in order.
            process = self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=os.environ | self.env,
                start_new_session=True,
            )
        deadline = time.monotonic() + self.timeout
        try:
            while not (_answers(self.ready) if isinstance(self.ready, str) else self.ready()):
                late = time.monotonic() > deadline
                if late or (status := process.poll()) is not None:
                    why = f"was not ready within {self.timeout:g} s" if late else f"exited with status {status}"
                    tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-TAIL:])
                    raise StartError(f"{self.name} {why}\n{tail}")
                time.sleep(0.05)
        except BaseException:  # an interrupted wait must not leave the process behind
            self.stop()
            raise

    def stop(self) -> int | None:
        """Ask the process to end, kill its group where it does not; the status that it ends with."""
        process, self._process = self._process, None
        if process is None:
            return None
        process.terminate()
        try:
            return process.wait(10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # its session's leader, so the group has its id
            return process.wait()

    def kill(self) -> None:
        """End the process as a power cut would; `start` starts it again."""
        process, self._process = self._process, None
        assert process is not None
        process.kill()
        process.wait()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def written(file: Path, content: object) -> Path:
    """The file, with this as YAML in it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(content))
    return file


def shipped(file: str) -> dict[str, Any]:
    """What a YAML file of the repository says."""
    content: dict[str, Any] = yaml.safe_load((REPOSITORY / file).read_text())
    return content


def collector_files(*names: str) -> tuple[Path, ...]:
    """Configurations of ours, in the order in which they are laid over each other."""
    return tuple(REPOSITORY / "collector" / f"{name}.yaml" for name in names)


ALL_IN_ONE: Final = collector_files("collector", "stop_reasons", "redaction")
GATEWAY: Final = (*ALL_IN_ONE, *collector_files("gateway", "cleartext"))
AGENT: Final = collector_files("agent", "redaction")
PORTS: Final = ("GRPC", "HTTP", "HEALTH", "METRICS", "COUNTS")
SIGNALS: Final = (
    ("resourceSpans", "scopeSpans", "spans"),
    ("resourceLogs", "scopeLogs", "logRecords"),
    ("resourceMetrics", "scopeMetrics", "metrics"),
)
"""How OTLP nests them."""


class Collector(Server):
    """Configurations of ours, with traces and logs (and a copy of the metrics) written to files as JSON.

    Without `prometheus` the metrics go to the file alone. With `to_files=False` everything goes where it is shipped to.
    `configs` are laid over all that; `environment` sets variables of the configuration. A port that is `known` before,
    as `grpc_port`, `metrics_port` or `counts_port`, is the one.
    """

    def __init__(
        self,
        folder: Path,
        name: str = "collector",
        *,
        prometheus: str | None = None,
        configs: Sequence[Path] = (),
        config: Sequence[Path] = ALL_IN_ONE,
        environment: Mapping[str, str] | None = None,
        to_files: bool = True,
        **known: int,
    ) -> None:
        ports = {each: known.get(f"{each.lower()}_port") or free_port() for each in PORTS}
        self.folder = folder
        self.url = f"http://{LOOPBACK}:{ports['HTTP']}"  # OTLP over HTTP; a signal's path is appended by its exporter
        self.grpc, self.metrics_address, self.counts_address = (
            f"{LOOPBACK}:{ports[each]}" for each in ("GRPC", "METRICS", "COUNTS")
        )
        files = [*config]
        if to_files:
            files.append(written(folder / "collector-overlay.yaml", self._overlay(config, prometheus)))
        variables = {f"ENDTURN_COLLECTOR_{each}_PORT": str(port) for each, port in ports.items()}
        variables |= {"ENDTURN_COLLECTOR_HOST": LOOPBACK, "ENDTURN_COLLECTOR_DATA": str(folder / "queue")}
        if prometheus:
            variables["ENDTURN_PROMETHEUS_URL"] = prometheus
        super().__init__(
            name,
            [require_stack("collector")["otelcol"], *(f"--config={file}" for file in (*files, *configs))],
            log=folder / f"{name}.log",
            ready=f"http://{LOOPBACK}:{ports['HEALTH']}/",
            env=variables | dict(environment or {}),
        )

    def _overlay(self, config: Sequence[Path], prometheus: str | None) -> dict[str, Any]:
        """What puts a file in the place of each back end."""
        exporters: dict[str, list[str]] = {}  # as the Collector merges them: of a pipeline, what the last file says
        for file in config:
            for name, pipeline in (yaml.safe_load(file.read_text()).get("service") or {}).get("pipelines", {}).items():
                exporters[name] = pipeline.get("exporters", exporters.get(name))

        def instead(pipeline: str, exporter: str) -> list[str]:
            signal = pipeline.partition("/")[0]
            if exporter.partition("/")[0] not in ("otlp_http", "otlp_grpc"):
                return [exporter]
            return [f"file/{signal}", *([exporter] if signal == "metrics" and prometheus else [])]

        return {
            "exporters": {
                f"file/{kind}": {"path": str(self.file(kind)), "flush_interval": "100ms"}
                for kind in ("traces", "logs", "metrics")
            },
            "service": {
                "pipelines": {
                    name: {"exporters": [new for old in every for new in instead(name, old)]}
                    for name, every in exporters.items()
                }
            },
        }

    def own(self, name: str, **labels: str) -> float:
        """What the Collector counts of itself: the sum of a metric's samples that carry these labels, 0 without any."""
        return metric(self.metrics_address, name, **labels)

    def file(self, kind: str) -> Path:
        """Where the `traces`, `logs` or `metrics` are written."""
        return self.folder / f"{kind}.json"

    def spans(self) -> list[dict[str, Any]]:
        """Every span written so far, its `attributes` (and `resource`'s) as plain dictionaries."""
        return [*Written(self.file("traces")).read()]

    def log_records(self) -> list[dict[str, Any]]:
        """Every log record written so far, in the same form."""
        return [*Written(self.file("logs")).read()]

    def metrics(self) -> list[dict[str, Any]]:
        """Every metric of every export written so far, with its resource's attributes; its data points as they came."""
        return [*Written(self.file("metrics")).read()]


class Written:
    """What a file exporter writes, read on from where it ended the last time."""

    def __init__(self, file: Path) -> None:
        self._file, self._end = file, 0

    def read(self) -> Iterator[dict[str, Any]]:
        """Each span, log record or metric that is new, attributes as plain dictionaries."""
        if not self._file.exists():
            return
        with self._file.open("rb") as written:
            written.seek(self._end)
            for line in written:
                if not line.endswith(b"\n"):  # half written
                    return
                self._end += len(line)
                for request in _requests(line.decode().rstrip()):
                    yield from otlp_items(request)


def _requests(line: str) -> Iterator[Any]:
    """Several where a process was killed before it had written the end of the line."""
    end = 0
    while end < len(line):
        request, end = json.JSONDecoder().raw_decode(line, end)
        yield request


def otlp_items(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Each span, log record or metric of a request as JSON, attributes as plain dictionaries."""
    return [
        item
        | {"attributes": attributes(item), "resource": attributes(resource.get("resource", {}))}
        | {"events": [event | {"attributes": attributes(event)} for event in item.get("events", [])]}
        for resources, scopes, items in SIGNALS
        for resource in request.get(resources, [])
        for scope in resource.get(scopes, [])
        for item in scope.get(items, [])
    ]


class Engine(Server):
    """A program of the stack, on a free port, with a configuration that is written into a folder."""

    def __init__(
        self, folder: Path, program: str, config: Mapping[str, Any], *flags: str, name: str = "", port: int = 0
    ) -> None:
        name, address = name or program, f"{LOOPBACK}:{port or free_port()}"
        self.url = f"http://{address}"
        file = written(folder / f"{name}.yml", config)
        super().__init__(
            name,
            [require_stack(program)[program], f"--config.file={file}", f"--web.listen-address={address}", *flags],
            log=folder / f"{name}.log",
            ready=f"{self.url}/-/ready",
        )


def scraping(config: Mapping[str, Any], addresses: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    """The jobs of a Prometheus' configuration that have an address, at these."""
    return [
        job | {"static_configs": [{"targets": [*addresses[job["job_name"]]]}]}
        for job in config["scrape_configs"]
        if job["job_name"] in addresses
    ]


class Prometheus(Engine):
    """`stack/prometheus.yml` with the flags of `docker-compose.yml`, each second.

    `scrapes` maps the configuration's job names to addresses; jobs without one are left out, `prometheus` is itself.
    """

    def __init__(
        self,
        folder: Path,
        *,
        rules: Sequence[Path] = (),
        alertmanager: str | None = None,
        scrapes: Mapping[str, Sequence[str]] | None = None,
        rule_query_offset: str = "2s",
    ) -> None:
        port = free_port()
        config = shipped("stack/prometheus.yml")
        every = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "1s")
        config["global"] |= every | {"rule_query_offset": rule_query_offset}
        config["rule_files"] = [str(rule.resolve()) for rule in rules]
        targets = [urlsplit(alertmanager).netloc] if alertmanager else []
        config["alerting"]["alertmanagers"] = [{"static_configs": [{"targets": targets}]}]
        config["scrape_configs"] = scraping(config, {"prometheus": [f"{LOOPBACK}:{port}"], **(scrapes or {})})
        flags = shipped("docker-compose.yml")["services"]["prometheus"]["command"]
        super().__init__(
            folder,
            "prometheus",
            config,
            f"--storage.tsdb.path={folder / 'prometheus'}",
            # Alertmanager is discovered some 5 s after the start; what fired before is sent again after this long.
            "--rules.alert.resend-delay=2s",
            *(flag for flag in flags if flag.startswith(("--web.enable", "--enable-feature"))),
            port=port,
        )
        self.client = PrometheusClient(self.url)


class Alertmanager(Engine):
    """`stack/alertmanager.yml`, everything routed to one webhook, without the waiting."""

    def __init__(self, folder: Path, *, webhook: str, group_wait: str = "0s") -> None:
        config = shipped("stack/alertmanager.yml")
        config["route"] |= {"receiver": "test", "group_wait": group_wait, "group_interval": "1s"}
        config["receivers"].append({"name": "test", "webhook_configs": [{"url": webhook, "send_resolved": True}]})
        alone = "--cluster.listen-address="  # no gossip port
        super().__init__(folder, "alertmanager", config, f"--storage.path={folder / 'alertmanager'}", alone)


class Webhook:
    """An HTTP server on a free loopback port that keeps the JSON bodies posted to it."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self._serving = serving(self._keep)

    def _keep(self, asked: ReceivedRequest) -> tuple[int, bytes, str]:
        self.bodies.append(json.loads(asked.body))
        return 200, b"", "text/plain"

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """Every alert of every notification, in order of arrival."""
        return [alert for body in list(self.bodies) for alert in body.get("alerts", [])]

    def __enter__(self) -> Self:
        self.url = self._serving.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        self._serving.__exit__(*raised)


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an answer: its labels, and its points as (seconds since the epoch, value)."""

    labels: dict[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        """The last point's value."""
        return self.points[-1][1]


class QueryError(Exception):
    """Prometheus refused a query; the message is its own."""


@dataclass(frozen=True, slots=True)
class PrometheusClient:
    """Questions to a Prometheus, or to anything that speaks its HTTP API."""

    url: str

    def query(self, expression: str, *, time: float | None = None) -> list[Series]:
        """An instant query; for a range selector (`m[5m]`) each series carries the raw samples."""
        return self._ask("query", {"query": expression} | ({"time": f"{time:.3f}"} if time is not None else {}))

    def query_range(self, expression: str, *, start: float, end: float, step: float) -> list[Series]:
        """A range query; times in seconds since the epoch, the step in seconds."""
        times = {"start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step:g}"}
        return self._ask("query_range", {"query": expression} | times)

    def wait_for(self, expression: str, *, timeout: float = 30.0) -> list[Series]:
        """The first answer that is not empty."""
        return eventually(lambda: self.query(expression), what=f"a series for {expression}", timeout=timeout)

    def get(self, path: str) -> Any:
        """The `data` of any other endpoint, such as `rules`, `alerts` or `query_exemplars?...`."""
        return http.get(f"{self.url}/api/v1/{path}").raise_for_status().json()["data"]

    def _ask(self, endpoint: str, parameters: Mapping[str, str]) -> list[Series]:
        answer = http.post(f"{self.url}/api/v1/{endpoint}", data=dict(parameters))
        if answer.is_error:
            raise QueryError(f"{parameters['query']}: {answer.text}")
        data = answer.json()["data"]
        if data["resultType"] == "scalar":
            return [Series({}, (_point(data["result"]),))]
        return [
            Series(series["metric"], tuple(map(_point, series.get("values") or [series["value"]])))
            for series in data["result"]
            if "value" in series or "values" in series  # native histograms have no plain value
        ]


def _point(pair: Sequence[Any]) -> tuple[float, float]:
    return float(pair[0]), float(pair[1])


def _answers(url: str) -> bool:
    try:
        return http.get(url, timeout=1).status_code == 200
    except httpx.HTTPError:  # refused, reset, timed out
        return False


def attributes(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item's attributes as a plain dictionary."""
    return {pair["key"]: _value(pair.get("value", {})) for pair in item.get("attributes", [])}


def _value(value: Mapping[str, Any]) -> Any:
    """One OTLP/JSON value as Python's; 64-bit integers are written as strings there."""
    match value:
        case {"intValue": number}:
            return int(number)
        case {"arrayValue": array}:
            return [_value(each) for each in array.get("values", [])]
        case {"kvlistValue": pairs}:
            return {pair["key"]: _value(pair.get("value", {})) for pair in pairs.get("values", [])}
        case _:
            return next(iter(value.values()), None)
