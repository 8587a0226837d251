"""What reading a streamed answer costs: for each text event, reader and fold on parsed JSON, beside parsing it.

    parse      the event's JSON, as bytes, by pydantic-core: what comes before
    telemetry  the parsed event through the format's reader and the fold, as instrumentation reads it: no content kept
    client     the same as clients read it: content kept, deltas made

Each format's answer is one that its scripted provider sends: 2,000 words, an event each. All are measured in one
process, in turns, garbage collection off; the figures are medians over the rounds in microseconds of CPU for each event
of text, with the quartiles of single rounds. An invoked model's event holds bytes of JSON, which its reader parses.

    python benchmarks/reading.py [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Final

from pydantic_core import from_json

from endturn.chat import ChatResponse
from endturn.formats import FORMATS, Context, Event, RequestSummary, format_of, framing
from endturn.formats.format import Format
from endturn.stop import Stop, StopReason

WORDS: Final = 2_000
GOAL_US: Final = 3.0
"""Reader and fold, for each text event."""
MODELS: Final = {"bedrock_invoke": "anthropic.claude-sonnet-4"}
"""Where the format is that of the model."""


def events_of(speaks: Format) -> list[Event]:
    """A stream of words, as a server of the format sends it."""
    said = ChatResponse(
        text=" ".join(f"word{number}" for number in range(WORDS)),
        stop=Stop(StopReason.END_TURN),
        id="response_1",
        model=MODELS.get(speaks.name, "model"),
    )
    events = speaks.reply(said, stream=True)
    assert isinstance(events, list)
    return events


def variants(speaks: Format) -> dict[str, Callable[[], None]]:
    """What is measured: a function each that reads the whole stream once."""
    events = events_of(speaks)
    context = Context("", speaks.provider, RequestSummary(model=MODELS.get(speaks.name, "model"), stream=True))
    texts = [json.dumps(event.data, default=bytes.decode).encode() for event in events if event.data != framing.DONE]

    def parse() -> None:
        for each in texts:
            from_json(each)

    def telemetry() -> None:
        feed = speaks.summarizer(context).feed
        for each in events:
            feed(each)

    def client() -> None:
        decoder = speaks.decoder(context)
        for each in events:
            tuple(decoder.feed(each))
        assert decoder.close().text.count(" ") == WORDS - 1

    return {"parse": parse, "telemetry": telemetry, "client": client}


def measure(rounds: int) -> dict[str, dict[str, list[float]]]:
    """format → variant → microseconds an event, round by round."""
    made = {name: variants(format_of(name)) for name in FORMATS}
    found: dict[str, dict[str, list[float]]] = {name: {each: [] for each in made[name]} for name in made}
    gc.disable()
    for _ in range(rounds + 1):  # the first warms up
        for name, each in made.items():
            for variant, run in each.items():
                start = time.process_time()
                run()
                found[name][variant].append((time.process_time() - start) / WORDS * 1e6)
        gc.collect()
    return {name: {variant: taken[1:] for variant, taken in each.items()} for name, each in found.items()}


def shown(taken: Sequence[float]) -> str:
    """The median, and the middle half."""
    low, middle, high = statistics.quantiles(taken, n=4)
    return f"{middle:.2f} ({low:.2f} … {high:.2f})"


def main() -> None:
    """Measure, and print a table."""
    asked = argparse.ArgumentParser(description="What reading a streamed answer costs, in µs for each text event.")
    asked.add_argument("--rounds", type=int, default=15)
    asked.add_argument("--json", action="store_true", help="print every figure of every round")
    options = asked.parse_args()
    found = measure(options.rounds)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{'µs a text event':22}{'parse':>24}{'telemetry':>24}{'client':>24}")
    for name, each in found.items():
        missed = "  above the goal" if statistics.median(each["telemetry"]) > GOAL_US else ""
        print(f"{name:22}" + "".join(f"{shown(taken):>24}" for taken in each.values()) + missed)


if __name__ == "__main__":
    main()
