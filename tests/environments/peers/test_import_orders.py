"""Logfire's plugin of pydantic needs requests: it loads as it does without endturn, whatever the host imports first."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from endturn.testing.scripted import ScriptedProvider, say
from tests.support.agent_processes import exported
from tests.support.import_orders import MODULES, run_order

INSTALLED = [module for module in MODULES if find_spec(module) is not None]
PAIRS = [(first, second) for first in INSTALLED for second in INSTALLED if first != second]
PLUGINS = ["LogfirePydanticPlugin"]

REQUESTS_FIRST = """
import requests
from pydantic.plugin._loader import get_plugins
assert [type(plugin).__name__ for plugin in get_plugins()] == ["LogfirePydanticPlugin"]
messages = [{"role": "user", "content": "hi"}]
requests.post(URL + "/chat/completions", json={"model": "m", "messages": messages}).raise_for_status()
"""


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    with ScriptedProvider(say("Hello."), exhausted="last").serve() as url:
        yield url


def test_logfires_plugin_loads_without_us(provider: str) -> None:
    assert {"requests", "openai", "httpx", "urllib3", "urllib.request", "pydantic"} <= set(INSTALLED)
    assert run_order("bare", *INSTALLED, url=provider) == {"plugins": PLUGINS, "spans": {}}


@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_each_order_of_imports_records_each_client_and_loads_the_plugin(first: str, second: str, provider: str) -> None:
    """Nothing is written to standard error, the plugin is loaded, and each client's call is one span."""
    rest = [module for module in INSTALLED if module not in (first, second)]
    ran = run_order("instrumented", first, second, *rest, url=provider)
    assert ran["plugins"] == PLUGINS
    assert ran["spans"] == {module: 1 for module in INSTALLED if module != "pydantic"}


def test_the_plugin_loads_under_endturn_run() -> None:
    seen = exported(REQUESTS_FIRST, [say("Hello.")])
    assert [span["name"] for span in seen.named("chat")] == ["chat m"]
