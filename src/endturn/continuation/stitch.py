"""Joining the parts of one answer, as they arrive: what a continuation repeats is removed, nothing is invented.

At a seam (where a continuation begins) four things may be in the way, looked for in this order:

1. a preamble: a first line such as "Continuing from where I left off:" goes;
2. a restart: the continuation repeats the whole answer from its beginning. It is swallowed by position; what follows
   the end of the answer so far is appended. If it turns out to be another text, all of it is appended, and marked;
3. an overlap: the continuation begins with the last characters of the answer; they are not written twice;
4. a fence: the answer stands in an open code block, and the continuation opens that block again; the line goes.

Otherwise `stitch(a, b) == a + b`. Text is held back only while one of these is still possible, at most `max_overlap`
characters; text once given out is never taken back. Cost is linear in the text, whatever the size of the chunks: the
overlap is found by Knuth, Morris and Pratt's automaton, whose pattern is the continuation as far as it is known.

What it is not: a diff. A continuation that says the same in other words is appended as it is.
"""

from __future__ import annotations

from endturn.chat import Delta
from endturn.continuation.signs import PREAMBLE, is_preamble, may_become_preamble, open_fence, tells

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

    __slots__ = ("_anew", "_began", "_forgotten", "_is_again", "_least", "_most", "_parts", "_seam", "replaced",
                 "restarted")  # fmt: skip

    def __init__(
        self, text: str = "", replaced: Spans = (), /, *, min_overlap: int = 16, max_overlap: int = 1_024
    ) -> None:
        self._parts = [text] if text else []
        self.replaced = replaced
        self._anew = bool(replaced) and not text[replaced[-1][1] :].strip()
        self._forgotten = ""
        self._began = len(text)
        self._is_again = False
        self._least = min_overlap
        self._most = max_overlap
        self._seam: _Seam | None = None
        self.restarted = False

    def __len__(self) -> int:
        return len(self.shown)

    @property
    def text(self) -> str:
        """The answer: what was given out, without what was replaced."""
        text = self.shown
        for start, end in reversed(self.replaced):
            text = text[:start] + text[end:]
        return text

    @property
    def shown(self) -> str:
        """All that was given out, joined."""
        if len(self._parts) > 1:
            self._parts = ["".join(self._parts)]
        return self._parts[0] if self._parts else ""

    @property
    def held(self) -> int:
        """How many characters wait for a decision."""
        return len(self._seam.held) if self._seam is not None else 0

    @property
    def added(self) -> str:
        """What the latest part has added."""
        return self.shown[self._began :]

    def begin(self) -> None:
        """A part of the answer begins here, unless it is the latest once more."""
        if not self._is_again:
            self._began = len(self)
        self._is_again = False

    def forget(self) -> None:
        """The latest part was seen by nobody, and is to be replaced: it goes, and may be restored."""
        self._forgotten = self.added if self.added.strip() else self._forgotten
        self._parts = [self.shown[: self._began]]

    def replace(self) -> None:
        """The latest part is to be replaced, and was seen: it stands where it is, and is no part of the answer."""
        if self.added:
            self._anew = self._anew or bool(self.added.strip())
            self.replaced = (*self.replaced, (self._began, len(self)))
            self._began = len(self)

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
            self._parts.append(forgotten)
            return forgotten
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
        text = self.text
        stripped = text[len(text.rstrip()) :][-self._most :] if prefilled else ""
        self._seam = _Seam(text, least=self._least, most=self._most, stripped=stripped) if text else None

    def again(self, part: str) -> None:
        """What is fed from now on is the latest part from its beginning, as far as it has come: `part`."""
        self._is_again = True
        if self.shown.endswith(part):
            self._began = len(self) - len(part)
        if part:
            self._seam = _Seam(part, least=self._least, most=self._most, stripped="")
            self._seam.expect_restart()

    def passes(self, text: str) -> bool:
        """Take the next piece of a part if it can be given out as it is: nothing is undecided. Whether it was taken."""
        if self._seam is not None or self.is_put_aside:
            return False
        self._parts.append(text)
        return True

    def feed(self, text: str) -> Delta | None:
        """Take the next piece of a part; returns what can be given out now, None if that is nothing."""
        if self._seam is None:
            return self._out(text)
        return self._decided(self._seam.feed(text))

    def close(self) -> Delta | None:
        """The part is over: returns what was still held back."""
        if self._seam is None:
            return None
        delta = self._decided(self._seam.feed("", last=True))
        self._seam = None
        return delta

    def _decided(self, text: str | None) -> Delta | None:
        if text is None or self._seam is None:
            return None
        restart = self._seam.restarted
        self._seam = None
        return self._out(text, restart=restart)

    def _out(self, text: str, *, restart: bool = False) -> Delta | None:
        if not text:
            return None
        if text.strip():
            restart, self._anew, self._forgotten = restart or self._anew, False, ""
        self.restarted = self.restarted or restart
        self._parts.append(text)
        return Delta(text=text, restart=restart)


def stitch(a: str, b: str, *, min_overlap: int = 16, max_overlap: int = 1_024, prefilled: bool = False) -> str:
    """A cut text and its continuation as one text; `prefilled` as in `Stitcher.seam`."""
    stitcher = Stitcher(a, min_overlap=min_overlap, max_overlap=max_overlap)
    stitcher.seam(prefilled=prefilled)
    stitcher.feed(b)
    stitcher.close()
    return stitcher.text


