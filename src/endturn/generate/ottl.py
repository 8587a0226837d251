"""The Collector's statements that give every span its stop reason in our words, written from the same tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Final

import yaml

from endturn import frameworks, reasons
from endturn.frameworks import exceptions
from endturn.generate.emitters import CLAUDE_CODE, INFERENCE, SOURCES, Source
from endturn.providers import ALIASES, PROVIDERS
from endturn.stop import TRUNCATED, StopReason, find_row
from endturn.telemetry import schema

FETCH: Final = "fetch_response"
"""The operation that repeats the reason of an answer which was counted when it was made."""

_MODELS: Final = ("llm.model_name", "ai.model.id", "gen_ai.response.model")
_PROVIDERS: Final = ("gen_ai.system", "llm.provider", "llm.system", "ai.model.provider")
_OUTPUTS: Final = (
    *("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens"),
    *("llm.token_count.completion", "ai.usage.outputTokens", "ai.usage.completionTokens"),
)
_LIMITS: Final = (
    *("gen_ai.request.max_tokens", "llm.request.max_tokens"),
    *("ai.settings.maxOutputTokens", "ai.settings.maxTokens"),
)
# OpenInference keeps the request's parameters as JSON text.
_PARAMETERS: Final = 'span.attributes["llm.invocation_parameters"]'
_WANTED: Final = '"max_(?:completion_|output_)?tokens\\"\\\\s*:\\\\s*(?P<n>[0-9]+)"'
_PARAMETERS_LIMIT: Final = f'Int(ExtractPatterns({_PARAMETERS}, {_WANTED})["n"])'
_PARAMETERS_TELL: Final = f"IsString({_PARAMETERS}) and IsMatch({_PARAMETERS}, {_WANTED})"
_LONGEST: Final = 128
"""Characters of a name that becomes a label."""
_CANCELLED: Final = ("AbortError", "CancelledError")
"""Classes of what a caller raises into a call that it gives up: JavaScript's, and asyncio's."""
_REPEATS: Final = "(?:{})+"

REASON: Final = f'span.attributes["{schema.REASON.key}"]'
_RAW: Final = 'span.cache["raw"]'
_KEY: Final = 'span.cache["key"]'
_FINISH: Final = f'span.attributes["{schema.FINISH_REASONS.key}"]'
_STATUS: Final = 'span.attributes["gen_ai.response.status"]'
_OPERATION: Final = f'span.attributes["{schema.OPERATION.key}"]'
_OPERATION_ID: Final = 'span.attributes["ai.operationId"]'
FETCHED: Final = f'IsMatch({_OPERATION}, "(?i)^{FETCH}$")'
_OUTER: Final = f'IsMatch({_OPERATION_ID}, "^ai\\\\.(generate|stream)(Text|Object)$")'


def judged(raw: str, provider: str = "") -> StopReason:
    """What a value means to the Collector: what the library makes of a span, and the words of frameworks besides."""
    stop = frameworks.otel([raw], provider=provider or None)
    if stop.mapped:
        return stop.reason
    for name in ("vercel.v4", "langchain"):
        row = find_row(raw, frameworks.REASONS[name])
        if row is not None:
            return row.reason
    return stop.reason


def condition() -> str:
    """Which spans are given a reason: those of a model's answer that tell one, or failed, and have none of ours yet."""
    told = [_FINISH, _STATUS, *(f'span.attributes["{each.attribute}"]' for each in SOURCES if not each.span)]
    inference = f"IsMatch({_OPERATION}, {quoted('(?i)' + _pattern(INFERENCE))})"
    either = " or ".join(
        [
            *(f"{each} != nil" for each in told),
            f'span.name == "{CLAUDE_CODE.span}"',
            f"({inference} and span.status.code == STATUS_CODE_ERROR)",
        ]
    )
    whose = f"({_OPERATION} == nil or {FETCHED} or {inference})"
    return f"{REASON} == nil and {whose} and not {_OUTER} and ({either})"


def statements() -> list[str]:
    """What is done with them, in order."""
    return [*_read(), *_named(), *_judged(), *_told()]


def parameters() -> str:
    """The limit under its own name, for who drops the parameters that it stands among."""
    limit = f'span.attributes["{_LIMITS[0]}"]'
    return f"set({limit}, {_PARAMETERS_LIMIT}) where {limit} == nil and {_PARAMETERS_TELL}"


def bounded() -> list[str]:
    """What becomes of a span's labels before responses are counted: a reason is one of ours, names are short texts."""
    names = [f'span.attributes["{each.key}"]' for each in (schema.PROVIDER, schema.REQUEST_MODEL)]
    return [
        f'set({REASON}, "{StopReason.UNKNOWN}") where not IsString({REASON}) or not {_matches(REASON, StopReason)}',
        *(f'set({name}, "unknown") where {name} != nil and not IsString({name})' for name in names),
        *map(_cut, names),
    ]


def service() -> list[str]:
    """The same for the service's names."""
    return [_cut(f'resource.attributes["{key}"]') for key in ("service.name", "service.namespace")]


