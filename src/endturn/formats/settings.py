"""A request's settings, ours and those in its `extra`: limits, thinking budgets, tools."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Any, Final

from endturn.formats.reading import count, first_member, items, member, text, value_at
from endturn.vocabulary import Json, Request, Tool

LIMIT_MEMBERS: Final = frozenset(
    {"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_gen_len",
     "maxOutputTokens", "maxTokens", "maxTokenCount", "max_tokens_to_sample", "maximum_tokens",
     "num_predict", "n_predict"}
)  # fmt: skip
"""The formats' names for the limit of output tokens."""
SETTINGS_MEMBERS: Final = frozenset(
    {
        "generationConfig",
        "generation_config",
        "inferenceConfig",
        "options",
        "parameters",
        "textGenerationConfig",
    }
    | {"sampling_params"}
)
"""The objects of a body that hold settings, in formats whose body itself does not."""


def present(members: Mapping[str, Any], nulls: Container[str] = ()) -> dict[str, Any]:
    """Return the members that are not None.

    Args:
        nulls: members that stay where they are None: the API writes null.
    """
    return {name: value for name, value in members.items() if value is not None or name in nulls}


def with_extra(
    body: Mapping[str, Any], extra: Mapping[str, Any], merges: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a body with the members of `extra`, which win.

    Objects of settings are merged, and those in `merges`.
    """
    both = SETTINGS_MEMBERS.union(merges) & body.keys() & extra.keys()
    merged_names = (name for name in both if isinstance(extra[name], dict))
    return {**body, **extra, **{name: {**body[name], **extra[name]} for name in merged_names}}


def limit_in(extra: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return the paths of output limits in settings with a format's own names."""
    paths: list[tuple[str, ...]] = [(name,) for name in extra if name in LIMIT_MEMBERS]
    for settings in SETTINGS_MEMBERS & extra.keys():
        if isinstance(extra[settings], Mapping):
            paths += [(settings, name) for name in extra[settings] if name in LIMIT_MEMBERS]
    return paths


def with_setting(extra: Mapping[str, Any], path: tuple[str, ...], value: int) -> dict[str, Any]:
    """Return the settings with one changed."""
    name, *rest = path
    return {**extra, name: with_setting(extra[name], tuple(rest), value) if rest else value}


_BUDGET_PATHS: Final = (
    "thinking.budget_tokens",  # Anthropic
    "thinking.token_budget",  # Cohere
    "reasoning.max_tokens",  # OpenRouter
    "generationConfig.thinkingConfig.thinkingBudget",  # Gemini
    "additionalModelRequestFields.thinking.budget_tokens",  # Bedrock, Claude
    "additionalModelRequestFields.reasoning_config.budget_tokens",  # Bedrock, Claude's first
)
"""The formats' paths of the thinking budget."""


def thinking_budget(request: Request) -> int:
    """Return the thinking budget that a request sets under its format's own name; else 0."""
    return next(filter(None, (count(value_at(request.extra, path)) for path in _BUDGET_PATHS)), 0)


ANY_JSON: Final = {"type": "json_object"}
"""A request's `format` for any JSON."""


def tools_in(body: Mapping[str, Any]) -> Iterator[Tool]:
    """Yield the functions among a request's tools, in any format's shape.

    The provider's own tools, which have a type and no schema, are left out.
    """
    for raw in items(body.get("tools")) or items(member(body.get("toolConfig"), "tools")):
        declarations = items(first_member(raw, "functionDeclarations", "function_declarations"))
        for function in declarations or (first_member(raw, "function", "toolSpec") or raw,):
            name, kind = member(function, "name"), member(raw, "type")
            schema = first_member(
                function,
                "parametersJsonSchema",
                "parameters_json_schema",
                "parameters",
                "input_schema",
            )
            schema = member(member(function, "inputSchema"), "json") if schema is None else schema
            if isinstance(name, str) and (isinstance(schema, dict) or kind in ("function", None)):
                parameters: Json = {"parameters": schema} if isinstance(schema, dict) else {}
                yield Tool(
                    name=name, description=text(member(function, "description")), **parameters
                )


def tool_schemas(request: Request) -> dict[str, Tool]:
    """Return the tools that a request declares, by name.

    `extra` may hold them in the provider's own shape, and wins.
    """
    tools = tuple(tools_in(request.extra)) if "tools" in request.extra else request.tools
    return {tool.name: tool for tool in tools}


def tools_of(request: Request) -> Iterator[Tool | Mapping[str, str]]:
    """Yield a request's tools; only type and name for the provider's own tools."""
    yield from request.tools
    names = {tool.name for tool in request.tools}
    for raw in items(request.extra.get("tools")):
        kind, name = text(member(raw, "type")), text(member(raw, "name"))
        if kind not in ("", "function") and name not in names:
            yield {"type": kind, "name": name or kind}
