"""The transcript: lines that a turn appends, and the recovery after a crash."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from endturn.calls.outcomes import Strategy
from endturn.continuation import transcript
from endturn.continuation.controller import ContinuationController, TurnResult
from endturn.continuation.policy import PROMPT, ContinuationPolicy
from endturn.continuation.transcript import NOT_RECORDED, Recovered, played, recover
from endturn.errors import UsageError
from endturn.formats.apis.anthropic import FORMAT as anthropic
from endturn.formats.apis.openai_chat import FORMAT as openai_chat
from endturn.vocabulary.messages import ChatResponse, Message, Request
from endturn.vocabulary.stop import Resume, StopReason
from tests.support.processes import REPOSITORY
from tests.support.turns import SEARCH, Played, ask, assert_sendable, cut, heard, paused, said
from tests.turns.record import BEGINNINGS, line, scripted

pytestmark = pytest.mark.behaviour(28)

SECRET = "the-secret-of-the-user"
SAID = json.loads((REPOSITORY / "tests/data/transcribed.json").read_text("utf-8"))
SCRIPTS: dict[str, Sequence[Any]] = {name: [*map(scripted, script)] for name, script in SAID.items()}
"""What a provider says, in the words of tests/turns."""
EVERY = pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
REQUEST = ask(SECRET, tools=(SEARCH,), temperature=0.5, extra={"user": "u"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a transcript."""
    return tmp_path / "turns.jsonl"


def settings(path: Path | None, **policy: Any) -> dict[str, Any]:
    """Return a controller's arguments in these tests."""
    return {
        "tools": {"search": lambda asked: "found"},
        "policy": ContinuationPolicy(transcript=path, **policy),
        "clock": count(0.1, 0.1).__next__,
        "new_id": lambda: "turn-1",
        "sleep": lambda seconds: None,
    }


def play(path: Path | None, script: Sequence[Any], **policy: Any) -> TurnResult:
    return ContinuationController(Played(*script), **settings(path, **policy)).run(REQUEST)


