"""Joining the parts of an answer: the law, its exceptions, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, strategies as st

from endturn.chat import Delta
from endturn.continuation.answer_text import AnswerText
from endturn.continuation.stitch import stitch
from endturn.continuation.text_heuristics import HALF, LOOP_FROM, is_preamble, loop_start, open_fence

BLANKS = " " * 2_000
LONG = "".join(f"Line {number} says something of its own.\n" for number in range(200))


def in_chunks(a: str, b: str, size: int, *, prefilled: bool = False, held: int = 1_024, **limits: Any) -> AnswerText:
    """`stitch` in small pieces; checks that what is given out is never taken back, and no more than that is held."""
    text = AnswerText(a, a, **limits)
    text.seam(prefilled=prefilled)
    out = a
    for start in range(0, len(b), size):
        out += "".join(delta.text for delta in text.feed(b[start : start + size]))
        assert text.shown.rstrip(HALF) == out.rstrip(HALF)
        assert text.held <= min(held, limits.get("max_overlap", held))
    out += "".join(delta.text for delta in (*text.close(), *text.end_answer()))
    assert text.shown == out
    assert text.held == 0
    return text


SEAMS = [json.loads(line) for line in Path(__file__).with_name("seams.jsonl").read_text("utf-8").splitlines()]
"""Texts and their continuations, each with what they come to: by what stands in the way at the seam.

