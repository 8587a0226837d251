"""The transcript: what is appended while a turn runs, and what is read back of it after a crash."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from endturn.chat import Blocks, ChatResponse, Message, Request
from endturn.continuation.policy import PROMPT, ContinuationPolicy
from endturn.continuation.result import Entry
from endturn.controller import ContinuationController, TurnResult
from endturn.errors import ProviderUnavailable, RequestRejected, UsageError
from endturn.events import Strategy
from endturn.formats.anthropic import FORMAT as anthropic
from endturn.formats.openai_chat import FORMAT as openai_chat
from endturn.stop import Resume, Stop, StopReason
from endturn.transcript import NOT_RECORDED, Recovered, played, recover
from tests.support.turns import SEARCH, Played, ask, assert_sendable, call, calling, cut, heard, paused, said, ticking
from tests.turns.record import BEGINNINGS, line

pytestmark = pytest.mark.behaviour(28)

REPOSITORY = Path(__file__).resolve().parents[1]
SECRET = "the-secret-of-the-user"

THINKING = Blocks(
    "anthropic",
    (
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "text", "text": "Grüße \u2028 🧑‍🚀\x00"},
        {"type": "tool_use", "id": "call_1", "name": "search", "input": {"q": "x"}},
    ),
)
CHAT = Blocks("openai_chat", ({"role": "assistant", "content": "Hello, ", "reasoning_content": "hm"},))
OVERFULL = Stop(StopReason.CONTEXT_WINDOW_EXCEEDED, raw="context_length_exceeded", incomplete=True)

SCRIPTS: dict[str, Sequence[ChatResponse | BaseException]] = {
    "whole": [said("Hello.")],
    "continued": [cut("Hello, wo"), cut("rld. And"), said(" so on.")],
    "blocks of another's shape": [cut("Hello, ", blocks=CHAT, reasoning="hm", id="r1", model="m-1"), said("world.")],
    "thinking and a call": [calling(call(), text="Grüße \u2028 🧑‍🚀\x00", blocks=THINKING, token="t"), said("Done.")],
    "calls": [calling(call(), call(id="call_2")), said("Found.")],
    "a wrong call": [calling(call(name="nothing")), said("Sorry.")],
    "a cut call": [cut("Let me see. ", calls=[call(arguments="{", closed=False)]), calling(call()), said("Found.")],
    "a cut call and no text": [cut(calls=[call(arguments="{", closed=False)]), calling(call()), said("Found.")],
    "tools between the halves": [cut("a "), calling(call(), text="b "), cut("c "), said("d")],
    "a pause": [paused("Let me "), said("think.")],
    "a limit": [cut("a "), cut("b "), cut("c "), cut("d ")],
    "nothing but thinking": [cut(reasoning="hm")],
    "refused": [said("No.", StopReason.REFUSED)],
    "a failed continuation": [cut("Hello, "), ProviderUnavailable("busy", status=503)],
    "a failed stream": [ProviderUnavailable("gone", partial=said("Hel", StopReason.MISSING, tokens=None))],
    "another's exception": [cut("Hello, "), RuntimeError("unheard of")],
    "an error that says why": [cut("Hello, "), RequestRejected("too long", status=400, stop=OVERFULL)],
    "no usage": [cut("Hello, ", tokens=None), said("world.", tokens=None)],
}  # fmt: skip
EVERY = pytest.mark.parametrize("script", SCRIPTS.values(), ids=list(SCRIPTS))
REQUEST = ask(SECRET, tools=(SEARCH,), temperature=0.5, extra={"user": "u"})


def settings(path: Path | None, **policy: Any) -> dict[str, Any]:
    """A controller's arguments in these tests."""
    return {
        "tools": {"search": lambda asked: "found"},
        "policy": ContinuationPolicy(transcript=path, **policy),
        "clock": ticking(0.1),
        "new_id": lambda: "turn-1",
    }


def play(path: Path | None, script: Sequence[ChatResponse | BaseException], **policy: Any) -> TurnResult:
    return ContinuationController(Played(*script), **settings(path, **policy)).run(REQUEST)


