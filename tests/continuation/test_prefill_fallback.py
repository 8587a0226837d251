"""An ignored prefill is recognised by its response, once for all turns of the process."""

from __future__ import annotations

import openai
import pytest

from endturn.calls.records import ContinuationAttempted, TurnEnded
from endturn.continuation import refused_prefills
from endturn.continuation.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.testing.scripted import Reply, ScriptedProvider, empty, fail, say, think, truncate
from endturn.vocabulary.messages import Message, Request
from endturn.vocabulary.stop import StopReason
from tests.support.turns import heard

FIRST = "The capital of France is"
WHOLE = f"{FIRST} Paris, on the Seine."
ASK = Request(model="qwen3", messages=(Message(role="user", content="Which?"),), max_tokens=400)
CUT = truncate(FIRST, after=99)
NOT_TAKEN_UP: dict[str, Reply] = {
    # source: vLLM's reasoning parsers put all before `</think>` into `reasoning_content`
    "as reasoning": think("Paris, on the Seine."),
    "as reasoning with a clean end": Reply(reasoning="Paris, on the Seine."),
    "empty": empty(),
    "empty and cut": Reply(stop=StopReason.MAX_TOKENS),
    "begun anew": say("The capital of France, as is well known, is Paris."),
    "begun anew and cut": truncate("The capital of France", after=99),
    "rejected": fail(400, "invalid_request_error"),
    "unprocessable": fail(422, "invalid_request_error"),
}


def is_prefill(request: Request) -> bool:
    return request.messages[-1].role == "assistant"


def check(result: TurnResult, attempts: list[ContinuationAttempted], strategies: list[str]) -> None:
    """Check that the text was released once, and the strategies of the requests."""
    assert (result.text, result.answer, result.outcome.value, result.complete) == (WHOLE, WHOLE, "completed", True)
    assert [message.text for message in result.messages[1:]] == [WHOLE]
    assert [attempt.continuation.strategy.value for attempt in attempts] == strategies
    assert (result.continuations, result.requests) == (len(strategies), len(strategies) + 1)


@pytest.mark.behaviour(14)
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("name", NOT_TAKEN_UP)
def test_an_ignored_prefill_falls_back_to_a_prompt(name: str, is_streamed: bool) -> None:
    """It uses no attempt and leaves no text; later turns of any controller use a prompt at once."""
    policy = ContinuationPolicy(continuation_max_attempts=1)
    for strategies in (["prefill", "prompt"], ["prompt"]):
        script = [CUT, *([NOT_TAKEN_UP[name]] if "prefill" in strategies else []), say(" Paris, on the Seine.")]
        provider = ScriptedProvider(script, dialect="vllm")
        with heard(ContinuationAttempted) as attempts:
            complete = provider.stream if is_streamed else provider.complete
            result = ContinuationController(complete, policy=policy, provider_name="vllm").run(ASK)
        check(result, attempts, strategies)
        assert [is_prefill(request) for request in provider.requests[1:]] == [each == "prefill" for each in strategies]


@pytest.mark.behaviour(14)
@pytest.mark.parametrize("name", NOT_TAKEN_UP)
async def test_the_async_controller_falls_back_too(name: str) -> None:
    """The deltas of a stream are the text: nothing of the prefill's response was shown."""
    provider = ScriptedProvider([CUT, NOT_TAKEN_UP[name], say(" Paris, on the Seine.")], dialect="vllm")
    shown = ""
    async for item in AsyncContinuationController(provider.astream).stream(ASK):
        shown += "" if isinstance(item, TurnResult) else item.text
    assert shown == WHOLE


@pytest.mark.behaviour(14)
@pytest.mark.parametrize("again", [f"{FIRST} Paris, on the Seine.", f"\n{FIRST} Paris, on the Seine."])
def test_a_repeated_prefill_is_used_and_remembered(again: str) -> None:
    """The response has the complete answer, so there is no further request, and the next turn uses a prompt."""
    for strategies in (["prefill"], ["prompt"]):
        provider = ScriptedProvider([CUT, say(again)], dialect="vllm")
        with heard(ContinuationAttempted) as attempts:
            result = ContinuationController(provider).run(ASK)
        check(result, attempts, strategies)


