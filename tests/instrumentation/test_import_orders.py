"""HTTP clients that the host imports after `instrument()`, in any order: the imports run as they would without it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from endturn import instrumentation
from endturn.calls import listeners
from endturn.instrumentation import http_clients
from endturn.instrumentation.http_clients import CLIENTS
from endturn.testing.scripted import ScriptedProvider, say
from tests.support.import_orders import MODULES, call_model, run_order

PLUGIN = '''
"""A plugin of pydantic's that needs every HTTP client, as Logfire's needs requests."""
from urllib.request import urlopen

from aiohttp import ClientSession
from httpx import Client
from requests import RequestException
from urllib3 import PoolManager


class NeedsClients:
    def new_schema_validator(self, *args, **kwargs):
        return None, None, None


plugin = NeedsClients()
'''

ORDERS = [(*MODULES[at:], *MODULES[:at]) for at in range(len(MODULES))]


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with ScriptedProvider(say("Hello."), exhausted="last").serve() as url:
        yield url


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder in which pydantic finds a plugin."""
    folder = tmp_path_factory.mktemp("plugin")
    (folder / "needs_clients.py").write_text(PLUGIN)
    metadata = folder / "needs_clients-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: needs-clients\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[pydantic]\nneeds_clients = needs_clients:plugin\n")
    return str(folder)


@pytest.mark.parametrize(
    "order",
    [  # every second one in `make test`, all in `make test-all`
        pytest.param(order, id=order[0], marks=[pytest.mark.slow] * (at % 2)) for at, order in enumerate(ORDERS)
    ],
)
def test_whichever_client_comes_first_is_recorded_and_loads_as_without_us(
    order: tuple[str, ...], provider: str, plugin: str
) -> None:
    """Nothing is written to standard error, pydantic loads its plugin, and each client's call is one span."""
    ran = run_order("instrumented", *order, url=provider, path=plugin)
    assert ran["plugins"] == ["NeedsClients"]
    assert ran["spans"] == {module: 1 for module in order if module != "pydantic"}


@pytest.mark.parametrize("first", ["requests", "openai"])
def test_pydantic_loads_that_plugin_without_us(first: str, provider: str, plugin: str) -> None:
    rest = [module for module in MODULES if module != first]
    assert run_order("bare", first, *rest, url=provider, path=plugin) == {"plugins": ["NeedsClients"], "spans": {}}


@pytest.mark.parametrize("name", [*CLIENTS, "multiprocessing.util"])
def test_a_post_import_hook_imports_only_our_light_modules(name: str) -> None:
    """While the host's import runs, nothing is imported that its library has not imported itself."""
    imported = run_order("hook", name)
    assert CLIENTS.keys() < imported.keys()
    assert name in imported
    every = {each for modules in imported.values() for each in modules}
    others = {each for each in every if not each.startswith("endturn.instrumentation.http_")}
    assert others <= {"endturn.instrumentation.tee"}


def test_first_requests_of_several_threads_are_all_recorded(provider: str) -> None:
    """Each waits until the first has imported what reads a request and its response."""
    assert run_order("threads", "urllib.request", url=provider) == {"urllib.request": 8}


def test_a_request_is_sent_where_what_reads_it_cannot_be_imported(
    provider: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listeners, "_logged_labels", set())  # another test may have been warned already
    monkeypatch.setattr(http_clients, "_exchanges", None)
    monkeypatch.delattr(instrumentation, "exchange", raising=False)
    monkeypatch.setitem(sys.modules, "endturn.instrumentation.exchange", None)
    http_clients.install(lambda: True)
    try:
        call_model("httpx", f"{provider}/v1")
    finally:
        http_clients.uninstall()
    assert "opening a call" in caplog.text
