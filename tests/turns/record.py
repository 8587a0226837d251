"""What a controller makes of what a provider says: as files.

`python -m tests.turns.record [FILE ...]` writes what they expect anew, with the code as it is now; the inputs stay.
That is for a behaviour whose promise changes: the difference shows it. A file is a list of cases. A case says:

- `name`, and by `behaviours` which of docs/controller.md it shows.
- `script`: what the provider says, call by call. The reason comes first, with the text: `{"max_tokens": "Hello, wo"}`,
  or a text and how often it comes; then whatever else a response has (`calls`, `tokens`, `reasoning`, `suspected` …).
  A call is `search` for `x` but where it says otherwise. `raises` is an exception, `deltas` a stream of the provider
  function's own, which ends with `then`; of such a turn `shown` is what the consumer saw.
- `request`, `policy`, `format` …: what is asked, and how, where it is not the default; `tools` by name are functions
  with what they give, `raises` among it; `declared` hands the definitions over with them.
- `log`: from which level what is logged is expected, too.
- `whole`: it is not played in pieces, because what was shown would stay.
- `turns`: what is started, one after the other, on the same controller: `ask`, or `resume` what ended last.
- `expected`: of each turn what was sent (as it differs from the request), what ran, what was announced, how it ended;
  `<prompt>` is the policy's. What is not said is the default.
"""

from __future__ import annotations

import asyncio
import builtins
import json
import logging
import sys
from collections.abc import Callable, Sequence
from itertools import count
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, Final

from endturn import errors
from endturn.calls import records as events
from endturn.continuation import refused_prefills
from endturn.continuation.controller import AsyncContinuationController, ContinuationController, TurnResult
from endturn.continuation.policy import PROMPT, ContinuationPolicy
from endturn.continuation.termination import FINISH_RESPONSE, FINISH_TASK
from endturn.vocabulary.messages import CallFragment, ChatResponse, Delta, Message, Request, ToolCall, Usage
from endturn.vocabulary.stop import Resume, StopReason
from tests.replies.record import Json, plain, written
from tests.support.turns import NOW, SEARCH, Played, ask, call, heard, said

HERE: Final = Path(__file__).parent
TOOLS: Final = {tool.name: tool for tool in (SEARCH, NOW, FINISH_TASK, FINISH_RESPONSE)}
BEGINNINGS: Final = (events.CallStarted, events.TurnStarted, events.TurnJoined, events.ToolStarted)
SETTINGS: Final = ("format", "agent", "conversation_id", "provider_name", "dialect")

# --- What a case says -------------------------------------------------------------------------------------------------


def response(case: Json) -> ChatResponse:
    """What a provider says."""
    (reason,) = [name for name in case if name in set(StopReason)]
    fields = {name: value for name, value in case.items() if name not in (reason, "promoted_from")}
    if "resume" in fields:
        fields["resume"] = Resume(fields["resume"])
    if "usage" in fields:
        fields["usage"] = Usage(*fields["usage"])
    fields["calls"] = [call(**each) for each in fields.get("calls", ())]
    text = case[reason] if isinstance(case[reason], str) else case[reason][0] * case[reason][1]
    made = said(text, StopReason(reason), **fields)
    promoted = case.get("promoted_from")
    return made.with_stop(promoted_from=StopReason(promoted)) if promoted else made


def failure(case: Json) -> BaseException:
    """What a provider function or a tool raises."""
    kind = getattr(errors, case["raises"], None) or getattr(builtins, case["raises"])
    known = {name: case[name] for name in ("status",) if name in case}
    if "stop" in case:
        known["stop"] = ChatResponse(stop=case["stop"]).stop
    if "partial" in case:
        known["partial"] = response(case["partial"])
    error: BaseException = kind(case.get("message", "no"), **known)
    return error


def delta(case: Any) -> Delta:
    """A piece of a stream: a text, or whatever else it has."""
    if isinstance(case, str):
        return Delta(text=case)
    return Delta(**case | ({"call": CallFragment(*case["call"])} if "call" in case else {}))


def scripted(case: Json) -> Any:
    """What a provider function does at one call: it returns a response, raises, or streams as the case says."""
    if "deltas" in case:
        return [*map(delta, case["deltas"]), *(scripted(case[name]) for name in ("then",) if name in case)]
    return failure(case) if "raises" in case else response(case)


def tool(gives: Any, ran: list[str]) -> Any:
    """A tool's function, that gives the same each time, or of `each` one after the other."""
    answers = iter(gives["each"]) if isinstance(gives, dict) and "each" in gives else None

    def run(asked: ToolCall) -> Any:
        ran.append(one(asked))
        answer = gives if answers is None else next(answers)
        if isinstance(answer, dict) and "raises" in answer:
            raise failure(answer)
        return answer

    return run


