"""`endturn doctor`: lists what is observed and where telemetry goes, and finds problems.

It imports no library of the host, changes nothing, and sends only empty export requests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from endturn import settings
from endturn._version import __version__
from endturn.cli import doctor_packages as packages, doctor_receivers as receivers, run
from endturn.continuation import ContinuationPolicy
from endturn.errors import UsageError, did_you_mean
from endturn.instrumentation import destinations, zero_code

TIMEOUT_S: Final = 3.0
"""Default timeout of each step of a check."""

MAX_TIMEOUT_S: Final = 60.0
_POLICY: Final = "ENDTURN_AGENT_"


@dataclass(frozen=True, slots=True)
class Setting:
    """One variable: its redacted value, and its source, `variable` or `default`."""

    name: str
    value: str
    source: str


@dataclass(frozen=True, slots=True)
class Receiver:
    """The destination of one signal, and the check of its receiver; None if it was not checked."""

    destination: destinations.Destination
    answer: receivers.ReceiverCheck | None


@dataclass(slots=True)
class Diagnosis:
    """The output of `endturn doctor`.

    Attributes:
        starts: for each way to start a program, "yes" if it loads endturn, else the reason.
        service_name: the name and its source.
        problems: a sentence for each, with what to do.
        notes: further sentences, which need no action.
    """

    inventory: packages.Inventory
    starts: dict[str, str] = field(default_factory=dict)
    service_name: str = ""
    content: str = ""
    semconv: str = ""
    settings: list[Setting] = field(default_factory=list)
    receivers: list[Receiver] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def command(program: Sequence[str], *, as_json: bool, timeout_s: float) -> int:
    """Run `endturn doctor`.

    Args:
        program: the program and its arguments that `endturn run` would start; may be empty.
        as_json: print one JSON object and nothing else.
        timeout_s: the timeout of each step of a check.

    Returns:
        The exit status: 0, or 1 if there is a problem.

    Raises:
        UsageError: the program cannot be found, or the timeout is out of range.
    """
    if not 0 < timeout_s <= MAX_TIMEOUT_S:
        raise UsageError(
            f"--timeout must be more than 0 and at most {MAX_TIMEOUT_S:g} seconds, not"
            f" {timeout_s:g}"
        )
    resolved = run.resolve_program(program) if program else []
    diagnosis = diagnose(resolved, timeout_s)
    print(json.dumps(_as_json(diagnosis), indent=2) if as_json else _as_text(diagnosis))
    return 1 if diagnosis.problems else 0


def diagnose(program: Sequence[str], timeout_s: float) -> Diagnosis:
    """Examine this environment and the receivers of its telemetry."""
    variables = settings.problems(os.environ, ("destination", "recording", "other"))
    settings.mark_reported(variables)
    installed = packages.versions()
    diagnosis = Diagnosis(packages.inventory(installed))
    _look_at_packages(diagnosis, installed, program)
    diagnosis.problems += variables
    _look_at_settings(diagnosis, program)
    if zero_code.is_disabled():
        diagnosis.notes.append(
            "the variables switch endturn off (OTEL_SDK_DISABLED or"
            " OTEL_PYTHON_DISABLED_INSTRUMENTATIONS): nothing is recorded"
        )
    elif file := os.environ.get("OTEL_CONFIG_FILE"):
        if not os.path.isfile(file):
            diagnosis.problems.append(f"OTEL_CONFIG_FILE={file!r} is not a file")
        diagnosis.notes.append(
            "OTEL_CONFIG_FILE sets the destinations: they are not checked, and the other OTEL_*"
            " variables of the SDK have no effect"
        )
    else:
        _look_at_destinations(diagnosis, timeout_s)
    return diagnosis


# --- Packages -------------------------------------------------------------------------------------


def _look_at_packages(
    diagnosis: Diagnosis, installed: Mapping[str, str], program: Sequence[str]
) -> None:
    diagnosis.problems += diagnosis.inventory.outdated
    has_sdk = "opentelemetry-sdk" in installed
    if not has_sdk:
        diagnosis.problems.append(
            "the OpenTelemetry SDK is not installed, so nothing is recorded: pip install"
            " 'endturn[otlp]'"
        )
    if program:
        _look_at_python(diagnosis, program[0])
    if not diagnosis.inventory.model_sdks:
        diagnosis.notes.append(
            "no known model SDK is installed; model calls over any HTTP client are observed too"
        )
    has_loader = "opentelemetry-distro" in installed
    diagnosis.starts = {
        "endturn run": "yes" if has_sdk else "no: pip install 'endturn[otlp]'",
        "opentelemetry-instrument": _loads("opentelemetry_instrumentor")
        if has_loader
        else "no: pip install opentelemetry-distro",
        "pytest --endturn": _loads("pytest11") if find_spec("pytest") else "no: pip install pytest",
    }
    if zero_code.is_disabled():
        diagnosis.starts |= dict.fromkeys(
            ("endturn run", "opentelemetry-instrument"), "no: switched off"
        )


def _look_at_python(diagnosis: Diagnosis, path: str) -> None:
    """Report if the program is run by a Python other than this one."""
    program, here = Path(path), Path(sys.executable)
    if not program.name.startswith("python") or program.parent.resolve() == here.parent.resolve():
        return
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('endturn') is None)"
    done = subprocess.run([path, "-c", code], capture_output=True, check=False)  # noqa: S603
    if done.returncode == 0:
        diagnosis.notes.append(
            f"{path} is not {here}, whose packages are listed here: run {path} -m endturn doctor"
        )
    else:
        diagnosis.problems.append(
            f"{path} has no endturn, so the program is not observed: {path} -m pip install"
            " 'endturn[otlp]'"
        )


def _loads(group: str) -> str:
    return "yes" if entry_points(group=group, name="endturn") else "no: pip install endturn"


# --- Settings -------------------------------------------------------------------------------------


def _look_at_settings(diagnosis: Diagnosis, program: Sequence[str]) -> None:
    environment = os.environ
    diagnosis.problems += _misspelt(environment)
    try:
        ContinuationPolicy.load(environ=environment)
    except UsageError as error:
        diagnosis.problems.append(str(error))
    diagnosis.settings = [
        Setting(name, _redacted_value(variable, name, environment[name]), "variable")
        if environment.get(name)
        else Setting(name, variable.default, "default")
        for variable in settings.VARIABLES
        for name in variable.names
    ]
    diagnosis.settings += [
        Setting(name, value, "variable")
        for name, value in sorted(environment.items())
        if name.startswith(_POLICY) and value
    ]
    name = zero_code.default_service_name(program) if program else None
    diagnosis.service_name = _service_name(name, bool(program))
    place = settings.value_of(settings.CAPTURE_CONTENT, "NO_CONTENT")
    diagnosis.content = "not recorded" if place == "NO_CONTENT" else f"recorded ({place})"
    redaction = os.environ.get(settings.REDACT.name, "").strip()
    if redaction and settings.value_of(settings.REDACT, ""):
        module, _, function = redaction.partition(":")
        diagnosis.notes.append(
            f"ENDTURN_REDACT={redaction!r} was not imported, for that runs its module; to try it: "
            f'python -c "from {module} import {function.partition(".")[0]}"'
        )
    diagnosis.semconv = settings.value_of(settings.SEMCONV_OPT_IN, "default")


def _service_name(default_name: str | None, has_program: bool) -> str:
    if os.environ.get("OTEL_SERVICE_NAME"):
        return f"{os.environ['OTEL_SERVICE_NAME']!r} (OTEL_SERVICE_NAME)"
    if zero_code.is_named(os.environ):
        return "set by OTEL_RESOURCE_ATTRIBUTES"
    if default_name is not None:
        return f"{default_name!r} (name of the script or module; OTEL_SERVICE_NAME changes it)"
    if has_program:
        return "unknown_service: set OTEL_SERVICE_NAME"
    return "the script's or module's name under `endturn run`; OTEL_SERVICE_NAME changes it"


def _misspelt(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a sentence for each OTEL_ variable that is unknown but resembles a known one."""
    known_names = [name for variable in settings.VARIABLES for name in variable.names]
    for name in sorted(environment):
        if not name.startswith("OTEL_EXPORTER_OTLP_") and name not in _LIKELY_MISTAKES:
            continue
        if name not in known_names:
            hint = did_you_mean(name, known_names, prefix="OTEL_EXPORTER_OTLP_")
            if hint.startswith("did you mean"):
                yield f"{name} is not a variable of OpenTelemetry; {hint}"


