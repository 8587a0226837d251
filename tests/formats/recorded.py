"""The replies on file that can be read, by format: what laws and the fuzzer begin with; and how they are read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from endturn.formats import FORMATS, Context, Event, ResponseSummary, format_of
from endturn.formats.format import Format
from endturn.vocabulary.messages import ChatResponse
from tests.replies.record import context, packed, reply_files


def streamed(api: Format, events: Iterable[Event], ctx: Context) -> ChatResponse:
    """What a client makes of a stream; its deltas are the text."""
    decoder = api.decoder(ctx)
    said = "".join(delta.text for event in events for delta in decoder.feed(event))
    response = decoder.close()
    assert said == response.text
    return response


def summarized(api: Format, things: Iterable[Any], ctx: Context) -> ResponseSummary:
    """What telemetry makes of events or a body."""
    summarizer = api.summarizer(ctx)
    for thing in things:
        summarizer.feed(thing)
    return summarizer.close()


@dataclass(frozen=True)
class Recorded:
    """The replies of one format, by the names of their files; and what must be known to read each."""

    format: Format
    bodies: dict[str, Any] = field(default_factory=dict, repr=False)
    streams: dict[str, list[Event]] = field(default_factory=dict, repr=False)
    contexts: dict[str, Context] = field(default_factory=dict, repr=False)

    def read(self, name: str, ctx: Context) -> ChatResponse:
        """What a client makes of one."""
        if name in self.bodies:
            return self.format.decode(self.bodies[name], ctx=ctx)
        return streamed(self.format, self.streams[name], ctx)


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
