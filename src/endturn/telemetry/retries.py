"""Turns whose latest call failed: the next attempt of the same call belongs to the same turn.

Some SDKs mark each attempt in a header. Without one, the same request is a retry only if exactly
one failed attempt of it waits, and only for a short time: many turns may have one prompt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from endturn.calls import CallEnded, Turn, TurnOutcome
from endturn.errors import ProviderUnavailable, RequestRejected
from endturn.formats import Attempt, RequestSummary
from endturn.telemetry.fingerprints import endpoints_hash
from endturn.telemetry.waiting import WaitingTurns
from endturn.vocabulary import StopReason

RETRY_S: Final = 10.0
"""Seconds for which a failed turn waits for the next attempt; SDKs back off for at most eight."""

LONGEST_RETRY_S: Final = 70.0
"""Maximum seconds for which it waits if the provider sent a retry delay: SDKs obey delays of up to
a minute."""

MAX_FAILED_TURNS: Final = 1_024
"""Maximum number of failed turns that wait; the oldest ends first."""

RETRIED_STATUSES: Final = frozenset({408, 409, 429})
"""Statuses below 500 after which SDKs retry (openai 3.57 and anthropic 2.12, `_should_retry`)."""

Key = tuple[object, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class FailedAttempt:
    """A turn whose latest call failed.

    Attributes:
        number: the number of the call.
        key: the key of the next attempt.
        attempt: the attempt of an SDK's call; None without a header.
    """

    turn: Turn
    number: int
    key: Key
    attempt: Attempt | None
    outcome: TurnOutcome
    deadline: float


class FailedAttempts:
    """The failed turns that wait for another attempt.

    Not thread-safe: the caller holds a lock.
    """

    def __init__(self) -> None:
        self.waiting: WaitingTurns[FailedAttempt] = WaitingTurns(MAX_FAILED_TURNS)
        self._by_key: dict[Key, dict[int, FailedAttempt]] = {}

    def add(self, failure: FailedAttempt) -> list[FailedAttempt]:
        """Have a turn wait. Returns the oldest ones beyond the limit."""
        self._by_key.setdefault(failure.key, {})[failure.number] = failure
        return self.waiting.add(failure)

    def remove(self, failure: FailedAttempt) -> bool:
        """Remove a turn. Returns False if it does not wait any more."""
        if not self.waiting.remove(failure):
            return False
        attempts = self._by_key[failure.key]
        del attempts[failure.number]
        if not attempts:
            del self._by_key[failure.key]
        return True

    def find(self, request: RequestSummary) -> FailedAttempt | None:
        """Find the failed attempt that a request repeats."""
        attempt = request.attempt
        if attempt is not None and attempt.retries == 0:
            return None  # the first attempt of a new call
        attempts = self._by_key.get(request_key(request), {}).values()
        if attempt is None:
            only = next(iter(attempts), None)
            return (
                only if len(attempts) == 1 and only is not None and only.attempt is None else None
            )
        return next(
            (
                failure
                for failure in attempts
                if failure.attempt and _follows(attempt, failure.attempt)
            ),
            None,
        )


def _follows(attempt: Attempt, before: Attempt) -> bool:
    if attempt.retries is not None:
        return before.retries == attempt.retries - 1
    return before.invocation_id == attempt.invocation_id


def request_key(request: RequestSummary) -> Key:
    """Return the key that all attempts of one call share."""
    attempt = request.attempt
    if attempt is not None and attempt.invocation_id is not None:
        return ("invocation", attempt.invocation_id)
    facts = request.facts
    return (
        "request",
        facts.model,
        facts.max_tokens,
        facts.stream,
        request.length,
        facts.previous_response_id,
        endpoints_hash(request, request.length),
    )


def is_retried(ended: CallEnded) -> bool:
    """Return whether SDKs retry after this end of a call.

    They do after a lost connection, an overload or a server error. Some errors come with a status
    of success: as an error event of the stream, or as the stop reason.
    """
    error, stop = ended.error, ended.stop
    if stop.reason is StopReason.CANCELLED:
        return False
    if error is None:
        from endturn.formats import status_of  # with pydantic's parser, which takes long to import

        word = (stop.raw or "").rpartition(":")[2]  # "failed:server_error"
        is_stopped = "cancel" in word.lower()
        return stop.reason is StopReason.ERROR and not is_stopped and _is_transient(status_of(word))
    if not isinstance(error, Exception) or (
        isinstance(error, RequestRejected) and error.status is None
    ):
        return False
    status = next(
        (
            value
            for name in ("status", "status_code", "code")
            if isinstance(value := getattr(error, name, None), int) and value
        ),
        None,
    )
    # AWS throttles with the status 400.
    return _is_transient(status) or (status == 400 and isinstance(error, ProviderUnavailable))


def _is_transient(status: int | None) -> bool:
    return status is None or status in RETRIED_STATUSES or status >= 500


def retry_wait_s(error: BaseException | None) -> float:
    """Return the seconds for which a failed turn waits for the next attempt."""
    retry_after_s = getattr(error, "retry_after_s", None)
    if not isinstance(retry_after_s, int | float):
        return RETRY_S
    return min(retry_after_s + RETRY_S, LONGEST_RETRY_S)