_LIKELY_MISTAKES: Final = frozenset(
    {
        "OTEL_ENDPOINT",
        "OTEL_EXPORTER_ENDPOINT",
        "OTEL_EXPORTER_HEADERS",
        "OTEL_LOG_EXPORTER",
        "OTEL_METRIC_EXPORTER",
        "OTEL_OTLP_ENDPOINT",
        "OTEL_SERVICENAME",
        "OTEL_SERVICE",
        "OTEL_TRACE_EXPORTER",
    }
)
"""Names that people set by mistake; nothing reads them."""


def _redacted_value(variable: settings.Variable[object], name: str, text: str) -> str:
    """Return the value of a variable without secrets."""
    return "(set, not shown)" if variable.is_secret else settings.redact_value(name, text)


# --- Destinations ---------------------------------------------------------------------------------


def _look_at_destinations(diagnosis: Diagnosis, timeout_s: float) -> None:
    unusable: set[destinations.Signal] = set()
    mistakes = destinations.mistakes(os.environ, with_ports=False)
    if "endturn run" in diagnosis.starts and diagnosis.starts["endturn run"] == "yes":
        for reason, signals in zero_code.unusable_exporters().items():
            unusable.update(signals)
            if reason not in (*diagnosis.problems, *mistakes):
                diagnosis.problems.append(
                    f"no {destinations.listing(signals)} are exported: {reason}"
                )
    diagnosis.problems += mistakes
    refused: dict[str, list[Receiver]] = {}
    for destination in destinations.destinations(os.environ):
        signal = destination.signal
        mistaken = destinations.mistakes(os.environ, [signal], with_ports=False)
        is_dialled = destination.exporter == "otlp" and not mistaken and signal not in unusable
        answer = receivers.check(destination, timeout_s) if is_dialled else None
        receiver = Receiver(destination, answer)
        diagnosis.receivers.append(receiver)
        if answer is not None and answer.problem:
            key = f"{answer.status} {destination.variable}" if answer.status else answer.problem
            refused.setdefault(key, []).append(receiver)
    for same in refused.values():
        signals = [receiver.destination.signal for receiver in same]
        answer = same[0].answer
        if answer is not None:
            diagnosis.problems.append(f"{destinations.listing(signals)}: {answer.problem}")
        # A port that looks wrong is reported only if the receiver has a problem.
        ports = destinations.mistakes(os.environ, signals)
        diagnosis.problems += [mistake for mistake in ports if mistake not in diagnosis.problems]


