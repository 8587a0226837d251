"""Alerts about the responses of models."""

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
    Component,
    Firing,
    Quiet,
    Runbook,
    Severity,
    label_value,
    opens_tickets,
    percent,
    sample_series,
)
from endturn.generate.queries import SERVICE, denominator
from endturn.telemetry import INDICATORS, Count, schema

HALF_AN_HOUR: Final = timedelta(minutes=30)


def _events(name: str) -> Count:
    return INDICATORS[name].count


def _responses_truncated(settings: AlertSettings) -> Condition:
    limits, truncation = settings.limits, INDICATORS["truncation"]
    return all_of(
        ShareAbove(
            part=truncation.count,
            total=denominator(truncation),
            over=HALF_AN_HOUR,
            share=limits.truncated,
            phrase="of responses truncated",
        ),
        CountAtLeast(
            count=truncation.count,
            over=HALF_AN_HOUR,
            number=limits.truncations,
            noun=("truncated response", "truncated responses"),
        ),
    )


def _stop_reason_unknown(settings: AlertSettings) -> Condition:
    return CountAtLeast(
        count=_events("unknown"),
        over=HALF_AN_HOUR,
        number=settings.limits.unknown,
        noun=("response with an unknown stop reason", "responses with an unknown stop reason"),
        by=SERVICE_AND_MODEL,
    )


def _truncation_suspected(settings: AlertSettings) -> Condition:
    return CountAtLeast(
        count=_events("suspected"),
        over=HALF_AN_HOUR,
        number=settings.limits.suspected,
        noun=("suspected truncation", "suspected truncations"),
        by=SERVICE_AND_MODEL,
    )


RESPONSES_TRUNCATED: Final = Alert(
    name="EndturnResponsesTruncated",
    severity=Severity.WARNING,
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=_responses_truncated,
    hold=timedelta(minutes=15),
    keep_firing=timedelta(days=1),
    dashboard="endturn-stops",
    dashboard_labels=SERVICE,
    summary=f"{PERCENT} of the responses to {SERVICE_NAME} are truncated",
    description=lambda settings: (
        f"More than {percent(settings.limits.truncated)} of the recent responses ended with "
        "max_tokens, context_window_exceeded or missing, whether they were continued or not. At "
        f"least {settings.limits.truncations} of the last half hour did. Applications without "
        "endturn are included if the Collector reads their spans."
    ),
    fires_when=lambda settings: (
        f"more than {percent(settings.limits.truncated)} of a service's responses of 30 minutes "
        f"are truncated, continued or not, with at least {settings.limits.truncations} "
        "truncated responses; also for applications that only the Collector observes"
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
        recovery=(
            "*Truncation rate by model* falls below its limit within half an hour of the change."
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


STOP_REASON_UNKNOWN: Final = Alert(
    name="EndturnStopReasonUnknown",
    severity=Severity.WARNING,
    component=Component.SERVICE,
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
        "In the last half hour a provider sent a stop reason that is not in its table. Such a "
        "response never counts as a completed turn."
    ),
    fires_when=lambda settings: (
        f"{settings.limits.unknown} responses in 30 minutes have a stop reason that is in no table"
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
        recovery="*Responses by stop reason* shows no new `unknown` for half an hour of traffic.",
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
    component=Component.SERVICE,
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
        "Responses of one model report a normal stop, yet have as many tokens as the request "
        f"allowed. At least {settings.limits.suspected} of the last half hour do."
    ),
    fires_when=lambda settings: (
        f"{settings.limits.suspected} responses in 30 minutes report a normal stop but used "
        "their entire token limit"
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
        recovery="*Suspected truncations* shows no new ones for half an hour of traffic.",
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


ALERTS: Final = (RESPONSES_TRUNCATED, STOP_REASON_UNKNOWN, TRUNCATION_SUSPECTED)
