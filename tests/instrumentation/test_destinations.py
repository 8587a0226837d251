"""Where signals go by the variables, and mistakes in their addresses."""

from __future__ import annotations

import importlib
import os

import pytest
import requests.utils
from hypothesis import given, strategies as st

from endturn.instrumentation.destinations import Signal, destinations, mistakes, proxy_variable, unusable_address
from endturn.settings import redact_address
from endturn.settings.environment import problems

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
GRPC = {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}

URLS: list[tuple[dict[str, str], str]] = [
    ({}, "http://localhost:4318/v1/traces"),
    ({BASE: "http://h:1"}, "http://h:1/v1/traces"),
    ({BASE: "http://h:1/"}, "http://h:1/v1/traces"),
    ({BASE: "http://h:1/otlp"}, "http://h:1/otlp/v1/traces"),
    ({BASE: ""}, "http://localhost:4318/v1/traces"),
    ({BASE: "http://h:1", TRACES: "http://t:2/here"}, "http://t:2/here"),
    ({BASE: "http://h:1", TRACES: ""}, "http://h:1/v1/traces"),
]


@pytest.mark.parametrize(("variables", "url"), URLS)
def test_an_address_is_the_sdks(variables: dict[str, str], url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Written by hand, and the same as the real exporter has."""
    (traces,) = [one for one in destinations(variables) if one.signal == "traces"]
    assert traces.url == url
    for name in list(os.environ):
        if name.startswith("OTEL_"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    exporter = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter").OTLPSpanExporter()
    assert exporter._endpoint == url


def test_each_signal_has_its_own_exporters_protocol_and_address() -> None:
    variables = {
        "OTEL_TRACES_EXPORTER": "console, otlp",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",
    }
    assert [(one.signal, one.exporter, one.protocol, one.url) for one in destinations(variables)] == [
        ("traces", "console", "", ""),
        ("traces", "otlp", "http/protobuf", "http://localhost:4318/v1/traces"),
        ("metrics", "otlp", "grpc", "http://localhost:4317"),
        ("logs", "none", "", ""),
    ]


MISTAKES: list[tuple[dict[str, str], str | None]] = [
    ({BASE: "http://127.0.0.1:4318"}, None),
    ({BASE: "https://otlp.example.com/otlp"}, None),
    ({BASE: "http://[::1]:4318"}, None),
    ({TRACES: "http://h:4318/v1/traces"}, None),
    ({TRACES: "https://h/api/public/otel/v1/traces"}, None),
    ({BASE: "localhost:4318"}, f"{BASE} has no scheme (http:// or https://): set it to http://localhost:4318"),
    ({BASE: "collector"}, f"{BASE} has no scheme (http:// or https://): set it to http://collector"),
    ({BASE: "//h:4318"}, "set it to http://h:4318"),
    ({BASE: "http:/h:4318"}, "set it to http://h:4318"),
    ({BASE: "user:secret@h:4318"}, f"{BASE} has no scheme: set it to http://…"),
    ({BASE: "grpc://h:4317"}, f"{BASE}=grpc://h:4317: use http:// or https://, not grpc://"),
    ({BASE: "http://"}, "names no host: set it to http://localhost:4318"),
    ({BASE: "http://h:port"}, "the port is not a number from 1 to 65535"),
    ({BASE: "http://h:70000"}, "the port is not a number from 1 to 65535"),
    ({BASE: '"http://h:4318"'}, f"{BASE} has quotation marks or spaces around the address: remove them"),
    ({BASE: " http://h:4318"}, f"{BASE} has quotation marks or spaces around the address: remove them"),
    ({BASE: "http://h:4318?key=secret"}, f"{BASE}=http://h:4318 has a query or a fragment"),
    ({BASE: "http://h:4318/v1/traces"}, f"{BASE}=http://h:4318/v1/traces ends in /v1/traces, and the path of each "
     "signal is appended to it: set it to http://h:4318"),
    ({BASE: "http://h:4318/v1/logs/"}, "set it to http://h:4318"),
    ({BASE: "https://h/otlp/v1/metrics"}, "set it to https://h/otlp"),
    ({BASE: "http://h:4318/v1"}, "ends in /v1, and"),
    ({BASE: "http://u:secret@h:4318/v1/traces"}, f"{BASE}=http://h:4318/v1/traces ends in"),
    ({TRACES: "http://h:4318"}, "is used as it is, without the signal's path: set it to http://h:4318/v1/traces"),
    ({TRACES: "http://h:4318/"}, "set it to http://h:4318/v1/traces"),
    ({TRACES: "http://h:4318/v1/logs"}, "is the path of another signal: set it to http://h:4318/v1/traces"),
    ({TRACES: "h:4318"}, f"{TRACES} has no scheme (http:// or https://): set it to http://h:4318/v1/traces"),
    ({BASE: "http://h:4317"}, f"{BASE} has port 4317, which is usually OTLP over gRPC, while the protocol is "
     "http/protobuf: use port 4318, or OTEL_EXPORTER_OTLP_PROTOCOL=grpc"),
    ({BASE: "http://h:4318", **GRPC}, f"{BASE} has port 4318, which is usually OTLP over HTTP, while the protocol is "
     "grpc: use port 4317, or OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"),
    ({BASE: "http://h:4317", **GRPC}, None),
    ({BASE: "h:4317", **GRPC}, None),
    ({BASE: "h:4318", **GRPC}, "use port 4317"),
    ({BASE: "h:port", **GRPC}, "the port is not a number from 1 to 65535"),
    ({BASE: "http://[::1", **GRPC}, "the host has no ']': an IPv6 address is written as http://[::1]:4318"),
    ({BASE: "http://[::1:4318"}, f"{BASE}=http://[::1:4318: the host has no ']'"),
    ({BASE: "http://::1]:4318"}, "the host has no '['"),
    ({BASE: "http://[h]:4318"}, "the host in [ ] is no IPv6 address: write it as http://[::1]:4318"),
    ({BASE: "http://[::1]:x"}, "the port is not a number from 1 to 65535"),
    ({BASE: "127.0.0.1:4318/?api_key=secret"}, "has no scheme (http:// or https://): set it to http://127.0.0.1:4318/?…"),
    ({TRACES: "h.example/v1/traces?token=secret"}, "set it to http://h.example/v1/traces?…"),
    ({TRACES: "h:4318?token=secret"}, "set it to http://h:4318/v1/traces?…"),
    ({BASE: "://u:secret@h"}, f"{BASE} has no scheme: set it to http://…"),
    ({BASE: "h:4318/?next=http://x&key=secret"}, "has no scheme (http:// or https://): set it to http://h:4318/?…"),
    ({BASE: "http://u:sec/ret-secret@h"}, f"{BASE}=http://h: the user or password contains a /: write it as %2F"),
    ({BASE: "http://u:1?secret@h"}, f"{BASE}=http://… has a query or a fragment"),
    ({TRACES: "https://h:443/@team/v1/traces"}, None),
    ({TRACES: "https://h:443/tenants/a@b.example/v1/traces?user=a@b.example"}, None),
    ({BASE: "localhost:4318", "OTEL_TRACES_EXPORTER": "none"}, None),
    ({"HTTP_PROXY": "http://proxy:3128"}, "HTTP_PROXY is set, so exports to localhost:4318 go to that "
     "proxy: add localhost to NO_PROXY"),
    ({"all_proxy": "http://proxy:3128"}, "all_proxy is set"),
    ({"HTTPS_PROXY": "http://proxy:3128"}, None),
    ({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": "example.com, localhost"}, None),
    ({"HTTP_PROXY": "http://proxy:3128", BASE: "http://otlp.example.com"}, None),
]  # fmt: skip


@pytest.mark.parametrize(("variables", "sentence"), MISTAKES, ids=[str(row[0]) for row in MISTAKES])
def test_a_mistake_is_answered_with_what_to_set(variables: dict[str, str], sentence: str | None) -> None:
    """Once for an address of all signals; nothing secret is in it."""
    found = mistakes(variables, ["traces"])
    assert len(found) == (sentence is not None)
    assert sentence is None or sentence in found[0]
    assert "secret" not in "".join(found)


def test_a_mistake_of_all_signals_is_named_once() -> None:
    assert len(mistakes({BASE: "localhost:4318"})) == 1
    assert len(mistakes({BASE: "http://h:4318/v1/traces"})) == 1
    assert len(mistakes({"HTTP_PROXY": "http://proxy:3128"})) == 1


HOSTS = ["localhost", "127.0.0.1", "collector.example.com", "example.com", "10.1.2.3"]
EXCEPTIONS = ["", "*", "localhost", "127.0.0.1", "127.0.0.0/8", ".example.com", "example.com", "a, localhost ,b"]


@pytest.mark.parametrize("excepted", EXCEPTIONS)
@pytest.mark.parametrize("host", HOSTS)
def test_a_proxy_is_used_as_the_exporters_library_uses_it(
    host: str, excepted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compared with `requests` itself."""
    variables = {"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": excepted}
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    theirs = requests.utils.get_environ_proxies(f"http://{host}:4318/v1/traces").get("http")
    assert (proxy_variable("http", host, variables) is not None) == (theirs is not None)


@pytest.mark.parametrize(
    ("variables", "is_usable"),
    [
        ({}, True),
        ({BASE: "http://h:4317/v1/traces"}, True),  # a mistake, and yet something may answer there
        ({BASE: " http://h:4318"}, True),  # the exporter's library strips it
        ({BASE: "h:4318", **GRPC}, True),
        ({BASE: "h:4318", TRACES: "http://h"}, True),
        ({BASE: "h:4318"}, False),
        ({BASE: '"http://h:4318"'}, False),
        ({BASE: "grpc://h:4318"}, False),
        ({BASE: "http://"}, False),
        ({BASE: "http://h:port"}, False),
        ({BASE: "http://u:1/secret@h"}, False),
    ],
)
def test_an_address_that_cannot_be_sent_to_has_no_exporter(variables: dict[str, str], is_usable: bool) -> None:
    assert (unusable_address("traces", variables) is None) is is_usable


@pytest.mark.parametrize("signal", ["traces", "metrics", "logs"])
def test_an_address_without_credentials_is_shown(signal: Signal) -> None:
    token = "k" * 17
    shown = redact_address(f"https://u:secret@h:1/{token}/v1/{signal}?api_key=secret#secret")
    assert shown == f"https://h:1/…/v1/{signal}"


ADDRESS_TEXT = st.text() | st.text(alphabet="htps:/[]@.?#%1v traces\"'-_", max_size=30)


@given(
    address=ADDRESS_TEXT,
    protocol=st.sampled_from(["", "grpc", "http/protobuf", "x"]),
    name=st.sampled_from([BASE, TRACES]),
)
def test_no_text_of_a_variable_raises(address: str, protocol: str, name: str) -> None:
    """A host must not end because of what a variable holds."""
    variables = {name: address, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "HTTP_PROXY": address, "NO_PROXY": address}
    for each in variables.values():
        problems(dict.fromkeys((*variables, "OTEL_EXPORTER_OTLP_HEADERS", "ENDTURN_REDACT"), each))
    assert len(mistakes(variables)) <= 3
    unusable_address("traces", variables)
    destinations(variables)
