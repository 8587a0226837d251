"""A call over httpx to a scripted provider; httpx is imported by the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx

    from endturn.testing.scripted import Reply


def ask(reply: Reply, stream: bool = False) -> httpx.Response:
    """Send a request that is answered with this reply."""
    import httpx

    from endturn.testing.scripted import ScriptedProvider

    client = httpx.Client(transport=ScriptedProvider([reply]).transport())
    body = {"model": "gpt-5", "messages": [{"role": "user", "content": "hi"}], "stream": stream}
    request = client.build_request("POST", "http://gateway/v1/chat/completions", json=body)
    return client.send(request, stream=stream)
