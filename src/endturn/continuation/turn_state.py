"""A turn while it runs: the terms that hold for the whole of it, what it has so far, what it is in the middle of."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from endturn import hooks
from endturn.chat import ChatResponse, Message, Request, ToolCall, Usage
from endturn.continuation import termination
from endturn.continuation.answer_text import AnswerText, IncomingResponse
from endturn.continuation.history import collapse, record
from endturn.continuation.limits import Limits
from endturn.continuation.machine import Machine
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import Entry, Resumption, Tell
from endturn.continuation.termination import FINISH_TASK, TASK_COMPLETED, Finish, WalletGuard
from endturn.continuation.tool_gate import Run, Verdict
from endturn.errors import UsageError
from endturn.events import Strategy, Turn, TurnOutcome
from endturn.formats import RequestSummary, capabilities
from endturn.formats.format import Format
from endturn.formats.settings import limit_in, thinking_budget, tool_schemas, with_setting
from endturn.stop import StopReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the turns of a controller have in common.

    Attributes:
        provider: its name, for what is announced.
        runnable: the names of the tools that have a function; None where the host runs tools itself.
        dialect: whose variant of the format the provider function speaks.
        retrieves: it takes a request to fetch a response by its id; see `Provider` in `endturn.controller`.
        follows_tokens: it takes continuation tokens up by itself, so that nobody else must.
        refused: (provider, model) of the models that have refused a prefill.
    """

    policy: ContinuationPolicy
    format: Format
    provider: str
    runnable: Container[str] | None
    dialect: str = ""
    retrieves: bool = False
    follows_tokens: bool = False
    refused: set[tuple[str, str]] = field(default_factory=set)

    def asked_in(self, request: Request) -> RequestSummary | None:
        """What a request's settings ask for in the format's own words; None where they are ours alone."""
        if not request.extra:
            return None
        any_message = Message(role="user", content=".")
        bare = Request(
            model=request.model, messages=(any_message,), max_tokens=request.max_tokens, format=request.format,
            extra=request.extra,
        )  # fmt: skip
        return self.format.request_summary(self.format.encode(bare, dialect=self.dialect))

    def maximum_of(self, request: Request) -> int | None:
        """The limit of output tokens that a request sets: as ours, or in the format's own words in its `extra`."""
        asked = self.asked_in(request)
        return request.max_tokens if asked is None or not limit_in(request.extra) else asked.maximum


JOINING: Final = frozenset({Strategy.PROMPT, Strategy.PREFILL, Strategy.REPAIR})
"""The calls whose text joins an answer that was cut."""


def limited(request: Request, maximum: int | None) -> Request:
    """The request with this limit of output tokens, in `extra` too where that sets one: it is what counts there."""
    extra = request.extra
    if maximum is not None:
        for path in limit_in(extra):
            extra = with_setting(extra, path, maximum)
    return request.but(max_tokens=maximum, extra=extra)


