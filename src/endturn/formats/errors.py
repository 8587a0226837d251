"""Maps a provider's error response to one of our exceptions, and to a Stop.

The providers' words for errors are in `data/error_answers.tsv` and `data/error_sentences.tsv`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cache
from math import isfinite
from typing import Any, Final, NamedTuple

from pydantic_core import from_json

from endturn.errors import ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected
from endturn.formats.reading import PLAIN, count, items, member, text
from endturn.formats.summaries import Context
from endturn.vocabulary import Resume, Row, Stop, StopReason, find_stop, package_data, read_tsv

_REQUEST_IDS: Final = (
    *("request-id", "x-request-id", "x-amzn-requestid"),
    *("apim-request-id", "x-ms-request-id"),  # Azure
    *("x-global-transaction-id", "x-debug-trace-id", "mistral-correlation-id"),  # IBM, Cohere
    *("x-github-request-id", "x-ds-trace-id"),
    *("x-goog-request-id", "x-cloud-trace-context", "cf-ray"),
)
"""The headers that hold a request's id, the provider's before those of its proxies."""

_BODY_CHARS: Final = 1_000
"""Characters of an answer's body that an exception keeps."""

_SEARCHED_CHARS: Final = 2_304
_PAGE_CHARS: Final = 512
"""The number of characters of an error's sentence, or of a body without one, that are searched."""

_MAX_SENTENCE_CHARS: Final = 1_000
_MAX_HOLDERS: Final = 64
_MAX_DETAILS: Final = 8
_MAX_DEPTH: Final = 5
_MAX_PATH: Final = 16
"""Limits of the search for an error's sentence: characters, objects and lists, details that may
hold a retry delay, levels, members of a path in a request."""

MAX_ERROR_BYTES: Final = 64 * 1024
"""Bytes of an error response's body that are kept until it ends."""
_PARSED_BYTES: Final = 4 * 1024
"""Bytes of it that are parsed, without leading white space. Of longer JSON, its complete values
count."""

_NAMED_KEY: Final = r"""
      (?P<before>                                               # announced as a key
          \b(?i:bearer)\s+
        | \b(?i:basic)\s+(?=[\w+/]{16})
        | (?i:key\ provided:)\s+                                # "Incorrect API key provided: …"
        | (?i:api[-_]?key|access[-_]token|security-token|subscription-key
             |client_secret|secretaccesskey)
          \\*["']?\s*[:=]\s*\\*["']?
        | [?&](?i:key|sig)=
      )[^\s"',}&\\]+
    """
_SPELLED_KEY: Final = r"""
    # As the providers spell them; Google's, AWS's; tokens in JWT form.
      \b(?:sk|pk|rk|gsk|xai|csk|hf|fw|tgp|r8|nvapi|pplx|gh[pousr]|github_pat)[-_][\w*.-]{6,}
    | \bAIza[\w-]{20,} | \bya29\.[\w.-]+ | \bA(?:KI|SI|RO|ID)A[A-Z0-9]{12,}
    | \beyJ[\w-]{10,}\.[\w.-]+
    """
_RANDOM_KEY: Final = r"""
    # Long and random-looking; matched once in each run of such characters, not at each hyphen.
      (?<![\w+/-])(?=[\w+/-]*\d)(?=[\w+/-]*[A-Za-z])[\w+/-]{40,}={0,2}
    """

_NAMED_HINTS: Final = (
    *(
        "bearer",
        "basic",
        "key provided:",
        "apikey",
        "api-key",
        "api_key",
        "access-token",
        "access_token",
    ),
    *(
        "security-token",
        "subscription-key",
        "client_secret",
        "secretaccesskey",
        "?key=",
        "&key=",
        "?sig=",
        "&sig=",
    ),
)
_SPELLED_HINTS: Final = (
    *("sk-", "pk-", "rk-", "xai-", "hf-", "fw-", "tgp-", "r8-", "nvapi-", "pplx-", "github_pat-"),
    *("sk_", "pk_", "rk_", "xai_", "hf_", "fw_", "tgp_", "r8_", "nvapi_", "pplx_", "github_pat_"),
    *("ghp", "gho", "ghu", "ghs", "ghr", "aiza", "ya29.", "akia", "asia", "aroa", "aida", "eyj"),
)
_KEY_HINTS: Final = (*_NAMED_HINTS, *_SPELLED_HINTS)
"""Every key, case folded, contains one of these, unless it is only long and random: the patterns
are slow, and keys are rare."""
_KEY_PATTERNS: Final = (
    (f"(?x){_NAMED_KEY}", _NAMED_HINTS, r"\g<before>[removed]"),
    (f"(?x){_SPELLED_KEY}", _SPELLED_HINTS, "[removed]"),
)
"""Patterns as text: `re` compiles and caches them at the first hint, and most processes see
none."""
_RANDOM_KEY_PATTERN: Final = f"(?x){_RANDOM_KEY}"
_MIN_RANDOM_CHARS: Final = 40
"""Characters of a word that is a key because it is long and random-looking."""
_LONG_WORD: Final = re.compile(rf"[\w+/-]{{{_MIN_RANDOM_CHARS}}}")
_MARGIN: Final = 128
"""Characters beyond the limit that are searched for keys first."""

