"""The table of all stop reasons: every row of the evidence is in it, and the command line prints and explains it."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import endturn
from endturn import reasons
from endturn.cli import main
from endturn.errors import UsageError
from endturn.formats import FORMATS, dialect_in, format_of
from endturn.providers import PROVIDERS
from endturn.stop import Resume, StopReason

EVIDENCE = list(
    csv.DictReader((Path(__file__).parent / "data" / "stop_reasons.tsv").read_text().splitlines(), delimiter="\t")
)
TABLE = {(entry.api.name, entry.raw): entry for entry in reasons.table()}


@pytest.mark.behaviour(2)
@pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['api']}-{row['raw']}") for row in EVIDENCE])
def test_every_row_of_the_evidence_is_in_the_table(row: dict[str, str]) -> None:
    """What was read in the providers' own sources is what the table says, spelled alike."""
    printed = TABLE[row["api"], row["raw"]].as_json()
    kept = ("api", "raw", "normalized", "incomplete", "resume", "detail")
    assert {name: printed[name] for name in kept} == {name: row[name] for name in kept}
    assert printed["source"]


def test_no_api_is_forgotten() -> None:
    """The table has at least the APIs of the evidence, and says of each where its reason stands."""
    assert {row["api"] for row in EVIDENCE} <= set(reasons.apis())
    assert len(reasons.apis()) >= 20
    for entry in reasons.table():
        assert entry.api.path
        assert entry.api.stream_path


def test_every_format_and_meaning_is_spoken_of() -> None:
    """Each format has rows; each of our words and each way of resuming has its sentence."""
    assert {name for entry in reasons.table() for name, _ in entry.formats} == set(FORMATS)
    assert set(reasons.MEANING) == set(StopReason)
    assert set(reasons.RESUMES) == set(Resume)
    for entry in reasons.table():
        for name, dialect in entry.formats:
            assert format_of(name).reasons[dialect][entry.raw] == entry.row


def test_reasons_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`endturn reasons --json` prints a list of rows."""
    assert main(["reasons", "--json"]) == 0
    rows: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
    assert rows == [entry.as_json() for entry in reasons.table()]
    assert {"api", "raw", "normalized", "incomplete", "resume", "source"} <= rows[0].keys()


def test_reasons_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    """Without it, tab-separated lines under a header; of one provider where one is named."""
    assert main(["reasons", "--provider", "bedrock_converse"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split("\t")[:3] == ["api", "raw", "normalized"]
    assert {line.split("\t")[0] for line in lines} == {"bedrock.converse"}
    assert len(lines) == 9


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pause_turn", "--provider", "anthropic"], ["paused", "no, but the output is incomplete", "resend_unchanged"]),
        (["length", "--provider", "openai.chat"], ["max_tokens", "truncated  yes", "prompt", "openai 3"]),
        (["MAX_TOKENS", "--provider", "gcp.gemini"], ["max_tokens", "candidates[i].finishReason"]),
        (["max_output_tokens", "--provider", "openai"], ["incomplete:max_output_tokens: max_tokens"]),
        (["model_length", "--provider", "mistral_ai"], ["context_window_exceeded"]),
        (["STOPSTOP", "--provider", "google"], ["STOP: end_turn"]),
        (["not_finished"], ["not an end"]),
        (["SAFETY", "--provider", "gcp.vertex_ai"], ["google.generateContent", "google.promptFeedback"]),
        (["FINISH", "--provider", "aws.bedrock"], ["bedrock.invoke.titan"]),
        (["tool_use_failed"], ["error answers", "resume     repair"]),
        (["context_length_exceeded", "--provider", "openai"], ["failed:context_length_exceeded"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_explain(arguments: list[str], said: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A value is explained: our word, whether it is truncation, how it resumes, where it stands, and the source."""
    assert main(["explain", *arguments]) == 0
    out = capsys.readouterr().out
    for words in said:
        assert words in out


def test_explain_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """The same rows that `reasons` prints."""
    assert main(["explain", "length", "--json", "--provider", "groq"]) == 0
    assert json.loads(capsys.readouterr().out) == [TABLE["groq.chat", "length"].as_json()]


