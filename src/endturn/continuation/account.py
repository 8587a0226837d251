"""What a turn has so far: its text, its messages, what it used; and what of it is handed back when it ends."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

from endturn.chat import ChatResponse, Message, Request, ToolCall, Usage
from endturn.continuation.entry import Entered, Tell
from endturn.continuation.history import collapse, record, without_empty
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import AFRESH, Resumption, TurnResult
from endturn.continuation.stitch import Spans, Stitcher
from endturn.continuation.termination import Finish, status_of
from endturn.continuation.tool_gate import Ledger
from endturn.events import COMPLETE, Strategy, TurnOutcome, plausible
from endturn.stop import Resume, Stop, StopReason


class Account:
    """The books of one turn.

    Attributes:
        asked: the request that the host made. base: the same with each answer of its history in one message, without
            nudges: what every call begins with. sent: the latest that went out.
        pending: messages of `sent` that are recorded once it is answered; a nudge that fails leaves no trace.
        stitcher: the answer that is being written; earlier: the text before the last tool run.
        passing: a response of which the whole is to come again, or another in its place; it is recorded only if the
            turn ends before that. aside: another was asked for in its place.
        maximum: of output tokens, that the request sets, wherever it does.
        tell: is told what enters the turn; None where nobody writes it down.
    """

    def __init__(self, start: Request | Resumption, policy: ContinuationPolicy, tell: Tell | None = None) -> None:
        self._policy = policy
        self.tell = tell
        self.asked = start if isinstance(start, Request) else start.request
        messages = self._collapsed(self.asked.messages)  # it may hold segments of a turn, given back as they are
        self.base = self.asked if messages == self.asked.messages else self.asked.but(messages=messages)
        if isinstance(start, Request):
            start = Resumption(request=self.asked, next=self.base)
        self.maximum = self.base.max_tokens
        self.sent = start.next
        self.pending = start.pending
        self._written = 0
        self.earlier = start.earlier
        self.stitcher = self._new_stitcher(start.text, start.replaced)
        self._restarted = start.restarted
        self.counters = replace(start.counters)
        self.usage = start.usage
        self.ledger = Ledger(start.ran)
        self._segments = list(start.segments)
        self._results = list(start.tool_results)
        self.passing = start.passing
        self.aside = self.passing is not None and self.stitcher.is_put_aside
        if start.seam:
            self.stitcher.seam(prefilled=start.strategy is Strategy.PREFILL)
        elif start.strategy is Strategy.RETRIEVE and start.passing is not None and not self.aside:
            self.stitcher.again(start.passing.text)

    def _new_stitcher(self, text: str = "", replaced: Spans = ()) -> Stitcher:
        return Stitcher(text, replaced, min_overlap=self._policy.min_overlap, max_overlap=self._policy.max_overlap)

    def _collapsed(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        return collapse(messages, min_overlap=self._policy.min_overlap, max_overlap=self._policy.max_overlap)

    @property
    def segments(self) -> tuple[Message, ...]:
        """The turn's messages so far, nudges included."""
        return tuple(self._segments)

    @property
    def room(self) -> int:
        """Characters of cut answers and of what continues them that may still be kept."""
        return max(0, self._policy.continuation_max_output_chars - self.counters.chars)

    def used(self, response: ChatResponse) -> Usage:
        """Add a response's usage, estimated where the provider gave none."""
        sent = self.sent if self.sent.max_tokens is not None else self.sent.but(max_tokens=self.maximum)
        usage = measured(response, sent)
        self.spend(usage)
        return usage

    def spend(self, usage: Usage) -> None:
        """Add what a call has used."""
        self.usage += usage
        price = self._policy.price(self.base.model)
        if price is not None:
            self.counters.cost += ((usage.input_tokens or 0) * price[0] + (usage.output_tokens or 0) * price[1]) / 1e6

    @property
    def restarted(self) -> bool:
        """Whether what was shown was begun anew."""
        return self._restarted or self.stitcher.restarted

    def let_pass(self, response: ChatResponse) -> None:
        """Take a response of which the whole is to come again, or another in its place.

        Of one that came several times, the longest stays; of several in each other's place, the last that says
        anything.
        """
        said = "" if self.passing is None else self.passing.text
        if response.text.strip() if self.aside else len(said) <= len(response.text):
            self.passing, self.aside = response, False

    def enter(self, response: ChatResponse, calls: tuple[ToolCall, ...] = (), *, text: str | None = None) -> None:
        """Record a response with the calls that were run or answered, after the nudge that it answers.

        One that says nothing does not take the place of another that said something.
        """
        says = response.text.strip() or calls or response.stop.reason is StopReason.PAUSED
        if self.aside and not says:
            return
        message = record(response, calls, text=text)
        if self.tell is not None:
            self.tell(Entered(message, replace(self.counters), self.usage))
        self._segments += [*self.pending, message]
        self.forget_pending()
        self.passing, self.aside = None, False

    def write_pending(self) -> None:
        """Write down the messages that the request which goes out now brings, unless they went out before."""
        if self.tell is not None:
            for message in self.pending[self._written :]:
                self.tell(Entered(message, replace(self.counters), self.usage))
        self._written = len(self.pending)

    def forget_pending(self) -> None:
        """Nothing waits to be recorded: it was, or what it was sent with came to nothing."""
        self.pending, self._written = (), 0

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
        self.earlier += self.stitcher.shown
        self._restarted = self.restarted
        self.stitcher = self._new_stitcher()

    def resumption(self, request: Request, strategy: Strategy | None, pending: tuple[Message, ...] = ()) -> Resumption:
        """The turn as it stands, to be taken up with this request."""
        return Resumption(
            request=self.asked,
            next=request,
            pending=pending,
            strategy=strategy,
            earlier=self.earlier,
            text=self.stitcher.shown,
            replaced=self.stitcher.replaced,
            restarted=self.restarted,
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
        notice: str | None,
        error: BaseException | None,
        duration_s: float,
        resumption: Resumption | None,
    ) -> TurnResult:
        """The turn as it ended."""
        if self.passing is not None:
            self.aside = False
            self.enter(self.passing)
        segments = tuple(self._segments)
        whole = (*self.asked.messages, *segments)
        if resumption is not None and outcome in AFRESH:
            resumption = resumption.afresh()
        return TurnResult(
            text=self.earlier + self.stitcher.shown,
            answer=self.stitcher.text,
            restarted=self.restarted,
            segments=segments,
            messages=without_empty(whole) if self._policy.history == "segments" else self._collapsed(whole),
            outcome=outcome,
            status=status_of(outcome, self._policy.mode, finish),
            finish=finish,
            complete=outcome in COMPLETE and not (stop is not None and stop.truncated),
            notice=notice,
            stop=stop,
            calls=calls,
            usage=self.usage,
            iterations=self.counters.iterations_made,
            continuations=self.counters.continuations_made,
            repairs=self.counters.repairs_made,
            requests=self.counters.calls,
            tool_results=tuple(self._results),
            error=error,
            duration_s=duration_s,
            resumption=resumption,
        )


