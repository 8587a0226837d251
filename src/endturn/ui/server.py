"""Starts the page: finds its port or says who has it, opens a browser, and ends with a signal."""

from __future__ import annotations

import json
import os
import platform
import re
import signal
import socket
import threading
import urllib.request
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final

import uvicorn

from endturn.errors import UsageError
from endturn.ui import otlp
from endturn.ui.app import LOOPBACK, Page, application
from endturn.ui.store import DAY_NS, Store

PORT: Final = 4318
"""Where OTLP over HTTP goes if nobody says otherwise."""


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
) -> int:
    """Serve the page until it is interrupted, or told to end.

    Args:
        inputs: files of OTLP JSON to read first.
        file: the DuckDB file to keep telemetry in; None keeps it in memory.
        traces: the address of a trace elsewhere, with `{trace_id}` in it.
        open_browser: whether to open one; None: where there is a display.

    Raises:
        UsageError: a number is out of range, the port or the file is another process's, or an input cannot be read.
    """
    if not 0 <= port < 1 << 16:
        raise UsageError(f"--port takes a number from 0 (any that is free) to 65535, not {port}")
    if not 0 < keep_days <= 36_500:
        raise UsageError(f"--keep takes a number of days, more than 0 and at most 36500, not {keep_days:g}")
    if most_mb < 1:
        raise UsageError(f"--most takes a number of megabytes, 1 or more, not {most_mb}")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what runs it as a service ends it as Ctrl-C does
    listening = listen(host, port)
    store = Store(file, keep_ns=round(keep_days * DAY_NS), most_bytes=most_mb * 1024**2)
    with suppress(KeyboardInterrupt), closing(store):
        for path in inputs:
            print(f"{path}: {otlp.load(store, path)}")
        with serving(store, listening, host=host, traces=traces) as address:
            print(f"endturn's page is at {address}  (Ctrl-C ends it)", flush=True)
            if os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "") != address:
                print(f"Send telemetry to it:  export OTEL_EXPORTER_OTLP_ENDPOINT={address}", flush=True)
            browse(address, open_browser)
            threading.Event().wait()
    return 0


@contextmanager
def serving(store: Store, listening: socket.socket, *, host: str = "127.0.0.1", traces: str = "") -> Iterator[str]:
    """Serve a store's page in a thread, and give its address."""
    port = listening.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else shown}:{port}"  # noqa: S104 (compared, not bound)
    page = Page(store, address=address, traces=traces)
    app = application(page, only_here=LOOPBACK.fullmatch(shown) is not None)
    # Who comes when 500 connections are open is told 503: half of the files that a process may usually have open.
    limits: Any = {"limit_concurrency": 500, "timeout_graceful_shutdown": 2}
    server = uvicorn.Server(
        uvicorn.Config(app, log_level="warning", lifespan="off", ws="none", server_header=False, **limits)
    )
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="endturn-ui", daemon=True)
    thread.start()
    try:
        yield address
    finally:
        page.closing = True
        server.should_exit = True
        thread.join(5)
        listening.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that takes connections there; 0 is any free port. Raises UsageError that names who has the port."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        if pid := page_at(port):
            raise UsageError(f"an endturn page runs at http://127.0.0.1:{port} already (pid {pid})") from None
        by = f" by {who}" if (who := holder(port)) else ""
        why = str(error.strerror).partition(" (")[0]
        raise UsageError(f"port {port} of {host} cannot be used: {why}{by}; end that, or give another --port") from None


def page_at(port: int) -> int | None:
    """The process whose page answers at a port of this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # loopback: no proxy may come between
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
    inodes = set(re.findall(rf"^\s*\d+: \w+:{port:04X} \w+:0000 0A(?: +\S+){{5}} +(\d+)", tables, re.MULTILINE))
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if (found := re.fullmatch(r"socket:\[(\d+)\]", str(link.readlink()))) and found[1] in inodes:
                process = link.parts[2]
                return f"{Path('/proc', process, 'comm').read_text().strip()} (pid {process})"
        except OSError:
            continue  # it is over, or another user's
    return ""


def browse(address: str, asked: bool | None = None) -> None:
    """Open a browser there, if that is asked for; None: where there is a display."""
    away = {"SSH_CONNECTION", "CI"} & os.environ.keys()
    display = {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys() or platform.system() in ("Windows", "Darwin")
    if display and not away if asked is None else asked:
        webbrowser.open(address)
