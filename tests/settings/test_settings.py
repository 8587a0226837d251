"""Every setting with a value that cannot be used: a keyword raises, a variable is reported once; none is silent."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import pytest

import endturn
from endturn.errors import UsageError
from endturn.settings import environment
from endturn.settings.environment import problems, unknown_names, value_of
from endturn.settings.keywords import KEYWORDS, Keyword
from endturn.settings.variables import EVENTS, METRICS_AGENT, VARIABLES, variable_named
from endturn.telemetry.otel_providers import OptionKwargs, Options, OTelProviders
from tests.support.processes import REPOSITORY


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in list(os.environ):
        if name.startswith(("OTEL_", "ENDTURN_")):
            monkeypatch.delenv(name)
    monkeypatch.setattr(environment, "_warned", set())
    yield
    endturn.uninstrument()


# --- Keywords -----------------------------------------------------------------------------------------------------

WRONG: dict[str, Any] = {
    # by hand: of each keyword a value of a wrong type, or out of range
    "service_name": 5, "resource": "agent", "span_exporter": "console", "metric_exporter": dict, "log_exporter": 1,
    "instrument": "no", "tracer_provider": "none", "meter_provider": 1, "logger_provider": object,
    "events": ["logs"], "agent": 5, "content": True, "content_max_chars": "8192", "redact": "module:f",
    "prices": {"gpt-5": 1.25}, "tools_idle_s": "300", "counted": "yes", "gen_ai_metrics": 1, "semconv": 3,
    "conversation_id": 7, "provider": 5, "format": 5, "model": 5, "dialect": 5, "api_key": 5, "base_url": 5,
    "http": "transport", "timeout": "60", "headers": "x-team: support",
}  # fmt: skip
FUNCTIONS = {
    name: getattr(endturn, name)
    for name in (
        *("configure", "instrument", "AdoptingSpanProcessor", "observe_turn", "observe_provider_call"),
        *("Client", "AsyncClient"),
    )
}
PAIRS = [(function, keyword) for keyword in KEYWORDS for function in keyword.functions]


@pytest.mark.parametrize(("function", "keyword"), PAIRS, ids=[f"{f} {k.name}" for f, k in PAIRS])
def test_a_keyword_of_a_wrong_type_raises(function: str, keyword: Keyword) -> None:
    """The message names the keyword and says what to give; a secret is not in it."""
    wrong = WRONG[keyword.name]
    with pytest.raises(UsageError) as raised:
        FUNCTIONS[function](**{keyword.name: wrong})
    message = str(raised.value)
    assert keyword.name in message
    assert re.search(r"give|use|must be", message), message
    assert not keyword.is_secret or str(wrong) not in message


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_keyword_is_in_the_table(function: str) -> None:
    """Those of the signature, which names each: neither more nor fewer."""
    parameters = inspect.signature(FUNCTIONS[function]).parameters
    named = {name for name in parameters if name != "function"}
    assert named == {keyword.name for keyword in KEYWORDS if function in keyword.functions}
    assert all(one.kind is not one.VAR_KEYWORD for one in parameters.values())


@pytest.mark.parametrize(
    ("function", "keyword", "message"),
    [
        ("configure", "servicename", "configure() has no keyword 'servicename'; did you mean 'service_name'?"),
        ("instrument", "openai", "instrument() has no keyword 'openai'; there are: agent, content, "),
        ("instrument", "redakt", "did you mean 'redact'?"),
        ("AdoptingSpanProcessor", "evnts", "AdoptingSpanProcessor() has no keyword 'evnts'; did you mean 'events'?"),
        ("observe_turn", "agnet", "observe_turn() has no keyword 'agnet'; did you mean 'agent'?"),
        ("observe_provider_call", "modle", "did you mean 'model'?"),
        ("Client", "api_kye", "Client() has no keyword 'api_kye'; did you mean 'api_key'?"),
        ("AsyncClient", "api_kye", "AsyncClient() has no keyword 'api_kye'"),
    ],
)
def test_an_unknown_keyword_is_answered_with_the_nearest(function: str, keyword: str, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        FUNCTIONS[function](**{keyword: "x"})


@pytest.mark.parametrize(
    ("function", "keyword", "value", "message"),
    [
        ("configure", "prices", {1: (1, 2)}, "prices={1: (1, 2)}: give a mapping of models to USD"),
        ("Client", "headers", {"a\n": "b"}, "give a mapping of names to texts without line ends"),
        ("Client", "headers", {"a": "b\r\nc: d"}, "give a mapping of names to texts without line ends"),
        ("AsyncClient", "headers", {"a b": "c"}, "give a mapping of names to texts without line ends"),
        ("Client", "base_url", "", "base_url='': give text, such as 'https://host/v1'"),
        ("Client", "format", "", "format='': give text, such as 'openai_chat'"),
        ("observe_provider_call", "dialect", "nope", "no format has a dialect 'nope'; there are: "),
        ("observe_provider_call", "dialect", "gorq", "did you mean 'groq'?"),
        ("configure", "events", "Log", "events='Log': use one of logs, spans, both"),
    ],
)
def test_a_value_that_could_never_be_used_is_refused(function: str, keyword: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        FUNCTIONS[function](**{keyword: value})


def test_a_dialect_is_checked_by_its_format() -> None:
    with pytest.raises(UsageError, match="openai_chat has no dialect 'nope'; it has: "):
        endturn.observe_provider_call(format="openai_chat", dialect="nope")


@pytest.mark.parametrize("word", ["Logs", " SPANS ", "both"])
def test_a_destination_of_events_is_read_in_any_case(word: str) -> None:
    """As its variable is."""
    endturn.instrument(events=word)
    made = OTelProviders((None, None, None), Options(events=word))
    assert made.mirrors_events is (word != "Logs")


def test_too_many_arguments_name_the_public_class() -> None:
    message = re.escape("Client() takes 1 positional argument, not 2: give the others by keyword")
    with pytest.raises(TypeError, match=f"^{message}$"):
        endturn.Client("openai", "k")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"configure\(\) takes no positional argument, not 1"):
        endturn.configure("agent")  # type: ignore[call-arg]


@pytest.mark.parametrize("name", ["observe_turn", "observe_provider_call"])
def test_a_decorator_in_a_with_statement_says_what_it_is(name: str) -> None:
    message = re.escape(f"{name}() is a decorator, not a context manager: put the block into a function")
    decorator: Any = getattr(endturn, name)()
    with pytest.raises(UsageError, match=message), decorator:
        pass

    async def run() -> None:
        async with decorator:
            pass

    with pytest.raises(UsageError, match=message):
        asyncio.run(run())


def test_none_is_the_default_of_each_but_instrument() -> None:
    endturn.instrument(events=None, agent=None, redact=None, tracer_provider=None)
    with pytest.raises(UsageError, match="instrument=None: give True or False"):
        endturn.configure(instrument=None)  # type: ignore[arg-type]


def test_the_options_are_declared_once_more_for_type_checkers() -> None:
    assert OptionKwargs.__annotations__.keys() == {field.name for field in fields(Options)}


def test_a_request_of_text_says_what_to_give() -> None:
    with pytest.raises(ValueError, match="messages must be a list of messages, such as"):
        endturn.Request(model="m", messages="hello")


# --- Variables ----------------------------------------------------------------------------------------------------

UNUSABLE = {
    # by hand: of each variable a text that cannot be used, and what to do about it
    "OTEL_RESOURCE_ATTRIBUTES": ("support", "use key=value"),
    "OTEL_TRACES_EXPORTER": ("jaegr", "no exporter is registered as 'jaegr'"),
    "OTEL_METRICS_EXPORTER": ("statsd", "no exporter is registered as 'statsd'"),
    "OTEL_LOGS_EXPORTER": ("syslog", "no exporter is registered as 'syslog'"),
    "OTEL_EXPORTER_OTLP_ENDPOINT": ("localhost:4318", "set it to http://localhost:4318"),
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": ("localhost:4318", "set it to http://localhost:4318/v1/traces"),
    "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": ("http://localhost:4318", "set it to http://localhost:4318/v1/metrics"),
    "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": ("http://h/v1/traces", "set it to http://h/v1/logs"),
    "OTEL_EXPORTER_OTLP_HEADERS": ("Authorization: Bearer secret", "entry 1 has a colon in place of the equals sign"),
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("http/json", "use http/protobuf (port 4318) or grpc (port 4317)"),
    "OTEL_EXPORTER_OTLP_TIMEOUT": ("10s", "use a number of seconds above 0"),
    "OTEL_EXPORTER_OTLP_COMPRESSION": ("zstd", "use one of none, gzip, deflate"),
    "OTEL_EXPORTER_OTLP_CERTIFICATE": ("/nowhere.pem", "use the path of a file that exists"),
    "OTEL_METRIC_EXPORT_INTERVAL": ("15s", "use a number of milliseconds above 0"),
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": ("detla", "did you mean 'delta'?"),
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER": ("gcp", "registers as credential provider"),
    "OTEL_TRACES_SAMPLER": ("always", "did you mean 'always_on'?"),
    "OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED": ("1", "use true or false"),
    "OTEL_TRACES_SAMPLER_ARG": ("7", "use a number of traces from 0 to 1, such as 0.1"),
    "OTEL_ATTRIBUTE_COUNT_LIMIT": ("x", "use a whole number of attributes, such as 128; it is treated as unset"),
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": ("-3", "use a whole number of characters, such as 4096"),
    "OTEL_SPAN_EVENT_COUNT_LIMIT": ("many", "use a whole number of events or links"),
    "OTEL_METRICS_EXEMPLAR_FILTER": ("TRACE_BASED", "use one of trace_based, always_on, always_off"),
    "OTEL_BSP_EXPORT_TIMEOUT": ("x", "use a whole number of milliseconds"),
    "OTEL_METRIC_EXPORT_TIMEOUT": ("x", "use a number of milliseconds above 0"),
    "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": ("/nowhere.pem", "use the path of a file that exists"),
    "OTEL_EXPORTER_OTLP_CLIENT_KEY": ("/nowhere.key", "use the path of a file that exists"),
    "OTEL_EXPORTER_OTLP_INSECURE": ("maybe", "use true or false"),
    "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": ("base2", "use one of explicit_bucket_histogram, "),
    "OTEL_EXPERIMENTAL_RESOURCE_DETECTORS": ("x", "use names that installed packages register as resource detector"),
    "OTEL_PROPAGATORS": ("x", "use names that installed packages register as propagator"),
    "OTEL_PYTHON_CONTEXT": ("x", "use names that installed packages register as context"),
    "OTEL_PYTHON_TRACER_PROVIDER": ("x", "register as tracer provider"),
    "OTEL_PYTHON_METER_PROVIDER": ("x", "register as meter provider"),
    "OTEL_PYTHON_LOGGER_PROVIDER": ("x", "register as logger provider"),
    "OTEL_BSP_MAX_QUEUE_SIZE": ("-1", "use a whole number of spans, such as 8192; it is 8192"),
    "OTEL_BLRP_MAX_QUEUE_SIZE": ("0", "use a whole number of log records, such as 16384; it is 16384"),
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": ("many", "it is 512"),
    "OTEL_BLRP_MAX_EXPORT_BATCH_SIZE": ("1e3", "it is 512"),
    "OTEL_BSP_SCHEDULE_DELAY": ("5s", "use a whole number of milliseconds"),
    "OTEL_BLRP_SCHEDULE_DELAY": ("5s", "use a whole number of milliseconds"),
    "OTEL_SDK_DISABLED": ("yes", "use true or false; it does not disable anything"),
    "ENDTURN_EVENTS": ("log", "use one of logs, spans, both (did you mean 'logs'?); events go to logs"),
    "ENDTURN_METRICS_AGENT": ("maybe", "use true or false; turn metrics have no agent's name"),
    "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": ("true", "no content is recorded"),
    "ENDTURN_CONTENT_MAX_CHARS": ("8k", "8,192 are recorded"),
    "ENDTURN_REDACT": ("my_redaction", "use module:function"),
    "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT": ("perhaps", "use true or false"),
    "ENDTURN_TOOLS_IDLE_S": ("inf", "use a number of seconds above 0, such as 300"),
    "OTEL_SEMCONV_STABILITY_OPT_IN": ("gen_ai_latest", "did you mean 'gen_ai_latest_experimental'?"),
    "ENDTURN_EVENT": ("logs", "ENDTURN_EVENT is not a variable of endturn; did you mean 'ENDTURN_EVENTS'?"),
}
ANY_TEXT = {"OTEL_SERVICE_NAME", "OTEL_PYTHON_DISABLED_INSTRUMENTATIONS", "ENDTURN_UI_TOKEN"}
"""Every text of these has its meaning."""
CHECKED_ELSEWHERE = {
    "OTEL_CONFIG_FILE",  # tests/telemetry/program_cases.py: a configuration file that is not there
    "ENDTURN_CONFIG_FILE",  # tests/continuation/test_policy.py
}
CONFIGURE = "import endturn; endturn.configure(); endturn.configure(); endturn.instrument(); print('runs')"


def test_each_variable_has_a_row_here() -> None:
    """Of a variable for all signals, those of a signal are read alike."""
    general = {variable.name for variable in VARIABLES}
    signals = {f"OTEL_{name}_EXPORTER" for name in ("METRICS", "LOGS")}
    signals |= {f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT" for name in ("METRICS", "LOGS")}
    assert UNUSABLE.keys() - {"ENDTURN_EVENT"} == (general | signals) - ANY_TEXT - CHECKED_ELSEWHERE


@pytest.mark.parametrize("starts_by", ["configure()", "endturn run"])
def test_variables_that_cannot_be_used_are_reported_once_and_break_nothing(starts_by: str) -> None:
    """All at once, in a process of its own: each once on the standard error, and the program runs."""
    environ = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    excluded = {  # beside others they have no effect
        "OTEL_EXPORTER_OTLP_PROTOCOL", *(f"OTEL_{signal}_EXPORTER" for signal in ("TRACES", "METRICS", "LOGS")),
        "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "OTEL_EXPORTER_OTLP_ENDPOINT",
        "OTEL_PYTHON_TRACER_PROVIDER", "OTEL_PYTHON_METER_PROVIDER", "OTEL_PYTHON_LOGGER_PROVIDER",
        "OTEL_PYTHON_CONTEXT", "OTEL_PROPAGATORS",  # the API raises for these, or logs, before anything of ours runs
    }  # fmt: skip
    for names in (UNUSABLE.keys() - excluded, {"OTEL_EXPORTER_OTLP_PROTOCOL"}, {"OTEL_EXPORTER_OTLP_ENDPOINT"},
                  {f"OTEL_{signal}_EXPORTER" for signal in ("TRACES", "METRICS", "LOGS")}):  # fmt: skip
        variables = {name: UNUSABLE[name][0] for name in names}
        start = [sys.executable] if starts_by == "configure()" else [sys.executable, "-m", "endturn", "run"]
        done = subprocess.run(
            [*start, "-c", CONFIGURE], env=environ | variables, capture_output=True, text=True, cwd=REPOSITORY,
            timeout=90, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout) == (0, "runs\n"), done.stderr
        lines = [line for line in done.stderr.splitlines() if line.startswith("endturn: ")]
        for name in names:
            found = [line for line in lines if re.search(rf"\b{name}\b", line) and UNUSABLE[name][1] in line]
            assert len(found) == 1, (name, done.stderr)
        assert "secret" not in "".join(lines)
        assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(UNUSABLE.keys() - {"ENDTURN_EVENT"}))
def test_the_table_reports_a_text_that_cannot_be_used(name: str) -> None:
    """Or the exporters and addresses, whose checks need more than one variable."""
    text, remedy = UNUSABLE[name]
    row = variable_named(name)
    assert row is not None
    sentences = problems({name: text})
    if row.kind.label in ("address", "names, separated by commas"):
        assert sentences == []
        return
    (sentence,) = sentences
    assert sentence.startswith(name)
    assert remedy in sentence
    assert (text in sentence) is not row.is_secret


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("ENDTURN_METRIC_AGENT", "did you mean 'ENDTURN_METRICS_AGENT'?"),
        ("ENDTURN_REDACTION", "did you mean 'ENDTURN_REDACT'?"),
        ("ENDTURN_FOO_BAR", "there are: ENDTURN_CONFIG_FILE, "),
        ("ENDTURN_ZZZZZ", "there are: ENDTURN_CONFIG_FILE, ENDTURN_CONTENT_MAX_CHARS, "),
    ],
)
def test_an_unknown_name_is_reported(name: str, hint: str) -> None:
    (sentence,) = unknown_names({name: "x", "PATH": "/bin", "OTEL_ANYTHING": "x"})
    assert sentence.startswith(f"{name} is not a variable of endturn; {hint}")


KUBERNETES = """ENDTURN_UI_SERVICE_HOST ENDTURN_UI_SERVICE_PORT ENDTURN_UI_SERVICE_PORT_HTTP ENDTURN_UI_PORT
ENDTURN_UI_PORT_4318_TCP ENDTURN_UI_PORT_4318_TCP_ADDR ENDTURN_UI_PORT_4318_TCP_PORT ENDTURN_UI_PORT_4318_TCP_PROTO"""


def test_what_other_parts_read_is_known() -> None:
    """The Collector's variables, the policy's, those between our processes, and Kubernetes' of a Service."""
    files = [
        *(REPOSITORY / "collector").rglob("*.yaml"),
        *(REPOSITORY / "src/endturn/generate/otelcol").rglob("*.*"),
        *REPOSITORY.glob("docker-compose*.yml"),
        REPOSITORY / "docs/collector.md",
        REPOSITORY / "Makefile",
    ]
    named = {name for file in files for name in re.findall(r"\bENDTURN_\w*[A-Z]\b", file.read_text())}
    assert len(named) > 30
    others = {"ENDTURN_RUN", "ENDTURN_FETCHED", "ENDTURN_REPORTED", "ENDTURN_AGENT_MAX_ITERATIONS"}
    assert list(unknown_names(dict.fromkeys({*named, *others, *KUBERNETES.split()}, "x"))) == []


