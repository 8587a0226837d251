"""Turns whose response was truncated, and recognition of the call that continues them.

A turn is found by the history of its calls, or by the id of the response or the conversation. Only
hashes and the last 64 characters of the response are kept, and nothing is hashed while no turn
waits.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from endturn.telemetry.continuation_requests import (
    QUOTED,
    comparable_text,
    mentions_truncation,
    repeats_answer,
)
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

MAX_PENDING_TURNS: Final = 1_024
"""Maximum number of turns that wait; the oldest ends first."""

FILTER_ABOVE: Final = 64
"""Number of turns with one history above which they are filtered before each is compared."""

Key = tuple[int | str, bytes | str]
"""The key of a history: its number of messages and their hash. Or of a server-side object:
"response" or "conversation", and its id."""


class Relation(Enum):
    """The relation of a call to a truncated one that it does not continue."""

    MOVED_ON = auto()
    """It is of the same conversation, and leaves the truncated response unfinished."""
    SENDS_RESULTS = auto()
    """It sends results of the truncated response's tool calls: the same turn, still unfinished."""
    SENDS_OTHER_CHOICE = auto()
    """It sends results of the tool calls of another choice (of `n`): the same turn, which no longer
    needs the truncated choice."""


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
        first_keys: the keys of the turn's first call: its history with system prompts and without.
        opening_hashes: the opening hashes of the first and the latest call's history. None stands
            for any: the request only names a response on the server.
        truncated_keys: the keys of the truncated call; a failed continuation does not change them.
        truncated_opening_hashes: the opening hashes of the truncated call.
        keys: all keys by which the next call may be found. They include those of the first call,
            since a framework may append each part to the history, or merge all of them into one.
        tail: the last visible characters of the truncated answer, as `comparable_text`.
        is_full_answer: `tail` is the complete answer.
        merged_tail: the last characters of all parts of the answer, without white space, for hosts
            that merge them; empty if there is only one part.
        calls: the tool calls of the truncated response, and those of other choices, which are not
            truncated.
        retry_until: the time until which the same request is a retry, because the connection was
            lost or the continuation failed.
        has_failed: the latest attempt raised.
        is_paused: the response is not truncated: the provider paused it, and resumes when it is
            sent back.
        maximum: the output limit of the request.
        output_type, forces_tool: the kind of answer that the request asked for.
        deadline: the time until which it waits.
    """

    turn: Turn
    number: int
    question: bytes | None
    first_keys: tuple[Key, ...]
    opening_hashes: tuple[int | None, ...]
    keys: tuple[Key, ...]
    truncated_keys: tuple[Key, ...]
    truncated_opening_hashes: tuple[int | None, ...]
    tail: str
    is_full_answer: bool
    merged_tail: str
    calls: tuple[RequestedCall, ...]
    retry_until: float
    has_failed: bool
    is_paused: bool
    maximum: int | None
    output_type: str | None
    forces_tool: bool
    deadline: float


class _AddedMessages:
    """The messages of a call after the history of the truncated call.

    Attributes:
        messages: all of them.
        answers: the answer as the host sends it back; a format may have several messages for it.
        text: the text of the answer, as `comparable_text`.
        rest: the messages after the answer.
        ids, names: of the tool calls in the answer, and of the results right after it.
        other_kinds: the kinds of the answer's other parts, such as server tools and media.
    """

    __slots__ = ("answers", "ids", "messages", "names", "other_kinds", "rest", "text")

    def __init__(self, messages: Sequence[Any]) -> None:
        self.messages = messages
        self.answers = list(
            takewhile(lambda message: role(message) in ("assistant", "thought"), messages)
        )
        self.rest = messages[len(self.answers) :]
        self.text = comparable_text(
            "".join(text_of(message) for message in self.answers if role(message) == "assistant")
        )
        self.other_kinds = [kind for message in self.answers for kind in parts_beside_text(message)]
        calls = [call for message in self.answers for call in calls_of(message)]
        for results in takewhile(bool, map(tool_results, self.rest)):
            calls += results
        self.ids = {call_id for call_id, _ in calls if call_id}
        self.names = {name for _, name in calls if name}


Candidate = tuple[int, PendingTurn, _AddedMessages]
"""The index at which the added messages begin, a turn whose history comes before, and these
messages."""


class PendingTurns:
    """The turns that wait for a continuation.

    Args:
        lock: held while entries are added, removed or compared, never while a history is hashed.
        clock: seconds, monotonic.
        prompts: recognises requests for the rest.
        recent: recognises the prompts of several turns.
        end_turns: ends turns whose conversation goes on without a continuation (`MOVED_ON`).
        is_known_id: returns whether a response of this process had a tool call with that id.
    """

    def __init__(
        self,
        lock: threading.RLock,
        clock: Callable[[], float],
        prompts: ContinuePrompts,
        recent: RecentPrompts,
        end_turns: Callable[[list[PendingTurn]], None],
        is_known_id: Callable[[str], bool],
    ) -> None:
        self._lock = lock
        self._clock = clock
        self._prompts = prompts
        self._recent = recent
        self._end_turns = end_turns
        self._is_known_id = is_known_id
        self.waiting: WaitingTurns[PendingTurn] = WaitingTurns(MAX_PENDING_TURNS)
        self._by_key: dict[int | str, dict[bytes | str, tuple[PendingTurn, ...]]] = {}
        """By the two parts of their keys, the oldest first."""
        self._openings: Counter[int | None] = Counter()
        """The number of histories with each opening hash. A call with another one continues none of
        them, so its history is not hashed."""
        self._of_turn: dict[str, dict[int, PendingTurn]] = {}
        """Of observed turns, by the turn's id and the call's number."""

    def add(self, pending: PendingTurn) -> list[PendingTurn]:
        """Add a waiting turn. Returns the oldest ones beyond the limit, which the caller ends."""
        for kind, key_id in pending.keys:
            by_id = self._by_key.setdefault(kind, {})
            by_id[key_id] = (*by_id.get(key_id, ()), pending)
        self._openings.update(pending.opening_hashes)
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
        for kind, key_id in pending.keys:
            by_id = self._by_key[kind]
            turns = by_id[key_id]
            index = turns.index(pending)
            by_id[key_id] = turns[:index] + turns[index + 1 :]
            if not by_id[key_id]:
                del by_id[key_id]
            if not by_id:
                del self._by_key[kind]
        for opening in pending.opening_hashes:
            self._openings[opening] -= 1
            if not self._openings[opening]:
                del self._openings[opening]
        if pending.turn.kind is TurnKind.OBSERVED:
            of_turn = self._of_turn[pending.turn.id]
            del of_turn[pending.number]
            if not of_turn:
                del self._of_turn[pending.turn.id]
        return True

    def pop_match(
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
        for ignore_system in (False, True):
            # The second pass ignores system prompts. It only takes a history that is followed by
            # more messages, since the call must repeat the answer.
            candidate_lengths = (
                [length for length in lengths if length < request.length]
                if ignore_system
                else lengths
            )
            # Outside the lock: hashing a long history takes a while.
            matching_prefixes = (
                prefixes(request, candidate_lengths, ignore_system=ignore_system)
                if candidate_lengths
                else []
            )
            starts: dict[Key, int] = {
                (prefix.length, prefix.digest): prefix.end for prefix in matching_prefixes
            }
            starts |= (
                {}
                if ignore_system
                else dict.fromkeys(
                    _server_keys(request.facts.previous_response_id, request.conversation_id), 0
                )
            )
            if not starts:
                continue
            moved_on_turns: list[PendingTurn] = []
            best: tuple[int, PendingTurn, Strategy | Relation] | None = None
            with self._lock:
                for start, pending, added in self._candidates(request, starts):
                    if not _may_continue(pending.turn, turn):
                        continue
                    likeness, relation = self._judge(
                        pending, request, start, added, ignore_system=ignore_system
                    )
                    if not likeness:
                        continue
                    if relation is not Relation.MOVED_ON and (best is None or likeness > best[0]):
                        best = likeness, pending, relation
                    else:
                        moved_on_turns.append(pending)
                    if best is not None and best[0] == SAME:
                        break
                if best is not None:
                    _, pending, relation = best
                    self.remove(pending)
                    return pending, relation
            self._end_turns(moved_on_turns)
            if moved_on_turns:
                break
        return None

    def _candidates(self, request: RequestSummary, starts: Mapping[Key, int]) -> list[Candidate]:
        """List the turns with one of these keys that a call may continue.

        The longest history comes first, matches by a server's id last; among equals those of the
        same model, then paused ones, then the latest.
        """
        rows: list[Candidate] = []
        for (kind, key_id), start in starts.items():
            turns: Sequence[PendingTurn] = self._by_key.get(kind, {}).get(key_id, ())
            if not turns:
                continue
            added = _AddedMessages(request.history[start : request.length])
            if start and not added.messages:
                turns = self._without_shared_prompt(turns, request)
            elif start and added.answers and len(turns) > FILTER_ABOVE:
                turns = self._filter(turns, added)
            rows += [(start, pending, added) for pending in reversed(turns)]
        return sorted(
            rows,
            key=lambda row: (
                -row[0],
                row[1].turn.model != request.facts.model,
                not row[1].is_paused,
            ),
        )

    def _without_shared_prompt(
        self, turns: Sequence[PendingTurn], request: RequestSummary
    ) -> Sequence[PendingTurn]:
        """Leave out implicit turns if several turns have the prompt, as in best-of-n.

        The call then begins another turn with that prompt.
        """
        if not self._recent.is_used_by_several(prompt_of(request), self._clock()):
            return turns
        return (
            [pending for pending in turns if pending.turn.kind is not TurnKind.IMPLICIT]
            if self._of_turn
            else ()
        )

    def _filter(self, turns: Sequence[PendingTurn], added: _AddedMessages) -> Sequence[PendingTurn]:
        """Drop the turns whose tool calls or answer a call does not send back.

        Used if many turns have one history.
        """
        ids, answers_text = added.ids, added.text
        if any(map(self._is_known_id, ids)):
            turns = [
                pending
                for pending in turns
                if any(call.id in ids or call.is_other_choice for call in pending.calls)
            ]
        same = [
            pending
            for pending in turns
            if answers_text.endswith(pending.tail) or pending.merged_tail or pending.calls
        ]
        if same:
            return same
        pieces = {answers_text[index : index + QUOTED] for index in range(len(answers_text))}
        return [
            pending
            for pending in turns
            if len(pending.tail) < QUOTED or pending.tail[:QUOTED] in pieces
        ]

    def _judge(
        self,
        pending: PendingTurn,
        request: RequestSummary,
        start: int,
        added: _AddedMessages,
        *,
        ignore_system: bool,
    ) -> Verdict:
        """Return the relation of a call to a truncated one.

        Args:
            pending: the turn of the truncated call.
            request: the summary of the call's request.
            start: the index at which the added messages begin; 0 if the call only names the
                truncated response.
            added: the added messages.
            ignore_system: the histories are equal except for their system prompts.
        """
        tail, likeness = pending.tail, SAME
        if added.rest and _answers_any(
            added.rest, [call for call in pending.calls if call.is_other_choice]
        ):
            return Verdict(SAME, Relation.SENDS_OTHER_CHOICE)
        if ignore_system and not (added.answers and tail):
            # another agent with the same prompt: only its instructions differ
            return UNRELATED
        if start and not added.messages:
            return self._repeated_request(pending, request)
        if start and not self._has_own_parts(pending, added):
            return UNRELATED  # a step of another run with the same prompt
        if added.answers:
            likeness = _likeness(pending, added.text)
            if not likeness:
                return UNRELATED  # another sample of the same prompt, in another conversation
        elif start and not self._requests_rest_without_answer(added.messages, tail):
            # Only an answer without visible text may be left out of the history, unless a message
            # mentions the truncation.
            return Verdict(SAME) if role(added.messages[0]) in ("user", "tool") else UNRELATED
        if not added.rest:
            return Verdict(likeness, Strategy.RESEND if pending.is_paused else Strategy.PREFILL)
        if pending.is_paused:
            return Verdict(likeness)
        if is_call_refused(added.rest, tail):
            return Verdict(likeness, Strategy.REPAIR)
        if tool_results(added.rest[0]):
            return Verdict(likeness, Relation.SENDS_RESULTS)
        return Verdict(
            likeness,
            Strategy.PROMPT if self._prompts.matches(added.rest, tail) else Relation.MOVED_ON,
        )

    def _has_own_parts(self, pending: PendingTurn, added: _AddedMessages) -> bool:
        """Return whether the sent tool calls, results and media may be of the truncated response.

        Several runs may have the same prompt and the same text: the ids distinguish them. The
        server tools of a truncated response are not recorded, so an answer that has only those is
        matched only if a message requests the rest.
        """
        if added.other_kinds and not (pending.tail or pending.is_paused):
            are_tools = all(
                "tool" in kind or kind.endswith(("_call", "_call_output"))
                for kind in added.other_kinds
            )
            if not (are_tools and self._prompts.matches(added.rest)):
                return False
        if not (added.ids or added.names):
            return True
        if any(call.id in added.ids for call in pending.calls):
            return True
        if any(map(self._is_known_id, added.ids)):
            return False
        # The framework assigned its own ids, or none.
        return bool(pending.calls) and added.names.issubset([call.name for call in pending.calls])

    def _requests_rest_without_answer(self, added: Sequence[Any], tail: str) -> bool:
        """Return whether the messages request the rest of an answer that the history omits."""
        if tail and not any(
            role(message) == "user" and mentions_truncation(text_of(message))
            for message in added[:1]
        ):
            return False
        return self._prompts.matches(added, tail)

    def _repeated_request(self, pending: PendingTurn, request: RequestSummary) -> Verdict:
        """Return the relation of a call that adds no message to a truncated one.

        It is a continuation (RESEND) if its output limit is larger, and a retry soon after a lost
        connection. Otherwise, or if another turn has the same prompt, it is unrelated: batch jobs
        and best-of-n send one prompt many times, and their truncated answers stay unfinished.
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
        if pending.turn.kind is TurnKind.IMPLICIT and self._recent.is_used_by_another(
            prompt_of(request), pending.turn, self._clock()
        ):
            return UNRELATED
        return Verdict(SAME, Strategy.RETRY if is_retry else Strategy.RESEND)


