"""Turns that wait for tool results: the call that sends the results joins the same turn.

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
from endturn.telemetry.cleanup import put_bounded
from endturn.telemetry.continuation_requests import comparable_text, repeats_answer
from endturn.telemetry.fingerprints import endpoints_hash, message_brief
from endturn.telemetry.waiting import WaitingTurns

TOOLS_IDLE_S: Final = 300.0
"""Seconds for which a turn waits for the results of its tools."""

MAX_OPEN_LOOPS: Final = 16_384
"""Maximum number of turns that wait for results; the oldest ends first."""

MAX_TOOL_CALL_IDS: Final = 32_768
"""Maximum number of remembered tool call ids, which show whether an id is unique to one turn."""


class LoopKind(NamedTuple):
    """A key for loops with equal histories: a search compares kinds instead of single loops.

    Attributes:
        model: the requested model.
        tail: the last visible characters of the response, as `comparable_text`.
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
        history_length: the number of messages in the history of that call.
        history_hash: a hash of the first and the last of them.
        kind: the key among loops with the same history.
        response_id: the id of the response; conversation_id: that of the server-side conversation.
        outcome: the outcome of the turn if no results are sent.
        is_unanswered: report the turn's end as `tools_unanswered` if no results are sent. False if
            the request forced the call: its host only wants the arguments, and sends no results.
        was_tool_forced: the request forced a tool call. A later request with a user's text next to
            the result then asks the next question, in a new turn.
    """

    turn: Turn
    number: int
    call_ids: tuple[str, ...]
    history_length: int
    history_hash: int | None
    kind: LoopKind
    response_id: str | None
    conversation_id: str | None
    outcome: TurnOutcome
    deadline: float
    is_unanswered: bool = True
    was_tool_forced: bool = False

    @property
    def may_be_found(self) -> bool:
        """True if the loop has data by which the next call can be recognised."""
        return self.history_hash is not None or bool(
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
        history_length=request.length,
        history_hash=endpoints_hash(request, request.length),
        kind=LoopKind(request.facts.model, comparable_text(tail), names),
        response_id=ended.response.id,
        conversation_id=request.conversation_id,
        outcome=outcome,
        deadline=deadline,
        is_unanswered=not request.forces_tool,
        was_tool_forced=request.forces_tool,
    )


class OpenToolLoops:
    """The turns that wait for results. Not thread-safe: the caller holds a lock.

    A lookup takes constant time. A turn is looked up by a tool call id that no other turn had. If
    several turns or none had the id, it is looked up by the history, or by the server's id of the
    response.
    """

    def __init__(self) -> None:
        self.waiting: WaitingTurns[ToolLoop] = WaitingTurns(MAX_OPEN_LOOPS)
        self._by_turn: dict[str | None, ToolLoop] = {}
        self._by_history: dict[int, dict[LoopKind, dict[str, ToolLoop]]] = {}
        """By the hash of the history, the kind, and the turn's id."""
        self._by_server_id: dict[str, ToolLoop] = {}
        """By the ids of the response and of the server-side conversation."""
        self._turns_of_id: OrderedDict[str, str | None] = OrderedDict()
        """By tool call id, the id of its turn; None if several turns had it."""

    def add(self, loop: ToolLoop) -> list[ToolLoop]:
        """Add a waiting turn. Returns the oldest ones beyond the limit, which the caller ends."""
        turn_id = loop.turn.id
        self._by_turn[turn_id] = loop
        if loop.history_hash is not None:
            self._by_history.setdefault(loop.history_hash, {}).setdefault(loop.kind, {})[
                turn_id
            ] = loop
        for server_id in (loop.response_id, loop.conversation_id):
            if server_id is not None:
                self._by_server_id[server_id] = loop
        return self.waiting.add(loop)

    def remove(self, loop: ToolLoop) -> bool:
        """Remove a turn. Returns False if it does not wait any more."""
        if not self.waiting.remove(loop):
            return False
        turn_id = loop.turn.id
        del self._by_turn[turn_id]
        if loop.history_hash is not None:
            kinds = self._by_history[loop.history_hash]
            loops = kinds[loop.kind]
            del loops[turn_id]
            if not loops:
                del kinds[loop.kind]
            if not kinds:
                del self._by_history[loop.history_hash]
        for server_id in (loop.response_id, loop.conversation_id):
            if server_id is not None and self._by_server_id.get(server_id) is loop:
                del self._by_server_id[server_id]
        return True

    def remember_ids(self, turn_id: str, calls: Iterable[RequestedCall]) -> None:
        """Remember the ids of the tool calls of a turn's response."""
        for call in calls:
            if call.id:
                earlier_turn = self._turns_of_id.get(call.id, turn_id)
                put_bounded(
                    self._turns_of_id,
                    call.id,
                    turn_id if earlier_turn == turn_id else None,
                    limit=MAX_TOOL_CALL_IDS,
                )

    def is_known_id(self, call_id: str) -> bool:
        """Return whether a response of this process had a tool call with that id."""
        return call_id in self._turns_of_id

    def is_certain_match(self, loop: ToolLoop, request: RequestSummary) -> bool:
        """Return whether a request's match is certain: by a unique id, or by the answer's text."""
        results, start = results_at_end(request)
        if any(
            self._turns_of_id.get(result.call_id) == loop.turn.id
            for result in results
            if result.call_id
        ):
            return True
        return _likeness(loop.kind.tail, _response_text(request, start)) == SAME

    def turn_of(self, call_id: str) -> Turn | None:
        """Return the turn that waits for the result of that tool call.

        None if no turn waits for it, or several turns had the id.
        """
        loop = self._by_turn.get(self._turns_of_id.get(call_id) or "")
        return None if loop is None or call_id not in loop.call_ids else loop.turn

    def find(self, request: RequestSummary) -> ToolLoop | None:
        """Find the turn whose tool results a request sends."""
        results, start = results_at_end(request)
        if not results:
            return None
        ids = {result.call_id for result in results}
        if ids == {""}:
            loop = self._find_by_history(request, results, start)
        elif self._turns_of_id.keys().isdisjoint(ids):
            # The framework assigned its own ids.
            loop = self._find_by_history(request, results, start, must_be_unique=True)
        else:
            loop = self._find_by_ids(request, ids, start)
        is_next_question = (
            loop is not None and loop.was_tool_forced and _has_user_text(request, start)
        )
        return None if is_next_question else loop

    def _find_by_ids(self, request: RequestSummary, ids: set[str], start: int) -> ToolLoop | None:
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
                loop.history_hash is not None
                and endpoints_hash(request, loop.history_length) == loop.history_hash
            )
            if is_same and self._continues_directly(request, ids, start, loop):
                return loop
        if None in turn_ids:  # several turns had these ids
            return self._find_by_shared_ids(request, ids, start)
        if len(loops) == 1:
            # The host may have compacted the history.
            ((_, loop),) = loops.items()
            if all(self._is_of_one_turn(call_id, loop) for call_id in ids):
                return loop
        return None

    def _continues_directly(
        self, request: RequestSummary, ids: set[str], start: int, loop: ToolLoop
    ) -> bool:
        """Return whether only a loop's response and its tool results follow the loop's history.

        A framework may write each parallel call next to its result. A user's text next to the
        results is allowed, and so are results of server tools, whose ids no client call had.

        Args:
            request: the summary of the request.
            ids: the ids of the results after the model's last messages.
            start: the index of these messages.
            loop: the loop.
        """
        others = ids.difference(loop.call_ids)
        for message in request.history[loop.history_length : start]:
            others |= {result.call_id for result in tool_results(message)}.difference(loop.call_ids)
        # As a keys view: a set would be built of all remembered ids.
        return loop.history_length < request.length and self._turns_of_id.keys().isdisjoint(others)

    def _find_by_shared_ids(
        self, request: RequestSummary, ids: set[str], start: int
    ) -> ToolLoop | None:
        """Find a turn by its history and results, if several turns have tool calls of these ids."""
        index = start
        while index > 0:
            text = _response_text(request, index)
            for loops in _rank(self._with_history(request, index), text):
                loop = next(
                    (loop for loop in loops if self._continues_directly(request, ids, start, loop)),
                    None,
                )
                if loop is not None:
                    return loop
            # A framework may write each parallel call next to its result.
            _, index = _results_before(request, index)
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
        start: int,
        *,
        must_be_unique: bool = False,
    ) -> ToolLoop | None:
        """Find a turn without the ids of its tool calls.

        Args:
            request: the summary of the request.
            results: its tool results.
            start: the index of the response that they answer.
            must_be_unique: accept a turn only if the request fits no other waiting turn.
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
            for kind, loops in self._with_history(request, start).items()
            if names.issubset(kind.names) and kind.model == request.facts.model
        }
        if must_be_unique and sum(map(len, candidates.values())) > 1:
            return None
        text = _response_text(request, start)
        return next((next(iter(loops)) for loops in _rank(candidates, text)), None)

    def _with_history(
        self, request: RequestSummary, length: int
    ) -> Mapping[LoopKind, dict[str, ToolLoop]]:
        """Return the turns whose latest call's history is the first messages of a request."""
        history = endpoints_hash(request, length)
        return {} if history is None else self._by_history.get(history, {})


