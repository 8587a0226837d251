"""Observation without a line of the program's own.

`endturn run`, `opentelemetry-instrument`, a configuration file.

An agent may set up OpenTelemetry itself, and OpenTelemetry's providers can be set only once: had
they been set at the start, the agent's own would be refused. So under `endturn run` they are set
when the first model call or turn begins, and of the three only those that the agent has not set by
then. Spans that begin before, as an agent's does, are kept until then (`early_spans`). In a process
that calls no model no provider is set, and nothing exported.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import fields
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from endturn.calls import Record, listeners, log_exception
from endturn.errors import UsageError
from endturn.instrumentation import _configure, _instrument
from endturn.instrumentation.early_spans import EarlySpans
from endturn.instrumentation.service_name import is_named, service_name_of_command
from endturn.telemetry import Options, cleanup

log = logging.getLogger("endturn")

NAME: Final = "endturn"
"""What OTEL_PYTHON_DISABLED_INSTRUMENTATIONS and a configuration file call us."""

# --- endturn run ----------------------------------------------------------------------------------


def start() -> None:
    """Observe this process, unless the variables say otherwise.

    Never raises: what cannot be done is logged.
    """
    if is_disabled():
        return
    _instrument.expect_nothing()  # no SDK yet; there will be one
    file = os.environ.get("OTEL_CONFIG_FILE")
    try:
        if file and not _configured_by(file):
            return
        if not file:
            late = _LateSetup()
            late.stop = listeners.subscribe(
                late
            )  # before the recorder: the first call is to find the providers in place
            late.early.start()
        _instrument.begin(Options())
    except UsageError as error:
        log.error("endturn: this process is not observed: %s", error)
    except Exception:
        log_exception(logging.ERROR, "endturn: this process is not observed")


def is_disabled() -> bool:
    """Whether the variables say that nothing is to be observed."""
    names = [
        name.strip()
        for name in os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")
    ]
    return _configure.is_disabled() or NAME in names or "*" in names


def check() -> list[str]:
    """Look at what the processes of a program will need, before it is started.

    A program may never call a model, or set up for itself what the variables ask for in vain: it is
    told of, and run.

    Returns:
        What will not be done, and why, a sentence each.

    Raises:
        UsageError: the SDK is not installed, so that nothing could ever be recorded.
    """
    if is_disabled():
        return []
    _configure.check_sdk("endturn run")
    from endturn.instrumentation import sdk_providers

    said = []
    file = os.environ.get("OTEL_CONFIG_FILE")
    if file:
        try:
            if not os.path.isfile(file):
                raise UsageError(f"OTEL_CONFIG_FILE={file!r} is not a file")
            _configuration()
        except UsageError as error:
            said.append(f"the program is not observed: {error}")
        return said
    for signal in sdk_providers.SIGNALS:
        try:
            sdk_providers.makers(signal)
        except UsageError as error:
            said.append(
                f"unless the program sets them up itself, no {signal} are exported: {error}"
            )
    return said


def default_service_name(command: Sequence[str]) -> str | None:
    """Return the `service.name` that a program will have unless it sets one itself.

    Args:
        command: the program's path and its arguments.

    Returns:
        None where the variables or a configuration file name it, where nothing is recorded, and
        where the command does not run a Python script or module.
    """
    if is_disabled() or os.environ.get("OTEL_CONFIG_FILE") or is_named(os.environ):
        return None
    if command[0] == sys.executable:
        return service_name_of_command(command)
    try:
        with open(command[0], "rb") as program:
            first_line = program.readline(200)
    except OSError:
        return None
    is_python_script = first_line.startswith(b"#!") and b"python" in first_line
    return service_name_of_command([sys.executable, command[0]]) if is_python_script else None


def _configuration() -> ModuleType:
    try:
        return import_module("opentelemetry.configuration")
    except ImportError:
        raise UsageError(
            "OTEL_CONFIG_FILE is set, and its reader is not installed: pip install "
            "opentelemetry-configuration"
        ) from None


def _configured_by(file: str) -> bool:
    """Set the SDK up as the file says, now: whoever names one wants it.

    False where the file switches us off.
    """
    configuration = _configuration()
    try:
        asked = configuration.load_config_file(file)
        configuration.configure_sdk(asked)
    except configuration.ConfigurationError as error:
        raise UsageError(f"OTEL_CONFIG_FILE={file!r}: {error}") from error
    listed = getattr(getattr(asked, "instrumentation_development", None), "python", None) or {}
    ours = listed.get(NAME) or {}
    return not asked.disabled and ours.get("enabled", True) is not False


class _LateSetup:
    """A listener that sets up the SDK on the first record or the first query for listeners.

    Attributes:
        early: the spans that begin before.
        stop: has it listen no longer.
    """

    def __init__(self) -> None:
        self.early = EarlySpans()
        self.stop: Callable[[], None] = lambda: None
        self._over = False
        self._locks: dict[str, threading.Lock] = {}
        cleanup.after_fork(self._locks.clear)

    def __call__(self, record: Record) -> None:
        """A call or a turn begins."""
        self.awake()

    def awake(self) -> bool:
        """A call is about to begin. Of the record itself nothing would come here."""
        # Made of what locks are now: a host's first line may have made its threads green.
        lock = self._locks.get("") or self._locks.setdefault("", threading.Lock())
        with lock:  # another thread's first call waits, and is recorded too
            if not self._over:
                try:
                    _configure.configure_for_host(self.early)
                except (UsageError, RuntimeError) as error:
                    # RuntimeError: the program is over but for this thread, and the SDK wants
                    # another one.
                    log.error("endturn: nothing is recorded: %s", error)
                except Exception:
                    log_exception(logging.ERROR, "endturn: nothing is recorded")
                self._over = True
                self.early.discard()  # what was not taken
                self.stop()
        return False


# --- opentelemetry-instrument, and the configuration file -----------------------------------------

THEIRS: Final = ("skip_dep_check", "raise_exception_on_conflict")
"""What callers tell every instrumentor; here there is nothing to check."""


class EndturnInstrumentor:
    """`endturn.instrument()` in the form that OpenTelemetry's loaders ask for.

    The methods of their `BaseInstrumentor`.

    It never raises, and depends on no version of any library: whoever loads several instrumentors
    loads all of them. Loaders share a process (a configuration file names us, and
    `opentelemetry-instrument` finds us): who comes second, and says nothing, changes nothing.

    Attributes:
        configuration: the options that a configuration file may give, under
            `instrumentation/development`.
        is_instrumented_by_opentelemetry: this switched endturn on.
    """

    configuration = Options
    is_instrumented_by_opentelemetry = False

    def instrumentation_dependencies(self) -> Collection[str]:
        """Nothing: libraries that are not installed are not needed."""
        return ()

    def instrument(self, **kwargs: Any) -> None:
        """Observe the calls of this process.

        Args:
            kwargs: the three providers and the options of `endturn.instrument`; others are ignored,
                which is logged.
        """
        known = {*_instrument.PROVIDERS, *(field.name for field in fields(Options))}
        if unknown := sorted(kwargs.keys() - known - set(THEIRS)):
            log.warning(
                "endturn: unknown option %s; the options are: %s",
                ", ".join(unknown),
                ", ".join(sorted(known)),
            )
        try:
            _instrument.instrument(**{name: kwargs[name] for name in known & kwargs.keys()})
        except Exception as error:  # the loader would load nothing after us
            log.error("endturn: this process is not observed: %s", error)
            return
        type(self).is_instrumented_by_opentelemetry = True

    def uninstrument(self, **kwargs: Any) -> None:
        """Undo `instrument`."""
        if not self.is_instrumented_by_opentelemetry:
            return
        type(self).is_instrumented_by_opentelemetry = False
        _instrument.uninstrument()
