"""The table of the environment variables that endturn or the OpenTelemetry SDK reads."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from endturn.settings import kinds
from endturn.settings.kinds import FLAG, ValueKind
from endturn.settings.sdk_variables import READ_BY_SDK
from endturn.settings.variable import SIGNALS, Variable, with_signals

_CAPTURE: Final = {"FALSE": "NO_CONTENT", **{word: word for word in kinds.CAPTURE_WORDS}}
"""`true` is invalid: earlier versions of the conventions used it with another meaning."""

CAPTURE_CONTENT: Final = Variable(
    names=("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",),
    kind=ValueKind(
        ", ".join(f"`{word}`" for word in kinds.CAPTURE_WORDS),
        f"use one of {', '.join(kinds.CAPTURE_WORDS)}",
        lambda text: _CAPTURE[text.upper()],
        kinds.CAPTURE_WORDS,
    ),
    default="NO_CONTENT",
    keyword="content",
    section="recording",
    fallback="no content is recorded",
    meaning="whether [message content](privacy.md#recording-what-was-said) is recorded. The last"
    " two also record the names of tools whose calls were not run",
)
EMIT_EVENT: Final = Variable(
    names=("OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT",),
    kind=FLAG,
    default="set by `content`",
    section="recording",
    meaning="`true`: the event `gen_ai.client.inference.operation.details` is emitted without"
    " content too; `false`: never",
)
CONTENT_MAX_CHARS: Final = Variable(
    names=("ENDTURN_CONTENT_MAX_CHARS",),
    kind=kinds.whole_number("characters", 8192),
    default="8192",
    keyword="content_max_chars",
    section="recording",
    fallback="8,192 are recorded",
    meaning="maximum number of characters recorded of one text",
)
REDACT: Final = Variable(
    names=("ENDTURN_REDACT",),
    kind=kinds.FUNCTION,
    keyword="redact",
    section="recording",
    fallback="it redacts nothing, so no content is recorded",
    meaning="a function from text to text that is called with each text before it is recorded; the"
    " variable takes its name, `module:function`",
)
EVENTS: Final = Variable(
    names=("ENDTURN_EVENTS",),
    kind=kinds.one_of({word: word for word in kinds.EVENT_WORDS}),
    default="logs",
    keyword="events",
    section="recording",
    fallback="events go to logs",
    meaning="destination of events: `logs` (log records), `spans` (span events), `both`",
)
METRICS_AGENT: Final = Variable(
    names=("ENDTURN_METRICS_AGENT",),
    kind=FLAG,
    default="false",
    keyword="agent",
    section="recording",
    fallback="turn metrics have no agent's name",
    meaning="`true`: turn metrics carry the agent's name (at most ten names, then `other`)",
)
TOOLS_IDLE_S: Final = Variable(
    names=("ENDTURN_TOOLS_IDLE_S",),
    kind=kinds.number("seconds", "300"),
    default="300",
    keyword="tools_idle_s",
    section="recording",
    fallback="it is 300",
    meaning="seconds for which an inferred turn waits for the results of its tools",
)
SEMCONV_OPT_IN: Final = Variable(
    names=("OTEL_SEMCONV_STABILITY_OPT_IN",),
    kind=kinds.SEMCONV,
    default="default",
    keyword="semconv",
    section="recording",
    fallback="the names of `default` are emitted",
    meaning="the names of the conventions' metrics: `default` (`gen_ai.client.operation.duration`,"
    " `gen_ai.client.token.usage`, …), `gen_ai_latest_experimental` (their successors,"
    " `gen_ai.client.inference.duration`, …), `gen_ai_latest_experimental/dup` (both). Values for"
    " other areas in the variable are ignored. Dashboards read both",
)
SDK_DISABLED: Final = Variable(
    names=("OTEL_SDK_DISABLED",),
    kind=FLAG,
    default="false",
    fallback="it does not disable anything",
    meaning="`true`: nothing is set up",
)
METRIC_EXPORT_INTERVAL: Final = Variable(
    names=("OTEL_METRIC_EXPORT_INTERVAL",),
    kind=kinds.number("milliseconds", "15000"),
    default="15000",
    fallback="it is 15000",
    meaning="milliseconds between two exports of metrics",
)
SPANS_QUEUE: Final = Variable(
    names=("OTEL_BSP_MAX_QUEUE_SIZE",),
    kind=kinds.whole_number("spans", 8192),
    default="8192",
    fallback="it is 8192",
    meaning="spans that are queued while the Collector is unreachable (over HTTP a batch is retried"
    " for some two minutes): two minutes of fifty calls a second",
)
LOGS_QUEUE: Final = Variable(
    names=("OTEL_BLRP_MAX_QUEUE_SIZE",),
    kind=kinds.whole_number("log records", 16384),
    default="16384",
    fallback="it is 16384",
    meaning="the same for log records",
)
SPANS_BATCH: Final = Variable(
    names=("OTEL_BSP_MAX_EXPORT_BATCH_SIZE",),
    kind=kinds.whole_number("spans", 512),
    default="512",
    fallback="it is 512",
    meaning="spans in one request, at most the size of the queue; fewer if a receiver refuses it as"
    " too large (413)",
)
LOGS_BATCH: Final = Variable(
    names=("OTEL_BLRP_MAX_EXPORT_BATCH_SIZE",),
    kind=kinds.whole_number("log records", 512),
    default="512",
    fallback="it is 512",
    meaning="the same for log records",
)
SPANS_DELAY: Final = Variable(
    names=("OTEL_BSP_SCHEDULE_DELAY",),
    kind=kinds.whole_number("milliseconds", 5000),
    default="the SDK's",
    fallback="it is 5000",
    meaning="the delay before spans are exported as a batch; `endturn demo` sets `500` if it is not"
    " set, so that its page fills while it runs",
)
LOGS_DELAY: Final = Variable(
    names=("OTEL_BLRP_SCHEDULE_DELAY",),
    kind=kinds.whole_number("milliseconds", 5000),
    default="the SDK's",
    fallback="it is 5000",
    meaning="the same for log records",
)

VARIABLES: Final[tuple[Variable[object], ...]] = (
    Variable(
        names=("OTEL_SERVICE_NAME",),
        kind=kinds.TEXT,
        default="under `endturn run` the script's or module's name",
        meaning="the service's name",
    ),
    Variable(
        names=("OTEL_RESOURCE_ATTRIBUTES",),
        kind=kinds.ATTRIBUTES,
        fallback="entries without = are ignored",
        meaning="further attributes of this process. `configure()` appends the pid and four hex"
        " digits to `service.instance.id`: two processes that write one series make it"
        " meaningless",
    ),
    Variable(
        names=tuple(f"OTEL_{signal}_EXPORTER" for signal in SIGNALS),
        kind=kinds.NAMES,
        default="otlp",
        fallback="the signal is not exported",
        meaning="`otlp`, `console`, `none`, or the name under which an installed package has"
        " registered an exporter with the SDK, e.g. `prometheus` (`pip install"
        " opentelemetry-exporter-prometheus`); several, separated by commas",
    ),
    Variable(
        names=("OTEL_EXPORTER_OTLP_ENDPOINT",),
        kind=kinds.ADDRESS,
        default="http://localhost:4318",
        fallback="nothing arrives",
        meaning="destination of OTLP, without `/v1/traces` and the like: each signal's path is"
        " appended",
    ),
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_ENDPOINT")[1:],
        kind=kinds.ADDRESS,
        fallback="nothing arrives",
        meaning="destination of one signal, used as it is: with `/v1/traces` and the like",
    ),
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_HEADERS"),
        kind=kinds.HEADERS,
        fallback="that header is not sent",
        is_secret=True,
        meaning="headers of each request, such as a receiver's token; of one signal in place of"
        " all",
    ),
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_PROTOCOL"),
        kind=ValueKind(
            "`http/protobuf`, `grpc`",
            "use http/protobuf (port 4318) or grpc (port 4317)",
            lambda text: {"http/protobuf": "http/protobuf", "grpc": "grpc"}[text.lower()],
            ("http/protobuf", "grpc"),
        ),
        default="http/protobuf",
        fallback="the signal is not exported",
        meaning="`grpc` uses port 4317, and needs `pip install"
        " opentelemetry-exporter-otlp-proto-grpc`",
    ),
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_TIMEOUT"),
        kind=kinds.number("seconds", "10"),
        default="10",
        fallback="it is 10",
        sdk_raises=True,
        meaning="seconds for one export attempt. The first variable, if set, is also the time that"
        " an ending process waits for its last exports; otherwise it waits 2 seconds",
    ),
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_COMPRESSION"),
        kind=kinds.one_of({"none": "none", "gzip": "gzip", "deflate": "deflate"}),
        default="none",
        fallback="nothing is compressed",
        meaning="compression of each request",
    ),
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_CERTIFICATE"),
        kind=kinds.FILE,
        fallback="exports over https fail",
        meaning="the certificate of the authority that signed the receiver's, in PEM",
    ),
    METRIC_EXPORT_INTERVAL,
    Variable(
        names=("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE",),
        kind=kinds.one_of({word: word for word in ("cumulative", "delta", "lowmemory")}),
        default="cumulative",
        fallback="it is cumulative",
        meaning="`delta` needs a Collector that converts it, as endturn's does: Prometheus itself"
        " refuses it",
    ),
    Variable(
        names=(
            "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
            *(f"OTEL_PYTHON_EXPORTER_OTLP_HTTP_{signal}_CREDENTIAL_PROVIDER" for signal in SIGNALS),
        ),
        kind=kinds.registered("opentelemetry_otlp_credential_provider", (), "credential provider"),
        fallback="the signal is not exported",
        meaning="a registered package that makes the HTTP session of an exporter. It is used"
        " instead of endturn's session, which retries batches for two minutes, reconnects after a"
        " fork and counts refused records",
    ),
    Variable(
        names=("OTEL_TRACES_SAMPLER",),
        kind=kinds.registered(
            "opentelemetry_traces_sampler",
            (
                "always_on",
                "always_off",
                "parentbased_always_on",
                "parentbased_always_off",
                "traceidratio",
                "parentbased_traceidratio",
            ),
            "sampler",
        ),
        default="parentbased_always_on",
        fallback="each trace is sampled",
        meaning="the SDK's sampler of traces; metrics count calls whether or not they are sampled",
    ),
    Variable(
        names=("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED",),
        kind=FLAG,
        meaning="the SDK's counts of records that its queues and exporters drop; `configure()`"
        " turns them on for its own providers. `true` also counts each span, `false` counts"
        " nothing",
    ),
    SPANS_QUEUE,
    LOGS_QUEUE,
    SPANS_BATCH,
    LOGS_BATCH,
    SPANS_DELAY,
    LOGS_DELAY,
    *READ_BY_SDK,
    SDK_DISABLED,
    Variable(
        names=("OTEL_PYTHON_DISABLED_INSTRUMENTATIONS",),
        kind=kinds.NAMES,
        meaning="if it contains `endturn` or `*`, [a process that was started with"
        " instrumentation](zero-code.md) is not instrumented",
    ),
    Variable(
        names=("OTEL_CONFIG_FILE",),
        kind=kinds.TEXT,
        fallback="the program is not observed",
        meaning="for [`endturn run` and `opentelemetry-instrument`]"
        "(zero-code.md#a-configuration-file): a file with all these settings",
    ),
    EVENTS,
    METRICS_AGENT,
    CAPTURE_CONTENT,
    CONTENT_MAX_CHARS,
    REDACT,
    EMIT_EVENT,
    TOOLS_IDLE_S,
    SEMCONV_OPT_IN,
    Variable(
        names=("ENDTURN_UI_TOKEN",),
        kind=kinds.TEXT,
        section="other",
        is_secret=True,
        meaning="the token that [the local page](page.md) requires",
    ),
    Variable(
        names=("ENDTURN_CONFIG_FILE",),
        kind=kinds.TEXT,
        section="other",
        meaning="the TOML file whose table `agent` is [the controller's policy](#the-controller)",
    ),
)
"""All variables, in the order of docs/configuration.md."""

_BY_NAME: Final = {name: variable for variable in VARIABLES for name in variable.names}


def variable_named(name: str) -> Variable[object] | None:
    """Return the row of a variable; None if there is none."""
    return _BY_NAME.get(name)


def names() -> Iterable[str]:
    """Return the names of all variables."""
    return _BY_NAME.keys()
