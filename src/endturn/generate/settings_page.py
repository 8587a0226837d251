"""docs/configuration.md: the tables of keywords and variables."""

from __future__ import annotations

from dataclasses import dataclass

from endturn.generate.templates import code, page
from endturn.settings import KEYWORDS, VARIABLES, Keyword, Variable


@dataclass(frozen=True, slots=True)
class SettingRow:
    """A row of the table of what is recorded: cells in Markdown."""

    keyword: str
    variable: str
    values: str
    default: str
    meaning: str


def settings_page() -> str:
    """Return the page."""
    return page(
        "configuration",
        destination=[one for one in VARIABLES if one.section == "destination"],
        providing=[
            keyword
            for keyword in KEYWORDS
            if not _is_recording(keyword) and {"configure", "instrument"} & {*keyword.functions}
        ],
        recording=recording_rows(),
        others=[
            keyword
            for keyword in KEYWORDS
            if not {"configure", "instrument"} & {*keyword.functions}
        ],
        default_cell=default_cell,
        functions=functions,
        other=[one for one in VARIABLES if one.section == "other"],
    )


def _is_recording(keyword: Keyword) -> bool:
    return {"configure", "instrument"} <= {*keyword.functions}


def recording_rows() -> list[SettingRow]:
    """Return a row for each keyword of recording, and each variable without a keyword."""
    variables: dict[str, Variable[object]] = {
        one.keyword: one for one in VARIABLES if one.section == "recording" and one.keyword
    }
    rows = [
        _keyword_row(keyword, variables.get(keyword.name))
        for keyword in KEYWORDS
        if _is_recording(keyword)
    ]
    rows += [
        SettingRow("", code(one.names), one.kind.label, default_cell(one.default), one.meaning)
        for one in VARIABLES
        if one.section == "recording" and not one.keyword
    ]
    return rows


def _keyword_row(keyword: Keyword, variable: Variable[object] | None) -> SettingRow:
    if variable is None:
        return SettingRow(
            code([keyword.name]), "", keyword.label, default_cell(keyword.default), keyword.meaning
        )
    values = (
        keyword.label
        if keyword.label == variable.kind.label
        else (f"{keyword.label}; in the variable {variable.kind.label}")
    )
    return SettingRow(
        code([keyword.name]),
        code(variable.names),
        values,
        default_cell(variable.default),
        variable.meaning,
    )


def default_cell(default: str) -> str:
    """Return a default: as code if it is a single word, as text otherwise, – if there is none."""
    if not default:
        return "–"
    return default if " " in default or "`" in default else f"`{default}`"


def functions(keyword: Keyword) -> str:
    """Return the functions that have a keyword."""
    return ", ".join(f"`{name}()`" for name in keyword.functions)
