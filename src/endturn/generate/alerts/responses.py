"""Alerts about responses and what is done with truncated ones."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate.alerts.conditions import Condition, CountAtLeast, ShareAbove, all_of
from endturn.generate.alerts.model import (
    COUNT,
    PERCENT,
    SERVICE_AND_MODEL,
    SERVICE_NAME,
    Alert,
    AlertSettings,
    Firing,
    Quiet,
    Runbook,
    Severity,
    label_value,
    opens_tickets,
    percent,
    sample_series,
)
from endturn.generate.queries import SERVICE, whole
from endturn.telemetry import INDICATORS, Count, schema

HALF_AN_HOUR: Final = timedelta(minutes=30)


def _events(name: str) -> Count:
    return INDICATORS[name].count


def _share_and_number(name: str, share: float, number: int) -> Condition:
    """An indicator's share and its number of events are both high."""
    indicator = INDICATORS[name]
    return all_of(
        ShareAbove(part=indicator.count, whole=whole(indicator), over=HALF_AN_HOUR, share=share),
        CountAtLeast(count=indicator.count, over=HALF_AN_HOUR, number=number),
    )


def _responses_truncated(settings: AlertSettings) -> Condition:
    limits = settings.limits
    return _share_and_number("truncation", limits.truncated, limits.truncations)


def _continuations_exhausted(settings: AlertSettings) -> Condition:
    number = settings.limits.exhausted
    return CountAtLeast(count=_events("given_up"), over=HALF_AN_HOUR, number=number)


def _repairs_failing(settings: AlertSettings) -> Condition:
    limits = settings.limits
    return _share_and_number("repair_failure", limits.repair_failure, limits.failed_repairs)


def _stop_reason_unknown(settings: AlertSettings) -> Condition:
    return CountAtLeast(
        count=_events("unknown"),
        over=HALF_AN_HOUR,
        number=settings.limits.unknown,
        by=SERVICE_AND_MODEL,
    )


def _truncation_suspected(settings: AlertSettings) -> Condition:
    return CountAtLeast(
        count=_events("suspected"),
        over=HALF_AN_HOUR,
        number=settings.limits.suspected,
        by=SERVICE_AND_MODEL,
    )


RESPONSES_TRUNCATED: Final = Alert(
    name="EndturnResponsesTruncated",
    severity=Severity.WARNING,
    enabled=opens_tickets,
    condition=_responses_truncated,
    hold=timedelta(minutes=15),
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-stops",
    dashboard_labels=SERVICE,
    summary=f"{PERCENT} of the responses to {SERVICE_NAME} are truncated",
    description=lambda settings: (
        f"More than {percent(settings.limits.truncated)} of the responses in the last 30 minutes "
        "ended with max_tokens, context_window_exceeded or missing, at least "
        f"{settings.limits.truncations} of them, whether they were continued or not. Applications "
        "without endturn are included if the Collector reads their spans."
    ),
    runbook=Runbook(
        meaning="Many responses end before the model has finished.",
        impact=(
            "Each costs another call if it is continued, and is a truncated answer if it is not."
        ),
        diagnosis=(
            (
                "The dashboard *Stop reasons*: `max_tokens` is a limit, "
                "`context_window_exceeded` a conversation that has become too long, `missing` a "
                "stream that lost its connection. *Truncation rate by model* shows the model."
            ),
            "Since when? Compare with deployments, changed prompts and changed limits.",
        ),
        actions=(
            (
                "`max_tokens`: raise it; the dashboard *Model* shows which limit would have "
                "sufficed. Or request shorter answers."
            ),
            "`context_window_exceeded`: shorten the history.",
            "`missing`: check timeouts of proxies between agent and provider.",
            (
                "An application without endturn: instrument it, so that truncated answers can be "
                "continued."
            ),
        ),
    ),
    fires=(
        Firing(
            title="every answer is truncated, beside many errors",
            series=(
                sample_series(schema.RESPONSES, "0+1x480", {schema.REASON.label: "max_tokens"}),
                sample_series(schema.RESPONSES, "0+50x480", {schema.REASON.label: "error"}),
            ),
            at=timedelta(hours=1, minutes=30),
            value="100%",
        ),
    ),
    quiet=(
        Quiet(
            title="one response in ten is truncated",
            series=(
                sample_series(schema.RESPONSES, "0+1x480", {schema.REASON.label: "max_tokens"}),
                sample_series(schema.RESPONSES, "0+9x480", {schema.REASON.label: "end_turn"}),
            ),
            at=timedelta(hours=1, minutes=30),
        ),
        Quiet(
            title="all responses are truncated, but there are only ten",
            series=(
                sample_series(schema.RESPONSES, "0x200 10x280", {schema.REASON.label: "missing"}),
            ),
            at=timedelta(hours=1, minutes=20),
        ),
    ),
)


