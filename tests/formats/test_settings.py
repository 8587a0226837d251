"""Tools of a request, as they are sent to its provider."""

from __future__ import annotations

from typing import Any

import pytest

from endturn import Request
from endturn.formats.settings import tool_schemas
from endturn.vocabulary.messages import Tool

PARAMETERS = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}


@pytest.mark.behaviour(33)
def test_the_tools_of_a_request() -> None:
    now = Tool(name="now")
    assert tool_schemas(Request(model="m", messages=(), tools=(now,))) == {"now": now}


@pytest.mark.behaviour(33)
@pytest.mark.parametrize(
    "tool",
    [
        pytest.param(
            {"type": "function", "function": {"name": "search", "parameters": PARAMETERS}},
            id="OpenAI",
        ),
        pytest.param({"name": "search", "input_schema": PARAMETERS}, id="Anthropic"),
    ],
)
def test_tools_of_the_extra_fields_replace_them(tool: dict[str, Any]) -> None:
    """Extra fields go into the body as they are. Only function tools have a schema."""
    extra = {"tools": [tool, {"type": "web_search"}, "?"]}
    request = Request(model="m", messages=(), tools=(Tool(name="now"),), extra=extra)
    assert tool_schemas(request) == {"search": Tool(name="search", parameters=PARAMETERS)}
