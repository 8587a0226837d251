"""Spans of any instrumentation get their stop reason in the real Collector: the one that the library reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from endturn import frameworks, reasons
from endturn.formats import dialect_in, format_of
from endturn.generate.emitters import SOURCES, Source
from endturn.providers import PROVIDERS
from endturn.stop_reasons import apis
from tests.support.otlp import Sent, Value, post, spans
from tests.support.processes import Collector, eventually

pytestmark = pytest.mark.stack

SPOKEN = {name: (known.format, dialect_in(format_of(known.format), name)) for name, known in PROVIDERS.items()}
"""Provider → the format that it speaks, and in which dialect."""


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    with Collector(tmp_path_factory.mktemp("reasons")) as running:
        yield running


def through(collector: Collector, every: dict[str, Sent], *, scope: str = "test") -> dict[str, dict[str, Value]]:
    """The attributes of these spans behind the Collector, by the key of each."""
    marked = [
        Sent(
            attributes=dict(each.attributes) | {"test.key": key},
            name=each.name,
            failed=each.failed,
            state=each.state,
        )
        for key, each in every.items()
    ]
    assert post(f"{collector.url}/v1/traces", spans(marked, scope=scope)) == 200

    def arrived() -> dict[str, dict[str, Value]]:
        found = {str(span["attributes"].get("test.key")): span["attributes"] for span in collector.spans()}
        return found if every.keys() <= found.keys() else {}

    found = eventually(arrived, what=f"{len(every)} spans")
    return {key: found[key] for key in every}


def told(attributes: dict[str, Value]) -> tuple[object, ...]:
    return tuple(attributes.get(f"endturn.stop.{name}") for name in ("reason", "raw", "truncated"))


def test_every_row_of_the_vocabulary_goes_through_the_collector(collector: Collector) -> None:
    """Each raw value of each API, under each provider that speaks it, is judged as the library judges that span."""
    sent: dict[str, Sent] = {}
    expected: dict[str, tuple[object, ...]] = {}
    rows = 0
    for entry in reasons.table():
        rows += 1
        whose = {name for name, spoken in SPOKEN.items() if spoken in entry.formats} or {""}
        for provider in whose:
            key = f"{entry.api.name}|{entry.raw}|{provider}"
            attributes: dict[str, Value] = {"gen_ai.operation.name": "chat"}
            attributes |= {"gen_ai.provider.name": provider} if provider else {}
            attributes["gen_ai.response.finish_reasons"] = [entry.raw]
            sent[key] = Sent(attributes=attributes)
            stop = frameworks.otel(attributes)
            reason, truncated = str(stop.reason), stop.truncated
            if not stop.mapped and entry.api.name in apis("frameworks") and not entry.formats:
                # A framework's own word: the library's reader of spans does not take it, the Collector does.
                reason, truncated = entry.normalized, entry.truncated
            expected[key] = (reason, stop.raw, truncated)
    assert rows == len(reasons.table()) > 500
    found = {key: told(attributes) for key, attributes in through(collector, sent).items()}
    assert {key: (found[key], want) for key, want in expected.items() if found[key] != want} == {}


@dataclass(frozen=True)
class Case:
    """A span of somebody's, and what the Collector makes of it."""

    attributes: dict[str, Value]
    reason: str | None
    raw: str | None = None
    also: dict[str, Value] = field(default_factory=dict)
    name: str = "chat"
    failed: bool = False


