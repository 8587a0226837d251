"""The ways to continue a truncated response, by format, provider and model.

Each entry has its source. A model that is not listed takes a prompt, as every chat format does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple


class Capability(NamedTuple):
    """The capabilities of one model behind one format.

    Attributes:
        prefill: the model continues a last message of the assistant.
        retrieve: a response that is still running can be fetched by its id.
        json: a JSON format in a request constrains the output; otherwise it is only a hint.
        reasoning_off: the members of a request's `extra` that make the model answer without
            thinking; empty if none are known.
    """

    prefill: bool = False
    retrieve: bool = False
    json: bool = True
    reasoning_off: Mapping[str, Any] = MappingProxyType({})


# All models since Sonnet 4.6 and Opus 4.6 reject a prefill with a 400 (see Anthropic's SDK; the
# models are those of LiteLLM's table `supports_assistant_prefill`).
_CLAUDE: Final = re.compile(
    r"claude-(?:instant|v?[12]\b|3(?:[.-]|$)|(?:sonnet|opus|haiku)-4(?:-[015])?(?=$|[@:]|-\d{8}"
    r"|-v\d))"
)
_MISTRAL: Final = re.compile(r"mistral|mixtral|codestral|ministral|devstral|magistral|pixtral")

_SERVERS: Final = frozenset({"vllm", "sglang"})
"""Chat servers that take `continue_final_message`: a true prefill, whatever the model."""

_RETRIEVES: Final = frozenset({"openai_responses", "gemini_interactions"})

_REASONING_OFF: Final[Mapping[str, Mapping[str, Any]]] = {
    "anthropic": {"thinking": {"type": "disabled"}},
    "gemini": {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}},
    "ollama": {"think": False},
    "openai_chat": {"reasoning_effort": "none"},
    "openai_responses": {"reasoning": {"effort": "none"}},
    "cohere": {"thinking": {"type": "disabled"}},
    "openai_chat openrouter": {"reasoning": {"enabled": False}},
    "openai_chat vllm": {"chat_template_kwargs": {"enable_thinking": False}},
    "openai_chat sglang": {"chat_template_kwargs": {"enable_thinking": False}},
    "openai_chat deepseek": {"thinking": {"type": "disabled"}},
    "openai_chat zai": {"thinking": {"type": "disabled"}},
}
"""By format, and by format and dialect."""


def capability_of(
    format: str, dialect: str, model: str, *, json_format: Mapping[str, Any] | None = None
) -> Capability:
    """Return the capabilities of a model.

    Args:
        format, dialect: of its requests.
        model: its name, a gateway's or region's prefix included.
        json_format: the JSON format that a request sets; None if it sets none.
    """
    return Capability(
        prefill=_prefills(format, dialect, model.lower()),
        retrieve=format in _RETRIEVES,
        # Anthropic constrains the output only by a schema; it cannot request JSON without one.
        json=format != "completions"
        and not (format == "anthropic" and json_format == {"type": "json_object"}),
        reasoning_off=_REASONING_OFF.get(f"{format} {dialect}")
        or _REASONING_OFF.get(format, MappingProxyType({})),
    )


def _prefills(format: str, dialect: str, model: str) -> bool:
    match format:
        case "completions":
            return True
        case "anthropic" | "bedrock_converse" | "bedrock_invoke":
            return _CLAUDE.search(model) is not None
        case "openai_chat":
            return dialect in _SERVERS or (
                dialect == "mistral" and _MISTRAL.search(model) is not None
            )
        case _:
            return False
