"""Variables that only the SDK reads; endturn checks their values."""

from __future__ import annotations

from typing import Final

from endturn.settings import kinds
from endturn.settings.kinds import FLAG
from endturn.settings.variable import Variable, with_signals

READ_BY_SDK: Final[tuple[Variable[object], ...]] = (
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"),
        kind=kinds.FILE,
        fallback="exports over https fail",
        meaning="the certificate of this client, in PEM, for a receiver that asks for one",
    ),
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_CLIENT_KEY"),
        kind=kinds.FILE,
        fallback="exports over https fail",
        meaning="the private key of that certificate, in PEM",
    ),
    Variable(
        names=with_signals("OTEL_EXPORTER_OTLP_INSECURE"),
        kind=FLAG,
        default="false",
        fallback="it is false",
        meaning="`true`: gRPC exports to an address without a scheme do not use TLS",
    ),
    Variable(
        names=("OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION",),
        kind=kinds.one_of(
            {
                word: word
                for word in ("explicit_bucket_histogram", "base2_exponential_bucket_histogram")
            }
        ),
        default="explicit_bucket_histogram",
        fallback="it is explicit_bucket_histogram",
        meaning="the aggregation of histograms without buckets of their own",
    ),
    Variable(
        names=("OTEL_METRICS_EXEMPLAR_FILTER",),
        kind=kinds.exactly("trace_based", "always_on", "always_off"),
        default="trace_based",
        sdk_raises=True,
        meaning="the measurements that may become exemplars",
    ),
    Variable(
        names=("OTEL_TRACES_SAMPLER_ARG",),
        kind=kinds.number("traces", "0.1", least=0.0, most=1.0),
        fallback="each trace is sampled",
        meaning="the share of the traces that `traceidratio` and `parentbased_traceidratio` sample;"
        " a registered sampler gives it another meaning",
    ),
    Variable(
        names=(
            "OTEL_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_EVENT_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_LINK_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_LOGRECORD_ATTRIBUTE_COUNT_LIMIT",
        ),
        kind=kinds.limit("attributes", 128),
        default="128",
        sdk_raises=True,
        meaning="attributes that the SDK keeps of a span, an event, a link, a log record",
    ),
    Variable(
        names=(
            "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT",
            "OTEL_LOGRECORD_ATTRIBUTE_VALUE_LENGTH_LIMIT",
        ),
        kind=kinds.limit("characters", 4096),
        sdk_raises=True,
        meaning="characters that the SDK keeps of an attribute's value; all, unless it is set",
    ),
    Variable(
        names=("OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_SPAN_LINK_COUNT_LIMIT"),
        kind=kinds.limit("events or links", 128),
        default="128",
        sdk_raises=True,
        meaning="events and links that the SDK keeps of a span",
    ),
    Variable(
        names=("OTEL_BSP_EXPORT_TIMEOUT", "OTEL_BLRP_EXPORT_TIMEOUT"),
        kind=kinds.whole_number("milliseconds", 30000),
        default="30000",
        sdk_raises=True,
        meaning="milliseconds for the export of a batch of spans or log records",
    ),
    Variable(
        names=("OTEL_METRIC_EXPORT_TIMEOUT",),
        kind=kinds.number("milliseconds", "30000"),
        default="30000",
        sdk_raises=True,
        meaning="milliseconds for an export of metrics",
    ),
    Variable(
        names=("OTEL_EXPERIMENTAL_RESOURCE_DETECTORS",),
        kind=kinds.all_registered("opentelemetry_resource_detector", "resource detector", "*"),
        fallback="none is used besides the SDK's own",
        sdk_raises=True,
        meaning="registered packages that describe this process, such as its host",
    ),
    Variable(
        names=("OTEL_PROPAGATORS",),
        kind=kinds.all_registered("opentelemetry_propagator", "propagator", "none"),
        default="tracecontext,baggage",
        fallback="traces may not continue in other processes",
        sdk_raises=True,
        meaning="the header formats in which other instrumentations propagate a trace",
    ),
    Variable(
        names=("OTEL_PYTHON_CONTEXT",),
        kind=kinds.all_registered("opentelemetry_context", "context"),
        default="contextvars_context",
        fallback="it is contextvars_context",
        sdk_raises=True,
        meaning="the registered storage of the current span",
    ),
    *(
        Variable(
            names=(f"OTEL_PYTHON_{kind.upper()}_PROVIDER",),
            kind=kinds.all_registered(f"opentelemetry_{kind}_provider", f"{kind} provider"),
            sdk_raises=True,
            meaning=f"a registered {kind} provider, which is then the host's own",
        )
        for kind in ("tracer", "meter", "logger")
    ),
)
