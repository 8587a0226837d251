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
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from pydantic_core import from_json

from endturn.calls import RequestFacts
from endturn.formats import FORMATS, Context, Event, Framing, RequestSummary, format_of, framing
from endturn.formats.errors import MAX_ERROR_BYTES
from endturn.formats.format import Format
from endturn.instrumentation.body import BodyReader
from endturn.vocabulary.messages import ChatResponse, ToolCall
from endturn.vocabulary.stop import Stop, StopReason

Json = dict[str, Any]
Work = Callable[[], object]

WORDS: Final = 2_000
ITEMS: Final = 10_000
GOAL_US: Final = 3.0
"""Reader and fold, for each text event."""
ITEMS_GOAL: Final = 3.0
"""An answer with many items, beside parsing it."""
ERRORS_GOAL: Final = 1.5
"""An error answer, beside a whole one."""
MODELS: Final = {"bedrock_invoke": "anthropic.claude-sonnet-4"}
"""Where the format is that of the model."""
CONTENT_TYPES: Final = {
    Framing.SSE: "text/event-stream",
    Framing.NDJSON: "application/x-ndjson",
    Framing.EVENTSTREAM: "application/vnd.amazon.eventstream",
}


def context_of(speaks: Format, *, stream: bool) -> Context:
    """What must be known to read an answer."""
    facts = RequestFacts(model=MODELS.get(speaks.name, "model"), stream=stream)
    return Context("", speaks.provider, RequestSummary(facts=facts))


def reading(speaks: Format, headers: dict[str, str], data: bytes, *, status: int = 200, stream: bool = False) -> Work:
    """Reads a response from its bytes, in chunks of 64 KiB, as instrumentation does."""
    context = context_of(speaks, stream=stream)
    chunks = [data[place : place + 65_536] for place in range(0, max(len(data), 1), 65_536)]

    def read() -> object:
        answer = BodyReader(speaks, context, status, headers)
        for chunk in chunks:
            if answer.feed(chunk):
                break
        return answer.close()

    return read


# --- Events of text ---


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


def json_of(events: Sequence[Event]) -> list[bytes]:
    """The JSON of events, a text each."""
    return [json.dumps(event.data, default=bytes.decode).encode() for event in events if event.data != framing.DONE]


def event_variants(speaks: Format) -> dict[str, Work]:
    """What is measured: a function each that reads the whole stream once."""
    events, context = events_of(speaks), context_of(speaks, stream=True)
    texts = json_of(events)

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


# --- Answers with many items ---


def entries(entry: Callable[[str, str], Json]) -> list[Json]:
    """Many entries of a list; each has an id and a text of its own, and 100 bytes of JSON or little more."""
    empty = len(json.dumps(entry("", "")))
    return [entry(f"id_{number}", f"word {number} ".ljust(max(93 - empty, 12), ".")) for number in range(ITEMS)]


def chat(message: Json) -> Json:
    """A body of the chat format."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "chatcmpl-1", "model": "model", "choices": [choice]}


def chat_choices() -> Json:
    """A body of the chat format that holds many answers."""
    made = entries(lambda id_, text: {"message": {"content": text}, "finish_reason": "stop"})
    return {"id": "chatcmpl-1", "model": "model", "choices": [{"index": n, **each} for n, each in enumerate(made)]}


def response(output: list[Json]) -> Json:
    """A body of the Responses API."""
    return {"id": "resp_1", "object": "response", "status": "completed", "model": "model", "output": output}


def output_message(id_: str, texts: list[str]) -> Json:
    """A message among the items of a response."""
    return {"id": id_, "type": "message", "content": [{"type": "output_text", "text": text} for text in texts]}


def message(content: list[Json]) -> Json:
    """A body of Anthropic's Messages API."""
    return {"id": "msg_1", "type": "message", "model": "model", "content": content, "stop_reason": "end_turn"}


