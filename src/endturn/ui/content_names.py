"""Names of attributes and events that carry messages if a host records content."""

from __future__ import annotations

from typing import Final

from endturn.telemetry import schema

DETAILS: Final = "gen_ai.client.inference.operation.details"
CHOICE: Final = "gen_ai.choice"
EVENTS: Final = (
    DETAILS, CHOICE, "gen_ai.content.prompt", "gen_ai.content.completion",
    *(f"gen_ai.{role}.message" for role in ("system", "user", "assistant", "tool")),
)  # fmt: skip
"""Events with messages: log records, or events of a span."""

INPUT: Final = (
    schema.INPUT_MESSAGES.key, "gen_ai.prompt", "ai.prompt.messages", "ai.prompt", "request_data",
    "langfuse.observation.input", "gcp.vertex.agent.llm_request", "mlflow.spanInputs",
    "input.value",
)  # fmt: skip
"""Attributes with the messages of a request; the first that can be read is used."""
OUTPUT: Final = (
    schema.OUTPUT_MESSAGES.key, "gen_ai.completion", "ai.response.text", "response_data",
    "langfuse.observation.output", "gcp.vertex.agent.llm_response", "mlflow.spanOutputs",
    "output.value",
)  # fmt: skip
"""Attributes with the messages of a response; the first that can be read is used."""
NUMBERED_INPUT: Final = ("llm.input_messages.", "gen_ai.prompt.", "llm.prompts.")
"""Prefixes of attribute names that contain the index of a message: `gen_ai.prompt.0.content`."""
NUMBERED_OUTPUT: Final = ("llm.output_messages.", "gen_ai.completion.", "llm.completions.")
TOOL_CALLS: Final = "ai.response.toolCalls"
EVENT_LIST: Final = "events"
"""Logfire's attribute with the events of a call."""
EVENT_CONTENT: Final = "gen_ai.event.content"
NAMES: Final = (
    *INPUT, *OUTPUT, schema.SYSTEM_INSTRUCTIONS.key, schema.TOOL_DEFINITIONS.key, EVENT_LIST,
    TOOL_CALLS, EVENT_CONTENT,
)  # fmt: skip
"""Every attribute with messages, except those with a number for each message."""
