"""What a page shows and has stored after some exports: cases of test_told.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from endturn.telemetry import schema
from tests.ui.support import SECOND, counted, log, span, span_of_others

Attributes = Mapping[str, Any]
OUR_ATTRIBUTES = {attribute.key for attribute in schema.ATTRIBUTES}


@dataclass(frozen=True, kw_only=True)
class Export:
    """A request of OTLP, sent so often.

    Attributes:
        signal: traces, logs or metrics.
        at: when it began, in seconds from now. None: a second apart, the last export a second ago.
        body: its body, from its number in the case, from now in nanoseconds and from its time in nanoseconds.
    """

    signal: str
    body: Callable[[int, int, int], dict[str, Any]]
    at: float | None = None
    again: int = 1


def our_span(
    attributes: Attributes | None = None,
    *,
    at: float | None = None,
    link: int | None = None,
    resource: Attributes | None = None,
    again: int = 1,
) -> Export:
    """Return a call's span with these attributes added to those of `span()`; `link`: the number of the linked one."""
    ours = {name for name in attributes or {} if name.startswith("endturn.")}
    assert ours <= OUR_ATTRIBUTES
    more: dict[str, Any] = {"links": [f"{link:016x}"]} if link is not None else {}
    more |= {"resource": resource} if resource is not None else {}
    return Export(
        signal="traces",
        body=lambda number, now, start: span(
            attributes=attributes or {}, spanId=f"{number:016x}", start_ns=start, **more
        ),
        at=at,
        again=again,
    )


def span_of_another(attributes: Attributes, *, scope: str = "another", at: float | None = None) -> Export:
    """Return a span of another instrumentation, with these attributes alone."""
    return Export(
        signal="traces",
        body=lambda number, now, start: span_of_others(attributes, scope, spanId=f"{number:016x}", start_ns=start),
        at=at,
    )


def event(name: str, attributes: Attributes | None = None, *, at: float | None = None) -> Export:
    """Return a log event."""
    assert {name for name in attributes or {} if name.startswith("endturn.")} <= OUR_ATTRIBUTES
    return Export(
        signal="logs",
        body=lambda number, now, start: log(name, timeUnixNano=str(start), **(attributes or {})),
        at=at,
    )


def counter(
    *points: tuple[int, int, int],
    delta: bool | None = None,
    flags: int | None = None,
    resource: Attributes | None = None,
    again: int = 1,
) -> Export:
    """Return points of the turns' counter: since and when, in seconds from now, and how many."""
    options = {"delta": delta, "flags": flags, "resource": resource}
    more: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    return Export(
        signal="metrics",
        body=lambda number, now, start: counted(
            *((now + since * SECOND, now + when * SECOND, value) for since, when, value in points), **more
        ),
        again=again,
    )


def requests(exports: Sequence[Export]) -> list[tuple[str, dict[str, Any]]]:
    """Return each export as a request, as of now: its signal and its body."""
    now, made = time.time_ns(), []
    for number, export in enumerate(exports, 1):
        offset = number - len(exports) - 1 if export.at is None else export.at
        body = export.body(number, now, now + int(offset * SECOND))
        made += [(export.signal, body)] * export.again
    return made


@dataclass(frozen=True, kw_only=True)
class Page:
    """What is on a page: texts, texts in this order, and texts that are not there."""

    has: Sequence[str] = ()
    order: Sequence[str] = ()
    lacks: Sequence[str] = ()
    status: int = 200


@dataclass(frozen=True, kw_only=True)
class Case:
    """Exports, and what follows.

    Attributes:
        pages: pages by their path; turn_page: that of the one turn.
        spans, turns, events: some of the columns of each row of a table.
        total: what the turns' counter grew by.
    """

    exports: Sequence[Export] = ()
    pages: Mapping[str, Page] = field(default_factory=dict)
    turn_page: Page | None = None
    spans: Sequence[Attributes] | None = None
    turns: Sequence[Attributes] | None = None
    events: Sequence[Attributes] | None = None
    total: int | None = None


