"""What every reply in the tests is read as, whole and at every cut, and what is made of every request: as files.

`python -m tests.replies.record [FILE ...]` writes what they expect anew, with the code as it is now; the inputs stay.
That is for a behaviour whose promise changes: the difference shows it. Nothing in the files names a module or function.

`<format>/<reply>.json` is one reply:

- `source`: where it is from. `note`: where today's answer is wrong, what it should be.
- `dialect`, `provider`, `asked`, `window`, `headers`: what must be known to read it; what is not said is the default.
- `body`, or `events`: their `data`, and their `name` where they have one. Of an invoked Bedrock model's chunk, `bytes`
  is the JSON that travels in it as base64.
- `expected`: what a client reads (`text`, `tool_calls`, `blocks` …) and what telemetry does (`stop`, `usage`, `reasons`
  …), without what is the default. They agree; `seen` says where telemetry's summary differs. Of the text, `tail` and
  `output_chars` follow. `raises` is what a client gets instead: with `partial`, what is beside it goes along.
- `deltas`: of each event. `cuts`: how what is expected changes with each event, the state before the first one to
  begin with: `text+` adds to a text, `usage-` is gone. `left` is how the summary differs where whoever reads the stream
  stops reading it there.

`<format>/requests/<kind>.json` is a list of what happens before and beside replies:

- `encode`: a request of ours, `how` it is sent → its body, what its summary says, and its route.
- `reply`: a response of ours, `how` it is sent → the body, or the events, that a scripted provider answers with.
- `resume`: a request, the response to it that was cut, `how` it is to go on → the next request.
- `body`: what a server gets → our request, and what its summary says; `arguments`: what an SDK's method is called with.
- `path`: method and path → what they say, null where the format is not spoken there.
- `error`: an error answer → the exception that it is.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from endturn.calls.outcomes import RequestedCall
from endturn.errors import EndturnError, UsageError, did_you_mean
from endturn.formats import FORMATS, TAIL, Context, Event, ResponseSummary, checked_dialect, format_of, summarize
from endturn.formats.errors import error_of
from endturn.formats.format import Format
from endturn.formats.request_body import request_of
from endturn.vocabulary.messages import Blocks, ChatResponse, Delta, Request
from endturn.vocabulary.stop import Resume, Stop, StopReason
from tests.support.summaries import summarized

Json = dict[str, Any]
HERE: Final = Path(__file__).parent

_FIELDS: Final = {"maximum": "max_tokens", "choices": "choice_count", "previous_id": "previous_response_id"}
"""The field of RequestFacts that a file has another word for."""

# --- The API as it is today -------------------------------------------------------------------------------------------

Read = tuple[ResponseSummary, ChatResponse | Exception]
"""What telemetry makes of a reply, and what a client does."""


def context(case: Json) -> Context:
    """What must be known to read a reply."""
    settings = {_FIELDS.get(name, name): value for name, value in case.get("asked", {}).items()}
    asked = summarized(**settings)
    return Context(case.get("dialect", ""), case.get("provider", ""), asked, case.get("window"))


def read_whole(format_: str, case: Json) -> Read:
    """A body."""
    api, ctx, body, headers = format_of(format_), context(case), case["body"], case.get("headers")
    with_figures = {"ResponseMetadata": {"HTTPHeaders": headers}, "body": body}
    seen = summarize(api, ctx, with_figures if headers and format_ == "bedrock_invoke" else body)
    try:
        return seen, api.decode(body, ctx=ctx, headers=headers)
    except Exception as error:
        return seen, error


def read_stream(format_: str, case: Json) -> Iterator[tuple[list[Delta], ResponseSummary, Read]]:
    """A stream before its first event, and after each: new deltas, the summary if it is left there, and if it ends."""
    api, ctx = format_of(format_), context(case)
    summarizer, decoder = api.summarizer(ctx), api.decoder(ctx)
    failed: Exception | None = None
    yield [], summarizer.close(abandoned=True), (summarizer.close(), decoder.close())
    for event in case["events"]:
        event = Event(event.get("name"), packed(event["data"]))
        deltas: list[Delta] = []
        if not summarizer.is_broken:
            summarizer.feed(event)
        if failed is None:
            try:
                deltas += decoder.feed(event)
            except Exception as error:
                failed = error
        yield deltas, summarizer.close(abandoned=True), (summarizer.close(), failed or decoder.close())


def packed(data: Any) -> Any:
    """An event's data as it travels: an invoked model's words in base64."""
    match data:
        case {"chunk": {"bytes": dict() as said}}:
            packed = base64.b64encode(json.dumps(said).encode()).decode()
            return {**data, "chunk": {**data["chunk"], "bytes": packed}}
    return data


def _response(said: Json) -> ChatResponse:
    enums: Json = {"reason": StopReason, "promoted_from": StopReason, "resume": Resume}
    known: Json = {name: enums[name](value) if name in enums else value for name, value in said["stop"].items()}
    blocks = Blocks(said["blocks"]["format"], tuple(said["blocks"]["items"])) if "blocks" in said else None
    return ChatResponse.model_validate({**said, "stop": Stop(**known), "blocks": blocks})


def _encode(api: Format, case: Json) -> Any:
    request, how = Request.model_validate(case["request"]), {"stream": False, "dialect": "", **case.get("how", {})}
    body = api.encode(request, **how)
    summary = _summary(api, {"model": request.model, **body})
    return {"body": body, "summary": summary, "route": api.route(request, **how)}


def _resume(api: Format, case: Json) -> Any:
    return api.resume(Request.model_validate(case["request"]), _response(case["cut"]), **case["how"])


def _body(api: Format, case: Json) -> Any:
    try:
        request: Any = plain(request_of(api, case["body"]))
    except Exception as error:
        request = {"raises": raised(error)}
    return {"request": request, "summary": _summary(api, case["body"])}


def _summary(api: Format, body: Json) -> Json:
    """What the request summary says; of the history and the system prompt, which member of the body they are."""
    found: Json = plain(api.request_summary(body))
    words = {field: word for word, field in _FIELDS.items()}
    found |= {words.get(name, name): value for name, value in found.pop("facts", {}).items()}
    for name in {"history", "system"} & found.keys():
        found[name] = next((member for member, value in body.items() if value == found[name]), found[name])
    return found


def _error(api: Format, case: Json) -> Any:
    body = case["body"] if isinstance(case["body"], str) else json.dumps(case["body"])
    answered = body.encode("utf-8", "surrogateescape")
    return raised(error_of(case["status"], case.get("headers", {}), answered, ctx=context(case)))


REQUESTS: Final[Mapping[str, Callable[[Format, Json], Any]]] = {
    "encode": _encode,
    "resume": _resume,
    "reply": lambda api, case: api.reply(_response(case["response"]), **case["how"]),
    "body": _body,
    "arguments": lambda api, case: _summary(api, case["body"]),
    "path": lambda api, case: api.match_path(case["method"], case["path"]),
    "error": _error,
}
"""What is done with requests and error answers: the name of the file → what makes the `expected` of a case in it."""

# --- What is expected -------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Anything of ours as JSON: of its members, those that are not the default."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, RequestedCall):
        return [*value] if value.is_other_choice else [value.id, value.name]
    if isinstance(value, BaseModel):
        defaults = {
            name: field.get_default(call_default_factory=True) for name, field in type(value).model_fields.items()
        }
    elif is_dataclass(value):
        made = ((field.name, field.default, field.default_factory) for field in fields(value))
        defaults = {name: default if factory is MISSING else factory() for name, default, factory in made}
    elif isinstance(value, Mapping):
        return {name: plain(each) for name, each in value.items()}
    else:
        return [plain(each) for each in value] if isinstance(value, list | tuple) else value
    return {name: plain(getattr(value, name)) for name, usual in defaults.items() if getattr(value, name) != usual}


def raised(error: Exception) -> Json:
    """An exception's type, message and members, without what came along."""
    if not isinstance(error, EndturnError):
        return {"type": type(error).__name__}  # what pydantic says differs with its release
    known = {name: plain(value) for name, value in vars(error).items() if value not in (None, "") and name != "partial"}
    return {"type": type(error).__name__, "message": str(error), **known}


