"""The chat completions format of OpenAI and all compatible servers.

A reply is a list of choices: each with a `message` in a body, or with a `delta` in each chunk of a
stream. A message holds text (or content parts), thinking, a refusal, calls, and members that a
server adds, which a replay sends back. Id, model, usage and error are next to the choices.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from endturn.formats.accumulator import ResponseAccumulator
from endturn.formats.apis.openai_chat_request import encode, holds_media, resume, unfinished
from endturn.formats.apis.openai_chat_script import script, script_error
from endturn.formats.call_arguments import finished_calls
from endturn.formats.chat_answers import NO_REASON, PLAIN_MEMBERS, USUAL_MEMBERS, plain_answers
from endturn.formats.format import Format, PathRequest
from endturn.formats.framing import END_MARKERS
from endturn.formats.next_request import unfinished_message
from endturn.formats.partial import merge_entries
from endturn.formats.parts import (
    Block,
    ContextWindow,
    End,
    ErrorPart,
    FinishedAnswers,
    FinishedCalls,
    Head,
    Part,
    Reason,
    Reasoning,
    Text,
    Tokens,
    ToolCallPart,
    usage_of_counts,
)
from endturn.formats.reading import (
    JsonObjectEnd,
    as_arguments,
    as_text,
    count,
    first_member,
    id_text,
    items,
    lists_objects,
    member,
    member_getter,
    mint_id,
    number_or_text,
    text,
    text_or_none,
)
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import Context, ScriptedStyle
from endturn.vocabulary import (
    Json,
    Row,
    StopReason,
    Usage,
    find_row,
    raw_text,
    rows_of,
)

NAME: Final = "openai_chat"

# --- Replies --------------------------------------------------------------------------------------

# DeepSeek, vLLM, Moonshot, Qwen write the first; OpenRouter, Groq, newer vLLM the second. If both
# are present, the first counts.
_THINKING_MEMBERS: Final = ("reasoning_content", "reasoning")
_CALL_LISTS: Final = ("tool_calls", "function_call")
"""The second is the single call of a message, from before OpenAI had tools; it has no id."""
_CALL_MEMBERS: Final = frozenset({"index", "id", "type", "function", "custom"})
"""The members of a call that are read; others go back as they are: Gemini's thought signatures."""
_NATIVE_REASON: Final = "native_finish_reason"
"""The reason of the model behind a gateway."""
_ERROR_MEMBERS: Final = ("error", "x_groq", "base_resp", "errors")
"""The members of a chunk that may hold an error."""
_CHUNK_MEMBERS: Final = ("usage", "model_info", *_ERROR_MEMBERS)
"""The members of a chunk that are read besides its choices."""


_Index = int | float | str | None
"""A call's index as a server sends it; None if it sends none, or a value that cannot be one."""


@dataclass(slots=True)
class _StreamedCall:
    """A call while it arrives.

    `arguments` finds their end, which ends the call if calls have no ids.
    """

    number: int
    id: str
    name: str
    arguments: JsonObjectEnd = field(default_factory=JsonObjectEnd)


