"""generateContent of Google: the Gemini API, and Vertex AI.

Google's own SDK (google-genai 3.4.0) follows continuation tokens by itself unless
`automatic_continuation` is False: it hides the intermediate requests, and its objects show one
response.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count as count_from
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from endturn.formats.apis.gemini_script import script, script_error
from endturn.formats.call_arguments import arguments, finished_calls
from endturn.formats.encoding import (
    content_parts,
    conversation,
    output_limit,
    request_body,
    system_messages,
    tool_description,
)
from endturn.formats.format import Format, PathRequest
from endturn.formats.framing import END_MARKERS
from endturn.formats.history import call_in
from endturn.formats.next_request import block_resumer, replayable_blocks
from endturn.formats.parts import (
    Block,
    ErrorPart,
    FinishedCalls,
    Head,
    Part,
    Reason,
    Reasoning,
    Text,
    Token,
    Tokens,
    ToolCallPart,
    Vocabulary,
)
from endturn.formats.reading import (
    as_text,
    count,
    first_member,
    first_text,
    forces_tool,
    id_text,
    items,
    lists_objects,
    member,
    mint_id,
    only_text,
    runs,
    text,
    text_or_none,
)
from endturn.formats.request_summary import SEGMENTS, routed_by, summarize_request
from endturn.formats.settings import ANY_JSON, present
from endturn.formats.summaries import Context, RequestSummary, ScriptedStyle
from endturn.vocabulary import Json, Message, Request, StopReason, Tool, Usage, raw_text, rows_of

NAME: Final = "gemini"

# --- Replies --------------------------------------------------------------------------------------

_TEXT_MEMBERS: Final = frozenset({"text", "thought"})
_PLAIN_CALL: Final = frozenset({"id", "name", "args"})
"""The members of a call that comes in one piece."""
_RESPONSE_MEMBERS: Final = (
    "candidates",
    "promptFeedback",
    "usageMetadata",
    "modelVersion",
    "responseId",
)
"""The members of a response, of which it has at least one."""
_SDK_MEMBERS: Final = ("prompt_feedback", "usage_metadata", "model_version", "response_id")
"""Members of a response that the SDK dumped under its Python names."""
_TOKEN_COUNTS: Final = (
    *("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"),
    *("cachedContentTokenCount", "totalTokenCount"),
)
# Stop reasons by their numbers, which Google's older clients request
# (`$alt=json;enum-encoding=int`). Higher numbers differ between the Gemini API and Vertex AI.
_FINISH_REASONS: Final = (
    "FINISH_REASON_UNSPECIFIED",
    "STOP",
    "MAX_TOKENS",
    "SAFETY",
    "RECITATION",
    "OTHER",
)
_BLOCK_REASONS: Final = (
    "BLOCKED_REASON_UNSPECIFIED",
    "SAFETY",
    "OTHER",
    "BLOCKLIST",
    "PROHIBITED_CONTENT",
)


@dataclass(slots=True)
class _StreamedFunctionCall:
    """A client call. Vertex AI may send its arguments in pieces, each with its place.

    Attributes:
        key: of its block.
        block: the members of its parts, without the arguments.
        arguments_object: the arguments that came as an object; None if one of them was no object.
    """

    key: int
    id: str
    name: str
    block: Json
    arguments_object: Json | None = field(default_factory=dict)
    pieces: list[Any] = field(default_factory=list)


class GeminiReader:
    """Reads chunks; a body is a stream of one.

    The finish reason is the terminal: no event follows it.
    """

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep = keep
        self._id: str | None = None
        self._call_count = 0
        self._open_call: _StreamedFunctionCall | None = None
        self._block_count = 0
        self._is_thinking: bool | None = None  # key of the last block, if text may be added to it

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """Yield the parts of a chunk.

        Without `alt=sse`, a stream is one array of chunks; so is an error response.
        """
        for chunk in event if isinstance(event, list) else (event,):
            if not isinstance(chunk, dict):
                continue
            if not chunk.keys().isdisjoint(_SDK_MEMBERS):
                chunk = _with_json_names(chunk)
            if self._id is None:
                self._id = id_text(chunk.get("responseId")) or None
                yield Head(self._id, text_or_none(chunk.get("modelVersion")))
            # Cumulative. Vertex AI's chunks before the last one may only have the traffic type.
            if (usage := usage_of(chunk.get("usageMetadata"))) is not None:
                yield Tokens(usage)
            has_stopped = False
            for candidate in items(chunk.get("candidates")):
                index, reason = (
                    count(member(candidate, "index")) or 0,
                    member(candidate, "finishReason"),
                )
                if index == 0:
                    parts = items(member(member(candidate, "content"), "parts"))
                    if self._keep:
                        for position, part in enumerate(parts):
                            yield from self._part(part, first=position == 0)
                    else:
                        yield from self._summary_parts(parts)
                if index or reason is not None:
                    yield Reason(_word(reason, _FINISH_REASONS), index)
                if index == 0 and reason is not None:
                    has_stopped = True
                    if token := text_or_none(member(candidate, "continuationToken")):
                        yield Token(token)
            feedback = None if has_stopped else chunk.get("promptFeedback")
            if feedback is not None and (
                block_reason := _word(member(feedback, "blockReason"), _BLOCK_REASONS)
            ):
                # the prompt feedback has its own stop reasons
                yield Vocabulary(rows_of(NAME, "promptFeedback"))
                yield Reason(block_reason, detail="prompt")
            if error := chunk.get("error"):
                yield ErrorPart(error)

    def _summary_parts(self, parts: Sequence[Any]) -> Iterator[Part]:
        """Yield parts whose content is not kept."""
        for kind, run in runs(parts, _kind):
            plain_text = only_text(run) if kind == "text" else None
            if plain_text is not None:
                yield Text(plain_text)
                continue
            plain_calls = []
            if kind == "functionCall" and self._open_call is None:
                plain_calls = finished_calls(
                    map(self._plain_call, run[:-1], count_from(self._call_count))
                )
                self._call_count += len(plain_calls)
                yield FinishedCalls(plain_calls)
            for part in run[len(plain_calls) :]:
                yield from self._part(part, first=False)

    def _plain_call(self, part: Json, number: int) -> tuple[Any, Any, Any]:
        """Return the id, name and arguments of a call that comes in one piece."""
        call = part["functionCall"]
        name, call_args = call["name"], call["args"]
        is_plain = call_args.__class__ is dict and call.keys() <= _PLAIN_CALL
        return is_plain and (call.get("id") or mint_id(self._id, number, name)), name, call_args

    def _part(self, part: Any, *, first: bool) -> Iterator[Part]:
        """Yield one part. Calls of tools that the server runs are no client calls."""
        part_text, function_call = as_text(member(part, "text")), member(part, "functionCall")
        if part_text:
            yield Reasoning(part_text) if member(part, "thought") is True else Text(part_text)
        if isinstance(function_call, dict):
            yield from self._call(part, function_call)
        elif (
            self._keep
            and isinstance(part, dict)
            and (part_text or not part.keys() <= _TEXT_MEMBERS)
        ):
            # A text continues over chunks until a part has other members.
            is_thinking = part.get("thought") is True if part.keys() <= _TEXT_MEMBERS else None
            if not first or is_thinking is None or is_thinking is not self._is_thinking:
                self._block_count += 1
            self._is_thinking = is_thinking
            yield Block(self._block_count, part)

    def _call(self, part: Json, piece: Json) -> Iterator[Part]:
        """Yield a call, or a piece of one."""
        id_, name, call_args = id_text(piece.get("id")), text(piece.get("name")), piece.get("args")
        if isinstance(call_args, str):  # as JSON text, from servers other than Google's
            parsed = arguments(call_args)
            call_args = call_args if parsed is None else parsed
        pieces, call = items(piece.get("partialArgs")), self._open_call
        if call is None or name not in ("", call.name) or id_ not in ("", call.id):
            # Vertex AI ends a streamed call with an empty one, also after the piece that was its
            # last.
            if not (id_ or name or call_args or pieces):
                return
            self._block_count += 1
            self._is_thinking = None
            names = {"id": id_, "name": name} if id_ else {"name": name}
            call = _StreamedFunctionCall(
                self._block_count,
                id_ or mint_id(self._id, self._call_count, name),
                name,
                {"functionCall": names},
            )
            self._call_count += 1
        call.pieces += pieces
        if not isinstance(call_args, dict | None):
            call.arguments_object = None
        elif call.arguments_object is not None:
            call.arguments_object |= call_args or {}
        if self._keep:
            # Copying the block for each piece would make a long call take quadratic time.
            for member_name, value in part.items():
                call.block.setdefault(member_name, value)
        is_closed = piece.get("willContinue") is not True
        self._open_call = None if is_closed else call
        full_arguments = _arguments(call) if is_closed else None
        # Pieces that cannot be assembled leave the call open, since it had arguments.
        yield ToolCallPart(
            call.key,
            call.id,
            call.name,
            full_arguments,
            closed=is_closed and full_arguments is not None,
        )
        if self._keep and call.pieces and full_arguments is not None:
            full_call = {**call.block["functionCall"], "args": full_arguments}
            yield Block(call.key, {**call.block, "functionCall": full_call}, begins=True)
        elif self._keep:
            yield Block(call.key, part)


def _kind(part: Any) -> str:
    """Return the name of a part's only member; "" if it has several."""
    return next(iter(part)) if isinstance(part, dict) and len(part) == 1 else ""


