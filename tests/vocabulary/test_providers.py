"""A provider, and a stop reason, is defined by one row."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from endturn.formats import dialect_in, format_of
from endturn.vocabulary.providers import PROVIDERS, canonical, provider_at
from tests.support.processes import REPOSITORY

ROWS = {
    "providers.toml": """
[acme]
base_url = "https://api.acme.example/v1"
key_variable = "ACME_API_KEY"
hosts = ["acme.test"]
aliases = ["acme_cloud"]
""",
    "stop_reasons.tsv": "openai_chat\tdeepseek\tout_of_patience\tmax_tokens\tyes\tprompt\t\ta test\n",
}
AGENT = """
import json, httpx, endturn
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from endturn import Client, Message, Request
from endturn.frameworks import lookup as reasons
from endturn.generate import docs, ottl
from endturn.vocabulary.providers import canonical
from endturn.testing.scripted import ScriptedProvider, truncate

reader, asked = InMemoryMetricReader(), []
endturn.instrument(meter_provider=MeterProvider([reader]))
scripted = ScriptedProvider([truncate("One two three", after=2)], exhausted="last")
http = httpx.Client(transport=scripted.transport(), event_hooks={"request": [asked.append]})
Client("acme", http=http)(Request(model="m", messages=(Message(role="user", content="hi"),)))
said = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
http.post("https://eu.acme.test/v1/chat/completions", json=said)
choice = {"index": 0, "message": {"role": "assistant", "content": "The sea is"}, "finish_reason": "out_of_patience"}
answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "deepseek-chat", "choices": [choice]}
with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=answer))) as client:
    client.post("https://api.deepseek.com/chat/completions", json=said)
    client.post("https://anybody.test/v1/chat/completions", json=said)
text = {"type": "text", "text": "The sea is"}
message = {"id": "1", "type": "message", "role": "assistant", "model": "deepseek-chat", "content": [text]}
message |= {"stop_reason": "out_of_patience", "usage": {"input_tokens": 3, "output_tokens": 3}}
with httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json=message))) as client:
    client.post("https://api.deepseek.com/anthropic/v1/messages", json={**said, "max_tokens": 9})
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
    "explained": [(each.api.name, each.normalized) for each in reasons.explain("out_of_patience", "deepseek")],
    "documented": [line for line in docs.stop_reasons().splitlines() if "out_of_patience" in line],
    "known to the Collector": ["deepseek" in line for line in ottl.statements() if "out_of_patience" in line],
}))
"""


def test_a_new_provider_is_one_row_and_so_is_a_new_stop_reason(tmp_path: Path) -> None:
    """Clients find the provider by name, and its host is recognised; the reason is read from a reply and explained.

    Both are counted, and are in the documents and the Collector's rules.
    """
    package = shutil.copytree(REPOSITORY / "src" / "endturn", tmp_path / "endturn")
    for name, row in ROWS.items():
        with (package / "data" / name).open("a", encoding="utf-8") as table:
            table.write(row)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "ACME_API_KEY": "the-key-of-acme"}
    done = subprocess.run(
        [sys.executable, "-c", AGENT], env=environment, cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == {
        "asked": [
            ["https://api.acme.example/v1/chat/completions", "Bearer the-key-of-acme"],
            ["https://eu.acme.test/v1/chat/completions", None],
        ],
        # Its own word in either of its APIs; to nobody else it is known.
        "counted": [["acme", "max_tokens", 2], ["deepseek", "max_tokens", 2], ["openai", "unknown", 1]],
        "page": [
            "| `acme` | `openai_chat` | `compatible` | `https://api.acme.example/v1` | `acme.test` | `ACME_API_KEY` "
            "| bearer token |"
        ],
        "collector": ['set(span.attributes["gen_ai.provider.name"], "acme")'],
        "named": "acme",
        "said": "max_tokens",
        "explained": [["deepseek.chat", "max_tokens"]],
        "documented": ["| `out_of_patience` | `max_tokens` | yes | `prompt` |  | a test |"],
        # It is a word of that provider alone.
        "known to the Collector": [True],
    }


@pytest.mark.parametrize("name", PROVIDERS)
def test_every_row_is_consistent(name: str) -> None:
    """A provider is found at each of its hosts and by each of its aliases; its dialect is one that a format has."""
    known = PROVIDERS[name]
    assert {provider_at(f"eu.{host}", port=1) for host in known.hosts if host != "amazonaws.com"} <= {name}
    assert {canonical(alias) for alias in (name, *known.aliases)} == {name}
    dialects = {dialect_in(format_of(each), name) for each in ("openai_chat", known.format)}
    assert known.dialect in dialects, "data/dialects.tsv has no such dialect of the provider's format"


@pytest.mark.parametrize(
    ("host", "port", "provider"),
    [
        ("api.openai.com", None, "openai"),
        ("eu.api.openai.com", None, "openai"),
        ("me.openai.azure.us", None, "azure.ai.openai"),
        ("us-east5-aiplatform.googleapis.com", None, "gcp.vertex_ai"),
        ("bedrock-runtime.eu-west-1.amazonaws.com", None, "aws.bedrock"),
        ("bedrock-mantle.eu-west-1.api.aws", None, "aws.bedrock"),
        ("bucket.s3.amazonaws.com", None, ""),
        ("aws-external-anthropic.eu-west-1.api.aws", None, "anthropic"),
        ("us-south.ml.cloud.ibm.com", None, "ibm.watsonx.ai"),
        ("API.GROQ.COM.", None, "groq"),
        ("notapi.groq.com", None, ""),
        ("notapi.x.ai.evil.com", None, ""),
        ("127.0.0.1", 11434, "ollama"),
        ("localhost", 1234, "lmstudio"),
        ("localhost", 8000, ""),
    ],
)
def test_the_provider_at_an_address(host: str, port: int | None, provider: str) -> None:
    assert provider_at(host, port) == provider


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Google-GenAI", "gcp.gemini"),
        ("xai.chat", "x_ai"),
        ("gcp.gen_ai", "gcp.gen_ai"),
        ("mine.own", "mine.own"),
    ],
)
def test_the_canonical_name_of_a_provider(name: str, expected: str) -> None:
    assert canonical(name) == expected
