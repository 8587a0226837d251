"""Joining the parts of an answer: the law, its exceptions, and what it costs."""

from __future__ import annotations

import time

import pytest
from hypothesis import assume, example, given, strategies as st

from endturn.chat import Delta, Message
from endturn.continuation.history import collapse
from endturn.continuation.policy import ContinuationPolicy
from endturn.continuation.stitch import Stitcher, stitch
from endturn.continuation.text_heuristics import (
    HALF,
    LOOP_FROM,
    Fence,
    Overlap,
    is_preamble,
    loop_start,
    may_become_preamble,
    open_fence,
    tells,
)
from endturn.controller import ContinuationController, TurnResult
from endturn.events import TurnOutcome
from endturn.stop import Resume, StopReason
from tests.support.turns import SEARCH, Played, ask, call, calling, cut, paused, said

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
        assert stitcher.shown.rstrip(HALF) == out.rstrip(HALF)
        assert stitcher.held <= limits.get("max_overlap", 1_024)
    delta = stitcher.close()
    out += delta.text if delta is not None else ""
    out += stitcher.end()
    assert stitcher.shown == out
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
    pytest.param("it goes on ", " and on", id="white space on both sides, and nothing repeated"),
    pytest.param("it goes on", "... and on", id="dots, and nothing repeated"),
    pytest.param("it goes on", "\n… and on", id="an ellipsis, and nothing repeated"),
    pytest.param("it goes on", "..", id="two dots"),
    pytest.param("it goes on...", "...and on", id="dots on both sides"),
    pytest.param("wait", "...", id="nothing but dots"),
    pytest.param("it is \ufffd here", "\ufffd there", id="half a character that no part ends with"),
    pytest.param("it is ", "\ufffd", id="half a character after a seam"),
    pytest.param("it is \ufffd", "", id="half a character that nothing continues"),
    pytest.param(f"{SENTENCE}\n", f"{SENTENCE}, so", id="a row that begins as the last one and goes on differently"),
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


@pytest.mark.behaviour(29)
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("The quick brown fox jumps over", "\nthe quick  brown fox jumps over the dog", None),
        ("See: the quick brown fox jumps over", "\nthe quick  brown fox jumps over the dog", " the dog"),
        ("the quick brown fox jumps over", "  the quick brown fox jumps over the dog", " the dog"),
        ("the  quick\nbrown fox jumps over", "the quick brown\n\nfox jumps over the dog", " the dog"),
        ("the quick brown fox jumps over", "brown fox\tjumps over\n\nThe end", "\n\nThe end"),
        ("the quick brown fox jumps over ", "brown fox jumps over the dog", "the dog"),
        ("the quick brown fox jumps over ", "brown fox jumps over\n\nthe dog", "the dog"),
        ("the quick brown fox jumps over ", "brown fox jumps over  the dog", "the dog"),
        ("the quick brown fox jumps over\n\n", "brown fox jumps over the dog", "the dog"),
        ("the quick brown fox jumps over \n", "brown fox jumps over", ""),
        ("the quick brown fox jumps over", "brown fox jumps over \n", " \n"),
        ("the quick brown fox jumps over\n", "brown fox jumps over\n\nthe dog", "\nthe dog"),
        ("the quick brown fox jumps over\n\n", "brown fox jumps over\nthe dog", "the dog"),
        ("def quick_brown_fox():\n", "def quick_brown_fox():\n    return 1", "    return 1"),
        ("def quick_brown_fox():\n  ", "def quick_brown_fox():\n    return 1", "  return 1"),
        ("def quick_brown_fox():\n", "def quick_brown_fox():\r\n    return 1", "    return 1"),
        ("def quick_brown_fox():\n\n    ", "def quick_brown_fox():\n    return 1", "return 1"),
    ],
)
@pytest.mark.parametrize("size", [1, 4, 1_000])
def test_white_space_is_one_blank_where_text_is_repeated(a: str, b: str, expected: str | None, size: int) -> None:
    """The first part's stays, the repetition goes whatever its blanks are; new lines and indentation are kept."""
    assert in_chunks(a, b, size).text == a + (b if expected is None else expected)


