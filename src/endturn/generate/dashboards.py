"""The dashboards as files: classic Grafana JSON, which Grafana loads from a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from endturn.generate.boards.continuations import continuations
from endturn.generate.boards.frame import to_json
from endturn.generate.boards.model import model
from endturn.generate.boards.overview import overview
from endturn.generate.boards.pipeline import pipeline
from endturn.generate.boards.stop_reasons import stop_reasons
from endturn.generate.boards.turns import turns
from endturn.generate.config import RuleConfig

if TYPE_CHECKING:
    from grafana_foundation_sdk.builders.dashboard import Dashboard

BOARDS: Final[Mapping[str, Callable[[RuleConfig], Dashboard]]] = {
    "overview": overview,
    "stop-reasons": stop_reasons,
    "continuations": continuations,
    "model": model,
    "turns": turns,
    "pipeline": pipeline,
}
"""File name -> the function that builds the dashboard."""


def files(config: RuleConfig) -> dict[str, str]:
    """Return the JSON of the dashboards, by path from the root."""
    return {f"dashboards/{name}.json": to_json(build(config)) for name, build in BOARDS.items()}