_EXHAUSTED_CODES: Final = ("insufficient_quota", "exceeded_current_quota_error", "1113", "1008")
"""The codes of OpenAI, Moonshot, Z.AI and MiniMax for an exhausted balance, which comes with a rate
limit's status."""

_JSON_START: Final = re.compile(r"\s*[\[{\"]")
"""The start of JSON that may hold an error: no number, no boolean."""

_STATUS: Final = re.compile("[45][0-9]{2}")

_DELAY: Final = re.compile(r"\d{1,6}(?:\.\d+)?s")

_RATE_LIMIT_HEADER: Final = re.compile(r"^(?:x-|anthropic-)?ratelimit-(.+)$")


def error_of(status: int, headers: Mapping[str, str], body: Any, *, ctx: Context) -> ProviderError:
    """Return the exception for an error response.

    Args:
        status: the HTTP status; 200 for an error inside a stream. A redirect that was not followed
            is a response, too.
        headers: of the response; names in any case.
        body: the response's bytes, or its parsed JSON.
    """
    headers_by_name = {name.lower(): value for name, value in headers.items()}
    readable, parsed = _text_and_json(body)
    error = _with_type(_error_member(parsed), parsed, headers_by_name)
    word = _error_code(error)
    if status < 300:
        status = _implied_status(error) or count(member(parsed, "status_code")) or 500
    is_aws = status == 400 and _is_named_by_aws(parsed, headers_by_name)
    aws_status = _implied_status(error) if is_aws else None
    sentence = _error_sentence(error)
    stop = _stop_of(error, status, word, sentence or readable[:_PAGE_CHARS])
    label = f"{status} {word}" if word and word != str(status) else str(status)
    body_text = safe_excerpt(readable)
    return _error_class(aws_status or status, word, ctx.provider, headers_by_name, stop)(
        f"{ctx.provider or 'the provider'} answered {label}: "
        f"{safe_excerpt(sentence, 300) if sentence else _ellipsis(body_text, 300)}",
        provider=ctx.provider,
        status=status,
        request_id=_header_id(headers_by_name) or _request_id(parsed),
        body=body_text,
        stop=stop,
        retry_after_s=_retry_after(headers_by_name, error),
    )


def error_within(error: Any, *, ctx: Context) -> ProviderError:
    """Return the exception for an error inside a stream.

    It has no status: that of the response was a success.
    """
    failure = error_of(200, {}, {"error": error}, ctx=ctx)
    message = "the provider sent an error within its stream"
    return type(failure)(
        message, provider=failure.provider, stop=failure.stop, retry_after_s=failure.retry_after_s
    )


def request_id(headers: Mapping[str, str]) -> str | None:
    """Return the provider's id for a request, from the headers of its response, in any case."""
    return _header_id({name.lower(): value for name, value in headers.items()})


def _header_id(headers: Mapping[str, str]) -> str | None:
    for name in _REQUEST_IDS:
        if id_ := headers.get(name):
            return id_
    return None


def says_of_stop(error: Any, status: int, readable: str = "") -> Stop | None:
    """Return the Stop that an error describes, or None.

    An error describes one if the window was exceeded, a filter blocked the text, or a call was
    malformed. None for any other error, such as a rate limit, whose "reduce the tokens" is about a
    minute and not about the window, or an output limit that is larger than the model's.

    Args:
        error: the error within an answer or an event.
        status: of the response; 0 for an error inside a stream.
        readable: the response's text, if it is not JSON.
    """
    return _stop_of(
        error, status, _error_code(error), _error_sentence(error) or readable[:_PAGE_CHARS]
    )


