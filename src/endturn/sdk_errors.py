"""What SDKs raise, read without importing any: the provider's answer within it, or that the connection failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from endturn.formats.reading import count, member, text
from endturn.tables import lines, shipped


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


SAID: Final = {(module, name): says for _, (module, name, says) in lines(shipped(), "exceptions.tsv", range(3, 4))}
"""What exceptions say by what they are."""


def lost(error: Exception) -> str | None:
    """How the connection failed: "timeout" or "connection"; None where it did not."""
    if not _says(error, "lost"):
        return None
    return "timeout" if any("Timeout" in kind.__name__ for kind in type(error).__mro__) else "connection"


def _says(error: BaseException, what: str) -> bool:
    known = [of for of, says in SAID.items() if says == what]
    return any(is_of(kind, *of) for kind in type(error).__mro__ for of in known)


def answer_in(error: BaseException) -> ErrorAnswer | None:
    """The provider's answer in what an SDK raised; None where there is none."""
    if _says(error, "unreadable"):
        return ErrorAnswer(200, {}, _bytes(getattr(error, "doc", "")), is_unread=True)
    answer: Any = getattr(error, "response", None)
    if isinstance(answer, Mapping):
        return _aws(answer)
    if answer is None:
        answer = getattr(error, "raw_response", None)  # mistralai
    statuses = (getattr(error, "status_code", None), getattr(error, "code", None), member(answer, "status_code"))
    status = next((found for each in statuses if (found := count(each))), None)
    bodies = (getattr(error, name, None) for name in ("details", "body", "error"))  # google-genai; most; ollama
    body = next((each for each in bodies if each), None)
    headers = _headers(member(answer, "headers")) or _headers(getattr(error, "headers", None))
    content = _content(answer) or _bytes(body)
    event = body if member(body, "error") else {"error": body}
    if status is not None and 400 <= status < 600:
        return ErrorAnswer(status, headers, content, event)
    if event is body:  # anthropic: within a stream
        return ErrorAnswer(200, headers, _bytes(body), body)
    if status is not None and (answer is not None or headers):  # cohere has the answer's headers alone
        return ErrorAnswer(status, headers, content, is_unread=True)
    if isinstance(body, Mapping):  # openai: within a stream
        return ErrorAnswer(200, headers, _bytes(event), event)
    return None


def _aws(answer: Mapping[str, Any]) -> ErrorAnswer:
    """What botocore says of an answer."""
    error, about = answer.get("Error") or {}, answer.get("ResponseMetadata") or {}
    word, message = text(error.get("Code")), {"message": text(error.get("Message"))}
    headers = {**_headers(about.get("HTTPHeaders")), "x-amzn-errortype": word}
    status, event = count(about.get("HTTPStatusCode")), {word: message}
    return ErrorAnswer(status or 200, headers, _bytes(message if status else event), event)


def _headers(headers: Any) -> dict[str, str]:
    return {str(name): str(value) for name, value in headers.items()} if hasattr(headers, "items") else {}


def _content(answer: Any) -> bytes:
    """The body of an HTTP library's response; nothing where it was not read."""
    try:
        content = getattr(answer, "content", b"")
    except RuntimeError:
        return b""
    return content if isinstance(content, bytes) else b""


def _bytes(body: Any) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode() if isinstance(body, str) else json.dumps(body, default=str).encode()
