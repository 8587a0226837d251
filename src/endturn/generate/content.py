"""What people wrote and models answered, wherever it stands in telemetry: named once, removed by every Collector."""

from __future__ import annotations

import re
from typing import Final

from endturn.generate import ottl
from endturn.generate.connections import filled
from endturn.generate.emitters import SOURCES

PLACES: Final = (
    # The conventions, of today and before, and what is written in their manner.
    r"gen_ai\.((input|output)\.messages|system_instructions|system_prompt|tool\.definitions|event\.content|data)",
    r"gen_ai\.tool\.(call\.(arguments|result)|arguments|result|input|output|message)",
    r"gen_ai\.(retrieval\.(query\.text|documents)|memory\.(query|content)|evaluation\.explanation)(\..*)?",
    r"gen_ai\.((prompt|completion)(\.[0-9]+\..*)?|content\.(prompt|completion))",
    r"gen_ai\.(request|response|input|output)\.(messages?|text|content|prompt|instructions)|genai\.prompt",
    # OpenInference. The parameters of a call hold its instructions and tools, too.
    r"llm\.((input|output)_messages|prompts|completions|prompt_template\.(template|variables))(\..*)?",
    r"llm\.(tools|choices|function_call|user\.message|invocation_parameters)(\..*)?",
    r"(input|output)\.value|tool\.(parameters|input|output)|(message|document)\.content(\..*)?|message\.contents(\..*)?",
    r"(retrieval\.documents|reranker\.(input_documents|output_documents|query)|embedding\.embeddings)(\..*)?",
    r"embedding\.(text|vector)",
    # Traceloop, Vercel's AI SDK
    r"traceloop\.(entity\.(input|output)|prompt\.(template|template_variables))(\..*)?",
    r"ai\.(prompt(\..*)?|response\.(text|object|reasoning|toolCalls|files)|toolCall\.(args|result))",
    r"ai\.(result\.(text|object|toolCalls)|values?|embeddings?)",
    # Logfire, Pydantic AI
    r"request_data|response_data|all_messages(_events)?|events|pydantic_ai\.(all_messages|final_result)|logfire\.msg",
    r"tool_(arguments|response)|model_request_parameters|final_result",
    # Google ADK, Langfuse, MLflow, LangSmith, Braintrust, LiveKit, CrewAI
    r"gcp\.vertex\.agent\.(llm_request|llm_response|tool_call_args|tool_response|data)",
    r"langfuse\.(.*\.)?(input|output|status_message|metadata(\..*)?)",
    r"mlflow\.((span|trace)_?(inputs?|outputs?|request|response)|chat\.(messages|tools))",
    r"(langsmith|braintrust)\.(inputs?|outputs?)(_json)?",
    r"lk\.(user_input|user_transcript|instructions|chat_ctx|input_text|response\.(text|function_calls))",
    r"lk\.function_tool\.(arguments|output)|crewai\.task\.(description|expected_output)",
    # Claude Code, Codex, Gemini CLI: in the records of their events, and on spans
    r"prompt|user_prompt|system_prompt(_preview)?|user_system_prompt|request_text|response_text|response\.model_output",
    r"function_args|arguments|input|output|response|model_response|new_context|tool_(input|output|parameters|result)",
    # What was sent, and how a program was called: `claude -p "…"`
    r"http\.(request|response)\.body(\..*)?|process\.command_(args|line)",
)
"""Keys of attributes whose values are messages, instructions, tool arguments or results, documents, tools."""

ERRORS: Final = (r"(exception|error)\.(message|stacktrace|stack)", r"error_message|stack_?trace")
"""Keys of attributes that hold an error's text: providers quote what they refuse, tracebacks what they were given."""

SPOKEN: Final = (r"content|contents|message|messages|text|body|parts|tool_calls|delta|result|error|reason_text",)
"""Keys too plain to be anybody's, which are content in the events of models and their programs."""

EVENTS: Final = r"(?i)^(gen_ai|claude_code|codex|gemini_cli|qwen_code|qwen-code)\."
"""Events whose fields and bodies are what was said, or may be."""

