"""Print what endturn records, so that an example needs no dashboard. Your agent does not need this."""

from endturn.events import CallEnded, ContinuationAttempted, Record, TurnEnded
from endturn.hooks import subscribe


def tell() -> None:
    """Print the end of each call, each continuation and the end of each turn, from now on."""
    subscribe(_print)


def _print(record: Record) -> None:
    match record:
        case CallEnded(started=started, stop=stop):
            cut = ", truncated" if stop.truncated else ""
            print(f"[endturn] call to {started.request.model}: {stop.reason} ({stop.raw}{cut})")
        case ContinuationAttempted(continuation=continuation):
            print(f"[endturn] continuation {continuation.index}: {continuation.strategy}")
        case TurnEnded(turn=turn, outcome=outcome):
            print(f"[endturn] turn of {turn.iterations} calls: {outcome}")
