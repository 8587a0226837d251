"""The Converse API of Amazon Bedrock: one format for all the models that it serves."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, unquote

from endturn.chat import Blocks, ChatResponse, Json, Request
from endturn.formats.bedrock_converse_reader import NAME as NAME, REASONS as REASONS, REPLY
from endturn.formats.bedrock_converse_reply import reply as reply, reply_error as reply_error
from endturn.formats.bedrock_converse_request import encode as encode, replayable
from endturn.formats.format import Format
from endturn.formats.next_request import asking_on, resent
from endturn.formats.reading import items, member, text
from endturn.formats.request_members import asked
from endturn.formats.routes import SEGMENTS
from endturn.formats.summaries import Framing, RequestSummary, Route, Routed, Voice
from endturn.records import Strategy

PROVIDER: Final = "aws.bedrock"
FRAMING: Final = Framing.EVENTSTREAM
VOICE: Final = Voice("", "tooluse_", "x-amzn-requestid")

_PATH: Final = re.compile(rf"{SEGMENTS}/model/(.+)/converse(-stream)?")


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a request goes: the model is part of the path, quoted as botocore does, an ARN's ':' and '/' too."""
    return Route("POST", f"/model/{quote(request.model, safe='')}/converse{'-stream' if stream else ''}")


def routed(method: str, path: str) -> Routed | None:
    """`/model/…/converse` or `converse-stream`, after whatever a gateway puts before it."""
    found = _PATH.fullmatch(path.partition("?")[0]) if method == "POST" else None
    return None if found is None else Routed(unquote(found[1]), found[2] is not None)


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response. The original's messages stand first, unchanged.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by prefill and resend.
        strategy: `prompt`; `prefill` (the partial answer is the last message, its trailing whitespace stripped: models
            refuse it there); `resend`.
    """
    if (again := resent(request, cut, strategy)) is not None:
        return again
    blocks = _unfinished(cut)
    if strategy == Strategy.PREFILL and blocks and "text" in blocks[-1]:
        blocks[-1] = {"text": text(blocks[-1]["text"]).rstrip()}
    partial = cut.message().but(tool_calls=(), blocks=Blocks(NAME, tuple(blocks))) if blocks else None
    return asking_on(request, partial, prompt=prompt, strategy=strategy, forced="toolConfig.toolChoice")


def _unfinished(cut: ChatResponse) -> list[Json]:
    """The blocks of a cut response that may be replayed: no call without its result, no thinking at the end."""
    if cut.blocks is None or cut.blocks.format != NAME:
        return [{"text": cut.text}] if cut.text.strip() else []
    answered = {member(block.get("toolResult"), "toolUseId") for block in cut.blocks.items}
    kept = [
        block
        for block in cut.blocks.items
        if replayable(block, frozenset())
        and ("toolUse" not in block or member(block["toolUse"], "toolUseId") in answered)
    ]
    while kept and "reasoningContent" in kept[-1]:
        kept.pop()
    return kept


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for, of boto3 (`modelId`) or as a body (`model`)."""
    return asked(NAME, kwargs, items(kwargs.get("messages")), kwargs.get("system"))


FORMAT: Final = Format(
    name=NAME,
    provider=PROVIDER,
    framing=FRAMING,
    reasons=REASONS,
    voice=VOICE,
    replies=REPLY,
    route=route,
    routed=routed,
    request_summary=request_summary,
    body=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)
