"""Finds turns by an id (of a turn, trace, span, conversation or response) or by words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote, urlencode

from endturn.ui.numbers import FILTER_LABELS
from endturn.ui.store import Store
from endturn.ui.views import View

MOST_TEXTS: Final = 50_000
"""The most recorded texts that are searched for words, newest first."""
MOST_MATCHES: Final = 10_000
"""The most turns that a search for words lists, newest first."""
MOST_WORDS: Final = 5
MOST_TURNS: Final = 1000
"""The most turns of one id, such as that of a conversation."""
_TRACEPARENT: Final = re.compile(r"[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-[\da-f]{2}")
NAMED: Final = ("service", "provider", "model")
"""The columns of turns whose values are searched for words too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilter:
    """The turns that a search shows.

    Attributes:
        text: the text of the search; "" without a search.
        condition: an SQL condition on the columns of turns; parameters: its parameters.
        is_id: the text is an id.
        texts: the number of recorded texts in the time range; the newest `MOST_TEXTS` are searched.
        is_cut: more turns have the words than are listed.
        ignored_words: words beyond `MOST_WORDS`, which are not searched for.
    """

    text: str = ""
    condition: str = "true"
    parameters: dict[str, object] = field(default_factory=dict)
    is_id: bool = False
    texts: int = 0
    is_cut: bool = False
    ignored_words: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        """True if there are more recorded texts than are searched."""
        return self.texts > MOST_TEXTS


def find_turns(store: Store, text: str) -> list[str]:
    """Return the turns of an id: of a turn, trace, span, conversation or response.

    A `traceparent` header is read as the id of its span. Hexadecimal ids match in upper and lower
    case, and with or without the hyphens of a UUID. At most `MOST_TURNS` are returned.
    """
    text = text.strip()
    if not text:
        return []
    plain = text.lower()
    if parent := _TRACEPARENT.fullmatch(plain):
        forms = (parent[2],) * 3
    else:
        forms = (text, plain, plain.replace("-", ""))
    parameters = {f"id{number}": form for number, form in enumerate(forms)}
    any_of = "IN ($id0, $id1, $id2)"
    of_spans = (
        f"SELECT turn_id FROM spans WHERE {column} {any_of}"
        for column in ("trace_id", "span_id", "turn_id", "conversation", "response_id")
    )
    of_turns = f"SELECT turn_id FROM turns WHERE turn_id {any_of} OR trace_id {any_of}"
    query = f"SELECT DISTINCT turn_id FROM ({' UNION ALL '.join((of_turns, *of_spans))})"
    ids = [turn_id for (turn_id,) in store.read_tuples(query, parameters)]
    if not any(ids):  # another span in the trace of a turn
        query = f"SELECT DISTINCT trace_id FROM spans WHERE span_id {any_of}"
        traces = [trace_id for (trace_id,) in store.read_tuples(query, parameters)]
        return _turns(store, "trace_id", traces) if traces else []
    return _turns(store, "turn_id", [turn_id for turn_id in ids if turn_id])


def _turns(store: Store, column: str, values: list[str]) -> list[str]:
    query = (
        f"SELECT turn_id FROM turns WHERE {column} IN (SELECT unnest($values::VARCHAR[]))"
        f" ORDER BY start_ns DESC LIMIT {MOST_TURNS}"
    )
    return [turn_id for (turn_id,) in store.read_tuples(query, {"values": values})]


def address_of(view: View, store: Store) -> str:
    """Return the address of the result of a search: a turn, or the list of turns."""
    text = view.parameters.get("q", "").strip()
    turns = find_turns(store, text)
    if len(turns) == 1:
        return view.link(f"/turns/{quote(turns[0], safe='')}", q="", state="", sort="")
    if turns:  # without the filters of the view
        return f"/turns?{urlencode({'q': text, 'range': 'all'})}"
    return view.link("/turns", q=text, state="", sort="")


