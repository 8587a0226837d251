"""Files and folders: each is read once, and unreadable ones are reported."""

from __future__ import annotations

import gzip
import io
import json
import os
import sys
import tracemalloc
import zipfile
from pathlib import Path

import pytest

from endturn.errors import UsageError
from endturn.scan import read_file, scan
from endturn.scan.command import duration_ns, run
from endturn.scan.fields import time_ns
from endturn.scan.table import text_of
from tests.scan.cases import HERE, figures

CASE = HERE / "claude_code" / "four-cuts-then-gave-up"
(SESSION,) = CASE.rglob("*.jsonl")


def test_links_lead_to_a_file_once_and_never_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "one.jsonl").write_bytes(SESSION.read_bytes())
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "a" / "one.jsonl")
    os.link(tmp_path / "a" / "one.jsonl", tmp_path / "hard.jsonl")
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    found = scan([tmp_path, tmp_path / "a"])
    assert (len(found.results), found.copies, found.unreadable) == (1, 0, {})


def test_unknown_files_are_named_once_and_empty_ones_too(tmp_path: Path) -> None:
    for name, data in {
        "notes.txt": b"hello\n",
        "empty": b"",
        "other.jsonl": b'{"a": 1}\n',
        "list.json": b"[1]",
    }.items():
        (tmp_path / name).write_bytes(data)
    found = scan([tmp_path, tmp_path / "notes.txt"]).as_json()["files"]
    assert [Path(name).name for name in found["unknown"]] == ["empty", "list.json", "notes.txt", "other.jsonl"]
    assert (found["read"], found["damaged"]) == (0, {})


def test_an_unreadable_file_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret.jsonl"
    path.write_bytes(SESSION.read_bytes())

    def refuse(self: Path, mode: str = "r") -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)  # root may read anything
    assert scan([path]).as_json()["files"]["unreadable"] == {str(path): "Permission denied"}


def test_a_missing_input_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        scan([tmp_path / "nothing"])