class _Seam:
    """What is undecided between a text and its continuation. `feed` returns None until all is decided."""

    __slots__ = ("_blank", "_fence", "_least", "_most", "_overlap", "_position", "_preamble", "_stripped", "_text",
                 "held", "restarted")  # fmt: skip

    def __init__(self, text: str, *, least: int, most: int, stripped: str) -> None:
        self._text = text
        self._least = least
        self._most = most
        self._stripped = stripped
        self._preamble = True
        self._blank = False
        self._overlap = Overlap(text[-most:])
        self._fence: str | None = None
        self._position: int | None = None
        self.held = ""
        self.restarted = False

    def expect_restart(self) -> None:
        """What comes begins as the text does: nothing else is looked for."""
        self._position = 0

    def feed(self, text: str, *, last: bool = False) -> str | None:
        if self._position is not None:
            return self._swallow(text, self._position)
        self.held += text
        if self._stripped and not self._strip(last=last):
            return None
        if self._preamble and not self._pass_preamble(last=last):
            return None
        if self._blank and not self._pass_blank(last=last):
            return None
        return self._match(last=last)

    def _strip(self, *, last: bool) -> bool:
        """Leave out of the white space that comes first what stands already: the model may give it all, or a part."""
        stood = self._stripped
        came = self.held[: len(self.held) - len(self.held.lstrip())][: len(stood)]
        if came == self.held and len(came) < len(stood) and not last:
            return False
        if came in stood:
            size = len(came)
        else:
            same = next(at for at in range(len(stood) + 1) if came[: at + 1] != stood[: at + 1])
            size = max(same, next(size for size in range(len(came), -1, -1) if stood.endswith(came[:size])))
        self._stripped, self.held = "", self.held[size:]
        return True

    def _pass_preamble(self, *, last: bool) -> bool:
        line, newline, rest = self.held.partition("\n")
        if len(line) <= min(PREAMBLE, self._most):
            if newline and is_preamble(line):
                self.held = rest
                self._blank = True
            elif not newline and not last and may_become_preamble(line):
                return False
        self._preamble = False
        return True

    def _pass_blank(self, *, last: bool) -> bool:
        """The empty line that sets a preamble apart goes with it."""
        if self.held in ("", "\r") and not last:
            return False
        self.held = self.held.removeprefix("\r\n") if self.held.startswith("\r\n") else self.held.removeprefix("\n")
        self._blank = False
        return True

    def _match(self, *, last: bool) -> str | None:
        if self._fence is None and len(self._text) > self._most and not last:
            beginning = self.held[: self._most]
            if self._text.startswith(beginning):
                return self._swallow(self.held, 0) if len(beginning) == self._most else None
        size = self._overlap.find(self.held, last=last)
        if size is None:
            return None
        if size >= self._least and tells(self.held[:size]):
            return self.held[size:]
        return self._pass_fence(last=last)

    def _pass_fence(self, *, last: bool) -> str | None:
        if self._fence is None:
            self._fence = open_fence(self._text)
        if not self._fence:
            return self.held
        line, newline, rest = self.held.partition("\n")
        if len(line) < self._most:
            if newline and line.rstrip() == self._fence:
                self._fence, self.held, self._overlap = "", rest, Overlap(self._text[-self._most :])
                return self._match(last=last)
            if not newline and not last and (self._fence.startswith(line) or line.rstrip() == self._fence):
                return None
        return self.held

    def _swallow(self, text: str, position: int) -> str | None:
        self.held = ""
        end = position + len(text)
        if self._text.startswith(text, position) and end <= len(self._text):
            self._position = end
            return None
        same = 0
        while position + same < len(self._text) and self._text[position + same] == text[same]:
            same += 1
        if position + same == len(self._text):
            return text[same:]
        self.restarted = True
        return self._text[:position] + text


class Overlap:
    """The longest beginning of a growing text that is also an end of a fixed one.

    Knuth, Morris and Pratt: the fixed text is read once, the growing one is the pattern. Where a decision needs more of
    the pattern than is known, the search waits.
    """

    __slots__ = ("_border", "_end", "_read", "_size")

    def __init__(self, end: str) -> None:
        self._end = end
        self._read = 0
        self._size = 0
        self._border = [0]

    def find(self, text: str, *, last: bool) -> int | None:
        """The overlap's length; None while a longer text could tell better.

        Args:
            text: the growing text from its beginning: what was given before, and more.
            last: it will not grow.
        """
        end, read, size = self._end, self._read, self._size
        while read < len(end):
            if size == len(text):
                if not last:
                    self._read, self._size = read, size
                    return None
                if not size:
                    return 0
                size = self._shorter(text, size)
            elif end[read] == text[size]:
                read += 1
                size += 1
            elif size:
                size = self._shorter(text, size)
            else:
                read += 1
        self._read, self._size = read, size
        return size

    def _shorter(self, text: str, size: int) -> int:
        """The longest beginning of text[:size] that is also its end, shorter than itself."""
        border = self._border
        while len(border) < size:
            character, known = text[len(border)], border[-1]
            while known and text[known] != character:
                known = border[known - 1]
            border.append(known + 1 if text[known] == character else 0)
        return border[size - 1]
