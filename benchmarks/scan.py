"""What `endturn scan` costs for each megabyte, beside `json.loads` of the same lines in the same run.

    json.loads  every line of the file, parsed and dropped
    test        the byte test alone that tells which lines are parsed
    scan        the file read whole, its turns made, and their records

The files are one session of Claude Code as 2.1.332 writes it: of each turn a user's line, request lines, two answers, a
tool's result and the attachments between them, short and long lines mixed; and results of the three batch APIs, answers
of 0.2 to 4 KB of text, each fifth of them with a tool call. One process, one core; the figures are medians over the
rounds, in megabytes per second.

    python benchmarks/scan.py [--megabytes 100] [--rounds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from endturn.scan import ScannedFile, ended_turns, read_file
from endturn.scan.json_values import contains
from endturn.scan.sources import anthropic_batch, claude_code, gemini_batch, openai_batch

Line = dict[str, Any]
WORDS: Final = "The parser reads a line, and says where it failed. "
CODE: Final = '    def read(self, data: bytes) -> "Event":\n        return self._events[data]\n'
SESSION: Final = "00000000-2222-4222-8222-222222222222"


def claude_turn(number: int) -> list[Line]:
    """The lines of one turn of Claude Code."""
    moment = f"2026-11-28T11:{number // 60 % 60:02}:{number % 60:02}.000Z"
    about = {"sessionId": SESSION, "version": "2.1.332", "cwd": "/home/user/project", "timestamp": moment}

    def line(kind: str, name: str, **members: Any) -> dict[str, Any]:
        return (
            {"parentUuid": f"p{number}", "isSidechain": False, "type": kind, "uuid": f"{name}{number}"}
            | members
            | about
        )

    def answer(name: str, reason: str, blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
        usage = {"input_tokens": 11, "cache_read_input_tokens": 9000, "output_tokens": 700}
        message = {"id": f"msg_{name}{number}", "role": "assistant", "model": "claude-opus-4-8", "usage": usage}
        message["stop_reason"] = reason
        return [
            {"type": "api-request", "id": f"r{name}{number}", "params": {"max_tokens": 64_000}, **about},
            *(
                line("assistant", f"{name}{at}", requestRef=f"r{name}{number}", message=message | {"content": [block]})
                for at, block in enumerate(blocks)
            ),
        ]

    return [
        line("user", "u", message={"role": "user", "content": WORDS * 4}),
        *(line("attachment", f"a{at}", attachment={"type": "context", "text": WORDS * 300}) for at in range(2)),
        {"type": "api-request-blob", "message": {"role": "user", "content": CODE * 200}, **about},
        *answer("x", "tool_use", [
            {"type": "text", "text": WORDS * 3}, {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {}},
        ]),
        line("user", "v", message={"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": f"t{number}", "content": CODE * 60},
        ]}),
        {"type": "last-prompt", "lastPrompt": WORDS * 4, **about},
        *answer("y", "end_turn", [{"type": "text", "text": WORDS * 20}]),
    ]  # fmt: skip


def answer_text(number: int) -> str:
    """The text of an answer of a batch."""
    return WORDS * (4 + number % 40) + CODE * (number % 12)


def openai_result(number: int) -> list[Line]:
    """The line of one result of OpenAI's batches."""
    has_call = number % 5 == 0
    message: Line = {"role": "assistant", "content": answer_text(number), "refusal": None, "annotations": []}
    if has_call:
        arguments = json.dumps({"path": "x", "text": answer_text(number)})
        function = {"name": "write", "arguments": arguments}
        message["tool_calls"] = [{"id": f"call_{number}", "type": "function", "function": function}]
    reason = "tool_calls" if has_call else "length" if number % 7 == 0 else "stop"
    body = {
        "id": f"chatcmpl-{number:024}", "object": "chat.completion", "created": 1795866141, "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 300, "total_tokens": 400,
            "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 64, "audio_tokens": 0},
        },
        "service_tier": "default", "system_fingerprint": None,
    }  # fmt: skip
    response = {"status_code": 200, "request_id": f"q{number}", "body": body}
    return [{"id": f"batch_req_{number}", "custom_id": f"r{number}", "response": response, "error": None}]


