"""Why a turn ended as it did, in a sentence, and what to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from endturn.events import TurnOutcome
from endturn.stop import StopReason
from endturn.ui.rows import data


@dataclass(frozen=True, slots=True)
class Ending:
    """What the turn's page says first."""

    head: str
    why: str
    change: str


_TEXTS: Final[dict[str, dict[str, str]]] = data("endings.yaml")


def ending(
    turn: Mapping[str, Any], *, cut_by: str | None, cuts: int, limit: int | None, tokens: int, repaired: bool
) -> Ending:
    """What to say of a turn.

    Args:
        turn: its row; `for_tools` in it: its last call asked for tools, and nothing says that this was to end it.
        cut_by: the reason of its first truncated call; cuts: how many there were.
        limit: that call's max_tokens.
        tokens: how many the answer has, all pieces together.
        repaired: what was cut was a tool call, and it was asked for again.
    """
    outcome = turn["outcome"] or ""
    whole = bool(turn["complete"])
    reason = cut_by or StopReason.MAX_TOKENS.value
    said = {
        "model": turn["model"] or "the model", "provider": turn["provider"] or "the provider",
        "raw": turn["raw"] or turn["reason"] or "nothing", "error": turn["error"] or "error",
        "limit": f"{limit} tokens" if limit else "tokens",
        "times": "once" if cuts == 1 else "twice" if cuts == 2 else f"{cuts} times",
        "continuations": plural(turn["continuations"], "continuation"),
        "asked": "once" if turn["continuations"] == 1 else plural(turn["continuations"], "time"),
        "to": f" to {roomy(max(tokens, (limit or 0) + 1))} or more" if whole else f" above {limit}" if limit else "",
        "gain": f"the whole answer has {tokens} tokens, and would have come in one call" if whole
        else "each piece that is asked for pays for the prompt again",
    }  # fmt: skip
    said["cut"] = _TEXTS["cut"].get(reason, "was cut off").format_map(said)
    said["raise_"] = _TEXTS["raise"].get(reason, "").format_map(said)
    name = ("then repaired" if repaired else "then finished") if whole and cuts else outcome or "waiting"
    if name == TurnOutcome.COMPLETED and turn["for_tools"]:
        name = "asked for tools"
    elif name == TurnOutcome.NOT_CONTINUED and turn["continuations"]:
        name = "not continued again"
    texts = _TEXTS.get(name, {"head": outcome.replace("_", " ")})  # of a later version of endturn
    return Ending(*(texts.get(part, "").format_map(said).strip() for part in ("head", "why", "change")))


def plural(count: int, noun: str) -> str:
    """A count of things."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def roomy(tokens: int) -> int:
    """A round limit in which so many tokens have room."""
    return next((limit for limit in (2**n for n in range(6, 24)) if limit >= tokens), tokens)
