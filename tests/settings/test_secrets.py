"""Secrets within the values of variables: in no output, however malformed an address is."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from endturn.cli import main
from endturn.instrumentation.destinations import destinations, mistakes
from endturn.settings import problem, redact_address, redact_value
from tests.support.processes import REPOSITORY

BASE = "OTEL_EXPORTER_OTLP_ENDPOINT"
TRACES = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
SECRET = "s3cr3t"

MALFORMED = [
    "127.0.0.1:4318/?api_key=s3cr3t",
    "collector.example/v1/traces?token=s3cr3t",
    "://u:s3cr3t@h",
    "u:s3cr3t@h:4318",
    "//u:s3cr3t@h:4318",
    "http:/u:s3cr3t@h:4318",
    "http//u:s3cr3t@h:4318/x?s3cr3t",
    "http:\\\\u:s3cr3t@h",
    "ftp://u:s3cr3t@h/?key=s3cr3t",
    "http://[::1:4318/?key=s3cr3t",
    "http://u:s3cr3t@h:port/#s3cr3t",
    "http://u:12/s3cr3t@h:4318",
    "http://u:12?s3cr3t@h:4318?x",
    "http://u:pass#s3cr3t@h",
    "http://?key=s3cr3t",
    "'http://h:4318/?key=s3cr3t'",
    "h:4318 s3cr3t",
    "h:4318;key=s3cr3t",
    "h:4318/%3Fkey%3Ds3cr3t",
    "u:s3cr3t%40h",
    "h:4318/?next=http://u:s3cr3t@x",
]


def variables(**more: str) -> dict[str, str]:
    """The environment without proxies, and without variables of OpenTelemetry's and ours but these."""
    keep = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "ENDTURN_")) and not name.lower().endswith("_proxy")
    }
    return keep | more


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("127.0.0.1:4318/?api_key=s3cr3t", "127.0.0.1:4318/"),
        ("collector.example/v1/traces?token=s3cr3t", "collector.example/v1/traces"),
        ("://u:s3cr3t@h", "h"),
        ("http://u:12/s3cr3t@h:4318/v1/traces", "http://h:4318/v1/traces"),
        ("http://u:12?s3cr3t@h:4318", "http://…"),
        ("https://h:1/kkkkkkkkkkkkkkkkk/v1/logs", "https://h:1/…/v1/logs"),
        ("http://[::1]:4318/v1/traces", "http://[::1]:4318/v1/traces"),
        ("localhost:4317", "localhost:4317"),
        ("", ""),
    ],
)
def test_an_address_is_cut_before_its_secrets(text: str, shown: str) -> None:
    assert redact_address(text) == shown


WORD = st.text(alphabet="ahtps:/[].1-v", max_size=12)
ADDRESSES = st.one_of(
    # text before @, or after ?, #, ; and =, wherever these stand
    st.tuples(WORD, st.just(SECRET), st.sampled_from(["@", "%40", ":x@"]), WORD),
    st.tuples(
        WORD, st.sampled_from(["?", "#", "=", ";", "?k=", "&k=", " ", "%3F", "%3d"]), WORD, st.just(SECRET), WORD
    ),
    st.tuples(WORD, st.sampled_from("?#="), WORD, st.just(SECRET), WORD, st.just("@"), WORD),
    st.tuples(WORD, st.just(SECRET), st.sampled_from("?#="), WORD, st.just("@"), WORD, st.just("?"), WORD),
).map("".join)
SHAPES = ADDRESSES.filter(lambda text: not text.startswith(" "))  # a blank is stripped, and a host follows


@hypothesis_settings(max_examples=300)
@given(text=SHAPES, name=st.sampled_from([BASE, TRACES]), protocol=st.sampled_from(["", "grpc"]))
def test_no_sentence_about_an_address_has_a_secret(text: str, name: str, protocol: str) -> None:
    environment = {name: text, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol, "HTTP_PROXY": text}
    assert SECRET not in redact_address(text)
    assert SECRET not in "".join(mistakes(environment))
    for destination in destinations(environment):
        assert SECRET not in redact_address(destination.url)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *((BASE, text) for text in MALFORMED),
        *(  # `make test` tries every third for one signal
            pytest.param(TRACES, text, marks=[pytest.mark.slow] * (number % 3 > 0))
            for number, text in enumerate(MALFORMED)
        ),
    ],
)
def test_doctor_shows_no_secret(
    name: str, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As text and as JSON, which both name the problem of a malformed address."""
    wanted = variables(**{name: text}, **{f"OTEL_{one}_EXPORTER": "none" for one in ("METRICS", "LOGS")})
    for each in os.environ.keys() - wanted.keys():
        monkeypatch.delenv(each)
    for each, value in wanted.items():
        monkeypatch.setenv(each, value)
    for words in ([], ["--json"]):
        assert main(["doctor", "--timeout", "1", *words]) == 1
        printed = capsys.readouterr()
        assert SECRET not in printed.out + printed.err
        assert name in printed.out
    assert any(name in problem for problem in json.loads(printed.out)["problems"])


RECORDS = (
    "import endturn; endturn.configure(); from opentelemetry import trace, metrics; "
    "trace.get_tracer('t').start_span('s').end(); metrics.get_meter('m').create_counter('c').add(1); print('runs')"
)


LOGGED = MALFORMED[:3] + MALFORMED[8:12] + MALFORMED[15:17]
RUN = ["-m", "endturn", "run"]


@pytest.mark.parametrize(
    ("start", "text"),
    [
        *(pytest.param([], text, id=f"configure()-{text}") for text in LOGGED),
        *(pytest.param(RUN, text, id=f"endturn run-{text}") for text in LOGGED[::4]),
        *(  # `make test-all` tries the others
            pytest.param(RUN, text, id=f"endturn run-{text}", marks=pytest.mark.slow)
            for text in LOGGED
            if text not in LOGGED[::4]
        ),
    ],
)
def test_a_program_s_log_has_no_secret(start: list[str], text: str) -> None:
    """Neither of ours nor of the SDK's exporters, which are not made for an address that nothing can be sent to."""
    done = subprocess.run(
        [sys.executable, *start, "-c", RECORDS], env=variables(**{BASE: text}), capture_output=True, text=True,
        cwd=REPOSITORY, timeout=90, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "runs\n"), done.stderr
    assert SECRET not in done.stderr
    assert BASE in done.stderr
    assert "are exported: OTEL_EXPORTER_OTLP_ENDPOINT" in done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("service.namespace=support,api_key=s3cr3t", "service.namespace=support,api_key=(not shown)"),
        ("db.Password=s3cr3t,more,team=a", "db.Password=(not shown),(not shown),team=a"),
        ("x-auth-token:s3cr3t", "(not shown)"),
        ("team=a,b", "team=a,b"),
    ],
)
def test_attributes_that_look_like_credentials_are_not_shown(text: str, shown: str) -> None:
    assert redact_value("OTEL_RESOURCE_ATTRIBUTES", text) == shown
    assert SECRET not in problem("OTEL_RESOURCE_ATTRIBUTES", f"{text},x")
