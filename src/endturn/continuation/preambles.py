"""First lines by which models announce a continuation instead of writing it: "Sure!

Continuing from where I left off:".

A line is a preamble if all of its words fit one of the sentences below: openers, then the
announcement. So a line with any new content is none. A sentence that names the continued text
("Continuing the list:") could also be part of the answer: it counts only with a mark (a colon,
dots, brackets or emphasis).
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

MAX_LENGTH: Final = 120
"""The maximum length of a preamble in characters."""

Words = tuple[str, ...]


def _phrases(text: str) -> tuple[Words, ...]:
    """Return the phrases of a text that separates them by `|`; an empty one makes them optional."""
    return tuple(tuple(phrase.split()) for phrase in text.split("|"))


_QUOTE: Final = "`"
"""The placeholder for any text in backticks or in double quotation marks."""
_OPENER: Final = _phrases(
    "|sure|sure thing|certainly|of course|okay|ok|absolutely|understood|got it|right|alright|yes"
    "|no problem|great|sorry|sorry about that|sorry for the interruption|sorry for the cutoff"
    "|sorry for the cut off|sorry for that|apologies|apologies for that|apologies for the "
    "interruption|apologies for the cutoff|apologies for the cut off|apologies for the truncation"
    "|my apologies|my apologies for the interruption|my apologies for the cutoff|i apologize|i "
    "apologize for the interruption|i apologize for the cutoff|i apologize for the cut off|i "
    "apologize for that|i apologise|i apologise for the interruption|i'm sorry|i'm sorry about that"
    "|it looks like my response was cut off|it seems my response was cut off|my response was cut "
    "off|it looks like i was cut off|it seems i was cut off|i was cut off|my previous response was "
    "cut off|natürlich|gerne|klar|entschuldigung|claro|por supuesto|desde luego|perdón|bien sûr"
    "|d'accord|certo|claro que sim|好的|当然|抱歉|没问题|もちろんです|はい|承知しました|네"
    "|물론입니다|конечно|хорошо"
)
_GO_ON: Final = (
    "continuing|continuing now|now continuing|resuming|picking up|picking back up|continued|to "
    "continue|carrying on|let me continue|let me resume|let me pick up|let me finish|let me carry "
    "on|let me go on|let's continue|i'll continue|i'll resume|i'll pick up|i'll finish|i'll carry "
    "on|i will continue|i will resume|i will pick up|i am continuing|i'm continuing|i'm resuming"
    "|allow me to continue"
)
_PLACE: Final = _phrases(
    "where i left off|where we left off|where it left off|where i was cut off|where it was cut off"
    "|where i got cut off|where it got cut off|where we were cut off|where the response was cut off"
    "|where my response was cut off|where i stopped|where it stopped|where we stopped|where i was "
    "interrupted|where i was|the cutoff|the cutoff point|the cut off|the cut off point|the point "
    "of cutoff|the point where i left off|the point where i was cut off|the point where it was cut "
    "off|the previous response|the previous message|my previous response|my previous message|the "
    "last message|the last response|my last message|the interruption|the last line|the last "
    "sentence|the last point|above|there"
)
_QUOTED: Final = ((_QUOTE,),)
_FROM: Final = _phrases(
    "|from|right|exactly|right from|exactly from|directly from|precisely from|at|immediately from"
)
_OWN: Final = (
    "response|answer|output|reply|message|previous response|previous answer|previous message|last "
    "response"
)
"""Nouns that a model uses for the answer itself; they are not part of the answer's text."""
_NOUNS: Final = (
    "code|list|document|story|text|explanation|article|essay|report|table|section|function|class"
    "|method|script|file|program|implementation|module|component|example|snippet|translation"
    "|transcription|transcript|summary|analysis|chapter|poem|letter|email|guide|tutorial|recipe"
    "|plan|outline|json|html|css|xml|yaml|sql|query|test|tests|review|sections|items|steps|points"
    "|chapters|files|functions|methods|entries|rows|lines|parts|content|contents|narrative"
    "|conversation|dialogue|scene|paragraph|sentence|thought|point|discussion|description"
    "|documentation|solution|proof|calculation|derivation|data|array|object|configuration|template"
    "|page|post|speech|song|lyrics|quiz|schedule"
)
_REST: Final = (
    "rest|continuation|remainder|remaining part|remaining portion|second half|second part|next part"
)


