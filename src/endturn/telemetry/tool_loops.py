"""Turns whose latest response has tool calls: the call with their results is in the same turn.

Results are recognised by the ids of the tool calls, together with the position of the response in
the history and the messages before it. For an API without ids, the messages and the names of the
tools identify them.
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
"""Maximum number of turns that wait for results; the oldest ends first."""

REMEMBERED_IDS: Final = 32_768
"""Maximum number of remembered tool call ids, which show whether an id is unique to one turn."""


class LoopKind(NamedTuple):
    """The key of loops with the same history, so that a search need not compare them one by one.

    Attributes:
        model: the requested model.
        tail: the last visible characters of the response, comparable.
        names: the names of the tools.
    """

    model: str
    tail: str
    names: tuple[str, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class ToolLoop:
    """A turn that waits for the results of the tool calls of its latest response.

    Attributes:
        number: the number of the call whose response has the tool calls.
        call_ids: the ids of the tool calls; empty if the server gave none.
        length: the number of messages in the history of that call.
        history: their hash, by the first and the last of them.
        kind: the key among loops with the same history.
        response_id: the id of the response; conversation_id: that of the server-side conversation.
        outcome: the outcome of the turn if no results are sent.
        is_unanswered: the response was complete, and only the results are missing.
        is_forced: the request forced a tool call: a user's text next to the result is the next
            question.
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
        """True if the loop has data by which the next call can be recognised."""
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
    """Return the loop of a response with tool calls, by which the next call is recognised."""
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
    """The turns that wait for results. Not thread-safe: the caller holds a lock.

    A lookup takes constant time. A turn is looked up by a tool call id that no other turn had. If
    several turns or none had the id, it is looked up by the history, or by the server's id of the
    response.
    """

    def __init__(self) -> None:
        self.waiting: WaitingTurns[ToolLoop] = WaitingTurns(OPEN_LOOPS)
        self._by_turn: dict[str | None, ToolLoop] = {}
        self._by_history: dict[int, dict[LoopKind, dict[str, ToolLoop]]] = {}
        """By the hash of the history, the kind, and the turn's id."""
        self._by_server_id: dict[str, ToolLoop] = {}
        """By the ids of the response and of the server-side conversation."""
        self._turns_of_id: OrderedDict[str, str | None] = OrderedDict()
        """By tool call id, the id of its turn; None if several turns had it."""

    def add(self, loop: ToolLoop) -> list[ToolLoop]:
        """Have a turn wait. Returns the oldest ones beyond the limit."""
        turn_id = loop.turn.id
        self._by_turn[turn_id] = loop
        if loop.history is not None:
            self._by_history.setdefault(loop.history, {}).setdefault(loop.kind, {})[turn_id] = loop
        for name in (loop.response_id, loop.conversation_id):
            if name is not None:
                self._by_server_id[name] = loop
        return self.waiting.add(loop)

    def remove(self, loop: ToolLoop) -> bool:
        """Remove a turn. Returns False if it does not wait any more."""
        if not self.waiting.remove(loop):
            return False
        turn_id = loop.turn.id
        del self._by_turn[turn_id]
        if loop.history is not None:
            kinds = self._by_history[loop.history]
            loops = kinds[loop.kind]
            del loops[turn_id]
            if not loops:
                del kinds[loop.kind]
            if not kinds:
                del self._by_history[loop.history]
        for name in (loop.response_id, loop.conversation_id):
            if name is not None and self._by_server_id.get(name) is loop:
                del self._by_server_id[name]
        return True

    def remember_ids(self, turn_id: str, calls: Iterable[RequestedCall]) -> None:
        """Remember the ids of the tool calls of a turn's response."""
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
        """Return whether a response of this process had a tool call with that id."""
        return call_id in self._turns_of_id

    def is_surely(self, loop: ToolLoop, request: RequestSummary) -> bool:
        """Return whether a request's match is certain: by a unique id, or by the answer's text."""
        results, begin = results_at_end(request)
        if any(
            self._turns_of_id.get(result.call_id) == loop.turn.id
            for result in results
            if result.call_id
        ):
            return True
        return _likeness(loop.kind.tail, _response_text(request, begin)) == SAME

    def turn_of(self, call_id: str) -> Turn | None:
        """Return the turn that waits for the result of that tool call.

        None if no turn waits for it, or several turns had the id.
        """
        loop = self._by_turn.get(self._turns_of_id.get(call_id) or "")
        return None if loop is None or call_id not in loop.call_ids else loop.turn

    def find(self, request: RequestSummary) -> ToolLoop | None:
        """Find the turn whose tool results a request sends."""
        results, begin = results_at_end(request)
        if not results:
            return None
        ids = {result.call_id for result in results}
        if ids == {""}:
            loop = self._find_by_history(request, results, begin)
        elif self._turns_of_id.keys().isdisjoint(ids):
            # The framework assigned its own ids.
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
        server_id = request.facts.previous_response_id or request.conversation_id
        if server_id is not None:
            server_loop = self._by_server_id.get(server_id)
            if server_loop is not None and not ids.isdisjoint(server_loop.call_ids):
                loops[server_loop.number] = server_loop
            return next((loop for loop in loops.values() if _has_server_id(request, loop)), None)
        for _, loop in sorted(loops.items()):
            is_same = (
                loop.history is not None and endpoints_hash(request, loop.length) == loop.history
            )
            if is_same and self._answers_only(request, ids, begin, loop):
                return loop
        if None in turn_ids:  # several turns had these ids
            return self._find_by_shared_ids(request, ids, begin)
        if len(loops) == 1:
            # The host may have compacted the history.
            ((_, loop),) = loops.items()
            if all(self._is_of_one_turn(call_id, loop) for call_id in ids):
                return loop
        return None

    def _answers_only(
        self, request: RequestSummary, ids: set[str], begin: int, loop: ToolLoop
    ) -> bool:
        """Return whether only a loop's response and its tool results follow the loop's history.

        A framework may write each parallel call next to its result. A user's text next to the
        results is allowed, and so are results of server tools, whose ids no client call had.

        Args:
            request: the summary of the request.
            ids: the ids of the results after the model's last messages.
            begin: the index of these messages.
            loop: the loop.
        """
        others = ids.difference(loop.call_ids)
        for message in request.history[loop.length : begin]:
            others |= {result.call_id for result in tool_results(message)}.difference(loop.call_ids)
        # As a keys view: a set would be built of all remembered ids.
        return loop.length < request.length and self._turns_of_id.keys().isdisjoint(others)

    def _find_by_shared_ids(
        self, request: RequestSummary, ids: set[str], begin: int
    ) -> ToolLoop | None:
        """Find a turn by its history and results, if several turns have tool calls of these ids."""
        place = begin
        while place > 0:
            text = _response_text(request, place)
            for loops in _ranked(self._with_history(request, place), text):
                loop = next(
                    (loop for loop in loops if self._answers_only(request, ids, begin, loop)), None
                )
                if loop is not None:
                    return loop
            # A framework may write each parallel call next to its result.
            _, place = _results_before(request, place)
        return None

    def _is_of_one_turn(self, call_id: str, loop: ToolLoop) -> bool:
        """Return whether an id occurred in this turn only, and looks random."""
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
        """Find a turn without the ids of its tool calls.

        Args:
            request: the summary of the request.
            results: its tool results.
            begin: the index of the response that they answer.
            is_only: accept a turn only if the request fits no other waiting turn.
        """
        names = {result.name for result in results if result.name}
        server_id = request.facts.previous_response_id or request.conversation_id
        if server_id is not None:
            server_loop = self._by_server_id.get(server_id)
            if (
                server_loop is None
                or not names.issubset(server_loop.kind.names)
                or not _has_server_id(request, server_loop)
            ):
                return None
            return server_loop
        candidates = {
            kind: loops
            for kind, loops in self._with_history(request, begin).items()
            if names.issubset(kind.names) and kind.model == request.facts.model
        }
        if is_only and sum(map(len, candidates.values())) > 1:
            return None
        text = _response_text(request, begin)
        return next((next(iter(loops)) for loops in _ranked(candidates, text)), None)

    def _with_history(
        self, request: RequestSummary, length: int
    ) -> Mapping[LoopKind, dict[str, ToolLoop]]:
        """Return the turns whose latest call's history is the first messages of a request."""
        history = endpoints_hash(request, length)
        return {} if history is None else self._by_history.get(history, {})


