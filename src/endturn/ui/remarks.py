"""Sentences about the less frequent numbers of the overview, each shown if it is not zero."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from endturn.telemetry import INDICATORS, Attribute, Count, schema
from endturn.ui.formatting import count, plural
from endturn.ui.numbers import Numbers
from endturn.ui.views import words

MOST_KINDS: Final = 3
"""Kinds that a sentence names; it only counts the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One number with its title and a sentence about it.

    Attributes:
        indicator: The name of the indicator.
    """

    indicator: str
    title: str
    value: float
    sentence: str


def remarks(numbers: Numbers) -> list[Remark]:
    """Return a remark for each of the numbers that is not zero."""
    if not numbers.measured:
        return []
    return [
        Remark(
            indicator=name,
            title=INDICATORS[name].title,
            value=value,
            sentence=sentence(value, numbers),
        )
        for name, sentence in _SENTENCES.items()
        if (value := numbers.total(INDICATORS[name].count))
    ]


def _by(numbers: Numbers, metric_count: Count, attribute: Attribute) -> dict[str, float]:
    """Return a count by one attribute, largest first."""
    values = numbers.number(metric_count, (attribute.label,))
    ordered = sorted(values.items(), key=lambda item: (-item[1], str(item[0])))
    return {str(label): value for (label,), value in ordered}


def _kinds(kinds: dict[str, float]) -> str:
    """Return numbers by kind, as in `2 truncated, 1 unknown tool`."""
    texts = [f"{count(value)} {words(kind) or 'unknown'}" for kind, value in kinds.items()]
    if len(texts) > MOST_KINDS:
        others = sum([*kinds.values()][MOST_KINDS:])
        texts = [*texts[:MOST_KINDS], f"{count(others)} others"]
    return ", ".join(texts)


def _were(value: float) -> str:
    return "was" if value == 1 else "were"


def _given_up(value: float, numbers: Numbers) -> str:
    kinds = _kinds(_by(numbers, INDICATORS["given_up"].count, schema.OUTCOME))
    turns = plural(round(value), "truncated turn")
    return f"{turns} {_were(value)} continued until a limit of the policy ended it: {kinds}."


def _suspected(value: float, _: Numbers) -> str:
    answers = plural(round(value), "answer")
    return (
        f"{answers} {'reports' if value == 1 else 'report'} a normal stop, but used the entire "
        "token limit, and may be truncated."
    )


def _unknown(value: float, _: Numbers) -> str:
    responses = plural(round(value), "response")
    has, they_are = ("has", "it is") if value == 1 else ("have", "they are")
    return (
        f"{responses} {has} a stop reason that no table has, so nobody knows if {they_are} "
        "complete."
    )


def _blocked(value: float, numbers: Numbers) -> str:
    kinds = _kinds(_by(numbers, INDICATORS["blocked"].count, schema.BLOCK_REASON))
    return f"{plural(round(value), 'tool call')} {_were(value)} not run: {kinds}."


def _repairs(_: float, numbers: Numbers) -> str:
    results = _by(numbers, INDICATORS["repairs"].count, schema.REPAIR_RESULT)
    successes, failures = results.get("succeeded", 0.0), results.get("failed", 0.0)
    skips = results.get("not_attempted", 0.0)
    parts = []
    if attempts := successes + failures:
        came = count(successes) if successes else "none"
        parts.append(
            f"{plural(round(attempts), 'truncated tool call')} {_were(attempts)} asked for again; "
            f"{came} came whole"
        )
    if skips:
        calls = count(skips) if parts else plural(round(skips), "truncated tool call")
        parts.append(f"{calls} {_were(skips)} not asked for again")
    return f"{'; '.join(parts)}." if parts else "Their results are unknown."


def _recording_failures(value: float, _: Numbers) -> str:
    return (
        f"{plural(round(value), 'record')} {_were(value)} lost by endturn itself; the logger "
        "`endturn` of the agent has the exception."
    )


def _capped(value: float, numbers: Numbers) -> str:
    kinds = _kinds(_by(numbers, INDICATORS["capped"].count, schema.CAPPED))
    measurements = plural(round(value), "measurement")
    return (
        f"{measurements} {_were(value)} recorded as `other`, since a label has too many values: "
        f"{kinds}."
    )


_SENTENCES: Final[dict[str, Callable[[float, Numbers], str]]] = {
    "given_up": _given_up,
    "suspected": _suspected,
    "unknown": _unknown,
    "blocked": _blocked,
    "repairs": _repairs,
    "recording_failures": _recording_failures,
    "capped": _capped,
}
"""The sentence of an indicator, from its value and the other numbers of the view."""
