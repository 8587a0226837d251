"""How `opentelemetry-instrument` and OpenTelemetry's configuration file switch endturn on."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import fields
from importlib import import_module
from typing import Any, Final

from endturn.instrumentation.instrument import begin, uninstrument
from endturn.telemetry.outlets import Options

log = logging.getLogger("endturn")

PROVIDERS: Final = ("tracer_provider", "meter_provider", "logger_provider")
THEIRS: Final = ("skip_dep_check", "raise_exception_on_conflict")
"""What callers tell every instrumentor; here there is nothing to check."""


def _base() -> Any:
    """OpenTelemetry's class where it is installed: what reads configuration files does not depend on it."""
    try:
        return import_module("opentelemetry.instrumentation.instrumentor").BaseInstrumentor
    except ImportError:
        return object


BASE: Final = _base()


class EndturnInstrumentor(BASE):  # type: ignore[misc, valid-type]  # theirs has no types
    """`endturn.instrument()` in the form that OpenTelemetry's loaders ask for.

    It never raises, and depends on no version of any library: whoever loads several instrumentors loads all of them.

    Attributes:
        configuration: the options that a configuration file may give, under `instrumentation/development`.
    """

    configuration = Options

    _is_instrumented_by_opentelemetry = False

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        """Whether this switched endturn on."""
        return self._is_instrumented_by_opentelemetry

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing: libraries that are not installed are not needed."""
        return ()

    def instrument(self, **kwargs: Any) -> None:
        """Observe the calls of this process.

        Args:
            kwargs: the three providers and the options of `endturn.instrument`; others are ignored, which is logged.
        """
        # Loaders share a process: a configuration file names us, and `opentelemetry-instrument` finds us. Who comes
        # second, and says nothing, changes nothing.
        self._instrument(**kwargs)

    def uninstrument(self, **kwargs: Any) -> None:
        """Undo `instrument`."""
        if self._is_instrumented_by_opentelemetry:
            self._uninstrument(**kwargs)

    def _instrument(self, **kwargs: Any) -> None:
        known = {*PROVIDERS, *(field.name for field in fields(Options))}
        given = {name: value for name, value in kwargs.items() if name in known}
        unknown = sorted(kwargs.keys() - known - set(THEIRS))
        if unknown:
            log.warning("endturn: no such option: %s; there are: %s", ", ".join(unknown), ", ".join(sorted(known)))
        try:
            providers = [given.pop(name, None) for name in PROVIDERS]
            begin(Options(**given), (providers[0], providers[1], providers[2]), for_host=True)
        except Exception as error:  # the loader would load nothing after us
            log.error("endturn: this process is not observed: %s", error)
            return
        type(self)._is_instrumented_by_opentelemetry = True

    def _uninstrument(self, **kwargs: Any) -> None:
        try:
            uninstrument()
        except Exception:
            log.exception("endturn: could not be undone")
        type(self)._is_instrumented_by_opentelemetry = False
