"""The work of reading is linear in the input: each recorded list and event is repeated many times."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import Any

import pytest

from endturn.errors import ProviderError
from endturn.formats import Context, Event, format_of
from endturn.formats.format import Format
from endturn.formats.framing import DONE
from endturn.formats.reading import JsonObjectEnd
from endturn.formats.request_body import request_of
from tests.formats.recorded import Recorded
from tests.formats.test_format_laws import BODIES, each_format
from tests.support.growth import LIMIT, growth

NUMBERS = ("index", "output_index", "content_index", "summary_index", "contentBlockIndex")
"""Members that number an entry of a list."""
IDS = ("id", "call_id", "item_id", "toolUseId", "tool_call_id")

Path = tuple[str, ...]
Vary = Callable[[Any, int], Any]


def same(thing: Any, number: int) -> Any:
    """The same again."""
    return thing


def numbered(thing: Any, number: int) -> Any:
    """Return another entry of a list, with its own number and id."""
    if isinstance(thing, list):
        return [numbered(each, number) for each in thing]
    if not isinstance(thing, dict):
        return thing
    found = {name: numbered(value, number) for name, value in thing.items()}
    found |= {name: number for name in NUMBERS if name in thing}
    return found | {name: f"{thing[name]}{number}" for name in IDS if isinstance(thing.get(name), str)}


def emptied(thing: Any, number: int) -> Any:
    """Return the entry with empty texts, except those that show its kind."""
    if isinstance(thing, list):
        return [emptied(each, number) for each in thing]
    if not isinstance(thing, dict):
        return thing
    kept = {"type", "event_type", "role", "model", *IDS}
    return {
        name: value if name in kept else "" if isinstance(value, str) else emptied(value, number)
        for name, value in thing.items()
    }


def widened(thing: Any, number: int) -> Any:
    """Return the entry with a unique member in each of its objects."""
    if isinstance(thing, list):
        return [widened(each, number) for each in thing]
    if not isinstance(thing, dict):
        return thing
    return {**{name: widened(value, number) for name, value in thing.items()}, f"x{number}": "a"}


WAYS: tuple[Vary, ...] = (same, numbered, emptied, widened)


# --- What can be many ---


def lists_in(thing: Any, path: Path = ()) -> Iterator[tuple[Path, list[Any]]]:
    """The lists in a JSON value that hold objects, with where they stand."""
    if isinstance(thing, list):
        if thing and isinstance(thing[-1], dict):
            yield path, thing
        for each in thing:
            yield from lists_in(each, (*path, "[]"))
    elif isinstance(thing, dict):
        for name, value in thing.items():
            yield from lists_in(value, (*path, name))


def kind_of(thing: Any) -> Any:
    """Return an event's kind: its type, and the names in it."""
    if isinstance(thing, list):
        return kind_of(thing[-1]) if thing else None
    if not isinstance(thing, dict):
        return None
    return str(thing.get("type")), *sorted((name, kind_of(value)) for name, value in thing.items() if value)


Many = tuple[str, Context, Callable[[int], list[Any]]]
"""What it is, what must be known to read it, and what makes the events, or the one body, of it with so many of them."""


def many_in_bodies(recorded: Recorded) -> Iterator[Many]:
    """Each list that a body on file has, with its last entry many times, in each way."""
    seen: set[Any] = set()
    for file, body in recorded.bodies.items():
        for place, (path, entries) in enumerate(lists_in(body)):
            what = (path, str(entries[-1].get("type")))
            if what in seen:
                continue
            seen.add(what)
            for vary in WAYS:

                def made(n: int, body: Any = body, place: int = place, vary: Vary = vary) -> list[Any]:
                    grown = deepcopy(body)
                    entries = [found for _, found in lists_in(grown)][place]
                    entries += [vary(entries[-1], number) for number in range(1, n)]
                    return [grown]

                yield f"{file}: {'.'.join(path)}, {vary.__name__}", recorded.contexts[file], made


def many_in_streams(recorded: Recorded) -> Iterator[Many]:
    """Each kind of event on file many times, in each way, between what came before it and after it."""
    seen: set[Any] = set()
    for file, events in recorded.streams.items():
        for place, event in enumerate(events):
            if event.data == DONE or (what := kind_of(event.data)) in seen:
                continue
            seen.add(what)
            for vary in WAYS:

                def made(n: int, events: Any = events, place: int = place, vary: Vary = vary) -> list[Any]:
                    name, data = events[place]
                    more = [Event(name, vary(data, number)) for number in range(1, n)]
                    return [*events[: place + 1], *more, *events[place + 1 :]]

                yield f"{file}: event {place}, {vary.__name__}", recorded.contexts[file], made


def all_many(recorded: Recorded) -> list[Many]:
    return [*many_in_bodies(recorded), *many_in_streams(recorded)]


# --- Reading it ---


def summarizing(api: Format, ctx: Context, things: list[Any]) -> Callable[[], object]:
    """Read it as telemetry does."""

    def read() -> object:
        summarizer = api.summarizer(ctx)
        for thing in things:
            summarizer.feed(thing)
        return summarizer.close()

    return read