FINISH = "gen_ai.response.finish_reasons"
OPERATION = "gen_ai.operation.name"
CHAT: dict[str, Value] = {OPERATION: "chat"}
OPENINFERENCE: dict[str, Value] = {
    "llm.finish_reason": "max_tokens",
    "llm.provider": "google",
    "llm.model_name": "gemini-3",
}
VERCEL: dict[str, Value] = {
    "ai.operationId": "ai.generateText.doGenerate",
    "ai.response.finishReason": "tool-calls",
    "ai.model.provider": "openai.responses",
    "ai.model.id": "gpt-5",
}
CLAUDE_CODE: dict[str, Value] = {"stop_reason": "max_tokens", "gen_ai.system": "anthropic"}
PAUSE: dict[str, Value] = {"anthropic.message.stop_reason": "pause_turn", "gen_ai.provider.name": "anthropic"}
TRACELOOP: dict[str, Value] = {"gen_ai.completion.0.finish_reason": "length", "gen_ai.system": "OpenAI"}
JOB: dict[str, Value] = {OPERATION: "fetch_response", "gen_ai.response.status": "in_progress"}
CASES = {
    "a text in place of the list": Case({FINISH: "length"}, "max_tokens", "length"),
    "a list as JSON text": Case({FINISH: '["length", "stop"]'}, "max_tokens", "length"),
    "an empty list as JSON text": Case({FINISH: "[]"}, "missing"),
    "an empty list": Case({FINISH: []}, "missing"),
    "an empty reason": Case({FINISH: [""]}, "missing"),
    "white space": Case({FINISH: ["  "]}, "missing"),
    "the first position counts": Case({FINISH: ["length", "stop"]}, "max_tokens", "length"),
    "a number": Case({FINISH: 2}, "unknown", "2"),
    "a truth": Case({FINISH: True}, "unknown", "true"),
    "another operation's name": Case({OPERATION: "responses", FINISH: ["length"]}, "max_tokens", "length"),
    "an operation in another case": Case({OPERATION: "Chat", FINISH: ["length"]}, "max_tokens", "length"),
    "an old operation": Case({OPERATION: "completion", FINISH: ["length"]}, "max_tokens", "length"),
    "another case": Case({FINISH: ["MAX_TOKENS"]}, "max_tokens", "MAX_TOKENS"),
    "a value without a row": Case({FINISH: ["because"]}, "unknown", "because"),
    "added up over chunks": Case({FINISH: ["lengthlength"]}, "max_tokens", "lengthlength"),
    "hostile text": Case({FINISH: ['"}]); drop']}, "unknown", '"}]); drop'),
    "OpenInference": Case(
        OPENINFERENCE,
        "max_tokens",
        "max_tokens",
        also={"gen_ai.provider.name": "gcp.gemini", "gen_ai.request.model": "gemini-3"},
    ),
    "Anthropic's SDK": Case(CHAT | PAUSE, "paused", "pause_turn"),
    "Vercel's inner span": Case(
        VERCEL, "tool_call", "tool-calls", also={"gen_ai.provider.name": "openai", "gen_ai.request.model": "gpt-5"}
    ),
    "Vercel's outer span": Case(VERCEL | {"ai.operationId": "ai.generateText"}, None),
    "Traceloop's flat attribute": Case(
        CHAT | TRACELOOP, "max_tokens", "length", also={"gen_ai.provider.name": "openai"}
    ),
    "Claude Code": Case(
        CLAUDE_CODE,
        "max_tokens",
        "max_tokens",
        also={"gen_ai.provider.name": "anthropic"},
        name="claude_code.llm_request",
    ),
    "Claude Code without a reason": Case({}, None, name="claude_code.llm_request"),
    "somebody else's stop_reason": Case({"stop_reason": "max_tokens"}, None, name="bus line 5"),
    "an exception that hides a cut answer": Case(
        CHAT | {"error.type": "openai.LengthFinishReasonError"}, "max_tokens", failed=True
    ),
    "an exception beside the conventions' error": Case(
        CHAT | {"error.type": "LengthFinishReasonError", FINISH: ["error"]}, "max_tokens", "error", failed=True
    ),
    "a call that was given up": Case(CHAT | {"error.type": "asyncio.CancelledError"}, "cancelled", failed=True),
    "a failed call": Case(CHAT | {"error.type": "429"}, "error", failed=True),
    "a call that tells nothing": Case(CHAT, None),
    "a failed tool": Case({OPERATION: "execute_tool"}, None, failed=True),
    "an agent that repeats its last reason": Case({OPERATION: "invoke_agent", FINISH: ["length"]}, None),
    "a job that is still being made": Case(JOB, "paused", "in_progress(background)"),
    "a span that has one of ours": Case(CHAT | {"endturn.stop.reason": "end_turn", FINISH: ["length"]}, "end_turn"),
    "no span of a model": Case({"http.request.method": "GET"}, None, failed=True),
}


