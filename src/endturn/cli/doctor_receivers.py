"""Checks of OTLP receivers: a connection, then an empty export request."""

from __future__ import annotations

import importlib
import os
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from endturn import settings
from endturn.instrumentation import destinations

HTTP2_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
"""The beginning of an HTTP/2 connection: the preface, and an empty SETTINGS frame."""

_SETTINGS_FRAME: Final = 4


@dataclass(frozen=True, slots=True)
class ReceiverCheck:
    """The result of checking a receiver: its response in words, and the problem with it.

    Attributes:
        status: the HTTP status; None without one.
        problem: a sentence that says what to set; "" if there is none.
    """

    text: str
    status: int | None = None
    problem: str = ""


def check(destination: destinations.Destination, timeout_s: float) -> ReceiverCheck:
    """Send an empty export request to a destination, or wait for its gRPC channel.

    Args:
        timeout_s: the timeout of each step: name resolution, connection, response.
    """
    if destination.protocol == destinations.GRPC:
        return _check_grpc(destination, timeout_s)
    parts = urlsplit(destination.url)
    proxy = destinations.proxy_variable(parts.scheme, parts.hostname or "", os.environ)
    if proxy is None and (answer := _dial(parts, destination, timeout_s)) is not None:
        return answer
    return _export(parts, destination, timeout_s)


def _dial(
    parts: SplitResult, destination: destinations.Destination, timeout_s: float
) -> ReceiverCheck | None:
    """Connect and close. Return None on success."""
    host, port = parts.hostname or "", _port(parts)
    variable = destination.variable or destinations.BASE
    try:
        socket.create_connection((host, port), timeout=timeout_s).close()
    except socket.gaierror as error:
        return _failure(
            "host unknown",
            f"the host {host!r} cannot be resolved ({error.strerror}): check the name in "
            f"{variable}",
        )
    except ConnectionRefusedError:
        return _failure(
            "connection refused",
            f"nothing listens at {host}:{port}: start `endturn ui` or your Collector, or set "
            f"{variable} to where one listens",
        )
    except (TimeoutError, OSError) as error:
        why = f"no connection within {timeout_s:g} s" if isinstance(error, TimeoutError) else error
        return _failure(
            "no connection",
            f"{host}:{port} cannot be reached ({why}): check {variable} and the network",
        )
    return None


def _failure(text: str, problem: str, status: int | None = None) -> ReceiverCheck:
    return ReceiverCheck(text, status, problem)


def _export(
    parts: SplitResult, destination: destinations.Destination, timeout_s: float
) -> ReceiverCheck:
    """Send an empty export request, as the exporter over HTTP would."""
    try:
        requests: Any = importlib.import_module("requests")
        sessions: Any = importlib.import_module("endturn.instrumentation.export_session")
    except ImportError:
        return ReceiverCheck("not checked: pip install 'endturn[otlp]'")
    certificate = _setting("CERTIFICATE", destination)
    if certificate is not None and not os.path.isfile(certificate):
        return ReceiverCheck(
            "not checked: the file of OTEL_EXPORTER_OTLP_CERTIFICATE does not exist"
        )
    if _has_credential_provider(destination):
        return ReceiverCheck("not checked: a credential provider makes the exporter's session")
    address = settings.redact_address(destination.url)
    try:
        with requests.Session() as session:
            response = session.post(
                destination.url,
                data=b"",
                headers={**_headers(destination), "Content-Type": "application/x-protobuf"},
                timeout=timeout_s,
                allow_redirects=False,
                verify=certificate or True,
                cert=_client_certificate(destination),
            )
    except requests.exceptions.SSLError as error:
        return _tls_failure(parts, error, timeout_s)
    except (requests.exceptions.InvalidHeader, UnicodeError):
        variable = destinations.headers_variable(destination.signal, os.environ)
        return _failure(
            "not sent",
            f"the headers of {variable} cannot be sent: a value has a line end, begins with a space"
            " or has characters outside of Latin-1",
        )
    except (requests.RequestException, ValueError, OSError) as error:
        other = _other_protocol(parts, timeout_s)
        where = f"{parts.hostname}:{_port(parts)}"  # without the path, so equal for all signals
        why = other or f"{where} does not answer as an OTLP receiver ({type(error).__name__})"
        return _failure("no answer in HTTP", why)
    status = response.status_code
    if 200 <= status < 300:
        if "text/html" in response.headers.get("Content-Type", ""):
            why = "answered with a web page: it is no OTLP receiver"
            return _failure(f"answers {status}", f"{address} {why}", status)
        return ReceiverCheck(f"answers {sessions.status_text(status)}", status)
    other = _other_protocol(parts, timeout_s) if status == 400 else ""
    why = f"{address} answered {sessions.status_text(status)}; "
    return _failure(
        f"answers {sessions.status_text(status)}",
        other or why + sessions.remedy(destination.signal, status),
        status,
    )