def summary_of(seen: ResponseSummary) -> Json:
    """What telemetry makes of a reply: its facts beside what is not recorded."""
    found: Json = plain(seen)
    facts: Json = found.pop("facts")
    return facts | found


def state(read: Read) -> Json:
    """What was read of a reply, by client and telemetry."""
    seen, response = read
    found: Json = {}
    if isinstance(response, Exception):
        partial = getattr(response, "partial", None)
        found["raises"] = raised(response) | ({"partial": True} if partial else {})
        found |= plain(partial) if partial else {}
    else:
        found |= plain(response)
    summary = summary_of(seen)
    found |= {"reasons": summary.pop("reasons")} if "reasons" in summary else {}
    said = found.get("text", "")
    follows: Json = {"tail": said[-TAIL:], "output_chars": len(said)} if said else {}
    if calls := [[call["id"], call["name"]] for call in found.get("tool_calls", ())]:
        follows["tool_calls"] = calls
    agreed = {name: found[name] for name in ("stop", "usage", "id", "model") if name in found} | follows
    return found | ({"seen": _differing(agreed, summary)} if agreed != summary else {})


def _differing(one: Json, other: Json) -> Json:
    return {name: other.get(name) for name in {**one, **other} if one.get(name) != other.get(name)}


def changes(before: Any, after: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """What differs, by where it stands: the new value; with a + what a text has more; with a - what is gone."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            place = f"{at}/{name}" if at else name
            if name not in after:
                yield f"{place}-", before[name]
            elif name not in before:
                yield place, after[name]
            else:
                yield from changes(before[name], after[name], place)
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        for number, each in enumerate(after):
            if number < len(before):
                yield from changes(before[number], each, f"{at}/{number}")
            else:
                yield f"{at}/{number}", each
    elif isinstance(before, str) and isinstance(after, str) and before and after.startswith(before) and after != before:
        yield f"{at}+", after[len(before) :]
    elif before != after:
        yield at, after


def of_reply(format_: str, case: Json) -> Json:
    """What a reply's file expects."""
    if "body" in case:
        return {"expected": state(read_whole(format_, case))}
    found: Json = {}
    deltas, cuts = [], []
    for new, left, read in read_stream(format_, case):
        before, found = found, state(read)
        if difference := _differing(summary_of(read[0]), summary_of(left)):
            found["left"] = difference
        deltas.append(plain(new))
        cuts.append(dict(changes(before, found)))
    return {"expected": found, "deltas": deltas[1:], "cuts": cuts}


def of_request(format_: str, kind: str, case: Json) -> Json:
    """What a case of a file of requests expects."""
    try:
        found = plain(REQUESTS[kind](format_of(format_), case))
    except Exception as error:
        return {"raises": raised(error)}
    return {"expected": found}


# --- The files --------------------------------------------------------------------------------------------------------

EXPECTED: Final = ("expected", "deltas", "cuts", "raises")


def given(case: Json) -> Json:
    """A case without what it expects."""
    return {name: value for name, value in case.items() if name not in EXPECTED}


def reply_files() -> list[Path]:
    """One for each reply."""
    return sorted(HERE.glob("*/*.json"))


def request_files() -> list[Path]:
    """One for each kind of each format."""
    return sorted(HERE.glob("*/requests/*.json"))


def of_file(path: Path, content: Any) -> Any:
    """A file's content with what is expected of its inputs now."""
    if path.parent.name == "requests":
        new = [given(case) | of_request(path.parent.parent.name, path.stem, case) for case in content]
        return [case if case == now else now for case, now in zip(content, new, strict=True)]  # in the order it has
    return given(content) | of_reply(path.parent.name, content)


WIDTH: Final = 180
"""How long a line of a file may be: most events of a stream fit in one."""


def written(value: Any, indent: str = "") -> str:
    """JSON to be read: on one line what fits there."""
    line = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(line) <= WIDTH or not isinstance(value, dict | list) or not value:
        # Half a character cannot be written as UTF-8.
        return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", line)
    inner = indent + " "
    if isinstance(value, list):
        parts = [written(each, inner) for each in value]
    else:
        parts = [f"{json.dumps(name, ensure_ascii=False)}: {written(each, inner)}" for name, each in value.items()]
    first, last = "[]" if isinstance(value, list) else "{}"
    return f"{first}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{last}"


MEMBERS: Final = ("source", "note", "dialect", "provider", "asked", "window", "headers", "body", "events", *EXPECTED)
"""The members of a reply's file."""


def read_file(path: Path) -> Any:
    """Return a file's content.

    Raises:
        ValueError: there is no such file, or it is not a reply or a list of requests. The message names the file.
    """
    try:
        content = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{path}: there is no such file: write its source, and a body or events, into it") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}:{error.lineno}: invalid JSON: {error.msg} (column {error.colno})") from None
    if problem := _requests_error(path, content) if path.parent.name == "requests" else _reply_error(path, content):
        raise ValueError(f"{path}: {problem}")
    return content


