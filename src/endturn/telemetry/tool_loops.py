"""Turns whose latest response asks for tools.

The call that sends the results belongs to the same turn.

The results are recognised by the ids of the calls, together with where the answered response stands
in the history and with the messages before it. An API that has no ids is recognised by the messages
and the tools' names alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from endturn.calls import CallEnded, RequestedCall, Turn, TurnOutcome
from endturn.formats import RequestSummary, ToolResult, looks_random, role, text_of, tool_results
from endturn.telemetry.cleanup import remember
from endturn.telemetry.continuation_requests import comparable, repeats_answer
from endturn.telemetry.fingerprints import brief_at, endpoints_hash
from endturn.telemetry.waiting import WaitingTurns

TOOLS_IDLE_S: Final = 300.0
"""Seconds for which a turn waits for the results of its tools."""

OPEN_LOOPS: Final = 16_384
"""How many turns may wait for results at once; the oldest ends first."""

REMEMBERED_IDS: Final = 32_768
"""Ids of calls that are remembered, to know whether an id belongs to one turn alone."""


class LoopKind(NamedTuple):
    """What tells loops of the same history apart: by it they are looked through, not one by one.

    Attributes:
        model: the requested model.
        tail: the last visible characters of the response, comparable.
        names: of the tools.
    """

    model: str
    tail: str
    names: tuple[str, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class ToolLoop:
    """A turn that waits for the results of the tool calls of its latest response.

    Attributes:
        number: of the call whose response asks for the tools.
        call_ids: of the tool calls; empty where the server gave none.
        length: how many messages the history of that call had.
        history: their hash, by the first and the last of them.
        kind: what tells it from others that have the same history.
        response_id: of the response; conversation_id: of the conversation that the server keeps.
        outcome: how the turn ends if no results come.
        is_unanswered: the response was whole, so that only the results are missing.
        is_forced: the request made the model call a tool: what a user says beside the result is the
            next question.
    """

    turn: Turn
    number: int
    call_ids: tuple[str, ...]
    length: int
    history: int | None
    kind: LoopKind
    response_id: str | None
    conversation_id: str | None
    outcome: TurnOutcome
    deadline: float
    is_unanswered: bool = True
    is_forced: bool = False

    @property
    def may_be_found(self) -> bool:
        """Whether there is anything that the next call can be recognised by."""
        return self.history is not None or bool(
            self.call_ids or self.response_id or self.conversation_id
        )


def tool_loop(
    ended: CallEnded,
    request: RequestSummary,
    tail: str,
    calls: Sequence[RequestedCall],
    *,
    outcome: TurnOutcome,
    deadline: float,
) -> ToolLoop:
    """Describe how the call that sends the results of a response's tool calls would be known."""
    names = tuple([call.name for call in calls if call.name])
    return ToolLoop(
        turn=ended.started.turn,
        number=ended.started.number,
        call_ids=tuple([call.id for call in calls if call.id]),
        length=request.length,
        history=endpoints_hash(request, request.length),
        kind=LoopKind(request.facts.model, comparable(tail), names),
        response_id=ended.response.id,
        conversation_id=request.conversation_id,
        outcome=outcome,
        deadline=deadline,
        is_unanswered=not request.forces_tool,
        is_forced=request.forces_tool,
    )


