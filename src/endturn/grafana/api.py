"""The parts of Grafana's HTTP API that the installation needs: reads, writes and error messages."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal
from urllib.parse import urlsplit

import httpx

from endturn.errors import UsageError

TIMEOUT_S: Final = 30.0
PERMISSIONS: Final = (
    "folders:read, folders:create, dashboards:read, dashboards:create, dashboards:write, "
    "dashboards:delete, datasources:read; with --alerts also alert.provisioning:read and "
    "alert.provisioning:write"
)
"""Permissions that a token needs, as Grafana's documentation lists them for these requests."""
REFUSALS: Final = frozenset({400, 409, 413, 422, 500})
"""Statuses with which Grafana rejects one object; others may still be installed."""
HEADERS: Final = {"Accept": "application/json", "X-Disable-Provenance": "true"}
"""By default, an alert rule that is written over the API is locked in the interface; this header
prevents that."""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The result for one dashboard, rule group or folder."""

    what: Literal[
        "created", "updated", "unchanged", "removed", "kept", "refused", "missing", "unknown"
    ]
    kind: Literal["source", "folder", "dashboard", "rules", "rule"]
    name: str
    detail: str = ""

    def __str__(self) -> str:
        return (
            f"{self.what:<9} {self.kind:<9} {self.name}{f': {self.detail}' if self.detail else ''}"
        )


@dataclass(frozen=True, slots=True)
class Grafana:
    """A client of one Grafana.

    Source: https://grafana.com/docs/grafana/latest/developers/http_api/

    Both methods raise UsageError if there is no connection, no Grafana, or it rejects the request;
    the message says what to do.
    """

    url: str
    http: httpx.Client
    dry_run: bool = False

    def get(self, path: str, *, absent: int | None = None, **query: str | int) -> Any:
        """Return the JSON at a path such as `/api/folders`. None if it does not exist."""
        answer = self._send("GET", path, params=query)
        if answer.status_code == absent:
            return None
        content = _json(answer)
        if not answer.is_success or content is None:
            raise UsageError(f"GET {path}: {_what_to_do(answer, self.url)}")
        return content

    def write(self, method: str, path: str, body: Any = None) -> str:
        """Send a change.

        Return the reason if Grafana rejects this object, else None. In a dry run nothing is sent.
        """
        if self.dry_run:
            return ""
        answer = self._send(method, path, json=body)
        if answer.status_code == 412:
            return (
                f"it collides with another ({_message(answer)}): rename that one, or choose "
                f"another --folder"
            )
        if answer.status_code in REFUSALS:
            return _message(answer)
        if not answer.is_success and (method, answer.status_code) != ("DELETE", 404):
            raise UsageError(f"{method} {path}: {_what_to_do(answer, self.url)}")
        return ""

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        try:
            return self.http.request(method, f"{self.url}{path}", **content)
        except httpx.TimeoutException as error:
            raise UsageError(
                f"{self.url} did not answer {method} {path} within {TIMEOUT_S:g} s"
            ) from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise UsageError(f"cannot reach Grafana at {self.url}: {error}") from error


@contextmanager
def connect(url: str, token: str, *, dry_run: bool = False) -> Iterator[Grafana]:
    """Return a client of a Grafana, by its address and a service account's token.

    Raises:
        UsageError: the address is invalid or holds credentials, or the token is invalid. The token
            is never in the message.
    """
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname)
    except ValueError:
        is_address = False
    if not is_address:
        raise UsageError(
            f"--grafana takes an address like https://grafana.example.org, not {url!r}"
        )
    if parts.username or parts.password:
        raise UsageError(
            "--grafana takes an address without credentials; give a service account's token instead"
        )
    # Checked here, since the HTTP library's error would print the header.
    if not re.fullmatch(r"[!-~]+", token):
        raise UsageError(
            "the token contains spaces or characters that are invalid in tokens; copy it again "
            "from Grafana"
        )
    headers = HEADERS | {"Authorization": f"Bearer {token}"}
    # Redirects are not followed: a POST would become a GET, and the token would be sent to an
    # unknown host.
    with httpx.Client(headers=headers, timeout=TIMEOUT_S, follow_redirects=False) as http:
        yield Grafana(url.rstrip("/"), http, dry_run)


def exposes_token(url: str) -> bool:
    """Return True if the token would cross a network unencrypted."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _message(answer: httpx.Response) -> str:
    """Return Grafana's own message about an error."""
    body = _json(answer)
    return str(
        (body.get("message") or body.get("error") or body) if isinstance(body, dict) else body
    )


def _what_to_do(answer: httpx.Response, url: str) -> str:
    no_json = _json(answer) is None
    match answer.status_code:
        case 401:
            return (
                "Grafana does not know the token (401): it is mistyped, expired, or of another "
                "Grafana"
            )
        case 403:
            return f"the token may not do this (403: {_message(answer)}); it needs {PERMISSIONS}"
        case 404:
            return (
                f"not found (404): is {url} Grafana's own address, with the path that it is served "
                f"under?"
            )
        case status if answer.is_redirect:
            return (
                f"redirected ({status}) to {answer.headers.get('location')!r}: give the address "
                f"that leads there"
            )
        case status if answer.is_success:
            return (
                f"the answer ({status}) is not JSON: something else, such as a login page, answers "
                f"at {url}"
            )
        case status if no_json:
            return f"a proxy before Grafana answered {status}, or no Grafana at {url}"
        case status:
            return f"Grafana failed ({status}: {_message(answer)}); its log says why"
