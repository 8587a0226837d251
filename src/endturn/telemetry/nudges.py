"""Whether a message only says "go on", and which message a call answers, such messages left out."""

from __future__ import annotations

import re
from collections import OrderedDict
from hashlib import blake2b
from typing import Any, Final

from endturn.telemetry.said import only_text, role, text_of
from endturn.wires import Asked

NUDGE_CHARS: Final = 600
"""Longer than this, a message says more than "go on"."""

REMEMBERED: Final = 256
"""Texts that a controller nudged with, at most."""

GOING_ON: Final = re.compile(
    r"\b(?:continu(?:e|ing)|resume|go on|keep going|keep on|carry on|pick up|proceed|finish|complete|go ahead"
    r"|weiter|weitermachen|weiterschreiben|fortsetzen|fortfahren|fahre? (?:bitte )?fort|setze? (?:bitte )?fort"
    r"|continu(?:ez|er|a|ar|ad|i|are)|continúa|continúe|poursui(?:s|vez|vre)|prosigue|siga|sigue|prossiga|prosseguir"
    r"|prosegui(?:re)?|vai avanti|ga (?:maar )?verder|fortsätt|fortsett|fortsæt|jatka|kontynuuj|pokračuj"
    r"|продолж(?:и|ай|айте|ите|ить|уй)|дальше|devam|tiếp tục|lanjutkan|أكمل|اكمل|تابع|استمر|המשך)\b"
    r"|继续|繼續|接着[写说]|往下[写说]|続け[てろ]|続きを|계속"
)
"""What asks to go on: a nudge has it."""

WORDS: Final = frozenset(  # a list of words reads better as text
    """
    continue continuing resume go going on keep carry pick up proceed finish complete generating writing
    ahead please ok okay yes sorry now directly exactly immediately right just only seamlessly again still
    response answer output message reply text generation completion content part rest remainder remaining thought
    previous prior last above earlier so far already sent written said generated
    was were got has have been is are hit reached exceeded ran out of due because by at and or to with without if
    cut off short truncated truncation interrupted incomplete stopped ended too long left
    limit limits token tokens max maximum max_tokens maximum_tokens length budget finish_reason
    from where there here it its the a an this that any no not do don't your you my i in into for mid mid-thought
    happened already-sent anything nothing everything repeat repeating restart start over begin beginning
    apology apologies recap summary preamble explanation what doing
    point place character word sentence line system user
    intended tool call calls emit one payload break work smaller pieces
    weiter mach mache weitermachen weiterschreiben fortsetzen fortfahren fahr fahre setz setze fort bitte
    schreib schreibe genau dort da wo du aufgehört hast deine antwort
    continuez continuer poursuis poursuivez poursuivre svp stp s'il s’il te vous plaît plait où là tu t'es t’es arrêté
    continúa continúe continuar continuad sigue siga prosigue por favor donde lo dejaste
    continua prossiga prosseguir onde parou per favore vai avanti continui continuare prosegui proseguire
    ga maar verder alsjeblieft fortsätt fortsett fortsæt jatka kontynuuj proszę pokračuj prosím
    продолжи продолжай продолжайте продолжите продолжить продолжуй дальше пожалуйста
    devam et lütfen tiếp tục lanjutkan أكمل اكمل تابع استمر من فضلك המשך בבקשה
    继续 请继续 繼續 請繼續 继续写 继续说 请继续写 继续吧 接着写 接着说 请接着写 请接着说 往下写
    往下说 继续回答 请继续回答 请继续你的回答 从中断处继续 请从中断处继续 从断开的地方继续 请从断开的地方继续
    続けて 続けてください 続きを 続きをお願いします 続きを書いて 続きを書いてください 続きをどうぞ
    계속 계속해 계속해줘 계속해주세요 주세요 계속하세요 이어서
    """.split()  # noqa: SIM905
)
"""All that a nudge says besides. A word that is not here says something new: "Continue the story with a dragon" is a
new request, and a turn that it ends was left."""

ALONE: Final = (
    "more", "more please", "please more", "the rest", "rest", "and the rest", "the rest please",
    "rest please", "next part", "the next part", "next part please", "suite", "la suite", "suite svp", "la suite svp",
    "suite stp", "la suite stp", "la suite s'il te plaît", "la suite s'il vous plaît", "la suite s'il te plait",
    "la suite s'il vous plait", "et la suite", "le reste", "der rest", "den rest bitte", "mehr", "mehr bitte", "más",
    "más por favor", "mais por favor", "resto", "el resto", "o resto", "il resto", "ancora", "meer", "ga door", "dalej",
    "ещё", "еще", "далее", "续", "接着", "続き", "もっと", "더", "더 해줘", "tiếp", "lanjut", "जारी रखें", "जारी रखो",
)  # fmt: skip
"""Whole messages that ask to go on, of words that say something else in others: "more" is not "no more, please"."""

_REST: Final = re.compile(
    r"\b(?:output|give|send|write|show|print|provide|return|generate)(?: (?:me|us|only|just|now))*"
    r" (?:the|your) (?:rest|remainder|remaining|missing)\b"
    r"|\b(?:continue[rz]?|poursui(?:s|vez)|finis|continúa|continua|termina|sigue con) (?:ta|votre|tu|a sua|sua|la tua)"
    r" (?:réponse|respuesta|resposta|risposta)\b"
)
"""Asks for the rest of what was cut, in words that alone could ask for something else: "resume tu respuesta" asks for a
summary."""

_DOTS: Final = ".…。"
_WORD: Final = re.compile(r"[^\W\d]+(?:['’_-][^\W\d]+)*|\d+")
_EDGES: Final = " .!…:;\"'`*_-–—()[]<>/。！，、"


class Nudges:
    """Knows a nudge: by the declared patterns, or because a controller of this process sent the same text as one."""

    def __init__(self) -> None:
        self._learnt: OrderedDict[bytes, None] = OrderedDict()

    def learn(self, asked: Asked) -> None:
        """The last message of this request is a nudge."""
        if asked.length:
            last = asked.history[asked.length - 1]
            if role(last) == "user":
                self._learnt[_mark(_folded(text_of(last)))] = None
                if len(self._learnt) > REMEMBERED:
                    self._learnt.popitem(last=False)

    def is_one(self, message: Any) -> bool:
        """Whether this is a user's message that only asks to go on."""
        return role(message) == "user" and only_text(message) and self.known(text_of(message))

    def known(self, text: str) -> bool:
        """Whether this text only asks to go on."""
        if not text.strip() or len(text) > NUDGE_CHARS:
            return False
        return is_nudge(text) or _mark(_folded(text)) in self._learnt


def is_nudge(text: str) -> bool:
    """Whether a text asks to go on and says nothing new."""
    if len(text) > NUDGE_CHARS:
        return False
    folded = _folded(text)
    if not folded:
        said = text.strip()
        return said != "" and not said.strip(_DOTS)
    folded = _REST.sub("continue", folded)
    words = _WORD.findall(folded)
    if GOING_ON.search(folded) is not None and WORDS.issuperset(words):
        return True
    return " ".join(words) in _ALONE


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold().strip(_EDGES)


_ALONE: Final = frozenset(" ".join(_WORD.findall(text)) for text in ALONE)


def _mark(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def question_of(asked: Asked) -> bytes | None:
    """What marks the latest message of a call that a user wrote, nudges left out; None where there is none."""
    for position in range(asked.length - 1, -1, -1):
        message = asked.history[position]
        text = text_of(message) if role(message) == "user" else ""
        if text.strip() and not is_nudge(text):
            return _mark(_folded(text))
    return None
