"""The tables that every stop reason is read from: a wrong row is refused by file and line."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from endturn import stop_reasons
from endturn.stop import Resume, Row, StopReason

HEAD = "format\tdialect\traw\tnormalized\tincomplete\tresume\tdetail\tsource\n"
DIALECTS = "format\tdialect\tincludes\tapi\tpath\tstream_path\n"
HOME = "acme\t\t\tacme.chat\tbody\tstream\n"


def test_the_shipped_tables_are_what_is_read() -> None:
    """Both files lie in the package, and hold what the functions give."""
    rows, apis = stop_reasons.read(files("endturn") / "data")
    assert rows.keys() == apis.keys()
    for format_ in rows:
        assert stop_reasons.tables(format_) == rows[format_]
        assert stop_reasons.apis(format_) == apis[format_]
        assert all(row.source for table in rows[format_].values() for row in table.values())


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


@pytest.mark.parametrize(
    ("dialects", "rows", "message"),
    [
        (HOME, "acme\t\tend\tfinished\tno\tnone\t\tpage\n", "stop_reasons.tsv:2: 'finished' is not a valid StopReason"),
        (HOME, "acme\t\tend\tend_turn\tno\tlater\t\tpage\n", "stop_reasons.tsv:2: 'later' is not a valid Resume"),
        (HOME, "#\nacme\t\tend\tend_turn\t\tnone\t\tpage\n", "stop_reasons.tsv:3: incomplete is 'yes' or 'no', not ''"),
        (HOME, "acme\t\tend\tend_turn\tno\n", "stop_reasons.tsv:2: 5 cells, not 8"),
        (HOME, "acme\t\tend\tend_turn\tno\tnone\t\tpage\n" * 2, "stop_reasons.tsv:3: 'end' has a row already"),
        (
            HOME,
            "acme\tv2\tend\tend_turn\tno\tnone\t\tpage\n",
            "'acme' has rows of ['v2'], which dialects.tsv lacks",
        ),
        (HOME * 2, "", "dialects.tsv:3: 'acme' has a dialect '' already"),
        ("acme\t\t\tacme.chat\n", "", "dialects.tsv:2: path or stream_path is missing"),
        (HOME + "acme\tv2\tacme/v1\tv2\n", "", "dialects.tsv:3: no 'acme/v1' stands above"),
    ],
)
def test_a_wrong_line_is_refused(tmp_path: Path, dialects: str, rows: str, message: str) -> None:
    """It is an error at once, which says where."""
    with pytest.raises(ValueError, match=re.escape(message)):
        stop_reasons.read(write(tmp_path, dialects, rows))
