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

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, Tool
from endturn.errors import DecodeError, UsageError
from endturn.formats.format import Format
from endturn.formats.gemini_contents import contents, messages, parts, unfinished
from endturn.formats.gemini_reader import NAME as NAME, REASONS as REASONS, REPLY, either
from endturn.formats.gemini_reply import WORDS, reply as reply, reply_error as reply_error
from endturn.formats.next_request import asking_on, resent
from endturn.formats.reading import (
    SEGMENTS,
    SETTINGS,
    items,
    member,
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
_FORMS: Final = {_JSON: "json", "text/plain": "text"}
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


def request(body: Json) -> Request:
    """A request body of this format as our Request. What ours has no word for travels in `extra`, verbatim.

    Raises:
        DecodeError: there is no model, or no list of contents.
    """
    model, history = body.get("model"), body.get("contents")
    if not isinstance(model, str) or not isinstance(history, list):
        raise DecodeError("a request of generateContent has a model in its path, and a list of `contents`")
    read = _Read(body)
    found: Json = {"model": model, "messages": ()}
    system = read.take("systemInstruction", "system_instruction")
    said = [part for part in items(member(system, "parts")) if isinstance(part, dict)]
    if said:
        only = said[0].get("text") if len(said) == 1 and said[0].keys() == {"text"} else None
        words = only if isinstance(only, str) else said
        found["messages"] = (Message(role="system", content=words),)
    if system is not None and system != {"parts": said}:
        read.rest["systemInstruction"] = system
    found["messages"] += tuple(messages(history))
    tools = read.take("tools", "tools")
    found["tools"] = tuple(_read_tools(tools))
    if tools is not None and tools != _tools(found["tools"]):
        read.rest["tools"] = tools
    choice = read.take("toolConfig", "tool_config")
    found["tool_choice"] = _read_choice(choice)
    if choice is not None and not (found["tools"] and choice == _tool_config(found["tool_choice"])):
        read.rest["toolConfig"] = choice
    token = read.take("continuationToken", "continuation_token")
    if isinstance(token, str):
        found["token"] = token
    settings = read.take("generationConfig", "generation_config")
    if isinstance(settings, dict):
        inner = _Read(settings)
        found |= _read_settings(inner)
        if inner.rest:
            read.rest["generationConfig"] = inner.rest
    elif settings is not None:
        read.rest["generationConfig"] = settings
    gone = ("model", "contents", "stream")
    return Request(**found, extra={name: value for name, value in read.rest.items() if name not in gone})


class _Read:
    """An object whose members are taken out one by one, in either spelling; `rest` is what nobody took."""

    def __init__(self, body: Json) -> None:
        self.rest = dict(body)

    def take(self, name: str, snake: str) -> Any:
        """The member of that name."""
        first, second = self.rest.pop(name, None), self.rest.pop(snake, None)
        return second if first is None else first


def _read_settings(settings: _Read) -> Json:
    """What our Request has words for; a value of another kind stays where it was."""
    found: Json = {}
    for ours, name, snake in (
        ("max_tokens", "maxOutputTokens", "max_output_tokens"),
        ("temperature", "temperature", "temperature"),
        ("seed", "seed", "seed"),
    ):
        value = settings.take(name, snake)
        known = SETTINGS[ours](value)
        if known is not None and not (ours == "max_tokens" and known == 0):
            found[ours] = known
        elif value is not None:
            settings.rest[name] = value
    mime, schema = (
        settings.take("responseMimeType", "response_mime_type"),
        settings.take("responseJsonSchema", "response_json_schema"),
    )
    if mime == _JSON and isinstance(schema, dict | None):
        found["format"] = _ANY if schema is None else schema
    else:
        given = {"responseMimeType": mime, "responseJsonSchema": schema}
        settings.rest |= {name: value for name, value in given.items() if value is not None}
    return found


def _read_tools(tools: Any) -> list[Tool]:
    """The functions among the tools; the server's own tools have no declaration."""
    found = []
    for tool in items(tools):
        for declared in items(either(tool, "functionDeclarations", "function_declarations")):
            name = member(declared, "name")
            schema = either(declared, "parametersJsonSchema", "parameters_json_schema")
            schema = member(declared, "parameters") if schema is None else schema
            if isinstance(name, str):
                known: Json = {"parameters": schema} if isinstance(schema, dict) else {}
                found.append(Tool(name=name, description=text(member(declared, "description")), **known))
    return found


def _read_choice(config: Any) -> str:
    calling = either(config, "functionCallingConfig", "function_calling_config")
    names = items(either(calling, "allowedFunctionNames", "allowed_function_names"))
    mode = text(member(calling, "mode"))
    if mode == "ANY" and len(names) == 1 and isinstance(names[0], str):
        return names[0]
    return _MODES.get(mode, "auto")


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
    request=request,
    reply=reply,
    reply_error=reply_error,
)