def _prefixed(prefix: str, names: str) -> str:
    return "|".join(f"{prefix} {name}" for name in names.split("|"))


_OF_OWN: Final = _phrases("|" + _prefixed("of the", _OWN) + "|" + _prefixed("of my", _OWN))
_OF_ANY: Final = _phrases(
    "|".join(
        _prefixed(f"of {article}", _NOUNS) for article in ("the", "your", "this", "that", "my")
    )
)
_HERE: Final = _phrases(
    "here's|here is|here are|here comes|below is|this is|and here's|and here is|now here's"
)
_THE_REST: Final = _phrases(_prefixed("the", _REST))
_REMAINING: Final = _phrases(_prefixed("the remaining", f"{_NOUNS}|{_OWN}"))
_ALSO: Final = _phrases("|" + _GO_ON)
_TO_FROM: Final = (*_PLACE, ())


class _PhrasePosition:
    """A position in a sentence for one of several phrases; it is optional if one of them is empty.

    Phrases are indexed by their first words.
    """

    def __init__(self, phrases: Iterable[Words]) -> None:
        self._phrases_by_first_word: dict[str, list[Words]] = {}
        self._may_be_empty = False
        for phrase in phrases:
            if phrase:
                self._phrases_by_first_word.setdefault(phrase[0], []).append(phrase)
            else:
                self._may_be_empty = True
        self._first_words = sorted(self._phrases_by_first_word)

    def after(self, words: Words, position: int) -> Iterator[int]:
        """Yield the positions after each phrase at this position."""
        if self._may_be_empty:
            yield position
        for phrase in (
            self._phrases_by_first_word.get(words[position], ()) if position < len(words) else ()
        ):
            if words[position : position + len(phrase)] == phrase:
                yield position + len(phrase)

    def begins(self, words: Words, position: int) -> bool:
        """Return whether the words from here on begin a phrase; the last may be incomplete."""
        rest = words[position:]
        if not rest:
            return True
        if len(rest) == 1:
            index = bisect_left(self._first_words, rest[0])
            return index < len(self._first_words) and self._first_words[index].startswith(rest[0])
        size = len(rest) - 1
        return any(
            len(phrase) > size
            and phrase[:size] == rest[:size]
            and phrase[size].startswith(rest[size])
            for phrase in self._phrases_by_first_word.get(rest[0], ())
        )


_place: Final = cache(_PhrasePosition)  # most sentences share their positions


class _Sentence:
    """Positions for phrases, in order. `needs_mark`: it counts only with a mark at its end."""

    def __init__(self, places: Iterable[tuple[Words, ...]], *, needs_mark: bool = False) -> None:
        self.places = [_place(phrases) for phrases in places]
        self.needs_mark = needs_mark


_OPENERS: Final = (_OPENER, _OPENER, _OPENER)
_SENTENCES: Final = (
    _Sentence((*_OPENERS, _phrases("continuing|continued|continuation"
                                   "|resuming"), _phrases("|now")), needs_mark=True),
    _Sentence((*_OPENERS, _phrases(_GO_ON), _FROM, _PLACE)),
    _Sentence((*_OPENERS, _phrases(_GO_ON), _FROM, _QUOTED), needs_mark=True),
    _Sentence((*_OPENERS, _phrases("continuing on|let me continue|let's continue|i'll continue|i "
                                   "will continue"))),
    _Sentence((*_OPENERS, _phrases(_GO_ON), _phrases("|with|on "
                                                     "with"), _phrases(_prefixed("the", _OWN)),
                                                     _FROM, _TO_FROM)),
    _Sentence((*_OPENERS, _HERE, _THE_REST, _OF_OWN, _ALSO, _FROM, _TO_FROM)),
    _Sentence((*_OPENERS, _HERE, _THE_REST, _OF_ANY, _ALSO, _FROM, _TO_FROM), needs_mark=True),
    _Sentence((*_OPENERS, _HERE, _REMAINING, _ALSO, _FROM, _TO_FROM), needs_mark=True),
    _Sentence(
        (*_OPENERS, _phrases(_GO_ON), _phrases("|with|on with"),
         _phrases("|".join(_prefixed(article, _NOUNS) for article in
                           ("the", "your", "this", "the next", "the rest "
                                                               "of the", "the remaining",
                                                               "the previous"))),
         _FROM, _TO_FROM),
        needs_mark=True,
    ),
    _Sentence((_OPENER, _phrases("|".join(
        f"{sorry} for "
        f"{what}" for sorry in ("sorry", "apologies", "my apologies", "i apologize", "i apologise")
        for what in ("the interruption", "the cutoff", "the cut off", "the truncation")
    )))),
    _Sentence((_OPENER, _phrases("as i was saying|as i was writing"))),
    # Other languages: whole sentences.
    _Sentence(
        (*_OPENERS, _phrases(
            "hier geht es weiter|weiter geht es|ich mache weiter|ich fahre fort|fortsetzung|hier "
            "ist der rest|hier ist die fortsetzung|ich setze fort|ich setze die antwort fort|hier "
            "der rest|continúo|continúo donde lo dejé|continuando|continuación|aquí está el resto"
            "|aquí tienes el resto|aquí está la continuación|sigo donde lo dejé|je continue|je "
            "reprends|voici la suite|suite|voici le reste|je reprends là où je m'étais arrêté"
            "|continuo|continuo de onde parei|aqui está o resto|aqui está a continuação"
            "|continuo da dove ero rimasto|ecco il resto|ecco la continuazione|riprendo"
            "|继续|继续上文|接上文|接着上文|以下是剩余部分|以下是剩余内容|以下是续写内容|下面继续"
            "|我继续|我将继续|続きです|続きを書きます|続けます|以下続きです"
            "|계속|계속하겠습니다|이어서 작성하겠습니다|продолжаю|продолжение"
            "|вот продолжение|вот остальная часть"
        )),
        needs_mark=True,
    ),
)  # fmt: skip

