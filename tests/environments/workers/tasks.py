"""Tasks that call a model, for workers of Celery, RQ and billiard.

WAY says how the worker process is observed: `configure` (one line at the top of this module, which RQ imports in each
work horse), `own` (a program's own OpenTelemetry providers, and `endturn.instrument()`), or else from outside.
PARENT: whoever imports it, a worker before it forks, asks too, and exports that.
FOLDER is where Celery keeps its messages, and where each task leaves a file when it has its answer.
"""

from __future__ import annotations

import os
from pathlib import Path

from celery import Celery

from tests.apps.bare import ask as ask_model
from tests.apps.own import set_up_own_providers

FOLDER = Path(os.environ["FOLDER"])


match os.environ["WAY"]:
    case "configure":
        import endturn

        endturn.configure()
    case "own":
        import endturn

        set_up_own_providers()
        endturn.instrument()

app = Celery("tasks", broker="filesystem://", backend=None)
app.conf.update(
    broker_transport_options={
        "data_folder_in": str(FOLDER / "queue"),
        "data_folder_out": str(FOLDER / "queue"),
        "processed_folder": str(FOLDER / "processed"),
        "control_folder": str(FOLDER / "control"),
    },
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    worker_max_tasks_per_child=int(os.environ.get("MOST_TASKS", "0")) or None,
)


def call(number: int) -> None:
    """One call, whose answer is cut off; a task with an odd number fails after it."""
    ask_model("cut", f"{number} of {os.getpid()}")
    (FOLDER / f"done-{number}").touch()
    if number % 2 and "FAIL" in os.environ:
        raise LookupError(number)


ask = app.task(name="ask")(call)

if os.environ.get("PARENT"):
    import endturn

    ask_model("cut", f"parent {os.getpid()}")
    endturn.configure().force_flush()
