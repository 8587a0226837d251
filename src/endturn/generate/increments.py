"""What counters gained, recorded: each evaluation compares what it sees with what an earlier one saw and wrote down.

Raw series do not tell what was known when. After an outage the Collector's queue replays samples under their old
timestamps, and a look into the past finds what no evaluation ever counted. Three things are recorded for it:

- *seen*: each counter's value as an evaluation saw it;
- *known*: the same, once every half look-back, so that a counter is still recognised a day later;
- *watched*: that this has been going on for long enough to call a counter new.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from textwrap import indent
from typing import Final

from endturn.generate.promql import Selector, Vector, duration

SEEN, KNOWN = "seen", "known"
WATCHED: Final = Selector("endturn:heartbeat:seen", frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """How far back counters are looked at, in seconds.

    Attributes:
        interval: between evaluations.
        window: of one recorded increment.
        lookback: how far back a counter's previous value is looked for.
        known: how long a counter that is silent for longer than that is still recognised.
        lead: how much earlier than an application's next export the heartbeat may be back after an outage.
        watched: recorded since the counters are being remembered, while the heartbeat is there.
    """

    interval: int
    window: int
    lookback: int
    known: int
    lead: int
    watched: Selector = WATCHED


def remembered(series: Selector, what: str) -> Selector:
    """Recorded values of counters, under the same labels: what was `seen`, or is `known`."""
    return replace(series, name=f"instance:{series.name}:{what}")


def recording_rules(counters: Iterable[Selector], memory: Memory) -> list[dict[str, str]]:
    """What was seen and what is known of each counter. To be evaluated right before what the counters gained."""
    rules = []
    every = memory.lookback // 2
    for counter in counters:
        seen = remembered(replace(counter, matchers=()), SEEN)
        known = remembered(replace(counter, matchers=()), KNOWN)
        due = f"vector(time() % {every}) < {memory.interval}"
        kept = f"last_over_time({seen}[{duration(every)}])\nand on () ({due})"
        rules.append({"record": seen.name, "expr": f"last_over_time({counter}[{duration(memory.window)}])"})
        rules.append({"record": known.name, "expr": kept})
    return rules


def increments(series: Selector, memory: Memory) -> Vector:
    """What each counter gained in the last `window` seconds, in whole events. For recording rules only.

    A new series' first point already holds its first increments, and `increase` does not see them. So, the first of:

    1. after a reset, the value since then, and what it had gained before;
    2. the value now minus the one seen a window ago: what arrives late is counted when it arrives;
    3. not seen within the look-back, but known, and less than then: the value, it starts anew;
    4. known and not less: the difference, provided that the heartbeat, which travels the same path, had arrived before
       the window (else more than this series was cut off, and what is known may be old);
    5. not known, under the same proviso: the whole value, the series is new;
    6. `increase`.

    Undercounts: what is born in the first `window + lead` after an outage or after the rules are first loaded; resets
    that a counter outgrew before it was seen again; events up to a window before evaluations were missed.
    Overcounts: a series that was silent for longer than `known` is counted from zero again.
    """
    window, before = duration(memory.window), duration(memory.window)
    now = f"last_over_time({series}[{window}])"
    past = f"last_over_time({remembered(series, SEEN)}[{duration(memory.lookback)}] offset {before})"
    known = f"last_over_time({remembered(series, KNOWN)}[{duration(memory.known)}] offset {before})"
    alive = f"last_over_time({memory.watched}[{window}] offset {duration(memory.window + memory.lead)})"
    low, high = (f"{which}_over_time({series}[{window}])" for which in ("min", "max"))
    branches = (
        f"{now}\n+ clamp_min({high} - {past}, 0) * ({now} < bool {past})\nand ({low} < {past})",
        f"{now}\n- {past}\n>= 0",
        f"{now}\n< {known}",
        f"{now}\n- {known}\n>= 0\nand on () {alive}",
        f"{now}\nand on () {alive}",
    )
    parts = [*(f"(\n{indent(branch, '  ')}\n)" for branch in branches), f"increase({series}[{window}])"]
    return Vector("\nor ".join(parts), series.labels)