def cut_lines(path: Path, *kept: slice) -> list[bytes]:
    """The lines of a file, of which these are left in it."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for each in kept for line in lines[each]))
    return lines


def only(path: Path) -> Recovered:
    (turn,) = recover(path)
    return turn


def assert_sent(messages: Sequence[Message]) -> None:
    """A history that a provider takes, nudges gone, answers merged; and both formats write it."""
    assert_sendable(messages)
    assert not any(message.synthetic for message in messages)
    assert ("assistant", "assistant") not in pairwise(message.role for message in messages)
    for format in (openai_chat, anthropic):
        body = format.encode(Request(model="m", messages=tuple(messages), max_tokens=10))
        assert json.loads(json.dumps(body)) == body
        assert ("assistant", "assistant") not in pairwise(written["role"] for written in body["messages"])


def assert_resumable_or_over(turn: Recovered) -> None:
    """A turn either has nothing to go on with, or a request that a provider takes: no dangling call, its nudge last."""
    try:
        resumption = turn.resume()
    except UsageError:
        return
    sent = resumption.next.messages
    nudged = sent[-1].synthetic
    assert nudged == bool(resumption.pending)
    assert_sent(sent[:-1] if nudged else sent)
    assert sent[: len(turn.request.messages)] == turn.request.messages


# --- Round trip ---------------------------------------------------------------------------------------------------


@EVERY
def test_a_turn_is_read_back_as_it_was(script: Sequence[ChatResponse | BaseException], tmp_path: Path) -> None:
    """Request, segments, messages, text, usage, outcome and responses are what the turn had."""
    path = tmp_path / "turns.jsonl"
    result = play(path, script)
    turn = only(path)
    assert (turn.turn_id, turn.request, turn.damaged) == ("turn-1", REQUEST, False)
    assert (turn.outcome, turn.ended) == (result.outcome, True)
    assert (turn.segments, turn.messages) == (result.segments, result.messages)
    assert (turn.text, turn.usage) == (result.text, result.usage)
    assert len(turn.answers) == result.requests
    whole = [item for item in script if isinstance(item, ChatResponse)]
    assert [answer for answer in turn.answers if isinstance(answer, ChatResponse)] == whole
    assert_sent(turn.messages)
    assert_resumable_or_over(turn)


def test_a_line_is_one_json_object_that_says_what_it_is(tmp_path: Path) -> None:
    """Version, turn, number, and one kind of content; an answer that entered as it came is not written twice."""
    path = tmp_path / "turns.jsonl"
    play(path, SCRIPTS["a cut call"])
    lines = [json.loads(line) for line in path.read_text(encoding="ascii").splitlines()]
    assert [(line["v"], line["turn"], line["n"]) for line in lines] == [(1, "turn-1", n) for n in range(len(lines))]
    kinds = [next(kind for kind in ("began", "response", "message", "ended") if kind in line) for line in lines]
    assert " ".join(kinds) == "began response message message response message message response message ended"
    said = {"role": "assistant", "content": "Let me see. ", "finish_reason": "max_tokens", "stop_reason": "max_tokens"}
    asked = {"role": "user", "content": PROMPT, "synthetic": True}
    assert [lines[n]["message"] for n in (2, 3, 5)] == [said, asked, "response"]
    assert lines[-1]["ended"] == {"outcome": "completed"}


def test_several_turns_of_one_file_are_told_apart(tmp_path: Path) -> None:
    """In the order in which they began; by id where asked; a repeated id is a turn of its own."""
    path = tmp_path / "turns.jsonl"
    ids = iter(["a", "b", "a"])
    arguments = {**settings(path), "new_id": lambda: next(ids)}
    controller = ContinuationController(Played(said("1"), said("2"), said("3")), **arguments)
    for _ in range(3):
        controller.run(REQUEST)
    assert [(turn.turn_id, turn.text) for turn in recover(path)] == [("a", "1"), ("b", "2"), ("a", "3")]
    assert [turn.text for turn in recover(path, "a")] == ["1", "3"]
    assert recover(path, "c") == []


# --- Damage -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["thinking and a call", "a cut call", "a failed stream"])
def test_a_file_that_ends_anywhere_loses_the_last_line_at_most(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut at every byte: what the whole lines say is there, it can be sent, and a torn last line is no news."""
    path, torn = tmp_path / "turns.jsonl", tmp_path / "torn.jsonl"
    play(path, SCRIPTS[name])
    data, whole = path.read_bytes(), only(path)

    def shown(entries: Sequence[Entry]) -> list[object]:
        """No two exceptions are equal."""
        return [(replace(entry, raised=None), str(entry.raised)) for entry in entries]

    checked = -1
    torn.write_bytes(data)
    for size in range(len(data), -1, -1):
        os.truncate(torn, size)
        lines = data[:size].count(b"\n") + (data[size : size + 1] == b"\n")  # a line needs its end only to be followed
        turns = recover(torn)
        assert len(turns) == min(lines, 1)
        for turn in turns:
            assert len(turn.entries) == min(lines - 1, len(whole.entries))
            assert shown(turn.entries) == shown(whole.entries[: len(turn.entries)])
            assert turn.ended == (lines == data.count(b"\n"))
            assert not turn.damaged
            if lines != checked:
                checked = lines
                assert_sent(turn.messages)
                assert_resumable_or_over(turn)
    assert caplog.messages == []


