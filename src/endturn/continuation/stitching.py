"""Join the parts of one answer as they arrive: repeated text is removed, nothing is added.

At a seam (the start of a continuation) these are searched, in this order:

1. half a character: the U+FFFD at the end of a part that was cut within a character is removed, and
   so is the other half;
2. a preamble: a first line such as "Continuing from where I left off:" is removed;
3. a restart: the continuation repeats the whole answer from its beginning. It is skipped by
   position; the text after the answer so far is appended. If it turns out to be a different text,
   all of it is appended and marked;
4. an overlap: the continuation begins with the last characters of the answer; they are written
   once;
5. dots, or a quotation mark: a leading `...` or `"` is removed if a restart or an overlap follows
   it;
6. a fence: the answer is within an open code block, and the continuation opens that block again;
   the line is removed.

An overlap has at least `min_overlap` characters, with two exceptions. A response that begins with
the complete answer, even a short one, restates it (`restated`), also in quotation marks, emphasis
or a code block if nothing follows. And a response that is only the answer's last words, on the same
line and outside of a code block, adds nothing.

Naturally repetitive text is kept: `ha ha ha`, rows of equal cells. These are no evidence of
duplication: an overlap that is itself a repetition, that occurs twice in a row in the answer, or
that is within text that the answer repeats three times in a row; and an answer that is the same
text three or more times.

Restart and overlap treat any run of white space as one blank; the answer's white space is kept.

Otherwise `stitch(a, b) == a + b`. Text is held back only while one of these is still possible, at
most `max_overlap` characters; released text is never taken back. So a U+FFFD at the end of the text
so far is held back too, until more text follows in the same part, or `end`. Cost is linear in the
text, whatever the size of the chunks, and at worst quadratic in `max_overlap`.

It is not a diff: a continuation with the same content in other words is appended unchanged.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

from endturn.continuation.preambles import MAX_LENGTH, is_preamble, may_become_preamble
from endturn.continuation.text_heuristics import (
    LEADING_DOTS,
    LEADING_QUOTES,
    fence,
    is_closing,
    is_distinctive,
    is_repeated,
    may_become_dots,
    may_become_fence,
    may_overlap_more,
    open_fence,
    opening,
    overlap,
    overlaps_by_nature,
)
from endturn.continuation.white_space import (
    SPACE_RUN,
    added_space,
    common_prefix_size,
    leading_space,
    normalize_space,
    plain_length,
)
from endturn.vocabulary import REPLACEMENT_CHARACTER

_SENTENCE_ENDS: Final = ".!?…。！？"


def stitch(
    text: str,
    continuation: str,
    *,
    min_overlap: int = 16,
    max_overlap: int = 1_024,
    prefilled: bool = False,
) -> str:
    """Join a truncated text and its continuation; `prefilled` as in `Seam`."""
    if not text:
        return continuation
    added = Seam(text, min_overlap=min_overlap, max_overlap=max_overlap, prefilled=prefilled).feed(
        continuation, last=True
    )
    return text.rstrip(REPLACEMENT_CHARACTER) + added if added else text


class Seam:
    """The start of a continuation until its overlap with the text is decided.

    Every decision reads a window, the first `max_overlap` characters of the buffer, and waits until
    these suffice or more have arrived: so it does not depend on the size of the pieces.

    Args:
        text: the truncated text; it may end within a character.
        min_overlap, max_overlap: as in ContinuationPolicy.
        prefilled: there is no prompt in between. White space at the text's end was left out (a
            prefill may not end with any): the continuation's own leading white space is not written
            twice.
        again: the response begins like the text; nothing else is searched.

    Attributes:
        restarted: the continuation began like the text, and then differed.
        restated: the continuation begins with the whole text.
        is_restarted_prefill: a prefilled continuation begins like the text, but is a different one:
            all of it is left out.
    """

    __slots__ = ("_decision", "_has_half_character", "_is_exact", "_is_last", "_is_prefilled",
                 "_max_overlap", "_min_overlap", "_plain_end", "_plain_text", "_stripped_space",
                 "_text", "_trailing_space", "buffer", "is_restarted_prefill", "restarted",
                 "restated")  # fmt: skip

    def __init__(
        self,
        text: str,
        *,
        min_overlap: int,
        max_overlap: int,
        prefilled: bool = False,
        again: bool = False,
    ) -> None:
        self._text = text.rstrip(REPLACEMENT_CHARACTER)
        body = self._text.rstrip()
        self._trailing_space = self._text[len(body) :]
        self._plain_text = normalize_space(body)
        self._plain_end = normalize_space(body[-max_overlap:])
        self._min_overlap, self._max_overlap = min_overlap, max_overlap
        self._has_half_character, self._is_exact, self._is_last = self._text != text, again, False
        self._stripped_space = self._trailing_space[-max_overlap:] if prefilled else ""
        self._is_prefilled = prefilled
        self._decision = self._skip_repetition(0) if again else self._decide()
        self.buffer = ""
        self.restarted = self.restated = self.is_restarted_prefill = False

    def feed(self, text: str, *, last: bool = False) -> str | None:
        """Add the next piece.

        Returns the new text of all pieces so far; None until that is decided.
        """
        if not (text or last):  # an empty piece decides nothing
            return None
        self.buffer += text
        self._is_last = last
        try:
            next(self._decision)
        except StopIteration as decided:
            rest: str = decided.value
            return rest
        return None

    @property
    def _window(self) -> str:
        """The part of the buffer that decisions read."""
        return self.buffer[: self._max_overlap]

    @property
    def _is_full(self) -> bool:
        """True if neither the window can change any more, nor whether text follows it."""
        return self._is_last or len(self.buffer) > self._max_overlap

    @property
    def _is_complete(self) -> bool:
        """True if the window is the complete response."""
        return self._is_last and len(self.buffer) <= self._max_overlap

    def _decide(self) -> Generator[None, None, str]:
        yield from self._drop_half_character()
        yield from self._strip_leading_space()
        yield from self._drop_preamble()
        if self._is_prefilled and (yield from self._is_restart_of_prefill()):
            return (yield from self._discard())
        rest = yield from self._match_whole_text()
        if rest is None:
            rest = yield from self._match_repeated(0)
        if rest is None:
            rest = yield from self._match_reopened_fence()
        return self.buffer if rest is None else rest

    def _is_restart_of_prefill(self) -> Generator[None, None, bool]:
        """Return whether the response repeats the text's start and then differs or ends.

        At least `min_overlap` characters of the text are repeated, but not all of it.
        """
        while True:
            plain_window = normalize_space(self._window)
            common_size = common_prefix_size(plain_window, self._plain_text)
            if (
                common_size < len(plain_window)
                or common_size == len(self._plain_text)
                or self._is_full
            ):
                break
            yield
        is_other = self._min_overlap <= common_size < len(self._plain_text) and (
            common_size < len(plain_window) or self._is_complete
        )
        # Similar rows begin alike.
        common_text = plain_window[:common_size].rstrip()
        return (
            is_other
            and self._plain_text.find(common_text, 1) < 0
            and not overlaps_by_nature(common_text, len(common_text))
        )

    def _discard(self) -> Generator[None, None, str]:
        """Discard the response."""
        self.is_restarted_prefill, self.buffer = True, ""
        while not self._is_last:
            yield
            self.buffer = ""
        return ""

    def _match_whole_text(self) -> Generator[None, None, str | None]:
        """Return the text after the whole text, if the response begins with that.

        Only for a short text, or a response that is nothing else. Otherwise, or if the text is long
        enough to be found as an overlap or a restart, None.
        """
        while not self._is_full and may_become_fence(self.buffer.lstrip()):
            yield
        text_opening = opening(self._text)
        text = normalize_space(self._text[text_opening.end() :]).rstrip()
        sentence = text.rstrip(_SENTENCE_ENDS)
        if not any(map(str.isalnum, text)) or len(self._text) > self._max_overlap:
            return None
        while True:
            window = self._window
            response_opening = opening(window)
            response = window[response_opening.end() :]
            plain_response = normalize_space(response)
            if not plain_response.startswith(text):
                is_sentence = plain_response.rstrip() == sentence
                if not self._is_full and (is_sentence or text.startswith(plain_response)):
                    yield
                    continue
                return self._mark_restated() if self._is_complete and is_sentence else None
            is_wrapped = response_opening.groups() != text_opening.groups()
            if len(text) >= self._min_overlap and not is_wrapped:
                return None
            rest = response[plain_length(response, len(text), after_blank=True) :]
            is_over = is_closing(rest) if is_wrapped else not rest.strip()
            plain_rest = normalize_space(rest[opening(rest).end() :])
            if self._is_full or not (
                is_over or text.startswith(plain_rest) or may_become_fence(rest.lstrip())
            ):
                break
            yield
        is_repeating = plain_rest.startswith(text)
        if (
            is_repeated(text)
            or is_repeating
            or not self._has_same_indentation(response, text.count(" "))
        ):
            return None
        if self._is_complete and is_over:
            return self._mark_restated()
        is_number = not is_distinctive(text) and rest[:1].isalnum()
        if is_wrapped or is_number or not self._may_follow(rest):
            return None
        self.buffer, self.restated = rest + self.buffer[self._max_overlap :], True
        return (yield from self._after_repetition())

    def _mark_restated(self) -> str:
        """Treat the complete response as a repetition of the whole text."""
        self.buffer, self.restated = "", True
        return ""

    def _drop_half_character(self) -> Iterator[None]:
        """Drop the other half of a split character."""
        while self._has_half_character:
            self.buffer = self.buffer.lstrip(REPLACEMENT_CHARACTER)
            if self.buffer or self._is_last:
                return
            yield

    def _strip_leading_space(self) -> Iterator[None]:
        """Drop the leading white space that the text already ends with.

        The model may repeat all of it, or a part.
        """
        text_space = self._stripped_space
        response_space = leading_space(self.buffer)[: len(text_space)]
        while response_space == self.buffer and len(self.buffer) < len(text_space):
            if self._is_last:
                break
            yield
            response_space = leading_space(self.buffer)[: len(text_space)]
        if response_space in text_space:
            size = len(response_space)
        else:
            common_size = common_prefix_size(response_space, text_space)
            size = max(
                common_size,
                next(
                    size
                    for size in range(len(response_space), -1, -1)
                    if text_space.endswith(response_space[:size])
                ),
            )
        self.buffer = self.buffer[size:]

    def _drop_preamble(self) -> Iterator[None]:
        """Drop a first line that only announces the continuation, and the empty line after it."""
        longest = min(MAX_LENGTH, self._max_overlap)
        while True:
            line, newline, rest = self.buffer.partition("\n")
            if newline or self._is_last or len(line) > longest or not may_become_preamble(line):
                break
            yield
        if newline and len(line) <= longest and is_preamble(line):
            self.buffer = rest
            while self.buffer in ("", "\r") and not self._is_last:
                yield
            self.buffer = (
                self.buffer[2:]
                if self.buffer.startswith("\r\n")
                else self.buffer.removeprefix("\n")
            )

    def _match_repeated(self, start: int) -> Generator[None, None, str | None]:
        """Return the text after a repetition at this position of the buffer, or after dots.

        None if there is none.
        """
        rest = yield from self._match_repetition(start)
        if rest is None:
            while not self._is_full and may_become_dots(self.buffer[start:]):
                yield
            dots = LEADING_DOTS.match(self.buffer, start, self._max_overlap)
            if dots is not None:
                rest = yield from self._match_repetition(dots.end())
        if rest is None:
            rest = yield from self._match_quoted(start)
        return rest

    def _match_quoted(self, start: int) -> Generator[None, None, str | None]:
        """Return the text after a repetition in quotation marks, without the closing mark.

        None if there is none.
        """
        quotes = LEADING_QUOTES.match(self.buffer, start, self._max_overlap)
        while not self._is_full and quotes is not None and quotes.end() == len(self.buffer):
            yield
            quotes = LEADING_QUOTES.match(self.buffer, start, self._max_overlap)
        if quotes is None:
            return None
        rest = yield from self._match_repetition(quotes.end())
        if rest is None:
            return None
        self.buffer = rest
        while not self._is_full and is_closing(self.buffer):
            yield
        return "" if self._is_complete and is_closing(self.buffer) else self.buffer

    def _match_repetition(self, start: int) -> Generator[None, None, str | None]:
        """Return the text after a restart or an overlap at this position of the buffer.

        None if there is none.
        """
        exact_size = 0 if start else (yield from self._exact_size())
        while True:
            window = self.buffer[start : self._max_overlap]
            plain_window = normalize_space(window)
            is_long = len(self._text) > self._max_overlap
            is_restart = is_long and self._plain_text.startswith(plain_window)
            is_window_full = len(self.buffer) >= self._max_overlap
            if is_restart and is_window_full and len(plain_window) >= self._min_overlap:
                return (yield from self._skip_repetition(start))
            if self._is_full or not (is_restart or may_overlap_more(self._plain_end, plain_window)):
                size = overlap(self._plain_end, plain_window)
                is_short = size < self._min_overlap
                may_be_words = is_short and self._are_last_words(window, plain_window, size)
                is_before_space = self._trailing_space and size == len(plain_window)
                if self._is_full or not (may_be_words or is_before_space):
                    break
            yield
        while size and not (
            self._may_follow(plain_window[size:])
            and self._has_same_indentation(window, plain_window[:size].count(" "))
        ):
            size = overlap(self._plain_end, plain_window, below=size)
        is_overlap = self._is_overlap(window, plain_window, size)
        is_exact = exact_size > 0 and size <= len(normalize_space(self.buffer[:exact_size]))
        # Lines with different indentation are no repetition of each other.
        end, length = self._plain_end, size
        if is_exact:
            end, length = self._text[-self._max_overlap :], exact_size
        quote = self.buffer[:start].strip()
        text_before = end[: len(end) - length].rstrip()
        if text_before.endswith(quote) and quote:
            length = len(end) - len(text_before) + len(quote)
        if (is_exact or is_overlap) and overlaps_by_nature(end, length):
            return None
        self.restated = size >= len(self._plain_text.strip()) > 0 and (is_exact or is_overlap)
        if is_exact:
            self.buffer = self.buffer[len(self.buffer[:exact_size].rstrip()) :]
        elif is_overlap:
            self.buffer = self.buffer[start + plain_length(window, size, after_blank=True) :]
        else:
            return None
        return (yield from self._after_repetition())

    def _is_overlap(self, window: str, plain_window: str, size: int) -> bool:
        """Return whether an overlap of this size is long enough to be a repetition."""
        # White space on both sides of the repetition is repeated too.
        before = self._plain_end[: len(self._plain_end) - size]
        has_space_before = window[:1].isspace() and before.endswith(" ")
        has_space_after = self._trailing_space != "" and plain_window[size:].startswith(" ")
        repeated_size = size + has_space_before + has_space_after
        if repeated_size >= self._min_overlap and is_distinctive(plain_window[:size]):
            return True
        return self._is_complete and self._are_last_words(window, plain_window, size)

    def _are_last_words(self, window: str, plain_window: str, size: int) -> bool:
        """Return whether the response is only the text's last words, on the same line.

        Such words are otherwise too short for an overlap.
        """
        if size < 2 or size < len(plain_window.rstrip()):
            return False
        if not plain_window[:1].isalnum() or not is_distinctive(plain_window):
            return False
        is_next_line = "\n" in self._trailing_space or "\n" in leading_space(window)
        before = self._plain_end[: len(self._plain_end) - size]
        return (
            not is_next_line
            and not before[-1:].isalnum()
            and before != ""
            and open_fence(self._text) is None
        )

    def _exact_size(self) -> Generator[None, None, int]:
        """Return the length of an overlap that matches to the character, white space included.

        0 if it is shorter than `min_overlap`.
        """
        end = self._text[-self._max_overlap :]
        while not self._is_full and may_overlap_more(end, self.buffer):
            yield
        size = overlap(end, self._window)
        return size if size >= self._min_overlap and is_distinctive(self.buffer[:size]) else 0

    def _has_same_indentation(self, window: str, blanks: int) -> bool:
        """Return whether lines have the same indentation on both sides of the seam.

        The last `blanks` blanks of the text are compared with the first of the response. Lines that
        differ only in indentation are no repetition: closing tags and braces are common.
        """
        if not blanks:
            return True
        text_spaces = SPACE_RUN.findall(self._text.rstrip()[-self._max_overlap :])[-blanks:]
        response_spaces = SPACE_RUN.findall(window.lstrip())[:blanks]
        return all(
            "\n" not in one
            or "\n" not in other
            or one.rpartition("\n")[2] == other.rpartition("\n")[2]
            for one, other in zip(text_spaces, response_spaces, strict=False)
        )

    def _skip_repetition(self, start: int) -> Generator[None, None, str]:
        """Return the text after a repetition of the whole text.

        If it turns out to be a different text, return all of the response.
        """
        chunks, position = [self.buffer[:start]], 0
        self.buffer = self.buffer[start:]
        while True:
            chunks.append(self.buffer)
            after_blank = position < len(self._plain_text) and (
                position == 0 or self._plain_text[position - 1] == " "
            )
            plain_chunk = normalize_space(self.buffer, after_blank=after_blank)
            if position == len(self._plain_text) or not self._plain_text.startswith(
                plain_chunk, position
            ):
                break
            position, self.buffer = position + len(plain_chunk), ""
            if self._is_last:
                self.restated = position == len(self._plain_text)
                return ""
            yield
        expected = self._plain_text[position : position + len(plain_chunk)]
        common_size = common_prefix_size(expected, plain_chunk)
        is_other = position + common_size < len(self._plain_text)
        if is_other or not self._may_follow(plain_chunk[common_size:]):
            if self._is_prefilled:
                return (yield from self._discard())
            self.restarted = True
            return "".join(chunks)
        self.buffer, self.restated = (
            self.buffer[plain_length(self.buffer, common_size, after_blank=after_blank) :],
            True,
        )
        return (yield from self._after_repetition())

    def _may_follow(self, rest: str) -> bool:
        """Return whether this text may follow a repetition of the text's end.

        If that end is white space, only white space may follow.
        """
        return not self._trailing_space or rest[:1] in ("", " ")

    def _after_repetition(self) -> Generator[None, None, str]:
        """Return the buffer without the white space and half character that end the text."""
        blanks = ""
        if self._trailing_space:
            while not self._is_full and not self.buffer.strip():
                yield
            space = leading_space(self._window)
            blanks = added_space(self._trailing_space, space, is_exact=self._is_exact)
            self.buffer = self.buffer[len(space) :]
        yield from self._drop_half_character()
        return blanks + self.buffer

    def _match_reopened_fence(self) -> Generator[None, None, str | None]:
        """Return the text after a line that opens the text's open code block again.

        None if there is none.
        """
        open_block = open_fence(self._text)
        if open_block is None:
            return None
        while not self._is_full and may_become_fence(self.buffer):
            yield
        line, newline, _ = self._window.partition("\n")
        reopening = fence(line) if newline else None
        if reopening is None or reopening.marker != open_block.marker:
            return None
        is_same = reopening.info == open_block.info != ""
        if not is_same and reopening.info and open_block.info:
            return None
        start = len(line) + 1
        rest = yield from self._match_repeated(start)
        if rest is not None:
            return rest
        # A fence without a language may also close the block, but not within a line that continues.
        while not (
            is_same or reopening.info or self._is_full or self.buffer[start:].lstrip(" \t\r")
        ):
            yield
        follows = self.buffer[start : self._max_overlap].lstrip(" \t\r")
        within_line = self._text.rpartition("\n")[2].strip() != ""
        reopens = is_same or (within_line and (reopening.info or follows[:1] not in ("", "\n")))
        return self.buffer[start:] if reopens else None
