"""One turn as a generator: it decides and records; whoever drives it calls the provider and runs the tools.

    steps = Course(request, …).steps()
    CallProvider  → the driver calls the provider, feeds `part` with what arrives; answers None, or what was raised
    RunTool       → the driver runs the tool; answers ToolRan
    MakeRoom      → the driver asks the host's function for a shorter request; answers that, or None
    Wait          → the driver lets some seconds pass; answers None
    Delta         → the driver hands it to the consumer; answers None
    StopIteration → its value is the TurnResult

No I/O and no clock of its own, so one course serves plain functions and coroutines, whole answers and streams.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from endturn.announce import end_turn
from endturn.chat import CallFragment, ChatResponse, Delta, Message, Request, ToolCall
from endturn.continuation import limits, machine, termination
from endturn.continuation.account import Account
from endturn.continuation.entry import Answered, Began, Ended, Entered, Tell
from endturn.continuation.limits import Progress
from endturn.continuation.machine import Machine, Signal, State, Step
from endturn.continuation.part import Part
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import Resumption, TurnResult
from endturn.continuation.signs import loop_start
from endturn.continuation.termination import Finish, Watchman
from endturn.continuation.toolgate import Answer, Repair, Run, Verdict, declared, judge
from endturn.continuation.voice import Voice
from endturn.errors import ProviderError, RequestRejected, UsageError
from endturn.records import COMPLETE, Strategy, Turn, TurnOutcome
from endturn.stop import Resume, StopReason
from endturn.wires import Wire, capabilities


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


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the provider function can do beside answering; see `Provider` in `endturn.controller`.

    Attributes:
        dialect: whose variant of the wire it speaks.
        retrieves: it takes a request to fetch a response by its id.
        follows_tokens: it takes continuation tokens up by itself, so that nobody else must.
        refused: (provider, model) of the models that have refused a prefill; shared by the turns of a controller.
    """

    dialect: str = ""
    retrieves: bool = False
    follows_tokens: bool = False
    refused: set[tuple[str, str]] = field(default_factory=set)


Act = CallProvider | RunTool | MakeRoom | Wait | Delta
Reply = ToolRan | Exception | Request | None
Steps = Generator[Act, Reply, TurnResult]

SAID_BY_ERRORS: Final = frozenset({StopReason.CONTEXT_WINDOW_EXCEEDED, StopReason.SAFETY_BLOCKED, StopReason.REFUSED})
"""The stop reasons that arrive as HTTP errors too: such an error counts as a response. So does one to be repaired."""

_COUNTED: Final = frozenset({Strategy.PROMPT, Strategy.PREFILL, Strategy.RETRY, Strategy.REPAIR})
"""The calls whose output counts against the budgets, however they end."""

RESUMING: Final[Mapping[Resume, Strategy]] = {
    Resume.RESEND_UNCHANGED: Strategy.RESEND,
    Resume.NATIVE_TOKEN: Strategy.NATIVE_TOKEN,
    Resume.RETRIEVE_SAME_ID: Strategy.RETRIEVE,
}
"""How each kind of pause is taken up."""
RESUMES: Final = frozenset(RESUMING.values())

_POINTLESS: Final = frozenset(
    {TurnOutcome.NO_PROGRESS, TurnOutcome.REPETITION, TurnOutcome.REASONING_EXHAUSTED, TurnOutcome.INVALID_JSON}
)
"""The outcomes after which asking again would bring the same."""


