"""Grafana's HTTP API as far as installing needs it: one question, one answer, and errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import urlsplit

from endturn.errors import UsageError

if TYPE_CHECKING:
    import httpx

TIMEOUT_S: Final = 30.0
PERMISSIONS: Final = (
    "folders:read, folders:create, dashboards:read, dashboards:create, dashboards:write, dashboards:delete, "
    "datasources:read; with --alerts also alert.provisioning:read and alert.provisioning:write"
)
"""What a token needs, of those that Grafana's documentation lists for the requests made here."""
REFUSALS: Final = frozenset({400, 409, 412, 413, 422, 500})
"""Statuses with which Grafana refuses one thing; others may still go in."""


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one thing."""

    what: Literal["created", "updated", "unchanged", "removed", "kept", "refused"]
    kind: Literal["folder", "dashboard", "rules", "rule"]
    uid: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What Grafana answered: the status, and the JSON body (None where it was empty)."""

    status: int
    body: Any

    @property
    def message(self) -> str:
        """Its own words about an error."""
        if isinstance(self.body, dict):
            return str(self.body.get("message") or self.body.get("error") or self.body)
        return str(self.body)


@dataclass(frozen=True, slots=True)
class Grafana:
    """A Grafana that is asked over HTTP. Source: https://grafana.com/docs/grafana/latest/developers/http_api/"""

    url: str
    http: httpx.Client

    def get(self, path: str, *, or_: Collection[int] = (), **query: str | int | list[str]) -> Answer:
        """What stands there; see `ask`."""
        return self.ask("GET", path, query=query, or_=or_)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: dict[str, str | int | list[str]] | None = None,
        or_: Collection[int] = (),
    ) -> Answer:
        """Ask one thing.

        Args:
            path: below the root of the API, such as `/api/folders`.
            or_: statuses that are an answer too, not only success.

        Raises:
            UsageError: no connection, no Grafana there, or it refuses; the message says what to do.
        """
        import httpx

        # An alert rule that is written over the API is locked in the interface, unless this asks for the contrary.
        headers = {"X-Disable-Provenance": "true"} if path.startswith("/api/v1/provisioning/") else {}
        try:
            answer = self.http.request(method, f"{self.url}{path}", json=body, params=query, headers=headers)
        except httpx.TimeoutException as error:
            raise UsageError(f"{self.url} did not answer {method} {path} within {TIMEOUT_S:g} s") from error
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise UsageError(f"cannot reach Grafana at {self.url}: {error}") from error
        found = Answer(answer.status_code, _json(answer))
        if (answer.is_success and (found.body is not None or not answer.content)) or found.status in or_:
            return found
        raise UsageError(f"{method} {path}: {_what_to_do(answer, found, self.url)}")


@contextmanager
def connect(url: str, token: str) -> Iterator[Grafana]:
    """A Grafana by its address and a service account's token.

    Raises:
        UsageError: the address is not one, or holds credentials; the token cannot be one. It is never in the message.
    """
    import httpx

    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"--grafana takes an address like https://grafana.example.org, not {url!r}") from error
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"--grafana takes an address like https://grafana.example.org, not {url!r}")
    if parts.username or parts.password:
        raise UsageError("--grafana takes an address without credentials; give a service account's token instead")
    # Checked here, since what complains about an illegal header prints it.
    if not re.fullmatch(r"[!-~]+", token := token.strip()):
        raise UsageError("the token holds spaces or characters that no token has; copy it again from Grafana")
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json"}
    # Redirects are not followed: a POST would become a GET, and the token would go where nobody said it should.
    with httpx.Client(headers=headers, timeout=TIMEOUT_S, follow_redirects=False) as http:
        yield Grafana(url.rstrip("/"), http)


def exposes_token(url: str) -> bool:
    """Whether the token would cross a network in the clear."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in {"localhost", "127.0.0.1", "::1"}


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except ValueError:
        return None


def _what_to_do(answer: httpx.Response, found: Answer, url: str) -> str:
    match found.status:
        case 401:
            return "Grafana does not know the token (401): it is mistyped, expired, or of another Grafana"
        case 403:
            return f"the token may not do this (403: {found.message}); it needs {PERMISSIONS}"
        case 404:
            return f"not found (404): is {url} Grafana's own address, with the path that it is served under?"
        case status if answer.is_redirect:
            return f"redirected ({status}) to {answer.headers.get('location')!r}: give the address that leads there"
        case status if answer.is_success:
            return f"the answer ({status}) is not JSON: something else, such as a login page, answers at {url}"
        case status if status in {502, 503, 504} and found.body is None:
            return f"a proxy before Grafana answered {status}: Grafana does not run, or is not where the proxy looks"
        case status if found.body is None:
            return f"something answered {status} without JSON: a proxy before Grafana, or no Grafana at {url}"
        case status if status >= 500:
            return f"Grafana failed ({status}: {found.message}); its log says why"
        case status:
            return f"Grafana refused ({status}: {found.message})"