def _cut(name: str) -> str:
    """By characters: half of one would be no text."""
    head = f'ExtractPatterns({name}, "(?s)^(?P<head>.{{{_LONGEST}}})")["head"]'
    return f'set({name}, {head}) where IsString({name}) and IsMatch({name}, "(?s)^.{{{_LONGEST + 1}}}")'


def unmapped() -> str:
    """The condition for a reason that has no row, as opposed to one whose row says that it tells nothing."""
    silent = {entry.raw.lower() for entry in reasons.table() if entry.row.reason is StopReason.UNKNOWN}
    known = _pattern(silent)
    raw = f'span.attributes["{schema.RAW.key}"]'
    return f'{REASON} == "{StopReason.UNKNOWN}" and {raw} != nil and not IsMatch({raw}, {quoted("(?i)" + known)})'


def _read() -> Iterable[str]:
    """The raw value: the first that is there."""
    yield f"set({_RAW}, {_FINISH}[0]) where IsList({_FINISH}) and Len({_FINISH}) > 0"
    yield f"set({_RAW}, {_FINISH}) where IsString({_FINISH})"
    yield f"set({_RAW}, String({_FINISH})) where IsInt({_FINISH}) or IsDouble({_FINISH}) or IsBool({_FINISH})"
    # Some write the list as JSON text.
    yield f'set({_RAW}, "") where IsMatch({_RAW}, "^\\\\s*\\\\[\\\\s*\\\\]")'
    first = '"^\\\\s*\\\\[\\\\s*\\"(?P<first>[^\\"]*)\\""'
    yield f'set({_RAW}, ExtractPatterns({_RAW}, {first})["first"]) where IsMatch({_RAW}, {first})'
    for source in SOURCES:
        where = f"{_nothing(_RAW)} and {_there(source)}"
        yield f'set({_RAW}, String(span.attributes["{source.attribute}"])) where {where}'
    # A job that is still being made, or ended without a reason, has a state only.
    for status in _STATUSES:
        stop = frameworks.otel({_STATUS_KEY: status})
        yield f'set({_RAW}, "{stop.raw}") where {_nothing(_RAW)} and {_STATUS} == "{status}"'
    yield f"set({_KEY}, ToLowerCase(Trim(String({_RAW})))) where not {_nothing(_RAW)}"
    yield f'delete_key(span.cache, "key") where {_KEY} == ""'


_STATUS_KEY: Final = "gen_ai.response.status"
_STATUSES: Final = ("completed", "failed", "in_progress", "cancelled", "queued", "incomplete")


def _there(source: Source) -> str:
    there = f'span.attributes["{source.attribute}"] != nil'
    return f'{there} and span.name == "{source.span}"' if source.span else there


def _named() -> Iterable[str]:
    """Provider and model under the conventions' names, where they stand under others."""
    provider, model = (f'span.attributes["{each.key}"]' for each in (schema.PROVIDER, schema.REQUEST_MODEL))
    for name in _PROVIDERS:
        other = f'span.attributes["{name}"]'
        yield f"set({provider}, ToLowerCase(String({other}))) where {provider} == nil and {other} != nil"
        if name != _PROVIDERS[-1]:
            continue
        # "openai.chat": the AI SDK adds the kind of model to the name.
        dotted = _matches(provider, (name for name in PROVIDERS if "." in name))
        yield f'replace_pattern({provider}, "\\\\..*$", "") where {other} != nil and not {dotted}'
    for source in SOURCES:
        if source.provider:
            yield f'set({provider}, "{source.provider}") where {provider} == nil and {_there(source)}'
    for canonical, known in sorted(PROVIDERS.items()):
        if known.aliases:
            names = {*known.aliases, *(name.replace("_", "-") for name in known.aliases)}
            yield f'set({provider}, "{canonical}") where {_matches(provider, names)}'
    for name in _MODELS:
        other = f'span.attributes["{name}"]'
        yield f"set({model}, {other}) where {model} == nil and {other} != nil"
    yield f'set(span.cache["provider"], ToLowerCase(String({provider}))) where {provider} != nil'


