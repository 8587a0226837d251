"""Every stop reason of every API in one table, for `endturn reasons` and `endturn.normalize`."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from typing import Final, Unpack

from endturn.errors import UsageError
from endturn.formats import FORMATS, Context, dialect_in, format_of, says_of_stop
from endturn.frameworks.rows import REASONS
from endturn.vocabulary import (
    ALIASES,
    COMPATIBLE,
    PROVIDERS,
    TRUNCATED,
    Api,
    Resume,
    Row,
    Stop,
    StopFacts,
    StopReason,
    apis as apis_of,
    find_row,
    find_stop,
    find_word,
    package_data,
    read_tsv,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One raw value of one API.

    Attributes:
        raw: spelled as the API does; of several members that belong together, joined
            ("incomplete:steered").
        formats: the formats in which our clients receive it, each with its dialect; empty for a
            framework's value.
    """

    api: Api
    raw: str
    row: Row
    formats: tuple[tuple[str, str], ...] = ()

    @property
    def normalized(self) -> str:
        """The normalised reason; "skip" if the value means that the response is in progress."""
        return self.row.reason.value if self.row.terminal else "skip"

    @property
    def truncated(self) -> bool:
        """True if a response with this value is truncated."""
        return self.row.terminal and self.row.reason in TRUNCATED

    def as_json(self) -> dict[str, str]:
        """Return the entry with the names and spelling of the printed table."""
        return {
            "api": self.api.name,
            "raw": self.raw,
            "normalized": self.normalized,
            "incomplete": "yes" if self.row.incomplete else "no",
            "resume": self.row.resume.value,
            "detail": self.row.detail or "",
            "source": self.row.source,
        }


def _meanings(kind: str) -> dict[str, str]:
    return {
        word: meaning
        for _, (word_kind, word, meaning) in read_tsv(package_data(), "meanings.tsv", range(3, 4))
        if word_kind == kind
    }


MEANING: Final[Mapping[StopReason, str]] = {
    StopReason(word): says for word, says in _meanings("reason").items()
}
RESUMES: Final[Mapping[Resume, str]] = {
    Resume(word): says for word, says in _meanings("resume").items()
}


@cache
def table() -> tuple[Entry, ...]:
    """Return every entry, by API in the order of the formats, then of the frameworks."""
    entries: dict[tuple[str, str], Entry] = {}
    for entry in (*_format_entries(), *_framework_entries()):
        key = (entry.api.name, entry.raw)
        earlier = entries.get(key)
        # LiteLLM's proxy and its library are one API.
        entries[key] = (
            entry
            if earlier is None
            else Entry(earlier.api, earlier.raw, earlier.row, earlier.formats + entry.formats)
        )
    apis = dict.fromkeys(name for name, _ in entries)
    return tuple(entry for api in apis for (name, _), entry in entries.items() if name == api)


def _format_entries() -> Iterator[Entry]:
    for name in FORMATS:
        for dialect, api in apis_of(name).items():
            for raw, row in format_of(name).reasons[dialect].items():
                yield Entry(api, raw, row, ((name, dialect),))


def _framework_entries() -> Iterator[Entry]:
    for framework, api in apis_of("frameworks").items():
        for raw, row in REASONS[framework].items():
            yield Entry(api, raw, row)


def explain(raw: str, provider: str | None = None) -> tuple[Entry, ...]:
    """Return the entries of a raw value, whatever its case; optionally those of one provider.

    Args:
        raw: as the provider sends it. Of a joined value a part is enough: "steered",
            "context_length_exceeded".
        provider: an API ("openai.responses"), a part of its name ("openai"), a provider's name as
            our clients know it ("mistral_ai"), or a format.

    Raises:
        UsageError: the raw value is no text.
    """
    if not isinstance(raw, str):
        hint = (
            ": a response without a reason has no raw value, and its stop is `missing`"
            if raw is None
            else ""
        )
        raise UsageError(f"a raw value must be text, not {raw!r}{hint}")
    entries = [entry for entry in table() if provider is None or is_of(entry, provider)]
    for find_match in (find_word, find_row):  # the whole value before its parts
        if matches := tuple(
            entry for entry in entries if find_match(raw, {entry.raw: entry.row}) is not None
        ):
            return matches
    part = raw.strip().lower()
    parts = tuple(
        entry
        for entry in entries
        if part and part in entry.raw.lower().replace("(", ":").split(":")
    )
    return parts or (of_error(raw) if part and provider is None else ())