class ChatReader:
    """Reads chunks, or one body."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep, self._rows = keep, rows_of(NAME, ctx.dialect)
        self._merges_choices = ctx.request.facts.choice_count == 1
        self._started_choices: set[int] = set()
        self._call_count = 0
        # By choice and index; under the index None, all calls of the choice.
        self._last_calls: dict[tuple[int, _Index], _StreamedCall] = {}
        self._calls_by_id: dict[tuple[int, _Index, str], _StreamedCall] = {}
        self._id_seed: object = None
        self._is_named = self._is_streamed = self._has_content_parts = False

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """Yield the parts of a chunk or a body."""
        if not isinstance(event, dict):
            return
        get = event.get
        if not self._is_named:
            id_, model = id_text(get("id")) or None, text_or_none(get("model"))
            self._is_named = id_ is not None and model is not None
            self._id_seed = self._id_seed or id_ or get("created")
            yield Head(id_, model)
        is_body, choices, answer_count = False, items(get("choices")), 0
        may_finish = not (self._keep or self._is_streamed or self._started_choices)
        if may_finish and "stats" not in event and (answers := plain_answers(choices)):
            is_body, answer_count = True, len(answers)
            self._started_choices.update(range(answer_count))
            yield End(is_body)
            yield FinishedAnswers(answers)
        for position, choice in enumerate(islice(choices, answer_count, None), answer_count):
            if not isinstance(choice, dict):
                continue
            index = count(choice.get("index"))
            index = position if index is None else index
            part, message = choice.get("delta"), choice.get("message")
            if isinstance(part, dict) and (
                self._is_streamed or _holds(part) or not _holds(message)
            ):
                self._is_streamed = True
            elif isinstance(message, dict) and not self._is_streamed:
                # Perplexity's bodies have an empty delta beside it.
                part = message
                if not is_body:
                    is_body = True
                    yield End(is_body)
            # the message at the end of MiniMax's streams repeats the complete answer
            else:
                part = None
            content = (
                part.get("content") if part is not None and part.keys() <= PLAIN_MEMBERS else None
            )
            if content.__class__ is str and content and not self._has_content_parts:
                yield Text(content, index)
            elif part is not None:
                yield from self._message(index, part)
            if choice.get("finish_reason") is not None or index not in self._started_choices:
                self._started_choices.add(index)
                yield self._reason(index, choice, event)
            if error := choice.get("error"):
                yield ErrorPart(error)
            if choice.get("usage") and (usage := usage_of(choice["usage"])):  # Moonshot
                yield Tokens(usage)
        if any(map(get, _CHUNK_MEMBERS)):
            yield from _chunk_parts(event)

    def _message(self, index: int, part: Json) -> Iterator[Part]:
        """Yield the parts of a delta, or of a message."""
        visible, thinking, refusal = _message_texts(part)
        if thinking:
            yield Reasoning(thinking, index)
        if visible or refusal:
            yield Text(visible + refusal, index, refusal=refusal != "")
        keeps_content = self._keep and (index == 0 or self._merges_choices)
        if keeps_content and (extra := self._replay_members(part)):
            yield Block("message", extra)
        legacy, tool_calls = part.get("function_call"), items(part.get("tool_calls"))
        # Snowflake's has empty members
        legacy_calls = [{"index": -1, "function": legacy}] if _holds(legacy) else ()
        may_finish = not (self._keep or self._is_streamed)
        if may_finish and len(tool_calls) > 1 and isinstance(tool_calls[-1], dict):
            plain_calls = finished_calls(map(_plain_call, tool_calls[:-1]))
            self._call_count += len(plain_calls)
            yield FinishedCalls(plain_calls, index)
            tool_calls = tool_calls[len(plain_calls) :]
        for fragment in (*tool_calls, *legacy_calls):
            if isinstance(fragment, dict):
                yield (call := self._call(index, fragment))
                if keeps_content:
                    extra = {
                        name: value
                        for name, value in fragment.items()
                        if name not in _CALL_MEMBERS and value is not None
                    }
                    is_custom = fragment.get("custom") and not fragment.get("function")
                    yield Block(call.key, {**extra, "kind": "custom" if is_custom else None})

    def _replay_members(self, part: Json) -> Json:
        """Return the members of a message that a replay sends, except calls and text.

        The accumulator has the text.
        """
        content, audio = part.get("content"), part.get("audio")
        self._has_content_parts = self._has_content_parts or isinstance(content, list)
        members = {
            name: value
            for name, value in part.items()
            if value not in (None, "") and name not in _CALL_LISTS
        }
        members.pop("role", None)
        is_plain = isinstance(content, bool | int | float) or (
            isinstance(content, str) and self._is_streamed
        )
        if isinstance(content, dict) or is_plain:
            members.pop("content", None)
            if self._has_content_parts and content != "":
                members["content"] = [{"type": "text", "text": as_text(content)}]
        if isinstance(audio, dict) and self._is_streamed:
            # Without the audio data: each chunk is encoded by itself, and no API accepts it back.
            members["audio"] = {
                name: value for name, value in audio.items() if value is not None and name != "data"
            }
        return members

    def _call(self, choice: int, fragment: Json) -> ToolCallPart:
        """Return a call, or a piece of one."""
        body = fragment.get("function") or fragment.get("custom")
        id_, name = id_text(fragment.get("id")), text(member(body, "name"))
        # Mistral's API used to send "null" for a missing id, and its SDK still does
        id_ = "" if id_ == "null" else id_
        # older servers of Hugging Face send an object
        piece = _as_json_text(first_member(body, "arguments", "input"))
        is_custom = bool(fragment.get("custom")) and not fragment.get("function")
        if not self._is_streamed:  # a message has each call once, complete
            number, self._call_count = self._call_count, self._call_count + 1
            id_ = id_ or mint_id(self._id_seed, number)
            return ToolCallPart(number, id_, name, piece, choice, free_text=is_custom)
        index = fragment.get("index")
        index = index if isinstance(index, int | float | str) else None
        call = self._matching_call(choice, index, id_, name, piece)
        if call is None:
            call = _StreamedCall(self._call_count, id_, name)
            self._call_count += 1
            for slot in {index, None}:
                self._last_calls[choice, slot] = call
                self._calls_by_id.setdefault((choice, slot, id_), call)
        call.name = call.name or name
        if not call.id:
            call.arguments.feed(piece)
        id_ = call.id or mint_id(self._id_seed, call.number)
        return ToolCallPart(call.number, id_, call.name, piece, choice, free_text=is_custom)

    def _matching_call(
        self, choice: int, index: _Index, id_: str, name: str, piece: str
    ) -> _StreamedCall | None:
        """Return the call that a fragment continues; None if it starts a new one.

        Some chat endpoints, such as Gemini's, give all parallel calls the same index, or none:
        there, a new id with a name starts a new call. A new id without a name does not, since some
        servers create an id for every chunk. Without an id, another name starts a new call, or the
        same name with arguments that start again after a complete object, since some servers repeat
        the name in every chunk.
        """
        same_id = self._calls_by_id.get((choice, index, id_)) if id_ else None
        last = self._last_calls.get((choice, index))
        if same_id is not None or last is None:
            return same_id
        is_new_call = name and (id_ or (last.name and name != last.name))
        restarts = name and last.arguments.is_whole and piece.lstrip().startswith("{")
        return None if is_new_call or restarts else last

    def _reason(self, index: int, choice: Json, event: Json) -> Reason:
        raw = choice.get("finish_reason")
        if isinstance(raw, str) and raw in NO_REASON:
            raw = None
        if (
            (raw is None or isinstance(raw, str))
            and choice.keys() <= USUAL_MEMBERS
            and "stats" not in event
        ):
            return Reason(raw, index)
        choice_reason = raw_text(raw)
        # OpenRouter, LiteLLM; and the reason of LM Studio's engine, in its own API.
        fields = choice.get("provider_specific_fields")
        native = choice.get(_NATIVE_REASON) or member(fields, _NATIVE_REASON)
        if index == 0:
            native = member(event.get("stats"), "stop_reason") or native
        # vLLM, SGLang: the stop string that matched. A number is a token's, and is left out.
        stop_sequence = (
            choice.get("stop_reason") or choice.get("matched_stop") or member(raw, "matched")
        )
        detail = text_or_none(stop_sequence) or text_or_none(member(raw, "message"))
        reason = _effective_reason(choice_reason, raw_text(native), self._rows)
        return Reason(reason, index, detail, choice_reason)


def _plain_call(call: Json) -> tuple[Any, Any, Any]:
    """Return a whole call's id, name and arguments."""
    function = call["function"]
    return call["id"] != "null" and call["id"], function["name"], function["arguments"]


