"""What frameworks' exceptions hide; the stop reasons of their answers are rows of functions/frameworks.json.

Those are of langchain-core 1.7 with its integrations; litellm 1.106 (`ModelResponse.model_dump()`); the AI SDK's
LanguageModelV4; pydantic-ai 2.68 (as its adapter dumps); util-genai 1.3b0 and the instrumentations beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from endturn import frameworks
from endturn.errors import ProviderError
from endturn.frameworks import of_exception
from endturn.stop import Stop, StopReason
from endturn.telemetry.schema import finish_reason


@pytest.mark.parametrize("word", sorted(frameworks.REASONS["otel.util-genai"]))
def test_otel_reads_back_what_telemetry_writes(word: str) -> None:
    """The conventions' words come back as themselves."""
    stop = frameworks.otel((word,))
    assert finish_reason(stop.reason, stop.raw) == word


# --- Exceptions ---------------------------------------------------------------------------------------------------

FILE = Path(__file__).with_name("data") / "framework_exceptions.jsonl"
EXCEPTIONS = [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]
"""Classes of packages that are not installed, what their exceptions keep, and the stop that they hide."""


def raised(name: str, message: str = "message", **members: Any) -> Exception:
    """An exception of a package that is not installed, as its class is found: by module and name."""
    package, _, kind = name.partition(".")
    made: Exception = type(kind, (Exception,), {"__module__": f"{package}.exceptions"})(message)
    for member, value in members.items():
        made.__dict__[member] = raised(value["raises"]) if isinstance(value, dict) and "raises" in value else value
    return made


@pytest.mark.parametrize(
    "row", EXCEPTIONS, ids=lambda row: f"{row['raises']}: {row.get('keeps', row.get('message'))}"[:80]
)
def test_what_an_exception_hides(row: dict[str, Any]) -> None:
    """By its class and module, by its message, and by the response that it keeps, in whatever format."""
    seen: Any = of_exception(raised(row["raises"], row.get("message", "message"), **row.get("keeps", {})))
    assert (seen and seen.stop.reason.value) == row["says"]


def test_an_exception_of_ours_or_of_nobodys() -> None:
    assert of_exception(ValueError("maximum context length")) is None
    ours: Any = of_exception(ProviderError("no", stop=Stop(StopReason.SAFETY_BLOCKED, "content_filter")))
    assert ours.stop.reason is StopReason.SAFETY_BLOCKED


def test_an_exception_behind_it() -> None:
    """Causes and contexts are followed, five deep; a context that `from None` hides is not."""
    cut = raised("strands.MaxTokensReachedException")
    for depth in range(1, 8):
        error: BaseException = cut
        for _ in range(depth):
            outer = RuntimeError("outer")
            outer.__cause__ = error
            error = outer
        assert (of_exception(error) is not None) == (depth <= 5)
    handled = RuntimeError("while handling")
    handled.__context__ = cut
    assert of_exception(handled) is not None
    handled.__suppress_context__ = True
    assert of_exception(handled) is None
    group = ExceptionGroup("all models failed", [ValueError("first"), cut])
    assert of_exception(group) is not None


def test_a_property_that_raises_is_no_matter() -> None:
    """What a foreign exception does when it is looked at stays its own."""

    class Odd(Exception):
        @property
        def completion(self) -> Any:
            raise ValueError("never received")

    assert of_exception(Odd("odd")) is None
