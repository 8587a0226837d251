"""What a turn leaves in a history: what was dispatched, one conversation, and of a lost response what had come."""

from __future__ import annotations

import pytest

from endturn.chat import Blocks, CallFragment, Delta, Message, ToolCall
from endturn.continuation.answer_text import AnswerText, IncomingResponse
from endturn.continuation.history import collapse, record
from endturn.stop import Stop, StopReason
from tests.support.turns import call, cut, paused, said

USER = Message(role="user", content="hi")
NUDGE = Message(role="user", content="go on", synthetic=True)


@pytest.mark.behaviour(38, 24)
@pytest.mark.parametrize("reason", [r for r in StopReason if r is not StopReason.TOOL_CALL], ids=lambda r: r.value)
def test_what_was_not_dispatched_is_in_no_mirror_of_the_record(reason: StopReason) -> None:
    """Calls and content blocks lose the call; the text and the reason stay."""
    use = {"type": "tool_use", "id": "call_1", "name": "search", "input": {}}
    blocks = Blocks("anthropic", ({"type": "text", "text": "Let me see."}, use))
    message = record(said("Let me see.", reason, calls=[call()], blocks=blocks), ())
    assert (message.content, message.tool_calls, message.blocks) == ("Let me see.", (), None)
    assert message.stop_reason is reason


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


def test_a_lost_response_is_what_had_arrived_of_it() -> None:
    """Text, thinking and calls, none of which is closed; an id or a name may come late, or not at all."""
    incoming = IncomingResponse(AnswerText())
    pieces = [
        Delta(reasoning="Hm"),
        Delta(text="So: "),
        Delta(call=CallFragment(0, None, "search", '{"q": ')),
        Delta(call=CallFragment(0, "a", None, '"x"}')),
        Delta(call=CallFragment(1, None, "now", "")),
    ]
    shown = [delta for piece in pieces for delta in incoming.feed(piece)]
    assert [*shown, *incoming.close(None)] == [Delta(reasoning="Hm"), Delta(text="So: ")]
    assert incoming.response is not None
    assert (incoming.response.text, incoming.response.reasoning) == ("So: ", "Hm")
    assert incoming.response.tool_calls == (
        ToolCall(id="a", name="search", arguments_raw='{"q": "x"}', arguments={"q": "x"}, closed=False),
        ToolCall(id="call_1", name="now", arguments_raw="", closed=False),
    )
    assert incoming.response.stop == Stop(StopReason.MISSING, terminal_seen=False, incomplete=True)
    assert list(incoming.close(None)) == []
