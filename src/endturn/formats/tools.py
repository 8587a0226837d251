"""How a format declares the tools that a request offers: its shape as data, read and written in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from endturn.chat import Json, Tool
from endturn.formats.reading import items, member, text


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShape:
    """Where a tool's name, description and schema stand.

    Attributes:
        beside: what is said of every tool, beside these.
        inner: the object that holds them, where the tool itself does not.
        schema: the member that holds the schema.
        bare: a tool without a schema is a function, too; elsewhere it is one of the server's.
    """

    beside: Mapping[str, Any] = field(default_factory=dict)
    inner: str = ""
    schema: str = "parameters"
    bare: bool = False

    def written(self, tool: Tool) -> Json:
        """A tool in the format's shape."""
        about: Json = {"name": tool.name, self.schema: tool.parameters}
        if tool.description:
            about["description"] = tool.description
        return {**self.beside, self.inner: about} if self.inner else {**self.beside, **about}

    def read(self, raw: Any) -> Tool | None:
        """A tool of the client's; None for one that the server runs."""
        about = member(raw, self.inner) if self.inner else raw
        name, schema, kind = member(about, "name"), member(about, self.schema), self.beside.get("type")
        if not isinstance(name, str) or not (self.bare or isinstance(schema, dict)):
            return None
        if not self.inner and kind is not None and member(raw, "type") != kind:
            return None
        known: Json = {"parameters": schema} if isinstance(schema, dict) else {}
        return Tool(name=name, description=text(member(about, "description")), **known)

    def take(self, body: Json, found: Json, extra: Json) -> tuple[Tool, ...]:
        """Put a body's tools among what was found; into `extra`, as they are, where ours would be written otherwise."""
        tools = tuple(tool for raw in items(body.get("tools")) if (tool := self.read(raw)) is not None)
        if "tools" in body:
            found["tools"] = tools
            if [self.written(tool) for tool in tools] != body["tools"]:
                extra["tools"] = body["tools"]
        return tools


FUNCTION: Final = ToolShape(beside={"type": "function"}, inner="function", bare=True)
"""The chat format's, and everybody's who took it over."""
