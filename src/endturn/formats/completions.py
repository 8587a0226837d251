"""Formats that continue a text prompt: OpenAI's legacy completions, and a dialect for every service with its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, Final

from endturn.chat import ChatResponse, Json, Message, Request, Usage
from endturn.errors import UsageError
from endturn.events import Strategy
from endturn.formats.completions_reader import FULL, NAME, REPLY, SHAPES, Shape, asked_in
from endturn.formats.format import Format
from endturn.formats.framing import DONE
from endturn.formats.reading import items, text
from endturn.formats.request_summary import SEGMENTS, asked, routed_by
from endturn.formats.scripting import chat_error, raw_reason, words, written_usage
from endturn.formats.settings import with_extra
from endturn.formats.summaries import Event, Framing, RequestSummary, Route, Voice
from endturn.stop_reasons import COMPATIBLE, rows_of, tables
from endturn.tables import lines, shipped

# dialect → path of a whole answer, path of a stream.
_ROUTES: Final[Mapping[str, tuple[str, str]]] = {
    "tgi": ("/generate", "/generate_stream"),
    "sglang": ("/generate", "/generate"),
    "llamacpp": ("/completion", "/completion"),
    "watsonx": ("/text/generation?version=2023-05-02", "/text/generation_stream?version=2023-05-02"),
    "alephalpha": ("/complete", "/complete"),
}
_BEDROCK: Final = frozenset({"titan", "llama", "mistral", "command", "ai21", "claude_text"})

# Ollama has an /api/generate of its own. TGI and watsonx say in the path that an answer is streamed.
_PATH: Final = (
    rf"(?:{SEGMENTS}/v1)?(?:/completions|/completion|/complete)"
    rf"|{SEGMENTS}/openai/deployments/(?P<model>[^/]+)/completions"
    rf"|(?:(?:{SEGMENTS}/v1)?(?:/deployments/[^/]+)?/text/generation(?P<whole>$)?|{SEGMENTS}(?<!/api)/generate)"
    r"(?P<stream>_stream)?"
)


def route(request: Request, *, stream: bool, dialect: str = "") -> Route:
    """Where a prompt goes.

    Raises:
        UsageError: it is a model family of Bedrock's, which only the format `bedrock_invoke` reaches.
    """
    if dialect in _BEDROCK:
        raise UsageError(f"the completions dialect {dialect!r} has no path of its own: use the format 'bedrock_invoke'")
    whole, streamed = _ROUTES.get(dialect, ("/completions", "/completions"))
    return Route("POST", streamed if stream else whole)


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of a request for text. The formats know no tools and no JSON format: both are left out.

    The prompt of a single user message is its text. Of more, it is a plain transcript: system messages as they are,
    `User: …`, `Assistant: …`, `Tool: …`, a blank line between, and `Assistant: ` at the end (Claude's text format:
    `Human:` and `Assistant:`, always). Assistant messages at the very end are what the answer begins with: their text
    follows the prompt, as it is.

    Args:
        dialect: whose; it decides every name. The families of Bedrock have the model in the path alone.
    """
    shape = SHAPES.get(dialect, SHAPES[""])
    body: Json = {shape.prompt: _prompt(request.messages, shape)}
    if shape.names:
        body = {shape.names: request.model, **body}
    settings: Json = dict(shape.fixed)
    limit = request.max_tokens or shape.demanded
    if limit is not None:
        settings[shape.limit] = limit
    if request.temperature is not None:
        settings |= _temperature(request.temperature, dialect)
    if request.seed is not None and shape.seed:
        settings[shape.seed] = request.seed
    if not shape.settings:
        body |= settings
    elif settings:
        body[shape.settings] = settings
    if stream and dialect not in ("tgi", "watsonx", *(_BEDROCK - {"command"})):
        body["stream"] = True
        if shape is SHAPES[""]:
            # Without it a stream has no usage, and a used-up budget cannot be told from an answer that fits.
            body["stream_options"] = {"include_usage": True}
    return with_extra(body, request.extra, shape.settings)


def _temperature(value: float, dialect: str) -> Json:
    if dialect != "tgi":
        return {"temperature": value}
    # TGI refuses 0, and samples only where it is told to.
    return {"temperature": value, "do_sample": True} if value > 0 else {"do_sample": False}


def _prompt(messages: tuple[Message, ...], shape: Shape) -> str:
    end = len(messages)
    while end and messages[end - 1].role == "assistant":
        end -= 1
    asked, begun = messages[:end], "".join(message.text for message in messages[end:])
    alone = len(asked) == 1 and asked[0].role == "user"
    claude = shape is SHAPES["claude_text"]
    if not asked or (alone and (not claude or shape.user_says.rstrip() in asked[0].text)):
        return (asked[0].text if asked else "") + begun
    spoken = {"user": shape.user_says, "assistant": shape.model_says, "tool": "Tool: ", "system": ""}
    turns = [
        spoken[message.role] + (" " if claude and message.role == "assistant" else "") + message.text
        for message in asked
        if message.text
    ]
    return ("" if claude else "\n\n").join([*turns, shape.model_says]) + begun


