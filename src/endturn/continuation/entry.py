"""What a turn tells whoever writes it down: how it began, each response, each message that enters it, and its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from endturn.chat import ChatResponse, Message, Request, Usage
from endturn.continuation.limits import Counters
from endturn.events import TurnOutcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Began:
    """A turn begins, or is taken up again.

    Attributes:
        request: what the host asked for.
        segments: what the turn already has, where it was taken up again; `counters` and `usage` go with them.
        paused: where its first call takes a response up by token or id: that response, as far as it is known.
        format, provider, dialect, retrieves, follows_tokens: of the provider function; see `Abilities`.
    """

    request: Request
    segments: tuple[Message, ...] = ()
    counters: Counters = field(default_factory=Counters)
    usage: Usage = field(default_factory=Usage)
    paused: ChatResponse | None = None
    format: str
    provider: str
    dialect: str = ""
    retrieves: bool = False
    follows_tokens: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """A call came to this.

    Attributes:
        response: what arrived, as it arrived: whether any of it enters the turn is told apart.
        raised: what the provider function raised beside it.
    """

    response: ChatResponse
    raised: Exception | None = None


@dataclass(frozen=True, slots=True)
class Entered:
    """A message enters the turn: an answer without the calls that were not run, a nudge, a tool's result.

    Attributes:
        counters, usage: what the turn has used until then; told with an answer, and with a nudge, whose call they
            count already.
    """

    message: Message
    counters: Counters | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """The turn is over."""

    outcome: TurnOutcome


Entry = Began | Answered | Entered | Ended
Tell = Callable[[Entry], None]
