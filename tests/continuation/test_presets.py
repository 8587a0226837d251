"""The presets: each source's own behaviour, scenario by scenario, through the controller."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from endturn.chat import ChatResponse, Message, Request, ToolCall
from endturn.continuation.policy import PROMPT, ContinuationPolicy, presets
from endturn.controller import ContinuationController, TurnResult
from endturn.errors import UsageError
from endturn.events import ContinuationAttempted
from endturn.stop import StopReason
from tests.support.turns import NOW, SEARCH, Played, ask, call, calling, cut, heard, paused, said

HALF = call(arguments='{"q": "hal', id="half", closed=False)
WRONG = call(arguments='{"query": "x"}', id="wrong")
REQUEST = ask(tools=(SEARCH, NOW))
JSON = REQUEST.but(tools=(), format={"type": "object", "properties": {"a": {"type": "integer"}}})


def promoted(response: ChatResponse) -> ChatResponse:
    """A tool call as a format makes it of a clean stop with complete calls."""
    return response.with_stop(promoted_from=StopReason.END_TURN)


class Scenario(NamedTuple):
    """What a provider says, call by call, to a request; what is not asked for is not said."""

    script: tuple[ChatResponse, ...]
    request: Request = REQUEST


SCENARIOS: Final = {
    "text": Scenario((said("Hello."), said("never"))),
    "text cut": Scenario((cut("Hello, wo"), said("rld."), said("never"))),
    "text cut at the cap": Scenario((cut("a "), cut("b "), cut("c "), cut("d "), said("never"))),
    "text cut before and after a tool": Scenario(
        (cut("a "), calling(call()), cut("b "), cut("c "), cut("d "), said("e"), said("never"))
    ),
    "cut with calls that look valid": Scenario((cut("So: ", calls=[call()]), said("Done."), said("never"))),
    "cut with a call that parses and one that does not": Scenario(
        (cut("So: ", calls=[call(), HALF]), said("Done."), said("never"))
    ),
    "cut with a call that does not parse": Scenario(
        (cut("So: ", calls=[HALF]), calling(call(id="2")), said("Done."), said("never"))
    ),
    "cut with nothing but a call that does not parse": Scenario(
        (cut("", calls=[HALF]), calling(call(id="2")), said("Done."), said("never"))
    ),
    "tool_call clean": Scenario((calling(call()), said("Done."), said("never"))),
    "tool_call with the whole token budget used": Scenario(
        (calling(call(), text="So: ", suspected=True), said("Done."), said("never"))
    ),
    "tool_call that does not fit the schema": Scenario((calling(WRONG), said("Done."), said("never"))),
    "tool_call with invalid JSON": Scenario((calling(call(arguments='{"q": }')), said("Done."), said("never"))),
    "tool_call without calls": Scenario((calling(text="So: "), said("Done."), said("never"))),
    "stop with calls": Scenario((promoted(calling(call(), text="So: ")), said("Done."), said("never"))),
    "empty max_tokens": Scenario((cut(""), said("never"))),
    "reasoning-only": Scenario((cut("", reasoning="Hm."), said("never"))),
    "context window exceeded": Scenario((said("a", StopReason.CONTEXT_WINDOW_EXCEEDED), said("never"))),
    "pause_turn": Scenario((paused("Look", calls=[call()]), said(" here."), said("never"))),
    "refusal": Scenario((said("No.", StopReason.REFUSED, calls=[call()]), said("never"))),
    "filtered": Scenario((said("a", StopReason.SAFETY_BLOCKED, calls=[call()]), said("never"))),
    "unknown reason": Scenario((said("a", StopReason.UNKNOWN, calls=[call()]), said("never"))),
    "missing terminal": Scenario((said("a", StopReason.MISSING, terminal_seen=False), said("never"))),
    "missing terminal with a call": Scenario(
        (said("a", StopReason.MISSING, calls=[call()], terminal_seen=False), said("Done."), said("never"))
    ),
    "JSON answer cut": Scenario((cut('{"a": '), said('{"a": 1}'), said("never")), JSON),
}


class Row(NamedTuple):
    """What a source does in a scenario.

    Attributes:
        sent: what follows the first request: `prompt`, `repair`, `resend`, `retry` (the same question again), and
            `results` or `errors` (what calls are answered with).
        ran: the ids of the calls that ran.
        source: where it says so; "silent" where it says nothing, and the contract's default stands.
    """

    scenario: str
    preset: str
    sent: str
    ran: str
    outcome: str
    source: str


# RFI: ZeroClaw's request for implementation. FF: Forgeflare's specification. BN: BotNexus' tool gate.
# FR: the functional requirements of wave's specification. SDK: the stop reasons' steps in Anthropic's tool runner.
ROWS: Final = [
    Row(*row)
    for row in [
        ("text", "zeroclaw", "", "", "completed", "RFI state diagram: EndTurn: Complete"),
        ("text", "forgeflare", "", "", "completed", "FF architecture 1: break on EndTurn"),
        ("text", "botnexus", "", "", "completed", "BN: no tool call, no iteration"),
        ("text", "wave", "", "", "completed", "FR-003: recursion on length only"),
        ("text", "anthropic", "", "", "completed", "SDK: end_turn stops"),
        #
        ("text cut", "zeroclaw", "prompt", "", "completed", "RFI state diagram: MaxTokens: RequestContinuation"),
        ("text cut", "forgeflare", "prompt", "", "completed", "FF R2: inject the continuation prompt"),
        ("text cut", "botnexus", "", "", "retry_limit", "BN: a truncated turn ends, its text kept"),
        ("text cut", "wave", "prompt", "", "completed", "FR-003: another call on length"),
        ("text cut", "anthropic", "", "", "retry_limit", "SDK: max_tokens stops"),
        #
        ("text cut at the cap", "zeroclaw", "prompt prompt prompt", "", "retry_limit", "RFI hard limits: 3"),
        ("text cut at the cap", "forgeflare", "prompt prompt prompt", "", "retry_limit", "FF R3: 3 attempts"),
        ("text cut at the cap", "botnexus", "", "", "retry_limit", "BN: a truncated turn ends"),
        ("text cut at the cap", "wave", "prompt prompt prompt", "", "retry_limit", "FR-004: bounded; 3 as implemented"),
        ("text cut at the cap", "anthropic", "", "", "retry_limit", "SDK: max_tokens stops"),
        #
        ("text cut before and after a tool", "zeroclaw", "prompt results prompt prompt", "call_1", "retry_limit",
         "RFI hard limits: 3 per turn"),
        ("text cut before and after a tool", "forgeflare", "prompt results prompt prompt", "call_1", "retry_limit",
         "FF success criteria: the count does not reset on tool results"),
        ("text cut before and after a tool", "botnexus", "", "", "retry_limit", "BN: a truncated turn ends"),
        ("text cut before and after a tool", "wave", "prompt results prompt prompt prompt", "call_1", "completed",
         "wave as implemented: 3 in a row without tools"),
        ("text cut before and after a tool", "anthropic", "", "", "retry_limit", "SDK: max_tokens stops"),
        #
        ("cut with calls that look valid", "zeroclaw", "repair", "", "completed",
         "RFI state diagram: only ToolCall: ExecuteTools; JSON policy: never if ambiguous"),
        ("cut with calls that look valid", "forgeflare", "results", "call_1", "completed",
         "FF R1: valid tool_use blocks must be executed"),
        ("cut with calls that look valid", "botnexus", "", "", "tool_call_cut",
         "BN: FinishReason == ToolUse alone authorizes execution"),
        ("cut with calls that look valid", "wave", "results", "call_1", "completed",
         "wave user story 2.2: execute the tools, then call again"),
        ("cut with calls that look valid", "anthropic", "", "", "tool_call_cut",
         "SDK: max_tokens stops, its tool_use blocks must not be executed"),
        #
        ("cut with a call that parses and one that does not", "zeroclaw", "repair", "", "completed",
         "RFI JSON policy: request re-emission of the payload"),
        ("cut with a call that parses and one that does not", "forgeflare", "results", "call_1", "completed",
         "FF architecture 2: filter null inputs, then the rest falls through to dispatch"),
        ("cut with a call that parses and one that does not", "botnexus", "", "", "tool_call_cut", "BN: stripped"),
        ("cut with a call that parses and one that does not", "wave", "results", "call_1", "completed",
         "wave user story 2.2; its implementation would close the braces of the other one: never here"),
        ("cut with a call that parses and one that does not", "anthropic", "", "", "tool_call_cut",
         "SDK: max_tokens stops"),
        #
        ("cut with a call that does not parse", "zeroclaw", "repair results", "2", "completed",
         "RFI JSON policy: max_tool_repair_attempts = 1"),
        ("cut with a call that does not parse", "forgeflare", "prompt results", "2", "completed",
         "FF architecture 2: text-only after the filter is continued"),
        ("cut with a call that does not parse", "botnexus", "", "", "tool_call_cut", "BN: stripped"),
        ("cut with a call that does not parse", "wave", "prompt results", "2", "completed",
         "FR-003: another call on length"),
        ("cut with a call that does not parse", "anthropic", "", "", "tool_call_cut", "SDK: max_tokens stops"),
        #
        ("cut with nothing but a call that does not parse", "zeroclaw", "repair results", "2", "completed",
         "RFI JSON policy"),
        ("cut with nothing but a call that does not parse", "forgeflare", "", "", "no_progress",
         "FF R2: nothing but the placeholder: break"),
        ("cut with nothing but a call that does not parse", "botnexus", "", "", "tool_call_cut", "BN: stripped"),
        ("cut with nothing but a call that does not parse", "wave", "", "", "no_progress",
         "FR-003 would call again; an empty answer is not continued here"),
        ("cut with nothing but a call that does not parse", "anthropic", "", "", "tool_call_cut",
         "SDK: max_tokens stops"),
        #
        ("tool_call clean", "zeroclaw", "results", "call_1", "completed", "RFI state diagram: ToolCall: ExecuteTools"),
        ("tool_call clean", "forgeflare", "results", "call_1", "completed", "FF architecture 3: tool dispatch"),
        ("tool_call clean", "botnexus", "results", "call_1", "completed", "BN test: a complete turn is dispatched"),
        ("tool_call clean", "wave", "results", "call_1", "completed", "wave: existing behaviour"),
        ("tool_call clean", "anthropic", "results", "call_1", "completed", "SDK: tool_use runs the tools"),
        #
        ("tool_call with the whole token budget used", "zeroclaw", "repair", "", "completed", "silent"),
        ("tool_call with the whole token budget used", "forgeflare", "results", "call_1", "completed",
         "FF implementation notes: semantically truncated inputs are an accepted risk"),
        ("tool_call with the whole token budget used", "botnexus", "results", "call_1", "completed",
         "BN: a genuine ToolUse turn is unchanged"),
        ("tool_call with the whole token budget used", "wave", "results", "call_1", "completed",
         "wave: the reason alone is looked at"),
        ("tool_call with the whole token budget used", "anthropic", "results", "call_1", "completed",
         "SDK: tool_use runs the tools"),
        #
        ("tool_call that does not fit the schema", "zeroclaw", "errors", "", "completed", "silent"),
        ("tool_call that does not fit the schema", "forgeflare", "errors", "", "completed",
         "FF would run it, and the tool would fail: told to the model the same"),
        ("tool_call that does not fit the schema", "botnexus", "results", "wrong", "completed",
         "BN: the terminal and the presence of calls decide"),
        ("tool_call that does not fit the schema", "wave", "errors", "", "completed", "silent"),
        ("tool_call that does not fit the schema", "anthropic", "results", "wrong", "completed",
         "SDK: the tool itself checks its input"),
        #
        ("tool_call with invalid JSON", "zeroclaw", "errors", "", "completed", "RFI: hard block on malformed payload"),
        ("tool_call with invalid JSON", "forgeflare", "errors", "", "completed", "silent"),
        ("tool_call with invalid JSON", "botnexus", "errors", "", "completed", "silent"),
        ("tool_call with invalid JSON", "wave", "errors", "", "completed", "silent"),
        ("tool_call with invalid JSON", "anthropic", "errors", "", "completed", "silent"),
        #
        ("tool_call without calls", "zeroclaw", "repair", "", "completed", "RFI JSON policy: incomplete"),
        ("tool_call without calls", "forgeflare", "", "", "completed", "silent"),
        ("tool_call without calls", "botnexus", "", "", "completed", "BN: ToolCalls.Count > 0 is asked for"),
        ("tool_call without calls", "wave", "", "", "completed", "silent"),
        ("tool_call without calls", "anthropic", "", "", "completed", "SDK: stop if there are none"),
        #
        ("stop with calls", "zeroclaw", "results", "call_1", "completed", "RFI: keep existing tool parsing"),
        ("stop with calls", "forgeflare", "", "", "completed", "FF architecture 1: EndTurn, no further dispatch"),
        ("stop with calls", "botnexus", "results", "call_1", "completed", "BN: the parser promotes Stop to ToolUse"),
        ("stop with calls", "wave", "results", "call_1", "completed", "wave: existing behaviour, calls are run"),
        ("stop with calls", "anthropic", "", "", "completed", "SDK: end_turn stops, its calls must not be executed"),
        #
        ("empty max_tokens", "zeroclaw", "", "", "no_progress", "silent"),
        ("empty max_tokens", "forgeflare", "", "", "no_progress", "FF R2: empty: break immediately"),
        ("empty max_tokens", "botnexus", "", "", "no_progress", "BN: a truncated turn ends"),
        ("empty max_tokens", "wave", "", "", "no_progress", "FR-003 would call again; not continued here"),
        ("empty max_tokens", "anthropic", "", "", "no_progress", "SDK: max_tokens stops"),
        #
        ("reasoning-only", "zeroclaw", "", "", "reasoning_exhausted", "silent"),
        ("reasoning-only", "forgeflare", "", "", "reasoning_exhausted", "FF R2: no real content: break"),
        ("reasoning-only", "botnexus", "", "", "reasoning_exhausted", "BN: a truncated turn ends"),
        ("reasoning-only", "wave", "", "", "reasoning_exhausted", "FR-003 would call again; not continued here"),
        ("reasoning-only", "anthropic", "", "", "reasoning_exhausted", "SDK: max_tokens stops"),
        #
        ("context window exceeded", "zeroclaw", "", "", "context_window_exceeded",
         "RFI state diagram: ContextWindowExceeded: Abort"),
        ("context window exceeded", "forgeflare", "", "", "context_window_exceeded", "silent"),
        ("context window exceeded", "botnexus", "", "", "context_window_exceeded", "silent"),
        ("context window exceeded", "wave", "", "", "context_window_exceeded", "FR-003: recursion on length only"),
        ("context window exceeded", "anthropic", "", "", "context_window_exceeded",
         "SDK: model_context_window_exceeded stops"),
        #
        ("pause_turn", "zeroclaw", "", "", "resume_limit", "RFI goals: continue only on output truncation"),
        ("pause_turn", "forgeflare", "", "", "resume_limit", "FF: MaxTokens alone is continued"),
        ("pause_turn", "botnexus", "", "", "resume_limit", "BN: anything not ToolUse ends, its calls stripped"),
        ("pause_turn", "wave", "", "", "resume_limit", "FR-003: recursion on length only"),
        ("pause_turn", "anthropic", "resend", "", "completed", "SDK: pause_turn resumes unchanged, running no calls"),
        #
        ("refusal", "zeroclaw", "", "", "refused", "silent"),
        ("refusal", "forgeflare", "", "", "refused", "silent"),
        ("refusal", "botnexus", "", "", "refused", "BN: Refusal: the call is stripped, the text kept"),
        ("refusal", "wave", "", "", "refused", "FR-003: recursion on length only"),
        ("refusal", "anthropic", "", "", "refused", "SDK: refusal stops, its calls must not be executed"),
        #
        ("filtered", "zeroclaw", "", "", "safety_blocked", "RFI state diagram: SafetyBlocked: Abort"),
        ("filtered", "forgeflare", "", "", "safety_blocked", "silent"),
        ("filtered", "botnexus", "", "", "safety_blocked", "BN test: Sensitive: stripped, text and reason kept"),
        ("filtered", "wave", "", "", "safety_blocked", "FR-003: recursion on length only"),
        ("filtered", "anthropic", "", "", "safety_blocked", "SDK: whatever it does not know stops"),
        #
        ("unknown reason", "zeroclaw", "", "", "unknown_reason", "RFI state diagram: UnknownFatal: Abort"),
        ("unknown reason", "forgeflare", "", "", "unknown_reason", "silent"),
        ("unknown reason", "botnexus", "", "", "unknown_reason", "BN: block anything not ToolUse"),
        ("unknown reason", "wave", "", "", "unknown_reason", "silent"),
        ("unknown reason", "anthropic", "", "", "unknown_reason", "SDK: absent and unknown values stop"),
        #
        ("missing terminal", "zeroclaw", "", "", "stream_cut", "silent"),
        ("missing terminal", "forgeflare", "", "", "stream_cut", "silent"),
        ("missing terminal", "botnexus", "", "", "stream_cut", "BN: the stream's end without a terminal"),
        ("missing terminal", "wave", "", "", "stream_cut", "silent"),
        ("missing terminal", "anthropic", "", "", "stream_cut", "SDK: absent values stop"),
        #
        ("missing terminal with a call", "zeroclaw", "repair", "", "completed", "RFI JSON policy: incomplete"),
        ("missing terminal with a call", "forgeflare", "", "", "tool_call_cut", "silent"),
        ("missing terminal with a call", "botnexus", "", "", "tool_call_cut",
         "BN: stripped on the fallback path of a stream's end"),
        ("missing terminal with a call", "wave", "", "", "tool_call_cut", "silent"),
        ("missing terminal with a call", "anthropic", "", "", "tool_call_cut", "SDK: absent values stop"),
        #
        ("JSON answer cut", "zeroclaw", "retry", "", "completed", "silent"),
        ("JSON answer cut", "forgeflare", "prompt", "", "invalid_json", "silent"),
        ("JSON answer cut", "botnexus", "", "", "retry_limit", "BN: a truncated turn ends"),
        ("JSON answer cut", "wave", "prompt", "", "invalid_json", "silent"),
        ("JSON answer cut", "anthropic", "", "", "retry_limit", "SDK: max_tokens stops"),
    ]
]  # fmt: skip


def play(scenario: Scenario, policy: ContinuationPolicy) -> tuple[Played, TurnResult, list[str], list[str]]:
    """One turn: the provider, the result, what followed the first request, and the ids of the calls that ran."""
    provider, ran = Played(*scenario.script), list[str]()

    def run(asked: ToolCall) -> str:
        ran.append(asked.id)
        return "found"

    tools = {"search": run, "now": run}
    controller = ContinuationController(provider, tools=tools, format="anthropic", policy=policy)
    with heard(ContinuationAttempted) as attempts:
        result = controller.run(scenario.request)
    asked = iter(attempts)
    sent = []
    for request in provider.requests[1:]:
        last = request.messages[-1]
        if last.role == "tool":
            sent.append("errors" if last.is_error else "results")
        else:
            sent.append(next(asked).continuation.strategy.value)
    return provider, result, sent, ran


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.preset}: {row.scenario} ({row.source})")
def test_a_preset_does_what_its_source_does(row: Row) -> None:
    """What is sent, what runs, how the turn ends; nothing that did not run can be replayed."""
    _, result, sent, ran = play(SCENARIOS[row.scenario], ContinuationPolicy.preset(row.preset))
    assert (" ".join(sent), " ".join(ran), result.outcome.value) == (row.sent, row.ran, row.outcome)
    answered = {message.tool_call_id for message in result.tool_results}
    assert {each.id for message in result.messages for each in message.tool_calls} <= answered
    assert result.complete is (row.outcome == "completed")


def test_every_source_is_asked_about_every_scenario() -> None:
    """The table has no holes, and no row twice."""
    cells = [(row.scenario, row.preset) for row in ROWS]
    assert sorted(cells) == sorted((scenario, preset) for scenario in SCENARIOS for preset in presets())


def test_the_prompts_are_the_sources() -> None:
    """Four lines, or one; always the last user message."""
    for name, prompt in (("zeroclaw", PROMPT), ("forgeflare", "Continue from where you left off."), ("wave", PROMPT)):
        provider, *_ = play(SCENARIOS["text cut"], ContinuationPolicy.preset(name))
        assert provider.requests[1].messages[-1] == Message(role="user", content=prompt, synthetic=True)


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("preset", ["forgeflare", "wave"])
def test_the_parts_of_an_answer_stay_messages_of_their_own(preset: str) -> None:
    """Forgeflare's non-goal "merging", wave's messages with their reasons: in the next turn's messages too."""
    policy = ContinuationPolicy.preset(preset)
    provider, result, *_ = play(SCENARIOS["text cut"], policy)
    first, nudge, second = result.messages[1:]
    assert (first.text, first.stop_reason, nudge.text) == ("Hello, wo", "max_tokens", policy.prompt)
    assert (second.text, second.stop_reason) == ("rld.", "end_turn")
    assert result.text == "Hello, world."
    more = REQUEST.but(messages=(*result.messages, Message(role="user", content="And?")))
    provider, after, *_ = play(Scenario((said("No."),), more), policy)
    assert after.messages[: len(more.messages)] == more.messages
    assert [message.text for message in provider.requests[0].messages] == ["hi", "Hello, world.", "And?"]


