"""Every stop reason of every API in one table.

What `endturn reasons` prints and `endturn.normalize` looks up.
"""

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
    lines,
    shipped,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One raw value of one API.

    Attributes:
        raw: spelled as the API does; of several members that belong together, joined
            ("incomplete:steered").
        formats: the formats in which our clients meet it, each with its dialect; empty for a
            framework's value.
    """

    api: Api
    raw: str
    row: Row
    formats: tuple[tuple[str, str], ...] = ()

    @property
    def normalized(self) -> str:
        """Our word for it; "skip" where the value says that the response is still being made."""
        return self.row.reason.value if self.row.terminal else "skip"

    @property
    def truncated(self) -> bool:
        """Whether a response that ends so was cut off."""
        return self.row.terminal and self.row.reason in TRUNCATED

    def as_json(self) -> dict[str, str]:
        """The entry with its members' names and spelling as in the printed table."""
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
        word: says
        for _, (of, word, says) in lines(shipped(), "meanings.tsv", range(3, 4))
        if of == kind
    }


MEANING: Final[Mapping[StopReason, str]] = {
    StopReason(word): says for word, says in _meanings("reason").items()
}
RESUMES: Final[Mapping[Resume, str]] = {
    Resume(word): says for word, says in _meanings("resume").items()
}


@cache
def table() -> tuple[Entry, ...]:
    """Every entry, by API in the order of the formats, then of the frameworks."""
    found: dict[tuple[str, str], Entry] = {}
    for entry in (*_of_formats(), *_of_frameworks()):
        key = (entry.api.name, entry.raw)
        known = found.get(key)
        # LiteLLM's proxy and its library are one API.
        found[key] = (
            entry
            if known is None
            else Entry(known.api, known.raw, known.row, known.formats + entry.formats)
        )
    apis = dict.fromkeys(name for name, _ in found)
    return tuple(entry for api in apis for (name, _), entry in found.items() if name == api)


def _of_formats() -> Iterator[Entry]:
    for name in FORMATS:
        for dialect, api in apis_of(name).items():
            for raw, row in format_of(name).reasons[dialect].items():
                yield Entry(api, raw, row, ((name, dialect),))


def _of_frameworks() -> Iterator[Entry]:
    for framework, api in apis_of("frameworks").items():
        for raw, row in REASONS[framework].items():
            yield Entry(api, raw, row)


def explain(raw: str, provider: str | None = None) -> tuple[Entry, ...]:
    """The entries of a raw value, whatever its case; those of one provider, where one is named.

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
            ": where no reason arrived there is no raw value, and the stop is `missing`"
            if raw is None
            else ""
        )
        raise UsageError(f"a raw value must be text, not {raw!r}{hint}")
    known = [entry for entry in table() if provider is None or is_of(entry, provider)]
    for find in (find_word, find_row):  # the whole value before its parts
        if exact := tuple(
            entry for entry in known if find(raw, {entry.raw: entry.row}) is not None
        ):
            return exact
    part = raw.strip().lower()
    parts = tuple(
        entry for entry in known if part and part in entry.raw.lower().replace("(", ":").split(":")
    )
    return parts or (of_error(raw) if part and provider is None else ())


_SEGMENT: Final = {"aws.bedrock": "bedrock", "gcp.gemini": "google", "gcp.vertex_ai": "google"}
"""What the names of a provider's APIs begin with, where that is not in its own name."""


def _named(provider: str) -> str:
    """A provider's name, by what frameworks call it.

    That of an API or a format stays, "bedrock.converse" for one.
    """
    asked = provider.strip().lower()
    if asked in FORMATS:
        return asked
    spelled = asked.replace("-", "_")
    known = ALIASES.get(spelled, spelled)
    return known if known in PROVIDERS else asked


def is_of(entry: Entry, provider: str) -> bool:
    """Whether an entry is of the provider, API or format of that name."""
    asked, known, api = provider.strip().lower(), _named(provider), entry.api.name.lower()
    if asked == api or _SEGMENT.get(known, asked) in re.split(r"[.()]", api):
        return True
    if known not in PROVIDERS:
        return any(asked == speaks for speaks, _ in entry.formats)
    # A client of the provider may meet it; one that imitates a format may use any of its words.
    format_ = PROVIDERS[known].format
    dialect = dialect_in(format_of(format_), known)
    return any(
        speaks == asked or (speaks == format_ and dialect in (whose, COMPATIBLE))
        for speaks, whose in entry.formats
    )


