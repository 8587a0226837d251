"""The address of a request, in one form for all HTTP clients."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

ENDPOINT_NAMES: Final = {
    "cancel", "chat", "chat_stream", "chatcompletion_v2", "complete", "completion", "completions",
    "converse", "converse-stream", "generate", "generate_stream", "generateContent", "generation",
    "generation_stream", "interactions", "invocations", "invoke", "invoke-with-response-stream",
    "messages", "rawPredict", "responses", "streamGenerateContent", "streamRawPredict",
}  # fmt: skip
"""The last parts, after a slash or colon, of the paths of requests to a model."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_MAX_PORT: Final = 65_535


class Address(NamedTuple):
    """The host, port, path and query of a request's URL.

    User name, password and fragment are left out.

    Attributes:
        host: in lower case, without a trailing dot. An international name is in ASCII; an IPv6
            address is in its short form, without brackets.
        port: None for the default port of the scheme.
        path: without its query, as it is sent.
        query: without the question mark.
    """

    host: str
    port: int | None
    path: str
    query: str


class Outgoing(NamedTuple):
    """A request as its HTTP client has it.

    Attributes:
        address: None if the URL is not valid: nothing is sent.
        content: bytes, text, or the value to be sent as JSON; anything else is not in memory.
        headers: as the client has them, by name in any case; None if it has none.
    """

    address: Address | None
    content: object
    headers: Any = None


class ErrorResponse(NamedTuple):
    """The response that an exception of an HTTP client carries.

    Attributes:
        status: its status code.
        headers: by name in any case.
        body: the part of it that is in memory.
    """

    status: int
    headers: Any
    body: bytes


def address(
    target: str | bytes,
    *,
    scheme: str = "",
    host: str | bytes | None = None,
    port: int | str | None = None,
) -> Address | None:
    """Return the address of a request, or None if its URL is not valid: its client refuses it.

    Args:
        target: a complete URL; or a path with its query, if the client has the host separately.
            Such a client may have a complete URL there, too: a proxy's request has one.
        scheme, host, port: the destination of a path. A complete URL has its own.
    """
    url = target.decode("latin-1") if isinstance(target, bytes) else target
    try:
        if host is None or not url.startswith("/"):
            parts = urlsplit(url)
            if not parts.hostname:
                return None
            scheme, host, port = parts.scheme, parts.hostname, parts.port
            path, query = parts.path, parts.query
        else:
            path, _, query = url.partition("#")[0].partition("?")
        port_number = None if port is None or port == "" else int(port)
    except ValueError:
        return None
    if port_number is not None and not 0 <= port_number <= _MAX_PORT:
        return None
    if port_number == _DEFAULT_PORTS.get(scheme.lower()):
        port_number = None
    host_name = host.decode("latin-1") if isinstance(host, bytes) else host or ""
    return Address(_canonical(host_name), port_number, path, query)


@lru_cache(maxsize=1024)
def _canonical(host: str) -> str:
    host = host.strip("[]")
    if ":" in host:
        literal, percent, zone = host.replace("%25", "%").partition("%")
        try:
            literal = str(IPv6Address(literal))
        except ValueError:  # the path of a Unix socket, for instance
            return host
        return literal + percent + zone
    host = host.lower().rstrip(".")
    if not host.isascii():
        try:
            return host.encode("idna").decode("ascii")
        except UnicodeError:
            return host
    return host
