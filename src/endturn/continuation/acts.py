"""What a turn asks of whoever drives it, and what it is answered: the turn itself does no I/O and knows no clock."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from endturn.chat import ChatResponse, Delta, Request, ToolCall
from endturn.continuation.part import Part
from endturn.continuation.result import TurnResult


@dataclass(frozen=True, slots=True)
class CallProvider:
    """Send `request`; `part` takes what arrives, and is closed."""

    request: Request
    part: Part


@dataclass(frozen=True, slots=True)
class RunTool:
    """Run one call that passed the gate."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class ToolRan:
    """What a tool gave back, or what is told of what it raised."""

    content: str | list[dict[str, object]]
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class MakeRoom:
    """Give the host's function a request that filled the window, and the response, for a request that does not."""

    request: Request
    response: ChatResponse


@dataclass(frozen=True, slots=True)
class Wait:
    """Let this time pass: the provider is still making its response."""

    seconds: float


Act = CallProvider | RunTool | MakeRoom | Wait | Delta
"""A Delta is the consumer's: there is nothing to answer."""
Reply = ToolRan | Exception | Request | None
Steps = Generator[Act, Reply, TurnResult]