def test_a_file_of_lines_needs_only_the_memory_of_its_calls(tmp_path: Path) -> None:
    long = json.dumps(
        {"type": "user", "sessionId": "s", "message": {"content": [{"type": "text", "text": "x" * 100_000}]}}
    )
    path = tmp_path / "session.jsonl"
    path.write_bytes(SESSION.read_bytes() + f"{long}\n".encode() * 300)
    read_file(path)  # imports what it needs
    tracemalloc.start()
    try:
        (result,) = read_file(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(result.turns[0].calls) == 4
    assert peak < path.stat().st_size / 3


def test_standard_input_and_pipes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = figures(scan([SESSION]))
    for data in (SESSION.read_bytes(), gzip.compress(SESSION.read_bytes())):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        assert figures(scan([Path("-")])) == expected


def test_damaged_and_long_lines_are_counted_and_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("endturn.scan.scanned_file.LONGEST_LINE", 5_000_000)
    first, *rest = SESSION.read_bytes().splitlines(keepends=True)
    long = b'{"type": "user", "x": "' + b"x" * 6_000_000 + b'"}\n'
    path = tmp_path / "session.jsonl"
    path.write_bytes(first + long + b'{"type": "user", broken\n\n\0\0\n' + b"".join(rest) + b'{"type": "assis')
    (result,) = read_file(path)
    damage = result.damage
    assert (damage.damaged_lines, damage.long_lines, damage.is_last_line_incomplete) == (1, 1, True)
    (whole,) = read_file(SESSION)
    assert [call.key for turn in result.turns for call in turn.calls] == [
        call.key for turn in whole.turns for call in turn.calls
    ]


@pytest.mark.parametrize("size", [1, 2, 9, 20])
def test_a_torn_line_in_the_middle_makes_the_result_uncertain(size: int, tmp_path: Path) -> None:
    first, second, *rest = SESSION.read_bytes().splitlines(keepends=True)
    path = tmp_path / "session.jsonl"
    for torn in (second[:size] + b"\n", second[-size - 1 :], b" " + second[:size] + b" \r\n"):
        assert b"assistant" not in torn  # nothing says that it matters
        path.write_bytes(first + torn + b"".join(rest))
        found = scan([path]).as_json()
        assert (found["files"]["damaged_lines"], found["certain"]) == (1, False)


@pytest.mark.parametrize("blank", [b"\n", b" \t\r\n", b"\0\0\n", b' {"type": "other"} \r\n', b'\xef\xbb\xbf{"a": 1}\n'])
def test_blank_lines_and_other_objects_are_no_damage(blank: bytes, tmp_path: Path) -> None:
    first, *rest = SESSION.read_bytes().splitlines(keepends=True)
    path = tmp_path / "session.jsonl"
    path.write_bytes(first + blank + b"".join(rest))
    found = scan([path]).as_json()
    assert (found["files"]["damaged_lines"], found["certain"]) == (0, True)


@pytest.mark.parametrize("damaged", [b'half of a line"}', b'{"type": "user", "message', b"\xff\xfe\0", b""])
def test_a_damaged_first_line_loses_only_itself(damaged: bytes, tmp_path: Path) -> None:
    (tmp_path / "session").write_bytes(damaged + b"\n" + SESSION.read_bytes())
    (result,) = read_file(tmp_path / "session")
    assert (result.source, len(result.turns[0].calls)) == ("claude_code", 4)


def test_a_truncated_zip_file_is_reported_as_damaged(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "sessions.zip", "w") as archive:
        for number in range(3):
            archive.writestr(f"{number}.jsonl", SESSION.read_bytes())
        archive.writestr("notes.txt", "hello")
    found = scan([tmp_path / "sessions.zip"]).as_json()["files"]
    assert (found["read"], [Path(name).name for name in found["unknown"]]) == (3, ["sessions.zip!notes.txt"])
    data = (tmp_path / "sessions.zip").read_bytes()
    for size in (100, len(data) // 2, len(data) - 10):
        (tmp_path / "cut.zip").write_bytes(data[:size])
        assert "damaged" in scan([tmp_path / "cut.zip"]).as_json()["files"]["damaged"][str(tmp_path / "cut.zip")]


def test_a_truncated_json_value_is_reported_as_damaged(tmp_path: Path) -> None:
    request = json.loads((HERE / "otlp" / "of-another-instrumentation" / "traces.jsonl").read_text(encoding="utf-8"))
    for indent in (None, 1):
        data = json.dumps(request, indent=indent)
        (tmp_path / "whole.json").write_text(data, encoding="utf-8")
        assert scan([tmp_path / "whole.json"]).as_json()["total"]["turns"] == 4
        (tmp_path / "cut.json").write_text(data[: len(data) // 2], encoding="utf-8")
        assert scan([tmp_path / "cut.json"]).as_json()["files"]["damaged"].keys() == {str(tmp_path / "cut.json")}


def test_a_forced_format_reads_members_too_and_whatever_else_it_is_given(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "sessions.zip", "w") as archive:
        archive.writestr("one", SESSION.read_bytes())
    (result,) = read_file(tmp_path / "sessions.zip", "claude_code")
    assert (result.source, len(result.turns)) == ("claude_code", 1)
    (other,) = read_file(HERE / "codex" / "expected.json", "claude_code")
    assert (other.source, other.turns) == ("claude_code", [])


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_shows_the_progress(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("endturn.scan.command._REDRAW_S", -1.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    run([SESSION])
    assert ("━ 1 of 1 files" in capsys.readouterr().err) is is_terminal


def spelled(value: object, *, reverse: bool, spaces: bool, escape: bool) -> str:
    """Write JSON differently: another order of keys, spaces, escaped letters."""
    match value:
        case dict():
            pairs = [
                f"{spelled(key, reverse=reverse, spaces=spaces, escape=escape)}{' : ' if spaces else ':'}"
                f"{spelled(inner, reverse=reverse, spaces=spaces, escape=escape)}"
                for key, inner in value.items()
            ]
            return "{" + (" , " if spaces else ",").join(reversed(pairs) if reverse else pairs) + "}"
        case list():
            return "[" + ",".join(spelled(e, reverse=reverse, spaces=spaces, escape=escape) for e in value) + "]"
        case str() if escape:
            return '"' + "".join(f"\\u{ord(letter):04x}" for letter in value if ord(letter) < 0xFFFF) + '"'
    return json.dumps(value)


@pytest.mark.parametrize(
    "case", [CASE, HERE / "codex" / "cut-by-max-output-tokens", HERE / "pi" / "cut-tool-call-was-run"]
)
@pytest.mark.parametrize("spelling", ["reverse", "spaces", "escape"])
def test_the_spelling_of_json_does_not_matter(case: Path, spelling: str, tmp_path: Path) -> None:
    (original,) = case.rglob("*.jsonl")
    ways = {name: name == spelling for name in ("reverse", "spaces", "escape")}
    lines = [spelled(json.loads(line), **ways) for line in original.read_text(encoding="utf-8").splitlines()]
    (tmp_path / "spelled").write_text("\r\n".join(lines) + "\r\n", encoding="utf-8")
    assert figures(scan([tmp_path / "spelled"])) == figures(scan([original]))


def test_results_before_ctrl_c_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_bytes(SESSION.read_bytes())
    read = 0

    def progress(files: int, all_files: int) -> None:
        nonlocal read
        read += bool(files)
        if read == 2 and files:
            raise KeyboardInterrupt

    found = scan([tmp_path], progress=progress)
    assert found.is_interrupted
    assert (len(found.results), len(found.turns)) == (2, 1)
    figures_of_all = found.as_json()
    files = figures_of_all["files"]
    assert (figures_of_all["certain"], files["complete"], files["unread"]) == (False, False, 1)
    assert "read until then; 1 file left." in text_of(figures_of_all)


def test_a_report_of_an_interrupted_scan_says_how_many_files_are_left(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    from endturn.ui.past_sessions import HtmlReport

    for number in range(3):
        (tmp_path / f"{number}.jsonl").write_bytes(SESSION.read_bytes())

    def progress(files: int, all_files: int) -> None:
        if files:
            raise KeyboardInterrupt

    found = scan([tmp_path], progress=progress)
    HtmlReport(tmp_path / "past.html")(found, found.as_json())
    page = (tmp_path / "past.html").read_text(encoding="utf-8")
    assert "Ctrl-C ended the scan; 2 files were left." in page


def test_ctrl_c_before_the_files_are_listed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("endturn.scan.command.Discovery.files", interrupt)
    found = scan([tmp_path]).as_json()
    assert (found["certain"], found["files"]["complete"], found["files"]["unread"]) == (False, False, None)
    assert "they were not listed yet" in text_of(found)


# --- The command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("condition", "status"),
    [
        ("truncation > 1%", 1),
        ("unfinished > 1", 0),
        ("truncation_without_continuation >= 100%", 1),
        ("withheld > 0", 0),
    ],
)
def test_a_condition_decides_the_exit_status(condition: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([SESSION], fail_on=[condition]) == status
    assert ("FAILED" if status else "passed") in capsys.readouterr().out


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"type": "user", "sessionId": "s", "uuid": "u", "parentUuid": null}\n{"type": "user", half\n{}\n',
        b'{"type": "user", "message',
        zipfile.ZIP_DEFLATED.to_bytes() + b"PK\x03\x04",
    ],
    ids=["a damaged line", "half a record", "an unknown file"],
)
def test_a_condition_does_not_pass_on_a_part_of_the_files(
    damaged: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged").write_bytes(damaged)
    is_unknown = b"{" not in damaged  # what is no session is no part of the sessions
    assert run([SESSION, tmp_path], fail_on=["withheld > 0"]) == (0 if is_unknown else 3)
    assert ("UNCERTAIN: withheld > 0" in capsys.readouterr().out) is not is_unknown
    assert run([SESSION, tmp_path], fail_on=["withheld > 0", "truncation > 1%"]) == 1
    assert run([SESSION, tmp_path]) == 0


def test_a_session_that_is_being_written_is_not_damaged(tmp_path: Path) -> None:
    (tmp_path / "session").write_bytes(SESSION.read_bytes() + b'{"type": "assis')
    assert run([tmp_path], fail_on=["withheld > 0"]) == 0


def test_without_a_recorded_reason_a_condition_is_not_passed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([HERE / "codex" / "version-0.100.0-whole"], fail_on=["truncation > 1%"]) == 3
    assert "UNCERTAIN: truncation > 1% (it is unknown)\nUNCERTAIN: no stop reason is recorded." in (
        capsys.readouterr().out
    )


def test_a_report_lists_uncertain_results(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    from endturn.ui.past_sessions import HtmlReport

    (tmp_path / "half.json").write_bytes(b'{"type": "user", "message')
    report = tmp_path / "past.html"
    assert run([SESSION, tmp_path / "half.json"], fail_on=["withheld > 0"], outputs=[HtmlReport(report)]) == 3
    page = " ".join(report.read_text(encoding="utf-8").split())
    assert "Uncertain</b> <code>withheld &gt; 0</code>" in page
    assert "A part of the files could not be read" in page
    assert "it begins like JSON, and is damaged" in page


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"since": "a month"}, "30d"),
        ({"format_": "claude"}, "claude_code"),
        ({"fail_on": ["capped > 0"]}, "files do not hold 'capped'"),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_do(options: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run([SESSION], **options)  # type: ignore[arg-type]


def test_older_turns_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert scan([CASE], since_ns=time_ns("2026-11-28T11:42:00Z")).as_json()["total"]["turns"] == 1
    assert scan([CASE], since_ns=time_ns("2026-11-28T11:43:00Z")).as_json()["total"]["turns"] == 0
    assert run([CASE], since="50w", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["files"]["read"] == 1


def test_turns_that_since_excludes_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([CASE], since="1m") == 0
    printed = capsys.readouterr().out
    assert "No model calls since then: all 4 began before --since." in printed
    assert "1 older turn left out by --since." in printed
    found = scan([CASE], since_ns=time_ns("2026-11-28T11:43:00Z")).as_json()
    assert (found["older_turns"], found["older_calls"]) == (1, 4)


@pytest.mark.parametrize("arguments", [[""], ["sessions", ""]])
def test_an_empty_path_is_not_the_current_folder(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from endturn.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["scan", *arguments])
    assert ended.value.code == 2
    assert "a path is empty; pass '.' for the current folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("path", "problem"), [("-", "standard output has the result as text; pass the name of a file"), ("", "is empty")]
)
def test_a_report_is_a_file(path: str, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    from endturn.cli import main

    with pytest.raises(SystemExit) as ended:
        main(["scan", str(SESSION), "--report", path])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("condition", ["truncation > 0.99", "truncation > 99%", "truncated_turns >= 1"])
def test_shares_below_one_and_counts_need_no_percent_sign(condition: str) -> None:
    assert run([SESSION], fail_on=[condition]) == 1


@pytest.mark.parametrize(("options", "has_text"), [([], False), (["--content"], True), (["--no-content"], False)])
def test_a_report_has_answer_texts_only_if_requested(
    options: list[str], has_text: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("jinja2")
    from endturn.cli import main

    message = {"id": "m1", "model": "m", "stop_reason": "max_tokens", "content": [{"type": "text", "text": "<i>deep"}]}
    about = {"sessionId": "s", "parentUuid": None}
    lines = [
        {"type": "user", "uuid": "u", "message": {"role": "user", "content": "secret"}} | about,
        {"type": "assistant", "uuid": "a", "message": message} | about,
    ]
    (tmp_path / "session").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert main(["scan", str(tmp_path), "--report", str(tmp_path / "past.html"), *options]) == 0
    page = (tmp_path / "past.html").read_text(encoding="utf-8")
    assert ("&lt;i&gt;deep" in page) is has_text
    assert "deep" not in capsys.readouterr().out
    assert "secret" not in page


def test_the_text_begins_with_the_turns_to_check(capsys: pytest.CaptureFixture[str]) -> None:
    run([HERE])
    text = capsys.readouterr().out
    places = [text.index(part) for part in ("that were run", "left unfinished:", "responses by reason", "To change")]
    assert places == sorted(places)
    assert "write a long text" not in text


def test_durations_and_moments() -> None:
    assert duration_ns("1.5h") == 5_400_000_000_000
    with pytest.raises(UsageError, match="must be a number"):
        duration_ns("9" * 400 + "d")
    expected = 1_795_866_141_555_000_000
    for value in ("2026-11-28T11:42:21.555Z", "2026-11-28T12:42:21.555+01:00", 1795866141555, 1795866141.555, expected):
        assert abs((time_ns(value) or 0) - expected) < 1000
    none = ("2026-11-28T11:42:21", "soon", None, True, 12, -1, float("nan"), 9e18, 5e10, 10**400)
    early_and_late = ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-14:00")
    assert [value for value in (*none, *early_and_late) if time_ns(value) is not None] == []


@pytest.mark.parametrize("half", [rb"\ud83d", rb"\\\ud83d", rb"\uDE00", rb"\ud83d\u0041", b"\xe9", b"\xf0\x9f\x98"])
def test_half_a_character_loses_no_line(half: bytes, tmp_path: Path) -> None:
    # tools cut text by its length: within a pair of JavaScript's, or within UTF-8
    data = SESSION.read_bytes().replace(b'"stop_reason":"max_tokens"', b'"x":"%s","stop_reason":"max_tokens"' % half)
    path = tmp_path / "session.jsonl"
    path.write_bytes(data)
    assert data.count(half) == 4
    assert figures(scan([path])) == figures(scan([SESSION]))


def test_complete_characters_stay_next_to_half_ones(tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    project = rb'"cwd":"\ud83d\ude00 \\ud83d \u00e9 \ud83d"'
    path.write_bytes(SESSION.read_bytes().replace(b'"cwd":"/home/user/proj"', project))
    assert scan([path]).turns[0].past.project == "\U0001f600 \\ud83d é \ufffd"


def test_names_cannot_control_the_terminal_and_are_always_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = SESSION.read_bytes().replace(b"/home/user/proj", rb"/x\u001b[31m\nFAILED: y")
    (tmp_path / "session.jsonl").write_bytes(data)
    (tmp_path / os.fsdecode(b"\xff\n.txt")).write_bytes(b"hello")
    assert run([tmp_path]) == 0
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert "\nFAILED" not in printed
    assert printed.encode()


def test_a_report_never_replaces_a_file_that_was_read(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    from endturn.ui.past_sessions import HtmlReport

    session, other = tmp_path / "session.jsonl", tmp_path / "past.html"
    session.write_bytes(SESSION.read_bytes())
    other.write_text("an earlier report")
    with pytest.raises(UsageError, match="one of the files that were read"):
        run([tmp_path], outputs=[HtmlReport(session)])
    assert session.read_bytes() == SESSION.read_bytes()
    (tmp_path / os.fsdecode(b"\xff.jsonl")).write_bytes(SESSION.read_bytes()[:300])
    assert run([tmp_path], outputs=[HtmlReport(other)]) == 0
    assert other.read_text().startswith("<!doctype html>")


def test_closed_input_and_a_missing_home_raise_clear_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert scan([Path("-")]).as_json()["files"]["unreadable"] == {"standard input": "it is closed"}

    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="no sessions"):
        run([])


def test_a_file_that_cannot_be_decompressed_here_stops_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    cold = tmp_path / "cold.jsonl.zst"
    cold.write_bytes(b"\x28\xb5\x2f\xfd, compressed")
    (tmp_path / "session.jsonl").write_bytes(SESSION.read_bytes())
    with zipfile.ZipFile(tmp_path / "sessions.zip", "w") as archive:
        archive.write(cold, cold.name)
        archive.write(SESSION, "session.jsonl")
    found = scan([tmp_path]).as_json()
    assert (found["total"]["truncated_turns"], found["files"]["read"]) == (1, 2)
    assert list(found["files"]["unreadable"]) == [str(cold), f"{tmp_path / 'sessions.zip'}!{cold.name}"]
    assert "endturn[scan]" in found["files"]["unreadable"][str(cold)]