# --- What comes of it -------------------------------------------------------------------------------------------------


def fault(error: BaseException) -> str:
    """An exception in a line."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def short(value: Any) -> Any:
    """Of a long text its ends."""
    if not isinstance(value, str):
        return value
    value = value.replace(PROMPT, "<prompt>")
    return value if len(value) < 300 else f"{value[:80]} <{len(value) - 160} more> {value[-80:]}"


def message(said: Message) -> Any:
    """A message, in a line where it is a text: who said it, why it stopped, whether it is a nudge or an error."""
    content = short(plain(said.content))
    flags = [name for name, is_so in (("synthetic", said.synthetic), ("error", said.is_error)) if is_so]
    head = f"{said.role}{f'/{said.stop_reason}' if said.stop_reason else ''}"
    head += f" {said.tool_call_id}" if said.tool_call_id else ""
    head += f" ({flags[0]})" if flags else ""
    others = {"calls": [one(each) for each in said.tool_calls]} if said.tool_calls else {}
    others |= {"blocks": plain(said.blocks)} if said.blocks else {}
    return {head: content, **others} if others or not isinstance(content, str) else f"{head}: {content}"


def one(call: ToolCall) -> str:
    """A call, in a line."""
    told = json.dumps(call.arguments) if call.arguments_raw is None else call.arguments_raw
    return f"{call.id} {call.name} {told}{'' if call.closed else ' (open)'}"


def sent(request: Request, base: Request) -> Json:
    """How a request differs from the one that the turn began with."""
    members, same = plain(request), plain(base)
    found = {name: members.get(name) for name in {**same, **members} if members.get(name) != same.get(name)}
    found.pop("messages", None)
    if "tools" in found:
        found["tools"] = [each.name for each in request.tools]
    return found | following("", request.messages, base)


def following(name: str, messages: Sequence[Message], base: Request) -> Json:
    """What follows the request's messages, or what there is in their place."""
    size = len(base.messages)
    begins = messages[:size] == base.messages
    found = [message(each) for each in messages[size if begins else 0 :]]
    return {name or ("and" if begins else "messages"): found} if found else {}


def line(told: Any, calls: list[int]) -> str:
    """What was announced, without whose turn it is and how long it took. Calls are counted from one."""
    found: Json = {}
    if isinstance(told, events.CallEnded):
        calls.append(told.started.number)
        found = {"reason": told.stop.reason, "iteration": told.started.iteration}
    elif isinstance(told, events.ToolEnded):
        found = {"name": told.started.name}
    else:
        unsaid = {"turn", "provider", "model", "error"}
        names = [name for name in told._fields if name not in unsaid and not name.endswith("_s")]
        found = {name: plain(getattr(told, name)) for name in names if getattr(told, name) is not None}
    if isinstance(told, events.TurnEnded):
        kept = ("iterations", "continuations", "truncated", "unfinished", "output_tokens", "output_chars", "estimated")
        found |= {name: getattr(told.turn, name) for name in kept}
    made = getattr(told, "continuation", None) or getattr(getattr(told, "started", None), "continuation", None)
    if made is not None:
        of = calls.index(made.of) + 1 if made.of in calls else None
        found["continuation"] = f"{made.index} by {made.strategy} of {of}"
    if getattr(told, "error", None) is not None:
        found["error"] = fault(told.error)
    return " ".join([type(told).__name__, *(f"{name}={value}" for name, value in found.items() if value is not False)])


def ended(result: TurnResult, base: Request) -> Json:
    """How a turn ended; what follows from the rest is not said."""
    unsaid = {"resumption", "duration_s", "error", "messages", "segments", "tool_results", "usage", "stop"}
    kept = [name for name in TurnResult.__dataclass_fields__ if name not in unsaid]
    found: Json = {name: short(plain(value)) for name in kept if (value := getattr(result, name))}
    found |= {"calls": [one(each) for each in result.calls]} if result.calls else {}
    for name, same in (("answer", "text"), ("status", "outcome")):
        if found.get(name) == found.get(same):
            found.pop(name, None)
    usage = result.usage
    found["usage"] = f"{usage.input_tokens}, {usage.output_tokens}{' estimated' if usage.estimated else ''}"
    stop = {name: value for name, value in plain(result.stop).items() if name not in ("reason", "raw")}
    found |= {"stop": stop} if stop else {}
    found |= {"error": fault(result.error)} if result.error is not None else {}
    found |= {"resumable": True} if result.resumption is not None else {}
    segments, history = following("segments", result.segments, base), following("history", result.messages, base)
    return {"ended": found} | history | (segments if [*segments.values()] != [*history.values()] else {})


