"""A provider that plays a script.

As a provider function, as an HTTP transport, or as a real server on loopback.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.testing.scripted.loopback import (
        Answer as Answer,
        LoopbackReply as LoopbackReply,
        ReceivedRequest as ReceivedRequest,
        RequestSummary as RequestSummary,
        Server as Server,
        Transport as Transport,
    )
    from endturn.testing.scripted.provider import ScriptedProvider as ScriptedProvider
    from endturn.testing.scripted.rendering import (
        Received as Received,
        Rendering as Rendering,
        refusal as refusal,
    )
    from endturn.testing.scripted.script import (
        Ending as Ending,
        Exhausted as Exhausted,
        Failure as Failure,
        Prompter as Prompter,
        Reply as Reply,
        Script as Script,
        block as block,
        break_off as break_off,
        by_conversation as by_conversation,
        call as call,
        cut as cut,
        empty as empty,
        essay as essay,
        fail as fail,
        hang_up as hang_up,
        partial_call as partial_call,
        pause as pause,
        reason as reason,
        refuse as refuse,
        say as say,
        think as think,
        tokens as tokens,
        truncate as truncate,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "loopback": (
                "Answer",
                "LoopbackReply",
                "ReceivedRequest",
                "RequestSummary",
                "Server",
                "Transport",
            ),
            "script": (
                "Ending",
                "Exhausted",
                "Failure",
                "Prompter",
                "Reply",
                "Script",
                "block",
                "break_off",
                "by_conversation",
                "call",
                "cut",
                "empty",
                "essay",
                "fail",
                "hang_up",
                "partial_call",
                "pause",
                "reason",
                "refuse",
                "say",
                "think",
                "tokens",
                "truncate",
            ),
            "rendering": ("Received", "Rendering", "refusal"),
            "provider": ("ScriptedProvider",),
        },
    )