def _holds(part: Any) -> bool:
    """Return whether a message, a delta or a call holds anything besides its role."""
    return isinstance(part, dict) and (
        any(value for name, value in part.items() if name != "role")
        or part.get("content") not in (None, "", [])
    )


def _as_json_text(value: Any) -> str:
    """Return a call's arguments as text, also those that a server sends as other JSON."""
    parsed = as_arguments(value)
    return json.dumps(parsed, ensure_ascii=False) if isinstance(parsed, dict) else parsed or ""


def _content_text(value: Any) -> str:
    """Return visible text.

    Some servers (Cloudflare) send text that looks like JSON as a number or an object.
    """
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else as_text(value)


def _message_texts(part: Json) -> tuple[str, str, str]:
    """Return the visible text, the thinking and the refusal of a message or delta.

    The transcript of a spoken answer is visible text, since the user hears it. If there is also
    text, it repeats the transcript.
    """
    content, refusal, thinking = part.get("content"), text(part.get("refusal")), ""
    for name in _THINKING_MEMBERS:
        thinking = thinking or number_or_text(part.get(name))
    if not isinstance(content, list | tuple):
        visible = content if isinstance(content, str) else _content_text(content)
        return visible or text(member(part.get("audio"), "transcript")), thinking, refusal
    words = []
    for piece in content:  # in Mistral's answers, and in any request
        match member(piece, "type"):
            case "text" | "output_text":
                words.append(as_text(member(piece, "text")))
            case None:
                words.append(
                    as_text(member(piece, "text") if isinstance(piece, Mapping) else piece)
                )
            case "refusal":
                refusal += text(member(piece, "refusal"))
            case "thinking":
                inner = member(piece, "thinking")
                thinking += number_or_text(inner) or "".join(
                    as_text(member(entry, "text")) for entry in items(inner)
                )
    return "".join(words) or text(member(part.get("audio"), "transcript")), thinking, refusal


