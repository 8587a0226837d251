"""Recognition of the two parts of a continuation: the partial answer, and the request for the rest.

Both are pure functions of text. They are called only if the previous answer was truncated and the
history is the same (`turn_inference`); after a complete answer no message is a continuation.

A message requests the rest by its structure: a verb of continuing together with a mention of the
truncation, or of how the rest joins the answer; or a statement that the answer was truncated. Its
other words do not matter. With a verb alone, the message must contain nothing new: "continue with
chapter two" is a new request. The words are in `data/continue_prompts.txt`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from endturn.vocabulary import package_data

LONGEST: Final = 2_000
"""Maximum characters of a message that requests the rest."""

SHORT: Final = 600
"""Characters beyond which a message requests the rest only if it both mentions the truncation and
asks to continue."""

COMPARED: Final = 16_384
"""Characters at the end of a message that are searched for a partial answer."""

QUOTED: Final = 16
"""Characters of a partial answer whose repetition is no coincidence."""

_MARKUP: Final = ("<", "`", "[", "{")
"""The first characters of markup or JSON that a host appends to an answer."""

_DOTS: Final = ".…。"
# Patterns are text: `re` compiles each at its first use, and most processes use none.
_WORD: Final = r"[^\W\d]+(?:['’_-][^\W\d]+)*|\d+"
_EDGES: Final = " .!…:;\"'`*_-–—()[]<>/。！，、#"
_TAG: Final = r"</?[a-z][\w-]{0,40}>"
_SENTENCE: Final = r"[^.!?…;\n。！？；]*[.!?…;\n。！？；]*"
_CLAUSE: Final = r"[,:()\[\]{}—–|*]+| - |[^\w\s'’_-]+ "
_CONJUNCTION: Final = r"\b(?:and|but|so|then|please|you to)\b"
_CJK: Final = r"[\u3040-\u30ff\u3400-\u9fff]+"
_NEW: Final = (
    r"\b(?:next|new|another|other|different|more|first|second|third|fourth|fifth|"
    r"one|two|three|four|five|six|seven|eight|nine|ten|chapter|step|page)\b"
)
"""Words next to a noun that make it something new, as in "continue with the next step"."""
_OTHERS: Final = frozenset(["i", "my", "me"])
"""Words that mean that something else than the answer was cut off."""
_ABOUT_CUT: Final = r"\b(?:stop\w*|cut|rest|missing|finish\w*)\b"
_SAME: Final = r"\b(?:in|with|using|keep|keeping) the same \w+(?: and \w+)?"
_APART: Final = (
    r"\b(?:n't|not|never|don't|stop|without|no need to|instead of|before|after|than)(?: \w+)?$"
)
"""The words right before a verb that is no request."""


@cache
def section(name: str) -> tuple[str, ...]:
    """Return the lines of one section of the file."""
    text = package_data().joinpath("continue_prompts.txt").read_text("utf-8")
    _, _, rest = text.partition(f"\n[{name}]\n")
    lines = rest.partition("\n[")[0].splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@cache
def pattern(*sections: str, word: bool = False) -> re.Pattern[str]:
    """Return a pattern that matches any line of these sections, case-insensitively."""
    lines = "|".join(line for name in sections for line in section(name))
    return re.compile(rf"\b(?:{lines})\b" if word else lines, re.IGNORECASE)


@cache
def _request() -> re.Pattern[str]:
    """Return the pattern of a clause that begins with a verb of continuing, or leads to one."""
    verbs, leads = ("|".join(section(name)) for name in ("verbs", "leads"))
    return re.compile(rf"^(?:(?:{leads})\b[\s']*)*(?:{verbs})\b")


@cache
def _words() -> frozenset[str]:
    return frozenset(" ".join(section("words")).split())


@cache
def _alone() -> frozenset[str]:
    return frozenset(" ".join(re.findall(_WORD, text)) for text in section("alone"))


@cache
def _open_object() -> re.Pattern[str]:
    """Return the pattern of a verb with one definite noun: the text that was being written."""
    verbs = "|".join(section("open"))
    return re.compile(
        rf"\b(?:{verbs}) (?:the|your|this|that|my|our) (?P<noun>(?:[^\W\d]+ "
        rf")?[^\W\d]+)$"
    )


def comparable_text(text: str) -> str:
    """Return the end of a text with each run of white space as one space."""
    return " ".join(text[-COMPARED:].split())


def repeats_answer(text: str, tail: str, *, is_full_answer: bool = False) -> int:
    """Rate the certainty that a message of a history repeats a truncated answer.

    Both texts are results of `comparable_text`.

    Args:
        text: the assistant's text in the history, as the host sends it back.
        tail: the last visible characters of the truncated answer, or all of a short one; not
            empty.
        is_full_answer: the tail is the complete answer. If it is short, another answer may begin or
            end with it.

    Returns:
        2 if the message ends as the answer did; 1 if the host changed its end: appended markup or
        tool calls, or removed an unfinished part; 0 for another answer.
    """
    if is_full_answer and len(tail) < QUOTED:
        after = text[len(tail) :].lstrip(" .…")
        is_marked = text.startswith(tail) and (not after or after.startswith(_MARKUP))
        return 2 if text == tail else int(is_marked)
    if text.endswith(tail):
        return 2
    at = text.rfind(tail)
    if at >= 0:
        # Another answer may begin with a short text, and continue with a word.
        return int(len(tail) >= QUOTED or not text[at + len(tail) :].lstrip(" .…")[:1].isalnum())
    # If the end was removed, the message ends with the beginning of the tail.
    begin, window = tail[:QUOTED], text[-len(tail) :]
    places = range(1 + len(window) - QUOTED if begin in window else 0)
    return int(any(window.startswith(begin, at) and tail.startswith(window[at:]) for at in places))


def is_continue_prompt(text: str, tail: str = "") -> bool:
    """Return whether a message requests the rest of a truncated answer, and nothing new.

    Args:
        text: the message.
        tail: the last visible characters of that answer. A message that quotes them and asks to
            continue requests the rest.
    """
    if len(text) > LONGEST:
        return False
    folded = _normalize(text)
    if not folded:
        return text.strip() != "" and not text.strip().strip(_DOTS)
    if len(tail := comparable_text(tail).casefold()) >= QUOTED and tail in (
        flat := comparable_text(folded)
    ):
        return _asks(flat.replace(tail, " "), is_joined=True)
    return _asks(folded)


def mentions_truncation(text: str) -> bool:
    """Return whether a text states that the previous answer was truncated."""
    return len(text) <= LONGEST and any(map(_is_claim, _sentences(_normalize(text))))


def _asks(folded: str, *, is_joined: bool = False) -> bool:
    sentences = _sentences(folded)
    has_claim = any(map(_is_claim, sentences))
    statements = [sentence for sentence in sentences if not _is_question(sentence)]
    requests_rest = any(map(_is_request, statements))
    joined = is_joined or any(
        pattern("seam", "cut elsewhere").search(sentence) for sentence in statements
    )
    if len(folded) > SHORT:
        return has_claim and requests_rest
    return has_claim or (requests_rest and joined) or _only_asks(sentences) or _is_alone(folded)


def _is_claim(sentence: str) -> bool:
    """Return whether a sentence states that an answer was truncated.

    Such as "Your last answer was cut off", "Output token limit hit", "Truncated".
    """
    match = pattern("cut", "cut elsewhere").search(sentence)
    if match is None or _is_question(sentence):
        return False
    rest = re.findall(_WORD, f"{sentence[: match.start()]} {sentence[match.end() :]}")
    is_terse = _words().issuperset(rest) and not _OTHERS.intersection(rest)
    return is_terse or _subject().search(sentence[: match.start()]) is not None


@cache
def _subject() -> re.Pattern[str]:
    """Return the pattern of the words for an answer, right before the word for the truncation."""
    nouns, between = ("|".join(section(name)) for name in ("answer", "auxiliaries"))
    return re.compile(rf"(?:\b|(?<=[^\x00-\x7f]))(?:{nouns})[\s'\"]*(?:(?:{between})[\s']*)*$")


def _is_request(sentence: str) -> bool:
    """Return whether a sentence has a verb of continuing in the position of a request.

    That is the beginning of a clause, or the place after words such as "so" and "you to".
    """
    if pattern("phrases", "rest").search(sentence):
        return True
    parts = [
        part.strip()
        for clause in re.split(_CLAUSE, sentence)
        for part in re.split(_CONJUNCTION, clause)
    ]
    if any(map(_request().match, parts)):
        return True
    match = pattern("verbs of others", word=True).search(sentence)
    return match is not None and not re.search(_APART, sentence[: match.start()].strip())


def _only_asks(sentences: list[str]) -> bool:
    """Return whether a sentence only asks to continue, and no other is a new question.

    Other sentences may describe how to continue: "Continue your answer. Write the numbers as
    words.".
    """
    new = [
        sentence
        for sentence in sentences
        if _is_question(sentence) or sentence.endswith(("?", "？"))
    ]
    if not all(_says_nothing_new(sentence) or re.search(_ABOUT_CUT, sentence) for sentence in new):
        return False  # all questions must be about the stop, as in "Why did you stop? Go on."
    return any(_is_request(sentence) and _says_nothing_new(sentence) for sentence in sentences)


def _says_nothing_new(sentence: str) -> bool:
    """Return whether all words of a sentence belong to a request for the rest.

    One noun may name the text that was being written.
    """
    text = pattern("rest").sub("continue", sentence.strip(_EDGES + "?？"))
    text = re.sub(_SAME, "", text).strip()
    if (match := _open_object().search(text)) is not None and not re.search(_NEW, match["noun"]):
        text = text[: match.start()]
    words = re.findall(_WORD, text)
    return all(
        word in _words() or (re.fullmatch(_CJK, word) and set(word) <= _characters())
        for word in words
    )


@cache
def _characters() -> frozenset[str]:
    return frozenset("".join(section("cjk")))


def _is_alone(folded: str) -> bool:
    return " ".join(re.findall(_WORD, folded)) in _alone()


def _is_question(sentence: str) -> bool:
    """Return whether a sentence is a question, with or without a question mark."""
    return _question().match(sentence) is not None


@cache
def _question() -> re.Pattern[str]:
    words = "|".join(section("interrogatives"))
    return re.compile(
        rf"[\s¿\"'(-]*(?:(?:and|but|so|und|et|y) )?(?:{words})(?:\b"
        rf"|(?<=[^\x00-\x7f]))"
    )


def _sentences(folded: str) -> list[str]:
    return [part.strip() for part in re.findall(_SENTENCE, folded) if part.strip(_EDGES + "?？")]


def _normalize(text: str) -> str:
    lines = (" ".join(line.split()) for line in re.sub(_TAG, " ", text.casefold()).splitlines())
    return "\n".join(line for line in lines if line.strip(_EDGES)).replace("’", "'").strip(_EDGES)
