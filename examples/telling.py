"""Prints what endturn sees, so that an example needs no dashboard. An agent of yours needs none of this."""

from endturn.events import CallEnded, ContinuationAttempted, Record, TurnEnded
from endturn.hooks import subscribe


def tell() -> None:
    """Print each call's end, each continuation and each turn's end from now on."""
    subscribe(_print)


def _print(record: Record) -> None:
    match record:
        case CallEnded(started=started, stop=stop):
            cut = ", cut off" if stop.truncated else ""
            print(f"[endturn] call to {started.model}: {stop.reason} ({stop.raw}{cut})")
        case ContinuationAttempted(continuation=continuation):
            print(f"[endturn] continuation {continuation.index}: {continuation.strategy}")
        case TurnEnded(turn=turn, outcome=outcome):
            print(f"[endturn] turn of {turn.iterations} calls: {outcome}")