SAME: Final = 3
"""The text before the tool calls is that of the response: the highest likeness."""


def _rank(
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

    Args:
        tail: the end of the response's text.
        text: the text in the history of a later request.

    Returns:
        3 (`SAME`) or 2 if it is, as `repeats_answer` rates it; 1 if either has no text: the host
        may have left it out; 0 if it is another response's.
    """
    if text == tail:
        return SAME
    if not text or not tail:
        return 1
    rating = repeats_answer(text, tail)
    return 1 + rating if rating else 0


def _response_text(request: RequestSummary, index: int) -> str:
    """Return the `comparable_text` of the response at an index of a history."""
    parts: list[str] = []
    while index < request.length and (message_role := role(request.history[index])) in (
        "assistant",
        "thought",
    ):
        if message_role == "assistant":
            parts.append(text_of(request.history[index]))
        index += 1
    return comparable_text("".join(parts))


def _has_server_id(request: RequestSummary, loop: ToolLoop) -> bool:
    """Return whether a request names the response of this turn, or else its conversation."""
    if request.facts.previous_response_id is not None:
        return request.facts.previous_response_id == loop.response_id
    return request.conversation_id == loop.conversation_id


def results_at_end(request: RequestSummary) -> tuple[list[ToolResult], int]:
    """Find the tool results at the end of a history, and cache them in the request's summary.

    Returns:
        The results after the model's last message, without text next to them; and the index of the
        first message of the response that they answer, which follows that call's history.
    """
    if request.results is None:
        request.results = _results_before(request, request.length)
    return request.results


def _results_before(request: RequestSummary, index: int) -> tuple[list[ToolResult], int]:
    """Find the tool results before an index, as `results_at_end` does."""
    history, message_role = request.history, ""
    results: list[ToolResult] = []
    while index > 0 and (message_role := role(history[index - 1])) != "assistant":
        _, _, message_results = message_brief(request, index - 1)
        if not message_results and message_role != "user":
            break
        results += message_results
        index -= 1
    if not results:
        return [], 0
    while index > 0 and message_role in ("assistant", "thought"):
        index -= 1
        message_role = role(history[index - 1]) if index else ""
    return results, index


def _has_user_text(request: RequestSummary, start: int) -> bool:
    """Return whether a user's text is next to the results."""
    return any(
        role(message) == "user" and text_of(message).strip()
        for message in request.history[start : request.length]
    )