@pytest.mark.parametrize(
    ("raw", "whose", "reason"),
    [
        ("length", {}, StopReason.MAX_TOKENS),
        ("stop", {}, StopReason.END_TURN),
        ("max_tokens", {}, StopReason.MAX_TOKENS),
        ("MAX_TOKENS", {}, StopReason.MAX_TOKENS),
        ("lengthlength", {}, StopReason.MAX_TOKENS),
        ("max_output_tokens", {}, StopReason.MAX_TOKENS),
        ("length", {"provider": "openrouter"}, StopReason.MAX_TOKENS),
        ("length", {"provider": " OpenRouter "}, StopReason.MAX_TOKENS),
        ("model_length", {"provider": "mistral"}, StopReason.CONTEXT_WINDOW_EXCEEDED),
        ("OTHER", {"provider": "gcp.gemini"}, StopReason.ERROR),
        ("OTHER", {"provider": "google.promptFeedback"}, StopReason.SAFETY_BLOCKED),
        ("max_output_tokens", {"provider": "openai"}, StopReason.MAX_TOKENS),
        ("max_output_tokens", {"provider": "openai", "format": "openai_responses"}, StopReason.MAX_TOKENS),
        ("max_tokens", {"format": "anthropic"}, StopReason.MAX_TOKENS),
        ("max_tokens", {"provider": "acme", "format": "anthropic"}, StopReason.MAX_TOKENS),
        ({"reason": "max_output_tokens"}, {"format": "openai_responses"}, StopReason.MAX_TOKENS),
        ("length", {"format": "anthropic"}, StopReason.UNKNOWN),
        ("some_new_value", {}, StopReason.UNKNOWN),
        (None, {}, StopReason.MISSING),
        ("", {"provider": "anthropic"}, StopReason.MISSING),
    ],
)
def test_normalize(raw: object, whose: dict[str, str], reason: StopReason) -> None:
    """A raw value by the table of its provider or its format; by default as a server of the chat format may say it."""
    stop = endturn.normalize(raw, **whose)  # type: ignore[arg-type]  # the keywords are names
    assert stop.reason is reason
    assert stop.raw == (raw["reason"] if isinstance(raw, dict) else raw or None)
    assert stop.mapped == (reason is not StopReason.UNKNOWN)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_normalize_says_what_a_provider_s_client_says(provider: str) -> None:
    """Every row of the table that our client of the provider reads."""
    speaks = format_of(PROVIDERS[provider].format)
    for raw, row in speaks.reasons[dialect_in(speaks, provider)].items():
        stop = endturn.normalize(raw, provider=provider)
        if raw and row.terminal:
            assert (stop.reason, stop.resume, stop.incomplete) == (row.reason, row.resume, row.incomplete)


def test_normalize_takes_what_else_is_known() -> None:
    """Calls, usage and limits, as the formats' own readers do."""
    assert endturn.normalize("pause_turn", provider="anthropic").resume is Resume.RESEND_UNCHANGED
    assert endturn.normalize("stop", calls=1).reason is StopReason.TOOL_CALL
    assert endturn.normalize("stop", calls=1, calls_closed=False).reason is StopReason.END_TURN
    assert endturn.normalize("stop", output_tokens=5, maximum=5).suspected
    window = endturn.normalize("length", prompt_tokens=90, output_tokens=10, window=100)
    assert window.reason is StopReason.CONTEXT_WINDOW_EXCEEDED
    assert endturn.normalize("stop", refused=True, detail="policy").detail == "policy"
    assert endturn.normalize("length", terminal_seen=False).reason is StopReason.MISSING


@pytest.mark.parametrize(
    ("whose", "message"),
    [({"provider": "acme"}, "no provider or API is called 'acme'"), ({"format": "acme"}, "no format is called 'acme'")],
)
def test_normalize_refuses_who_is_not_known(whose: dict[str, str], message: str) -> None:
    """A misspelt provider is said, and not read by another's table."""
    with pytest.raises(UsageError, match=message):
        endturn.normalize("length", **whose)  # type: ignore[arg-type]


def test_a_reader_that_has_read_enough(tmp_path: Path) -> None:
    """`endturn reasons | head -1` ends quietly."""
    command = f"'{sys.executable}' -m endturn.cli reasons --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")


def test_explain_what_nobody_says(capsys: pytest.CaptureFixture[str]) -> None:
    """A value that no API is known to use exits with 1, says what becomes of it, and what is like it."""
    assert main(["explain", "max_tokenz"]) == 1
    err = capsys.readouterr().err
    assert "'max_tokenz'" in err
    assert "did you mean 'max_tokens'" in err
    assert "`unknown`" in err
    assert main(["explain", "stop", "--provider", "anthropic"]) == 1
    assert "did you mean 'stop'" not in capsys.readouterr().err
    assert main(["explain", "max_tokenz", "--json"]) == 1
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(
    ("raw", "says"), [(None, "no raw value"), (5, "not 5"), ({}, "not {}")], ids=["none", "number", "object"]
)
def test_only_text_is_explained(raw: Any, says: str) -> None:
    """A missing reply has no raw value, and the error says so."""
    with pytest.raises(UsageError, match=says):
        reasons.explain(raw)


@pytest.mark.parametrize(("raw", "provider"), [("length", "mistralai"), ("MAX_TOKENS", "vertexai"), ("length", "z-ai")])
def test_a_provider_is_known_by_what_frameworks_call_it(raw: str, provider: str) -> None:
    """Its rows are found, and its client's table decides."""
    assert {entry.normalized for entry in reasons.explain(raw, provider)} == {"max_tokens"}
    assert endturn.normalize(raw, provider=provider).reason is StopReason.MAX_TOKENS


@pytest.mark.parametrize("command", [["reasons"], ["explain", "stop"]], ids=["reasons", "explain"])
def test_a_provider_that_nobody_knows(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A name that is no provider, API or format is a mistake, and the APIs are listed."""
    assert main([*command, "--provider", "acme"]) == 2
    err = capsys.readouterr().err
    assert "'acme'" in err
    assert "openai.responses" in err
