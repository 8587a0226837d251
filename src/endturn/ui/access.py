"""Access rules: allowed host names and origins, and the token for pages on other addresses."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from endturn.errors import UsageError
from endturn.ui import otlp

HEALTH: Final = "/healthz"
"""The path that needs no token, for the probes of containers and load balancers."""
INGESTION: Final = "/v1/"
"""Prefix of the paths that receive OTLP."""
DRAIN_S: Final = 5.0
"""The time for which the body of a refused request is still read: many senders read the response
only after they have sent the whole body."""
_UNAUTHORIZED: Final = (
    "A token is needed here. In a browser, open the address that `endturn ui` printed, or add "
    "?token=TOKEN to this one once; if you came from another site and have done so before, load "
    "the page again. An exporter sends it as `Authorization: Bearer TOKEN`: "
    "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20TOKEN"
)


@dataclass(frozen=True, slots=True)
class Access:
    """The conditions under which a request is answered.

    Attributes:
        token: the required token; "" if every request that reaches the page is allowed.
        only_here: requests must use a loopback name or address of this machine as their host.
        cookie: the name of the cookie that replaces the token in a browser. It contains the port,
            because browsers share cookies between the ports of a host.
    """

    token: str = ""
    only_here: bool = True
    cookie: str = "endturn"

    @property
    def cookie_value(self) -> str:
        """The value of the cookie.

        It does not reveal the token, and stays valid after a restart with the same token.
        """
        return hmac.new(self.token.encode(), b"the cookie of endturn's page", "sha256").hexdigest()

    def has_bearer(self, headers: Mapping[str, str]) -> bool:
        """Return True if a request has the token in its `Authorization` header."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _equal(token.strip(), self.token)

    def admits(self, request: Request) -> bool:
        """Return True if a request may be answered.

        A cookie permits reading only, because browsers also send it with requests of other sites.
        """
        if not self.token or self.has_bearer(request.headers):
            return True
        cookie = request.cookies.get(self.cookie, "")
        return request.method in ("GET", "HEAD") and _equal(cookie, self.cookie_value)


def is_loopback(host: str) -> bool:
    """Return True if a host name or address, as in a `Host` header, is loopback."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def required_token(token: str | None, *, is_open: bool) -> str:
    """Return the token that requests must have; "" if none is required.

    Args:
        token: the configured token; None generates one if the page is open.
        is_open: other machines can reach the page.

    Raises:
        UsageError: the token is empty, or is not valid in a header.
    """
    if token is None:
        return secrets.token_urlsafe(24) if is_open else ""
    if not re.fullmatch(r"[!-~]+", token):
        raise UsageError(
            "a token must be ASCII letters, digits and signs, without spaces; without --token one "
            "is generated"
        )
    return token


def guard(app: ASGIApp, access: Access, headers: Mapping[str, str]) -> ASGIApp:
    """Wrap an application: refuse a request without access before the application reads it.

    A web page of another site can make a browser send requests to this server, also under a host
    name that resolves to 127.0.0.1.

    Args:
        headers: added to every response.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refusal = _refusal(Request(scope), access)
        if refusal is not None and scope["method"] not in ("GET", "HEAD"):
            await drain_body(Request(scope, receive).stream())

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await (refusal or app)(scope, receive, send_guarded)

    return answer


def _refusal(request: Request, access: Access) -> Response | None:
    """Return the response to a request that is refused or redirected; None to serve it."""
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    path, reads = request.scope["path"], request.method in ("GET", "HEAD")
    if access.only_here and not is_loopback(re.sub(r":\d*$", "", host)):
        return PlainTextResponse(f"this page is not served as {host[:300]!r}\n", 421)
    if not reads and origin and origin != f"http://{host}":
        return PlainTextResponse("no other site may write here\n", 403)
    if not access.token or path == HEALTH:
        return None
    query = parse_qsl(request.scope["query_string"].decode("latin-1"), keep_blank_values=True)
    if reads and any(name == "token" and _equal(value, access.token) for name, value in query):
        return _set_cookie(
            path, [(name, value) for name, value in query if name != "token"], access
        )
    return None if access.admits(request) else _unauthorized(request)


def _set_cookie(path: str, query: list[tuple[str, str]], access: Access) -> Response:
    """Set the cookie, and redirect to the same address without the token.

    So the token is in no history, link or screenshot.
    """
    target = "/" + quote(path.lstrip("/\\"))  # never `//`, which is another host
    response = RedirectResponse(
        f"{target}?{urlencode(query)}" if query else target, 303, {"Cache-Control": "no-store"}
    )
    response.set_cookie(access.cookie, access.cookie_value, httponly=True, samesite="strict")
    return response


def _unauthorized(request: Request) -> Response:
    headers = {"WWW-Authenticate": "Bearer", "Cache-Control": "no-store"}
    if not request.scope["path"].startswith(INGESTION):
        return PlainTextResponse(f"{_UNAUTHORIZED}\n", 401, headers)
    kind = request.headers.get("content-type", "").lower()
    media = otlp.JSON if otlp.JSON in kind else otlp.PROTOBUF
    return Response(otlp.error_body(kind, _UNAUTHORIZED, 401), 401, headers, media)


async def drain_body(body: AsyncIterator[bytes]) -> None:
    """Read and discard the rest of a refused request's body, for at most `DRAIN_S` seconds."""
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DRAIN_S):
            async for _ in body:
                pass


def _equal(value: str, secret: str) -> bool:
    return hmac.compare_digest(value.encode("utf-8", "surrogatepass"), secret.encode())
