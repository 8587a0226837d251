"""What is announced: frozen records of calls, turns, continuations and tools, and the turn that they belong to."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from endturn.stop import Stop, StopReason

if TYPE_CHECKING:
    from endturn.chat import ChatResponse, Request, Usage


MOST: Final = 2**31 - 1
"""The most of anything (tokens, answers) that is believed of one call. No model comes near it, formats with a schema
count in 32 bits, and what 64 bits must hold, the sum over a process's calls, has room for four thousand million such.
A larger figure is a server's mistake; exported, it would cost the host a whole batch, its own metrics among them."""

_TOKENS: Final = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")

_BOUNDS: Final = {
    **dict.fromkeys(("maximum", "top_k", *_TOKENS), (0, MOST)),
    **dict.fromkeys(("temperature", "top_p"), (-MOST, MOST)),
    "choices": (1, MOST),
    "seed": (-(2**63), 2**63 - 1),
    "server_port": (0, 65_535),
}
"""What the numbers that are told of a call may be."""

MOST_SEQUENCES: Final = 16
"""Stop sequences that are told of; most providers allow four or five."""

LONGEST_NAME: Final = 256
"""Characters of a name. Every export of the process repeats those that metrics have."""


class TurnOutcome(StrEnum):
    """How a turn ended. A closed set: it is a metric attribute."""

    COMPLETED = "completed"
    RETRY_LIMIT = "retry_limit"
    TOKEN_BUDGET = "token_budget"  # noqa: S105 - tokens of a model, not a secret
    CHAR_BUDGET = "char_budget"
    COST_BUDGET = "cost_budget"
    DEADLINE = "deadline"
    RESUME_LIMIT = "resume_limit"
    NO_PROGRESS = "no_progress"
    REPETITION = "repetition"
    REASONING_EXHAUSTED = "reasoning_exhausted"
    INVALID_JSON = "invalid_json"
    CONTEXT_WINDOW_EXCEEDED = "context_window_exceeded"
    SAFETY_BLOCKED = "safety_blocked"
    REFUSED = "refused"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    PROVIDER_ERROR = "provider_error"
    STREAM_CUT = "stream_cut"
    UNKNOWN_REASON = "unknown_reason"
    EMPTY_RESPONSE = "empty_response"
    LEFT_PAUSED = "left_paused"
    TOOL_REPAIR_FAILED = "tool_repair_failed"
    TOOL_CALL_CUT = "tool_call_cut"
    MAX_ITERATIONS = "max_iterations"
    IMPLICIT_COMPLETION = "implicit_completion"
    NOT_CONTINUED = "not_continued"

    @property
    def group(self) -> str:
        """The source design's four words: the four budgets read as `budget_exhausted`."""
        return "budget_exhausted" if self in BUDGETS else self.value


BUDGETS: Final = frozenset(
    {TurnOutcome.TOKEN_BUDGET, TurnOutcome.CHAR_BUDGET, TurnOutcome.COST_BUDGET, TurnOutcome.DEADLINE}
)
COMPLETE: Final = frozenset({TurnOutcome.COMPLETED, TurnOutcome.IMPLICIT_COMPLETION})
WHOLE: Final = frozenset({StopReason.END_TURN, StopReason.TOOL_CALL})
"""Why a response stops that is all that the model had to say."""
STOPPED_BY_PERSON: Final = frozenset({TurnOutcome.CANCELLED, TurnOutcome.STOPPED})


class Strategy(StrEnum):
    """How a continuation asks for the rest."""

    NATIVE_TOKEN = "native_token"  # noqa: S105 - a way of continuing, not a secret
    RESEND = "resend"
    RETRIEVE = "retrieve"
    """A response that was still being made, fetched by its id."""
    PREFILL = "prefill"
    PROMPT = "prompt"
    RETRY = "retry"
    """The same question asked again: after a failed stream, after an answer of which nothing can be used."""
    REPAIR = "repair"
    """A cut tool payload asked for again."""


ANEW: Final = frozenset({Strategy.RETRIEVE, Strategy.RETRY, Strategy.REPAIR})
"""What comes so takes the place of what it continues; `resend` does after a cut, but after a pause the rest comes."""


class TurnKind(StrEnum):
    """Who says where the turn begins and ends."""

    CONTROLLER = "controller"
    OBSERVED = "observed"
    IMPLICIT = "implicit"


