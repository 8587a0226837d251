"""The policy of a turn: its limits and its checks, from keywords, the environment or a file."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from endturn.errors import UsageError, did_you_mean
from endturn.vocabulary import package_data

VARIABLE_PREFIX: Final = "ENDTURN_AGENT_"
"""The prefix of the policy's environment variables; a key in upper case follows."""

ONE_CALL_SENTENCE: Final = "If you intended a tool call, emit one complete tool call payload only."
PROMPT: Final = f"""\
Previous response was truncated by token limit.
Continue exactly from where you left off.
{ONE_CALL_SENTENCE}
Do not repeat already-sent text."""
"""The nudge: the recovery prompt of the source design."""

FILE_VARIABLE: Final = "ENDTURN_CONFIG_FILE"
"""The environment variable that names a TOML file; its table `agent` has the policy's keys."""


@cache
def presets() -> Mapping[str, Mapping[str, Any]]:
    """Return the keys that each preset sets, by its name, from data/presets.toml."""
    return MappingProxyType(
        tomllib.loads(package_data().joinpath("presets.toml").read_text("utf-8"))
    )


Dispatch = Literal["verified_terminal", "tool_call_only", "any_parsed"]
StrategyName = Literal["native_token", "resend", "prefill", "prompt"]
_Money = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Price = tuple[_Money, _Money]
"""USD per million tokens of the input, and of the output."""


