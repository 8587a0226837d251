"""The tracer provider that records spans before it is installed.

Import it only if the SDK is installed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from endturn.instrumentation import sdk_providers
from endturn.instrumentation.held_spans import HeldSpans
from endturn.instrumentation.service_name import service_name_of_command
from endturn.telemetry import cleanup, span_processor


@dataclass(frozen=True, slots=True)
class EarlyProvider:
    """A provider that is not installed yet."""

    tracers: TracerProvider
    held_spans: HeldSpans
    begun_with: sdk_providers.ProcessResource

    def resource(self) -> sdk_providers.ProcessResource:
        """Return the resource of this process, which may be a fork of the first one."""
        return self.begun_with.merge(Resource({}))

    def discard(self) -> None:
        """Forget the spans: the provider will not be installed."""
        self.held_spans.hand_to(())


def begin() -> EarlyProvider | None:
    """Return a provider by the environment's variables, whose spans are kept.

    None if no traces are to be exported.
    """
    if sdk_providers.is_unwanted("traces"):
        return None
    resource = sdk_providers.resource_of({}, default_name=service_name_of_command(sys.orig_argv))
    tracers = TracerProvider(resource=resource, shutdown_on_exit=False)
    held_spans = HeldSpans()
    tracers.add_span_processor(held_spans)
    span_processor.attach(tracers)
    cleanup.register_after_fork(held_spans.forget)
    return EarlyProvider(tracers, held_spans, resource)
