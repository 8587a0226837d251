"""The vocabulary: every row of the evidence is in the table, and all readers and explanations use the table.

A wrong row is rejected with its file and line.
"""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import SimpleNamespace

import pytest

import endturn
from endturn.formats import FORMATS, Context, dialect_in, format_of
from endturn.frameworks import lookup
from endturn.vocabulary import stop_reason_tables
from endturn.vocabulary.messages import ChatResponse
from endturn.vocabulary.providers import PROVIDERS
from endturn.vocabulary.stop import TRUNCATED, Resume, Row, Stop, StopReason, find_row, find_stop, raw_text
from endturn.vocabulary.tsv import package_data

DATA = Path(__file__).parents[1] / "data"
EVIDENCE = list(csv.DictReader((DATA / "stop_reasons.tsv").read_text().splitlines(), delimiter="\t"))
TABLE = {(entry.api.name, entry.raw): entry for entry in lookup.table()}
CHAT = format_of("openai_chat")


# --- The table ----------------------------------------------------------------------------------------------------


@pytest.mark.behaviour(2)
def test_every_row_of_the_evidence_is_in_the_table() -> None:
    """The table agrees with the providers' own sources in values and paths."""
    kept = ("api", "raw", "normalized", "incomplete", "resume", "detail")
    for row in EVIDENCE:
        printed = TABLE[row["api"], row["raw"]].as_json()
        assert {name: printed[name] for name in kept} == {name: row[name] for name in kept}
    assert len(lookup.apis()) >= 20
    assert all(entry.api.path and entry.api.stream_path and entry.row.source for entry in lookup.table())


def test_every_format_and_meaning_is_documented() -> None:
    """Each format has rows; each reason and each way of resuming has its sentence. Only clean reasons are complete, and
    complete answers have nothing to resume.
    """
    assert {name for entry in lookup.table() for name, _ in entry.formats} == set(FORMATS)
    assert set(lookup.MEANING) == set(StopReason)
    assert set(lookup.RESUMES) == set(Resume)
    for entry in lookup.table():
        for name, dialect in entry.formats:
            row = format_of(name).reasons[dialect][entry.raw]
            assert row == entry.row
            # A refusal is whole in some APIs, and cut short in others; what tells nothing does not tell that either.
            if row.terminal and row.reason not in (StopReason.UNKNOWN, StopReason.REFUSED):
                assert row.incomplete == (row.reason not in (StopReason.END_TURN, StopReason.TOOL_CALL)), entry
            assert row.incomplete or row.resume is Resume.NONE, entry


@pytest.mark.parametrize("provider", PROVIDERS)
def test_normalize_agrees_with_the_provider_s_client(provider: str) -> None:
    """Check every row of the table that our client of the provider reads."""
    speaks = format_of(PROVIDERS[provider].format)
    for raw, row in speaks.reasons[dialect_in(speaks, provider)].items():
        stop = endturn.normalize(raw, provider=provider)
        if raw and row.terminal:
            assert (stop.reason, stop.resume, stop.incomplete) == (row.reason, row.resume, row.incomplete)


UPSTREAM = ("anthropic.messages", "google.generateContent", "bedrock.converse", "cohere.v2", "cohere.v1")
NATIVE = [row for row in EVIDENCE if row["api"] in UPSTREAM]


@pytest.mark.parametrize("dialect", ["openrouter", "litellm", "a gateway nobody knows"])
@pytest.mark.parametrize("row", NATIVE, ids=[f"{row['api']}-{row['raw']}" for row in NATIVE])
def test_a_gateway_passes_on_every_stop_reason_of_its_model(row: dict[str, str], dialect: str) -> None:
    """An upstream's value has the same meaning through a gateway; only its own way of resuming is left out."""
    native = {"native_finish_reason": row["raw"]}
    choice = {"message": {"content": "x"}, "finish_reason": "stop", "provider_specific_fields": native}
    stop = CHAT.decode({"choices": [choice]}, ctx=Context(dialect=dialect)).stop
    assert (stop.reason, stop.raw) == (row["normalized"], row["raw"])
    assert stop.incomplete is (row["incomplete"] == "yes")
    assert stop.resume in {row["resume"], Resume.NONE} - {Resume.NATIVE_TOKEN, Resume.RESEND_UNCHANGED, Resume.SERVER}


@pytest.mark.parametrize("name", ["openai_chat", "completions", "bedrock_invoke"])
def test_no_raw_value_has_two_meanings(name: str) -> None:
    """No value has two meanings in all dialects, so replies of unknown servers can be read by their union.

    Values of Bedrock's families do: the table "" has those on which all families agree.
    """
    every = (
        format_of(name).reasons[""] if name == "bedrock_invoke" else stop_reason_tables.rows_of(name, "never heard of")
    )
    assert {"end_turn", "MAX_TOKENS"} <= every.keys() or name != "bedrock_invoke"
    for rows in format_of(name).reasons.values():
        for raw in rows.keys() & every.keys():
            assert (every[raw].reason, every[raw].incomplete) == (rows[raw].reason, rows[raw].incomplete), raw
            assert name != "openai_chat" or every[raw].detail == rows[raw].detail, raw


