"""Joining the parts of one answer, as they arrive.

What a continuation repeats is removed, nothing is invented.

At a seam (where a continuation begins) these may be in the way, looked for in this order:

1. half a character: the U+FFFD at the end of a part that was cut within one goes, and the other
half with it;
2. a preamble: a first line such as "Continuing from where I left off:" goes;
3. a restart: the continuation repeats the whole answer from its beginning. It is swallowed by
   position; what follows the end of the answer so far is appended. If it turns out to be another
   text, all of it is appended, and marked;
4. an overlap: the continuation begins with the last characters of the answer; they are not written
twice;
5. dots, or a quotation mark: a leading `...` or `"` goes if a restart or an overlap is found behind
it;
6. a fence: the answer stands in an open code block, and the continuation opens that block again;
the line goes.

An overlap has `min_overlap` characters at least, but for two kinds. A response that begins with the
whole answer, how short it may be, says it again (`restated`): in quotation marks, emphasis or a
code block too, where nothing follows. And a response that is nothing but the answer's last words,
on the same line and outside of a code block, adds nothing.

What repeats by nature is kept, whatever it may be taken for: `ha ha ha`, rows of equal cells. The
rule: an overlap that is itself two or more times the same, or that the answer has said twice in a
row, or that lies in what the answer says three times in a row, and an answer that is three or more
times the same, tell nothing of what was written twice.

Restart and overlap take any white space for one blank: what the answer has of it stays.

Otherwise `stitch(a, b) == a + b`. Text is held back only while one of these is still possible, at
most `max_overlap` characters; text once given out is never taken back. So the U+FFFD at the end of
what came waits too: until more text follows in the same part, or `end`. Cost is linear in the text,
whatever the size of the chunks, and at worst quadratic in `max_overlap`.

What it is not: a diff. A continuation that says the same in other words is appended as it is.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Final

from endturn.continuation.preambles import LONGEST, is_preamble, may_become_preamble
from endturn.continuation.text_heuristics import (
    LEADING_DOTS,
    LEADING_QUOTES,
    fence,
    is_closing,
    is_repeated,
    may_become_dots,
    may_become_fence,
    may_overlap_more,
    open_fence,
    opening,
    overlap,
    overlaps_by_nature,
    tells,
)
from endturn.vocabulary import HALF


def stitch(
    a: str, b: str, *, min_overlap: int = 16, max_overlap: int = 1_024, prefilled: bool = False
) -> str:
    """A cut text and its continuation as one text; `prefilled` as in `Seam`."""
    if not a:
        return b
    rest = Seam(a, least=min_overlap, most=max_overlap, prefilled=prefilled).feed(b, last=True)
    return a.rstrip(HALF) + rest if rest else a


class Seam:
    """What is undecided between a text and its continuation.

    Every decision looks at a window, the first `most` characters of what is held, and waits until
    these tell, or until it is known that more follow: so it is the same however they come.

    Args:
        text: as it was cut, perhaps within a character.
        prefilled: no question stands between. White space at the text's end was left out (a prefill
            may not end with any): what the continuation begins with of it is not written twice.
        again: what comes begins as the text does; nothing else is looked for.

    Attributes:
        restarted: the continuation began as the text did, and went on differently.
        restated: the continuation begins with the whole text.
        begun_anew: a prefilled continuation begins as the text does, and is another: all of it is
            left out.
    """

    __slots__ = ("_decision", "_end", "_is_exact", "_is_halved", "_is_last", "_is_prefilled",
                 "_least", "_most",
                 "_plain", "_stood", "_stripped", "_text", "begun_anew", "held", "restarted",
                 "restated")  # fmt: skip

    def __init__(
        self, text: str, *, least: int, most: int, prefilled: bool = False, again: bool = False
    ) -> None:
        self._text = text.rstrip(HALF)
        body = self._text.rstrip()
        self._stood = self._text[len(body) :]
        self._plain = _plain(body)
        self._end = _plain(body[-most:])
        self._least, self._most = least, most
        self._is_halved, self._is_exact, self._is_last = self._text != text, again, False
        self._stripped = self._stood[-most:] if prefilled else ""
        self._is_prefilled = prefilled
        self._decision = self._swallow(0) if again else self._decide()
        self.held = ""
        self.restarted = self.restated = self.begun_anew = False

    def feed(self, text: str, *, last: bool = False) -> str | None:
        """Take the next piece.

        Returns what of all that came is to be given out, None until that is known.
        """
        if not (text or last):  # an empty piece tells nothing
            return None
        self.held += text
        self._is_last = last
        try:
            next(self._decision)
        except StopIteration as decided:
            rest: str = decided.value
            return rest
        return None

    @property
    def _window(self) -> str:
        """What decisions look at."""
        return self.held[: self._most]

    @property
    def _is_full(self) -> bool:
        """Whether the window will not change any more, nor whether text follows it."""
        return self._is_last or len(self.held) > self._most

    @property
    def _is_all(self) -> bool:
        """Whether nothing follows the window: what is true of all that came is known."""
        return self._is_last and len(self.held) <= self._most

    def _decide(self) -> Generator[None, None, str]:
        yield from self._drop_half()
        yield from self._strip()
        yield from self._pass_preamble()
        if self._is_prefilled and (yield from self._begins_anew()):
            return (yield from self._discard())
        rest = yield from self._said_again()
        if rest is None:
            rest = yield from self._repeated(0)
        if rest is None:
            rest = yield from self._reopened()
        return self.held if rest is None else rest

    def _begins_anew(self) -> Generator[None, None, bool]:
        """Return whether the response repeats the text's start and then differs or ends.

        At least `least` characters of the text are repeated, but not all of it.
        """
        while True:
            seen = _plain(self._window)
            same = _common(seen, self._plain)
            if same < len(seen) or same == len(self._plain) or self._is_full:
                break
            yield
        is_other = self._least <= same < len(self._plain) and (same < len(seen) or self._is_all)
        # Rows that are alike begin alike.
        again = seen[:same].rstrip()
        return (
            is_other
            and self._plain.find(again, 1) < 0
            and not overlaps_by_nature(again, len(again))
        )

    def _discard(self) -> Generator[None, None, str]:
        """Leave out all that comes."""
        self.begun_anew, self.held = True, ""
        while not self._is_last:
            yield
            self.held = ""
        return ""

    def _said_again(self) -> Generator[None, None, str | None]:
        """Return what follows the whole text, if the response begins with it.

        Only for a short text, or a response that is nothing else. None if it is not so, or if the
        text is long enough to be found as an overlap or as a restart.
        """
        while not self._is_full and may_become_fence(self.held.lstrip()):
            yield
        stood = opening(self._text)
        text = _plain(self._text[stood.end() :]).rstrip()
        sentence = text.rstrip(_SENTENCE_ENDS)
        if not any(map(str.isalnum, text)) or len(self._text) > self._most:
            return None
        while True:
            window = self._window
            opened = opening(window)
            came = window[opened.end() :]
            seen = _plain(came)
            if not seen.startswith(text):
                is_sentence = seen.rstrip() == sentence
                if not self._is_full and (is_sentence or text.startswith(seen)):
                    yield
                    continue
                return self._restate() if self._is_all and is_sentence else None
            is_wrapped = opened.groups() != stood.groups()
            if len(text) >= self._least and not is_wrapped:
                return None
            rest = came[_length(came, len(text), after_blank=True) :]
            is_over = is_closing(rest) if is_wrapped else not rest.strip()
            again = _plain(rest[opening(rest).end() :])
            if self._is_full or not (
                is_over or text.startswith(again) or may_become_fence(rest.lstrip())
            ):
                break
            yield
        goes_on = again.startswith(text)
        if is_repeated(text) or goes_on or not self._lines_up(came, text.count(" ")):
            return None
        if self._is_all and is_over:
            return self._restate()
        is_number = not tells(text) and rest[:1].isalnum()
        if is_wrapped or is_number or not self._may_follow(rest):
            return None
        self.held, self.restated = rest + self.held[self._most :], True
        return (yield from self._after_repetition())

    def _restate(self) -> str:
        """Take the whole of what came for a repetition of the whole text."""
        self.held, self.restated = "", True
        return ""

    def _drop_half(self) -> Iterator[None]:
        """The other half of a character that was cut goes."""
        while self._is_halved:
            self.held = self.held.lstrip(HALF)
            if self.held or self._is_last:
                return
            yield

    def _strip(self) -> Iterator[None]:
        """Leave out of the white space that comes first what stands already.

        The model may give it all, or a part.
        """
        stood = self._stripped
        came = _blanks(self.held)[: len(stood)]
        while came == self.held and len(came) < len(stood) and not self._is_last:
            yield
            came = _blanks(self.held)[: len(stood)]
        if came in stood:
            size = len(came)
        else:
            same = next(at for at in range(len(stood) + 1) if came[: at + 1] != stood[: at + 1])
            size = max(
                same, next(size for size in range(len(came), -1, -1) if stood.endswith(came[:size]))
            )
        self.held = self.held[size:]

    def _pass_preamble(self) -> Iterator[None]:
        """Drop a first line that only announces the continuation, and the empty line after it."""
        longest = min(LONGEST, self._most)
        while True:
            line, newline, rest = self.held.partition("\n")
            if newline or self._is_last or len(line) > longest or not may_become_preamble(line):
                break
            yield
        if newline and len(line) <= longest and is_preamble(line):
            self.held = rest
            while self.held in ("", "\r") and not self._is_last:
                yield
            self.held = (
                self.held[2:] if self.held.startswith("\r\n") else self.held.removeprefix("\n")
            )

    def _repeated(self, start: int) -> Generator[None, None, str | None]:
        """What follows a repetition that begins there in what is held, or behind dots.

        None if there is none.
        """
        rest = yield from self._found(start)
        if rest is None:
            while not self._is_full and may_become_dots(self.held[start:]):
                yield
            dots = LEADING_DOTS.match(self.held, start, self._most)
            if dots is not None:
                rest = yield from self._found(dots.end())
        if rest is None:
            rest = yield from self._quoted(start)
        return rest

    def _quoted(self, start: int) -> Generator[None, None, str | None]:
        """What follows a repetition behind a quotation mark, without the one that closes it.

        None if there is none.
        """
        quotes = LEADING_QUOTES.match(self.held, start, self._most)
        while not self._is_full and quotes is not None and quotes.end() == len(self.held):
            yield
            quotes = LEADING_QUOTES.match(self.held, start, self._most)
        if quotes is None:
            return None
        rest = yield from self._found(quotes.end())
        if rest is None:
            return None
        self.held = rest
        while not self._is_full and is_closing(self.held):
            yield
        return "" if self._is_all and is_closing(self.held) else self.held

    def _found(self, start: int) -> Generator[None, None, str | None]:
        """What follows a restart or an overlap that begins there in what is held.

        None if there is none.
        """
        exact = 0 if start else (yield from self._exact_size())
        while True:
            window = self.held[start : self._most]
            seen = _plain(window)
            is_restart = len(self._text) > self._most and self._plain.startswith(seen)
            if is_restart and len(self.held) >= self._most and len(seen) >= self._least:
                return (yield from self._swallow(start))
            if self._is_full or not (is_restart or may_overlap_more(self._end, seen)):
                size = overlap(self._end, seen)
                may_be_words = size < self._least and self._are_last_words(window, seen, size)
                if self._is_full or not (may_be_words or (self._stood and size == len(seen))):
                    break
            yield
        while size and not (
            self._may_follow(seen[size:]) and self._lines_up(window, seen[:size].count(" "))
        ):
            size = overlap(self._end, seen, below=size)
        # White space on both sides of the repetition is repeated too.
        before = window[:1].isspace() and self._end[: len(self._end) - size].endswith(" ")
        after = self._stood and seen[size:].startswith(" ")
        is_one = size + bool(before) + bool(after) >= self._least and tells(seen[:size])
        is_one = is_one or (self._is_all and self._are_last_words(window, seen, size))
        is_exact = exact > 0 and size <= len(_plain(self.held[:exact]))
        # Lines that are indented differently are no repetition of each other.
        end, length = (self._text[-self._most :], exact) if is_exact else (self._end, size)
        quote = self.held[:start].strip()
        before_it = end[: len(end) - length].rstrip()
        length += (
            len(end) - length - len(before_it) + len(quote)
            if before_it.endswith(quote) and quote
            else 0
        )
        if (is_exact or is_one) and overlaps_by_nature(end, length):
            return None
        self.restated = size >= len(self._plain.strip()) > 0 and (is_exact or is_one)
        if is_exact:
            self.held = self.held[len(self.held[:exact].rstrip()) :]
        elif is_one:
            self.held = self.held[start + _length(window, size, after_blank=True) :]
        else:
            return None
        return (yield from self._after_repetition())

    def _are_last_words(self, window: str, seen: str, size: int) -> bool:
        """Whether all that came is the text's last words, on the same line.

        Too short for an overlap otherwise.
        """
        if size < 2 or size < len(seen.rstrip()) or not seen[:1].isalnum() or not tells(seen):
            return False
        is_next_line = "\n" in self._stood or "\n" in _blanks(window)
        before = self._end[: len(self._end) - size]
        return (
            not is_next_line
            and not before[-1:].isalnum()
            and before != ""
            and open_fence(self._text) is None
        )

    def _exact_size(self) -> Generator[None, None, int]:
        """How long an overlap is that is one to the character, blanks too.

        0 if it is too short to be meant.
        """
        end = self._text[-self._most :]
        while not self._is_full and may_overlap_more(end, self.held):
            yield
        size = overlap(end, self._window)
        return size if size >= self._least and tells(self.held[:size]) else 0

    def _lines_up(self, window: str, blanks: int) -> bool:
        """Return whether lines are indented alike on both sides of the seam.

        Compared are the last `blanks` blanks of the text with the first of the response.

        Lines that differ in nothing but that are no repetition: of closing tags and braces there
        are many.
        """
        if not blanks:
            return True
        stood = _RUN.findall(self._text.rstrip()[-self._most :])[-blanks:]
        came = _RUN.findall(window.lstrip())[:blanks]
        return all(
            "\n" not in one
            or "\n" not in other
            or one.rpartition("\n")[2] == other.rpartition("\n")[2]
            for one, other in zip(stood, came, strict=False)
        )

    def _swallow(self, start: int) -> Generator[None, None, str]:
        """What follows the whole text, which comes again.

        All that came if it turns out to be another.
        """
        came, position = [self.held[:start]], 0
        self.held = self.held[start:]
        while True:
            came.append(self.held)
            after_blank = position < len(self._plain) and (
                position == 0 or self._plain[position - 1] == " "
            )
            seen = _plain(self.held, after_blank=after_blank)
            if position == len(self._plain) or not self._plain.startswith(seen, position):
                break
            position, self.held = position + len(seen), ""
            if self._is_last:
                self.restated = position == len(self._plain)
                return ""
            yield
        left = self._plain[position : position + len(seen)]
        same = _common(left, seen)
        if position + same < len(self._plain) or not self._may_follow(seen[same:]):
            if self._is_prefilled:
                return (yield from self._discard())
            self.restarted = True
            return "".join(came)
        self.held, self.restated = (
            self.held[_length(self.held, same, after_blank=after_blank) :],
            True,
        )
        return (yield from self._after_repetition())

    def _may_follow(self, rest: str) -> bool:
        """Whether this may follow a repetition of the text's end.

        Where that is white space, nothing else may.
        """
        return not self._stood or rest[:1] in ("", " ")

    def _after_repetition(self) -> Generator[None, None, str]:
        """What is held, less what the text ends in already: white space, half a character."""
        blanks = ""
        if self._stood:
            while not self._is_full and not self.held.strip():
                yield
            came = _blanks(self._window)
            blanks = _new_blanks(self._stood, came, is_exact=self._is_exact)
            self.held = self.held[len(came) :]
        yield from self._drop_half()
        return blanks + self.held

    def _reopened(self) -> Generator[None, None, str | None]:
        """What follows a line that opens the text's open code block again.

        None if there is none.
        """
        opened = open_fence(self._text)
        if opened is None:
            return None
        while not self._is_full and may_become_fence(self.held):
            yield
        line, newline, _ = self._window.partition("\n")
        found = fence(line) if newline else None
        if found is None or found.marker != opened.marker:
            return None
        is_same = found.info == opened.info != ""
        if not is_same and found.info and opened.info:
            return None
        start = len(line) + 1
        rest = yield from self._repeated(start)
        if rest is not None:
            return rest
        # Without a word it may close the block just as well, but not within a line that goes on
        # after it.
        while not (is_same or found.info or self._is_full or self.held[start:].lstrip(" \t\r")):
            yield
        follows = self.held[start : self._most].lstrip(" \t\r")
        within_line = self._text.rpartition("\n")[2].strip() != ""
        reopens = is_same or (within_line and (found.info or follows[:1] not in ("", "\n")))
        return self.held[start:] if reopens else None


def _common(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    shorter = min(len(one), len(other))
    return next((at for at in range(shorter) if one[at] != other[at]), shorter)


_RUN: Final = re.compile(r"\s+")
_SENTENCE_ENDS: Final = ".!?…。！？"


def _plain(text: str, *, after_blank: bool = True) -> str:
    """A text with one blank for all white space in a row.

    `after_blank`: it follows one, and begins with none.
    """
    words = " ".join(text.split())
    before = " " if text[:1].isspace() and not after_blank else ""
    after = " " if text[-1:].isspace() and words else ""
    return before + words + after


def _length(text: str, size: int, *, after_blank: bool) -> int:
    """How much of a text makes so many characters of the plain one.

    `after_blank`: it follows a blank.
    """
    for at, character in enumerate(text):
        if not size:
            return at
        is_blank = character.isspace()
        size -= not (is_blank and after_blank)
        after_blank = is_blank
    return len(text)


def _blanks(text: str) -> str:
    """The white space that a text begins with."""
    return text[: len(text) - len(text.lstrip())]


def _new_blanks(stood: str, came: str, *, is_exact: bool) -> str:
    """What a repetition adds to the white space that the text ends in.

    Another or a second blank is nothing new.

    What it adds to the lines, or to the indentation of the last, is: code depends on it.
    """
    if (is_exact or "\n" in came) and came.startswith(stood):
        return came[len(stood) :]
    (_, newline, indentation), (_, again, deeper) = stood.rpartition("\n"), came.rpartition("\n")
    return (
        deeper[len(indentation) :] if newline and again and deeper.startswith(indentation) else ""
    )
