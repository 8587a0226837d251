"""Bodies as ten APIs answer, signatures and reasoning items among them, of one short description.

A part is `("think", id)`, `("text", text)` or `("call", id, arguments)`; arguments as text are cut.
The shapes are those of the APIs' references; `BODIES` has one function for each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from endturn.formats.read_reply import read
from endturn.vocabulary.messages import ChatResponse, Json

Part = tuple[Any, ...]
NAME: Final = "search"


def _object(arguments: Any) -> Json:
    """What a server makes of a cut call's arguments where it sends objects."""
    return arguments if isinstance(arguments, dict) else {}


def _text(arguments: Any) -> str:
    return json.dumps(arguments) if isinstance(arguments, dict) else str(arguments)


def anthropic(reason: str, parts: Sequence[Part]) -> Json:
    """A message."""
    words = {"cut": "max_tokens", "call": "tool_use", "end": "end_turn", "pause": "pause_turn"}
    content: list[Json] = []
    for part in parts:
        match part:
            case ("think", ""):  # cut before its signature
                content.append({"type": "thinking", "thinking": "Hm, then", "signature": ""})
            case ("think", id_):
                content.append({"type": "thinking", "thinking": f"about {id_}", "signature": f"sig-{id_}"})
            case ("text", text):
                content.append({"type": "text", "text": text})
            case ("call", id_, arguments):
                content.append({"type": "tool_use", "id": id_, "name": NAME, "input": _object(arguments)})
            case ("server", id_):
                use = {"type": "server_tool_use", "id": id_, "name": "web_search", "input": {"query": "x"}}
                content.append(use)
            case ("served", id_):
                content.append({"type": "web_search_tool_result", "tool_use_id": id_, "content": []})
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": content,
        "stop_reason": words[reason], "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 20},
    }  # fmt: skip


def bedrock_converse(reason: str, parts: Sequence[Part]) -> Json:
    """An answer of Converse."""
    words = {"cut": "max_tokens", "call": "tool_use", "end": "end_turn"}
    content: list[Json] = []
    for part in parts:
        match part:
            case ("think", ""):
                content.append({"reasoningContent": {"reasoningText": {"text": "Hm, then"}}})
            case ("think", id_):
                thought = {"text": f"about {id_}", "signature": f"sig-{id_}"}
                content.append({"reasoningContent": {"reasoningText": thought}})
            case ("text", text):
                content.append({"text": text})
            case ("call", id_, arguments):
                content.append({"toolUse": {"toolUseId": id_, "name": NAME, "input": _object(arguments)}})
    return {
        "output": {"message": {"role": "assistant", "content": content}}, "stopReason": words[reason],
        "usage": {"inputTokens": 3, "outputTokens": 20, "totalTokens": 23},
    }  # fmt: skip


def gemini(reason: str, parts: Sequence[Part]) -> Json:
    """A response of generateContent: the first call of a step brings the signature of its thinking."""
    words = {"cut": "MAX_TOKENS", "call": "STOP", "end": "STOP", "pause": "CONTINUATION"}
    written: list[Json] = []
    signature = None
    for part in parts:
        match part:
            case ("think", id_):
                signature = f"sig-{id_}" if id_ else None
                written.append({"text": "Hm, then", "thought": True})
            case ("text", text):
                written.append({"text": text})
            case ("call", id_, arguments):
                signed = {"thoughtSignature": signature} if signature and isinstance(arguments, dict) else {}
                written.append({"functionCall": {"name": NAME, "args": _object(arguments)}, **signed})
                signature = None
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 20, "totalTokenCount": 23}
    content = {"role": "model", "parts": written}
    return {
        "candidates": [{"content": content, "finishReason": words[reason], "index": 0}],
        "usageMetadata": usage, "modelVersion": "m", "responseId": "r",
    }  # fmt: skip


