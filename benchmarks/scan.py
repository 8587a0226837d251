"""What `endturn scan` costs for each megabyte, beside `json.loads` of the same lines in the same run.

    json.loads  every line of the file, parsed and dropped
    test        the byte test alone that tells which lines are parsed
    scan        the file read whole, its turns made, and their records

The file is one session of Claude Code as 2.1.332 writes it: of each turn a user's line, request lines, two answers, a
tool's result and the attachments between them, short and long lines mixed. One process, one core; the figures are
medians over the rounds.

    python benchmarks/scan.py [--megabytes 100] [--rounds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from endturn.scan import ScannedFile, ended_turns, read_file
from endturn.scan.json_values import contains
from endturn.scan.sources.claude_code import NEEDLES

GOALS: Final = {"test": 300.0, "scan": 60.0}
"""Megabytes per second on one core."""
SESSION: Final = "00000000-2222-4222-8222-222222222222"


def turn(number: int) -> list[dict[str, Any]]:
    """The lines of one turn."""
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

    words = "The parser reads a line, and says where it failed. "
    code = '    def read(self, data: bytes) -> "Event":\n        return self._events[data]\n'
    return [
        line("user", "u", message={"role": "user", "content": words * 4}),
        *(line("attachment", f"a{at}", attachment={"type": "context", "text": words * 300}) for at in range(2)),
        {"type": "api-request-blob", "message": {"role": "user", "content": code * 200}, **about},
        *answer("x", "tool_use", [
            {"type": "text", "text": words * 3}, {"type": "tool_use", "id": f"t{number}", "name": "Read", "input": {}},
        ]),
        line("user", "v", message={"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": f"t{number}", "content": code * 60},
        ]}),
        {"type": "last-prompt", "lastPrompt": words * 4, **about},
        *answer("y", "end_turn", [{"type": "text", "text": words * 20}]),
    ]  # fmt: skip


def write(path: Path, size: int) -> None:
    """Write a session of about so many bytes."""
    number = written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < size:
            for line in turn(number):
                written += file.write(json.dumps(line, separators=(",", ":")) + "\n")
            number += 1


def _loads(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            json.loads(line)


def _test(path: Path) -> None:
    with path.open("rb") as file:
        for _, line in ScannedFile(file, "benchmark").lines():
            contains(line, NEEDLES)


def _scan(path: Path) -> None:
    (result,) = read_file(path)
    assert ended_turns(result.turns)


def measure(path: Path, rounds: int) -> dict[str, float]:
    """Return the megabytes per second of each way, medians over the rounds."""
    ways: dict[str, Callable[[Path], None]] = {"json.loads": _loads, "test": _test, "scan": _scan}
    size = path.stat().st_size / 1e6
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = time.process_time()
            way(path)
            speeds[name].append(size / (time.process_time() - started))
    return {name: statistics.median(speed) for name, speed in speeds.items()}


def main() -> None:
    """Measure, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", dest="as_json")
    args = parser.parse_args()
    with TemporaryDirectory() as folder:
        path = Path(folder) / "session.jsonl"
        write(path, args.megabytes * 1_000_000)
        speeds = measure(path, args.rounds)
    if args.as_json:
        print(json.dumps(speeds))
        return
    for name, speed in speeds.items():
        goal = f"  (goal: {GOALS[name]:.0f})" if name in GOALS else ""
        print(f"{name:12}{speed:8.0f} MB/s{goal}")


if __name__ == "__main__":
    main()
