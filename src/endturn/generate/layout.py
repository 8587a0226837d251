"""A dashboard's sections on its grid, and the finishing pass over what the Foundation SDK writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from endturn.errors import UsageError
from endturn.generate.panels import AnyPanel
from endturn.generate.sdk import JSONEncoder, dashboard, models

WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class Section:
    """A titled row of a dashboard: lines of panels, each as (height, (panel, width of 24)…).

    Attributes:
        folded: it is opened by whoever wants it, and asks nothing before.
    """

    id: int
    title: str
    lines: tuple[tuple[int, tuple[tuple[AnyPanel, int], ...]], ...]
    folded: bool = False


def lay_out(board: dashboard.Dashboard, sections: Sequence[Section]) -> dashboard.Dashboard:
    """Put sections onto a dashboard, from the top; raises UsageError where a line is not exactly as wide as it."""
    y = 0
    for section in sections:
        row = dashboard.Row(section.title).id(section.id)
        row = row.grid_pos(models.GridPos(h=1, w=WIDTH, x=0, y=y))
        if not section.folded:
            board = board.with_row(row)
        inner = y = y + 1
        for height, line in section.lines:
            if (width := sum(wide for _, wide in line)) != WIDTH:
                raise UsageError(f"a line of {section.title!r} is {width} wide, not {WIDTH}")
            x = 0
            for panel, wide in line:
                placed = panel.grid_pos(models.GridPos(h=height, w=wide, x=x, y=inner))
                if section.folded:
                    row = row.with_panel(placed)
                else:
                    board = board.with_panel(placed)
                x += wide
            inner += height
        if section.folded:
            board = board.with_row(row)  # the panels below it follow at once
        else:
            y = inner
    return board


NOISE: Final = frozenset({"placement", "repeatDirection", "auto", "auto_count", "auto_min", "builtIn", "footer"})
"""What the SDK writes unasked. `placement` even hides links and annotations in Grafana 12 and later; tables have no
`footer` in their options any more."""
LINK: Final = frozenset({"title", "url", "targetBlank"})
"""What a field's link consists of. The SDK gives it all that a dashboard's link has."""


def finish(board: dashboard.Dashboard) -> str:
    """The dashboard as its file: without the SDK's noise, keys sorted, the same for the same input."""
    content = json.loads(JSONEncoder().encode(board.build()))
    return json.dumps(clean(content), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def clean(content: Any) -> Any:
    """The same without what the SDK writes unasked."""
    match content:
        case {"defaults": {"links": [*links]} as defaults, **others}:
            bare = [{key: value for key, value in link.items() if key in LINK} for link in links]
            return clean(others) | {"defaults": clean(defaults) | {"links": bare}}
        case dict():
            return {key: clean(value) for key, value in content.items() if key not in NOISE}
        case list():
            return [clean(value) for value in content]
        case _:
            return content