_SUMMED: Final = (
    *("iterations", "continuations", "repairs", "resumes"),
    *("input_tokens", "output_tokens", "output_chars"),
)
"""What of a turn's tally is the sum over its parts."""

CUT_ANSWERS: Final = 256
"""How many cut answers of one turn are remembered at most: an agent's span may stay open for ever."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Marks a call as made only because an earlier response was cut off.

    Attributes:
        index: 1 for the turn's first continuation.
        strategy: how it asks.
        of: the number of the call that it continues, None where that is not known.
    """

    index: int
    strategy: Strategy
    of: int | None = None


def new_id() -> str:
    """16 random hex digits."""
    return f"{random.getrandbits(64):016x}"


@dataclass(slots=True, eq=False)
class Turn:
    """One turn in progress: from the user's input to the answer handed back. Tallies the calls that are made in it.

    Attributes:
        continuation: what the next call is, when it is a continuation; taken by that call.
        provider, model: of the turn's first truncated response, else of its first call.
        truncated: any response was truncated.
        cut: the numbers of truncated calls that stand without a later whole response to the same message.
        continuations: calls that asked for the rest of a cut answer, or for the whole of it again; repairs: those that
            asked for cut tool calls again; resumes: those that took up what the provider had paused.
        estimated: some of the token figures are estimates, because a provider gave none.
        open_streams: responses that are still being read.
        answer_tokens: generated tokens of the turn's longest answer: a response, and what was continued of it.
        parts: of answers that may be continued, by the number of the call that would be: tokens before that call, and
            with it. None while all answers were whole.
        ending: how an observed turn ends once they have been: its function returned one of them.
        within: of a controller's turn, the observed turn that it is a part of.
        inner: the outcome of the last such part, unless a whole answer came after it.
        around: the explicit turn in which this one began.
        last_call, last_usage: the number of its latest call, and what that used as far as its provider said.
        started_s, last_s: when it began and when its last call ended, by `time.perf_counter`; started_ns: wall clock.
        outcome: set once, when the turn ends.
    """

    kind: TurnKind = TurnKind.CONTROLLER
    id: str = field(default_factory=new_id)
    agent: str | None = None
    conversation: str | None = None
    inferred: bool = False
    started_s: float = field(default_factory=time.perf_counter)
    started_ns: int = field(default_factory=time.time_ns)
    iterations: int = 0
    continuations: int = 0
    repairs: int = 0
    resumes: int = 0
    continuation: Continuation | None = None
    provider: str = ""
    model: str = ""
    truncated: bool = False
    cut: set[int] = field(default_factory=set)
    open_streams: int = 0
    ending: tuple[TurnOutcome, BaseException | None] | None = None
    within: Turn | None = None
    inner: TurnOutcome | None = None
    around: Turn | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    answer_tokens: int = 0
    parts: dict[int, tuple[int, int]] | None = None
    output_chars: int = 0
    last_call: int | None = None
    last_usage: Usage | None = None
    last_s: float | None = None
    outcome: TurnOutcome | None = None

    def count(self, ended: CallEnded) -> None:
        """Add one call's result to the tally."""
        started, stop, usage = ended.started, ended.stop, ended.usage
        self.last_s = started.started_s + ended.duration_s
        self.last_call, self.last_usage = started.number, usage
        if not self.provider or (stop.truncated and not self.truncated):
            self.provider, self.model = started.provider, started.model
        if usage is not None:
            self.input_tokens += usage.input_tokens or 0
            self.output_tokens += usage.output_tokens or 0
        self._answer(ended)
        self.output_chars += ended.output_chars
        if ended.whole:
            self.inner = None
        if stop.truncated:
            self.truncated = True
            self.cut.add(started.number)
        if self.cut and (stop.truncated or ended.whole):
            if started.continuation is not None:
                self.cut.discard(started.continuation.of or 0)
            if ended.whole and self.kind is not TurnKind.OBSERVED:
                self.cut.clear()  # its calls are one after the other, to one message

    def _answer(self, ended: CallEnded) -> None:
        """Measure the answer that the call is a part of: a limit on tokens is one for each call."""
        again, tokens = ended.started.continuation, (ended.usage and ended.usage.output_tokens) or 0
        before = 0
        if again is not None:
            earlier, so_far = (self.parts or {}).get(again.of or 0, (0, 0))
            anew = again.strategy in ANEW or (again.strategy is Strategy.RESEND and again.of in self.cut)
            before = earlier if anew else so_far
        self.answer_tokens = max(self.answer_tokens, before + tokens)
        if not ended.whole:
            self.parts = self.parts or {}
            if again is not None and again.of in self.parts and ended.error is not None:
                self.parts[again.of] = before, self.parts[again.of][1]  # what a retry of this call goes on from
            self.parts[ended.started.number] = before, before + tokens
            if len(self.parts) > CUT_ANSWERS:
                del self.parts[next(iter(self.parts))]

    def still_open(self) -> Turn | None:
        """This turn if it is not over, else the nearest around it that is not."""
        turn: Turn | None = self
        while turn is not None and turn.outcome is not None:
            turn = turn.around
        return turn

    def join(self, outer: Turn) -> None:
        """Become a part of an observed turn, which is not over before this one is."""
        self.within, self.id = outer, outer.id
        self.agent, self.conversation = outer.agent or self.agent, outer.conversation or self.conversation
        outer.open_streams += 1

    def so_far(self) -> Turn:
        """The tally of this turn and of the one that it is a part of."""
        if self.within is None:
            return self
        both = replace(self.within, cut=set(self.within.cut))
        self.leave(both)
        return both

    def leave(self, outer: Turn) -> None:
        """Add the tally to the turn that this one, which has ended, was a part of."""
        if not outer.provider or (self.truncated and not outer.truncated):
            outer.provider, outer.model = self.provider, self.model
        outer.agent, outer.conversation = outer.agent or self.agent, outer.conversation or self.conversation
        for name in _SUMMED:
            setattr(outer, name, getattr(outer, name) + getattr(self, name))
        outer.truncated |= self.truncated
        outer.estimated |= self.estimated
        outer.cut |= self.cut
        outer.answer_tokens = max(outer.answer_tokens, self.answer_tokens)
        outer.last_call, outer.last_s = self.last_call or outer.last_call, self.last_s or outer.last_s
        outer.inner = self.outcome
        outer.open_streams -= 1

    @property
    def continued(self) -> bool:
        """Whether the rest of a cut answer, or a cut tool call, was asked for."""
        return self.continuations + self.repairs > 0

    @property
    def unfinished(self) -> bool:
        """Whether a truncated response stands without a later whole response to the same message."""
        return bool(self.cut)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStarted:
    """A call to a provider begins.

    Attributes:
        number: tells this call from every other of the process.
        provider: as in `gen_ai.provider.name`; model: as requested.
        operation: "chat", "generate_content" or "text_completion".
        maximum: the output limit that was asked for.
        iteration: 1 for the turn's first call.
        reasoning_level: how much the model is to think, in the provider's word.
        previous_id: the response that the request builds on.
        output_type: "text", "json", "image" or "speech".
        adopt: the span that another instrumentation makes of this call (telemetry's `AdoptedSpan`): it is enriched, and
            none is made.
    """

    number: int
    provider: str
    model: str
    turn: Turn
    iteration: int
    operation: str = "chat"
    stream: bool = False
    maximum: int | None = None
    choices: int = 1
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop_sequences: tuple[str, ...] = ()
    reasoning_level: str | None = None
    previous_id: str | None = None
    output_type: str | None = None
    server_address: str | None = None
    server_port: int | None = None
    continuation: Continuation | None = None
    adopt: object = None
    started_ns: int
    started_s: float