def test_the_printed_table_can_be_piped_to_head(tmp_path: Path) -> None:
    """`endturn reasons | head -1` ends quietly."""
    command = f"'{sys.executable}' -m endturn reasons --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


# --- Stops ------------------------------------------------------------------------------------------------------------


class Reason(Enum):
    """An enumeration like those of google-genai and others."""

    LENGTH = "length"
    BLANK = " "


def test_truncated_is_three_reasons() -> None:
    """Every metric, attribute, alert and sampling rule uses this set."""
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
    """SDKs hold reasons as enums and objects; test_stop.py has the values that JSON can hold."""
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
    """Included rows come first; the dialect's own row for a value wins, else the first.

    Missing paths are the format's own.
    """
    dialects = HOME + "acme\tplain\tacme\tplain.chat\nacme\town\tacme\t-\nacme\tboth\tacme/own\t-\n"
    rows = (
        "# A comment, and an empty line.\n\nacme\t\tend\tend_turn\tno\tnone\t\tthe page\n"
        "acme\town\tend\trefused\tyes\tnone\tlate\tanother page\nacme\town\twait\tskip\tno\tnone\t\tanother page\n"
    )
    found = stop_reason_tables.read_tables(write(tmp_path, dialects, rows))
    end = Row(StopReason.END_TURN, False, Resume.NONE, None, "the page")
    late = Row(StopReason.REFUSED, True, Resume.NONE, "late", "another page")
    wait = Row(StopReason.MISSING, source="another page", terminal=False)
    assert found.rows["acme"] == {
        "": {"end": end},
        "plain": {"end": end},
        "own": {"end": late, "wait": wait},
        "both": {"end": late, "wait": wait},
    }
    assert found.apis["acme"] == {
        "": stop_reason_tables.Api("acme.chat", "body", "stream"),
        "plain": stop_reason_tables.Api("plain.chat", "body", "stream"),
    }


PRIVATE = "openai_chat\tzai\tout_of_ink\terror\tyes\tnone\t\ta test\n"


def test_a_private_stop_reason_belongs_to_one_provider(tmp_path: Path) -> None:
    """A row without `shared` changes only its own dialect's table; no other table prints it.

    A reply in any format is read with its provider's values, and with no other provider's.
    """
    folder = Path(str(package_data()))
    dialects, rows = ((folder / name).read_text("utf-8") for name in ("dialects.tsv", "stop_reasons.tsv"))
    (tmp_path / "dialects.tsv").write_text(dialects, "utf-8")
    (tmp_path / "stop_reasons.tsv").write_text(rows + PRIVATE, "utf-8")
    before, after = stop_reason_tables.read_tables(folder), stop_reason_tables.read_tables(tmp_path)
    changed = {
        (name, dialect) for name in after.rows for dialect in after.rows[name]
        if after.rows[name][dialect] != before.rows[name][dialect]
    }  # fmt: skip
    assert changed == {("openai_chat", "zai")}
    assert after.shared == before.shared
    knows = {each for each in ALL_DIALECTS if "out_of_ink" in after.lookup(*each)}
    assert knows == {("openai_chat", "zai")}
    (tmp_path / "stop_reasons.tsv").write_text(rows + PRIVATE.rstrip() + "\tshared\n", "utf-8")
    marked = stop_reason_tables.read_tables(tmp_path)
    assert marked.rows == after.rows
    assert {each for each in ALL_DIALECTS if "out_of_ink" in marked.lookup(*each)} == {*ALL_DIALECTS}


ALL_DIALECTS = [(name, dialect) for name in FORMATS if name != "bedrock_invoke" for dialect in format_of(name).reasons]

# What compatible servers say, whichever format they speak, by their own documentation; z.ai's, DeepSeek's, vLLM's,
# Moonshot's words, those that gateways pass on, and what Google's OpenAI-compatible endpoint makes of two words.
BORROWED = {
    "stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_call", "content_filter": "safety_blocked",
    "max_tokens": "max_tokens", "MAX_TOKENS": "max_tokens", "SAFETY": "safety_blocked", "end_turn": "end_turn",
    "sensitive": "safety_blocked", "network_error": "error", "insufficient_system_resource": "error",
    "model_context_window_exceeded": "context_window_exceeded", "abort": "error", "repeat": "error",
    "model_length": "context_window_exceeded", "eos_token": "end_turn", "error": "error",
    "function_call_filter: MALFORMED_FUNCTION_CALL": "error", "content_filter: RECITATION": "safety_blocked",
}  # fmt: skip
PLAINLY = ("anthropic", "bedrock_converse", "cohere", "completions", "gemini", "ollama", "openai_chat")
"""Formats whose reason is one member; a status says more."""