# --- Output ---------------------------------------------------------------------------------------


def _as_json(diagnosis: Diagnosis) -> dict[str, object]:
    inventory = asdict(diagnosis.inventory)
    del inventory["outdated"]
    return {
        "version": __version__,
        "python": sys.executable,
        **inventory,
        "starts": diagnosis.starts,
        "service_name": diagnosis.service_name,
        "content": diagnosis.content,
        "semconv": diagnosis.semconv,
        "settings": [asdict(setting) for setting in diagnosis.settings],
        "destinations": [
            {
                "signal": receiver.destination.signal,
                "exporter": receiver.destination.exporter,
                "protocol": receiver.destination.protocol or None,
                "endpoint": settings.redact_address(receiver.destination.url) or None,
                "variable": receiver.destination.variable or None,
                **receivers.as_json(receiver.answer or receivers.ReceiverCheck("not dialled")),
            }
            for receiver in diagnosis.receivers
        ],
        "problems": diagnosis.problems,
        "notes": diagnosis.notes,
    }


def _as_text(diagnosis: Diagnosis) -> str:
    inventory = diagnosis.inventory
    rows = [
        ("endturn", f"{__version__}, in {sys.executable}"),
        ("HTTP clients", [*_package_lines(inventory.http_clients), "urllib.request"]),
        ("Model SDKs", _package_lines(inventory.model_sdks) or "none"),
        ("Frameworks", _package_lines(inventory.frameworks) or "none"),
        ("Instrumentations", _package_lines(inventory.instrumentations) or "none besides endturn"),
        ("Loaded by", [f"{name}: {is_loaded}" for name, is_loaded in diagnosis.starts.items()]),
        ("Service name", diagnosis.service_name),
        ("Content", diagnosis.content),
        ("Metric names", diagnosis.semconv),
        ("Settings", _setting_lines(diagnosis.settings)),
        ("Destinations", [_receiver_line(receiver) for receiver in diagnosis.receivers] or "–"),
    ]
    width = max(len(name) for name, _ in rows) + 2
    lines = []
    for name, value in rows:
        first, *others = [value] if isinstance(value, str) else value
        lines.append(f"{name:<{width}}{first}")
        lines += [f"{'':<{width}}{line}" for line in others]
    lines += [f"\nNote: {note}" for note in diagnosis.notes]
    if not diagnosis.problems:
        return "\n".join([*lines, "", "No problem was found."])
    count = len(diagnosis.problems)
    lines += ["", "1 problem:" if count == 1 else f"{count} problems:"]
    lines += [
        f"  {number}. {problem}" for number, problem in enumerate(diagnosis.problems, start=1)
    ]
    return "\n".join(lines)


def _package_lines(installed: Iterable[packages.Package]) -> list[str]:
    return [
        f"{package.name} {package.version}{f' ({package.remark})' if package.remark else ''}"
        for package in installed
    ]


def _setting_lines(rows: Iterable[Setting]) -> list[str]:
    lines = [f"{row.name}={row.value}" for row in rows if row.source == "variable"]
    return [*lines, "all others have their defaults" if lines else "all have their defaults"]


def _receiver_line(receiver: Receiver) -> str:
    destination = receiver.destination
    if destination.exporter != "otlp":
        where = "not exported" if destination.exporter == "none" else destination.exporter
        return f"{destination.signal}: {where}"
    source = destination.variable or "default"
    answer = receiver.answer.text if receiver.answer is not None else "not dialled"
    where = f"{settings.redact_address(destination.url)} ({destination.protocol}, {source})"
    return f"{destination.signal}: {where}: {answer}"
