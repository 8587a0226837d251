"""A program that compares the state of its own process before and after `endturn` is imported and used.

It runs in a process of its own and prints, as JSON, what differs from the beginning after each stage.

    python -m tests.support.host_state URL
"""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import signal
import sys
import threading
import urllib.request
import warnings
from typing import Any, Final

import aiohttp
import httpx
import httpx2
import requests
import urllib3

LIBRARIES: Final = ("aiohttp", "http", "httpx", "httpx2", "requests", "urllib", "urllib3")
CACHES: Final = {"__abstractmethods__", "_abc_impl", "__annotations__", "__annotations_cache__"}
"""Attributes of classes that Python itself fills in."""


def state() -> dict[str, Any]:
    """Return what a library could change of its host, by name."""
    values: dict[str, Any] = {f"environ {name}": value for name, value in os.environ.items()}
    values |= {f"signal {number}": signal.getsignal(number) for number in signal.valid_signals()}
    values["warnings.filters"] = list(warnings.filters)
    values["warnings.showwarning"] = warnings.showwarning
    for name in ("excepthook", "unraisablehook", "displayhook", "stdout", "stderr"):
        values[f"sys.{name}"] = getattr(sys, name)
    values["threading.excepthook"] = threading.excepthook
    values["logging.disable"] = logging.root.manager.disable
    values["logging.factory"] = logging.getLogRecordFactory()
    return values | _loggers() | _classes()


def _loggers() -> dict[str, Any]:
    """Return the settings of loggers, except those that have none of their own."""
    entries = [logging.root, *logging.root.manager.loggerDict.values()]
    values: dict[str, Any] = {}
    for logger in entries:
        if not isinstance(logger, logging.Logger):
            continue  # a placeholder for the parent of one
        settings = (logger.level, [*logger.filters], [*logger.handlers], logger.propagate, logger.disabled)
        if settings != (logging.NOTSET, [], [], True, False):
            values[f"logger {logger.name}"] = settings
    return values


def _classes() -> dict[str, Any]:
    """Return the attributes of every class of the HTTP libraries."""
    values: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] not in LIBRARIES:
            continue
        for kind in [value for value in vars(module).values() if isinstance(value, type)]:
            if kind.__module__ == name:
                own = {attribute: value for attribute, value in vars(kind).items() if attribute not in CACHES}
                values |= {f"{name}.{kind.__qualname__}.{attribute}": value for attribute, value in own.items()}
    return values


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Return the names of what differs. A class of a module that was imported since is no difference."""
    known = {name.rpartition(".")[0] for name in before}
    added = [name for name in after.keys() - before.keys() if name.rpartition(".")[0] in known or " " in name]
    changed = [name for name in before if name not in after or not _is_same(before[name], after[name])]
    return sorted([*added, *changed])


def _is_same(before: Any, after: Any) -> bool:
    """Return whether a value is unchanged. A wrapper may be equal to what it wraps, so only plain values may be."""
    return before is after or (isinstance(before, str | int | list | tuple) and bool(before == after))


def call_models(url: str) -> list[bool]:
    """Ask a model through every client; return whether each response, and its reader, has the library's own class."""
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
    content, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    for library in (httpx, httpx2):
        client: Any = library
        client.post(url, json=body).raise_for_status()
        asyncio.run(_post(client.AsyncClient(), url, body))
    requests.post(url, json=body, timeout=60).raise_for_status()
    response = urllib3.PoolManager().request("POST", url, body=content, headers=headers, preload_content=False)
    response.read()
    with urllib.request.urlopen(urllib.request.Request(url, content, headers)) as opened:
        opened.read()
        is_own = [type(response) is urllib3.HTTPResponse, type(opened) is http.client.HTTPResponse]
    return [*is_own, asyncio.run(_post_with_aiohttp(url, body))]


async def _post(client: Any, url: str, body: Any) -> None:
    async with client:
        (await client.post(url, json=body)).raise_for_status()


async def _post_with_aiohttp(url: str, body: Any) -> bool:
    async with aiohttp.ClientSession() as session, session.post(url, json=body) as response:
        await response.read()
        return type(response) is aiohttp.ClientResponse and isinstance(response.content, aiohttp.StreamReader)


def main() -> None:
    """Print the differences after each stage."""
    records: list[Any] = []
    before = state()
    import endturn
    from endturn import hooks

    found: dict[str, Any] = {"import": differences(before, state())}
    endturn.instrument()
    found["instrument"] = differences(before, state())
    stop = hooks.subscribe(records.append)
    found["own classes"] = call_models(f"{sys.argv[1]}/v1/chat/completions")
    found["records"] = len([record for record in records if type(record).__name__ == "CallEnded"])
    found["calls"] = differences(before, state())
    stop()
    endturn.uninstrument()
    found["uninstrument"] = differences(before, state())
    print(json.dumps(found))


if __name__ == "__main__":
    main()
