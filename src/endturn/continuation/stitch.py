"""Joining the parts of one answer, as they arrive: what a continuation repeats is removed, nothing is invented.

At a seam (where a continuation begins) these may be in the way, looked for in this order:

1. half a character: the U+FFFD at the end of a part that was cut within one goes, and the other half with it;
2. a preamble: a first line such as "Continuing from where I left off:" goes;
3. a restart: the continuation repeats the whole answer from its beginning. It is swallowed by position; what follows
   the end of the answer so far is appended. If it turns out to be another text, all of it is appended, and marked;
4. an overlap: the continuation begins with the last characters of the answer; they are not written twice;
5. dots: a leading `...` goes if a restart or an overlap is found behind it;
6. a fence: the answer stands in an open code block, and the continuation opens that block again; the line goes.

Restart and overlap take any white space for one blank: what the answer has of it stays.

Otherwise `stitch(a, b) == a + b`. Text is held back only while one of these is still possible, at most `max_overlap`
characters; text once given out is never taken back. So the U+FFFD at the end of what came waits too: until more text
follows in the same part, or `end`. Cost is linear in the text, whatever the size of the chunks,
and at worst quadratic in `max_overlap`.

What it is not: a diff. A continuation that says the same in other words is appended as it is.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from typing import Final

from endturn.continuation.text_heuristics import (
    HALF,
    LEADING_DOTS,
    PREAMBLE,
    fence,
    is_preamble,
    may_become_dots,
    may_become_fence,
    may_become_preamble,
    may_overlap_more,
    open_fence,
    overlap,
    tells,
)


def stitch(a: str, b: str, *, min_overlap: int = 16, max_overlap: int = 1_024, prefilled: bool = False) -> str:
    """A cut text and its continuation as one text; `prefilled` as in `Seam`."""
    if not a:
        return b
    rest = Seam(a, least=min_overlap, most=max_overlap, prefilled=prefilled).feed(b, last=True)
    return a.rstrip(HALF) + rest if rest else a


class Seam:
    """What is undecided between a text and its continuation.

    Every decision looks at the first `most` characters of what is held and waits until they tell: so it is the same
    however they come.

    Args:
        text: as it was cut, perhaps within a character.
        prefilled: no question stands between. White space at the text's end was left out (a prefill may not end with
            any): what the continuation begins with of it is not written twice.
        again: what comes begins as the text does; nothing else is looked for.
    """

    __slots__ = ("_decision", "_end", "_is_exact", "_is_halved", "_is_last", "_least", "_most", "_plain", "_stood",
                 "_stripped", "_text", "held", "restarted")  # fmt: skip

    def __init__(self, text: str, *, least: int, most: int, prefilled: bool = False, again: bool = False) -> None:
        self._text = text.rstrip(HALF)
        body = self._text.rstrip()
        self._stood = self._text[len(body) :]
        self._plain = _plain(body)
        self._end = _plain(body[-most:])
        self._least, self._most = least, most
        self._is_halved, self._is_exact, self._is_last = self._text != text, again, False
        self._stripped = self._stood[-most:] if prefilled else ""
        self._decision = self._swallow(0) if again else self._decide()
        self.held = ""
        self.restarted = False

    def feed(self, text: str, *, last: bool = False) -> str | None:
        """Take the next piece; returns what of all that came is to be given out, None until that is known."""
        self.held += text
        self._is_last = last
        try:
            next(self._decision)
        except StopIteration as decided:
            rest: str = decided.value
            return rest
        return None

    @property
    def _is_full(self) -> bool:
        """No more can be waited for."""
        return self._is_last or len(self.held) >= self._most

    def _decide(self) -> Generator[None, None, str]:
        yield from self._drop_half()
        yield from self._strip()
        yield from self._pass_preamble()
        rest = yield from self._repeated(0)
        if rest is None:
            rest = yield from self._reopened()
        return self.held if rest is None else rest

    def _drop_half(self) -> Iterator[None]:
        """The other half of a character that was cut goes."""
        while self._is_halved:
            self.held = self.held.lstrip(HALF)
            if self.held or self._is_last:
                return
            yield

    def _strip(self) -> Iterator[None]:
        """Leave out of the white space that comes first what stands already: the model may give it all, or a part."""
        stood = self._stripped
        came = _blanks(self.held)[: len(stood)]
        while came == self.held and len(came) < len(stood) and not self._is_last:
            yield
            came = _blanks(self.held)[: len(stood)]
        if came in stood:
            size = len(came)
        else:
            same = next(at for at in range(len(stood) + 1) if came[: at + 1] != stood[: at + 1])
            size = max(same, next(size for size in range(len(came), -1, -1) if stood.endswith(came[:size])))
        self.held = self.held[size:]

    def _pass_preamble(self) -> Iterator[None]:
        """A first line that only announces the continuation goes, with the empty line that sets it apart."""
        longest = min(PREAMBLE, self._most)
        while True:
            line, newline, rest = self.held.partition("\n")
            if newline or self._is_last or len(line) > longest or not may_become_preamble(line):
                break
            yield
        if newline and len(line) <= longest and is_preamble(line):
            self.held = rest
            while self.held in ("", "\r") and not self._is_last:
                yield
            self.held = self.held[2:] if self.held.startswith("\r\n") else self.held.removeprefix("\n")

    def _repeated(self, start: int) -> Generator[None, None, str | None]:
        """What follows a repetition that begins there in what is held, or behind dots; None if there is none."""
        rest = yield from self._found(start)
        if rest is None:
            while not self._is_full and may_become_dots(self.held[start:]):
                yield
            dots = LEADING_DOTS.match(self.held, start, self._most)
            if dots is not None:
                rest = yield from self._found(dots.end())
        return rest

    def _found(self, start: int) -> Generator[None, None, str | None]:
        """What follows a restart or an overlap that begins there in what is held; None if there is none."""
        exact = 0 if start else (yield from self._exact_size())
        while True:
            window = self.held[start : self._most]
            seen = _plain(window)
            is_restart = len(self._text) > self._most and self._plain.startswith(seen)
            if is_restart and len(self.held) >= self._most and len(seen) >= self._least:
                return (yield from self._swallow(start))
            if self._is_full or not (is_restart or may_overlap_more(self._end, seen)):
                size = overlap(self._end, seen)
                if self._is_full or not self._stood or size < len(seen):
                    break
            yield
        while size and not (self._may_follow(seen[size:]) and self._lines_up(window, seen[:size].count(" "))):
            size = overlap(self._end, seen, below=size)
        # White space on both sides of the repetition is repeated too.
        before = window[:1].isspace() and self._end[: len(self._end) - size].endswith(" ")
        after = self._stood and seen[size:].startswith(" ")
        is_one = size + bool(before) + bool(after) >= self._least and tells(seen[:size])
        if exact and size <= len(_plain(self.held[:exact])):
            self.held = self.held[len(self.held[:exact].rstrip()) :]
        elif is_one:
            self.held = self.held[start + _length(window, size, after_blank=True) :]
        else:
            return None
        return (yield from self._after_repetition())

    def _exact_size(self) -> Generator[None, None, int]:
        """How long an overlap is that is one to the character, blanks too; 0 if it is too short to be meant."""
        end = self._text[-self._most :]
        while not self._is_full and may_overlap_more(end, self.held):
            yield
        size = overlap(end, self.held[: self._most])
        return size if size >= self._least and tells(self.held[:size]) else 0

    def _lines_up(self, window: str, blanks: int) -> bool:
        """Whether lines are indented alike at the last blanks of the text and the first of what came.

        Lines that differ in nothing but that are no repetition: of closing tags and braces there are many.
        """
        if not blanks:
            return True
        stood = _RUN.findall(self._text.rstrip()[-self._most :])[-blanks:]
        came = _RUN.findall(window.lstrip())[:blanks]
        return all(
            "\n" not in one or "\n" not in other or one.rpartition("\n")[2] == other.rpartition("\n")[2]
            for one, other in zip(stood, came, strict=False)
        )

    def _swallow(self, start: int) -> Generator[None, None, str]:
        """What follows the whole text, which comes again; all that came if it turns out to be another."""
        came, position = [self.held[:start]], 0
        self.held = self.held[start:]
        while True:
            came.append(self.held)
            after_blank = position == 0 or self._plain[position - 1] == " "
            seen = _plain(self.held, after_blank=after_blank)
            if position == len(self._plain) or not self._plain.startswith(seen, position):
                break
            position, self.held = position + len(seen), ""
            if self._is_last:
                return ""
            yield
        left = self._plain[position : position + len(seen)]
        same = next((at for at, character in enumerate(left) if seen[at] != character), len(left))
        if position + same < len(self._plain) or not self._may_follow(seen[same:]):
            self.restarted = True
            return "".join(came)
        self.held = self.held[_length(self.held, same, after_blank=after_blank) :]
        return (yield from self._after_repetition())

    def _may_follow(self, rest: str) -> bool:
        """Whether this may follow a repetition of the text's end: where that is white space, nothing else may."""
        return not self._stood or rest[:1] in ("", " ")

    def _after_repetition(self) -> Generator[None, None, str]:
        """What is held, less what the text ends in already: white space, half a character."""
        blanks = ""
        if self._stood:
            while not self._is_full and not self.held.strip():
                yield
            came = _blanks(self.held[: self._most])
            blanks = _new_blanks(self._stood, came, is_exact=self._is_exact)
            self.held = self.held[len(came) :]
        yield from self._drop_half()
        return blanks + self.held

    def _reopened(self) -> Generator[None, None, str | None]:
        """What follows a line that opens the text's open code block again; None if there is none."""
        opened = open_fence(self._text)
        if opened is None:
            return None
        while not self._is_full and may_become_fence(self.held):
            yield
        line, newline, _ = self.held[: self._most].partition("\n")
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
        # Without a word it may close the block just as well, but not within a line that goes on after it.
        while not (is_same or found.info or self._is_full or self.held[start:].lstrip(" \t\r")):
            yield
        follows = self.held[start : self._most].lstrip(" \t\r")
        within_line = self._text.rpartition("\n")[2].strip() != ""
        reopens = is_same or (within_line and (found.info or follows[:1] not in ("", "\n")))
        return self.held[start:] if reopens else None


_RUN: Final = re.compile(r"\s+")


def _plain(text: str, *, after_blank: bool = True) -> str:
    """A text with one blank for all white space in a row. `after_blank`: it follows one, and begins with none."""
    words = " ".join(text.split())
    before = " " if text[:1].isspace() and not after_blank else ""
    after = " " if text[-1:].isspace() and words else ""
    return before + words + after


def _length(text: str, size: int, *, after_blank: bool) -> int:
    """How much of a text makes so many characters of the plain one. `after_blank`: it follows a blank."""
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
    """What a repetition adds to the white space that the text ends in: another or a second blank is nothing new.

    What it adds to the lines, or to the indentation of the last, is: code depends on it.
    """
    if (is_exact or "\n" in came) and came.startswith(stood):
        return came[len(stood) :]
    (_, newline, indentation), (_, again, deeper) = stood.rpartition("\n"), came.rpartition("\n")
    return deeper[len(indentation) :] if newline and again and deeper.startswith(indentation) else ""
