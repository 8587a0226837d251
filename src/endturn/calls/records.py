"""The records that listeners receive: a named tuple for each kind of event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from endturn.calls.outcomes import FINISHED_REASONS
from endturn.vocabulary import Stop

if TYPE_CHECKING:
    from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
    from endturn.calls.outcomes import Continuation, TurnOutcome
    from endturn.calls.turn import Turn
    from endturn.vocabulary import ChatResponse, Request, Usage


@dataclass(slots=True)
class ResponseIdentity:
    """The id and model of a response, known from the first events of a stream.

    Attributes:
        id: the response's id; model: the model's name in the response, which may be more precise
            than the request's.
    """

    id: str | None = None
    model: str | None = None


class CallStarted(NamedTuple):
    """A call to a provider begins.

    Attributes:
        number: the call's id, unique in the process.
        request: the settings of the request; endpoint: the provider and the operation.
        iteration: 1 for the turn's first call.
        adopt: another instrumentation's span of this call (telemetry's `AdoptedSpan`): it gets the
            attributes, and no other span is created.
        identity: the response's id and model; empty until the response has arrived.
    """

    number: int
    request: RequestFacts
    endpoint: EndpointFacts
    turn: Turn
    iteration: int
    started_ns: int
    started_s: float
    identity: ResponseIdentity
    continuation: Continuation | None = None
    adopt: object = None

    # Removed in 0.2: for listeners that were written before `request` and `endpoint`.

    @property
    def provider(self) -> str:
        """`endpoint.provider`."""
        return self.endpoint.provider

    @property
    def model(self) -> str:
        """`request.model`."""
        return self.request.model

    @property
    def operation(self) -> str:
        """`endpoint.operation`."""
        return self.endpoint.operation

    @property
    def stream(self) -> bool:
        """`request.stream`."""
        return self.request.stream

    @property
    def maximum(self) -> int | None:
        """`request.max_tokens`."""
        return self.request.max_tokens

    @property
    def choices(self) -> int:
        """`request.choice_count`."""
        return self.request.choice_count

    @property
    def temperature(self) -> float | None:
        """`request.temperature`."""
        return self.request.temperature

    @property
    def top_p(self) -> float | None:
        """`request.top_p`."""
        return self.request.top_p

    @property
    def top_k(self) -> int | None:
        """`request.top_k`."""
        return self.request.top_k

    @property
    def seed(self) -> int | None:
        """`request.seed`."""
        return self.request.seed

    @property
    def stop_sequences(self) -> tuple[str, ...]:
        """`request.stop_sequences`."""
        return self.request.stop_sequences

    @property
    def reasoning_level(self) -> str | None:
        """`request.reasoning_level`."""
        return self.request.reasoning_level

    @property
    def previous_id(self) -> str | None:
        """`request.previous_response_id`."""
        return self.request.previous_response_id

    @property
    def output_type(self) -> str | None:
        """`request.output_type`."""
        return self.request.output_type

    @property
    def server_address(self) -> str | None:
        """`endpoint.server_address`."""
        return self.endpoint.server_address

    @property
    def server_port(self) -> int | None:
        """`endpoint.server_port`."""
        return self.endpoint.server_port


class Content(NamedTuple):
    """The captured content of a call; collected only if a listener takes it.

    Attributes:
        request: the request; None if it could not be read.
        is_system_separate: the leading system message was sent in its own field, not among the
            messages.
        responses: a response for each choice; empty if none arrived.
        is_cut: the responses hold only the beginning: the content was too long to keep.
    """

    request: Request | None = None
    is_system_separate: bool = False
    responses: tuple[ChatResponse, ...] = ()
    is_cut: bool = False

    # Removed in 0.2: the name of 0.1.

    @property
    def beside(self) -> bool:
        """`is_system_separate`."""
        return self.is_system_separate


class CallWithdrawn(NamedTuple):
    """A started call was cancelled: it got a redirect, or a response of another API."""

    started: CallStarted


class CallEnded(NamedTuple):
    """A call to a provider ended: with a response, finished or truncated, or with an error.

    Attributes:
        response: the facts of the response. With `error` set, the reason of its `stop` classifies
            the error (`error` if it cannot be classified).
        error: the exception; None for a response, however it stopped.
        duration_s: from the request to the end of the response; NaN for a past call of which a
            file does not have both times. first_chunk_s: to a stream's first chunk.
        chunk_gaps_s: from one chunk to the next; of a long stream an even sample of them.
        content: the captured content; None unless a listener takes it.
    """

    started: CallStarted
    response: ResponseFacts
    duration_s: float
    error: BaseException | None = None
    first_chunk_s: float | None = None
    chunk_gaps_s: tuple[float, ...] = ()
    content: Content | None = None

    @property
    def stop(self) -> Stop:
        """The stop of choice 0."""
        return self.response.stop

    @property
    def is_finished(self) -> bool:
        """True if the model finished on its own."""
        return self.response.stop.reason in FINISHED_REASONS

    # Removed in 0.2: for listeners that were written before `response` and `is_finished`.

    @property
    def whole(self) -> bool:
        """`is_finished`."""
        return self.is_finished

    @property
    def usage(self) -> Usage | None:
        """`response.usage`."""
        return self.response.usage

    @property
    def response_id(self) -> str | None:
        """`response.id`."""
        return self.response.id

    @property
    def response_model(self) -> str | None:
        """`response.model`."""
        return self.response.model

    @property
    def reasons(self) -> tuple[str | None, ...]:
        """`response.reasons`."""
        return self.response.reasons

    @property
    def truncated_choices(self) -> int:
        """`response.truncated_choices`."""
        return self.response.truncated_choices

    @property
    def output_chars(self) -> int:
        """`response.output_chars`."""
        return self.response.output_chars


class TurnStarted(NamedTuple):
    """An explicit turn begins. An implicit turn is announced only when it ends."""

    turn: Turn


class TurnJoined(NamedTuple):
    """A controller's turn begins as a part of an observed turn, which alone is announced."""

    turn: Turn