class ContinuationPolicy(BaseModel):
    """The limits of continuations, and the rules for running tool calls. Immutable.

    A further key, `preset`, names a table of data/presets.toml with values for all keys that are
    not set.

    Attributes:
        continuation_max_attempts: continuations of truncated text in one turn, its tool iterations
            included.
        continuation_attempts_per: the unit in which they are counted: the `turn`; or the `answer`,
            which starts again when tools have run.
        continuation_max_total_completion_tokens: output tokens of truncated responses, their
            continuations and repairs over the turn; None is four times the request's `max_tokens`,
            else four times the tokens of the first truncated response; "none" is no limit. A call
            that could not spend the thinking budget and 256 tokens beyond it (or one more
            `max_tokens`, if that is less) is not made.
        continuation_max_output_chars: the same responses, in characters. A longer text is cut.
        continuation_strategies: the allowed strategies, the preferred first: `native_token` and
            `resend` resume a response that the provider paused; `prefill` sends the model its own
            text to continue, if it accepts that; `prompt` asks for the rest.
        json_reask: a truncated JSON answer is requested once more completely, with the remaining
            tokens, if continuations are allowed; if not, its rest is requested, as of any text.
        continuation_tool_repair_attempts: repairs of a truncated or unverified tool payload in one
            turn.
        continuation_max_resumes: resumptions of paused responses in one turn.
        max_cost: USD after which no further call is made; needs a price for the model. Output
            limits of continuations are lowered to the rest of it. If the provider reports no usage,
            tokens are estimated.
        prices: USD per million input and output tokens, by model: {"gpt-5-mini": (0.25, 2.0)}.
        deadline_s: seconds from the turn's start after which no further call is made; None for no
            limit.
        max_iterations: calls of the tool loop, continuations, repairs and resumes not counted.
        max_identical_calls: the number of times in a row that the same tool calls, with the same
            arguments, are run, or answered with their errors; None for no limit.
        rerun_calls: a call that this turn has run already (the same random id; or the same response
            id, call id and arguments, as from a cache that replays a response) is run again; if
            false, it ends the turn.
        dispatch: the tool calls that are run. `verified_terminal`: a batch that the provider
            reports as complete, and that fits its declared tools; `tool_call_only`: the same
            without validation by the schemas; `any_parsed`: also those calls of a truncated
            response that parse.
        suspect_full_budget: a `tool_call` that used the complete token budget counts as truncated
            (not for `any_parsed`).
        promote: complete calls of a response that ends with `stop`, or without a reason, count as a
            `tool_call`; if false, they are not run, and such a response ends the turn.
        on_cut_call: the treatment of a truncated response whose calls may not run: `repair`: one
            complete payload is requested; `drop`: its text is continued, as if there were no calls.
        prompt: the nudge that asks for the rest.
        history: the form of a continued answer in `TurnResult.messages`: `collapsed`: one message;
            `segments`: a message for each part, with the nudges between them. In a later request
            they are joined before they are sent.
        on_reasoning_only: the treatment of a response that was truncated before any text: `stop`;
            `escalate_once`: the same request with four times the output tokens, as far as the
            budget allows; `reasoning_off_once`: the same request without reasoning, if the model
            is known to support that.
        on_context_exceeded: `abort`; or a function that takes the request and the response, and
            returns a shorter request (None gives up). It is called once a turn, and may be async.
        stream_json: in a turn that requests a JSON format, the answer is `held` back until it is
            known to be JSON (or not), or streamed as it arrives (`eager`): then it cannot be
            requested again.
        mode: the tool of `endturn.continuation.termination` that ends a turn on purpose:
            `response`: finish_response; `task`: finish_task; None: neither. A controller that runs
            tools offers it to the model.
        text_signals: in a mode, that tool's name on a line of its own counts as a call in the text
            of an answer too: at the answer's end, optionally with an object after it; or at its
            start, with a summary after it.
        wallet_guard: in a mode, the turn of a model that does not call that tool ends by the
            guard's rules; if false, an answer without calls ends it, as it does without a mode.
        transcript: a file to which every message of every turn is appended; see
            `endturn.continuation.transcript`.
        min_overlap, max_overlap: the characters that a repetition at a seam needs at least to be
            removed, and the most that are compared (and held back, when streaming).

    Raises:
        UsageError: an unknown key, or an invalid value.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    continuation_max_attempts: int = Field(default=3, ge=0)
    continuation_attempts_per: Literal["turn", "answer"] = "turn"
    continuation_max_total_completion_tokens: (
        Annotated[int, Field(ge=1)] | Literal["none"] | None
    ) = None
    continuation_max_output_chars: int = Field(default=120_000, ge=1)
    continuation_strategies: tuple[StrategyName, ...] = (
        "native_token",
        "resend",
        "prefill",
        "prompt",
    )
    json_reask: bool = True
    continuation_tool_repair_attempts: int = Field(default=1, ge=0)
    continuation_max_resumes: int = Field(default=10, ge=0)
    deadline_s: float | None = Field(default=None, gt=0)
    max_cost: float | None = Field(default=None, gt=0)
    prices: Mapping[str, Price] = Field(default_factory=dict)
    max_iterations: int = Field(default=50, ge=1)
    max_identical_calls: int | None = Field(default=None, ge=1)
    rerun_calls: bool = False
    dispatch: Dispatch = "verified_terminal"
    suspect_full_budget: bool = True
    promote: bool = True
    on_cut_call: Literal["repair", "drop"] = "repair"
    prompt: str = Field(default=PROMPT, pattern=r"\S")
    history: Literal["collapsed", "segments"] = "collapsed"
    min_overlap: int = Field(default=16, ge=1)
    max_overlap: int = Field(default=1_024, ge=1)
    on_reasoning_only: Literal["stop", "escalate_once", "reasoning_off_once"] = "stop"
    on_context_exceeded: Literal["abort"] | Callable[..., Any] = "abort"
    stream_json: Literal["held", "eager"] = "held"
    mode: Literal["response", "task"] | None = None
    text_signals: bool = False
    wallet_guard: bool = True
    transcript: Path | None = None

    # for type checkers: keeps the signature that pydantic derives from the fields
    if not TYPE_CHECKING:

        def __init__(self, **values: Any) -> None:
            _validate_into(self, values, {})

    @field_validator("on_context_exceeded", mode="before")
    @classmethod
    def _hook(cls, value: object) -> object:
        if value != "abort" and not callable(value):
            raise ValueError("it should be 'abort' or, in code, a function")
        return value

    @field_validator("continuation_strategies", mode="before")
    @classmethod
    def _split_names(cls, value: object) -> object:
        """Split a list of names that an environment variable holds as text with commas."""
        return (
            [name.strip() for name in value.split(",") if name.strip()]
            if isinstance(value, str)
            else value
        )

    @field_validator("transcript", mode="before")
    @classmethod
    def _file(cls, value: object) -> object:
        if value in ("", Path()):
            raise ValueError("it should be the path to a file, or None")
        return value

    @model_validator(mode="after")
    def _overlaps(self) -> Self:
        if self.min_overlap > self.max_overlap:
            raise ValueError(
                f"min_overlap ({self.min_overlap}) is larger than max_overlap ({self.max_overlap})"
            )
        return self

    @model_validator(mode="after")
    def _costs(self) -> Self:
        if self.max_cost is not None and not self.prices:
            raise ValueError(
                "max_cost needs prices: prices={'model': (USD per million input "
                "tokens, output tokens)}"
            )
        return self

    def price(self, model: str) -> Price | None:
        """Return the price of a model; None if there is none."""
        return self.prices.get(model)

    @classmethod
    def preset(cls, name: str, /, **values: Any) -> Self:
        """Return a preset by its name, with other values for some keys.

        Raises:
            UsageError: there is no such preset, or a key or value is invalid.
        """
        return cls(**{**values, "preset": name})

    @classmethod
    def load(
        cls, path: str | Path | None = None, environ: Mapping[str, str] | None = None, **values: Any
    ) -> Self:
        """Return a policy from a file, the environment and keywords.

        The later take precedence, and all of them over a preset's keys.

        Args:
            path: a TOML file with a table `agent`; defaults to the file that ENDTURN_CONFIG_FILE
                names, if it is set.
            environ: as in `from_environment`.
            values: keys that win over both.

        Raises:
            UsageError: the file cannot be read or is not TOML, or a key or value is invalid.
        """
        environ = os.environ if environ is None else environ
        path = path or environ.get(FILE_VARIABLE) or None
        file_values = {} if path is None else _values_in_file(Path(path))
        return cls._of({**file_values, **_values_in_environment(environ)}, values)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None, **values: Any) -> Self:
        """Return a policy from `ENDTURN_AGENT_…` variables.

        An example is ENDTURN_AGENT_CONTINUATION_MAX_ATTEMPTS=5.

        Args:
            environ: the variables to read; defaults to the process's environment. An empty variable
                counts as unset.
            values: keys that win over the environment.

        Raises:
            UsageError: a variable names no key of the policy, or has an invalid value.
        """
        return cls._of(_values_in_environment(os.environ if environ is None else environ), values)

    @classmethod
    def _of(cls, sourced_values: Mapping[str, _Sourced], values: Mapping[str, Any]) -> Self:
        """Return a policy from values with sources, and from keywords, which take precedence."""
        policy = cls.__new__(cls)
        origins = {key: origin for key, (_, origin) in sourced_values.items() if key not in values}
        _validate_into(
            policy,
            {**{key: value for key, (value, _) in sourced_values.items()}, **values},
            origins,
        )
        return policy


_Sourced = tuple[Any, str]
"""The value that a file or a variable sets, and the name of that source."""


def _validate_into(
    policy: ContinuationPolicy, keywords: Mapping[str, Any], origins: Mapping[str, str]
) -> None:
    """Validate values and set them on a new policy. `origins`: sources of keys not from code."""
    values = dict(keywords)
    name = values.pop("preset", None)
    if name is not None and (not isinstance(name, str) or name not in presets()):
        origin = _origin_suffix(origins.get("preset"))
        raise UsageError(
            f"unknown preset {name!r}{origin}; the presets are: {', '.join(presets())}"
        )
    try:
        BaseModel.__init__(policy, **{**({} if name is None else presets()[name]), **values})
    except ValidationError as error:
        raise UsageError(_message_of(error, origins)) from None


def _values_in_environment(environ: Mapping[str, str]) -> dict[str, _Sourced]:
    """Return the values that variables set. The prices, a mapping, are JSON in a variable."""
    sourced_values: dict[str, _Sourced] = {
        name.removeprefix(VARIABLE_PREFIX).lower(): (value, name)
        for name, value in environ.items()
        if name.startswith(VARIABLE_PREFIX) and value
    }
    if "prices" in sourced_values:
        value, name = sourced_values["prices"]
        try:
            sourced_values["prices"] = json.loads(value), name
        except ValueError:
            example = '{"gpt-5-mini": [0.25, 2.0]}'
            raise UsageError(
                f"{name} is not JSON: write it like {example}, USD per million tokens"
            ) from None
    return sourced_values


KEYS: Final = ("preset", *ContinuationPolicy.model_fields)
TABLES: Final = ("agent", "alerts", "collector", "grafana", "period", "runbooks", "services")
"""The tables of the configuration file: the policy's, and those of `endturn generate --config`."""


