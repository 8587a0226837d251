"""Turns whose response was truncated: how the call that continues them is recognised.

A turn is found again by the history of its calls, or by the id of the response or of the
conversation. Only hashes and the response's last 64 characters are kept, and nothing is hashed
while no turn waits.
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
"""How many turns may wait at once; the oldest ends first."""

FEW: Final = 64
"""Turns with one history that are compared one by one. Of more, most are left out before."""

Key = tuple[int | str, bytes | str]
"""A history: how many messages it has, and their hash. Or what a server keeps: "response" or
"conversation", its id."""


class Relation(Enum):
    """How a call relates to a truncated one that it does not continue."""

    MOVED_ON = auto()
    """It is of the same conversation, and leaves the truncated response as it is."""
    RAN_TOOLS = auto()
    """It sends results of the truncated response's tool calls: the same turn, which stays
    unfinished."""
    TOOK_OTHER = auto()
    """It sends results of another choice's tool calls: the same turn, in which the truncated choice
    is not used."""


class Verdict(NamedTuple):
    """How a call relates to a truncated one.

    Attributes:
        likeness: how surely it is of the same conversation; 0: it is not.
        relation: the strategy with which it continues the truncated response, or how else it
            relates to it.
    """

    likeness: int
    relation: Strategy | Relation = Relation.MOVED_ON


SAME: Final = 2
"""As surely as can be: a lesser likeness is of an answer whose end the host has changed."""

UNRELATED: Final = Verdict(0)


@dataclass(slots=True, eq=False, kw_only=True)
class PendingTurn:
    """A turn whose response was cut off, and how its continuation would be known.

    Attributes:
        number: of the call.
        question: in an observed turn, the digest of the user's message that it answers.
        first: the history of the turn's first call, with its system prompts and without.
        openings: how these histories begin, and that of its latest call; None: as any may.
        cut_keys: what the cut call is found by, however many attempts to continue it have failed;
            cut_openings: alike.
        keys: that, and the history and the names of its latest call: frameworks append each part,
            or merge them.
        tail: the last visible characters of the cut answer, comparable; is_all: they are all of it.
        joined: those of all parts so far without white space, where the answer is not the first;
            hosts merge parts.
        calls: the tool calls of the cut response, with those of other choices, which are not
            truncated.
        retry_until: until when the same request is a retry, by the clock: the transport cut the
            response, or the continuation failed.
        failed: the latest attempt raised.
        paused: nothing was cut: the provider goes on when the response is sent back.
        maximum: the output limit that cut it.
        output_type, forces_tool: what the answer was to be, as the request says.
        deadline: until when it waits, by the clock.
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
    failed: bool
    paused: bool
    maximum: int | None
    output_type: str | None
    forces_tool: bool
    deadline: float


