"""A WSGI application that calls a model: `/cut` or `/done` asks the model of that name; the answer is the process's id.

CONFIGURE: it has the one line; in a server that loads applications before it forks, that is in the parent.
PARENT: whoever loads it asks the model `done`, and exports that; each request exports, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from itertools import count
from typing import Any

if os.environ.get("CONFIGURE"):
    import endturn

    endturn.configure()

from tests.apps.bare import ask

NUMBER = count()
if os.environ.get("PARENT"):
    ask("done", "before any request")
    endturn.configure().force_flush()


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """One request, one call."""
    model = environ["PATH_INFO"].strip("/")
    if model:
        ask(model, f"{model} {next(NUMBER)} of {os.getpid()}")
        if os.environ.get("PARENT"):
            endturn.configure().force_flush()
    start_response("200 OK", [("Content-Type", "text/plain"), ("Connection", "close")])
    return [str(os.getpid()).encode()]
