"""SDKs over HTTP: whose an HTTP client is, and a method whose requests, its retries, are one call.

A wrapper that asks over HTTP itself says who answers, and for how long what it sends is one call (`Relay`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import wraps
from types import ModuleType, TracebackType
from typing import Any, Self
from weakref import ref

from endturn import announce
from endturn.announce import swallow
from endturn.instrumentation import http_answers, http_bodies
from endturn.instrumentation.hosts import ANY, Home
from endturn.instrumentation.sdk_call import SdkCall
from endturn.instrumentation.streams import Reading
from endturn.wires import Wire


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


class Relay:
    """A wrapper's function, which asks a provider through HTTP clients that are nobody's.

    Who answers is known to it wherever it sends to, a gateway too; and what it sends again, because it failed, is one
    call with what failed, whose last answer counts.

    Args:
        provider: gives who answers, as in `gen_ai.provider.name`, once the function knows; "" before.
    """

    __slots__ = ("_error", "_provider", "_reading", "is_open", "refused", "under_way")

    def __init__(self, provider: Callable[[], str]) -> None:
        self._provider = provider
        self._error: BaseException | None = None
        self._reading: ref[Reading] | None = None
        self.is_open = False
        """Whether the function runs. A task that it leaves behind keeps its variables."""
        self.refused: tuple[Any, ModuleType] | None = None
        self.under_way: SdkCall | None = None

    def home(self, host: str, port: int | None) -> Home | None:
        """Who answers at a host that is not known; a gateway may use anybody's words."""
        provider = self._provider()
        return Home(provider, ANY, host or None, port) if provider else None

    def again(self, speaks: Wire) -> SdkCall | None:
        """The call that failed, where a request in this format is its next attempt; None where it begins another."""
        failed = self.under_way
        if failed is None or failed.call.ended or (self.refused is None and self._error is None):
            return None
        if failed.wire.NAME != speaks.NAME:
            self.settle(None)
            return None
        self.refused = self._error = None
        return failed

    def failed(self, error: BaseException) -> None:
        """No answer came: perhaps it is tried again."""
        self._error = error

    def answered(self, passing: http_bodies.Passing | None) -> None:
        """An answer came, of which this is still to be read."""
        self._reading = None if passing is None else ref(passing.reading)

    def reading(self) -> Reading | None:
        """What sees the answer's body, until that is over: the function may stop before it is."""
        found = None if self._reading is None else self._reading()
        return None if found is None or found.call.ended else found

    def settle(self, error: BaseException | None) -> None:
        """Nothing is tried again: end the call as its last attempt failed.

        Args:
            error: what the function raised.
        """
        refused, failure, under_way = self.refused, self._error, self.under_way
        self.refused = self._error = self.under_way = None
        if under_way is None or under_way.call.ended:
            return
        if refused is not None and error is not None:
            http_answers.fail(under_way, error, refused[0])
        elif refused is not None:
            http_answers.take(under_way, *refused)
        elif failure is not None:
            http_answers.fail(under_way, failure)

    def step(self, within: AbstractContextManager[object]) -> AbstractContextManager[object]:
        """Around each stretch of the function's own code, and around what else is around it."""
        return _Stretch(self, within)


_relay: ContextVar[Relay | None] = ContextVar("endturn_relay", default=None)


def relay() -> Relay | None:
    """The wrapper's function that is running now."""
    found = _relay.get()
    return found if found is not None and found.is_open else None


class _Stretch:
    """A relay, open while this is entered."""

    __slots__ = ("_relay", "_token", "_was_open", "_within")

    def __init__(self, opened: Relay, within: AbstractContextManager[object]) -> None:
        self._relay = opened
        self._within = within

    def __enter__(self) -> Self:
        self._within.__enter__()
        self._was_open, self._relay.is_open = self._relay.is_open, True
        self._token = _relay.set(self._relay)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            try:
                _relay.reset(self._token)
            except ValueError:  # a host that drives one coroutine from several contexts
                _relay.set(None)
            self._relay.is_open = self._was_open
            self._relay.settle(error)
        except Exception:
            swallow("ending a call")
        finally:
            self._within.__exit__(kind, error, trace)