class _Added:
    """What a call says beyond the call that was cut.

    The answer as the host sends it back, and what follows it.

    Attributes:
        messages: all of it.
        answers: the answer; a format may tell one in several messages.
        text: its text, comparable.
        rest: the messages after it.
        ids, names: of the tool calls in the answer, and of those that the results right after it
            answer.
        others: the kinds of what the answer holds besides: what the server ran, media.
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
        named = [call for message in self.answers for call in calls_of(message)]
        for results in takewhile(bool, map(tool_results, self.rest)):
            named += results
        self.ids, self.names = (
            {*column} - {""} for column in zip(*(named or [("", "")]), strict=True)
        )


Candidate = tuple[int, PendingTurn, _Added]
"""A turn, where what a call adds to its history begins, and what that is."""


class TruncatedTurns:
    """The turns that wait for a continuation.

    Args:
        lock: held while entries are added, removed or compared, never while a history is hashed.
        clock: seconds, monotonic.
        recent: knows which prompts several turns ask.
        moved_on: ends turns that a call shows to have been left.
        is_known_id: tells whether a response of this process asked for a tool call of that id.
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
        """By the two halves of their keys, the oldest first."""
        self._openings: Counter[int | None] = Counter()
        """How many histories begin so. A call whose history begins otherwise goes on with none: it
        is not hashed."""
        self._of_turn: dict[str, dict[int, PendingTurn]] = {}
        """Of explicit turns, by the turn's id and by the calls' numbers."""

    def add(self, pending: PendingTurn) -> list[PendingTurn]:
        """Have a turn wait; return the oldest ones beyond the bound."""
        for kind, name in pending.keys:
            named = self._by_key.setdefault(kind, {})
            named[name] = (*named.get(name, ()), pending)
        self._openings.update(pending.openings)
        if pending.turn.kind is TurnKind.OBSERVED:
            self._of_turn.setdefault(pending.turn.id, {})[pending.number] = pending
        return self.waiting.add(pending)

    def of_turn(self, turn: Turn) -> list[PendingTurn]:
        """List the truncated responses of an observed turn that wait."""
        return list(self._of_turn.get(turn.id, {}).values())

    def remove(self, pending: PendingTurn) -> bool:
        """Remove a turn; False where it does not wait any more."""
        if not self.waiting.remove(pending):
            return False
        for kind, name in pending.keys:
            named = self._by_key[kind]
            cuts = named[name]
            place = cuts.index(pending)
            named[name] = cuts[:place] + cuts[place + 1 :]
            if not named[name]:
                del named[name]
            if not named:
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
        """Find and remove the turn that a call goes on with, and say how.

        Turns that it shows to have been left end.

        Args:
            turn: the explicit turn that the call is made in.
        """
        opening = opening_hash(request)
        with self._lock:
            is_known = opening in self._openings or None in self._openings
            kinds = self._by_key if is_known else ()
            lengths = sorted(
                kind for kind in kinds if isinstance(kind, int) and kind <= request.length
            )
        for bare in (False, True):
            # One that is the same but for its system prompts has to repeat the answer.
            begun = [length for length in lengths if length < request.length] if bare else lengths
            # Outside the lock: a long history takes a while.
            matching_prefixes = prefixes(request, begun, bare=bare) if begun else []
            begins: dict[Key, int] = {
                (prefix.length, prefix.digest): prefix.end for prefix in matching_prefixes
            }
            begins |= (
                {}
                if bare
                else dict.fromkeys(
                    _names(request.facts.previous_response_id, request.conversation_id), 0
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
        """List the turns that have one of these keys, and that a call may go on with.

        The longest history first, those found by name last; among equals those of the same model,
        pauses, the latest.
        """
        rows: list[Candidate] = []
        for (kind, name), begin in begins.items():
            cuts: Sequence[PendingTurn] = self._by_key.get(kind, {}).get(name, ())
            if not cuts:
                continue
            added = _Added(request.history[begin : request.length])
            if begin and not added.messages:
                cuts = self._unsampled(cuts, request)
            elif begin and added.answers and len(cuts) > FEW:
                cuts = self._narrowed(cuts, added)
            rows += [(begin, pending, added) for pending in reversed(cuts)]
        return sorted(
            rows,
            key=lambda row: (-row[0], row[1].turn.model != request.facts.model, not row[1].paused),
        )

    def _unsampled(
        self, cuts: Sequence[PendingTurn], request: RequestSummary
    ) -> Sequence[PendingTurn]:
        """Leave out the implicit turns where several ask the same prompt.

        A call that asks it again is a sample.
        """
        if not self._recent.is_asked_by_several(prompt_of(request), self._clock()):
            return cuts
        return (
            [pending for pending in cuts if pending.turn.kind is not TurnKind.IMPLICIT]
            if self._of_turn
            else ()
        )

    def _narrowed(self, cuts: Sequence[PendingTurn], added: _Added) -> Sequence[PendingTurn]:
        """Drop the turns whose calls or answer a call does not send back.

        Used where many turns have one history.
        """
        ids, answers_text = added.ids, added.text
        if any(map(self._is_known_id, ids)):
            cuts = [
                pending
                for pending in cuts
                if any(call.id in ids or call.is_beside for call in pending.calls)
            ]
        same = [
            pending
            for pending in cuts
            if answers_text.endswith(pending.tail) or pending.joined or pending.calls
        ]
        if same:
            return same
        pieces = {answers_text[place : place + QUOTED] for place in range(len(answers_text))}
        return [
            pending
            for pending in cuts
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
        """How the call relates to what was cut.

        Args:
            begin: where what it says beyond the cut call begins in its history; 0 where it only
                names that.
            bare: the histories are the same but for their system prompts.
        """
        tail, likeness = pending.tail, SAME
        if added.rest and _answers_any(
            added.rest, [call for call in pending.calls if call.is_beside]
        ):
            return Verdict(SAME, Relation.TOOK_OTHER)
        if bare and not (added.answers and tail):
            # another agent was asked the same: its instructions are all that tells it apart
            return UNRELATED
        if begin and not added.messages:
            return self._repeated_request(pending, request)
        if begin and not self._holds_own(pending, added):
            return UNRELATED  # a step of another run that was asked the same
        if added.answers:
            likeness = _likeness(pending, added.text)
            if not likeness:
                return UNRELATED  # another sample of the same prompt: somebody else's conversation
        elif begin and not self._goes_on_alone(added.messages, tail):
            # An answer of which nothing could be seen may be left out; another may not, unless a
            # message speaks of it.
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
        """Return whether the tool calls, results and media sent may be those of the cut response.

        Several runs may have been asked the same, and said as much: their ids tell them apart. What
        the server ran in a truncated response is not known: without text, only a message that asks
        for the rest says that it was cut.
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
        # A framework gave the calls ids of its own, or none.
        return bool(pending.calls) and added.names.issubset([call.name for call in pending.calls])

    def _goes_on_alone(self, added: Sequence[Any], tail: str) -> bool:
        """Return whether the messages ask for the rest of an answer that the history omits."""
        if tail and not any(
            role(message) == "user" and mentions_cut(text_of(message)) for message in added[:1]
        ):
            return False
        return self._prompts.ask(added, tail)

    def _repeated_request(self, pending: PendingTurn, request: RequestSummary) -> Verdict:
        """The same of a call that adds nothing.

        Only a larger limit says that the rest is wanted. With the same limit it is another sample
        of the prompt, and so it is where another turn asks the prompt, too: to take a sample for a
        continuation would hide truncated answers wherever one prompt is asked many times. After a
        lost connection the same is asked again at once.
        """
        if request.facts.model != pending.turn.model:
            return UNRELATED  # one prompt sent to several models: each has its own turn
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
    """How surely a text repeats what was cut.

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
    """Return whether the first message holds a result of one of these calls.

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
    failed: bool,
    now: float,
    deadline: float,
) -> PendingTurn:
    """Describe how the continuation of a call would be known; without keys where it could not be.

    Args:
        before: what the call continued.
        failed: the call raised: what it continued is still what is cut.
    """
    started = ended.started
    own = [
        (prefix.length, prefix.digest)
        for bare in (False, True)
        for prefix in full_prefix(request, bare=bare)
    ]
    first = (before and before.first) or tuple(own)
    openings = (*(before.openings[:1] if before else ()), opening_hash(request))
    retried = before if failed else None
    keys = tuple(dict.fromkeys((*first, *own, *_names(ended.response.id, request.conversation_id))))
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
        if failed
        else now + RETRY_S
        if ended.stop.reason is StopReason.MISSING
        else -inf,
        failed=failed,
        paused=ended.stop.reason is StopReason.PAUSED,
        maximum=request.facts.max_tokens,
        output_type=request.facts.output_type,
        forces_tool=request.forces_tool,
        deadline=deadline,
    )


def _may_continue(truncated_turn: Turn, turn: Turn | None) -> bool:
    """Return whether a call in this turn, or in none, may continue the truncated turn."""
    if (
        truncated_turn.waiting_since_s is not None
    ):  # an agent's run that is over: a new run may, or a call of nobody's
        return turn is None or (turn.recognised and not turn.iterations)
    return truncated_turn is turn if turn is not None else truncated_turn.kind is TurnKind.IMPLICIT


def _names(response_id: str | None, conversation_id: str | None) -> list[Key]:
    """What a server knows a response, and its conversation, by."""
    return [
        (kind, name)
        for kind, name in (("response", response_id), ("conversation", conversation_id))
        if name
    ]
