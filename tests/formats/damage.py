"""Damage to replies: as JSON, as the order of events, as bytes."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

from endturn.formats import Event, Framing, framing

VALUES: Final[list[list[Any]]] = [
    [None],
    [True, False],
    [0, -1, 2**63, 10**400, 1.5, float("inf"), float("nan")],
    ["", " ", "stop", "STOPSTOP", "end_turn", "\ud800", "x" * 20_000],
    [[], {}, [None, 3, "x"], {"type": "text", "text": 7}],
    [json.loads('[{"type":' * depth + '"x"' + "}]" * depth) for depth in (2, 30, 60)],
]
"""What nobody expects, by its kind."""
BYTES: Final = (
    *(b"\xff\xfe", b"\xc3", b"\x00", b"\r", b"\n\n", b"data: ", b'"'),
    *(b"{", b"}", b"\\u0000", b"\\ud800", b"NaN", b"1e999"),
)


def _containers(thing: Any) -> Iterator[tuple[Any, Any]]:
    """Every dictionary and list in it, with each of its keys."""
    pairs = thing.items() if isinstance(thing, dict) else enumerate(thing) if isinstance(thing, list) else ()
    for key, inner in pairs:
        yield thing, key
        yield from _containers(inner)


def damaged_json(thing: Any, others: list[Any], rng: random.Random) -> Any:
    """JSON with a few values replaced, dropped, renamed, or taken from another reply."""
    thing = deepcopy(thing)
    for _ in range(rng.randint(1, 3)):
        places = list(_containers(thing))
        if not places:
            return rng.choice(rng.choice(VALUES))
        container, key = rng.choice(places)
        match rng.randrange(4):
            case 0:
                container[key] = deepcopy(rng.choice(rng.choice(VALUES)))
            case 1:
                del container[key]
            case 2 if isinstance(container, dict):
                container[rng.choice(["type", "error", "index", "content", str(key).upper()])] = container.pop(key)
            case _:
                donor = rng.choice(others)
                donors = [holder[name] for holder, name in _containers(donor)] or [donor]
                container[key] = deepcopy(rng.choice(donors))
    return thing


def damaged_bytes(data: bytes, rng: random.Random) -> bytes:
    """Bytes with a few flipped, cut out, doubled or put in."""
    found = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(found) + 1)
        match rng.randrange(5):
            case 0 if found:
                found[at % len(found)] ^= 1 << rng.randrange(8)
            case 1:
                del found[at : at + rng.randrange(1, 40)]
            case 2:
                found[at:at] = found[at : at + rng.randrange(1, 80)]
            case 3:
                found[at:at] = rng.choice(BYTES)
            case _:
                del found[at:]
    return bytes(found)


def damaged_events(events: list[Event], kind: Framing, rng: random.Random) -> list[Event]:
    """Events whose JSON, order or bytes were damaged.

    Raises:
        DecodeError: no events can be read of the bytes.
    """
    found, others = list(events), [event.data for event in events]
    match rng.randrange(3):
        case 0:
            for at in rng.choices(range(len(found)), k=rng.randint(1, 3)):
                if found[at].data != framing.DONE:
                    found[at] = Event(found[at].name, damaged_json(found[at].data, others, rng))
        case 1:
            for _ in range(rng.randint(1, 4)):
                found.insert(rng.randrange(len(found)), rng.choice(found))
                if rng.random() < 0.7:
                    del found[rng.randrange(len(found))]
        case _:
            data = damaged_bytes(b"".join(framing.frame(event, kind) for event in events), rng)
            cuts = sorted(rng.randrange(len(data) + 1) for _ in range(rng.randrange(6)))
            return list(framing.events([data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)], kind))
    return found
