"""Joining the parts of an answer: the law, the four exceptions, and what it costs."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from endturn.continuation.signs import LOOP_FROM, is_preamble, loop_start, may_become_preamble, open_fence, tells
from endturn.continuation.stitch import Overlap, Stitcher, stitch

SENTENCE = "The quick brown fox jumps over the lazy dog and then"
LONG = "".join(f"Line {number} says something of its own.\n" for number in range(200))
ROWS = {
    "a table": "".join(
        f"| 2024-01-{day:02} | delivered by courier, no damage reported, signed by client |\n" for day in range(7, 19)
    ),
    "CSV": "id,name,country,status,comment\n"
    + "".join(f"{row},customer,Switzerland,active,no complaints were received this year\n" for row in range(100, 115)),
    "a JSON list": "["
    + "".join(
        f'\n  {{\n    "id": {row},\n    "kind": "measurement",\n    "unit": "degree Celsius",\n    "valid": true\n  }},'
        for row in range(11)
    ),
    "SQL": "".join(
        f"INSERT INTO orders (id, customer, state) VALUES ({row}, 'Müller & Söhne AG, Zürich', 'delivered');\n"
        for row in range(9)
    ),
}
"""Data, cut: rows that share a long passage and differ in little."""


def in_chunks(a: str, b: str, size: int, **limits: int) -> Stitcher:
    """`stitch` in small pieces; checks that what is given out is never taken back and little is held."""
    stitcher = Stitcher(a, **limits)
    stitcher.seam()
    out = a
    for start in range(0, len(b), size):
        delta = stitcher.feed(b[start : start + size])
        out += delta.text if delta is not None else ""
        assert stitcher.text == out
        assert stitcher.held <= limits.get("max_overlap", 1_024)
    delta = stitcher.close()
    out += delta.text if delta is not None else ""
    assert stitcher.text == out
    assert stitcher.held == 0
    return stitcher


PLAIN = [
    pytest.param("hel", "lo", id="one character in common"),
    pytest.param("book", "keeper", id="a double letter"),
    pytest.param("price is 100", "0 dollars", id="figures"),
    pytest.param("x=[0,0,0", "0", id="a row of figures"),
    pytest.param("a\n\n", "\nb", id="empty lines"),
    pytest.param("wor", "ld", id="within a word"),
    pytest.param("0" * 40, "0" * 40, id="figures only"),
    pytest.param(" " * 40, " " * 40 + "x", id="white space only"),
    pytest.param("=" * 40, "=" * 40 + "\n", id="a rule"),
    pytest.param("日本", "語", id="CJK"),
    pytest.param("👨‍", "👩‍👧 family", id="emoji joined by ZWJ"),
    pytest.param("cafe", "\u0301 noir", id="combining mark"),
    pytest.param("one\r", "\ntwo", id="CRLF"),
    pytest.param("", "all of it", id="nothing before"),
    pytest.param("all of it", "", id="nothing after"),
    pytest.param(SENTENCE, " it went on", id="a space belongs to the continuation"),
    pytest.param('{"a": "it is ', 'continued"}', id="a word that could be a preamble"),
]


@pytest.mark.behaviour(29)
@pytest.mark.parametrize(("a", "b"), PLAIN)
def test_what_is_no_repetition_is_joined_as_it_is(a: str, b: str) -> None:
    """Nothing is removed, nothing invented, however it is fed."""
    assert stitch(a, b) == a + b
    assert [in_chunks(a, b, size).text for size in (1, 2, 3)] == [a + b] * 3


@pytest.mark.behaviour(29)
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param(SENTENCE, "the lazy dog and then it slept.", SENTENCE + " it slept.", id="words"),
        pytest.param(SENTENCE, SENTENCE + " it slept.", SENTENCE + " it slept.", id="all of a short answer"),
        pytest.param(SENTENCE, SENTENCE[-20:], SENTENCE, id="nothing but the overlap"),
        pytest.param(
            "彼は毎朝六時に起きて、近くの公園を走ってから", "近くの公園を走ってから、朝ご飯を食べる。",
            "彼は毎朝六時に起きて、近くの公園を走ってから近くの公園を走ってから、朝ご飯を食べる。", id="CJK: too short",
        ),
        pytest.param(
            "彼は毎朝六時に起きて、近くの公園を走ってから", "六時に起きて、近くの公園を走ってから、朝ご飯",
            "彼は毎朝六時に起きて、近くの公園を走ってから、朝ご飯", id="CJK",
        ),
        pytest.param(
            "Look at 👨‍👩‍👧 and their cat", "👨‍👩‍👧 and their cats", "Look at 👨‍👩‍👧 and their cats", id="ZWJ"
        ),
        pytest.param("they went to a cafe", "they went to a cafe\u0301!", "they went to a cafe\u0301!", id="combining"),
        pytest.param("a line of the text\r", "a line of the text\r\nb", "a line of the text\r\nb", id="CRLF"),
        pytest.param(
            "aab aab aab aab aabb", "aab aab aab aabb!", "aab aab aab aab aabb!", id="the longest of several"
        ),
    ],
)  # fmt: skip
def test_an_overlap_is_written_once(a: str, b: str, expected: str) -> None:
    """The end that a continuation repeats is removed, from 16 characters."""
    assert stitch(a, b) == expected


def longest_overlap(a: str, b: str, most: int) -> int:
    """By definition, slowly."""
    return next(size for size in range(min(len(a), len(b), most), -1, -1) if a.endswith(b[:size]))


@given(st.text("ab", max_size=40), st.text("ab", max_size=40), st.integers(1, 50))
@example("abab", "ab", 1)
def test_the_overlap_is_the_longest_however_it_is_fed(end: str, text: str, size: int) -> None:
    """The incremental search finds what the definition says."""
    overlap = Overlap(end)
    found = None
    for stop in range(0, len(text) + size, size):
        found = overlap.find(text[:stop], last=False)
        if found is not None:
            break
    if found is None:
        found = overlap.find(text, last=True)
    assert found == longest_overlap(end, text, len(end))


TEXTS = st.text(st.sampled_from("abc 1\n`é語"), max_size=60) | st.text(max_size=60)


@pytest.mark.behaviour(29)
@given(a=TEXTS, b=TEXTS)
def test_the_law_of_the_seam(a: str, b: str) -> None:
    """No overlap, no restart, no preamble, no fence: the texts are joined as they are."""
    assume(not a.endswith(b[:1]) or not b)
    assume(longest_overlap(a, b, 32) < 4)
    assume(not (len(a) > 32 and a.startswith(b[:32])))
    assume(not is_preamble(b.partition("\n")[0]))
    assume(not open_fence(a))
    assert stitch(a, b, min_overlap=4, max_overlap=32) == a + b


@pytest.mark.behaviour(32)
@given(a=TEXTS, keep=st.integers(0, 60), b=TEXTS, size=st.integers(1, 20), back=st.booleans(), fence=st.booleans())
def test_the_size_of_the_chunks_changes_nothing(a: str, keep: int, b: str, size: int, back: bool, fence: bool) -> None:
    """Overlaps, restarts and plain texts come out the same in any chunks, with little held back."""
    a = f"```py\n{a}" if fence else a
    b = (a[keep:] if back else a[:keep]) + b
    b = f"```py\n{b}" if fence and size % 2 else b
    whole = in_chunks(a, b, 10_000, min_overlap=4, max_overlap=16)
    pieces = in_chunks(a, b, size, min_overlap=4, max_overlap=16)
    assert (pieces.text, pieces.restarted) == (whole.text, whole.restarted)
    assert whole.text == stitch(a, b, min_overlap=4, max_overlap=16)


@pytest.mark.behaviour(30)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_restart_that_reaches_the_end_is_swallowed(size: int) -> None:
    """A continuation that says all again and goes on adds only what is new."""
    stitcher = in_chunks(LONG, LONG + "And more.", size)
    assert (stitcher.text, stitcher.restarted) == (LONG + "And more.", False)


@pytest.mark.behaviour(30)
@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_restart_that_turns_out_different_is_appended_whole_and_marked(size: int) -> None:
    """Where the repetition stops repeating, all of it is another text."""
    other = LONG[:3_000] + "something else"
    stitcher = in_chunks(LONG, other, size)
    assert (stitcher.text, stitcher.restarted) == (LONG + other, True)


@pytest.mark.behaviour(30)
def test_a_restart_that_is_cut_before_the_end_adds_nothing() -> None:
    """A second cut within the repetition leaves the answer as it was."""
    assert in_chunks(LONG, LONG[:3_000], 10).text == LONG


@pytest.mark.behaviour(30)
@pytest.mark.parametrize("size", [1, 100])
def test_a_short_repetition_of_the_beginning_is_no_restart(size: int) -> None:
    """Below `max_overlap` characters, a continuation that begins like the answer is text."""
    assert in_chunks(LONG, LONG[:1_000], size).text == LONG + LONG[:1_000]


@pytest.mark.behaviour(30)
def test_a_restart_holds_nothing_once_it_is_known() -> None:
    """A restart is swallowed by position."""
    stitcher = Stitcher(LONG)
    stitcher.seam()
    assert stitcher.feed(LONG[:1_024]) is None
    assert stitcher.held == 0


@pytest.mark.behaviour(30)
@pytest.mark.parametrize(
    "line",
    [
        "Continuing…",
        "Continuing from where I left off:",
        "**Continuing exactly where we left off**",
        "Sure! Here's the rest of the code:",
        "Certainly, here is the continuation.",
        "(continued)",
        "Picking up where I left off -",
        "Apologies, continuing from where it was cut off...",
    ],
)
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\n\n"])
def test_a_preamble_goes(line: str, newline: str) -> None:
    """A first line that only announces the continuation is removed, with the empty line after it."""
    for size in (1, 5, 1_000):
        assert in_chunks("The first hal", line + newline + "f of it", size).text == "The first half of it"


@pytest.mark.behaviour(30)
@pytest.mark.parametrize(
    "line",
    [
        "continued",
        "Continuing education is worth it.",
        "Here's the rest of my family:",
        "Continuing from where I left off: the fox",
        "Continuing 3:",
        "Continuing" + "." * 120,
    ],
)
def test_a_line_that_says_something_stays(line: str) -> None:
    """What is no known preamble, or longer than one can be, is text."""
    assert stitch("First.\n", line + "\nSecond.") == "First.\n" + line + "\nSecond."


def test_a_preamble_is_known_as_long_as_it_may_become_one() -> None:
    """Every beginning of a preamble may still become one."""
    line = "Sure, continuing from where I left off:"
    assert is_preamble(line)
    assert all(may_become_preamble(line[:size]) for size in range(len(line) + 1))


@pytest.mark.behaviour(30)
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        pytest.param("```py\nx = ", "```py\n1\n```\n", "```py\nx = 1\n```\n", id="opened again"),
        pytest.param("```py\nx = 1\n", "```\nDone", "```py\nx = 1\n```\nDone", id="closed"),
        pytest.param("```\nx = ", "```\n1", "```\nx = ```\n1", id="no language: could be its end"),
        pytest.param("```md\ntext\n", "```js\n1", "```md\ntext\n```js\n1", id="another block inside"),
        pytest.param("```py\nx = 1\n```\n", "```py\n2", "```py\nx = 1\n```\n```py\n2", id="a new block"),
        pytest.param("~~~~ py\na\n```\n", "~~~~py\nb", "~~~~ py\na\n```\nb", id="tildes"),
        pytest.param(
            "```py\nfirst = 1\nsecond = 2\nthi", "Continuing:\n```py\nsecond = 2\nthird = 3\n",
            "```py\nfirst = 1\nsecond = 2\nthisecond = 2\nthird = 3\n",
            id="preamble, fence, too little repeated",
        ),
        pytest.param(
            "```py\nfirst_number = 1\nsecond_number = 2\nthi", "```py\nsecond_number = 2\nthird = 3\n",
            "```py\nfirst_number = 1\nsecond_number = 2\nthird = 3\n", id="fence, then repeated lines",
        ),
    ],
)  # fmt: skip
def test_an_open_code_block_is_not_opened_again(a: str, b: str, expected: str) -> None:
    """The line that opens the open block once more is removed, and no other fence."""
    for size in (1, 3, 1_000):
        assert in_chunks(a, b, size).text == expected


@pytest.mark.behaviour(22)
@pytest.mark.parametrize(
    ("b", "expected"),
    [
        (" two", "one  two"),
        ("two", "one  two"),
        ("  two", "one  two"),
        ("   two", "one   two"),
        ("\ntwo", "one  \ntwo"),
    ],
)
def test_white_space_that_a_prefill_left_out_is_put_back_once(b: str, expected: str) -> None:
    """The answer's trailing white space is not doubled by the continuation's."""
    for size in (1, 100):
        stitcher = Stitcher("one  ")
        stitcher.seam(prefilled=True)
        for start in range(0, len(b), size):
            stitcher.feed(b[start : start + size])
        stitcher.close()
        assert stitcher.text == expected


@pytest.mark.behaviour(22)
@pytest.mark.parametrize(
    ("stripped", "b", "expected"),
    [
        (" \n\n", "\n\nis here", " \n\nis here"),
        (" \n\n", "\nis here", " \n\nis here"),
        (" \n\n", " \n\nis here", " \n\nis here"),
        (" \n\n", " is here", " \n\nis here"),
        (" \n\n", "\n\n    indented", " \n\n    indented"),
        (" \n\n", " \n  indented", " \n\n  indented"),
        ("\n", "\n\nis here", "\n\nis here"),
        ("\n", "  indented", "\n  indented"),
        (" \n\n", "is here", " \n\nis here"),
        (" \n\n", "\n", " \n\n"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_part_of_the_white_space_that_was_left_out_is_not_doubled(
    stripped: str, b: str, expected: str, size: int
) -> None:
    """The model may give all of it, its beginning or its end, and its own after it."""
    stitcher = Stitcher("one" + stripped)
    stitcher.seam(prefilled=True)
    for start in range(0, len(b), size):
        stitcher.feed(b[start : start + size])
    stitcher.close()
    assert stitcher.text == "one" + expected


def test_a_text_without_a_seam_passes_at_once() -> None:
    """What is not a continuation is given out as it comes, whatever it looks like."""
    stitcher = Stitcher()
    for piece in ("Continuing:", "\n", "```py\n", "x"):
        delta = stitcher.feed(piece)
        assert delta is not None
        assert delta.text == piece
    assert stitcher.close() is None


@pytest.mark.behaviour(32)
@pytest.mark.parametrize("kind", ["plain", "restart", "periodic"])
def test_the_cost_is_linear(kind: str) -> None:
    """120 000 characters, one at a time, in well under a second: nothing is scanned twice."""
    a = ("ab" * 60_000) if kind == "periodic" else LONG * (120_000 // len(LONG) + 1)
    b = a if kind != "plain" else "Quite another text. " * 6_000
    stitcher = Stitcher(a)
    stitcher.seam()
    started = time.perf_counter()
    for character in b:
        stitcher.feed(character)
    stitcher.close()
    assert time.perf_counter() - started < 2


@pytest.mark.behaviour(16)
@pytest.mark.parametrize(
    ("text", "loops"),
    [
        pytest.param("The same sentence is said here over and over again, without end. " * 20, True, id="a sentence"),
        pytest.param("An introduction. " * 2 + "ha" * 300, True, id="a syllable"),
        pytest.param("yes " * 90, False, id="short"),
        pytest.param(LONG, False, id="lines that differ"),
        pytest.param("unique words " + LONG[:2_000] + "abc" * 40, False, id="a loop that does not dominate"),
        pytest.param("I will look at the file again.\n" * 100, True, id="one line a hundred times"),
        pytest.param("I will look at the file.\nIt is not there.\nSo I go on.\n" * 12, True, id="several lines"),
        pytest.param(f"{LONG[:300]}and so on {'the the ' * 100}th", True, id="a word, cut"),
        pytest.param("語の音。" * 150 + "\ufffd", True, id="cut within a character"),
        pytest.param(LONG[:900] * 4, False, id="four times"),
        pytest.param(LONG[:900] * 5, True, id="five times"),
        pytest.param("the same line\n" * 50 + LONG[:900], False, id="a loop that was left"),
        *(pytest.param(rows, False, id=name) for name, rows in ROWS.items()),
    ],
)
def test_a_loop_is_recognised(text: str, loops: bool) -> None:
    """The same again and again, five times or more, up to the end, over half of 400 characters or more."""
    start = loop_start(text)
    assert (start is not None) == loops
    if start is not None:
        assert start < len(text) / 2


@pytest.mark.behaviour(12)
@given(
    data=st.lists(st.text("0123456789abc", min_size=1, max_size=12), min_size=2, max_size=60, unique=True),
    before=st.text("abc de,|\n", max_size=80),
    after=st.text("abc de,|\n", min_size=20, max_size=80),
    cut=st.integers(0, 100),
)
def test_rows_that_differ_are_no_loop(data: list[str], before: str, after: str, cut: int) -> None:
    """However much two rows share: as long as each has data of its own, there is something new to come."""
    rows = [f"{before * 3}<{datum}>{after * 3}\n" for datum in data]
    text = "".join(rows)
    assert loop_start(text[: len(text) - min(cut, len(rows[-1]) // 2)]) is None


@pytest.mark.behaviour(16)
@given(
    before=st.text("abc .\n", max_size=300),
    unit=st.text("abcdef .\n", min_size=1, max_size=120),
    more=st.integers(0, 300),
)
def test_what_follows_the_start_of_a_loop_is_repetition(before: str, unit: str, more: int) -> None:
    """What is cut from a loop can be written again from what is kept: its last passage, over and over."""
    size = max(5 * len(unit), len(before), LOOP_FROM) + more
    text = before + (unit * size)[:size]
    start = loop_start(text)
    assert start is not None
    assert start <= len(before) + len(unit)
    kept, gone = text[:start], text[start:]
    assert any((kept[-size:] * len(gone)).startswith(gone) for size in range(1, len(unit) + 1))


def test_a_loop_is_found_in_linear_time() -> None:
    """A million characters, of the kinds that are worst for a search, in well under a second each."""
    texts = ("a" * 1_000_000, ("a" * 100_000 + "b") * 9, "b" * 500_000 + "a" * 499_999, "one line\n" * 110_000)
    for text in texts:
        started = time.perf_counter()
        loop_start(text)
        assert time.perf_counter() - started < 1


def test_what_tells() -> None:
    """Rows of figures, rules and white space tell nothing; letters, in any script, and emoji do."""
    assert not any(map(tells, ("", "12 345", "----", "\u3000 \n", "[0, 0, 0]")))
    assert all(map(tells, ("a1", "語", "🎉")))


@pytest.mark.behaviour(30)
@pytest.mark.parametrize(
    "chunks", [["Continuing:\r\n", "\r", "\nrest"], ["Continuing:\r\n\r\nrest"]], ids=["split", "whole"]
)
def test_the_empty_line_after_a_preamble_goes_whatever_its_end(chunks: list[str]) -> None:
    """A CR and its LF may come apart."""
    stitcher = Stitcher("The beginning, ")
    stitcher.seam()
    for chunk in chunks:
        stitcher.feed(chunk)
    stitcher.close()
    assert stitcher.text == "The beginning, rest"
