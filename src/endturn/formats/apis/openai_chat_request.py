"""Requests of the chat completions format, and continuation requests for truncated responses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from endturn.calls import Strategy
from endturn.formats.answer_blocks import together
from endturn.formats.encoding import (
    arguments_text,
    conversation,
    function_call,
    function_tool,
    output_limit,
    replays_message,
    request_body,
)
from endturn.formats.next_request import message_resumer, own_blocks, resend, without_lost_calls
from endturn.formats.reading import member, text
from endturn.formats.settings import ANY_JSON
from endturn.vocabulary import Blocks, ChatResponse, Json, Message, Request

_NAME: Final = "openai_chat"

# --- Body -----------------------------------------------------------------------------------------

_OLD_LIMIT: Final = frozenset(
    {"mistral", "deepseek", "together", "fireworks", "zai", "moonshot", "tgi", "ollama"}
)
"""The dialects whose servers have the limit as `max_tokens` only."""


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of POST /chat/completions in a dialect's names."""
    tools = [function_tool(tool) for tool in request.tools]
    members = {
        "model_id" if dialect == "watsonx" else "model": request.model or None,
        "messages": _messages(request.messages),
        "tools": tools,
        "tool_choice": _tool_choice(request.tool_choice) if tools else None,
        "max_tokens" if dialect in _OLD_LIMIT else "max_completion_tokens": output_limit(request),
        "temperature": request.temperature,
        "random_seed" if dialect == "mistral" else "seed": request.seed,
        "response_format": _response_format(request.format),
        **_stream_members(stream, dialect),
    }
    return request_body(members, request.extra, conversation="messages")


def _stream_members(stream: bool, dialect: str) -> Json:
    """Return the members that request a stream with usage at its end; watsonx uses the path."""
    if not stream or dialect == "watsonx":
        return {}
    return (
        {"stream": True}
        if dialect == "mistral"
        else {"stream": True, "stream_options": {"include_usage": True}}
    )


def _tool_choice(choice: str) -> str | Json | None:
    match choice:
        case "auto":
            return None
        case "none" | "required":
            return choice
        case name:
            return {"type": "function", "function": {"name": name}}


def _response_format(format_: Json | None) -> Json | None:
    if not format_:
        return None
    if format_ == ANY_JSON:
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": format_}}


# --- Conversation ---------------------------------------------------------------------------------


def _messages(messages: Iterable[Message]) -> list[Json]:
    api_messages: list[Json] = []
    for message, native_blocks in conversation(messages, _NAME):
        if message.role == "assistant":
            api_messages += _answer(message, native_blocks)
        elif native_blocks:
            api_messages += native_blocks
        elif message.role == "tool":
            id_ = message.tool_call_id or ""
            api_messages.append({"role": "tool", "tool_call_id": id_, "content": message.content})
        else:
            api_messages.append({"role": message.role, "content": message.content})
    for earlier in api_messages[:-1]:
        # An answered prefill is an ordinary message: a marked one must be the last message.
        earlier.pop("prefix", None)
    return api_messages


def _answer(message: Message, native_blocks: Sequence[Json] | None) -> list[Json]:
    """Return an assistant message in a list; an empty list for an empty message."""
    if native_blocks and replays_message(message, native_blocks):
        return _replay_message(message, native_blocks)
    has_text = message.text.strip()
    api_message = {"role": "assistant", "content": message.content if has_text else None}
    if calls := [function_call(call, arguments_text(call)) for call in message.tool_calls]:
        return [{**api_message, "tool_calls": calls}]
    return [api_message] if has_text else []


def _replay_message(message: Message, native_blocks: Sequence[Json]) -> list[Json]:
    api_message = without_lost_calls(message, native_blocks[0])
    audio = api_message.pop("audio", None)
    if id_ := text(member(audio, "id")):
        api_message["audio"] = {"id": id_}  # OpenAI accepts no more of a spoken answer
    elif not api_message.get("content"):
        api_message["content"] = text(member(audio, "transcript")) or api_message.get("content")
    content = api_message.get("content")
    # Thinking alone is no visible content.
    has_visible = (
        any(member(part, "type") != "thinking" for part in content)
        if isinstance(content, list)
        else content
    )
    has_content = (
        "tool_calls" in api_message
        or has_visible
        or api_message.get("refusal")
        or holds_media(api_message)
    )
    return [api_message] if has_content else []


# --- Continuation ---------------------------------------------------------------------------------

_CONTINUE_PREFILL: Final = {"continue_final_message": True, "add_generation_prompt": False}
"""The members that make vLLM and SGLang continue a last message of the assistant."""


def resume(
    request: Request,
    response: ChatResponse,
    *,
    prompt: str,
    strategy: str = Strategy.PROMPT,
    dialect: str = "",
) -> Request:
    """Return the request for the rest of a truncated response.

    The original's messages come first, unchanged.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by prefill and resend.
        strategy: `prompt`; `prefill` (the partial answer is the last message, its trailing
            whitespace stripped: servers refuse it there); `resend` (the answer verbatim, nothing
            after it).
        dialect: determines the members that make the server continue a prefill.
    """
    if (resend_request := resend(request, response, strategy)) is not None:
        return resend_request
    *earlier, last = request.messages or (Message(role="user", content=""),)
    if last.role == "assistant":
        # The truncated answer continued a prefill: both are one message, since servers refuse two
        # in a row.
        request, response = request.but(messages=earlier), _merge_prefill(last, response)
    request = request.but(
        extra={
            name: value for name, value in request.extra.items() if name not in _CONTINUE_PREFILL
        }
    )
    continuation = message_resumer(_NAME, unfinished)(
        request, response, prompt=prompt, strategy=strategy
    )
    *earlier, last = continuation.messages
    if strategy != Strategy.PREFILL or last.role != "assistant":
        return continuation
    if dialect in ("mistral", "deepseek"):
        block = (own_blocks(last, _NAME) or ({"role": "assistant", "content": last.content},))[0]
        return continuation.but(
            messages=(*earlier, last.but(blocks=Blocks(_NAME, ({**block, "prefix": True},))))
        )
    return (
        continuation.but(extra=continuation.extra | _CONTINUE_PREFILL)
        if dialect in ("vllm", "sglang")
        else continuation
    )


def _merge_prefill(prefill: Message, response: ChatResponse) -> ChatResponse:
    texts = prefill.text, response.text
    return response.but(
        text="".join(texts), blocks=together(prefill.blocks, response.blocks, texts)
    )


def unfinished(message: Json, answer_text: str | None) -> Json:
    """Return the message of a truncated response without its calls.

    Thinking is kept if visible text followed it.
    """
    content = message.get("content")
    if not content:
        return {"role": "assistant", "content": answer_text or ""}
    members = {
        name: value for name, value in message.items() if name not in ("tool_calls", "refusal")
    }
    if isinstance(content, list):
        thinking = [part for part in content if member(part, "type") not in ("text", "refusal")]
        texts = [part for part in content if member(part, "type") == "text"]
        return {
            **members,
            "content": [
                *thinking,
                *(texts if answer_text is None else [{"type": "text", "text": answer_text}]),
            ],
        }
    return members if answer_text is None else {**members, "content": answer_text}


def holds_media(message: Json) -> bool:
    """Return whether a message holds audio (OpenAI) or images (OpenRouter)."""
    return bool(message.get("audio") or message.get("images"))
