"""The controllers, beyond tests/turns: wrong arguments, functions, other layers, interrupts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from datetime import date
from typing import Any

import pytest

from endturn.calls.call_scope import Layer, open_call
from endturn.calls.facts import EndpointFacts, RequestFacts, ResponseFacts
from endturn.calls.records import CallEnded, ToolEnded, TurnEnded, UsageEstimated
from endturn.calls.turn_scope import current_turn
from endturn.continuation.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.errors import UsageError
from endturn.formats import format_of
from endturn.vocabulary.messages import ChatResponse, Delta, Request, Tool, ToolCall, Usage
from endturn.vocabulary.stop import StopReason
from tests.support.turns import NOW, SEARCH, Played, ask, call, calling, cut, heard, said

SEARCHING = ask(tools=(SEARCH,))


# --- What is given wrongly ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "settings", "message"),
    [
        (lambda request: "Hello", {}, "not a value of type str"),
        (lambda request: None, {}, "not None"),
        (lambda request: {"text": "Hello"}, {}, "not a value of type dict"),
        (lambda request: iter(["Hello"]), {}, "not a value of type str"),
        (Played(said("a")).coroutine, {}, "use AsyncContinuationController"),
        (Played(said("a"), chunk=1).asynchronous, {}, "use AsyncContinuationController"),
        (said, {"tools": [(SEARCH, None)]}, "a tool's function is None"),
        (Played(calling(call())), {"tools": {"search": Played().coroutine}}, "use AsyncContinuationController"),
        (
            Played(said("", StopReason.CONTEXT_WINDOW_EXCEEDED)),
            {"policy": ContinuationPolicy(on_context_exceeded=lambda request, response: "shorter")},
            "on_context_exceeded must return a Request",
        ),
        (said, {"request": "a secret"}, r"starts with a Request or .* not a value of type str: Request\(model="),
    ],
)
def test_natural_mistakes_are_named(provider: Any, settings: dict[str, Any], message: str) -> None:
    """The error says what to pass, and quotes neither the prompt nor the answer."""
    given = {"request": ask("a secret", tools=(SEARCH,)), **settings}
    request = given.pop("request")
    with pytest.raises(UsageError, match=message) as raised:
        ContinuationController(provider, **given).run(request)
    assert "secret" not in str(raised.value)
    assert "Hello" not in str(raised.value)


@pytest.mark.parametrize(
    ("provider", "options", "message"),
    [
        (42, {}, "provider is a function of a Request, .* not a value of type int"),
        (print, {"policy": {"max_iterations": 2}}, "ContinuationPolicy.* not .* dict"),
        (print, {"policy": ContinuationPolicy}, "not the class ContinuationPolicy"),
        (print, {"tools": [print]}, "tools holds .*: give functions by name"),
        (print, {"tools": [Tool(name="search")]}, "tools holds .* Tool: give functions by name"),
        (print, {"tools": "search"}, "tools is .* str: give functions by name"),
        (print, {"tools": {"search": "f"}}, "a tool's function is .* str"),
        (print, {"format": "telex"}, "unknown format 'telex'"),
    ],
)
def test_rejects_wrong_arguments(provider: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ContinuationController(provider, **options)


# --- Tools ----------------------------------------------------------------------------------------------------------


CIRCULAR: list[Any] = []
CIRCULAR.append(CIRCULAR)


class Unspeakable:
    """An object whose text cannot be read."""

    def __str__(self) -> str:
        raise RuntimeError("the secret")


@pytest.mark.behaviour(37)
@pytest.mark.parametrize(
    "answer", [object(), CIRCULAR, [{"a": object()}], [{"type": "text", "a": CIRCULAR}], Unspeakable(), b"\xff"]
)
def test_a_result_without_json_form_becomes_an_error_for_the_model(answer: Any) -> None:
    """The call counts as run; the model gets one sentence, and nothing of the result."""
    provider = Played(calling(call()), said("Too bad."))
    with heard(ToolEnded) as ended:
        result = ContinuationController(provider, tools={"search": lambda asked: answer}).run(SEARCHING)
    told = provider.requests[1].messages[-1]
    kind = type(answer).__name__
    assert told.text == f"the tool was run, but its result, a value of type {kind}, cannot be written as JSON"
    assert (told.is_error, result.outcome, ended[0].error is None) == (True, "completed", False)


@pytest.mark.parametrize(
    ("answer", "content"),
    [
        ([{1: 2}], '[{"1": 2}]'),
        ([{"type": "image", "data": b"png"}], [{"type": "image", "data": b"png"}]),
        ((str(n) for n in range(2)), '["0", "1"]'),
        ({"at": date(2026, 11, 23)}, '{"at": "2026-11-23"}'),
    ],
)
async def test_a_tools_result_becomes_content(answer: Any, content: Any) -> None:
    """The async controller awaits awaitable results."""

    async def search(asked: ToolCall) -> str:
        await asyncio.sleep(0)
        return "found"

    provider = Played(calling(call(), call("now", "", id="2")), said("ok"))
    controller = AsyncContinuationController(provider, tools={"search": search, "now": lambda asked: answer})
    result = await controller.run(ask(tools=(SEARCH, NOW)))
    assert [each.content for each in result.tool_results] == ["found", content]


@pytest.mark.behaviour(24)
@pytest.mark.parametrize("speaks", ["openai_chat", "anthropic", "gemini", "bedrock_converse", "ollama"])
def test_text_arguments_are_sent_back_as_they_were_run(speaks: str) -> None:
    """A provider function may return a call's arguments only as text; the history has the arguments that were run."""
    provider = Played(calling(call().but(arguments=None)), said("Done."))
    ContinuationController(provider, tools=[(SEARCH, lambda call: "found")], format=speaks).run(ask())
    (message,) = (each for each in provider.requests[1].messages if each.tool_calls)
    body = format_of(speaks).encode(provider.requests[1])
    assert message.tool_calls[0].arguments == {"q": "x"}
    assert '"x"' in repr(body).replace("'", '"').replace('\\"', '"')


