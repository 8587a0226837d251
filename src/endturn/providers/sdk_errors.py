"""Read SDKs' exceptions without importing an SDK: the provider's response, a lost connection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from endturn.formats import count, member, text


def is_class(kind: type, module: str, name: str) -> bool:
    """Return whether a class has that name, and is in that module or one below it."""
    return kind.__name__ == name and f"{kind.__module__}.".startswith(f"{module}.")


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """A provider's response in an exception of an SDK.

    Attributes:
        content: the response's body.
        event: the same as the event of a stream.
        is_unread: the response is no error, but the SDK could not read it.
    """

    status: int
    headers: Mapping[str, str]
    content: bytes
    event: Any = None
    is_unread: bool = False


_CONNECTION_ERRORS: Final = (
    ("openai", "APIConnectionError"),
    ("anthropic", "APIConnectionError"),
    ("google.genai", "APIConnectionError"),
    ("groq", "APIConnectionError"),
    ("together", "APIConnectionError"),
    ("httpx", "TransportError"),
    ("httpx2", "TransportError"),
    ("requests", "ConnectionError"),
    ("requests", "Timeout"),
    ("requests", "ChunkedEncodingError"),
    ("botocore", "HTTPClientError"),
    ("botocore", "ConnectionError"),
    ("aiohttp", "ClientError"),
    ("mistralai", "NoResponseError"),
    ("urllib3", "HTTPError"),
    ("builtins", "ConnectionError"),
    ("builtins", "TimeoutError"),
)
"""Module and name of exception classes for failed connections. Subclasses count."""

_UNREADABLE_RESPONSES: Final = (
    ("json", "JSONDecodeError"),
    ("google.genai", "UnknownApiResponseError"),
    ("botocore", "ParserError"),
    ("botocore", "ResponseParserError"),
)
"""Module and name of exception classes for a response with a status of success that is not in the
format of the API. They do not keep that response."""


def connection_failure(error: Exception) -> str | None:
    """Return the kind of connection failure, "timeout" or "connection"; None for other errors."""
    if not _is_any_of(error, _CONNECTION_ERRORS):
        return None
    is_timeout = any("Timeout" in kind.__name__ for kind in type(error).__mro__)
    return "timeout" if is_timeout else "connection"


def _is_any_of(error: BaseException, classes: Iterable[tuple[str, str]]) -> bool:
    """Return whether the exception is of one of these classes, or of a subclass."""
    return any(is_class(kind, *entry) for kind in type(error).__mro__ for entry in classes)


def answer_in(error: BaseException) -> ErrorAnswer | None:
    """Return the provider's response in an exception of an SDK; None if there is none."""
    if _is_any_of(error, _UNREADABLE_RESPONSES):
        return ErrorAnswer(200, {}, _bytes(getattr(error, "doc", "")), is_unread=True)
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, Mapping):
        return _aws_error(answer)
    if answer is None:
        answer = getattr(error, "raw_response", None)  # mistralai
    statuses = (
        getattr(error, "status_code", None),
        getattr(error, "code", None),
        member(answer, "status_code"),
    )
    status = next(filter(None, map(count, statuses)), None)
    # google-genai; most; ollama
    bodies = (getattr(error, name, None) for name in ("details", "body", "error"))
    body = next((value for value in bodies if value), None)
    headers = _headers(member(answer, "headers")) or _headers(getattr(error, "headers", None))
    content = _content(answer) or _bytes(body)
    event = body if member(body, "error") else {"error": body}
    if status is not None and 400 <= status < 600:
        return ErrorAnswer(status, headers, content, event)
    if event is body:  # anthropic: within a stream
        return ErrorAnswer(200, headers, _bytes(body), body)
    # cohere has the response's headers alone
    if status is not None and (answer is not None or headers):
        return ErrorAnswer(status, headers, content, is_unread=True)
    if isinstance(body, Mapping):  # openai: within a stream
        return ErrorAnswer(200, headers, _bytes(event), event)
    return None


def _aws_error(answer: Mapping[str, Any]) -> ErrorAnswer:
    """Return the response in botocore's ClientError."""
    error, metadata = answer.get("Error") or {}, answer.get("ResponseMetadata") or {}
    code, message = text(error.get("Code")), {"message": text(error.get("Message"))}
    headers = {**_headers(metadata.get("HTTPHeaders")), "x-amzn-errortype": code}
    status, event = count(metadata.get("HTTPStatusCode")), {code: message}
    return ErrorAnswer(status or 200, headers, _bytes(message if status else event), event)


def _headers(headers: Any) -> dict[str, str]:
    return (
        {str(name): str(value) for name, value in headers.items()}
        if hasattr(headers, "items")
        else {}
    )


def _content(answer: Any) -> bytes:
    """Return the body of an HTTP library's response; nothing if it was not read."""
    try:
        content = getattr(answer, "content", b"")
    except RuntimeError:
        return b""
    return content if isinstance(content, bytes) else b""


def _bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body, default=str).encode()