class TurnState:
    """All that changes in a turn, and what its request settles for the whole of it.

    Attributes:
        turn: the announced one; elapsed: gives the seconds since it began.
        tell: is told what enters the turn; None where nobody writes it down.
        asked: the request that the host made. base: the same with each answer of its history in one message, without
            nudges: what every call begins with. sent: the latest that went out.
        capability: of the model. tools: those that the request declares, by name. maximum: of output tokens, that it
            sets. is_json: the answer is to be JSON, in our words or the format's; is_held: it is not shown before it is
            known to be. is_offered: a tool to end the turn with is declared.
        pending: messages of `sent` that are recorded once it is answered; a nudge that fails leaves no trace.
            written: so many of them are written down already.
        text: what was shown, and the answer that is being written.
        passing: a response of which the whole is to come again, or another in its place; it is recorded only if the
            turn ends before that. aside: another was asked for in its place.
        strategy: how the latest call asks; None for an ordinary one.
        issue: what is wrong with a payload that is to be repaired, as in `schema.ISSUE`; wanted: the names of its
            calls. unmade: what the user is told of calls that were asked for again, and not made.
        before: the request and the response before the latest call, which may have to be taken back.
        incoming: the response of the call that is out. response: what the latest came to; overflowed: it was longer
            than what may be kept of it; verdict: the gate's on it.
        gained_nothing: how a turn ends that goes no further than the latest response, which brought nothing; else None.
        retry: the same question, if it is worth asking once more, and what its answer came to, if it may not be.
        answers: what the calls that run now were answered with so far.
        same: the tool calls of the latest batch, as text, and how often in a row they came.

    Raises:
        UsageError: the policy limits money, and gives no price for the model.
    """

    def __init__(
        self, start: Request | Resumption, setup: Setup, *, turn: Turn, clock: Callable[[], float], tell: Tell | None
    ) -> None:
        began_s, policy = clock(), setup.policy
        self.setup, self.policy = setup, policy
        asked = start if isinstance(start, Request) else start.request
        messages = self.collapsed(asked.messages)  # it may hold segments of a turn, given back as they are
        base = asked if messages == asked.messages else asked.but(messages=messages)
        if isinstance(start, Request):
            start = Resumption(request=asked, next=base)
        if policy.max_cost is not None and policy.price(base.model) is None:
            raise UsageError(f"max_cost is set, and prices has no price for {base.model!r}")

        settings = setup.asked_in(base)
        self.capability = capabilities.of(setup.format.name, setup.dialect, base.model, json_format=base.format)
        self.tools = tool_schemas(base)
        if policy.mode == "task" and FINISH_TASK.name in self.tools:
            parameters = self.tools[FINISH_TASK.name].parameters
            self.tools.setdefault(TASK_COMPLETED.name, TASK_COMPLETED.but(parameters=parameters))
        self.maximum = setup.maximum_of(base)
        self.is_json = base.format is not None or (settings is not None and settings.json_format)
        self.is_held = self.is_json and policy.stream_json == "held"
        self.is_offered = termination.is_offered(policy.mode, self.tools)

        self.turn, self.tell = turn, tell
        self.elapsed: Callable[[], float] = lambda: clock() - began_s
        guarded = policy.mode if policy.wallet_guard and self.is_offered else None
        self.guard = None if guarded is None else WalletGuard(guarded)
        self.counters = replace(start.counters)
        self.limits = Limits(policy, self.counters, self.elapsed, base.model, thinking_budget(base))
        self.machine = Machine()

        self.asked, self.base, self.sent = asked, base, start.next
        self.pending, self.written = start.pending, 0
        self.segments, self.usage = list(start.segments), start.usage
        self.strategy, self.wanted, self.unmade = start.strategy, start.wanted, start.unmade
        self.issue = "unverified_terminal" if start.strategy is Strategy.REPAIR else None
        self.passing, self.aside = start.passing, start.aside
        came = "" if start.passing is None else start.passing.text
        self.text = AnswerText(
            start.shown, start.answer, aside=came if start.aside else "", restarted=start.restarted,
            min_overlap=policy.min_overlap, max_overlap=policy.max_overlap,
        )  # fmt: skip
        if start.strategy in JOINING:
            self.text.seam(prefilled=start.strategy is Strategy.PREFILL)
        elif start.strategy is Strategy.RETRIEVE and not self.aside:
            self.text.again(came)

        self.before: tuple[Request, ChatResponse] | None = None
        self.incoming: IncomingResponse | None = None
        self.response: ChatResponse | None = None
        self.overflowed = False
        self.verdict: Verdict | None = None
        self.gained_nothing: TurnOutcome | None = None
        self.retry: tuple[Request, TurnOutcome] | None = None
        self.answers: list[Message] = []
        self.same: tuple[list[str], int] = [], 0

        self.outcome = TurnOutcome.COMPLETED
        self.finish: Finish | None = None
        self.error: BaseException | None = None
        self.resumption: Resumption | None = None

    @property
    def last(self) -> ChatResponse:
        """The latest response; there must have been one."""
        assert self.response is not None
        return self.response

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls of the latest response that passed the gate."""
        return self.verdict.calls if isinstance(self.verdict, Run) else ()

    @property
    def reported(self) -> Usage | None:
        """What the latest call used, as far as the response says, else whoever saw the call."""
        told, seen = self.last.usage, self.turn.last_usage
        if told is None or seen is None:
            return told or seen
        known = {each.name: getattr(told, each.name) for each in fields(told)}
        return replace(seen, **{name: value for name, value in known.items() if value is not None})

    @property
    def answer_text(self) -> str:
        """The answer so far; of one that was not shown, what the latest response says."""
        return self.text.answer or self.last.text

    @property
    def may_be_trivial(self) -> bool:
        """Whether an answer that says nothing is asked for again: it is text, and all of it comes from one call."""
        return self.guard is not None and self.strategy in (None, Strategy.RETRY) and not self.is_json

    def emit(self, record: Callable[..., Any], **said: Any) -> None:
        """Announce a record of this turn."""
        hooks.emit(record(turn=self.turn, provider=self.setup.provider, model=self.base.model, **said))

    def write(self, **told: Any) -> None:
        """Have an entry written down."""
        if self.tell is not None:
            self.tell(Entry(**told))

    # --- The call that is out -------------------------------------------------------------------------------------

    def take(self, raised: Exception | None = None) -> None:
        """Take what the call that is out has come to, and what was raised beside it."""
        assert self.incoming is not None
        assert self.incoming.response is not None
        self.response, self.overflowed, self.incoming = self.incoming.response, self.incoming.overflowed, None
        self.write(response=self.response, raised=raised)
        self.counters.calls += 1

    def spend(self, usage: Usage) -> None:
        """Add what a call has used."""
        self.usage += usage
        price = self.policy.price(self.base.model)
        if price is not None:
            self.counters.cost += ((usage.input_tokens or 0) * price[0] + (usage.output_tokens or 0) * price[1]) / 1e6

    def put_aside(self) -> None:
        """Another answer is asked for in place of the latest: what nobody has seen of that goes."""
        self.aside = self.passing is not None and bool(self.passing.text.strip())
        self.text.put_aside()

    # --- The history ----------------------------------------------------------------------------------------------

    def collapsed(self, messages: Iterable[Message]) -> tuple[Message, ...]:
        """A conversation, every answer one message."""
        return collapse(messages, min_overlap=self.policy.min_overlap, max_overlap=self.policy.max_overlap)

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
        self.write(message=message, counters=replace(self.counters), usage=self.usage)
        self.segments += [*self.pending, message]
        self.forget_pending()
        self.passing, self.aside = None, False

    def write_pending(self) -> None:
        """Write down the messages that the request which goes out now brings, unless they went out before."""
        for message in self.pending[self.written :]:
            self.write(message=message, counters=replace(self.counters), usage=self.usage)
        self.written = len(self.pending)

    def forget_pending(self) -> None:
        """Nothing waits to be recorded: it was, or what it was sent with came to nothing."""
        self.pending, self.written = (), 0

    def note_answer(self, call: ToolCall, content: str | list[dict[str, object]], *, is_error: bool) -> None:
        """Keep what a call was answered with until all are; it is written down at once."""
        answer = Message(role="tool", content=content, tool_call_id=call.id, is_error=is_error)
        self.answers.append(answer)
        self.write(message=answer)

    def end_batch(self, *, last: bool = False) -> None:
        """All calls of a response are answered: record that. The next request is an ordinary one again.

        Its settings are the host's own; its messages are those that went out, so that what is cached stays so.

        Args:
            last: there is no next request: what was said with the calls stays the answer.
        """
        messages = (*self.sent.messages, self.segments[-1], *self.answers)
        self.sent = self.base.but(messages=messages, token=None, retrieve=None)
        self.segments += self.answers
        if not last:
            self.text.begin_answer()
        if self.policy.continuation_attempts_per == "answer":
            self.counters.attempts = 0
        self.answers, self.verdict, self.strategy, self.wanted = [], None, None, ()

    def resume_with(self, request: Request, strategy: Strategy | None, pending: Sequence[Message] = ()) -> Resumption:
        """The turn as it stands, to be taken up with this request."""
        return Resumption(
            request=self.asked,
            next=request,
            pending=tuple(pending),
            strategy=strategy,
            shown=self.text.shown,
            answer=self.text.answer,
            restarted=self.text.restarted,
            segments=tuple(self.segments),
            usage=self.usage,
            counters=replace(self.counters),
            passing=self.passing,
            aside=self.aside,
        )

    def resume_same(self) -> Resumption:
        """The turn as it stands, to be taken up with the request that went out last."""
        return self.resume_with(self.sent, self.strategy, self.pending)
