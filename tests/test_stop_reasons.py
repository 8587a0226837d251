"""The vocabulary: every row of the evidence is in the table, and the table is what everything is read by and explained.

A wrong row is refused by file and line.
"""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pytest

import endturn
from endturn import reasons, stop_reasons
from endturn.formats import FORMATS, Context, dialect_in, format_of
from endturn.providers import PROVIDERS
from endturn.stop import TRUNCATED, Resume, Row, Stop, StopReason, find_row, find_stop, raw_text

DATA = Path(__file__).parent / "data"
EVIDENCE = list(csv.DictReader((DATA / "stop_reasons.tsv").read_text().splitlines(), delimiter="\t"))
TABLE = {(entry.api.name, entry.raw): entry for entry in reasons.table()}
CHAT = format_of("openai_chat")


# --- The table ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(2)
def test_every_row_of_the_evidence_is_in_the_table() -> None:
    """What was read in the providers' own sources is what the table says, and where it stands."""
    kept = ("api", "raw", "normalized", "incomplete", "resume", "detail")
    for row in EVIDENCE:
        printed = TABLE[row["api"], row["raw"]].as_json()
        assert {name: printed[name] for name in kept} == {name: row[name] for name in kept}
    assert len(reasons.apis()) >= 20
    assert all(entry.api.path and entry.api.stream_path and entry.row.source for entry in reasons.table())


def test_every_format_and_meaning_is_spoken_of() -> None:
    """Each format has rows; each of our words and each way of resuming has its sentence. Only clean reasons are
    complete; what is complete has nothing to resume.
    """
    assert {name for entry in reasons.table() for name, _ in entry.formats} == set(FORMATS)
    assert set(reasons.MEANING) == set(StopReason)
    assert set(reasons.RESUMES) == set(Resume)
    for entry in reasons.table():
        for name, dialect in entry.formats:
            row = format_of(name).reasons[dialect][entry.raw]
            assert row == entry.row
            # A refusal is whole in some APIs, and cut short in others; what tells nothing does not tell that either.
            if row.terminal and row.reason not in (StopReason.UNKNOWN, StopReason.REFUSED):
                assert row.incomplete == (row.reason not in (StopReason.END_TURN, StopReason.TOOL_CALL)), entry
            assert row.incomplete or row.resume is Resume.NONE, entry


@pytest.mark.parametrize("provider", PROVIDERS)
def test_normalize_says_what_a_provider_s_client_says(provider: str) -> None:
    """Every row of the table that our client of the provider reads."""
    speaks = format_of(PROVIDERS[provider].format)
    for raw, row in speaks.reasons[dialect_in(speaks, provider)].items():
        stop = endturn.normalize(raw, provider=provider)
        if raw and row.terminal:
            assert (stop.reason, stop.resume, stop.incomplete) == (row.reason, row.resume, row.incomplete)


UPSTREAM = ("anthropic.messages", "google.generateContent", "bedrock.converse", "cohere.v2", "cohere.v1")
NATIVE = [row for row in EVIDENCE if row["api"] in UPSTREAM]


@pytest.mark.parametrize("dialect", ["openrouter", "litellm", "a gateway nobody knows"])
@pytest.mark.parametrize("row", NATIVE, ids=[f"{row['api']}-{row['raw']}" for row in NATIVE])
def test_a_gateway_passes_on_every_word_of_the_model_behind_it(row: dict[str, str], dialect: str) -> None:
    """Each upstream's word means through a gateway what it means at home; only its own way of resuming is left out."""
    native = {"native_finish_reason": row["raw"]}
    choice = {"message": {"content": "x"}, "finish_reason": "stop", "provider_specific_fields": native}
    stop = CHAT.decode({"choices": [choice]}, ctx=Context(dialect=dialect)).stop
    assert (stop.reason, stop.raw) == (row["normalized"], row["raw"])
    assert stop.incomplete is (row["incomplete"] == "yes")
    assert stop.resume in {row["resume"], Resume.NONE} - {Resume.NATIVE_TOKEN, Resume.RESEND_UNCHANGED, Resume.SERVER}


@pytest.mark.parametrize("name", ["openai_chat", "completions", "bedrock_invoke"])
def test_no_word_means_two_things(name: str) -> None:
    """Of all dialects' words, none has two meanings: a reply of nobody's in particular can be judged by their union.

    Of Bedrock's families some do: under "" stands what no two of them dispute.
    """
    every = format_of(name).reasons[""] if name == "bedrock_invoke" else stop_reasons.rows_of(name, "never heard of")
    assert {"end_turn", "MAX_TOKENS"} <= every.keys() or name != "bedrock_invoke"
    for rows in format_of(name).reasons.values():
        for raw in rows.keys() & every.keys() if name == "bedrock_invoke" else rows:
            assert (every[raw].reason, every[raw].incomplete) == (rows[raw].reason, rows[raw].incomplete), raw
            assert name != "openai_chat" or every[raw].detail == rows[raw].detail, raw


