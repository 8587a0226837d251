"""What a process that `endturn run` started does at its start: it has calls observed, and sets nothing up before one.

An agent may set up OpenTelemetry itself, and OpenTelemetry's providers can be set only once: had they been set here,
the agent's own would be refused. So they are set when the first model call or turn begins, and of the three only
those that the agent has not set by then. A process that calls no model is left as it is.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Final

from endturn import announce
from endturn.errors import UsageError
from endturn.instrumentation import exporters, instrument, setup
from endturn.records import Record
from endturn.telemetry.content import REDACT
from endturn.telemetry.outlets import Options

log = logging.getLogger("endturn")

NAME: Final = "endturn"
"""What OTEL_PYTHON_DISABLED_INSTRUMENTATIONS and a configuration file call us."""


def start() -> None:
    """Observe this process, unless the variables say otherwise. Never raises: what cannot be done is logged."""
    try:
        _start()
    except UsageError as error:
        log.error("endturn: this process is not observed: %s", error)
    except Exception:
        log.exception("endturn: this process is not observed")


def _start() -> None:
    if is_disabled():
        return
    instrument.expect_nothing()  # no SDK yet; there will be one
    file = os.environ.get("OTEL_CONFIG_FILE")
    if file:
        if not _configured_by(file):
            return
    else:
        late = Late()
        late.stop = announce.listen(late)  # before the recorder: the first call is to find the providers in place
    instrument.begin(Options(), for_host=True)


def is_disabled() -> bool:
    """Whether the variables say that nothing is to be observed."""
    names = [name.strip() for name in os.environ.get("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "").split(",")]
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or NAME in names or "*" in names


def check(folder: str) -> list[str]:
    """Look at what the processes of a program will need, before it is started.

    A program may never call a model, or set up for itself what the variables ask for in vain: it is told of, and run.

    Args:
        folder: where Python will look for the program's own modules.

    Returns:
        What will not be done, and why, a sentence each.

    Raises:
        UsageError: the SDK is not installed, so that nothing could ever be recorded.
    """
    if is_disabled():
        return []
    setup.check_sdk("endturn run")
    try:
        said = [*_unreachable_redaction(folder)]
        file = os.environ.get("OTEL_CONFIG_FILE")
        if file:
            if not os.path.isfile(file):
                raise UsageError(f"OTEL_CONFIG_FILE={file!r} is not a file")
            _configuration()
            return said
    except UsageError as error:
        return [f"the program is not observed: {error}"]
    for signal in exporters.SIGNALS:
        try:
            exporters.wanted(signal)
        except UsageError as error:
            said.append(f"unless the program sets them up itself, no {signal} are exported: {error}")
    return said


def _unreachable_redaction(folder: str) -> Iterator[str]:
    """Where ENDTURN_REDACT names a module that is nowhere. It is not imported: it may be the program's own."""
    module, _, _ = os.environ.get(REDACT, "").strip().partition(":")
    top = module.partition(".")[0]
    if top and top not in sys.builtin_module_names and PathFinder.find_spec(top, [folder, *sys.path]) is None:
        yield f"{REDACT} names a module {top!r} that is not found: nothing of what was said will be recorded"


def _configuration() -> ModuleType:
    try:
        from opentelemetry import configuration
    except ImportError:
        raise UsageError(
            "OTEL_CONFIG_FILE is set, and what reads it is not installed: pip install opentelemetry-configuration"
        ) from None
    return configuration


def _configured_by(file: str) -> bool:
    """Set the SDK up as the file says, now: whoever names one wants it. False where the file switches us off."""
    configuration = _configuration()
    try:
        asked = configuration.load_config_file(file)
        configuration.configure_sdk(asked)
    except configuration.ConfigurationError as error:
        raise UsageError(f"OTEL_CONFIG_FILE={file!r}: {error}") from error
    listed = getattr(getattr(asked, "instrumentation_development", None), "python", None) or {}
    ours = listed.get(NAME) or {}
    return not asked.disabled and ours.get("enabled", True) is not False


class Late:
    """A listener that sets up the SDK when the first record, or the question whether anyone listens, reaches it.

    Attributes:
        stop: has it listen no longer.
    """

    def __init__(self) -> None:
        self.stop: Callable[[], None] = lambda: None
        self._over = False
        self._locks: dict[str, AbstractContextManager[object]] = {}
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def __call__(self, record: Record) -> None:
        """A call or a turn begins."""
        self._set_up()

    def awake(self) -> bool:
        """A call is about to begin. Of the record itself nothing would come here."""
        self._set_up()
        return False

    def _set_up(self) -> None:
        # Made of what locks are now: a host's first line may have made its threads green.
        lock = self._locks.get("") or self._locks.setdefault("", threading.Lock())
        with lock:  # another thread's first call waits, and is recorded too
            if self._over:
                return
            try:
                if not setup.is_configured():
                    setup.configure_for_host()
            except UsageError as error:
                log.error("endturn: nothing is recorded: %s", error)
            except Exception:
                log.exception("endturn: nothing is recorded")
            self._over = True
            self.stop()

    def _forked(self) -> None:
        self._locks = {}