def _likeness(pending: PendingTurn, text: str) -> int:
    """Rate the certainty that a text repeats the truncated answer.

    Hosts strip an answer, append to it, and merge parts into one.
    """
    likeness = (
        repeats_answer(text, pending.tail, is_full_answer=pending.is_full_answer)
        if pending.tail
        else (0 if text else SAME)
    )
    if likeness != SAME and pending.merged_tail:
        compact_text = _without_spaces(text)
        is_repeated = (
            compact_text.endswith(pending.merged_tail)
            if len(pending.merged_tail) >= QUOTED
            else compact_text == pending.merged_tail
        )
        return SAME if is_repeated else likeness
    return likeness


def _without_spaces(text: str) -> str:
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
    previous: PendingTurn | None,
    tool_calls: Sequence[RequestedCall] = (),
    *,
    has_failed: bool,
    now: float,
    deadline: float,
) -> PendingTurn:
    """Return the entry by which a call's continuation can be recognised.

    It has no keys if the request and the response have no data that could identify one.

    Args:
        ended: the record of the call's end.
        request: the summary of its request.
        tail: the last visible characters of the response.
        previous: the entry of the turn that the call continued.
        tool_calls: the tool calls of the response.
        has_failed: the call raised, so the answer that it continued is still the truncated one.
        now: the time.
        deadline: the time until which the turn waits.
    """
    started = ended.started
    request_keys = [
        (prefix.length, prefix.digest)
        for ignore_system in (False, True)
        for prefix in full_prefix(request, ignore_system=ignore_system)
    ]
    first_keys = (previous and previous.first_keys) or tuple(request_keys)
    opening_hashes = (*(previous.opening_hashes[:1] if previous else ()), opening_hash(request))
    server_keys = _server_keys(ended.response.id, request.conversation_id)
    keys = tuple(dict.fromkeys((*first_keys, *request_keys, *server_keys)))
    opening_hashes = tuple(dict.fromkeys(opening_hashes))
    merged_tail = (
        ""
        if previous is None
        else _without_spaces((previous.merged_tail or previous.tail) + tail)[-TAIL:]
    )
    pending = PendingTurn(
        turn=started.turn,
        number=started.number,
        question=question_of(request) if started.turn.kind is TurnKind.OBSERVED else None,
        first_keys=first_keys,
        opening_hashes=opening_hashes,
        keys=keys,
        truncated_keys=keys,
        truncated_opening_hashes=opening_hashes,
        tail=comparable_text(tail),
        is_full_answer=len(tail) < TAIL,
        merged_tail=merged_tail,
        calls=tuple(tool_calls),
        retry_until=now + RETRY_S if ended.stop.reason is StopReason.MISSING else -inf,
        has_failed=has_failed,
        is_paused=ended.stop.reason is StopReason.PAUSED,
        maximum=request.facts.max_tokens,
        output_type=request.facts.output_type,
        forces_tool=request.forces_tool,
        deadline=deadline,
    )
    if not has_failed:
        return pending
    pending.retry_until = inf
    return pending if previous is None else _of_failed_continuation(pending, previous)


def _of_failed_continuation(pending: PendingTurn, previous: PendingTurn) -> PendingTurn:
    """Return the entry after a failed continuation: it waits with the same truncated answer."""
    return replace(
        pending,
        number=previous.number,
        opening_hashes=tuple(
            dict.fromkeys((*previous.truncated_opening_hashes, *pending.opening_hashes))
        ),
        keys=tuple(dict.fromkeys((*previous.truncated_keys, *pending.keys))),
        truncated_keys=previous.truncated_keys,
        truncated_opening_hashes=previous.truncated_opening_hashes,
        tail=previous.tail,
        is_full_answer=previous.is_full_answer,
        merged_tail=previous.merged_tail,
        calls=previous.calls,
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
        (kind, key_id)
        for kind, key_id in (("response", response_id), ("conversation", conversation_id))
        if key_id
    ]