def _first(prompt: str | list[Any]) -> str:
    """The text of a prompt; of several, that of the first that is text. Token numbers are none."""
    return prompt if isinstance(prompt, str) else next((text(each) for each in prompt if isinstance(each, str)), "")


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that goes on with a cut response: the same prompt, followed by the text so far.

    Every strategy does the same, and no nudge is written: going on with a text is what these formats do. White space at
    the text's end is left out, as a model writes it again with its next word.
    """
    said = cut.text.rstrip()
    partial = (cut.message().but(content=said, tool_calls=(), blocks=None),) if said else ()
    return request.but(messages=(*request.messages, *partial))


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a call of an SDK, or a request body of any dialect, asks for, read in place."""
    dialect = asked_in(kwargs)
    prompt = kwargs.get(SHAPES[dialect].prompt)
    prompts = items(prompt)
    several = len(prompts) if prompts and isinstance(prompts[0], str | list) else 1
    said = _first(prompt) if isinstance(prompt, str | list) else ""
    own = {"stream_usage": True} if dialect else {}
    found = asked(NAME, kwargs, ({"role": "user", "content": said},) if said else (), **own)
    return replace(found, choices=several * found.choices)


_ENDED: Final = frozenset({"", "llamacpp", "alephalpha"})
"""Dialects whose last event says nothing but that it is the last."""
_USAGE: Final = {
    "prompt_tokens": "input_tokens",
    "completion_tokens": "output_tokens",
    "prompt_tokens_details.cached_tokens": "cache_read_tokens",
    "completion_tokens_details.reasoning_tokens": "reasoning_tokens",
}


@cache
def _written() -> Mapping[str, Mapping[str, Json]]:
    """dialect → how it writes a body, an event of a stream, and the last one."""
    found: dict[str, dict[str, Json]] = {}
    for _, (dialect, part, written) in lines(shipped(), "completion_replies.tsv", range(3, 4)):
        found.setdefault(dialect, {})[part] = json.loads(written)
    return found


def _filled(written: Any, values: Mapping[str, Any]) -> Any:
    """What a service writes, with the values in their places."""
    match written:
        case str() if written.startswith("$"):
            return values[written[1:]]
        case dict():
            return {name: _filled(each, values) for name, each in written.items()}
        case list():
            return [_filled(each, values) for each in written]
    return written


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A scripted response as the service of that dialect would send it: a body, or the events of a stream.

    Raises:
        UsageError: the service does not stream.
    """
    raw = raw_reason(response.stop, rows_of(NAME, dialect or COMPATIBLE))
    dialect = dialect if dialect in _written() else ""
    written, said, ended = _written()[dialect], response.text, response.stop.terminal_seen
    spent = written_usage(response.usage, _USAGE, "total_tokens") if dialect == "" else {}
    counted = {"usage": spent} if spent else {}

    def fill(part: str, text: str, so_far: str, reason: str | None, place: int = 1) -> Json:
        usage = response.usage or Usage()
        values = {
            "id": response.id,
            "model": response.model,
            "asked": usage.input_tokens or 0,
            "answered": usage.output_tokens or 0,
            "text": text,
            "so_far": so_far,
            "place": place,
            "reason": reason,
            "typed_reason": reason and {"type": reason},
            "stop_type": "limit" if reason == FULL else reason or "none",
            "truncated": reason == FULL,
        }
        filled: Json = _filled(written.get(part) or written["last"], values)
        return filled

    if not stream:
        return fill("body", said, said, raw) | counted
    if "last" not in written:
        raise UsageError("AI21's text models do not stream")
    pieces, so_far, events = words(said), "", list[Json | str]()
    if ended and (dialect in _ENDED or not pieces):
        pieces.append("")
    for place, piece in enumerate(pieces, 1):
        so_far += piece
        last = ended and raw is not None and place == len(pieces)
        events.append(fill("last" if last else "event", piece, so_far, raw if last else None, place))
    if ended and "usage" in written:
        events.append(fill("usage", "", said, None))
    elif ended and counted:
        events.append({**fill("last", "", said, None), "choices": [], **counted})
    if ended and dialect in ("", "alephalpha", "sglang"):
        events.append(DONE)
    return [Event("completion" if dialect == "claude_text" else None, each) for each in events]


def reply_error(
    status: int, code: str | None, message: str | None, *, number: int = 0, stream: bool = False
) -> Json | Event:
    """An error answer's body, the same as to a chat request; within a stream, the chunk that it is."""
    body = chat_error(status, code, message)
    return Event(None, body) if stream else body


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    framing=Framing.SSE,
    reasons=tables(NAME),
    voice=Voice("cmpl-", "call_", "x-request-id"),
    replies=REPLY,
    route=route,
    routed=routed_by(_PATH),
    request_summary=request_summary,
    body=encode,
    resume=resume,
    reply=reply,
    reply_error=reply_error,
)
