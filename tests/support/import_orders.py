"""A program that imports HTTP clients in one order and makes a model call through each of them.

It runs in a process of its own, with `endturn.instrument()` before the imports or without. Every import that is not the
program's subject stands after them.

    python -m tests.support.import_orders instrumented requests openai …
    python -m tests.support.import_orders hook urllib3.connectionpool
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parents[2]

MODULES: Final = ("requests", "openai", "httpx", "urllib3", "aiohttp", "urllib.request", "pydantic")


def run_order(*arguments: str, url: str = "", path: str = "") -> dict[str, Any]:
    """Run this module in a new process, which may write nothing to its standard error.

    Args:
        arguments: what the process is to do; see `main`.
        url: the model's provider.
        path: a folder with more packages.

    Returns:
        What the process printed.
    """
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ENDTURN_"))}
    paths = [str(REPOSITORY / "src"), str(REPOSITORY), *filter(None, [path])]
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.import_orders", *arguments],
        env={**variables, "PROVIDER_URL": url, "NO_PROXY": "*", "PYTHONPATH": os.pathsep.join(paths)},
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), (arguments, ran.stderr)
    printed: dict[str, Any] = json.loads(ran.stdout)
    return printed


def call_model(library: str, base_url: str) -> None:
    """Make one call through a library; the model is named after it."""
    url = f"{base_url}/chat/completions"
    body: Any = {"model": library, "messages": [{"role": "user", "content": "hi"}]}
    content, headers = json.dumps(body).encode(), {"content-type": "application/json"}
    client: Any = import_module(library)
    if library == "openai":
        client.OpenAI(base_url=base_url, api_key="none", max_retries=0).chat.completions.create(**body)
    elif library == "urllib3":
        assert client.PoolManager().request("POST", url, body=content, headers=headers).status == 200
    elif library == "urllib.request":
        with client.urlopen(client.Request(url, content, headers)) as response:
            response.read()
    elif library == "aiohttp":
        import_module("asyncio").run(_post_with_aiohttp(client, url, body))
    else:
        client.post(url, json=body).raise_for_status()


async def _post_with_aiohttp(client: Any, url: str, body: Any) -> None:
    async with client.ClientSession() as session, session.post(url, json=body) as response:
        await response.read()


def import_and_call(modules: Sequence[str], *, instrumented: bool) -> dict[str, Any]:
    """Import the modules in order, and call a model through each client in the same order.

    Returns:
        The pydantic plugins that are loaded after the imports, and how many spans each client's call has.
    """
    if instrumented:
        import_module("endturn").instrument()
    for module in modules:
        import_module(module)
    # pydantic has no public function that lists the plugins that it loaded.
    plugins = import_module("pydantic.plugin._loader").get_plugins()

    exporter = _set_tracer_provider()
    for module in modules:
        if module != "pydantic":
            call_model(module, _base_url())
    return {"plugins": [type(plugin).__name__ for plugin in plugins], "spans": _spans_by_model(exporter)}


def call_in_threads(library: str) -> dict[str, int]:
    """Make the first eight calls of an instrumented process at once, and count their spans by model."""
    import_module("endturn").instrument()
    import_module(library)
    exporter = _set_tracer_provider()
    assert "endturn.instrumentation.exchange" not in sys.modules
    barrier = threading.Barrier(8)

    def call() -> None:
        barrier.wait()
        call_model(library, _base_url())

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return _spans_by_model(exporter)


def _set_tracer_provider() -> Any:
    trace, sdk = import_module("opentelemetry.trace"), import_module("opentelemetry.sdk.trace")
    export = import_module("opentelemetry.sdk.trace.export")
    exporter = import_module("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    tracers = sdk.TracerProvider()
    tracers.add_span_processor(export.SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(tracers)
    return exporter


def _spans_by_model(exporter: Any) -> dict[str, int]:
    models = [span.attributes["gen_ai.request.model"] for span in exporter.get_finished_spans()]
    return {model: models.count(model) for model in models}


def _base_url() -> str:
    return f"{os.environ['PROVIDER_URL']}/v1"


def modules_of_hooks(name: str) -> dict[str, list[str]]:
    """Import one module after `endturn.instrument()`, and list what endturn's post-import hooks import meanwhile.

    Returns:
        By the name of every module that has a hook, the modules that its hooks imported.
    """
    wrapt: Any = import_module("wrapt")
    register = wrapt.register_post_import_hook
    imported: dict[str, list[str]] = {}

    def register_watched(hook: Any, name: str) -> None:
        imported.setdefault(name, [])

        def watched(module: ModuleType) -> None:
            before = set(sys.modules)
            hook(module)
            imported[name] += sorted(set(sys.modules) - before)

        register(watched, name)

    wrapt.register_post_import_hook = register_watched
    import_module("endturn").instrument()
    import_module(name)
    return imported


def main() -> None:
    """Do what the arguments say: "bare" or "instrumented" with modules in order; "threads" or "hook" with one."""
    mode, *names = sys.argv[1:]
    if mode == "hook":
        print(json.dumps(modules_of_hooks(*names)))
    elif mode == "threads":
        print(json.dumps(call_in_threads(*names)))
    else:
        print(json.dumps(import_and_call(names, instrumented=mode == "instrumented")))


if __name__ == "__main__":
    main()
