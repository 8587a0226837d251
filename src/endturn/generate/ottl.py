"""Values for the templates of the Collector's statements: stop reasons as OTTL patterns.

The statements that set the normalised stop reason of every span are in
`otelcol/parts/statements.ottl`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import yaml

from endturn import frameworks
from endturn.frameworks import exceptions, lookup
from endturn.generate import redaction
from endturn.generate.emitters import CLAUDE_CODE, INFERENCE, SOURCES, AttributeSource
from endturn.generate.redacted_names import GENAI_EVENTS, names_of
from endturn.generate.templates import environment
from endturn.telemetry import Attribute, schema
from endturn.vocabulary import ALIASES, PROVIDERS, TRUNCATED, StopReason, find_row

# OpenInference keeps the request's parameters as JSON text.
_PARAMETERS: Final = 'span.attributes["llm.invocation_parameters"]'
_LIMIT_PATTERN: Final = '"max_(?:completion_|output_)?tokens\\"\\\\s*:\\\\s*(?P<n>[0-9]+)"'
PARAMETERS_LIMIT: Final = f'Int(ExtractPatterns({_PARAMETERS}, {_LIMIT_PATTERN})["n"])'
HAS_PARAMETERS_LIMIT: Final = (
    f"IsString({_PARAMETERS}) and IsMatch({_PARAMETERS}, {_LIMIT_PATTERN})"
)
_LONGEST: Final = 128
"""The maximum length of a name that becomes a label."""
_CANCELLED: Final = ("AbortError", "CancelledError")
"""Exception classes that cancel a call: JavaScript's, and asyncio's."""
_STATES: Final = ("completed", "failed", "in_progress", "cancelled", "queued", "incomplete")


def attribute(of: Attribute | str) -> str:
    """Return the OTTL expression for an attribute of a span."""
    return f'span.attributes["{of.key if isinstance(of, Attribute) else of}"]'


REASON: Final = attribute(schema.REASON)
FINISH: Final = attribute(schema.FINISH_REASONS)
STATUS: Final = attribute("gen_ai.response.status")
_OPERATION: Final = attribute(schema.OPERATION)
FETCHED: Final = f'IsMatch({_OPERATION}, "(?i)^fetch_response$")'
"""Condition of a span that repeats the reason of an answer that was counted before."""
NOT_OWN: Final = (
    f'scope.name != "{schema.SCOPE}" or {attribute(schema.ATTRIBUTE_COUNT)} != Len(span.attributes)'
)
"""Condition of a span that may have attributes from its host or another instrumentation."""
HAS_URLS: Final = " or ".join(f"{attribute(name)} != nil" for name in names_of("urls"))


def condition() -> str:
    """Return the condition of spans that get a reason.

    These are spans of a model's answer that have a reason or failed, and no reason of ours yet.
    """
    inference = matches(_OPERATION, INFERENCE, flags="(?i)")
    attributes = [
        FINISH,
        STATUS,
        *(attribute(source.attribute) for source in SOURCES if not source.span),
    ]
    either = (
        *(f"{attribute_name} != nil" for attribute_name in attributes),
        f'span.name == "{CLAUDE_CODE.span}"',
        f"({inference} and span.status.code == STATUS_CODE_ERROR)",
    )
    outer = f'IsMatch({attribute("ai.operationId")}, "^ai\\\\.(generate|stream)(Text|Object)$")'
    whose = f"({_OPERATION} == nil or {FETCHED} or {inference})"
    return f"{REASON} == nil and {whose} and not {outer} and ({' or '.join(either)})"


def is_present(source: AttributeSource) -> str:
    """Return the condition that a span has this source of a reason."""
    condition = f"{attribute(source.attribute)} != nil"
    return f'{condition} and span.name == "{source.span}"' if source.span else condition


def truncation_statement(name: str) -> str:
    """Return the statement that truncates a name by characters, since half of one is invalid."""
    head = f'ExtractPatterns({name}, "(?s)^(?P<head>.{{{_LONGEST}}})")["head"]'
    return (
        f"set({name}, {head}) where IsString({name}) and IsMatch({name}, "
        f'"(?s)^.{{{_LONGEST + 1}}}")'
    )


def unmapped() -> str:
    """Return the condition for a reason that has no row.

    It does not hold for a reason whose row marks it as empty.
    """
    silent = {
        entry.raw.lower() for entry in lookup.table() if entry.row.reason is StopReason.UNKNOWN
    }
    raw = attribute(schema.RAW)
    return (
        f'{REASON} == "{StopReason.UNKNOWN}" and {raw} != nil and not '
        f"{matches(raw, silent, flags='(?i)')}"
    )


def first_of(*names: str) -> str:
    """Return the value of the first of these attributes that is present."""
    return f"Coalesce([{', '.join(map(attribute, names))}])"


# --- Meaning of a value ---------------------------------------------------------------------------


def judged(raw: str, provider: str = "") -> StopReason:
    """Return the reason that the Collector gives a value.

    It is the library's for a span, and also covers the values of frameworks.
    """
    stop = frameworks.otel([raw], provider=provider or None)
    rows = (find_row(raw, frameworks.REASONS[name]) for name in ("vercel.v4", "langchain"))
    row = None if stop.mapped else next((row for row in rows if row is not None), None)
    return stop.reason if row is None else row.reason


@cache
def _universe() -> frozenset[str]:
    """Return every raw value of every table.

    This includes parts of composite values that frameworks pass on alone.
    """
    raws = {entry.raw for entry in lookup.table()}
    return frozenset({*raws, *(raw.removeprefix("incomplete:") for raw in raws)} - {""})


def _by_reason(words: Iterable[tuple[StopReason, str]]) -> Mapping[StopReason, tuple[str, ...]]:
    words_by_reason: dict[StopReason, set[str]] = {}
    for reason, word in words:
        words_by_reason.setdefault(reason, set()).add(word)
    return {
        reason: tuple(sorted(words_by_reason[reason]))
        for reason in StopReason
        if reason in words_by_reason
    }


def common() -> Mapping[StopReason, tuple[str, ...]]:
    """Return the values that mean a reason for every provider, by reason."""
    judged_words = ((judged(raw), raw.lower()) for raw in _universe())
    return _by_reason(
        (reason, raw) for reason, raw in judged_words if reason is not StopReason.UNKNOWN
    )


def by_provider() -> Mapping[tuple[StopReason, tuple[str, ...]], tuple[str, ...]]:
    """Return the values that mean a reason for some providers only."""
    by_value: dict[tuple[StopReason, str], list[str]] = {}
    for provider in sorted({*PROVIDERS, *ALIASES}):
        for raw in sorted(_universe()):
            reason = judged(raw, provider)
            if reason is not judged(raw):
                by_value.setdefault((reason, raw.lower()), []).append(provider)
    words_by_key: dict[tuple[StopReason, tuple[str, ...]], list[str]] = {}
    for (reason, raw), providers in by_value.items():
        words_by_key.setdefault((reason, tuple(providers)), []).append(raw)
    return {key: tuple(sorted(set(raws))) for key, raws in sorted(words_by_key.items())}


def classes() -> Mapping[StopReason, tuple[str, ...]]:
    """Return the exception classes that stand for a response, by its reason."""
    named = ((reason, name) for (_, name), reason in exceptions.REASON_BY_CLASS.items())
    return _by_reason([*((StopReason.CANCELLED, name) for name in _CANCELLED), *named])


def states() -> Mapping[str, str | None]:
    """Return the reason of a job, by its state."""
    return {state: frameworks.otel({"gen_ai.response.status": state}).raw for state in _STATES}


def aliases() -> Mapping[str, set[str]]:
    """Return the other names of providers that have some, by provider."""
    aliases_by_name = {name: PROVIDERS[name].aliases for name in sorted(PROVIDERS)}
    return {
        name: {*others, *(alias.replace("_", "-") for alias in others)}
        for name, others in aliases_by_name.items()
        if others
    }


# --- As OTTL --------------------------------------------------------------------------------------


def matches(value: str, words: Iterable[str], *, template: str = "{}", flags: str = "") -> str:
    """Return the condition that a value is one of these words.

    With `template`, a word is inserted into that template first.
    """
    pattern = "|".join(template.format(_escaped(str(word))) for word in sorted(words))
    return f"IsMatch({value}, {redaction.quoted(f'{flags}^(?:{pattern})$')})"


def _escaped(text: str) -> str:
    """Return a Go regular expression that matches the text literally.

    `re.escape` escapes more than RE2 allows.
    """
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def scalar(text: str) -> str:
    """Return the text as YAML in one line, quoted if necessary."""
    return (
        yaml.safe_dump(text, width=10**6, allow_unicode=True)
        .removesuffix("\n")
        .removesuffix("\n...")
    )


# --- The templates --------------------------------------------------------------------------------


def statements() -> list[str]:
    """Return the statements that give a span its reason, in order."""
    return TEMPLATES.get_template("parts/statements.ottl").render().splitlines()


def items(text: str) -> str:
    """Statements, one a line, as the items of a list."""
    return "".join(f"{' ' * 10}- {scalar(line)}\n" for line in text.splitlines())


TEMPLATES: Final = environment("otelcol")
TEMPLATES.filters.update(scalar=scalar, items=items)
TEMPLATES.globals.update(
    {
        function.__name__: function
        for function in (
            attribute, matches, is_present, truncation_statement, first_of, condition, unmapped
        )
    },
    schema=schema, redaction=redaction, genai_events=GENAI_EVENTS, not_own=NOT_OWN,
    has_urls=HAS_URLS, sources=SOURCES, claude_code=CLAUDE_CODE, truncated=TRUNCATED,
    reasons=StopReason, reason=REASON, finish=FINISH, status=STATUS, raw='span.cache["raw"]',
    fetched=FETCHED, parameters_limit=PARAMETERS_LIMIT, parameters_tell=HAS_PARAMETERS_LIMIT,
    states=states, aliases=aliases, by_provider=by_provider, common=common,
    classes=classes, dotted=[name for name in PROVIDERS if "." in name],
    unknown_to_vercel=[raw for raw, row in frameworks.REASONS["vercel.v4"].items()
                       if row.reason is StopReason.UNKNOWN],
)  # fmt: skip
