"""How a format declares the tools that a request offers: its shape as data, written in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from endturn.chat import Json, Tool


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