_API_SEGMENTS: Final = {"aws.bedrock": "bedrock", "gcp.gemini": "google", "gcp.vertex_ai": "google"}
"""The segment of a provider's API names, if it is not the provider's own name."""


def _canonical_provider(provider: str) -> str:
    """Return a provider's name for a framework's spelling of it.

    The name of an API or a format stays, such as "bedrock.converse".
    """
    name = provider.strip().lower()
    if name in FORMATS:
        return name
    spelling = name.replace("-", "_")
    canonical = ALIASES.get(spelling, spelling)
    return canonical if canonical in PROVIDERS else name


def is_of(entry: Entry, provider: str) -> bool:
    """Return whether an entry belongs to the provider, API or format of that name."""
    name, provider_name, api = (
        provider.strip().lower(),
        _canonical_provider(provider),
        entry.api.name.lower(),
    )
    if name == api or _API_SEGMENTS.get(provider_name, name) in re.split(r"[.()]", api):
        return True
    if provider_name not in PROVIDERS:
        return any(name == format_name for format_name, _ in entry.formats)
    # A client of the provider may receive it; a server with a compatible format may send any of its
    # values.
    format_ = PROVIDERS[provider_name].format
    dialect = dialect_in(format_of(format_), provider_name)
    return any(
        format_name == name or (format_name == format_ and dialect in (dialect_name, COMPATIBLE))
        for format_name, dialect_name in entry.formats
    )


def normalize(
    raw: object,
    *,
    provider: str | None = None,
    format: str | None = None,
    **facts: Unpack[StopFacts],
) -> Stop:
    """Return the Stop of a provider's stop reason: for a provider function of your own.

    Without `provider` and `format`, the value is read as that of a server of OpenAI's chat format:
    `length`, `stop`, and the values of others that gateways pass on (`max_tokens`, `MAX_TOKENS`).

    Args:
        raw: as the provider sends it: text, enum member, mapping, object or None.
        provider: the provider or API, as `endturn explain --provider` takes it: "anthropic",
            "openai.responses".
        format: the format of the response: "anthropic", "openai_responses".
        terminal_seen: the response is complete: a body that parsed, a stream that reached its end.
        calls: the number of tool calls in the response that you have to run.
        calls_closed: every one of them is complete.
        output_tokens, prompt_tokens: as the provider reports them.
        maximum: the request's limit of output tokens.
        window: the model's context window, if known.
        refused: the response is a refusal, whatever its reason.
        detail: a detail that the reason does not contain.

    Returns:
        `missing` if there is no value, `unknown` if the value is in no table; never `end_turn` by
        default.

    Raises:
        UsageError: no such provider or format is known.
    """
    return find_stop(raw, _rows(provider, format), **facts)


@cache
def _rows(provider: str | None, format_: str | None) -> Mapping[str, Row]:
    """Return the table of a provider and a format.

    The last part of a joined value ("incomplete:steered") is a key too.
    """
    name = format_ or "openai_chat"
    fallback = rows = format_of(name).rows(Context(COMPATIBLE))
    if provider is not None:
        entries = [entry for entry in table() if is_of(entry, provider)]
        if not entries and format_ is None:
            raise UsageError(
                f"unknown provider or API {provider!r}: give the format of its responses instead, "
                f"format='openai_chat', or one of these: {', '.join(PROVIDERS)}"
            )
        format_entries = (
            entry
            for entry in entries
            if format_ is None or any(format_ == name for name, _ in entry.formats)
        )
        rows = {entry.raw: entry.row for entry in format_entries} or rows
        provider_name = _canonical_provider(provider)
        if provider_name in PROVIDERS and format_ in (None, PROVIDERS[provider_name].format):
            # If two of a provider's APIs have the same value, the API that our clients use decides.
            provider_format = format_of(PROVIDERS[provider_name].format)
            rows = {**rows, **provider_format.reasons[dialect_in(provider_format, provider_name)]}
        rows = {**rows, **fallback, **rows}
    return {**{raw.rpartition(":")[2]: row for raw, row in rows.items()}, **rows}


