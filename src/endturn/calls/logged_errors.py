"""Logging of an exception: its class and its stack, without its text.

The text may quote a prompt or a key. No filter or formatter of the host's logging is involved.
"""

from __future__ import annotations

import logging
import sys
import traceback
from typing import Final

log = logging.getLogger("endturn")

_CALLER_STACK_LEVEL: Final = 2


def log_exception(
    level: int, message: str, *args: object, error: BaseException | None = None
) -> None:
    """Log a message and, below it, the stack and the class of an exception.

    Args:
        level: as in `logging`.
        message: a format string of `logging`, for `args`.
        args: arguments of the message.
        error: the exception. Defaults to the one that is being handled.
    """
    error = error or sys.exception()
    if error is None:
        log.log(level, message, *args, stacklevel=_CALLER_STACK_LEVEL)
    elif log.isEnabledFor(level):
        log.log(level, f"{message}\n%s", *args, stack_of(error), stacklevel=_CALLER_STACK_LEVEL)


def stack_of(error: BaseException) -> str:
    """Return an exception's traceback without source lines or the exception's text."""
    lines = ["Traceback (most recent call last):"]
    for frame, line_number in traceback.walk_tb(error.__traceback__):
        lines.append(
            f'  File "{frame.f_code.co_filename}", line {line_number}, in {frame.f_code.co_name}'
        )
    error_class = type(error)
    return "\n".join([*lines, f"{error_class.__module__}.{error_class.__qualname__}"])
