"""Every variable that the installed SDK reads, with nonsense in it: nothing is raised into the host."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module

import pytest

from endturn.settings import problems
from endturn.settings.environment import unusable_hidden
from endturn.settings.variables import variable_named
from tests.support.processes import REPOSITORY

MODULES = (
    "opentelemetry.environment_variables",
    "opentelemetry.sdk.environment_variables",
    "opentelemetry.sdk.environment_variables._internal",
)
READ_BY_SDK = sorted(
    {
        value
        for module in MODULES
        for value in vars(import_module(module)).values()
        if isinstance(value, str) and value.startswith("OTEL_")
    }
)
ALONE = [
    # beside others these hide what the others do
    "OTEL_CONFIG_FILE", "OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_SDK_DISABLED",
    "OTEL_LOGS_EXPORTER", "OTEL_METRICS_EXPORTER", "OTEL_TRACES_EXPORTER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
]  # fmt: skip
# of a tracer, a meter, a logger: R_PROVIDER
ALL_OF_A_KIND = ("_ENDPOINT", "_PROTOCOL", "_CREDENTIAL_PROVIDER", "_HEADERS", "R_PROVIDER")
TOGETHER = [name for name in READ_BY_SDK if name not in ALONE and not name.endswith(ALL_OF_A_KIND)]
GROUPS = {
    "together": TOGETHER,
    **{end: [name for name in READ_BY_SDK if name.endswith(end) and name not in ALONE] for end in ALL_OF_A_KIND},
    **{name: [name] for name in ALONE},
}
NO_MEANING_HERE = {
    # of other exporters, of loaders, or of the SDK's own configurator, which endturn does not use
    *(name for name in READ_BY_SDK if name.startswith(("OTEL_EXPORTER_PROMETHEUS_", "OTEL_EXPORTER_ZIPKIN_"))),
    *(name for name in READ_BY_SDK if "_GRPC_" in name or name.endswith("_CONFIGURATOR")),
    "OTEL_LOG_LEVEL", "OTEL_PYTHON_ID_GENERATOR", "OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED",
}  # fmt: skip
ANY_TEXT = {"OTEL_SERVICE_NAME", "OTEL_CONFIG_FILE"}
OTHER_CHECK = {name for name in READ_BY_SDK if name.endswith(("_ENDPOINT", "S_EXPORTER"))}

RECORDS = """
import endturn
telemetry = endturn.configure()
endturn.instrument()
from opentelemetry import trace, metrics
trace.get_tracer("t").start_span("s").end()
metrics.get_meter("m").create_counter("c").add(1)
telemetry.shutdown()
print("runs")
"""


def test_the_sdk_s_variables_are_known() -> None:
    assert len(READ_BY_SDK) > 80
    assert {name for name in READ_BY_SDK if variable_named(name) is None} == NO_MEANING_HERE


RUN = ["-m", "endturn", "run"]
NONSENSE = [("together", "-3"), ("together", ""), *((group, "x") for group in GROUPS)]


@pytest.mark.parametrize(
    ("start", "group", "nonsense"),
    [
        *(pytest.param([], *row, id=f"configure()-{'-'.join(row)}") for row in NONSENSE),
        *(
            # those that are alone, but one, in `make test-all` alone
            pytest.param(RUN, *row, id=f"endturn run-{'-'.join(row)}", marks=[pytest.mark.slow] * (row[0] in ALONE[1:]))
            for row in NONSENSE
        ),
    ],
)
def test_nonsense_is_never_raised_into_the_host(start: list[str], group: str, nonsense: str) -> None:
    keep = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OTEL_", "ENDTURN_")) and not name.lower().endswith("_proxy")
    }
    variables = dict.fromkeys(GROUPS[group], nonsense)
    if group == "together":
        variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    done = subprocess.run(
        [sys.executable, *start, "-c", RECORDS], env=keep | variables, capture_output=True, text=True,
        cwd=REPOSITORY, timeout=90, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "runs\n"), done.stderr


@pytest.mark.parametrize("name", sorted({*READ_BY_SDK} - NO_MEANING_HERE - ANY_TEXT - OTHER_CHECK))
def test_nonsense_is_named(name: str) -> None:
    (sentence,) = problems({name: "-3 x"})
    assert sentence.startswith(name)
    assert "cannot be used" in sentence


def test_an_argument_of_a_registered_sampler_is_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    sampler = {"OTEL_TRACES_SAMPLER_ARG": "7"}
    assert len(problems(sampler)) == 1
    assert len(problems({**sampler, "OTEL_TRACES_SAMPLER": "traceidratio"})) == 1
    assert len(problems({**sampler, "OTEL_TRACES_SAMPLER": "of_no_package"})) == 2
    monkeypatch.setattr("importlib.metadata.entry_points", lambda **_: ["of_a_package"])
    assert problems({**sampler, "OTEL_TRACES_SAMPLER": "of_a_package"}) == []


def test_what_is_hidden_from_the_sdk_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SPAN_LINK_COUNT_LIMIT", "x")
    monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", " 7 ")
    monkeypatch.setenv("OTEL_ATTRIBUTE_COUNT_LIMIT", "")  # no limit
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "")
    before = dict(os.environ)
    with unusable_hidden():
        with unusable_hidden():
            inner = dict(os.environ)
        assert dict(os.environ) == inner
    assert dict(os.environ) == before
    assert before.items() - inner.items() == {("OTEL_SPAN_LINK_COUNT_LIMIT", "x"), ("OTEL_BSP_SCHEDULE_DELAY", "")}
