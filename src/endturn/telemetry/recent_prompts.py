"""Prompts that were asked a short while ago: one that several turns ask is being sampled.

Best-of-n, evaluations and batch jobs ask the same again and again. A call that asks it once more is
the next sample, and no second attempt of one that failed or was cut off.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Final

from endturn.calls import Turn
from endturn.formats import RequestSummary
from endturn.telemetry.cleanup import remember
from endturn.telemetry.fingerprints import brief_at, text_ends

RECENT_S: Final = 60.0
"""Seconds for which it counts that a turn asked a prompt."""

REMEMBERED_PROMPTS: Final = 4_096
"""How many prompts are remembered at most."""


Asked = tuple[str, float, float]
"""Who asked a prompt: the id of the latest turn that did, when it did, and when another turn last
did."""


class RecentPrompts:
    """Knows which prompts several turns ask. Not safe for threads: the caller holds a lock."""

    def __init__(self) -> None:
        self._asked: OrderedDict[int, Asked] = OrderedDict()

    def note(self, prompt: int, turn: Turn, now_s: float) -> None:
        """Remember that a turn asks this prompt."""
        inquiry = self._asked.pop(prompt, None)  # the latest stays longest
        other_s = -inf if inquiry is None else _by_others_s(inquiry, turn)
        remember(self._asked, prompt, (turn.id, now_s, other_s), most=REMEMBERED_PROMPTS)

    def is_sampled(self, prompt: int, turn: Turn, now_s: float) -> bool:
        """Tell whether another turn than this one asked the prompt a short while ago."""
        inquiry = self._asked.get(prompt)
        return inquiry is not None and now_s - _by_others_s(inquiry, turn) <= RECENT_S

    def is_asked_by_several(self, prompt: int, now_s: float) -> bool:
        """Tell whether it is sampled for whatever turn.

        Several asked the prompt a short while ago.
        """
        inquiry = self._asked.get(prompt)
        return inquiry is not None and now_s - inquiry[2] <= RECENT_S

    def withdraw(self, prompt: int, turn: Turn) -> None:
        """Forget that a turn asked a prompt: its only call was none."""
        inquiry = self._asked.get(prompt)
        if inquiry is not None and inquiry[0] == turn.id:
            del self._asked[prompt]


def _by_others_s(times_asked: Asked, turn: Turn) -> float:
    """Return when another turn than this one last asked a prompt."""
    turn_id, latest_s, other_s = times_asked
    return other_s if turn_id == turn.id else latest_s


def prompt_of(request: RequestSummary) -> int:
    """Compute by what a prompt is known again, whatever its limit.

    It costs the same for any history.

    Two prompts that are alike at their ends count as one: then less is joined.
    """
    last, system = request.length - 1, request.system
    names = request.facts.model, request.facts.previous_response_id, request.conversation_id
    ends = (brief_at(request, 0)[0], brief_at(request, last)[0]) if last >= 0 else ()
    instructions = text_ends(system) if isinstance(system, str) else None
    return hash((*names, instructions, last, ends))
