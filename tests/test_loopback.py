"""Scripted answers over HTTP: pace, endings, connections, threads."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import httpx
import pytest

from endturn.scripted import (
    ScriptedProvider,
    say,
)

CALL = b'{"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}'


@pytest.mark.parametrize(
    ("method", "path", "content", "status"),
    [
        ("GET", "/v1/models", b"", 404),
        ("POST", "/v1/embeddings", b"{}", 404),
        ("POST", "/v1/v1/messages", CALL, 404),
        ("POST", "/messages", CALL, 404),
        ("POST", "/v2/foo/chat/completions", CALL, 404),
        ("POST", "/foo/chat/completions", CALL, 404),
        ("POST", "/v1/chat/completions", b"not json", 400),
        ("POST", "/v1/messages", b"[]", 400),
        ("POST", "/v1/messages", b'{"model": "m"}', 400),
    ],
    ids=[
        "models",
        "another endpoint",
        "v1 twice",
        "v1 forgotten",
        "v2",
        "no v1",
        "not JSON",
        "not an object",
        "no messages",
    ],
)
def test_what_is_no_call_is_refused(method: str, path: str, content: bytes, status: int) -> None:
    """Another endpoint is a 404 and a malformed body a 400, in the provider's error shape; neither plays a reply."""
    provider = ScriptedProvider([say("untouched")])
    with httpx.Client(transport=provider.transport()) as client:
        answer = client.request(method, f"http://scripted{path}", content=content)
    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert provider.received == []


@pytest.mark.parametrize(
    "path",
    [
        "/chat/completions",
        "/v1/chat/completions",
        "/api/v1/chat/completions",
        "/openai/deployments/gpt-5/chat/completions?api-version=1",
        "/v1/messages",
        "/gateway/v1/messages",
    ],
)
def test_the_paths_that_providers_and_gateways_use_are_answered(path: str) -> None:
    """With and without a gateway's own prefix, and as in Azure."""
    with httpx.Client(transport=ScriptedProvider(say("here")).transport()) as client:
        assert client.post(f"http://scripted{path}", content=CALL).status_code == 200


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_leaves_the_block_at_once() -> None:
    """The server's thread is not in the child: it neither waits for it nor stops the parent's server."""
    code = """
import os, sys, httpx
from endturn.scripted import ScriptedProvider, say
with ScriptedProvider(say("hi")).serve() as url:
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        print(httpx.post(f"{url}/v1/chat/completions", json=body).status_code)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20)
    assert done.stdout == "200\n", done.stderr


def test_stopping_ends_open_streams_and_threads() -> None:
    """Leaving `serve` while a client still reads closes its connection and leaves no thread and no port."""
    before = threading.active_count()
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True}
    with httpx.Client() as client:
        with ScriptedProvider([say("one two").but(pace_s=30)]).serve() as url:
            assert url.startswith("http://127.0.0.1:")
            reading = client.stream("POST", f"{url}/v1/chat/completions", json=body)
            answer = reading.__enter__()
        with pytest.raises(httpx.RemoteProtocolError):
            answer.read()
        reading.__exit__(None, None, None)
        assert threading.active_count() <= before
        with pytest.raises(httpx.ConnectError):
            client.post(url)
