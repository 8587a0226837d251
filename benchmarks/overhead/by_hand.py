"""The signals that endturn records of a call, written by hand with OpenTelemetry's public API and with nothing read.

It is the least that recording these signals can cost: the values are constants, and no request or response is looked
at. A test holds that they are the same signals: the same names, with the same attributes.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final

from opentelemetry import trace
from opentelemetry._logs import SeverityNumber
from opentelemetry.metrics import CallbackOptions, Observation

from benchmarks.overhead.providers import Providers
from benchmarks.overhead.situations import ANSWERING_MODEL, MODEL

Attributes = dict[str, Any]

SCOPE: Final = "by_hand"
MODEL_LABELS: Final[Attributes] = {"gen_ai.provider.name": "openai", "gen_ai.request.model": MODEL}
CALL_LABELS: Final[Attributes] = {
    "gen_ai.operation.name": "chat",
    **MODEL_LABELS,
    "gen_ai.response.model": ANSWERING_MODEL,
    "server.address": "api.openai.com",
}
TURN: Final[Attributes] = {"endturn.turn.id": "22305818ca5ccac1", "endturn.turn.iteration": 1}
REQUEST: Final[Attributes] = {
    "gen_ai.operation.name": "chat",
    **MODEL_LABELS,
    "server.address": "api.openai.com",
    "gen_ai.request.max_tokens": 1000,
    "gen_ai.request.temperature": 0.2,
    **TURN,
}


class Signals:
    """What is recorded of one call: its span, log records, measurements and sums.

    Args:
        truncated: the response was truncated, and its turn ends with it, which is recorded too.
    """

    def __init__(self, providers: Providers, *, truncated: bool) -> None:
        reason, raw_reason = ("max_tokens", "length") if truncated else ("end_turn", "stop")
        self.response: Attributes = {
            "gen_ai.response.id": "chatcmpl-1",
            "gen_ai.response.model": ANSWERING_MODEL,
            "gen_ai.response.finish_reasons": (raw_reason,),
            "endturn.stop.reason": reason,
            "endturn.stop.truncated": truncated,
            "endturn.stop.raw": raw_reason,
            "gen_ai.usage.input_tokens": 25,
            "gen_ai.usage.output_tokens": 180,
        }
        stop = {**MODEL_LABELS, "endturn.stop.reason": reason, "endturn.stop.raw": raw_reason, **TURN}
        self.log_records = [("endturn.stop_reason_observed", f"{MODEL} stopped: {reason} ({raw_reason})", stop)]
        turn_labels = {**MODEL_LABELS, "endturn.turn.truncated": truncated, "endturn.turn.continued": False}
        outcome = "not_continued" if truncated else "completed"
        self.measurements: list[tuple[str, float, Attributes]] = [
            ("endturn.output.budget_used", 0.18, MODEL_LABELS),
            ("gen_ai.client.operation.duration", 1.0, CALL_LABELS),
            ("gen_ai.client.token.usage", 25, {**CALL_LABELS, "gen_ai.token.type": "input"}),
            ("gen_ai.client.token.usage", 180, {**CALL_LABELS, "gen_ai.token.type": "output"}),
            ("endturn.turn.duration", 1.0, turn_labels),
            ("endturn.turn.output", 180, {**MODEL_LABELS, "endturn.turn.complete": not truncated}),
        ]
        self.sums: list[tuple[str, Attributes]] = [
            ("endturn.responses", {**MODEL_LABELS, "endturn.stop.reason": reason}),
            ("endturn.turns", {**turn_labels, "endturn.turn.outcome": outcome}),
        ]
        if truncated:
            self._add_end_of_truncated_turn(outcome)
        meter_provider, tracer_provider = providers.meter_provider, providers.tracer_provider
        if meter_provider is not None:
            self.response["endturn.counted"] = True
        self.response["endturn.span.attribute_count"] = len(REQUEST) + len(self.response) + 1
        logger_provider = providers.logger_provider
        self._tracer = None if tracer_provider is None else tracer_provider.get_tracer(SCOPE)
        self._logger = None if logger_provider is None else logger_provider.get_logger(SCOPE)
        self._recorded: list[tuple[Any, float, Attributes]] = []
        self._totals: Counter[str] = Counter()
        if meter_provider is not None:
            meter = meter_provider.get_meter(SCOPE)
            histograms = {name: meter.create_histogram(name) for name, _, _ in self.measurements}
            self._recorded = [(histograms[name], value, labels) for name, value, labels in self.measurements]
            for name, labels in self.sums:
                meter.create_observable_counter(name, [partial(self._observe, name, labels)])

    def _add_end_of_truncated_turn(self, outcome: str) -> None:
        end = {
            **MODEL_LABELS,
            "endturn.turn.id": TURN["endturn.turn.id"],
            "endturn.turn.outcome": outcome,
            "endturn.turn.complete": False,
            "endturn.continuation.attempts": 0,
            "endturn.turn.repairs": 0,
            "endturn.continuation.output_tokens": 180,
            "endturn.continuation.output_chars": 900,
        }
        body = f"truncated turn of {MODEL} ended: {outcome}; continuations: 0, repairs: 0"
        self.log_records.append(("endturn.continuation_terminated", body, end))
        self.measurements.append(("endturn.turn.continuations", 0, MODEL_LABELS))
        self.sums.append(("endturn.truncation.exits", {**MODEL_LABELS, "endturn.turn.outcome": outcome}))

    def _observe(self, name: str, labels: Attributes, options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(self._totals[name], labels)]

    def wrap(self, create: Callable[..., Any]) -> Callable[..., Any]:
        """Return `Completions.create` with the signals around it."""

        def create_and_record(completions: Any, **request: Any) -> Any:
            if self._tracer is None:
                response = create(completions, **request)
                self._record(None)
                return response
            span = self._tracer.start_span(f"chat {MODEL}", kind=trace.SpanKind.CLIENT, attributes=REQUEST)
            response = create(completions, **request)
            span.set_attributes(self.response)
            self._record(trace.set_span_in_context(span))
            span.end()
            return response

        return create_and_record

    def _record(self, context: Any) -> None:
        if self._logger is not None:
            for name, body, attributes in self.log_records:
                self._logger.emit(
                    event_name=name,
                    body=body,
                    attributes=attributes,
                    context=context,
                    timestamp=time.time_ns(),
                    severity_text="INFO",
                    severity_number=SeverityNumber.INFO,
                )
        for histogram, value, labels in self._recorded:
            histogram.record(value, labels, context)
        for name, _ in self.sums:
            self._totals[name] += 1
