"""The shipped rules on a faster clock: every duration of the file divided, for tests that run in seconds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from endturn.generate import manifests
from endturn.generate.config import RuleConfig

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds(text: str) -> int:
    """A duration as PromQL writes it."""
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))


def milliseconds(text: str, times: int) -> str:
    """The same divided."""
    return f"{max(seconds(text) * 1000 // times, 1)}ms"


def expression(text: str, times: int) -> str:
    """The same with every window and offset divided."""
    text = re.sub(r"(?<=[\[:])(?:\d+[smhd])+(?=[\]:])", lambda found: milliseconds(found[0], times), text)
    return re.sub(r"offset ((?:\d+[smhd])+)", lambda found: f"offset {milliseconds(found[1], times)}", text)


def rules(folder: Path, times: int, config: RuleConfig | None = None) -> list[Path]:
    """The rule file on a clock that many times as fast, written into a folder."""
    content: dict[str, Any] = yaml.safe_load(manifests.files(config or RuleConfig())[manifests.RULES])
    for group in content["groups"]:
        group["interval"] = milliseconds(group["interval"], times)
        for rule in group["rules"]:
            rule["expr"] = expression(rule["expr"], times)
            rule |= {key: milliseconds(rule[key], times) for key in ("for", "keep_firing_for") if key in rule}
    file = folder / "endturn.yaml"
    file.write_text(yaml.safe_dump(content, sort_keys=False, width=1000))
    return [file]
