"""A request's settings in a format's own words: ours, and those in its `extra`: limits, thinking budgets, tools."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from endturn.chat import Json, Request, Tool
from endturn.formats.reading import at, count, first, items, member, text
from endturn.formats.scripting import filled

LIMIT_MEMBERS: Final = frozenset(
    {"max_tokens", "max_completion_tokens", "max_output_tokens", "max_new_tokens", "max_gen_len", "maxOutputTokens",
     "maxTokens", "maxTokenCount", "max_tokens_to_sample", "maximum_tokens", "num_predict", "n_predict"}
)  # fmt: skip
"""What the formats call the limit of output tokens."""
SETTINGS_MEMBERS: Final = frozenset(
    {"generationConfig", "generation_config", "inferenceConfig", "options", "parameters", "textGenerationConfig"}
    | {"sampling_params"}
)
"""The objects of a body that hold it, where the body itself does not."""


def written_settings(request: Request, names: Mapping[str, str]) -> dict[str, Any]:
    """A request's settings: a format's name → the name in `Request`. What is not set is left out."""
    return present({name: getattr(request, ours) for name, ours in names.items()})


def present(members: Mapping[str, Any]) -> dict[str, Any]:
    """The members that say something."""
    return {name: value for name, value in members.items() if value is not None}


def with_extra(body: Mapping[str, Any], extra: Mapping[str, Any], settings: str) -> dict[str, Any]:
    """A body with the members of `extra`, which win; its object of settings is joined with that in `extra`."""
    ours, theirs = body.get(settings), extra.get(settings)
    joined = {settings: {**ours, **theirs}} if isinstance(ours, dict) and isinstance(theirs, dict) else {}
    return {**body, **extra, **joined}


def limit_in(extra: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Where settings in a format's own words limit the output tokens."""
    found: list[tuple[str, ...]] = [(name,) for name in extra if name in LIMIT_MEMBERS]
    for settings in SETTINGS_MEMBERS & extra.keys():
        if isinstance(extra[settings], Mapping):
            found += [(settings, name) for name in extra[settings] if name in LIMIT_MEMBERS]
    return found


def with_setting(extra: Mapping[str, Any], path: tuple[str, ...], value: int) -> dict[str, Any]:
    """The settings with one changed."""
    name, *within = path
    return {**extra, name: with_setting(extra[name], tuple(within), value) if within else value}


_BUDGETS: Final = (
    "thinking.budget_tokens",  # Anthropic
    "thinking.token_budget",  # Cohere
    "reasoning.max_tokens",  # OpenRouter
    "generationConfig.thinkingConfig.thinkingBudget",  # Gemini
    "additionalModelRequestFields.thinking.budget_tokens",  # Bedrock, Claude
    "additionalModelRequestFields.reasoning_config.budget_tokens",  # Bedrock, Claude's first
)
"""Where the formats say how many tokens are set aside for thinking."""


def thinking_budget(request: Request) -> int:
    """Tokens that a request sets aside for thinking, in its format's own words. 0 for none."""
    return next(filter(None, (count(at(request.extra, path)) for path in _BUDGETS)), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolShape:
    """Where a tool's name, description and schema stand.

    Attributes:
        beside: what is said of every tool, beside these.
        inner: the object that holds them, where the tool itself does not.
        schema: the member that holds the schema.
        choices: how a choice that is not the model's own is said: "none", "required", and under "" a tool by its name,
            which "$name" stands for.
        chooses_alone: a choice is said where no tool is offered, too.
    """

    beside: Mapping[str, Any] = field(default_factory=dict)
    inner: str = ""
    schema: str = "parameters"
    choices: Mapping[str, Any] = field(default_factory=dict)
    chooses_alone: bool = False

    def written(self, tool: Tool) -> Json:
        """A tool in the format's shape."""
        about: Json = {"name": tool.name, self.schema: tool.parameters}
        if tool.description:
            about["description"] = tool.description
        return {**self.beside, self.inner: about} if self.inner else {**self.beside, **about}

    def all(self, request: Request) -> list[Json] | None:
        """A request's tools; None where it has none."""
        return [self.written(tool) for tool in request.tools] or None

    def chosen(self, request: Request) -> Any:
        """Which tool must be called, if any; None where the model chooses."""
        choice = request.tool_choice
        if choice == "auto" or not (request.tools or self.chooses_alone):
            return None
        return filled(self.choices.get(choice, self.choices.get("")), {"name": choice})


FUNCTION: Final = ToolShape(
    beside={"type": "function"},
    inner="function",
    choices={"none": "none", "required": "required", "": {"type": "function", "function": {"name": "$name"}}},
)
"""The chat format's, and everybody's who took it over."""

ANY_JSON: Final = {"type": "json_object"}
"""What a request's format is where any JSON will do."""


def schema_of(request: Request) -> Json | None:
    """The schema that the answer has; None where any JSON will do, or any text."""
    return None if request.format == ANY_JSON else request.format


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


def tool_schemas(request: Request) -> dict[str, Tool]:
    """The tools that a request declares, by name; `extra` may hold them in the provider's own shape, and wins."""
    given = tuple(tools_in(request.extra)) if "tools" in request.extra else request.tools
    return {tool.name: tool for tool in given}


def tools_of(request: Request) -> Iterator[Tool | Mapping[str, str]]:
    """The tools that were offered; of those that are the provider's own, type and name."""
    yield from request.tools
    known = {tool.name for tool in request.tools}
    for raw in items(request.extra.get("tools")):
        kind, name = text(member(raw, "type")), text(member(raw, "name"))
        if kind not in ("", "function") and name not in known:
            yield {"type": kind, "name": name or kind}
