"""Redaction of secrets in the values of variables."""

from __future__ import annotations

import re
from typing import Final

_SEGMENT: Final = 16
"""The longest path segment that is shown: some vendors' paths contain a key."""

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]{0,15})?://", re.IGNORECASE)
_AT: Final = re.compile(r"@|%40")
_END: Final = re.compile(r"[?#;=&,\s\x00-\x1f\x7f]|%(?:3[bdf]|2[36c]|0[ad])", re.IGNORECASE)
"""The start of a query, a fragment or parameters: nothing from here on is shown."""

_CREDENTIAL: Final = re.compile(
    r"key|token|secret|passw|passphrase|pwd|auth|credential|signature|cookie|bearer", re.IGNORECASE
)
"""Names of attributes whose values are never shown."""


def redact_address(text: str) -> str:
    """Return an address without user, password, query, fragment and long path segments.

    The address may be malformed: the text is cut, not parsed. If it is not clear where a password
    ends, only the scheme is shown.
    """
    text = text.strip()
    scheme = _SCHEME.match(text)
    prefix = "" if scheme is None or not scheme[1] else scheme[0]
    rest = text if scheme is None else text[scheme.end() :]
    user = [match.end() for match in _AT.finditer(rest)]
    end = _END.search(rest)
    if user and end is not None and end.start() < user[-1]:
        return f"{prefix}…"
    head = rest[user[-1] if user else 0 : None if end is None else end.start()]
    host, *segments = head.split("/")
    short_segments = (part if len(part) <= _SEGMENT else "…" for part in segments)
    return prefix + "/".join((host, *short_segments))


def redact_attributes(text: str) -> str:
    """Return `key=value,…` without the values of keys that look like credentials."""
    entries: list[str] = []
    is_hidden = False  # an entry without a key belongs to the value before it
    for entry in text.split(","):
        key, equals, _ = entry.partition("=")
        is_hidden = bool(_CREDENTIAL.search(key)) or (is_hidden and not equals)
        if not is_hidden:
            entries.append(entry)
        elif equals:
            entries.append(f"{key}=(not shown)")
        else:
            entries.append("(not shown)")
    return ",".join(entries)


def redact_value(name: str, text: str) -> str:
    """Return the value of a variable, without the secrets that an address or attributes hold."""
    if name.endswith("_ENDPOINT"):
        return redact_address(text)
    if name == "OTEL_RESOURCE_ATTRIBUTES":
        return redact_attributes(text)
    return text
