"""Observation without changes of the program: `endturn run` and OpenTelemetry's loaders.

An agent may set up OpenTelemetry itself, and OpenTelemetry's providers can be set only once: if
they were set at the start, the agent's own would be refused. So under `endturn run` they are set
when the first model call or turn begins, and of the three only those that the agent has not set by
then. Earlier spans, such as an agent's, are kept until then (`early_spans`). In a process that
calls no model no provider is set, and nothing is exported.
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

from endturn import settings
from endturn.calls import Record, listeners, log_exception
from endturn.errors import UsageError
from endturn.instrumentation import _configure, _instrument, destinations
from endturn.instrumentation.early_spans import EarlySpans
from endturn.instrumentation.service_name import is_named as is_named, service_name_of_command
from endturn.telemetry import Options, cleanup

log = logging.getLogger("endturn")

NAME: Final = "endturn"
"""Our name in OTEL_PYTHON_DISABLED_INSTRUMENTATIONS and in a configuration file."""

# --- endturn run ----------------------------------------------------------------------------------


def start() -> None:
    """Observe this process, unless the environment's variables disable it.

    Never raises: errors are logged.
    """
    if is_disabled():
        return
    _instrument.expect_nothing()  # no SDK yet; there will be one
    file = os.environ.get("OTEL_CONFIG_FILE")
    try:
        if file and not _configure_from_file(file):
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
    """Return whether the environment's variables disable endturn."""
    names = [
        name.strip()
        for name in os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")
    ]
    return _configure.is_disabled() or NAME in names or "*" in names


def check() -> dict[str, str]:
    """Check the configuration of a program's processes, before it is started.

    The problems are warnings, the program is run: it may never call a model, or set up itself what
    the variables cannot. Nothing is sent.

    Returns:
        The problems, a sentence each, by the key under which `settings.warn_once` reports them.

    Raises:
        UsageError: the SDK is not installed, so that nothing could ever be recorded.
    """
    sentences = {sentence: sentence for sentence in settings.problems(os.environ)}
    settings.mark_reported(sentences)
    if is_disabled():
        return sentences
    _configure.check_sdk("endturn run")
    file = os.environ.get("OTEL_CONFIG_FILE")
    if file:
        try:
            if not os.path.isfile(file):
                raise UsageError(f"OTEL_CONFIG_FILE={file!r} is not a file")
            _configuration()
        except UsageError as error:
            sentences[str(error)] = f"the program is not observed: {error}"
        return sentences
    for reason, signals in unusable_exporters().items():
        sentences.setdefault(
            reason,
            f"unless the program sets them up itself, no {destinations.listing(signals)} are "
            f"exported: {reason}",
        )
    return {mistake: mistake for mistake in destinations.mistakes(os.environ)} | sentences


def unusable_exporters() -> dict[str, list[destinations.Signal]]:
    """Return the signals whose exporters cannot be used, by the reason. Needs the SDK."""
    with settings.unusable_hidden():
        from endturn.instrumentation import sdk_providers

    reasons: dict[str, list[destinations.Signal]] = {}
    for signal in sdk_providers.SIGNALS:
        try:
            sdk_providers.makers(signal)
        except UsageError as error:
            reasons.setdefault(str(error), []).append(signal)
    return reasons


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


def _configure_from_file(file: str) -> bool:
    """Set the SDK up by the file. Returns False if the file disables endturn."""
    configuration = _configuration()
    try:
        settings = configuration.load_config_file(file)
        configuration.configure_sdk(settings)
    except configuration.ConfigurationError as error:
        raise UsageError(f"OTEL_CONFIG_FILE={file!r}: {error}") from error
    instrumentations = (
        getattr(getattr(settings, "instrumentation_development", None), "python", None) or {}
    )
    own_settings = instrumentations.get(NAME) or {}
    return not settings.disabled and own_settings.get("enabled", True) is not False


class _LateSetup:
    """A listener that sets up the SDK on the first record or the first query for listeners.

    Attributes:
        early: the spans that begin before.
        stop: unsubscribes it.
    """

    def __init__(self) -> None:
        self.early = EarlySpans()
        self.stop: Callable[[], None] = lambda: None
        self._is_done = False
        self._locks: dict[str, threading.Lock] = {}
        cleanup.register_after_fork(self._locks.clear)

    def __call__(self, record: Record) -> None:
        """Set up on the start of a call or a turn."""
        self.awake()

    def awake(self) -> bool:
        """Set up before a call begins. Returns False: this listener does not use records."""
        # Created late: a host's first line may replace threading's locks by green ones.
        lock = self._locks.get("") or self._locks.setdefault("", threading.Lock())
        with lock:  # another thread's first call waits, and is recorded too
            if not self._is_done:
                try:
                    _configure.configure_for_host(self.early)
                except (UsageError, RuntimeError) as error:
                    # RuntimeError: the interpreter is shutting down, and the SDK starts a thread.
                    log.error("endturn: nothing is recorded: %s", error)
                except Exception:
                    log_exception(logging.ERROR, "endturn: nothing is recorded")
                self._is_done = True
                self.early.discard()  # unless they were taken
                self.stop()
        return False


# --- opentelemetry-instrument, and the configuration file -----------------------------------------

IGNORED_OPTIONS: Final = ("skip_dep_check", "raise_exception_on_conflict")
"""Options that callers pass to every instrumentor; here there is nothing to check."""


class EndturnInstrumentor:
    """`endturn.instrument()` for OpenTelemetry's loaders, with the methods of `BaseInstrumentor`.

    It never raises, and depends on no version of any library, so it never keeps a loader from
    loading other instrumentors. Several loaders may share a process (a configuration file names us,
    and `opentelemetry-instrument` finds us): the second one, without options, changes nothing.

    Attributes:
        configuration: the options of a configuration file, under `instrumentation/development`.
        is_instrumented_by_opentelemetry: this class enabled endturn.
    """

    configuration = Options
    is_instrumented_by_opentelemetry = False

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return no dependencies: libraries that are not installed are not needed."""
        return ()

    def instrument(self, **kwargs: Any) -> None:
        """Observe the calls of this process.

        Args:
            kwargs: the three providers and the options of `endturn.instrument`; others are ignored,
                which is logged.
        """
        option_names = {*_instrument.PROVIDERS, *(field.name for field in fields(Options))}
        if unknown := sorted(kwargs.keys() - option_names - set(IGNORED_OPTIONS)):
            log.warning(
                "endturn: unknown option %s; the options are: %s",
                ", ".join(unknown),
                ", ".join(sorted(option_names)),
            )
        try:
            _instrument.instrument(**{name: kwargs[name] for name in option_names & kwargs.keys()})
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
