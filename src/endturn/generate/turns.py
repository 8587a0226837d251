"""Turns: which answers were cut off, one by one, as traces and as events."""

from __future__ import annotations

from endturn.generate import queries, shown, stops, tables
from endturn.generate.layout import Section
from endturn.generate.panels import About, Link
from endturn.generate.queries import TRACE
from endturn.generate.rules import RuleConfig
from endturn.generate.sdk import dashboard, logs, table
from endturn.telemetry import indicators

_CHOICE = "&".join(
    f"${{{name}:queryparam}}"
    for name in ("prometheus_datasource", "tempo_datasource", "loki_datasource", "job", "provider", "model")
)
OPEN = Link("Show it below", f"/d/{shown.TURNS_BOARD}?var-{TRACE}=${{__value.raw}}&{_CHOICE}&${{__url_time_range}}")
HERE = "Click a trace's id to see it in the last row, with its events beside it."


def sections(config: RuleConfig) -> list[Section]:
    """All of them, from the top."""
    when = (
        (shown.per_step(stops.CUT, 11, config, title="Truncated responses, by model"), 12),
        (shown.by_model(indicators.NOT_CONTINUED, 12, config, empty="nothing truncated"), 12),
    )
    found = (
        (
            _found(
                21,
                "Truncated responses",
                "Which calls were cut off?",
                "spans of calls whose response was truncated, of the chosen services, providers and models",
                queries.TRUNCATED_RESPONSES,
            ),
            12,
        ),
        (
            _found(
                22,
                "Unfinished turns",
                "Which turns were handed over unfinished?",
                "turn spans that were truncated and are not complete, of the chosen services. A turn that was "
                "recognised and not declared has no span of its own: look left",
                queries.UNFINISHED_TURNS,
            ),
            12,
        ),
    )
    continued = _found(
        31,
        "Continuations",
        "Which calls asked for the rest of an answer?",
        "spans of calls that continue another, of the chosen services, providers and models",
        queries.CONTINUATIONS,
    )
    attempted = _events(
        32,
        "Continuation attempts",
        "What was asked for, and what was left of the budget?",
        "one event for each continuation: its number, its strategy, and how many attempts remain",
        "No attempts remain, and the turn is unfinished: the policy's limit is too low, or max_tokens is.",
        queries.ATTEMPTED,
    )
    ended = _events(
        41,
        "How truncated turns ended",
        "What became of each of them?",
        "one event for each turn that was truncated: outcome, attempts, output tokens and the turn's id",
        "Open a line for everything the event holds, and for the link to its trace.",
        queries.ENDED,
    )
    tools = _events(
        42,
        "Cut tool payloads",
        "Which tool calls were cut, and were they mended?",
        "events of repairs and of calls that were not run",
        "A tool that appears again and again takes more than fits: split it, or raise max_tokens.",
        queries.TOOLS,
    )
    unmapped = _events(
        51,
        "Stop reasons without a row",
        "What did a provider say that nobody knows?",
        "one event for each provider, model and raw value that is new",
        "The raw value needs a row in the provider's table. Until then such a turn counts as not completed.",
        queries.UNMAPPED,
    )
    return [
        Section(10, "When were answers cut off?", ((7, when),)),
        Section(20, "Which were they?", ((10, found),)),
        Section(30, "How were they continued?", ((9, ((continued, 12), (attempted, 12))),)),
        Section(40, "How did they end?", ((9, ((ended, 12), (tools, 12))),)),
        Section(50, "Is a value new?", ((6, ((unmapped, 24),)),)),
        Section(60, "One trace", ((14, ((_trace(61), 16), (_events_of_trace(62), 8))),)),
    ]


def _found(id_: int, title: str, question: str, formula: str, search: queries.Search) -> table.Panel:
    says = About(
        id=id_, title=title, question=question, formula=formula, advice=HERE, unit="none", needs="spans",
        empty="none in Tempo",
    )  # fmt: skip
    return tables.traces(says, search.text, OPEN)


def _events(id_: int, title: str, question: str, formula: str, advice: str, search: queries.Search) -> logs.Panel:
    says = About(
        id=id_, title=title, question=question, formula=formula, advice=advice, unit="none", needs="events",
        empty="none in Loki",
    )  # fmt: skip
    return tables.lines_of_log(says, search.text)


def _trace(id_: int) -> dashboard.Panel:
    says = About(
        id=id_,
        title="The trace",
        question="What happened in this one?",
        formula="the trace whose id was clicked above",
        advice="A continuation is linked to the call that it continues. Nothing here: choose a trace above.",
        unit="none",
        needs="spans",
    )
    return tables.one_trace(says, queries.ONE_TRACE.text)


def _events_of_trace(id_: int) -> logs.Panel:
    return _events(
        id_,
        "Its events",
        "What was said meanwhile?",
        "every event that carries this trace's id",
        "Nothing here: choose a trace above.",
        queries.OF_TRACE,
    )
