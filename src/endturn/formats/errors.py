"""A provider's error answer as one of our exceptions: whose fault it is, and what it says of the stop.

What providers say where they do not answer is in `data/error_answers.tsv` and `data/error_sentences.tsv`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import cache
from math import isfinite
from typing import Any, Final, NamedTuple

from endturn.errors import ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected
from endturn.formats.reading import count, items, member, text
from endturn.formats.summaries import Context
from endturn.stop import Resume, Row, Stop, StopReason, find_stop
from endturn.tables import lines, shipped

_REQUEST_IDS: Final = (
    *("request-id", "x-request-id", "x-amzn-requestid"),
    *("apim-request-id", "x-ms-request-id"),  # Azure
    *("x-global-transaction-id", "x-debug-trace-id", "mistral-correlation-id"),  # IBM, Cohere
    *("x-github-request-id", "x-ds-trace-id", "x-goog-request-id", "x-cloud-trace-context", "cf-ray"),
)
"""The headers that hold a request's id, the provider's own before those of what stands before it."""

_SHORT: Final = 1_000
"""How many characters of an answer's body an exception keeps."""

_LOOKED_AT: Final = 16_384

_KEY: Final = re.compile(
    r"""
      (?P<before>                                                            # said to be one
          \b(?i:bearer)\s+
        | \b(?i:basic)\s+(?=[\w+/]{16})
        | (?i:key\ provided:)\s+                                             # "Incorrect API key provided: …"
        | (?i:api[-_]?key|access[-_]token|security-token|subscription-key|client_secret|secretaccesskey)
          \\*["']?\s*[:=]\s*\\*["']?
        | [?&](?i:key|sig)=
      )[^\s"',}&\\]+
    # As the providers spell them; Google's, AWS's; tokens in JWT form.
    | \b(?:sk|pk|rk|gsk|xai|csk|hf|fw|tgp|r8|nvapi|pplx|gh[pousr]|github_pat)[-_][\w*.-]{6,}
    | \bAIza[\w-]{20,} | \bya29\.[\w.-]+ | \bA(?:KI|SI|RO|ID)A[A-Z0-9]{12,}
    | \beyJ[\w-]{10,}\.[\w.-]+
    | \b(?=[\w+/-]{0,255}\d)(?=[\w+/-]{0,255}[A-Za-z])[\w+/-]{40,}={0,2}   # long and random-looking
    """,
    re.VERBOSE,
)

_SPENT: Final = ("insufficient_quota", "exceeded_current_quota_error", "1113", "1008")
"""What OpenAI, Moonshot, Z.AI and MiniMax call a used-up balance, with a rate limit's status."""

_RATE: Final = re.compile(r"^(?:x-|anthropic-)?ratelimit-(.+)$")


def error_of(status: int, headers: Mapping[str, str], body: Any, *, ctx: Context) -> ProviderError:
    """The exception for an error answer.

    Args:
        status: the HTTP status; 200 for an error inside a stream. A redirect that nobody followed is an answer, too.
        headers: of the answer; names in any case.
        body: the answer's bytes, or its parsed JSON.
    """
    known = {name.lower(): value for name, value in headers.items()}
    readable, parsed = _read(body)
    error = _named(_error_member(parsed), parsed, known)
    word = _word(error)
    if status < 300:
        status = _status(error) or count(member(parsed, "status_code")) or 500
    stop = says_of_stop(error, status, readable)
    label = f"{status} {word}" if word and word != str(status) else str(status)
    return _kind(status, word, ctx.provider, known, stop)(
        f"{ctx.provider or 'the provider'} answered {label}: {shortened(_said(error) or readable, 300)}",
        provider=ctx.provider,
        status=status,
        request_id=request_id(known) or _request_id(parsed),
        body=shortened(readable),
        stop=stop,
        retry_after_s=_retry_after(known, error),
    )


def request_id(headers: Mapping[str, str]) -> str | None:
    """The provider's id for a request, from the headers of its answer, whatever their case."""
    known = {name.lower(): value for name, value in headers.items()}
    return next((known[name] for name in _REQUEST_IDS if known.get(name)), None)


def says_of_stop(error: Any, status: int, readable: str = "") -> Stop | None:
    """What an error says about the model's stop: the window was exceeded, a filter struck, a call was malformed.

    None for any other error; for a rate limit: "reduce the tokens" there speaks of a minute, not of the window; and for
    an output limit that is larger than the model's, whatever the prompt.

    Args:
        error: the error within an answer or an event.
        status: of the answer; 0 for an error inside a stream.
        readable: the answer's text, where it is not JSON.
    """
    if 429 in (status, _status(error)):
        return None
    word = _word(error)
    inner = member(member(error, "innererror"), "code")  # Azure
    upstream = member(member(error, "metadata"), "raw")  # OpenRouter: "Provider returned error", and here which
    cause = member(error, "originalMessage")  # Bedrock's modelStreamErrorException
    told = (word, text(member(error, "type")), text(inner), _said(error) or readable, text(upstream), text(cause))
    said = f"<{word}> {' '.join(filter(None, told))}"[:_LOOKED_AT]
    for pattern, row in _sentences():
        found = pattern.search(said)
        if found is not None:
            if row is None:
                return None
            raw = word if word and word != str(status) else found.group()
            return find_stop(raw, {raw: row})
    return None


