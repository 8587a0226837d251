"""Finds turns: by an id of anything in them, or by words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import quote, urlencode

from endturn.ui.numbers import OF_WHOM
from endturn.ui.store import Store
from endturn.ui.views import View

MOST_TEXTS: Final = 100_000
"""Recorded texts that are searched for words, the newest ones."""
MOST_WORDS: Final = 5
MOST_TURNS: Final = 1000
"""Turns that one id may stand for, such as a conversation's."""
_TRACEPARENT: Final = re.compile(r"[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-[\da-f]{2}")
_ID_COLUMNS: Final = ("trace_id", "span_id", "turn_id", "conversation", "response_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilter:
    """The turns that a search shows.

    Attributes:
        text: what is searched; "" where nothing is.
        condition: SQL on the columns of turns, with its parameters.
        is_id: the text is the id of something.
        texts: how many recorded texts there are in the time range, at most one more than are
            searched.
        left_words: words beyond `MOST_WORDS`, which are not looked for.
    """

    text: str = ""
    condition: str = "true"
    parameters: dict[str, Any] = field(default_factory=dict)
    is_id: bool = False
    texts: int = 0
    left_words: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """Whether some recorded texts are not searched."""
        return self.texts > MOST_TEXTS


def find_turns(store: Store, text: str) -> list[str]:
    """Return the turns of an id: of a turn, trace, span, conversation or response.

    A `traceparent` header is one of a span; upper case and the hyphens of a UUID make no difference
    to ids in hexadecimal. At most `MOST_TURNS`.
    """
    text = text.strip()
    if not text:
        return []
    plain = text.lower()
    if parent := _TRACEPARENT.fullmatch(plain):
        forms = [parent[2]]
    else:
        forms = list(dict.fromkeys((text, plain, plain.replace("-", ""))))
    parameters = {"ids": forms}
    any_of = "(SELECT unnest($ids::VARCHAR[]))"
    conditions = " OR ".join(f"{column} IN {any_of}" for column in _ID_COLUMNS)
    query = (
        f"SELECT turn_id FROM turns WHERE turn_id IN {any_of} OR trace_id IN {any_of}"
        f" UNION SELECT spans.turn_id FROM spans SEMI JOIN turns USING (turn_id) WHERE {conditions}"
        f" LIMIT {MOST_TURNS}"
    )
    turns = [turn_id for (turn_id,) in store.read(query, parameters)]
    if not turns:  # a span of something else in the same trace
        query = (
            "SELECT turn_id FROM turns WHERE trace_id IN (SELECT trace_id FROM spans"
            f" WHERE span_id IN {any_of}) LIMIT {MOST_TURNS}"
        )
        turns = [turn_id for (turn_id,) in store.read(query, parameters)]
    return turns


def address_of(view: View, store: Store) -> str:
    """Return the address that shows what the search field asks for: a turn, or the list."""
    text = view.given.get("q", "").strip()
    turns = find_turns(store, text)
    if len(turns) == 1:
        return view.link(f"/turns/{quote(turns[0], safe='')}", q="", state="", sort="")
    if turns:  # of whatever time, and whoever's
        return f"/turns?{urlencode({'q': text, 'range': 'all'})}"
    return view.link("/turns", q=text, state="", sort="")


def turn_filter(view: View, store: Store) -> TurnFilter:
    """Return the condition of the list's search: an id, or words that all stand in a turn."""
    text = view.given.get("q", "").strip()
    if not text:
        return TurnFilter()
    turns = find_turns(store, text)
    if turns:
        condition = "turn_id IN (SELECT unnest($found::VARCHAR[]))"
        return TurnFilter(text=text, condition=condition, parameters={"found": turns}, is_id=True)
    words = list(dict.fromkeys(text.lower().split()))
    since, texts = _searched_since(view, store)
    parameters: dict[str, Any] = {"since": since}
    conditions = ["$since IS NOT NULL"]
    for number, word in enumerate(words[:MOST_WORDS]):
        parameters[f"word{number}"] = word
        conditions.append(_has_word(f"$word{number}"))
    return TurnFilter(
        text=text,
        condition=f"({' AND '.join(conditions)})",
        parameters=parameters,
        texts=texts,
        left_words=tuple(words[MOST_WORDS:]),
    )


def _has_word(word: str) -> str:
    """Return the condition that a turn's names or recorded texts have a word."""
    names = " OR ".join(
        f"contains(lower({column}), {word})"
        for column in ("service", "provider", "model", "agent", "outcome")
    )
    texts = f"FROM texts WHERE at_ns >= $since AND contains(words, {word})"
    return (
        f"({names} OR turn_id IN (SELECT turn_id {texts} AND turn_id IS NOT NULL"
        f" UNION ALL SELECT spans.turn_id FROM spans SEMI JOIN"
        f" (SELECT span_id {texts} AND turn_id IS NULL) USING (span_id)"
        " WHERE spans.turn_id IS NOT NULL))"
    )


def _searched_since(view: View, store: Store) -> tuple[int, int]:
    """Return the time from which on texts are searched, and how many there are, with a bound."""
    where = "FROM texts WHERE at_ns >= $start AND at_ns <= $end"
    parameters = {"start": view.scope.start_ns, "end": view.scope.end_ns}
    ((count,),) = store.read(f"SELECT count(*) {where}", parameters)
    if count <= MOST_TEXTS:
        return view.scope.start_ns, count
    query = f"SELECT at_ns {where} ORDER BY at_ns DESC LIMIT 1 OFFSET {MOST_TEXTS - 1}"
    ((since,),) = store.read(query, parameters)
    return since, count


def turns_of(view: View, store: Store) -> tuple[str, dict[str, Any]]:
    """Return the condition on rows of turns that the list's tab and search show; "" for all."""
    conditions, parameters = [], {}
    if state := view.given.get("state"):
        conditions.append("state = $state")
        parameters["state"] = state
    search = turn_filter(view, store)
    if search.text:
        conditions.append(search.condition)
        parameters |= search.parameters
    if not conditions:
        return "", {}
    where = " AND ".join(conditions)
    return f" AND turn_id IN (SELECT turn_id FROM turns WHERE {where})", parameters


def unmatched(view: View, store: Store) -> str:
    """Return the filters of a view, in words, if nothing that is stored has them; else ""."""
    only = view.scope.only
    if not only:
        return ""
    turns = " AND ".join(f"{name} = ${name}" for name in only)
    series = " AND ".join(f"{OF_WHOM[name]} = ${name}" for name in only)
    query = f"""
        SELECT EXISTS (FROM turns WHERE {turns}) OR EXISTS (FROM series WHERE {series})
        OR EXISTS (FROM spans WHERE {turns})
    """
    if store.read(query, only) == [(True,)]:
        return ""
    return ", ".join(f"{name} {value}" for name, value in only.items())
