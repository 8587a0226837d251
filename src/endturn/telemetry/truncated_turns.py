"""Turns whose response was truncated, and recognition of the call that continues them.

A turn is found by the history of its calls, or by the id of the response or the conversation. Only
hashes and the last 64 characters of the response are kept, and nothing is hashed while no turn
waits.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from itertools import takewhile
from math import inf
from typing import Any, Final, NamedTuple

from endturn.calls import CallEnded, RequestedCall, Strategy, Turn, TurnKind
from endturn.formats import (
    TAIL,
    RequestSummary,
    calls_of,
    parts_beside_text,
    role,
    text_of,
    tool_results,
)
from endturn.telemetry.continuation_requests import QUOTED, comparable, mentions_cut, repeats_answer
from endturn.telemetry.fingerprints import (
    ContinuePrompts,
    full_prefix,
    is_call_refused,
    opening_hash,
    prefixes,
    question_of,
)
from endturn.telemetry.recent_prompts import RecentPrompts, prompt_of
from endturn.telemetry.retries import RETRY_S
from endturn.telemetry.waiting import WaitingTurns
from endturn.vocabulary import StopReason

OPEN_TURNS: Final = 1_024
"""Maximum number of turns that wait; the oldest ends first."""

FEW: Final = 64
"""Turns with one history that are compared one by one. More than that are filtered first."""

Key = tuple[int | str, bytes | str]
"""The key of a history: its number of messages and their hash. Or of a server-side object:
"response" or "conversation", and its id."""


class Relation(Enum):
    """The relation of a call to a truncated one that it does not continue."""

    MOVED_ON = auto()
    """It is of the same conversation, and leaves the truncated response unfinished."""
    RAN_TOOLS = auto()
    """It sends results of the truncated response's tool calls: the same turn, still unfinished."""
    TOOK_OTHER = auto()
    """It sends results of another choice's tool calls: the same turn, without the truncated
    choice."""


class Verdict(NamedTuple):
    """The relation of a call to a truncated one.

    Attributes:
        likeness: the certainty that it is of the same conversation; 0: it is not.
        relation: the strategy with which it continues the truncated response, or another relation.
    """

    likeness: int
    relation: Strategy | Relation = Relation.MOVED_ON


SAME: Final = 2
"""The highest likeness. A lower one means that the host changed the end of the answer."""

UNRELATED: Final = Verdict(0)


@dataclass(slots=True, eq=False, kw_only=True)
class PendingTurn:
    """A turn whose response was truncated, with the data that identify its continuation.

    Attributes:
        number: the number of the truncated call.
        question: in an observed turn, the digest of the user's message that it answers.
        first: the keys of the first call's history, with system prompts and without.
        openings: the opening hashes of these histories and of the latest call's; None: of any.
        cut_keys: the keys of the truncated call, which failed continuations do not change;
            cut_openings: its opening hashes.
        keys: these keys, and those of the latest call: frameworks append each part, or merge them.
        tail: the last visible characters of the truncated answer, comparable; is_all: it is the
            complete answer.
        joined: the last characters of all parts so far, without white space, if there are several:
            hosts merge parts.
        calls: the tool calls of the truncated response, and those of other choices, which are not
            truncated.
        retry_until: the time until which the same request is a retry, because the connection was
            lost or the continuation failed.
        has_failed: the latest attempt raised.
        paused: the response is not truncated: the provider resumes when it is sent back.
        maximum: the output limit that truncated it.
        output_type, forces_tool: the kind of answer that the request asked for.
        deadline: the time until which it waits.
    """

    turn: Turn
    number: int
    question: bytes | None
    first: tuple[Key, ...]
    openings: tuple[int | None, ...]
    keys: tuple[Key, ...]
    cut_keys: tuple[Key, ...]
    cut_openings: tuple[int | None, ...]
    tail: str
    is_all: bool
    joined: str
    calls: tuple[RequestedCall, ...]
    retry_until: float
    has_failed: bool
    paused: bool
    maximum: int | None
    output_type: str | None
    forces_tool: bool
    deadline: float


