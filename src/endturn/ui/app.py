"""The HTTP application of the page: its routes, and the headers of its responses."""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

import duckdb
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from endturn._version import __version__
from endturn.ui import (
    alerts,
    otlp,
    panels,
    reasons,
    search,
    turn_page,
    turns,
    views,
    wrong_requests,
)
from endturn.ui.access import HEALTH, Access, drain_body, guard
from endturn.ui.exports import FILES, export_file
from endturn.ui.store import Store, first_line
from endturn.ui.views import View

_HOST: Final = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?", re.ASCII)
LIVE_S: Final = 1.0
"""The shortest time between two notifications of an open page that data have arrived."""
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response: what a page may load, and which sites may embed it."""


class Page:
    """The routes over one store.

    Args:
        address: the address of the page, where exporters send telemetry.
        access: the conditions under which requests are answered.
        traces: the URL of a trace in Grafana or Tempo, with the placeholder `{trace_id}`.
    """

    def __init__(self, store: Store, *, address: str, access: Access, traces: str = "") -> None:
        self.store, self.address, self.traces, self.access = store, address, traces, access
        self._body_budget = otlp.BodyBudget()
        self.closing = False  # True ends the connections of `live`
        self._templates = views.templates()

    def routes(self) -> list[Route | Mount]:
        """Return the routes."""
        return [
            Route("/", self._page("overview", panels.overview)),
            Route("/turns", self._page("turns", turns.turn_list)),
            Route("/turns/{turn_id:path}", self._turn),
            Route("/search", self._search),
            Route("/reasons", self._page("reasons", reasons.reasons_page)),
            Route("/alerts", self._page("alerts", alerts.alerts_page)),
            Route("/alerts/{alert}", self._page("runbook", alerts.runbook_page)),
            Route("/export/{name}", self.export),
            Route("/live", self.live),
            Route(HEALTH, self.healthz),
            *(
                Route(f"/v1/{signal}", self._receiver(signal), methods=["POST"])
                for signal in otlp.SIGNALS
            ),
            *(
                Route(f"/v1/{signal}", self._refuse_read, methods=["GET"])
                for signal in otlp.SIGNALS
            ),
            Mount("/static", StaticFiles(packages=[(__package__, "static")])),
            Route("/{path:path}", self._page("missing", lambda *_: None)),
            Route("/{path:path}", self._refuse_path, methods=wrong_requests.WRITING_METHODS),
        ]

    # --- In ---------------------------------------------------------------------------------------

    def _receiver(self, signal: str) -> Callable[[Request], Awaitable[Response]]:
        async def take(request: Request) -> Response:
            kind = request.headers.get("content-type", "").lower()
            media = otlp.JSON if otlp.JSON in kind else otlp.PROTOBUF
            body = request.stream()
            try:
                encoding = request.headers.get("content-encoding", "").strip().lower()
                async with self._body_budget.body(body, encoding) as content:
                    batch = await run_in_threadpool(otlp.parse_request, signal, kind, content)
                    await asyncio.wrap_future(self.store.submit(batch))
            except ClientDisconnect:
                return Response(status_code=499)  # the client is gone
            except otlp.BadRequest as error:
                if error.status != 408:  # after a timeout the rest will not arrive either
                    await drain_body(body)
                headers = {"Connection": "close"} if error.status in (408, 413, 503) else {}
                return Response(
                    otlp.error_body(kind, str(error), error.status), error.status, headers, media
                )
            # DataError: a value is out of range. Others, such as a full disk, may be retried: 503.
            except duckdb.Error as error:
                status = 400 if isinstance(error, duckdb.DataError) else 503
                message = f"this cannot be stored: {first_line(error)}"
                return Response(otlp.error_body(kind, message, status), status, media_type=media)
            return Response(otlp.response_body(signal, kind, batch), media_type=media)

        return take

    async def _refuse_path(self, request: Request) -> Response:
        return await wrong_requests.answer_wrong_path(request, self._address(request))

    async def _refuse_read(self, request: Request) -> Response:
        return wrong_requests.answer_read(request, self._address(request))

    # --- Out --------------------------------------------------------------------------------------

    def _page(
        self, name: str, data: Callable[[View, Store], dict[str, object] | None]
    ) -> Callable[[Request], Response]:
        def render(request: Request) -> Response:
            frame = {"commits": self.store.commits, "page": name, "release": __version__}
            frame |= {"address": self._address(request), "secured": bool(self.access.token)}
            frame |= {"is_open": not self.access.only_here}
            view = View.of(
                self.store, dict(request.query_params) | request.path_params, time.time_ns()
            )
            frame |= {"unmatched": search.unmatched(view, self.store)}
            content = data(view, self.store)
            template = self._templates.get_template(
                f"{name if content is not None else 'missing'}.html"
            )
            frame |= {"view": view, "traces": self.traces}
            # values of the page must not replace those of the frame around it
            assert frame.keys().isdisjoint(content or ()), frame.keys() & (content or {}).keys()
            text = template.render(frame | (content or {}))
            return HTMLResponse(
                text, 404 if content is None else 200, {"Cache-Control": "no-store"}
            )

        return render

    def _turn(self, request: Request) -> Response:
        """Return the page of a turn; redirect from another id, such as that of its trace."""
        answer = self._page("turn", turn_page.turn_page)(request)
        if answer.status_code == 404 and search.find_turns(
            self.store, request.path_params["turn_id"]
        ):
            return self._redirect(request, request.path_params["turn_id"])
        return answer

    def _search(self, request: Request) -> Response:
        """Redirect to the result of the search field."""
        return self._redirect(request, request.query_params.get("q", ""))

    def _redirect(self, request: Request, text: str) -> Response:
        parameters = dict(request.query_params) | {"q": text}
        view = View.of(self.store, parameters, time.time_ns())
        headers = {"Cache-Control": "no-store"}
        return RedirectResponse(search.address_of(view, self.store), 303, headers)

    def _address(self, request: Request) -> str:
        """Return the address to which the client of a request can send telemetry.

        For other machines that is the host name of their request.
        """
        host = request.headers.get("host", "")
        return (
            f"http://{host}"
            if not self.access.only_here and _HOST.fullmatch(host)
            else self.address
        )

    def export(self, request: Request) -> Response:
        """Return a table's rows within a view as a file."""
        name = request.path_params["name"]
        if name not in FILES:
            return PlainTextResponse(f"there are: {', '.join(FILES)}\n", 404)
        view = View.of(self.store, request.query_params, time.time_ns())
        _, format_ = FILES[name]
        headers = {"Content-Disposition": f'attachment; filename="endturn-{name}"'}
        content = export_file(name, view, self.store)
        return Response(content, media_type=format_.media_type, headers=headers)

    async def live(self, request: Request) -> Response:
        """Send a server-sent event with the number of commits whenever data have arrived."""

        async def news() -> AsyncIterator[str]:
            last_commits = 0
            yield "retry: 2000\n\n"
            while not self.closing and not await request.is_disconnected():
                if last_commits != self.store.commits:
                    last_commits = self.store.commits
                    yield f"data: {last_commits}\n\n"
                await asyncio.sleep(LIVE_S)

        return StreamingResponse(
            news(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def healthz(self, request: Request) -> Response:
        """Identify the server, for probes and for another `endturn ui` that finds the port in use.

        The version and the pid require the token.
        """
        more = {"version": __version__, "pid": os.getpid()} if self.access.admits(request) else {}
        return JSONResponse({"service": "endturn"} | more)


def application(page: Page) -> ASGIApp:
    """Return the ASGI application of a page, with its access rules."""
    app = Starlette(routes=page.routes(), exception_handlers={duckdb.Error: _unreadable_store})
    return guard(app, page.access, _HEADERS)


def _unreadable_store(_: Request, error: Exception) -> Response:
    problem = f"The stored data cannot be read now: {first_line(error)}"
    advice = (
        "If this stays so, its --file is damaged: stop the page, then restore a copy of the file "
        "or move it away."
    )
    return PlainTextResponse(f"{problem}\n{advice}\n", 503, {"Retry-After": "5"})
