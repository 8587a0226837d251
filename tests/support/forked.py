"""Programs that each run in a process of its own, forked from one that has read what most of them import."""

from __future__ import annotations

import multiprocessing
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

IMPORTED = [__name__, "anthropic", "boto3", "endturn.providers.sdk_client", "google.genai", "openai", "stamina"]


@contextmanager
def forking() -> Iterator[Callable[[str, Mapping[str, str]], None]]:
    """What runs a program with variables of its environment; raises what it raises."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        yield lambda code, variables: pool.submit(_run, code, variables).result(timeout=300)


def _run(code: str, variables: Mapping[str, str]) -> None:
    os.environ |= variables
    warnings.simplefilter("error")
    exec(code, {"__name__": "__main__"})
