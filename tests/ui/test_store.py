"""The store: what a series adds up to, a crash, a file that is another's, and what is forgotten."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pytest

from endturn.errors import UsageError
from endturn.telemetry import schema
from endturn.telemetry.indicators import INDICATORS
from endturn.ui import otlp, report, server
from endturn.ui.rows import Batch
from endturn.ui.search import find_turns
from endturn.ui.store import DAY_NS, Store
from tests.support.processes import eventually, free_port
from tests.ui.support import SECOND, TRUNCATED, Served, batch, log, numbers, point, said, slow, span, write, written

NOW = point(schema.TURNS, 0).at_ns
TURNS = INDICATORS["turns"].count


def test_both_generations_of_the_conventions_are_read(page: Served) -> None:
    """An emitter may say input tokens by a label or by the metric's name."""
    counts = (10.0, *(0.0,) * 2, 1.0, *(0.0,) * 12)
    write(page.store, point(schema.TOKEN_USAGE, counts, NOW, **said(schema.TOKEN_TYPE, "input")))
    write(page.store, point(schema.INFERENCE_INPUT, counts, NOW))
    by_type = numbers(page.store).buckets(schema.TOKEN_USAGE, (schema.TOKEN_TYPE.label,))
    assert {labels: sum(each.values()) for labels, each in by_type.items()} == {("input",): 2.0}


def test_a_histogram_with_other_bounds_begins_anew(page: Served) -> None:
    """What was counted within the bounds before is still counted and drawn."""
    whole = (9.0, *(0.0,) * 3, 2.0, *(0.0,) * (len(schema.TURN_DURATION.buckets) - 3))
    old = point(schema.TURN_DURATION, whole, NOW - 2 * SECOND, started_ns=NOW - 9 * SECOND)
    write(page.store, old, replace(old, at_ns=NOW - SECOND, bounds=tuple(bound * 3 for bound in old.bounds)))
    assert sum(numbers(page.store).buckets(schema.TURN_DURATION)[()].values()) == 4
    assert page.ask("/").status == 200


# --- The file -----------------------------------------------------------------------------------------------------


def test_a_file_keeps_what_was_told(tmp_path: Path) -> None:
    """And where each series stood: nothing is counted twice after a restart."""
    for value, at in ((3, NOW - SECOND), (5, NOW)):
        with closing(Store(tmp_path / "page.duckdb")) as store:
            write(store, point(schema.TURNS, value, at, started_ns=NOW - 9 * SECOND, **TRUNCATED))
            assert numbers(store).total(TURNS) == value


@pytest.mark.parametrize("told", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda told: told.name)
def test_what_was_answered_is_kept_however_the_page_ends(tmp_path: Path, told: signal.Signals) -> None:
    """A crash loses nothing. Ctrl-C, or who runs it as a service, ends it with status 0, though a page is open; the
    file is whole then and let go of."""
    path, clean = tmp_path / "page.duckdb", told is not signal.SIGKILL
    command = [sys.executable, "-m", "endturn", "ui", "--port", "0", "--no-open", "--file", str(path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process,
        closing(Store()) as none,
    ):
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found
        page = Served(found[0], none)
        for n in range(1, 31):
            told_of = span(spanId=f"{n:016x}", attributes={"endturn.turn.id": f"t{n}"})
            assert page.post("traces", told_of).status == 200
        with closing(http.client.HTTPConnection(urlsplit(page.url).netloc, timeout=20)) as open_page:
            open_page.request("GET", "/live")
            assert open_page.getresponse().readline().startswith(b"retry:")
            process.send_signal(told)
            _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0 if clean else -told, "")
    assert not (clean and path.with_suffix(".duckdb.wal").exists())
    with closing(Store(path)) as store:
        counts = "(SELECT count(*) FROM spans), (SELECT count(*) FROM turns)"
        assert store.read_tuples(f"SELECT {counts}") == [(30, 30)]


def test_nothing_is_stored_by_half(page: Served) -> None:
    """Where one row of a batch cannot be written, none is; the next batch is, and no series has moved."""
    points = [point(schema.TURNS, 4, NOW - SECOND, **TRUNCATED)]
    with pytest.raises(Exception, match="soon"):
        page.store.write(Batch(spans=batch(span(), start_ns="soon").spans, points=points))
    assert page.store.read_tuples("SELECT (SELECT count(*) FROM spans) + (SELECT count(*) FROM increments)") == [(0,)]
    page.store.write(Batch(spans=batch(span()).spans, points=points))
    assert numbers(page.store).total(TURNS) == 4


