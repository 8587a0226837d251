"""Joining the parts of an answer: the law, its exceptions, and its cost."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, strategies as st

from endturn.continuation.answer_text import AnswerText
from endturn.continuation.preambles import is_preamble
from endturn.continuation.stitching import Seam, stitch
from endturn.continuation.text_heuristics import (
    MIN_LOOP_CHARS,
    is_blank,
    is_repeated,
    loop_start,
    open_fence,
    overlaps_by_nature,
)
from endturn.vocabulary.characters import REPLACEMENT_CHARACTER
from endturn.vocabulary.messages import Delta

BLANKS = " " * 2_000
LONG = "".join(f"Line {number} says something of its own.\n" for number in range(200))


def in_chunks(a: str, b: str, size: int, *, prefilled: bool = False, held: int = 1_024, **limits: Any) -> AnswerText:
    """Stitch in small pieces; check that released text is never taken back, and that the held text is bounded."""
    text = AnswerText(a, a, **limits)
    text.expect_continuation(prefilled=prefilled)
    out = a
    for start in range(0, len(b), size):
        out += "".join(delta.text for delta in text.feed(b[start : start + size]))
        assert text.shown.rstrip(REPLACEMENT_CHARACTER) == out.rstrip(REPLACEMENT_CHARACTER)
        assert text.held_size <= min(held, limits.get("max_overlap", held))
    out += "".join(delta.text for delta in (*text.close(), *text.end_answer()))
    assert text.shown == out
    assert text.held_size == 0
    return text


SEAMS = [json.loads(line) for line in Path(__file__).with_name("seams.jsonl").read_text("utf-8").splitlines()]
"""Texts and their continuations, each with what they come to: by what stands in the way at the seam.

