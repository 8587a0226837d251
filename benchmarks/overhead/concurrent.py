"""Calls in many threads or tasks at once, and the memory of calls that are open.

The transport gives way to other threads or tasks within each call, so all of them have a call open at a time.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import time
import tracemalloc
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import openai

from benchmarks.overhead.situations import OK, SITUATIONS, answer_body, http_library, request_options
from benchmarks.overhead.variants import Variant, put_bare_methods

if TYPE_CHECKING:
    from benchmarks.overhead.figures import Rounds
    from benchmarks.overhead.groups import Arm, Group

THREADS: Final = 50
TASKS: Final = 200
CALLS_OF_A_THREAD: Final = 4
CALLS_OF_A_TASK: Final = 1
OPEN_CALLS: Final = 500
SITUATION: Final = SITUATIONS["answer"]
HEADERS: Final = {"content-type": "application/json"}

numbers = itertools.count()


def sync_client() -> openai.OpenAI:
    """A client whose transport lets other threads run."""
    body = answer_body(SITUATION)

    def respond(request: object) -> Any:
        time.sleep(0)
        return http_library.Response(OK, headers=HEADERS, content=body)

    http_client: Any = openai.DefaultHttpxClient(transport=http_library.MockTransport(respond))
    return openai.OpenAI(api_key="none", max_retries=0, http_client=http_client)


def async_client(wait: Callable[[], Awaitable[object]]) -> openai.AsyncOpenAI:
    """A client whose transport waits before it answers."""
    body = answer_body(SITUATION)

    async def respond(request: object) -> Any:
        await wait()
        return http_library.Response(OK, headers=HEADERS, content=body)

    http_client: Any = openai.DefaultAsyncHttpxClient(transport=http_library.MockTransport(respond))
    return openai.AsyncOpenAI(api_key="none", max_retries=0, http_client=http_client)


def run_threads(client: openai.OpenAI) -> int:
    """Make calls in 50 threads, and return how many."""

    def make_calls() -> None:
        for _ in range(CALLS_OF_A_THREAD):
            client.chat.completions.create(**request_options(SITUATION, next(numbers)))

    threads = [threading.Thread(target=make_calls) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return THREADS * CALLS_OF_A_THREAD


async def run_tasks(client: openai.AsyncOpenAI) -> int:
    """Make calls in 200 tasks, and return how many."""

    async def make_calls() -> None:
        for _ in range(CALLS_OF_A_TASK):
            await client.chat.completions.create(**request_options(SITUATION, next(numbers)))

    await asyncio.gather(*(make_calls() for _ in range(TASKS)))
    return TASKS * CALLS_OF_A_TASK


def measure_throughput(group: Group, arms: tuple[Arm, ...], rounds: int) -> Rounds:
    """CPU microseconds of a call with all that belongs to it, round by round."""
    from benchmarks.overhead.groups import arm_key

    threaded, tasked = sync_client(), async_client(lambda: asyncio.sleep(0))
    variants = {name: Variant(name, group.setup) for name in dict.fromkeys(name for _, name in arms)}
    costs: Rounds = {}
    with asyncio.Runner() as runner:
        for number in range(rounds + 1):
            first = number % len(arms)
            for situation, name in (*arms[first:], *arms[:first]):
                variants[name].enter()
                began = time.process_time()
                count = run_threads(threaded) if situation == "threads" else runner.run(run_tasks(tasked))
                collect = variants[name].collect
                if collect is not None:
                    collect()
                cost = (time.process_time() - began) / count * 1e6
                put_bare_methods()
                if number:  # the first round warms up
                    costs.setdefault(arm_key(situation, name), []).append(cost)
            gc.collect()
    return costs


def measure_memory(group: Group, arms: tuple[Arm, ...], rounds: int) -> Rounds:
    """Bytes that one call holds while it waits for its response, the SDK's own included."""
    from benchmarks.overhead.groups import arm_key

    variants = {name: Variant(name, group.setup) for _, name in arms}
    costs: Rounds = {}
    tracemalloc.start()
    for _ in range(rounds):
        for situation, name in arms:
            variants[name].enter()
            held = asyncio.run(_bytes_of_open_calls())
            put_bare_methods()
            costs.setdefault(arm_key(situation, name), []).append(held)
    return costs


async def _bytes_of_open_calls() -> float:
    waiting = 0
    all_wait, may_answer = asyncio.Event(), asyncio.Event()
    expected = 1

    async def wait() -> None:
        nonlocal waiting
        waiting += 1
        if waiting == expected:
            all_wait.set()
        await may_answer.wait()

    client = async_client(wait)

    def start(count: int) -> list[asyncio.Task[Any]]:
        create = client.chat.completions.create
        return [asyncio.create_task(create(**request_options(SITUATION, next(numbers)))) for _ in range(count)]

    first = start(1)  # brings caches into being, and stays open
    await all_wait.wait()
    all_wait.clear()
    expected += OPEN_CALLS
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    tasks = start(OPEN_CALLS)
    await all_wait.wait()
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    may_answer.set()
    await asyncio.gather(*first, *tasks)
    return (after - before) / OPEN_CALLS
