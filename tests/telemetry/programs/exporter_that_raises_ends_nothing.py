"""An exporter that raises ends nothing."""

from typing import Never

from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

import endturn
from tests.telemetry.programs.parts.calls import call


class Broken(ConsoleMetricExporter):
    def shutdown(self, *args: object, **kwargs: object) -> Never:
        raise OSError("the disk is full")

    force_flush = shutdown


endturn.configure(metric_exporter=Broken())
call()