def keep_lines(path: Path, kept: slice) -> None:
    """Keep only these lines of a file."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[kept]))


def only(path: Path) -> Recovered:
    (turn,) = recover(path)
    return turn


def assert_sent(messages: Sequence[Message]) -> None:
    """Check that a provider accepts the history, without nudges, with merged answers, in both formats."""
    assert_sendable(messages)
    assert not any(message.synthetic for message in messages)
    assert ("assistant", "assistant") not in pairwise(message.role for message in messages)
    for format in (openai_chat, anthropic):
        body = format.encode(Request(model="m", messages=tuple(messages), max_tokens=10))
        assert json.loads(json.dumps(body)) == body
        assert ("assistant", "assistant") not in pairwise(written["role"] for written in body["messages"])


def is_resumable(turn: Recovered) -> bool:
    """Return whether a turn can be resumed; if so, check its request: valid, no dangling call, the nudge last."""
    try:
        resumption = turn.resume()
    except UsageError as error:
        assert "cannot be resumed" in str(error)  # noqa: PT017 - it may be over, or not
        return False
    sent = resumption.next.messages
    nudged = sent[-1].synthetic
    assert nudged == bool(resumption.pending)
    assert_sent(sent[:-1] if nudged else sent)
    assert sent[: len(turn.request.messages)] == turn.request.messages
    return True


# --- Round trip ---------------------------------------------------------------------------------------------------


def records(told: Sequence[Any]) -> list[str]:
    """Return the announced records as text, without the type of foreign exceptions."""
    calls: list[int] = []
    return [line(each, calls).partition(" error=")[0] for each in told if not isinstance(each, BEGINNINGS)]


@EVERY
@pytest.mark.behaviour(43)
def test_a_turn_is_read_back_and_played_again(script: Sequence[Any], path: Path) -> None:
    """Each message is written before its call; request, text, usage, outcome and responses are those of the turn.

    A replay with the same clock and ids gives the same result.
    """
    provider, written = Played(*script), list[Message | None]()

    def noted(request: Request) -> Any:
        messages = [entry.message for entry in only(path).entries if entry.message is not None]
        written.append(messages[-1] if messages else None)
        return provider(request)

    with heard() as before:
        result = ContinuationController(noted, **settings(path)).run(REQUEST)
    assert written == [None, *(request.messages[-1] for request in provider.requests[1:])]
    turn = only(path)
    assert (turn.turn_id, turn.request, turn.damaged, turn.ended) == ("turn-1", REQUEST, False, True)
    for name in ("outcome", "segments", "messages", "text", "usage"):
        assert getattr(turn, name) == getattr(result, name), name
    assert len(turn.answers) == result.requests
    whole = [item for item in script if isinstance(item, ChatResponse)]
    assert [answer for answer in turn.answers if isinstance(answer, ChatResponse)] == whole
    assert_sent(turn.messages)
    assert is_resumable(turn) == (result.resumption is not None)
    with heard() as after:
        again = ContinuationController(played(turn), **settings(None)).run(turn.request)
    assert (replace(again, error=None), str(again.error)) == (replace(result, error=None), str(result.error))
    assert records(after) == records(before)


@pytest.mark.behaviour(43)
def test_a_replay_with_another_call_raises_a_clear_error(path: Path) -> None:
    """Another policy may make another call, for which there is no response."""
    play(path, SCRIPTS["a limit"])
    result = ContinuationController(played(only(path)), **settings(None, continuation_max_attempts=4)).run(REQUEST)
    assert isinstance(result.error, UsageError)
    assert "made no further call" in str(result.error)


def test_a_line_is_one_json_object_with_its_kind(path: Path) -> None:
    """It has version, turn, number, and one kind of content; an unchanged answer is not written twice."""
    play(path, SCRIPTS["a cut call"])
    lines = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    assert [(line["v"], line["turn"], line["n"]) for line in lines] == [(1, "turn-1", n) for n in range(len(lines))]
    kinds = [next(kind for kind in ("began", "response", "message", "ended") if kind in line) for line in lines]
    assert " ".join(kinds) == "began response message message response message message response message ended"
    said = {"role": "assistant", "content": "Let me see. ", "finish_reason": "max_tokens", "stop_reason": "max_tokens"}
    asked = {"role": "user", "content": PROMPT, "synthetic": True}
    assert [lines[n]["message"] for n in (2, 3, 5)] == [said, asked, "response"]
    assert lines[-1]["ended"] == {"outcome": "completed"}


def test_several_turns_of_one_file_are_separated(path: Path) -> None:
    """In the order of their starts; optionally by id; a repeated id is a separate turn."""
    ids = iter(["a", "b", "a"])
    arguments = {**settings(path), "new_id": lambda: next(ids)}
    controller = ContinuationController(Played(said("1"), said("2"), said("3")), **arguments)
    for _ in range(3):
        controller.run(REQUEST)
    assert [(turn.turn_id, turn.text) for turn in recover(path)] == [("a", "1"), ("b", "2"), ("a", "3")]
    assert [turn.text for turn in recover(path, "a")] == ["1", "3"]
    assert recover(path, "c") == []


# --- Damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["continued", "thinking and a call", "calls", "a cut call", "tools between the halves", "a pause",
             "blocks of another's shape"],
)  # fmt: skip
def test_a_killed_turn_resumes_to_the_same_answer(name: str, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Wherever the file ends, it loses at most the last line, and a torn one is not logged.

    With the responses that had not arrived, the turn ends with the same text.
    """
    torn, script = path.with_name("torn.jsonl"), SCRIPTS[name]
    result = play(path, script)
    lines, whole = path.read_bytes().splitlines(keepends=True), only(path)
    for kept, last in enumerate(lines):
        for size in (0, 1, len(last) // 2, len(last) - 1):  # a line needs its end only to be followed
            torn.write_bytes(b"".join(lines[:kept]) + last[:size])
            written = kept + (size == len(last) - 1)
            turns = recover(torn)
            assert [turn.entries for turn in turns] == [whole.entries[: written - 1]] * min(written, 1)
            assert [(turn.ended, turn.damaged) for turn in turns] == [(written == len(lines), False)] * len(turns)
        for turn in recover(torn):
            assert_sent(turn.messages)
            if written > len(lines) - 2:  # all but its end is there
                continue
            assert is_resumable(turn)
            # A response whose message was not written is asked for again.
            provider = Played(*script[sum(message.role == "assistant" for message in turn.segments) :])
            again = ContinuationController(provider, **settings(None)).run(turn.resume())
            assert (again.text, again.outcome) == (result.text, "completed")
            assert_sent(again.messages)
            assert provider.script == []
    assert caplog.messages == []


def test_a_restart_after_a_crash_loses_no_line(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line is never appended to a torn one; the torn one is reported by its number, without its content."""
    play(path, SCRIPTS["continued"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    play(path, [said("again")])
    crashed, again = recover(path)
    assert (crashed.ended, crashed.damaged, crashed.text) == (False, False, "Hello, world. And so on.")
    assert (again.ended, again.text) == (True, "again")
    number = whole.count(b"\n")
    assert caplog.messages == [
        f"[transcript] line {number} of {str(path)!r} is skipped: it, or an earlier line of its turn, is damaged"
    ]


JUNK = """
    not json
    []
    7
    {"v":2,"turn":"turn-1","n":4}
    {"v":1,"turn":"turn-1","n":4,"message":{"role":"dog"}}
    {"v":1,"turn":"turn-1","n":4,"message":"response","counters":{"calls":"many"},"usage":{}}
    {"v":1,"turn":"turn-1","n":4,"response":{"stop":{"reason":"bored"}}}
    \xff\x01
"""


@pytest.mark.parametrize("junk", [*map(str.strip, JUNK.strip().splitlines()), "[" * 100_000], ids=range(9))
def test_lines_after_a_damaged_one_are_ignored(junk: str, path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The history ends before the missing line; the outcome is still known; such a turn cannot be resumed."""
    play(path, SCRIPTS["a limit"])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], junk.encode("latin-1") + b"\n", *lines[5:]]))
    turn = only(path)
    assert (turn.damaged, turn.outcome) == (True, "retry_limit")
    assert (turn.text, len(turn.answers)) == ("a ", 1)
    assert_sent(turn.messages)
    with pytest.raises(UsageError, match="lines of the turn 'turn-1' are missing"):
        turn.resume()
    assert any("line 5 of" in message for message in caplog.messages)