CONTINUATIONS_EXHAUSTED: Final = Alert(
    name="EndturnContinuationsExhausted",
    severity=Severity.WARNING,
    enabled=opens_tickets,
    condition=_continuations_exhausted,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-continuations",
    dashboard_labels=SERVICE,
    summary=f"{COUNT} truncated turns of {SERVICE_NAME} were continued and still not finished",
    description=lambda _: (
        "Continuations ended at the policy's retry limit, resume limit or one of its budgets "
        "(tokens, characters, cost, deadline), within the last 30 minutes."
    ),
    runbook=Runbook(
        meaning=(
            "Truncated turns were continued as far as the policy allows, and are still unfinished."
        ),
        impact="Tokens and time were spent, and the answers are still incomplete.",
        diagnosis=(
            "*Unfinished turns by outcome*: which limit ends them?",
            (
                "*Continuations per truncated turn*: do most turns need nearly as many as are "
                "allowed?"
            ),
            (
                "The event `endturn.continuation_terminated` has the continuations, tokens and "
                "characters of each such turn."
            ),
        ),
        actions=(
            (
                "`retry_limit`: raise `max_tokens`, so that fewer parts are needed; otherwise "
                "raise `continuation_max_attempts`."
            ),
            (
                "`token_budget`, `char_budget`, `cost_budget`, `deadline`: decide whether "
                "answers of that length are wanted. If so, raise the budget; if not, request "
                "shorter ones."
            ),
            (
                "`resume_limit`: the provider paused the turn more often than "
                "`continuation_max_resumes` allows. Raise it."
            ),
            (
                "A model that repeats itself never finishes: inspect one trace before you raise "
                "a limit."
            ),
        ),
    ),
    fires=(
        Firing(
            title="five turns end at the retry limit",
            series=(
                sample_series(
                    schema.TRUNCATION_EXITS, "0x200 5x280", {schema.OUTCOME.label: "retry_limit"}
                ),
            ),
            at=timedelta(hours=1),
            value="5",
        ),
    ),
    quiet=(
        Quiet(
            title="turns are not continued at all (another alert covers that)",
            series=(
                sample_series(
                    schema.TRUNCATION_EXITS, "0x200 50x280", {schema.OUTCOME.label: "not_continued"}
                ),
            ),
            at=timedelta(hours=1),
        ),
        Quiet(
            title="four turns do",
            series=(
                sample_series(
                    schema.TRUNCATION_EXITS, "0x200 4x280", {schema.OUTCOME.label: "token_budget"}
                ),
            ),
            at=timedelta(hours=1),
        ),
    ),
)


REPAIRS_FAILING: Final = Alert(
    name="EndturnRepairsFailing",
    severity=Severity.WARNING,
    enabled=opens_tickets,
    condition=_repairs_failing,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-continuations",
    dashboard_labels=SERVICE,
    summary=f"{PERCENT} of the tool payload repairs of {SERVICE_NAME} fail",
    description=lambda settings: (
        "Truncated tool payloads were requested again in the last 30 minutes, and more than "
        f"{percent(settings.limits.repair_failure)} of the new payloads were not complete either "
        f"(at least {settings.limits.failed_repairs}). Their tools were not run."
    ),
    runbook=Runbook(
        meaning="Tool calls are truncated within their arguments, and most repairs fail too.",
        impact="The agent cannot use its tools; turns end as `tool_repair_failed`.",
        diagnosis=(
            "*Tool payload repairs* and *Blocked tool calls* by reason.",
            (
                "The event `endturn.tool_payload_repair` names the issue: `incomplete_json`, "
                "`schema_mismatch`, …"
            ),
        ),
        actions=(
            (
                "`incomplete_json`: the payload does not fit. Raise `max_tokens` on requests "
                "with tools, or let the tool accept its input in smaller parts."
            ),
            "`schema_mismatch`: simplify the tool's schema, or clarify its description.",
        ),
    ),
    fires=(
        Firing(
            title="all repairs fail",
            series=(
                sample_series(
                    schema.REPAIRS, "0x100 8x280", {schema.REPAIR_RESULT.label: "failed"}
                ),
            ),
            at=timedelta(hours=1),
            value="100%",
        ),
    ),
    quiet=(
        Quiet(
            title="half of the repairs fail",
            series=(
                sample_series(
                    schema.REPAIRS, "0x100 8x280", {schema.REPAIR_RESULT.label: "failed"}
                ),
                sample_series(
                    schema.REPAIRS, "0x100 9x280", {schema.REPAIR_RESULT.label: "succeeded"}
                ),
            ),
            at=timedelta(hours=1),
        ),
        Quiet(
            title="all repairs fail, but there are only three",
            series=(
                sample_series(
                    schema.REPAIRS, "0x100 3x280", {schema.REPAIR_RESULT.label: "failed"}
                ),
            ),
            at=timedelta(hours=1),
        ),
    ),
)


