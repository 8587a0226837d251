"""Every exception that endturn raises, each type saying whose fault it is.

EndturnError ├── UsageError (ValueError)       yours: an argument, a setting or a script that cannot
be used as given ├── ProviderError                 the provider's answer was not a response │   ├──
RequestRejected           yours: 400, 401, 403, 404, 413, 422 …: sending it again changes nothing │
├── ProviderUnavailable       theirs: 408, 409, 429, 5xx, no connection: sending it again may help │
│   └── ProviderTimeout       theirs: no answer within the time that was allowed │   └── DecodeError
theirs: the body or stream is not in the provider's own format └── IllegalTransition
ours: the continuation machine was given a signal that its state does not know
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from endturn.vocabulary import ChatResponse, Stop


class EndturnError(Exception):
    """The root of everything that endturn raises on purpose."""


class UsageError(EndturnError, ValueError):
    """An argument, setting or script that cannot be used as given.

    The message says what to do instead.
    """


class ProviderError(EndturnError):
    """A provider answered with something that is not a response, or not at all.

    Attributes:
        provider: the provider's name as in `gen_ai.provider.name`.
        status: the HTTP status, None where there was no answer.
        request_id: the provider's id for the request, to quote to its support.
        body: the answer's text, shortened and with anything that looks like a key removed.
        stop: what the error says about the model's stop, when it says so ("context length exceeded"
            is a stop reason).
        partial: what had arrived of a streamed response before it failed.
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
    """The provider refuses this request as it stands: a wrong key, model, parameter or size."""


class ProviderUnavailable(ProviderError):
    """The provider could not answer now: rate limit, overload, failure, or no connection."""


class ProviderTimeout(ProviderUnavailable):
    """The provider did not answer within the time that was allowed."""


class DecodeError(ProviderError):
    """The body or stream is not in the provider's own format."""


class IllegalTransition(EndturnError):
    """The continuation machine was given a signal that its state does not know.

    Nothing was changed.
    """


def did_you_mean(name: str, allowed: Iterable[str], *, prefix: str = "") -> str:
    """Return the end of a message about an unknown name.

    The nearest known one, else all of them.

    Args:
        prefix: the beginning that all of them share, which makes no two of them alike.
    """
    from difflib import get_close_matches

    names = sorted(allowed)
    endings = [one.removeprefix(prefix) for one in names]
    nearest = get_close_matches(name.removeprefix(prefix), endings, n=1)
    if nearest:
        return f"did you mean {names[endings.index(nearest[0])]!r}?"
    return f"there are: {', '.join(names)}"