def anthropic_result(number: int) -> list[Line]:
    """The line of one result of Anthropic's batches."""
    has_call = number % 5 == 0
    content: list[Line] = [{"type": "text", "text": answer_text(number)}]
    if has_call:
        arguments = {"path": "x", "text": answer_text(number)}
        content.append({"type": "tool_use", "id": f"toolu_{number}", "name": "write", "input": arguments})
    message = {
        "id": f"msg_{number:024}", "type": "message", "role": "assistant", "model": "claude-opus-4-8",
        "content": content, "stop_sequence": None,
        "stop_reason": "tool_use" if has_call else "max_tokens" if number % 7 == 0 else "end_turn",
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 0, "output_tokens": 300, "service_tier": "batch"},
    }  # fmt: skip
    return [{"custom_id": f"r{number}", "result": {"type": "succeeded", "message": message}}]


def gemini_result(number: int) -> list[Line]:
    """The line of one result of Gemini's batches."""
    parts: list[Line] = [{"text": answer_text(number)}]
    if number % 5 == 0:
        parts.append({"functionCall": {"name": "write", "args": {"path": "x", "text": answer_text(number)}}})
    reason = "MAX_TOKENS" if number % 7 == 0 else "STOP"
    response = {
        "candidates": [{"content": {"parts": parts, "role": "model"}, "finishReason": reason, "index": 0}],
        "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 300, "totalTokenCount": 400,
                          "thoughtsTokenCount": 92},
        "modelVersion": "gemini-2.5-flash", "responseId": f"aaaa{number:012}",
    }  # fmt: skip
    return [{"key": f"r{number}", "response": response}]


@dataclass(frozen=True)
class Kind:
    """A kind of file: the lines of one turn, and the goals in megabytes per second."""

    lines: Callable[[int], list[Line]]
    needles: tuple[bytes, ...]
    goals: Mapping[str, float]


KINDS: Final = {
    "Claude Code": Kind(claude_turn, claude_code.NEEDLES, {"test": 300, "scan": 60}),
    "OpenAI batch": Kind(openai_result, openai_batch.NEEDLES, {"scan": 30}),
    "Anthropic batch": Kind(anthropic_result, anthropic_batch.NEEDLES, {"scan": 30}),
    "Gemini batch": Kind(gemini_result, gemini_batch.NEEDLES, {"scan": 30}),
}


def write(path: Path, kind: Kind, size: int) -> None:
    """Write a file of about so many bytes."""
    number = written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            for line in kind.lines(number):
                written += file.write(json.dumps(line, separators=(",", ":")) + "\n")
            number += 1


def _loads(path: Path, kind: Kind) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def _test(path: Path, kind: Kind) -> None:
    with path.open("rb") as file:
        for _, line in ScannedFile(file, "benchmark").lines():
            contains(line, kind.needles)


def _scan(path: Path, kind: Kind) -> None:
    (result,) = read_file(path)
    assert ended_turns(result.turns)


WAYS: Final[Mapping[str, Callable[[Path, Kind], None]]] = {"json.loads": _loads, "test": _test, "scan": _scan}


def measure(path: Path, kind: Kind, rounds: int) -> dict[str, float]:
    """Return the megabytes per second of each way, medians over the rounds."""
    size = path.stat().st_size / 1e6
    speeds: dict[str, list[float]] = {name: [] for name in WAYS}
    for _ in range(rounds):
        for name, way in WAYS.items():
            started = time.process_time()
            way(path, kind)
            speeds[name].append(size / (time.process_time() - started))
    return {name: statistics.median(speed) for name, speed in speeds.items()}


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", dest="as_json")
    args = parser.parse_args()
    speeds: dict[str, dict[str, float]] = {}
    with TemporaryDirectory() as folder:
        for name, kind in KINDS.items():
            path = Path(folder) / "file.jsonl"
            write(path, kind, args.megabytes * 1_000_000)
            speeds[name] = measure(path, kind, args.rounds)
    if args.as_json:
        print(json.dumps(speeds))
        return
    print(f"{'MB/s':16}" + "".join(f"{way:>20}" for way in WAYS))
    for name, row in speeds.items():
        goals = KINDS[name].goals
        cells = [f"{row[way]:.0f}" + (f" (goal {goals[way]:.0f})" if way in goals else "") for way in WAYS]
        print(f"{name:16}" + "".join(f"{cell:>20}" for cell in cells))


if __name__ == "__main__":
    main()