_QUOTED_TEXT: Final = r"`[^`\n]*(?:`|$)|\"[^\"\n]*(?:\"|$)|“[^”\n]*(?:”|$)"
_WORDS: Final = re.compile(rf"{_QUOTED_TEXT}|[^\W\d_]+(?:'[^\W\d_]+)*")
_PREAMBLE_TEXT: Final = re.compile(
    rf"(?:[^\W\d_]|{_QUOTED_TEXT}|[' .,:;!…*_()\[\]>#–—\t\r-]"
    rf"|[，。：；！、（）【】])*"
)
_MARKED: Final = re.compile(r"(\.\.\.|…|[:：]|[-–—])\s*$")
_LISTED: Final = re.compile(r"\s*[-*] ")
"""Pattern of the beginning of a list entry."""
_BRACKETS: Final = frozenset({"()", "[]", "**", "__", "（）", "【】"})


def _is_marked(line: str) -> bool:
    """Return whether a line is marked as a comment on the text, by its end or by brackets."""
    content = line.strip(" \t\r#>")
    return _MARKED.search(line) is not None or content[:1] + content[-1:].strip(".:") in _BRACKETS


def _words(line: str) -> Words | None:
    """Return a line's words in lower case; None if it holds characters that no preamble has."""
    if _LISTED.match(line) is not None:
        return None
    line = line.lower().replace("’", "'").replace("cut-off", "cut off")
    if _PREAMBLE_TEXT.fullmatch(line) is None:
        return None
    return tuple(_QUOTE if word[0] in '`"“' else word for word in _WORDS.findall(line))


def is_preamble(line: str) -> bool:
    """Return whether a line only announces a continuation."""
    words = _words(line)
    if not words:
        return False
    is_marked = _is_marked(line)
    return any(
        _match_all(sentence.places, words)
        for sentence in _SENTENCES
        if is_marked or not sentence.needs_mark
    )


def may_become_preamble(line: str) -> bool:
    """Return whether an incomplete line may still become a preamble."""
    words = _words(line)
    return words is not None and (
        not words or any(_match_start(sentence.places, words) for sentence in _SENTENCES)
    )


def _match_all(places: Iterable[_PhrasePosition], words: Words) -> bool:
    """Return whether phrases at these positions, in order, match all of the words."""
    positions = {0}
    for place in places:
        positions = {end for position in positions for end in place.after(words, position)}
        if not positions:
            return False
    return len(words) in positions


def _match_start(places: Iterable[_PhrasePosition], words: Words) -> bool:
    """Return whether the words are the beginning of such phrases; the last may be incomplete."""
    positions = {0}
    for place in places:
        if any(place.begins(words, position) for position in positions):
            return True
        positions = {end for position in positions for end in place.after(words, position)}
        if len(words) in positions:
            return True
        if not positions:
            return False
    return False
