"""Who else tells why a model stopped: where it stands in their spans, whether it can be trusted, what it fills."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

Evidence = Literal["observed", "read", "documented", "seen"]

INFERENCE: Final = (
    *("chat", "generate_content", "text_completion"),  # semantic-conventions-genai, gen-ai-spans
    *("completion", "completions", "chat_completion", "chat.completions", "response", "responses", "messages"),
)
"""The operations, in any case, whose spans stand for one answer of a model: the conventions', and others' words."""

EVIDENCE: Final = {
    "observed": "its telemetry was looked at while it ran",
    "read": "its source was read",
    "documented": "its own documentation says so",
    "seen": "only the recorded telemetry and the code of people who use it were looked at",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """An attribute of a span in which a stop reason stands, besides `gen_ai.response.finish_reasons`.

    Attributes:
        provider: whose reasons these are, where the attribute is one provider's alone.
        span: the only span that it is read from, where its name is too plain to be anybody's.
    """

    attribute: str
    provider: str = ""
    span: str = ""


OPENINFERENCE: Final = Source(attribute="llm.finish_reason")
ANTHROPIC: Final = Source(attribute="anthropic.message.stop_reason", provider="anthropic")
VERCEL: Final = Source(attribute="ai.response.finishReason")
VERCEL_OLD: Final = Source(attribute="ai.finishReason")
TRACELOOP: Final = Source(attribute="gen_ai.completion.0.finish_reason")
TRACELOOP_OLD: Final = Source(attribute="llm.completions.0.finish_reason")
TRACELOOP_SINGLE: Final = Source(attribute="llm.response.finish_reason")
TRACELOOP_STOP: Final = Source(attribute="llm.response.stop_reason")
SINGULAR: Final = Source(attribute="gen_ai.response.finish_reason")
CLAUDE_CODE: Final = Source(attribute="stop_reason", provider="anthropic", span="claude_code.llm_request")

SOURCES: Final = (
    SINGULAR, OPENINFERENCE, ANTHROPIC, VERCEL, VERCEL_OLD, TRACELOOP, TRACELOOP_OLD, TRACELOOP_SINGLE, TRACELOOP_STOP,
    CLAUDE_CODE,
)  # fmt: skip
"""Where a reason is looked for, in this order, after `gen_ai.response.finish_reasons`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitter:
    """One instrumentation, gateway or program.

    Attributes:
        where: what of its telemetry the reason stands in.
        says: which words it uses.
        trust: what to keep in mind.
        fills: whether the Stop reasons dashboard and the truncation rate are filled from its spans.
        evidence: how that is known.
    """

    name: str
    where: str
    says: str
    trust: str
    fills: Literal["yes", "partly", "no"]
    evidence: Evidence


_FINISH: Final = "`gen_ai.response.finish_reasons`"