def _effective_reason(raw: str | None, native: str | None, rows: Mapping[str, Row]) -> str | None:
    """Return the raw value that counts.

    The upstream model's value counts if it has a row, unless only the gateway's reports a
    truncation.
    """
    if raw is None or native is None:
        return raw
    gateway_row, native_row = find_row(raw, rows), find_row(native, rows)
    is_truncated = gateway_row is not None and gateway_row.incomplete
    is_hidden = is_truncated and native_row is not None and not native_row.incomplete
    return raw if native_row is None or is_hidden else native


def _chunk_parts(event: Json) -> Iterator[Part]:
    """Yield the parts from the members besides the choices."""
    if usage := usage_of(event.get("usage") or member(event.get("x_groq"), "usage")):
        yield Tokens(usage)
    # LM Studio: the window that the model was loaded with.
    if "model_info" in event and (window := count(member(event["model_info"], "context_length"))):
        yield ContextWindow(window)
    if any(map(event.get, _ERROR_MEMBERS)) and (error := _error_in(event)):
        yield ErrorPart(error)


def _error_in(event: Any) -> Any:
    """Return the error that a body or a chunk reports.

    OpenAI's `error`, Groq's `x_groq.error`, the first of watsonx' `errors`, MiniMax' status.
    """
    base_response, errors = member(event, "base_resp"), items(member(event, "errors"))
    code = count(member(base_response, "status_code"))
    status_message = text(member(base_response, "status_msg"))
    minimax_error = (
        {"code": str(code), "type": f"minimax_{code}", "message": status_message} if code else None
    )
    return (
        member(event, "error")
        or member(member(event, "x_groq"), "error")
        or next(iter(errors), minimax_error)
    )


def _error_body(data: Any) -> Any:
    """Return the error in place of an answer; None if there is none.

    Also flat errors: those of Cerebras, Mistral and older vLLM.
    """
    if not isinstance(data, Mapping) or data.get("choices"):
        return None
    is_flat = isinstance(data.get("message"), str) and ("code" in data or "type" in data)
    if is_flat or data.get("error") or data.get("errors"):
        return data
    error = data.get("base_resp") and _error_in(data)
    return {"error": error} if error else None


_CACHE_HIT_MEMBERS: Final = ("prompt_cache_hit_tokens", "cached_tokens")
"""DeepSeek's and Moonshot's names for the cached tokens of the prompt."""