`held`: how many characters wait at most before it is known what they are; what is new is shown as it comes.
"""


@pytest.mark.behaviour(22, 29, 30)
@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: f"{seam['of']}: {seam.get('why', seam['b'])}"[:60])
def test_what_a_text_and_its_continuation_come_to(seam: dict[str, Any]) -> None:
    """As the file says, however the continuation is fed."""
    a, b, said = seam["a"], seam["b"], {"prefilled": seam.get("prefilled", False), **seam.get("limits", {})}
    assert stitch(a, b, **said) == seam["expected"]
    for size in (1, 2, 3):
        assert in_chunks(a, b, size, held=seam.get("held", 1_024), **said).answer == seam["expected"]


BLANK = st.sampled_from([" ", "\n", "  ", " \n", "\r\n", "\t", "\n\n"])
HTML = "<ul>\n" + "".join(f"    <li>\n      <b>{n}</b>\n    </li>\n" for n in range(9)) + "</ul>\n"
CODE = (
    "def total(items):\n    total = 0\n    for item in items:\n        if item.good:\n            total += item.price\n"
)


@pytest.mark.behaviour(29)
@pytest.mark.parametrize("text", [HTML, CODE], ids=["HTML", "code"])
def test_an_exact_repetition_goes_however_much_of_it_is_indentation(text: str) -> None:
    """From `min_overlap` characters on, counted as they are."""
    for at in range(40, len(text)):
        for back in (16, 20, 33):
            assert stitch(text[:at], text[at - back :]) == text


@pytest.mark.behaviour(29)
@given(
    words=st.lists(st.text("abc", min_size=1, max_size=6), min_size=4, max_size=12),
    blanks=st.lists(BLANK, min_size=26, max_size=26),
    back=st.integers(4, 12),
    before=st.sampled_from(["", "\n", " ", "...", "… ", "\n...\n"]),
    rest=st.sampled_from(["", "X", " X", "\n\nX", "  X  \n"]),
    half=st.sampled_from(["", HALF, HALF * 3]),
    size=st.integers(1, 30),
)
def test_a_repetition_goes_whatever_its_blanks_are(
    words: list[str], blanks: list[str], back: int, before: str, rest: str, half: str, size: int
) -> None:
    """With dots before it and half a character behind the text or not: what is left is the text and what is new."""
    text = "".join(word + blank for word, blank in zip(words, blanks, strict=False)).rstrip()
    again = "".join(word + blank for word, blank in zip(words[-back:], blanks[13:], strict=False)).rstrip()
    assert in_chunks(text, before + again + rest, size, min_overlap=4).answer == text + rest
    assert stitch(text + half, before + again + "X", min_overlap=4) == text + "X"


def test_no_more_waits_than_is_looked_at() -> None:
    text = AnswerText(max_overlap=10)
    assert text.feed("a" + HALF * 30) == [Delta(text="a" + HALF * 20)]
    assert text.held == 10


@pytest.mark.behaviour(30)
@pytest.mark.parametrize(
    ("came", "whole", "comes_to"),
    [("Say \ufffd", "Say 你好", "Say 你好"), ("Say \ufffd", "Say \ufffd: that", "Say \ufffd: that"),
     ("a  b ", "a  b  c", "a  b  c"), (" ", " \n a", " \n a"), ("a\ufffd", "a", "a\ufffd")],
)  # fmt: skip
def test_a_response_that_is_fetched_again_is_taken_as_it_is(came: str, whole: str, comes_to: str) -> None:
    """Half a character at the end of what had come is replaced by the whole; blanks and all else stay as they are."""
    text = AnswerText()
    text.begin()
    text.feed(came)
    text.again(came)
    text.begin()
    for character in whole:
        text.feed(character)
    text.close()
    text.end_answer()
    assert (text.answer, text.added, text.restarted) == (comes_to, comes_to, False)


def longest_overlap(a: str, b: str, most: int) -> int:
    """By definition, slowly."""
    return next(size for size in range(min(len(a), len(b), most), -1, -1) if a.endswith(b[:size]))


TEXTS = st.text(st.sampled_from("abc 1\n`.é語\ufffd"), max_size=60) | st.text(max_size=60)


@pytest.mark.behaviour(29)
@given(a=TEXTS, b=TEXTS)
@example("   a", "   a")
def test_the_law_of_the_seam(a: str, b: str) -> None:
    """No overlap, no restart, no preamble, no fence, no half of a character: the texts are joined as they are."""
    plain = " ".join(a.split())
    for start in (0, next((b.index(dots) + len(dots) for dots in ("...", "…") if dots in b), 0)):
        again = " ".join(b[start:].split())
        assume(longest_overlap(plain, again, 32) < 2)  # and a blank on each side
        assume(longest_overlap(a, b[start:], 32) < 4)  # blanks count in one to the character
        assume(not (len(a) > 32 and plain.startswith(" ".join(b[start:32].split()))))
    assume(not is_preamble(b.partition("\n")[0]))
    assume(not open_fence(a))
    assume(not a.endswith(HALF))
    assert stitch(a, b, min_overlap=4, max_overlap=32) == a + b


@pytest.mark.behaviour(32)
@given(a=TEXTS, keep=st.integers(0, 60), b=TEXTS, size=st.integers(1, 20), back=st.booleans(), fence=st.booleans())
def test_the_size_of_the_chunks_changes_nothing(a: str, keep: int, b: str, size: int, back: bool, fence: bool) -> None:
    """Overlaps, restarts and plain texts come out the same in any chunks, with little held back."""
    a = f"```py\n{a}" if fence else a
    again = a[keep:] if back else a[:keep]
    b = (again.replace(" ", "\n ") if size % 5 == 0 else again) + b
    b = f"```py\n{b}" if fence and size % 2 else b
    b = f"...{b}" if size % 3 else b
    whole = in_chunks(a, b, 10_000, min_overlap=4, max_overlap=16)
    pieces = in_chunks(a, b, size, min_overlap=4, max_overlap=16)
    assert (pieces.answer, pieces.restarted) == (whole.answer, whole.restarted)
    assert whole.answer == stitch(a, b, min_overlap=4, max_overlap=16)


def restarts() -> dict[str, tuple[str, str, str, bool]]:
    """A text, what says all of it again, what that adds, and whether it is marked."""
    other, text = "something else", LONG.rstrip()
    found = {
        "it is cut before the end": (LONG, LONG[:3_000], "", False),
        "it is too short to be one": (LONG, LONG[:1_000], LONG[:1_000], False),
        "white space says too little": ("x " + LONG, f"{BLANKS}y", f"{BLANKS}y", False),
        "a letter and white space": ("x " + LONG, f"x{BLANKS}y", f"x{BLANKS}y", False),
    }
    for dots in ("", "...", "…", " ...", "\n\n… ", "...\n"):
        found[f"it reaches the end, behind {dots!r}"] = LONG, f"{dots}{LONG}And more.", "And more.", False
        again = f"{dots}{LONG[:3_000]}{other}"
        found[f"it turns out different, behind {dots!r}"] = LONG, again, again, True
    blank = "\n" + text.replace(" ", "  ").replace("\n", "\n\n")
    for stood, came, left in (("", " And", " And"), ("\n", " \nAnd", "And"), (" ", "", "")):
        found[f"other blanks, and {came!r}"] = text + stood, blank + came, left, False
        different = blank[:3_000] + other
        found[f"other blanks, and another text, {came!r}"] = text + stood, different, different, True
    return found


RESTARTS = restarts()


@pytest.mark.behaviour(29, 30)
@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("name", RESTARTS)
def test_a_restart_adds_what_is_new(name: str, size: int) -> None:
    """What says all again and goes on is swallowed by position, white space compared as one blank; what goes on
    differently is appended as it came, and marked.
    """
    text, again, added, restarted = RESTARTS[name]
    joined = in_chunks(text, again, size)
    assert (joined.answer, joined.restarted) == (text + added, restarted)


@pytest.mark.behaviour(32)
@pytest.mark.parametrize("kind", ["plain", "restart", "periodic", "blank", "half"])
def test_the_cost_is_linear(kind: str) -> None:
    """120 000 characters, one at a time: were each scanned again with every one that follows, this would not end."""
    a = ("ab" * 60_000) if kind == "periodic" else LONG * (120_000 // len(LONG) + 1)
    others = {"plain": "Quite another text. " * 6_000, "blank": " " * 120_000, "half": HALF * 120_000}
    b = others.get(kind, a)
    text = AnswerText(a, a)
    text.seam()
    for character in b:
        text.feed(character)
    text.close()


@pytest.mark.behaviour(16)
@pytest.mark.parametrize(
    ("text", "loops"),
    [
        ("The same sentence is said here over and over again, without end. " * 20, True),
        ("An introduction. " * 2 + "ha" * 300, True),
        ("yes " * 90, False),  # short
        (LONG, False),
        ("unique words " + LONG[:2_000] + "abc" * 40, False),  # it does not dominate
        ("I will look at the file again.\n" * 100, True),
        ("I will look at the file.\nIt is not there.\nSo I go on.\n" * 12, True),
        (f"{LONG[:300]}and so on {'the the ' * 100}th", True),
        ("語の音。" * 150 + "\ufffd", True),  # cut within a character
        (LONG[:900] * 4, False),
        (LONG[:900] * 5, True),
        ("the same line\n" * 50 + LONG[:900], False),  # it was left
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


def test_what_is_searched_is_searched_in_linear_time() -> None:
    """Of the kinds of text that are worst for a search for loops, and for open code blocks: a quadratic one would not
    end.
    """
    for text in ("a" * 1_000_000, ("a" * 100_000 + "b") * 9, "b" * 500_000 + "a" * 499_999, "one line\n" * 110_000):
        loop_start(text)
    for text in ("~", "`", " ", "- ", "\n ```a`"):
        open_fence(text * 200_000)
    open_fence("```" + "a" * 200_000)