def building(api: Format, ctx: Context, things: list[Any]) -> Callable[[], object]:
    """Read it as a client does, and as for captured content."""

    def read() -> object:
        with suppress(ProviderError):
            if not isinstance(things[0], Event):
                return api.decode(things[0], ctx=ctx)
            decoder = api.decoder(ctx)
            for event in things:
                list(decoder.feed(event))
            return decoder.close()
        return None

    return read


SUSPICIOUS = 4.8
"""What 800 take of 200, where 2000 break the law of 500: the cheapest square, a search in a list, makes 5 times."""


def broken(api: Format, ways: list[Many], n: int, **measured: Any) -> list[str]:
    """Return the cases whose time grows too fast."""
    found = []
    for what, ctx, made in ways:
        grown = cache(made)  # for both readers, however often they are measured
        for read in (summarizing, building):

            def prepare(n: int, read: Any = read, ctx: Context = ctx, grown: Any = grown) -> Callable[[], object]:
                work: Callable[[], object] = read(api, ctx, grown(n))
                return work

            times = growth(prepare, n, **measured)
            if times > LIMIT:
                found.append(f"{read.__name__} {what}: {times:.1f} times")
    return found


@pytest.mark.slow
@each_format
def test_reading_many_takes_time_in_proportion(recorded: Recorded) -> None:
    """Every recorded list and kind of event of the format, in one of the ways."""
    cases = all_many(recorded)[:: len(WAYS) + 1]
    assert len(cases) > 10  # a format without replies on file proves nothing
    assert broken(recorded.format, cases, 250) == []


@pytest.mark.slow
@each_format
def test_reading_many_in_any_way_takes_time_in_proportion(recorded: Recorded) -> None:
    """Each of them in each way. If 200 are in proportion, 500 are not tested."""
    assert broken(recorded.format, all_many(recorded), 200, suspicious=SUSPICIOUS, again=500) == []


@each_format
def test_many_items_are_read(recorded: Recorded) -> None:
    """The reader really reads the repeated items: it yields as many additional parts."""
    api, n = recorded.format, 50

    def parts(ctx: Context, things: list[Any]) -> int:
        reader = api.reader(ctx, True)
        return sum(1 for thing in things for _ in reader(thing.data if isinstance(thing, Event) else thing))

    grown = [what for what, ctx, made in all_many(recorded) if parts(ctx, made(n)) >= parts(ctx, made(1)) + n - 1]
    assert len(grown) > 10
    assert any(": event " in what for what in grown)


# --- Requests, of which content is recorded ---


@pytest.mark.parametrize("name", sorted({name for name, body in BODIES if any(True for _ in lists_in(body))}))
def test_reading_long_requests_takes_time_in_proportion(name: str) -> None:
    """Each list of a request on file with its last entry many times."""
    api, seen, found = format_of(name), set(), []
    for body in (body for format_, body in BODIES if format_ == name and isinstance(body, dict)):
        with suppress(Exception):  # what is no request is for other tests
            request_of(api, body)
            for place, (path, entries) in enumerate(lists_in(body)):
                if (what := (path, kind_of(entries[-1]))) in seen:
                    continue
                seen.add(what)
                for vary in (same, numbered):

                    def prepare(
                        n: int, body: Any = body, place: int = place, vary: Vary = vary
                    ) -> Callable[[], object]:
                        grown = deepcopy(body)
                        entries = [each for _, each in lists_in(grown)][place]
                        entries += [vary(entries[-1], number) for number in range(1, n)]

                        def read() -> None:
                            with suppress(Exception):
                                request_of(api, grown)

                        return read

                    times = growth(prepare, 300)
                    if times > LIMIT:
                        found.append(f"{'.'.join(path)}, {vary.__name__}: {times:.1f} times")
    assert seen
    assert found == []


# --- The end of an object that arrives in pieces ---


@pytest.mark.parametrize(
    ("pieces", "is_whole"),
    [
        (["{", "}"], True),
        ([' {"a": ', '"}', '"} '], True),
        (['{"a": "\\', '"}', '"}'], True),
        (['{"a": "\\\\', '"}'], True),
        (['{"a": [{"b": "]"}', "]}"], True),
        ([], False),
        ([""], False),
        (['{"a": "}"'], False),
        (['{"a": "\\"}'], False),
        (["{}", "{"], False),
        (["{}", "x"], False),
        (["x{}"], False),
        (["[{}]"], False),
    ],
)
def test_the_end_of_an_object_in_pieces(pieces: list[str], is_whole: bool) -> None:
    """It is complete when its last bracket has arrived, with any strings, and nothing follows."""
    end = JsonObjectEnd()
    for piece in pieces:
        end.feed(piece)
    assert end.is_whole is is_whole
    one = JsonObjectEnd()
    for character in "".join(pieces):
        one.feed(character)
    assert one.is_whole is is_whole