def _is_plausible(name: str, figure: Any) -> bool:
    least, most = _BOUNDS[name]
    return figure is None or (
        isinstance(figure, int | float) and figure.__class__ is not bool and least <= figure <= most
    )


def drop_implausible(facts: dict[str, Any]) -> None:
    """Take out of the facts of a call what cannot be: a host, or a server, may say anything."""
    for name in facts.keys() & _BOUNDS.keys():
        if not _is_plausible(name, facts[name]):
            del facts[name]
    for name in ("provider", "model"):
        facts[name] = name_shown(facts.get(name) or "")
    for name in ("reasoning_level", "previous_id"):
        if facts.get(name):
            facts[name] = name_shown(facts[name])
    if sequences := facts.get("stop_sequences"):
        facts["stop_sequences"] = sequences[:MOST_SEQUENCES]  # cut where they are recorded: a redaction needs all


def name_shown(name: str) -> str:
    """A name that somebody chose, such as a model's or an id: of its usual length, in characters that can be sent."""
    if len(name) <= LONGEST_NAME and name.isascii():
        return name
    return name[:LONGEST_NAME].encode("utf-8", "replace").decode()


def plausible(usage: Usage | None) -> Usage | None:
    """A usage in which figures that cannot be are unknown: that very one where there are none."""
    wild: dict[str, Any] = {name: None for name in _TOKENS if not _is_plausible(name, getattr(usage, name, None))}
    return replace(usage, **wild) if usage is not None and wild else usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What was said in a call. Gathered only where a listener takes it.

    Attributes:
        request: what was asked; None where it could not be read.
        beside: its leading system message travelled beside the conversation, not in it.
        responses: what was answered, an item for each choice; none where nothing came.
    """

    request: Request | None = None
    beside: bool = False
    responses: tuple[ChatResponse, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CallWithdrawn:
    """What began as a call was none: a redirect that was handed out, an answer of somebody else's API."""

    started: CallStarted


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEnded:
    """A call to a provider ended: with a response, whole or cut, or with an error.

    Attributes:
        stop: of choice 0. With `error` set, its reason says what the error means (`error` when nothing more is known).
        reasons: the raw reason of every choice, in order.
        error: what was raised; None for a response, however it stopped.
        duration_s: from the request to the end of the response; first_chunk_s: to a stream's first chunk.
        chunk_gaps_s: from one chunk to the next; of a long stream an even part of them.
        content: what was said; None unless a listener takes it.
    """

    started: CallStarted
    stop: Stop
    usage: Usage | None = None
    response_id: str | None = None
    response_model: str | None = None
    reasons: tuple[str | None, ...] = ()
    output_chars: int = 0
    error: BaseException | None = None
    duration_s: float
    first_chunk_s: float | None = None
    chunk_gaps_s: tuple[float, ...] = ()
    content: Content | None = None

    @property
    def whole(self) -> bool:
        """Whether the response is all that the model had to say."""
        return self.stop.reason in WHOLE


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """An explicit turn begins. An implicit turn is announced only when it ends."""

    turn: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEnded:
    """A turn ended. `turn` holds its tally and outcome.

    Attributes:
        complete: the answer is whole: the outcome is one of COMPLETE, and nothing truncated stands unfinished.
        error: what the turn raised, if it did.
    """

    turn: Turn
    outcome: TurnOutcome
    complete: bool
    duration_s: float
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuationAttempted:
    """A continuation is about to be requested. The remaining figures are None where the turn has no such limit."""

    turn: Turn
    provider: str
    model: str
    continuation: Continuation
    output_tokens: int
    output_chars: int
    attempts_remaining: int | None = None
    tokens_remaining: int | None = None
    chars_remaining: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadRepaired:
    """Cut or unverified tool calls.

    Attributes:
        calls: how many the response held.
        attempted: they were asked for again; succeeded: what came passed the gate.
    """

    turn: Turn
    provider: str
    model: str
    issue: str
    calls: int
    attempted: bool
    succeeded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageEstimated:
    """Tokens of a call whose provider did not count them. They are in the turn's tally already.

    Attributes:
        usage: the estimated figures alone; what the provider did say is None here.
        continues: the call was made only because an earlier response was cut off.
    """

    turn: Turn
    provider: str
    model: str
    usage: Usage
    continues: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchBlocked:
    """Tool calls were not run. `names` are recorded only where the host opted in."""

    turn: Turn
    provider: str
    model: str
    reason: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool call is about to be run. `number` tells it from every other of the process."""

    number: int
    turn: Turn
    name: str
    call_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded:
    """A tool call has run."""

    started: ToolStarted
    error: BaseException | None
    duration_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminationSignalled:
    """The model called a terminator tool, or was found to have finished without one."""

    turn: Turn
    signal: str
    status: str
    iteration: int
    max_iterations: int
    requires_review: bool


Record = (
    CallStarted
    | CallEnded
    | CallWithdrawn
    | TurnStarted
    | TurnEnded
    | ContinuationAttempted
    | PayloadRepaired
    | UsageEstimated
    | DispatchBlocked
    | ToolStarted
    | ToolEnded
    | TerminationSignalled
)