def gemini_interactions(reason: str, parts: Sequence[Part]) -> Json:
    """An interaction."""
    words = {"cut": "incomplete", "call": "requires_action", "end": "completed"}
    steps: list[Json] = []
    for part in parts:
        match part:
            case ("think", id_):
                signed = {"signature": f"sig-{id_}"} if id_ else {}
                steps.append({"type": "thought", **signed, "summary": [{"type": "text", "text": "Hm, then"}]})
            case ("text", text):
                steps.append({"type": "model_output", "content": [{"type": "text", "text": text}]})
            case ("call", id_, arguments):
                steps.append({"type": "function_call", "id": id_, "name": NAME, "arguments": _object(arguments)})
    usage = {"total_input_tokens": 3, "total_output_tokens": 20, "total_tokens": 23}
    return {
        "id": "v1_1",
        "object": "interaction",
        "model": "m",
        "status": words[reason],
        "steps": steps,
        "usage": usage,
    }


def openai_responses(reason: str, parts: Sequence[Part]) -> Json:
    """A response."""
    is_cut = reason == "cut"
    state = "incomplete" if is_cut else "completed"
    output: list[Json] = []
    for number, part in enumerate(parts):
        of = next((each[1] for each in parts if each[0] == "think"), "")
        match part:
            case ("think", id_):
                thought = {"type": "reasoning", "id": f"rs_{id_}", "summary": [], "encrypted_content": f"enc-{id_}"}
                output.append(thought)
            case ("text", text):
                said = [{"type": "output_text", "text": text, "annotations": []}]
                id_ = f"msg_{of}_{number}"
                output.append({"type": "message", "id": id_, "role": "assistant", "status": state, "content": said})
            case ("call", id_, arguments):
                about = {"call_id": id_, "name": NAME, "arguments": _text(arguments)}
                status = "completed" if isinstance(arguments, dict) else "incomplete"
                output.append({"type": "function_call", "id": f"fc_{id_}", "status": status, **about})
    details = {"reason": "max_output_tokens"} if is_cut else None
    return {
        "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": state, "error": None,
        "incomplete_details": details, "output": output, "parallel_tool_calls": True, "tool_choice": "auto",
        "tools": [],
        "usage": {"input_tokens": 3, "output_tokens": 20, "total_tokens": 23},
    }  # fmt: skip


def _functions(parts: Sequence[Part], *, signed: bool = False) -> list[Json]:
    calls = [part for part in parts if part[0] == "call"]
    beside = {"extra_content": {"google": {"thought_signature": "sig"}}} if signed else {}
    return [
        {"id": id_, "type": "function", "function": {"name": NAME, "arguments": _text(arguments)}, **beside}
        for _, id_, arguments in calls
    ]


def _joined(parts: Sequence[Part], kind: str) -> str:
    return "".join(part[1] for part in parts if part[0] == kind)


def _chat(reason: str, message: Json) -> Json:
    words = {"cut": "length", "call": "tool_calls", "end": "stop"}
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": words[reason]}
    usage = {"prompt_tokens": 3, "completion_tokens": 20, "total_tokens": 23}
    return {"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": usage}


def deepseek(reason: str, parts: Sequence[Part]) -> Json:
    """A chat completion with the thinking beside the content."""
    thought = {"reasoning_content": f"about {_joined(parts, 'think')}"} if any(p[0] == "think" for p in parts) else {}
    calls = {"tool_calls": calls} if (calls := _functions(parts)) else {}
    return _chat(reason, {"content": _joined(parts, "text"), **thought, **calls})


def openrouter(reason: str, parts: Sequence[Part]) -> Json:
    """A chat completion with OpenRouter's reasoning details, which bring the upstream's signature."""
    thoughts = [
        {"type": "reasoning.text", "text": f"about {part[1]}", "signature": f"sig-{part[1]}", "index": 0}
        for part in parts
        if part[0] == "think"
    ]
    details = {"reasoning_details": thoughts} if thoughts else {}
    calls = {"tool_calls": calls} if (calls := _functions(parts)) else {}
    return _chat(reason, {"content": _joined(parts, "text") or None, **details, **calls})