# --- Interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(18)
@pytest.mark.parametrize(("at", "text"), [("provider", "Hello, "), ("stream", "Hello, wo"), ("tool", "Hello, wo")])
async def test_a_cancelled_task_keeps_its_partial_result(at: str, text: str) -> None:
    """The exception propagates with the partial turn, nothing stays open, and the turn can be resumed."""
    reached, provider = asyncio.Event(), Played(cut("Hello, "), calling(call(), text="wo"), said("rld."), chunk=2)

    async def wait(place: str) -> None:
        if place == at and not reached.is_set():
            reached.set()
            await asyncio.Event().wait()

    async def stream(request: Request) -> AsyncIterator[Delta | ChatResponse]:
        if len(request.messages) > 1:
            await wait("provider")
        async with aclosing(provider.asynchronous(request)) as items:  # type: ignore[type-var]
            async for item in items:
                yield item
                if len(request.messages) > 1:
                    await wait("stream")

    async def search(asked: ToolCall) -> str:
        await wait("tool")
        return "found"

    controller = AsyncContinuationController(stream, tools={"search": search})
    with heard(TurnEnded) as ended:
        task = asyncio.create_task(controller.run(SEARCHING))
        await reached.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert current_turn() is None
    result: TurnResult = caught.value.turn_result  # type: ignore[attr-defined]
    assert (result.text, result.outcome, result.complete) == (text, "cancelled", False)
    assert [record.outcome for record in ended] == ["cancelled"]
    assert (await controller.run(result.resume())).complete


@pytest.mark.behaviour(18, 24)
def test_a_call_that_was_refused_is_answered_when_the_consumer_leaves() -> None:
    """Held-back text is released before the errors are recorded, which the history needs in any case."""
    unknown = call("nowhere")
    provider = Played(calling(unknown, text="Hello \ufffd"), said("Sorry."))
    controller = ContinuationController(provider, tools={"search": lambda asked: "found"})
    stream = controller.stream(SEARCHING)
    assert [next(stream), next(stream)] == [Delta(text="Hello "), Delta(text="\ufffd")]
    with pytest.raises(KeyboardInterrupt) as caught:
        stream.throw(KeyboardInterrupt())  # type: ignore[attr-defined]
    result: TurnResult = caught.value.turn_result  # type: ignore[attr-defined]
    answer, error = result.messages[-2:]
    assert [made.id for made in answer.tool_calls] == [error.tool_call_id] == [unknown.id]
    assert error.is_error
    assert "there is no tool called 'nowhere'" in error.text
    assert controller.run(result.resume()).answer == "Sorry."


# --- Other layers -----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(17, 42)
@pytest.mark.parametrize("layer", [Layer.CLIENT, Layer.HTTP, Layer.WRAPPER])
def test_a_layer_below_announces_instead(layer: Layer) -> None:
    """It announces the call, and its usage is not estimated, although the provider function returns none."""
    script = iter([cut("Hello, ", tokens=None), said("world.", tokens=None)])

    def provider(request: Request) -> ChatResponse:
        inner = open_call(layer, RequestFacts(model="inner"), EndpointFacts(provider="openai"))
        assert inner is not None
        with inner.step():
            response = next(script)
        inner.end(ResponseFacts(stop=response.stop, usage=Usage(50, 5), output_chars=len(response.text)))
        return response

    with heard() as records:
        result = ContinuationController(provider).run(ask())
    ended = [record for record in records if isinstance(record, CallEnded)]
    assert [record.started.request.model for record in ended] == ["inner", "inner"]
    assert [record.started.continuation is not None for record in ended] == [False, True]
    (turn,) = {record.started.turn for record in ended}
    assert (turn.iterations, turn.input_tokens, turn.output_tokens, turn.estimated) == (2, 100, 10, False)
    assert (result.requests, result.usage) == (2, Usage(100, 10))
    assert not any(isinstance(record, UsageEstimated) for record in records)


def test_the_scope_is_never_left_open_across_a_yield() -> None:
    """Between two items of a stream no turn is current; inside the provider and the tools it is."""
    seen = []

    def provider(request: Request) -> Iterator[Delta | ChatResponse]:
        seen.append(current_turn())
        yield Delta(text="a")
        yield calling(call("now", ""), text="a") if len(seen) == 1 else said("b")

    def now(asked: ToolCall) -> str:
        seen.append(current_turn())
        return "noon"

    for _ in ContinuationController(provider, tools={"now": now}).stream(ask(tools=(NOW,))):
        assert current_turn() is None
    assert (len(seen), len(set(seen))) == (3, 1)
    assert seen[0] is not None