def _judged() -> Iterable[str]:
    """The reason: by the provider's own table where it differs, by everybody's, by an error's class."""
    for (reason, providers), raws in _exceptions().items():
        known = f'IsMatch(span.cache["provider"], {quoted(_pattern(providers))})'
        yield f'set({REASON}, "{reason}") where {_matches(_KEY, raws)} and {known}'
    # The AI SDK's word for what it does not know is Google's for a failure.
    for raw, row in frameworks.REASONS["vercel.v4"].items():
        if row.reason is StopReason.UNKNOWN:
            yield f'set({REASON}, "{row.reason}") where {_KEY} == "{raw}" and {_OPERATION_ID} != nil'
    common = _common()
    for reason, raws in common.items():
        yield f'set({REASON}, "{reason}") where {REASON} == nil and {_matches(_KEY, raws)}'
    # Frameworks that add a stream's chunks up add the reasons up, too: "stopstop".
    for reason, raws in common.items():
        repeated = quoted(_pattern(raws, each=_REPEATS))
        yield f'set({REASON}, "{reason}") where {REASON} == nil and {_KEY} != nil and IsMatch({_KEY}, {repeated})'
    silent = f'({_KEY} == nil or {_KEY} == "error")'
    for reason, classes in _classes().items():
        pattern = quoted(f"(^|\\.)({'|'.join(classes)})$")
        named = f'IsMatch(span.attributes["{schema.ERROR_TYPE.key}"], {pattern})'
        yield f'set({REASON}, "{reason}") where {silent} and {named}'
    failed = f"{REASON} == nil and {_KEY} == nil and span.status.code == STATUS_CODE_ERROR"
    yield f'set({REASON}, "{StopReason.ERROR}") where {failed}'
    yield f'set({REASON}, "{StopReason.UNKNOWN}") where {REASON} == nil and {_KEY} != nil'
    # Of Claude Code's spans the name alone was a reason to look.
    looked = f'span.name != "{CLAUDE_CODE.span}" or {_FINISH} != nil'
    yield f'set({REASON}, "{StopReason.MISSING}") where {REASON} == nil and ({looked})'


def _told() -> Iterable[str]:
    """What goes with a reason."""
    yield f'set(span.attributes["{schema.RAW.key}"], String({_RAW})) where {_KEY} != nil'
    cut = _matches(REASON, TRUNCATED)
    yield f'set(span.attributes["{schema.STOP_TRUNCATED.key}"], {cut}) where {REASON} != nil'
    output, limit = 'span.cache["output"]', 'span.cache["limit"]'
    yield f"set({output}, Int({_first(_OUTPUTS)}))"
    yield f"set({limit}, Int({_first(_LIMITS)}))"
    yield f"set({limit}, {_PARAMETERS_LIMIT}) where {limit} == nil and {_PARAMETERS_TELL}"
    clean = _matches(REASON, (StopReason.END_TURN, StopReason.TOOL_CALL))
    full = f"{output} != nil and {limit} != nil and {limit} > 0 and {output} >= {limit}"
    yield f'set(span.attributes["{schema.SUSPECTED.key}"], true) where {clean} and {full}'


@cache
def _universe() -> frozenset[str]:
    """Every raw value of every table, and the parts of composite ones that frameworks hand on alone."""
    raws = {entry.raw for entry in reasons.table()}
    return frozenset({*raws, *(raw.removeprefix("incomplete:") for raw in raws)} - {""})


def _by_reason(words: Iterable[tuple[StopReason, str]]) -> Mapping[StopReason, tuple[str, ...]]:
    found: dict[StopReason, set[str]] = {}
    for reason, word in words:
        found.setdefault(reason, set()).add(word)
    return {reason: tuple(sorted(found[reason])) for reason in StopReason if reason in found}


def _common() -> Mapping[StopReason, tuple[str, ...]]:
    """What a value means whoever says it, by reason."""
    known = ((judged(raw), raw.lower()) for raw in _universe())
    return _by_reason((reason, raw) for reason, raw in known if reason is not StopReason.UNKNOWN)


def _exceptions() -> Mapping[tuple[StopReason, tuple[str, ...]], tuple[str, ...]]:
    """What a value means only when these providers say it."""
    by_value: dict[tuple[StopReason, str], list[str]] = {}
    for provider in sorted({*PROVIDERS, *ALIASES}):
        for raw in sorted(_universe()):
            reason = judged(raw, provider)
            if reason is not judged(raw):
                by_value.setdefault((reason, raw.lower()), []).append(provider)
    found: dict[tuple[StopReason, tuple[str, ...]], list[str]] = {}
    for (reason, raw), providers in by_value.items():
        found.setdefault((reason, tuple(providers)), []).append(raw)
    return {key: tuple(sorted(set(raws))) for key, raws in sorted(found.items())}


def _classes() -> Mapping[StopReason, tuple[str, ...]]:
    """What an exception's class says of the answer that it stands in place of, by reason."""
    named = ((reason, name) for (_, name), reason in exceptions.NAMED.items())
    return _by_reason([*((StopReason.CANCELLED, name) for name in _CANCELLED), *named])


def _first(attributes: Iterable[str]) -> str:
    places = ", ".join(f'span.attributes["{name}"]' for name in attributes)
    return f"Coalesce([{places}])"


def _nothing(value: str) -> str:
    return f'({value} == nil or {value} == "")'


def _matches(value: str, words: Iterable[str]) -> str:
    return f"IsMatch({value}, {quoted(_pattern(map(str, words)))})"


def _pattern(words: Iterable[str], *, each: str = "{}") -> str:
    return f"^(?:{'|'.join(each.format(_escaped(word)) for word in sorted(words))})$"


def _escaped(text: str) -> str:
    """The text as a regular expression of Go's that means it: `re.escape` escapes more than RE2 allows."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)


def quoted(text: str) -> str:
    """The text as a string of OTTL."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def scalar(text: str) -> str:
    """The text as YAML in one line, quoted where it must be."""
    return yaml.safe_dump(text, width=10**6, allow_unicode=True).removesuffix("\n").removesuffix("\n...")
