"""Every setting of endturn: keywords and environment variables, their types, and their checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.settings.environment import (
        REPORTED as REPORTED,
        fingerprint as fingerprint,
        mark_reported as mark_reported,
        problem as problem,
        problems as problems,
        unknown_names as unknown_names,
        unusable_hidden as unusable_hidden,
        value_of as value_of,
        warn_of_problems as warn_of_problems,
        warn_once as warn_once,
    )
    from endturn.settings.keywords import (
        KEYWORDS as KEYWORDS,
        Keyword as Keyword,
        check_keywords as check_keywords,
        keywords_checked as keywords_checked,
    )
    from endturn.settings.kinds import (
        CAPTURE_WORDS as CAPTURE_WORDS,
        EVENT_WORDS as EVENT_WORDS,
        SEMCONV_WORDS as SEMCONV_WORDS,
        ValueKind as ValueKind,
    )
    from endturn.settings.secrets import (
        redact_address as redact_address,
        redact_value as redact_value,
    )
    from endturn.settings.variable import SIGNALS as SIGNALS, Variable as Variable
    from endturn.settings.variables import (
        CAPTURE_CONTENT as CAPTURE_CONTENT,
        CONTENT_MAX_CHARS as CONTENT_MAX_CHARS,
        EMIT_EVENT as EMIT_EVENT,
        EVENTS as EVENTS,
        LOGS_BATCH as LOGS_BATCH,
        LOGS_DELAY as LOGS_DELAY,
        LOGS_QUEUE as LOGS_QUEUE,
        METRIC_EXPORT_INTERVAL as METRIC_EXPORT_INTERVAL,
        METRICS_AGENT as METRICS_AGENT,
        REDACT as REDACT,
        SDK_DISABLED as SDK_DISABLED,
        SEMCONV_OPT_IN as SEMCONV_OPT_IN,
        SPANS_BATCH as SPANS_BATCH,
        SPANS_DELAY as SPANS_DELAY,
        SPANS_QUEUE as SPANS_QUEUE,
        TOOLS_IDLE_S as TOOLS_IDLE_S,
        VARIABLES as VARIABLES,
        variable_named as variable_named,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "environment": (
                "REPORTED",
                "fingerprint",
                "mark_reported",
                "problem",
                "problems",
                "unknown_names",
                "unusable_hidden",
                "value_of",
                "warn_of_problems",
                "warn_once",
            ),
            "keywords": ("KEYWORDS", "Keyword", "check_keywords", "keywords_checked"),
            "kinds": ("CAPTURE_WORDS", "EVENT_WORDS", "SEMCONV_WORDS", "ValueKind"),
            "secrets": ("redact_address", "redact_value"),
            "variable": ("SIGNALS", "Variable"),
            "variables": (
                "CAPTURE_CONTENT",
                "CONTENT_MAX_CHARS",
                "EMIT_EVENT",
                "EVENTS",
                "LOGS_BATCH",
                "LOGS_DELAY",
                "LOGS_QUEUE",
                "METRICS_AGENT",
                "METRIC_EXPORT_INTERVAL",
                "REDACT",
                "SDK_DISABLED",
                "SEMCONV_OPT_IN",
                "SPANS_BATCH",
                "SPANS_DELAY",
                "SPANS_QUEUE",
                "TOOLS_IDLE_S",
                "VARIABLES",
                "variable_named",
            ),
        },
    )