WEATHER_CALL = {"type": "tool_call", "name": "weather", "arguments": {}}
CUT = {"endturn.stop.reason": "max_tokens", "endturn.stop.raw": "length", "endturn.stop.truncated": True}
"""Attributes of a call that hit its limit."""
NOT_CONTINUED = event("endturn.continuation_terminated", {"endturn.turn.outcome": "not_continued"})
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}
KNOWN_CALL = {
    "operation": "chat",
    "provider": "openai",
    "model": "gpt-5",
    "max_tokens": 8,
    "input_tokens": 5,
    "output_tokens": 8,
    "reason": "max_tokens",
    "raw": "length",
    "truncated": True,
}

CASES: dict[str, Case] = {
    # --- Turns, in words
    "without recorded words the seam says how to record them": Case(
        exports=[our_span(CUT), our_span({"endturn.continuation.index": 1})],
        turn_page=Page(has=["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"], lacks=['class="stitch"']),
    ),
    "cut within a tool call": Case(
        exports=[
            our_span(
                {
                    **CUT,
                    "gen_ai.request.max_tokens": 8,
                    "gen_ai.usage.output_tokens": 8,
                    "gen_ai.output.messages": json.dumps([{"parts": [WEATHER_CALL]}]),
                }
            ),
            NOT_CONTINUED,
        ],
        turn_page=Page(has=["reached its limit of 8 tokens within a tool call, and nothing asked"]),
    ),
    "cut before its limit": Case(
        exports=[our_span({**CUT, "gen_ai.request.max_tokens": 8, "gen_ai.usage.output_tokens": 6}), NOT_CONTINUED],
        turn_page=Page(has=["broke off after 6 of at most 8 tokens", "max_tokens is not the cause"]),
    ),
    "cut, of unknown limit": Case(
        exports=[our_span(CUT), NOT_CONTINUED],
        turn_page=Page(has=["and nothing asked for the rest"]),
    ),
    "cut again": Case(
        exports=[our_span(CUT), our_span({**CUT, "endturn.continuation.index": 1}), NOT_CONTINUED],
        turn_page=Page(has=["asked for the rest once; the last piece"]),
    ),
    "cut, and the tool was run all the same": Case(
        exports=[our_span(CUT), our_span(), NOT_CONTINUED],
        turn_page=Page(
            has=["and nothing asked for the rest", "the agent went on without it", "inferred from its calls"]
        ),
        turns=[{"state": "unfinished"}],
    ),
    ("a whole answer that does not continue a cut one finishes nothing, so that the end has to be told"): Case(
        exports=[our_span(CUT), our_span()],
        turns=[{"state": "open"}],
    ),
    "nor has it for ever": Case(
        exports=[our_span(CUT, at=-900), our_span(at=-899)],
        turns=[{"state": "unfinished"}],
    ),
    "one that continues it finishes it": Case(
        exports=[our_span(CUT), our_span({"endturn.continuation.index": 1})],
        turns=[{"state": "finished"}],
    ),
    "the model asked for tools": Case(
        exports=[our_span({"endturn.stop.reason": "tool_call", "endturn.stop.raw": "tool_calls"})],
        turn_page=Page(has=["The model asked for tools"]),
    ),
    "finished after an attempt that failed": Case(
        exports=[our_span({"endturn.stop.reason": "error", "error.type": "500"}), our_span()],
        turn_page=Page(has=["The model finished"]),
    ),
    (
        "a retry replaces the attempt that failed alone, and what had been cut off before it "
        "is still a part of the answer"
    ): Case(
        exports=[
            our_span({**CUT, "gen_ai.usage.output_tokens": 3, "gen_ai.request.max_tokens": 3}),
            our_span({"endturn.stop.reason": "error", "error.type": "500", "endturn.continuation.index": 1}, link=1),
            event(
                "endturn.continuation_attempt",
                {"endturn.continuation.index": 1, "endturn.continuation.strategy": "prompt"},
            ),
            our_span({"gen_ai.usage.output_tokens": 5, "endturn.continuation.index": 2}, link=1),
            event(
                "endturn.continuation_attempt",
                {"endturn.continuation.index": 2, "endturn.continuation.strategy": "retry"},
            ),
        ],
        turn_page=Page(
            has=["the whole answer has 8 tokens"],
            order=['<rect class="f-cut" x="1.5"', '<rect class="f-good" x="1.5"'],
            lacks=['data-key="piece3"'],
        ),
    ),
    "another instrumentation's cut call waits at first": Case(
        exports=[span_of_another({"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["length"]})],
        turn_page=Page(has=["Cut off, and waiting", "Tokens – in, – out"]),
        pages={"/": Page(lacks=["The one truncated turn was not continued"])},
    ),
    ("and not for ever, for nothing will say how it ends; without metrics the overview counts it all the same"): Case(
        exports=[
            span_of_another({"gen_ai.operation.name": "chat", "gen_ai.response.finish_reasons": ["length"]}, at=-1260)
        ],
        turn_page=Page(has=["nothing took it up", "Tokens – in, – out"]),
        pages={"/": Page(has=["The one truncated turn was not continued"])},
    ),
    "a cut turn whose events have not come after five minutes": Case(
        exports=[our_span(CUT, at=-300)],
        turns=[{"state": "open"}],
    ),
    "a cut turn whose events do not come ends": Case(
        exports=[our_span(CUT, at=-900)],
        turns=[{"state": "unfinished"}],
    ),
    "what comes later still counts": Case(
        exports=[
            our_span(CUT, at=-900),
            event("endturn.continuation_terminated", {"endturn.turn.outcome": "completed"}),
        ],
        turns=[{"state": "finished"}],
    ),
    (
        "events within a millisecond stand in the order of cause, for a clock that is read "
        "twice ends no turn before its last call"
    ): Case(
        exports=[
            our_span(),
            event("endturn.continuation_terminated", at=0),
            event("endturn.tool_dispatch_blocked", at=4e-05),
            event("endturn.stop_reason_observed", at=8e-05),
        ],
        turn_page=Page(
            order=[
                'dim">endturn.stop_reason_observed',
                'dim">endturn.tool_dispatch_blocked',
                'dim">endturn.continuation_terminated',
            ]
        ),
    ),
    "an event's odd attributes leave its turn a page": Case(
        exports=[
            our_span({"endturn.continuation.index": 1}),
            event(
                "endturn.continuation_attempt",
                {"endturn.continuation.index": 1, "endturn.continuation.attempts_remaining": "many"},
            ),
            event("endturn.continuation_attempt", {"endturn.continuation.index": [1]}),
        ],
        turn_page=Page(),
    ),
    "a turn's id may be any text": Case(
        exports=[our_span({"endturn.turn.id": "run/7?a=b#c %2F"})],
        turn_page=Page(has=["run/7?a=b#c %2F"]),
    ),
    "of a provider whose APIs share a value a stop is counted under that of its operation": Case(
        exports=[our_span(CUT)],
        pages={"/reasons": Page(has=["openai.chat 1"], lacks=["openai.completions 1"])},
    ),
    "and under the other where it is that": Case(
        exports=[our_span({**CUT, "gen_ai.operation.name": "text_completion"})],
        pages={"/reasons": Page(has=["openai.completions 1"], lacks=["openai.chat 1"])},
    ),
    ("the vocabulary is searched, what has no row stands on top, and the other ranges keep the search"): Case(
        exports=[
            our_span({"endturn.stop.reason": "unknown", "endturn.stop.raw": "tokens_exhausted"}),
            our_span({"endturn.stop.reason": "unknown", "endturn.stop.raw": "tokens_exhausted"}),
        ],
        pages={
            "/reasons?range=all&q=pause_turn": Page(
                has=[
                    "anthropic.messages",
                    "paused",
                    "In no table: tokens_exhausted (2 times)",
                    'href="?range=1h&amp;q=pause_turn"',
                ],
                lacks=["bedrock.converse"],
            ),
            "/reasons": Page(has=["anthropic.messages", "bedrock.converse"]),
            "/reasons?q=nonsense": Page(has=["No stop reason and no API contains this"]),
        },
    ),
    "a repair is counted alike, whether the controller or the agent asks for it": Case(
        exports=[
            our_span({**CUT, "endturn.turn.id": "observed"}),
            event(
                "endturn.continuation_attempt",
                {
                    "endturn.turn.id": "observed",
                    "endturn.continuation.index": 1,
                    "endturn.continuation.strategy": "repair",
                },
            ),
            our_span({"endturn.turn.id": "observed", "endturn.continuation.index": 1, "endturn.turn.iteration": 2}),
        ],
        turns=[{"turn_id": "observed", "continuations": 0, "repairs": 1, "state": "finished"}],
        turn_page=Page(has=["Cut off, then repaired", "Call 2, repair"], lacks=["continuation 1"]),
        pages={"/turns": Page(has=["1 repair"], lacks=["1 continuation"])},
    ),
    ("what an agent without tools is told to change begins with the limit, and has no word of tools"): Case(
        exports=[our_span({**CUT, "gen_ai.request.max_tokens": 8, "gen_ai.usage.output_tokens": 8}), NOT_CONTINUED],
        turn_page=Page(has=["What to change Raise max_tokens above 8"], lacks=["tool call"]),
    ),
    "what an agent with tools is told to change says what to do with a tool call": Case(
        exports=[
            our_span(
                {"endturn.turn.id": "earlier", "endturn.stop.reason": "tool_call"}, resource={"service.name": "shop"}
            ),
            event(
                "endturn.continuation_terminated", {"endturn.turn.id": "earlier", "endturn.turn.outcome": "completed"}
            ),
            our_span({**CUT, "endturn.turn.id": "later"}, resource={"service.name": "shop"}),
            event(
                "endturn.continuation_terminated", {"endturn.turn.id": "later", "endturn.turn.outcome": "not_continued"}
            ),
        ],
        pages={
            "/turns/later": Page(
                order=[
                    "What to change",
                    "Raise max_tokens",
                    "A tool call in the answer may be cut off too: do not run it.",
                ]
            )
        },
    ),
    (
        "without metrics the truncation rate and the column are counted from calls, and a failed attempt is no response"
    ): Case(
        exports=[
            span_of_another(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "small",
                    "gen_ai.response.finish_reasons": ["length"],
                }
            ),
            span_of_another(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "small",
                    "gen_ai.response.finish_reasons": ["stop"],
                }
            ),
            span_of_another(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "small",
                    "gen_ai.response.finish_reasons": ["stop"],
                }
            ),
            span_of_another(
                {
                    "gen_ai.operation.name": "chat",
                    "gen_ai.request.model": "small",
                    "gen_ai.response.finish_reasons": ["stop"],
                }
            ),
            our_span({"endturn.stop.reason": "error", "error.type": "500", "gen_ai.request.model": "large"}),
        ],
        pages={
            "/": Page(
                has=[
                    "Truncation rate 25.0%",
                    "small 0 – not set – unknown – 25.0% 4 3",
                    "large openai 0 – not set – none cut – – 1 1",
                ],
                lacks=[">None<"],
            )
        },
    ),
    "the worst turns are those with most calls to continue, the newest first": Case(
        exports=[
            our_span({**CUT, "endturn.turn.id": "long"}, at=-900),
            our_span({**CUT, "endturn.turn.id": "again", "endturn.continuation.index": 2}, at=-901),
            our_span({**CUT, "endturn.turn.id": "newest"}, at=-899),
            our_span({"endturn.turn.id": "whole"}),
        ],
        pages={
            "/turns?sort=worst&range=all": Page(
                order=["/turns/again?", "/turns/newest?", "/turns/long?", "/turns/whole?"]
            )
        },
    ),
    "a column that is empty for every step is left out": Case(
        exports=[our_span({**CUT, "endturn.continuation.index": 1})],
        turn_page=Page(lacks=["Continuations left", "Tokens left", "Characters left"]),
    ),
    "a column that has a value is there": Case(
        exports=[
            our_span({**CUT, "endturn.continuation.index": 1}),
            event(
                "endturn.continuation_attempt",
                {"endturn.continuation.index": 1, "endturn.continuation.tokens_remaining": 7},
            ),
        ],
        turn_page=Page(has=["Tokens left"], lacks=["Continuations left", "Characters left"]),
    ),
    # --- Addresses
    "what is not there is said with a way back": Case(
        pages={
            "/turns/none": Page(status=404, has=["This turn is not here", 'href="/turns']),
            "/metrics": Page(status=404, has=["There is no such page", 'href="/"']),
            "/turns?range=zzz": Page(has=["There is no time range zzz : this is all", 'href="?range=all"']),
            "/export/secrets.csv": Page(status=404),
        },
    ),
    "what is empty says what would fill it, with the line to copy": Case(
        pages={
            "/": Page(has=["export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:", "data-copy"]),
            "/turns": Page(has=["export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:", "data-copy"]),
        },
    ),
    "tables to take away hold what the tab shows": Case(
        exports=[
            our_span({"endturn.turn.id": "t1"}),
            our_span({**CUT, "endturn.turn.id": "t2"}),
            event("endturn.continuation_terminated", {"endturn.turn.id": "t1", "endturn.turn.outcome": "completed"}),
            event(
                "endturn.continuation_terminated", {"endturn.turn.id": "t2", "endturn.turn.outcome": "not_continued"}
            ),
        ],
        pages={
            "/export/turns.csv?state=unfinished": Page(has=["t2"], lacks=["t1"]),
            "/export/calls.csv?state=unfinished": Page(has=["t2"], lacks=["t1"]),
            "/export/events.csv?state=unfinished": Page(has=["t2"], lacks=["t1"]),
        },
    ),
    (
        "a spreadsheet runs nothing of them, for a text that would be a formula there begins "
        "with an apostrophe, and a number does not"
    ): Case(
        exports=[
            our_span({"endturn.stop.raw": "=1+1", "gen_ai.usage.output_tokens": 5}),
            our_span({"endturn.stop.raw": "@cmd"}),
            our_span({"endturn.stop.raw": "+1"}),
            our_span({"endturn.stop.raw": "-1"}),
            our_span({"endturn.stop.raw": "plain = not"}),
        ],
        pages={"/export/calls.csv": Page(has=[",'=1+1,", ",'@cmd,", ",'+1,", ",'-1,", ",plain = not,", ",5,"])},
    ),
    "a filter is undone by a link that keeps what is no filter": Case(
        exports=[our_span()],
        pages={
            "/turns?state=whole": Page(lacks=['<a class="dim" href="?state=whole">Reset</a>']),
            "/turns?state=whole&model=gpt-5": Page(has=['<a class="dim" href="?state=whole">Reset</a>']),
            "/turns?state=whole&range=1h": Page(has=['<a class="dim" href="?state=whole">Reset</a>']),
        },
    ),
    "where a service runs is only chosen from where there is one": Case(
        exports=[our_span()],
        pages={"/turns": Page(lacks=['name="environment"'])},
    ),
    "where a service runs is chosen by environment and cluster, on spans and metrics": Case(
        exports=[
            our_span(
                {"endturn.turn.id": "staging"},
                resource={"deployment.environment.name": "staging", "k8s.cluster.name": "eu-1"},
            ),
            our_span(
                {"endturn.turn.id": "production"},
                resource={"deployment.environment.name": "production", "k8s.cluster.name": "eu-2"},
            ),
            counter(
                (-1, 0, 1), resource={"deployment.environment.name": "staging", "k8s.cluster.name": "eu-1"}, delta=True
            ),
            counter(
                (-1, 0, 2),
                resource={"deployment.environment.name": "production", "k8s.cluster.name": "eu-2"},
                delta=True,
            ),
        ],
        pages={
            "/?environment=production": Page(has=["None of the 2 turns"]),
            "/?cluster=eu-2": Page(has=["None of the 2 turns"]),
            "/turns?environment=production": Page(
                has=['<select name="environment">', "/turns/production?"], lacks=["/turns/staging?"]
            ),
            "/turns?cluster=eu-2": Page(has=["/turns/production?"], lacks=["/turns/staging?"]),
            "/export/numbers.csv?environment=production": Page(has=["production"]),
            "/export/numbers.csv?cluster=eu-2": Page(has=["production"], lacks=["staging"]),
        },
    ),
    # --- Spans of others, and odd ones
    "a call that says no reason is not cut off, and waits for nothing": Case(
        exports=[span_of_another(CHAT, at=-9999)],
        turns=[{"reason": "unknown", "state": "other", "truncated": False}],
    ),
    "the words of the conventions": Case(
        exports=[
            span_of_another(
                {
                    **CHAT,
                    "gen_ai.request.max_tokens": 8,
                    "gen_ai.response.finish_reasons": ["length"],
                    "gen_ai.usage.input_tokens": 5,
                    "gen_ai.usage.output_tokens": 8,
                }
            )
        ],
        spans=[KNOWN_CALL],
        turns=[{"state": "open"}],
    ),
    "the words of OpenInference": Case(
        exports=[
            span_of_another(
                {
                    "openinference.span.kind": "LLM",
                    "llm.provider": "openai",
                    "llm.model_name": "gpt-5",
                    "llm.invocation_parameters": '{"max_completion_tokens": 8}',
                    "llm.finish_reason": "length",
                    "llm.token_count.prompt": 5,
                    "llm.token_count.completion": 8,
                }
            )
        ],
        spans=[KNOWN_CALL],
    ),
    "the words of OpenLLMetry": Case(
        exports=[
            span_of_another(
                {
                    "llm.request.type": "chat",
                    "gen_ai.system": "openai",
                    "gen_ai.request.model": "gpt-5",
                    "gen_ai.request.max_tokens": 8,
                    "gen_ai.completion.0.finish_reason": "length",
                    "gen_ai.usage.prompt_tokens": 5,
                    "gen_ai.usage.completion_tokens": 8,
                }
            )
        ],
        spans=[KNOWN_CALL],
    ),
    "a stream that Logfire hands over counts once, by the span of its end": Case(
        exports=[
            span_of_another({**CHAT, "logfire.span_type": "span"}, scope="logfire.openai"),
            span_of_another(
                {**CHAT, "logfire.span_type": "log", "gen_ai.response.finish_reasons": ["stop"]}, scope="logfire.openai"
            ),
        ],
        turns=[{"reason": "end_turn", "calls": 1}],
    ),
    "attributes of odd types are left out of the columns that they do not fit": Case(
        exports=[
            our_span(
                {
                    "gen_ai.usage.output_tokens": "many",
                    "endturn.stop.truncated": "yes",
                    "gen_ai.request.model": 7,
                    "nested": [1, "two", True],
                }
            )
        ],
        spans=[{"output_tokens": None, "truncated": None, "model": "7"}],
    ),
    "an export that is sent again changes nothing": Case(
        exports=[our_span({"gen_ai.usage.output_tokens": 40}, again=2)],
        spans=[{"trace_id": "0af7651916cd43dd8448eb211c80319c", "span_id": "0000000000000001", "output_tokens": 40}],
    ),
    # --- Counters
    (
        "a counter is what it grew by, from zero, past a restart under its id, through exports that come twice or late"
    ): Case(
        exports=[
            counter((-100, -99, 0), resource={"service.instance.id": "one"}),
            counter((-100, -98, 3), resource={"service.instance.id": "one"}, again=2),
            counter((-100, -96, 5), resource={"service.instance.id": "one"}),
            counter((-100, -97, 4), resource={"service.instance.id": "one"}),
            counter((-96, -95, 2), resource={"service.instance.id": "one"}),
            counter((-96, -94, 7), resource={"service.instance.id": "one"}),
        ],
        total=12,
    ),
    "what counted long before the page saw it is only where it begins": Case(
        exports=[counter((-604800, -2, 1000)), counter((-604800, -1, 1001))],
        total=1,
    ),
    "what began a minute ago has done all of it now": Case(
        exports=[counter((-60, -1, 4))],
        total=4,
    ),
    (
        "processes without an id are told apart by when they began, and what two of them count in turns is counted once"
    ): Case(
        exports=[
            counter((-60, -4, 1)),
            counter((-50, -4, 1)),
            counter((-60, -3, 2)),
            counter((-50, -3, 2)),
            counter((-60, -2, 4)),
            counter((-50, -2, 4)),
        ],
        total=8,
    ),
    "deltas are counted once, in whatever order and however often they come": Case(
        exports=[
            counter((-1, 0, 1), delta=True, again=2),
            counter((-3, -2, 3), delta=True),
            counter((-2, -1, 2), delta=True),
            counter((-4, -3, 4), (-3, -2, 3), (-1, 0, 1), delta=True, again=2),
        ],
        total=10,
    ),
    "a point without a value is no reset": Case(
        exports=[counter((-9, -3, 100)), counter((-9, -2, 0), flags=1), counter((-9, -1, 110))],
        total=110,
    ),
    "a value that another reason has is none that no table has": Case(
        exports=[our_span({"endturn.stop.reason": "refused", "gen_ai.response.finish_reasons": ["stop"]})],
        pages={"/reasons": Page(lacks=["In no table"])},
    ),
    "a call of a model that never asked for a tool is not warned of one": Case(
        exports=[
            our_span(
                {
                    "endturn.stop.reason": "tool_call",
                    "gen_ai.response.finish_reasons": ["tool_calls"],
                    "gen_ai.request.model": "other",
                    "endturn.turn.id": "t2",
                }
            ),
            our_span(CUT),
            NOT_CONTINUED,
        ],
        pages={"/turns/t1": Page(has=["nothing asked for the rest"], lacks=["do not run it"])},
    ),
}