@pytest.mark.behaviour(22)
@pytest.mark.behaviour(25)
def test_parts_stay_apart_however_they_were_asked_for_and_are_joined_when_they_are_sent_again() -> None:
    """A policy that keeps parts keeps those of a pause too; an empty one is none. A provider is sent one message."""
    _, result, *_ = play(SCENARIOS["pause_turn"], ContinuationPolicy.preset("forgeflare", continuation_max_resumes=1))
    assert [message.text for message in result.messages] == ["hi", "Look", " here."]
    again = (*result.messages, Message(role="user", content="And?"))
    provider = Played(said("So."))
    ContinuationController(provider, policy=ContinuationPolicy.preset("forgeflare")).run(
        Request(model="m", messages=again)
    )
    assert [message.text for message in provider.requests[0].messages] == ["hi", "Look here.", "And?"]
    _, result, *_ = play(SCENARIOS["empty max_tokens"], ContinuationPolicy.preset("forgeflare"))
    assert [message.text for message in result.messages] == ["hi"]


@pytest.mark.behaviour(25)
def test_by_default_the_parts_are_one_message() -> None:
    """ZeroClaw merges into one coherent message."""
    _, result, *_ = play(SCENARIOS["text cut"], ContinuationPolicy.preset("zeroclaw"))
    assert [message.text for message in result.messages] == ["hi", "Hello, world."]