def _stop_of(error: Any, status: int, word: str, sentence: str) -> Stop | None:
    """Return the result of `says_of_stop` for an error with this code and sentence."""
    if 429 in (status, _implied_status(error)):
        return None
    inner = member(member(error, "innererror"), "code")  # Azure
    # OpenRouter: "Provider returned error", and here which
    upstream = member(member(error, "metadata"), "raw")
    cause = member(error, "originalMessage")  # Bedrock's modelStreamErrorException
    texts = (word, text(member(error, "type")), text(inner), sentence, text(upstream), text(cause))
    searched_text = f"<{word}> {' '.join(filter(None, texts))}"[:_SEARCHED_CHARS]
    folded = searched_text.casefold()
    for pattern, words, row in _sentences():
        match = pattern.search(searched_text) if _holds_any(folded, words) else None
        if match is not None:
            if row is None:
                return None
            raw = word if word and word != str(status) else match.group()
            return find_stop(raw, {raw: row})
    return None


def error_stop(error: Any) -> Stop:
    """Return the Stop of a stream that an error ended: what the error describes, else `error`."""
    stop = says_of_stop(error, 0)
    if stop is not None:
        return stop if stop.detail is not None else replace(stop, detail=label_of(error))
    words = (member(error, name) for name in ("code", "type", "status"))  # The last is Google's.
    # some echo the key
    raw = safe_excerpt(next((word for word in words if isinstance(word, str) and word), "error"))
    return find_stop(
        raw, {raw: Row(StopReason.ERROR, True, source="error events")}, detail=label_of(error)
    )


def label_of(error: Any) -> str:
    """Return an error in a few words, for a Stop's detail."""
    return safe_excerpt(
        _error_sentence(error) or str(member(error, "code") or member(error, "type") or "error"),
        120,
    )


def safe_excerpt(readable: str, limit: int = _BODY_CHARS) -> str:
    """Return text for a message or a log.

    Everything that looks like a key is removed, and the result is not longer than the limit.
    """
    for size in (limit + _MARGIN, _SEARCHED_CHARS):
        clean = _without_keys(readable[:size])
        if len(readable) <= size or len(clean) >= limit + _MIN_RANDOM_CHARS:
            return _ellipsis(clean, limit)
    # The first half of a key at the end may not look like one: leave it out.
    return _ellipsis(clean[:-_MIN_RANDOM_CHARS] + "…", limit)


def _without_keys(readable: str) -> str:
    folded, clean = readable.casefold(), readable
    for pattern, hints, replacement in _KEY_PATTERNS:
        if _holds_any(folded, hints):
            clean = re.sub(pattern, replacement, clean)
    longest = max(map(len, clean.split()), default=0)
    return (
        re.sub(_RANDOM_KEY_PATTERN, "[removed]", clean)
        if longest >= _MIN_RANDOM_CHARS and _LONG_WORD.search(clean)
        else clean
    )


def _holds_any(folded: str, words: Iterable[str]) -> bool:
    for word in words:  # noqa: SIM110 - a generator costs twice as much, and the words are many
        if word in folded:
            return True
    return False


def _ellipsis(clean: str, limit: int) -> str:
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def quota(headers: Mapping[str, str] | None) -> dict[str, str]:
    """Return the rate limits in a response's headers, e.g. {"remaining_tokens": "1990"}.

    OpenAI and its likes write `x-ratelimit-remaining-tokens`, Anthropic
    `anthropic-ratelimit-tokens-remaining`.
    """
    rates = (
        (_RATE_LIMIT_HEADER.match(name.lower()), value) for name, value in (headers or {}).items()
    )
    verbs = ("limit", "remaining", "reset")
    return {
        "_".join(sorted(rate[1].split("-"), key=lambda word: word not in verbs)): value
        for rate, value in rates
        if rate
    }


def _retry_after(headers: Mapping[str, str], error: Any) -> float | None:
    """Return the seconds to wait before a retry.

    From `retry-after-ms`, `retry-after` (seconds, or a date), or Google's `RetryInfo`.
    """
    for name, unit in (("retry-after-ms", 1_000), ("retry-after", 1)):
        if (value := headers.get(name)) is None:
            continue
        with suppress(ValueError, TypeError):
            seconds = _seconds(value, headers.get("date")) / unit
            if isfinite(seconds):
                return max(0.0, seconds)
    # {"retryDelay": "34.07s"} among the details.
    for detail in items(member(error, "details"))[:_MAX_DETAILS]:
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and _DELAY.fullmatch(delay):
            return float(delay[:-1])
    return None


def _seconds(value: str, now: str | None) -> float:
    try:
        return float(value)
    except ValueError:
        retry_at = parsedate_to_datetime(value).timestamp()
        return retry_at - (parsedate_to_datetime(now).timestamp() if now else time.time())


