"""Runs the groups one after another, each in a process of its own, and collects their rows."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from benchmarks import turns
from benchmarks.overhead.figures import Goal, Rounds, Row, row_of_rounds
from benchmarks.overhead.groups import GROUPS
from tests.sdks.build import Env, envs

ROOT: Final = Path(__file__).resolve().parents[2]
CONTENT_OFF: Final = {
    "TRACELOOP_TRACE_CONTENT": "false",
    "OPENINFERENCE_HIDE_INPUTS": "true",
    "OPENINFERENCE_HIDE_OUTPUTS": "true",
}
"""endturn records no content by default, so the other instrumentations record none here."""

OWN_ENVIRONMENT: Final = ""

Report = Callable[[Row], None]
"""Called with each row as soon as it is measured."""


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that another benchmark measures, with a heading of their own on the page.

    Attributes:
        measure: measures the rows, given whether it should be quick (`figures.row_of_rounds` makes one).
    """

    heading: str
    measure: Callable[[bool], Sequence[Row]]


def _rows_of_turns(is_quick: bool) -> list[Row]:
    """Measure what finding a call's turn costs."""
    measured = turns.rows(rounds=4, most_open=1_000) if is_quick else turns.rows(rounds=40)
    rows = []
    for says, values, goal in measured:
        title, _, unit = says.rpartition(": ")
        rows.append(row_of_rounds(title, unit.removeprefix("CPU, "), values, None if goal is None else Goal(goal)))
    return rows


SECTIONS: Final = (Section("What finding the turn of a call adds", _rows_of_turns),)
"""What other benchmarks measure for this one."""


@dataclass(slots=True)
class Results:
    """What was measured.

    Attributes:
        rows: by their keys.
        sections: the rows of `SECTIONS`, by heading.
        versions: the versions of packages, by environment.
        load: the machine's load average before the first process.
        rounds: how many rounds there were of a group; a few groups have fewer.
        failures: what the processes said that failed.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    sections: dict[str, Sequence[Row]] = field(default_factory=dict)
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    load: float = 0.0
    rounds: int = 0
    failures: list[str] = field(default_factory=list)


class MeasurementError(Exception):
    """A process that measures has failed."""


def built_environment(name: str) -> Env | None:
    """The environment of tests/sdks/envs.toml with this name; None where it is not installed."""
    env = envs()[name]
    return env if env.built else None


def missing_environments(names: Iterable[str]) -> list[str]:
    """The environments that these groups need, and that are not installed."""
    needed = dict.fromkeys(GROUPS[name].environment for name in names)
    return [name for name in needed if name and built_environment(name) is None]


def measure(names: Iterable[str], *, is_quick: bool, most_rounds: int | None, report: Report) -> Results:
    """Measure groups; where the environment of a group's peers is not installed, it is measured without these.

    Args:
        most_rounds: no group has more rounds.
    """
    results = Results(load=os.getloadavg()[0])
    for name in names:
        group = GROUPS[name]
        rounds = group.quick_rounds if is_quick else group.rounds
        if most_rounds is not None:
            rounds = min(rounds, most_rounds)
        env = built_environment(group.environment) if group.environment else None
        has_peers = env is not None or not group.environment
        definitions = group.rows if has_peers else group.rows_without_peers
        if not rounds or not definitions:
            continue
        results.rounds = max(results.rounds, rounds)
        try:
            costs, versions = _measure_group(name, rounds, env)
        except MeasurementError as error:
            results.failures.append(str(error))
            continue
        results.versions[OWN_ENVIRONMENT if env is None else group.environment] = versions
        for definition in definitions:
            row = results.rows[definition.key] = definition.row(costs)
            report(row)
    return results


def measure_sections(results: Results, *, is_quick: bool, report: Report) -> None:
    """Add the rows of other benchmarks."""
    for section in SECTIONS:
        rows = results.sections[section.heading] = section.measure(is_quick)
        for row in rows:
            report(row)


def _measure_group(name: str, rounds: int, env: Env | None) -> tuple[Rounds, dict[str, str]]:
    python = Path(sys.executable) if env is None else env.python
    command = [str(python), "-m", "benchmarks.overhead.process", name, "--rounds", str(rounds)]
    if env is None:
        command.append("--without-peers")
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("OTEL_", "ENDTURN_"))}
    # The order of sets alone moves a call by several microseconds: it is the same in each process.
    fixed = {"PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    environment = {**inherited, **CONTENT_OFF, **fixed}
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment, cwd=ROOT)
    if done.returncode:
        raise MeasurementError(f"measuring {name!r} failed in {python}:\n{done.stderr[-2000:]}")
    output = json.loads(done.stdout.splitlines()[-1])
    return output["costs"], output["versions"]


def machine() -> str:
    """What the measurement runs on, in words."""
    cpu_info = Path("/proc/cpuinfo")
    lines = cpu_info.read_text().splitlines() if cpu_info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    cpus = f"{os.cpu_count()} CPUs" + (f" ({model})" if model else "")
    return f"{cpus}, {platform.system()} {platform.machine()}, Python {platform.python_version()}"