def _values_in_file(path: Path) -> dict[str, _Sourced]:
    """Return the values that the table `agent` of a TOML file sets."""
    file_label = f"the configuration file {str(path)!r}"
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{file_label} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file_label} is not TOML: {error}") from None
    for name in document:
        if name in KEYS:
            raise UsageError(
                f"{file_label} has {name!r} outside its table `agent`: write [agent] above it"
            )
        if name not in TABLES:
            raise UsageError(
                f"{file_label} has an unknown key {name!r}; {did_you_mean(name, TABLES)}"
            )
    table = document.get("agent", {})
    if not isinstance(table, dict):
        raise UsageError(f"`agent` in {file_label} must be a table: write [agent]")
    return {key: (value, file_label) for key, value in table.items()}


def _origin_suffix(origin: str | None) -> str:
    return f" (from {origin})" if origin else ""


def _message_of(error: ValidationError, origins: Mapping[str, str]) -> str:
    """Return all errors in one line: the key, the value, its origin, and the allowed values."""
    sentences = []
    for entry in error.errors():
        key = ".".join(str(part) for part in entry["loc"])
        origin = _origin_suffix(origins.get(str(entry["loc"][0]))) if key else ""
        message = re.sub(r"^\w+ should ", "it should ", entry["msg"].removeprefix("Value error, "))
        if entry["type"] == "extra_forbidden":
            sentences.append(f"{key!r} is not a setting{origin}; {did_you_mean(key, KEYS)}")
        elif entry["type"] == "missing":
            sentences.append(f"{key} is missing{origin}")
        elif key:
            sentences.append(f"{key} cannot be {entry['input']!r}{origin}: {message}")
        else:
            sentences.append(message)
    return "; ".join(sentences)