def _text_and_json(body: Any) -> tuple[str, Any]:
    """Return a response's body as text, and parsed."""
    if not isinstance(body, bytes | bytearray):
        try:
            return json.dumps(body, ensure_ascii=False, default=str), body
        except (ValueError, RecursionError):
            return "", body
    data = bytes(body[:MAX_ERROR_BYTES]).lstrip()
    readable = data[:_PARSED_BYTES].decode("utf-8", "replace")
    if _JSON_START.match(readable):
        with suppress(ValueError):
            return readable, from_json(
                readable, allow_partial="trailing-strings" if len(data) > _PARSED_BYTES else "off"
            )
        # Python's own parser accepts more, such as half of a surrogate pair
        with suppress(ValueError, RecursionError):
            return readable, json.loads(readable)
    return readable, None


def _error_member(parsed: Any) -> Any:
    """Return the error in a response's JSON.

    `{"error": {…}}`, `{"error": "…"}`, `[{"error": …}]` (Google), `{"errors": [{…}]}` (watsonx),
    `{"detail": …}` (FastAPI), `{"response": {"error": {…}}}` (Responses), `{"throttlingException":
    {…}}` (AWS's streams), or the bare error (vLLM, Cohere, AWS).
    """
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    for holder in (parsed, member(parsed, "response")):
        if holder is None:
            continue
        for name in ("error", "errors", "detail"):
            inner = member(holder, name)
            # If there is a separate message, a list of details is not the error.
            if inner is not None and (
                name == "error" or not isinstance(member(holder, "message"), str)
            ):
                return inner[0] if name == "errors" and isinstance(inner, list) and inner else inner
    if isinstance(parsed, dict) and len(parsed) == 1:
        ((name, inner),) = parsed.items()
        if name.endswith("Exception") and isinstance(inner, dict):
            return {"type": name, **inner}
    return parsed


def _with_type(error: Any, parsed: Any, headers: Mapping[str, str]) -> Any:
    """Return an error with its type next to its message, if the type was sent elsewhere.

    AWS sends it as a header, or as `__type`, with a URL or a path; Hugging Face next to an error
    that is only text.
    """
    kind = headers.get("x-amzn-errortype") or text(member(error, "__type"))
    kind = kind.partition(":")[0].rpartition("#")[2] or text(member(parsed, "error_type"))
    if not kind:
        return error
    return (
        {"type": kind, **error}
        if isinstance(error, dict)
        else {"type": kind, "message": _error_sentence(error)}
    )


def _is_named_by_aws(parsed: Any, headers: Mapping[str, str]) -> bool:
    """Return whether an error has an AWS error type.

    AWS's JSON protocol uses the status 400 also for throttling.
    """
    return bool(headers.get("x-amzn-errortype") or text(member(parsed, "__type")))


def _error_code(error: Any) -> str:
    """Return an error's code if it is a word, else its type or status, else its code's digits."""
    code = member(error, "code")
    if isinstance(code, str) and code:
        return code
    return text(member(error, "type")) or text(member(error, "status")) or str(code or "")


def _error_sentence(error: Any) -> str:
    """Return an error's sentence.

    Mistral and FastAPI have a list of errors in its place, each with its path in the request.
    """
    return _sentence(error, _MAX_DEPTH, [_MAX_HOLDERS, _SEARCHED_CHARS])


def _sentence(error: Any, depth: int, budget: list[int]) -> str:
    """Return the sentence of an error or of a part of one.

    Args:
        budget: objects and characters that may still be read; reduced in place.
    """
    if isinstance(error, str):
        sentence = error[: max(0, min(budget[1], _MAX_SENTENCE_CHARS))]
        budget[1] -= len(error)
        return sentence
    budget[0] -= 1
    if not depth or error is None or min(budget) < 0:
        return ""
    if isinstance(error, list | tuple):
        return "; ".join(filter(None, [_sentence(entry, depth - 1, budget) for entry in error[:3]]))
    if isinstance(error, PLAIN):
        return ""
    for name in ("message", "Message", "msg", "detail", "error"):
        inner = member(error, name)
        if inner is not None and (sentence := _sentence(inner, depth - 1, budget)):
            location = ".".join(map(str, items(member(error, "loc"))[:_MAX_PATH]))[:_BODY_CHARS]
            return f"{location}: {sentence}" if location else sentence
    return ""