@pytest.mark.parametrize("name", PLAINLY)
def test_a_named_provider_has_the_rows_of_an_unnamed_server(name: str) -> None:
    """In every format and for every provider, values that compatible servers share have the same meaning."""
    speaks = format_of(name)
    for raw, meant in BORROWED.items():
        reply = ChatResponse(text="x", stop=Stop(StopReason.UNKNOWN, raw), id="r-1", model="m")
        body = speaks.reply(reply, stream=False)
        for provider in ("nobody", *PROVIDERS):
            stop = endturn.read(body, format=name, provider=provider).stop
            assert (stop.reason, stop.raw, stop.mapped) == (meant, raw, True), provider
            assert stop.incomplete is (meant not in ("end_turn", "tool_call")), provider


@pytest.mark.parametrize("name", FORMATS)
def test_every_table_has_the_shared_words(name: str) -> None:
    """Every provider's table has all values from the table for unnamed servers."""
    speaks = format_of(name)
    unnamed = speaks.rows(Context(stop_reason_tables.COMPATIBLE)).keys()
    for provider in PROVIDERS:
        assert unnamed <= speaks.rows(Context(dialect_in(speaks, provider), provider)).keys(), provider


@pytest.mark.parametrize(
    ("dialects", "rows", "message"),
    [
        pytest.param(
            HOME,
            "acme\t\tend\tfinished\tno\tnone\t\tpage\n",
            "stop_reasons.tsv:2: 'finished' is not a valid StopReason",
            id="an unknown reason",
        ),
        pytest.param(
            HOME,
            "acme\t\tend\tend_turn\tno\tlater\t\tpage\n",
            "stop_reasons.tsv:2: 'later' is not a valid Resume",
            id="an unknown way to resume",
        ),
        pytest.param(
            HOME,
            ("#\nacme\t\tend\tend_turn\t\tnone\t\tpage\n"),
            "stop_reasons.tsv:3: incomplete must be 'yes' or 'no', not ''",
            id="no answer to incomplete",
        ),
        pytest.param(HOME, "acme\t\tend\tend_turn\tno\n", "stop_reasons.tsv:2: 5 cells, not 9", id="too few cells"),
        pytest.param(
            HOME,
            ("acme\t\tend\tend_turn\tno\tnone\t\tpage\nacme\t\tend\tend_turn\tno\tnone\t\tpage\n"),
            "stop_reasons.tsv:3: 'end' already has a row",
            id="a value twice",
        ),
        pytest.param(
            HOME,
            "acme\tv2\tend\tend_turn\tno\tnone\t\tpage\n",
            "stop_reasons.tsv:2: 'acme' has no dialect 'v2': add a row for it to dialects.tsv, or correct it",
            id="a misspelt dialect",
        ),
        pytest.param(
            HOME,
            "acmee\t\tend\tend_turn\tno\tnone\t\tpage\n",
            "stop_reasons.tsv:2: dialects.tsv has no format 'acmee': add a row for it to dialects.tsv, or correct it",
            id="a misspelt format",
        ),
        pytest.param(
            HOME,
            "acme\t\tend\tend_turn\tno\tnone\t\t\n",
            "stop_reasons.tsv:2: source is empty: name the page or the release that documents the value",
            id="no source",
        ),
        pytest.param(
            HOME,
            "acme\t\tend\tmax_tokens\tno\tnone\t\tpage\n",
            "stop_reasons.tsv:2: incomplete must be 'yes' for 'max_tokens', not 'no'",
            id="a complete truncation",
        ),
        pytest.param(
            HOME + "acme\tv2\t\tacme.v2\n",
            "acme\t\tend\tend_turn\tno\tnone\t\tpage\nacme\tv2\tend\terror\tyes\tnone\t\tpage\tshared\n",
            "stop_reasons.tsv:3: the shared value 'end' of 'acme' means error here and end_turn in a row above: "
            "correct one of them, or leave out 'shared' if only 'v2' means this",
            id="a shared value with two meanings",
        ),
        pytest.param(
            HOME + "acme\tv2\tacme\n",
            "",
            "dialects.tsv:3: the dialect 'v2' has no api: write the name that `endturn reasons` prints, "
            "such as 'acme.chat', or '-' if it prints none",
            id="no api",
        ),
        pytest.param(
            HOME + "acme\tv2\tacme\t\n",
            "",
            "dialects.tsv:3: the dialect 'v2' has no api",
            id="an empty api",
        ),
        pytest.param(HOME + HOME, "", "dialects.tsv:3: 'acme' already has a dialect ''", id="a home twice"),
        pytest.param(
            "acme\t\t\tacme.chat\n", "", "dialects.tsv:2: path or stream_path is missing", id="no stream path"
        ),
        pytest.param(
            HOME + "acme\tv2\tacme/v1\tv2\n",
            "",
            "dialects.tsv:3: no row of 'acme/v1' above it",
            id="an unknown dialect to include",
        ),
        pytest.param(
            HOME,
            "acme\t\tend\tend_turn\tno\tnone\t\tpage\tyes\n",
            "stop_reasons.tsv:2: shared must be 'shared' or empty, not 'yes'",
            id="a wrong mark of sharing",
        ),
    ],
)
def test_rejects_a_wrong_line_by_file_and_number(tmp_path: Path, dialects: str, rows: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        stop_reason_tables.read_tables(write(tmp_path, dialects, rows))
