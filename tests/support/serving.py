"""An HTTP server on the loopback interface, whose answers a function gives."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request; its path with the query, and the address of the client's end of the connection."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    client: tuple[str, int]


Answer = Callable[[ReceivedRequest], tuple[int, bytes, str]]
"""Gives the status, the body and its content type."""


@contextmanager
def serving(answer: Answer, port: int = 0, *, keep_alive: bool = False) -> Iterator[str]:
    """Serve, on a free port where none is given; the server's address. Connections end with the block."""
    connections: set[socket.socket] = set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"

        def setup(self) -> None:
            super().setup()
            connections.add(self.connection)

        def finish(self) -> None:
            connections.discard(self.connection)
            with suppress(OSError):
                super().finish()

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = dict(self.headers)
            status, content, kind = answer(ReceivedRequest(self.command, self.path, headers, body, self.client_address))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_PUT = do_DELETE = _serve

        def log_message(self, format: str, *args: object) -> None:
            """Silence: whoever answers knows."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        for connection in tuple(connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        thread.join()