def _implied_status(error: Any) -> int | None:
    """Return the HTTP status that an error itself stands for.

    By a number (OpenRouter, Google), else by its code or type.
    """
    if not error or isinstance(error, list | str):  # plain types have no members
        return None
    code, kind, status = member(error, "code"), member(error, "type"), member(error, "status")
    for value in (code, status, member(error, "status_code")):
        if value is None:
            continue
        number = count(int(value) if isinstance(value, str) and _STATUS.fullmatch(value) else value)
        if number is not None and 400 <= number <= 599:
            return number
    for word in (code, kind, status):
        if isinstance(word, str) and (implied := status_of(word)):
            return implied
    return None


def _request_id(parsed: Any) -> str | None:
    """Return the request's id in a body: Anthropic, watsonx; Cohere, next to a bare message."""
    names = (
        ("request_id", "trace", "id")
        if isinstance(member(parsed, "message"), str)
        else ("request_id", "trace")
    )
    for name in names:
        if id_ := text(member(parsed, name)):
            return id_
    return None


def _error_class(
    status: int, word: str, provider: str, headers: Mapping[str, str], stop: Stop | None
) -> type[ProviderError]:
    if status in (408, 504, 524):
        return ProviderTimeout
    # Both SDKs obey this header first; an exhausted balance is a 429, and will be one again.
    if (
        headers.get("x-should-retry") == "false"
        or word in _EXHAUSTED_CODES
        or (stop is not None and status >= 424)
    ):
        return RequestRejected
    # Bedrock's 424: the model failed on this request. "Retry your request."
    if headers.get("x-should-retry") == "true" or status in (409, 424, 425, 429) or status >= 500:
        return ProviderUnavailable
    # Groq's 498: its flex tier is full; Cohere's 498 is an invalid key.
    if status == 498 and provider == "groq":
        return ProviderUnavailable
    return RequestRejected


# --- The providers' words -------------------------------------------------------------------------

_MEANINGS: Final = {
    "silent": None,
    "context_window_exceeded": Row(
        StopReason.CONTEXT_WINDOW_EXCEEDED, True, source="error answers"
    ),
    "max_tokens": Row(StopReason.MAX_TOKENS, True, source="error answers"),
    "safety_blocked": Row(StopReason.SAFETY_BLOCKED, True, source="error answers"),
    "call": Row(StopReason.ERROR, True, Resume.REPAIR, source="error answers"),
}


class ErrorWords(NamedTuple):
    """A provider's type, code (if there is one) and sentence for an error."""

    type: str
    code: str | None
    message: str


class _ErrorAnswers(NamedTuple):
    words: Mapping[str, Mapping[str, ErrorWords]]
    statuses: Mapping[str, int]


@cache
def _error_answers() -> _ErrorAnswers:
    words: dict[str, dict[str, ErrorWords]] = {}
    statuses: dict[str, int] = {}
    for _, (format_, when, type_, code, message) in read_tsv(
        package_data(), "error_answers.tsv", range(5, 6)
    ):
        if message:
            words.setdefault(format_, {})[when] = ErrorWords(type_, code or None, message)
        if type_ and when.isdigit():
            statuses.setdefault(type_.lower(), int(when))
    return _ErrorAnswers(words, statuses)


def error_words(format_: str, status: int, code: str | None, message: str | None) -> ErrorWords:
    """Return a provider's type, code and sentence for a status, or for a code that it knows.

    Args:
        message: replaces the provider's sentence.
    """
    words = _error_answers().words
    format_words = words.get(format_) or words["openai_chat"]
    by_status = format_words.get(str(status)) or format_words["500" if status >= 500 else "400"]
    by_code = format_words.get(code or "", by_status)
    return ErrorWords(
        by_code.type or by_status.type, code or by_status.code, message or by_code.message
    )


def status_of(word: str) -> int | None:
    """Return the status that an error inside a response, under HTTP 200, would have had.

    Args:
        word: the error's type or code.
    """
    return _error_answers().statuses.get(word.lower())


@cache
def _sentences() -> tuple[tuple[re.Pattern[str], frozenset[str], Row | None], ...]:
    """Return the patterns for an error's text, in their order.

    Each pattern comes with words of which every match contains one, and with its row; None for a
    text that describes no stop.
    """
    rows: dict[str, tuple[list[str], list[str]]] = {}
    for _, (meaning, pattern, words, _source) in read_tsv(
        package_data(), "error_sentences.tsv", range(4, 5)
    ):
        patterns, all_words = rows.setdefault(meaning, ([], []))
        patterns.append(pattern)
        all_words.extend(words.split("|"))
    return tuple(
        (re.compile("|".join(patterns), re.IGNORECASE), frozenset(words), _MEANINGS[meaning])
        for meaning, (patterns, words) in rows.items()
    )
