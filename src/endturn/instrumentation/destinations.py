"""The destinations of signals by OpenTelemetry's variables, and mistakes in their addresses.

It imports neither the SDK nor an exporter, and sends nothing.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import SplitResult, urlsplit

from endturn.settings import redact_address

Signal = Literal["metrics", "traces", "logs"]
SIGNALS: Final[tuple[Signal, ...]] = ("traces", "metrics", "logs")
Protocol = str
"""`http/protobuf` or `grpc`; any other is unknown."""

HTTP: Final = "http/protobuf"
GRPC: Final = "grpc"
HTTP_PORT: Final = 4318
GRPC_PORT: Final = 4317
BASE: Final = "OTEL_EXPORTER_OTLP_ENDPOINT"

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
_SIGNAL_PATH: Final = re.compile(r"(/v1)?/v1/(traces|metrics|logs)/?$|/v1/?$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The destination of one signal by one exporter.

    Attributes:
        exporter: the exporter's name in the variable: otlp, console, or a registered name.
        protocol: the protocol of the exporter otlp; "" for others.
        url: the address that the SDK uses, with the signal's path; "" for other exporters.
        variable: the variable that sets the address; "" for the default.
    """

    signal: Signal
    exporter: str
    protocol: Protocol = ""
    url: str = ""
    variable: str = ""


def exporter_variable(signal: Signal) -> str:
    """Return the name of the variable that lists a signal's exporters."""
    return f"OTEL_{signal.upper()}_EXPORTER"


def exporters_of(signal: Signal, environment: Mapping[str, str]) -> list[str]:
    """Return the exporters that the variables name for a signal."""
    named = environment.get(exporter_variable(signal), "").split(",")
    return [name.strip().lower() for name in named if name.strip()] or ["otlp"]


def protocol_of(signal: Signal, environment: Mapping[str, str]) -> tuple[str, Protocol]:
    """Return the variable that sets a signal's protocol, and the protocol.

    Without one it is HTTP, whose exporter is installed with endturn; the variable is "" then.
    """
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if protocol := environment.get(name, "").strip().lower():
            return name, protocol
    return "", HTTP


def destinations(environment: Mapping[str, str]) -> list[Destination]:
    """Return the destinations of all signals."""
    return [
        _otlp(signal, environment)
        if exporter == "otlp"
        else Destination(signal=signal, exporter=exporter)
        for signal in SIGNALS
        for exporter in exporters_of(signal, environment)
    ]


def _otlp(signal: Signal, environment: Mapping[str, str]) -> Destination:
    """Return the destination of a signal by OTLP, as the SDK's exporters resolve it."""
    _, protocol = protocol_of(signal, environment)
    own, url, variable = f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT", "", ""
    if value := environment.get(own):
        url, variable = value, own
    elif value := environment.get(BASE):
        url, variable = value, BASE
    if protocol == GRPC:
        url = url or f"http://localhost:{GRPC_PORT}"
    elif variable != own:
        url = f"{(url or f'http://localhost:{HTTP_PORT}').removesuffix('/')}/v1/{signal}"
    return Destination(
        signal=signal, exporter="otlp", protocol=protocol, url=url, variable=variable
    )


def headers_variable(signal: Signal, environment: Mapping[str, str]) -> str:
    """Return the variable that sets a signal's headers; "" if none does."""
    names = (f"OTEL_EXPORTER_OTLP_{signal.upper()}_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS")
    return next((name for name in names if environment.get(name)), "")


def listing(words: Iterable[str]) -> str:
    """Return words as a sentence lists them: `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


# --- Mistakes -------------------------------------------------------------------------------------


def mistakes(
    environment: Mapping[str, str],
    signals: Iterable[Signal] = SIGNALS,
    *,
    with_ports: bool = True,
) -> list[str]:
    """Return a sentence for each mistake in the addresses of these signals.

    Each says what to set. No connection is made.

    Args:
        with_ports: also ports that are probably another protocol's.
    """
    selected = frozenset(signals)
    sentences: dict[str, None] = {}  # in their order, each once
    for destination in destinations(environment):
        if destination.exporter != "otlp" or destination.signal not in selected:
            continue
        if destination.protocol in (HTTP, GRPC) and destination.variable:
            text = environment[destination.variable]
            sentence = _address_mistake(destination, text)
            if sentence is None and with_ports:
                sentence = _port_mistake(destination)
            if sentence is not None:
                sentences[sentence] = None
                continue
        if (sentence := _proxy_mistake(destination, environment)) is not None:
            sentences[sentence] = None
    return list(sentences)


def unusable_address(signal: Signal, environment: Mapping[str, str]) -> str | None:
    """Return the mistake in a signal's address if the exporter over HTTP cannot send to it."""
    destination = _otlp(signal, environment)
    text = environment.get(destination.variable, "")
    if destination.protocol != HTTP or not text or _is_usable(text):
        return None
    sentence = _address_mistake(destination, text)
    return sentence or f"{destination.variable} is not an address"


def _is_usable(url: str) -> bool:
    try:
        parts = urlsplit(url.lstrip())
        _ = parts.port
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not _is_user_cut(parts)


