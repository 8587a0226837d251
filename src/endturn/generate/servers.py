"""What model servers and gateways count themselves, where Prometheus scrapes them: a second opinion."""

from __future__ import annotations

from endturn.generate import panels, promql
from endturn.generate.layout import Section
from endturn.generate.panels import About, Query
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import timeseries
from endturn.telemetry.indicators import TRUNCATION

VLLM, SGLANG, SGLANG_ABORTED = (
    "vllm:request_success_total",
    "sglang:num_requests_total",
    "sglang:num_aborted_requests_total",
)
LITELLM, LITELLM_FAILED = "litellm_deployment_total_requests_total", "litellm_deployment_failure_responses_total"
AGENTGATEWAY = "agentgateway_gen_ai_client_token_usage_sum"
WORDS = {"stop": "green", "length": "orange", "abort": "#8e8e8e", "error": "dark-red", "repetition": "yellow"}
"""vLLM's own words for why it stopped, in the colours of our reasons."""


def section(id_: int, config: RuleConfig) -> Section:
    """Four panels, folded: most have no such server, or do not scrape it."""
    reasons = About(
        id=id_ + 1,
        title="vLLM, requests by finished reason",
        question="Why did the server stop?",
        formula="vLLM's own count of finished requests, per minute",
        advice="`length` is a truncation, whatever became of it on its way to the agent. More of it here than above: "
        "somebody between hides it, or is not instrumented.",
        unit="short",
        needs="scraped",
        empty="no vLLM is scraped",
    )
    share = About(
        id=id_ + 2,
        title="vLLM, truncation rate",
        question="How many responses does the server itself cut off?",
        formula="requests with finished_reason length ÷ all finished requests, by served model",
        advice="Compare with the truncation rate above, which is what agents saw.",
        unit="percentunit",
        needs="scraped",
        empty="no vLLM is scraped",
    )
    sglang = About(
        id=id_ + 3,
        title="SGLang, requests and aborted ones",
        question="How much does the server do, and how much of it in vain?",
        formula="SGLang's own counts, per minute; it does not count by finish reason",
        advice="Aborted requests are clients that went away: streams that nobody read to their end.",
        unit="short",
        needs="scraped",
        empty="no SGLang is scraped",
    )
    gateways = About(
        id=id_ + 4,
        title="Gateways, requests and failures",
        question="What do gateways pass on?",
        formula="LiteLLM's requests and failed responses per minute, and agentgateway's tokens per minute; neither "
        "counts by finish reason",
        advice="A gateway that shows traffic where nothing stands above it has agents that are not instrumented.",
        unit="short",
        needs="scraped",
        empty="no gateway is scraped",
    )
    every = f"sum by (model_name) ({_rate(VLLM)})"
    cut = f"sum by (model_name) ({_rate(VLLM, finished_reason='length')})"
    limits = TRUNCATION.thresholds
    return Section(
        id_,
        "What do servers and gateways count themselves?",
        (
            (
                8,
                (
                    (
                        panels.lines(
                            reasons,
                            [Query(f"60 * sum by (finished_reason) ({_rate(VLLM)})", "{{finished_reason}}")],
                            colours=WORDS,
                        ),
                        12,
                    ),
                    (
                        panels.lines(
                            share,
                            [Query(f"({cut} or {every} * 0) / ({every} > 0)", "{{model_name}}")],
                            limits=limits,
                            soft_max=2 * limits.act,
                        ),
                        12,
                    ),
                ),
            ),
            (8, ((_sglang(sglang), 12), (_gateways(gateways), 12))),
        ),
        folded=True,
    )


def _rate(name: str, **matchers: str) -> str:
    return f"rate({promql.foreign(name, **matchers)}[$__rate_interval])"


def _sglang(says: About) -> timeseries.Panel:
    queries = [
        Query(f"60 * sum by (model_name) ({_rate(SGLANG)})", "{{model_name}}"),
        Query(f"60 * sum by (model_name) ({_rate(SGLANG_ABORTED)})", "{{model_name}}, aborted"),
    ]
    return panels.lines(says, queries)


def _gateways(says: About) -> timeseries.Panel:
    queries = [
        Query(f"60 * sum by (litellm_model_name) ({_rate(LITELLM)})", "LiteLLM · {{litellm_model_name}}"),
        Query(
            f"60 * sum by (litellm_model_name) ({_rate(LITELLM_FAILED)})", "LiteLLM · {{litellm_model_name}}, failed"
        ),
        Query(
            f"60 * sum by (gen_ai_request_model) ({_rate(AGENTGATEWAY)})",
            "agentgateway · {{gen_ai_request_model}}, tokens",
        ),
    ]
    return panels.lines(says, queries)
