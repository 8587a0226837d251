"""`endturn doctor` in processes of its own, before receivers of each kind that listen on loopback."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import pytest

from endturn.cli import doctor, doctor_packages, doctor_receivers as receivers, main
from endturn.instrumentation.destinations import Destination
from endturn.ui import otlp
from tests.support.processes import LOOPBACK, free_port
from tests.support.serving import ReceivedRequest, serving
from tests.ui.conftest import page
from tests.ui.support import Served

__all__ = ["page"]  # a fixture

grpc: Any = import_module("grpc")  # which has no types
BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
HTML = "text/html; charset=utf-8"


def variables(**more: str) -> dict[str, str]:
    """An environment without proxies, and without variables of OpenTelemetry's and ours but these."""
    keep = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "ENDTURN_")) and not name.lower().endswith("_proxy")
    }
    return keep | more


class Examine(Protocol):
    """Runs `endturn doctor --json` with these words and variables: its status, what it printed, and its errors."""

    def __call__(self, *words: str, **more: str) -> tuple[int, Any, str]: ...


@pytest.fixture
def examine(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Examine:
    """In this process, which is faster than one of its own."""

    def run(*words: str, **more: str) -> tuple[int, Any, str]:
        wanted = variables(**more)
        for name in os.environ.keys() - wanted.keys():
            monkeypatch.delenv(name)
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        status = main(["doctor", "--json", "--timeout", "5", *words])
        printed = capsys.readouterr()
        return status, json.loads(printed.out), printed.err

    return run


@contextmanager
def tls(folder: Path) -> Iterator[int]:
    """A server with a certificate that nobody has signed; its port. It closes each connection after the handshake."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    openssl = shutil.which("openssl")
    assert openssl is not None
    make = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listening = socket.create_server((LOOPBACK, 0))
    is_open = threading.Event()
    is_open.set()

    def serve() -> None:
        while is_open.is_set():
            try:
                connection, _ = listening.accept()
                context.wrap_socket(connection, server_side=True).close()
            except OSError:
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        is_open.clear()
        socket.create_connection(("127.0.0.1", listening.getsockname()[1])).close()
        thread.join(5)
        listening.close()


@contextmanager
def grpc_server() -> Iterator[int]:
    """A server of gRPC without services; its port."""
    with ThreadPoolExecutor(2) as pool:
        server = grpc.server(pool)
        port = server.add_insecure_port(f"{LOOPBACK}:0")
        server.start()
        try:
            yield port
        finally:
            server.stop(None).wait(5)


# --- What listens ----------------------------------------------------------------------------------------------------


def test_the_local_page_is_fine_and_keeps_nothing(examine: Examine, page: Served) -> None:
    """Each signal answers; the requests had no content; the status is 0."""
    status, found, errors = examine(**{BASE: page.url})
    assert (status, found["problems"], errors) == (0, [], "")
    assert [(one["signal"], one["endpoint"], one["answer"]) for one in found["destinations"]] == [
        (signal, f"{page.url}/v1/{signal}", "answers 200 OK") for signal in ("traces", "metrics", "logs")
    ]
    for table in ("spans", "events", "increments"):
        assert page.store.read_tuples(f"SELECT count(*) FROM {table}") == [(0,)]


def test_what_is_sent_has_no_content(examine: Examine) -> None:
    """Three empty requests of protobuf with the headers of the exporter."""
    requests: list[ReceivedRequest] = []

    def answer(asked: ReceivedRequest) -> tuple[int, bytes, str]:
        requests.append(asked)
        return 200, b"", otlp.PROTOBUF

    with serving(answer) as url:
        status, found, _ = examine(**{BASE: url, "OTEL_EXPORTER_OTLP_HEADERS": "x-key=a%20secret"})
    assert status == 0
    assert sorted((one.method, one.path, one.body) for one in requests) == [
        ("POST", f"/v1/{signal}", b"") for signal in ("logs", "metrics", "traces")
    ]
    assert {one.headers["x-key"] for one in requests} == {"a secret"}
    assert "secret" not in json.dumps(found)


REFUSALS = [
    (401, otlp.PROTOBUF, "answered 401 Unauthorized; check the key or token in OTEL_EXPORTER_OTLP_HEADERS"),
    (
        404,
        otlp.PROTOBUF,
        "no OTLP receiver of traces has this path: OTEL_EXPORTER_OTLP_ENDPOINT is the address without",
    ),
    (405, otlp.PROTOBUF, "no OTLP receiver has this path"),
    (415, otlp.PROTOBUF, "the receiver takes no protobuf"),
    (302, otlp.PROTOBUF, "exports follow no redirect"),
    (503, otlp.PROTOBUF, "answered 503 Service Unavailable"),
    (200, HTML, "answered with a web page: it is no OTLP receiver"),
]


@pytest.mark.parametrize(("answered", "kind", "sentence"), REFUSALS, ids=[f"{row[0]} {row[1]}" for row in REFUSALS])
def test_a_refusal_is_one_problem_that_says_what_to_set(
    examine: Examine, answered: int, kind: str, sentence: str
) -> None:
    with serving(lambda asked: (answered, b"no", kind)) as url:
        status, found, _ = examine(**{BASE: url})
    (problem,) = found["problems"]
    assert (status, problem.startswith("traces, metrics and logs: ")) == (1, True)
    assert sentence in problem
    assert {one["status"] for one in found["destinations"]} == {answered}


def test_a_closed_port_a_tls_port_and_a_port_of_grpc(examine: Examine, tmp_path: Path) -> None:
    """Told apart, for a plain address and for one of https."""
    closed = free_port()
    _, found, _ = examine(**{BASE: f"http://{LOOPBACK}:{closed}"})
    assert found["problems"] == [
        f"traces, metrics and logs: nothing listens at 127.0.0.1:{closed}: start `endturn ui` or your Collector, or set"
        " OTEL_EXPORTER_OTLP_ENDPOINT to where one listens"
    ]
    with tls(tmp_path) as port:
        _, found, _ = examine(**{BASE: f"http://{LOOPBACK}:{port}"})
        assert found["problems"] == [
            f"traces, metrics and logs: 127.0.0.1:{port} expects TLS: set https://127.0.0.1:{port}"
        ]
        _, found, _ = examine(**{BASE: f"https://{LOOPBACK}:{port}"})
        assert found["problems"] == [
            f"traces, metrics and logs: the certificate of 127.0.0.1:{port} is not trusted: set"
            " OTEL_EXPORTER_OTLP_CERTIFICATE to the file of the authority that signed it"
        ]
    with grpc_server() as port:
        _, found, _ = examine(**{BASE: f"http://{LOOPBACK}:{port}"})
        assert found["problems"] == [
            f"traces, metrics and logs: 127.0.0.1:{port} answers in HTTP/2, as OTLP over gRPC does: use the port of"
            " OTLP over HTTP (4318), or OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
        ]


def test_what_cannot_be_checked_is_no_problem_of_the_receiver(examine: Examine, page: Served) -> None:
    """A file that does not exist is the only problem."""
    _, found, _ = examine(**{BASE: page.url, "OTEL_EXPORTER_OTLP_CERTIFICATE": "/nowhere.pem"})
    (problem,) = found["problems"]
    assert problem.startswith("OTEL_EXPORTER_OTLP_CERTIFICATE='/nowhere.pem' cannot be used")
    assert {one["answer"] for one in found["destinations"]} == {
        "not checked: the file of OTEL_EXPORTER_OTLP_CERTIFICATE does not exist"
    }


def test_https_to_a_plain_port(examine: Examine, page: Served) -> None:
    _, found, _ = examine(**{BASE: page.url.replace("http", "https")})
    host = page.url.removeprefix("http://")
    assert found["problems"] == [
        f"traces, metrics and logs: {host} answers in plain text, without TLS: set http://{host}"
    ]


def test_a_host_that_no_name_server_knows(examine: Examine) -> None:
    _, found, _ = examine(**{BASE: "http://nowhere.invalid:4318"})
    (problem,) = found["problems"]
    assert "the host 'nowhere.invalid' cannot be resolved (" in problem
    assert problem.endswith("check the name in OTEL_EXPORTER_OTLP_ENDPOINT")


def test_grpc_channels_of_each_kind(page: Served, tmp_path: Path) -> None:
    """Where the exporter is installed: ready, at a port of HTTP, and at one of TLS."""
    host = page.url.removeprefix("http://")
    with grpc_server() as port, tls(tmp_path) as tls_port:
        expected = {
            f"http://{LOOPBACK}:{port}": ("the gRPC channel is ready", ""),
            f"https://{LOOPBACK}:{port}": (
                "no gRPC",
                f"127.0.0.1:{port} answers in plain text, without TLS: set http://127.0.0.1:{port}",
            ),
            page.url: (
                "no gRPC",
                f"{host} answers in HTTP/1.1, not in gRPC: use the port of OTLP over gRPC (4317), or"
                " OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
            ),
            f"http://{LOOPBACK}:{tls_port}": (
                "no gRPC",
                f"127.0.0.1:{tls_port} expects TLS: set https://127.0.0.1:{tls_port}",
            ),
        }
        for url, (text, problem) in expected.items():
            destination = Destination(signal="traces", exporter="otlp", protocol="grpc", url=url, variable=BASE)
            assert receivers.check(destination, 2.0) == receivers.ReceiverCheck(text, None, problem)


# --- Settings and packages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "sentence", "dials"),
    [
        ({BASE: "localhost:4318"}, "has no scheme (http:// or https://): set it to http://localhost:4318", True),
        ({BASE: "http://localhost:4318/v1/traces"}, "set it to http://localhost:4318", True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke"}, "use http/protobuf (port 4318) or grpc (port 4317)", True),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "pip install opentelemetry-exporter-otlp-proto-grpc", True),
        (
            {"OTEL_EXPORTER_OTLP_HEADERS": "Authorization: Bearer x"},
            "entry 1 has a colon in place of the equals sign",
            False,
        ),
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "no traces are exported: OTEL_TRACES_EXPORTER='zipkin'", False),
        ({"HTTP_PROXY": "http://127.0.0.1:9"}, "add localhost to NO_PROXY", True),
        ({"OTEL_EXPORTER_OTLP_ENDPONT": "http://h"}, "did you mean 'OTEL_EXPORTER_OTLP_ENDPOINT'?", False),
        ({"OTEL_TRACE_EXPORTER": "console"}, "did you mean 'OTEL_TRACES_EXPORTER'?", False),
        ({"ENDTURN_EVENT": "logs"}, "did you mean 'ENDTURN_EVENTS'?", False),
        ({"ENDTURN_AGENT_MAX_ITERATIONS": "many"}, "(from ENDTURN_AGENT_MAX_ITERATIONS)", False),
        ({"OTEL_CONFIG_FILE": "/nowhere.yaml"}, "OTEL_CONFIG_FILE='/nowhere.yaml' is not a file", False),
    ],
)
def test_a_mistake_in_the_variables_is_one_problem(
    examine: Examine, more: dict[str, str], sentence: str, dials: bool
) -> None:
    """Nothing else is dialled, so what listens is no second problem."""
    names = ("OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_LOGS_EXPORTER")
    nowhere = {} if dials else dict.fromkeys(names, "none")
    status, found, errors = examine(**{**nowhere, **more})
    (problem,) = found["problems"]
    assert (status, errors) == (1, "")
    assert sentence in problem


def test_settings_are_shown_with_where_they_are_from_and_without_secrets(examine: Examine) -> None:
    more = {
        BASE: "http://user:secret@localhost:1/v1/traces?key=secret",
        "OTEL_EXPORTER_OTLP_HEADERS": "authorization=Bearer%20secret",
        "ENDTURN_UI_TOKEN": "secret",
        "ENDTURN_EVENTS": "both",
        "OTEL_SERVICE_NAME": "support",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "OTEL_SEMCONV_STABILITY_OPT_IN": "gen_ai_latest_experimental",
    }
    _, found, _ = examine(**more)
    shown = {one["name"]: (one["value"], one["source"]) for one in found["settings"]}
    assert "secret" not in json.dumps(found)
    assert shown["ENDTURN_EVENTS"] == ("both", "variable")
    assert shown["OTEL_EXPORTER_OTLP_HEADERS"] == ("(set, not shown)", "variable")
    assert shown[BASE] == ("http://localhost:1/v1/traces", "variable")
    assert shown["OTEL_METRIC_EXPORT_INTERVAL"] == ("15000", "default")
    assert found["service_name"] == "'support' (OTEL_SERVICE_NAME)"
    assert (found["content"], found["semconv"]) == ("recorded (SPAN_ONLY)", "gen_ai_latest_experimental")


def test_a_program_names_its_service_and_one_that_does_not_exist_is_refused(
    examine: Examine, page: Served, tmp_path: Path
) -> None:
    status, found, _ = examine("--", "tests/apps/bare.py", "--option", **{BASE: page.url})
    assert (status, found["service_name"].split(" (")[0]) == (0, "'bare'")
    done = subprocess.run(
        [sys.executable, "-m", "endturn", "doctor", "--", "no-such-program"],
        env=variables(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, "'no-such-program' is neither a program" in done.stderr) == (2, True)
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    _, found, _ = examine("--", str(other), "agent.py", **{BASE: page.url})
    assert found["problems"] == [
        f"{other} has no endturn, so the program is not observed: {other} -m pip install 'endturn[otlp]'"
    ]


def test_what_switches_off_is_noted_and_nothing_is_dialled(examine: Examine) -> None:
    status, found, _ = examine(OTEL_SDK_DISABLED="true")
    assert (status, found["problems"], found["destinations"]) == (0, [], [])
    assert any("the variables switch endturn off" in note for note in found["notes"])
    assert found["starts"]["endturn run"] == "no: switched off"


def test_nothing_of_the_host_is_imported() -> None:
    """Neither model SDKs nor other instrumentations: their metadata says enough."""
    code = "from endturn.cli import main\nmain(['doctor', '--json'])\nimport sys\n"
    code += "print([name for name in ('openai', 'anthropic', 'boto3', 'langsmith', 'httpx2') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], env=variables(OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="none",
                                                     OTEL_LOGS_EXPORTER="none"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines()[-1] == "[]"


def test_packages_are_sorted_into_their_parts() -> None:
    installed = {
        "httpx": "0.28.1", "openai": "2.9", "xai-sdk": "1.0", "langgraph": "1.2", "pytest": "9.0",
        "openinference-instrumentation-openai": "0.1.66", "opentelemetry-instrumentation-genai-openai": "1.3b0",
        "logfire": "5.2", "opentelemetry-api": "1.39.9", "pydantic": "2.10", "duckdb": "1.4",
    }  # fmt: skip
    found = doctor_packages.inventory(installed)
    assert [one.name for one in found.http_clients] == ["httpx"]
    assert [(one.name, "not observed" in one.remark) for one in found.model_sdks] == [
        ("openai", False),
        ("xai-sdk", True),
    ]
    assert [one.name for one in found.frameworks] == ["langgraph"]
    assert [one.name for one in found.instrumentations] == [
        "logfire",
        "openinference-instrumentation-openai",
        "opentelemetry-instrumentation-genai-openai",
    ]
    assert found.outdated == (
        "opentelemetry-api 1.39.9 is older than endturn supports: pip install 'opentelemetry-api>=1.40'",
    )


def test_the_text_lists_problems_last(page: Served) -> None:
    """As a person reads it: one line for each destination, and each problem with a number."""
    done = subprocess.run(
        [sys.executable, "-m", "endturn", "doctor"], env=variables(**{BASE: page.url, "ENDTURN_EVENTS": "loud"}),
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (1, "")
    assert f"Destinations      traces: {page.url}/v1/traces (http/protobuf, {BASE}): answers 200 OK" in lines
    assert "Settings          OTEL_EXPORTER_OTLP_ENDPOINT=" + page.url in lines
    assert lines[-2:] == [
        "1 problem:",
        "  1. ENDTURN_EVENTS='loud' cannot be used: use one of logs, spans, both; events go to logs",
    ]


def test_a_timeout_out_of_range_is_refused() -> None:
    for timeout_s in (0.0, -1.0, 61.0, float("nan")):
        with pytest.raises(ValueError, match="--timeout must be more than 0 and at most 60 seconds"):
            doctor.command([], as_json=True, timeout_s=timeout_s)


def test_a_redaction_is_not_imported_and_doctor_says_so(examine: Examine) -> None:
    """It is the host's code, which may do anything when it is imported."""
    _, report, _ = examine(ENDTURN_REDACT="no_such_module:hide")
    assert [note for note in report["notes"] if "ENDTURN_REDACT='no_such_module:hide' was not imported" in note]


@contextmanager
def replying(reply: bytes) -> Iterator[int]:
    """A server that sends these bytes on each connection, and closes it; its port."""
    listening = socket.create_server((LOOPBACK, 0))
    is_open = threading.Event()
    is_open.set()

    def serve() -> None:
        while is_open.is_set():
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(0.2)
                with suppress(OSError):
                    connection.recv(65536)
                    connection.sendall(reply)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        is_open.clear()
        socket.create_connection((LOOPBACK, listening.getsockname()[1])).close()
        thread.join(5)
        listening.close()


@pytest.mark.parametrize("reply", [b"", b"garbage\r\n\r\n"], ids=["closed", "garbage"])
def test_what_is_no_http_is_one_problem_of_all_signals(examine: Examine, reply: bytes) -> None:
    with replying(reply) as port:
        status, report, _ = examine(**{BASE: f"http://{LOOPBACK}:{port}"})
    assert status == 1
    (problem,) = report["problems"]
    assert problem.startswith(
        f"traces, metrics and logs: {LOOPBACK}:{port} does not answer as an OTLP receiver (ConnectionError)"
    )


@pytest.mark.parametrize("header", ["x-key=s3cr3t%0A", "x-key=a%0D%0As3cr3t"])
def test_a_header_with_a_line_end_is_not_blamed_on_the_receiver(examine: Examine, page: Served, header: str) -> None:
    _, report, _ = examine(**{BASE: page.url, "OTEL_EXPORTER_OTLP_HEADERS": header})
    assert any("entry 1 has a line end or another control character" in problem for problem in report["problems"])
    assert not any("does not answer" in problem for problem in report["problems"])
    assert sum("the headers of OTEL_EXPORTER_OTLP_HEADERS cannot be sent" in one for one in report["problems"]) <= 1
    assert "s3cr3t" not in json.dumps(report)