def broken(error: Any) -> Stop:
    """The Stop of a stream that an error inside it ended: what the error says, else `error`."""
    said = says_of_stop(error, 0)
    if said is not None:
        return said if said.detail is not None else replace(said, detail=label_of(error))
    words = (member(error, name) for name in ("code", "type", "status"))  # The last is Google's.
    raw = shortened(next((word for word in words if isinstance(word, str) and word), "error"))  # some echo the key
    return find_stop(raw, {raw: Row(StopReason.ERROR, True, source="error events")}, detail=label_of(error))


def label_of(error: Any) -> str:
    """An error in a few words, for a Stop's detail."""
    return shortened(_said(error) or str(member(error, "code") or member(error, "type") or "error"), 120)


def shortened(readable: str, limit: int = _SHORT) -> str:
    """Text for a message or a log: without anything that looks like a key, and not longer than the limit."""
    clean = _KEY.sub(lambda found: (found["before"] or "") + "[removed]", readable[:_LOOKED_AT])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def quota(headers: Mapping[str, str] | None) -> dict[str, str]:
    """What an answer's headers say of limits, e.g. {"remaining_tokens": "1990"}.

    OpenAI and its likes write `x-ratelimit-remaining-tokens`, Anthropic `anthropic-ratelimit-tokens-remaining`.
    """
    rates = ((_RATE.match(name.lower()), value) for name, value in (headers or {}).items())
    verbs = ("limit", "remaining", "reset")
    return {
        "_".join(sorted(rate[1].split("-"), key=lambda word: word not in verbs)): value for rate, value in rates if rate
    }


def _retry_after(headers: Mapping[str, str], error: Any) -> float | None:
    """Seconds to wait: `retry-after-ms`, `retry-after` (seconds, or a date), or Google's `RetryInfo`."""
    for name, unit in (("retry-after-ms", 1_000), ("retry-after", 1)):
        with suppress(ValueError, TypeError):
            seconds = _seconds(headers.get(name, ""), headers.get("date")) / unit
            if isfinite(seconds):
                return max(0.0, seconds)
    # {"retryDelay": "34.07s"} among the details.
    delays = (text(member(detail, "retryDelay")) for detail in items(member(error, "details")))
    return next((float(said[:-1]) for said in delays if re.fullmatch(r"\d{1,6}(?:\.\d+)?s", said)), None)


def _seconds(value: str, now: str | None) -> float:
    try:
        return float(value)
    except ValueError:
        then = parsedate_to_datetime(value).timestamp()
        return then - (parsedate_to_datetime(now).timestamp() if now else time.time())


def _read(body: Any) -> tuple[str, Any]:
    """An answer as text, and parsed."""
    try:
        if not isinstance(body, bytes | bytearray):
            return json.dumps(body, ensure_ascii=False, default=str), body
        readable = bytes(body).decode("utf-8", "replace")
        return readable, json.loads(readable)
    except (ValueError, RecursionError):
        return (readable, None) if isinstance(body, bytes | bytearray) else ("", body)


def _error_member(parsed: Any) -> Any:
    """The error in an answer.

    `{"error": {…}}`, `{"error": "…"}`, `[{"error": …}]` (Google), `{"errors": [{…}]}` (watsonx), `{"detail": …}`
    (FastAPI), `{"response": {"error": {…}}}` (Responses), `{"throttlingException": {…}}` (AWS's streams), or the bare
    error (vLLM, Cohere, AWS).
    """
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    for holder in (parsed, member(parsed, "response")):
        for name in ("error", "errors", "detail"):
            inner = member(holder, name)
            # Beside a message of its own, a list of details is not the error.
            if inner is not None and (name == "error" or not isinstance(member(holder, "message"), str)):
                return inner[0] if name == "errors" and isinstance(inner, list) and inner else inner
    if isinstance(parsed, dict) and len(parsed) == 1:
        ((name, inner),) = parsed.items()
        if name.endswith("Exception") and isinstance(inner, dict):
            return {"type": name, **inner}
    return parsed


def _named(error: Any, parsed: Any, headers: Mapping[str, str]) -> Any:
    """An error with its type beside its message, where it came elsewhere.

    AWS's comes as a header, or as `__type`, with a URL or a path; Hugging Face's beside an error that is bare text.
    """
    kind = headers.get("x-amzn-errortype") or text(member(error, "__type"))
    kind = kind.partition(":")[0].rpartition("#")[2] or text(member(parsed, "error_type"))
    if not kind:
        return error
    return {"type": kind, **error} if isinstance(error, dict) else {"type": kind, "message": _said(error)}