def _requests_error(path: Path, content: Any) -> str:
    """Return a sentence on what is wrong with a list of requests; "" if nothing is."""
    if path.stem not in REQUESTS:
        return f"{path.stem!r} is no kind of requests; the kinds are: {', '.join(REQUESTS)}"
    if not isinstance(content, list) or not all(isinstance(case, dict) for case in content):
        return "must be a list of objects"
    return _format_error(path.parent.parent.name)


def _reply_error(path: Path, content: Any) -> str:
    """Return a sentence on what is wrong with a reply; "" if nothing is."""
    if not isinstance(content, dict):
        return "must be an object with a body or events"
    if unknown := [name for name in content if name not in MEMBERS]:
        return f"unknown member {unknown[0]!r}: {did_you_mean(unknown[0], MEMBERS)}"
    if ("body" in content) == ("events" in content):
        return "must have either a body or events"
    if error := _format_error(path.parent.name):
        return error
    try:
        checked_dialect(format_of(path.parent.name), content.get("dialect", ""))
    except UsageError as error:
        return str(error)
    return ""


def _format_error(folder: str) -> str:
    return "" if folder in FORMATS else f"{folder!r} is not a format: put it in a folder of {', '.join(FORMATS)}"


def main(paths: Sequence[str]) -> None:
    """Write these files anew, or all of them, where what they expect differs."""
    for path in [Path(path).resolve() for path in paths] or [*reply_files(), *request_files()]:
        try:
            content = read_file(path)
        except ValueError as error:
            sys.exit(str(error))
        try:
            found = of_file(path, content)
        except KeyError as error:
            sys.exit(f"{path}: no {error}; see `tests/replies/record.py` for the members of a case")
        if found != content:
            path.write_text(written(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