def test_who_starts_again_after_a_crash_does_not_lose_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A line is never appended to a torn one; the torn one is reported by its number, and nothing of what it holds."""
    path = tmp_path / "turns.jsonl"
    play(path, SCRIPTS["continued"])
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    play(path, [said("again")])
    crashed, again = recover(path)
    assert (crashed.ended, crashed.damaged, crashed.text) == (False, False, "Hello, world. And so on.")
    assert (again.ended, again.text) == (True, "again")
    number = whole.count(b"\n")
    assert caplog.messages == [
        f"[transcript] line {number} of {str(path)!r} is passed over: it, or one of its turn before it, is damaged"
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
def test_what_follows_a_damaged_line_is_not_trusted(
    junk: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The history ends before the hole; how the turn ended is known still; nothing takes such a turn up."""
    path = tmp_path / "turns.jsonl"
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


def test_what_cannot_be_read_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rest of a file that was moved away in mid-turn is no turn; a file that is not there is the caller's fault."""
    path = tmp_path / "turns.jsonl"
    play(path, [said("x")])
    cut_lines(path, slice(1, None))
    assert recover(path) == []
    assert len(caplog.messages) == 3
    with pytest.raises(UsageError, match=r"'.*nothing\.jsonl' cannot be read: No such file"):
        recover(tmp_path / "nothing.jsonl")


# --- Taking up again ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["continued", "thinking and a call", "calls", "a cut call", "tools between the halves", "a pause",
             "blocks of another's shape"],
)  # fmt: skip
def test_a_turn_that_was_killed_goes_on_to_the_same_answer(name: str, tmp_path: Path) -> None:
    """Whatever line was the last: given the responses that had not arrived, the turn ends with the same text."""
    path, torn = tmp_path / "turns.jsonl", tmp_path / "torn.jsonl"
    script = SCRIPTS[name]
    whole = play(path, script)
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in range(1, len(lines) - 2):
        torn.write_bytes(b"".join(lines[:kept]))
        turn = only(torn)
        # A response whose message was not written is asked for again.
        entered = sum(message.role == "assistant" for message in turn.segments)
        provider = Played(*script[entered:])
        result = ContinuationController(provider, **settings(None)).run(turn.resume())
        assert (result.text, result.outcome) == (whole.text, "completed")
        assert_sent(result.messages)
        assert provider.script == []


def test_limits_go_on_after_a_crash_and_begin_anew_after_a_limit(tmp_path: Path) -> None:
    """A crash gives no attempt back; who takes a turn up after its limit wants more."""
    path = tmp_path / "turns.jsonl"
    limited = play(path, SCRIPTS["a limit"])
    assert only(path).resume().counters == limited.resume().counters
    cut_lines(path, slice(-1))
    resumption = only(path).resume()
    assert (resumption.counters.attempts, resumption.strategy) == (3, Strategy.PROMPT)


def test_an_unanswered_call_may_have_been_run(tmp_path: Path) -> None:
    """Killed while a tool ran: results that arrived are kept, the missing one is an error that says so."""
    path = tmp_path / "turns.jsonl"
    play(path, SCRIPTS["calls"])
    cut_lines(path, slice(4))
    turn = only(path)
    assert [(message.tool_call_id, message.text, message.is_error) for message in turn.messages[-2:]] == [
        ("call_1", "found", False), ("call_2", NOT_RECORDED, True),
    ]  # fmt: skip
    assert turn.resume().next.messages == turn.messages
    assert turn.resume().next.tools == REQUEST.tools


