"""Who is let in: the token of a page that other machines reach, over real sockets, and what never holds it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from endturn.errors import UsageError
from endturn.ui import otlp, server
from endturn.ui.access import is_loopback, required_token
from endturn.ui.store import Store
from tests.ui.support import Answer, Served, slow, span, written

TOKEN = "a-token.of~the/tests+="
BEARER = {"Authorization": f"Bearer {TOKEN}"}
PATHS = (
    "/", "/turns", "/turns/t1", "/reasons", "/alerts", "/live", "/export/turns.csv", "/static/page.js", "/static/none",
    "/none", "//evil.example/",
)  # fmt: skip


@pytest.fixture
def locked() -> Iterator[Served]:
    """A page that asks for a token."""
    with closing(Store()) as store, server.serving(store, server.listen("127.0.0.1", 0), token=TOKEN) as url:
        yield Served(url, store)


def enter(page: Served, path: str = f"/?token={TOKEN.replace('+', '%2B')}") -> tuple[Answer, dict[str, str]]:
    """Ask with the token in the address, as a browser does once; return the answer, and the cookie to send."""
    answer = page.ask(path)
    cookie = answer.headers["set-cookie"].partition(";")[0] if answer.headers["set-cookie"] else ""
    return answer, {"Cookie": cookie}


def test_without_its_token_a_page_shows_and_takes_nothing(locked: Served) -> None:
    """A sentence says what is missing; only the probe of its health is answered, and says no more than that."""
    wrong: list[dict[str, str]] = [
        {}, {"Authorization": "Bearer "}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": TOKEN}, {"Cookie": f"endturn_{locked.url[-5:]}={TOKEN}"}, {"Cookie": "endturn_=x"},
    ]  # fmt: skip
    for headers in wrong:
        for path in (*PATHS, "/?token=", "/?token=wrong", "/?TOKEN=x"):
            answer = locked.ask(path, headers=headers)
            assert (path, answer.status, answer.headers["www-authenticate"]) == (path, 401, "Bearer")
            assert ("?token=TOKEN" in answer.text, "set-cookie" in answer.headers) == (True, False)
        for kind in (otlp.JSON, otlp.PROTOBUF):
            answer = locked.ask("/v1/traces", written(span()), headers | {"Content-Type": kind})
            assert (answer.status, b"A token is needed" in answer.content) == (401, True)
    assert Status.FromString(answer.content).code == 16  # google.rpc.Code.UNAUTHENTICATED
    assert locked.ask("/v1/traces?token=" + TOKEN, b"", {"Content-Type": otlp.PROTOBUF}).status == 401
    assert locked.store.read_tuples("SELECT count(*) FROM spans") == [(0,)]
    assert (locked.ask("/healthz").status, locked.ask("/healthz").text) == (200, '{"service":"endturn"}')
    assert '"pid"' in locked.ask("/healthz", headers=BEARER).text


def test_a_browser_gets_in_by_the_address_and_stays_by_a_cookie(locked: Served) -> None:
    """The address loses the token at once; no page, link or header of an answer has it."""
    answer, cookie = enter(locked, f"/turns?range=1h&token={TOKEN.replace('+', '%2B')}&q=a%26b")
    assert (answer.status, answer.headers["location"]) == (303, "/turns?range=1h&q=a%26b")
    says = answer.headers["set-cookie"].lower()
    assert [each in says for each in ("httponly", "samesite=strict", "path=/", "domain")] == [True, True, True, False]
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert (
        enter(locked, f"//evil.example/?token={TOKEN.replace('+', '%2B')}")[0].headers["location"] == "/evil.example/"
    )
    assert locked.ask("/v1/traces", written(span()), BEARER | {"Content-Type": otlp.JSON}).status == 200
    for path in PATHS:
        if path == "/live":
            continue  # never ends
        shown = locked.ask(path, headers=cookie)
        assert (path, shown.status) == (path, 404 if "none" in path or "evil" in path else 200)
        assert TOKEN not in shown.text + str(shown.headers)
    assert TOKEN not in says + answer.text


def test_a_cookie_reads_and_does_not_write(locked: Served) -> None:
    """A browser sends it by itself: only the header lets telemetry in."""
    _, cookie = enter(locked)
    assert locked.ask("/", headers=cookie).status == 200
    assert locked.ask("/v1/traces", written(span()), cookie | {"Content-Type": otlp.JSON}).status == 401
    origin = BEARER | {"Content-Type": otlp.JSON, "Origin": "http://evil.example"}
    assert locked.ask("/v1/traces", written(span()), origin).status == 403
    assert locked.ask("/", headers=cookie | {"Host": "evil.example"}).status == 421  # it is on loopback all the same


def test_two_pages_of_one_machine_keep_their_cookies_apart(locked: Served) -> None:
    """Browsers tell hosts apart, not ports. And a page that starts again with the same token knows its cookies."""
    with closing(Store()) as store, server.serving(store, server.listen("127.0.0.1", 0), token="b") as url:
        other = Served(url, store)
        cookies = [enter(locked)[1]["Cookie"], enter(other, "/?token=b")[1]["Cookie"]]
        both = {"Cookie": "; ".join(cookies)}
        assert [page.ask("/", headers=both).status for page in (locked, other)] == [200, 200]
        assert other.ask("/", headers={"Cookie": cookies[0]}).status == 401
    with (
        closing(Store()) as store,
        server.serving(store, server.listen("127.0.0.1", int(url[-5:])), token="b") as again,
    ):
        assert Served(again, store).ask("/", headers={"Cookie": cookies[1]}).status == 200


@contextmanager
def started(*options: str, **variables: str) -> Iterator[tuple[str, str, subprocess.Popen[str]]]:
    """`endturn ui` in a process of its own: its address, and the two or three lines that it prints."""
    command = [sys.executable, "-m", "endturn", "ui", "--port", "0", "--no-open", *options]
    keep = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "ENDTURN_"))}
    with subprocess.Popen(
        command, env=keep | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            assert first, process.communicate()[1]
            lines = first + process.stdout.readline()
            if "token" in first:
                lines += process.stdout.readline()
            yield re.findall(r"http://[^\s/]+", lines)[0], lines, process
        finally:
            process.terminate()
            process.wait(30)


def test_a_page_for_other_machines_warns_and_makes_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it prints is enough for a browser and for a real exporter; nothing is logged of who asks."""
    with started("--host", "0.0.0.0") as (url, lines, process):
        (token,) = re.findall(r"/\?token=([\w-]{32})\s", lines)
        headers = dict(re.findall(r"export (OTEL_EXPORTER_OTLP_\w+)=(\S+)", lines))
        assert headers == {
            "OTEL_EXPORTER_OTLP_ENDPOINT": url,
            "OTEL_EXPORTER_OTLP_HEADERS": f"Authorization=Bearer%20{token}",
        }
        with closing(Store()) as none:
            page = Served(url, none)
            assert page.ask("/").status == 401
            answer, cookie = enter(page, f"/?token={token}")
            assert (answer.status, page.ask("/turns", headers=cookie).status) == (303, 200)
            named = page.ask("/", headers=cookie | {"Host": "agents.example:4318"}).text
            assert "OTEL_EXPORTER_OTLP_ENDPOINT=http://agents.example:4318\n" in named
            assert "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20TOKEN\n" in named
            for name, value in headers.items():
                monkeypatch.setenv(name, value)
            with closing_provider(TracerProvider()) as provider:
                provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
                provider.get_tracer("a").start_span("chat m", attributes={"gen_ai.operation.name": "chat"}).end()
            assert "chat m" in page.ask("/export/calls.csv", headers=cookie).text
        process.terminate()
        rest, errors = process.communicate(timeout=30)
    assert (process.returncode, rest, token in errors) == (0, "", False)
    assert "lets other machines reach this page" in errors
    assert len(errors.splitlines()) == 3


