"""What a page shows and has stored of what it is told: the rows of `told.yaml`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS
from tests.ui.support import SECOND, Answer, Served, counted, log, numbers, span, span_of_others, turn_link

ROWS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("told.yaml").read_text())


def exports(told: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each line as a request: its signal, and its body."""
    now = time.time_ns()
    for number, line in enumerate(told, 1):
        at = now + int(line.get("at", number - len(told) - 1) * SECOND)
        shown = {"spanId": f"{number:016x}", "start_ns": at}
        shown |= {"links": [f"{line['link']:016x}"]} if "link" in line else {}
        ours = {name for name in line.get("span", line.get("attributes", {})) if name.startswith("endturn.")}
        assert ours <= {attribute.key for attribute in schema.ATTRIBUTES}
        shown |= {"resource": line["resource"]} if "resource" in line else {}
        match line:
            case {"span": attributes}:
                request = "traces", span(attributes=attributes, **shown)
            case {"others": attributes}:
                request = "traces", span_of_others(attributes, line.get("scope", "another"), **shown)
            case {"event": name}:
                request = "logs", log(name, timeUnixNano=str(at), **line.get("attributes", {}))
            case {"counted": points}:
                more = {name: line[name] for name in ("delta", "flags", "resource") if name in line}
                times = [(now + since * SECOND, now + when * SECOND, value) for since, when, value in points]
                request = "metrics", counted(*times, **more)
            case _:
                raise AssertionError(line)
        yield from [request] * line.get("again", 1)


def differs(answer: Answer, wanted: Mapping[str, Any]) -> list[str]:
    """What is not on the page as it is wanted."""
    text, order = f"{answer.words} {answer.text}", wanted.get("order", [])
    wrong = [] if answer.status == wanted.get("status", 200) else [f"status {answer.status}"]
    wrong += [each for each in (*wanted.get("has", ()), *order) if each not in text]
    wrong += [f"not: {each}" for each in wanted.get("lacks", ()) if each in text]
    return wrong + (["their order"] if sorted(order, key=text.find) != order else [])


@pytest.mark.parametrize("row", ROWS.values(), ids=list(ROWS))
def test_a_page_says_what_it_is_told(page: Served, row: dict[str, Any]) -> None:
    """In words, in its tables, and in what it counts."""
    for signal, request in exports(row.get("told", [])):
        assert page.post(signal, request).status == 200
    for where, wanted in row.items():
        match where:
            case "told":
                pass
            case "total":
                assert numbers(page.store).total(INDICATORS["turns"].count) == wanted
            case "spans" | "turns" | "events":
                found = page.store.read_rows(f"SELECT * FROM {where}")
                assert [{name: one[name] for name in want} for one, want in zip(found, wanted, strict=True)] == wanted
            case _:
                assert differs(page.ask(turn_link(page) if where == "turn" else where), wanted) == []
