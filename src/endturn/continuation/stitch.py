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
follows in the same part, or `end`. Cost is linear in the text, whatever the size of the chunks: the overlap is found by
Knuth, Morris and Pratt's automaton, whose pattern is the continuation as far as it is known.

What it is not: a diff. A continuation that says the same in other words is appended as it is.
"""

from __future__ import annotations

import sys

from endturn.chat import Delta
from endturn.continuation.seam import Seam
from endturn.continuation.text_heuristics import HALF

Spans = tuple[tuple[int, int], ...]
"""Pieces of a text, in order, each from a place to another."""


class Stitcher:
    """The visible text of one answer, given out piece by piece.

    Args:
        text: what was given out before.
        replaced: from where to where in it stands what is no part of the answer any more.
        min_overlap, max_overlap: as in ContinuationPolicy.

    Attributes:
        replaced: the same, with what was replaced since.
        restarted: a continuation began anew and was appended whole, or what was given out was replaced.
    """

    __slots__ = ("_anew", "_began", "_beyond", "_forgotten", "_is_again", "_is_cut", "_least", "_most", "_parts",
                 "_room", "_seam", "_waiting", "_waiting_before", "replaced", "restarted")  # fmt: skip

    def __init__(
        self, text: str = "", replaced: Spans = (), /, *, min_overlap: int = 16, max_overlap: int = 1_024
    ) -> None:
        self._parts = [text] if text else []
        self.replaced = replaced
        self._anew = _ends_replaced(text, replaced)
        self._forgotten = ""
        self._began = len(text)
        self._is_again = False
        self._least = min_overlap
        self._most = max_overlap
        self._seam: Seam | None = None
        self._waiting = self._waiting_before = 0  # so many U+FFFD at the end were not given out: now, as the part began
        self._is_cut = False  # what comes next follows a seam: such U+FFFD go
        self._room = sys.maxsize  # characters that may still be added
        self._beyond = ""  # what had no room
        self.restarted = False

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def text(self) -> str:
        """The answer: all of it that has come, without what was replaced."""
        text = self.shown
        for start, end in reversed(self.replaced):
            text = text[:start] + text[end:]
        return text

    @property
    def shown(self) -> str:
        """All that was given out, joined, and the U+FFFD that wait at its end."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def held(self) -> int:
        """How many characters wait for a decision."""
        return self._waiting + (len(self._seam.held) if self._seam is not None else 0)

    @property
    def added(self) -> str:
        """What the latest part has added."""
        return self.shown[self._began :]

    @property
    def overflowed(self) -> bool:
        """Whether the latest part adds more than there was room for."""
        return self._beyond != ""

    def begin(self, room: int = sys.maxsize) -> None:
        """A part of the answer begins here, unless it is the latest once more. It may add so many characters."""
        if not self._is_again:
            self._began, self._waiting_before = len(self), self._waiting
        self._is_again = False
        self._room, self._beyond = room, ""

    def release(self) -> Delta | None:
        """There is room for all of the latest part after all: returns what had none."""
        beyond, self._beyond, self._room = self._beyond, "", sys.maxsize
        return self._out(beyond)

    def forget(self) -> None:
        """The latest part was seen by nobody, and is to be replaced: it goes, and may be restored."""
        self._forgotten = self.added if self.added.strip() else self._forgotten
        self._parts = [self.shown[: self._began]]
        self._waiting = self._waiting_before

    def replace(self) -> None:
        """The latest part is to be replaced, and was seen: it stands where it is, and is no part of the answer."""
        if self.added:
            self._anew = self._anew or bool(self.added.strip())
            self.replaced = (*self.replaced, (self._began, len(self)))
            self._began, self._is_cut = len(self), True

    @property
    def is_put_aside(self) -> bool:
        """Whether something is to be replaced, and nothing has come in its place."""
        return self._anew or bool(self._forgotten)

    def restore(self) -> str:
        """What was to be replaced is part of the answer again, unless a text has come in its place.

        Returns:
            What of it is to be given out.
        """
        if self._forgotten:
            forgotten, self._forgotten = self._forgotten, ""
            self._began = len(self)
            return self._append(forgotten) + self.end()
        if self._anew:
            *others, (_, end) = self.replaced
            blank = ((end, len(self)),) if end < len(self) else ()
            self._anew, self.replaced = False, (*others, *blank)
        return ""

    def seam(self, *, prefilled: bool = False) -> None:
        """What is fed from now on continues a text that was cut off here.

        Args:
            prefilled: no question stands between. White space at the text's end was left out (a prefill may not end
                with any): what the continuation begins with of it is not written twice.
        """
        whole = self.text
        text = whole.rstrip(HALF)
        stripped = text[len(text.rstrip()) :][-self._most :] if prefilled else ""
        self._is_cut = True
        self._seam = None
        if whole:
            self._seam = Seam(text, least=self._least, most=self._most, halved=text != whole, stripped=stripped)

    def again(self, part: str) -> None:
        """What is fed from now on is the latest part from its beginning, as far as it has come: `part`."""
        self._is_again = True
        said, shown = part.rstrip(HALF), self.shown.rstrip(HALF)
        self._is_cut = self._is_cut or said != part
        if shown.endswith(said):
            self._began = len(shown) - len(said)
        if said:
            self._seam = Seam(said, least=self._least, most=self._most, again=True)

    def passes(self, text: str) -> bool:
        """Take the next piece of a part if it can be given out as it is: nothing is undecided. Whether it was taken."""
        if self._seam is not None or self._waiting or text.endswith(HALF) or self.is_put_aside:
            return False
        if len(text) > self._room:
            return False
        self._room -= len(text)
        self._parts.append(text)
        return True

    def feed(self, text: str) -> Delta | None:
        """Take the next piece of a part; returns what can be given out now, None if that is nothing."""
        if self._seam is None:
            return self._out(text)
        return self._decided(self._seam.feed(text))

    def close(self) -> Delta | None:
        """The part is over: returns what was still held back, but for half a character at its end."""
        if self._seam is None:
            return None
        delta = self._decided(self._seam.feed("", last=True))
        self._seam = None
        return delta

    def end(self) -> str:
        """The answer is over, nothing continues it: returns what waited at its end."""
        waiting, self._waiting = self._waiting, 0
        return HALF * waiting

    def _decided(self, text: str | None) -> Delta | None:
        if text is None or self._seam is None:
            return None
        restart = self._seam.restarted
        self._seam = None
        return self._out(text, restart=restart)

    def _out(self, text: str, *, restart: bool = False) -> Delta | None:
        if len(text) > self._room:
            text, self._beyond = text[: self._room], self._beyond + text[self._room :]
        self._room -= len(text)
        if not text:
            return None
        text = self._append(text)
        if text.strip():
            restart, self._anew, self._forgotten = restart or self._anew, False, ""
        self.restarted = self.restarted or restart
        return Delta(text=text, restart=restart) if text else None

    def _append(self, text: str) -> str:
        """Add a piece; returns what can be given out of it, and of what waited."""
        if self._is_cut:
            self._drop_half()
        self._parts.append(text)
        whole = text.rstrip(HALF)
        given = self.end() + whole if whole else ""
        self._waiting += len(text) - len(whole)
        too_many = max(0, self._waiting - self._most)
        self._waiting -= too_many
        return given + HALF * too_many

    def _drop_half(self) -> None:
        """Text comes after a seam: half a character before it goes, from the answer alone where it was given out."""
        shown = self.shown
        given = len(shown) - self._waiting
        half = max(len(shown.rstrip(HALF)), self.replaced[-1][1] if self.replaced else 0)
        self._parts, self._waiting, self._is_cut = [shown[:given]], 0, False
        self._began = min(self._began, given)
        self.replaced = tuple((start, min(end, given)) for start, end in self.replaced)
        if half < given:
            self.replaced = (*self.replaced, (half, given))


def _ends_replaced(text: str, replaced: Spans) -> bool:
    """Whether a text ends with what is to be replaced, and nothing stands in its place. Half a character needs none."""
    return bool(replaced) and bool(text[slice(*replaced[-1])].strip(HALF)) and not text[replaced[-1][1] :].strip()


def stitch(a: str, b: str, *, min_overlap: int = 16, max_overlap: int = 1_024, prefilled: bool = False) -> str:
    """A cut text and its continuation as one text; `prefilled` as in `Stitcher.seam`."""
    stitcher = Stitcher(a, min_overlap=min_overlap, max_overlap=max_overlap)
    stitcher.seam(prefilled=prefilled)
    stitcher.feed(b)
    stitcher.close()
    return stitcher.text