class _Added:
    """The messages of a call after the history of the truncated call.

    Attributes:
        messages: all of them.
        answers: the answer as the host sends it back; a format may have several messages for it.
        text: the text of the answer, comparable.
        rest: the messages after the answer.
        ids, names: those of the tool calls in the answer, and in the results right after it.
        others: the kinds of the answer's other parts, such as server tools and media.
    """

    __slots__ = ("answers", "ids", "messages", "names", "others", "rest", "text")

    def __init__(self, messages: Sequence[Any]) -> None:
        self.messages = messages
        self.answers = list(
            takewhile(lambda message: role(message) in ("assistant", "thought"), messages)
        )
        self.rest = messages[len(self.answers) :]
        self.text = comparable(
            "".join(text_of(message) for message in self.answers if role(message) == "assistant")
        )
        self.others = [kind for message in self.answers for kind in parts_beside_text(message)]
        calls = [call for message in self.answers for call in calls_of(message)]
        for results in takewhile(bool, map(tool_results, self.rest)):
            calls += results
        self.ids, self.names = (
            {*column} - {""} for column in zip(*(calls or [("", "")]), strict=True)
        )


Candidate = tuple[int, PendingTurn, _Added]
"""The index at which the added messages begin, a turn whose history comes before, and these
messages."""