@pytest.mark.parametrize("name", ["whole", "refused", "nothing but thinking", "an error that says why"])
def test_a_turn_that_is_over_is_not_taken_up(name: str, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    play(path, SCRIPTS[name])
    with pytest.raises(UsageError, match="cannot be taken up again"):
        only(path).resume()


class Pausing(Played):
    """A provider function that takes pauses up."""

    format = "gemini"
    retrieves = True


def interrupted(controller: ContinuationController, start: Any) -> TurnResult:
    """How a turn ended, also where it was interrupted."""
    try:
        return controller.run(start)
    except KeyboardInterrupt as error:
        result = error.turn_result  # type: ignore[attr-defined]
        assert isinstance(result, TurnResult)
        return result


@pytest.mark.behaviour(13)
@pytest.mark.parametrize("end", [KeyboardInterrupt(), RuntimeError("gone"), said("", StopReason.MISSING), None],
                         ids=["interrupted", "failed", "lost", "killed"])  # fmt: skip
@pytest.mark.parametrize("times", [1, 2], ids=["at once", "after it was taken up again"])
@pytest.mark.parametrize("chunk", [None, 2], ids=["whole", "streamed"])
@pytest.mark.parametrize("kind", [Resume.RETRIEVE_SAME_ID, Resume.NATIVE_TOKEN])
def test_a_pause_is_taken_up_as_the_live_turn_would(
    kind: Resume, chunk: int | None, times: int, end: Any, tmp_path: Path
) -> None:
    """However the call after it was lost, and again after that: the same id or token, the same text, one paid job."""
    path = tmp_path / "turns.jsonl"
    path.touch()
    pauses = [paused("", kind, id="job-1", token="t-1"), paused("part", kind, id="job-2", token="t-2")]
    rest = said("part done" if kind is Resume.RETRIEVE_SAME_ID else " done")
    lost = [end or RuntimeError("gone")] * times

    def controller(*script: ChatResponse | BaseException) -> ContinuationController:
        slow = settings(path) | {"sleep": lambda seconds: None}
        return ContinuationController(Pausing(*script, chunk=chunk), **slow)

    live = interrupted(controller(*pauses, lost[0]), REQUEST)
    for each in lost[1:]:
        live = interrupted(controller(each), live.resume())
    if end is None:  # what is left of the file is what was written before this call's answer
        lines = path.read_bytes().splitlines(keepends=True)
        start = max(number for number, line in enumerate(lines) if b'"began"' in line)
        gone = [b'"raised"', b'"ended"', *([b'"counters":'] if kind is Resume.RETRIEVE_SAME_ID else [])]
        told = [line for line in lines[start + 1 :] if not any(word in line for word in gone)]
        path.write_bytes(b"".join([*lines[: start + 1], *told]))
    turn = recover(path)[-1]
    assert not turn.damaged
    resumption, expected = turn.resume(), live.resume()
    for name in ("next", "strategy", "pending", "shown", "answer", "segments"):
        assert getattr(resumption, name) == getattr(expected, name), name
    finished = controller(rest).run(resumption)
    assert (finished.text, finished.outcome) == ("part done", "completed")
    assert finished.messages == controller(rest).run(expected).messages


@pytest.mark.behaviour(13)
@pytest.mark.parametrize(
    ("kind", "strategy"), [(Resume.NATIVE_TOKEN, Strategy.PROMPT), (Resume.RETRIEVE_SAME_ID, Strategy.RETRIEVE)]
)
def test_what_came_of_a_resumed_answer_before_it_was_lost_is_kept(
    kind: Resume, strategy: Strategy, tmp_path: Path
) -> None:
    """Its token is used up: the rest is asked for. Of one that is fetched, the whole comes again."""
    path = tmp_path / "turns.jsonl"
    provider = Pausing(paused("a ", kind, id="job-1", token="t"), said("a longer", StopReason.MISSING))
    live = ContinuationController(provider, **(settings(path) | {"sleep": lambda seconds: None})).run(REQUEST)
    recovered = only(path).resume()
    assert recovered.strategy is live.resume().strategy
    assert (recovered.strategy, recovered.shown) == (strategy, live.text)


# --- Replay -------------------------------------------------------------------------------------------------------


@EVERY
@pytest.mark.behaviour(43)
def test_a_turn_is_played_again_from_its_transcript(
    script: Sequence[ChatResponse | BaseException], tmp_path: Path
) -> None:
    """Its recorded responses, with the same clock and ids, make the same result and the same records."""
    path = tmp_path / "turns.jsonl"

    def shown(result: TurnResult) -> TurnResult:
        return replace(result, error=result.error and ValueError(str(result.error)).args)  # type: ignore[arg-type]

    with heard() as before:
        first = play(path, script)
    turn = only(path)
    with heard() as after:
        again = ContinuationController(played(turn), **settings(None)).run(turn.request)
    assert shown(again) == shown(first)
    assert records(after) == records(before)


def records(told: Sequence[Any]) -> list[str]:
    """What was announced, in words; of an exception of another's the type is not recorded."""
    calls: list[int] = []
    return [line(each, calls).partition(" error=")[0] for each in told if not isinstance(each, BEGINNINGS)]


@pytest.mark.behaviour(43)
def test_a_replay_that_asks_for_more_says_so(tmp_path: Path) -> None:
    """Another policy may make another call, for which there is no response."""
    path = tmp_path / "turns.jsonl"
    play(path, SCRIPTS["a limit"])
    arguments = settings(None, continuation_max_attempts=4)
    result = ContinuationController(played(only(path)), **arguments).run(REQUEST)
    assert isinstance(result.error, UsageError)
    assert "made no further call" in str(result.error)


# --- The file -----------------------------------------------------------------------------------------------------


def test_a_new_file_is_its_owners_alone(tmp_path: Path) -> None:
    """0600 whatever the umask; the mode of a file that exists is the host's business."""
    path, shared = tmp_path / "turns.jsonl", tmp_path / "shared.jsonl"
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
    """The controller is not made; the error names the path, why, and what to do."""
    with pytest.raises(
        UsageError, match=rf"cannot be opened \({why}.*name a file that this process may read and write"
    ):
        play(tmp_path / name, [])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no device that is always full")
def test_a_full_disk_breaks_no_turn_and_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Ten lines that cannot be written: the same result, one warning, nothing of what was said in it."""
    caplog.set_level(logging.DEBUG)
    path = tmp_path / "turns.jsonl"
    path.symlink_to("/dev/full")
    script = [cut(SECRET), said("world.")]
    assert play(path, script).text == play(None, script).text
    warnings = [message for message in caplog.messages if "[transcript]" in message]
    assert warnings == [
        f"[transcript] {str(path)!r} cannot be written (No space left on device): lines are missing from here on"
    ]
    assert SECRET not in caplog.text


def test_what_json_cannot_say_breaks_no_turn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """An object that the host put into a request costs its line, and the turn reads as one that did not begin."""

    class Foreign:
        def __repr__(self) -> str:
            return SECRET

    path = tmp_path / "turns.jsonl"
    controller = ContinuationController(Played(said("Hello.")), **settings(path))
    assert controller.run(REQUEST.but(extra={"it": Foreign()})).text == "Hello."
    assert recover(path) == []
    assert "PydanticSerializationError" in caplog.messages[0]
    assert SECRET not in caplog.text
    assert len(recwarn) == 0


def test_a_turn_is_on_the_disk_when_it_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One fsync for each turn."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for number in range(1, 3):
        play(tmp_path / "turns.jsonl", SCRIPTS["continued"])
        assert len(synced) == number


# --- Processes and threads ----------------------------------------------------------------------------------------


WRITER = """
import sys
from pathlib import Path
from tests.test_transcript import ContinuationController, Played, REQUEST, cut, said, settings, varied
path, name = Path(sys.argv[1]), sys.argv[2]
ids = iter(f"{name}-{number}" for number in range(100))
script = [response for n in range(40) for response in (cut(f"{name} {n} " + varied(4_000)), said("end"))]
controller = ContinuationController(Played(*script), **{**settings(path), "new_id": lambda: next(ids)})
for _ in range(40):
    controller.run(REQUEST)
"""


def varied(words: int) -> str:
    """So many words, no passage of them twice."""
    return " ".join(str(word * 7_919) for word in range(words))


def test_two_processes_may_append_to_one_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "turns.jsonl"
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name], cwd=REPOSITORY, stderr=subprocess.PIPE) for name in "ab"]
    for writer in writers:
        _, told = writer.communicate(timeout=120)
        assert writer.returncode == 0, told
    turns = recover(path)
    assert {turn.turn_id for turn in turns} == {f"{name}-{number}" for name in "ab" for number in range(40)}
    assert all(turn.ended and not turn.damaged for turn in turns)
    assert all(turn.text.startswith(turn.turn_id.replace("-", " ")) for turn in turns)
    assert caplog.messages == []
