"""A response as it arrives: what is made of its pieces where it never says how it ended."""

from __future__ import annotations

from endturn.chat import CallFragment, Delta, ToolCall
from endturn.continuation.response import IncomingResponse
from endturn.continuation.stitch import Stitcher
from endturn.stop import Stop, StopReason


def test_a_lost_response_is_what_had_arrived_of_it() -> None:
    """Text, thinking and calls, none of which is closed; an id or a name may come late, or not at all."""
    incoming = IncomingResponse(Stitcher())
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
