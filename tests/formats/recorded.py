"""Every format's replies that show what its API says, from the files: what the laws of the formats are tested on."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from endturn.formats import FORMATS, Context, Event, RequestSummary, format_of
from endturn.formats.format import Format
from tests.replies.record import HERE, Json, context, packed

CTX = Context(provider="acme", asked=RequestSummary(maximum=1000))
SOURCE = "tests/formats/replies"
"""What the source of those files begins with; the others show what the rest of the tests met."""


@dataclass(frozen=True)
class Recorded:
    """The replies of one format: bodies and streams by what they show, and what must be known to read each."""

    format: Format
    bodies: dict[str, Json] = field(default_factory=dict)
    streams: dict[str, list[Event]] = field(default_factory=dict)
    contexts: dict[str, Context] = field(default_factory=dict)

    def context(self, name: str) -> Context:
        """What must be known to read the reply of that name."""
        return self.contexts[name]


def _recorded(name: str) -> Recorded:
    found = Recorded(format_of(name))
    for path in sorted((HERE / name).glob("*.json")):
        case = json.loads(path.read_text())
        if not case["source"].startswith(SOURCE):
            continue
        shows = path.stem.removesuffix("-streamed").replace("-", " ")
        found.contexts[shows] = context(case)
        if "body" in case:
            found.bodies[shows] = case["body"]
        else:
            found.streams[shows] = [Event(each.get("name"), packed(each["data"])) for each in case["events"]]
    return found


RECORDED: dict[str, Recorded] = {name: _recorded(name) for name in FORMATS}
