"""The one thing that the OpenTelemetry SDK has no public way for, and what happens where it is built otherwise.

`tests/telemetry/test_sdk_access.py` fails when a release of the SDK has renamed what is read here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def forget_points(provider: Any, instruments: Iterable[object]) -> None:
    """In a forked child, drop what the parent has measured with these: the SDK would export it a second time.

    Otherwise: the child's histograms begin with its parent's measurements.
    """
    try:
        for storage in provider._measurement_consumer._reader_storages.values():  # noqa: SLF001
            for instrument in instruments:
                storage._instrument_view_instrument_matches.pop(instrument, None)  # noqa: SLF001
    except AttributeError:
        return