@contextmanager
def closing_provider(provider: TracerProvider) -> Iterator[TracerProvider]:
    """Shut a provider down at the end."""
    yield provider
    provider.shutdown()


@pytest.mark.parametrize("given", ["both", *slow(["option", "variable"])])
def test_a_token_that_is_given_is_required_and_not_printed(given: str) -> None:
    """By the option or the variable, on loopback too; the option comes first."""
    options = ["--token", TOKEN] if given != "variable" else []
    variables = {} if given == "option" else {"ENDTURN_UI_TOKEN": TOKEN if given == "variable" else "another"}
    with started(*options, **variables) as (url, lines, process), closing(Store()) as none:
        page = Served(url, none)
        assert [page.ask("/", headers=each).status for each in ({}, BEARER)] == [401, 200]
        assert (TOKEN in lines, "another" in lines, "?token=TOKEN" in lines) == (False, False, True)
        process.terminate()
        assert process.communicate(timeout=30)[1] == ""


def test_a_page_on_loopback_needs_no_token_unless_it_is_given_one() -> None:
    """As before, with two lines and no warning."""
    with started() as (url, lines, process), closing(Store()) as none:
        assert Served(url, none).ask("/").status == 200
        send = f"Send telemetry to it:  export OTEL_EXPORTER_OTLP_ENDPOINT={url}"
        assert lines == f"endturn's page is at {url}  (Ctrl-C ends it)\n{send}\n"
        process.terminate()
        assert process.communicate(timeout=30)[1] == ""


@pytest.mark.parametrize("bad", ["", " ", "a b", "ä", "a\nb"])
def test_a_token_that_no_header_can_carry_is_refused(bad: str) -> None:
    """An empty one too: a variable that is not set must not take the lock off."""
    with pytest.raises(UsageError, match="a token must be"):
        server.run(host="0.0.0.0", port=0, token=bad)
    with (
        pytest.raises(UsageError, match="needs a token"),
        closing(Store()) as store,
        closing(server.listen("0.0.0.0", 0)) as socket,
        server.serving(store, socket, host="0.0.0.0"),
    ):
        pass


def test_a_new_token_is_long_and_new() -> None:
    """Nobody guesses it."""
    tokens = {required_token(None, is_open=True) for _ in range(100)}
    assert (len(tokens), {len(token) for token in tokens}, required_token(None, is_open=False)) == (100, {32}, "")


HOSTS = {
    "127.0.0.1": True, "127.255.0.9": True, "localhost": True, "LocalHost": True, "[::1]": True, "::1": True,
    "127.999.999.999": False, "127.0.0.256": False, "127.1": False, "127.0.0.1.evil.example": False, "0.0.0.0": False,
    "::": False, "localhost.evil.example": False, "10.0.0.1": False, "": False, "127.0.0.1\n": False,
}  # fmt: skip


def test_only_names_and_addresses_of_loopback_are_its_own(page: Served) -> None:
    """By value, not by how they look."""
    assert {host: is_loopback(host) for host in HOSTS} == HOSTS
    assert page.ask("/", headers={"Host": "127.999.999.999"}).status == 421
