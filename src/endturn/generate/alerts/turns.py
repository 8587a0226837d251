"""Alerts about turns that end unfinished."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from endturn.generate.alerts.model import (
    PERCENT,
    SERVICE_NAME,
    Alert,
    Component,
    Firing,
    Quiet,
    Runbook,
    SampleSeries,
    Severity,
    opens_tickets,
    pages,
    percent,
    sample_series,
)
from endturn.generate.alerts.turn_conditions import (
    budget_burning,
    truncated_not_continued,
    turns_unfinished,
)
from endturn.generate.config import FAST, FAST_TICKET, SLOW, TICKET
from endturn.generate.queries import SERVICE
from endturn.telemetry import schema

DIAGNOSE_UNFINISHED_TURNS: Final = (
    (
        "The dashboard *Overview*: which service and model, and since when? "
        "*Continuations*, *Unfinished turns by outcome*: `not_continued` is a loop that "
        "treats a truncated answer as complete, or runs a truncated tool call and "
        "continues; `retry_limit` or a budget is a policy that continued, and gave up; "
        "`stream_cut` is a stream that lost its connection."
    ),
    (
        "*Responses by stop reason* for the same model: did `max_tokens` or `missing` "
        "jump, and when? Compare with deployments, changed prompts and changed limits."
    ),
    (
        "Traces in Tempo: `{ span.endturn.stop.truncated = true }`; events in Loki: "
        '`{service_name=~".+"} | event_name="endturn.continuation_terminated"`.'
    ),
    (
        "Did it begin with an upgrade of endturn from a version in which each call was a "
        "turn? The share of an agent with tool loops is now higher by its calls per "
        "turn, and correct; `docs/operations.md` says how to handle windows that mix "
        "both."
    ),
)


def _turns(
    values: str, outcome: str, *, truncated: bool = False, instance: str = ""
) -> SampleSeries:
    labels = {"instance": instance} if instance else {}
    labels |= {schema.TRUNCATED.label: "true"} if truncated else {}
    return sample_series(schema.TURNS, values, labels | {schema.OUTCOME.label: outcome})


def _exits(values: str, outcome: str, *, instance: str = "") -> SampleSeries:
    labels = {"instance": instance} if instance else {}
    labels[schema.OUTCOME.label] = outcome
    return sample_series(schema.TRUNCATION_EXITS, values, labels)


def _continuations(values: str) -> SampleSeries:
    return sample_series(schema.CONTINUATIONS_METRIC, values, {schema.STRATEGY.label: "prompt"})


TURNS_UNFINISHED: Final = Alert(
    name="EndturnTurnsUnfinished",
    severity=Severity.CRITICAL,
    component=Component.SERVICE,
    enabled=pages,
    condition=turns_unfinished,
    hold=timedelta(minutes=2),
    keep_firing=timedelta(minutes=5),
    dashboard="endturn-overview",
    dashboard_labels=SERVICE,
    summary=f"{PERCENT} of the turns of {SERVICE_NAME} ended unfinished",
    description=lambda settings: (
        f"The objective is that {percent(settings.limits.objective)} of turns finish. At this "
        "rate its error budget is gone in a sixth of its period, or sooner. At least "
        f"{settings.limits.unfinished} turns ended with a truncated answer. Cancelled turns are "
        "not counted."
    ),
    fires_when=lambda settings: (
        f"unfinished turns consume the error budget {FAST} times faster than allowed over 1 h "
        f"and 15 m, or {SLOW} times faster over 6 h and 30 m, with at least "
        f"{settings.limits.unfinished} unfinished turns"
    ),
    runbook=Runbook(
        meaning=(
            "Too many turns of a service ended unfinished: a response was truncated, and it was "
            "never continued, or the continuations did not finish it. A turn is a user's "
            "question with all its calls."
        ),
        impact="Users, or programs, received truncated answers as if they were complete.",
        diagnosis=DIAGNOSE_UNFINISHED_TURNS,
        actions=(
            (
                "`not_continued`: let `ContinuationController` run the turn, or continue in your "
                "own loop if `response.stop.truncated` is true."
            ),
            (
                "A limit: raise `max_tokens` of the request first (each continuation costs its "
                "prompt again), then the policy's `continuation_max_attempts` or budget."
            ),
            "`stream_cut`: check timeouts of proxies between agent and provider.",
            (
                "The service is only observed, and should not page: set `page = false` under "
                '`[services."its job"]` of the configuration.'
            ),
        ),
        recovery=(
            "*Unfinished turns by outcome* shows no new bars for half an hour. The error budget "
            "that is gone comes back only as the period of the objective moves on."
        ),
    ),
    fires=(
        Firing(
            title="two turns of five end unfinished",
            series=(
                _turns("0+5x480", "completed"),
                _exits("0+2x480", "not_continued"),
            ),
            at=timedelta(hours=1, minutes=30),
            value="40%",
        ),
        Firing(
            title="fewer turns do, but for hours",
            series=(
                _turns("0+50x1600", "completed"),
                _exits("0+3x1600", "not_continued"),
            ),
            at=timedelta(hours=6, minutes=30),
            value="6%",
        ),
        Firing(
            title="a job left two turns of five unfinished, and ended 25 minutes ago",
            series=(
                _turns("0+5x40 200x400", "completed"),
                _exits("0+2x40 80x400", "not_continued"),
            ),
            at=timedelta(minutes=35),
            value="40%",
        ),
    ),
    quiet=(
        Quiet(
            title="the job ended 45 minutes ago",
            series=(
                _turns("0+5x40 200x400", "completed"),
                _exits("0+2x40 80x400", "not_continued"),
            ),
            at=timedelta(minutes=55),
        ),
        Quiet(
            title="all turns end unfinished, but there are only nine",
            series=(
                _turns("0x200 9x280", "not_continued"),
                _exits("0x200 9x280", "not_continued"),
            ),
            at=timedelta(hours=1, minutes=20),
        ),
        Quiet(
            title="many turns end unfinished, but they are a small share",
            series=(
                _turns("0+1000x480", "completed"),
                _exits("0+2x480", "not_continued"),
            ),
            at=timedelta(hours=1, minutes=30),
        ),
        Quiet(
            title="all turns were cancelled",
            series=(
                _turns("0+5x480", "cancelled"),
                _exits("0+5x480", "cancelled"),
            ),
            at=timedelta(hours=1, minutes=30),
        ),
        Quiet(
            title="the problem ended an hour ago",
            series=(
                _turns("0+5x1440", "completed"),
                _exits("_x479 0 2+2x239 480x720", "not_continued"),
            ),
            at=timedelta(hours=3, minutes=55),
        ),
        Quiet(
            title="an id is used again, and all turns finish",
            series=(
                _turns("1000x479 0+1x480", "completed"),
                _exits("900x479 0x480", "not_continued"),
            ),
            at=timedelta(hours=2, minutes=5),
        ),
    ),
)


BUDGET_BURNING: Final = Alert(
    name="EndturnBudgetBurning",
    severity=Severity.WARNING,
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=budget_burning,
    hold=timedelta(minutes=15),
    keep_firing=timedelta(days=1),  # near the limit its condition alternates
    dashboard="endturn-overview",
    dashboard_labels=SERVICE,
    summary=f"{PERCENT} of the turns of {SERVICE_NAME} end unfinished",
    description=lambda settings: (
        f"The objective is that {percent(settings.limits.objective)} of turns finish. At this "
        "rate its error budget is gone in half of its period, or sooner. At least "
        f"{settings.limits.unfinished} turns ended with a truncated answer. Cancelled turns are "
        "not counted."
    ),
    fires_when=lambda settings: (
        f"unfinished turns consume the error budget {FAST_TICKET} times faster than allowed "
        f"over 1 h and 15 m, or {TICKET} times faster over 3 d and 6 h, with at least "
        f"{settings.limits.unfinished} unfinished turns"
    ),
    runbook=Runbook(
        meaning=(
            "More turns end unfinished than the objective allows: fast for an hour, or slowly for "
            "days."
        ),
        impact=(
            "Some users receive truncated answers. It does not end by itself, and pages if the "
            "budget goes faster."
        ),
        diagnosis=DIAGNOSE_UNFINISHED_TURNS,
        actions=(
            "The steps of EndturnTurnsUnfinished, in working hours.",
            "If this rate is acceptable, set the `objective` of this service accordingly.",
        ),
        recovery=(
            "*Unfinished turns by outcome* shows fewer bars than before the change, for at least "
            "an hour."
        ),
    ),
    fires=(
        Firing(
            title="one turn in fifty ends unfinished, all day",
            series=(
                _turns("0+50x420", "completed"),
                _exits("0+1x420", "not_continued"),
            ),
            at=timedelta(hours=7),
            interval=timedelta(minutes=1),
            value="2%",
        ),
        Firing(
            title="a deploy an hour ago truncates one turn in twenty",
            interval=timedelta(minutes=1),
            series=(
                _turns("0+100x420", "not_continued"),
                _exits("0x340 0+5x80", "not_continued"),
            ),
            at=timedelta(hours=6, minutes=55),
            value="5%",
        ),
    ),
    quiet=(
        Quiet(
            title="one turn in four hundred does",
            series=(
                _turns("0+400x420", "completed"),
                _exits("0+1x420", "not_continued"),
            ),
            at=timedelta(hours=7),
            interval=timedelta(minutes=1),
        ),
    ),
)


TRUNCATED_NOT_CONTINUED: Final = Alert(
    name="EndturnTruncatedNotContinued",
    severity=Severity.WARNING,
    component=Component.SERVICE,
    enabled=opens_tickets,
    condition=truncated_not_continued,
    hold=timedelta(minutes=15),
    keep_firing=timedelta(days=1),
    dashboard="endturn-continuations",
    dashboard_labels=SERVICE,
    summary=f"{PERCENT} of the truncated turns of {SERVICE_NAME} are unfinished",
    description=lambda settings: (
        "This service finished truncated turns within the last day. In the last six hours more "
        f"than {percent(settings.limits.not_continued)} of its truncated turns ended unfinished. "
        f"At least {settings.limits.unfinished} turns did."
    ),
    fires_when=lambda settings: (
        "a service that continued truncated responses within the last day leaves more than "
        f"{percent(settings.limits.not_continued)} of its truncated turns of 6 h unfinished, "
        f"with at least {settings.limits.unfinished} unfinished turns"
    ),
    runbook=Runbook(
        meaning=(
            "Too many truncated turns ended unfinished, in a service that finished others within "
            "the last day."
        ),
        impact=(
            "Continuation works for some requests and not for others; the users of the others "
            "received truncated answers."
        ),
        diagnosis=DIAGNOSE_UNFINISHED_TURNS,
        actions=(
            (
                "The steps of EndturnTurnsUnfinished for `not_continued`, for limits and for "
                "`stream_cut`."
            ),
        ),
        recovery=(
            "*Truncation without continuation, trend* falls. The condition looks back on six hours."
        ),
    ),
    fires=(
        Firing(
            title="half of the truncated turns stay unfinished, in a service that continues",
            series=(
                _turns("0+2x480", "completed", truncated=True),
                _exits("0+1x480", "retry_limit"),
                _continuations("0+1x480"),
            ),
            at=timedelta(hours=7),
            interval=timedelta(minutes=1),
            value="50%",
        ),
        Firing(
            title="a service continued until a new version stopped doing so",
            series=(
                _turns("0+1x300", "completed", truncated=True),
                _continuations("0+1x300"),
                _turns("_x300 0+1x400", "not_continued", truncated=True, instance="two"),
                _exits("_x300 0+1x400", "not_continued", instance="two"),
            ),
            at=timedelta(hours=11, minutes=30),
            interval=timedelta(minutes=1),
            value="100%",
        ),
    ),
    quiet=(
        Quiet(
            title="the service never continues, and is only observed",
            series=(
                _turns("0+2x480", "not_continued", truncated=True),
                _exits("0+2x480", "not_continued"),
            ),
            at=timedelta(hours=7),
            interval=timedelta(minutes=1),
        ),
        Quiet(
            title="it finished a single turn, more than a day before",
            series=(
                _turns("0x1500 0+2x100", "not_continued", truncated=True),
                _exits("0x1500 0+2x100", "not_continued"),
                _turns("0 1x1600", "completed", truncated=True),
                _continuations("0 1x1600"),
            ),
            at=timedelta(hours=26, minutes=20),
            interval=timedelta(minutes=1),
        ),
        Quiet(
            title="one truncated turn in ten stays unfinished",
            series=(
                _turns("0+10x480", "completed", truncated=True),
                _exits("0+1x480", "retry_limit"),
                _continuations("0+9x480"),
            ),
            at=timedelta(hours=7),
            interval=timedelta(minutes=1),
        ),
    ),
)


ALERTS: Final = (
    TURNS_UNFINISHED,
    BUDGET_BURNING,
    TRUNCATED_NOT_CONTINUED,
)