@pytest.mark.behaviour(29)
@pytest.mark.parametrize(
    ("a", "b", "is_found"),
    [
        ("said: 0123456789abcd e", "0123456789abcd e!", True),
        ("said: 0123456789abc\n\n\ne", "0123456789abc   e!", False),
        ("said: 0123456789abcd ", "0123456789abcd\ne!", False),
        ("said: 0123456789abcde ", "0123456789abcde\ne!", True),
        ("said: 0123456789abcde", "\n0123456789abcde!", True),
        ("said:0123456789abcde", "\n0123456789abcde!", False),
    ],
)
def test_the_least_overlap_counts_white_space_once(a: str, b: str, is_found: bool) -> None:
    """16 characters, where each run of white space is one: also at the edges, where both sides have some."""
    assert stitch(a, b) == (a + b[-1] if is_found and not a.endswith(" ") else a + ("e!" if is_found else b))


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
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("<ul>\n          </div>\n        </div>\n      </div>\n", "    </div>\n  </div>\n</div>\n</body>\n"),
        ("        }\n      }\n    }\n  }", "\n      }\n    }\n  }\n}"),
    ],
)
def test_lines_that_differ_in_their_indentation_are_no_repetition(a: str, b: str) -> None:
    """Closing tags and braces: nothing of them goes."""
    assert stitch(a, b) == a + b


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
    assert in_chunks(text, before + again + rest, size, min_overlap=4).text == text + rest
    assert stitch(text + half, before + again + "X", min_overlap=4) == text + "X"


@pytest.mark.behaviour(29)
@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("The Chinese greeting is \ufffd", "The Chinese greeting is 你好.", "The Chinese greeting is 你好."),
        ("Say \ufffd", "你好", "Say 你好"),
        ("Say \ufffd\ufffd\ufffd", "你好", "Say 你好"),
        ("Say \ufffd", "\ufffd\ufffd你好", "Say 你好"),
        ("Say \ufffd", "\ufffd", "Say \ufffd"),
        ("\ufffd", "你好", "你好"),
        ("Say \ufffd", " \ufffd!", "Say  \ufffd!"),
        ("Say \ufffd", "你\ufffd", "Say 你\ufffd"),
        ("The Chinese greeting is \ufffd", "...greeting is 你好.", "The Chinese greeting is ...greeting is 你好."),
        ("The Chinese greeting is \ufffd", "...Chinese greeting is 你好.", "The Chinese greeting is 你好."),
        ("The Chinese greeting is \ufffd", "Chinese greeting is \ufffd你好.", "The Chinese greeting is 你好."),
        ("The Chinese greeting is \ufffd", "Chinese greeting is \ufffd", "The Chinese greeting is \ufffd"),
        ("Say \ufffd", "Continuing:\n你好", "Say 你好"),
        ("Say \ufffd", "Continuing:\n", "Say \ufffd"),
        ("```py\nx = '\ufffd", "```py\n你'", "```py\nx = '你'"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 1_000])
def test_half_a_character_goes_at_a_seam(a: str, b: str, expected: str, size: int) -> None:
    """What a limit has left of it, and what a continuation begins with; if nothing continues it, it stays."""
    assert stitch(a, b) == expected
    assert in_chunks(a, b, size).text == expected


def test_half_a_character_that_was_shown_stays_shown() -> None:
    """Text that was given out is not taken back; what was half a character is no part of the answer any more."""
    stitcher = in_chunks("The Chinese greeting is \ufffd", "The Chinese greeting is 你好.", 3)
    assert stitcher.shown == "The Chinese greeting is \ufffd你好."
    assert stitcher.replaced == ((24, 25),)
    assert not stitcher.restarted
    once_more = Stitcher(stitcher.shown, stitcher.replaced)
    assert not once_more.is_put_aside
    assert once_more.text == "The Chinese greeting is 你好."


@pytest.mark.behaviour(32)
def test_half_a_character_waits_until_it_is_known_what_follows() -> None:
    """More text of the same part: it is text. The end of the answer: it is text. A continuation: it is gone."""
    stitcher = Stitcher()
    assert not stitcher.passes("a\ufffd")
    given = [stitcher.feed(piece) for piece in ("a\ufffd", "\ufffd", "b", "\ufffd")]
    assert given == [Delta(text="a"), None, Delta(text="\ufffd\ufffdb"), None]
    assert (stitcher.text, stitcher.held) == ("a\ufffd\ufffdb\ufffd", 1)
    stitcher.seam()
    assert stitcher.feed("cd") == Delta(text="cd")
    assert (stitcher.text, stitcher.held) == ("a\ufffd\ufffdbcd", 0)
    assert (stitcher.feed("\ufffd"), stitcher.close(), stitcher.end()) == (None, None, "\ufffd")
    assert stitcher.text == "a\ufffd\ufffdbcd\ufffd"