@pytest.fixture(scope="module")
def answered(collector: Collector) -> dict[str, dict[str, Value]]:
    return through(
        collector,
        {name: Sent(attributes=case.attributes, name=case.name, failed=case.failed) for name, case in CASES.items()},
    )


@pytest.mark.parametrize("name", CASES)
def test_spans_of_others_are_understood(answered: dict[str, dict[str, Value]], name: str) -> None:
    """Each instrumentation's place and spelling is read; what is no answer of a model is left alone."""
    case, found = CASES[name], answered[name]
    assert (found.get("endturn.stop.reason"), found.get("endturn.stop.raw")) == (case.reason, case.raw)
    if case.reason and name != "a span that has one of ours":
        cut = case.reason in {"max_tokens", "context_window_exceeded", "missing"}
        assert found["endturn.stop.truncated"] is cut
    assert case.also.items() <= found.items()


@pytest.mark.parametrize("source", [each for each in SOURCES if not each.span], ids=lambda each: each.attribute)
def test_every_declared_source_is_read(collector: Collector, source: Source) -> None:
    """Each attribute that the emitters' page names is one from which the Collector takes a reason."""
    key = f"source {source.attribute}"
    found = through(collector, {key: Sent(attributes={source.attribute: "max_tokens"})})[key]
    assert told(found) == ("max_tokens", "max_tokens", True)


FULL: dict[str, tuple[dict[str, Value], bool]] = {
    "exactly full": ({"gen_ai.usage.output_tokens": 64, "gen_ai.request.max_tokens": 64}, True),
    "not full": ({"gen_ai.usage.output_tokens": 63, "gen_ai.request.max_tokens": 64}, False),
    "no limit": ({"gen_ai.usage.output_tokens": 64}, False),
    "a limit of nothing": ({"gen_ai.usage.output_tokens": 64, "gen_ai.request.max_tokens": 0}, False),
    "numbers as text": ({"ai.usage.outputTokens": "64", "ai.settings.maxOutputTokens": "64"}, True),
    "OpenInference": (
        {
            "llm.token_count.completion": 70,
            "llm.invocation_parameters": '{"temperature": 0, "max_completion_tokens": 64}',
        },
        True,
    ),
    "cut, and says so": (
        {"gen_ai.usage.output_tokens": 64, "gen_ai.request.max_tokens": 64, FINISH: ["length"]},
        False,
    ),
}


def test_a_clean_claim_on_a_full_budget_is_suspected(collector: Collector) -> None:
    """`stop` with as many output tokens as were allowed is marked, in every spelling; a confessed cut is not."""
    sent = {
        name: Sent(attributes={"gen_ai.provider.name": "openai", FINISH: ["stop"]} | numbers)
        for name, (numbers, _) in FULL.items()
    }
    found = through(collector, sent)
    assert {name: each.get("endturn.stop.suspected", False) for name, each in found.items()} == {
        name: suspected for name, (_, suspected) in FULL.items()
    }
    assert frameworks.otel(sent["exactly full"].attributes).suspected


def test_no_statement_failed(collector: Collector, answered: dict[str, dict[str, Value]]) -> None:
    """Whatever was sent, no statement ended in an error: those are logged, and would be logged for every such span."""
    assert answered
    assert [line for line in collector.log.read_text().splitlines() if "failed to" in line.lower()] == []


def test_the_words_of_vercels_ai_sdk_are_its_own(collector: Collector) -> None:
    """Each of its reasons is judged by its own table: its `other` tells nothing, where Google's is a failure."""
    rows = frameworks.REASONS["vercel.v4"]
    sent = {
        f"vercel {raw}": Sent(
            attributes={"ai.operationId": "ai.streamText.doStream", "ai.response.finishReason": raw, FINISH: [raw]}
        )
        for raw in rows
    }
    found = through(collector, sent)
    assert {raw: found[f"vercel {raw}"]["endturn.stop.reason"] for raw in rows} == {
        raw: str(row.reason) for raw, row in rows.items()
    }
