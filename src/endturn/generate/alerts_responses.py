"""Alerts about responses, also of applications that only the Collector watches: cut off, nearly so, or unreadable."""

from __future__ import annotations

from endturn.generate import promql, rules
from endturn.generate.config import RuleConfig
from endturn.generate.declare import Alert, Runbook, alert
from endturn.generate.examples import LABELS, MODEL, WHO, after, around, buckets, events, example, series
from endturn.stop import StopReason
from endturn.telemetry import indicators, schema


def truncated(config: RuleConfig) -> Alert:
    """Too many responses are cut off, whether they are continued or not."""
    share, bad = config.truncation, config.truncated
    reasons = StopReason.MAX_TOKENS, StopReason.END_TURN, StopReason.ERROR
    cut, whole, failed = ({schema.REASON.label: reason.value} for reason in reasons)

    def case(truncations: int, ends: int, errors: int = 0) -> dict[str, str]:
        answers = events(schema.RESPONSES, truncations, cut) | events(schema.RESPONSES, ends, whole)
        return answers | events(schema.RESPONSES, errors, failed)

    return alert(
        "EndturnResponsesTruncated",
        dashboard="endturn-stops",
        severity="warning",
        config=config,
        expression=rules.too_high(indicators.TRUNCATION, config, by=MODEL, above=share, bad=bad),
        summary=f"{{{{ $value | humanizePercentage }}}} of the responses of {WHO} are cut off",
        description=f"More than {share:.0%} of the responses in the last {promql.duration(config.window)} ended for "
        f"max_tokens, context_window_exceeded or missing, at least {bad}. Applications without endturn are counted "
        "too, where the Collector reads their spans: whether they finish such answers is not known.",
        runbook=Runbook(
            meaning="Many responses end before the model has said what it had to say.",
            impact="Each costs another call where it is continued, and is half an answer where it is not.",
            look=(
                "The dashboard *Stop reasons*: `max_tokens` is a limit, `context_window_exceeded` a conversation that "
                "has grown too long, `missing` a stream that broke.",
                "Since when? Compare with deployments, changed prompts and changed limits.",
                "*Token budget used*: are the others close to the limit as well?",
            ),
            act=(
                "`max_tokens`: raise it; the dashboard *Model* says what would have sufficed. Or ask for less.",
                "`context_window_exceeded`: shorten the history.",
                "`missing`: look at timeouts of proxies between agent and provider.",
                "An application without endturn: instrument it, and what is cut can be continued.",
            ),
        ),
        fires=example(
            config, "every answer is cut off, beside many errors", case(bad, 0, 100 * bad), labels=LABELS, shows="100%"
        ),
        quiet=example(config, "a smaller share is", case(bad, round(2 * bad / share))),
        also_quiet=(example(config, "all are, but they are too few to tell", case(bad - 1, 0)),),
    )


def nearly_used(config: RuleConfig) -> Alert:
    """Nothing need be cut off yet, but the next longer answer will be."""
    q, limit, enough = config.budget_quantile, config.budget_used, config.budgeted
    under, below, above, beyond = around(schema.BUDGET_USED.buckets, limit)
    part = indicators.Part(count=indicators.BUDGETS_USED)
    return alert(
        "EndturnOutputBudgetNearlyUsed",
        dashboard="endturn-model",
        severity="warning",
        config=config,
        expression=rules.too_far(part, config, by=MODEL, q=q, above=limit, events=enough, window=config.slow),
        summary=f"One in {1 / (1 - q):.3g} responses of {WHO} uses more than {{{{ $value | humanizePercentage }}}} of "
        "its token limit",
        description=f"The {q:g} quantile of output tokens divided by the request's maximum, over "
        f"{promql.duration(config.slow)} and at least {enough} responses, is above {limit:.0%}.",
        runbook=Runbook(
            meaning="Answers come close to the limit that their requests set.",
            impact="None yet. A question that needs a slightly longer answer will be cut off.",
            look=(
                "*Token budget used*: do answers come close, or is most of it already cut off?",
                "The dashboard *Model*: which `max_tokens` would suffice for 99 % of whole answers?",
            ),
            act=(
                "Raise `max_tokens`: what is not used costs nothing with most providers.",
                "Or ask for shorter answers.",
                f"A limit that is meant to cut: raise `alerts.budget_used` ({limit:g}), up to 0.999.",
            ),
        ),
        fires=example(
            config,
            f"{enough} responses use between {above:g} and {beyond:g} of their limit",
            buckets(schema.BUDGET_USED, {above: 0, beyond: enough}),
            labels=LABELS,
            shows=f"{100 * (above + q * (beyond - above)):.4g}%",
        ),
        quiet=example(config, "they use less", buckets(schema.BUDGET_USED, {under: 0, below: enough})),
        also_quiet=(example(config, "too few do", buckets(schema.BUDGET_USED, {above: 0, beyond: enough - 1})),),
    )