def test_no_more_waits_than_is_looked_at() -> None:
    """However many there are."""
    stitcher = Stitcher(max_overlap=10)
    assert stitcher.feed("a" + HALF * 30) == Delta(text="a" + HALF * 20)
    assert stitcher.held == 10


@pytest.mark.behaviour(30)
def test_a_response_that_is_fetched_again_is_taken_as_it_is() -> None:
    """Half a character at the end of what had come is replaced by the whole; blanks and all else stay as they are."""
    for came, whole in (
        ("Say \ufffd", "Say 你好"),
        ("Say \ufffd", "Say \ufffd: that"),
        ("a  b ", "a  b  c"),
        (" ", " \n a"),
        ("a\ufffd", "a"),
    ):
        stitcher = Stitcher()
        stitcher.begin()
        stitcher.feed(came)
        stitcher.again(came)
        stitcher.begin()
        for character in whole:
            stitcher.feed(character)
        stitcher.close()
        stitcher.end()
        assert stitcher.text == (whole if len(whole) > 1 else came)
        assert stitcher.added == stitcher.text
        assert not stitcher.restarted


@pytest.mark.behaviour(29)
@pytest.mark.parametrize("dots", ["...", "…", " ...", "\n\n… ", "...\n"])
@pytest.mark.parametrize("size", [1, 2, 10_000])
def test_leading_dots_go_where_a_repetition_stands_behind_them(dots: str, size: int) -> None:
    """An overlap or a restart; without one they are text."""
    assert in_chunks(SENTENCE, f"{dots}the lazy dog and then it slept.", size).text == f"{SENTENCE} it slept."
    assert in_chunks(SENTENCE, f"{dots}it slept.", size).text == f"{SENTENCE}{dots}it slept."
    assert in_chunks(LONG, f"{dots}{LONG}And more.", size).text == f"{LONG}And more."
    other = f"{dots}{LONG[:3_000]}something else"
    restarted = in_chunks(LONG, other, size)
    assert (restarted.text, restarted.restarted) == (LONG + other, True)


def test_dots_that_are_repeated_themselves_go_once() -> None:
    """The overlap may begin with them."""
    assert stitch("And so on, ...he said to himself", "...he said to himself.") == "And so on, ...he said to himself."


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


TEXTS = st.text(st.sampled_from("abc 1\n`.é語\ufffd"), max_size=60) | st.text(max_size=60)


@pytest.mark.behaviour(29)
@given(a=TEXTS, b=TEXTS)
def test_the_law_of_the_seam(a: str, b: str) -> None:
    """No overlap, no restart, no preamble, no fence, no half of a character: the texts are joined as they are."""
    plain = " ".join(a.split())
    for start in (0, next((b.index(dots) + len(dots) for dots in ("...", "…") if dots in b), 0)):
        again = " ".join(b[start:].split())
        assume(longest_overlap(plain, again, 32) < 2)  # and a blank on each side
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
@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize(("stood", "came", "left"), [("", " And", " And"), ("\n", " \nAnd", "And"), (" ", "", "")])
def test_a_restart_may_have_other_blanks(size: int, stood: str, came: str, left: str) -> None:
    """White space is compared as one blank; a restart that diverges is appended as it came."""
    text = LONG.rstrip()
    again = "\n" + text.replace(" ", "  ").replace("\n", "\n\n")
    stitcher = in_chunks(text + stood, again + came, size)
    assert (stitcher.text, stitcher.restarted) == (text + stood + left, False)
    other = again[:3_000] + "something else"
    stitcher = in_chunks(text + stood, other, size)
    assert (stitcher.text, stitcher.restarted) == (text + stood + other, True)