def normalize(
    raw: object,
    *,
    provider: str | None = None,
    format: str | None = None,
    **known: Unpack[StopFacts],
) -> Stop:
    """The Stop of a provider's stop reason: for a provider function of your own.

    Without `provider` and `format`, the value is read as a server of OpenAI's chat format may say
    it: `length`, `stop`, and what gateways pass on of others (`max_tokens`, `MAX_TOKENS`).

    Args:
        raw: as the provider sends it: text, enum member, mapping, object or None.
        provider: whose value it is, as `endturn explain --provider` takes it: "anthropic",
            "openai.responses".
        format: the format that it comes in: "anthropic", "openai_responses".
        terminal_seen: the answer is whole: a body that parsed, a stream that came to its end.
        calls: how many tool calls the answer holds that you are to run.
        calls_closed: every one of them is complete.
        output_tokens, prompt_tokens: as the provider reports them.
        maximum: the request's limit of output tokens.
        window: the model's context window, where you know it.
        refused: the answer is a refusal, whatever the reason says.
        detail: what the reason does not say.

    Returns:
        `missing` where there is no value, `unknown` where the value is in no table; never
        `end_turn` by default.

    Raises:
        UsageError: no such provider or format is known.
    """
    return find_stop(raw, _rows(provider, format), **known)


@cache
def _rows(provider: str | None, format_: str | None) -> Mapping[str, Row]:
    """The table of a provider and a format.

    Of a joined value ("incomplete:steered") its last part is enough.
    """
    name = format_ or "openai_chat"
    fallback = rows = format_of(name).rows(Context(COMPATIBLE))
    if provider is not None:
        found = [entry for entry in table() if is_of(entry, provider)]
        if not found and format_ is None:
            raise UsageError(
                f"unknown provider or API {provider!r}: give the format of its answers instead, "
                f"format='openai_chat', or one of these: {', '.join(PROVIDERS)}"
            )
        spoken = (
            entry
            for entry in found
            if format_ is None or any(format_ == name for name, _ in entry.formats)
        )
        rows = {entry.raw: entry.row for entry in spoken} or rows
        asked = _named(provider)
        if asked in PROVIDERS and format_ in (None, PROVIDERS[asked].format):
            # Where two of a provider's APIs have the same word, the one that our clients speak
            # decides.
            speaks = format_of(PROVIDERS[asked].format)
            rows = {**rows, **speaks.reasons[dialect_in(speaks, asked)]}
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
    """The names of all APIs."""
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
    """`endturn explain`: print what a raw value means.

    The status is 1 where nobody is known to use it.
    """
    known = _entries_of(provider)
    found = explain(raw, provider)
    if as_json:
        print(json.dumps([entry.as_json() for entry in found], ensure_ascii=False, indent=2))
    elif found:
        print(_explained(found))
    else:
        whose = f" of {provider}" if provider else ""
        like = get_close_matches(raw, sorted({entry.raw for entry in known}), n=3)
        hint = f"; did you mean {' or '.join(map(repr, like))}?" if like else ""
        print(f"no API{whose} is known to use {raw!r}{hint}", file=sys.stderr)
        print(
            "endturn records such a value as `unknown`, verbatim, and never continues the "
            "response.",
            file=sys.stderr,
        )
    return 0 if found else 1


def _entries_of(provider: str | None) -> list[Entry]:
    found = [entry for entry in table() if provider is None or is_of(entry, provider)]
    if not found:
        named = ", ".join(apis())
        raise UsageError(f"unknown provider, API or format {provider!r}; the APIs are: {named}")
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
        lines = [f"{raw or '(empty)'}: {row.reason.value}{detail}: {MEANING[row.reason]}"]
        cut = (
            "yes"
            if group[0].truncated
            else "no, but the output is incomplete"
            if row.incomplete
            else "no"
        )
        lines += [f"  truncated  {cut}", f"  resume     {row.resume.value}: {RESUMES[row.resume]}"]
    width = max(len(entry.api.name) for entry in group)
    lines += [
        f"  {entry.api.name:<{width}}  {entry.api.path}  [{entry.row.source}]" for entry in group
    ]
    return "\n".join(lines)
