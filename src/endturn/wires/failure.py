"""A provider's error answer as one of our exceptions: whose fault it is, and what it says of the stop."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from dataclasses import replace
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import Any, Final

from endturn.errors import ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected
from endturn.stop import Resume, Row, Stop, StopReason, normalize
from endturn.wires import Context
from endturn.wires.reading import count, member, text

SHORT: Final = 1_000
"""How many characters of an answer's body an exception keeps."""

_LOOKED_AT: Final = 16_384

_KEY: Final = re.compile(
    r"""
      \b(?:sk|pk|rk|gsk|xai|csk|hf|fw|tgp|r8|nvapi)[-_][\w*.-]{6,}      # keys as the providers spell them
    | \bAIza[\w-]{20,} | \bAKIA[A-Z0-9]{12,} | \beyJ[\w-]{10,}\.[\w.-]+   # Google, AWS, tokens in JWT form
    | (?<=[Bb]earer[ ])\s*[^\s"',}]+
    | (?<=key[ ]provided:[ ])[^\s"',}]+                                  # "Incorrect API key provided: …"
    | (?<=api_key":)\s*"[^"]*" | (?<=api-key":)\s*"[^"]*"
    | \b(?=[\w+/-]*\d)(?=[\w+/-]*[A-Za-z])[\w+/-]{40,256}={0,2}           # long and random-looking
    """,
    re.VERBOSE,
)

# What errors say, wherever they say it: the code where there is one, else the sentence. Sources beside each.
_CONTEXT: Final = re.compile(
    r"context_length_exceeded"  # OpenAI, Groq, xAI, Together; Responses' error.code
    r"|exceed_context_size_error|exceeds the available context size"  # llama.cpp server
    r"|model_max_prompt_tokens_exceeded"  # GitHub Copilot
    r"|maximum context length|maximum prompt length|context length (?:is|exceeded|of)"
    r"|exceeds? the (?:model'?s )?(?:maximum )?context"
    r"|context[ _]window|exceed context limit"  # Anthropic: "input length and `max_tokens` exceed context limit"
    r"|prompt is too long|input is too long|prompt contains \d+ tokens"  # Anthropic; Bedrock; Mistral
    r"|reduce the length of the (?:messages|input|prompt)"  # OpenAI, Groq
    r"|`inputs` tokens \+ `max_new_tokens` must be",  # Hugging Face TGI
    re.IGNORECASE,
)
_FILTER: Final = re.compile(
    r"content_filter|content filter|content management policy|ResponsibleAIPolicyViolation"  # Azure OpenAI
    r"|content_policy_violation|content_policy\b"  # OpenAI images, LiteLLM
    r"|content filtering policy"  # Anthropic: 400 "Output blocked by content filtering policy"
    r"|data_inspection_failed"  # DashScope
    r"|flagged (?:as|for|by)|requires moderation"  # OpenRouter: 403 of its moderation
    r"|unsafe or sensitive content|bio_policy|misalignment_policy_violation",  # Z.AI; OpenAI
    re.IGNORECASE,
)

_SAYS: Final = (
    (_CONTEXT, Row(StopReason.CONTEXT_WINDOW_EXCEEDED, True, source="error answers")),
    (_FILTER, Row(StopReason.SAFETY_BLOCKED, True, source="error answers")),
    # Groq: the model wrote a call that its own parser could not read; `failed_generation` holds it.
    (re.compile(r"tool_use_failed"), Row(StopReason.ERROR, True, Resume.REPAIR, source="groq error answers")),
)

# Errors inside a stream come under HTTP 200; their type or code stands for the status that they would have had.
_STATUS_OF: Final = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_REQUEST_IDS: Final = ("request-id", "x-request-id", "apim-request-id", "x-ms-request-id", "x-amzn-requestid", "cf-ray")
_RATE: Final = re.compile(r"^(?:x-|anthropic-)?ratelimit-(.+)$")


def error_of(status: int, headers: Mapping[str, str], body: Any, *, ctx: Context) -> ProviderError:
    """The exception for an error answer.

    Args:
        status: the HTTP status; 200 for an error inside a stream.
        headers: of the answer; names in any case.
        body: the answer's bytes, or its parsed JSON.
    """
    known = {name.lower(): value for name, value in headers.items()}
    readable, parsed = _read(body)
    error = _error_member(parsed)
    said = text(member(error, "message")) or (error if isinstance(error, str) else "") or readable
    code, kind = member(error, "code"), text(member(error, "type"))
    if status < 400:
        status = _status(code) or _STATUS_OF.get(str(code)) or _STATUS_OF.get(kind) or 500
    stop = says_of_stop(error, status, readable)
    word = str(code or kind)
    label = f"{status} {word}" if word and word != str(status) else str(status)
    return _kind(status, code, known, stop)(
        f"{ctx.provider or 'the provider'} answered {label}: {shortened(said, 300)}",
        provider=ctx.provider,
        status=status,
        request_id=next((known[name] for name in _REQUEST_IDS if known.get(name)), None)
        or text(member(parsed, "request_id"))
        or None,
        body=shortened(readable),
        stop=stop,
        retry_after_s=retry_after(known),
    )


