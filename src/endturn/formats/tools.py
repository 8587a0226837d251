"""The tools that a request offers: written in a format's shape, which is data, and read in any."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from endturn.chat import Json, Tool
from endturn.formats.reading import first, items, member, text


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShape:
    """Where a tool's name, description and schema stand.

    Attributes:
        beside: what is said of every tool, beside these.
        inner: the object that holds them, where the tool itself does not.
        schema: the member that holds the schema.
    """

    beside: Mapping[str, Any] = field(default_factory=dict)
    inner: str = ""
    schema: str = "parameters"

    def written(self, tool: Tool) -> Json:
        """A tool in the format's shape."""
        about: Json = {"name": tool.name, self.schema: tool.parameters}
        if tool.description:
            about["description"] = tool.description
        return {**self.beside, self.inner: about} if self.inner else {**self.beside, **about}


FUNCTION: Final = ToolShape(beside={"type": "function"}, inner="function")
"""The chat format's, and everybody's who took it over."""


def tools_in(body: Mapping[str, Any]) -> Iterator[Tool]:
    """The functions among a request's tools, in any format's shape. The provider's own have no schema, but a type."""
    for raw in items(body.get("tools")) or items(member(body.get("toolConfig"), "tools")):
        declared = items(first(raw, "functionDeclarations", "function_declarations"))
        for about in declared or (first(raw, "function", "toolSpec") or raw,):
            name, kind = member(about, "name"), member(raw, "type")
            schema = first(about, "parametersJsonSchema", "parameters_json_schema", "parameters", "input_schema")
            schema = member(member(about, "inputSchema"), "json") if schema is None else schema
            if isinstance(name, str) and (isinstance(schema, dict) or kind in ("function", None)):
                known: Json = {"parameters": schema} if isinstance(schema, dict) else {}
                yield Tool(name=name, description=text(member(about, "description")), **known)