@pytest.mark.behaviour(30)
def test_white_space_alone_is_no_restart() -> None:
    """It says too little, however much there is of it."""
    text = "x " + LONG
    assert stitch(text, " " * 2_000 + "y") == text + " " * 2_000 + "y"
    assert stitch(text, "x" + " " * 2_000 + "y") == text + "x" + " " * 2_000 + "y"


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
        pytest.param("```\ncode li", "```\nne 2", "```\ncode line 2", id="bare, within a line"),
        pytest.param("```python\ncode li", "```\nne 2", "```python\ncode line 2", id="without the language"),
        pytest.param("```\ncode li", "```python\nne 2", "```\ncode line 2", id="with a language now"),
        pytest.param("```py\nx = 1", "```\n\nDone", "```py\nx = 1```\n\nDone", id="closed carelessly"),
        pytest.param("```py\nx = 1", "```\n \t\r\nDone", "```py\nx = 1```\n \t\r\nDone", id="the same, with blanks"),
        pytest.param("```py\nx = 1", "```\n", "```py\nx = 1```\n", id="closed carelessly, and over"),
        pytest.param("```py\nx = 1", "```", "```py\nx = 1```", id="the same without a newline"),
        pytest.param("```py\nx = 1\n  ", "```\nDone", "```py\nx = 1\n  ```\nDone", id="closed, indented"),
        pytest.param("~~~\nx = ", "```\n1", "~~~\nx = ```\n1", id="another marker"),
        pytest.param("````\nx = ", "```\n1", "````\nx = ```\n1", id="a shorter marker"),
        pytest.param("```py\nx = ", "```js\n1", "```py\nx = ```js\n1", id="another language"),
        pytest.param("```Python\nx = ", "```python  \n1", "```Python\nx = 1", id="another case, and blanks"),
        pytest.param("   ```python\n   code li", "   ```python\nne 2", "   ```python\n   code line 2", id="indented"),
        pytest.param("```python\ncode li", "        ```python\nne 2", "```python\ncode line 2", id="indented now"),
        pytest.param("    ```py\n    code li", "```py\nne", "    ```py\n    code line", id="indented before"),
        pytest.param("1. Do:\n\n      ```sh\n      l", "   ```\ns", "1. Do:\n\n      ```sh\n      ls", id="in a list"),
        pytest.param("- ```sh\n  l", "  ```sh\ns", "- ```sh\n  ls", id="behind a bullet"),
        pytest.param(
            "      ```sh\n      ls\n      ```\n", "      ```sh\n", "      ```sh\n      ls\n      ```\n      ```sh\n",
            id="a second block in a list",
        ),
        pytest.param(
            "```\nfirst_number = 1\nsecond_number = 2\n", "```\nsecond_number = 2\nthird = 3\n",
            "```\nfirst_number = 1\nsecond_number = 2\nthird = 3\n", id="bare, then repeated lines",
        ),
        pytest.param(
            "```\nfirst_number = 1\nsecond_number = 2", "```\n\nsecond_number = 2\nthird = 3\n",
            "```\nfirst_number = 1\nsecond_number = 2\nthird = 3\n", id="bare, an empty line, then repeated lines",
        ),
        pytest.param(
            "```py\nfirst_number = 1\nsecond_", "```py\n...\nfirst_number = 1\nsecond_number = 2\n",
            "```py\nfirst_number = 1\nsecond_number = 2\n", id="fence, dots, then repeated lines",
        ),
        pytest.param("```\nx = 1\n", "```\nDone", "```\nx = 1\n```\nDone", id="closed where nothing is repeated"),
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


