"""docs/configuration.md: every variable and every keyword that there is stands on it, and none that is not."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields

import endturn
from endturn.continuation.policy import ContinuationPolicy
from endturn.instrumentation.sdk_providers import SIGNALS
from endturn.telemetry.otel_providers import Options, OptionsGiven
from tests.support.processes import REPOSITORY

PAGE = (REPOSITORY / "docs" / "configuration.md").read_text()
SOURCE = "\n".join(
    path.read_text()
    for path in sorted((REPOSITORY / "src" / "endturn").rglob("*.py"))
    if path.parent.name != "generate"  # the Collector's own variables: docs/collector.md has those
)
VARIABLE = re.compile(r"\b(?:OTEL|ENDTURN)_[A-Z_]*[A-Z]\b(?!_)")
OURS_ALONE = {"ENDTURN_RUN", "ENDTURN_FETCHED"}
"""What one process of `endturn run`, or of a command under uvx, tells the next."""


def test_every_variable_stands_on_the_page() -> None:
    """Those that the source names, and those that it puts together for each signal."""
    made = {f"OTEL_{signal.upper()}_EXPORTER" for signal in SIGNALS}
    made |= {f"OTEL_EXPORTER_OTLP_{signal.upper()}_PROTOCOL" for signal in SIGNALS}
    named = set(VARIABLE.findall(SOURCE))
    examples = {name for name in named if name.startswith("ENDTURN_AGENT_")}
    assert (named | made) - OURS_ALONE - examples - set(VARIABLE.findall(PAGE)) == set()


def test_no_variable_of_ours_stands_there_that_is_not() -> None:
    """A variable that was renamed is renamed on the page."""
    told = {name for name in VARIABLE.findall(PAGE) if name.startswith("ENDTURN_")}
    assert {name for name in told if not name.startswith("ENDTURN_AGENT_")} <= set(VARIABLE.findall(SOURCE))


def test_every_keyword_stands_on_the_page() -> None:
    """Of `configure()`, `instrument()` and the controller's policy."""
    keywords = {*inspect.signature(endturn.configure).parameters, *inspect.signature(endturn.instrument).parameters}
    keywords |= {field.name for field in fields(Options)} | set(ContinuationPolicy.model_fields)
    told = set(re.findall(r"`(\w+)(?:=\w+)?`", PAGE))
    assert keywords - {"options"} - told == set()


def test_every_option_is_a_keyword_that_editors_know() -> None:
    """`configure(…)` and `instrument(…)` complete the options that there are."""
    assert OptionsGiven.__annotations__.keys() == {field.name for field in fields(Options)}