def begin(case: Json, base: Request, ran: list[str], slept: list[float]) -> Json:
    """What a controller is given."""
    policy = dict(case.get("policy", {}))
    if isinstance(room := policy.get("on_context_exceeded"), dict):
        policy["on_context_exceeded"] = lambda request, response: asked(room) if room else None
    given: Json = {name: case[name] for name in SETTINGS if name in case}
    if "tools" in case:
        functions = {name: tool(gives, ran) for name, gives in case["tools"].items()}
        declared = case.get("declared")
        given["tools"] = [(TOOLS[name], functions[name]) for name in functions] if declared else functions
    return given | {
        "policy": ContinuationPolicy(**policy),
        "clock": count(1.0).__next__ if case.get("ticking") else lambda: 0.0,
        "sleep": slept.append,
        "new_id": lambda: "turn-1",
    }


def asked(case: Json) -> Request:
    """A request."""
    fields = dict(case)
    tools = tuple(TOOLS[name] for name in fields.pop("tools", ()))
    if "messages" in fields:
        fields["messages"] = tuple(Message.model_validate(each) for each in fields["messages"])
    return ask(fields.pop("text", "hi"), **fields, tools=tools)


Watch = Callable[[Sequence[Request], Request, TurnResult | None], None]
"""Gets what each turn sent, the request that it began with, and its result."""


async def of_case(
    case: Json, *, chunk: int | None = None, asynchronous: bool = False, watch: Watch | None = None
) -> list[Json]:
    """What comes of each of a case's turns."""
    base = asked(case.get("request", {}))
    ran: list[str] = []
    slept: list[float] = []
    provider = Played(*map(scripted, case["script"]), chunk=chunk, **case.get("says", {}))
    settings = begin(case, base, ran, slept)
    log, logger = BufferingHandler(1_000), logging.getLogger("endturn")
    logger.addHandler(log)
    logger.setLevel(case.get("log", "WARNING"))

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    refused_prefills.forget()  # what an earlier turn of the process has taught is no part of the case
    controller: Any = ContinuationController(provider, **settings)
    if asynchronous:
        controller = AsyncContinuationController(provider.asynchronous, **settings | {"sleep": sleep})
    found: list[Json] = []
    calls: list[int] = []
    own = any("deltas" in item for item in case["script"])
    result: TurnResult | None = None
    for start in case.get("turns", ["ask"]):
        before = len(provider.requests)
        ran.clear()
        slept.clear()
        log.buffer.clear()
        shown: list[Delta] = []
        failed = None
        with heard() as records:
            try:
                begun: Any = base if start == "ask" or result is None else result.resume()
                if chunk is None and not own:
                    result = await controller.run(begun) if asynchronous else controller.run(begun)
                else:
                    items = controller.stream(begun)
                    for item in [each async for each in items] if asynchronous else items:
                        if isinstance(item, TurnResult):
                            result = item
                        else:
                            shown.append(item)
                    assert result is not None
                    assert begun is not base or result.text == "".join(each.text for each in shown)
            except (Exception, KeyboardInterrupt) as error:
                failed, result = error, getattr(error, "turn_result", None)
        if watch is not None:
            watch(provider.requests[before:], base, result)
        requests = [sent(each, base) for each in provider.requests[before:]]
        turn: Json = {"sent": requests} if requests != [{}] else {}
        turn |= {"ran": list(ran)} if ran else {}
        turn |= {"slept": list(slept)} if slept else {}
        pieces = [each.text if each == Delta(text=each.text) else plain(each) for each in shown]
        turn |= {"shown": pieces} if own else {}
        turn["announced"] = [line(each, calls) for each in records if not isinstance(each, BEGINNINGS)]
        turn |= {"logged": [each.getMessage() for each in log.buffer]} if log.buffer and "log" in case else {}
        turn |= {"raises": fault(failed)} if failed is not None else {}
        found.append(turn | ended(result, base) if result is not None else turn)
    logger.removeHandler(log)
    logger.setLevel(logging.NOTSET)
    return [*found, {"unasked": len(provider.script)}] if provider.script else found


# --- The files --------------------------------------------------------------------------------------------------------


def files() -> list[Path]:
    """One for each subject."""
    return sorted(HERE.glob("*.json"))


def of_file(path: Path) -> Any:
    """A file's cases with what is expected of them now."""
    return [{**case, "expected": asyncio.run(of_case(case))} for case in json.loads(path.read_text())]


def main(paths: Sequence[str]) -> None:
    """Write these files anew, or all of them."""
    for path in [Path(path).resolve() for path in paths] or files():
        path.write_text(written(of_file(path)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