EMITTERS: Final = (
    Emitter(
        name="endturn",
        where="`endturn.stop.reason`, `endturn.stop.raw` and, in the conventions' words, " + _FINISH,
        says="our words and the provider's, verbatim",
        trust="Counted in the process, where it exports metrics; the Collector then leaves its spans alone.",
        fills="yes",
        evidence="observed",
    ),
    Emitter(
        name="OpenTelemetry genai-openai 1.3b0",
        where=_FINISH,
        says="chat: OpenAI's own; Responses: `stop`, `length`, `content_filter`, `tool_calls`, `error`",
        trust="A stream leaves out a choice without a reason, so that the next one moves up. A stream that is closed "
        "early has no reason. `parse()` of a cut answer makes a failed span without one: read from the error's "
        "class.",
        fills="yes",
        evidence="observed",
    ),
    Emitter(
        name="OpenTelemetry genai-anthropic 1.3b0",
        where=_FINISH,
        says="`stop`, `length`, `tool_call`; `pause_turn`, `refusal`, `model_context_window_exceeded` as they are",
        trust="Anthropic's SDK makes a span of its own besides: two for one call (see below).",
        fills="yes",
        evidence="observed",
    ),
    Emitter(
        name="OpenTelemetry google-genai 1.3b0",
        where=_FINISH,
        says="Google's own in lower case: `max_tokens`, never `length`",
        trust="Does not support google-genai 3: then there are no spans at all.",
        fills="yes",
        evidence="read",
    ),
    Emitter(
        name="OpenTelemetry genai-bedrock 1.3b0",
        where=_FINISH,
        says="`stop`, `length`, `tool_call`, `content_filter`, else the model's own",
        trust="",
        fills="yes",
        evidence="read",
    ),
    Emitter(
        name="OpenTelemetry genai-langchain 1.3b0",
        where=_FINISH,
        says="the provider's own, from whatever key the integration uses; `error` where there is none",
        trust="`error` may be a whole answer of an integration that keeps no reason.",
        fills="partly",
        evidence="read",
    ),
    Emitter(
        name="OpenTelemetry genai-openai-agents 1.3b0",
        where="nowhere: agents, tools and workflows only",
        says="",
        trust="Add an instrumentation of the SDK below it, or endturn.",
        fills="no",
        evidence="read",
    ),
    Emitter(
        name="OpenLLMetry (Traceloop) 0.62",
        where=f"{_FINISH}; older ones `{TRACELOOP.attribute}`, `{TRACELOOP_OLD.attribute}`, "
        f"`{TRACELOOP_SINGLE.attribute}`, `{TRACELOOP_STOP.attribute}`",
        says="the provider's own",
        trust="**Hides truncation**: a cut call of OpenAI's Responses makes no span at all. Its own counter of "
        "finish reasons counts each call twice. An Anthropic stream without text loses its reason.",
        fills="partly",
        evidence="observed",
    ),
    Emitter(
        name="OpenInference (Arize Phoenix)",
        where=f"`{OPENINFERENCE.attribute}`",
        says="the provider's own, one for all choices",
        trust="Came package by package in 2026: older ones tell none. A stream that was cut is reported as OK.",
        fills="yes",
        evidence="read",
    ),
    Emitter(
        name="OpenLIT 1.45",
        where=_FINISH,
        says="the provider's own",
        trust='**Hides truncation** in places: what did not arrive becomes `stop`, `"None"` or an empty text.',
        fills="partly",
        evidence="observed",
    ),
    Emitter(
        name="Logfire 5",
        where=_FINISH + ", in places as the JSON text of a list, which is read too",
        says="the provider's own",
        trust="A stream that is closed early has no reason.",
        fills="yes",
        evidence="observed",
    ),
    Emitter(
        name="Pydantic AI 2",
        where=_FINISH + " of its model spans",
        says="its own words: `stop`, `length`, `content_filter`, `tool_call`, `error`",
        trust="Together with an instrumentation of the SDK below it there are two spans for one call (see below).",
        fills="yes",
        evidence="read",
    ),
    Emitter(
        name="Vercel AI SDK (TypeScript)",
        where=f"{_FINISH}, `{VERCEL.attribute}` of the `….doGenerate` and `….doStream` spans",
        says="its own words: `stop`, `length`, `content-filter`, `tool-calls`, `error`, `other`",
        trust="`other` tells nothing, and a paused or a refused answer may be one. The outer spans repeat the last "
        "reason: not counted.",
        fills="yes",
        evidence="read",
    ),
    Emitter(
        name="Anthropic's SDK itself (from 1.14)",
        where=f"`{ANTHROPIC.attribute}`",
        says="Anthropic's own",
        trust="On by default. Besides another instrumentation it doubles each call (see below).",
        fills="yes",
        evidence="observed",
    ),
    Emitter(
        name="LiteLLM, library and proxy",
        where=f"{_FINISH}, or `{TRACELOOP.attribute}`",
        says="the chat format's words, whatever the provider said",
        trust="**Hides truncation**: says `stop` for what it does not know, for errors and for nothing at all. "
        "Suspected truncations are the only trace of that.",
        fills="partly",
        evidence="documented",
    ),
    Emitter(
        name="agentgateway",
        where="its spans follow the GenAI conventions; a reason among their attributes was not seen",
        says="",
        trust="Its metrics count tokens and durations, no reasons.",
        fills="no",
        evidence="documented",
    ),
    Emitter(
        name="Claude Code",
        where=f"`{CLAUDE_CODE.attribute}` of its `{CLAUDE_CODE.span}` spans (tracing is a beta that is switched on)",
        says="Anthropic's own",
        trust="Its metrics and events carry tokens and cost, no reason.",
        fills="yes",
        evidence="seen",
    ),
    Emitter(
        name="Gemini CLI",
        where=_FINISH + " of its `gen_ai.client.inference.operation.details` log records, not of spans",
        says="Google's own",
        trust="Log records are not counted: other emitters write the same record beside a span.",
        fills="no",
        evidence="seen",
    ),
    Emitter(
        name="Codex",
        where="nowhere: `codex.sse_event` records tell that a response was completed, and its tokens",
        says="",
        trust="",
        fills="no",
        evidence="seen",
    ),
)


def page(mark: str) -> str:
    """The page about them, in Markdown."""
    rows = [
        (each.name, each.where, each.says, each.trust, each.fills, each.evidence)
        for each in sorted(EMITTERS, key=lambda each: each.name != "endturn")
    ]
    blocks = (
        mark,
        "# What others tell",
        "Any agent, in any language, that sends spans to the Collector is counted by its stop reasons there "
        "([collector.md](collector.md)), if its instrumentation tells them. This page says which do.",
        "*Yes* and *partly* mean: the Stop reasons dashboard, the truncation rate, suspected truncations and the "
        "tickets about them are filled, *partly* because the emitter keeps some truncations to itself. Panels about "
        "**turns and continuations need endturn in the process**: no span of others says whether anybody asked for "
        "the rest.",
        _table(("emitter", "where the reason stands", "in which words", "beware", "fills", "evidence"), rows),
        "Evidence: " + "; ".join(f"*{name}*: {says}" for name, says in EVIDENCE.items()) + ". As of November 2026.",
        "## Where the Collector looks",
        "First `endturn.stop.reason`: what has it is left as it is. Then "
        + ", ".join([_FINISH + " (the first position)", *(f"`{each.attribute}`" for each in SOURCES)])
        + ". Where a span names its operation (`gen_ai.operation.name`), it must be a model's answer: "
        + ", ".join(f"`{each}`" for each in INFERENCE)
        + " or one that is fetched again, in any case; spans of agents and workflows repeat the reasons of those below "
        "them. A failed call without any is `error`, unless the class of its error says more "
        "(`LengthFinishReasonError` is `max_tokens`). A call that was not failed and has no reason is not counted: "
        "its emitter tells none.",
        "## Two spans for one call",
        "Where two instrumentations see one call, each makes a span, and the Collector cannot tell that they are of "
        "one call. Switch one off (Anthropic's own: `ANTHROPIC_OPEN_TELEMETRY=false`), or name the instrumentation "
        "scopes that are not to be counted, as a regular expression: "
        "`ENDTURN_UNCOUNTED_SCOPES='^com[.]anthropic[.]sdk'` (a dot in brackets, no backslashes). Spans that endturn "
        "enriched are never counted twice.",
    )
    return "\n\n".join(blocks) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)