@pytest.mark.behaviour(38)
def test_calls_that_a_policy_does_not_promote_are_answered_by_nobody_and_not_replayed() -> None:
    """A clean stop ends the turn with its text; the record of it has no call, the stop says what happened."""
    _, result, *_ = play(SCENARIOS["stop with calls"], ContinuationPolicy.preset("anthropic"))
    assert (result.text, result.messages[-1].tool_calls, result.messages[-1].blocks) == ("So: ", (), None)
    assert result.stop is not None
    assert result.stop.promoted_from is StopReason.END_TURN


@pytest.mark.behaviour(4)
def test_a_null_reason_is_no_end_where_it_is_not_promoted() -> None:
    """Complete calls without any reason are not run, and the turn is not called complete."""
    silent = calling(call(), text="So: ").with_stop(promoted_from=StopReason.MISSING, raw=None)
    _, result, _, ran = play(Scenario((silent, said("never"))), ContinuationPolicy.preset("anthropic"))
    assert (ran, result.outcome, result.complete) == ([], "stream_cut", False)


@pytest.mark.behaviour(34)
@pytest.mark.parametrize("name", ["anthropic", "botnexus", "zeroclaw"])
def test_no_careful_preset_runs_a_cut_call(name: str) -> None:
    """Under `verified_terminal` and `tool_call_only` no cut call is ever dispatched, an empty object included."""
    for cut_call in (call(), call("now", "{}"), call("now", ""), HALF):
        *_, ran = play(Scenario((cut("So: ", calls=[cut_call]), said("Done."))), ContinuationPolicy.preset(name))
        assert ran == []


