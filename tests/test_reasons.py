"""The table of all stop reasons: every row of the evidence is in it, and the command line prints and explains it."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest

import endturn
from endturn import reasons
from endturn.formats import FORMATS, dialect_in, format_of
from endturn.providers import PROVIDERS
from endturn.stop import Resume, StopReason

EVIDENCE = list(
    csv.DictReader((Path(__file__).parent / "data" / "stop_reasons.tsv").read_text().splitlines(), delimiter="\t")
)
TABLE = {(entry.api.name, entry.raw): entry for entry in reasons.table()}


@pytest.mark.behaviour(2)
def test_every_row_of_the_evidence_is_in_the_table() -> None:
    """What was read in the providers' own sources is what the table says, and where it stands."""
    kept = ("api", "raw", "normalized", "incomplete", "resume", "detail")
    for row in EVIDENCE:
        printed = TABLE[row["api"], row["raw"]].as_json()
        assert {name: printed[name] for name in kept} == {name: row[name] for name in kept}
        assert printed["source"]
    assert len(reasons.apis()) >= 20
    assert all(entry.api.path and entry.api.stream_path for entry in reasons.table())


def test_every_format_and_meaning_is_spoken_of() -> None:
    """Each format has rows; each of our words and each way of resuming has its sentence."""
    assert {name for entry in reasons.table() for name, _ in entry.formats} == set(FORMATS)
    assert set(reasons.MEANING) == set(StopReason)
    assert set(reasons.RESUMES) == set(Resume)
    for entry in reasons.table():
        for name, dialect in entry.formats:
            assert format_of(name).reasons[dialect][entry.raw] == entry.row


@pytest.mark.parametrize("provider", PROVIDERS)
def test_normalize_says_what_a_provider_s_client_says(provider: str) -> None:
    """Every row of the table that our client of the provider reads."""
    speaks = format_of(PROVIDERS[provider].format)
    for raw, row in speaks.reasons[dialect_in(speaks, provider)].items():
        stop = endturn.normalize(raw, provider=provider)
        if raw and row.terminal:
            assert (stop.reason, stop.resume, stop.incomplete) == (row.reason, row.resume, row.incomplete)


def test_a_reader_that_has_read_enough(tmp_path: Path) -> None:
    """`endturn reasons | head -1` ends quietly."""
    command = f"'{sys.executable}' -m endturn.cli reasons --json | head -1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[\n", "")
