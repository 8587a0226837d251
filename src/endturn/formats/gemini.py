"""generateContent of Google: the Gemini API, and Vertex AI.

Google's own SDK (google-genai 3.4.0) follows continuation tokens by itself unless `automatic_continuation` is False: it
hides the hops, and whoever watches its objects sees one response.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote, unquote

from endturn.chat import Blocks, ChatResponse, Json, Request, Tool
from endturn.errors import UsageError
from endturn.formats.format import Format
from endturn.formats.gemini_contents import contents, parts, unfinished
from endturn.formats.gemini_reader import NAME as NAME, REASONS as REASONS, REPLY, either
from endturn.formats.gemini_reply import WORDS, reply as reply, reply_error as reply_error
from endturn.formats.next_request import asking_on, resent
from endturn.formats.reading import (
    SEGMENTS,
    text,
)
from endturn.formats.request_members import asked
from endturn.formats.summaries import Framing, RequestSummary, Route, Routed, Voice
from endturn.records import Strategy
from endturn.stop import Resume, StopReason

PROVIDER: Final = "gcp.gemini"
FRAMING: Final = Framing.SSE
# A call of a tool is told by the part, beside a STOP; the full window by a MAX_TOKENS.
VOICE: Final = Voice("response-", "function-call-", "x-request-id", {**WORDS, StopReason.ERROR: "OTHER"})

_JSON: Final = "application/json"
_ANY: Final = {"type": "json_object"}
_MODES: Final = {"NONE": "none", "ANY": "required", "AUTO": "auto"}

_PATH: Final = re.compile(
    rf"{SEGMENTS}(?:/v\d+)?{SEGMENTS}/(?P<kind>models|tunedModels|endpoints)/(?P<model>[^/:]+)"
    r":(?P<method>generateContent|streamGenerateContent)"
)
_NAMED: Final = re.compile(r"(?:models|tunedModels|endpoints|publishers|projects)/.")


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where the request goes. A model may be named with what it is: "tunedModels/mine", "endpoints/123"."""
    model = request.model
    name = quote(model) if _NAMED.match(model) else f"models/{quote(model, safe='')}"
    method = "streamGenerateContent?alt=sse" if stream else "generateContent"
    return Route("POST", f"/{name}:{method}")


def routed(method: str, path: str) -> Routed | None:
    """Any of the paths of the Gemini API and of Vertex AI, after whatever a gateway puts before it."""
    found = _PATH.fullmatch(path.partition("?")[0])
    if method != "POST" or found is None:
        return None
    model = unquote(found["model"])
    return Routed(
        model if found["kind"] == "models" else f"{found['kind']}/{model}", found["method"] == "streamGenerateContent"
    )


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST …:generateContent, and of …:streamGenerateContent; the path says which, and the model.

    An answer of this format goes back as it came, but for thoughts without a signature, which are not sent again.

    Raises:
        UsageError: the request asks to fetch a response, which this format cannot.
    """
    if request.retrieve is not None:
        raise UsageError("generateContent cannot fetch a response by its id: use a provider function that can")
    body: Json = {"contents": contents(request.messages)}
    system = [part for message in request.messages if message.role == "system" for part in parts(message.content)]
    if system:
        body["systemInstruction"] = {"parts": system}
    if request.tools:
        body["tools"] = _tools(request.tools)
        if request.tool_choice != "auto":
            body["toolConfig"] = _tool_config(request.tool_choice)
    settings = {
        "maxOutputTokens": request.max_tokens,
        "temperature": request.temperature,
        "seed": request.seed,
        "responseMimeType": None if request.format is None else _JSON,
        "responseJsonSchema": None if request.format == _ANY else request.format,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    further = request.extra.get("generationConfig")
    if isinstance(further, dict):
        settings |= further
    if settings:
        body["generationConfig"] = settings
    if request.token is not None:
        body["continuationToken"] = request.token
    return body | {name: value for name, value in request.extra.items() if value is not further}


def _tools(tools: tuple[Tool, ...]) -> list[Json]:
    """The tools, in one entry. `parametersJsonSchema` takes any JSON Schema, `parameters` a part of OpenAPI's."""
    written = []
    for tool in tools:
        said = {"description": tool.description} if tool.description else {}
        written.append({"name": tool.name, **said, "parametersJsonSchema": tool.parameters})
    return [{"functionDeclarations": written}]


def _tool_config(choice: str) -> Json:
    mode = next((mode for mode, ours in _MODES.items() if ours == choice), None)
    if mode is not None:
        return {"functionCallingConfig": {"mode": mode}}
    return {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": [choice]}}


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut or paused response. The original's messages stand first, unchanged.

    With a token the same request is sent again, and it.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Used by `prompt` alone.
        strategy: `prompt`; `prefill` (the partial answer is the last content, its trailing whitespace stripped);
            `resend` (the answer verbatim, nothing after it); `native_token`.
    """
    if cut.token is not None and (strategy == Strategy.NATIVE_TOKEN or cut.stop.resume is Resume.NATIVE_TOKEN):
        return request.but(token=cut.token)
    request = request.but(token=None)
    if (again := resent(request, cut, strategy)) is not None:
        return again
    kept = unfinished(cut)
    if strategy == Strategy.PREFILL and kept and isinstance(kept[-1].get("text"), str):
        kept[-1] = {**kept[-1], "text": kept[-1]["text"].rstrip()}
    partial = cut.message().but(tool_calls=(), blocks=Blocks(NAME, tuple(kept))) if kept else None
    return asking_on(request, partial, prompt=prompt, strategy=strategy, forced="toolConfig")


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a request asks for: a body, or the SDK's arguments (`config` is a dictionary or its object)."""
    given, config = kwargs.get("contents"), kwargs.get("config")
    history = given if isinstance(given, list | tuple) else () if given is None else (given,)
    settings = either(kwargs, "generationConfig", "generation_config") if config is None else config
    system = either(kwargs if config is None else config, "systemInstruction", "system_instruction")
    own = {"model": text(kwargs.get("model")), "stream": kwargs.get("stream") is True, "system": system}
    return replace(asked(NAME, settings, history), **own)


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
    encode=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)
