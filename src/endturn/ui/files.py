"""Files of OTLP JSON, as the Collector's file exporter and SDKs write them: an export request a line."""

from __future__ import annotations

import gzip
import json
import math
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from endturn.errors import UsageError
from endturn.ui import otlp
from endturn.ui.rows import Batch
from endturn.ui.store import Store

MEMBERS: Final = {"resourceSpans": "traces", "resourceLogs": "logs", "resourceMetrics": "metrics"}
"""Which signal a request is of, by the member that it has."""
ROWS: Final = 20_000
"""How many rows are written at once."""


def load(store: Store, path: Path) -> str:
    """Read a file into the store, and say what was in it; raises UsageError for one that holds no OTLP JSON."""
    # All of it is read before any is written, so that none is stored by half.
    found = [(len(batch.spans), len(batch.events), len(batch.points)) for batch in _batches(path)]
    total = Batch(from_file=True)
    for batch in _batches(path):
        total.add(batch)
        if len(total.spans) + len(total.events) + len(total.points) > ROWS:
            store.write(total)
            total = Batch(from_file=True)
    store.write(total)
    spans, events, points = map(sum, zip((0, 0, 0), *found, strict=True))
    return f"{spans} spans, {events} events, {points} metric points"


def _batches(path: Path) -> Iterator[Batch]:
    try:
        for number, request in _requests(path):
            signals = [signal for member, signal in MEMBERS.items() if isinstance(request, dict) and member in request]
            if not signals:
                raise UsageError(f"{path}, line {number}: no {', '.join(MEMBERS)} in it, so it is no OTLP JSON")
            content = json.dumps(request).encode()
            yield from (otlp.read(signal, otlp.JSON, content, math.inf) for signal in signals)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}") from None
    except otlp.BadRequest as error:
        raise UsageError(f"{path}: {error}") from None


def _requests(path: Path) -> Iterator[tuple[int, Any]]:
    """Each request with its line; a file may also be one request over many lines."""
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                yield number, json.loads(line)
            except ValueError:
                if number > 1:
                    raise UsageError(f"{path}, line {number}: no JSON") from None
                try:
                    yield 1, json.loads(line + file.read())
                except ValueError as error:
                    raise UsageError(f"{path}: no JSON: {error}") from None
