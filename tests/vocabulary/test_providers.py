"""A provider, and a stop reason, is defined by one row."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from endturn.formats import FORMATS, format_of
from endturn.formats.apis import openai_chat_request
from endturn.vocabulary import stop_reason_tables
from endturn.vocabulary.providers import (
    PROVIDERS,
    ProviderEndpoint,
    canonical,
    names_by_alias,
    names_by_host,
    names_by_path,
    provider_at,
    read_providers,
)
from endturn.vocabulary.tsv import package_data
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
    assert wrong_format_or_dialect(name, known) == ""


def wrong_format_or_dialect(name: str, endpoint: ProviderEndpoint) -> str:
    """Return a sentence on a provider's format or dialect that does not exist; "" if both do."""
    section = f"providers.toml: [{name}]"
    if endpoint.format not in FORMATS:
        return f"{section} format {endpoint.format!r} does not exist; the formats are: {', '.join(FORMATS)}"
    dialects = dict.fromkeys((*format_of("openai_chat").reasons, *format_of(endpoint.format).reasons))
    if endpoint.dialect in dialects:
        return ""
    return (
        f"{section} dialect {endpoint.dialect!r} does not exist: correct it, or add a row for it to dialects.tsv; "
        f"there are: {', '.join(filter(None, dialects))}"
    )


@pytest.mark.parametrize(
    ("endpoint", "message"),
    [
        (ProviderEndpoint(format="geminy"), "providers.toml: [acme] format 'geminy' does not exist; the formats are: "),
        (
            ProviderEndpoint(dialect="gorq"),
            "providers.toml: [acme] dialect 'gorq' does not exist: correct it, or add a row for it to dialects.tsv; "
            "there are: compatible, azure, ",
        ),
    ],
)
def test_a_wrong_format_or_dialect_is_reported_with_its_section(endpoint: ProviderEndpoint, message: str) -> None:
    assert wrong_format_or_dialect("acme", endpoint).startswith(message)


def test_every_dialect_with_the_old_limit_exists() -> None:
    """Under a misspelt name in `_OLD_LIMIT`, requests to that server have `max_completion_tokens`."""
    unknown = openai_chat_request._OLD_LIMIT - format_of("openai_chat").reasons.keys()
    assert not unknown, f"_OLD_LIMIT of openai_chat_request.py has names that dialects.tsv lacks: {sorted(unknown)}"


def unread_dialects(tables: stop_reason_tables.Tables, dialects: set[str]) -> set[tuple[str, str]]:
    """Return the dialects, with their formats, that have stop reasons of their own but no provider.

    A value that is not `shared` is read only in replies of a provider with that `dialect`.
    """
    return {
        (name, dialect)
        for name in FORMATS
        for dialect, rows in tables.rows.get(name, {}).items()
        if dialect not in ("", stop_reason_tables.COMPATIBLE, *dialects)
        and rows.keys() - tables.shared.get(name, {}).keys() - {""}
    }


