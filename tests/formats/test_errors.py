"""Error responses: the cost of reading an error body, and the completeness of its shortcuts."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, strategies as st

from endturn.formats import Context
from endturn.formats.errors import (
    _KEY_HINTS,
    _KEY_PATTERNS,
    _LONG_WORD,
    _NAMED_KEY,
    _RANDOM_KEY,
    _SPELLED_KEY,
    MAX_ERROR_BYTES,
    error_of,
    error_stop,
    quota,
    safe_excerpt,
)
from endturn.vocabulary.tsv import package_data, read_tsv
from tests.support.growth import LIMIT, growth, spent

SENTENCE = json.dumps({"error": {"message": "The server had an error while processing your request.", "code": None}})
PAGE = (
    "<html><head><title>502 Bad Gateway</title></head>"
    "<body><center><h1>502 Bad Gateway</h1></center><hr><center>nginx</center></body></html>"
)
SILENT = {
    "empty": "",
    "page": PAGE,
    "object": "{}",
    "list": "[]",
    "null": "null",
    "number": '{"error": 5}',
    "objects": "[{}, {}, {}]",
    "deep": '{"error": ' * 20 + "{}" + "}" * 20,
    "deep lists": "[" * 40 + "]" * 40,
    "lists in an error": '{"error": {"message": [[], [[]], {}], "detail": [{}, [], null]}}',
}
"""What gateways and proxies send where there is no sentence, to a 429 or a 5xx."""
CTX = Context()
TIMES = 200


def reading(body: str) -> float:
    """Return the CPU time in seconds for many errors with a body: the best of several tries."""
    data = body.encode()
    return min(spent(lambda: [error_of(503, {}, data, ctx=CTX) for _ in range(TIMES)]) for _ in range(7))


@pytest.mark.parametrize("what", SILENT)
def test_an_error_without_a_sentence_costs_no_more_than_one_with_a_sentence(what: str) -> None:
    """It costs at most a few times as much; it was sixty times. The benchmarks have the figures."""
    reading(SENTENCE)  # what is read once is read now
    assert reading(SILENT[what]) < 6 * reading(SENTENCE)


@pytest.mark.parametrize(
    "made",
    [
        lambda n: '{"error": ' * n + "1" + "}" * n,
        lambda n: json.dumps({"error": {"message": [{"msg": ["a"] * n}] * 3}}),
        lambda n: json.dumps({"error": {f"x{number}": {"error": {}} for number in range(n)}}),
        lambda n: "<p>" * n,
        lambda n: "a" * n,
        lambda n: "aB3+" * n,
        lambda n: "context limit token policy key= " * n,
    ],
)
def test_a_long_error_body_costs_in_proportion(made) -> None:  # type: ignore[no-untyped-def]  # a lambda
    """The cost grows up to the limit of reading."""

    def prepare(n: int):  # type: ignore[no-untyped-def]  # as above
        data = made(n).encode()
        return lambda: [error_of(503, {}, data, ctx=CTX) for _ in range(20)]

    assert growth(prepare, 200) <= LIMIT


FIELDS = ("message", "Message", "msg", "detail", "error")


def branching(depth: int, width: int = 3) -> object:
    """Return lists in objects in lists, without a sentence."""
    return {name: [branching(depth - 1)] * width for name in FIELDS} if depth else {"x": 1}


LONG = {
    "hyphens": "a-" * (MAX_ERROR_BYTES // 2),
    "slashes": "a/" * (MAX_ERROR_BYTES // 2),
    "pluses": "a+" * (MAX_ERROR_BYTES // 2),
    "detail list": json.dumps({"detail": [{"loc": ["a"] * 10, "msg": "m" * 5_000}] * 3}),
    "lists in lists": json.dumps({"error": branching(3, 2)}),
    "long path": json.dumps({"detail": [{"loc": ["a" * 100] * 150, "msg": "m"}] * 3}),
}


@pytest.mark.parametrize("what", LONG)
def test_the_time_for_a_long_body_does_not_depend_on_its_content(what: str) -> None:
    """It costs at most a few times as much as a page of the same length; it was up to thirty times."""
    body = LONG[what].encode()
    assert len(body) <= MAX_ERROR_BYTES
    plain = (b"<p>The server had an error. </p>" * (MAX_ERROR_BYTES // 32))[: len(body)]

    def cost(data: bytes) -> float:
        return min(spent(lambda: [error_of(500, {}, data, ctx=CTX) for _ in range(20)]) for _ in range(5))

    made, usual = cost(body), cost(plain)
    assert made < 12 * usual


WINDOW = "This model's maximum context length is 8192 tokens."


@pytest.mark.parametrize(
    ("before", "is_read"),
    [([], True), ([{"msg": "m" * 1_000}] * 2, True), ([{"msg": "m" * 2_500}] * 2, False), ([branching(2)], False)],
)
def test_only_a_bounded_part_of_an_error_is_searched(before: list[object], is_read: bool) -> None:
    """The number of characters, objects and lists is bounded, whatever the error contains."""
    body = json.dumps({"detail": [*before, {"msg": WINDOW}]}).encode()
    stop = error_of(400, {}, body, ctx=CTX).stop
    assert (stop is not None) is is_read


def test_a_long_key_is_found_wherever_its_run_begins() -> None:
    """With any number of hyphens before it, and digits anywhere in it."""
    key = "Ab1" * 16
    for before in ("", "-", "a-" * 5, "a-" * 200, "-" * 300, "x/" * 30):
        for after in ("", "-", "-b" * 200):
            assert "Ab1Ab1" not in safe_excerpt(before + key + after), before
            assert "Ab1Ab1" not in safe_excerpt(f"see {before}{key}{after} here"), before


def test_an_error_body_is_read_up_to_its_limit() -> None:
    """The rest is ignored, and costs nothing."""
    code = json.dumps({"error": {"message": "nothing", "code": "context_length_exceeded"}}).encode()
    assert error_of(400, {}, code, ctx=CTX).stop is not None
    assert error_of(400, {}, b" " * (MAX_ERROR_BYTES - len(code)) + code, ctx=CTX).stop is not None
    assert error_of(400, {}, b" " * MAX_ERROR_BYTES + code, ctx=CTX).stop is None


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"error": {"message": WINDOW, "echo": ["a" * 100] * 600}}),
        json.dumps({"detail": [{"loc": ["body"], "msg": WINDOW, "input": [{"content": "é" * 50}] * 600}]}),
        WINDOW + " é" * 20_000,
        f"<html><head><title>{WINDOW}</title></head>" + "<p>word</p>" * 5_000,
    ],
    ids=["echo after it", "input after it", "text", "page"],
)
def test_the_beginning_of_a_long_body_is_read(body: str) -> None:
    """Also of JSON that is incomplete at the limit of reading."""
    stop = error_of(400, {}, body.encode(), ctx=CTX).stop
    assert stop is not None
    assert stop.reason == "context_window_exceeded"


ASCII = st.characters(codec="ascii")
SENTENCES = [
    (pattern, words.split("|"))
    for _, (_, pattern, words, _) in read_tsv(package_data(), "error_sentences.tsv", range(4, 5))
]


@pytest.mark.parametrize(("pattern", "words"), SENTENCES)
@given(data=st.data())
def test_each_match_of_a_sentence_has_one_of_its_words(pattern: str, words: list[str], data: st.DataObject) -> None:
    """So a text without any of the words need not be searched."""
    text = data.draw(st.from_regex(re.compile(pattern, re.IGNORECASE), alphabet=ASCII))
    assert any(word in text.casefold() for word in words)


@pytest.mark.parametrize(("pattern", "hints"), [(pattern, hints) for pattern, hints, _ in _KEY_PATTERNS])
@given(data=st.data())
def test_each_kind_of_key_has_a_hint_of_its_own(pattern: str, hints: tuple[str, ...], data: st.DataObject) -> None:
    """So a text without any of them need not be searched."""
    text = data.draw(st.from_regex(re.compile(pattern), alphabet=ASCII))
    assert any(hint in text.casefold() for hint in hints)


@given(data=st.data())
def test_each_key_has_a_hint(data: st.DataObject) -> None:
    """So a text without any hint has no key in it."""
    key = re.compile(f"(?x){_NAMED_KEY}|{_SPELLED_KEY}|{_RANDOM_KEY}")
    text = data.draw(st.from_regex(key, alphabet=ASCII))
    assert any(hint in text.casefold() for hint in _KEY_HINTS) or _LONG_WORD.search(text)


@given(before=st.text(ASCII, max_size=40), length=st.integers(0, 3_000), limit=st.sampled_from([120, 300, 1_000]))
def test_no_part_of_a_key_is_shown(before: str, length: int, limit: int) -> None:
    """At any position in a text, with any limit."""
    key = "sk-proj-" + "Ab1" * 30
    shown = safe_excerpt(
        f"{before} {'word ' * (length // 5)}{' ' * (length % 5)}{key} and more " + "text " * 300, limit
    )
    assert "sk-proj" not in shown
    assert "Ab1Ab1" not in shown
    assert len(shown) <= limit


# --- One error ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason", "raw", "detail"),
    [
        (
            {"type": "validationException", "message": "Input is too long for requested model."},
            "context_window_exceeded",
            "validationException",
            "Input is too long for requested model.",
        ),
        (
            {"type": "modelStreamErrorException", "message": "It failed.", "originalMessage": "prompt is too long"},
            "context_window_exceeded",
            "modelStreamErrorException",
            "It failed.",
        ),
        (
            {"type": "throttlingException", "message": "Too many tokens, please wait before trying again."},
            "error",
            "throttlingException",
            "Too many tokens, please wait before trying again.",
        ),
        (
            {"type": "tokens", "code": "rate_limit_exceeded", "message": "Please reduce the length of the messages."},
            "error",
            "rate_limit_exceeded",
            "Please reduce the length of the messages.",
        ),
        ({"code": "sk-proj-abcdefghijklmnopqrstuvwx", "message": "no such key"}, "error", "[removed]", "no such key"),
    ],
)
def test_an_error_inside_a_stream_is_a_stop(error: object, reason: str, raw: str, detail: str) -> None:
    stop = error_stop(error)
    assert (stop.reason, stop.raw, stop.detail) == (reason, raw, detail)


@pytest.mark.parametrize(
    "message",
    [
        "trace f8a07210b001efe4c862b642f3ece475",
        "request ca47a5ce-e260-4824-aa0e-2e62669d5d6e",
        "basic usage is free",
        "model accounts/fireworks/models/llama",
        "See the docs.",
    ],
)
def test_shows_identifiers_that_are_no_keys(message: str) -> None:
    assert safe_excerpt(message) == message


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"X-RateLimit-Remaining-Tokens": "1990", "date": "x"}, {"remaining_tokens": "1990"}),
        ({"anthropic-ratelimit-input-tokens-remaining": "7"}, {"remaining_input_tokens": "7"}),
    ],
)
def test_reads_the_remaining_quota_from_headers(headers: dict[str, str], expected: dict[str, str]) -> None:
    assert quota(headers) == expected
