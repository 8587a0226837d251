"""The exceptions of endturn. The type shows whose fault an error is.

EndturnError
├── UsageError (ValueError)   yours: an invalid argument, setting or script
├── ProviderError             the provider did not return a response
│   ├── RequestRejected       yours: 400, 401, 403, 404, 413, 422, …; a retry cannot help
│   ├── ProviderUnavailable   theirs: 408, 409, 429, 5xx, no connection; a retry may help
│   │   └── ProviderTimeout   theirs: no answer within the time limit
│   └── DecodeError           theirs: the body or stream is not in the provider's format
└── IllegalTransition         ours: a signal that is illegal in the machine's state
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endturn.vocabulary import ChatResponse, Stop


class EndturnError(Exception):
    """The base class of endturn's exceptions."""


class UsageError(EndturnError, ValueError):
    """An argument, setting or script that cannot be used. The message says what to do instead."""


class ProviderError(EndturnError):
    """A provider returned something that is not a response, or nothing.

    Attributes:
        provider: the provider's name as in `gen_ai.provider.name`.
        status: the HTTP status; None if there was no answer.
        request_id: the provider's id for the request, to quote to its support.
        body: the answer's text, shortened and with anything that looks like a key removed.
        stop: the stop that the error describes, if it does ("context length exceeded" is a stop
            reason).
        partial: the part of a streamed response that arrived before it failed.
    """

    def __init__(
        self,
        message: str,
        *,
        provider: str = "",
        status: int | None = None,
        request_id: str | None = None,
        body: str | None = None,
        stop: Stop | None = None,
        partial: ChatResponse | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.request_id = request_id
        self.body = body
        self.stop = stop
        self.partial = partial
        self.retry_after_s = retry_after_s

    @property
    def retryable(self) -> bool:
        """True if the same request may succeed when it is sent again."""
        return isinstance(self, ProviderUnavailable)


class RequestRejected(ProviderError):
    """The provider rejects this request: a wrong key, model, parameter or size."""


class ProviderUnavailable(ProviderError):
    """The provider could not answer now: rate limit, overload, failure, or no connection."""


class ProviderTimeout(ProviderUnavailable):
    """The provider did not answer within the time that was allowed."""


class DecodeError(ProviderError):
    """The body or stream is not in the provider's own format."""


class IllegalTransition(EndturnError):
    """The continuation machine got a signal that is illegal in its state, which is unchanged."""


def did_you_mean(name: str, allowed: Iterable[str], *, prefix: str = "") -> str:
    """Return the end of a message about an unknown name: the nearest allowed name, else all.

    Args:
        prefix: the common beginning of all names, which is ignored when they are compared.
    """
    from difflib import get_close_matches

    names = sorted(allowed)
    endings = [one.removeprefix(prefix) for one in names]
    nearest = get_close_matches(name.removeprefix(prefix), endings, n=1)
    if nearest:
        return f"did you mean {names[endings.index(nearest[0])]!r}?"
    return f"there are: {', '.join(names)}"