FULL = """
import resource, signal, sys
from pathlib import Path
from endturn.ui import server
from endturn.ui.store import Store
from tests.ui.support import Served, span
def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store(Path(sys.argv[1]))
with server.serving(store, server.listen("127.0.0.1", 0)) as url:
    page = Served(url, store)
    spans = [span(spanId=f"{n:016x}", attributes={"long": "x" * 100_000}) for n in range(3)]
    room(20_000)
    print(page.post("traces", spans[0]).text)
    print(page.ask("/").status)
    room(resource.RLIM_INFINITY)
    print(page.post("traces", spans[0]).status, store.read_tuples("SELECT count(*) FROM spans"))
    room(30_000)
    try:
        store.read_tuples("CHECKPOINT")
    except Exception as error:
        print(type(error).__name__, page.ask("/").status)
    room(resource.RLIM_INFINITY)
    print([page.post("traces", spans[1]).status for _ in range(2)], store.read_tuples("SELECT count(*) FROM spans"))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no limit on a file's size there")
def test_a_full_disk_is_told_and_survived(tmp_path: Path) -> None:
    """503 with the reason, so that the sender tries again; where DuckDB ends with it, its file is opened again."""
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "page.duckdb"], capture_output=True, text=True, timeout=60, check=True
    )
    full, *later = done.stdout.splitlines()
    assert "Could not write file" in full
    assert later == ["200", "200 [(1,)]", "FatalException 503", "[503, 200] [(2,)]"]


def test_a_busy_port_is_told_with_who_has_it(page: Served) -> None:
    """Another page by its id; another program by its name and id, where the system tells."""
    with pytest.raises(UsageError, match=rf"an endturn page already runs at {page.url} \(pid {os.getpid()}\)"):
        server.listen("127.0.0.1", int(page.url.rpartition(":")[2]))
    taken = free_port()
    code = "import socket, sys; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print(flush=True); input()"
    command = [sys.executable, "-c", code, str(taken)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(UsageError, match="cannot be used: Address already in use") as refused:
            server.listen("127.0.0.1", taken)
        if sys.platform == "linux":
            assert f"(pid {other.pid})" in str(refused.value)
        other.kill()


def test_a_file_of_the_version_before_is_altered(tmp_path: Path) -> None:
    """What it keeps stays, and its conversations and responses are found by their ids."""
    path = tmp_path / "page.duckdb"
    with closing(Store(path)) as store:
        about = {"gen_ai.conversation.id": "thread 7", "gen_ai.response.id": "chatcmpl-1"}
        store.write(batch(span(attributes=about)))
    with duckdb.connect(str(path)) as old:
        for statement in (
            "ALTER TABLE spans DROP COLUMN conversation", "ALTER TABLE spans DROP COLUMN response_id",
            "DROP TABLE texts", "UPDATE meta SET version = 3",
        ):  # fmt: skip
            old.execute(statement)
    more = batch(span(spanId="ab" * 8))
    for _ in range(2):
        with closing(Store(path)) as store:
            assert find_turns(store, "thread 7") == find_turns(store, "chatcmpl-1") == ["t1"]
            assert store.read_tuples("SELECT count(*) FROM texts") == [(0,)]
            store.write(more)
            assert store.read_tuples("SELECT count(*) FROM spans") == [(2,)]


def test_another_s_file_is_refused(tmp_path: Path) -> None:
    """One that a second process has open, with its id; one with a table of the same name, which is not written to."""
    held, path, text = tmp_path / "held.duckdb", tmp_path / "page.duckdb", tmp_path / "text"
    command = [sys.executable, "-m", "endturn", "ui", "--port", "0", "--file", str(held)]
    with closing(Store(held)):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert re.search(rf"is open in another process.*\(pid {os.getpid()}\)", done.stderr, re.DOTALL)
    with duckdb.connect(str(path)) as other:
        other.execute("CREATE TABLE meta (key VARCHAR)")
    text.write_text("no database")
    for file, says in ((path, "no telemetry of this version"), (text, "cannot be used")):
        with pytest.raises(UsageError, match=says):
            Store(file)
    assert text.read_text() == "no database"


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with some blocks of telemetry in it."""
    path = tmp_path_factory.mktemp("kept") / "page.duckdb"
    with closing(Store(path)) as store:
        store.write(batch(span(attributes={"long": "x" * 500}), count=4000, turn_id="{n:016x}"))
        store.write(Batch(points=[point(schema.TURNS, n, instance=str(n), **TRUNCATED) for n in range(500)]))
    return path


def damaged(kept: Path, folder: Path, how: str) -> Path:
    """A copy of the file: overwritten at some place, cut off, or with a log beside it that is none."""
    path, (what, part) = folder / "page.duckdb", how.split()
    content = bytearray(kept.read_bytes())
    at = int(len(content) * float(part))
    if what == "overwritten":
        content[at : at + 64] = b"\xa5" * 64
    path.write_bytes(content[:at] if what == "cut" else content)
    if what == "logged":
        path.with_suffix(".duckdb.wal").write_bytes(b"\xa5" * at)
    return path