def _word(error: Any) -> str:
    """An error's code where it is a word, else its type or status word, else its code's digits."""
    code = member(error, "code")
    if isinstance(code, str) and code:
        return code
    return text(member(error, "type")) or text(member(error, "status")) or str(code or "")


def _said(error: Any, depth: int = 5) -> str:
    """An error's sentence. Mistral and FastAPI put a list of what is wrong in its place, each with where it is."""
    if isinstance(error, str) or not depth:
        return text(error)
    if isinstance(error, list | tuple):
        return "; ".join(filter(None, (_said(each, depth - 1) for each in error[:3])))
    for name in ("message", "Message", "msg", "detail", "error"):
        found = _said(member(error, name), depth - 1)
        if found:
            where = ".".join(map(str, items(member(error, "loc"))))
            return f"{where}: {found}" if where else found
    return ""


def _status(error: Any) -> int | None:
    """The status that an error itself stands for: by a number (OpenRouter, Google), else by its code or type."""
    for name in ("code", "status", "status_code"):
        value = member(error, name)
        number = count(int(value) if isinstance(value, str) and re.fullmatch("[45][0-9]{2}", value) else value)
        if number is not None and 400 <= number <= 599:
            return number
    words = (member(error, name) for name in ("code", "type", "status"))
    return next((status for word in words if isinstance(word, str) and (status := _status_of(word))), None)


def _request_id(parsed: Any) -> str | None:
    """The request's id where a body holds it: Anthropic, watsonx; Cohere, beside a bare message."""
    names = ("request_id", "trace", "id") if isinstance(member(parsed, "message"), str) else ("request_id", "trace")
    return next((found for name in names if (found := text(member(parsed, name)))), None)


def _kind(status: int, word: str, provider: str, headers: Mapping[str, str], stop: Stop | None) -> type[ProviderError]:
    if status in (408, 504, 524):
        return ProviderTimeout
    # Both SDKs heed this header above all; a used-up balance says 429 and will say it again.
    if headers.get("x-should-retry") == "false" or word in _SPENT or (stop is not None and status >= 424):
        return RequestRejected
    # Bedrock's 424: the model failed over this request. "Retry your request."
    if headers.get("x-should-retry") == "true" or status in (409, 424, 425, 429) or status >= 500:
        return ProviderUnavailable
    if status == 498 and provider == "groq":  # Its flex tier is full; Cohere's 498 is a bad key.
        return ProviderUnavailable
    return RequestRejected


# --- What providers say -----------------------------------------------------------------------------------------------

_MEANS: Final = {
    "silent": None,
    "context_window_exceeded": Row(StopReason.CONTEXT_WINDOW_EXCEEDED, True, source="error answers"),
    "max_tokens": Row(StopReason.MAX_TOKENS, True, source="error answers"),
    "safety_blocked": Row(StopReason.SAFETY_BLOCKED, True, source="error answers"),
    "call": Row(StopReason.ERROR, True, Resume.REPAIR, source="error answers"),
}


class ErrorWords(NamedTuple):
    """A provider's words for an error: its type, its code where it has one, and its sentence."""

    type: str
    code: str | None
    message: str


class _Answers(NamedTuple):
    words: Mapping[str, Mapping[str, ErrorWords]]
    statuses: Mapping[str, int]


@cache
def _answers() -> _Answers:
    words: dict[str, dict[str, ErrorWords]] = {}
    statuses: dict[str, int] = {}
    for _, (format_, when, type_, code, message) in lines(shipped(), "error_answers.tsv", range(5, 6)):
        if message:
            words.setdefault(format_, {})[when] = ErrorWords(type_, code or None, message)
        if type_ and when.isdigit():
            statuses.setdefault(type_.lower(), int(when))
    return _Answers(words, statuses)


def error_words(format_: str, status: int, code: str | None, message: str | None) -> ErrorWords:
    """What a provider of a format says with a status, and with a code where it has words for that.

    Args:
        message: said instead of the provider's sentence.
    """
    words = _answers().words
    known = words.get(format_) or words["openai_chat"]
    usual = known.get(str(status)) or known["500" if status >= 500 else "400"]
    own = known.get(code or "", usual)
    return ErrorWords(own.type or usual.type, code or usual.code, message or own.message)


def _status_of(word: str) -> int | None:
    """The status that an error inside a stream would have had, which comes under HTTP 200: by its type or code."""
    return _answers().statuses.get(word.lower())


@cache
def _sentences() -> tuple[tuple[re.Pattern[str], Row | None], ...]:
    """What to look for in an error's words, first to last, and what it means; None where it means nothing."""
    found: dict[str, list[str]] = {}
    for _, (says, pattern, _source) in lines(shipped(), "error_sentences.tsv", range(3, 4)):
        found.setdefault(says, []).append(pattern)
    return tuple((re.compile("|".join(patterns), re.IGNORECASE), _MEANS[says]) for says, patterns in found.items())