@pytest.mark.parametrize(
    ("text", "opened"),
    [
        ("```py\n", Fence("```", "py")),
        ("```\n", Fence("```", "")),
        ("~~~~ Py \r\n", Fence("~~~~", "py")),
        ("      ```py\n", Fence("```", "py")),
        ("- ```py\n", Fence("```", "py")),
        ("12) ```py\n", Fence("```", "py")),
        ("text ```py\n", None),
        ("```py", None),
        ("``py\n", None),
        ("```a`b\n", None),
        ("```py\nx\n```\n", None),
        ("```py\nx\n   ````\n", None),
        ("    ```py\nx\n    ```\n", None),
        ("```md\n    ```\n", Fence("```", "md")),
        ("```md\n- ```\n", Fence("```", "md")),
        ("````md\n```\n", Fence("````", "md")),
        ("```md\n```js\n", Fence("```", "md")),
        ("```a\n```\n```b\n", Fence("```", "b")),
    ],
)
def test_the_open_code_block_is_found(text: str, opened: Fence | None) -> None:
    """What opened it, however it is indented; it is closed by as many marks or more, indented by 3 more at most."""
    assert open_fence(text) == opened


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
@pytest.mark.parametrize("kind", ["plain", "restart", "periodic", "blank", "half"])
def test_the_cost_is_linear(kind: str) -> None:
    """120 000 characters, one at a time, in well under a second: nothing is scanned twice."""
    a = ("ab" * 60_000) if kind == "periodic" else LONG * (120_000 // len(LONG) + 1)
    others = {"plain": "Quite another text. " * 6_000, "blank": " " * 120_000, "half": HALF * 120_000}
    b = others.get(kind, a)
    stitcher = Stitcher(a)
    stitcher.seam()
    started = time.perf_counter()
    for character in b:
        stitcher.feed(character)
    stitcher.close()
    assert time.perf_counter() - started < 2


def shown(*script: object, chunk: int | None = None, **policy: object) -> tuple[str, TurnResult]:
    """What a consumer sees of a turn, and its result."""
    controller = ContinuationController(
        Played(*script, chunk=chunk),  # type: ignore[arg-type]
        policy=ContinuationPolicy(**policy),
        tools={"search": lambda call: "found"},
    )
    *deltas, result = controller.stream(ask(tools=(SEARCH,)))
    assert isinstance(result, TurnResult)
    return "".join(delta.text for delta in deltas if isinstance(delta, Delta)), result


@pytest.mark.behaviour(20)
@pytest.mark.behaviour(30)
@pytest.mark.parametrize("chunk", [None, 1, 3])
@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param([said("It is \ufffd")], "It is \ufffd", id="whole"),
        pytest.param([said("It is \ufffd", StopReason.SAFETY_BLOCKED)], "It is \ufffd", id="blocked"),
        pytest.param([said("It is \ufffd", StopReason.MISSING)], "It is \ufffd", id="lost"),
        pytest.param([cut("It is \ufffd"), said("你好")], "It is 你好", id="continued"),
        pytest.param([cut("It is \ufffd"), cut("\ufffd好\ufffd"), said("你")], "It is 好你", id="continued twice"),
        pytest.param([cut("It is \ufffd"), said("")], "It is \ufffd", id="not continued"),
        pytest.param([calling(call(), text="I look: \ufffd"), said("Yes.")], "I look: \ufffdYes.", id="with a call"),
        pytest.param(
            [calling(call(arguments='{"q": 1}'), text="Look: \ufffd"), said("Yes.")], "Look: \ufffdYes.",
            id="with a wrong call",
        ),
        pytest.param([paused("It is \ufffd"), said("no seam")], "It is \ufffdno seam", id="paused"),
        pytest.param(
            [paused("It is \ufffd", Resume.RETRIEVE_SAME_ID, id="r"), said("It is 你好")], "It is \ufffd",
            id="paused, and left so",
        ),
    ],
)  # fmt: skip
def test_half_a_character_in_a_turn(script: list[object], expected: str, chunk: int | None) -> None:
    """It goes where it is continued, and stays where it is not; the deltas, the text and the messages agree."""
    seen, result = shown(*script, chunk=chunk)
    assert seen == result.text == expected
    assert "".join(message.text for message in result.messages if message.role == "assistant") == expected


@pytest.mark.behaviour(19)
def test_half_a_character_in_a_turn_that_is_taken_up_again() -> None:
    """It was shown and stays so; the overlap is found behind it, and the answer is whole."""
    seen, result = shown(cut("The Chinese greeting is \ufffd"), continuation_max_attempts=0)
    assert seen == result.text == result.answer == "The Chinese greeting is \ufffd"
    played = Played(said("Chinese greeting is 你好."), chunk=2)
    resumed = ContinuationController(played).run(result.resume())
    assert resumed.outcome is TurnOutcome.COMPLETED
    assert resumed.text == "The Chinese greeting is \ufffd你好."
    assert resumed.answer == resumed.messages[-1].text == "The Chinese greeting is 你好."
    assert not resumed.restarted


@pytest.mark.behaviour(25)
def test_half_a_character_in_a_history() -> None:
    """The segments keep it, the merged message does not."""
    nudge = Message(role="user", content="go on", synthetic=True)
    segments = (cut("It is \ufffd").message(), nudge, said("你好").message())
    assert [message.text for message in collapse(segments)] == ["It is 你好"]


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


def test_an_open_code_block_is_found_in_linear_time() -> None:
    """Of the kinds of text that are worst for a search."""
    for text in (
        "~" * 200_000,
        "`" * 200_000,
        "```" + "a" * 200_000,
        " " * 200_000,
        "- " * 100_000,
        "\n ```a`" * 30_000,
    ):
        started = time.perf_counter()
        open_fence(text)
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