def converse(content: list[Json]) -> Json:
    """A body of Bedrock's Converse."""
    return {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": "end_turn"}


def gemini(parts: list[Json]) -> Json:
    """A body of generateContent."""
    return {"candidates": [{"content": {"parts": parts}, "finishReason": "STOP"}], "modelVersion": "model"}


def cohere(said: Json) -> Json:
    """A body of Cohere's chat."""
    return {"id": "1", "finish_reason": "COMPLETE", "message": {"role": "assistant", **said}}


def interaction(steps: list[Json]) -> Json:
    """A body of the Interactions API."""
    return {"id": "v1_1", "status": "completed", "model": "model", "steps": steps}


def function_call(id_: str, text: str) -> Json:
    """A tool call as the chat format has it, and Cohere's."""
    return {"id": id_, "type": "function", "function": {"name": "look", "arguments": json.dumps({"at": text})}}


def texts_of(made: list[Json]) -> list[str]:
    """The texts of entries that are nothing else."""
    return [entry["text"] for entry in made]


def bodies() -> Iterator[tuple[str, str, Json]]:
    """Format, what its list holds, and a body with many of it."""
    text = entries(lambda id_, text: {"text": text})
    typed = [{"type": "text", **entry} for entry in text]
    called = entries(function_call)
    input_call = entries(lambda id_, text: {"type": "tool_use", "id": id_, "name": "look", "input": {"at": text}})
    yield "openai_chat", "choices", chat_choices()
    yield "openai_chat", "calls", chat({"tool_calls": called})
    yield "openai_chat", "parts", chat({"content": typed})
    items = entries(lambda id_, text: output_message(id_, [text]))
    arguments = '{"at": "%s"}'
    calls = entries(
        lambda id_, text: {"type": "function_call", "call_id": id_, "name": "look", "arguments": arguments % text}
    )
    yield "openai_responses", "items", response(items)
    yield "openai_responses", "parts", response([output_message("msg_1", texts_of(text))])
    yield "openai_responses", "calls", response(calls)
    yield "anthropic", "blocks", message(typed)
    yield "anthropic", "calls", message(input_call)
    yield "bedrock_invoke", "blocks", message(typed)
    yield "bedrock_invoke", "calls", message(input_call)
    used = entries(lambda id_, text: {"toolUse": {"toolUseId": id_, "name": "look", "input": {"at": text}}})
    yield "bedrock_converse", "blocks", converse(text)
    yield "bedrock_converse", "calls", converse(used)
    function = entries(lambda id_, text: {"functionCall": {"name": "look", "args": {"at": text}}})
    candidate = entries(lambda id_, text: {"content": {"parts": [{"text": text}]}, "finishReason": "STOP"})
    yield "gemini", "parts", gemini(text)
    yield "gemini", "calls", gemini(function)
    yield "gemini", "candidates", {"candidates": [{"index": n, **each} for n, each in enumerate(candidate)]}
    yield "cohere", "parts", cohere({"content": typed})
    yield "cohere", "calls", cohere({"tool_calls": called})
    steps = entries(lambda id_, text: {"type": "model_output", "content": [{"type": "text", "text": text}]})
    asked = entries(lambda id_, text: {"type": "function_call", "id": id_, "name": "look", "arguments": {"at": text}})
    yield "gemini_interactions", "steps", interaction(steps)
    yield "gemini_interactions", "parts", interaction([{"type": "model_output", "content": typed}])
    yield "gemini_interactions", "calls", interaction(asked)
    run = entries(lambda id_, text: {"id": id_, "function": {"name": "look", "arguments": {"at": text}}})
    yield "ollama", "calls", {"model": "m", "message": {"tool_calls": run}, "done": True, "done_reason": "stop"}
    answers = entries(lambda id_, text: {"text": text, "finish_reason": "stop"})
    yield (
        "completions",
        "choices",
        {"id": "cmpl-1", "choices": [{"index": n, **each} for n, each in enumerate(answers)]},
    )


def streams() -> Iterator[tuple[str, str, list[Event]]]:
    """Format, what its events tell, and a stream with many of it, as the scripted provider sends it."""
    calls = tuple(ToolCall(id=f"call_{n}", name="look", arguments_raw=f'{{"at": {n}}}') for n in range(ITEMS // 3))
    end, words = Stop(StopReason.END_TURN), " ".join(f"word{n}" for n in range(ITEMS))
    for name in FORMATS:
        speaks, model = format_of(name), MODELS.get(name, "model")
        for what, said in (
            ("words", ChatResponse(text=words, stop=end, id="response_1", model=model)),
            ("calls", ChatResponse(tool_calls=calls, stop=end, id="response_1", model=model)),
        ):
            if what == "words" or name != "completions":
                events = speaks.reply(said, stream=True)
                assert isinstance(events, list)
                yield name, f"{what}, streamed", events


def _each(work: Callable[[Any], object], given: Iterable[Any]) -> Work:
    """The work on each of these."""

    def run() -> None:
        for each in given:
            work(each)

    return run


def item_variants() -> dict[str, dict[str, Work]]:
    """What is measured of each list: parsing it, and reading it."""
    made: dict[str, dict[str, Work]] = {}
    for name, what, body in bodies():
        data = json.dumps(body).encode()
        read = reading(format_of(name), {"content-type": "application/json"}, data)
        made[f"{name}: {what}"] = {"parse": partial(json.loads, data), "read": read}
    for name, what, events in streams():
        speaks = format_of(name)
        headers = {"content-type": CONTENT_TYPES[speaks.framing]}
        data = b"".join(framing.frame(event, speaks.framing) for event in events)
        texts = json_of(events)
        read = reading(speaks, headers, data, stream=True)
        made[f"{name}: {what}"] = {"parse": _each(json.loads, texts), "read": read}
    return made


# --- Error answers ---


def error_bodies() -> Iterator[tuple[str, str, bytes]]:
    """Format, what the body of an error is, and the body."""
    page = b"<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>"
    yield "openai_chat", "empty", b""
    yield "openai_chat", "{}", b"{}"
    yield "openai_chat", "HTML", page
    yield "openai_chat", "HTML of 64 KiB", (page * 800)[: 64 * 1024]
    for what, piece in (
        ("text", "The server had an error. "),
        ("one word", "a"),
        ("digits", "1"),
        ("random", "aB3+"),
        ("beyond ASCII", "é "),
        ("binary", "\x00"),
        ("half of JSON", '{"a": '),
        ("brackets", "["),
        ("keys", "api_key=sk-1234567890abcdef "),
        ("a provider's words", "context limit token policy key= "),
    ):
        yield "openai_chat", f"{what} of 64 KiB", (piece * MAX_ERROR_BYTES).encode()[:MAX_ERROR_BYTES]
    for what, error in (
        ("sentence", {"message": "The server had an error. " * 2_600}),
        ("list", {"message": "No.", "details": [{"n": number} for number in range(6_000)]}),
        ("other JSON", {f"x{number}": {"y": {}} for number in range(3_800)}),
        ("numbers", [*range(10_000)]),
    ):
        yield "openai_chat", f"{what} in JSON of 64 KiB", json.dumps({"error": error}).encode()
    for name in FORMATS:
        for status in (400, 401, 429, 500, 503):
            yield name, f"JSON, {status}", json.dumps(format_of(name).reply_error(status, None, None)).encode()


def _repeat(work: Work) -> None:
    for _ in range(100):
        work()


def error_variants() -> dict[str, dict[str, Work]]:
    """What is measured of each error: reading a whole answer of the format, and reading the error."""
    headers = {"content-type": "application/json"}
    made: dict[str, dict[str, Work]] = {}
    for name, what, data in error_bodies():
        speaks = format_of(name)
        said = ChatResponse(text="word " * 180, stop=Stop(StopReason.END_TURN), id="1", model=MODELS.get(name, "m"))
        answer = reading(speaks, headers, json.dumps(speaks.reply(said, stream=False)).encode())
        error = reading(speaks, headers, data, status=500)
        made[f"{name}: {what}"] = {
            # Once takes too short a time to be measured.
            "parse": partial(_repeat, answer),
            "read": partial(_repeat, error),
        }
    return made


# --- Measuring ---


def measure(made: dict[str, dict[str, Work]], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Row → variant → seconds of CPU, round by round."""
    found: dict[str, dict[str, list[float]]] = {name: {each: [] for each in made[name]} for name in made}
    gc.collect()
    gc.freeze()
    gc.disable()
    for _ in range(rounds + 1):  # the first warms up
        for name, variants in made.items():
            for variant, run in variants.items():
                start = time.process_time()
                run()
                found[name][variant].append(time.process_time() - start)
        gc.collect()
    return {name: {variant: taken[1:] for variant, taken in each.items()} for name, each in found.items()}


def shown(taken: Sequence[float]) -> str:
    """The median, and the middle half."""
    low, middle, high = statistics.quantiles(taken, n=4)
    return f"{middle:.2f} ({low:.2f} … {high:.2f})"


def per_event(found: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """Microseconds for each event."""
    return {
        name: {variant: [seconds / WORDS * 1e6 for seconds in taken] for variant, taken in each.items()}
        for name, each in found.items()
    }


def ratios(found: dict[str, dict[str, list[float]]]) -> dict[str, dict[str, list[float]]]:
    """How many times as long reading takes as what it is measured by, in the same round."""
    return {
        name: {"×": [read / base for read, base in zip(each["read"], each["parse"], strict=True)]}
        for name, each in found.items()
    }


def table(what: str, found: dict[str, dict[str, list[float]]], judged: str, goal: float) -> None:
    """Print a row for each of the things measured."""
    columns = next(iter(found.values()))
    print(f"{what:34}" + "".join(f"{name:>24}" for name in columns))
    for name, each in found.items():
        missed = "  above the goal" if statistics.median(each[judged]) > goal else ""
        print(f"{name:34}" + "".join(f"{shown(taken):>24}" for taken in each.values()) + missed)
    print()


def main() -> None:
    """Measure, and print tables."""
    options = argparse.ArgumentParser(description="What reading an answer costs.")
    options.add_argument("what", nargs="?", choices=("events", "items", "errors"))
    options.add_argument("--rounds", type=int, default=15)
    options.add_argument("--json", action="store_true", help="print every figure of every round")
    chosen = options.parse_args()
    made: dict[str, dict[str, dict[str, list[float]]]] = {}
    if chosen.what in (None, "events"):
        variants = {name: event_variants(format_of(name)) for name in FORMATS}
        made["µs a text event"] = per_event(measure(variants, chosen.rounds))
    if chosen.what in (None, "items"):
        made[f"{ITEMS:,} items, × parsing them"] = ratios(measure(item_variants(), chosen.rounds))
    if chosen.what in (None, "errors"):
        made["errors, × a whole answer"] = ratios(measure(error_variants(), chosen.rounds))
    if chosen.json:
        print(json.dumps(made))
        return
    for title, found in made.items():
        is_events, is_items = title.startswith("µs"), title.startswith(f"{ITEMS:,}")
        goal = GOAL_US if is_events else ITEMS_GOAL if is_items else ERRORS_GOAL
        table(title, found, "telemetry" if is_events else "×", goal)


if __name__ == "__main__":
    main()