def _headers(destination: destinations.Destination) -> dict[str, str]:
    """Return the headers that the exporter sends."""
    variable = destinations.headers_variable(destination.signal, os.environ)
    entries = (entry.partition("=") for entry in os.environ.get(variable, "").split(","))
    return {
        unquote(name).strip(): unquote(value).strip()
        for name, equals, value in entries
        if equals and name.strip()
    }


def _setting(name: str, destination: destinations.Destination) -> str | None:
    """Return the value of an OTLP variable: the signal's, else the general one."""
    own = f"OTEL_EXPORTER_OTLP_{destination.signal.upper()}_{name}"
    return os.environ.get(own) or os.environ.get(f"OTEL_EXPORTER_OTLP_{name}") or None


def _has_credential_provider(destination: destinations.Destination) -> bool:
    """Return True if a package of the host authenticates the exports of a signal."""
    prefix = "OTEL_PYTHON_EXPORTER_OTLP_HTTP_"
    names = ("CREDENTIAL_PROVIDER", f"{destination.signal.upper()}_CREDENTIAL_PROVIDER")
    return any(os.environ.get(f"{prefix}{name}") for name in names)


def _client_certificate(destination: destinations.Destination) -> str | tuple[str, str] | None:
    certificate = _setting("CLIENT_CERTIFICATE", destination)
    key = _setting("CLIENT_KEY", destination)
    return (certificate, key) if certificate and key else certificate


# --- The protocol of a port -----------------------------------------------------------------------


def _port(parts: SplitResult) -> int:
    return parts.port or (443 if parts.scheme == "https" else 80)


def _tls_failure(parts: SplitResult, error: BaseException, timeout_s: float) -> ReceiverCheck:
    host, port = parts.hostname or "", _port(parts)
    if not speaks_tls(host, port, timeout_s):
        return _failure(
            "no TLS",
            f"{host}:{port} answers in plain text, without TLS: set http://{host}:{port}",
        )
    why = "is not trusted" if "CERTIFICATE_VERIFY_FAILED" in str(error) else "is refused"
    return _failure(
        "TLS refused",
        f"the certificate of {host}:{port} {why}: set OTEL_EXPORTER_OTLP_CERTIFICATE to the file "
        "of the authority that signed it",
    )


def _other_protocol(parts: SplitResult, timeout_s: float) -> str:
    """Return a sentence about a port with another protocol; "" if none is recognised."""
    host, port = parts.hostname or "", _port(parts)
    if parts.scheme == "http" and speaks_tls(host, port, timeout_s):
        return f"{host}:{port} expects TLS: set https://{host}:{port}"
    if speaks_http2(host, port, timeout_s):
        return (
            f"{host}:{port} answers in HTTP/2, as OTLP over gRPC does: use the port of OTLP over "
            f"HTTP ({destinations.HTTP_PORT}), or OTEL_EXPORTER_OTLP_PROTOCOL=grpc"
        )
    return ""