# --- By name ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", presets())
def test_a_preset_is_had_by_its_name(name: str) -> None:
    """From code, from a variable and as a key it is the same, and every key of its table is in it."""
    policy = ContinuationPolicy.preset(name)
    assert ContinuationPolicy.load(environ={"ENDTURN_AGENT_PRESET": name}) == policy
    assert ContinuationPolicy.load(environ={}, preset=name) == policy
    assert policy.model_dump(mode="json").items() >= presets()[name].items()
    assert policy.model_fields_set == presets()[name].keys()


def test_the_names_are_the_sources() -> None:
    """Five, in order."""
    assert list(presets()) == ["anthropic", "botnexus", "forgeflare", "wave", "zeroclaw"]


def test_a_key_that_is_given_wins_over_the_presets() -> None:
    """The others stay the preset's."""
    policy = ContinuationPolicy.preset("forgeflare", prompt="Go on.", continuation_max_attempts=5)
    given = {**presets()["forgeflare"], "prompt": "Go on.", "continuation_max_attempts": 5}
    assert policy == ContinuationPolicy(**given)


@pytest.mark.parametrize("name", ["claude", "ZeroClaw", "", 3, ["wave"]])
def test_an_unknown_name_is_refused_with_the_names(name: object) -> None:
    """The error lists what there is."""
    with pytest.raises(UsageError, match="the presets are: anthropic, botnexus, forgeflare, wave, zeroclaw"):
        ContinuationPolicy.preset(name)  # type: ignore[arg-type]


def test_a_preset_sets_only_what_its_source_says() -> None:
    """The rest is the contract's: the seams, the money, the time."""
    ours = {"min_overlap", "max_overlap", "max_cost", "deadline_s", "mode"}
    assert all(not preset.keys() & ours for preset in presets().values())
