"""Telemetry: the schema, the recorder of signals, and the detection of turns and spans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.telemetry.continuation_requests import (
        comparable_text as comparable_text,
        repeats_answer as repeats_answer,
    )
    from endturn.telemetry.fail_conditions import (
        FailCondition as FailCondition,
        fail_condition as fail_condition,
    )
    from endturn.telemetry.fingerprints import (
        endpoints_hash as endpoints_hash,
        opening_hash as opening_hash,
    )
    from endturn.telemetry.foreign_spans import AdoptedSpan as AdoptedSpan
    from endturn.telemetry.indicators import (
        ENOUGH_EVENTS as ENOUGH_EVENTS,
        INDICATORS as INDICATORS,
        TRUNCATED_TURNS as TRUNCATED_TURNS,
        TURNS as TURNS,
        UNFINISHED_TURNS as UNFINISHED_TURNS,
        Condition as Condition,
        Count as Count,
        Indicator as Indicator,
    )
    from endturn.telemetry.instruments import (
        APART_S as APART_S,
        instruments_of as instruments_of,
        is_owned as is_owned,
    )
    from endturn.telemetry.otel_providers import (
        CURRENT as CURRENT,
        OptionKwargs as OptionKwargs,
        Options as Options,
        Providers as Providers,
        installed as installed,
    )
    from endturn.telemetry.recorder import Recorder as Recorder
    from endturn.telemetry.schema import (
        INSTANCE as INSTANCE,
        Attribute as Attribute,
        Metric as Metric,
    )
    from endturn.telemetry.series import CAPS as CAPS, LENGTH as LENGTH, SETS as SETS
    from endturn.telemetry.span_conventions import OperationKind as OperationKind
    from endturn.telemetry.span_processor import (
        AdoptingSpanProcessor as AdoptingSpanProcessor,
        SpanObserver as SpanObserver,
    )
    from endturn.telemetry.tool_loops import results_at_end as results_at_end
    from endturn.telemetry.turn_inference import TurnInference as TurnInference
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "continuation_requests": ("comparable_text", "repeats_answer"),
            "fail_conditions": ("FailCondition", "fail_condition"),
            "fingerprints": ("endpoints_hash", "opening_hash"),
            "foreign_spans": ("AdoptedSpan",),
            "indicators": (
                "Condition",
                "Count",
                "ENOUGH_EVENTS",
                "INDICATORS",
                "Indicator",
                "TRUNCATED_TURNS",
                "TURNS",
                "UNFINISHED_TURNS",
            ),
            "instruments": ("APART_S", "instruments_of", "is_owned"),
            "otel_providers": ("CURRENT", "Options", "OptionKwargs", "Providers", "installed"),
            "recorder": ("Recorder",),
            "schema": ("Attribute", "INSTANCE", "Metric"),
            "series": ("CAPS", "LENGTH", "SETS"),
            "span_conventions": ("OperationKind",),
            "span_processor": ("AdoptingSpanProcessor", "SpanObserver"),
            "tool_loops": ("results_at_end",),
            "turn_inference": ("TurnInference",),
        },
    )
