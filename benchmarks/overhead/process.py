"""Runs one group of variants in turns, in a process of its own, and prints what each block cost as JSON.

    python -m benchmarks.overhead.process GROUP --rounds 20 [--without-peers]

A round is one block of calls of each arm: a situation with a variant around it. The order rotates from round to round.
The first call after a variant was put in place is not measured. A block ends with a collection of the metrics and an
export, which count; what the same costs when nothing has happened since is measured after each block and taken off,
because it does not depend on calls. Requests to another host leave nothing to
collect. Garbage is collected as always, but for what was imported, which is frozen.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import sys
import time
from importlib.metadata import PackageNotFoundError, version

import openai
from opentelemetry import version as opentelemetry_version

from benchmarks.overhead import concurrent, startup
from benchmarks.overhead.figures import Rounds
from benchmarks.overhead.groups import GROUPS, Arm, Group, arm_key
from benchmarks.overhead.situations import SITUATIONS, Call, Situation, make_call
from benchmarks.overhead.variants import PEERS, Variant, put_bare_methods

MICROSECONDS = 1e6


def measure_calls(group: Group, arms: tuple[Arm, ...], rounds: int) -> Rounds:
    """CPU microseconds of one call of each arm, round by round; `… collection` is that of an idle collection."""
    calls = {situation: make_call(SITUATIONS[situation]) for situation, _ in arms}
    numbers = itertools.count()
    variants: dict[str, Variant] = {}
    for situation, name in arms:
        if name not in variants:
            truncated = SITUATIONS[situation].finish_reason == "length"
            variants[name] = Variant(name, group.setup, truncated=truncated)
        variants[name].enter()
        for _ in range(min(SITUATIONS[situation].warm_up, 100 * rounds)):
            calls[situation](next(numbers))
        put_bare_methods()
    # A full collection of all that was imported takes as long as a hundred calls.
    gc.collect()
    gc.freeze()
    costs: Rounds = {}
    for number in range(rounds):
        first = number % len(arms)
        for situation, name in (*arms[first:], *arms[:first]):
            cost, idle = _measure_block(SITUATIONS[situation], calls[situation], variants[name], numbers, 2 * rounds)
            costs.setdefault(arm_key(situation, name), []).append(cost)
            costs.setdefault(f"{arm_key(situation, name)} collection", []).append(idle)
    return costs


def _measure_block(
    situation: Situation, call: Call, variant: Variant, numbers: itertools.count[int], most_calls: int
) -> tuple[float, float]:
    """CPU microseconds of one call within a block, and of an idle collection after it."""
    count = min(situation.calls, most_calls)
    collect = variant.collect if situation.asks_model else None
    variant.enter()
    call(next(numbers))
    if collect is not None:
        collect()
    began = time.process_time()
    for _ in range(count):
        call(next(numbers))
    if collect is not None:
        collect()
    ended = time.process_time()
    if collect is not None:
        collect()
    idle = time.process_time() - ended
    put_bare_methods()
    return (ended - began - idle) / count * MICROSECONDS, idle * MICROSECONDS


def versions() -> dict[str, str]:
    """The versions of what was measured, by package; without packages that are not installed here."""
    found = {"openai": openai.__version__, "opentelemetry-api": opentelemetry_version.__version__}
    for peer in PEERS.values():
        try:
            found[peer.package] = version(peer.package)
        except PackageNotFoundError:
            continue
    return found


def measure(group: Group, rounds: int, *, with_peers: bool) -> Rounds:
    """What each arm of a group cost, round by round."""
    arms = group.arms if with_peers else group.arms_without_peers
    match group.kind:
        case "calls":
            return measure_calls(group, arms, rounds)
        case "concurrent":
            return concurrent.measure_throughput(group, arms, rounds)
        case "memory":
            return concurrent.measure_memory(group, arms, rounds)
        case "startup":
            return startup.measure(rounds)


def main() -> None:
    """Measure one group."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("group", choices=GROUPS)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--without-peers", action="store_true")
    options = parser.parse_args()
    costs = measure(GROUPS[options.group], options.rounds, with_peers=not options.without_peers)
    json.dump({"costs": costs, "versions": versions()}, sys.stdout)


if __name__ == "__main__":
    main()
