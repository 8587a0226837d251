"""SDKs over HTTP: whose an HTTP client is, and a method whose requests, its retries, are one call."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import wraps
from types import ModuleType
from typing import Any
from weakref import ref

from endturn import announce
from endturn.announce import swallow
from endturn.instrumentation import http_answers, http_bodies
from endturn.instrumentation.sdk_call import SdkCall


@dataclass(frozen=True, slots=True)
class Owner:
    """An SDK that sends its calls through an HTTP client.

    Attributes:
        provider, dialect: who answers where the host is nobody's that is known: a proxy, or one's own server.
        span: the extension of its requests that holds the span which it makes of the call itself.
    """

    provider: str
    dialect: str = ""
    span: str | None = None


owners: dict[int, tuple[Any, Owner]] = {}
"""By the client's identity, each as long as its client lives: every request of a process looks here."""


def own(client: Any, owner: Owner) -> None:
    """An HTTP client is an SDK's: watch its calls wherever they go."""
    key = id(client)
    if key not in owners:
        owners[key] = (ref(client, lambda gone: owners.pop(key, None)), owner)


class Attempts:
    """The requests that an SDK's method sends through one HTTP client: one call, whose last answer counts.

    Attributes:
        traced: the SDK may have a span of its own, which ends when its response is closed.
    """

    __slots__ = ("client", "refused", "traced", "under_way")

    def __init__(self, client: Any, *, traced: bool) -> None:
        self.client = client
        self.traced = traced
        self.under_way: SdkCall | None = None
        self.refused: tuple[Any, ModuleType] | None = None

    def failed(self, error: BaseException) -> None:
        """The method raised."""
        if self.under_way is not None:
            http_answers.fail(self.under_way, error, None if self.refused is None else self.refused[0])

    def over(self, result: Any) -> None:
        """The method returned. An answer that is an error is then the SDK's to raise."""
        if self.under_way is None or self.under_way.call.ended:
            return
        if self.refused is not None:
            http_answers.take(self.under_way, *self.refused)
        elif self.traced:
            http_bodies.end_before_close(result)


_attempts: ContextVar[Attempts | None] = ContextVar("endturn_attempts", default=None)


def sent_by(client: Any) -> Attempts | None:
    """The method that is sending through an HTTP client now; None where what it sends is a call of its own."""
    attempts = _attempts.get()
    return None if attempts is None or attempts.client is not client else attempts


def as_one(original: Any, http: Callable[[Any], Any], owner: Owner, active: Callable[[], bool]) -> Any:
    """An SDK's method, so that all requests of one call of it are one call.

    Args:
        http: the HTTP client of the object whose method it is.
    """

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        attempts = _attempting(self, http, owner, active)
        if attempts is None:
            return original(self, *args, **kwargs)
        token = _attempts.set(attempts)
        try:
            result = original(self, *args, **kwargs)
        except BaseException as error:
            attempts.failed(error)
            raise
        finally:
            _reset(token)
        attempts.over(result)
        return result

    return method


def as_one_awaited(original: Any, http: Callable[[Any], Any], owner: Owner, active: Callable[[], bool]) -> Any:
    """`as_one`, of a coroutine function."""

    @wraps(original)
    async def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        attempts = _attempting(self, http, owner, active)
        if attempts is None:
            return await original(self, *args, **kwargs)
        token = _attempts.set(attempts)
        try:
            result = await original(self, *args, **kwargs)
        except BaseException as error:
            attempts.failed(error)
            raise
        finally:
            _reset(token)
        attempts.over(result)
        return result

    return method


def _attempting(sdk: Any, http: Callable[[Any], Any], owner: Owner, active: Callable[[], bool]) -> Attempts | None:
    """The scope of a method's requests; None where it is within one, trying again, or nobody listens."""
    try:
        if not active() or not announce.listening():
            return None
        client = http(sdk)
        own(client, owner)
        return Attempts(client, traced=owner.span is not None) if sent_by(client) is None else None
    except Exception:
        swallow("opening a call")
        return None


def owned(original: Any, http: Callable[[Any], Any], owner: Owner, active: Callable[[], bool]) -> Any:
    """An SDK's method, so that its HTTP client is known as the SDK's before it sends. What it returns is untouched."""

    @wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            own(http(self), owner)
        except Exception:
            swallow("opening a call")
        return original(self, *args, **kwargs)

    return method


def _reset(token: Token[Attempts | None]) -> None:
    try:
        _attempts.reset(token)
    except ValueError:  # a host that drives one coroutine from several contexts
        _attempts.set(None)
