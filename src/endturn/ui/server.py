"""Starts the page: finds its port or says who has it, opens a browser, and ends with a signal."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import sys
import threading
import urllib.request
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import duckdb
import uvicorn

from endturn.errors import UsageError
from endturn.ui import otlp
from endturn.ui.access import Access, chosen_token, is_loopback
from endturn.ui.app import Page, application
from endturn.ui.store import DAY_NS, Store, unreadable
from endturn.ui.wrong_requests import PlainHttp

PORT: Final = 4318
"""Where OTLP over HTTP goes if nobody says otherwise."""
KEEP_ALIVE_S: Final = 75
"""How long a connection may be idle. SDKs export every 5 or 60 seconds, and one that is closed just
as a request is on its way resets that request: uvicorn's usual 5 seconds are met each time."""
TOKEN_VARIABLE: Final = "ENDTURN_UI_TOKEN"  # noqa: S105 (a variable's name)
_OPEN: Final = """\
endturn: --host {host} lets other machines reach this page. Whoever has its token reads all \
telemetry, also what was
  said to models where that is recorded, and can send more. HTTP does not encrypt it: put a proxy \
with TLS before it
  wherever others can listen."""


def run(
    inputs: Sequence[Path] = (),
    *,
    host: str = "127.0.0.1",
    port: int = PORT,
    file: Path | None = None,
    keep_days: float = 7,
    most_mb: int = 2048,
    traces: str = "",
    open_browser: bool | None = None,
    token: str | None = None,
) -> int:
    """Serve the page until it is interrupted, or told to end.

    Args:
        inputs: files of OTLP JSON to read first.
        file: the DuckDB file to keep telemetry in; None keeps it in memory.
        traces: the address of a trace elsewhere, with `{trace_id}` in it.
        open_browser: whether to open one; None: where there is a display.
        token: what requests have to show; None: what `ENDTURN_UI_TOKEN` says, else a new one where
            `host` is not loopback, and none where it is.

    Raises:
        UsageError: a number is out of range, `traces` has no `{trace_id}`, the token cannot be
            sent, the port or the file is another process's, or an input cannot be read.
    """
    if not host.strip():
        raise UsageError("--host must not be empty: pass an address, such as 127.0.0.1")
    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port must be from 0 (any free port) to 65535, not {port}")
    if not 0 < keep_days <= 36_500:
        raise UsageError(f"--keep must be more than 0 and at most 36500 days, not {keep_days:g}")
    if most_mb < 1:
        raise UsageError(f"--most must be at least 1 megabyte, not {most_mb}")
    if traces and (not traces.startswith(("http://", "https://")) or "{trace_id}" not in traces):
        raise UsageError(
            f"--traces must be an http(s) URL that contains {{trace_id}}, not {traces!r}; for"
            " example https://grafana.example.com/a/grafana-exploretraces-app/explore?traceId={trace_id}"
        )
    is_open = not is_loopback(host)
    given = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
    token = chosen_token(given, is_open=is_open)
    if is_open:
        print(_OPEN.format(host=host), file=sys.stderr, flush=True)
    # what runs it as a service ends it as Ctrl-C does
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listening = listen(host, port)
    store = Store(file, keep_ns=round(keep_days * DAY_NS), most_bytes=most_mb * 1024**2)
    with suppress(KeyboardInterrupt), closing(store):
        _load(store, inputs, file)
        with serving(store, listening, host=host, traces=traces, token=token) as address:
            link = f"{address}/?token={quote(token, safe='')}" if token else address
            _introduce(address, token, is_new=given is None)
            browse(link, open_browser)
            threading.Event().wait()
    return 0


def _load(store: Store, inputs: Sequence[Path], file: Path | None) -> None:
    """Read files into the store, and print what was in each."""
    for path in inputs:
        try:
            print(f"{path}: {otlp.load(store, path)}")
        except duckdb.Error as error:
            raise unreadable(file, error) from None


def _introduce(address: str, token: str, *, is_new: bool) -> None:
    """Print where the page is, and what an agent sets to send to it.

    A token that somebody gave is not repeated.
    """
    shown = quote(token, safe="") if is_new else "TOKEN"
    print(
        f"endturn's page is at {address}{f'/?token={shown}' if token else ''}  (Ctrl-C ends it)",
        flush=True,
    )
    if token or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "") != address:
        print(f"Send telemetry to it:  export OTEL_EXPORTER_OTLP_ENDPOINT={address}", flush=True)
    if token:
        print(
            f"  with its token:      export "
            f"OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20{shown}",
            flush=True,
        )


@contextmanager
def serving(
    store: Store,
    listening: socket.socket,
    *,
    host: str = "127.0.0.1",
    traces: str = "",
    token: str = "",
) -> Iterator[str]:
    """Serve a store's page in a thread, and give its address, which has no token in it.

    Raises:
        UsageError: other machines reach it, and there is no token.
    """
    only_here = is_loopback(host)
    if not only_here and not token:
        raise UsageError(f"a page at {host}, which other machines can reach, needs a token")
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else shown}:{port}"  # noqa: S104 (compared, not bound)
    access = Access(token, only_here=only_here, cookie=f"endturn_{port}")
    page = Page(store, address=address, traces=traces, access=access)
    # Who comes when 500 connections are open is told 503: half of the files that a process may
    # usually have open.
    limits: Any = {
        "limit_concurrency": 500,
        "timeout_graceful_shutdown": 2,
        "timeout_keep_alive": KEEP_ALIVE_S,
    }
    server = uvicorn.Server(
        uvicorn.Config(
            application(page),
            http=PlainHttp,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            **limits,
        )
    )
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listening]}, name="endturn-ui", daemon=True
    )
    thread.start()
    try:
        yield address
    finally:
        page.closing = True
        server.should_exit = True
        thread.join(5)
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections there; 0 is any free port.

    Raises UsageError that names who has the port.
    """
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        if pid := page_at(port):
            raise UsageError(
                f"an endturn page already runs at http://127.0.0.1:{port} (pid {pid})"
            ) from None
        by = f" by {who}" if (who := holder(port)) else ""
        why = str(error.strerror).partition(" (")[0]
        raise UsageError(
            f"port {port} of {host} cannot be used: {why}{by}; end it, or pass another --port"
        ) from None


def page_at(port: int) -> int | None:
    """The process whose page answers at a port of this machine."""
    # loopback: no proxy may come between
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/healthz", timeout=1) as answer:
            said = json.loads(answer.read(1000))
        return int(said["pid"]) if said["service"] == "endturn" else None
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None


def holder(port: int) -> str:
    """The process that listens at a port, where Linux tells: its name and id."""
    try:
        tables = "".join(Path(f"/proc/net/{name}").read_text() for name in ("tcp", "tcp6"))
    except OSError:
        return ""
    inodes = set(
        re.findall(
            rf"^\s*\d+: \w+:{port:04X} \w+:0000 0A(?: +\S+){{5}} "
            rf"+(\d+)",
            tables,
            re.MULTILINE,
        )
    )
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if (found := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))) and found[
                1
            ] in inodes:
                process = link.parts[2]
                return f"{Path('/proc', process, 'comm').read_text().strip()} (pid {process})"
        except OSError:
            continue  # it is over, or another user's
    return ""


def browse(address: str, asked: bool | None = None) -> None:
    """Open a browser there, if that is asked for; None: where there is a display."""
    away = {"SSH_CONNECTION", "CI"} & os.environ.keys()
    display = {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys() or platform.system() in (
        "Windows",
        "Darwin",
    )
    if display and not away if asked is None else asked:
        webbrowser.open(address)