_VALUE_MEMBERS: Final = ("stringValue", "numberValue", "boolValue", "nullValue")
_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,9})\]|\[["']([^"']*)["']\]""")
_Texts = dict[tuple[int, str | int], tuple[Any, list[str]]]
"""Texts that arrive in pieces: by holder and key, the holder and the pieces, joined at the end."""
_JSON_PATH: Final = re.compile(rf"\$(?:{_STEP.pattern})+")


def _arguments(call: _StreamedFunctionCall) -> Json | None:
    """Assemble a call's arguments; None if they are no object, or a piece of them has no path.

    Each piece has its path (`$.foo.bar[0]`) and one value. A text comes in several pieces,
    one after the other.
    """
    root: Json = {"$": call.arguments_object}
    texts: _Texts = {}
    try:
        for piece in call.pieces:
            values = [
                (name, value)
                for name in _VALUE_MEMBERS
                if (value := member(piece, name)) is not None
            ]
            if values and call.arguments_object is not None:
                value = None if values[0][0] == "nullValue" else values[0][1]
                _put(root, text(member(piece, "jsonPath")), value, texts)
    except (LookupError, AttributeError, TypeError):
        return None
    for (_, key), (holder, pieces) in texts.items():
        holder[key] = "".join(pieces)
    return call.arguments_object


def _put(holder: Any, path: str, value: Any, texts: _Texts) -> None:
    """Put a value at its path. A text is continued; a list grows by one at most."""
    if _JSON_PATH.fullmatch(path) is None:
        raise LookupError(path)
    key: str | int = "$"
    for name, index, quoted in _STEP.findall(path):
        if holder[key] is None:
            holder[key] = [] if index else {}
        holder, key = holder[key], int(index) if index else name or quoted
        if key == len(holder) and index:
            holder.append(None)
        elif not index:
            holder.setdefault(key, None)
    if isinstance(holder[key], str) and isinstance(value, str):
        texts.setdefault((id(holder), key), (holder, [holder[key]]))[1].append(value)
    else:
        texts.pop((id(holder), key), None)
        holder[key] = value


def _with_json_names(node: Any) -> Any:
    """Return a response with JSON names, from one that the SDK dumped under its Python names."""
    if not isinstance(node, dict):
        return [*map(_with_json_names, node)] if isinstance(node, list) else node
    opaque = ("args", "response")  # a tool's input and output
    return {
        _camel_case(name): value if name in opaque else _with_json_names(value)
        for name, value in node.items()
    }


def _camel_case(name: str) -> str:
    return re.sub("_([a-z])", lambda match: match[1].upper(), name)


def _word(value: Any, names: tuple[str, ...]) -> str | None:
    """Return a reason in its JSON form.

    The value may also be its number, or (LangChain) an enumeration's Python spelling.
    """
    if value.__class__ is int and 0 <= value < len(names):
        return names[value]
    word = raw_text(value)
    return (
        None if word is None else word.removeprefix("FinishReason.").removeprefix("BlockedReason.")
    )


def usage_of(figures: Any) -> Usage | None:
    """Return the usage as Google counts it.

    Cached tokens are part of the prompt's, and results of server tools count as input.

    The members are read one by one for speed, since every chunk has them.
    """
    if not isinstance(figures, dict):
        return None
    prompt, tools, visible, thoughts, cached, total = [
        count(figures.get(name)) for name in _TOKEN_COUNTS
    ]
    input_tokens = prompt if tools is None else (prompt or 0) + tools
    output = visible if thoughts is None else (visible or 0) + thoughts
    if input_tokens is None and output is None and cached is None:
        return None
    # "The sum of" all four; where it is that of the others alone, the candidates' figure has the
    # thoughts in it.
    if thoughts and input_tokens is not None and input_tokens + (visible or 0) == total:
        output = visible
    return Usage(input_tokens, output, thoughts, cached)


def _error_body(data: Any) -> Any:
    """Return the error in place of an answer; None if there is none."""
    chunks = [
        chunk for chunk in (data if isinstance(data, list) else [data]) if isinstance(chunk, dict)
    ]
    error = next((chunk["error"] for chunk in chunks if chunk.get("error")), None)
    return (
        None
        if error is None or any(chunk.get("candidates") for chunk in chunks)
        else {"error": error}
    )


# --- Paths ----------------------------------------------------------------------------------------

_PATH: Final = (
    rf"{SEGMENTS}(?:/v\d+)?{SEGMENTS}/(?:models/)?(?P<model>(?:(?<=/models/)|tunedModels/"
    rf"|endpoints/)[^/:]+)"
    r":(?:(?P<whole>generateContent)|(?P<stream>streamGenerateContent))"
)
_TYPED_MODEL: Final = re.compile(r"(?:models|tunedModels|endpoints|publishers|projects)/.")


def _in_path(model: str) -> str:
    """Return a model's path; its name may have a type: "tunedModels/mine", "endpoints/123"."""
    return quote(model) if _TYPED_MODEL.match(model) else f"models/{quote(model, safe='')}"