def _address_mistake(destination: Destination, text: str) -> str | None:
    name, protocol, signal = destination.variable, destination.protocol, destination.signal
    if text != text.strip().strip("\"'"):
        return f"{name} has quotation marks or spaces around the address: remove them"
    has_scheme = _SCHEME.match(text) is not None
    if not has_scheme and (protocol != GRPC or "://" in text):
        return _without_scheme(name, text, signal)
    url = text if has_scheme else f"http://{text}"
    setting = f"{name}={redact_address(url)}"
    try:
        parts = urlsplit(url)
        if _is_user_cut(parts):
            return f"{setting}: the user or password contains a /: write it as %2F"
        _ = parts.port  # raises if it is invalid
    except ValueError:
        return f"{setting}: {_reason_unparsed(url)}"
    if parts.scheme not in ("http", "https"):
        return f"{setting}: use http:// or https://, not {parts.scheme}://"
    if not parts.hostname:
        return f"{setting} names no host: set it to {_example(protocol, signal, name)}"
    if protocol == GRPC:
        return None
    if name == BASE and (parts.query or parts.fragment):
        return (
            f"{setting} has a query or a fragment, after which /v1/{signal} is appended: set the "
            f"OTEL_EXPORTER_OTLP_{signal.upper()}_ENDPOINT of each signal to a complete address"
        )
    return _path_mistake(destination, parts, setting)


def _is_user_cut(parts: SplitResult) -> bool:
    """Return whether a slash of the password ends the host, so that an @ is in the path.

    Only the first segment counts: an @ further on, or in a query, is usually an address of mail.
    """
    is_in_path = re.match(r"/[^/@]+@", parts.path) is not None
    return ":" in parts.netloc and "@" not in parts.netloc and is_in_path


def _reason_unparsed(url: str) -> str:
    """Return the reason why `urlsplit` cannot read an address, and what to set."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
    if authority.count("[") != authority.count("]"):
        missing = "]" if "[" in authority else "["
        return (
            f"the host has no {missing!r}: an IPv6 address is written as http://[::1]:{HTTP_PORT}"
        )
    _, bracket, port = authority.rpartition("]")
    if bracket and re.fullmatch(r"|:\d{1,5}", port) and int(port[1:] or 0) <= 65535:
        return f"the host in [ ] is no IPv6 address: write it as http://[::1]:{HTTP_PORT}"
    return "the port is not a number from 1 to 65535"


def _without_scheme(name: str, text: str, signal: Signal) -> str:
    address = re.sub(r"^(https?)?[:/]*", "", text) or f"localhost:{HTTP_PORT}"
    scheme = "https" if text.startswith("https") else "http"
    if "@" in address:
        return f"{name} has no scheme: set it to {scheme}://…"
    address, mark, _ = address.partition("?")
    path = "" if name == BASE or "/" in address else f"/v1/{signal}"
    setting = redact_address(f"{scheme}://{address}{path}") + ("?…" if mark else "")
    return f"{name} has no scheme (http:// or https://): set it to {setting}"


def _example(protocol: Protocol, signal: Signal, name: str) -> str:
    port = GRPC_PORT if protocol == GRPC else HTTP_PORT
    path = f"/v1/{signal}" if name != BASE and protocol == HTTP else ""
    return f"http://localhost:{port}{path}"


def _port_mistake(destination: Destination) -> str | None:
    """Return the sentence about a port that is probably another protocol's."""
    usual, other = (HTTP, GRPC) if destination.protocol == GRPC else (GRPC, HTTP)
    ports = {HTTP: HTTP_PORT, GRPC: GRPC_PORT}
    url = destination.url if "://" in destination.url else f"http://{destination.url}"
    if urlsplit(url).port != ports[usual]:
        return None
    return (
        f"{destination.variable} has port {ports[usual]}, which is usually "
        f"OTLP over {'gRPC' if usual == GRPC else 'HTTP'}, while the protocol is {other}: use port "
        f"{ports[other]}, or OTEL_EXPORTER_OTLP_PROTOCOL={usual}"
    )


def _path_mistake(destination: Destination, parts: SplitResult, setting: str) -> str | None:
    name, signal = destination.variable, destination.signal
    bare = redact_address(parts._replace(path=_SIGNAL_PATH.sub("", parts.path)).geturl())
    match = _SIGNAL_PATH.search(parts.path)
    if name == BASE:
        if match is None:
            return None
        return (
            f"{setting} ends in {match[0]}, and the path of each signal is appended to it: "
            f"set it to {bare}"
        )
    if parts.path in ("", "/"):
        return (
            f"{setting} is used as it is, without the signal's path: set it to {bare.rstrip('/')}"
            f"/v1/{signal}, or set {BASE}"
        )
    if match is not None and not match[0].rstrip("/").endswith(signal):
        return f"{setting} is the path of another signal: set it to {bare}/v1/{signal}"
    return None


def _proxy_mistake(destination: Destination, environment: Mapping[str, str]) -> str | None:
    """Return the sentence about a proxy that would receive requests to this machine."""
    try:
        parts = urlsplit(destination.url)
    except ValueError:
        return None
    host = parts.hostname or ""
    if destination.protocol != HTTP or not is_loopback(host):
        return None
    name = proxy_variable(parts.scheme, host, environment)
    if name is None:
        return None
    return (
        f"{name} is set, so exports to {parts.netloc.rpartition('@')[2]} go to that proxy: add "
        f"{host} to NO_PROXY"
    )


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is this machine's own, without resolving it."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def proxy_variable(scheme: str, host: str, environment: Mapping[str, str]) -> str | None:
    """Return the variable whose proxy the exporter's HTTP library uses for a host; None if none.

    Source: `requests.utils`, which reads the variables in lower case first.
    """
    excepted = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
    if any(_is_excepted(host, entry) for entry in excepted.replace(" ", "").split(",") if entry):
        return None
    for kind in (scheme, "all"):
        for name in (f"{kind}_proxy", f"{kind}_proxy".upper()):
            if environment.get(name):
                return name
    return None


def _is_excepted(host: str, entry: str) -> bool:
    entry = entry.rpartition(":")[0] if re.search(r"[^:]:\d+$", entry) else entry
    name = entry.lstrip(".")
    if name in ("*", host) or host.endswith(f".{name}"):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return False
