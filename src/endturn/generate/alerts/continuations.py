"""Alerts about continuations and repairs that do not finish a turn."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate.alerts.conditions import Condition, CountAtLeast, ShareAbove, all_of
from endturn.generate.alerts.model import (
    COUNT,
    PERCENT,
    SERVICE_NAME,
    Alert,
    AlertSettings,
    Component,
    Firing,
    Quiet,
    Runbook,
    Severity,
    opens_tickets,
    percent,
    sample_series,
)
from endturn.generate.queries import SERVICE, denominator
from endturn.telemetry import INDICATORS, schema

HALF_AN_HOUR: Final = timedelta(minutes=30)


def _continuations_exhausted(settings: AlertSettings) -> Condition:
    return CountAtLeast(
        count=INDICATORS["given_up"].count,
        over=HALF_AN_HOUR,
        number=settings.limits.exhausted,
        noun=("turn at a limit of its policy", "turns at a limit of their policy"),
    )


def _repairs_failing(settings: AlertSettings) -> Condition:
    limits, repairs = settings.limits, INDICATORS["repair_failure"]
    return all_of(
        ShareAbove(
            part=repairs.count,
            total=denominator(repairs),
            over=HALF_AN_HOUR,
            share=limits.repair_failure,
            phrase="of tool call repairs failed",
        ),
        CountAtLeast(
            count=repairs.count,
            over=HALF_AN_HOUR,
            number=limits.failed_repairs,
            noun=("failed repair", "failed repairs"),
        ),
    )


CONTINUATIONS_EXHAUSTED: Final = Alert(
    name="EndturnContinuationsExhausted",
    severity=Severity.WARNING,
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=_continuations_exhausted,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-continuations",
    dashboard_labels=SERVICE,
    summary=f"{COUNT} truncated turns of {SERVICE_NAME} were continued and still not finished",
    description=lambda _: (
        "In the last half hour continuations ended at the policy's retry limit, resume limit or "
        "one of its budgets (tokens, characters, cost, deadline)."
    ),
    fires_when=lambda settings: (
        f"{settings.limits.exhausted} turns in 30 minutes were continued up to a limit of their "
        "policy and stayed unfinished"
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
        recovery=(
            "*Unfinished turns by outcome* shows no new `retry_limit`, `resume_limit` or budget "
            "for half an hour."
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
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=_repairs_failing,
    keep_firing=timedelta(minutes=15),
    dashboard="endturn-continuations",
    dashboard_labels=SERVICE,
    summary=f"{PERCENT} of the tool payload repairs of {SERVICE_NAME} fail",
    description=lambda settings: (
        "Truncated tool payloads were requested again. More than "
        f"{percent(settings.limits.repair_failure)} of the new payloads were incomplete, too. In "
        f"the last half hour at least {settings.limits.failed_repairs} tools were not run for "
        "that reason."
    ),
    fires_when=lambda settings: (
        f"more than {percent(settings.limits.repair_failure)} of the repairs of truncated tool "
        f"calls of 30 minutes fail, with at least {settings.limits.failed_repairs} failures"
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
        recovery=(
            "*Tool payload repairs* shows new repairs that succeed. Without new repairs nothing "
            "is proven: let the agent call the tool that failed."
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


ALERTS: Final = (CONTINUATIONS_EXHAUSTED, REPAIRS_FAILING)
