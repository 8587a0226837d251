"""Worker processes that call models: `workers.py WAY WORKERS`, each asks `done`, `done` and `cut` of at most 8 tokens.

WAY is a start method of `multiprocessing`, or `os.fork`, whose children end as a program does; `pool` and `executor`
are pools whose workers are replaced after one task. CONFIGURE says where
the one line is: `main` (at the top, as a worker that is spawned sees it again), `task` (in each worker), or nowhere.
PARENT: it asks too, once before it starts workers and once after. `exports`: it has exported the first by then, so its
exporters have connections, and workers export before they end.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from opentelemetry import metrics, trace
from opentelemetry._logs import get_logger_provider

if os.environ.get("CONFIGURE") == "main":
    import endturn

    endturn.configure()

sys.path.insert(0, str(Path(__file__).parents[2]))

MODELS = ("done", "done", "cut")


def call(model: str, number: int) -> None:
    from tests.apps.bare import ask

    ask(model, f"{model} {number} of {os.getpid()}")


def work(number: int) -> None:
    """One worker: its calls from threads of its own."""
    if os.environ.get("CONFIGURE") == "task":
        import endturn

        endturn.configure()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(call, MODELS, range(len(MODELS))))
    if os.environ.get("PARENT") == "exports":
        export()


def forked(number: int) -> int:
    """A worker as a pre-forking server makes it: it leaves through exit handlers."""
    child = os.fork()
    if not child:
        work(number)
        sys.exit(0)
    return child


def export() -> None:
    """Export what was recorded so far, by whoever set the providers up."""
    for provider in (trace.get_tracer_provider(), metrics.get_meter_provider(), get_logger_provider()):
        getattr(provider, "force_flush", bool)()


def main(way: str, workers: int) -> int:
    """All workers' exit statuses, added up."""
    if os.environ.get("PARENT"):
        call("done", 0)
    if os.environ.get("PARENT") == "exports":
        export()
    if way == "os.fork":
        statuses = [os.waitpid(child, 0)[1] for child in [forked(number) for number in range(workers)]]
    elif way == "pool":
        made = multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1)
        made.map(work, range(workers), chunksize=1)
        made.close()
        made.join()
        statuses = []
    elif way == "executor":
        with ProcessPoolExecutor(1, multiprocessing.get_context("forkserver"), max_tasks_per_child=1) as executor:
            list(executor.map(work, range(workers)))
        statuses = []
    else:
        context: Any = multiprocessing.get_context(way)
        started = [context.Process(target=work, args=(number,)) for number in range(workers)]
        for worker in started:
            worker.start()
        for worker in started:
            worker.join()
        statuses = [worker.exitcode or 0 for worker in started]
    if os.environ.get("PARENT"):
        call("cut", 1)
    return sum(map(abs, statuses))


if __name__ == "__main__":
    warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12: forking a process that has threads
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