def turn_filter(view: View, store: Store) -> TurnFilter:
    """Return the condition of a search: an id, or words that a turn contains all of."""
    text = view.parameters.get("q", "").strip()
    if not text:
        return TurnFilter()
    turns = find_turns(store, text)
    if turns:
        condition = "turn_id IN (SELECT unnest($ids::VARCHAR[]))"
        return TurnFilter(text=text, condition=condition, parameters={"ids": turns}, is_id=True)
    words = list(dict.fromkeys(text.lower().split()))
    names = {
        word: {
            column: matches
            for column in NAMED
            if (matches := [name for name in view.choices[column] if word in name.lower()])
        }
        for word in words[:MOST_WORDS]
    }
    since, texts, has_loose = _searched_since(view, store)
    turns_with: dict[str, list[str]] = {}
    is_cut = False
    if texts:
        turns_with, is_cut = _turns_with_words(store, names, since, has_loose=has_loose)
    parameters: dict[str, object] = {}
    conditions = []
    for number, (word, columns) in enumerate(names.items()):
        parameters[f"turns{number}"] = turns_with.get(word, [])
        clauses = [f"turn_id IN (SELECT unnest($turns{number}::VARCHAR[]))"]
        for column, matches in columns.items():
            parameters[f"{column}{number}"] = matches
            clauses.append(f"list_contains(${column}{number}::VARCHAR[], {column})")
        conditions.append(f"({' OR '.join(clauses)})")
    return TurnFilter(
        text=text,
        condition=" AND ".join(conditions),
        parameters=parameters,
        texts=texts,
        is_cut=is_cut,
        ignored_words=tuple(words[MOST_WORDS:]),
    )


def _turns_with_words(
    store: Store, names: Mapping[str, object], since: int, *, has_loose: bool
) -> tuple[dict[str, list[str]], bool]:
    """Return the turns whose recorded texts contain each word, and True if there are more.

    Args:
        names: by word, the names of services, providers and models that contain it. The texts of a
            turn must contain each word that no name contains.
        has_loose: some texts have no turn id; their turn is that of their span.
    """
    words = list(names)
    expressions = [f"bool_or(contains(words, $word{number}))" for number in range(len(words))]
    required = [
        expression for expression, word in zip(expressions, words, strict=True) if not names[word]
    ]
    source = "texts"
    if has_loose:
        source = (
            "(SELECT at_ns, words, coalesce(texts.turn_id, spans.turn_id) AS turn_id"
            " FROM texts LEFT JOIN spans USING (span_id))"
        )
    query = (
        f"SELECT turn_id, {', '.join(expressions)} FROM {source} WHERE at_ns >= $since"
        f" AND turn_id IS NOT NULL GROUP BY turn_id HAVING {' AND '.join(required or ['true'])}"
        f" AND ({' OR '.join(expressions)}) ORDER BY max(at_ns) DESC LIMIT {MOST_MATCHES + 1}"
    )
    parameters = {f"word{number}": word for number, word in enumerate(words)} | {"since": since}
    rows = store.read_tuples(query, parameters)
    turns_with = {
        word: [row[0] for row in rows[:MOST_MATCHES] if row[number + 1]]
        for number, word in enumerate(words)
    }
    return turns_with, len(rows) > MOST_MATCHES


def _searched_since(view: View, store: Store) -> tuple[int, int, bool]:
    """Return the start of the searched time, the number of texts, and if some have no turn id."""
    where = "FROM texts WHERE at_ns >= $start AND at_ns <= $end"
    parameters: dict[str, object] = {"start": view.scope.start_ns, "end": view.scope.end_ns}
    query = f"SELECT count(*), count(*) > count(turn_id) {where}"
    ((count, has_loose),) = store.read_tuples(query, parameters)
    if count <= MOST_TEXTS:
        return view.scope.start_ns, count, has_loose
    parameters["older"] = 1 - MOST_TEXTS / count
    ((newest,),) = store.read_tuples(f"SELECT quantile_disc(at_ns, $older) + 1 {where}", parameters)
    return newest, count, has_loose


def turns_of(view: View, store: Store) -> tuple[str, dict[str, object]]:
    """Return an SQL condition, with its parameters, for rows of the turns in the list.

    The list is restricted by its tab and by its search; "" if by neither.
    """
    conditions: list[str] = []
    parameters: dict[str, object] = {}
    if state := view.parameters.get("state"):
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
    """Return the filters of a view, in words, if no stored data match them; else ""."""
    only = view.scope.only
    if not only:
        return ""
    turns = " AND ".join(f"{name} = ${name}" for name in only)
    series = " AND ".join(f"{FILTER_LABELS[name]} = ${name}" for name in only)
    query = f"""
        SELECT EXISTS (FROM turns WHERE {turns}) OR EXISTS (FROM series WHERE {series})
        OR EXISTS (FROM spans WHERE {turns})
    """
    if store.read_tuples(query, only) == [(True,)]:
        return ""
    return ", ".join(f"{name} {value}" for name, value in only.items())
