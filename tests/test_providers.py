"""The one table of providers: what stands in a row is all that there is of a provider."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from endturn import Client, Message, Request, ScriptedProvider
from endturn.formats import dialect_in, format_of
from endturn.providers import PROVIDERS, canonical, provider_at
from endturn.scripted import say
from tests.support.processes import REPOSITORY

ROW = """
[acme]
base_url = "https://api.acme.example/v1"
key_variable = "ACME_API_KEY"
hosts = ["acme.test"]
aliases = ["acme_cloud"]
"""
AGENT = """
import json, httpx, endturn
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from endturn import Client, Message, Request
from endturn.generate import docs, ottl
from endturn.providers import canonical
from endturn.scripted import ScriptedProvider, truncate

reader, asked = InMemoryMetricReader(), []
endturn.instrument(meter_provider=MeterProvider([reader]))
scripted = ScriptedProvider([truncate("One two three", after=2)], exhausted="last")
http = httpx.Client(transport=scripted.transport(), event_hooks={"request": [asked.append]})
Client("acme", http=http)(Request(model="m", messages=(Message(role="user", content="hi"),)))
said = [{"role": "user", "content": "hi"}]
http.post("https://eu.acme.test/v1/chat/completions", json={"model": "m", "messages": said})
endturn.uninstrument()
counted = [
    (point.attributes["gen_ai.provider.name"], point.attributes["endturn.stop.reason"], point.value)
    for resource in reader.get_metrics_data().resource_metrics
    for scope in resource.scope_metrics
    for metric in scope.metrics if metric.name == "endturn.responses"
    for point in metric.data.data_points if point.value
]
print(json.dumps({
    "asked": [(str(request.url), request.headers.get("authorization")) for request in asked],
    "counted": counted,
    "page": [line for line in docs.providers().splitlines() if "acme" in line],
    "collector": [line.partition(" where ")[0] for line in ottl.statements() if "acme_cloud" in line],
    "named": canonical("acme-cloud.chat"),
    "said": endturn.normalize("max_tokens", provider="acme").reason,
}))
"""


def test_a_new_provider_is_one_row(tmp_path: Path) -> None:
    """With a row more, clients ask it by name, its host is recognised and counted, and documents and rules name it."""
    package = shutil.copytree(REPOSITORY / "src" / "endturn", tmp_path / "endturn")
    with (package / "data" / "providers.toml").open("a", encoding="utf-8") as table:
        table.write(ROW)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ACME_API_KEY": "the-key-of-acme"}
    done = subprocess.run(
        [sys.executable, "-c", AGENT], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "asked": [
            ["https://api.acme.example/v1/chat/completions", "Bearer the-key-of-acme"],
            ["https://eu.acme.test/v1/chat/completions", None],
        ],
        "counted": [["acme", "max_tokens", 2]],
        "page": [
            "| `acme` | `openai_chat` | `compatible` | `https://api.acme.example/v1` | `acme.test` | `ACME_API_KEY` "
            "| bearer token |"
        ],
        "collector": ['set(span.attributes["gen_ai.provider.name"], "acme")'],
        "named": "acme",
        "said": "max_tokens",
    }


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_row_is_consistent(name: str) -> None:
    """A provider is found at each of its hosts and by each of its aliases; its dialect is one that a format has."""
    known = PROVIDERS[name]
    assert {provider_at(f"eu.{host}", port=1) for host in known.hosts if host != "amazonaws.com"} <= {name}
    assert {canonical(alias) for alias in (name, *known.aliases)} == {name}
    assert known.dialect in {dialect_in(format_of(each), name) for each in ("openai_chat", known.format)}


def test_ollama_is_asked_for_a_limit_that_it_reads() -> None:
    """In OpenAI's format too, where Ollama knows `max_tokens` alone."""
    provider = ScriptedProvider([say("Hello.")])
    with Client("ollama", format="openai_chat", base_url="http://localhost/v1", http=provider.transport()) as client:
        client(Request(model="m", messages=(Message(role="user", content="hi"),), max_tokens=9))
    assert provider.received[0].body["max_tokens"] == 9
