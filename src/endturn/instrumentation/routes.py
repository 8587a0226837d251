"""Which format a request to a provider is in, by its method and path."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from endturn.instrumentation.hosts import ANY
from endturn.wires import WIRES, Routed, Wire, wire

_ORDER: Final = ("openai_chat", "anthropic", *sorted(set(WIRES) - {"openai_chat", "anthropic"}))
"""The formats that most calls are in come first: a wire is imported when it is first asked."""

_CHATTY: Final = {
    # "/v1/fim/completions", "/v1/agents/completions": both answer in the chat format.
    "mistral_ai": re.compile(r".*/v1/(?:fim|agents)/completions"),
}
_COHERE_V1: Final = re.compile(r".*/v1/(?P<way>chat|generate)")
_VERTEX: Final = re.compile(
    # But for counting tokens, and reading documents.
    r".*/publishers/(?P<whose>anthropic|mistralai)/models/(?P<model>(?!count-tokens:|mistral-ocr)[^/:]+)"
    r":(?P<stream>stream)?[rR]awPredict"
)


class Spoken(NamedTuple):
    """The format of a request, whose words answer it, and what its path says."""

    wire: Wire
    dialect: str
    routed: Routed


@lru_cache(maxsize=1024)
def spoken(provider: str, dialect: str, method: str, path: str) -> Spoken | None:
    """The format of a request that starts an answer; None for any other, such as one that fetches.

    Args:
        provider, dialect: who answers (`hosts.Home`).
        path: with its query.
    """
    if method != "POST":
        return None
    own = _own(provider, path.partition("?")[0])
    if own is not None:
        return own
    for name in _ORDER:
        speaks = wire(name)
        routed = speaks.routed(method, path)
        if routed is not None:
            return None if routed.retrieve is not None else Spoken(speaks, _dialect(speaks, provider, dialect), routed)
    return None


def _own(provider: str, path: str) -> Spoken | None:
    """What is spoken at a path that one provider alone has."""
    cohere = _COHERE_V1.fullmatch(path) if provider == "cohere" else None
    if cohere is not None:
        chats = cohere["way"] == "chat"
        return Spoken(wire("cohere"), "v1", Routed()) if chats else Spoken(wire("completions"), "command", Routed())
    chatty = _CHATTY.get(provider)
    if chatty is not None and chatty.fullmatch(path):
        return Spoken(wire("openai_chat"), "mistral", Routed())
    vertex = _VERTEX.fullmatch(path) if provider == "gcp.vertex_ai" else None
    if vertex is None:
        return None
    routed = Routed(unquote(vertex["model"]), vertex["stream"] is not None)
    if vertex["whose"] == "anthropic":
        return Spoken(wire("anthropic"), "", routed)
    return Spoken(wire("openai_chat"), "mistral", routed)


def _dialect(speaks: Wire, provider: str, dialect: str) -> str:
    """Whose words to read. A host's dialect is of the chat format; in the others it may be nobody's."""
    if speaks.NAME == "openai_chat":
        return dialect
    if speaks.NAME == "completions":
        # Its "mistral" is Bedrock's.
        return dialect if not dialect or (dialect in speaks.REASONS and dialect != "mistral") else ANY
    return "vertex" if speaks.NAME == "gemini" and provider == "gcp.vertex_ai" else ""
