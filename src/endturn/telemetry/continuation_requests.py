"""Recognise the two parts of a continuation.

The partial answer in a history, and a message that asks for the rest.

Both are pure functions of text. They are asked only where the answer before was truncated and the
history is the same (`turn_inference`); after a complete answer no message is a continuation.

A message asks for the rest where it says so by its structure: a verb of continuing with a mention
of the cut, or of how the rest joins what there is; or a statement that the answer was cut. The
other words may be any. Where only a verb stands, nothing new may be said beside it: "continue with
chapter two" is a new request. The words of both are in `data/continue_prompts.txt`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from endturn.vocabulary import shipped

LONGEST: Final = 2_000
"""Characters. A longer message says more than "go on"."""

SHORT: Final = 600
"""Characters. A longer message asks for the rest only where it says both that there was a cut, and
to go on."""

COMPARED: Final = 16_384
"""Characters at the end of a message in which a partial answer is looked for."""

QUOTED: Final = 16
"""Characters of a partial answer that are no coincidence."""

_MARKUP: Final = ("<", "`", "[", "{")
"""What begins that which a host appends to an answer."""

_DOTS: Final = ".…。"
# Patterns as text: `re` compiles each when it is first used, and a process may see no truncated
# response.
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
"""Words beside a noun by which it is not the one that was being written: "continue with the next
step"."""
_OTHERS: Final = frozenset(["i", "my", "me"])
"""Who was cut off where it was not the answer."""
_ABOUT_CUT: Final = r"\b(?:stop\w*|cut|rest|missing|finish\w*)\b"
_SAME: Final = r"\b(?:in|with|using|keep|keeping) the same \w+(?: and \w+)?"
_APART: Final = (
    r"\b(?:n't|not|never|don't|stop|without|no need to|instead of|before|after|than)(?: \w+)?$"
)
"""What comes right before a verb that does not ask."""


@cache
def section(name: str) -> tuple[str, ...]:
    """Return the lines of one section of the file."""
    text = shipped().joinpath("continue_prompts.txt").read_text("utf-8")
    _, _, rest = text.partition(f"\n[{name}]\n")
    lines = rest.partition("\n[")[0].splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


@cache
def pattern(*sections: str, word: bool = False) -> re.Pattern[str]:
    """Return a pattern that matches any line of these sections, in any case of letters."""
    lines = "|".join(line for name in sections for line in section(name))
    return re.compile(rf"\b(?:{lines})\b" if word else lines, re.IGNORECASE)


@cache
def _request() -> re.Pattern[str]:
    """A clause that begins with a verb of continuing, or with what may lead to one."""
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
    """A verb with one definite noun: what was being written."""
    verbs = "|".join(section("open"))
    return re.compile(
        rf"\b(?:{verbs}) (?:the|your|this|that|my|our) (?P<noun>(?:[^\W\d]+ "
        rf")?[^\W\d]+)$"
    )


def comparable(text: str) -> str:
    """Return the end of a text with each stretch of white space as one space."""
    return " ".join(text[-COMPARED:].split())


def repeats_answer(text: str, tail: str, *, is_all: bool = False) -> int:
    """Tell how surely a message of a history repeats an answer that was cut.

    Both texts are as `comparable` gives them.

    Args:
        said: the assistant's text in the history, as the host sends it back.
        tail: the last visible characters of the cut answer, or all of a short one; not empty.
        is_all: the tail is all of the answer. A few characters of it may end, or begin, any other
            answer.

    Returns:
        2 where the message ends as the answer did; 1 where the host changed its end: appended
        markup or tool calls, or removed what was unfinished; 0 where it is another answer.
    """
    if is_all and len(tail) < QUOTED:
        after = text[len(tail) :].lstrip(" .…")
        is_marked = text.startswith(tail) and (not after or after.startswith(_MARKUP))
        return 2 if text == tail else int(is_marked)
    if text.endswith(tail):
        return 2
    at = text.rfind(tail)
    if at >= 0:
        # A short text may begin another answer, which goes on in words.
        return int(len(tail) >= QUOTED or not text[at + len(tail) :].lstrip(" .…")[:1].isalnum())
    # Where the end was removed, the message ends in what the tail begins with.
    begin, window = tail[:QUOTED], text[-len(tail) :]
    places = range(1 + len(window) - QUOTED if begin in window else 0)
    return int(any(window.startswith(begin, at) and tail.startswith(window[at:]) for at in places))


