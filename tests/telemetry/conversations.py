"""Calls made one after another, and which turn each belongs to: played by test_infer.py.

The steps and their expectations are described in conversation_steps.py.
"""

from __future__ import annotations

from endturn.calls.outcomes import RequestedCall
from endturn.formats import Attempt
from tests.telemetry.conversation_steps import (
    Step,
    assistant,
    call,
    call_of,
    close,
    complete,
    end_of,
    failed,
    prefill,
    prompt,
    repair,
    requested,
    resend,
    result,
    retry,
    search,
    searches,
    stopped,
    system,
    tool_call,
    tool_calls,
    truncated,
    user,
    wait,
    withdrawn,
)

CONVERSATIONS: dict[str, list[Step]] = {
    "refused": [
        call(user("Tides?"), response=stopped("refused"), ends=["refused"]),
    ],
    "a tool call": [
        call(user("Tides?"), response=stopped("tool_call"), ends=["completed"]),
    ],
    "blocked": [
        call(user("Tides?"), response=stopped("safety_blocked"), ends=["safety_blocked"]),
    ],
    "cancelled": [
        call(user("Tides?"), response=stopped("cancelled"), ends=["cancelled"]),
    ],
    "unknown": [
        call(user("Tides?"), response=stopped("unknown"), ends=["unknown_reason"]),
    ],
    "an error": [
        call(user("Tides?"), response=failed(), ends=[]),
        wait(10, ["provider_error"]),
    ],
    "an error that nobody retries": [
        call(user("Tides?"), response=failed(400), ends=["provider_error"]),
    ],
    # With the same limit it is another sample of the prompt: nothing says that the rest is wanted.
    "the same again at once": [
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=100, open_turns=1),
    ],
    "the same again without any limit": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(user("Tides?"), open_turns=1),
    ],
    "the same again with a larger limit": [
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=200, continues=resend(1, of=0)),
    ],
    "the same again with ever larger limits": [
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=200, response=truncated("The moon and"), continues=resend(1, of=0)),
        call(user("Tides?"), max_tokens=400, continues=resend(2, of=1)),
    ],
    "the same again later, with a larger limit": [
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=200, after=10, continues=resend(1, of=0)),
    ],
    "the same again later, without a limit": [
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), after=10, continues=resend(1, of=0)),
    ],
    "the same again later, with a smaller limit": [
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=50, after=10),
    ],
    "another kind of answer to the same, with a larger limit": [
        call_of(
            "openai_chat",
            {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Tides?"}]},
            response=truncated("The moon and"),
        ),
        call_of(
            "openai_chat",
            {
                "model": "m",
                "max_tokens": 50,
                "messages": [{"role": "user", "content": "Tides?"}],
                "response_format": {"type": "json_object"},
            },
            open_turns=1,
        ),
    ],
    "a prompt that is asked many times": [
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        close("not_continued", "not_continued", "not_continued"),
    ],
    # Whose rest the larger limit would ask for is not known: of a prompt that several turns ask each call is
    # a sample.
    "limits that are tried, each several times": [
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=200, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=200),
        close("not_continued", "not_continued", "not_continued"),
    ],
    "a prompt that was asked a while ago, then with a larger limit": [
        call(user("Tides?"), max_tokens=100),
        call(user("Tides?"), max_tokens=100, after=61, response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=200, continues=resend(1, of=1)),
    ],
    "several answers in one declared turn": [
        call(user("Tides?"), max_tokens=100, in_turn="a", response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=100, in_turn="a", response=truncated("The moon and")),
        call(user("Tides?"), max_tokens=200, in_turn="a", continues=resend(1, of=1), ends=[]),
        end_of("a", "completed"),
    ],
    # After a lost connection the same is asked again at once.
    "a lost answer that is asked for again": [
        call(user("Tides?"), max_tokens=100, response=stopped("missing", "The moon and")),
        call(
            user("Tides?"),
            max_tokens=100,
            after=9,
            response=stopped("missing", "The moon and"),
            continues=retry(1, of=0),
        ),
        call(user("Tides?"), max_tokens=100, after=9, continues=retry(2, of=1)),
    ],
    "a lost answer that is asked for again later": [
        call(user("Tides?"), max_tokens=100, response=stopped("missing", "The moon and")),
        call(user("Tides?"), max_tokens=100, after=11, open_turns=1),
    ],
    "a lost answer of a prompt that is asked many times": [
        call(user("Tides?")),
        call(user("Tides?"), response=stopped("missing", "The moon and")),
        call(user("Tides?"), open_turns=1),
    ],
    "one prompt for several models": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(user("Tides?"), model="another", open_turns=1),
    ],
    "a pause that is taken up": [
        call(user("Tides?"), response=stopped("paused", "The moon and")),
        call(user("Tides?"), assistant("The moon and"), continues=resend(1, of=0)),
    ],
    "a pause that is left by another question": [
        call(user("Tides?"), response=stopped("paused", "The moon and")),
        call(user("Tides?"), assistant("The moon and"), user("And the moon?"), ends=["left_paused", "completed"]),
    ],
    "a pause that is left by doing nothing": [
        call(user("Tides?"), response=stopped("paused", "The moon and")),
        wait(30, ["left_paused"]),
    ],
    # Hosts append each part, or merge the parts into one.
    "continued twice, in segments": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            response=truncated(" the sun"),
            continues=prompt(1, of=0),
        ),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            assistant(" the sun"),
            user("Go on."),
            continues=prompt(2, of=1),
            open_turns=0,
        ),
    ],
    "continued twice, merged": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            response=truncated(" the sun"),
            continues=prompt(1, of=0),
        ),
        call(user("Tides?"), assistant("The moon and the sun"), user("Go on."), continues=prompt(2, of=1)),
    ],
    "continued twice, merged, as a prefill": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            response=truncated(" the sun"),
            continues=prompt(1, of=0),
        ),
        call(user("Tides?"), assistant("The moon and the sun"), continues=prefill(2, of=1)),
    ],
    # An error leaves the answer as cut as it was; the same request again is a retry.
    "a continuation that fails and is tried again": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            response=failed(text=""),
            continues=prompt(1, of=0),
            ends=[],
        ),
        call(user("Tides?"), assistant("The moon and"), user("Go on."), continues=retry(2, of=0)),
    ],
    "a continuation that fails for good": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            response=failed(text=""),
            continues=prompt(1, of=0),
            ends=[],
        ),
        close("provider_error unfinished"),
    ],
    "a continuation that fails within a response, and is tried again": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            response=failed(200, ""),
            continues=prompt(1, of=0),
            ends=[],
        ),
        call(user("Tides?"), assistant("The moon and"), user("Go on."), continues=retry(2, of=0)),
    ],
    "a continuation that is refused": [
        call(user("Tides?"), response=truncated("The moon and")),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            response=stopped("refused", ""),
            continues=prompt(1, of=0),
            ends=["refused unfinished"],
        ),
    ],
    # A stateful provider's call carries the id instead of the history: it continues what was cut, or leaves it.
    "by the response's id, asking to go on": [
        call(user("Tides?"), response=truncated("The moon and", response_id="r1")),
        call(user("continue"), previous_response_id="r1", continues=prompt(1, of=0)),
    ],
    "by the response's id, saying nothing": [
        call(user("Tides?"), response=truncated("The moon and", response_id="r1")),
        call(previous_response_id="r1", continues=prefill(1, of=0)),
    ],
    "by the response's id, another question": [
        call(user("Tides?"), response=truncated("The moon and", response_id="r1")),
        call(user("And the moon?"), previous_response_id="r1", ends=["not_continued", "completed"]),
    ],
    "by the response's id, taken for a whole one": [
        call(user("Tides?"), response=truncated("The moon and", response_id="r1")),
        call(
            {"type": "function_call_output", "call_id": "c", "output": "42"},
            previous_response_id="r1",
            joins=0,
            ends=["not_continued"],
        ),
    ],
    # Where a call says only what is new, the same words after another response are another conversation's.
    "two conversations that a server keeps": [
        call(user("yes"), previous_response_id="ra", response=stopped("missing", "The moon and", response_id="rb")),
        call(user("yes"), previous_response_id="rx"),
        call(user("yes"), previous_response_id="ra", continues=retry(1, of=0)),
    ],
    "by the conversation that a server keeps": [
        call(user("Tides?"), conversation_id="c1", response=truncated("The moon and")),
        call(user("continue"), conversation_id="c2"),
        call(user("continue"), conversation_id="c1", continues=prompt(1, of=0)),
        call(user("Tides?"), conversation_id="c1", response=truncated("The moon and")),
        call(user("And the moon?"), conversation_id="c1", ends=["not_continued", "completed"]),
    ],
    # Where the model only thought, a host has nothing to send back: asking to go on alone is a continuation.
    "an answer that could not be seen": [
        call(user("Tides?"), response=truncated("")),
        call(user("Tides?"), assistant("Another answer."), user("Go on.")),
        call(user("Tides?"), user("Go on."), continues=prompt(1, of=0)),
    ],
    "a turn that nobody continues": [
        call(user("Tides?"), response=truncated("The moon and")),
        wait(29.9),
        wait(0.2, ["not_continued"], open_turns=0),
        call(user("Tides?")),
    ],
    "within an observed turn": [
        call(user("Tides?"), in_turn="a", response=truncated("The moon and")),
        call(
            user("Tides?"), assistant("The moon and"), user("Go on."), in_turn="a", continues=prompt(1, of=0), ends=[]
        ),
        call(user("Mars?"), in_turn="a", ends=[]),
        end_of("a", "completed"),
    ],
    # A later answer of the declared turn is none to what was cut.
    "an observed turn that moves on from a truncated answer": [
        call(user("Tides?"), in_turn="a", response=truncated("The moon and")),
        call(user("Tides?"), assistant("The moon and"), user("Thanks. And Mars?"), in_turn="a", ends=[]),
        call(
            user("Tides?"),
            assistant("The moon and"),
            user("Thanks. And Mars?"),
            assistant("Red."),
            user("And Venus?"),
            in_turn="a",
            ends=[],
        ),
        end_of("a", "not_continued"),
    ],
    "an observed turn that asks the same again": [
        call(user("Tides?"), in_turn="a", response=truncated("The moon and")),
        call(user("Tides?"), in_turn="a", ends=[]),
        end_of("a", "completed"),
    ],
    "an observed turn is not ended by waiting": [
        call(user("Tides?"), in_turn="a", response=truncated("The moon and")),
        close(),
        end_of("a", "not_continued"),
    ],
    "turns do not take each other's calls": [
        call(user("Tides?"), in_turn="a", response=truncated("The moon and")),
        call(user("Tides?"), in_turn="b", ends=[]),
        call(user("Tides?")),
    ],
    "a system prompt that is written anew": [
        call(system("It is 9:00."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("It is 9:01."),
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            response=truncated(" the sun"),
            continues=prompt(1, of=0),
        ),
        call(
            system("It is 9:02."),
            user("Tides?"),
            assistant("The moon and the sun"),
            user("Go on."),
            continues=prompt(2, of=1),
        ),
    ],
    "a system prompt that is written anew, with a prefill": [
        call(system("It is 9:00."), user("Tides?"), response=truncated("The moon and")),
        call(system("It is 9:01."), user("Tides?"), assistant("The moon and"), continues=prefill(1, of=0)),
    ],
    "a system prompt beside the messages that is written anew": [
        call(user("Tides?"), system="It is 9:00.", response=truncated("The moon and")),
        call(
            user("Tides?"), assistant("The moon and"), user("Go on."), system="It is 9:01.", continues=prompt(1, of=0)
        ),
    ],
    # One question put to two agents is two turns: nothing but the cut answer itself makes them one.
    "an agent with other instructions": [
        call(system("It is 9:00."), user("Tides?"), response=truncated("The moon and")),
        call(system("It is 9:01."), user("Tides?")),
        call(system("It is 9:01."), user("Tides?"), assistant("Something else."), user("Go on.")),
        call(system("It is 9:00."), user("Mars?"), response=truncated("")),
        call(system("It is 9:01."), user("Mars?"), user("Go on."), open_turns=2),
    ],
    "a question after a system prompt that is written anew": [
        call(system("It is 9:00."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("It is 9:01."),
            user("Tides?"),
            assistant("The moon and"),
            user("And who saw that?"),
            ends=["not_continued", "completed"],
        ),
    ],
    # --- Ways of going on, in whatever form the history comes ---
    "continued by resend": [
        call(system("Be brief."), user("Tides?"), max_tokens=100, response=truncated("The moon and")),
        call(system("Be brief."), user("Tides?"), continues=resend(1, of=0)),
    ],
    "continued by retry": [
        call(system("Be brief."), user("Tides?"), response=stopped("missing", "The moon and")),
        call(system("Be brief."), user("Tides?"), continues=retry(1, of=0)),
    ],
    "continued by prefill": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), continues=prefill(1, of=0)),
    ],
    "continued by prefill, stripped": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), continues=prefill(1, of=0)),
    ],
    "continued by prompt": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    "continued by prompt in a part": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("Be brief."),
            user("Tides?"),
            assistant("The moon and"),
            {"role": "user", "content": [{"type": "text", "text": "continue"}]},
            continues=prompt(1, of=0),
        ),
    ],
    "continued by cache marks": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("Be brief."),
            {"role": "user", "content": [{"type": "text", "text": "Tides?", "cache_control": {"type": "ephemeral"}}]},
            assistant("The moon and"),
            user("Go on."),
            continues=prompt(1, of=0),
        ),
    ],
    "continued by missing, then a prompt": [
        call(system("Be brief."), user("Tides?"), response=stopped("missing", "The moon and")),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    # The model is asked for a cut tool call again: a repair, which completes the turn.
    "a cut tool call that is answered by an error, openai": [
        call(system("Be brief."), user("Tides?"), response=truncated("", RequestedCall("c", "pay"))),
        call(
            system("Be brief."),
            user("Tides?"),
            tool_calls(tool_call("c", "pay", '{"to": "A')),
            result("c", "Error: invalid JSON in the arguments"),
            continues=repair(1, of=0),
        ),
    ],
    "a cut tool call that is answered by an error, anthropic": [
        call(system("Be brief."), user("Tides?"), response=truncated("", RequestedCall("t", "pay"))),
        call(
            system("Be brief."),
            user("Tides?"),
            {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "pay", "input": {}}]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t", "content": "?", "is_error": True}],
            },
            continues=repair(1, of=0),
        ),
    ],
    "a cut tool call that is answered by an error, bedrock": [
        call(system("Be brief."), user("Tides?"), response=truncated("", RequestedCall("t", "pay"))),
        call(
            system("Be brief."),
            user("Tides?"),
            {"role": "assistant", "content": [{"toolUse": {"toolUseId": "t", "name": "pay", "input": {}}}]},
            {
                "role": "user",
                "content": [{"toolResult": {"toolUseId": "t", "status": "error", "content": [{"text": "?"}]}}],
            },
            continues=repair(1, of=0),
        ),
    ],
    "a cut tool call that is answered by an error, gemini": [
        call(system("Be brief."), user("Tides?"), response=truncated("", RequestedCall("", "pay"))),
        call(
            system("Be brief."),
            user("Tides?"),
            {"role": "model", "parts": [{"functionCall": {"name": "pay", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "pay", "response": {"error": "?"}}}]},
            continues=repair(1, of=0),
        ),
    ],
    "a cut tool call that is answered by an error, responses": [
        call(system("Be brief."), user("Tides?"), response=truncated("", RequestedCall("c", "pay"))),
        call(
            system("Be brief."),
            user("Tides?"),
            {"type": "function_call", "call_id": "c", "name": "pay", "arguments": '{"to'},
            {"type": "function_call_output", "call_id": "c", "output": "Failed to parse the arguments"},
            continues=repair(1, of=0),
        ),
    ],
    "a cut tool call that is answered by an error, one of two": [
        call(system("Be brief."), user("Tides?"), response=truncated("", RequestedCall("c", "pay"))),
        call(
            system("Be brief."),
            user("Tides?"),
            tool_calls(tool_call("c", "pay", '{"to": "A')),
            result("a", "42"),
            result("c", "Invalid arguments"),
            continues=repair(1, of=0),
        ),
    ],
    "a cut tool call that is answered by an error, a framework's words": [
        call(system("Be brief."), user("Tides?"), response=truncated("", RequestedCall("c", "pay"))),
        call(
            system("Be brief."),
            user("Tides?"),
            tool_calls(tool_call("c", "pay", '{"to": "A')),
            user("Could not parse the tool call: the JSON is incomplete. Try again."),
            continues=repair(1, of=0),
        ),
    ],
    # The same conversation, something else: the cut turn was left, and the call is a turn of its own.
    "left by next question": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("Be brief."),
            user("Tides?"),
            assistant("The moon and"),
            user("And who discovered that?"),
            ends=["not_continued", "completed"],
        ),
    ],
    "left by a question that begins like a prompt": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("Be brief."),
            user("Tides?"),
            assistant("The moon and"),
            user("Continue the story with a dragon in it"),
            ends=["not_continued", "completed"],
        ),
    ],
    "left by a long text with a prompt in it": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("Be brief."),
            user("Tides?"),
            assistant("The moon and"),
            user("continue where you left off" + " and so on" * 70),
            ends=["not_continued", "completed"],
        ),
    ],
    "left by a prompt and a question": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("Be brief."),
            user("Tides?"),
            assistant("The moon and"),
            user("Go on."),
            user("In French, please"),
            ends=["not_continued", "completed"],
        ),
    ],
    "left by a prompt with an image": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("Be brief."),
            user("Tides?"),
            assistant("The moon and"),
            {"role": "user", "content": [{"type": "text", "text": "continue"}, {"type": "image_url", "image_url": {}}]},
            ends=["not_continued", "completed"],
        ),
    ],
    "left by a tool's result": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and", search("c"))),
        call(
            system("Be brief."),
            user("Tides?"),
            assistant("The moon and"),
            result("c", "42"),
            joins=0,
            ends=["not_continued"],
        ),
    ],
    "left by the answer dropped": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(
            system("Be brief."), user("Tides?"), user("Never mind. What is 2 + 2?"), ends=["not_continued", "completed"]
        ),
    ],
    # It neither continues nor ends the turn that waits.
    "a call of somebody else, another conversation": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(system("Be brief."), user("Something else")),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    "a call of somebody else, another answer to the same": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(system("Be brief."), user("Tides?"), assistant("Another sample of the same prompt."), user("Thanks")),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    "a call of somebody else, another system prompt": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(system("You are another agent."), user("Tides?")),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    "a call of somebody else, shorter": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(system("Be brief.")),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    "a call of somebody else, none": [
        call(system("Be brief."), user("Tides?"), response=truncated("The moon and")),
        call(),
        call(system("Be brief."), user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    # A redirect that its client follows by another request: what was cut waits for that.
    "what was taken for a continuation and was none": [
        call(user("Tides?"), response=truncated("The moon and")),
        withdrawn(user("Tides?"), assistant("The moon and"), user("Go on.")),
        call(user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    # --- What finishes what was cut in a declared turn: a whole answer to the same message, in other words ---
    "the same question to another model": [
        call(user("Why?"), model="big", in_turn="a", response=truncated("The moon and")),
        call(system("Be brief."), user("Why?"), model="small", in_turn="a", ends=[]),
        end_of("a", "completed"),
    ],
    "another question in the same turn": [
        call(user("Why?"), model="big", in_turn="a", response=truncated("The moon and")),
        call(system("Be brief."), user("Give this chat a title."), model="small", in_turn="a", ends=[]),
        end_of("a", "not_continued"),
    ],
    # Gemini's, too, are told apart by what is said in them.
    "the same question to another model, in parts": [
        call_of(
            "gemini",
            {"contents": [{"role": "user", "parts": [{"text": "Why?"}]}]},
            in_turn="a",
            response=truncated("The moon and"),
        ),
        call_of(
            "gemini",
            {
                "contents": [
                    {"role": "user", "parts": [{"text": "Be brief. "}]},
                    {"role": "user", "parts": [{"text": "Why?"}]},
                ]
            },
            in_turn="a",
            ends=[],
        ),
        end_of("a", "completed"),
    ],
    "another question in the same turn, in parts": [
        call_of(
            "gemini",
            {"contents": [{"role": "user", "parts": [{"text": "Why?"}]}]},
            in_turn="a",
            response=truncated("The moon and"),
        ),
        call_of("gemini", {"contents": [{"role": "user", "parts": [{"text": "How?"}]}]}, in_turn="a", ends=[]),
        end_of("a", "not_continued"),
    ],
    "of parallel calls each answers for itself": [
        call(user("Part 0"), in_turn="a", response=truncated("The moon and")),
        call(user("Part 1"), in_turn="a", ends=[]),
        call(user("Part 2"), in_turn="a", ends=[]),
        end_of("a", "not_continued"),
    ],
    "each of several cut calls can be continued": [
        call(user("Part 0"), in_turn="a", response=truncated("The moon and")),
        call(user("Part 1"), in_turn="a", response=truncated("The moon and")),
        call(
            user("Part 0"), assistant("The moon and"), user("Go on."), in_turn="a", continues=prompt(1, of=0), ends=[]
        ),
        call(
            user("Part 1"), assistant("The moon and"), user("Go on."), in_turn="a", continues=prompt(2, of=1), ends=[]
        ),
        end_of("a", "completed"),
    ],
    # --- Tools: the call that sends their results belongs to the turn of the call that asked for them ---
    "a tool loop": [
        call(system("Be brief."), user("Tides?"), response=requested(search("call_Ab1"))),
        call(
            system("Be brief."),
            user("Tides?"),
            searches("call_Ab1"),
            result("call_Ab1", "x"),
            response=requested(search("call_Cd2")),
            joins=0,
            ends=[],
        ),
        call(
            system("Be brief."),
            user("Tides?"),
            searches("call_Ab1"),
            result("call_Ab1", "x"),
            searches("call_Cd2"),
            result("call_Cd2", "y"),
            joins=1,
        ),
    ],
    "parallel calls": [
        call(user("Tides?"), response=requested(search("c1"), search("c2"))),
        call(user("Tides?"), searches("c1", "c2"), result("c1", "x"), result("c2", "y"), joins=0),
    ],
    "parallel calls that are written one after the other": [
        call(user("Tides?"), response=requested(search("c1"), search("c2"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), searches("c2"), result("c2", "y"), joins=0),
    ],
    "text beside the results": [
        call(user("Tides?"), response=requested(search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), user("Be quick."), joins=0),
    ],
    "another question later": [
        call(user("Tides?"), response=requested(search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), joins=0),
        call(
            user("Tides?"),
            searches("c1"),
            result("c1", "x"),
            assistant("The sun."),
            user("Mars?"),
            response=requested(search("c2")),
        ),
        call(
            user("Tides?"),
            searches("c1"),
            result("c1", "x"),
            assistant("The sun."),
            user("Mars?"),
            searches("c2"),
            result("c2", "x"),
            joins=2,
        ),
    ],
    "tools that nobody answers": [
        call(user("Tides?"), response=requested(search("c1"))),
        wait(299),
        wait(1.1, ["completed"]),
    ],
    "tools that are answered too late": [
        call(user("Tides?"), response=requested(search("c1"))),
        wait(301, ["completed"]),
        call(user("Tides?"), searches("c1"), result("c1", "x")),
    ],
    "tools that are answered when the process ends": [
        call(user("Tides?"), response=requested(search("c1"))),
        close("completed"),
    ],
    # Many agents force a call in each step, the last of which is the answer.
    "a call that is forced": [
        call(user("Tides?"), forces_tool=True, response=requested(RequestedCall("c1", "answer"))),
        wait(300, ["completed"]),
    ],
    "a call that is forced, and whose result is sent": [
        call(user("Tides?"), forces_tool=True, response=requested(search("c1"))),
        call(
            user("Tides?"),
            searches("c1"),
            result("c1", "x"),
            forces_tool=True,
            response=requested(RequestedCall("c2", "answer")),
            joins=0,
        ),
        close("completed"),
    ],
    "a call that is forced, before the next question": [
        call(user("Tides?"), forces_tool=True, response=requested(RequestedCall("c1", "answer"))),
        call(
            user("Tides?"),
            tool_calls(tool_call("c1", "answer")),
            result("c1", "ok"),
            user("Mars?"),
            forces_tool=True,
            response=requested(RequestedCall("c2", "answer")),
        ),
        close("completed", "completed"),
    ],
    "a malformed call that comes with an end": [
        call(user("Tides?"), response=requested(search("c1"), stop="end_turn"), ends=[]),
        call(user("Tides?"), searches("c1"), result("c1", "Error"), joins=0),
    ],
    "a fork of one conversation": [
        call(user("Tides?"), response=requested(search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), joins=0),
        call(user("Tides?"), searches("c1"), result("c1", "other")),
    ],
    "two conversations with equal ids": [
        call(user("Tides?"), response=requested(search("call_0"))),
        call(user("Mars?"), response=requested(search("call_0"))),
        call(user("Mars?"), searches("call_0"), result("call_0", "x"), joins=1),
        call(user("Tides?"), searches("call_0"), result("call_0", "x"), joins=0),
    ],
    "a history that was compacted": [
        call(user("Tides?"), assistant("Hm."), user("Go."), response=requested(search("toolu_01AbCdEf23"))),
        call(user("Summary: tides."), searches("toolu_01AbCdEf23"), result("toolu_01AbCdEf23", "x"), joins=0),
    ],
    "a history that was compacted, whose id is a counter": [
        call(user("Tides?"), assistant("Hm."), user("Go."), response=requested(search("functions.search:0"))),
        call(user("Summary: tides."), searches("functions.search:0"), result("functions.search:0", "x")),
    ],
    "a history that was compacted, whose id another turn had": [
        call(user("Mars?"), response=requested(search("toolu_01AbCdEf23"))),
        close("completed"),
        call(user("Tides?"), assistant("Hm."), user("Go."), response=requested(search("toolu_01AbCdEf23"))),
        call(user("Summary: tides."), searches("toolu_01AbCdEf23"), result("toolu_01AbCdEf23", "x")),
    ],
    "results by the response's id": [
        call(user("Tides?"), response=requested(search("c1"), response_id="r1")),
        call({"type": "function_call_output", "call_id": "c1", "output": "x"}, previous_response_id="r1", joins=0),
    ],
    "results in a conversation that a server keeps": [
        call(user("Tides?"), conversation_id="v1", response=requested(search("c1"))),
        call({"type": "function_call_output", "call_id": "c1", "output": "x"}, conversation_id="v2"),
        call({"type": "function_call_output", "call_id": "c1", "output": "x"}, conversation_id="v1", joins=0),
    ],
    "ids that a framework gave": [
        call(user("Tides?"), response=requested(search("toolu_01AbCdEf23"))),
        call(user("Tides?"), searches("own-1"), result("own-1", "x"), joins=0),
    ],
    "ids that a framework gave, where two turns wait": [
        call(user("Tides?"), response=requested(search("toolu_01AbCdEf23"))),
        call(user("Tides?"), response=requested(search("toolu_01AbCdEf99"))),
        call(user("Tides?"), searches("own-1"), result("own-1", "x")),
    ],
    "results without ids": [
        call(user("Tides?"), response=requested(search(""))),
        call(user("Tides?"), assistant(""), {"role": "tool", "tool_name": "search", "content": "x"}, joins=0),
    ],
    "results without ids, of another tool": [
        call(user("Tides?"), response=requested(search(""))),
        call(user("Tides?"), assistant(""), {"role": "tool", "tool_name": "weather", "content": "x"}),
    ],
    "results without ids, of another conversation": [
        call(user("Tides?"), response=requested(search(""))),
        call(user("Mars?"), assistant(""), {"role": "tool", "tool_name": "search", "content": "x"}),
    ],
    # What was truncated within a loop is finished by what continues or repairs it, by nothing else.
    "a loop whose last answer is truncated": [
        call(user("Tides?"), response=requested(search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), response=truncated("The moon and"), joins=0, ends=[]),
        wait(30, ["not_continued"]),
    ],
    "a loop whose last answer is truncated and continued": [
        call(user("Tides?"), response=requested(search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), response=truncated("The moon and"), joins=0, ends=[]),
        call(
            user("Tides?"),
            searches("c1"),
            result("c1", "x"),
            assistant("The moon and"),
            user("Go on."),
            continues=prompt(1, of=1),
            ends=["completed"],
        ),
    ],
    "truncated tool calls that are run": [
        call(user("Tides?"), response=truncated("", search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), joins=0, ends=["not_continued"]),
    ],
    "truncated tool calls that are run, within an observed turn": [
        call(user("Tides?"), in_turn="a", response=truncated("", search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), in_turn="a", ends=[]),
        end_of("a", "not_continued"),
    ],
    "truncated tool calls that are refused": [
        call(user("Tides?"), response=truncated("", search("c1"))),
        call(
            user("Tides?"),
            searches("c1"),
            result("c1", "Error: invalid JSON in the arguments"),
            response=requested(search("c2")),
            continues=repair(1, of=0),
        ),
        call(
            user("Tides?"),
            searches("c1"),
            result("c1", "Error: invalid JSON in the arguments"),
            searches("c2"),
            result("c2", "x"),
            joins=1,
        ),
    ],
    # Of several choices the first one counts. If the host goes on with another, the truncated one is not used.
    "results of another choice than the truncated one": [
        call(user("Tides?"), response=truncated("The moon and", search("c1", beside=True))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), response=requested(search("c2")), joins=0),
        call(user("Tides?"), searches("c1"), result("c1", "x"), searches("c2"), result("c2", "x"), joins=1),
    ],
    "results of another choice, by the tool's name": [
        call(user("Tides?"), response=truncated("The moon and", search("", beside=True))),
        call(user("Tides?"), assistant(""), {"role": "tool", "tool_name": "search", "content": "x"}, joins=0),
    ],
    "results of another choice that a call was not sent with": [
        call(user("Tides?"), response=truncated("The moon and", search("c1", beside=True))),
        withdrawn(user("Tides?"), searches("c1"), result("c1", "x"), is_attempt=False),
        close("not_continued"),
    ],
    "the truncated one of several choices is continued": [
        call(user("Tides?"), response=truncated("The moon and", search("c1", beside=True))),
        call(user("Tides?"), assistant("The moon and"), user("Go on."), continues=prompt(1, of=0)),
    ],
    "truncated calls of the first of several choices": [
        call(user("Tides?"), response=truncated("", search("c0"), search("c1", beside=True))),
        call(user("Tides?"), searches("c0"), result("c0", "x"), joins=0, ends=["not_continued"]),
    ],
    "results of another choice within a declared turn": [
        call(user("Tides?"), in_turn="a", response=truncated("The moon and", search("c1", beside=True))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), in_turn="a", ends=[]),
        end_of("a", "completed"),
    ],
    "truncated tool calls wait as long as tools run": [
        call(user("Tides?"), response=truncated("", search("c1"))),
        wait(299),
        wait(1.1, ["not_continued"]),
    ],
    # Two runs of one prompt: what one of them sends of its own tools, or of its server's, is no word on the
    # other's cut answer.
    "a cut answer, and another run's step that fails": [
        call(user("Tides?"), response=truncated("")),
        call(user("Tides?"), response=requested(search("call_9fK2mQpX7LwZ"), text="")),
        call(user("Tides?"), searches("call_9fK2mQpX7LwZ"), result("call_9fK2mQpX7LwZ", "search failed"), joins=1),
        close("not_continued"),
    ],
    "a cut answer, and a failing step of a run that is not known": [
        call(user("Tides?"), response=truncated("")),
        call(user("Tides?"), searches("call_9fK2mQpX7LwZ"), result("call_9fK2mQpX7LwZ", "search failed"), open_turns=1),
        close("not_continued"),
    ],
    "a cut call, and another run's step that fails": [
        call(user("Tides?"), response=truncated("Let me look.", search("call_1aK2mQpX7LwZ"))),
        call(user("Tides?"), response=requested(search("call_9fK2mQpX7LwZ"), text="Let me look.")),
        call(
            user("Tides?"),
            assistant("Let me look.", tool_call("call_9fK2mQpX7LwZ")),
            result("call_9fK2mQpX7LwZ", "search failed"),
            joins=1,
        ),
        close("not_continued"),
    ],
    "a cut call whose id a framework rewrote, and that is refused": [
        call(user("Tides?"), response=truncated("", search("call_1aK2mQpX7LwZ"))),
        call(user("Tides?"), searches("own-1"), result("own-1", "invalid JSON"), continues=repair(1, of=0)),
    ],
    "a cut call, and another cut call that is refused": [
        call(user("Tides?"), response=truncated("", search("call_1aK2mQpX7LwZ"))),
        call(user("Tides?"), response=truncated("", search("call_9fK2mQpX7LwZ"))),
        call(
            user("Tides?"),
            searches("call_1aK2mQpX7LwZ"),
            result("call_1aK2mQpX7LwZ", "invalid JSON"),
            continues=repair(1, of=0),
        ),
        close("not_continued"),
    ],
    "a cut answer, and a long loop of another run": [
        call(user("Tides?"), response=requested(search("call_9fK2mQpX7LwZ"), text="")),
        call(
            user("Tides?"),
            searches("call_9fK2mQpX7LwZ"),
            result("call_9fK2mQpX7LwZ", "x"),
            response=requested(search("call_8gK2mQpX7LwZ"), text=""),
            joins=0,
        ),
        call(user("Tides?"), response=truncated("")),
        call(
            user("Tides?"),
            searches("call_9fK2mQpX7LwZ"),
            result("call_9fK2mQpX7LwZ", "x"),
            searches("call_8gK2mQpX7LwZ"),
            result("call_8gK2mQpX7LwZ", "y"),
            joins=1,
        ),
        close("not_continued"),
    ],
    "a cut answer, and another run's step in a declared turn": [
        call(user("Tides?"), in_turn="a", response=requested(search("call_9fK2mQpX7LwZ"), text="")),
        call(user("Tides?"), in_turn="a", response=truncated("", search("call_1aK2mQpX7LwZ"))),
        call(
            user("Tides?"),
            searches("call_9fK2mQpX7LwZ"),
            result("call_9fK2mQpX7LwZ", "search failed"),
            in_turn="a",
            response=truncated(""),
            ends=[],
        ),
        end_of("a", "not_continued"),
    ],
    "a cut answer, and another run's pause that is taken up": [
        call(user("Tides?"), response=stopped("paused", "")),
        call(user("Tides?"), response=truncated("")),
        call(
            user("Tides?"),
            {
                "role": "assistant",
                "content": [{"type": "server_tool_use", "id": "srvtoolu_B1", "name": "web_search", "input": {}}],
            },
            continues=resend(1, of=0),
        ),
        close("not_continued"),
    ],
    "a cut answer, and a pause that waits no more": [
        call(user("Tides?"), response=truncated("")),
        call(
            user("Tides?"),
            {
                "role": "assistant",
                "content": [{"type": "server_tool_use", "id": "srvtoolu_B1", "name": "web_search", "input": {}}],
            },
        ),
        close("not_continued"),
    ],
    "an answer that was cut after a server's tool, and that is continued": [
        call(user("Tides?"), response=truncated("")),
        call(
            user("Tides?"),
            {
                "role": "assistant",
                "content": [{"type": "server_tool_use", "id": "srvtoolu_A1", "name": "web_search", "input": {}}],
            },
            user("continue"),
            continues=prompt(1, of=0),
        ),
    ],
    "a cut answer that could not be seen, and another's image": [
        call(user("Tides?"), response=truncated("")),
        call(
            user("Tides?"),
            {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
            user("go on"),
        ),
        close("not_continued"),
    ],
    "thoughts that were cut, and that are continued": [
        call(user("Tides?"), response=truncated("")),
        call(
            user("Tides?"),
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "Hm", "signature": "s"}]},
            user("go on"),
            continues=prompt(1, of=0),
        ),
    ],
    # A few characters may end any answer.
    "a short answer that was cut, and another that ends so": [
        call(user("w?"), response=truncated("I")),
        call(user("w?"), assistant("Answer: I"), user("go on")),
        call(user("w?"), assistant("I, for one, do not know."), user("go on")),
        call(user("w?"), assistant("I"), user("go on"), continues=prompt(1, of=0)),
    ],
    "short parts that a host merges": [
        call(user("w?"), response=truncated("The mo")),
        call(user("w?"), assistant("The mo"), user("go on"), response=truncated("on an"), continues=prompt(1, of=0)),
        call(user("w?"), assistant("The moon an"), user("go on"), response=truncated("d"), continues=prompt(2, of=1)),
        call(user("w?"), assistant("The moon and"), user("go on"), continues=prompt(3, of=2)),
    ],
    # Servers that only count their calls: the text beside the calls tells the runs apart.
    "equal ids of one prompt, with texts of their own": [
        call(user("Tides?"), response=requested(search("call_0"), text="I take item 17.")),
        call(user("Tides?"), response=requested(search("call_0"), text="I take item 18.")),
        call(user("Tides?"), assistant("I take item 18.", tool_call("call_0")), result("call_0", "x"), joins=1),
        call(user("Tides?"), assistant("I take item 17.", tool_call("call_0")), result("call_0", "x"), joins=0),
    ],
    "results without ids, with texts of their own": [
        call(user("Tides?"), response=requested(search(""), text="I take item 17.")),
        call(user("Tides?"), response=requested(search(""), text="I take item 18.")),
        call(
            user("Tides?"),
            assistant("I take item 18."),
            {"role": "tool", "tool_name": "search", "content": "x"},
            joins=1,
        ),
        call(
            user("Tides?"),
            assistant("I take item 17."),
            {"role": "tool", "tool_name": "search", "content": "x"},
            joins=0,
        ),
    ],
    # --- Retries ---
    "an attempt that is repeated": [
        call(user("Tides?"), response=failed()),
        call(user("Tides?"), after=1, response=failed(529), joins=0),
        call(user("Tides?"), after=2, joins=1),
    ],
    "an attempt that is repeated too late": [
        call(user("Tides?"), response=failed()),
        call(user("Tides?"), after=11, ends=["provider_error", "completed"]),
    ],
    "an attempt that is repeated with another model": [
        call(user("Tides?"), response=failed()),
        call(user("Tides?"), model="another"),
    ],
    "an attempt that an SDK repeats": [
        call(user("Tides?"), attempt=Attempt(retries=0), response=failed()),
        call(user("Tides?"), attempt=Attempt(retries=1), response=failed(), joins=0),
        call(user("Tides?"), attempt=Attempt(retries=2), joins=1),
    ],
    "an attempt that an SDK does not repeat": [
        call(user("Tides?"), attempt=Attempt(retries=0), response=failed()),
        call(user("Tides?"), attempt=Attempt(retries=0)),
    ],
    "attempts of one invocation": [
        call(user("Tides?"), attempt=Attempt(invocation_id="a"), response=failed()),
        call(user("Tides?"), attempt=Attempt(invocation_id="b"), response=failed()),
        call(user("Tides?"), attempt=Attempt(invocation_id="a"), joins=0),
    ],
    # Of a prompt that several turns ask, the call after a failed one is the next sample.
    "a failed attempt of a prompt that is asked many times": [
        call(user("Tides?")),
        call(user("Tides?"), response=failed()),
        call(user("Tides?")),
        wait(10, ["provider_error"]),
    ],
    "a failed attempt of a prompt that is asked many times, as an SDK says": [
        call(user("Tides?"), attempt=Attempt(retries=0)),
        call(user("Tides?"), attempt=Attempt(retries=0), response=failed()),
        call(user("Tides?"), attempt=Attempt(retries=1), joins=1),
    ],
    "a failed attempt of a prompt that was asked a while ago": [
        call(user("Tides?")),
        call(user("Tides?"), after=61, response=failed()),
        call(user("Tides?"), joins=1),
    ],
    "a failed attempt after a call that was none": [
        withdrawn(user("Tides?"), is_attempt=False),
        call(user("Tides?"), response=failed()),
        call(user("Tides?"), joins=0),
    ],
    "two failed attempts of one prompt": [
        call(user("Tides?"), response=failed()),
        call(user("Tides?"), response=failed(), joins=0),
    ],
    "a step of a loop that fails": [
        call(user("Tides?"), response=requested(search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), response=failed(), joins=0),
        call(user("Tides?"), searches("c1"), result("c1", "x"), after=1, joins=1),
    ],
    "a step of a loop that fails within a response": [
        call(user("Tides?"), response=requested(search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), response=failed(200), joins=0),
        call(user("Tides?"), searches("c1"), result("c1", "x"), after=1, joins=1),
    ],
    "a step of a loop that fails for good": [
        call(user("Tides?"), response=requested(search("c1"))),
        call(user("Tides?"), searches("c1"), result("c1", "x"), response=failed(), joins=0),
        wait(10, ["provider_error"]),
    ],
    "a call that was none, within a loop": [
        call(user("Tides?"), response=requested(search("c1"))),
        withdrawn(user("Tides?"), searches("c1"), result("c1", "x"), is_attempt=False),
        call(user("Tides?"), searches("c1"), result("c1", "x"), joins=0),
    ],
    # What frameworks make of a partial answer in their history, and how they ask for the rest.
    "a continuation whose prompt has words of its own": [
        call(system("i"), user("w?"), response=truncated("It is")),
        call(
            system("i"),
            user("w?"),
            assistant("It is"),
            user(
                "Your previous response was cut off by the output token limit. Continue exactly "
                "where you left off. Do not repeat anything you already wrote and do not add any "
                "preamble."
            ),
            continues=prompt(1, of=0),
        ),
    ],
    "a question that is there twice at first": [
        call(system("i"), user("w?"), user("w?"), response=truncated("It is")),
        call(system("i"), user("w?"), assistant("It is"), user("continue"), continues=prompt(1, of=0)),
    ],
    "a question that is there twice later": [
        call(system("i"), user("w?"), response=truncated("It is")),
        call(system("i"), user("w?"), user("w?"), assistant("It is"), user("continue"), continues=prompt(1, of=0)),
    ],
    "a partial answer with tags and calls appended": [
        call(user("w?"), response=truncated("<code>x = [1,")),
        call(
            user("w?"),
            assistant("<code>x = [1,</code>\nCalling tools:\n[{'id': 'call_1'}]"),
            user("Error:\nCode parsing failed on line 1 due to: SyntaxError"),
            continues=repair(1, of=0),
        ),
    ],
    "a partial answer whose last sentence was removed": [
        call(user("w?"), response=truncated("The first ships sailed in spring. The second ones")),
        call(
            user("w?"),
            assistant("The first ships sailed in spring."),
            user("Your answer was cut off. Go on."),
            continues=prompt(1, of=0),
        ),
    ],
    "a partial answer that another one begins with": [
        call(user("w?"), response=truncated("It is")),
        call(user("w?"), assistant("It is Paris."), user("continue")),
        call(user("w?"), assistant("It is"), user("continue"), continues=prompt(1, of=0)),
    ],
    "the answer that is the same rather than the one that is alike": [
        call(user("w?"), response=truncated("The first ships sailed in spring.")),
        call(user("w?"), after=10, response=truncated("The first ships sailed in spring. The second ones")),
        call(user("w?"), assistant("The first ships sailed in spring."), user("Go on."), continues=prompt(1, of=0)),
        call(
            user("w?"),
            assistant("The first ships sailed in spring. The second ones"),
            user("Go on."),
            continues=prompt(1, of=1),
        ),
    ],
    "a prompt of a system": [
        call(user("w?"), response=truncated("It is")),
        call(
            user("w?"),
            assistant("It is"),
            system("The previous answer was truncated. Continue."),
            continues=prompt(1, of=0),
        ),
    ],
    "a prompt in two messages": [
        call(user("w?"), response=truncated("It is")),
        call(
            user("w?"),
            assistant("It is"),
            system("Output token limit hit."),
            user("Continue."),
            continues=prompt(1, of=0),
        ),
    ],
    "a partial answer that is left out, and spoken of": [
        call(user("w?"), response=truncated("It is")),
        call(
            user("w?"),
            user("Your previous response was cut off due to length. Answer in fewer words."),
            continues=prompt(1, of=0),
        ),
    ],
    "a tool's result that speaks of the cut": [
        call(user("w?"), response=truncated("It is", search("c"))),
        call(
            user("w?"),
            assistant("It is"),
            result("c", "The call was not executed: your last response was truncated."),
            continues=repair(1, of=0),
        ),
    ],
    "a new request after a partial answer": [
        call(user("w?"), response=truncated("It is")),
        call(
            user("w?"), assistant("It is"), user("Now continue with chapter two"), ends=["not_continued", "completed"]
        ),
    ],
    "a new request in the words of a continuation after a complete answer": [
        call(user("w?"), response=complete("It is Paris.")),
        call(user("w?"), assistant("It is Paris."), user("Continue.")),
    ],
}
