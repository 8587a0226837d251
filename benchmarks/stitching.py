"""What joining an answer costs: against a list and `"".join`, on 120,000 characters in chunks of 1, 16 and 1,024.

    joining    append each chunk to a list, join it at the end
    stitcher   the same chunks through `IncomingResponse` and `AnswerText`, from deltas that are made beforehand
    stream     the same deltas through a whole turn of `ContinuationController.stream`, continued by prompt at each seam

The text is written in one piece, or in four with three seams; the worst cases have one seam in their middle:

    period     'ab' again and again: what follows the seam could be a repetition for as long as anything is looked at
    one letter the same with 'a': every end of the text is also its beginning
    restart    the continuation says everything again, and goes on
    preamble   each continuation begins with the longest line that might announce one, and turns out to be text

All variants are measured in one process, in turns, garbage collection off. The figures are medians over the rounds, in
nanoseconds for each chunk; the ratio is to joining in the same round, its spread that of single rounds.

What bounds them, one character at a time, where joining takes 17 ns:

    stitcher   the goal of three times joining is out of reach. A function that is given each delta and does nothing but
               append its text costs 2 × (the column `call`), as a method with its list in an attribute 2.3 ×; giving
               the delta back to a loop of the caller's costs as much again; the rest is seeing that the delta is plain
               text and that nothing is undecided.
    stream     half of it makes the turn and the call current for each pull, and not current again: what the provider
               function calls must see them, and the consumer must not. The other half is two resumptions of the turn's
               generator, for the pull and for the delta.

    python benchmarks/stitching.py [--rounds 7] [--json]
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from endturn.continuation.answer_text import AnswerText, IncomingResponse
from endturn.continuation.controller import ContinuationController, TurnResult
from endturn.continuation.policy import ContinuationPolicy
from endturn.vocabulary.messages import ChatResponse, Delta, Message, Request, Usage
from endturn.vocabulary.stop import Stop, StopReason

SIZE: Final = 120_000
CHUNKS: Final = (1, 16, 1_024)
SENTENCES: Final = "".join(f"Sentence {number} of the answer says something of its own. " for number in range(3_000))
GOAL: Final = 3.0
"""Times plain joining, one character at a time, through the stitcher."""


def parts(case: str) -> list[str]:
    """What the provider says, call by call."""
    half, quarter = SIZE // 2, SIZE // 4
    text = SENTENCES[:SIZE]
    match case:
        case "no seam":
            return [text]
        case "3 seams":
            return [text[start : start + quarter] for start in range(0, SIZE, quarter)]
        case "3 overlaps":
            return [text[max(0, start - 200) : start + quarter] for start in range(0, SIZE, quarter)]
        case "period":
            return ["ab" * (half // 2)] * 2
        case "one letter":
            return ["a" * half] * 2
        case "restart":
            return [text[:half], text]
        case "preamble":
            line = "Certainly, here is the rest of the document" + " ." * 30 + " which "
            return [(line if start else "") + text[start : start + quarter] for start in range(0, SIZE, quarter)]
        case _:
            raise ValueError(case)


CASES: Final = ("no seam", "3 seams", "3 overlaps", "period", "one letter", "restart", "preamble")


def deltas(text: str, size: int) -> list[Delta]:
    """A text as it is streamed."""
    return [Delta(text=text[start : start + size]) for start in range(0, len(text), size)]


# --- The variants, each over the same deltas ------------------------------------------------------------------------


def joining(streams: list[list[Delta]]) -> str:
    """A list and a join."""
    out: list[str] = []
    append = out.append
    for stream in streams:
        for delta in stream:
            append(delta.text)
    return "".join(out)


def call(streams: list[list[Delta]]) -> str:
    """The same with a function that is called for each delta."""
    out: list[str] = []

    def feed(delta: Delta) -> None:
        out.append(delta.text)

    for stream in streams:
        for delta in stream:
            feed(delta)
    return "".join(out)


def stitcher(streams: list[list[Delta]]) -> str:
    """What a turn does with text, without the turn."""
    stitched = AnswerText()
    for number, stream in enumerate(streams):
        if number:
            stitched.expect_continuation()
        stitched.begin()
        part = IncomingResponse(stitched)
        for delta in stream:
            for _ in part.feed(delta):
                pass
        for _ in part.close(None):
            pass
    return stitched.answer


def turn(streams: list[list[Delta]]) -> str:
    """A whole turn: every response but the last is cut."""
    calls = iter(range(len(streams)))

    def provider(request: Request) -> Iterator[Delta | ChatResponse]:
        number = next(calls)
        yield from streams[number]
        reason = StopReason.END_TURN if number == len(streams) - 1 else StopReason.MAX_TOKENS
        text = "".join(delta.text for delta in streams[number])
        yield ChatResponse(text=text, stop=Stop(reason, raw=reason.value), usage=Usage(1, 1))

    policy = ContinuationPolicy(continuation_max_output_chars=10 * SIZE)
    request = Request(model="m", messages=(Message(role="user", content="Write."),), max_tokens=10_000)
    item: Delta | TurnResult | None = None
    for item in ContinuationController(provider, policy=policy).stream(request):  # noqa: B007 - the last is the result
        pass
    assert isinstance(item, TurnResult)
    return item.text


VARIANTS: Final[dict[str, Callable[[list[list[Delta]]], str]]] = {
    "joining": joining,
    "call": call,
    "stitcher": stitcher,
    "stream": turn,
}


# --- Measuring ------------------------------------------------------------------------------------------------------


def timed(variant: str, streams: list[list[Delta]]) -> float:
    """Seconds. The shortest runs are made several times: the clock and the caches are coarse."""
    times = max(1, 2_000 // sum(map(len, streams)))
    run = VARIANTS[variant]
    started = time.perf_counter()
    for _ in range(times):
        run(streams)
    return (time.perf_counter() - started) / times


def measure(rounds: int) -> list[dict[str, Any]]:
    """One row for each case and size of chunk."""
    rows = []
    for case in CASES:
        said = parts(case)
        for size in CHUNKS:
            streams = [deltas(part, size) for part in said]
            chunks = sum(map(len, streams))
            got: dict[str, list[float]] = {variant: [] for variant in VARIANTS}
            for number in range(rounds + 1):
                order = list(VARIANTS) if number % 2 else list(reversed(VARIANTS))
                for variant in order:
                    gc.collect()
                    seconds = timed(variant, streams)
                    if number:  # the first round warms up
                        got[variant].append(seconds)
            ratios = {
                variant: [mine / plain for mine, plain in zip(got[variant], got["joining"], strict=True)]
                for variant in VARIANTS
            }
            rows.append(
                {
                    "case": case,
                    "chunk": size,
                    "chunks": chunks,
                    "characters": sum(map(len, said)),
                    "ns_per_chunk": {v: statistics.median(got[v]) / chunks * 1e9 for v in VARIANTS},
                    "ratio": {v: statistics.median(ratios[v]) for v in VARIANTS},
                    "spread": {v: (min(ratios[v]), max(ratios[v])) for v in VARIANTS},
                }
            )
    return rows


def show(rows: list[dict[str, Any]]) -> None:
    """The figures as a table, and whether the goal is met."""
    print(
        f"{'':12}{'chunk':>6}{'joining ns':>12}{'call ×':>9}{'stitcher ns':>13}{'×':>7}{'':16}{'stream ns':>11}{'×':>7}"
    )
    for row in rows:
        ns, ratio, spread = row["ns_per_chunk"], row["ratio"], row["spread"]
        low, high = spread["stitcher"]
        lowest, highest = spread["stream"]
        print(
            f"{row['case']:12}{row['chunk']:6}{ns['joining']:12.1f}{ratio['call']:9.1f}{ns['stitcher']:13.1f}"
            f"{ratio['stitcher']:7.1f}{f' ({low:.1f} … {high:.1f})':16}{ns['stream']:11.1f}{ratio['stream']:7.1f}"
            f" ({lowest:.1f} … {highest:.1f})"
        )
    worst = max((row for row in rows if row["chunk"] == 1), key=lambda row: float(row["ratio"]["stitcher"]))
    print(f"stitcher, 1 character at a time, at worst: {worst['ratio']['stitcher']:.1f} × joining ({worst['case']}; "
          f"goal {GOAL:.0f})")  # fmt: skip


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    gc.disable()
    rows = measure(given.rounds)
    if given.json:
        print(json.dumps(rows, indent=2))
    else:
        show(rows)


if __name__ == "__main__":
    main()