def test_a_reader_that_has_read_enough(tmp_path: Path) -> None:
    """`endturn reasons | head -1` ends quietly."""
    command = f"'{sys.executable}' -m endturn.cli reasons --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


# --- Stops ------------------------------------------------------------------------------------------------------------


class Reason(Enum):
    """As google-genai and others hold their reasons."""

    LENGTH = "length"
    BLANK = " "


def test_truncated_is_three_reasons() -> None:
    """Every metric, attribute, alert and sampling rule stands on this set."""
    assert {reason for reason in StopReason if Stop(reason).truncated} == TRUNCATED
    assert sorted(TRUNCATED) == ["context_window_exceeded", "max_tokens", "missing"]


def test_long_nonsense_is_looked_up_in_reasonable_time() -> None:
    """A value of 100 000 characters costs no more than a few passes over it."""
    assert find_row("ab" * 50_000, CHAT.reasons[""]) is None


@pytest.mark.behaviour(1)
@pytest.mark.parametrize(
    "raw", [Reason.LENGTH, *(SimpleNamespace(**{at: "length"}) for at in ("value", "type", "reason"))]
)
def test_a_raw_value_may_be_an_object(raw: object) -> None:
    """As SDKs hold their reasons; what JSON can hold is in tests/functions."""
    stop = find_stop(raw, CHAT.reasons[""])
    assert (stop.reason, stop.raw, raw_text(raw)) == (StopReason.MAX_TOKENS, "length", "length")
    assert raw_text(Reason.BLANK) is None


# --- The files -----------------------------------------------------------------------------------------------------

HEAD = "format\tdialect\traw\tnormalized\tincomplete\tresume\tdetail\tsource\n"
DIALECTS = "format\tdialect\tincludes\tapi\tpath\tstream_path\n"
HOME = "acme\t\t\tacme.chat\tbody\tstream\n"


def write(folder: Path, dialects: str, rows: str) -> Path:
    (folder / "dialects.tsv").write_text(DIALECTS + dialects, encoding="utf-8")
    (folder / "stop_reasons.tsv").write_text(HEAD + rows, encoding="utf-8")
    return folder


def test_a_dialect_includes_the_rows_of_others(tmp_path: Path) -> None:
    """They come first; of one value the dialect's own row counts, else the first. Paths left out are the home's."""
    dialects = HOME + "acme\tplain\tacme\tplain.chat\nacme\town\tacme\nacme\tevery\tacme/*\nacme\tboth\tacme/own\n"
    rows = (
        "# A comment, and an empty line.\n\nacme\t\tend\tend_turn\tno\tnone\t\tthe page\n"
        "acme\town\tend\trefused\tyes\tnone\tlate\tanother page\nacme\town\twait\tskip\tno\tnone\t\tanother page\n"
    )
    found = stop_reasons.read(write(tmp_path, dialects, rows))
    end = Row(StopReason.END_TURN, False, Resume.NONE, None, "the page")
    late = Row(StopReason.REFUSED, True, Resume.NONE, "late", "another page")
    wait = Row(StopReason.MISSING, source="another page", terminal=False)
    assert found.rows["acme"] == {
        "": {"end": end},
        "plain": {"end": end},
        "own": {"end": late, "wait": wait},
        "every": {"end": end, "wait": wait},
        "both": {"end": late, "wait": wait},
    }
    assert found.apis["acme"] == {
        "": stop_reasons.Api("acme.chat", "body", "stream"),
        "plain": stop_reasons.Api("plain.chat", "body", "stream"),
    }


WRONG = [json.loads(line) for line in (DATA / "wrong_stop_reasons.jsonl").read_text("utf-8").splitlines()]
"""What stands in the files, and what is said of it."""


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong["says"])
def test_a_wrong_line_is_refused(tmp_path: Path, wrong: dict[str, str]) -> None:
    """It is an error at once, which says where."""
    dialects = wrong["dialects"].replace("<home>", HOME)
    with pytest.raises(ValueError, match=re.escape(wrong["says"])):
        stop_reasons.read(write(tmp_path, dialects, wrong["rows"]))