class OpenToolLoops:
    """The turns that wait for results. Not safe for threads: the caller holds a lock.

    Each lookup takes as long with many turns as with few. A turn is looked up by the id of a call
    that no other turn had; where several had it, or none, by the history or by the name that the
    server gave the response.
    """

    def __init__(self) -> None:
        self.waiting: WaitingTurns[ToolLoop] = WaitingTurns(OPEN_LOOPS)
        self._by_turn: dict[str | None, ToolLoop] = {}
        self._by_history: dict[int, dict[LoopKind, dict[str, ToolLoop]]] = {}
        """By the hash of the history, by what tells a loop from others, and by the turn's id."""
        self._by_server_name: dict[str, ToolLoop] = {}
        """By the ids of the response, and of the conversation that the server keeps."""
        self._turns_of_id: OrderedDict[str, str | None] = OrderedDict()
        """The id of the turn in which a call had that id; None where several turns did."""

    def add(self, loop: ToolLoop) -> list[ToolLoop]:
        """Have a turn wait; return the oldest ones beyond the bound."""
        turn_id = loop.turn.id
        self._by_turn[turn_id] = loop
        if loop.history is not None:
            self._by_history.setdefault(loop.history, {}).setdefault(loop.kind, {})[turn_id] = loop
        for name in (loop.response_id, loop.conversation_id):
            if name is not None:
                self._by_server_name[name] = loop
        return self.waiting.add(loop)

    def remove(self, loop: ToolLoop) -> bool:
        """Remove a turn; False where it does not wait any more."""
        if not self.waiting.remove(loop):
            return False
        turn_id = loop.turn.id
        del self._by_turn[turn_id]
        if loop.history is not None:
            kinds = self._by_history[loop.history]
            alike = kinds[loop.kind]
            del alike[turn_id]
            if not alike:
                del kinds[loop.kind]
            if not kinds:
                del self._by_history[loop.history]
        for name in (loop.response_id, loop.conversation_id):
            if name is not None and self._by_server_name.get(name) is loop:
                del self._by_server_name[name]
        return True

    def remember_ids(self, turn_id: str, calls: Iterable[RequestedCall]) -> None:
        """Remember that a response of a turn asked for these tool calls."""
        for call in calls:
            if call.id:
                earlier_turn = self._turns_of_id.get(call.id, turn_id)
                remember(
                    self._turns_of_id,
                    call.id,
                    turn_id if earlier_turn == turn_id else None,
                    most=REMEMBERED_IDS,
                )

    def is_known_id(self, call_id: str) -> bool:
        """Tell whether a response of this process asked for a tool call of that id."""
        return call_id in self._turns_of_id

    def is_surely(self, loop: ToolLoop, request: RequestSummary) -> bool:
        """Return whether a request matched to a turn has an id of it alone, or its answer."""
        results, begin = results_at_end(request)
        if any(
            self._turns_of_id.get(result.call_id) == loop.turn.id
            for result in results
            if result.call_id
        ):
            return True
        return _repeats(loop.kind.tail, _said_at(request, begin)) == SAME

    def turn_of(self, call_id: str) -> Turn | None:
        """Return the one turn that waits for the result of that call.

        None where none does, or several do.
        """
        loop = self._by_turn.get(self._turns_of_id.get(call_id) or "")
        return None if loop is None or call_id not in loop.call_ids else loop.turn

    def find(self, request: RequestSummary) -> ToolLoop | None:
        """Find the turn whose tools a request has run."""
        results, begin = results_at_end(request)
        if not results:
            return None
        ids = {result.call_id for result in results}
        if ids == {""}:
            loop = self._find_by_history(request, results, begin)
        elif self._turns_of_id.keys().isdisjoint(ids):
            # A framework gave the calls ids of its own.
            loop = self._find_by_history(request, results, begin, is_only=True)
        else:
            loop = self._find_by_ids(request, ids, begin)
        is_next_question = loop is not None and loop.is_forced and _says_more(request, begin)
        return None if is_next_question else loop

    def _find_by_ids(self, request: RequestSummary, ids: set[str], begin: int) -> ToolLoop | None:
        turn_ids = {self._turns_of_id.get(call_id, "") for call_id in ids}
        loops: dict[int, ToolLoop] = {}
        for turn_id in turn_ids:
            loop = self._by_turn.get(turn_id)
            if loop is not None and not ids.isdisjoint(loop.call_ids):
                loops[loop.number] = loop
        server_name = request.facts.previous_response_id or request.conversation_id
        if server_name is not None:
            named = self._by_server_name.get(server_name)
            if named is not None and not ids.isdisjoint(named.call_ids):
                loops[named.number] = named
            return next((loop for loop in loops.values() if _is_named(request, loop)), None)
        for _, loop in sorted(loops.items()):
            is_same = (
                loop.history is not None and endpoints_hash(request, loop.length) == loop.history
            )
            if is_same and self._answers_only(request, ids, begin, loop):
                return loop
        if None in turn_ids:  # several turns had calls of these ids
            return self._find_by_shared_ids(request, ids, begin)
        if len(loops) == 1:
            # A history that was compacted.
            ((_, loop),) = loops.items()
            if all(self._is_of_one_turn(call_id, loop) for call_id in ids):
                return loop
        return None

    def _answers_only(
        self, request: RequestSummary, ids: set[str], begin: int, loop: ToolLoop
    ) -> bool:
        """Return whether only a loop's response and its calls' results follow the loop's history.

        A framework may write each parallel call next to its result. Text of a user beside the
        results is let through, and so is what a server ran itself: an id that was never a client's.

        Args:
            ids: of the results after the model's last messages, which begin at `begin`.
        """
        others = ids.difference(loop.call_ids)
        for message in request.history[loop.length : begin]:
            others |= {result.call_id for result in tool_results(message)}.difference(loop.call_ids)
        # A set would go through all ids that are remembered.
        return loop.length < request.length and self._turns_of_id.keys().isdisjoint(others)

    def _find_by_shared_ids(
        self, request: RequestSummary, ids: set[str], begin: int
    ) -> ToolLoop | None:
        """Find a turn by a history that results of its calls follow.

        Other turns may have calls of the same ids.
        """
        place = begin
        while place > 0:
            text = _said_at(request, place)
            for alike in _likeliest(self._alike(request, place), text):
                loop = next(
                    (loop for loop in alike if self._answers_only(request, ids, begin, loop)), None
                )
                if loop is not None:
                    return loop
            # A framework may write each parallel call next to its result.
            _, place = _results_before(request, place)
        return None

    def _is_of_one_turn(self, call_id: str, loop: ToolLoop) -> bool:
        """Return whether an id occurred in this turn only, and looks random enough to be unique."""
        return self._turns_of_id.get(call_id) == loop.turn.id and looks_random(
            call_id, loop.kind.names
        )

    def _find_by_history(
        self,
        request: RequestSummary,
        results: list[ToolResult],
        begin: int,
        *,
        is_only: bool = False,
    ) -> ToolLoop | None:
        """Find a turn without the ids of its calls.

        Args:
            is_only: only if no other turn waits that the request could belong to.
        """
        names = {result.name for result in results if result.name}
        server_name = request.facts.previous_response_id or request.conversation_id
        if server_name is not None:
            named = self._by_server_name.get(server_name)
            if (
                named is None
                or not names.issubset(named.kind.names)
                or not _is_named(request, named)
            ):
                return None
            return named
        alike = {
            kind: loops
            for kind, loops in self._alike(request, begin).items()
            if names.issubset(kind.names) and kind.model == request.facts.model
        }
        if is_only and sum(map(len, alike.values())) > 1:
            return None
        return next(
            (next(iter(loops)) for loops in _likeliest(alike, _said_at(request, begin))), None
        )

    def _alike(
        self, request: RequestSummary, length: int
    ) -> Mapping[LoopKind, dict[str, ToolLoop]]:
        """List the turns whose latest call had these first messages of a request as its history."""
        history = endpoints_hash(request, length)
        return {} if history is None else self._by_history.get(history, {})


