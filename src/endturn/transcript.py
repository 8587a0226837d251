"""What was said in every turn, appended to a file as it happens; `endturn.recovery` reads it back.

    controller = ContinuationController(provider, policy=ContinuationPolicy(transcript="turns.jsonl"))

**The file holds what was said**: questions, answers, tools' arguments and results. It is therefore off unless the
policy names a path, and a file that is made here can be read and written by its owner alone (0600; a file that exists
keeps its own mode).

One line is one JSON object, in ASCII: `v` (the version, 1), `turn` (its id), `n` (the line's number within the turn,
from 0) and one of these, defaults left out:

    began     the request, tools included; of a turn that is taken up again also what it has, and the paused response
              that it goes on with; what the provider function speaks and can do
    response  a call's response as it arrived, with its stop reason and usage; `raised`: the error that came instead, or
              after a part of it
    message   a message that enters the turn: a nudge (before the call that it goes with), a tool's result, an answer;
              the word "response" for an answer that is all of the last response. Beside an answer: `counters` and
              `usage`, of the turn until then; beside a nudge too
    ended     the outcome

Each line is one write to a file opened for appending, so that turns, threads and processes may share a local file. A
line is with the operating system at once, and survives the process; it is on the disk when the turn ends. A line that
cannot be written is dropped, and that is said once: no turn fails because of its transcript. What follows such a hole
is not trusted when the turn is read back. In an async controller the few writes of a turn block the loop, as logging
does.
"""

from __future__ import annotations

import errno
import json
import logging
import os
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, Final, assert_never

from pydantic import BaseModel, TypeAdapter

from endturn.chat import Blocks, ChatResponse, Json, Message, Usage
from endturn.continuation.limits import Counters
from endturn.continuation.result import Answered, Began, Ended, Entered, Entry, Tell
from endturn.errors import DecodeError, ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected, UsageError
from endturn.events import TurnOutcome
from endturn.stop import Stop

log = logging.getLogger("endturn")

VERSION: Final = 1
AS_IT_CAME: Final = "response"
"""Stands for a message that is all of the last response."""


# --- Writing ------------------------------------------------------------------------------------------------------