def gemini_compatible(reason: str, parts: Sequence[Part]) -> Json:
    """A chat completion of Gemini's compatible endpoint: a call brings its signature beside it."""
    calls = {"tool_calls": calls} if (calls := _functions(parts, signed=True)) else {}
    return _chat(reason, {"content": _joined(parts, "text") or None, **calls})


def mistral(reason: str, parts: Sequence[Part]) -> Json:
    """A chat completion in parts."""
    content: list[Json] = []
    for part in parts:
        if part[0] == "think":
            content.append({"type": "thinking", "thinking": [{"type": "text", "text": f"about {part[1]}"}]})
        elif part[0] == "text":
            content.append({"type": "text", "text": part[1]})
    calls = {"tool_calls": calls} if (calls := _functions(parts)) else {}
    return _chat(reason, {"content": content or "", **calls})


def mistral_plain(reason: str, parts: Sequence[Part]) -> Json:
    """A chat completion of a Mistral model that does not think: it takes a prefix."""
    calls = {"tool_calls": calls} if (calls := _functions(parts)) else {}
    return _chat(reason, {"content": _joined(parts, "text"), **calls})


def cohere(reason: str, parts: Sequence[Part]) -> Json:
    """A chat response, v2."""
    words = {"cut": "MAX_TOKENS", "call": "TOOL_CALL", "end": "COMPLETE"}
    content: list[Json] = []
    for part in parts:
        if part[0] == "think":
            content.append({"type": "thinking", "thinking": f"about {part[1]}"})
        elif part[0] == "text":
            content.append({"type": "text", "text": part[1]})
    calls = {"tool_calls": calls} if (calls := _functions(parts)) else {}
    usage = {"tokens": {"input_tokens": 3, "output_tokens": 20}}
    message = {"role": "assistant", "content": content, **calls}
    return {"id": "x", "finish_reason": words[reason], "message": message, "usage": usage}


def ollama(reason: str, parts: Sequence[Part]) -> Json:
    """A chat response: calls without an end of their own."""
    words = {"cut": "length", "call": "stop", "end": "stop"}
    calls = [
        {"id": part[1], "function": {"name": NAME, "arguments": _object(part[2])}}
        for part in parts
        if part[0] == "call"
    ]
    thought = {"thinking": f"about {_joined(parts, 'think')}"} if any(p[0] == "think" for p in parts) else {}
    message = {
        "role": "assistant",
        "content": _joined(parts, "text"),
        **thought,
        **({"tool_calls": calls} if calls else {}),
    }
    figures = {"prompt_eval_count": 3, "eval_count": 20}
    return {"model": "m", "message": message, "done": True, "done_reason": words[reason], **figures}


BODIES: Final[Mapping[str, tuple[str, str, str, Callable[[str, Sequence[Part]], Json]]]] = {
    "anthropic": ("anthropic", "", "anthropic", anthropic),
    "bedrock_converse": ("bedrock_converse", "", "aws.bedrock", bedrock_converse),
    "bedrock_invoke": ("bedrock_invoke", "", "aws.bedrock", anthropic),
    "cohere": ("cohere", "", "cohere", cohere),
    "gemini": ("gemini", "", "gcp.gemini", gemini),
    "gemini_interactions": ("gemini_interactions", "", "gcp.gemini", gemini_interactions),
    "gemini, compatible": ("openai_chat", "gemini", "gcp.gemini", gemini_compatible),
    "deepseek": ("openai_chat", "deepseek", "deepseek", deepseek),
    "mistral": ("openai_chat", "mistral", "mistral_ai", mistral),
    "mistral, not thinking": ("openai_chat", "mistral", "mistral_ai", mistral_plain),
    "ollama": ("ollama", "", "ollama", ollama),
    "openrouter": ("openai_chat", "openrouter", "openrouter", openrouter),
    "openai_responses": ("openai_responses", "", "openai", openai_responses),
}
"""Name → its format, dialect, provider, and how it writes an answer."""


def response(api: str, reason: str, *parts: Part) -> ChatResponse:
    """An answer of an API, read by its format's reader."""
    format, _, provider, write = BODIES[api]
    return read(write(reason, parts), format=format, provider=provider)