STOP_REASON_UNKNOWN: Final = Alert(
    name="EndturnStopReasonUnknown",
    severity=Severity.WARNING,
    enabled=opens_tickets,
    condition=_stop_reason_unknown,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-stops",
    dashboard_labels=SERVICE_AND_MODEL,
    summary=(
        f"{COUNT} responses of {label_value(schema.REQUEST_MODEL.label)} to {SERVICE_NAME} have a "
        "stop reason that endturn does not know"
    ),
    description=lambda _: (
        "A provider sent a stop reason that is not in its table within the last 30 minutes. Such "
        "a response never counts as a completed turn."
    ),
    runbook=Runbook(
        meaning="A provider's vocabulary has changed, or a proxy in between invents values.",
        impact=(
            "Until the value is in the table, it is unknown whether such answers are complete; "
            "they count as `unknown`."
        ),
        diagnosis=(
            (
                "The event `endturn.stop_reason_unmapped` has the raw value, once for each "
                'provider, model and value: in Loki `{service_name=~".+"} | '
                'event_name="endturn.stop_reason_unmapped"`.'
            ),
            "The provider's documentation and changelog for that value.",
        ),
        actions=(
            "Upgrade endturn: the value may be in the table by now.",
            ("Otherwise report the provider, the API and the raw value, so that it can be added."),
        ),
    ),
    fires=(
        Firing(
            title="three such responses arrive",
            series=(sample_series(schema.UNMAPPED, "0x200 3x280"),),
            at=timedelta(hours=1),
            labels={
                "job": "shop/agent",
                schema.PROVIDER.label: "openai",
                schema.REQUEST_MODEL.label: "gpt-5",
            },
            value="3",
        ),
    ),
    quiet=(
        Quiet(
            title="they arrived long ago",
            series=(sample_series(schema.UNMAPPED, "3x480"),),
            at=timedelta(hours=1, minutes=30),
        ),
    ),
)


TRUNCATION_SUSPECTED: Final = Alert(
    name="EndturnTruncationSuspected",
    severity=Severity.WARNING,
    enabled=opens_tickets,
    condition=_truncation_suspected,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-stops",
    dashboard_labels=SERVICE_AND_MODEL,
    summary=(
        f"{COUNT} responses of {label_value(schema.REQUEST_MODEL.label)} to {SERVICE_NAME} report "
        "a normal stop but used their entire token limit"
    ),
    description=lambda settings: (
        f"At least {settings.limits.suspected} responses of one model within the last 30 minutes "
        "report a normal stop, yet have as many tokens as the request allowed."
    ),
    runbook=Runbook(
        meaning=(
            "A server, a proxy or another instrumentation probably reports a normal stop for "
            "truncated answers."
        ),
        impact=(
            "Such answers count as complete and are not continued; the truncation rate is too "
            "low by the same number."
        ),
        diagnosis=(
            ("Traces in Tempo: `{ span.endturn.stop.suspected = true }`. Is the text truncated?"),
            "`endturn.stop.raw` of those spans: compare it with the provider's documentation.",
            (
                "The components in between: a gateway, an older server (vLLM, SGLang, Ollama), "
                "an SDK's own mapping."
            ),
        ),
        actions=(
            (
                "Upgrade or bypass the component that rewrites the reason, and report it to its "
                "maintainers."
            ),
            "Meanwhile raise `max_tokens`, so that the limit is not reached.",
        ),
    ),
    fires=(
        Firing(
            title="five such responses arrive",
            series=(sample_series(schema.SUSPECTED_METRIC, "0x200 5x280"),),
            at=timedelta(hours=1),
            labels={
                "job": "shop/agent",
                schema.PROVIDER.label: "openai",
                schema.REQUEST_MODEL.label: "gpt-5",
            },
            value="5",
        ),
    ),
    quiet=(
        Quiet(
            title="fewer arrive, since an answer can have exactly that length",
            series=(sample_series(schema.SUSPECTED_METRIC, "0x200 4x280"),),
            at=timedelta(hours=1),
        ),
    ),
)


ALERTS: Final = (
    RESPONSES_TRUNCATED,
    CONTINUATIONS_EXHAUSTED,
    REPAIRS_FAILING,
    STOP_REASON_UNKNOWN,
    TRUNCATION_SUSPECTED,
)
