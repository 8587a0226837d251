"""A stop reason as telemetry shows it: no key and no free text, whatever stands around; every known word verbatim."""

from __future__ import annotations

from itertools import product

import pytest

from endturn.frameworks import lookup
from endturn.vocabulary.stop import MAX_WORD_CHARS, sanitize_reason

KNOWN = sorted({entry.raw for entry in lookup.table() if entry.raw})

# source: the providers' documentation of their keys' shapes; each is made up.
KEYS = [
    "sk-proj-AbCdEfGhIjKlMnOpQrSt", "sk-ant-api03-abcdefghijkl", "sk-abcdef", "sk-or-v1-abcdef", "xai-abcdefghi",
    "gsk_abcdefghijkl", "hf_abcdefghijklm", "AIzaSyDabcdefghijklm", "AKIAIOSFODNN7EXAMPLE", "ghp_abcdefghijklmnop",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "xoxb-abc-def-ghi", "eyJhbGciOi.eyJzdWIi.SflKxw", "glsa_abcdefgh",
    "npm_abcdefghij", "dapiabcdef0123", "deadbeefcafebabe", "DEADBEEFCAFEBABE", "abcdefabcdefabcdefabcdef",
    "abcdefghijklmnopqrstuvwxyzabcdef", "qwertyuiopasdfghjklzxcvb", "QWERTYUIOPASDFGHJKLZXCVB", "AbCdEfGhIjKlMnOpQrSt",
    "4111-1111-1111", "password=hunter", "password: hunter_two", "api_key=hunter-two",
]  # fmt: skip
BEFORE = ["", "error:", "key.", "stop+", "x_", "-", "(", ".", "stop ", "Bearer ", "a.b.", "[", '"', "\u200b", "error__"]
AFTER = ["", ")", ".", "!", " stop", ",x", "\n", "…", ":length", "+x", "_x", "-", "/", "="]

TEXT = [
    "JOHN SMITH IS HIV POSITIVE", "HIV POSITIVE patient John", "stop: SMITH, JOHN", "john.smith+hiv", "DROP TABLE",
    "mailto:john.smith", "john.smith@example.com", "+49(170)123", "my password is Hunter", "john/smith",
    "the-patient-john-smith-has-hiv-and-lives-in-berlin", "error: JohnSmith of Berlin",
]  # fmt: skip
NAMES = ("john", "smith", "hiv", "positive", "drop", "hunter", "berlin", "170", "example")


@pytest.mark.parametrize("raw", KNOWN)
def test_every_known_word_is_shown_verbatim(raw: str) -> None:
    """Alone, and in quotes or after another; an unknown word of code, too."""
    assert len(raw) <= MAX_WORD_CHARS
    assert sanitize_reason(raw) == raw
    assert sanitize_reason(f" {raw}") == f" {raw}"
    assert sanitize_reason(f"new_word: {raw}") == f"new_word: {raw}"


@pytest.mark.parametrize("key", KEYS)
def test_no_key_is_shown(key: str) -> None:
    """Whatever stands before and after it, no piece of six characters of it is."""
    for before, after in product(BEFORE, AFTER):
        shown = sanitize_reason(before + key + after)
        pieces = {key[at : at + 6] for at in range(len(key) - 5)} - {"passwo", "asswor", "ssword"}
        assert not [piece for piece in pieces if piece in shown], (before, after, shown)


@pytest.mark.parametrize("said", TEXT)
def test_no_free_text_is_shown(said: str) -> None:
    """Not a name, not in capitals, not joined by other characters than spaces."""
    for before in ("", "stop: ", "error, "):
        shown = sanitize_reason(before + said).lower()
        assert not [name for name in NAMES if name in shown], shown


def test_a_new_word_is_shown() -> None:
    """What a provider adds tomorrow can be told from the telemetry."""
    words = ("brand_new", "brandNewReason", "BRAND_NEW", "novel", "NOVEL", "stop: brand_new", "content_filter: NOVEL",
             "FinishReason.BRAND_NEW", "FinishReason.NOVEL", "brand-new", "reason=brand_new")  # fmt: skip
    for word in words:
        assert sanitize_reason(word) == word