def estimated(response: ChatResponse, usage: Usage) -> Usage | None:
    """What of a response's usage is an estimate; None where the provider counted all of it."""
    if not usage.estimated:
        return None
    told = plausible(response.usage) or Usage()
    return Usage(
        input_tokens=usage.input_tokens if told.input_tokens is None else None,
        output_tokens=usage.output_tokens if told.output_tokens is None else None,
        estimated=True,
    )


def measured(response: ChatResponse, request: Request) -> Usage:
    """A response's usage. Where the provider gave none, a token per 4 bytes of what was said, and asked.

    A cut answer used its maximum. No input is estimated of a request that was refused, or whose answer is still being
    made: that is counted when it is fetched. Of content parts in a format's own shape only the text counts.
    """
    usage, stop = plausible(response.usage) or Usage(), response.stop
    said = _size(response.text + (response.reasoning or ""), response.tool_calls)
    if usage.output_tokens is None:
        is_full = stop.reason is StopReason.MAX_TOKENS and request.max_tokens is not None
        usage = replace(usage, output_tokens=request.max_tokens if is_full else -(-said // 4), estimated=True)
    is_refused = not said and stop.reason in (StopReason.ERROR, StopReason.CONTEXT_WINDOW_EXCEEDED)
    if usage.input_tokens is None and not is_refused and stop.resume is not Resume.RETRIEVE_SAME_ID:
        asked = sum(_size(message.text, message.tool_calls) for message in request.messages)
        usage = replace(usage, input_tokens=-(-asked // 4), estimated=True)
    return usage


def _size(text: str, calls: Iterable[ToolCall]) -> int:
    """The bytes of a text, and of the arguments of calls."""
    arguments = (
        json.dumps(call.arguments or {}, default=str) if call.arguments_raw is None else call.arguments_raw
        for call in calls
    )  # fmt: skip
    return sum(len(part.encode(errors="replace")) for part in (text, *arguments))
