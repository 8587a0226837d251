"""An agent whose first line makes threads green, as gunicorn's gevent workers do: many calls take turns in one thread.

`green.py MODEL …`, with OPENAI_BASE_URL and OPENAI_API_KEY in its environment. Says whether something else could
run when all had been asked.
"""
# ruff: noqa: E402

from __future__ import annotations

from gevent import monkey

monkey.patch_all()

import sys

import gevent

from tests.apps import bare

ticks = 0


def tick() -> None:
    """Run whenever the calls let others run."""
    global ticks
    while True:
        ticks += 1
        gevent.sleep(0.05)


ticking = gevent.spawn(tick)
gevent.joinall([gevent.spawn(bare.ask, model, f"{model} {number}") for number, model in enumerate(sys.argv[1:])])
before = ticks
gevent.sleep(1)  # a thread that waits for work of endturn's, and is not green, would let nobody run by now
ticking.kill()
print("others run", ticks > before)
