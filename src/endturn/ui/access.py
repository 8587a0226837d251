"""Access rules: a request's host name, its site, and the token for pages open to other machines."""

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
"""The path that answers without a token: probes of containers and load balancers have none."""
INGESTION: Final = "/v1/"
DRAIN_S: Final = 5.0
"""How long a refused body is still read: many senders read an answer only when they have sent
everything."""
_UNAUTHORIZED: Final = (
    "A token is needed here. In a browser, open the address that `endturn ui` printed, or add "
    "?token=TOKEN to this one once; if you came from another site and have done so before, load "
    "the page again. An exporter sends it as `Authorization: Bearer TOKEN`: "
    "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20TOKEN"
)


@dataclass(frozen=True, slots=True)
class Access:
    """What a request has to show.

    Attributes:
        token: the page's; "" where everybody who reaches it may read it and send to it.
        only_here: it is served under the names of this machine alone.
        cookie: the name of the cookie that stands for the token; browsers keep them by host,
            whatever the port.
    """

    token: str = ""
    only_here: bool = True
    cookie: str = "endturn"

    @property
    def cookie_value(self) -> str:
        """What the cookie holds.

        The token cannot be read from it, and it outlives a restart with the same token.
        """
        return hmac.new(self.token.encode(), b"the cookie of endturn's page", "sha256").hexdigest()

    def has_bearer(self, headers: Mapping[str, str]) -> bool:
        """Whether a request shows the token as exporters do."""
        scheme, _, shown = headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _equal(shown.strip(), self.token)

    def admits(self, request: Request) -> bool:
        """Whether a request may be answered.

        A cookie lets it read only: a browser sends it by itself.
        """
        if not self.token or self.has_bearer(request.headers):
            return True
        shown = request.cookies.get(self.cookie, "")
        return request.method in ("GET", "HEAD") and _equal(shown, self.cookie_value)


def is_loopback(host: str) -> bool:
    """Whether a name or address, as a `Host` header or an option has it, is this machine's own."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def chosen_token(given: str | None, *, is_open: bool) -> str:
    """Return the token to require.

    The given one, or a new one where other machines get in; "" for none.

    Raises:
        UsageError: it is empty, or cannot stand in a header.
    """
    if given is None:
        return secrets.token_urlsafe(24) if is_open else ""
    if not re.fullmatch(r"[!-~]+", given):
        raise UsageError(
            "a token must be ASCII letters, digits and signs, without spaces; without --token one "
            "is generated"
        )
    return given


def guarded(app: ASGIApp, access: Access, headers: Mapping[str, str]) -> ASGIApp:
    """Answer those who may ask, and refuse all others before anything else reads the request.

    A page elsewhere can make a browser send requests here, under a name of its own that it points
    to 127.0.0.1.

    Args:
        headers: what every answer has.
    """

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        refused = _refused(Request(scope), access)
        if refused is not None and scope["method"] not in ("GET", "HEAD"):
            await drained(Request(scope, receive).stream())

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers)
            await send(message)

        await (refused or app)(scope, receive, send_guarded)

    return answer


def _refused(request: Request, access: Access) -> Response | None:
    """The answer to who may not ask, or has to ask again; None for anybody else."""
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
        return _let_in(path, [(name, value) for name, value in query if name != "token"], access)
    return None if access.admits(request) else _unauthorized(request)


def _let_in(path: str, query: list[tuple[str, str]], access: Access) -> Response:
    """Set the cookie, and lead to the same address without the token.

    It is in no history, link or screenshot.
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
    return Response(otlp.refusal(kind, _UNAUTHORIZED, 401), 401, headers, media)


async def drained(body: AsyncIterator[bytes]) -> None:
    """Read what is left of a refused request's body for a while, and forget it.

    None is left where it has ended.
    """
    with suppress(TimeoutError, ClientDisconnect):
        async with asyncio.timeout(DRAIN_S):
            async for _ in body:
                pass


def _equal(shown: str, wanted: str) -> bool:
    return hmac.compare_digest(shown.encode("utf-8", "surrogatepass"), wanted.encode())