def test_what_cannot_be_read_is_reported(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rest of a file that was moved away in mid-turn is no turn; a file that is not there is the caller's fault."""
    play(path, [said("x")])
    keep_lines(path, slice(1, None))
    assert recover(path) == []
    assert len(caplog.messages) == 3
    with pytest.raises(UsageError, match=r"'.*nothing\.jsonl' cannot be read: No such file"):
        recover(path.with_name("nothing.jsonl"))


# --- Taking up again ----------------------------------------------------------------------------------------------


def test_limits_continue_after_a_crash_and_reset_after_a_limit(path: Path) -> None:
    """A crash resets no attempts; resuming a turn after its limit does."""
    limited = play(path, SCRIPTS["a limit"])
    assert only(path).resume().counters == limited.resume().counters
    keep_lines(path, slice(-1))
    resumption = only(path).resume()
    assert (resumption.counters.attempts, resumption.strategy) == (3, Strategy.PROMPT)


def test_an_unanswered_call_may_have_been_run(path: Path) -> None:
    """After a kill during a tool run, results that arrived are kept, and the missing one becomes an error."""
    play(path, SCRIPTS["calls"])
    keep_lines(path, slice(4))
    turn = only(path)
    assert [(message.tool_call_id, message.text, message.is_error) for message in turn.messages[-2:]] == [
        ("call_1", "found", False), ("call_2", NOT_RECORDED, True),
    ]  # fmt: skip
    assert turn.resume().next.messages == turn.messages
    assert turn.resume().next.tools == REQUEST.tools


def takes_up(path: Path | None, *script: Any, chunk: int | None = None) -> ContinuationController:
    """Return a controller whose provider function resumes pauses."""
    return ContinuationController(Played(*script, chunk=chunk, format="gemini", retrieves=True), **settings(path))


def interrupted(controller: ContinuationController, start: Any) -> TurnResult:
    """Return the outcome of a turn, also of an interrupted one."""
    try:
        return controller.run(start)
    except KeyboardInterrupt as error:
        result = error.turn_result  # type: ignore[attr-defined]
        assert isinstance(result, TurnResult)
        return result


@pytest.mark.behaviour(13)
@pytest.mark.parametrize("end", [KeyboardInterrupt(), RuntimeError("gone"), said("", StopReason.MISSING), None],
                         ids=["interrupted", "failed", "lost", "killed"])  # fmt: skip
@pytest.mark.parametrize("chunk", [None, 2], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", [Resume.RETRIEVE_SAME_ID, Resume.NATIVE_TOKEN])
def test_a_recovered_pause_is_resumed_as_in_the_live_turn(
    kind: Resume, chunk: int | None, end: Any, path: Path
) -> None:
    """However often the call after it was lost: the same id or token, the same text, one paid job."""
    path.touch()
    script: list[Any] = [
        paused("", kind, id="job-1", token="t-1"),
        paused("part", kind, id="job-2", token="t-2"),
        end or RuntimeError("gone"),
    ]
    rest = said("part done" if kind is Resume.RETRIEVE_SAME_ID else " done")
    start: Any = REQUEST
    for _ in ("at once", "after it was taken up again"):
        live = interrupted(takes_up(path, *script, chunk=chunk), start)
        if end is None:  # what is left of the file is what was written before this call's answer
            lines = path.read_bytes().splitlines(keepends=True)
            began = max(number for number, line in enumerate(lines) if b'"began"' in line)
            gone = [b'"raised"', b'"ended"', *([b'"counters":'] if kind is Resume.RETRIEVE_SAME_ID else [])]
            told = [line for line in lines[began + 1 :] if not any(word in line for word in gone)]
            path.write_bytes(b"".join([*lines[: began + 1], *told]))
        turn = recover(path)[-1]
        assert not turn.damaged
        resumption, expected = turn.resume(), live.resume()
        for name in ("next", "strategy", "pending", "shown", "answer", "segments"):
            assert getattr(resumption, name) == getattr(expected, name), name
        finished = takes_up(None, rest, chunk=chunk).run(resumption)
        assert (finished.text, finished.outcome) == ("part done", "completed")
        assert finished.messages == takes_up(None, rest, chunk=chunk).run(expected).messages
        start, script = expected, script[-1:]


@pytest.mark.behaviour(13)
@pytest.mark.parametrize(
    ("kind", "strategy"), [(Resume.NATIVE_TOKEN, Strategy.PROMPT), (Resume.RETRIEVE_SAME_ID, Strategy.RETRIEVE)]
)
def test_the_received_part_of_a_lost_resumed_answer_is_kept(kind: Resume, strategy: Strategy, path: Path) -> None:
    """Its token is used up, so the rest is requested. A fetched response is sent completely again."""
    script = paused("a ", kind, id="job-1", token="t"), said("a longer", StopReason.MISSING)
    live = takes_up(path, *script).run(REQUEST)
    recovered = only(path).resume()
    assert recovered.strategy is live.resume().strategy
    assert (recovered.strategy, recovered.shown) == (strategy, live.text)


# --- The file -----------------------------------------------------------------------------------------------------


def test_a_new_file_is_its_owners_alone(path: Path) -> None:
    """0600 with any umask; the mode of an existing file is up to the host."""
    shared = path.with_name("shared.jsonl")
    shared.touch(mode=0o644)
    before = os.umask(0)
    try:
        play(path, [said("x")])
        play(shared, [said("x")])
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(shared.stat().st_mode) == 0o644


@pytest.mark.parametrize(
    ("name", "why"),
    [("nothing/turns.jsonl", "No such file"), (".", "Is a directory"), ("turns\0.jsonl", "ValueError")],
    ids=["no folder", "a folder", "no path"],
)
def test_an_impossible_path_is_refused_at_once(name: str, why: str, tmp_path: Path) -> None:
    """No controller is created; the error has the path, the cause, and what to do."""
    with pytest.raises(
        UsageError, match=rf"cannot be opened \({why}.*name a file that this process can read and write"
    ):
        play(tmp_path / name, [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_disk_breaks_no_turn_and_is_logged_once(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ten lines cannot be written: the result is the same, with one warning without content."""
    caplog.set_level(logging.DEBUG)
    path.symlink_to("/dev/full")
    script = [cut(SECRET), said("world.")]
    assert play(path, script).text == play(None, script).text
    warnings = [message for message in caplog.messages if "[transcript]" in message]
    assert warnings == [
        f"[transcript] {str(path)!r} cannot be written (No space left on device): lines are missing from here on"
    ]
    assert SECRET not in caplog.text


def test_values_without_json_form_break_no_turn(
    path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """An object in the host's request loses its line, and the turn reads as one that did not begin."""

    class Foreign:
        def __repr__(self) -> str:
            return SECRET

    controller = ContinuationController(Played(said("Hello.")), **settings(path))
    assert controller.run(REQUEST.but(extra={"it": Foreign()})).text == "Hello."
    assert recover(path) == []
    assert "PydanticSerializationError" in caplog.messages[0]
    assert SECRET not in caplog.text
    assert len(recwarn) == 0


def test_a_turn_is_on_the_disk_when_it_ends(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One fsync for each turn."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for number in range(1, 3):
        play(path, SCRIPTS["continued"])
        assert len(synced) == number


# --- Processes and threads ----------------------------------------------------------------------------------------


WRITER = """
import os, sys
from endturn import ContinuationController, ContinuationPolicy, Message, Request, ScriptedProvider
from endturn.testing.scripted import say
path, name = sys.argv[1:]
provider = ScriptedProvider(lambda asked: say(f"{name} {os.urandom(10_000).hex()}"))
controller = ContinuationController(provider, policy=ContinuationPolicy(transcript=path))
for _ in range(40):
    controller.run(Request(model="m", messages=(Message(role="user", content="hi"),)))
"""


def test_two_processes_may_append_to_one_file(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name], stderr=subprocess.PIPE) for name in "ab"]
    for writer in writers:
        _, told = writer.communicate(timeout=120)
        assert writer.returncode == 0, told
    turns = recover(path)
    assert Counter(turn.text[:2] for turn in turns) == {"a ": 40, "b ": 40}
    assert all(turn.ended and not turn.damaged and len(turn.text) == 20_002 for turn in turns)
    assert caplog.messages == []


# --- The documented loop ------------------------------------------------------------------------------------------

BEGINS = ("    for turn", "        if not turn", "            result =")
SAID_BY_DOCS = "".join(each for each in (transcript.__doc__ or "").splitlines(keepends=True) if each.startswith(BEGINS))
LOOP = compile(
    textwrap.dedent(SAID_BY_DOCS).replace('"turns.jsonl"', "path"),
    "the documentation of endturn.continuation.transcript",
    "exec",
)


def places(written: bytes) -> list[int]:
    """Return the positions of truncation: within, before and after every line's end."""
    ends = [at + 1 for at, byte in enumerate(written) if byte == ord("\n")]
    middles = [(one + other) // 2 for one, other in pairwise([0, *ends])]
    return sorted({0, *ends, *middles, *(end - 1 for end in ends), *(end - 2 for end in ends)})


def recovered_by_loop(path: Path) -> tuple[list[Any], Played]:
    """Run the loop over a file; return its results and the provider."""
    provider = Played(*[said("And so it ends.")] * 5)
    results: list[Any] = []

    class Noted:
        """A controller that keeps its results."""

        def __init__(self) -> None:
            self.controller = ContinuationController(provider, **settings(path) | {"new_id": new_id})

        def run(self, start: Any) -> TurnResult:
            result = self.controller.run(start)
            results.append(result)
            return result

    new_id = map("again-{}".format, count()).__next__
    exec(LOOP, {"recover": recover, "path": path, "controller": Noted()})
    return results, provider


@EVERY
def test_the_documented_loop_resumes_after_any_kill(script: Sequence[Any], path: Path) -> None:
    """Each turn is resumed once, ends, and is not resumed again."""
    whole_text = play(path, script).text
    check_loop_over(path, places(path.read_bytes()))
    assert whole_text == recover(path)[0].text


@pytest.mark.parametrize("every", [7, pytest.param(1, marks=pytest.mark.slow)])
def test_the_documented_loop_resumes_after_a_kill_at_any_byte(every: int, path: Path) -> None:
    """At every seventh in `make test`."""
    play(path, SCRIPTS["a cut call"])
    check_loop_over(path, range(0, path.stat().st_size + 1, every))


def check_loop_over(path: Path, sizes: Iterable[int]) -> None:
    """Truncate the file to each of these sizes, and have the loop resume it."""
    torn, written = path.with_name("torn.jsonl"), path.read_bytes()
    begins = written.index(b"\n")
    for size in sizes:
        torn.write_bytes(written[:size])
        before = recover(torn)
        results, _ = recovered_by_loop(torn)
        assert len(results) == (size >= begins and not before[0].ended)
        for result in results:
            assert result.complete or result.outcome in ("left_paused", "refused", "safety_blocked", "unknown_stop")
            assert_sendable(result.messages)
        again, provider = recovered_by_loop(torn)
        assert again == []
        assert len(provider.script) == 5
