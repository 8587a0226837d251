"""The SDK's own metrics are enabled only while its exporters and processors are constructed."""

import os

from opentelemetry import _logs, metrics, trace

import endturn


def watch(module: object, name: str) -> None:
    set_provider = getattr(module, name)

    def set_and_print(provider: object) -> None:
        print(name, os.environ.get("OTEL_PYTHON_SDK_INTERNAL_METRICS_ENABLED"))
        set_provider(provider)

    setattr(module, name, set_and_print)


watch(metrics, "set_meter_provider")
watch(trace, "set_tracer_provider")
watch(_logs, "set_logger_provider")
endturn.configure()