def usage_of(figures: Any) -> Usage | None:
    """Return the usage as the chat format counts it.

    Cached tokens are part of the prompt's, reasoning of the completion's.

    xAI, and gateways in front of Gemini, count reasoning beside the completion: the total shows it
    (https://docs.x.ai/docs/key-information/consumption-and-rate-limits).
    """
    if not figures:
        return None
    get = member_getter(figures)
    input_tokens, output_tokens = count(get("prompt_tokens")), count(get("completion_tokens"))
    reasoning_tokens = cached_tokens = cache_write_tokens = None
    if details := get("completion_tokens_details"):
        reasoning_tokens = count(member(details, "reasoning_tokens"))
    if details := get("prompt_tokens_details"):
        cached_tokens = count(member(details, "cached_tokens"))
        cache_write_tokens = count(member(details, "cache_write_tokens"))
    if reasoning_tokens and output_tokens is not None:
        total_output = output_tokens + reasoning_tokens
        if count(get("total_tokens")) == (input_tokens or 0) + total_output:
            output_tokens = total_output
    for name in _CACHE_HIT_MEMBERS:
        if cached_tokens is None and (hits := get(name)) is not None:
            cached_tokens = count(hits)
    return usage_of_counts(
        input_tokens, output_tokens, reasoning_tokens, cached_tokens, cache_write_tokens
    )


def _blocks(accumulator: ResponseAccumulator) -> Iterable[Json]:
    """Yield the one message, as the server takes it back."""
    blocks = accumulator.blocks
    message: Json = {"role": "assistant", "content": None, **blocks.pop("message", {})}
    if all(name in message for name in _THINKING_MEMBERS):
        del message[_THINKING_MEMBERS[1]]
    # The visible text, without thinking and refusals, which have their own members.
    if message["content"] is None:
        own_texts = (text(message.get("refusal")), text(member(message.get("audio"), "transcript")))
        message["content"] = (
            "".join(accumulator.text).removesuffix(own_texts[0]).removesuffix(own_texts[1]) or None
        )
    for name in () if accumulator.is_body else ("content", "reasoning_details"):
        if isinstance(message.get(name), list):
            message[name] = merge_entries(message[name])
    for key, call in accumulator.calls.items():
        if (extra := blocks.get(key)) is None:  # belongs to a choice that does not count
            continue
        kind, holder = (
            ("custom", "input") if extra.pop("kind") == "custom" else ("function", "arguments")
        )
        api_call = {
            "id": call.id,
            "type": kind,
            kind: {"name": call.name, holder: "".join(call.pieces)},
            **extra,
        }
        message.setdefault("tool_calls", []).append(api_call)
    if accumulator.text or accumulator.reasoning or "tool_calls" in message or holds_media(message):
        yield message


# --- Declaration ----------------------------------------------------------------------------------

_PATH: Final = (
    rf"(?:{SEGMENTS}/v1)?/chat/completions"
    rf"|{SEGMENTS}/openai/deployments/(?P<model>[^/]+)/chat/completions"
    rf"|(?:{SEGMENTS}/v1)?/text/chat(?P<stream>_stream)?"
)


def _path(request: PathRequest) -> str:
    if request.dialect != "watsonx":
        return "/chat/completions"
    return "/text/chat_stream" if request.stream else "/text/chat"


def _misshapen_member(data: Json) -> str | None:
    """Return the path of what should be an object in the choices; None if all are objects."""
    choices = data.get("choices")
    if choices is None:
        return None
    if not lists_objects(choices):
        return "choices[].delta"
    for name in ("delta", "message"):
        for choice in choices:
            if (value := choice.get(name)) is not None and not isinstance(value, dict):
                return f"choices[].{name}"
    return None


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    # A refusal is a member of the message, and its reason is the usual one.
    voice=ScriptedStyle("chatcmpl-", "call_", "x-request-id", {StopReason.REFUSED: "stop"}),
    path=_path,
    match_path=routed_by(_PATH),
    is_request=lambda body, _: "messages" in body or ("prompt" in body and "model" in body),
    body=encode,
    resume=resume,
    unfinished=unfinished_message(unfinished),
    one_message=True,
    reader=ChatReader,
    labels=("a chat completion", "a chunk of a chat stream"),
    required_members=("choices",),
    misshapen_member=_misshapen_member,
    error_in=_error_body,
    blocks=_blocks,
    end_markers=(*END_MARKERS, b"base_resp"),
    reports_call_ends=False,
    splits_answer=True,
    reply=script,
    reply_error=script_error,
)