def asks_to_go_on(text: str, tail: str = "") -> bool:
    """Return whether a message asks for the rest of a truncated answer, not for something new.

    Args:
        tail: the last visible characters of that answer: a message that quotes them, and says to go
            on, does.
    """
    if len(text) > LONGEST:
        return False
    folded = _folded(text)
    if not folded:
        return text.strip() != "" and not text.strip().strip(_DOTS)
    if len(tail := comparable(tail).casefold()) >= QUOTED and tail in (flat := comparable(folded)):
        return _asks(flat.replace(tail, " "), is_joined=True)
    return _asks(folded)


def mentions_cut(text: str) -> bool:
    """Tell whether a text states that the answer before it was cut off."""
    return len(text) <= LONGEST and any(map(_is_claim, _sentences(_folded(text))))


def _asks(folded: str, *, is_joined: bool = False) -> bool:
    sentences = _sentences(folded)
    claimed = any(map(_is_claim, sentences))
    statements = [sentence for sentence in sentences if not _is_question(sentence)]
    requests_rest = any(map(_is_request, statements))
    joined = is_joined or any(
        pattern("seam", "cut elsewhere").search(sentence) for sentence in statements
    )
    if len(folded) > SHORT:
        return claimed and requests_rest
    return claimed or (requests_rest and joined) or _only_asks(sentences) or _is_alone(folded)


def _is_claim(sentence: str) -> bool:
    """It states that an answer was cut.

    "Your last answer was cut off", "Output token limit hit", "Truncated".
    """
    match = pattern("cut", "cut elsewhere").search(sentence)
    if match is None or _is_question(sentence):
        return False
    rest = re.findall(_WORD, f"{sentence[: match.start()]} {sentence[match.end() :]}")
    is_terse = _words().issuperset(rest) and not _OTHERS.intersection(rest)
    return is_terse or _subject().search(sentence[: match.start()]) is not None


@cache
def _subject() -> re.Pattern[str]:
    """The words for an answer, right before the word for the cut."""
    nouns, between = ("|".join(section(name)) for name in ("answer", "auxiliaries"))
    return re.compile(rf"(?:\b|(?<=[^\x00-\x7f]))(?:{nouns})[\s'\"]*(?:(?:{between})[\s']*)*$")


def _is_request(sentence: str) -> bool:
    """A verb of continuing stands where one asks.

    At the beginning of a clause, or of what follows "so", "you to".
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
    """Return whether one sentence only says to go on, and no other is a question of its own.

    How it is to be done may be said in any words: "Continue your answer. Write the numbers as
    words.".
    """
    new = [
        sentence
        for sentence in sentences
        if _is_question(sentence) or sentence.endswith(("?", "？"))
    ]
    if not all(_says_nothing_new(sentence) or re.search(_ABOUT_CUT, sentence) for sentence in new):
        return False  # "Why did you stop? Go on." asks nothing
    return any(_is_request(sentence) and _says_nothing_new(sentence) for sentence in sentences)


def _says_nothing_new(sentence: str) -> bool:
    """Every word belongs to asking for the rest.

    But for one noun that names what was being written.
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
    """It asks something of its own, with a question mark or without."""
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


def _folded(text: str) -> str:
    lines = (" ".join(line.split()) for line in re.sub(_TAG, " ", text.casefold()).splitlines())
    return "\n".join(line for line in lines if line.strip(_EDGES)).replace("’", "'").strip(_EDGES)