_BLOCK: Final = """
# What people wrote and models answered stays where it was said. An application that records message content has
# opted in for itself; that it is also stored, and shown to all who may see a trace, is a second decision. To make
# it, take this processor out of the pipelines below. gen_ai.prompt.name, the name of a stored prompt, is no
# content. What still passes is in docs/collector.md.
transform/drop_message_content:
  error_mode: propagate # refuse rather than let content pass because a statement failed
  # One group for each kind of thing: in a common group the span's statement would run once for each of its events,
  # so not at all without any.
  trace_statements:
    - statements:
        - @resource@
    - statements:
        - @scope@
    # What else the stop reason is read from stays: here, or by a gateway behind this Collector.
    - statements:
@span@
    - statements:
        - @spanevent@
    - conditions:
        - @spanevent_named@
      statements:
        - @spanevent_spoken@
  log_statements:
    - statements:
        - @resource@
    - statements:
        - @scope@
    - statements:
        - @log@
        - @body@
    # Before they were attributes, messages were the bodies of events, named in a field or in an attribute.
    - conditions: # any of them
        - @log_named@
        - @log_also@
      statements:
        - @log_spoken@
        - set(log.body, "")
  # Resources of metrics become labels of target_info. The attributes of points are their identity, and stay.
  metric_statements:
    - statements:
        - @resource@
    - statements:
        - @scope@

# Of errors their class stays (error.type, exception.type), not their text: providers quote what they refuse. To see
# the texts, take this processor out.
transform/drop_error_texts:
  error_mode: propagate
  trace_statements:
    - statements:
        - @error_span@
        - set(span.status.message, "") where span.status.message != ""
    - statements:
        - @error_spanevent@
  log_statements:
    - statements:
        - @error_log@
"""


def _keys(places: tuple[str, ...]) -> str:
    """The pattern of these keys, in any case, and with white space around them."""
    return rf"(?i)^\s*({'|'.join(places)})\s*$"


def block() -> str:
    """The processors that remove it."""
    events = ottl.quoted(EVENTS)
    values = {name: _deleted(name, PLACES) for name in ("resource", "scope", "spanevent", "log")}
    span = "\n".join(f"{' ' * 8}- {ottl.scalar(each)}" for each in _span())
    return filled(
        _BLOCK,
        span=span,
        body=ottl.scalar(f"delete_matching_keys(log.body, {ottl.quoted(_keys(PLACES))}) where IsMap(log.body)"),
        spanevent_named=ottl.scalar(f"IsMatch(spanevent.name, {events})"),
        spanevent_spoken=_deleted("spanevent", SPOKEN),
        log_named=ottl.scalar(f"IsMatch(log.event_name, {events})"),
        log_also=ottl.scalar(f'IsMatch(log.attributes["event.name"], {events})'),
        log_spoken=_deleted("log", SPOKEN),
        **values,
        **{f"error_{name}": _deleted(name, ERRORS) for name in ("span", "spanevent", "log")},
    )


def _deleted(name: str, places: tuple[str, ...]) -> str:
    return ottl.scalar(f"delete_matching_keys({name}.attributes, {ottl.quoted(_keys(places))})")


def _span() -> list[str]:
    """What is done to a span: the reason, and the limit among OpenInference's parameters, outlive what they are in."""
    pattern = re.compile(_keys(PLACES))
    kept = [each.attribute for each in SOURCES if pattern.match(each.attribute)]
    there = [f'span.attributes["{name}"]' for name in kept]
    caches = [f'span.cache["{name}"]' for name in kept]
    pairs = list(zip(there, caches, strict=True))
    return [
        ottl.parameters(),
        *(f"set({cache}, {place}) where {place} != nil" for place, cache in pairs),
        f"delete_matching_keys(span.attributes, {ottl.quoted(_keys(PLACES))})",
        *(f"set({place}, {cache}) where {cache} != nil" for place, cache in pairs),
    ]
