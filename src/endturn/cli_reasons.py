"""`endturn reasons` and `endturn explain`: the table of stop reasons, printed, and a value of it in sentences."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import replace
from difflib import get_close_matches

from endturn import reasons
from endturn.errors import UsageError
from endturn.reasons import Entry
from endturn.stop import Row


def listed(provider: str | None, as_json: bool) -> int:
    """Print the table, or the rows of one provider."""
    rows = [entry.as_json() for entry in _entries_of(provider)]
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    for cells in (rows[0], *(row.values() for row in rows)):
        print("\t".join(cells))
    return 0


def explain(raw: str, provider: str | None, as_json: bool) -> int:
    """Print what a raw value means; the status is 1 where nobody is known to use it."""
    known = _entries_of(provider)
    found = reasons.explain(raw, provider)
    if as_json:
        print(json.dumps([entry.as_json() for entry in found], ensure_ascii=False, indent=2))
    elif found:
        print(_explained(found))
    else:
        whose = f" of {provider}" if provider else ""
        like = get_close_matches(raw, sorted({entry.raw for entry in known}), n=3)
        hint = f"; did you mean {' or '.join(map(repr, like))}?" if like else ""
        print(f"no API{whose} is known to use {raw!r}{hint}", file=sys.stderr)
        print("endturn records such a value as `unknown`, keeps it verbatim, and never continues it.", file=sys.stderr)
    return 0 if found else 1


def _entries_of(provider: str | None) -> list[Entry]:
    found = [entry for entry in reasons.table() if provider is None or reasons.is_of(entry, provider)]
    if not found:
        apis = ", ".join(reasons.apis())
        raise UsageError(f"no provider, API or format is known as {provider!r}; the APIs are: {apis}")
    return found


def _explained(entries: Iterable[Entry]) -> str:
    """Entries in sentences, those of one meaning together."""
    meanings: dict[tuple[str, Row], list[Entry]] = {}
    for entry in entries:
        meanings.setdefault((entry.raw, replace(entry.row, source="")), []).append(entry)
    return "\n\n".join(_paragraph(raw, row, group) for (raw, row), group in meanings.items())


def _paragraph(raw: str, row: Row, group: list[Entry]) -> str:
    if not row.terminal:
        lines = [f"{raw}: not an end: the response is still being made"]
    else:
        detail = f" ({row.detail})" if row.detail else ""
        lines = [f"{raw or '(empty)'}: {row.reason.value}{detail}: {reasons.MEANING[row.reason]}"]
        cut = "yes" if group[0].truncated else "no, but the output is incomplete" if row.incomplete else "no"
        lines += [f"  truncated  {cut}", f"  resume     {row.resume.value}: {reasons.RESUMES[row.resume]}"]
    width = max(len(entry.api.name) for entry in group)
    lines += [f"  {entry.api.name:<{width}}  {entry.api.path}  [{entry.row.source}]" for entry in group]
    return "\n".join(lines)
