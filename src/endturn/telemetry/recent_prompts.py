"""Recent prompts. A prompt of several turns is sampled.

Best-of-n, evaluations and batch jobs send one prompt many times. Another call with it is the next
sample, not a retry of a failed call or a continuation of a truncated one.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Final

from endturn.calls import Turn
from endturn.formats import RequestSummary
from endturn.telemetry.cleanup import put_bounded
from endturn.telemetry.fingerprints import message_brief, text_ends

RECENT_S: Final = 60.0
"""Seconds for which a turn's use of a prompt counts."""

REMEMBERED_PROMPTS: Final = 4_096
"""Maximum number of prompts that are remembered."""


PromptUse = tuple[str, float, float]
"""The use of a prompt: the id of its latest turn, that turn's time, and the latest time of another
turn."""


class RecentPrompts:
    """Detects the prompts of several turns. Not thread-safe: the caller holds a lock."""

    def __init__(self) -> None:
        self._uses: OrderedDict[int, PromptUse] = OrderedDict()

    def note(self, prompt: int, turn: Turn, now_s: float) -> None:
        """Remember that a turn has this prompt."""
        use = self._uses.pop(prompt, None)  # the latest prompt is kept longest
        other_s = -inf if use is None else _other_turn_s(use, turn)
        put_bounded(self._uses, prompt, (turn.id, now_s, other_s), limit=REMEMBERED_PROMPTS)

    def is_used_by_another(self, prompt: int, turn: Turn, now_s: float) -> bool:
        """Return whether another turn had the prompt recently."""
        use = self._uses.get(prompt)
        return use is not None and now_s - _other_turn_s(use, turn) <= RECENT_S

    def is_used_by_several(self, prompt: int, now_s: float) -> bool:
        """Return whether several turns had the prompt recently."""
        use = self._uses.get(prompt)
        return use is not None and now_s - use[2] <= RECENT_S

    def withdraw(self, prompt: int, turn: Turn) -> None:
        """Forget a turn's prompt, because its only request was no call."""
        use = self._uses.get(prompt)
        if use is not None and use[0] == turn.id:
            del self._uses[prompt]


def _other_turn_s(use: PromptUse, turn: Turn) -> float:
    """Return the latest time at which another turn had a prompt."""
    turn_id, latest_s, other_s = use
    return other_s if turn_id == turn.id else latest_s


def prompt_of(request: RequestSummary) -> int:
    """Return a hash of a request's prompt, without its limits.

    It takes the same time for any history: only the first and the last message count, and the ends
    of their texts. A collision makes two prompts one, which only prevents a continuation from being
    recognised.
    """
    last, system = request.length - 1, request.system
    names = request.facts.model, request.facts.previous_response_id, request.conversation_id
    ends = (message_brief(request, 0)[0], message_brief(request, last)[0]) if last >= 0 else ()
    instructions = text_ends(system) if isinstance(system, str) else None
    return hash((*names, instructions, last, ends))