def of_error(raw: str) -> tuple[Entry, ...]:
    """Return the meaning of a code in error responses, such as "context_length_exceeded"."""
    stop = says_of_stop({"code": raw, "message": raw}, 400)
    if stop is None:
        return ()
    api = Api("error answers", "error.code or error.message", "an error event")
    return (
        Entry(
            api, raw, Row(stop.reason, stop.incomplete, stop.resume, stop.detail, "error answers")
        ),
    )


def apis() -> tuple[str, ...]:
    """Return the names of all APIs."""
    return tuple(dict.fromkeys(entry.api.name for entry in table()))


# --- The commands ---------------------------------------------------------------------------------


def list_command(provider: str | None, as_json: bool) -> int:
    """`endturn reasons`: print the table, or the rows of one provider."""
    rows = [entry.as_json() for entry in _entries_of(provider)]
    if as_json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
        return 0
    for cells in (rows[0], *(row.values() for row in rows)):
        print("\t".join(cells))
    return 0


def explain_command(raw: str, provider: str | None, as_json: bool) -> int:
    """`endturn explain`: print the meaning of a raw value. The status is 1 if no API has it."""
    candidates = _entries_of(provider)
    entries = explain(raw, provider)
    if as_json:
        print(json.dumps([entry.as_json() for entry in entries], ensure_ascii=False, indent=2))
    elif entries:
        print(_explanation(entries))
    else:
        of_provider = f" of {provider}" if provider else ""
        suggestions = get_close_matches(raw, sorted({entry.raw for entry in candidates}), n=3)
        hint = f"; did you mean {' or '.join(map(repr, suggestions))}?" if suggestions else ""
        print(f"no API{of_provider} is known to use {raw!r}{hint}", file=sys.stderr)
        print(
            "endturn records such a value as `unknown`, verbatim, and never continues the "
            "response.",
            file=sys.stderr,
        )
    return 0 if entries else 1


def _entries_of(provider: str | None) -> list[Entry]:
    entries = [entry for entry in table() if provider is None or is_of(entry, provider)]
    if not entries:
        names = ", ".join(apis())
        raise UsageError(f"unknown provider, API or format {provider!r}; the APIs are: {names}")
    return entries


def _explanation(entries: Iterable[Entry]) -> str:
    """Return the entries as text, grouped by their meaning."""
    meanings: dict[tuple[str, Row], list[Entry]] = {}
    for entry in entries:
        meanings.setdefault((entry.raw, replace(entry.row, source="")), []).append(entry)
    return "\n\n".join(_paragraph(raw, row, group) for (raw, row), group in meanings.items())


def _paragraph(raw: str, row: Row, group: list[Entry]) -> str:
    if not row.terminal:
        lines = [f"{raw}: not an end: the response is still being made"]
    else:
        detail = f" ({row.detail})" if row.detail else ""
        lines = [f"{raw or '(empty)'}: {row.reason.value}{detail}: {MEANING[row.reason]}"]
        truncated = (
            "yes"
            if group[0].truncated
            else "no, but the output is incomplete"
            if row.incomplete
            else "no"
        )
        lines += [
            f"  truncated  {truncated}",
            f"  resume     {row.resume.value}: {RESUMES[row.resume]}",
        ]
    width = max(len(entry.api.name) for entry in group)
    lines += [
        f"  {entry.api.name:<{width}}  {entry.api.path}  [{entry.row.source}]" for entry in group
    ]
    return "\n".join(lines)
