"""What SDKs raise, read without importing any.

The provider's answer within it, or that the connection failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from endturn.formats import count, member, text


def is_of(kind: type, module: str, name: str) -> bool:
    """Whether a class has that name, and is of that module or one below it."""
    return kind.__name__ == name and f"{kind.__module__}.".startswith(f"{module}.")


@dataclass(frozen=True, slots=True)
class ErrorAnswer:
    """What a provider answered, in what an SDK raised.

    Attributes:
        content: the answer's body.
        event: the same as the event of a stream.
        is_unread: it is no error, but the SDK could not read it.
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
"""Module and name of exception classes that mean that the connection failed. Subclasses count."""

_UNREADABLE_RESPONSES: Final = (
    ("json", "JSONDecodeError"),
    ("google.genai", "UnknownApiResponseError"),
    ("botocore", "ParserError"),
    ("botocore", "ResponseParserError"),
)
"""Module and name of exception classes that mean that a response with a status of success is not in
the format of the API. They do not keep that response."""


def lost(error: Exception) -> str | None:
    """Return how the connection failed, "timeout" or "connection"; None if it did not fail."""
    if not _is_any_of(error, _CONNECTION_ERRORS):
        return None
    is_timeout = any("Timeout" in kind.__name__ for kind in type(error).__mro__)
    return "timeout" if is_timeout else "connection"


def _is_any_of(error: BaseException, classes: Iterable[tuple[str, str]]) -> bool:
    """Return whether the exception is of one of these classes, or of a subclass."""
    return any(is_of(kind, *each) for kind in type(error).__mro__ for each in classes)


def answer_in(error: BaseException) -> ErrorAnswer | None:
    """Return the provider's response in what an SDK raised; None if there is none."""
    if _is_any_of(error, _UNREADABLE_RESPONSES):
        return ErrorAnswer(200, {}, _bytes(getattr(error, "doc", "")), is_unread=True)
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, Mapping):
        return _aws(answer)
    if answer is None:
        answer = getattr(error, "raw_response", None)  # mistralai
    statuses = (
        getattr(error, "status_code", None),
        getattr(error, "code", None),
        member(answer, "status_code"),
    )
    status = next((found for each in statuses if (found := count(each))), None)
    # google-genai; most; ollama
    bodies = (getattr(error, name, None) for name in ("details", "body", "error"))
    body = next((each for each in bodies if each), None)
    headers = _headers(member(answer, "headers")) or _headers(getattr(error, "headers", None))
    content = _content(answer) or _bytes(body)
    event = body if member(body, "error") else {"error": body}
    if status is not None and 400 <= status < 600:
        return ErrorAnswer(status, headers, content, event)
    if event is body:  # anthropic: within a stream
        return ErrorAnswer(200, headers, _bytes(body), body)
    # cohere has the answer's headers alone
    if status is not None and (answer is not None or headers):
        return ErrorAnswer(status, headers, content, is_unread=True)
    if isinstance(body, Mapping):  # openai: within a stream
        return ErrorAnswer(200, headers, _bytes(event), event)
    return None


def _aws(answer: Mapping[str, Any]) -> ErrorAnswer:
    """Return what botocore says of a response."""
    error, about = answer.get("Error") or {}, answer.get("ResponseMetadata") or {}
    word, message = text(error.get("Code")), {"message": text(error.get("Message"))}
    headers = {**_headers(about.get("HTTPHeaders")), "x-amzn-errortype": word}
    status, event = count(about.get("HTTPStatusCode")), {word: message}
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
