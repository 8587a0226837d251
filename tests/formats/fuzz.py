"""Feed every format's decoders with damaged replies, for as long as it is told to.

    python -m tests.formats.fuzz [--seconds N] [--seed N] [--format NAME]

Whole replies and streams are damaged as bytes (flipped, cut, doubled, spliced, out of bad UTF-8) and as JSON (values of
the wrong type, huge or deep ones, members renamed, dropped, swapped among replies), and arrive in any chunks. Whatever
comes, a decoder gives a response or raises a ProviderError; it never invents an `end_turn`; and it says what
the summary says, after every event. Prints what fails, with its seed, and exits with 1.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from endturn.errors import ProviderError
from endturn.formats import Event, framing, summarize
from endturn.stop import StopReason, raw_text
from tests.formats.recorded import RECORDED, Recorded

CLEAN = (StopReason.END_TURN, StopReason.TOOL_CALL)
BYTES = (
    *(b"\xff\xfe", b"\xc3", b"\x00", b"\r", b"\n\n", b"data: ", b'"'),
    *(b"{", b"}", b"\\u0000", b"\\ud800", b"NaN", b"1e999"),
)


def _deep(depth: int) -> Any:
    thing: Any = "x"
    for level in range(depth):
        thing = [thing] if level % 2 else {"type": thing}
    return thing


def _value(rng: random.Random) -> Any:
    """A value that nobody expects."""
    match rng.randrange(9):
        case 0:
            return None
        case 1:
            return rng.choice([True, False])
        case 2:
            return rng.choice([0, -1, 2**63, 10**400, 1.5, float("inf"), float("nan")])
        case 3:
            return rng.choice(["", " ", "stop", "STOPSTOP", "end_turn", "\ud800", "x" * 20_000])
        case 4:
            return []
        case 5:
            return {}
        case 6:
            return [None, 3, "x"]
        case 7:
            return {"type": "text", "text": 7}
        case _:
            return _deep(rng.choice([3, 60, 400]))


def _paths(thing: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    pairs = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    for key, inner in pairs:
        yield from _paths(inner, (*path, key))


def _changed(thing: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    """A copy in which the container of the last step of the path was changed."""
    copy: Any = dict(thing) if isinstance(thing, dict) else list(thing)
    if len(path) == 1:
        change(copy, path[0])
    else:
        copy[path[0]] = _changed(thing[path[0]], path[1:], change)
    return copy


def damaged_json(thing: Any, others: list[Any], rng: random.Random) -> Any:
    """JSON with a few values replaced, dropped, renamed, or taken from another reply."""
    for _ in range(rng.randint(1, 3)):
        paths = list(_paths(thing))
        if not paths:
            return _value(rng)

        def change(container: Any, key: Any) -> None:
            how = rng.randrange(4)
            if how == 0:
                container[key] = _value(rng)
            elif how == 1:
                del container[key]
            elif how == 2 and isinstance(container, dict):
                container[rng.choice(["type", "error", "index", "content", str(key).upper()])] = container.pop(key)
            else:
                found = rng.choice(others)
                steps = list(_paths(found)) or [()]
                for step in rng.choice(steps):
                    found = found[step]
                container[key] = found

        thing = _changed(thing, rng.choice(paths), change)
    return thing


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes with a few flipped, cut out, doubled or put in."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        how = rng.randrange(5)
        if how == 0 and found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
        elif how == 1:
            del found[at : at + rng.randrange(1, 40)]
        elif how == 2:
            found[at:at] = found[at : at + rng.randrange(1, 80)]
        elif how == 3:
            found[at:at] = rng.choice(BYTES)
        else:
            del found[at:]
    return bytes(found)


def _chunks(data: bytes, rng: random.Random) -> list[bytes]:
    cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


class Case:
    """One attempt on one reply of one format."""

    def __init__(self, recorded: Recorded, name: str, rng: random.Random) -> None:
        self.api, self.ctx, self.rng = recorded.format, recorded.contexts[name], rng
        self.bodies: list[Any] = list(recorded.bodies.values())
        self.events: list[Any] = [event.data for events in recorded.streams.values() for event in events]

    def body(self, body: Any) -> StopReason | None:
        """Decode a whole body that was damaged as JSON, or as bytes."""
        if self.rng.random() < 0.5:
            thing = damaged_json(body, self.bodies, self.rng)
        else:
            thing = framing.parse(damaged_bytes(json.dumps(body).encode(), self.rng))
        response = self.api.decode(thing, ctx=self.ctx)
        self._check(response.stop.reason, response.stop.raw)
        summarizer = self.api.summarizer(self.ctx)
        summarizer.feed(thing)
        seen = summarizer.close()
        assert seen.stop == response.stop, "summarizer and decode disagree"
        assert summarize(self.api, self.ctx, thing) == seen, "a whole body is read otherwise than by a summarizer"
        return response.stop.reason

    def stream(self, events: list[Event]) -> StopReason | None:
        """Decode a stream that was damaged as JSON, reordered, or damaged as bytes."""
        rng, kind = self.rng, self.api.framing
        how = rng.randrange(3)
        found = list(events)
        if how == 0:
            for _ in range(rng.randint(1, 3)):
                at = rng.randrange(len(found))
                if found[at].data != framing.DONE:
                    found[at] = Event(found[at].name, damaged_json(found[at].data, self.events, rng))
        elif how == 1:
            for _ in range(rng.randint(1, 4)):
                a, b = rng.randrange(len(found)), rng.randrange(len(found))
                change = rng.randrange(3)
                if change == 0:
                    found[a], found[b] = found[b], found[a]
                elif change == 1:
                    found.insert(a, found[b])
                elif len(found) > 1:
                    del found[a]
        else:
            data = damaged_bytes(b"".join(framing.frame(event, kind) for event in events), rng)
            found = []
            found = list(framing.events(_chunks(data, rng), kind))
        decoder, summarizer = self.api.decoder(self.ctx), self.api.summarizer(self.ctx)
        for event in found:
            for _ in decoder.feed(event):
                pass
            summarizer.feed(event)
            assert summarizer.close().stop == decoder.close().stop, "summarizer and decoder disagree within the stream"
        response = decoder.close()
        self._check(response.stop.reason, response.stop.raw)
        return response.stop.reason

    def _check(self, reason: StopReason, raw: str | None) -> None:
        if reason is StopReason.END_TURN:
            assert raw_text(raw) is not None, "an end_turn that nobody said"


def run(
    *, seconds: float, seed: int, only: str | None = None, rounds: int | None = None
) -> tuple[Counter[str], list[str]]:
    """Attempt after attempt until the time, or the number of rounds, is up: how they ended, and what failed."""
    ended: Counter[str] = Counter()
    failed: list[str] = []
    formats = [recorded for name, recorded in RECORDED.items() if only in (None, name)]
    until = time.monotonic() + seconds
    number = seed
    while time.monotonic() < until and (rounds is None or number < seed + rounds) and len(failed) < 5:
        rng = random.Random(number)
        recorded = formats[number % len(formats)]
        replies: dict[str, Any] = rng.choice([recorded.bodies, recorded.streams])
        name = rng.choice(list(replies))
        case = Case(recorded, name, rng)
        try:
            reason = case.stream(replies[name]) if replies is recorded.streams else case.body(replies[name])
            ended[str(reason)] += 1
        except ProviderError as error:
            ended[type(error).__name__] += 1
        except Exception as error:  # whatever it is, it is what is looked for
            failed.append(f"--seed {number} ({recorded.format.name}, {name!r}): {type(error).__name__}: {error}"[:600])
        number += 1
    return ended, failed


def main() -> int:
    """Run, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first attempt; by default another each time")
    parser.add_argument("--format", choices=list(RECORDED), default=None)
    parser.add_argument("--rounds", type=int, default=None, help="at most so many attempts")
    arguments = parser.parse_args()
    seed = random.randrange(10**9) if arguments.seed is None else arguments.seed
    ended, failed = run(seconds=arguments.seconds, seed=seed, only=arguments.format, rounds=arguments.rounds)
    print(f"{ended.total()} attempts from seed {seed}:", ", ".join(f"{how} {n}" for how, n in ended.most_common()))
    print("\n".join(failed) or "nothing failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