class TurnEnded(NamedTuple):
    """A turn ended. `turn` has its totals and outcome.

    Attributes:
        complete: the answer is complete: the outcome is one of COMPLETE, and no truncated response
            is unfinished.
        error: the exception that the turn raised; None also if it waited for another attempt,
            which keeps no exception.
        duration_s: NaN for a past turn of which a file does not have the times.
        tools_unanswered: the last response requested tool calls, and no call sent their results.
    """

    turn: Turn
    outcome: TurnOutcome
    complete: bool
    duration_s: float
    error: BaseException | None = None
    tools_unanswered: bool = False


class ContinuationAttempted(NamedTuple):
    """A continuation is about to be requested.

    The remaining figures are None if the turn has no such limit.
    """

    turn: Turn
    provider: str
    model: str
    continuation: Continuation
    output_tokens: int
    output_chars: int
    attempts_remaining: int | None = None
    tokens_remaining: int | None = None
    chars_remaining: int | None = None


class PayloadRepaired(NamedTuple):
    """Truncated or unverified tool calls.

    Attributes:
        calls: the number of tool calls in the response.
        attempted: they were requested again; succeeded: the new ones passed the gate.
    """

    turn: Turn
    provider: str
    model: str
    issue: str
    calls: int
    attempted: bool
    succeeded: bool


class UsageEstimated(NamedTuple):
    """Token counts that the record of a call lacks. The turn's totals include them already.

    Attributes:
        usage: these counts alone: estimates, or the counts of the provider function. Counts that
            the call's record has are None here.
        continues: the call was made only because an earlier response was truncated.
    """

    turn: Turn
    provider: str
    model: str
    usage: Usage
    continues: bool


class DispatchBlocked(NamedTuple):
    """Tool calls were not run. `names` are recorded only if the host opted in."""

    turn: Turn
    provider: str
    model: str
    reason: str
    names: tuple[str, ...]


class ToolStarted(NamedTuple):
    """A tool call is about to be run. `number` is its id, unique in the process."""

    number: int
    turn: Turn
    name: str
    call_id: str


class ToolEnded(NamedTuple):
    """A tool call has run."""

    started: ToolStarted
    error: BaseException | None
    duration_s: float


class TerminationSignalled(NamedTuple):
    """The model called a terminator tool, or the wallet guard ended the turn without one."""

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
    | TurnJoined
    | TurnEnded
    | ContinuationAttempted
    | PayloadRepaired
    | UsageEstimated
    | DispatchBlocked
    | ToolStarted
    | ToolEnded
    | TerminationSignalled
)
