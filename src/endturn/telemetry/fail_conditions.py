"""Conditions on indicators at which a build fails, such as `truncation > 1%`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from endturn.errors import UsageError, did_you_mean
from endturn.telemetry.indicators import INDICATORS

OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le, "==": operator.eq,
}  # fmt: skip
NAMES: Final = {
    written: name
    for name, indicator in INDICATORS.items()
    for written in (name, re.sub(r"\W+", "_", indicator.title.lower()))
}
"""The accepted names of indicators: the name, or the title with underscores."""


@dataclass(frozen=True, slots=True)
class FailCondition:
    """A condition at which a build fails: `truncation_without_continuation > 1%`."""

    text: str
    name: str
    compare: Callable[[float, float], bool]
    limit: float

    def is_met(self, value: float | None) -> bool:
        """Return whether a value meets the condition; False without a value."""
        return value is not None and self.compare(value, self.limit)


def fail_condition(text: str) -> FailCondition:
    """Parse a condition.

    Raises:
        UsageError: the text is not a condition.
    """
    match = re.fullmatch(r"\s*(\w+)\s*(>=|<=|==|>|<)\s*(\d+\.?\d*|\.\d+)\s*(%?)\s*", text)
    if not match:
        raise UsageError(
            f"--fail-on must be NAME > NUMBER, such as 'truncation_without_continuation > 1%', not "
            f"{text!r}"
        )
    if match[1] not in NAMES:
        raise UsageError(f"unknown indicator {match[1]!r}; {did_you_mean(match[1], NAMES)}")
    name, limit = NAMES[match[1]], float(match[3])
    if INDICATORS[name].denominator is not None and not match[4] and limit >= 1:
        raise UsageError(
            f"--fail-on {text!r}: {match[1]} is a share, of which 1 is 100 %; write "
            f"'{match[1]} {match[2]} {match[3]}%', or '{match[1]} {match[2]} 100%' if you mean all"
        )
    return FailCondition(text.strip(), name, OPERATORS[match[2]], limit / (100 if match[4] else 1))