class PendingTurns:
    """The turns that wait for a continuation.

    Args:
        lock: held while entries are added, removed or compared, never while a history is hashed.
        clock: seconds, monotonic.
        prompts: recognises requests for the rest.
        recent: recognises the prompts of several turns.
        moved_on: ends turns whose conversation a call continues without the truncated answer.
        is_known_id: returns whether a response of this process had a tool call with that id.
    """

    def __init__(
        self,
        lock: threading.RLock,
        clock: Callable[[], float],
        prompts: ContinuePrompts,
        recent: RecentPrompts,
        moved_on: Callable[[list[PendingTurn]], None],
        is_known_id: Callable[[str], bool],
    ) -> None:
        self._lock = lock
        self._clock = clock
        self._prompts = prompts
        self._recent = recent
        self._moved_on = moved_on
        self._is_known_id = is_known_id
        self.waiting: WaitingTurns[PendingTurn] = WaitingTurns(OPEN_TURNS)
        self._by_key: dict[int | str, dict[bytes | str, tuple[PendingTurn, ...]]] = {}
        """By the two parts of their keys, the oldest first."""
        self._openings: Counter[int | None] = Counter()
        """The number of histories with each opening hash. A call with another one continues none of
        them, so its history is not hashed."""
        self._of_turn: dict[str, dict[int, PendingTurn]] = {}
        """Of observed turns, by the turn's id and the call's number."""

    def add(self, pending: PendingTurn) -> list[PendingTurn]:
        """Have a turn wait. Returns the oldest ones beyond the limit."""
        for kind, name in pending.keys:
            by_name = self._by_key.setdefault(kind, {})
            by_name[name] = (*by_name.get(name, ()), pending)
        self._openings.update(pending.openings)
        if pending.turn.kind is TurnKind.OBSERVED:
            self._of_turn.setdefault(pending.turn.id, {})[pending.number] = pending
        return self.waiting.add(pending)

    def of_turn(self, turn: Turn) -> list[PendingTurn]:
        """List the truncated responses of an observed turn that wait."""
        return list(self._of_turn.get(turn.id, {}).values())

    def remove(self, pending: PendingTurn) -> bool:
        """Remove a turn. Returns False if it does not wait any more."""
        if not self.waiting.remove(pending):
            return False
        for kind, name in pending.keys:
            by_name = self._by_key[kind]
            turns = by_name[name]
            place = turns.index(pending)
            by_name[name] = turns[:place] + turns[place + 1 :]
            if not by_name[name]:
                del by_name[name]
            if not by_name:
                del self._by_key[kind]
        for opening in pending.openings:
            self._openings[opening] -= 1
            if not self._openings[opening]:
                del self._openings[opening]
        if pending.turn.kind is TurnKind.OBSERVED:
            of_turn = self._of_turn[pending.turn.id]
            del of_turn[pending.number]
            if not of_turn:
                del self._of_turn[pending.turn.id]
        return True

    def take(
        self, request: RequestSummary, turn: Turn | None
    ) -> tuple[PendingTurn, Strategy | Relation] | None:
        """Find and remove the turn that a call belongs to, and return it with the call's relation.

        Turns whose conversation the call continues without the truncated answer end.

        Args:
            request: the summary of the request.
            turn: the explicit turn of the call.
        """
        opening = opening_hash(request)
        with self._lock:
            is_known = opening in self._openings or None in self._openings
            kinds = self._by_key if is_known else ()
            lengths = sorted(
                kind for kind in kinds if isinstance(kind, int) and kind <= request.length
            )
        for bare in (False, True):
            # A history with other system prompts must repeat the answer.
            shorter = [length for length in lengths if length < request.length] if bare else lengths
            # Outside the lock: hashing a long history takes a while.
            matching_prefixes = prefixes(request, shorter, bare=bare) if shorter else []
            begins: dict[Key, int] = {
                (prefix.length, prefix.digest): prefix.end for prefix in matching_prefixes
            }
            begins |= (
                {}
                if bare
                else dict.fromkeys(
                    _server_keys(request.facts.previous_response_id, request.conversation_id), 0
                )
            )
            if not begins:
                continue
            moved_on: list[PendingTurn] = []
            best: tuple[int, PendingTurn, Strategy | Relation] | None = None
            with self._lock:
                for begin, pending, added in self._candidates(request, begins):
                    if not _may_continue(pending.turn, turn):
                        continue
                    likeness, relation = self._judge(pending, request, begin, added, bare=bare)
                    if likeness and relation is Relation.MOVED_ON:
                        moved_on.append(pending)
                    elif likeness and (best is None or likeness > best[0]):
                        best = likeness, pending, relation
                    elif likeness:
                        moved_on.append(pending)
                    if best is not None and best[0] == SAME:
                        break
                if best is not None:
                    _, pending, relation = best
                    self.remove(pending)
                    return pending, relation
            self._moved_on(moved_on)
            if moved_on:
                break
        return None

    def _candidates(self, request: RequestSummary, begins: Mapping[Key, int]) -> list[Candidate]:
        """List the turns with one of these keys that a call may continue.

        The longest history comes first, matches by a server's id last; among equals those of the
        same model, then paused ones, then the latest.
        """
        rows: list[Candidate] = []
        for (kind, name), begin in begins.items():
            turns: Sequence[PendingTurn] = self._by_key.get(kind, {}).get(name, ())
            if not turns:
                continue
            added = _Added(request.history[begin : request.length])
            if begin and not added.messages:
                turns = self._without_sampled(turns, request)
            elif begin and added.answers and len(turns) > FEW:
                turns = self._filter(turns, added)
            rows += [(begin, pending, added) for pending in reversed(turns)]
        return sorted(
            rows,
            key=lambda row: (-row[0], row[1].turn.model != request.facts.model, not row[1].paused),
        )

    def _without_sampled(
        self, turns: Sequence[PendingTurn], request: RequestSummary
    ) -> Sequence[PendingTurn]:
        """Leave out implicit turns if several turns have the prompt: the call is another sample."""
        if not self._recent.is_asked_by_several(prompt_of(request), self._clock()):
            return turns
        return (
            [pending for pending in turns if pending.turn.kind is not TurnKind.IMPLICIT]
            if self._of_turn
            else ()
        )

    def _filter(self, turns: Sequence[PendingTurn], added: _Added) -> Sequence[PendingTurn]:
        """Drop the turns whose tool calls or answer a call does not send back.

        Used if many turns have one history.
        """
        ids, answers_text = added.ids, added.text
        if any(map(self._is_known_id, ids)):
            turns = [
                pending
                for pending in turns
                if any(call.id in ids or call.is_beside for call in pending.calls)
            ]
        same = [
            pending
            for pending in turns
            if answers_text.endswith(pending.tail) or pending.joined or pending.calls
        ]
        if same:
            return same
        pieces = {answers_text[place : place + QUOTED] for place in range(len(answers_text))}
        return [
            pending
            for pending in turns
            if len(pending.tail) < QUOTED or pending.tail[:QUOTED] in pieces
        ]

    def _judge(
        self,
        pending: PendingTurn,
        request: RequestSummary,
        begin: int,
        added: _Added,
        *,
        bare: bool,
    ) -> Verdict:
        """Return the relation of a call to a truncated one.

        Args:
            pending: the turn of the truncated call.
            request: the summary of the call's request.
            begin: the index at which the added messages begin; 0 if the call only names the
                truncated response.
            added: the added messages.
            bare: the histories are equal except for their system prompts.
        """
        tail, likeness = pending.tail, SAME
        if added.rest and _answers_any(
            added.rest, [call for call in pending.calls if call.is_beside]
        ):
            return Verdict(SAME, Relation.TOOK_OTHER)
        if bare and not (added.answers and tail):
            # another agent with the same prompt: only its instructions differ
            return UNRELATED
        if begin and not added.messages:
            return self._repeated_request(pending, request)
        if begin and not self._holds_own(pending, added):
            return UNRELATED  # a step of another run with the same prompt
        if added.answers:
            likeness = _likeness(pending, added.text)
            if not likeness:
                return UNRELATED  # another sample of the same prompt, in another conversation
        elif begin and not self._goes_on_alone(added.messages, tail):
            # Only an answer without visible text may be left out of the history, unless a message
            # mentions the truncation.
            return Verdict(SAME) if role(added.messages[0]) in ("user", "tool") else UNRELATED
        if not added.rest:
            return Verdict(likeness, Strategy.RESEND if pending.paused else Strategy.PREFILL)
        if pending.paused:
            return Verdict(likeness)
        if is_call_refused(added.rest, tail):
            return Verdict(likeness, Strategy.REPAIR)
        if tool_results(added.rest[0]):
            return Verdict(likeness, Relation.RAN_TOOLS)
        return Verdict(
            likeness, Strategy.PROMPT if self._prompts.ask(added.rest, tail) else Relation.MOVED_ON
        )

    def _holds_own(self, pending: PendingTurn, added: _Added) -> bool:
        """Return whether the sent tool calls, results and media may be of the truncated response.

        Several runs may have the same prompt and the same text: the ids distinguish them. The
        server tools of a truncated response are not known: without text, only a message that
        requests the rest identifies it.
        """
        if added.others and not (pending.tail or pending.paused):
            ran = all(
                "tool" in kind or kind.endswith(("_call", "_call_output")) for kind in added.others
            )
            if not (ran and self._prompts.ask(added.rest)):
                return False
        if not (added.ids or added.names):
            return True
        if any(call.id in added.ids for call in pending.calls):
            return True
        if any(map(self._is_known_id, added.ids)):
            return False
        # The framework assigned its own ids, or none.
        return bool(pending.calls) and added.names.issubset([call.name for call in pending.calls])

    def _goes_on_alone(self, added: Sequence[Any], tail: str) -> bool:
        """Return whether the messages request the rest of an answer that the history omits."""
        if tail and not any(
            role(message) == "user" and mentions_cut(text_of(message)) for message in added[:1]
        ):
            return False
        return self._prompts.ask(added, tail)

    def _repeated_request(self, pending: PendingTurn, request: RequestSummary) -> Verdict:
        """Return the relation of a call that adds no message to a truncated one.

        It continues the truncated one only if its limit is larger. With the same limit it is
        another sample of the prompt, and also if another turn has the prompt: taking samples for
        continuations would hide truncated answers in batch jobs. Soon after a lost connection it is
        a retry.
        """
        if request.facts.model != pending.turn.model:
            return UNRELATED  # one prompt for several models: each has its own turn
        if (
            request.facts.output_type != pending.output_type
            or request.forces_tool != pending.forces_tool
        ):
            # another question about the same text: a title of the conversation, for instance
            return UNRELATED
        maximum = request.facts.max_tokens
        is_raised = pending.maximum is not None and (maximum is None or maximum > pending.maximum)
        is_retry = self._clock() <= pending.retry_until
        if not (is_retry or is_raised):
            return UNRELATED
        if pending.turn.kind is TurnKind.IMPLICIT and self._recent.is_sampled(
            prompt_of(request), pending.turn, self._clock()
        ):
            return UNRELATED
        return Verdict(SAME, Strategy.RETRY if is_retry else Strategy.RESEND)