# --- Reading requests -----------------------------------------------------------------------------


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """Summarize a request: a body, or the SDK's arguments (`config` a dictionary or its object)."""
    contents, config = kwargs.get("contents"), kwargs.get("config")
    settings = (
        first_member(kwargs, "generationConfig", "generation_config") if config is None else config
    )
    holder = kwargs if config is None else config
    calling_config = first_member(
        first_member(holder, "toolConfig", "tool_config"),
        "functionCallingConfig",
        "function_calling_config",
    )
    return summarize_request(
        NAME,
        settings,
        facts={"model": text(kwargs.get("model")), "stream": kwargs.get("stream") is True},
        history=contents
        if isinstance(contents, list | tuple)
        else ()
        if contents is None
        else (contents,),
        system=first_member(holder, "systemInstruction", "system_instruction"),
        forces_tool=forces_tool(calling_config),
    )


# --- Writing requests -----------------------------------------------------------------------------


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST …:generateContent.

    The path has the model, and requests a stream or not.
    """
    system = [
        part
        for message in system_messages(request, NAME)
        for part in content_parts(message.content, _text_block)
    ]
    tools = [_tool(tool) for tool in request.tools]
    choice = _tool_choice(request.tool_choice) if tools else None
    members = {
        "contents": _contents(request.messages),
        "systemInstruction": {"parts": system} if system else None,
        "tools": [{"functionDeclarations": tools}] if tools else None,
        "toolConfig": None if choice is None else {"functionCallingConfig": choice},
        "generationConfig": present(
            {
                "maxOutputTokens": output_limit(request),
                "temperature": request.temperature,
                "seed": request.seed,
                "responseMimeType": "application/json" if request.format else None,
                "responseJsonSchema": None
                if request.format == ANY_JSON
                else request.format or None,
            }
        ),
        "continuationToken": request.token,
    }
    return request_body(members, request.extra, conversation="contents")


def _tool(tool: Tool) -> Json:
    return present(
        {
            "name": tool.name,
            "description": tool_description(tool),
            "parametersJsonSchema": tool.parameters,
        }
    )


def _tool_choice(choice: str) -> Json | None:
    match choice:
        case "auto":
            return None
        case "none":
            return {"mode": "NONE"}
        case "required":
            return {"mode": "ANY"}
        case name:
            return {"mode": "ANY", "allowedFunctionNames": [name]}


def _contents(messages: Iterable[Message]) -> list[Json]:
    """Return the conversation without system messages.

    Tool results that follow each other are one content.
    """
    contents: list[Json] = []
    references: dict[str, _CallReference] = {}
    after_result = False
    for message, native_blocks in conversation(messages, NAME):
        if message.role == "system":
            continue
        if message.role == "assistant":
            references |= _references_in(message, native_blocks)
            parts = _answer(message, native_blocks)
        elif message.role == "tool":
            parts = [*native_blocks] if native_blocks else [_result(message, references)]
        else:
            parts = content_parts(message.content, _text_block)
        if not parts:
            continue
        if after_result and message.role == "tool":
            contents[-1]["parts"] += parts
        else:
            contents.append(
                {"role": "model" if message.role == "assistant" else "user", "parts": parts}
            )
        after_result = message.role == "tool"
    return contents


def _answer(message: Message, native_blocks: Sequence[Json] | None) -> list[Json]:
    """Return the parts of an assistant message."""
    if native_blocks:
        return replayable_blocks(native_blocks, message.tool_calls)
    calls = [
        {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments or {}}}
        for call in message.tool_calls
    ]
    return [*replayable_blocks(content_parts(message.content, _text_block)), *calls]


class _CallReference(NamedTuple):
    """The members of a call that its result repeats: its name, and its id unless we minted it."""

    name: str
    id: str | None


def _references_in(
    message: Message, native_blocks: Sequence[Json] | None
) -> dict[str, _CallReference]:
    ids = {
        first_text(call, "call_id", "toolUseId", "id")
        for part in native_blocks or ()
        if (call := call_in(part))
    }
    return {
        call.id: _CallReference(
            call.name, call.id if native_blocks is None or call.id in ids else None
        )
        for call in message.tool_calls
    }


def _result(message: Message, references: Mapping[str, _CallReference]) -> Json:
    """Return a tool result's part, with content other than text in `parts`."""
    id_ = message.tool_call_id or ""
    call = references.get(id_, _CallReference("", id_))
    media = [part for part in items(message.content) if "text" not in part]
    response = {
        "name": call.name or id_,
        "id": call.id,
        "response": {"error" if message.is_error else "output": message.text},
        "parts": media or None,
    }
    return {"functionResponse": present(response)}


