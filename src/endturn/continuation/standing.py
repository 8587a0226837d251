"""How a turn stands: the terms that hold for the whole of it, and what it is in the middle of."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field

from endturn.chat import ChatResponse, Delta, Message, Request, Tool, ToolCall
from endturn.continuation import termination
from endturn.continuation.account import Account
from endturn.continuation.entry import Answered
from endturn.continuation.limits import Progress
from endturn.continuation.machine import Machine
from endturn.continuation.part import Part
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.result import Resumption
from endturn.continuation.termination import Finish, Watchman
from endturn.continuation.toolgate import Verdict, declared
from endturn.continuation.voice import Voice
from endturn.errors import UsageError
from endturn.records import Strategy, TurnOutcome
from endturn.wires import Wire, capabilities
from endturn.wires.capabilities import Capability


@dataclass(frozen=True, slots=True)
class Abilities:
    """What the provider function can do beside answering; see `Provider` in `endturn.controller`.

    Attributes:
        dialect: whose variant of the wire it speaks.
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
        tools: those that the request declares, by name.
        runnable: the names of the tools that have a function; None where the host runs tools itself.
        thinking: tokens that the request sets aside for thinking.
        is_held: the answer is to be JSON, and is not shown before it is known to be.
        is_offered: a tool to end the turn with is declared.
    """

    policy: ContinuationPolicy
    wire: Wire
    provider: str
    abilities: Abilities
    capability: Capability
    tools: Mapping[str, Tool]
    runnable: Container[str] | None
    thinking: int
    is_held: bool
    is_offered: bool

    @classmethod
    def of(
        cls,
        base: Request,
        *,
        policy: ContinuationPolicy,
        wire: Wire,
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
        tools = declared(base)
        return cls(
            policy=policy,
            wire=wire,
            provider=provider,
            abilities=abilities,
            capability=capabilities.of(wire.NAME, abilities.dialect, base.model, format=base.format),
            tools=tools,
            runnable=runnable,
            thinking=thinking_budget(base),
            is_held=base.format is not None and policy.stream_json == "held",
            is_offered=termination.is_offered(policy.mode, tools),
        )

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
        held: what the consumer may not see yet; `kept`: so many pieces of it are of earlier parts.
        asked_before: the request and the response before the latest call, which may have to be taken back.
        part: of the call that is out; response: what the latest came to.
        number: of the ordinary call that the present answer began with.
        calls: those that run now; answers: what they were answered with so far.
    """

    terms: Terms
    account: Account
    voice: Voice
    elapsed: Callable[[], float]
    watchman: Watchman | None = None
    machine: Machine = field(default_factory=Machine)

    strategy: Strategy | None = None
    issue: str | None = None
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
        self.response, self.part = self.part.response, None
        self.account.counters.calls += 1

    @property
    def last(self) -> ChatResponse:
        """The latest response; there must have been one."""
        assert self.response is not None
        return self.response

    @property
    def answer_text(self) -> str:
        """The answer so far; of one that was not shown, what the latest response says."""
        return self.account.stitcher.text or self.last.text

    @property
    def may_be_trivial(self) -> bool:
        """Whether an answer that says nothing is asked for again: it is text, and all of it comes from one call."""
        alone = self.strategy in (None, Strategy.RETRY) and self.account.base.format is None
        return self.watchman is not None and alone


def thinking_budget(request: Request) -> int:
    """Tokens that a request sets aside for thinking: Anthropic's `thinking`, OpenRouter's `reasoning`. 0 for none."""
    for member, figure in (("thinking", "budget_tokens"), ("reasoning", "max_tokens")):
        asked = request.extra.get(member)
        if isinstance(asked, dict) and isinstance(asked.get(figure), int):
            return int(asked[figure])
    return 0
