"""One response as it arrives: its visible text goes through the stitcher at once, its calls wait for the gate."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from endturn.chat import ChatResponse, Delta, ToolCall
from endturn.continuation.limits import COUNTED
from endturn.continuation.stitch import Stitcher
from endturn.events import Strategy
from endturn.formats.reading import arguments
from endturn.stop import Stop, StopReason


class IncomingResponse:
    """Takes a response's deltas, and gives out what the consumer may see of them.

    Pieces of tool calls are not given out: until the gate has passed them, nobody may act on them.

    Args:
        held: where the pieces of text go that the consumer may not see yet; None where it may see them at once.
        until: whether the text that is held may be seen now, with all that follows; None keeps all of it.
        strategy: how the call asks; None for an ordinary one.
        room: characters that a response may add that is cut, or was asked for because one was; of one that is whole,
            and was not, all are kept.

    Attributes:
        response: None until `close` was called; what had arrived, with the stop `missing`, where the response itself
            never came.
        overflowed: it adds more than that; `response` holds what was kept.
    """

    __slots__ = ("_calls", "_held", "_reasoning", "_said", "_stitcher", "_strategy", "_until", "overflowed",
                 "response")  # fmt: skip

    def __init__(
        self,
        stitcher: Stitcher,
        held: list[Delta] | None = None,
        until: Callable[[str], bool] | None = None,
        *,
        strategy: Strategy | None = None,
        room: int = sys.maxsize,
    ) -> None:
        self.response: ChatResponse | None = None
        self.overflowed = False
        self._strategy = strategy
        self._held = held
        self._until = until
        self._stitcher = stitcher
        self._said: list[str] = []
        self._reasoning: list[str] = []
        self._calls: dict[int, list[str]] = {}
        stitcher.begin(room)

    def feed(self, delta: Delta) -> Iterable[Delta]:
        """Take the next delta."""
        text = delta.text
        # Nearly every delta is text, and nothing stands in its way: it costs little, and passes as it is.
        plain = text and not (delta.reasoning or delta.restart) and delta.call is None and self._held is None
        if plain and self._stitcher.passes(text):
            self._said.append(text)
            return (delta,)
        return self._feed_any(delta)

    def _feed_any(self, delta: Delta) -> list[Delta]:
        out: list[Delta] = []
        if delta.restart:
            before = [self._stitcher.close(), Delta(text=self._stitcher.end())]
            out += self._visible([piece for piece in before if piece is not None and piece.text])
            self._said.clear()
        if delta.reasoning:
            self._reasoning.append(delta.reasoning)
            out.append(Delta(reasoning=delta.reasoning))
        if delta.call is not None:
            call = self._calls.setdefault(delta.call.index, ["", "", ""])
            call[0] = call[0] or delta.call.id or ""
            call[1] = call[1] or delta.call.name or ""
            call[2] += delta.call.arguments
        if delta.text:
            self._said.append(delta.text)
            piece = self._stitcher.feed(delta.text)
            if piece is not None:
                out += self._visible([Delta(text=piece.text, restart=True) if delta.restart else piece])
        return out

    def close(self, response: ChatResponse | None) -> Iterator[Delta]:
        """The response is over: `response` is what it came to, None where it never said so. Only the first time counts.

        Text of it that was not among the deltas is given out now.
        """
        if self.response is not None:
            return iter(())
        said = "".join(self._said)
        response = self._lost(said) if response is None else _with_arguments(response)
        out: list[Delta | None] = []
        if response.reasoning and not self._reasoning:
            out.append(Delta(reasoning=response.reasoning))
        is_shown = not declines(response, self._strategy)
        if is_shown and len(response.text) > len(said) and response.text.startswith(said):
            out.append(self._stitcher.feed(response.text[len(said) :]))
        out.append(self._stitcher.close())
        if self._stitcher.overflowed:
            self.overflowed = self._strategy in COUNTED or response.stop.truncated
            if self.overflowed:
                response = response.but(text=self._stitcher.added, blocks=None)
            else:
                out.append(self._stitcher.release())
        self.response = response
        return iter(self._visible([piece for piece in out if piece is not None]))

    def _lost(self, said: str) -> ChatResponse:
        """What had arrived of a response that never said how it ended."""
        calls = (
            ToolCall(id=id_ or f"call_{index}", name=name, arguments_raw=raw, closed=False)
            for index, (id_, name, raw) in sorted(self._calls.items())
        )
        stop = Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
        reasoning = "".join(self._reasoning) or None
        return _with_arguments(ChatResponse(text=said, reasoning=reasoning, tool_calls=tuple(calls), stop=stop))

    def _visible(self, pieces: list[Delta]) -> list[Delta]:
        """Those of the pieces that the consumer may see now: none of a text that is held back."""
        if self._held is None:
            return pieces
        fresh = [piece for piece in pieces if piece.text]
        self._held += fresh
        seen = [piece for piece in pieces if not piece.text]
        # White space alone never says enough, and some models send pages of it: it is not joined again and again.
        says = self._until is not None and any(not piece.text.isspace() for piece in fresh)
        if says and self._until is not None and self._until("".join(piece.text for piece in self._held)):
            seen += self._held
            self._held.clear()
            self._held = None
        return seen


def declines(response: ChatResponse, strategy: Strategy | None) -> bool:
    """Whether a response that was to go on with an answer is a refusal instead: that is no part of the answer."""
    return response.stop.reason is StopReason.REFUSED and strategy in _JOINED


_JOINED: Final = frozenset({Strategy.PROMPT, Strategy.PREFILL, Strategy.REPAIR, Strategy.RESEND, Strategy.NATIVE_TOKEN})
"""The calls whose text is joined to what came before."""


def _with_arguments(response: ChatResponse) -> ChatResponse:
    """A response whose arguments are parsed, where a provider function gave text alone: some formats send objects."""
    if all(call.arguments is not None or not call.arguments_raw for call in response.tool_calls):
        return response
    calls = (
        call if call.arguments is not None else call.but(arguments=arguments(call.arguments_raw))
        for call in response.tool_calls
    )
    return response.but(tool_calls=tuple(calls))
