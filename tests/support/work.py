"""How much work something is: the functions of the package that it enters.

In a host's process each costs a cache miss, which is most of what telemetry costs. Unlike time, their number is the
same on each run.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final

import endturn

PACKAGE: Final = str(Path(endturn.__file__).parent)


def functions_entered(work: Callable[[], object]) -> int:
    """Count the functions of the package that some work enters, generators at each step included."""
    count = 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal count
        count += event == "call" and frame.f_code.co_filename.startswith(PACKAGE)

    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