SAME: Final = 3
"""The text before the calls is the response's: as surely as text can tell."""


def _likeliest(
    alike: Mapping[LoopKind, dict[str, ToolLoop]], text: str
) -> list[Collection[ToolLoop]]:
    """List the turns whose response said that beside its calls, or may have.

    The surest first, the oldest of equals.
    """
    rows = [(_repeats(kind.tail, text), loops.values()) for kind, loops in alike.items()]
    rows.sort(key=lambda row: (-row[0], next(iter(row[1])).number))
    return [loops for likeness, loops in rows if likeness]


def _repeats(tail: str, text: str) -> int:
    """How surely a text is what a response said beside its calls.

    1 where a host left it out; 0: it is another's.
    """
    if text == tail:
        return SAME
    return 1 + (repeats_answer(text, tail) or -1) if text and tail else 1


def _said_at(request: RequestSummary, place: int) -> str:
    """The visible text of the response that stands at a place of a history, comparable."""
    parts: list[str] = []
    while place < request.length and (speaker := role(request.history[place])) in (
        "assistant",
        "thought",
    ):
        parts += [text_of(request.history[place])] * (speaker == "assistant")
        place += 1
    return comparable("".join(parts))


def _is_named(request: RequestSummary, loop: ToolLoop) -> bool:
    """Tell whether a request builds on the response of this turn, or else on its conversation."""
    if request.facts.previous_response_id is not None:
        return request.facts.previous_response_id == loop.response_id
    return request.conversation_id == loop.conversation_id


def results_at_end(request: RequestSummary) -> tuple[list[ToolResult], int]:
    """Find the tool results that a history ends with. They are read once.

    Returns:
        The results after the model's last message, text beside them left out; and where the
        messages of the response that they answer begin: what was asked before stands before that
        place.
    """
    if request.results is None:
        request.results = _results_before(request, request.length)
    return request.results


def _results_before(request: RequestSummary, place: int) -> tuple[list[ToolResult], int]:
    """As `results_at_end`, of the messages before a place."""
    history, speaker = request.history, ""
    results: list[ToolResult] = []
    while place > 0 and (speaker := role(history[place - 1])) != "assistant":
        _, _, message_results = brief_at(request, place - 1)
        if not message_results and speaker != "user":
            break
        results += message_results
        place -= 1
    if not results:
        return [], 0
    while place > 0 and speaker in ("assistant", "thought"):
        place -= 1
        speaker = role(history[place - 1]) if place else ""
    return results, place


def _says_more(request: RequestSummary, begin: int) -> bool:
    """Tell whether a user says something beside the results."""
    return any(
        role(message) == "user" and text_of(message).strip()
        for message in request.history[begin : request.length]
    )