def speaks_tls(host: str, port: int, timeout_s: float) -> bool:
    """Return True if a TLS handshake succeeds at a port, with any certificate."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only the protocol is checked
    try:
        with (
            socket.create_connection((host, port), timeout=timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=host),
        ):
            return True
    except ssl.SSLError as error:
        # An alert, such as for a missing client certificate, comes from a TLS server.
        return (
            error.reason is not None and "ALERT" in error.reason and "VERSION" not in error.reason
        )
    except OSError:
        return False


def speaks_http2(host: str, port: int, timeout_s: float) -> bool:
    """Return True if a port responds to the HTTP/2 preface with a SETTINGS frame."""
    return _first_bytes(host, port, HTTP2_PREFACE, timeout_s)[3:4] == bytes([_SETTINGS_FRAME])


def speaks_http1(host: str, port: int, timeout_s: float) -> bool:
    """Return True if a port responds to an HTTP/1.1 request."""
    request = f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    return _first_bytes(host, port, request, timeout_s).startswith(b"HTTP/1")


def _first_bytes(host: str, port: int, request: bytes, timeout_s: float) -> bytes:
    received = b""
    with suppress(OSError), socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(request)
        while len(received) < 9 and (more := connection.recv(9 - len(received))):
            received += more
    return received


# --- gRPC -----------------------------------------------------------------------------------------


def _check_grpc(destination: destinations.Destination, timeout_s: float) -> ReceiverCheck:
    """Wait until a gRPC channel is ready; no request is sent."""
    url = destination.url if "://" in destination.url else f"//{destination.url}"
    parts = urlsplit(url)
    insecure = (_setting("INSECURE", destination) or "").strip().lower() == "true"
    is_secure = parts.scheme == "https" or (parts.scheme == "" and not insecure)
    address = parts._replace(
        scheme=parts.scheme or "http", netloc=parts.netloc if parts.port else f"{parts.netloc}:443"
    )
    if (answer := _dial(address, destination, timeout_s)) is not None:
        return answer
    try:
        grpc: Any = importlib.import_module("grpc")
    except ImportError:
        return ReceiverCheck("not checked: pip install opentelemetry-exporter-otlp-proto-grpc")
    target = address.netloc.rpartition("@")[2]
    credentials = grpc.ssl_channel_credentials()
    channel = (
        grpc.secure_channel(target, credentials) if is_secure else grpc.insecure_channel(target)
    )
    try:
        grpc.channel_ready_future(channel).result(timeout=timeout_s)
    except grpc.FutureTimeoutError:
        return _grpc_failure(address, is_secure=is_secure, timeout_s=timeout_s)
    finally:
        channel.close()
    return ReceiverCheck("the gRPC channel is ready")


def _grpc_failure(parts: SplitResult, *, is_secure: bool, timeout_s: float) -> ReceiverCheck:
    host, port = parts.hostname or "", _port(parts)
    is_tls = speaks_tls(host, port, timeout_s)
    if is_tls and not is_secure:
        why = f"{host}:{port} expects TLS: set https://{host}:{port}"
    elif is_secure and not is_tls:
        why = f"{host}:{port} answers in plain text, without TLS: set http://{host}:{port}"
    elif speaks_http1(host, port, timeout_s):
        why = (
            f"{host}:{port} answers in HTTP/1.1, not in gRPC: use the port of OTLP over gRPC "
            f"({destinations.GRPC_PORT}), or OTEL_EXPORTER_OTLP_PROTOCOL={destinations.HTTP}"
        )
    else:
        why = f"{host}:{port} does not answer in gRPC"
    return _failure("no gRPC", why)


def as_json(answer: ReceiverCheck) -> Mapping[str, object]:
    """Return a check as JSON values."""
    return {"answer": answer.text, "status": answer.status, "problem": answer.problem or None}