def test_a_value_is_read_in_any_case_and_an_empty_one_is_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for text, value in ((" BOTH ", "both"), ("", "logs"), ("  ", "logs"), ("loud", "logs")):
        monkeypatch.setenv("ENDTURN_EVENTS", text)
        assert value_of(EVENTS, "logs") == value
    for text, is_set in (("True", True), ("false", False), ("yes", False)):
        monkeypatch.setenv("ENDTURN_METRICS_AGENT", text)
        assert value_of(METRICS_AGENT, False) is is_set


def test_a_problem_that_endturn_run_has_printed_is_not_logged_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one is."""
    caplog.set_level(logging.WARNING, "endturn")
    monkeypatch.setenv("ENDTURN_REPORTED", f"00000000,{environment.fingerprint('a')}")
    for sentence in ("a", "b", "b"):
        environment.warn_once(sentence)
    assert caplog.messages == ["endturn: b"]


# --- The controller's policy --------------------------------------------------------------------------------------

IN_WORDS = {
    "continuation_max_total_completion_tokens": "4 × the effective maximum",
    "prices": "none",
    "prompt": "four lines",
    "continuation_strategies": "`native_token, resend, prefill, prompt`",
    "min_overlap": "16, 1024",
    "max_overlap": "16, 1024",
}
"""Defaults that docs/configuration.md writes out."""


@pytest.mark.parametrize("key", endturn.ContinuationPolicy.model_fields)
def test_a_policy_s_default_is_the_documented_one(key: str) -> None:
    page = (REPOSITORY / "docs/configuration.md").read_text().split("## The controller")[1]
    (cell,) = re.findall(rf"^\| [^|]*`{key}`[^|]*\| ([^|]+) \|", page, re.MULTILINE)
    default = endturn.ContinuationPolicy.model_fields[key].default
    words: dict[Any, str] = {None: "none", True: "true", False: "false"}
    plain = words.get(default, f"`{default}`") if default is None or isinstance(default, bool | str) else str(default)
    assert cell == IN_WORDS.get(key, plain)


@pytest.mark.parametrize("key", endturn.ContinuationPolicy.model_fields)
def test_a_policy_s_key_of_a_wrong_type_raises(key: str) -> None:
    """As a keyword, and in a variable: the value and what it should be are in the message."""
    with pytest.raises(UsageError, match=key):
        endturn.ContinuationPolicy(**{key: object()})
    allowed = {"prompt", "transcript"}  # which take any text
    if key not in allowed:
        with pytest.raises(UsageError, match=f"ENDTURN_AGENT_{key.upper()}"):
            endturn.ContinuationPolicy.load(environ={f"ENDTURN_AGENT_{key.upper()}": "-?"})
