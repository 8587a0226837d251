"""What importing endturn costs beside `import openai`, and what the first call costs more than a later one.

Each figure is of a process of its own, which this file starts by running itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from benchmarks.overhead.figures import Rounds

MILLISECONDS: Final = 1e3
PROCESSES: Final = ("import", "first call: bare", "first call: endturn")


def measure(rounds: int) -> Rounds:
    """CPU milliseconds, round by round."""
    costs: Rounds = {}
    with TemporaryDirectory() as byte_code:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": byte_code}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(rounds + 1):
            for process in PROCESSES:
                command = [sys.executable, "-m", "benchmarks.overhead.startup", process]
                done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
                if number:  # the first round writes byte code and fills the file cache
                    for name, cost in json.loads(done.stdout).items():
                        costs.setdefault(name, []).append(cost)
    return costs


def import_costs() -> dict[str, float]:
    """What `import endturn; endturn.instrument()` adds after `import openai`, and OpenTelemetry's API within that."""
    import openai  # noqa: F401

    began = time.process_time()
    import opentelemetry._logs
    import opentelemetry.metrics
    import opentelemetry.trace  # noqa: F401

    has_api = time.process_time()
    import endturn

    endturn.instrument()
    ended = time.process_time()
    return {
        "startup": (ended - began) * MILLISECONDS,
        "OpenTelemetry API": (has_api - began) * MILLISECONDS,
    }


def first_call_costs(process: str) -> dict[str, float]:
    """What the first call takes in a process where the SDKs are imported, and all is set up."""
    from benchmarks.overhead.providers import ALL_SIGNALS
    from benchmarks.overhead.situations import SITUATIONS, make_call
    from benchmarks.overhead.variants import Variant

    Variant(process.removeprefix("first call: "), ALL_SIGNALS).enter()
    call = make_call(SITUATIONS["answer"])
    began = time.process_time()
    call(0)
    return {process: (time.process_time() - began) * MILLISECONDS}


if __name__ == "__main__":
    name = sys.argv[1]
    json.dump(import_costs() if name == "import" else first_call_costs(name), sys.stdout)
