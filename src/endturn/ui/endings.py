"""The explanation of a turn's end: a heading, the reason, and what to change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from endturn.calls import TurnOutcome
from endturn.ui.formatting import plural
from endturn.ui.limits import USED_SHARE, room_for
from endturn.vocabulary import StopReason

_OUTCOMES: Final = frozenset(outcome.value for outcome in TurnOutcome)
_LOWER_LIMIT: Final = "lower limit"
"""Cause of a truncation below the limit of the request."""


@dataclass(frozen=True, slots=True)
class TurnEnding:
    """The texts about the end of a turn; `explanation` and `change` may be empty."""

    head: str
    explanation: str = ""
    change: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFacts:
    """The facts of a turn and of its truncated calls.

    Attributes:
        outcome: a value of `TurnOutcome`, or any word that was received; "" while it is open.
        is_complete: the answer is complete.
        model, provider, raw, error: of its last call; "" if unknown.
        reason, limit, used: of the first truncated call: the stop reason, the limit of its request,
            and the tokens of its response.
        cuts: the number of truncated calls.
        tokens: the tokens of the answer, all its pieces together.
        continuations, repairs: the number of continuation requests, and of tool call repairs.
        is_repaired: a repair returned the truncated tool call complete.
        is_in_tool_call: the truncation is known to be within a tool call.
        has_tools: the service is known to offer tools.
        is_lone: its instrumentation records no turns, so each call counts as one.
        asks_for_tools: its last call asked for tools, and no record declares the end of the turn.
        went_on: calls followed the last truncated one.
    """

    outcome: str = ""
    is_complete: bool = False
    model: str = ""
    provider: str = ""
    raw: str = ""
    error: str = ""
    reason: str = ""
    limit: int | None = None
    used: int | None = None
    cuts: int = 0
    tokens: int = 0
    continuations: int = 0
    repairs: int = 0
    is_repaired: bool = False
    is_in_tool_call: bool = False
    has_tools: bool = False
    is_lone: bool = False
    asks_for_tools: bool = False
    went_on: bool = False

    @property
    def cut_by(self) -> str:
        """The cause of the truncation: a stop reason, or `_LOWER_LIMIT`."""
        reason = self.reason or StopReason.MAX_TOKENS.value
        is_below = self.limit and self.used is not None and self.used < USED_SHARE * self.limit
        return _LOWER_LIMIT if reason == StopReason.MAX_TOKENS and is_below else reason


def ending(turn: TurnFacts) -> TurnEnding:
    """Return the texts about the end of a turn."""
    if turn.is_complete and turn.cuts:
        return _finished(turn)
    if not turn.outcome:
        return TurnEnding(
            "Cut off, and waiting",
            f"The answer {_truncation(turn)}. Nothing has asked for the rest yet; the turn ends"
            " half a minute after its last call, or five minutes after it where a tool call was cut"
            " off.",
            _raise(turn),
        )
    if turn.outcome not in _OUTCOMES:  # from a later version of endturn, or from another sender
        return TurnEnding(turn.outcome.replace("_", " "))
    if turn.outcome == TurnOutcome.NOT_CONTINUED:
        return _not_continued(turn)
    return (
        _out_of_budget(turn)
        or _without_use(turn)
        or _ended_by_model(turn)
        or _ended_otherwise(turn)
    )


def _finished(turn: TurnFacts) -> TurnEnding:
    """Return the ending of a truncated turn whose answer became complete."""
    if turn.is_repaired:
        return TurnEnding(
            "Cut off, then repaired",
            f"The answer {_truncation(turn)}. The tool was not run, but the call asked for again;"
            f" the whole one was run, and {_model(turn)} finished.",
            _raise(turn),
        )
    if turn.repairs:
        return TurnEnding(
            "Cut off, and not repaired",
            f"The answer {_truncation(turn)}. The tool was not run, but the call asked for again;"
            f" {_model(turn)} did not give it whole, and finished with {_raw(turn)}.",
            _raise(turn),
        )
    return TurnEnding(
        "Cut off, then finished",
        f"The answer {_truncation(turn)} {_truncation_times(turn)}. It was asked for the rest"
        f" {_continuation_times(turn)}, and {_model(turn)} finished with {_raw(turn)}.",
        _raise(turn),
    )


def _not_continued(turn: TurnFacts) -> TurnEnding:
    """Return the ending of a turn whose truncated answer was not continued."""
    caution = ""
    if turn.is_in_tool_call:
        caution = "The tool call is not whole: do not run it."
    elif turn.has_tools:
        caution = "A tool call in the answer may be cut off too: do not run it."
    if turn.is_lone:
        return TurnEnding(
            "Cut off, and nothing took it up",
            f"The answer {_truncation(turn)}. The instrumentation that sent this call does not say"
            " which call continues which: no other is known to have taken it up.",
            _sentences(_raise(turn), caution, "Run the agent with endturn, which knows what took"
                       " up what."),
        )  # fmt: skip
    if turn.went_on and turn.has_tools:
        return TurnEnding(
            "Handed over unfinished",
            f"The answer {_truncation(turn)}, and nothing asked for the rest, or for a cut tool"
            " call again: the agent went on without it.",
            _sentences(
                _raise(turn),
                "Do not run a tool call that was cut off: have it made again, as"
                " ContinuationController does, or answer it with an error.",
            ),
        )
    if turn.went_on:
        return TurnEnding(
            "Handed over unfinished",
            f"The answer {_truncation(turn)}, and nothing asked for the rest: the agent went on"
            " without it.",
            _sentences(
                _raise(turn),
                "Ask for the rest before the agent goes on, as ContinuationController does.",
            ),
        )
    if turn.continuations:
        return TurnEnding(
            "Handed over unfinished",
            f"The answer {_truncation(turn)}. It was asked for the rest"
            f" {_continuation_times(turn)}; the last piece was cut off too, and nothing asked for"
            " more.",
            _sentences(
                _raise(turn),
                "Ask for the rest until the answer is whole, within limits, as"
                " ContinuationController does.",
            ),
        )
    return TurnEnding(
        "Handed over unfinished",
        f"The answer {_truncation(turn)}, and nothing asked for the rest.",
        _sentences(
            _raise(turn),
            "Let ContinuationController run the turn, or ask for the rest where the stop reason"
            " says that it was cut off.",
            caution,
        ),
    )


def _out_of_budget(turn: TurnFacts) -> TurnEnding | None:
    """Return the ending of a turn that a limit of the policy ended; None for another."""
    description = f"The answer {_truncation(turn)} {_truncation_times(turn)};"
    match turn.outcome:
        case TurnOutcome.RETRY_LIMIT:
            return TurnEnding(
                f"Given up after {plural(turn.continuations, 'continuation')}",
                f"{description} the policy allows no further continuation.",
                _sentences(_raise(turn), "Else raise continuation_max_attempts."),
            )
        case TurnOutcome.RESUME_LIMIT:
            return TurnEnding(
                "Left paused",
                f"{_provider(turn)} paused the turn more often than the policy resumes it.",
                "Raise continuation_max_resumes.",
            )
        case TurnOutcome.TOKEN_BUDGET:
            return TurnEnding(
                "Out of tokens",
                f"{description} another piece would pass the policy's token budget.",
                _sentences(
                    _raise(turn),
                    "Raise the token budget if answers of this length are wanted; else ask for"
                    " shorter ones.",
                ),
            )
        case TurnOutcome.CHAR_BUDGET:
            return TurnEnding(
                "Out of characters",
                f"{description} another piece would pass the policy's character budget.",
                "Raise the character budget if answers of this length are wanted; else ask for"
                " shorter ones.",
            )
        case TurnOutcome.COST_BUDGET:
            return TurnEnding(
                "Out of money",
                f"{description} another continuation would pass the policy's cost budget.",
                _sentences(_raise(turn), "Each continuation pays for the prompt again."),
            )
        case TurnOutcome.DEADLINE:
            return TurnEnding(
                "Out of time",
                f"{description} the policy's deadline had passed.",
                _sentences(_raise(turn), "Else give the turn more time."),
            )
        case TurnOutcome.MAX_ITERATIONS:
            return TurnEnding(
                "Too many calls",
                "The turn reached the policy's limit of calls.",
                "See whether the model goes in circles, before the limit is raised.",
            )
    return None


def _without_use(turn: TurnFacts) -> TurnEnding | None:
    """Return the ending of a turn whose continuations or repairs failed; None for another."""
    description = f"The answer {_truncation(turn)} {_truncation_times(turn)};"
    match turn.outcome:
        case TurnOutcome.NO_PROGRESS:
            return TurnEnding(
                "The model made no progress",
                f"{description} what came when the rest was asked for added nothing.",
                _sentences(
                    _raise(turn),
                    "See in the pieces whether the model begins anew instead of going on.",
                ),
            )
        case TurnOutcome.REPETITION:
            return TurnEnding(
                "The model repeated itself",
                f"{description} what came when the rest was asked for had been said before.",
                "Look at one trace before any limit is raised: a model that repeats itself never"
                " finishes.",
            )
        case TurnOutcome.TOOL_REPAIR_FAILED:
            return TurnEnding(
                "The tool call never came whole",
                "A tool call was cut off; asked for again, it was not whole either.",
                "Raise max_tokens where tools are offered, or let the tool take its input in"
                " smaller parts.",
            )
        case TurnOutcome.TOOL_CALL_CUT:
            return TurnEnding(
                "A tool call was cut off",
                f"The answer {_truncation(turn)}; the tool was not run.",
                _sentences(_raise(turn), "A policy that allows repairs asks for the call again."),
            )
        case TurnOutcome.REASONING_EXHAUSTED:
            return TurnEnding(
                "All went into reasoning",
                f"The answer {_truncation(turn)} before anything was said; the tokens went into"
                " reasoning.",
                _sentences(_raise(turn), "Or let the model think less."),
            )
        case TurnOutcome.INVALID_JSON:
            return TurnEnding(
                "The answer is no valid JSON",
                "The answer was to be JSON, and does not parse.",
                _sentences(_raise(turn), "Or ask for a smaller structure."),
            )
        case TurnOutcome.CONTEXT_WINDOW_EXCEEDED:
            return TurnEnding(
                "The window is full",
                "Prompt and answer together filled the model's context window.",
                "Shorten the history or the prompt, or take a model with a larger window.",
            )
    return None


def _ended_by_model(turn: TurnFacts) -> TurnEnding | None:
    """Return the ending of a turn that the model ended; None for another."""
    model, raw = _model(turn), _raw(turn)
    match turn.outcome:
        case TurnOutcome.COMPLETED if turn.asks_for_tools:  # no later call has arrived
            return TurnEnding(
                "The model asked for tools",
                f"{model} stopped with {raw} to have tools run; no later call of this turn has"
                " arrived.",
            )
        case TurnOutcome.COMPLETED:
            return TurnEnding(
                "The model finished", f"{model} said all it had to say: it stopped with {raw}."
            )
        case TurnOutcome.IMPLICIT_COMPLETION:
            return TurnEnding(
                "The model finished",
                f"{model} stopped calling tools, and was taken to be done.",
                "Give it a terminator tool, and it can say itself when it is done.",
            )
        case TurnOutcome.REFUSED:
            return TurnEnding(
                "The model declined",
                f"{model} refused to answer ({raw}).",
                "Look at what was asked. It is never continued.",
            )
        case TurnOutcome.UNKNOWN_REASON:
            return TurnEnding(
                "An unknown stop reason",
                f"{model} stopped with {raw}, which no table of endturn has.",
                "Read the provider's documentation of that value, and report it: until it has a"
                " row, nobody can say whether the answer is whole.",
            )
        case TurnOutcome.EMPTY_RESPONSE:
            return TurnEnding(
                "Nothing was said",
                f"{model} ended its turn without text and without a tool call.",
                "See whether the limit leaves room for more than reasoning.",
            )
    return None


def _ended_otherwise(turn: TurnFacts) -> TurnEnding:
    """Return the ending of a turn that the provider, the connection or a person ended."""
    model, provider, raw = _model(turn), _provider(turn), _raw(turn)
    match turn.outcome:
        case TurnOutcome.STREAM_CUT:
            return TurnEnding(
                "The stream broke",
                "The connection ended before the answer did.",
                f"Look at the timeouts of proxies between the agent and {provider}.",
            )
        case TurnOutcome.SAFETY_BLOCKED:
            return TurnEnding(
                "Withheld by a filter",
                f"A filter around {model} withheld the answer ({raw}).",
                "Look at what was asked. It is never continued.",
            )
        case TurnOutcome.PROVIDER_ERROR:
            return TurnEnding(
                "The call failed",
                f"The last call to {provider} failed ({turn.error or 'error'}).",
                "See the error in the events and in the agent's log; a call that may be repeated"
                " is its SDK's to retry.",
            )
        case TurnOutcome.LEFT_PAUSED:
            return TurnEnding(
                "Left paused",
                f"{provider} paused the turn ({raw}), and nothing resumed it.",
                "Send the paused response back unchanged, or let ContinuationController do it.",
            )
        case TurnOutcome.CANCELLED:
            return TurnEnding("Cancelled", "The turn was cancelled, by a person or by a timeout.")
        case _:
            return TurnEnding("Stopped by a person", "The turn was stopped.")


# --- Phrases --------------------------------------------------------------------------------------


def _truncation(turn: TurnFacts) -> str:
    """Return the cause of the truncation as a predicate: it follows the words "the answer"."""
    is_tool_call = turn.is_in_tool_call or turn.is_repaired
    within = " within a tool call" if is_tool_call or (
        turn.outcome == TurnOutcome.TOOL_CALL_CUT
    ) else ""  # fmt: skip
    match turn.cut_by:
        case StopReason.MAX_TOKENS:
            limit = f"limit of {turn.limit} tokens" if turn.limit else "token limit"
            return f"reached its {limit}{within}"
        case "lower limit":
            return (
                f"broke off{within} after {turn.used} of at most {turn.limit} tokens, though"
                f" {_provider(turn)} says that a limit was reached"
            )
        case StopReason.CONTEXT_WINDOW_EXCEEDED:
            return f"filled the model's context window{within}"
        case StopReason.MISSING:
            return f"broke off{within} before a stop reason arrived"
        case _:
            return f"was cut off{within}"


def _raise(turn: TurnFacts) -> str:
    """Return the change that would have prevented the truncation."""
    match turn.cut_by:
        case StopReason.MAX_TOKENS:
            if turn.is_complete and turn.tokens > (turn.limit or 0):
                enough = room_for(turn.tokens)
                return (
                    f"Raise max_tokens to {enough} or more: the whole answer has {turn.tokens}"
                    " tokens, and would have come in one call."
                )
            too_low = max(turn.limit or 0, turn.tokens if turn.limit else 0)
            above = f" above {too_low}" if too_low else ""
            return (
                f"Raise max_tokens{above}: each call that asks for the rest pays for the prompt"
                " again."
            )
        case "lower limit":
            return (
                "max_tokens is not the cause. Look for a lower limit: one that a gateway sets, one"
                f" of {_model(turn)} itself, or tokens of reasoning that are not reported."
            )
        case StopReason.CONTEXT_WINDOW_EXCEEDED:
            return "Shorten the history or the prompt, or take a model with a larger window."
        case StopReason.MISSING:
            return f"Look at the timeouts of proxies between the agent and {_provider(turn)}."
        case _:
            return ""


def _sentences(*sentences: str) -> str:
    return " ".join(filter(None, sentences))


def _truncation_times(turn: TurnFacts) -> str:
    return {1: "once", 2: "twice"}.get(turn.cuts, f"{turn.cuts} times")


def _continuation_times(turn: TurnFacts) -> str:
    return "once" if turn.continuations == 1 else plural(turn.continuations, "time")


def _model(turn: TurnFacts) -> str:
    return turn.model or "the model"


def _provider(turn: TurnFacts) -> str:
    return turn.provider or "the provider"


def _raw(turn: TurnFacts) -> str:
    return turn.raw or "nothing"
