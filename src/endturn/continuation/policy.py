"""What a turn may spend and what it trusts: the policy, from keywords or the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from endturn.errors import UsageError

PREFIX: Final = "ENDTURN_AGENT_"
"""What an environment variable of the policy begins with; a key in upper case follows."""

PROMPT: Final = """\
Previous response was truncated by token limit.
Continue exactly from where you left off.
If you intended a tool call, emit one complete tool call payload only.
Do not repeat already-sent text."""
"""The nudge: the recovery prompt of the source design."""

Dispatch = Literal["verified_terminal", "tool_call_only", "any_parsed"]


class ContinuationPolicy(BaseModel):
    """How far a turn is continued, and which tool calls are run. Immutable.

    Attributes:
        continuation_max_attempts: continuations of cut text in one turn, its tool iterations included.
        continuation_max_total_completion_tokens: output tokens of cut responses, their continuations and repairs over
            the turn; None is four times the request's `max_tokens`, else four times what the first cut response used.
        continuation_max_output_chars: the same responses, in characters.
        continuation_tool_repair_attempts: how often a turn may ask again for a cut or unverified tool payload.
        continuation_max_resumes: how often a turn may take up what the provider paused.
        deadline_s: seconds from the turn's start after which no further call is made; None for no limit.
        max_iterations: calls of the tool loop, continuations, repairs and resumes not counted.
        dispatch: which tool calls are run. `verified_terminal`: a batch that the provider said is complete, and that
            fits its declared tools; `tool_call_only`: the same without looking at the schemas; `any_parsed`: also those
            calls of a cut response that parse.
        suspect_full_budget: a `tool_call` that used the whole token budget counts as cut (not for `any_parsed`).
        prompt: the nudge that asks for the rest.
        min_overlap, max_overlap: characters that a repetition at a seam must have to be removed, and that are looked at
            (and held back, when streaming) at most.

    Raises:
        UsageError: a key that does not exist, or a value that makes no sense.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    continuation_max_attempts: int = Field(default=3, ge=0)
    continuation_max_total_completion_tokens: int | None = Field(default=None, ge=1)
    continuation_max_output_chars: int = Field(default=120_000, ge=1)
    continuation_tool_repair_attempts: int = Field(default=1, ge=0)
    continuation_max_resumes: int = Field(default=10, ge=0)
    deadline_s: float | None = Field(default=None, gt=0)
    max_iterations: int = Field(default=50, ge=1)
    dispatch: Dispatch = "verified_terminal"
    suspect_full_budget: bool = True
    prompt: str = Field(default=PROMPT, pattern=r"\S")
    min_overlap: int = Field(default=16, ge=1)
    max_overlap: int = Field(default=1_024, ge=1)

    if not TYPE_CHECKING:  # the checker keeps the signature that pydantic makes of the fields

        def __init__(self, **values: Any) -> None:
            try:
                super().__init__(**values)
            except ValidationError as error:
                raise UsageError(_sentence(error)) from None

    @model_validator(mode="after")
    def _overlaps(self) -> Self:
        if self.min_overlap > self.max_overlap:
            raise ValueError(f"min_overlap ({self.min_overlap}) is larger than max_overlap ({self.max_overlap})")
        return self

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **values: Any) -> ContinuationPolicy:
        """A policy from `ENDTURN_AGENT_…` variables, e.g. ENDTURN_AGENT_CONTINUATION_MAX_ATTEMPTS=5.

        Args:
            environ: where to look, by default the process's environment. An empty variable counts as unset.
            values: keys that win over the environment.

        Raises:
            UsageError: a variable names no key of the policy, or holds a value that makes no sense.
        """
        environ = os.environ if environ is None else environ
        found = {
            name.removeprefix(PREFIX).lower(): value
            for name, value in environ.items()
            if name.startswith(PREFIX) and value
        }
        for key in found:
            if key not in cls.model_fields:
                raise UsageError(f"{PREFIX}{key.upper()} is no setting; the keys are: {', '.join(cls.model_fields)}")
        return cls(**{**found, **values})


def _sentence(error: ValidationError) -> str:
    """All that is wrong, in one line: which key, which value, what it should be."""
    wrong = []
    for entry in error.errors():
        key = ".".join(str(part) for part in entry["loc"])
        if entry["type"] == "extra_forbidden":
            wrong.append(f"{key!r} is no setting; the keys are: {', '.join(ContinuationPolicy.model_fields)}")
        elif key:
            wrong.append(f"{key} cannot be {entry['input']!r}: {entry['msg']}")
        else:
            wrong.append(entry["msg"].removeprefix("Value error, "))
    return "; ".join(wrong)