def _likeness(pending: PendingTurn, text: str) -> int:
    """Rate the certainty that a text repeats the truncated answer.

    Hosts strip an answer, append to it, and merge parts into one.
    """
    likeness = (
        repeats_answer(text, pending.tail, is_all=pending.is_all)
        if pending.tail
        else SAME * (not text)
    )
    if likeness != SAME and pending.joined:
        joined = _joined(text)
        is_repeated = (
            joined.endswith(pending.joined)
            if len(pending.joined) >= QUOTED
            else joined == pending.joined
        )
        return SAME if is_repeated else likeness
    return likeness


def _joined(text: str) -> str:
    return "".join(text.split())


def _answers_any(messages: Sequence[Any], calls: Sequence[RequestedCall]) -> bool:
    """Return whether the first message has a result of one of these tool calls.

    Results are matched by id, or by name if they have no id.
    """
    results = tool_results(messages[0])
    ids, names = {call.id for call in calls}, {call.name for call in calls}
    return any(
        result.call_id in ids if result.call_id else result.name in names for result in results
    )


def pending_turn(
    ended: CallEnded,
    request: RequestSummary,
    tail: str,
    before: PendingTurn | None,
    tool_calls: Sequence[RequestedCall] = (),
    *,
    has_failed: bool,
    now: float,
    deadline: float,
) -> PendingTurn:
    """Return the entry that identifies the continuation of a call; without keys if nothing can.

    Args:
        ended: the record of the call's end.
        request: the summary of its request.
        tail: the last visible characters of the response.
        before: the entry of the turn that the call continued.
        tool_calls: the tool calls of the response.
        has_failed: the call raised, so the answer that it continued is still the truncated one.
        now: the time.
        deadline: the time until which the turn waits.
    """
    started = ended.started
    own = [
        (prefix.length, prefix.digest)
        for bare in (False, True)
        for prefix in full_prefix(request, bare=bare)
    ]
    first = (before and before.first) or tuple(own)
    openings = (*(before.openings[:1] if before else ()), opening_hash(request))
    retried = before if has_failed else None
    server_keys = _server_keys(ended.response.id, request.conversation_id)
    keys = tuple(dict.fromkeys((*first, *own, *server_keys)))
    openings = tuple(dict.fromkeys(openings))
    joined = "" if before is None else _joined((before.joined or before.tail) + tail)[-TAIL:]
    return PendingTurn(
        turn=started.turn,
        number=started.number if retried is None else retried.number,
        question=question_of(request) if started.turn.kind is TurnKind.OBSERVED else None,
        first=first,
        openings=openings
        if retried is None
        else tuple(dict.fromkeys((*retried.cut_openings, *openings))),
        keys=keys if retried is None else tuple(dict.fromkeys((*retried.cut_keys, *keys))),
        cut_keys=keys if retried is None else retried.cut_keys,
        cut_openings=openings if retried is None else retried.cut_openings,
        tail=comparable(tail) if retried is None else retried.tail,
        is_all=len(tail) < TAIL if retried is None else retried.is_all,
        joined=joined if retried is None else retried.joined,
        calls=tuple(tool_calls) if retried is None else retried.calls,
        retry_until=inf
        if has_failed
        else now + RETRY_S
        if ended.stop.reason is StopReason.MISSING
        else -inf,
        has_failed=has_failed,
        paused=ended.stop.reason is StopReason.PAUSED,
        maximum=request.facts.max_tokens,
        output_type=request.facts.output_type,
        forces_tool=request.forces_tool,
        deadline=deadline,
    )


def _may_continue(truncated_turn: Turn, turn: Turn | None) -> bool:
    """Return whether a call in this turn, or in none, may continue the truncated turn."""
    if truncated_turn.waiting_since_s is not None:
        # An agent's ended run: a new run may continue it, or a call outside any turn.
        return turn is None or (turn.recognised and not turn.iterations)
    return truncated_turn is turn if turn is not None else truncated_turn.kind is TurnKind.IMPLICIT


def _server_keys(response_id: str | None, conversation_id: str | None) -> list[Key]:
    """Return the keys of a response and a conversation that a server keeps."""
    return [
        (kind, name)
        for kind, name in (("response", response_id), ("conversation", conversation_id))
        if name
    ]
