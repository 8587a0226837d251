"""Caps: how many values a label may have, and how many attribute sets an instrument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from endturn.telemetry import schema
from endturn.telemetry.schema import Metric

Value = str | int | bool | None
Values = tuple[Value, ...]
"""One value for each attribute of the metric, in the schema's order; None leaves the attribute out."""

OTHER: Final = "other"
"""What a capped label reads."""

LIMIT: Final = 1_400
"""Attribute sets of one instrument. Past 2,000 the SDK merges what comes into one set without provider and model."""

PAIRS: Final = 100
"""(provider, model) pairs of one process: 11 stop reasons each are 1,100 attribute sets of `endturn.responses`."""

PROVIDERS: Final = 32
"""Providers of one process: twice the conventions' well-known ones."""

Capped = Callable[[str], None]
"""Is told that one measurement's label was replaced, and which, in the words of `endturn.series.capped_label`."""


class Label:
    """An open label: the first values that come are let in, later ones read `other`."""

    __slots__ = ("_capped", "_most", "_name", "_seen")

    def __init__(self, name: str, most: int, capped: Capped) -> None:
        self._name = name
        self._most = most
        self._capped = capped
        self._seen: set[str] = set()

    def __call__(self, value: str | None) -> str | None:
        """The value as metrics may carry it."""
        if value is None or value in self._seen:
            return value
        if len(self._seen) < self._most:
            self._seen.add(value)
            return value
        self._capped(self._name)
        return OTHER


class Pairs:
    """Provider and model, which are let in together."""

    __slots__ = ("_capped", "_known", "_provider")

    def __init__(self, capped: Capped) -> None:
        self._capped = capped
        self._provider = Label("provider", PROVIDERS, capped)
        self._known: set[tuple[str, str]] = set()

    def __call__(self, provider: str, model: str) -> tuple[str, str]:
        """Provider and model as metrics may carry them."""
        pair = provider, model
        if pair in self._known:
            return pair
        shown = self._provider(provider) or ""
        if shown != provider:
            # Not remembered: there is no end to what would have to be.
            return shown, OTHER
        if len(self._known) >= PAIRS:
            self._capped("model")
            return provider, OTHER
        self._known.add(pair)
        return pair


class AttributeSets:
    """The attribute sets of one metric that exist so far, each built once."""

    __slots__ = ("_built", "_capped", "_keys", "_open")

    def __init__(self, metric: Metric, capped: Capped) -> None:
        self._keys = tuple(attribute.key for attribute in metric.attributes)
        self._open = tuple(
            attribute in (schema.REQUEST_MODEL, schema.RESPONSE_MODEL) for attribute in metric.attributes
        )
        self._built: dict[Values, dict[str, str | int | bool]] = {}
        self._capped = capped

    def __getitem__(self, values: Values) -> dict[str, str | int | bool]:
        """The set for values that were admitted."""
        return self._built[values]

    def admit(self, values: Values) -> Values:
        """The values that have a set: these, or with models `other` where they would be one too many."""
        if values in self._built:
            return values
        if len(self._built) >= LIMIT and any(self._open):
            self._capped("model")
            values = tuple(OTHER if open_ else value for value, open_ in zip(values, self._open, strict=True))
            if values in self._built:
                return values
        self._built[values] = {
            key: value for key, value in zip(self._keys, values, strict=True) if value is not None and value != ""
        }
        return values