def _text_block(text: str) -> Json:
    return {"text": text}


def _path(request: PathRequest) -> str:
    method = "streamGenerateContent?alt=sse" if request.stream else "generateContent"
    return f"/{_in_path(request.model)}:{method}"


def _misshapen_member(data: Json) -> str | None:
    """Return `candidates[].content.parts[]` if it, or what holds it, is misshapen."""
    candidates = data.get("candidates")
    if candidates is None:
        return None
    path = "candidates[].content.parts[]"
    if not lists_objects(candidates):
        return path
    for candidate in candidates:
        content = candidate.get("content")
        if content is not None and not (
            isinstance(content, dict) and lists_objects(content.get("parts"))
        ):
            return path
    return None


FORMAT: Final = Format(
    name=NAME,
    provider="gcp.gemini",
    # A tool call has the reason STOP and a part of its own; a full window has MAX_TOKENS.
    voice=ScriptedStyle(
        "response-",
        "function-call-",
        "x-request-id",
        {StopReason.TOOL_CALL: "STOP", StopReason.ERROR: "OTHER"},
    ),
    path=_path,
    match_path=routed_by(_PATH),
    is_request=lambda body, _: "contents" in body,
    body=encode,
    resume=block_resumer(NAME, _text_block, forced_tool_path="toolConfig"),
    text_block=_text_block,
    own_summary=request_summary,
    reader=GeminiReader,
    labels=("a response of generateContent", "a chunk of generateContent"),
    required_members=(*_RESPONSE_MEMBERS, *_SDK_MEMBERS),
    misshapen_member=_misshapen_member,
    accepts_list=True,
    error_in=_error_body,
    end_markers=END_MARKERS,
    reply=script,
    reply_error=script_error,
)