def says_of_stop(error: Any, status: int, readable: str = "") -> Stop | None:
    """What an error says about the model's stop: the window was exceeded, a filter struck, a call was malformed.

    None for any other error, and for a rate limit: "reduce the tokens" there speaks of a minute, not of the window.
    """
    if status == 429:
        return None
    code, kind = member(error, "code"), text(member(error, "type"))
    said = " ".join(
        map(str, (code or "", kind, text(member(error, "message")) or (readable if error is None else error)))
    )
    for pattern, row in _SAYS:
        found = pattern.search(said[:_LOOKED_AT])
        if found is not None:
            raw = code if isinstance(code, str) and code else kind or found.group()
            return normalize(raw, {raw: row})
    return None


def broken(error: Any) -> Stop:
    """The Stop of a stream that an error inside it ended: what the error says, else `error`."""
    said = says_of_stop(error, 0)
    if said is not None:
        return said if said.detail is not None else replace(said, detail=label_of(error))
    raw = next(
        (word for word in (member(error, "type"), member(error, "code")) if isinstance(word, str) and word), "error"
    )
    return normalize(raw, {raw: Row(StopReason.ERROR, True, source="error events")}, detail=label_of(error))


def label_of(error: Any) -> str:
    """An error in a few words, for a Stop's detail."""
    said = text(member(error, "message")) or (error if isinstance(error, str) else "")
    return shortened(said or str(member(error, "code") or member(error, "type") or "error"), 120)


def shortened(readable: str, limit: int = SHORT) -> str:
    """Text for a message or a log: without anything that looks like a key, and not longer than the limit."""
    clean = _KEY.sub("[removed]", readable[:_LOOKED_AT])
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def quota(headers: Mapping[str, str] | None) -> dict[str, str]:
    """What an answer's headers say of limits, e.g. {"remaining_tokens": "1990"}.

    OpenAI and its likes write `x-ratelimit-remaining-tokens`, Anthropic `anthropic-ratelimit-tokens-remaining`.
    """
    found: dict[str, str] = {}
    for name, value in (headers or {}).items():
        rate = _RATE.match(name.lower())
        if rate is not None:
            words = rate.group(1).split("-")
            verbs = [word for word in words if word in ("limit", "remaining", "reset")]
            found["_".join([*verbs, *(word for word in words if word not in verbs)])] = value
    return found


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds to wait before asking again, from `retry-after-ms` or `retry-after` (seconds, or a date)."""
    for name, unit in (("retry-after-ms", 1_000), ("retry-after", 1)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / unit
        except ValueError:
            try:
                now = parsedate_to_datetime(headers["date"]).timestamp() if "date" in headers else time.time()
                seconds = parsedate_to_datetime(value).timestamp() - now
            except (ValueError, TypeError):
                continue
        if isfinite(seconds):
            return max(0.0, seconds)
    return None


def _read(body: Any) -> tuple[str, Any]:
    if isinstance(body, bytes | bytearray):
        readable = bytes(body).decode("utf-8", "replace")
        try:
            return readable, json.loads(readable)
        except (ValueError, RecursionError):
            return readable, None
    try:
        return json.dumps(body, ensure_ascii=False, default=str), body
    except (ValueError, RecursionError):
        return "", body


def _error_member(parsed: Any) -> Any:
    """The error in an answer: `{"error": {…}}`, `{"error": "…"}`, `[{"error": …}]`, or the bare error (vLLM)."""
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    inner = member(parsed, "error")
    return parsed if inner is None else inner


def _status(code: Any) -> int | None:
    """OpenRouter puts the upstream's HTTP status where others put a word."""
    number = count(code)
    return number if number is not None and 400 <= number <= 599 else None


def _kind(status: int, code: Any, headers: Mapping[str, str], stop: Stop | None) -> type[ProviderError]:
    if status in (408, 504, 524):
        return ProviderTimeout
    # Both SDKs heed this header above all; a used-up balance says 429 and will say it again.
    if headers.get("x-should-retry") == "false" or code == "insufficient_quota" or (stop is not None and status >= 500):
        return RequestRejected
    if headers.get("x-should-retry") == "true" or status in (409, 425, 429) or status >= 500:
        return ProviderUnavailable
    return RequestRejected
