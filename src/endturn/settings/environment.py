"""Checks of environment variables: each value that cannot be used is reported once."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, TypeVar
from zlib import crc32

from endturn.errors import UsageError, did_you_mean
from endturn.settings.secrets import redact_value
from endturn.settings.variable import Section, Variable
from endturn.settings.variables import VARIABLES, names, variable_named

log = logging.getLogger("endturn")

Value = TypeVar("Value")

REPORTED: Final = "ENDTURN_REPORTED"
"""Environment variable with the fingerprints of the problems that `endturn run` printed: the
processes that it starts do not report them again."""

_INTERNAL: Final = frozenset({REPORTED, "ENDTURN_RUN", "ENDTURN_FETCHED"})
_POLICY: Final = "ENDTURN_AGENT_"
"""Prefix of the controller's variables, which the controller checks itself."""

_DEPLOYMENT: Final = (
    "ENDTURN_CLUSTER",
    "ENDTURN_COLLECTOR_",
    "ENDTURN_FLEET_",
    "ENDTURN_GATEWAY_",
    "ENDTURN_KAFKA",
    "ENDTURN_LOKI_",
    "ENDTURN_PROMETHEUS_",
    "ENDTURN_RETRY_",
    "ENDTURN_SAMPL",
    "ENDTURN_TEMPO_",
    "ENDTURN_TLS_",
    "ENDTURN_UNCOUNTED_",
)
"""Beginnings of the variables that the Collector and its deployment read (docs/collector.md)."""

_KUBERNETES: Final = re.compile(
    r".+_SERVICE_HOST|.+_SERVICE_PORT(_\w+)?|.+_PORT(_\d+_(TCP|UDP|SCTP)(_(ADDR|PORT|PROTO))?)?"
)
"""Variables that Kubernetes sets in each container for a Service whose name begins with
`endturn-`."""

_SAMPLER: Final = "OTEL_TRACES_SAMPLER"
_SAMPLER_ARG: Final = "OTEL_TRACES_SAMPLER_ARG"

_warned: set[str] = set()


def warn_once(sentence: str, *, key: str | None = None) -> None:
    """Log a warning, unless this process or the `endturn run` that started it has reported it.

    Args:
        key: identifies the problem, which is reported once. Defaults to the sentence.
    """
    key = key or sentence
    if key in _warned:
        return
    _warned.add(key)
    if fingerprint(key) not in os.environ.get(REPORTED, "").split(","):
        log.warning("endturn: %s", sentence)


def mark_reported(keys: Iterable[str]) -> None:
    """Mark problems that a command prints, so that this process does not log them again."""
    _warned.update(keys)


def fingerprint(sentence: str) -> str:
    """Return a short hash of a problem's sentence."""
    return f"{crc32(sentence.encode('utf-8', 'surrogatepass')):08x}"


def value_of(variable: Variable[Value], default: Value) -> Value:
    """Return the value of a variable, or `default` if it is unset or cannot be used.

    A value that cannot be used is reported once.
    """
    text = os.environ.get(variable.name, "").strip()
    if not text:
        return default
    try:
        return variable.kind.parse(text)
    except (KeyError, ValueError):
        warn_once(problem(variable.name, text))
        return default


def problem(name: str, text: str) -> str:
    """Return a sentence about an invalid value: what to set, and the effect of the value.

    Returns:
        The sentence; "" if the value is valid.
    """
    variable = variable_named(name)
    if variable is None:
        raise UsageError(f"{name!r} is not in the table of variables")
    try:
        variable.kind.parse(text)
    except (KeyError, ValueError) as error:
        quoted_value = "" if variable.is_secret else f"={redact_value(name, text)!r}"
        why = f" ({error})" if variable.is_secret else ""
        return (
            f"{name}{quoted_value} cannot be used{why}: {variable.kind.remedy}"
            f"{_nearest(text, variable.kind.words)}; {variable.fallback}"
        )
    return ""


@contextmanager
def unusable_hidden() -> Iterator[None]:
    """Remove, within the block, each variable whose value would make the SDK raise.

    An empty value is removed too, unless it has a meaning. The end of the block restores the
    variables. Blocks may be nested.
    """
    removed_values: dict[str, str] = {}
    for variable in VARIABLES:
        for name in variable.names:
            text = os.environ.get(name)
            if text is None or (text.strip() and not variable.sdk_raises):
                continue
            if problem(name, text.strip()):
                removed_values[name] = text
                os.environ.pop(name, None)
    try:
        yield
    finally:
        for name, text in removed_values.items():
            os.environ.setdefault(name, text)


def _nearest(text: str, words: Iterable[str]) -> str:
    """Return a suggestion, if one of the words resembles the text."""
    suggestion = did_you_mean(text, words) if words else ""
    return f" ({suggestion})" if suggestion.startswith("did you mean") else ""


def problems(
    environment: Mapping[str, str], sections: Iterable[Section] = ("destination", "recording")
) -> list[str]:
    """Return a sentence for each variable whose text cannot be used, and each unknown name."""
    section_names = tuple(sections)
    sentences = []
    for variable in VARIABLES:
        if variable.section not in section_names:
            continue
        for name in variable.names:
            text = environment.get(name, "").strip()
            if name == _SAMPLER_ARG and _is_registered_sampler(environment):
                continue
            if text and (sentence := problem(name, text)):
                sentences.append(sentence)
    return [*sentences, *unknown_names(environment)]


def _is_registered_sampler(environment: Mapping[str, str]) -> bool:
    """Return whether a package registers the sampler; its argument may then be any text."""
    sampler = variable_named(_SAMPLER)
    name = environment.get(_SAMPLER, "").strip()
    if not name or sampler is None or name.lower() in sampler.kind.words:
        return False
    return not problem(_SAMPLER, name)


def unknown_names(environment: Mapping[str, str]) -> Iterator[str]:
    """Return a sentence for each variable that begins with ENDTURN_ and that nothing reads."""
    for name in sorted(environment):
        if (
            name.startswith("ENDTURN_")
            and name not in _INTERNAL
            and variable_named(name) is None
            and not name.startswith((_POLICY, *_DEPLOYMENT))
            and not _KUBERNETES.fullmatch(name)
        ):
            candidates = [other for other in names() if other.startswith("ENDTURN_")]
            hint = did_you_mean(name, candidates, prefix="ENDTURN_")
            yield f"{name} is not a variable of endturn; {hint}"


def warn_of_problems(sections: Iterable[Section]) -> None:
    """Report each variable whose text cannot be used, once."""
    for sentence in problems(os.environ, sections):
        warn_once(sentence)
