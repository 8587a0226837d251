"""What a turn leaves in a history: records without what was not dispatched, and segments as one conversation."""

from __future__ import annotations

import pytest

from endturn.chat import Blocks, ChatResponse, Message
from endturn.continuation.history import collapse, record
from endturn.stop import StopReason
from tests.support.turns import call, calling, cut, paused, said

USER = Message(role="user", content="hi")
NUDGE = Message(role="user", content="go on", synthetic=True)


def text_and_call() -> tuple[Blocks, ChatResponse]:
    """A response that says something and calls a tool, with its blocks."""
    use = {"type": "tool_use", "id": "call_1", "name": "search", "input": {}}
    blocks = Blocks("anthropic", ({"type": "text", "text": "Let me see."}, use))
    return blocks, cut("Let me see.", calls=[call()], blocks=blocks)


@pytest.mark.behaviour(38)
@pytest.mark.behaviour(24)
@pytest.mark.parametrize("reason", [r for r in StopReason if r is not StopReason.TOOL_CALL], ids=lambda r: r.value)
def test_what_was_not_dispatched_is_in_no_mirror_of_the_record(reason: StopReason) -> None:
    """Calls and content blocks lose the call; the text and the reason stay."""
    blocks, _ = text_and_call()
    message = record(said("Let me see.", reason, calls=[call()], blocks=blocks), ())
    assert (message.content, message.tool_calls, message.blocks) == ("Let me see.", (), None)
    assert message.stop_reason is reason


@pytest.mark.behaviour(38)
def test_a_response_whose_calls_ran_is_recorded_as_it_is() -> None:
    """A genuine tool call is kept unchanged, blocks included."""
    blocks, _ = text_and_call()
    response = calling(call(), text="Let me see.", blocks=blocks)
    assert record(response, response.tool_calls) == response.message()


@pytest.mark.behaviour(25)
def test_halves_become_one_message_and_nudges_go() -> None:
    """The collapsed view alternates roles, and joins the halves as the answer was joined."""
    segments = [
        USER,
        cut("The first ha").message(),
        NUDGE,
        cut("lf and the ").message(),
        NUDGE,
        said("rest.").message(),
    ]
    assert collapse(segments) == (USER, said("The first half and the rest.").message())


@pytest.mark.behaviour(25)
@pytest.mark.parametrize("reason", StopReason, ids=lambda reason: reason.value)
def test_what_a_nudge_separates_is_joined(reason: StopReason) -> None:
    """Whatever the reason of the first part was, the answer to a nudge belongs to it."""
    (_, joined) = collapse([USER, said("The first ha", reason).message(), NUDGE, said("lf.").message()])
    assert joined == said("The first half.").message()


@pytest.mark.behaviour(22)
def test_no_empty_assistant_message_is_left() -> None:
    """A response without text or calls leaves no message; its successor stands for it."""
    assert collapse([USER, cut("").message()]) == (USER,)
    assert collapse([USER, cut("").message(), NUDGE, said("Yes.").message()]) == (USER, said("Yes.").message())


def test_paused_parts_are_joined_with_their_blocks() -> None:
    """A resumed pause is one answer: texts and blocks in order, nothing taken for an overlap."""
    parts = [Blocks("anthropic", ({"type": "text", "text": text},)) for text in ("searching for it", "for it, found")]
    first, second = paused("searching for it", blocks=parts[0]), said("for it, found", blocks=parts[1])
    (_, joined) = collapse([USER, first.message(), second.message()])
    assert joined.content == "searching for itfor it, found"
    assert joined.blocks == Blocks("anthropic", (*parts[0].items, *parts[1].items))


def test_a_hosts_own_messages_pass_unchanged() -> None:
    """What no controller wrote is not touched: not even two assistant messages in a row, or an empty one."""
    messages = (
        USER,
        Message(role="assistant", content="a"),
        Message(role="assistant", content=""),
        Message(role="assistant", tool_calls=(call(),)),
        Message(role="tool", content="found", tool_call_id="call_1"),
    )
    assert collapse(messages) == messages
