"""Inspect: samples that were logged without their events."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from endturn.scan import scan
from tests.scan.cases import figures


@pytest.mark.parametrize("events", [[], None])
def test_a_sample_without_events_has_its_last_response(events: object, tmp_path: Path) -> None:
    output = {"model": "m", "choices": [{"message": {}, "stop_reason": "max_tokens"}], "usage": {"output_tokens": 7}}
    samples = [{"id": number, "epoch": 1, "output": output, "events": events} for number in (1, 2)]
    log = {"version": 2, "eval": {"run_id": "r", "task": "t", "eval_id": "e"}, "samples": samples}
    for name in ("one.json", "copy.json"):
        (tmp_path / name).write_text(json.dumps(log, indent=1), encoding="utf-8")
    assert figures(scan([tmp_path])) == {
        "turns": 2, "responses": {"max_tokens": 2}, "evidence": {"recorded": 2}, "limits": [None, None],
        "output_tokens": [7, 7], "truncated_turns": 2, "unfinished_turns": 2,
        "outcomes": ["not_continued", "not_continued"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("choices", "events"), [([], []), ([{"message": {}, "stop_reason": "stop"}], [{"event": "info"}])]
)
def test_a_sample_that_called_no_model_has_no_call(choices: object, events: object, tmp_path: Path) -> None:
    sample = {"id": 1, "epoch": 1, "output": {"model": "m", "choices": choices}, "events": events}
    log = {"version": 2, "eval": {"run_id": "r", "task": "t"}, "samples": [sample]}
    (tmp_path / "one.json").write_text(json.dumps(log), encoding="utf-8")
    assert figures(scan([tmp_path])) == {}
