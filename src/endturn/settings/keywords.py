"""The table of the keywords of public functions, and the check of a call's keywords."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from math import inf
from typing import Final, ParamSpec, TypeGuard, TypeVar

from endturn.errors import UsageError, did_you_mean
from endturn.settings import kinds

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    """One keyword of one or more functions.

    Attributes:
        name: as a caller writes it.
        functions: the functions that have it.
        label: its type in the documentation's tables, in Markdown.
        remedy: the values that are allowed, as an instruction.
        accepts: returns True for an allowed value.
        default: as documented; "" if there is none.
        meaning: one or two sentences of Markdown; of a keyword with a variable, the variable's.
        takes_none: None is accepted, for the default.
        is_secret: its value is never shown.
    """

    name: str
    functions: tuple[str, ...]
    label: str
    remedy: str
    accepts: Callable[[object], bool]
    default: str = ""
    meaning: str = ""
    takes_none: bool = True
    is_secret: bool = False


_HEADER_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LINE_END: Final = re.compile(r"[\r\n\x00]")


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < inf


def _is_prices(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(model, str)
        and isinstance(price, tuple | list)
        and len(price) == 2
        and all(isinstance(usd, int | float) and usd >= 0 for usd in price)
        for model, price in value.items()
    )


def _is_headers(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(name, str)
        and isinstance(text, str)
        and _HEADER_NAME.fullmatch(name)
        and not _LINE_END.search(text)
        for name, text in value.items()
    )


def _is_http(value: object) -> bool:
    methods = ("send", "handle_request", "handle_async_request")
    return not isinstance(value, type) and any(hasattr(value, method) for method in methods)


def _has(method: str) -> Callable[[object], bool]:
    """Return a check for an object, not a class, with a method."""
    return lambda value: not isinstance(value, type) and hasattr(value, method)


_RECORDS: Final = ("configure", "instrument", "AdoptingSpanProcessor")
_CLIENTS: Final = ("Client", "AsyncClient")
_EXPORTER: Final = (
    "give an exporter object; for a name (otlp, console, none) set the variable"
    " OTEL_TRACES_EXPORTER, OTEL_METRICS_EXPORTER or OTEL_LOGS_EXPORTER"
)


def _one_of(words: Iterable[str]) -> str:
    return f"use one of {', '.join(words)}"


KEYWORDS: Final = (
    Keyword(
        name="service_name",
        functions=("configure",),
        label="text",
        remedy="give text, such as 'support-agent'",
        accepts=_is_name,
        meaning="the service's name, in place of `OTEL_SERVICE_NAME`",
    ),
    Keyword(
        name="resource",
        functions=("configure",),
        label="`Resource`, or a mapping",
        remedy="give a Resource, or a mapping of attributes",
        accepts=lambda value: isinstance(getattr(value, "attributes", value), Mapping),
        meaning="further attributes of this process",
    ),
    *(
        Keyword(
            name=f"{signal}_exporter",
            functions=("configure",),
            label="exporter",
            remedy=_EXPORTER,
            accepts=_has("export"),
            meaning=f"replaces the exporters that `OTEL_{variable}_EXPORTER` names",
        )
        for signal, variable in (("span", "TRACES"), ("metric", "METRICS"), ("log", "LOGS"))
    ),
    Keyword(
        name="instrument",
        functions=("configure",),
        label="`True`, `False`",
        remedy="give True or False",
        accepts=_is_flag,
        default="True",
        takes_none=False,
        meaning="`False`: the SDK is set up, and no model call is observed",
    ),
    *(
        Keyword(
            name=f"{signal}_provider",
            functions=("instrument", "AdoptingSpanProcessor"),
            label="provider",
            remedy="give an OpenTelemetry provider object",
            accepts=_has(f"get_{signal}"),
            default="the global one",
            meaning=f"the host's own {signal} provider",
        )
        for signal in ("tracer", "meter", "logger")
    ),
    Keyword(
        name="events",
        functions=_RECORDS,
        label=", ".join(f"`{word}`" for word in kinds.EVENT_WORDS),
        remedy=_one_of(kinds.EVENT_WORDS),
        accepts=lambda value: _is_text(value) and value.strip().lower() in kinds.EVENT_WORDS,
    ),
    Keyword(
        name="agent",
        functions=_RECORDS,
        label="`True`, `False`",
        remedy="give True, False or None",
        accepts=_is_flag,
    ),
    Keyword(
        name="content",
        functions=_RECORDS,
        label=", ".join(f"`{word}`" for word in kinds.CAPTURE_WORDS),
        remedy=_one_of(kinds.CAPTURE_WORDS),
        accepts=lambda value: _is_text(value) and value.strip().upper() in kinds.CAPTURE_WORDS,
    ),
    Keyword(
        name="content_max_chars",
        functions=_RECORDS,
        label="number of characters",
        remedy="give a number of characters, at least 1",
        accepts=_is_count,
    ),
    Keyword(
        name="redact",
        functions=_RECORDS,
        label="function from text to text",
        remedy="it must be a function from text to text",
        accepts=callable,
    ),
    Keyword(
        name="prices",
        functions=_RECORDS,
        label="mapping",
        remedy="give a mapping of models to USD per million tokens, (input, output):"
        ' {"gpt-5": (1.25, 10)}',
        accepts=_is_prices,
        meaning="USD per million input and output tokens, by model, for"
        ' `endturn.continuation.cost`: `{"gpt-5-mini": (0.25, 2.0)}`',
    ),
    Keyword(
        name="tools_idle_s",
        functions=_RECORDS,
        label="number of seconds",
        remedy="give a number of seconds above 0, such as 300",
        accepts=_is_seconds,
    ),
    Keyword(
        name="counted",
        functions=_RECORDS,
        label="`True`, `False`",
        remedy="give True, False or None",
        accepts=_is_flag,
        default="whether the meter provider has a reader",
        meaning="whether metrics that this process exports count the responses ([when to set"
        " it](instrument.md#beside-a-collector-that-counts))",
    ),
    Keyword(
        name="gen_ai_metrics",
        functions=_RECORDS,
        label="`True`, `False`",
        remedy="give True, False or None",
        accepts=_is_flag,
        default="detected",
        meaning="whether the conventions' own metrics are recorded too; by default, unless another"
        " instrumentation records them",
    ),
    Keyword(
        name="semconv",
        functions=_RECORDS,
        label=", ".join(f"`{word}`" for word in kinds.SEMCONV_WORDS),
        remedy=_one_of(kinds.SEMCONV_WORDS),
        accepts=lambda value: value in kinds.SEMCONV_WORDS,
    ),
    Keyword(
        name="agent",
        functions=("observe_turn",),
        label="text",
        remedy="give the agent's name, such as 'support'",
        accepts=_is_text,
        meaning="the agent's name",
    ),
    Keyword(
        name="conversation_id",
        functions=("observe_turn",),
        label="text, or a function",
        remedy="give text, or a function that takes the arguments and returns text",
        accepts=lambda value: _is_text(value) or callable(value),
        meaning="your id of the conversation, or a function that returns it for the arguments",
    ),
    *(
        Keyword(
            name=name,
            functions=("observe_provider_call",),
            label="text",
            remedy=f"give text, such as {example!r}",
            accepts=_is_text,
            default=default,
            meaning=meaning,
        )
        for name, example, default, meaning in (
            ("provider", "openai", "", "as in `gen_ai.provider.name`"),
            ("format", "openai_chat", "detected", "the format of the function's responses"),
            ("model", "gpt-5-mini", "from the arguments or the response", "as requested"),
            ("dialect", "groq", "", "the dialect of the stop reasons, if the format has several"),
        )
    ),
    *(
        Keyword(
            name=name,
            functions=_CLIENTS,
            label="text",
            remedy=f"give text, such as {example!r}",
            accepts=_is_name if name in ("base_url", "format") else _is_text,
            default=default,
            meaning=meaning,
            is_secret=name == "api_key",
        )
        for name, example, default, meaning in (
            ("provider", "openai", "openai", "[a known provider](providers.md), or any other"),
            ("api_key", "sk-…", "the provider's variable", "neither logged nor shown"),
            (
                "base_url",
                "https://host/v1",
                "the provider's",
                "the address, without the format's endpoint path",
            ),
            ("format", "openai_chat", "the provider's", "the format of requests and responses"),
            ("dialect", "groq", "the provider's", "the provider's variant of the format"),
        )
    ),
    Keyword(
        name="http",
        functions=_CLIENTS,
        label="client or transport",
        remedy="give an httpx client, or a transport",
        accepts=_is_http,
        default="a new httpx client",
        meaning="an httpx (or httpx2) client, which you close, or a transport",
    ),
    Keyword(
        name="timeout",
        functions=_CLIENTS,
        label="number of seconds",
        remedy="give a number of seconds above 0, such as 600, or None to wait for ever",
        accepts=lambda value: _is_seconds(value) or hasattr(value, "connect"),  # httpx.Timeout
        default="600",
        meaning="seconds without a byte before giving up",
    ),
    Keyword(
        name="headers",
        functions=_CLIENTS,
        label="mapping of text to text",
        remedy="give a mapping of names to texts without line ends, such as {'x-team': 'support'}",
        accepts=_is_headers,
        is_secret=True,
        meaning="further headers of every request",
    ),
)
"""All keywords, in the order of docs/configuration.md."""


def check_keywords(
    function: str, values: Mapping[str, object], *, allowed: Iterable[str] | None = None
) -> None:
    """Check the keywords of a call.

    Args:
        function: as the caller writes it.
        values: the keywords and their values.
        allowed: all keywords of the function; None skips the check of names.

    Raises:
        TypeError: A keyword is not one of `allowed`.
        UsageError: A value cannot be used.
    """
    if allowed is not None:
        names = list(allowed)
        for name in values:
            if name not in names:
                raise TypeError(
                    f"{function}() has no keyword {name!r}; {did_you_mean(name, names)}"
                )
    for keyword in KEYWORDS:
        if function not in keyword.functions or keyword.name not in values:
            continue
        value = values[keyword.name]
        if value is None and keyword.takes_none:
            continue
        if not keyword.accepts(value):
            raise UsageError(f"{keyword.name}{_quoted(keyword, value)}: {keyword.remedy}")


_QUOTABLE: Final = (str, int, float, list, tuple, dict, type, type(None))


def _quoted(keyword: Keyword, value: object) -> str:
    """Return a value for an error message: only its type, if it may hold a secret."""
    if keyword.is_secret or not isinstance(value, _QUOTABLE):
        return f" of type {type(value).__name__} cannot be used"
    return f"={value!r}"


def keywords_checked(*, unpacked: type | None = None) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator that checks the keywords of each call against the table.

    It is for functions and for `__init__`; of `__init__` the class is looked up and named.

    Args:
        unpacked: the TypedDict that the function takes as `**options`. The signature lists its
            members, each as a keyword.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = _signature_of(function, unpacked)
        allowed = tuple(name for name in signature.parameters if name != "self")
        parameters = signature.parameters.values()
        positional = [one for one in parameters if one.kind is not one.KEYWORD_ONLY]

        @wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            is_class = function.__name__ == "__init__"
            name = type(args[0]).__name__ if is_class else function.__name__
            if len(args) > len(positional):
                raise TypeError(_too_many(name, len(args) - is_class, len(positional) - is_class))
            check_keywords(name, kwargs, allowed=allowed)
            return function(*args, **kwargs)

        checked.__signature__ = signature  # type: ignore[attr-defined]
        return checked

    return decorate


def _too_many(function: str, count: int, most: int) -> str:
    takes = "no positional argument" if most == 0 else f"{most} positional argument"
    return f"{function}() takes {takes}, not {count}: give the others by keyword"


def _signature_of(function: Callable[..., object], unpacked: type | None) -> inspect.Signature:
    signature = inspect.signature(function)
    parameters = [
        parameter
        for parameter in signature.parameters.values()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]
    members = {} if unpacked is None else unpacked.__annotations__
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    parameters += [
        inspect.Parameter(
            name,
            keyword_only,
            default=None,
            annotation=getattr(annotation, "__forward_arg__", annotation),
        )
        for name, annotation in members.items()
    ]
    return signature.replace(parameters=parameters)