@pytest.mark.behaviour(14)
def test_an_accepted_prefill_stays_the_strategy() -> None:
    """It is used in every turn, also if the response repeats its first words, or is empty after a complete answer."""
    for rest in (" Paris, on the Seine.", " Paris, on the Seine."):
        provider = ScriptedProvider([CUT, say(rest)], dialect="vllm")
        with heard(ContinuationAttempted) as attempts:
            check(ContinuationController(provider).run(ASK), attempts, ["prefill"])
    whole = ScriptedProvider([truncate(f"{FIRST} Paris.", after=99), empty()], dialect="vllm")
    result = ContinuationController(whole).run(ASK)
    assert (result.text, result.outcome.value, result.requests) == (f"{FIRST} Paris.", "completed", 2)
    rows = "a row of equal cells\n"
    table = ScriptedProvider([truncate(rows * 3, after=999), say("a row of equal parts")], dialect="vllm")
    assert ContinuationController(table).run(ASK).text == f"{rows * 3}a row of equal parts"
    assert not refused_prefills.is_refused(("openai_chat", "vllm", "openai", "", "qwen3"))


@pytest.mark.behaviour(14)
def test_both_calls_are_counted_and_one_turn_is_finished() -> None:
    """The tokens of the omitted response count; the announced turn is complete as well."""
    provider = ScriptedProvider([CUT, think("Paris, on the Seine."), say(" Paris, on the Seine.")], dialect="vllm")
    with heard(TurnEnded) as ended:
        result = ContinuationController(provider).run(ASK)
    (record,) = ended
    assert (record.complete, record.turn.unfinished, record.turn.continuations) == (True, False, 2)
    assert record.turn.output_tokens == result.usage.output_tokens == 5 + 4 + 4  # tokens of the three replies


@pytest.mark.behaviour(14)
def test_a_refused_prefill_without_an_alternative_is_not_remembered() -> None:
    """A policy that allows only prefills ends the turn, and tries again in the next one."""
    policy = ContinuationPolicy(continuation_strategies=("prefill",))
    for _ in range(2):
        provider = ScriptedProvider([CUT, empty()], dialect="vllm")
        result = ContinuationController(provider, policy=policy).run(ASK)
        assert (result.outcome.value, result.requests, result.text) == ("no_progress", 2, FIRST)


@pytest.mark.behaviour(14)
def test_it_is_remembered_by_endpoint_and_model() -> None:
    """With a real SDK over loopback: another server, and another model of the same server, are tried separately."""

    def strategies(url: str, model: str) -> list[str]:
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none") as client, heard(ContinuationAttempted) as attempts:
            result = ContinuationController(client, dialect="vllm").run(ASK.but(model=model))
        assert result.text == WHOLE
        return [attempt.continuation.strategy.value for attempt in attempts]

    ignored = [CUT, think("Paris, on the Seine."), say(" Paris, on the Seine.")]
    one = ScriptedProvider([*ignored, CUT, say(" Paris, on the Seine."), *ignored], dialect="vllm")
    other = ScriptedProvider([CUT, say(" Paris, on the Seine.")], dialect="vllm")
    with one.serve() as first, other.serve() as second:
        assert strategies(first, "qwen3") == ["prefill", "prompt"]
        assert strategies(first, "qwen3") == ["prompt"]
        assert strategies(second, "qwen3") == ["prefill"]
        assert strategies(first, "glm") == ["prefill", "prompt"]


def test_the_memory_of_refused_prefills_is_bounded() -> None:
    """The oldest is forgotten."""
    for number in range(refused_prefills.MAX_TARGETS + 10):
        refused_prefills.remember(("openai_chat", str(number)))
    assert not refused_prefills.is_refused(("openai_chat", "9"))
    assert refused_prefills.is_refused(("openai_chat", "10"))
    assert refused_prefills.is_refused(("openai_chat", str(refused_prefills.MAX_TARGETS + 9)))
