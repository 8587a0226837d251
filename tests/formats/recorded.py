"""The replies on file that can be read, by format: what laws and the fuzzer begin with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from endturn.formats import FORMATS, Context, Event, format_of
from endturn.formats.format import Format
from tests.replies.record import context, packed, reply_files


@dataclass(frozen=True)
class Recorded:
    """The replies of one format, by the names of their files; and what must be known to read each."""

    format: Format
    bodies: dict[str, Any] = field(default_factory=dict, repr=False)
    streams: dict[str, list[Event]] = field(default_factory=dict, repr=False)
    contexts: dict[str, Context] = field(default_factory=dict, repr=False)


RECORDED = {name: Recorded(format_of(name)) for name in FORMATS}

for path in reply_files():
    found, case = RECORDED[path.parent.name], json.loads(path.read_text())
    if "raises" in case["expected"] or path.stem.startswith("damaged"):  # the fuzzer's own
        continue
    found.contexts[path.stem] = context(case)
    if "body" in case:
        found.bodies[path.stem] = case["body"]
    elif case["events"]:
        found.streams[path.stem] = [Event(each.get("name"), packed(each["data"])) for each in case["events"]]