`held`: how many characters wait at most before it is known what they are; what is new is shown as it comes.
"""


@pytest.mark.behaviour(22, 29, 30)
@pytest.mark.parametrize("seam", SEAMS, ids=lambda seam: f"{seam['of']}: {seam.get('why', seam['b'])}"[:60])
def test_a_text_and_its_continuation_are_joined(seam: dict[str, Any]) -> None:
    """The result is that of the file, with any pieces of the continuation."""
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
def test_an_exact_repetition_is_removed_with_any_indentation(text: str) -> None:
    """From `min_overlap` characters on, including white space."""
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
    half=st.sampled_from(["", REPLACEMENT_CHARACTER, REPLACEMENT_CHARACTER * 3]),
    size=st.integers(1, 30),
)
def test_a_repetition_is_removed_with_any_blanks(
    words: list[str], blanks: list[str], back: int, before: str, rest: str, half: str, size: int
) -> None:
    """With or without dots before it and half a character after the text: only the text and the new text remain."""
    text = "".join(word + blank for word, blank in zip(words, blanks, strict=False)).rstrip()
    again = "".join(word + blank for word, blank in zip(words[-back:], blanks[13:], strict=False)).rstrip()
    plain, tail = " ".join(words), " ".join(words[-back:])
    assume(not is_repeated(plain) and not overlaps_by_nature(plain, len(tail)))  # such a text may well go on so
    assert in_chunks(text, before + again + rest, size, min_overlap=4).answer == text + rest
    assert stitch(text + half, before + again + "X", min_overlap=4) == text + "X"


@pytest.mark.behaviour(29)
@pytest.mark.parametrize("prefilled", [False, True])
@given(
    before=st.sampled_from(["", "She laughed: ", "x = [", "他说：", "<p>", "Why?\n\n"]),
    unit=st.text(st.sampled_from("ab0哈語，。 ,.!|-/()<>*é\t"), min_size=1, max_size=8)
    | st.sampled_from(["ha ", "no, ", "na", "--- | ", "00 ", "word ", '"a", ', "a-b", "(x) ", "- [ ] a "]),
    times=st.integers(4, 40),
    after=st.sampled_from(["", ". Then silence.", " And so on.", "]", "。然后。"]),
    size=st.integers(1, 40),
)
@example(before="She laughed: ", unit="ha ", times=15, after=". Then silence.", size=1)
@example(before="", unit="ha ", times=39, after="", size=3)
@example(before="I said: ", unit="no, ", times=39, after="never.", size=3)
def test_a_natural_repetition_is_kept_at_any_cut(
    prefilled: bool, before: str, unit: str, times: int, after: str, size: int
) -> None:
    """A repetitive text continues, truncated between or within its periods.

    Without text before it, it has three periods: a response may begin with a shorter text again.
    """
    whole = before + unit * times + after
    assume(not (prefilled and is_blank(unit)))
    for at in range(len(before) + (1 if before else 3 * len(unit)), len(before) + len(unit) * times):
        if prefilled and whole[at - 1].isspace():
            continue  # what blanks a prefill left out is tested elsewhere
        assert stitch(whole[:at], whole[at:], prefilled=prefilled) == whole
    assert in_chunks(whole[: at // 2], whole[at // 2 :], size).answer == stitch(whole[: at // 2], whole[at // 2 :])


def test_no_more_text_is_held_back_than_is_compared() -> None:
    text = AnswerText(max_overlap=10)
    assert text.feed("a" + REPLACEMENT_CHARACTER * 30) == [Delta(text="a" + REPLACEMENT_CHARACTER * 20)]
    assert text.held_size == 10


@pytest.mark.behaviour(30)
@pytest.mark.parametrize(
    ("came", "whole", "comes_to"),
    [("Say \ufffd", "Say 你好", "Say 你好"), ("Say \ufffd", "Say \ufffd: that", "Say \ufffd: that"),
     ("a  b ", "a  b  c", "a  b  c"), (" ", " \n a", " \n a"), ("a\ufffd", "a", "a\ufffd")],
)  # fmt: skip
def test_a_refetched_response_is_used_unchanged(came: str, whole: str, comes_to: str) -> None:
    """Half a character at the end of the earlier text is replaced by the complete one; everything else is unchanged."""
    text = AnswerText()
    text.begin()
    text.feed(came)
    text.expect_repetition(came)
    text.begin()
    for character in whole:
        text.feed(character)
    text.close()
    text.end_answer()
    assert (text.answer, text.added, text.restarted) == (comes_to, comes_to, False)


def longest_overlap(a: str, b: str, most: int) -> int:
    """Return the longest overlap by its definition, slowly."""
    return next(size for size in range(min(len(a), len(b), most), -1, -1) if a.endswith(b[:size]))


TEXTS = st.text(st.sampled_from("abc 1\n`.é語\ufffd"), max_size=60) | st.text(max_size=60)


@pytest.mark.behaviour(29)
@given(a=TEXTS, b=TEXTS)
@example("   a", "   a")
def test_the_law_of_the_seam(a: str, b: str) -> None:
    """Without overlap, restart, preamble, fence and half characters, the texts are concatenated."""
    plain = " ".join(a.split())
    for start in (0, next((b.index(dots) + len(dots) for dots in ("...", "…") if dots in b), 0)):
        again = " ".join(b[start:].split())
        assume(longest_overlap(plain, again, 32) < 2)  # and a blank on each side
        assume(longest_overlap(a, b[start:], 32) < 4)  # blanks count in one to the character
        assume(not (len(a) > 32 and plain.startswith(" ".join(b[start:32].split()))))
        assume(not (plain and again.startswith(plain)))  # however short it is
    assume(not is_preamble(b.partition("\n")[0]))
    assume(not open_fence(a))
    assume(not a.endswith(REPLACEMENT_CHARACTER))
    assert stitch(a, b, min_overlap=4, max_overlap=32) == a + b


BLANKS_IN = re.compile(r"\s+")
OPENED = ("```py\n", "```js\n", "```\n", "``` py \n", "  ```py\n", "- ```py\n", "````\n", "\n```\n")
FENCES = (*OPENED, "```", "```py", "``", "~~~\n", "~~~~py\n", "~~~py\n", "~~")
MARKS = (
    "...",
    "…",
    "..",
    ".",
    '"',
    "'",
    "“",
    "”",
    "*",
    "**",
    "_",
    "`",
    "!",
    REPLACEMENT_CHARACTER,
    REPLACEMENT_CHARACTER * 2,
)
ANNOUNCED = ("Continuing:\n", "Continuing from where I left off:\n\n", "Sure!\n", "Sure", "Continuing")
WORDS = st.sampled_from(["abc", "def", "x", "1", "12", "語", "é", "yes", "no"])
AT_SEAM = st.lists(BLANK | st.sampled_from((*FENCES, *MARKS, *ANNOUNCED)), max_size=3).map("".join)
TEXT = st.lists(WORDS | WORDS | BLANK | st.sampled_from((*FENCES, *MARKS)), max_size=12).map("".join)


@st.composite
def seams(draw: st.DrawFn) -> tuple[str, str]:
    """Generate a text, truncated anywhere, and a continuation: an optional prefix, some repeated text, and new text."""
    a = (
        draw(st.sampled_from(("", "", *FENCES)))
        + draw(TEXT)
        + draw(st.sampled_from(("", "", REPLACEMENT_CHARACTER, " ", "\n", "\n    ")))
    )
    at = draw(st.integers(0, len(a)))
    again = draw(st.sampled_from((a, a.strip(), a.rstrip(REPLACEMENT_CHARACTER + "."), a[:at], a[at:], "")))
    if draw(st.booleans()):
        blanks = draw(st.lists(BLANK, min_size=1, max_size=5))
        again = BLANKS_IN.sub(lambda run: blanks[run.start() % len(blanks)], again)
    return a, draw(AT_SEAM) + again + draw(AT_SEAM) + draw(TEXT) + draw(st.sampled_from(("", "", again)))


@st.composite
def windows(draw: st.DrawFn) -> tuple[tuple[str, str], int, int]:
    """Generate a seam with limits, mostly such that it just fits into the window, or just does not."""
    a, b = draw(seams())
    near = [max(1, len(text) + more) for text in (a, b) for more in (-1, 0, 1)]
    most = draw(st.sampled_from((4, 8, 12, 16, 16, 32, *near)))
    return (a, b), min(draw(st.sampled_from((2, 3, 4, 16))), most), most


@pytest.mark.behaviour(29, 30, 32)
@given(
    window=windows(),
    sizes=st.just([1]) | st.just([10_000]) | st.lists(st.integers(0, 5), min_size=1, max_size=9),
    kind=st.sampled_from(("", "prefilled", "again")),
)
@example((("```py\n111111`", "```py\n```111111`"), 4, 16), [10_000], "")
@example((("12", "**12**\nyes"), 6, 6), [1], "")
@example((("yes", '"yes".  \nNo more.'), 4, 8), [1], "")
@example((("Yes indeed.", "Yes indeed "), 4, 16), [1], "")
@example((("yes", 'yes"yes"'), 4, 16), [1], "")
@example((("yes", "yes\n```py\nyes"), 4, 16), [1], "")
@example((("It was said here", '""here too'), 3, 12), [1], "")
@example((("```py", "```pyabcdef\npy"), 8, 8), [1], "")
@example((("abc def", "abc def"), 2, 4), [1, 1, 1, 1, 1, 1, 1, 0], "")
@example((("abc def ghi", "abc def"), 2, 4), [1], "prefilled")
@example((("abc def", "abc"), 2, 3), [1], "prefilled")
@example((("yes", "yes"), 4, 16), [1], "again")
@example(((" \n", " x"), 4, 16), [0, 1], "again")
def test_a_seam_does_not_depend_on_the_chunks(
    window: tuple[tuple[str, str], int, int], sizes: list[int], kind: str
) -> None:
    """In one piece or in many, also empty ones: the same text and the same marks.

    No more text than the window is held back.
    """
    (a, b), least, most = window
    is_kind = {"prefilled": kind == "prefilled", "again": kind == "again"}
    at_once = Seam(a, min_overlap=least, max_overlap=most, **is_kind)
    expected = at_once.feed(b, last=True)
    seam, left, out = Seam(a, min_overlap=least, max_overlap=most, **is_kind), b, None
    for size in itertools.chain(sizes, itertools.repeat(max(1, sizes[-1]))):
        if not left or out is not None:
            break
        out, left = seam.feed(left[:size]), left[size:]
        assert out is not None or len(seam.buffer) <= most
    out = seam.feed("", last=True) if out is None else out + left
    assert out == expected

    def marks(seam: Seam) -> tuple[bool, bool, bool]:
        return seam.restarted, seam.restated, seam.is_restarted_prefill

    assert marks(seam) == marks(at_once)
    if kind != "again" and a:
        text = in_chunks(a, b, max(1, sizes[0]), prefilled=is_kind["prefilled"], min_overlap=least, max_overlap=most)
        assert text.answer == stitch(a, b, prefilled=is_kind["prefilled"], min_overlap=least, max_overlap=most)


@pytest.mark.behaviour(29, 30)
@given(window=windows(), at=st.integers(0, 60))
@example((("12", "**12**"), 6, 6), 6)
@example((("yes", '"yes".   '), 4, 8), 9)
def test_new_text_is_never_lost(window: tuple[tuple[str, str], int, int], at: int) -> None:
    """A new line is in the answer once, whatever is repeated around it."""
    (a, b), least, most = window
    b = f"{b[:at]}\nΩ{b[at:]}"
    assert stitch(a, b, min_overlap=least, max_overlap=most).count("Ω") == 1


def restarts() -> dict[str, tuple[str, str, str, bool]]:
    """Generate a text, its repetition, the added text, and whether it is marked."""
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
def test_a_restart_adds_only_the_new_text(name: str, size: int) -> None:
    """A repetition is skipped by position, with white space compared as one blank; a continuation that then differs is
    appended unchanged, and marked.
    """
    text, again, added, restarted = RESTARTS[name]
    joined = in_chunks(text, again, size)
    assert (joined.answer, joined.restarted) == (text + added, restarted)


@pytest.mark.behaviour(32)
@pytest.mark.parametrize("kind", ["plain", "restart", "periodic", "blank", "half"])
def test_the_cost_is_linear(kind: str) -> None:
    """120,000 characters, one at a time: with quadratic cost, this would not end."""
    a = ("ab" * 60_000) if kind == "periodic" else LONG * (120_000 // len(LONG) + 1)
    others = {"plain": "Quite another text. " * 6_000, "blank": " " * 120_000, "half": REPLACEMENT_CHARACTER * 120_000}
    b = others.get(kind, a)
    text = AnswerText(a, a)
    text.expect_continuation()
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
    """Five or more repetitions at the end, over at least half of 400 or more characters."""
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
    """Rows with different data are no loop, however much they share."""
    rows = [f"{before * 3}<{datum}>{after * 3}\n" for datum in data]
    text = "".join(rows)
    assert loop_start(text[: len(text) - min(cut, len(rows[-1]) // 2)]) is None


@pytest.mark.behaviour(16)
@given(
    before=st.text("abc .\n", max_size=300),
    unit=st.text("abcdef .\n", min_size=1, max_size=120),
    more=st.integers(0, 300),
)
def test_the_text_after_the_start_of_a_loop_is_repetition(before: str, unit: str, more: int) -> None:
    """The removed part of a loop can be rebuilt from the rest by repeating its last passage."""
    size = max(5 * len(unit), len(before), MIN_LOOP_CHARS) + more
    text = before + (unit * size)[:size]
    start = loop_start(text)
    assert start is not None
    assert start <= len(before) + len(unit)
    kept, gone = text[:start], text[start:]
    assert any((kept[-size:] * len(gone)).startswith(gone) for size in range(1, len(unit) + 1))


def test_patterns_are_searched_in_linear_time() -> None:
    """Texts that are the worst case for finding loops and open code blocks: a quadratic search would not end."""
    for text in ("a" * 1_000_000, ("a" * 100_000 + "b") * 9, "b" * 500_000 + "a" * 499_999, "one line\n" * 110_000):
        loop_start(text)
    for text in ("~", "`", " ", "- ", "\n ```a`"):
        open_fence(text * 200_000)
    open_fence("```" + "a" * 200_000)
