"""Requests to the wrong path, or in another protocol: each is answered with what to set."""

from __future__ import annotations

import http.client
import logging
import socket
import ssl
from urllib.parse import urlsplit

import pytest
from google.rpc.status_pb2 import Status

from endturn.ui import otlp
from endturn.ui.wrong_requests import PlainHttp
from tests.ui.support import Answer, Served


def ask(page: Served, method: str, path: str, kind: str = "") -> Answer:
    """One request without a body."""
    connection = http.client.HTTPConnection(urlsplit(page.url).netloc, timeout=20)
    try:
        connection.request(method, path, headers={"Content-Type": kind} if kind else {})
        answer = connection.getresponse()
        return Answer(answer.status, answer.headers, answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "send_to"),
    [
        ("/v1/traces/v1/traces", "/v1/traces"),
        ("/v1/v1/metrics", "/v1/metrics"),
        ("/otlp/v1/logs/", "/v1/logs"),
        ("/api/public/otel/v1/traces", "/v1/traces"),
        ("/", "/v1/traces, /v1/logs or /v1/metrics"),
        ("/v1/", "/v1/traces, /v1/logs or /v1/metrics"),
        ("/api/traces", "/v1/traces"),
        ("/turns", "/v1/traces, /v1/logs or /v1/metrics"),
    ],
)
def test_a_post_to_another_path_says_where_to_send(page: Served, path: str, send_to: str) -> None:
    """In the form that its exporter reads, and as text otherwise."""
    sentence = f"nothing is received at {path}: send to {send_to}; OTEL_EXPORTER_OTLP_ENDPOINT should be {page.url}"
    plain = ask(page, "POST", path)
    assert (plain.status, plain.text) == (404, f"{sentence}\n")
    binary = ask(page, "POST", path, otlp.PROTOBUF)
    assert (binary.status, Status.FromString(binary.content).message) == (404, sentence)
    assert (ask(page, "POST", path, otlp.JSON).status, ask(page, "PUT", path).status) == (404, 404)


@pytest.mark.parametrize("signal", otlp.SIGNALS)
def test_a_path_that_receives_says_so_to_a_browser(page: Served, signal: str) -> None:
    answer = ask(page, "GET", f"/v1/{signal}")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
    assert answer.text == (
        f"/v1/{signal} takes POST requests of OTLP, from an exporter with OTEL_EXPORTER_OTLP_ENDPOINT={page.url}; "
        f"the page is at {page.url}/\n"
    )


def test_pages_that_do_not_exist_are_still_pages(page: Served) -> None:
    answer = ask(page, "GET", "/none")
    assert (answer.status, "There is no such page" in answer.text) == (404, True)


def test_another_protocol_is_logged_once_with_what_to_set(
    page: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A TLS handshake and a connection of HTTP/2; those of HTTP/1.1 are served as before."""
    monkeypatch.setattr(PlainHttp, "reported", frozenset())
    caplog.set_level(logging.WARNING)
    address = ("127.0.0.1", urlsplit(page.url).port or 0)
    for _ in range(2):
        with socket.create_connection(address, 10) as plain, pytest.raises(ssl.SSLError, match="WRONG_VERSION_NUMBER"):
            ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")
        with socket.create_connection(address, 10) as connection:
            connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            received = b"".join(iter(lambda: connection.recv(4096), b""))
        assert received.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert b"set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf" in received
    assert caplog.messages == [
        "endturn: a TLS connection was refused, as this page speaks plain HTTP: set OTEL_EXPORTER_OTLP_ENDPOINT to "
        "http://, not https://",
        "endturn: an HTTP/2 connection, as OTLP over gRPC makes it, was refused: set "
        "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
    ]
    assert page.ask("/").status == 200
