"""The attribute sets of one instrument: each built once, born at zero, and never more than the SDK can hold."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from opentelemetry.metrics import CallbackOptions, Histogram, Observation

from endturn import announce
from endturn.telemetry import bulk, schema
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

MOST: Final = 2**53
"""The most that one measurement may be: what a float holds exactly. An integer beyond 64 bits that got into a sum would
fail every later export of the process, the host's own metrics too."""

MANY: Final = 256
"""Measurements of one attribute set that wait at most: a hundred microseconds' work when they are recorded at once."""

FEW: Final = 16
"""How many wait where they are recorded one by one, which takes as long."""

LOST: Final = "Distribution.hand_over"
"""What measurements that an SDK refused are counted under, in `endturn.listener.failures`."""

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
        self._known: dict[tuple[str, str], tuple[str, str]] = {}

    def __call__(self, provider: str, model: str) -> tuple[str, str]:
        """Provider and model as metrics may carry them."""
        return self._known.get((provider, model)) or self._admit(provider, model)

    def _admit(self, provider: str, model: str) -> tuple[str, str]:
        shown = self._provider(provider) or ""
        if shown != provider:
            # Not remembered: there is no end to what would have to be.
            return shown, OTHER
        if len(self._known) >= PAIRS:
            self._capped("model")
            return provider, OTHER
        self._known[provider, model] = provider, model
        return provider, model


class Sets:
    """The attribute sets of one metric that exist so far."""

    __slots__ = ("_built", "_capped", "_keys", "_open", "metric")

    def __init__(self, metric: Metric, capped: Capped) -> None:
        self.metric = metric
        self._keys = tuple(attribute.key for attribute in metric.attributes)
        self._open = tuple(
            attribute in (schema.REQUEST_MODEL, schema.RESPONSE_MODEL) for attribute in metric.attributes
        )
        self._built: dict[Values, dict[str, str | int | bool]] = {}
        self._capped = capped

    def __len__(self) -> int:
        return len(self._built)

    def attributes(self, values: Values) -> tuple[Values, dict[str, str | int | bool]]:
        """The set for these values, and the values that it stands for: with models `other` where it is one too many."""
        built = self._built.get(values)
        if built is not None:
            return values, built
        if len(self._built) >= LIMIT and any(self._open):
            self._capped("model")
            values = tuple(OTHER if open_ else value for value, open_ in zip(values, self._open, strict=True))
            if values in self._built:
                return values, self._built[values]
        built = {key: value for key, value in zip(self._keys, values, strict=True) if value is not None and value != ""}
        self._built[values] = built
        return values, built


class Counter:
    """A sum for each attribute set, kept in a dictionary and read by an observable instrument.

    What is added is not seen until it is settled: sums that belong together are seen together.
    """

    __slots__ = ("_added", "sets", "sums")

    def __init__(self, metric: Metric, capped: Capped) -> None:
        self.sets = Sets(metric, capped)
        self.sums: dict[Values, int | float] = {}
        self._added: dict[Values, int | float] = {}

    def add(self, values: Values, amount: float = 1) -> None:
        """Add to a sum; 0 only brings it into being, so that its first increment is seen as one."""
        if not 0 <= amount <= MOST:
            return
        known = self._added.get(values)
        if known is None:
            if values not in self.sums:
                values, _ = self.sets.attributes(values)
            known = self._added.get(values, 0)
        self._added[values] = known + amount

    def settle(self) -> None:
        """Let be seen what was added."""
        if self._added:
            added, self._added = self._added, {}
            for values, amount in added.items():
                self.sums[values] = self.sums.get(values, 0) + amount

    def empty(self) -> None:
        """Every sum back to zero; the attribute sets stay."""
        self.settle()
        self.sums = dict.fromkeys(self.sums, 0)

    def observe(self, options: CallbackOptions) -> Iterable[Observation]:
        """What the SDK calls when a reader collects."""
        return [Observation(amount, self.sets.attributes(values)[1]) for values, amount in list(self.sums.items())]


class Distribution:
    """A histogram whose attribute sets are built once and capped. Measurements wait, not many of each set."""

    __slots__ = ("_most", "_record", "_waiting", "instrument", "sets")

    def __init__(self, metric: Metric, capped: Capped, instrument: Histogram) -> None:
        self.sets = Sets(metric, capped)
        self.instrument = instrument
        self._waiting: dict[Values, tuple[list[float], list[bulk.Where]]] = {}
        self._record: bulk.Record | None = None
        self._most = MANY

    def record(self, amount: float, values: Values, where: bulk.Where) -> None:
        """Keep one measurement, and the ids of the span that becomes its exemplar."""
        if not 0 <= amount <= MOST:
            return
        waiting = self._waiting.get(values)
        if waiting is None:
            if len(self._waiting) >= LIMIT:  # and no reader has come for long
                self._try(self.hand_over)
            self._waiting[values] = [amount], [where]
            return
        amounts, wheres = waiting
        amounts.append(amount)
        wheres.append(where)
        if len(amounts) >= self._most:
            self._waiting[values] = [], []
            self._try(self._hand_over, values, amounts, wheres)

    def _try(self, step: Callable[..., None], *given: object) -> None:
        """What an SDK refuses is lost, and the measurement at hand is not."""
        try:
            step(*given)
        except Exception:
            if announce.is_strict():
                raise
            announce.lost(LOST)

    def empty(self) -> None:
        """Forget what was kept."""
        self._waiting = {}

    def hand_over(self) -> None:
        """Record what was kept.

        Raises:
            Exception: what the SDK first raised, once the measurements of all other attribute sets are recorded.
        """
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, {}
        failure: Exception | None = None
        for values, (amounts, wheres) in waiting.items():
            try:
                self._hand_over(values, amounts, wheres)
            except Exception as error:  # those of one attribute set are lost: how many the SDK took cannot be told
                if failure is None:
                    failure = error
                else:
                    announce.lost(LOST)
        if failure is not None:
            raise failure

    def _hand_over(self, values: Values, amounts: list[float], wheres: list[bulk.Where]) -> None:
        if not amounts:
            return
        if self._record is None:
            self._use(bulk.recording(type(self.instrument)))
        assert self._record is not None
        try:
            self._record(self.instrument, self.sets.attributes(values)[1], amounts, wheres)
        except Exception:
            self._use(bulk.one_by_one)
            raise

    def _use(self, record: bulk.Record) -> None:
        self._record = record
        self._most = FEW if record is bulk.one_by_one else MANY
