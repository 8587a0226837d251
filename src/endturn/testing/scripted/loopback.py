"""Delivery of scripted replies over HTTP: a transport in the process, or a server on loopback.

It handles bytes, pauses and the end of a connection, not the meaning of the bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from socketserver import TCPServer
from typing import Any, Final

from endturn.calls import log_exception
from endturn.testing.scripted.script import Ending

HOST: Final = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """One HTTP request.

    Header names are lower case; the path is as it was sent, its query included.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopbackReply:
    """One HTTP response on the wire.

    Attributes:
        chunks: the pieces of the body that are sent; those of a stream are flushed one by one.
        length: the announced Content-Length; None for a stream, which is sent in chunked encoding.
        ending: the connection's behaviour after the last chunk.
        delay_s: before the status line; pace_s: before every chunk of a stream but the first.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunks: tuple[bytes, ...] = ()
    length: int | None = None
    ending: Ending = Ending.COMPLETE
    delay_s: float = 0.0
    pace_s: float = 0.0


Respond = Callable[[ReceivedRequest], LoopbackReply]


class Transport:
    """A transport for a client of httpx or httpx2, sync or async: nothing leaves the process.

    It inherits from neither library's base class, and answers each request with the types of the
    library it came from. Read timeouts are honoured; the pauses of async answers need asyncio.
    """

    def __init__(self, respond: Respond) -> None:
        self._respond = respond

    def handle_request(self, request: Any) -> Any:
        """Respond to a request of a sync client."""
        reply = self._respond(_received_request(request, request.read()))
        for pause_s in _pauses_before(reply, request):
            time.sleep(pause_s)
        return _response(reply, request)

    async def handle_async_request(self, request: Any) -> Any:
        """Respond to a request of an async client."""
        reply = self._respond(_received_request(request, await request.aread()))
        for pause_s in _pauses_before(reply, request):
            await asyncio.sleep(pause_s)
        return _response(reply, request)

    def __enter__(self) -> Transport:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    async def __aenter__(self) -> Transport:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    def close(self) -> None:
        """Do nothing: there are no resources."""

    async def aclose(self) -> None:
        """Do nothing: there are no resources."""


def _received_request(request: Any, body: bytes) -> ReceivedRequest:
    path = request.url.raw_path.decode("ascii")
    return ReceivedRequest(
        method=request.method, path=path, headers=dict(request.headers), body=body
    )


def _library(request: Any) -> Any:
    """Return the library that a request is of, httpx or httpx2."""
    return import_module(type(request).__module__.partition(".")[0])


def _pauses_before(reply: LoopbackReply, request: Any) -> Iterator[float]:
    """Return the pause before a response in seconds; raise if there is none."""
    yield from _pause(reply.delay_s, request)
    if reply.ending is Ending.HUNG_UP:
        message = "Server disconnected without sending a response."
        raise _library(request).RemoteProtocolError(message, request=request)


def _pause(seconds: float, request: Any) -> Iterator[float]:
    """Pause, for no longer than the client waits."""
    patience_s = request.extensions.get("timeout", {}).get("read")
    if patience_s is not None and seconds > patience_s:
        yield patience_s
        raise _library(request).ReadTimeout("timed out", request=request)
    if seconds > 0:
        yield seconds


def _response(reply: LoopbackReply, request: Any) -> Any:
    """Return a reply as the library's own response, for a sync or an async client."""
    library = _library(request)

    def steps() -> Iterator[bytes | float]:
        for index, chunk in enumerate(reply.chunks):
            if index:
                yield from _pause(reply.pace_s, request)
            yield chunk
        if reply.ending is Ending.BROKEN:
            message = "peer closed connection without sending complete message body"
            raise library.RemoteProtocolError(message, request=request)

    # of either
    class Stream(library.SyncByteStream, library.AsyncByteStream):  # type: ignore[misc,name-defined]
        def __iter__(self) -> Iterator[bytes]:
            for step in steps():
                if isinstance(step, bytes):
                    yield step
                else:
                    time.sleep(step)

        async def __aiter__(self) -> AsyncIterator[bytes]:
            for step in steps():
                if isinstance(step, bytes):
                    yield step
                else:
                    await asyncio.sleep(step)

    length = {} if reply.length is None else {"content-length": str(reply.length)}
    return library.Response(
        reply.status, headers={**reply.headers, **length}, stream=Stream(), request=request
    )


# --- A server -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Server:
    """An HTTP/1.1 server on a free port of the loopback interface, in threads of this process.

    Connections are kept alive; stopping closes them, waits for their threads and leaves nothing
    open.
    """

    respond: Respond

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Serve within the block. Yields the URL, without a path: `http://127.0.0.1:41234`.

        A process that was forked within it has no thread that serves: it closes its copy of the
        socket and goes on.
        """
        pid = os.getpid()
        listener = _Listener(self.respond)
        thread = threading.Thread(
            target=listener.serve_forever, args=(0.02,), name="endturn-scripted", daemon=True
        )
        thread.start()
        try:
            yield f"http://{HOST}:{listener.server_port}"
        finally:
            if os.getpid() != pid:
                listener.socket.close()
            else:
                listener.shutdown()
                thread.join()
                listener.hang_up()
                listener.server_close()


class _Listener(ThreadingHTTPServer):
    # many agents connect at once: a full queue costs each of them a second
    request_queue_size = 1024
    daemon_threads = False  # joined by server_close
    allow_reuse_address = False

    def __init__(self, respond: Respond) -> None:
        self.respond = respond
        self.stopping = threading.Event()
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__((HOST, 0), _Handler)

    def server_bind(self) -> None:
        """Bind, without looking the host's name up as HTTPServer does: that may take seconds."""
        TCPServer.server_bind(self)
        # IPv4: text, number
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Wake every thread that waits for its client or in a pause."""
        self.stopping.set()
        with self._lock:
            for connection in self._open:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the exception that is being handled. A client that goes away is none."""
        log_exception(logging.ERROR, "endturn: a scripted answer was not delivered")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Listener

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client went away, as clients do
            super().handle()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: tests and demos want a quiet server."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def _body(self) -> bytes:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _answer(self, body: bytes) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ReceivedRequest(method=self.command, path=self.path, headers=headers, body=body)
        reply = self.server.respond(request)
        self._pause(reply.delay_s)
        self.close_connection = self.close_connection or reply.ending in (
            Ending.HUNG_UP,
            Ending.BROKEN,
        )
        if reply.ending is Ending.HUNG_UP:
            return
        head = self._head(reply)
        if reply.length is not None:
            # One send for head and body: a second one would wait for the client's delayed
            # acknowledgement.
            self.wfile.write(head + b"".join(reply.chunks))
            return
        for index, chunk in enumerate(reply.chunks):
            if index:
                self._pause(reply.pace_s)
            self.wfile.write(head + b"%x\r\n%b\r\n" % (len(chunk), chunk))
            head = b""
        self.wfile.write(head if reply.ending is Ending.BROKEN else head + b"0\r\n\r\n")

    def _head(self, reply: LoopbackReply) -> bytes:
        framing = (
            {"transfer-encoding": "chunked"}
            if reply.length is None
            else {"content-length": reply.length}
        )
        lines = [f"HTTP/1.1 {reply.status} {responses.get(reply.status, '')}"]
        lines += [f"{name}: {value}" for name, value in {**reply.headers, **framing}.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _pause(self, seconds: float) -> None:
        if seconds > 0 and self.server.stopping.wait(seconds):
            raise ConnectionAbortedError("the server is stopping")


# Removed in 0.2: the names of 0.1.
Answer = LoopbackReply
RequestSummary = ReceivedRequest
