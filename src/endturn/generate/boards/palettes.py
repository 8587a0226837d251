"""Colors by meaning: calm for finished responses, warm for truncated ones, else purple or grey."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from endturn.calls import Strategy, TurnOutcome
from endturn.vocabulary import StopReason

Color = str
Palette = Mapping[str, Color]

STOP_REASONS: Final[Palette] = {
    StopReason.END_TURN: "green",
    StopReason.TOOL_CALL: "blue",
    StopReason.MAX_TOKENS: "orange",
    StopReason.CONTEXT_WINDOW_EXCEEDED: "dark-orange",
    StopReason.MISSING: "red",
    StopReason.SAFETY_BLOCKED: "dark-purple",
    StopReason.REFUSED: "super-light-purple",
    StopReason.PAUSED: "light-blue",
    StopReason.CANCELLED: "#8e8e8e",
    StopReason.ERROR: "dark-red",
    StopReason.UNKNOWN: "#c8c8c8",
}
OUTCOMES: Final[Palette] = {
    TurnOutcome.NOT_CONTINUED: "red",
    TurnOutcome.RETRY_LIMIT: "orange",
    TurnOutcome.RESUME_LIMIT: "dark-orange",
    TurnOutcome.TOKEN_BUDGET: "purple",
    TurnOutcome.CHAR_BUDGET: "light-purple",
    TurnOutcome.COST_BUDGET: "super-light-purple",
    TurnOutcome.DEADLINE: "blue",
    TurnOutcome.STREAM_CUT: "dark-red",
}
STRATEGIES: Final[Palette] = {
    Strategy.NATIVE_TOKEN: "green",
    Strategy.RESEND: "blue",
    Strategy.RETRIEVE: "super-light-blue",
    Strategy.PREFILL: "light-blue",
    Strategy.PROMPT: "purple",
    Strategy.RETRY: "#8e8e8e",
    Strategy.REPAIR: "orange",
}
REPAIR_RESULTS: Final[Palette] = {
    "succeeded": "green",
    "failed": "red",
    "not_attempted": "#8e8e8e",
}
TOKEN_TYPES: Final[Palette] = {"input": "blue", "output": "orange"}
QUANTILES: Final[Palette] = {"p50": "#8ab8ff", "p90": "blue", "p95": "blue", "p99": "purple"}
VLLM_FINISHED_REASONS: Final[Palette] = {
    "stop": "green",
    "length": "orange",
    "abort": "#8e8e8e",
    "error": "dark-red",
    "repetition": "purple",
}
PROVIDERS: Final[Palette] = {
    "openai": "#5794f2",
    "anthropic": "#b877d9",
    r"gcp\..+": "#3fb8b0",
    r"aws\..+": "#9aa5b1",
    r"azure\..+": "#4169c9",
    "mistral_ai": "#e48fc0",
    "deepseek": "#8a7bd1",
    "x_ai": "#6f7680",
}
"""Regular expression of a provider -> the hue of its models; distinct from the colors of verdicts.
"""
OTHER_PROVIDERS: Final[Color] = "#7fa3b8"
SERVICES: Final[Palette] = {
    "[a-e0-1]": "#5794f2",
    "[f-m2-3]": "#b877d9",
    "[n-q4-5]": "#3fb8b0",
    "[r-s6-7]": "#e48fc0",
    "[t-z8-9]": "#6f7fd1",
}
"""Last character of a service's name -> its hue: stable, and distinct from the colors of verdicts.
"""
PLAIN: Final[Color] = "#7fa3b8"
"""The color of lines that show neither a verdict, a model nor a service."""