def unknown(config: RuleConfig) -> Alert:
    """A provider's vocabulary has drifted."""
    return alert(
        "EndturnStopReasonUnknown",
        dashboard="endturn-stops",
        severity="warning",
        config=config,
        expression=rules.at_least(indicators.UNMAPPED_NUMBER.part, config, by=MODEL, bad=config.unmapped),
        summary=f"{{{{ $value }}}} responses of {WHO} stopped for a reason that endturn does not know",
        description="{{ $labels.gen_ai_provider_name }} sent a stop reason without a row in its table within the last "
        f"{promql.duration(config.window)}. Such a response never counts as a completed turn.",
        runbook=Runbook(
            meaning="A provider's vocabulary has changed, or a proxy in between invents values.",
            impact="Until the value has a row nobody can tell whether such answers are whole; they count as `unknown`.",
            look=(
                "The event `endturn.stop_reason_unmapped` has the raw value, once for each provider, model and value: "
                'in Loki `{service_name=~".+"} | event_name="endturn.stop_reason_unmapped"`.',
                "The provider's documentation and changelog for that value.",
            ),
            act=(
                "Upgrade endturn: the value may have a row by now.",
                "Else report the provider, the API and the raw value, so that it gets one.",
            ),
        ),
        fires=example(
            config,
            "one such response arrives",
            events(schema.UNMAPPED, config.unmapped),
            labels=LABELS,
            shows=f"{config.unmapped}",
        ),
        quiet=example(config, "one arrived long ago", series(schema.UNMAPPED, f"1x{after(config)}")),
    )


def suspected(config: RuleConfig) -> Alert:
    """A clean stop is claimed where the whole budget was used: truncation that hides."""
    return alert(
        "EndturnTruncationsSuspected",
        dashboard="endturn-stops",
        severity="warning",
        config=config,
        expression=rules.at_least(indicators.SUSPECTED_NUMBER.part, config, by=MODEL, bad=config.suspected),
        summary=f"{{{{ $value }}}} responses of {WHO} claim to be whole but used their whole token budget",
        description=f"At least {config.suspected} responses of {{{{ $labels.gen_ai_provider_name }}}} within the last "
        f"{promql.duration(config.window)} claim a clean stop, yet have as many tokens as the request allowed.",
        runbook=Runbook(
            meaning="A server, a proxy or another instrumentation probably reports a clean stop for cut answers.",
            impact="Such answers count as whole and are not continued: the truncation rate is too low by as many.",
            look=(
                "Traces in Tempo: `{ span.endturn.stop.suspected = true }`. Is the text cut?",
                "`endturn.stop.raw` of those spans, against what the provider documents.",
                "What stands in between: a gateway, an older server (vLLM, SGLang, Ollama), an SDK's own mapping.",
            ),
            act=(
                "Upgrade or bypass what rewrites the reason; report it to its makers.",
                "Meanwhile raise `max_tokens`, so that the budget is not reached.",
            ),
        ),
        fires=example(
            config,
            f"{config.suspected} such responses arrive",
            events(schema.SUSPECTED_METRIC, config.suspected),
            labels=LABELS,
            shows=f"{config.suspected}",
        ),
        quiet=example(
            config, "fewer: an answer may be exactly so long", events(schema.SUSPECTED_METRIC, config.suspected - 1)
        ),
    )