SAME: Final = 3
"""The text before the tool calls is that of the response: the highest likeness."""


def _ranked(
    candidates: Mapping[LoopKind, dict[str, ToolLoop]], text: str
) -> list[Collection[ToolLoop]]:
    """List the turns whose response may have had this text with its tool calls.

    The highest likeness comes first, then the oldest turn.
    """
    rows = [(_likeness(kind.tail, text), loops.values()) for kind, loops in candidates.items()]
    rows.sort(key=lambda row: (-row[0], next(iter(row[1])).number))
    return [loops for likeness, loops in rows if likeness]


def _likeness(tail: str, text: str) -> int:
    """Rate the certainty that a text is that of a response with tool calls.

    1 if the host left the text out; 0 if it is another response's.
    """
    if text == tail:
        return SAME
    return 1 + (repeats_answer(text, tail) or -1) if text and tail else 1


def _response_text(request: RequestSummary, place: int) -> str:
    """Return the visible text of the response at an index of a history, comparable."""
    parts: list[str] = []
    while place < request.length and (speaker := role(request.history[place])) in (
        "assistant",
        "thought",
    ):
        parts += [text_of(request.history[place])] * (speaker == "assistant")
        place += 1
    return comparable("".join(parts))


def _has_server_id(request: RequestSummary, loop: ToolLoop) -> bool:
    """Return whether a request names the response of this turn, or else its conversation."""
    if request.facts.previous_response_id is not None:
        return request.facts.previous_response_id == loop.response_id
    return request.conversation_id == loop.conversation_id


def results_at_end(request: RequestSummary) -> tuple[list[ToolResult], int]:
    """Find the tool results at the end of a history. They are read once.

    Returns:
        The results after the model's last message, without text next to them; and the index of the
        first message of the response that they answer, which follows that call's history.
    """
    if request.results is None:
        request.results = _results_before(request, request.length)
    return request.results


def _results_before(request: RequestSummary, place: int) -> tuple[list[ToolResult], int]:
    """Find the tool results before an index, as `results_at_end` does."""
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
    """Return whether a user's text is next to the results."""
    return any(
        role(message) == "user" and text_of(message).strip()
        for message in request.history[begin : request.length]
    )
