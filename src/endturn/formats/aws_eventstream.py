"""Convert between bytes and events of AWS's binary event stream, incrementally.

A message is: total length, headers' length, checksum of these eight bytes, headers, payload,
checksum of all before (big-endian 32-bit numbers; CRC-32).
https://docs.aws.amazon.com/lexv2/latest/dg/event-stream-encoding.html

Implemented here because botocore reads this format but does not write it, and because
instrumentation must work without botocore, which is an optional dependency.
"""

from __future__ import annotations

import base64
import binascii
import json
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from endturn.errors import DecodeError
from endturn.formats.errors import safe_excerpt
from endturn.formats.summaries import Event, check_size

_PRELUDE: Final = struct.Struct(">III")
_CRC: Final = struct.Struct(">I")
_LENGTH: Final = struct.Struct(">H")
_MAX_HEADERS_BYTES: Final = 128 * 1024
_MAX_PAYLOAD_BYTES: Final = 24 * 1024 * 1024
"""Botocore's limits for one message."""
_MAX_BYTES: Final = _PRELUDE.size + _MAX_HEADERS_BYTES + _MAX_PAYLOAD_BYTES + _CRC.size

_BYTES, _STRING = 6, 7
# The size in bytes of a header's value, by its type; bytes and text have their own length.
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}


class MessagesDecoder:
    """Decodes a stream's bytes, split anywhere, into events.

    An event is `{event type: payload}`, as in boto3. An exception is such an event too, under the
    name of its type, and so is an error, under its code. An incomplete message at the end of the
    stream is ignored.
    """

    __slots__ = ("_limit", "_rest")

    def __init__(self, limit: int | None = None) -> None:
        self._rest = bytearray()
        self._limit = limit

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yield the events that these bytes complete.

        Raises:
            DecodeError: a checksum is wrong, a payload is not JSON, or a message is longer than the
                limit.
        """
        self._rest += chunk
        while len(self._rest) >= _PRELUDE.size:
            total, headers_size, checksum = _PRELUDE.unpack_from(self._rest)
            if binascii.crc32(self._rest[:8]) != checksum:
                raise DecodeError(
                    "the provider's event stream is damaged: the checksum of a "
                    "message's header is wrong"
                )
            if (
                headers_size > _MAX_HEADERS_BYTES
                or not _PRELUDE.size + headers_size + _CRC.size <= total <= _MAX_BYTES
            ):
                raise DecodeError(
                    f"the provider's event stream is damaged: a message of {total} bytes, "
                    f"{headers_size} of headers"
                )
            check_size(total, self._limit)
            if len(self._rest) < total:
                return
            message = bytes(self._rest[:total])
            del self._rest[:total]
            if binascii.crc32(message[:-4]) != _CRC.unpack(message[-4:])[0]:
                raise DecodeError(
                    "the provider's event stream is damaged: the checksum of a message is wrong"
                )
            end = _PRELUDE.size + headers_size
            yield _event(_headers(message[_PRELUDE.size : end]), message[end:-4])

    def close(self) -> list[Event]:
        """Return nothing: an incomplete message is no event."""
        self._rest.clear()
        return []


def _headers(data: bytes) -> dict[str, str]:
    """Return the headers with text values; no others are needed."""
    headers: dict[str, str] = {}
    offset = 0
    try:
        while offset < len(data):
            end = offset + 1 + data[offset]
            name, kind, offset = data[offset + 1 : end].decode(), data[end], end + 1
            if kind in (_BYTES, _STRING):
                (size,) = _LENGTH.unpack_from(data, offset)
                offset += _LENGTH.size
            else:
                size = _SIZES[kind]
            if size > len(data) - offset:
                raise ValueError("the last one is incomplete")
            if kind == _STRING:
                headers[name] = data[offset : offset + size].decode()
            offset += size
    except (IndexError, KeyError, ValueError, struct.error) as error:
        raise DecodeError(
            f"the provider's event stream is damaged: a header cannot be read ({error})"
        ) from None
    return headers


def _event(headers: Mapping[str, str], payload: bytes) -> Event:
    kind = headers.get(":message-type", "event")
    if kind == "error":
        code = headers.get(":error-code", "error")
        return Event(None, {code: {"message": headers.get(":error-message") or code}})
    name = headers.get(":exception-type" if kind == "exception" else ":event-type", "")
    try:
        return Event(None, {name: json.loads(payload) if payload else {}})
    except (ValueError, RecursionError) as error:
        readable = safe_excerpt(payload.decode("utf-8", "replace"))
        raise DecodeError(f"the provider sent invalid JSON: {error}", body=readable) from None


def message(event: Event) -> bytes:
    """Encode an event `{name: payload}` as a message.

    Bytes in the payload are written in base64, as in AWS's JSON.
    """
    ((name, payload),) = event.data.items()
    is_exception = name.endswith("Exception")
    kind, type_header = (
        ("exception", ":exception-type") if is_exception else ("event", ":event-type")
    )
    fields = {type_header: name, ":content-type": "application/json", ":message-type": kind}
    headers = b"".join(
        struct.pack(">B", len(key))
        + key.encode()
        + struct.pack(">BH", _STRING, len(value.encode()))
        + value.encode()
        for key, value in fields.items()
    )
    content = json.dumps(payload, separators=(",", ":"), default=_base64).encode()
    prelude = struct.pack(
        ">II", _PRELUDE.size + len(headers) + len(content) + _CRC.size, len(headers)
    )
    head = prelude + _CRC.pack(binascii.crc32(prelude)) + headers + content
    return head + _CRC.pack(binascii.crc32(head))


def _base64(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} is not JSON")
