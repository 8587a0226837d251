"""What a turn has so far: its text, its messages, what it used; and what of it is handed back when it ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from endturn.chat import ChatResponse, Message, Request, ToolCall, Usage
from endturn.continuation.entry import Entered, Tell
from endturn.continuation.history import collapse, record
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import AFRESH, NOTICES, Resumption, TurnResult
from endturn.continuation.stitch import Stitcher
from endturn.continuation.termination import Finish, status_of
from endturn.continuation.toolgate import Ledger
from endturn.records import COMPLETE, Strategy, TurnOutcome
from endturn.stop import Stop, StopReason


class Account:
    """The books of one turn.

    Attributes:
        base: the request that the host made. sent: the latest that went out.
        pending: messages of `sent` that are recorded once it is answered; a nudge that fails leaves no trace.
        stitcher: the answer that is being written; earlier: the text before the last tool run.
        passing: a response of which the whole is to come again; it is recorded only if the turn ends before that.
        tell: is told what enters the turn; None where nobody writes it down.
    """

    def __init__(self, start: Request | Resumption, policy: ContinuationPolicy, tell: Tell | None = None) -> None:
        self._policy = policy
        self.tell = tell
        if isinstance(start, Request):
            if any(message.synthetic for message in start.messages):  # segments of a turn, given back as they are
                start = start.but(messages=self._collapsed(start.messages))
            start = Resumption(request=start, next=start)
        self.base = start.request
        self.sent = start.next
        self.pending = start.pending
        self.earlier = start.earlier
        self.stitcher = self._new_stitcher(start.text)
        self.counters = replace(start.counters)
        self.usage = start.usage
        self.ledger = Ledger(start.ran)
        self._segments = list(start.segments)
        self._results = list(start.tool_results)
        self.passing = start.passing
        if start.seam:
            self.stitcher.seam(prefilled=start.strategy is Strategy.PREFILL)
        elif start.strategy is Strategy.RETRIEVE and start.passing is not None:
            self.stitcher.again(start.passing.text)

    def _new_stitcher(self, text: str = "") -> Stitcher:
        return Stitcher(text, min_overlap=self._policy.min_overlap, max_overlap=self._policy.max_overlap)

    def _collapsed(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        policy = self._policy
        apart = policy.history == "segments"
        return collapse(messages, min_overlap=policy.min_overlap, max_overlap=policy.max_overlap, apart=apart)

    @property
    def segments(self) -> tuple[Message, ...]:
        """The turn's messages so far, nudges included."""
        return tuple(self._segments)

    @property
    def chars(self) -> int:
        """Characters of all the text so far."""
        return len(self.earlier) + len(self.stitcher)

    def used(self, response: ChatResponse) -> Usage:
        """Add a response's usage, estimated where the provider gave none."""
        usage = measured(response, self.sent)
        self.usage += usage
        price = self._policy.price(self.base.model)
        if price is not None:
            self.counters.cost += ((usage.input_tokens or 0) * price[0] + (usage.output_tokens or 0) * price[1]) / 1e6
        return usage

    def let_pass(self, response: ChatResponse) -> None:
        """Take a response of which the whole is to come again. Of one that came several times, the longest stays."""
        if self.passing is None or len(self.passing.text) <= len(response.text):
            self.passing = response

    def forget(self) -> None:
        """Nothing of the latest response is used: it comes again, and nobody has seen it."""
        self.passing = None
        self.stitcher.forget()

    def enter(self, response: ChatResponse, calls: tuple[ToolCall, ...] = (), *, text: str | None = None) -> None:
        """Record a response with the calls that were run or answered, after the nudge that it answers."""
        message = record(response, calls, text=text)
        if self.tell is not None:
            for nudge in self.pending:
                self.tell(Entered(nudge))
            self.tell(Entered(message, replace(self.counters), self.usage))
        self._segments += [*self.pending, message]
        self.pending, self.passing = (), None

    def answer(self, answers: list[Message], *, last: bool = False) -> None:
        """Record what the calls of the latest response were answered with. The next request is an ordinary one again.

        Its settings are the host's own; its messages are those that went out, so that what is cached stays so.

        Args:
            last: there is no next request: what was said with the calls stays the answer.
        """
        messages = (*self.sent.messages, self._segments[-1], *answers)
        self.sent = self.base.but(messages=messages, token=None, retrieve=None)
        self._segments += answers
        self._results += answers
        if last:
            return
        self.earlier += self.stitcher.text
        self.stitcher = self._new_stitcher()

    def resumption(self, request: Request, strategy: Strategy | None, pending: tuple[Message, ...] = ()) -> Resumption:
        """The turn as it stands, to be taken up with this request."""
        return Resumption(
            request=self.base,
            next=request,
            pending=pending,
            strategy=strategy,
            earlier=self.earlier,
            text=self.stitcher.text,
            seam=strategy in (Strategy.PROMPT, Strategy.PREFILL, Strategy.REPAIR),
            segments=tuple(self._segments),
            tool_results=tuple(self._results),
            usage=self.usage,
            counters=replace(self.counters),
            ran=self.ledger.entries(),
            passing=self.passing,
        )

    def result(
        self,
        outcome: TurnOutcome,
        *,
        finish: Finish | None,
        stop: Stop | None,
        calls: tuple[ToolCall, ...],
        continuations: int,
        error: BaseException | None,
        duration_s: float,
        resumption: Resumption | None,
    ) -> TurnResult:
        """The turn as it ended."""
        if self.passing is not None:
            self.enter(self.passing)
        segments = tuple(self._segments)
        if resumption is not None and outcome in AFRESH:
            resumption = resumption.afresh()
        return TurnResult(
            text=self.earlier + self.stitcher.text,
            answer=self.stitcher.text,
            segments=segments,
            messages=self._collapsed((*self.base.messages, *segments)),
            outcome=outcome,
            status=status_of(outcome, self._policy.mode, finish),
            finish=finish,
            complete=outcome in COMPLETE and not (stop is not None and stop.truncated),
            notice=NOTICES.get(outcome),
            stop=stop,
            calls=calls,
            usage=self.usage,
            iterations=self.counters.calls,
            continuations=continuations,
            tool_results=tuple(self._results),
            error=error,
            duration_s=duration_s,
            resumption=resumption,
        )


def measured(response: ChatResponse, request: Request) -> Usage:
    """A response's usage. Where the provider gave none, a cut one used its maximum, any other a token per 4 bytes."""
    usage = response.usage or Usage()
    if usage.output_tokens is not None:
        return usage
    if response.stop.reason is StopReason.MAX_TOKENS and request.max_tokens is not None:
        return replace(usage, output_tokens=request.max_tokens, estimated=True)
    arguments = "".join(call.arguments_raw or "" for call in response.tool_calls)
    size = len((response.text + (response.reasoning or "") + arguments).encode(errors="replace"))
    return replace(usage, output_tokens=-(-size // 4), estimated=True)