DAMAGED = ["overwritten 0.0", "overwritten 0.5", "cut 0.3", "logged 0.1"]
MORE_DAMAGED = [f"overwritten {n / 8}" for n in (1, 2, 3, 5, 6, 7)] + ["cut 0.001", "cut 0.95"]
ASKED = ("/", "/turns?range=all", "/turns/0000000000000001", "/reasons", "/alerts", "/export/calls.csv?range=all")


@pytest.mark.parametrize("how", [*DAMAGED, *slow(MORE_DAMAGED)])
def test_a_damaged_file_is_told(kept: Path, tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    """At opening, while pages are asked for and telemetry comes, and by the report: a sentence, never a traceback."""
    path, errors = damaged(kept, tmp_path, how), []
    try:
        with closing(Store(path)) as store, server.serving(store, server.listen("127.0.0.1", 0)) as url:
            answers = [Served(url, store).ask(each) for each in ASKED]
            answers += [Served(url, store).post("traces", span())]
        assert {answer.status for answer in answers} <= {200, 503}
        assert all("cannot be" in answer.text for answer in answers if answer.status == 503)
    except UsageError as error:
        errors.append(str(error))
    damaged(kept, tmp_path, how)
    try:
        assert report.run([], file=path, format_="md", fail_on=[]) == 0
    except UsageError as error:
        errors.append(str(error))
    says = rf"{re.escape(str(path))} cannot be used: .*\n.*restore a copy"
    assert [error for error in errors if not re.match(says, error)] == []
    assert "Traceback" not in "".join(capsys.readouterr())


def test_a_command_ends_with_a_sentence_where_its_file_is_damaged(kept: Path, tmp_path: Path) -> None:
    """And with the status of a command that cannot be carried out."""
    for how in ("overwritten 0.000001", "cut 0.3"):
        path = damaged(kept, tmp_path, how)
        for words in (["ui", "--port", "0", "--no-open"], ["report"]):
            command = [sys.executable, "-m", "endturn", *words, "--file", str(path)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 2)
            assert re.match(r"endturn: .* cannot be used: .*\n .*restore a copy", done.stderr)


# --- What is forgotten --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [{"keep_ns": DAY_NS // 24}, {"most_bytes": 9}], ids=["age", "size"])
def test_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch, limits: dict[str, Any]) -> None:
    """What is older than is asked for; and where it is too much, the oldest tenth."""
    monkeypatch.setattr("endturn.ui.store.SWEEP_S", 0.01)
    monkeypatch.setattr(Store, "size", lambda store: store.read_tuples("SELECT count(*) FROM spans")[0][0])
    with closing(Store(**limits)) as store:
        store.write(batch(span(), count=10, turn_id="t{n}", start_ns=lambda n: NOW - (10 - n) * DAY_NS // 48))
        ids = "list(turn_id ORDER BY turn_id) FROM"
        left = f"SELECT (SELECT {ids} turns), (SELECT {ids} spans)"
        eventually(lambda: "t0" not in store.read_tuples(left)[0][0], what="forgetting")
        ((turns, spans),) = store.read_tuples(left)
        assert (turns, turns[-1]) == (spans, "t9")


def test_where_there_are_but_events_they_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent whose spans are not exported fills the disk no less."""
    monkeypatch.setattr("endturn.ui.store.SWEEP_S", 0.0)
    with closing(Store(most_bytes=1)) as store:
        for number in range(10):
            store.write(otlp.parse_request("logs", otlp.JSON, written(log("endturn.stopped", n=number))))
        assert store.read_tuples("SELECT count(*) FROM events")[0][0] < 10


def test_files_of_otlp_json_are_read(page: Served, tmp_path: Path) -> None:
    """A request a line, or one over many lines; gzipped or not; what is none is refused by its line."""
    lines, whole, cut = tmp_path / "traces.jsonl", tmp_path / "one.json.gz", tmp_path / "cut.json.gz"
    lines.write_text("\n".join(json.dumps(span(spanId=f"{n:016x}")) for n in range(3)) + "\n\n")
    whole.write_bytes(gzip.compress(json.dumps(span(spanId="ff" * 8), indent=1).encode()))
    assert str(otlp.load(page.store, lines)) == "3 spans, 0 events, 0 metric points"
    assert str(otlp.load(page.store, whole)) == "1 spans, 0 events, 0 metric points"
    cut.write_bytes(whole.read_bytes()[:-20])
    lines.write_text(json.dumps(span()) + '\n{"a": 1}\n')
    for file, says in (
        (cut, r"cut\.json\.gz cannot be read"), (lines, "request 2: no resourceSpans"),
        (tmp_path / "none.jsonl", "cannot be read"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=says):
            otlp.load(page.store, file)
    assert page.store.read_tuples("SELECT count(*) FROM spans") == [(4,)]
