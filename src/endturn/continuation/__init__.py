"""Decisions about a turn, without I/O: policy, machine, stitching, the tool gate, termination."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.continuation.controller import (
        AsyncContinuationController as AsyncContinuationController,
        ContinuationController as ContinuationController,
    )
    from endturn.continuation.policy import ContinuationPolicy as ContinuationPolicy
    from endturn.continuation.result import TurnResult as TurnResult
    from endturn.continuation.transcript import (
        AS_IT_CAME as AS_IT_CAME,
        NOT_RECORDED as NOT_RECORDED,
        VERSION as VERSION,
        Recovered as Recovered,
        Transcript as Transcript,
        played as played,
        recover as recover,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "controller": ("AsyncContinuationController", "ContinuationController"),
            "policy": ("ContinuationPolicy",),
            "result": ("TurnResult",),
            "transcript": (
                "AS_IT_CAME",
                "NOT_RECORDED",
                "Recovered",
                "Transcript",
                "VERSION",
                "played",
                "recover",
            ),
        },
    )
