"""Read many files, in several processes if that is worth their start."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from endturn.scan.reading import FileResult, read_file

WORTH_BYTES: Final = 64 * 1024 * 1024
"""The minimum size of all files in bytes for several processes: below, one process is as fast."""
FILE_BYTES: Final = 32 * 1024
"""The cost of opening and recognising a file, in bytes of a file that is read."""


def read_files(
    paths: Sequence[Path], forced: str | None = None, *, processes: int = 1
) -> Iterator[list[FileResult]]:
    """Yield the results of each file, in any order.

    Args:
        paths: the files; `-` is standard input, which this process reads.
        forced: the name of the source that reads each of them.
        processes: the maximum number of processes. More than one needs an importable `__main__`.
    """
    sizes = {path: _size(path) for path in paths}
    regular = [path for path in paths if sizes[path] is not None]
    total = sum(FILE_BYTES + (size or 0) for size in sizes.values())
    if processes < 2 or len(regular) < 2 or total < WORTH_BYTES:
        yield from (read_file(path, forced) for path in paths)
        return
    regular.sort(key=lambda path: -(sizes[path] or 0))  # the longest first: none is left to the end
    yield from _in_processes(regular, forced, min(processes, len(regular)))
    yield from (read_file(path, forced) for path in paths if sizes[path] is None)


def _in_processes(
    paths: Sequence[Path], forced: str | None, processes: int
) -> Iterator[list[FileResult]]:
    executor = ProcessPoolExecutor(
        processes, multiprocessing.get_context("spawn"), initializer=_ignore_interrupts
    )
    chunk = max(1, min(64, len(paths) // (processes * 8)))
    completed = 0
    try:
        with _interrupts_later():  # the processes start here
            all_results = executor.map(partial(read_file, forced=forced), paths, chunksize=chunk)
        for results in all_results:
            completed += 1
            yield results
    except BrokenProcessPool:  # one was killed, usually by the system for its memory
        yield from (read_file(path, forced) for path in paths[completed:])
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Delay Ctrl-C: processes that start meanwhile never receive it, not even while they import."""
    if sys.platform == "win32":
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the parent, which keeps the results so far."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _size(path: Path) -> int | None:
    """Return the size of a regular file, None for anything else."""
    try:
        return path.stat().st_size if path.is_file() else None
    except OSError:
        return None


def usable_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
