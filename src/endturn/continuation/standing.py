"""How a turn stands: the terms that hold for the whole of it, and what it is in the middle of."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Final

from endturn.chat import ChatResponse, Delta, Message, Request, Tool, ToolCall, Usage
from endturn.continuation import termination
from endturn.continuation.account import Account
from endturn.continuation.entry import Answered
from endturn.continuation.limits import Progress
from endturn.continuation.machine import Machine
from endturn.continuation.part import Part
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import Resumption
from endturn.continuation.termination import FINISH_TASK, TASK_COMPLETED, Finish, Watchman
from endturn.continuation.tool_gate import Verdict
from endturn.continuation.voice import Voice
from endturn.errors import UsageError
from endturn.events import Strategy, TurnOutcome
from endturn.formats import RequestSummary, capabilities
from endturn.formats.capabilities import Capability
from endturn.formats.format import Format
from endturn.formats.settings import limit_in, thinking_budget, tool_schemas, with_setting
from endturn.stop import StopReason


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the provider function can do beside answering; see `Provider` in `endturn.controller`.

    Attributes:
        dialect: whose variant of the format it speaks.
        retrieves: it takes a request to fetch a response by its id.
        follows_tokens: it takes continuation tokens up by itself, so that nobody else must.
        refused: (provider, model) of the models that have refused a prefill; shared by the turns of a controller.
    """

    dialect: str = ""
    retrieves: bool = False
    follows_tokens: bool = False
    refused: set[tuple[str, str]] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What holds for the whole of a turn.

    Attributes:
        provider: its name, for what is announced.
        abilities: of the provider function; capability: of the model.
        names_calls: the format has a reason of its own for a tool call; in the others every call is a promoted one.
        tools: those that the request declares, by name.
        runnable: the names of the tools that have a function; None where the host runs tools itself.
        thinking: tokens that the request sets aside for thinking.
        maximum: of output tokens, that the request sets: as ours, or in the format's own words in its `extra`.
        is_json: the answer is to be JSON; the request says so in either way.
        is_held: it is, and is not shown before it is known to be.
        is_offered: a tool to end the turn with is declared.
    """

    policy: ContinuationPolicy
    format: Format
    provider: str
    abilities: Abilities
    capability: Capability
    names_calls: bool
    tools: Mapping[str, Tool]
    runnable: Container[str] | None
    thinking: int
    maximum: int | None
    is_json: bool
    is_held: bool
    is_offered: bool

    @classmethod
    def of(
        cls,
        base: Request,
        *,
        policy: ContinuationPolicy,
        format: Format,
        provider: str,
        runnable: Container[str] | None,
        abilities: Abilities,
    ) -> Terms:
        """The terms on which a request is answered.

        Raises:
            UsageError: the policy limits money, and gives no price for the model.
        """
        if policy.max_cost is not None and policy.price(base.model) is None:
            raise UsageError(f"max_cost is set, and prices has no price for {base.model!r}")
        tools = tool_schemas(base)
        if policy.mode == "task" and FINISH_TASK.name in tools:
            tools.setdefault(TASK_COMPLETED.name, TASK_COMPLETED.but(parameters=tools[FINISH_TASK.name].parameters))
        asked = asked_in(base, format, abilities.dialect)
        maximum = base.max_tokens if asked is None or not limit_in(base.extra) else asked.maximum
        is_json = base.format is not None or (asked is not None and asked.json_format)
        return cls(
            policy=policy,
            format=format,
            provider=provider,
            abilities=abilities,
            capability=capabilities.of(format.name, abilities.dialect, base.model, json_format=base.format),
            names_calls=any(
                row.reason is StopReason.TOOL_CALL for rows in format.reasons.values() for row in rows.values()
            ),
            tools=tools,
            runnable=runnable,
            thinking=thinking_budget(base),
            maximum=maximum,
            is_json=is_json,
            is_held=is_json and policy.stream_json == "held",
            is_offered=termination.is_offered(policy.mode, tools),
        )

    def maximum_of(self, request: Request) -> int | None:
        """The limit of output tokens that a request sets."""
        asked = asked_in(request, self.format, self.abilities.dialect)
        return request.max_tokens if asked is None or not limit_in(request.extra) else asked.maximum

    def limited(self, request: Request, maximum: int | None) -> Request:
        """The request with this limit of output tokens, in `extra` too where that sets one: it is what counts there."""
        extra = request.extra
        if maximum is not None:
            for path in limit_in(extra):
                extra = with_setting(extra, path, maximum)
        return request.but(max_tokens=maximum, extra=extra)

    def watchman(self) -> Watchman | None:
        """The wallet guard of a turn; None where it has none."""
        mode = self.policy.mode
        return Watchman(mode) if mode is not None and self.policy.wallet_guard and self.is_offered else None


@dataclass(frozen=True, slots=True)
class Again:
    """The same question is worth asking once more, as `request`. `otherwise`: what its answer came to, if it is not."""

    request: Request
    otherwise: TurnOutcome


@dataclass(slots=True, kw_only=True)
class Standing:
    """What a turn is in the middle of.

    Attributes:
        elapsed: gives the seconds since it began.
        strategy: how the latest call asks; None for an ordinary one.
        issue: what is wrong with a payload that is to be repaired, as in `schema.ISSUE`.
        wanted: the names of its calls.
        unmade: what the user is told of such calls that were asked for again, and not made.
        held: what the consumer may not see yet; `kept`: so many pieces of it are of earlier parts.
        asked_before: the request and the response before the latest call, which may have to be taken back.
        part: of the call that is out; response: what the latest came to.
        number: of the ordinary call that the present answer began with.
        calls: those that run now; answers: what they were answered with so far.
        same: the tool calls of the latest batch, as text, and how often in a row they came.
        overflowed: the latest response was longer than what may be kept of it.
    """

    terms: Terms
    account: Account
    voice: Voice
    elapsed: Callable[[], float]
    watchman: Watchman | None = None
    machine: Machine = field(default_factory=Machine)

    strategy: Strategy | None = None
    issue: str | None = None
    wanted: tuple[str, ...] = ()
    unmade: str | None = None
    held: list[Delta] = field(default_factory=list)
    kept: int = 0
    asked_before: tuple[Request, ChatResponse] | None = None
    part: Part | None = None
    response: ChatResponse | None = None
    verdict: Verdict | None = None
    progress: Progress = field(default_factory=lambda: Progress(visible=False))
    again: Again | None = None

    number: int = 0
    calls: tuple[ToolCall, ...] = ()
    answers: list[Message] = field(default_factory=list)
    same: tuple[tuple[str, ...], int] = ((), 0)
    overflowed: bool = False

    outcome: TurnOutcome = TurnOutcome.COMPLETED
    finish: Finish | None = None
    error: BaseException | None = None
    resumption: Resumption | None = None

    def take(self, raised: Exception | None = None) -> None:
        """Take what the call that is out has come to, and what was raised beside it; its part is closed."""
        assert self.part is not None
        assert self.part.response is not None
        if self.account.tell is not None:
            self.account.tell(Answered(self.part.response, raised))
        self.response, self.overflowed, self.part = self.part.response, self.part.overflowed, None
        self.account.counters.calls += 1

    def is_one_too_many(self, calls: Sequence[ToolCall]) -> bool:
        """Whether the same calls were run as often in a row as the policy allows."""
        batch = tuple(sorted(_said(call) for call in calls))
        before, times = self.same
        self.same = batch, times + 1 if batch == before else 1
        most = self.terms.policy.max_identical_calls
        return most is not None and self.same[1] > most

    def end_text(self) -> None:
        """No text follows in this answer: half a character that waited for its other half is shown after all."""
        waited = self.account.stitcher.end()
        if waited:
            self.held.append(Delta(text=waited))

    @property
    def last(self) -> ChatResponse:
        """The latest response; there must have been one."""
        assert self.response is not None
        return self.response

    @property
    def reported(self) -> Usage | None:
        """What the latest call used, as far as the response says, else whoever saw the call."""
        told, seen = self.last.usage, self.voice.turn.last_usage
        if told is None or seen is None:
            return told or seen
        known = {each.name: getattr(told, each.name) for each in fields(told)}
        return replace(seen, **{name: value for name, value in known.items() if value is not None})

    @property
    def answer_text(self) -> str:
        """The answer so far; of one that was not shown, what the latest response says."""
        return self.account.stitcher.text or self.last.text

    @property
    def may_be_trivial(self) -> bool:
        """Whether an answer that says nothing is asked for again: it is text, and all of it comes from one call."""
        alone = self.strategy in (None, Strategy.RETRY) and not self.terms.is_json
        return self.watchman is not None and alone


def _said(call: ToolCall) -> str:
    """A call as text: the same for the same arguments, however they are written."""
    given = call.arguments_raw if call.arguments is None else json.dumps(call.arguments, sort_keys=True)
    return f"{call.name} {given}"


def asked_in(request: Request, format: Format, dialect: str) -> RequestSummary | None:
    """What a request's settings ask for in the format's own words; None where they are ours alone."""
    if not request.extra:
        return None
    bare = Request(
        model=request.model, messages=(_ANY,), max_tokens=request.max_tokens, format=request.format, extra=request.extra
    )  # fmt: skip
    return format.request_summary(format.encode(bare, dialect=dialect))


_ANY: Final = Message(role="user", content=".")
