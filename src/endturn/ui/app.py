"""The server: OTLP in, pages out.

It says what is served and what an answer may load; the other modules do the rest.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, Final

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
from endturn.ui.access import HEALTH, Access, drained, guarded
from endturn.ui.downloads import DOWNLOADS
from endturn.ui.store import Store, first_line
from endturn.ui.views import View

_HOST: Final = re.compile(r"([\w.-]+|\[[\da-fA-F:.]+\])(:\d+)?", re.ASCII)
LIVE_S: Final = 1.0
"""A page is told of news at most so often."""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every response: what it may load, and who may show it."""


class Page:
    """The routes over one store.

    Args:
        traces: where a trace's own page is elsewhere, with `{trace_id}` in it: a Grafana or Tempo.
        access: what a request has to show.
    """

    def __init__(self, store: Store, *, address: str, access: Access, traces: str = "") -> None:
        self.store, self.address, self.traces, self.access = store, address, traces, access
        self._room = otlp.Room()
        self.closing = False  # true ends the connections that wait for news
        self._templates = views.templates()

    def routes(self) -> list[Route | Mount]:
        """What is served."""
        return [
            Route("/", self._page("overview", panels.overview)),
            Route("/turns", self._page("turns", turns.turn_list)),
            Route("/turns/{turn_id:path}", self._turn),
            Route("/search", self._search),
            Route("/reasons", self._page("reasons", reasons.reasons_page)),
            Route("/alerts", self._page("alerts", alerts.shown)),
            Route("/alerts/{alert}", self._page("runbook", alerts.runbook)),
            Route("/export/{name}", self.export),
            Route("/live", self.live),
            Route(HEALTH, self.healthz),
            *(
                Route(f"/v1/{signal}", self._taking(signal), methods=["POST"])
                for signal in otlp.SIGNALS
            ),
            *(Route(f"/v1/{signal}", self._read, methods=["GET"]) for signal in otlp.SIGNALS),
            Mount("/static", StaticFiles(packages=[(__package__, "static")])),
            Route("/{path:path}", self._page("missing", lambda *_: None)),
            Route("/{path:path}", self._misdirected, methods=wrong_requests.WRITING_METHODS),
        ]

    # --- In ---------------------------------------------------------------------------------------

    def _taking(self, signal: str) -> Callable[[Request], Awaitable[Response]]:
        async def take(request: Request) -> Response:
            kind = request.headers.get("content-type", "").lower()
            media = otlp.JSON if otlp.JSON in kind else otlp.PROTOBUF
            body = request.stream()
            try:
                encoding = request.headers.get("content-encoding", "").strip().lower()
                async with self._room.body(body, encoding) as content:
                    batch = await run_in_threadpool(otlp.read, signal, kind, content)
                    await asyncio.wrap_future(self.store.submit(batch))
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it
            except otlp.BadRequest as error:
                if error.status != 408:  # what has not come will not come
                    await drained(body)
                headers = {"Connection": "close"} if error.status in (408, 413, 503) else {}
                return Response(
                    otlp.refusal(kind, str(error), error.status), error.status, headers, media
                )
            # a figure that cannot be; or a full disk: 503 has the sender try again
            except duckdb.Error as error:
                status = 400 if isinstance(error, duckdb.DataError) else 503
                why = f"this cannot be stored: {first_line(error)}"
                return Response(otlp.refusal(kind, why, status), status, media_type=media)
            return Response(otlp.answer(signal, kind, batch), media_type=media)

        return take

    async def _misdirected(self, request: Request) -> Response:
        return await wrong_requests.answer_wrong_path(request, self._address(request))

    async def _read(self, request: Request) -> Response:
        return wrong_requests.answer_read(request, self._address(request))

    # --- Out --------------------------------------------------------------------------------------

    def _page(
        self, name: str, data: Callable[[View, Store], dict[str, Any] | None]
    ) -> Callable[[Request], Response]:
        def render(request: Request) -> Response:
            about = {"seen": self.store.commits, "page": name, "release": __version__}
            about |= {"address": self._address(request), "secured": bool(self.access.token)}
            about |= {"is_open": not self.access.only_here}
            view = View.of(
                self.store, dict(request.query_params) | request.path_params, time.time_ns()
            )
            about |= {"unmatched": search.unmatched(view, self.store)}
            found = data(view, self.store)
            template = self._templates.get_template(
                f"{name if found is not None else 'missing'}.html"
            )
            about |= {"view": view, "traces": self.traces}
            # a page that names a value like one of these would change the frame around it
            assert about.keys().isdisjoint(found or ()), about.keys() & (found or {}).keys()
            text = template.render(about | (found or {}))
            return HTMLResponse(text, 404 if found is None else 200, {"Cache-Control": "no-store"})

        return render

    def _turn(self, request: Request) -> Response:
        """The page of a turn; by the id of anything else, such as its trace, a redirect."""
        answer = self._page("turn", turn_page.turn_page)(request)
        if answer.status_code == 404 and search.find_turns(
            self.store, request.path_params["turn_id"]
        ):
            return self._redirect(request, request.path_params["turn_id"])
        return answer

    def _search(self, request: Request) -> Response:
        """A redirect to what the search field asks for."""
        return self._redirect(request, request.query_params.get("q", ""))

    def _redirect(self, request: Request, text: str) -> Response:
        given = dict(request.query_params) | {"q": text}
        view = View.of(self.store, given, time.time_ns())
        headers = {"Cache-Control": "no-store"}
        return RedirectResponse(search.address_of(view, self.store), 303, headers)

    def _address(self, request: Request) -> str:
        """Where the one who asks sends telemetry.

        Other machines know this one by the name that they asked for.
        """
        host = request.headers.get("host", "")
        return (
            f"http://{host}"
            if not self.access.only_here and _HOST.fullmatch(host)
            else self.address
        )

    def export(self, request: Request) -> Response:
        """A table's rows within a view: CSV for people and spreadsheets, Parquet for programs."""
        view, name = (
            View.of(self.store, request.query_params, time.time_ns()),
            request.path_params["name"],
        )
        if name not in DOWNLOADS:
            return PlainTextResponse(f"there are: {', '.join(DOWNLOADS)}\n", 404)
        table, file_type = DOWNLOADS[name].table, DOWNLOADS[name].file_type
        where, parameters = view.where(table.time_column)
        if table.is_searched:
            turns_of, more = search.turns_of(view, self.store)
            where += turns_of
            parameters |= more
        query = f"{table.query} WHERE {where} ORDER BY {table.time_column}"
        if name.endswith(".csv"):
            described = self.store.read(f"DESCRIBE {query}", parameters)
            query = (
                f"SELECT {', '.join(_inert(column, kind) for column, kind, *_ in described)} FROM "
                f"({query})"
            )
        headers = {"Content-Disposition": f'attachment; filename="endturn-{name}"'}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, name)
            self.store.read(f"COPY ({query}) TO '{file}' ({file_type.options})", parameters)
            return Response(file.read_bytes(), media_type=file_type.media_type, headers=headers)

    async def live(self, request: Request) -> Response:
        """Server-sent events: what has come so far, whenever more has come."""

        async def news() -> AsyncIterator[str]:
            told = 0
            yield "retry: 2000\n\n"
            while not self.closing and not await request.is_disconnected():
                if told != self.store.commits:
                    told = self.store.commits
                    yield f"data: {told}\n\n"
                await asyncio.sleep(LIVE_S)

        return StreamingResponse(
            news(), media_type="text/event-stream", headers={"Cache-Control": "no-store"}
        )

    async def healthz(self, request: Request) -> Response:
        """Who serves here; another `endturn ui` asks when the port is busy.

        Who shows no token learns no more.
        """
        more = {"version": __version__, "pid": os.getpid()} if self.access.admits(request) else {}
        return JSONResponse({"service": "endturn"} | more)


def application(page: Page) -> ASGIApp:
    """The application as a server runs it."""
    app = Starlette(routes=page.routes(), exception_handlers={duckdb.Error: _unreadable})
    return guarded(app, page.access, HEADERS)


def _unreadable(_: Request, error: Exception) -> Response:
    why = f"What is stored cannot be read now: {first_line(error)}"
    advice = (
        "If this stays so, its --file is damaged: stop the page, then restore a copy of the file "
        "or move it away."
    )
    return PlainTextResponse(f"{why}\n{advice}\n", 503, {"Retry-After": "5"})


def _inert(column: str, kind: str) -> str:
    """A column as a spreadsheet may open it.

    A text that would be a formula there begins with an apostrophe.
    """
    if kind != "VARCHAR":
        return f'"{column}"'
    return (
        rf"""regexp_replace("{column}", '^([-=+@\t\r\n＝＋－＠])', """
        rf"""chr(39) || '\1') AS "{column}" """
    )