class Transcript:
    """A file that turns are appended to.

    It is opened anew for each line: nothing has to be closed, and a file that was moved away is made again.

    Raises:
        UsageError: the file cannot be made, or not be written to.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._failures = count()
        try:
            is_new = not self._path.exists()
            os.close(self._open())
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the transcript {str(path)!r} cannot be opened ({why(error)}): name a file that this process may "
                "read and write, in a folder that exists"
            ) from None
        if is_new:
            _sync_folder(self._path.parent)

    def of(self, turn: str) -> Tell:
        """What a turn of this id is to tell its entries to. It never raises because of the file."""
        numbers = count()
        last: ChatResponse | None = None

        def tell(entry: Entry) -> None:
            nonlocal last
            if isinstance(entry, Answered):
                last = entry.response
            self._append({"v": VERSION, "turn": turn, "n": next(numbers)}, entry, last)

        return tell

    def _append(self, head: Json, entry: Entry, last: ChatResponse | None) -> None:
        try:
            line = json.dumps(head | _written(entry, last), separators=(",", ":"))
            self._write(line.encode() + b"\n", is_last=isinstance(entry, Ended))
        except Exception as error:  # whatever it is, the turn goes on
            if next(self._failures) == 0:
                log.warning(
                    "[transcript] %r cannot be written (%s): lines are missing from here on",
                    str(self._path),
                    why(error),
                )

    def _write(self, line: bytes, *, is_last: bool) -> None:
        descriptor = self._open()
        try:
            if _is_torn(descriptor):
                line = b"\n" + line
            if os.write(descriptor, line) < len(line):
                raise OSError(errno.ENOSPC, "only a part of a line was written")
            if is_last:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)


def _is_torn(descriptor: int) -> bool:
    """Whether a file ends in the middle of a line: whoever wrote it died, or the disk was full."""
    size = os.fstat(descriptor).st_size
    return size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"


def _sync_folder(path: Path) -> None:
    """Have a folder's new entry on the disk, where the system has that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def why(error: Exception) -> str:
    """What went wrong, without a word of what was to be written."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


# --- Lines --------------------------------------------------------------------------------------------------------

_BEGAN: Final = TypeAdapter(Began)
_COUNTERS: Final = TypeAdapter(Counters)
_USAGE: Final = TypeAdapter(Usage)
_STOP: Final = TypeAdapter(Stop)
_BLOCKS: Final = TypeAdapter(Blocks)

_ERRORS: Final = {
    kind.__name__: kind for kind in (RequestRejected, ProviderUnavailable, ProviderTimeout, DecodeError, ProviderError)
}


def _written(entry: Entry, last: ChatResponse | None) -> Json:
    """What a line says of an entry."""
    match entry:
        case Began():
            return {"began": _dumped(_BEGAN, entry)}
        case Answered(response, None):
            return {"response": _model(response)}
        case Answered(response, raised):
            assert raised is not None
            said: Json = {"type": type(raised).__name__, "message": str(raised)}
            if isinstance(raised, ProviderError):
                said["status"] = raised.status
                said["stop"] = None if raised.stop is None else _dumped(_STOP, raised.stop)
            return {"response": _model(response), "raised": said}
        case Entered(message, None, _):
            return {"message": _model(message)}
        case Entered(message, counters, usage):
            is_whole = last is not None and message == last.message(include_cut=True)
            return {
                "message": AS_IT_CAME if is_whole else _model(message),
                "counters": _dumped(_COUNTERS, counters),
                "usage": _dumped(_USAGE, usage),
            }
        case Ended(outcome):
            return {"ended": {"outcome": outcome.value}}
        case _:
            assert_never(entry)


def _model(value: BaseModel) -> Json:
    # A warning would show the value: it is content.
    return value.model_dump(mode="json", exclude_defaults=True, warnings=False)


def _dumped(kind: TypeAdapter[Any], value: object) -> Any:
    return kind.dump_python(value, mode="json", exclude_defaults=True, warnings=False)


def entry_of(line: Json, last: ChatResponse | None) -> Entry:
    """The entry that a line tells of; `last`: the response before it. What it raises says that it tells of none."""
    if "began" in line:
        began = line["began"]
        for message in (*began["request"]["messages"], *began.get("segments", ())):
            _revive(message)
        if "paused" in began:
            began["paused"] = _response(began["paused"])
        return _BEGAN.validate_python(began)
    if "ended" in line:
        return Ended(TurnOutcome(line["ended"]["outcome"]))
    if "response" in line:
        response = _response(line["response"])
        return Answered(response, _error(line["raised"], response) if "raised" in line else None)
    if line["message"] == AS_IT_CAME and last is not None:
        message = last.message(include_cut=True)
    else:
        message = Message.model_validate(_revive(line["message"]))
    if "counters" not in line:
        return Entered(message)
    return Entered(message, _COUNTERS.validate_python(line["counters"]), _USAGE.validate_python(line["usage"]))


def _response(told: Json) -> ChatResponse:
    return ChatResponse.model_validate(_revive(told) | {"stop": _STOP.validate_python(told["stop"])})


def _revive(told: Json) -> Json:
    """What was told of a message or response, its blocks made ours again: pydantic takes them as they are."""
    if told.get("blocks") is not None:
        told["blocks"] = _BLOCKS.validate_python(told["blocks"])
    return told


def _error(raised: Json, partial: ChatResponse) -> ProviderError:
    stop = raised.get("stop")
    return _ERRORS.get(raised["type"], ProviderError)(
        raised["message"],
        status=raised.get("status"),
        stop=None if stop is None else _STOP.validate_python(stop),
        partial=partial,
    )
