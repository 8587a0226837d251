"""Runs the page: listens on its port, opens a browser, and ends on a signal."""

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
from typing import Final
from urllib.parse import quote

import duckdb
import uvicorn

from endturn.errors import UsageError
from endturn.ui import otlp
from endturn.ui.access import Access, is_loopback, required_token
from endturn.ui.app import Page, application
from endturn.ui.store import DAY_NS, Store, unreadable_error
from endturn.ui.wrong_requests import PlainHttp

PORT: Final = 4318
"""The default port of OTLP over HTTP."""
KEEP_ALIVE_S: Final = 75
"""The longest idle time of a connection. It exceeds the export intervals of SDKs, 5 and 60 seconds:
a connection that the server closes just as an export arrives resets that request."""
MOST_CONNECTIONS: Final = 500
"""The most open connections, half of the usual limit of open files; above it, requests get 503."""
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
    """Serve the page until SIGINT or SIGTERM.

    Args:
        inputs: files of OTLP JSON to read first.
        file: the DuckDB file to keep telemetry in; None keeps it in memory.
        keep_days: delete older telemetry.
        most_mb: delete the oldest telemetry above this size.
        traces: the URL of a trace in Grafana or Tempo, with the placeholder `{trace_id}`.
        open_browser: open a browser; None: if there is a display.
        token: the token that requests must have; None: the value of `ENDTURN_UI_TOKEN`, else a
            generated one if `host` is not loopback, else none.

    Raises:
        UsageError: a number is out of range, `traces` has no `{trace_id}`, the token cannot be
            sent, another process uses the port or the file, or an input cannot be read.
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
    configured_token = token if token is not None else os.environ.get(TOKEN_VARIABLE) or None
    token = required_token(configured_token, is_open=is_open)
    if is_open:
        print(_OPEN.format(host=host), file=sys.stderr, flush=True)
    # SIGTERM, from a service manager, ends it as Ctrl-C does
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    listener = listen(host, port)
    store = Store(file, keep_ns=round(keep_days * DAY_NS), most_bytes=most_mb * 1024**2)
    with suppress(KeyboardInterrupt), closing(store):
        _load(store, inputs, file)
        with serving(store, listener, host=host, traces=traces, token=token) as address:
            link = f"{address}/?token={quote(token, safe='')}" if token else address
            _print_address(address, token, is_new=configured_token is None)
            browse(link, open_browser)
            threading.Event().wait()
    return 0


def _load(store: Store, inputs: Sequence[Path], file: Path | None) -> None:
    """Read files into the store, and print the number of records in each."""
    for path in inputs:
        try:
            print(f"{path}: {otlp.load(store, path)}")
        except duckdb.Error as error:
            raise unreadable_error(file, error) from None


def _print_address(address: str, token: str, *, is_new: bool) -> None:
    """Print the address of the page, and the variables with which an agent sends to it.

    A configured token is not printed.
    """
    token_text = quote(token, safe="") if is_new else "TOKEN"
    print(
        f"endturn's page is at {address}{f'/?token={token_text}' if token else ''}"
        "  (Ctrl-C ends it)",
        flush=True,
    )
    if token or os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "") != address:
        print(f"Send telemetry to it:  export OTEL_EXPORTER_OTLP_ENDPOINT={address}", flush=True)
    if token:
        print(
            f"  with its token:      export "
            f"OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20{token_text}",
            flush=True,
        )


@contextmanager
def serving(
    store: Store,
    listener: socket.socket,
    *,
    host: str = "127.0.0.1",
    traces: str = "",
    token: str = "",
) -> Iterator[str]:
    """Serve a store's page in a thread, and yield its address without the token.

    Raises:
        UsageError: other machines can reach it, and there is no token.
    """
    only_here = is_loopback(host)
    if not only_here and not token:
        raise UsageError(f"a page at {host}, which other machines can reach, needs a token")
    port = listener.getsockname()[1]
    url_host = f"[{host}]" if ":" in host else host
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else url_host}:{port}"  # noqa: S104 (compared, not bound)
    access = Access(token, only_here=only_here, cookie=f"endturn_{port}")
    page = Page(store, address=address, traces=traces, access=access)
    server = uvicorn.Server(
        uvicorn.Config(
            application(page),
            http=PlainHttp,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_graceful_shutdown=2,
            timeout_keep_alive=KEEP_ALIVE_S,
        )
    )
    thread = threading.Thread(
        target=server.run, kwargs={"sockets": [listener]}, name="endturn-ui", daemon=True
    )
    thread.start()
    try:
        yield address
    finally:
        page.closing = True
        server.should_exit = True
        thread.join(5)
        listener.close()


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on a port; 0 is any free one.

    Raises:
        UsageError: the port cannot be used; the message names the process that uses it.
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
        by_process = f" by {process}" if (process := process_at(port)) else ""
        problem = str(error.strerror).partition(" (")[0]
        raise UsageError(
            f"port {port} of {host} cannot be used: {problem}{by_process}; end it, or pass another "
            "--port"
        ) from None


def page_at(port: int) -> int | None:
    """Return the pid of the page at a port of this machine; None if there is no page."""
    # loopback: without a proxy
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/healthz", timeout=1) as response:
            health = json.loads(response.read(1000))
        return int(health["pid"]) if health["service"] == "endturn" else None
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return None


def process_at(port: int) -> str:
    """Return the name and pid of the process that listens on a port; "" if unknown.

    Only Linux has this information, in /proc.
    """
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
            if (match := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))) and match[
                1
            ] in inodes:
                process = link.parts[2]
                return f"{Path('/proc', process, 'comm').read_text().strip()} (pid {process})"
        except OSError:
            continue  # it has ended, or belongs to another user
    return ""


def browse(address: str, is_wanted: bool | None = None) -> None:
    """Open a browser at an address.

    Args:
        is_wanted: open one; None: if there is a display, and neither SSH nor CI.
    """
    away = {"SSH_CONNECTION", "CI"} & os.environ.keys()
    display = {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys() or platform.system() in (
        "Windows",
        "Darwin",
    )
    if display and not away if is_wanted is None else is_wanted:
        webbrowser.open(address)
