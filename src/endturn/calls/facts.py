"""The facts that are recorded of a call's request and of its response.

One field for each attribute, declared nowhere else.

A format's reader fills `RequestFacts` from a request's body, `EndpointFacts` is known from its
address, and `CallStarted` carries both; `ResponseFacts` are filled from a response, and `CallEnded`
carries them. Spans, events, metric labels, the schema and its reference page follow from the
fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from enum import Flag, auto
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from endturn.calls.bounds import (
    MAX_COUNT,
    MAX_NAME_LENGTH,
    MAX_STOP_SEQUENCES,
    is_plausible,
    shorten_name,
)
from endturn.vocabulary import StopReason, sanitize_reason

if TYPE_CHECKING:
    from endturn.vocabulary import Request, Stop, Usage

AttributeType = Literal["string", "string[]", "int", "double", "boolean"]
Example = str | int | float | bool

_TYPES: Final[Mapping[str, AttributeType]] = {
    "str": "string",
    "tuple[str, ...]": "string[]",
    "int": "int",
    "float": "double",
    "bool": "boolean",
}
"""The attribute's type, by the annotation of its field."""

_FACT: Final = "fact"
_MEMBERS: Final = "members"
"""The keys of a field's metadata."""


class On(Flag):
    """The signals on which a fact is recorded."""

    CALL = auto()
    """The call's span, and the conventions' event `gen_ai.client.inference.operation.details`."""
    LABEL = auto()
    """The conventions' metrics of a call, `gen_ai.client.*`."""
    OWN = auto()
    """Every metric of endturn's own, and every event."""
    STOP = auto()
    """The event `endturn.stop_reason_observed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """The declaration of one attribute.

    Attributes:
        key: the attribute's name; type: its type; unit: as in UCUM, "" if it has none.
        doc: its meaning, for the reference page.
        example: a value, for the reference page; values: the closed set of its values, if it has
            one.
        on: the signals on which it is recorded.
        omit: values that are not recorded, the field's default among them as a rule.
        opt_in: it is recorded only if the host enabled content.
        default: the field's default.
        convert: returns the attribute's value for the field's; None records the value itself.
        least, most: limits of a number; one outside is not recorded. Without `most` there are none.
        longest: characters of a text, or items of a list; the rest is cut off.
    """

    key: str
    doc: str
    on: On = On.CALL
    type: AttributeType = "string"
    unit: str = ""
    example: Example | tuple[Example, ...] = ()
    values: tuple[str, ...] = ()
    omit: tuple[Any, ...] = ()
    opt_in: bool = False
    default: Any = None
    convert: Callable[[Any], Any] | None = None
    least: float = 0
    most: float | None = None
    longest: int | None = None


def fact(
    key: str,
    doc: str,
    *,
    on: On = On.CALL,
    default: Any = None,
    omit: tuple[Any, ...] | None = None,
    unit: str = "",
    example: Example | tuple[Example, ...] = (),
    values: tuple[str, ...] = (),
    opt_in: bool = False,
    convert: Callable[[Any], Any] | None = None,
    least: float = 0,
    most: float | None = None,
    longest: int | None = None,
) -> Any:
    """Return a dataclass field that is recorded as an attribute.

    Its annotation gives the attribute's type.

    Args:
        omit: defaults to the field's default alone.
        key, doc, on, default, unit, example, values, opt_in, convert, least, most, longest: as
            in Fact.
    """
    declared = Fact(
        key=key, doc=doc, on=on, unit=unit, example=example, values=values,
        omit=(default,) if omit is None else omit,
        opt_in=opt_in, default=default, convert=convert, least=least, most=most, longest=longest,
    )  # fmt: skip
    return field(default=default, metadata={_FACT: declared})


def members(*, default: Any = MISSING, **declared: Fact) -> Any:
    """Return a dataclass field whose members are recorded, each as an attribute."""
    return field(default=default, metadata={_MEMBERS: declared})


def _tokens(key: str, doc: str, example: int) -> Fact:
    return Fact(
        key=key, type="int", doc=doc, example=example, unit="{token}", omit=(None,), most=MAX_COUNT
    )


def members_of(cls: type, name: str) -> dict[str, Fact]:
    """Return the facts that are declared of the members of a field, by their names."""
    declared: dict[str, Fact] = next(
        member for member in fields(cls) if member.name == name
    ).metadata[_MEMBERS]
    return declared


def facts_in(cls: type) -> dict[str, Fact]:
    """Return the facts that a dataclass declares, by the names of their fields.

    It is slow: call it only at import.
    """
    return {
        member.name: replace(
            member.metadata[_FACT], type=_TYPES[str(member.type).removesuffix(" | None")]
        )
        for member in fields(cls)
        if _FACT in member.metadata
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointFacts:
    """The provider and the operation, as the address of a request gives them."""

    operation: str = fact(
        "gen_ai.operation.name",
        "The operation requested of the model.",
        default="chat",
        omit=(),
        values=("chat", "generate_content", "text_completion", "invoke_agent", "execute_tool"),
        on=On.CALL | On.LABEL,
    )
    provider: str = fact(
        "gen_ai.provider.name",
        "The provider, if it is known.",
        default="",
        example=("openai", "anthropic"),
        longest=MAX_NAME_LENGTH,
        on=On.CALL | On.LABEL | On.OWN,
    )
    server_address: str | None = fact(
        "server.address", "The provider's host.", example="api.openai.com", on=On.CALL | On.LABEL
    )
    server_port: int | None = fact(
        "server.port",
        "The provider's port, if it is not 443.",
        example=8080,
        omit=(None, 443),
        most=65_535,
        on=On.CALL | On.LABEL,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """The settings of a request, from its body or an SDK's arguments.

    A setting that is absent there is None or the default.
    """

    model: str = fact(
        "gen_ai.request.model",
        "The model, if the request names one.",
        default="",
        example="gpt-5-mini",
        longest=MAX_NAME_LENGTH,
        on=On.CALL | On.LABEL | On.OWN,
    )
    max_tokens: int | None = fact(
        "gen_ai.request.max_tokens",
        "The output limit that the request set.",
        unit="{token}",
        example=1024,
        most=MAX_COUNT,
    )
    stream: bool = fact(
        "gen_ai.request.stream",
        "Set to true on streamed requests; absent otherwise.",
        default=False,
        example=True,
    )
    choice_count: int = fact(
        "gen_ai.request.choice.count",
        "Number of choices requested, if it is not one.",
        default=1,
        example=2,
        least=1,
        most=MAX_COUNT,
    )
    temperature: float | None = fact(
        "gen_ai.request.temperature", "As requested.", example=0.2, least=-MAX_COUNT, most=MAX_COUNT
    )
    top_p: float | None = fact(
        "gen_ai.request.top_p", "As requested.", example=0.9, least=-MAX_COUNT, most=MAX_COUNT
    )
    top_k: int | None = fact("gen_ai.request.top_k", "As requested.", example=40, most=MAX_COUNT)
    seed: int | None = fact(
        "gen_ai.request.seed", "As requested.", example=7, least=-(2**63), most=2**63 - 1
    )
    stop_sequences: tuple[str, ...] = fact(
        "gen_ai.request.stop_sequences",
        "The sequences at which the model stops.",
        default=(),
        example="END",
        opt_in=True,
        # each is shortened where it is recorded: a redaction needs all of it
        longest=MAX_STOP_SEQUENCES,
    )
    reasoning_level: str | None = fact(
        "gen_ai.request.reasoning.level",
        "The reasoning effort, in the provider's term.",
        example="low",
        longest=MAX_NAME_LENGTH,
    )
    previous_response_id: str | None = fact(
        "gen_ai.request.previous_response.id",
        "The response that the request builds on.",
        example="resp_123",
        longest=MAX_NAME_LENGTH,
    )
    output_type: str | None = fact(
        "gen_ai.output.type",
        "The requested output type.",
        values=("text", "json", "image", "speech"),
    )

    @classmethod
    def of(cls, request: Request) -> RequestFacts:
        """Return the facts of a `Request`, from its own fields."""
        return cls(
            model=request.model,
            max_tokens=request.max_tokens,
            temperature=request.temperature,
            seed=request.seed,
            previous_response_id=request.previous_id,
            output_type=None if request.format is None else "json",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseFacts:
    """The facts of a response, as far as it was read.

    Attributes:
        stop: the stop of choice 0.
        usage: the tokens that the provider counted; None if it reported none.
        reasons: the raw reason of every choice, in order; None for one that never arrived.
        output_chars: the number of visible characters.
    """

    stop: Stop = members(  # noqa: RUF009 - it returns a field
        reason=Fact(
            key="endturn.stop.reason",
            doc="The normalised stop reason.",
            values=tuple(StopReason),
            convert=attrgetter("value"),
            on=On.CALL | On.STOP,
        ),
        raw=Fact(
            key="endturn.stop.raw",
            doc="The provider's own value: identifiers, at most 64 characters. A `…` replaces "
            "other text and keys; `[not a word]` replaces a value without identifiers.",
            example="length",
            omit=(None,),
            convert=sanitize_reason,
            on=On.CALL | On.STOP,
        ),
        truncated=Fact(
            key="endturn.stop.truncated",
            type="boolean",
            doc="The response was truncated: max_tokens, context_window_exceeded or missing.",
        ),
        suspected=Fact(
            key="endturn.stop.suspected",
            type="boolean",
            doc="The provider reported a normal stop, yet the token limit was used up or a part "
            "is unfinished, such as tool-call arguments that do not parse. Set to true or "
            "absent.",
            omit=(False,),
        ),
    )
    id: str | None = fact(
        "gen_ai.response.id",
        "The provider's id of the response.",
        example="chatcmpl-123",
        convert=shorten_name,
    )
    model: str | None = fact(
        "gen_ai.response.model",
        "The model that answered.",
        example="gpt-5-mini-2026-08-07",
        convert=shorten_name,
        on=On.CALL | On.LABEL,
    )
    usage: Usage | None = members(  # noqa: RUF009 - it returns a field
        default=None,
        input_tokens=_tokens("gen_ai.usage.input_tokens", "Tokens of the prompt.", 812),
        output_tokens=_tokens(
            "gen_ai.usage.output_tokens", "Tokens generated, reasoning included.", 1024
        ),
        cache_read_tokens=_tokens(
            "gen_ai.usage.cache_read.input_tokens", "Prompt tokens read from a cache.", 512
        ),
        cache_write_tokens=_tokens(
            "gen_ai.usage.cache_write.input_tokens", "Prompt tokens written to a cache.", 300
        ),
        reasoning_tokens=_tokens(
            "gen_ai.usage.reasoning.output_tokens", "Generated tokens that were reasoning.", 640
        ),
    )
    reasons: tuple[str | None, ...] = ()
    truncated_choices: int = fact(
        "endturn.stop.truncated_choices",
        "Of several choices (`n` > 1): the number of truncated ones besides the first. "
        "The call itself counts by its first choice.",
        default=0,
        on=On.CALL | On.STOP,
    )
    output_chars: int = 0


class SummarizedRequest(Protocol):
    """A request as its format has read it.

    Turns are inferred from it; only its facts are recorded.
    """

    @property
    def facts(self) -> RequestFacts:
        """The recorded facts."""


# --- Plausible values -----------------------------------------------------------------------------

Facts = TypeVar("Facts", EndpointFacts, RequestFacts)


_BOUNDED_FACTS: Final = {
    kind: tuple(
        (name, declared)
        for name, declared in facts_in(kind).items()
        if declared.most is not None or declared.longest
    )
    for kind in (EndpointFacts, RequestFacts)
}
"""The facts that are bounded, by their class and field."""


def plausible_facts(facts: Facts) -> Facts:
    """Return the facts without implausible values: hosts and instrumentations may pass anything.

    A number outside its limits, or of another type, becomes unknown; long names and lists are
    shortened.

    Returns:
        The same object if nothing changes.
    """
    changes: dict[str, Any] = {}
    for name, declared in _BOUNDED_FACTS[type(facts)]:
        value = getattr(facts, name)
        if value is None:
            continue
        if declared.most is not None:
            if not is_plausible(value, declared.least, declared.most):
                changes[name] = declared.default
        else:
            short_value = (
                shorten_name(value) if isinstance(value, str) else value[: declared.longest]
            )
            if short_value is not value:
                changes[name] = short_value
    return replace(facts, **changes) if changes else facts


_TOKENS: Final = tuple(members_of(ResponseFacts, "usage").items())
_tokens_of = attrgetter(*dict(_TOKENS))


def plausible(usage: Usage | None) -> Usage | None:
    """Return the usage with implausible counts set to None; the same object if there are none."""
    if usage is None:
        return None
    changes: dict[str, Any] = {}
    for (name, declared), figure in zip(_TOKENS, _tokens_of(usage), strict=True):
        if figure is not None and not is_plausible(figure, 0, declared.most or MAX_COUNT):
            changes[name] = None
    return replace(usage, **changes) if changes else usage


def plausible_response(response: ResponseFacts) -> ResponseFacts:
    """Return the facts without implausible counts: the same object if there are none."""
    usage = plausible(response.usage)
    return response if usage is response.usage else replace(response, usage=usage)
