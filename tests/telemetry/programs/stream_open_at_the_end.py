"""A process that ends in mid-stream ends its calls."""

import endturn
from endturn.calls import listeners as hooks
from endturn.testing.scripted import say, truncate
from tests.telemetry.programs.parts.scripted import ask

ending = False


def told(record: object) -> None:
    if ending:
        print(type(record).__name__, getattr(record, "outcome", ""), flush=True)


hooks.subscribe(told)
endturn.instrument()
stream = ask(say("Hello there"), stream=True)
next(stream.iter_raw())
ask(truncate("Hello there", after=1))
ending = True
