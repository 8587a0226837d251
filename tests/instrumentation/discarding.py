"""A host that reads large responses and keeps nothing, as a process: what it was sent, what was recorded, what it grew.

`python -m tests.instrumentation.discarding httpx` prints a line of JSON for each response.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from endturn.calls import listeners
from endturn.calls.records import CallEnded
from endturn.instrumentation import http_clients
from endturn.telemetry import attributes

MB = 1024 * 1024
SIZE = 200
"""Megabytes of each response that is too large."""
ASKED = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": true}'
PIECE = b"a" * 65_536
ORDINARY = b'data: {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"content": "%b"}}]}\n\n' % (
    b"a" * 16_000
)
END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]}\n\ndata: [DONE]\n\n'


@dataclass(frozen=True)
class Large:
    """A response: its status, type and encoding, and its chunks."""

    status: int
    kind: str
    encoding: str
    chunks: Callable[[], Iterable[bytes]]


def endless(begin: bytes) -> Callable[[], Iterator[bytes]]:
    def chunks() -> Iterator[bytes]:
        yield begin
        for _ in range(SIZE * 16):
            yield PIECE

    return chunks


def packed(begin: bytes) -> Callable[[], list[bytes]]:
    def chunks() -> list[bytes]:
        packer = zlib.compressobj(9, wbits=31)
        pieces = [packer.compress(piece) for piece in endless(begin)()]
        return [b"".join([*pieces, packer.flush()])]

    return chunks


def ordinary() -> Iterator[bytes]:
    yield from (ORDINARY for _ in range(SIZE * 4))
    yield END


def calls() -> Iterator[bytes]:
    """A stream of ever new tool calls, 60 MB of them: each would be kept."""
    for first in range(0, 400_000, 400):
        yield b"".join(b"data: " + json.dumps(_call(number)).encode() + b"\n\n" for number in range(first, first + 400))
    yield END


def _call(number: int) -> dict[str, object]:
    call = {"index": number, "id": f"call_{number}", "function": {"name": "f", "arguments": "{}"}}
    return {"id": "x", "model": "m", "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}


LARGE = {
    "warm": Large(200, "text/event-stream", "", lambda: [ORDINARY, END]),
    "line": Large(200, "text/event-stream", "", endless(b'data: {"choices": [{"index": 0, "delta": {"content": "')),
    "body": Large(200, "application/json", "", endless(b'{"choices": [{"index": 0, "message": {"content": "')),
    "error": Large(500, "text/plain", "", endless(b"Internal server error: ")),
    "packed error": Large(500, "text/plain", "gzip", packed(b"Error: ")),
    "bomb": Large(200, "text/event-stream", "gzip", packed(b'data: {"choices": [')),
    "many events": Large(200, "text/event-stream", "", ordinary),
    "many calls": Large(200, "text/event-stream", "", calls),
}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        large = LARGE[self.headers["x-response"]]
        self.send_response(large.status)
        self.send_header("content-type", large.kind)
        if large.encoding:
            self.send_header("content-encoding", large.encoding)
        self.end_headers()
        for chunk in large.chunks():
            self.wfile.write(chunk)

    def log_message(self, *args: object) -> None:
        """Say nothing."""


Take = Callable[[bytes], None]


def by_httpx(url: str, headers: dict[str, str], take: Take) -> None:
    import httpx

    with httpx.Client() as client, client.stream("POST", url, content=ASKED, headers=headers) as response:
        for chunk in response.iter_raw():
            take(chunk)


def by_urllib3(url: str, headers: dict[str, str], take: Take) -> None:
    import urllib3

    response = urllib3.PoolManager().request("POST", url, body=ASKED, headers=headers, preload_content=False)
    for chunk in response.stream(65_536, decode_content=False):
        take(chunk)
    response.close()


def by_urllib(url: str, headers: dict[str, str], take: Take) -> None:
    import urllib.error
    import urllib.request

    try:
        response = urllib.request.urlopen(urllib.request.Request(url, ASKED, headers))
    except urllib.error.HTTPError as error:
        response = error
    with response:
        while chunk := response.read(65_536):
            take(chunk)


def by_aiohttp(url: str, headers: dict[str, str], take: Take) -> None:
    import aiohttp

    async def main() -> None:
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.post(url, data=ASKED, headers=headers) as response,
        ):
            async for chunk in response.content.iter_any():
                take(chunk)

    asyncio.run(main())


CLIENTS = {"httpx": by_httpx, "urllib3": by_urllib3, "urllib": by_urllib, "aiohttp": by_aiohttp}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    ended: list[CallEnded] = []
    listeners.subscribe(lambda record: ended.append(record) if isinstance(record, CallEnded) else None)
    http_clients.install(lambda: True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/v1/chat/completions"
    for name, large in LARGE.items():
        checksum, expected, before = 0, 0, peak_mb()

        def take(chunk: bytes) -> None:
            nonlocal checksum
            checksum = zlib.crc32(chunk, checksum)

        CLIENTS[sys.argv[1]](url, {"content-type": "application/json", "x-response": name}, take)
        grown = peak_mb() - before
        for chunk in large.chunks():
            expected = zlib.crc32(chunk, expected)
        (call,) = ended
        ended.clear()
        stop, error = call.stop, attributes.error_type(call.error)
        told = {"reason": stop.reason, "detail": stop.detail, "error": error, "grown": grown}
        print(json.dumps({"name": name, "same": checksum == expected, **told}), flush=True)


if __name__ == "__main__":
    main()