def test_every_dialect_with_its_own_stop_reasons_has_a_provider(tmp_path: Path) -> None:
    """Otherwise nothing reads the values, and they count as unknown."""
    dialects = {endpoint.dialect for endpoint in PROVIDERS.values()}
    unread = unread_dialects(stop_reason_tables.read_tables(package_data()), dialects)
    assert not unread, f"name the dialects in providers.toml (`dialect = …`), or mark their rows as shared: {unread}"
    rows = {
        "dialects.tsv": "openai_chat\tquarry\topenai_chat\tquarry.chat\n",
        "stop_reasons.tsv": "openai_chat\tquarry\tout_of_stone\terror\tyes\tnone\t\ta test\n",
    }
    for name, row in rows.items():
        (tmp_path / name).write_text(package_data().joinpath(name).read_text("utf-8") + row, "utf-8")
    tables = stop_reason_tables.read_tables(tmp_path)
    assert unread_dialects(tables, dialects) == {("openai_chat", "quarry")}
    assert unread_dialects(tables, {*dialects, "quarry"}) == set()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            '[acme]\nbase_url = "api.acme.example/v1"\n',
            "[acme] base_url must begin with 'https://' or 'http://', not 'api.acme.example/v1'",
            id="no scheme",
        ),
        pytest.param(
            '[acme]\nhosts = "acme.test"\n',
            "[acme] hosts must be a list of texts, such as [\"…\"], not 'acme.test'",
            id="hosts as a text",
        ),
        pytest.param(
            '[acme]\nheaders = "x"\n',
            "[acme] headers must be a table, such as { name = \"…\" }, not 'x'",
            id="headers as a text",
        ),
        pytest.param(
            "[acme]\nbase_url = 8000\n", "[acme] base_url must be a text, not 8000", id="a number as an address"
        ),
        pytest.param(
            '[acme]\nurl = "https://acme.test"\n',
            "[acme] has the unknown keys ['url']; the keys are: base_url, key_variable, dialect, format, ",
            id="an unknown key",
        ),
        pytest.param(
            '[acme.cloud]\nbase_url = "https://acme.test"\n',
            "[acme] has the unknown keys ['cloud']; the keys are: base_url, ",
            id="a name with a dot that is not quoted",
        ),
        pytest.param(
            '[acme]\nauth = "basic"\n',
            "[acme] auth must be one of authorization, x-api-key, api-key, x-goog-api-key, sigv4, not 'basic'",
            id="an unknown authentication",
        ),
        pytest.param(
            'hosts = ["acme.test"]\n',
            "[hosts] must be a table, not ['acme.test']: move the key below its provider's name",
            id="a key outside a table",
        ),
        pytest.param(
            "[groq]\n[groq]\n",
            "Cannot declare ('groq',) twice (at line 2, column 6): correct the TOML there "
            "(each provider has one table)",
            id="a provider twice",
        ),
    ],
)
def test_rejects_a_wrong_table_by_file_and_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "providers.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(ValueError, match=re.escape(f"{file}: {message}")):
        read_providers(tmp_path)


@pytest.mark.parametrize(
    ("lookup", "first", "second", "message"),
    [
        (
            names_by_host,
            {"base_url": "https://acme.test/v1"},
            {"base_url": "https://acme.test/v2"},
            "[acme] and [quarry] both have 'acme.test' in their base_url or hosts: remove it from one of them",
        ),
        (
            names_by_host,
            {"base_url": "https://acme.test/v1"},
            {"hosts": ("acme.test",)},
            "[acme] and [quarry] both have 'acme.test' in their base_url or hosts: remove it from one of them",
        ),
        (
            names_by_alias,
            {"aliases": ("stone",)},
            {"aliases": ("stone",)},
            "[acme] and [quarry] both have 'stone' in their aliases: remove it from one of them",
        ),
        (
            names_by_path,
            {"paths": ("/stone/",)},
            {"paths": ("/stone/",)},
            "[acme] and [quarry] both have '/stone/' in their paths: remove it from one of them",
        ),
        (
            names_by_alias,
            {"aliases": ("quarry",)},
            {},
            "the alias 'quarry' of [acme] is the name of [quarry]: remove it",
        ),
    ],
)
def test_rejects_a_value_of_two_providers(
    lookup: Callable[[dict[str, ProviderEndpoint]], object],
    first: dict[str, Any],
    second: dict[str, Any],
    message: str,
) -> None:
    """Otherwise the last one would win."""
    with pytest.raises(ValueError, match=re.escape(f"providers.toml: {message}")):
        lookup({"acme": ProviderEndpoint(**first), "quarry": ProviderEndpoint(**second)})


def test_providers_may_share_the_port_of_local_servers() -> None:
    """Servers of every kind listen on port 8000; none of them is recognised by it."""
    local = ProviderEndpoint(base_url="http://localhost:8000/v1")
    assert names_by_host({"acme": local, "quarry": local}) == {}


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
