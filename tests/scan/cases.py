"""The cases of all sources: a folder of files that a tool wrote, and what a scan must say of them.

`tests/scan/<source>/expected.json` holds, for each folder beside it, what a person read in the files.
A figure that is left out is zero or empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from endturn.calls import Turn
from endturn.scan import SOURCES, Summary

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """One case: the source's name, the folder or file, and what a scan must say."""

    source: str
    name: str
    expected: dict[str, Any]

    @property
    def path(self) -> Path:
        return HERE / self.source / self.name

    def __str__(self) -> str:
        return f"{self.source}/{self.name}"


def cases() -> Iterator[Case]:
    for source in SOURCES:
        expected = json.loads((HERE / source / "expected.json").read_text(encoding="utf-8"))
        yield from (Case(source, name, figures) for name, figures in expected.items())


def files(folder: Path) -> list[Path]:
    return sorted(path for path in [folder, *folder.rglob("*")] if path.is_file())


def figures(summary: Summary) -> dict[str, Any]:
    """What `expected.json` says of a case, of a scan."""
    result = summary.as_json()
    total = result["total"]
    evidence = {
        name: sum(row[name] for row in result["evidence"]) for name in ("recorded", "other_record", "not_recorded")
    }
    turns: list[Turn] = [ended.turn for ended in summary.turns if ended.past.has_user_message]
    responses = [call for ended in summary.turns for call in ended.past.calls if call.error is None]
    found = {
        "turns": total["turns"],
        "sub_agent_turns": sum(ended.past.parent_session is not None for ended in summary.turns),
        "responses": total["responses"],
        "failed_attempts": total["failed_attempts"],
        "evidence": {name: count for name, count in evidence.items() if count},
        "limits": [call.request.max_tokens for call in responses],
        "output_tokens": [call.response.usage and call.response.usage.output_tokens for call in responses],
        "continuations": sum(turn.continuations for turn in turns),
        "repairs": sum(turn.repairs for turn in turns),
        "truncated_turns": total["truncated_turns"],
        "continued_turns": total["continued_turns"],
        "unfinished_turns": total["unfinished_turns"],
        "outcomes": [str(turn.outcome) for turn in turns],
        "sufficient_limits": [row["sufficient_limit"] for row in result["finished_after_truncation"]],
        "ran_cut_tool_calls": len(result["ran_cut_tool_calls"]),
        "unknown": len(result["files"]["unknown"]),
        "damaged": len(result["files"]["damaged"]),
    }
    return {name: value for name, value in found.items() if value}