class Course:
    """The course of one turn, from the user's input to the answer handed back.

    Args:
        start: a request, or an unfinished turn.
        turn: the announced turn; its scope is the driver's to open, and to make current around each step.
        provider: the provider's name, for what is announced.
        runnable: the names of the tools that have a function; None where the host runs tools itself.
        clock: gives seconds.
        abilities: of the provider function.
        tell: is told all that is worth writing down, at once.

    Raises:
        UsageError: the policy limits money, and gives no price for the model.
    """

    def __init__(
        self,
        start: Request | Resumption,
        *,
        policy: ContinuationPolicy,
        wire: Wire,
        turn: Turn,
        provider: str,
        runnable: Container[str] | None,
        clock: Callable[[], float],
        abilities: Abilities | None = None,
        tell: Tell | None = None,
    ) -> None:
        self._account = Account(start, policy, tell)
        self._strategy = start.strategy if isinstance(start, Resumption) else None
        self._policy = policy
        self._wire = wire
        self._turn = turn
        self._voice = Voice(turn, provider, self._account.base.model)
        self._tools = declared(self._account.base)
        self._runnable = runnable
        self._abilities = abilities or Abilities()
        self._clock = clock
        base = self._account.base
        if policy.max_cost is not None and policy.price(base.model) is None:
            raise UsageError(f"max_cost is set, and prices has no price for {base.model!r}")
        self._provider = provider
        self._capability = capabilities.of(wire.NAME, self._abilities.dialect, base.model, format=base.format)
        self._is_held = base.format is not None and policy.stream_json == "held"
        self._is_offered = termination.is_offered(policy.mode, self._tools)
        self._watchman: Watchman | None = None
        if policy.mode is not None and policy.wallet_guard and self._is_offered:
            self._watchman = Watchman(policy.mode)
        self._ending: Finish | None = None
        self._held: list[Delta] = []
        self._kept = 0  # so many of them are of earlier parts
        self._asked_before: tuple[Request, ChatResponse] | None = None
        self._otherwise = TurnOutcome.NO_PROGRESS
        self._again: Request | None = None
        self._began_s = clock()
        self._machine = Machine()
        self._part: Part | None = None
        self._response: ChatResponse | None = None
        self._verdict: Verdict | None = None
        self._progress = Progress(visible=False)
        self._issue = "unverified_terminal" if self._strategy is Strategy.REPAIR else None
        self._number = 0  # of the ordinary call that the present answer began with
        self._calls: tuple[ToolCall, ...] = ()
        self._answers: list[Message] = []
        self._outcome = TurnOutcome.COMPLETED
        self._error: BaseException | None = None
        self._resumption: Resumption | None = None

    def steps(self) -> Steps:
        """Run the turn.

        Raises:
            Exception: what the provider raised on the first call, if nothing had come of it.
        """
        account, policy = self._account, self._policy
        counters = account.counters
        thinking = thinking_budget(account.base)
        if account.tell is not None:
            account.tell(self._beginning(account))
        if self._strategy is not None:
            self._announce(self._strategy)
        step = Step.SEND
        while True:
            match step:
                case Step.SEND:
                    counters.iterations += self._strategy is None
                    self._number = counters.calls
                    step = yield from self._call()
                case Step.EVALUATE:
                    signal = self._evaluate()
                    if signal is Signal.CONTEXT_WINDOW_EXCEEDED:
                        signal = yield from self._make_room()
                    step = self._machine.on(signal)
                case Step.CHECK_CONTINUATION:
                    spent = self._elapsed_s
                    step = self._go_on_unless(
                        limits.before_continuation(counters, policy, self._progress, elapsed_s=spent, thinking=thinking)
                    )
                    if step is Step.SEND_CONTINUATION:
                        self._voice.continuing(counters.attempts + 1, policy.continuation_max_attempts)
                    elif self._outcome is TurnOutcome.RETRY_LIMIT:
                        self._voice.gave_up()
                case Step.CHECK_REPAIR:
                    spent = self._elapsed_s
                    step = self._go_on_unless(
                        limits.before_repair(counters, policy, elapsed_s=spent, thinking=thinking)
                    )
                    if step is Step.KEEP_PARTIAL and self._strategy is not Strategy.REPAIR:
                        self._repaired(attempted=False, succeeded=False)
                case Step.CHECK_RESUME:
                    resume, spent = self._last.stop.resume, self._elapsed_s
                    step = self._go_on_unless(
                        limits.before_resume(counters, policy, resume, able=self._can(resume), elapsed_s=spent)
                    )
                case Step.CHECK_ASK_AGAIN:
                    spent = self._elapsed_s
                    step = self._go_on_unless(
                        limits.before_asking_again(
                            counters, policy, self._otherwise, elapsed_s=spent, thinking=thinking
                        )
                    )
                case Step.CHECK_ITERATION:
                    step = self._iterate()
                case Step.SEND_CONTINUATION | Step.SEND_REPAIR:
                    self._ask_for_rest()
                    step = yield from self._call()
                case Step.SEND_RESUME:
                    self._ask_for_rest()
                    if self._strategy is Strategy.RETRIEVE:
                        yield Wait(min(2.0 ** (counters.resumes - 1), LONGEST_WAIT_S))
                    step = yield from self._call()
                case Step.SEND_AGAIN:
                    self._ask_again()
                    step = yield from self._call()
                case Step.RUN_TOOLS:
                    yield from self._release()
                    yield from self._show_calls()
                    yield from self._run_tools()
                    step = self._after_tools()
                case Step.ANSWER_CALLS:
                    assert isinstance(self._verdict, Answer)
                    self._note(*(_error_result(call, told) for call, told in self._verdict.errors))
                    step = self._after_tools()
                case Step.KEEP_PARTIAL:
                    step = self._machine.on(Signal.RETURNED)
                case Step.FINISH:
                    yield from self._release()
                    if self._machine.state is State.COMPLETE and isinstance(self._verdict, Run):
                        yield from self._show_calls()
                    return self._finish()

    def _beginning(self, account: Account) -> Began:
        can = self._abilities
        return Began(
            request=account.base, segments=account.segments, counters=replace(account.counters), usage=account.usage,
            wire=self._wire.NAME, provider=self._provider, dialect=can.dialect, retrieves=can.retrieves,
            follows_tokens=can.follows_tokens,
        )  # fmt: skip

    @property
    def _elapsed_s(self) -> float:
        return self._clock() - self._began_s

    @property
    def _last(self) -> ChatResponse:
        assert self._response is not None
        return self._response

    def _release(self) -> Generator[Delta, Reply, None]:
        """Give the consumer what was held back until its end was known: in one piece, for it is not coming any more."""
        held, self._held = "".join(piece.text for piece in self._held), []
        if held:
            yield Delta(text=held)

    def _call(self) -> Generator[CallProvider | Delta, Reply, Step]:
        counters = self._account.counters
        self._error = None
        if self._strategy is not Strategy.RETRIEVE:
            self._kept = len(self._held)
        if self._is_held:
            part = Part(self._account.stitcher, held=self._held)
        elif self._may_be_trivial:
            part = Part(self._account.stitcher, held=self._held, until=_says_something)
        else:
            yield from self._release()
            part = Part(self._account.stitcher)
        self._part = part
        raised = yield CallProvider(self._account.sent, part)
        self._turn.continuation = None
        self._take(part, raised if isinstance(raised, Exception) else None)
        if not isinstance(raised, Exception):
            return self._machine.on(Signal.RESPONSE)
        stop = raised.stop if isinstance(raised, ProviderError) else None
        if stop is not None and (stop.reason in SAID_BY_ERRORS or stop.resume is Resume.REPAIR):
            self._response, self._error = self._last.but(stop=stop), raised
            return self._machine.on(Signal.RESPONSE)
        if self._is_refused_prefill(raised):
            return self._machine.on(Signal.PREFILL_REFUSED)
        if counters.calls == 1 and not self._last.text:
            raise raised
        self._fail(Signal.FAILED, raised)
        return self._machine.on(Signal.FAILED)

    def _is_refused_prefill(self, raised: Exception) -> bool:
        """Whether the model does not take a prefill after all. That is remembered, and costs no attempt."""
        if self._strategy is not Strategy.PREFILL or self._asked_before is None:
            return False
        if not isinstance(raised, RequestRejected) or raised.status not in (400, 422):
            return False
        account = self._account
        self._abilities.refused.add((self._provider, account.base.model))
        account.sent, self._response = self._asked_before
        account.pending, self._strategy = (), None
        account.counters.attempts -= 1
        account.stitcher.close()
        return True

    def _take(self, part: Part, raised: Exception | None = None) -> None:
        assert part.response is not None
        if self._account.tell is not None:
            self._account.tell(Answered(part.response, raised))
        self._response, self._part = part.response, None
        self._account.counters.calls += 1

    def _go_on_unless(self, outcome: TurnOutcome | None) -> Step:
        if outcome is None:
            return self._machine.on(Signal.UNDER_LIMITS)
        self._outcome = outcome
        self._resumption = None if outcome in _POINTLESS else self._onward()
        return self._machine.on(Signal.LIMIT_REACHED)

    # --- A response -----------------------------------------------------------------------------------------------

    def _evaluate(self) -> Signal:
        response, account, policy = self._last, self._account, self._policy
        repairing = self._strategy is Strategy.REPAIR
        self._verdict = verdict = judge(
            response,
            self._tools,
            runnable=self._runnable,
            dispatch=policy.dispatch,
            suspect_full_budget=policy.suspect_full_budget,
            promote=policy.promote,
        )
        signal = machine.classify(
            response.stop,
            verdict,
            repairing=repairing,
            hand_over=self._runnable is None,
            drop=policy.on_cut_call == "drop",
        )
        usage, counters = account.used(response), account.counters
        if self._strategy in _COUNTED or signal in (Signal.MAX_TOKENS, Signal.GATE_REFUSED):
            counters.ceiling = counters.ceiling or account.base.max_tokens or usage.output_tokens
            counters.tokens += usage.output_tokens or 0
            counters.chars += len(response.text)
        if repairing:
            self._repaired(attempted=True, succeeded=isinstance(verdict, Run))
        if signal is Signal.GATE_REFUSED:
            self._issue = verdict.issue if isinstance(verdict, Repair) else "incomplete_json"
        if response.tool_calls and not isinstance(verdict, Run):
            reason = verdict.reason if verdict is not None else "not_a_tool_call"
            failed = repairing and signal in (Signal.GATE_REFUSED, Signal.REPAIR_REFUSED)
            self._voice.blocked("repair_failed" if failed else reason, response.tool_calls)
        loop = loop_start(response.text) if signal is Signal.MAX_TOKENS else None
        self._progress = Progress(
            visible=bool(account.stitcher.added.strip()),
            reasoned=bool(response.reasoning or (response.usage and response.usage.reasoning_tokens)),
            repetitive=loop is not None,
        )
        signal = self._judged(signal, response)
        if signal is Signal.END_TURN and self._is_offered:
            signal = self._unsignalled(self._answer_text(response))
        if signal is Signal.HAND_OVER and isinstance(verdict, Run):
            self._ending = self._signalled(verdict.calls)
        if self._is_passing(signal):
            account.let_pass(response)
        else:
            account.enter(response, _kept(verdict), text=None if loop is None else response.text[:loop])
        if signal in machine.OUTCOMES:
            self._outcome = machine.OUTCOMES[signal]
        if signal is Signal.MISSING:
            self._resumption = self._onward()
        return signal

    def _is_passing(self, signal: Signal) -> bool:
        """Whether a response leaves no trace in the history if the turn goes on: the whole of it comes again."""
        fetched = signal is Signal.PAUSED and self._last.stop.resume is Resume.RETRIEVE_SAME_ID
        lost = signal is Signal.MISSING and self._strategy is Strategy.RETRIEVE
        return signal in (Signal.WORTHLESS, Signal.TRIVIAL, Signal.CONTEXT_WINDOW_EXCEEDED) or fetched or lost

    def _repaired(self, *, attempted: bool, succeeded: bool) -> None:
        if self._issue is not None:
            self._voice.repaired(self._issue, attempted=attempted, succeeded=succeeded)
        self._issue = None

    def _judged(self, signal: Signal, response: ChatResponse) -> Signal:
        """The signal of a cut or complete answer, where what was asked for changes what it is worth."""
        account = self._account
        if signal is Signal.END_TURN and account.base.format is not None and not _is_json(self._answer_text(response)):
            return Signal.INVALID_JSON
        if signal is not Signal.MAX_TOKENS:
            return signal
        if self._is_held and self._capability.json:
            # Half a JSON text goes on badly, and the whole fits or does not.
            self._otherwise, self._again = TurnOutcome.INVALID_JSON, self._whole_again()
            return Signal.WORTHLESS
        if self._progress.reasoned and not self._progress.visible and not response.text.strip():
            self._otherwise, self._again = TurnOutcome.REASONING_EXHAUSTED, self._less_thinking()
            if self._again is not None:
                return Signal.WORTHLESS
        return signal

    def _answer_text(self, response: ChatResponse) -> str:
        return self._account.stitcher.text or response.text

    def _whole_again(self) -> Request:
        """The same question, with all the output tokens that are left."""
        account = self._account
        left = limits.tokens_left(account.counters, self._policy)
        return account.sent.but(max_tokens=account.base.max_tokens if left is None else left)

    def _less_thinking(self) -> Request | None:
        """The same question, asked so that something is left for an answer; None where the policy does not want it."""
        account = self._account
        match self._policy.on_reasoning_only:
            case "escalate_once":
                asked = 4 * (account.base.max_tokens or account.counters.ceiling or 0) or None
                return account.sent.but(max_tokens=asked)
            case "reasoning_off_once" if self._capability.reasoning_off:
                return account.sent.but(extra={**account.sent.extra, **self._capability.reasoning_off})
            case _:
                return None

    def _make_room(self) -> Generator[MakeRoom, Reply, Signal]:
        """Ask the host to make room in a full window, once a turn."""
        if self._policy.on_context_exceeded == "abort" or self._account.counters.again:
            return Signal.CONTEXT_WINDOW_EXCEEDED
        made = yield MakeRoom(self._account.sent, self._last)
        if not isinstance(made, Request):
            return Signal.CONTEXT_WINDOW_EXCEEDED
        self._otherwise, self._again = TurnOutcome.CONTEXT_WINDOW_EXCEEDED, made
        return Signal.WORTHLESS

    # --- Asking for the rest --------------------------------------------------------------------------------------

    def _ask_for_rest(self) -> None:
        account = self._account
        self._asked_before = account.sent, self._last
        account.sent, strategy, nudge = self._rest(self._last)
        account.pending += nudge
        self._announce(strategy)
        stitcher = account.stitcher
        if strategy is Strategy.RETRIEVE:
            stitcher.again(self._last.text)
        elif strategy not in RESUMES:
            stitcher.seam(prefilled=strategy is Strategy.PREFILL)

    def _ask_again(self) -> None:
        """Ask the same once more; nothing of what came is used, unless it was shown."""
        account, asked = self._account, self._again
        assert asked is not None
        if self._held or not account.stitcher.added:
            account.forget()
            del self._held[self._kept :]
            if asked.messages is not account.sent.messages:  # the host's: no nudge of ours is in it
                account.pending = ()
        else:
            account.enter(self._last)
            account.stitcher.seam(prefilled=True)
        maximum = limits.clamp(asked.max_tokens, account.counters, self._policy, account.base.model)
        account.sent, self._again = asked.but(max_tokens=maximum, retrieve=None), None
        self._announce(Strategy.RETRY)

    def _can(self, resume: Resume) -> bool:
        """Whether the provider function can take a pause up, and has something new to take it up with."""
        last = self._last
        match resume:
            case Resume.NATIVE_TOKEN:
                new = last.token is not None and last.token != self._account.sent.token
                return new and not self._abilities.follows_tokens
            case Resume.RETRIEVE_SAME_ID:
                return self._abilities.retrieves and last.id is not None
            case _:
                return True

    def _rest(self, cut: ChatResponse) -> tuple[Request, Strategy, tuple[Message, ...]]:
        """The request for what follows `cut`, how it asks, and those of its messages that are to be recorded."""
        account, dialect = self._account, self._abilities.dialect
        sent = account.sent.but(token=None, retrieve=None)  # they took something else up
        if cut.stop.reason is StopReason.PAUSED:
            strategy = RESUMING.get(cut.stop.resume, Strategy.RESEND)
            if strategy is Strategy.RETRIEVE:
                return sent.but(retrieve=cut.id), strategy, ()
            return self._wire.resume(sent, cut, prompt="", strategy=strategy, dialect=dialect), strategy, ()
        cut = cut.with_stop(resume=Resume.PROMPT)  # whatever its row says: what follows is asked for
        strategy = Strategy.PREFILL if self._prefills(cut) else Strategy.PROMPT
        if self._issue is not None:
            strategy = Strategy.REPAIR
        asks = Strategy.PREFILL if strategy is Strategy.PREFILL else Strategy.PROMPT
        request = self._wire.resume(sent, cut, prompt=self._policy.prompt, strategy=asks, dialect=dialect)
        if strategy is Strategy.REPAIR:  # a forced choice of tool stands: a call is what is asked for
            request = request.but(tool_choice=account.base.tool_choice, extra=account.base.extra)
        nudge = tuple(message for message in request.messages[len(sent.messages) :] if message.synthetic)
        maximum = limits.clamp(account.base.max_tokens, account.counters, self._policy, account.base.model)
        return request.but(max_tokens=maximum), strategy, nudge

    def _prefills(self, cut: ChatResponse) -> bool:
        """Whether the rest is asked for by a prefill: the model takes one, does not think, and has said something."""
        base = self._account.base
        known = self._capability.prefill and (self._provider, base.model) not in self._abilities.refused
        thinks = thinking_budget(base) > 0 or cut.reasoning is not None
        return known and not thinks and bool(cut.text.strip()) and not cut.tool_calls

    def _announce(self, strategy: Strategy) -> None:
        """Count a call that is made only because of what the last response was, and say so."""
        self._strategy, policy, counters = strategy, self._policy, self._account.counters
        match strategy:
            case Strategy.RESEND | Strategy.NATIVE_TOKEN | Strategy.RETRIEVE:
                counters.resumes += 1
                left = policy.continuation_max_resumes - counters.resumes
            case Strategy.REPAIR:
                counters.repairs += 1
                left = policy.continuation_tool_repair_attempts - counters.repairs
            case Strategy.RETRY:
                counters.again += 1
                left = 0
            case _:
                counters.attempts += 1
                left = policy.continuation_max_attempts - counters.attempts
        self._voice.asks(
            strategy,
            output_tokens=self._account.usage.output_tokens or 0,
            output_chars=self._account.chars,
            attempts_remaining=left,
            tokens_remaining=limits.tokens_left(counters, policy),
            chars_remaining=policy.continuation_max_output_chars - counters.chars,
        )

    # --- Tools ----------------------------------------------------------------------------------------------------

    def _show_calls(self) -> Generator[Delta, Reply, None]:
        """Show the consumer the calls, now that they have passed the gate."""
        assert isinstance(self._verdict, Run)
        self._calls = self._verdict.calls
        for index, call in enumerate(self._calls):
            raw = call.arguments_raw or json.dumps(call.arguments, ensure_ascii=False)
            yield Delta(call=CallFragment(index, call.id, call.name, raw))

    def _run_tools(self) -> Generator[RunTool, Reply, None]:
        for call in self._calls:
            if self._account.ledger.claim(self._number, call):
                ran = yield RunTool(call)
                assert isinstance(ran, ToolRan)
            else:
                ran = ToolRan("this call was run before; it is not run again", is_error=True)
            self._note(Message(role="tool", content=ran.content, tool_call_id=call.id, is_error=ran.is_error))

    def _note(self, *answers: Message) -> None:
        """Keep what calls were answered with until all are; it is written down at once."""
        self._answers += answers
        if self._account.tell is not None:
            for answer in answers:
                self._account.tell(Entered(answer))

    def _after_tools(self) -> Step:
        failed = {answer.tool_call_id for answer in self._answers if answer.is_error}
        self._ending = self._signalled(call for call in self._calls if call.id not in failed)
        signal = Signal.FINISHED
        if self._ending is None and self._watchman is not None:
            signal, self._ending = Signal.IMPLICIT, self._watched(self._watchman)
        self._answer(last=self._ending is not None)
        if self._ending is not None:
            self._outcome = machine.OUTCOMES[signal]
            return self._machine.on(signal)
        outcome = limits.before_iteration(self._account.counters, self._policy, elapsed_s=self._elapsed_s)
        if outcome is None:
            return self._machine.on(Signal.RESULTS_APPENDED)
        self._outcome = outcome
        self._resumption = self._account.resumption(self._account.sent, None)
        return self._machine.on(Signal.LIMIT_REACHED)

    def _answer(self, *, last: bool = False) -> None:
        self._account.answer(self._answers, last=last)
        if self._policy.continuation_attempts_per == "answer":
            self._account.counters.attempts = 0
        self._answers, self._calls, self._verdict, self._strategy = [], (), None, None

    # --- Ending on purpose ----------------------------------------------------------------------------------------

    def _signalled(self, calls: Iterable[ToolCall]) -> Finish | None:
        """What the first of these calls says that ends the turn."""
        said = (termination.signal_of(call, self._policy.mode) for call in calls)
        return next((finish for finish in said if finish is not None), None)

    def _watched(self, watchman: Watchman) -> Finish | None:
        """Whether a response whose calls were run, or answered, goes nowhere."""
        asked = {call.id: call for call in self._last.tool_calls}
        return watchman.see(
            self._account.stitcher.text,
            calls=[f"{call.name} {call.arguments_raw or call.arguments}" for call in asked.values()],
            results=[(asked[answer.tool_call_id or ""].name, answer.text) for answer in self._answers],
        )

    @property
    def _may_be_trivial(self) -> bool:
        """Whether an answer that says nothing is asked for again: it is text, and all of it comes from one call."""
        alone = self._strategy in (None, Strategy.RETRY) and self._account.base.format is None
        return self._watchman is not None and alone

    def _unsignalled(self, text: str) -> Signal:
        """What an answer without calls signals, where the model was offered a tool to end the turn with."""
        if self._watchman is None:
            return Signal.END_TURN if text.strip() else Signal.EMPTY
        finish = self._watchman.see(text)
        if finish is None:
            if self._may_be_trivial:
                return Signal.TRIVIAL
            finish = Finish(termination.IMPLICIT if text.strip() else termination.EMPTY, "no_action")
        if finish.signal == termination.EMPTY:
            return Signal.EMPTY
        self._ending = finish
        return Signal.IMPLICIT

    def _iterate(self) -> Step:
        """Ask the same once more, as an ordinary call; at a limit the answer that there is, is kept."""
        account = self._account
        outcome = limits.before_iteration(account.counters, self._policy, elapsed_s=self._elapsed_s)
        if outcome is not None:
            account.enter(self._last)
            self._outcome = outcome
            return self._machine.on(Signal.LIMIT_REACHED)
        account.forget()
        self._held.clear()
        self._strategy = None
        return self._machine.on(Signal.UNDER_LIMITS)

    # --- The end --------------------------------------------------------------------------------------------------

    def interrupt(self, error: BaseException | None) -> TurnResult:
        """The driver was stopped, or could not go on: the turn is over, wherever it stands. Returns what there is."""
        part = self._part
        if part is not None:
            part.close(None)
            self._take(part)
            if (
                self._last.stop.reason is not StopReason.MISSING
            ):  # the answer had arrived; the consumer did not wait for its last piece
                self._account.enter(self._last)
            else:
                self._fail(Signal.INTERRUPTED, None)
        elif self._machine.state is State.EXECUTE_TOOLS and self._calls:
            done = {answer.tool_call_id for answer in self._answers}
            told = "the turn was stopped before this call was done"
            self._note(*(_error_result(call, told) for call in self._calls if call.id not in done))
            self._answer()
            self._resumption = self._account.resumption(self._account.sent, None)
        elif self._machine.state is State.RESUME_UNCHANGED:  # it was waiting to fetch a response
            self._resumption = self._account.resumption(self._account.sent, self._strategy, self._account.pending)
        if (self._machine.state, Signal.INTERRUPTED) in machine.TRANSITIONS:
            self._machine.on(Signal.INTERRUPTED)
        self._outcome = TurnOutcome.CANCELLED
        if isinstance(error, Exception):
            self._outcome, self._error = TurnOutcome.PROVIDER_ERROR, error
        self._turn.continuation = None
        return self._finish(error)

    def _fail(self, signal: Signal, error: BaseException | None) -> None:
        """Keep what is worth keeping of a call that did not end, and how the turn could go on."""
        account, partial = self._account, self._last
        self._outcome, self._error = machine.OUTCOMES[signal], error
        if isinstance(error, ProviderError) and error.retryable:
            self._give_back()
        if self._strategy is Strategy.RETRIEVE:  # the whole of it can be fetched once more
            account.let_pass(partial)
            self._resumption = account.resumption(account.sent, self._strategy, account.pending)
        elif partial.text.strip():
            account.enter(partial)
            self._resumption = self._onward()
        else:  # nothing came of it: its nudge goes, and the same request can be sent again
            self._resumption = account.resumption(account.sent, self._strategy, account.pending)
        account.pending = ()
        if self._strategy is Strategy.REPAIR:
            self._repaired(attempted=True, succeeded=False)

    def _give_back(self) -> None:
        """A call that the provider could not answer for the time being spends no attempt."""
        counters = self._account.counters
        match self._strategy:
            case None:
                counters.iterations -= 1
            case Strategy.RESEND | Strategy.NATIVE_TOKEN | Strategy.RETRIEVE:
                counters.resumes -= 1
            case Strategy.REPAIR:
                counters.repairs -= 1
            case Strategy.RETRY:
                counters.again -= 1
            case _:
                counters.attempts -= 1

    def _onward(self) -> Resumption | None:
        """How the turn could go on after its last response, which was cut, paused or lost."""
        account, response = self._account, self._last
        is_nothing = not response.text.strip() and self._issue is None
        if response.stop.reason is StopReason.MISSING and (is_nothing or self._strategy is Strategy.RETRIEVE):
            return account.resumption(account.sent, self._strategy, account.pending)
        if response.stop.reason is StopReason.PAUSED and response.stop.resume not in RESUMING:
            return None
        request, strategy, nudge = self._rest(response)
        return account.resumption(request, strategy, (*account.pending, *nudge))

    def _finish(self, error: BaseException | None = None) -> TurnResult:
        if self._outcome not in COMPLETE:
            self._ending = None
        elif self._ending is not None:
            self._voice.finished(
                self._ending,
                iteration=self._account.counters.calls,
                max_iterations=self._policy.max_iterations,
                requires_review=self._policy.mode == "task",
            )
        end_turn(self._turn, self._outcome, error=error or self._error)
        if self._account.tell is not None:
            self._account.tell(Ended(self._outcome))
        return self._account.result(
            self._outcome,
            finish=self._ending,
            stop=None if self._response is None else self._response.stop,
            calls=self._calls if self._outcome is TurnOutcome.COMPLETED else (),
            continuations=self._turn.continuations,
            error=self._error,
            duration_s=self._elapsed_s,
            resumption=self._resumption,
        )


LONGEST_WAIT_S: Final = 60.0
"""Between two looks at a response that is still being made. The first comes after a second; each wait doubles."""


def _says_something(text: str) -> bool:
    return not termination.is_trivial(text)


def _is_json(text: str) -> bool:
    """Whether an answer is the JSON that was asked for; a code fence around it is not."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def thinking_budget(request: Request) -> int:
    """Tokens that the request sets aside for thinking: Anthropic's `thinking`, OpenRouter's `reasoning`. 0 for none."""
    for member, figure in (("thinking", "budget_tokens"), ("reasoning", "max_tokens")):
        asked = request.extra.get(member)
        if isinstance(asked, dict) and isinstance(asked.get(figure), int):
            return int(asked[figure])
    return 0


def _kept(verdict: Verdict | None) -> tuple[ToolCall, ...]:
    """The calls of a response that its record may hold: those that are run, and those that are answered."""
    match verdict:
        case Run():
            return verdict.calls
        case Answer():
            return tuple(call for call, _ in verdict.errors)
        case _:
            return ()


def _error_result(call: ToolCall, told: str) -> Message:
    return Message(role="tool", content=told, tool_call_id=call.id, is_error=True)
