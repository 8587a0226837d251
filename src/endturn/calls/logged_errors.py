"""How endturn logs an exception: its class and where it was raised, without its text.

The text may quote what was said to a model, or a key. No filter or formatter of the host's logging
is involved.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Final

log = logging.getLogger("endturn")

_CALLER: Final = 2


def log_exception(
    level: int, message: str, *args: object, error: BaseException | None = None
) -> None:
    """Log a message and, below it, the stack and the class of an exception.

    Args:
        level: as in `logging`.
        message: a format string of `logging`, for `args`.
        args: what the message is formatted with.
        error: the exception. Defaults to the one that is being handled.
    """
    error = error or sys.exception()
    if error is None:
        log.log(level, message, *args, stacklevel=_CALLER)
    elif log.isEnabledFor(level):
        log.log(level, f"{message}\n%s", *args, stack_of(error), stacklevel=_CALLER)


def stack_of(error: BaseException) -> str:
    """Return an exception's traceback without source lines or the exception's text."""
    lines = ["Traceback (most recent call last):"]
    for frame, number in traceback.walk_tb(error.__traceback__):
        lines.append(
            f'  File "{frame.f_code.co_filename}", line {number}, in {frame.f_code.co_name}'
        )
    kind = type(error)
    return "\n".join([*lines, f"{kind.__module__}.{kind.__qualname__}"])
