"""Replies of the servers that speak the chat format with an accent, written out by hand.

Shapes as of groq 1.7.0, mistralai 3.7.0, together 3.1.1, LM Studio's documentation of `/api/v0`, and the TextChat types
of IBM's watsonx-ai SDK; the figures of xAI's usage as its users reported them. The others (Azure OpenAI, OpenRouter,
DeepSeek, Fireworks, Cerebras, Z.AI, Moonshot, vLLM, SGLang, llama.cpp, TGI, Ollama, GitHub Copilot, LiteLLM) have no
SDK here to check them against: written after their documentation and sources of 2026, without a version to name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from endturn.formats import Context, Event, RequestSummary
from endturn.formats.framing import DONE
from endturn.stop import StopReason

Json = dict[str, Any]
HEAD: Json = {"id": "chatcmpl-7c", "created": 1763700000, "model": "m-1"}
LAST = Event(None, DONE)


@dataclass(frozen=True)
class Said:
    """What a server sent, and what it means.

    Attributes:
        body, stream: the same response, whole and streamed; None where the habit shows in one of them only.
        maximum, window: the request's limit, and the model's window, where the judgement needs them.
        tools: the names of the calls.
        output: the tokens generated, as reported.
    """

    dialect: str
    reason: StopReason
    raw: str | None
    body: Json | None = None
    stream: list[Event] | None = None
    text: str = ""
    thought: str | None = None
    tools: tuple[str, ...] = ()
    detail: str | None = None
    suspected: bool = False
    promoted: bool = False
    output: int | None = None
    maximum: int | None = None
    window: int | None = None

    @property
    def context(self) -> Context:
        """What the reader knows."""
        return Context(self.dialect, self.dialect, RequestSummary(maximum=self.maximum), self.window)


def used(prompt: int, completion: int, /, **more: Any) -> Json:
    """Usage as everyone writes it."""
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion, **more}


def whole(message: Json, reason: Any, /, choice: Json | None = None, **more: Any) -> Json:
    """A body of one choice; `choice` are further members of it, `more` of the body."""
    first = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason, **(choice or {})}
    return {**HEAD, "object": "chat.completion", "choices": [first], **more}


def bit(delta: Json, reason: Any = None, /, choice: Json | None = None, **more: Any) -> Event:
    """A chunk of one choice."""
    first = {"index": 0, "delta": delta, "finish_reason": reason, **(choice or {})}
    return Event(None, {**HEAD, "object": "chat.completion.chunk", "choices": [first], **more})


def bare(**more: Any) -> Event:
    """A chunk without a choice."""
    return Event(None, {**HEAD, "object": "chat.completion.chunk", "choices": [], **more})


def call(name: str, arguments: str = "{}", id_: str = "call_1", /, **more: Any) -> Json:
    """A tool call."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}, **more}


_SAFE = {"hate": {"filtered": False, "severity": "safe"}, "violence": {"filtered": False, "severity": "safe"}}
_UNSAFE = {**_SAFE, "violence": {"filtered": True, "severity": "medium"}}
_PROMPT_FILTER = [{"prompt_index": 0, "content_filter_results": _SAFE}]
_AZURE_FIRST = Event(
    None,
    {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": _PROMPT_FILTER},
)

AZURE = {
    "azure: the prompt's filter first": Said(
        "azure",
        StopReason.END_TURN,
        "stop",
        whole(
            {"content": "Hello.", "refusal": None},
            "stop",
            {"content_filter_results": _SAFE},
            prompt_filter_results=_PROMPT_FILTER,
            usage=used(9, 3),
        ),
        [
            _AZURE_FIRST,
            bit({"role": "assistant", "content": "", "refusal": None}, None, {"content_filter_results": {}}),
            bit({"content": "Hello."}, None, {"content_filter_results": _SAFE}),
            bit({}, "stop", {"content_filter_results": {}}),
            bare(usage=used(9, 3)),
            LAST,
        ],
        text="Hello.",
        output=3,
    ),
    "azure: the answer filtered": Said(
        "azure",
        StopReason.SAFETY_BLOCKED,
        "content_filter",
        whole(
            {"content": "The knight drew"},
            "content_filter",
            {"content_filter_results": _UNSAFE},
            prompt_filter_results=_PROMPT_FILTER,
            usage=used(9, 4),
        ),
        [
            _AZURE_FIRST,
            bit({"role": "assistant", "content": ""}),
            bit({"content": "The knight drew"}, None, {"content_filter_results": _SAFE}),
            bit({}, "content_filter", {"content_filter_results": _UNSAFE}),
            bare(usage=used(9, 4)),
            LAST,
        ],
        text="The knight drew",
        output=4,
    ),
    "azure: the asynchronous filter's notes after the end": Said(
        "azure",
        StopReason.END_TURN,
        "stop",
        stream=[
            _AZURE_FIRST,
            bit({"role": "assistant", "content": "Hello."}),
            bit({}, "stop"),
            Event(
                None,
                {
                    "id": "",
                    "object": "",
                    "created": 0,
                    "model": "",
                    "choices": [
                        {
                            "index": 0,
                            "finish_reason": None,
                            "content_filter_results": _SAFE,
                            "content_filter_offsets": {"check_offset": 44, "start_offset": 44, "end_offset": 198},
                        }
                    ],
                },
            ),
            LAST,
        ],
        text="Hello.",
    ),
    "azure: a refusal": Said(
        "azure",
        StopReason.REFUSED,
        "stop",
        whole({"content": None, "refusal": "I can't help."}, "stop", {"content_filter_results": _SAFE}),
        [
            _AZURE_FIRST,
            bit({"role": "assistant", "content": None, "refusal": ""}),
            bit({"refusal": "I can't"}),
            bit({"refusal": " help."}),
            bit({}, "stop"),
            LAST,
        ],
        text="I can't help.",
    ),
}

OPENROUTER = {
    "openrouter: length, then an error, then length": Said(
        "openrouter",
        StopReason.MAX_TOKENS,
        "MAX_TOKENS",
        stream=[
            bit({"role": "assistant", "content": "One, two"}, None, {"native_finish_reason": None}, provider="Google"),
            bit({"role": "assistant", "content": ""}, "length", {"native_finish_reason": "MAX_TOKENS"}),
            bit(
                {"role": "assistant", "content": ""},
                "length",
                {"native_finish_reason": "MAX_TOKENS"},
                error={"code": 400, "message": "Token limit reached"},
            ),
            bare(usage=used(8, 64)),
            LAST,
        ],
        text="One, two",
        detail="Token limit reached",
        output=64,
    ),
    "openrouter: the error reason": Said(
        "openrouter",
        StopReason.ERROR,
        "error",
        whole(
            {"content": "One, two"},
            "error",
            {"native_finish_reason": None, "error": {"code": 502, "message": "Upstream closed the connection"}},
        ),
        [
            bit({"role": "assistant", "content": "One, two"}),
            bit({"content": ""}, "error", error={"code": "server_error", "message": "Upstream closed the connection"}),
        ],
        text="One, two",
        detail="Upstream closed the connection",
    ),
    "openrouter: reasoning with its details": Said(
        "openrouter",
        StopReason.TOOL_CALL,
        "tool_use",
        whole(
            {
                "content": None,
                "reasoning": "I should look.",
                "reasoning_details": [{"type": "reasoning.text", "text": "I should look.", "signature": "EqQB"}],
                "tool_calls": [call("look", "{}", index=0)],
            },
            "tool_calls",
            {"native_finish_reason": "tool_use"},
            provider="Anthropic",
            usage=used(8, 20, completion_tokens_details={"reasoning_tokens": 5}, cost=0.001),
        ),
        [
            bit(
                {
                    "role": "assistant",
                    "content": "",
                    "reasoning": "I should look.",
                    "reasoning_details": [{"type": "reasoning.text", "text": "I should look."}],
                }
            ),
            bit({"role": "assistant", "content": "", "tool_calls": [call("look", "", index=0)]}),
            bit({"content": "", "tool_calls": [{"index": 0, "type": "function", "function": {"arguments": "{}"}}]}),
            bit({"content": ""}, "tool_calls", {"native_finish_reason": "tool_use"}),
            bare(usage=used(8, 20, completion_tokens_details={"reasoning_tokens": 5})),
            LAST,
        ],
        thought="I should look.",
        tools=("look",),
        output=20,
    ),
}

DEEPSEEK_USAGE = used(
    20, 9, prompt_cache_hit_tokens=16, prompt_cache_miss_tokens=4, completion_tokens_details={"reasoning_tokens": 6}
)
DEEPSEEK = {
    "deepseek: thinking beside the answer": Said(
        "deepseek",
        StopReason.END_TURN,
        "stop",
        whole({"content": "42", "reasoning_content": "six times seven"}, "stop", usage=DEEPSEEK_USAGE),
        [
            bit({"role": "assistant", "content": None, "reasoning_content": ""}),
            bit({"content": None, "reasoning_content": "six times"}),
            bit({"content": None, "reasoning_content": " seven"}),
            bit({"content": "42", "reasoning_content": None}),
            bit({"content": "", "reasoning_content": None}, "stop", usage=DEEPSEEK_USAGE),
            LAST,
        ],
        text="42",
        thought="six times seven",
        output=9,
    ),
    "deepseek: out of resources": Said(
        "deepseek",
        StopReason.ERROR,
        "insufficient_system_resource",
        whole({"content": "The tide"}, "insufficient_system_resource"),
        [
            bit({"role": "assistant", "content": "The tide"}),
            bit({"content": ""}, "insufficient_system_resource"),
            LAST,
        ],
        text="The tide",
    ),
}

GROQ = {
    "groq: usage in its own member": Said(
        "groq",
        StopReason.MAX_TOKENS,
        "length",
        whole(
            {"content": "One, two"},
            "length",
            {"logprobs": None},
            usage=used(8, 64, queue_time=0.01, prompt_time=0.001, completion_time=0.1, total_time=0.101),
            x_groq={"id": "req_1"},
        ),
        [
            bit({"role": "assistant", "content": ""}, x_groq={"id": "req_1"}),
            bit({"content": "One, two"}),
            bit({}, "length", x_groq={"id": "req_1", "usage": used(8, 64, queue_time=0.01)}),
            LAST,
        ],
        text="One, two",
        output=64,
    ),
    "groq: filtered, in chunks alone": Said(
        "groq",
        StopReason.SAFETY_BLOCKED,
        "content_filter",
        stream=[bit({"role": "assistant", "content": "Well"}), bit({}, "content_filter"), LAST],
        text="Well",
    ),
    "groq: tools that it ran itself": Said(
        "groq",
        StopReason.END_TURN,
        "stop",
        whole(
            {
                "content": "High at noon.",
                "reasoning": "Let me search.",
                "executed_tools": [{"index": 0, "type": "search", "arguments": '{"query": "tides"}', "output": "…"}],
            },
            "stop",
        ),
        [
            bit({"role": "assistant", "reasoning": "Let me search."}),
            bit({"executed_tools": [{"index": 0, "type": "search", "arguments": '{"query": "tides"}'}]}),
            bit({"content": "High at noon."}),
            bit({}, "stop"),
            LAST,
        ],
        text="High at noon.",
        thought="Let me search.",
    ),
}

# Reasoning stands beside the completion here, and within the total.
XAI_USAGE: Json = {
    "prompt_tokens": 12,
    "completion_tokens": 1,
    "total_tokens": 399,
    "prompt_tokens_details": {"text_tokens": 12, "audio_tokens": 0, "image_tokens": 0, "cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 386, "audio_tokens": 0},
    "num_sources_used": 0,
}
XAI = {
    "xai: thinking counted beside the answer": Said(
        "xai",
        StopReason.END_TURN,
        "stop",
        whole({"content": "4", "reasoning_content": "Two and two", "refusal": None}, "stop", usage=XAI_USAGE),
        [
            bit({"role": "assistant", "reasoning_content": "Two and two"}),
            bit({"role": "assistant", "content": "4"}),
            bit({"role": "assistant", "content": ""}, "stop"),
            bare(usage=XAI_USAGE),
            LAST,
        ],
        text="4",
        thought="Two and two",
        output=387,
        maximum=387,
        suspected=True,
    ),
    "xai: the whole budget thought away": Said(
        "xai",
        StopReason.MAX_TOKENS,
        "length",
        whole({"content": "", "reasoning_content": "Two and"}, "length", usage={**XAI_USAGE, "completion_tokens": 1}),
        [bit({"role": "assistant", "reasoning_content": "Two and"}), bit({}, "length"), bare(usage=XAI_USAGE), LAST],
        thought="Two and",
        output=387,
    ),
}

_THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "six times"}]}
MISTRAL = {
    "mistral: the window": Said(
        "mistral",
        StopReason.CONTEXT_WINDOW_EXCEEDED,
        "model_length",
        whole({"content": "And so", "tool_calls": None, "prefix": False}, "model_length", usage=used(131_000, 72)),
        [
            bit({"role": "assistant", "content": "And so"}),
            bit({"content": ""}, "model_length", usage=used(131_000, 72)),
        ],
        text="And so",
        output=72,
    ),
    "mistral: thinking in parts": Said(
        "mistral",
        StopReason.END_TURN,
        "stop",
        whole(
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "six times seven"}], "closed": True},
                    {"type": "text", "text": "It is "},
                    {"type": "reference", "reference_ids": [1]},
                    {"type": "text", "text": "42"},
                ]
            },
            "stop",
            usage=used(20, 9),
        ),
        [
            bit({"role": "assistant", "content": ""}),
            bit({"content": [_THOUGHT]}),
            bit({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": " seven"}], "closed": True}]}),
            bit({"content": "It "}),
            bit({"content": "is "}),
            bit({"content": [{"type": "reference", "reference_ids": [1]}]}),
            bit({"content": "42"}),
            bit({"content": ""}, "stop", usage=used(20, 9)),
            LAST,
        ],
        text="It is 42",
        thought="six times seven",
        output=9,
    ),
    "mistral: an error": Said(
        "mistral",
        StopReason.ERROR,
        "error",
        whole({"content": "And"}, "error"),
        [bit({"role": "assistant", "content": "And"}), bit({"content": ""}, "error"), LAST],
        text="And",
    ),
    "mistral: calls whole in one chunk": Said(
        "mistral",
        StopReason.TOOL_CALL,
        "tool_calls",
        whole(
            {"content": "", "tool_calls": [call("f", '{"a": 1}', "D681PevKs"), call("f", "{}", "null")]}, "tool_calls"
        ),
        [
            bit({"role": "assistant", "content": ""}),
            bit(
                {"content": "", "tool_calls": [call("f", '{"a": 1}', "D681PevKs", index=0), call("f", "{}", index=1)]},
                "tool_calls",
                usage=used(8, 30),
            ),
            LAST,
        ],
        tools=("f", "f"),
    ),
}

HOSTS = {
    "together: eos": Said(
        "together",
        StopReason.END_TURN,
        "eos",
        whole(
            {"content": "Done.", "tool_calls": []}, "eos", {"seed": 7, "logprobs": None}, prompt=[], usage=used(5, 2)
        ),
        [
            bit({"role": "assistant", "content": "Done.", "token_id": 17}, None, {"text": "Done.", "seed": None}),
            bit({"role": "assistant", "content": "", "token_id": 2}, "eos", {"text": ""}, usage=used(5, 2)),
            LAST,
        ],
        text="Done.",
        output=2,
    ),
    "together: calls under eos": Said(
        "together",
        StopReason.TOOL_CALL,
        "eos",
        whole({"content": None, "tool_calls": [call("f", index=0)]}, "eos"),
        [bit({"role": "assistant", "tool_calls": [call("f", index=0)]}), bit({"role": "assistant"}, "eos"), LAST],
        tools=("f",),
        promoted=True,
    ),
    "fireworks: usage in the last chunk": Said(
        "fireworks",
        StopReason.MAX_TOKENS,
        "length",
        whole({"content": "One, two"}, "length", usage=used(8, 16, prompt_tokens_details={"cached_tokens": 0})),
        [
            bit({"role": "assistant"}, usage=None),
            bit({"content": "One, two"}, usage=None),
            bit({}, "length", usage=used(8, 16)),
            LAST,
        ],
        text="One, two",
        output=16,
    ),
    "cerebras: usage and timing in the last chunk": Said(
        "cerebras",
        StopReason.END_TURN,
        "stop",
        whole({"content": "Done.", "reasoning": "Hm."}, "stop", usage=used(8, 6), time_info={"total_time": 0.02}),
        [
            bit({"role": "assistant", "reasoning": "Hm."}),
            bit({"content": "Done."}),
            bit({}, "stop", usage=used(8, 6), time_info={"total_time": 0.02}),
        ],
        text="Done.",
        thought="Hm.",
        output=6,
    ),
    "zai: sensitive": Said(
        "zai",
        StopReason.SAFETY_BLOCKED,
        "sensitive",
        whole({"content": "", "reasoning_content": "The user asks"}, "sensitive", request_id="20251121"),
        [
            bit({"role": "assistant", "reasoning_content": "The user asks"}),
            bit({"role": "assistant", "content": ""}, "sensitive"),
            LAST,
        ],
        thought="The user asks",
    ),
    "zai: the window": Said(
        "zai",
        StopReason.CONTEXT_WINDOW_EXCEEDED,
        "model_context_window_exceeded",
        whole({"content": "And"}, "model_context_window_exceeded"),
        [bit({"role": "assistant", "content": "And"}), bit({"content": ""}, "model_context_window_exceeded"), LAST],
        text="And",
    ),
    "zai: the network": Said(
        "zai",
        StopReason.ERROR,
        "network_error",
        whole({"content": "And"}, "network_error"),
        [bit({"role": "assistant", "content": "And"}), bit({"content": ""}, "network_error"), LAST],
        text="And",
    ),
    "moonshot: the same again and again": Said(
        "moonshot",
        StopReason.ERROR,
        "repeat",
        whole({"content": "la la la"}, "repeat", usage=used(5, 3)),
        [
            bit({"role": "assistant", "content": ""}),
            bit({"content": "la la la"}),
            bit({}, "repeat", {"usage": used(5, 3)}),
            LAST,
        ],
        text="la la la",
        detail="repetition",
        output=3,
    ),
    "watsonx: the time limit": Said(
        "watsonx",
        StopReason.ERROR,
        "time_limit",
        whole({"content": "And"}, "time_limit", model_id="ibm/granite-4", model_version="1.0.0"),
        [
            bit({"role": "assistant", "content": ""}, ""),
            bit({"content": "And"}, ""),
            bit({"content": ""}, "time_limit"),
        ],
        text="And",
        detail="timeout",
    ),
    "watsonx: cancelled": Said(
        "watsonx",
        StopReason.CANCELLED,
        "cancelled",
        whole({"content": "And"}, "cancelled"),
        [bit({"role": "assistant", "content": "And"}), bit({"content": ""}, "cancelled")],
        text="And",
    ),
    "copilot: the text in one choice, the calls in another": Said(
        "copilot",
        StopReason.TOOL_CALL,
        "tool_calls",
        {
            **HEAD,
            "choices": [
                {"finish_reason": "tool_calls", "message": {"role": "assistant", "content": "Looking."}},
                {"finish_reason": "tool_calls", "message": {"role": "assistant", "tool_calls": [call("look")]}},
            ],
            "usage": used(8, 12),
        },
        text="Looking.",
        tools=("look",),
        output=12,
    ),
    "copilot: Claude without a reason": Said(
        "copilot",
        StopReason.MISSING,
        None,
        stream=[
            bit({"role": "assistant", "content": "Looking."}),
            bit({"content": None, "tool_calls": [call("look", "{}", index=0)]}),
            bare(usage=used(8, 12)),
            LAST,
        ],
        text="Looking.",
        tools=("look",),
        output=12,
    ),
    "litellm: what it hides": Said(
        "litellm",
        StopReason.PAUSED,
        "pause_turn",
        whole(
            {"content": "Searching.", "provider_specific_fields": {"citations": None}},
            "length",
            {"provider_specific_fields": {"native_finish_reason": "pause_turn"}},
        ),
        [
            bit({"role": "assistant", "content": "Searching."}),
            bit({}, "length", {"provider_specific_fields": {"native_finish_reason": "pause_turn"}}),
            LAST,
        ],
        text="Searching.",
    ),
}

LOCAL = {
    "vllm: a call cut by the limit": Said(
        "vllm",
        StopReason.TOOL_CALL,
        "tool_calls",
        whole(
            {
                "content": None,
                "tool_calls": [call("write", '{"path": "a"}', "chatcmpl-tool-1")],
                "reasoning_content": None,
            },
            "tool_calls",
            {"stop_reason": None, "logprobs": None},
            usage=used(40, 32, prompt_tokens_details=None),
            prompt_logprobs=None,
            kv_transfer_params=None,
        ),
        [
            bit({"role": "assistant", "content": ""}),
            bit({"tool_calls": [call("write", "", "chatcmpl-tool-1", index=0)]}),
            bit({"tool_calls": [{"index": 0, "function": {"arguments": '{"path": "a"}'}}]}),
            bit({"content": ""}, "tool_calls", {"stop_reason": None}),
            bare(usage=used(40, 32)),
            LAST,
        ],
        tools=("write",),
        maximum=32,
        suspected=True,
        output=32,
    ),
    "vllm: a stop string": Said(
        "vllm",
        StopReason.END_TURN,
        "stop",
        whole({"content": "One"}, "stop", {"stop_reason": "\n\n"}),
        [bit({"role": "assistant", "content": "One"}), bit({"content": ""}, "stop", {"stop_reason": "\n\n"}), LAST],
        text="One",
        detail="\n\n",
    ),
    "vllm: a stop token": Said(
        "vllm",
        StopReason.END_TURN,
        "stop",
        whole({"content": "One"}, "stop", {"stop_reason": 128009}),
        [bit({"role": "assistant", "content": "One"}), bit({"content": ""}, "stop", {"stop_reason": 128009}), LAST],
        text="One",
    ),
    "vllm: aborted": Said(
        "vllm",
        StopReason.CANCELLED,
        "abort",
        whole({"content": "One"}, "abort", {"stop_reason": None}),
        [bit({"role": "assistant", "content": "One"}), bit({"content": ""}, "abort", {"stop_reason": None}), LAST],
        text="One",
    ),
    "vllm: repetition": Said(
        "vllm",
        StopReason.ERROR,
        "repetition",
        whole({"content": "la la"}, "repetition", {"stop_reason": "repetition_detected"}),
        [bit({"role": "assistant", "content": "la la"}), bit({"content": ""}, "repetition"), LAST],
        text="la la",
    ),
    "sglang: length, as an object": Said(
        "sglang",
        StopReason.MAX_TOKENS,
        "length",
        whole({"content": "One"}, {"type": "length", "length": 128}, {"matched_stop": None}),
        [
            bit({"role": "assistant", "content": "One"}, None, {"matched_stop": None}),
            bit({"content": ""}, {"type": "length", "length": 128}),
            LAST,
        ],
        text="One",
    ),
    "sglang: a matched string, as an object": Said(
        "sglang",
        StopReason.END_TURN,
        "stop",
        whole({"content": "One"}, {"type": "stop", "matched": "###"}),
        [bit({"role": "assistant", "content": "One"}), bit({"content": ""}, {"type": "stop", "matched": "###"}), LAST],
        text="One",
        detail="###",
    ),
    "sglang: aborted, as an object": Said(
        "sglang",
        StopReason.CANCELLED,
        "abort",
        whole({"content": "One"}, {"type": "abort", "message": "out of memory", "status_code": 500, "err_type": "x"}),
        [
            bit({"role": "assistant", "content": "One"}),
            bit({}, {"type": "abort", "message": "out of memory", "status_code": 500, "err_type": "x"}),
            LAST,
        ],
        text="One",
        detail="out of memory",
    ),
    "llamacpp: the window": Said(
        "llamacpp",
        StopReason.CONTEXT_WINDOW_EXCEEDED,
        "length",
        whole({"content": "One"}, "length", usage=used(4000, 96), timings={"prompt_n": 4000, "predicted_n": 96}),
        [
            bit({"role": "assistant", "content": None}),
            bit({"content": "One"}),
            bit({}, "length"),
            bare(usage=used(4000, 96), timings={"prompt_n": 4000, "predicted_n": 96}),
            LAST,
        ],
        text="One",
        output=96,
        window=4096,
    ),
    "tgi: a stop sequence": Said(
        "tgi",
        StopReason.END_TURN,
        "stop_sequence",
        whole({"content": "One"}, "stop_sequence", {"logprobs": None}, usage=used(5, 2)),
        [bit({"role": "assistant", "content": "One"}, "stop_sequence", usage=None), LAST],
        text="One",
    ),
    "huggingface: the end token": Said(
        "huggingface",
        StopReason.END_TURN,
        "eos_token",
        whole({"content": "One"}, "eos_token"),
        [bit({"role": "assistant", "content": "One"}), bit({"content": ""}, "eos_token"), LAST],
        text="One",
    ),
    "tgi: arguments that are an object": Said(
        "tgi",
        StopReason.TOOL_CALL,
        "stop",
        whole({"tool_calls": [{"id": "0", "function": {"name": "f", "arguments": {"a": 1}}}]}, "stop"),
        tools=("f",),
        promoted=True,
    ),
    "lmstudio: the window, as length": Said(
        "lmstudio",
        StopReason.CONTEXT_WINDOW_EXCEEDED,
        "length",
        whole({"content": "One", "tool_calls": []}, "length", {"logprobs": None}, usage=used(29_986, 14), stats={}),
        [
            bit({"role": "assistant", "content": "One"}, None, {"logprobs": None}),
            bit({}, "length", {"logprobs": None}),
            bare(usage=used(29_986, 14)),
            LAST,
        ],
        text="One",
        output=14,
        window=30_000,
    ),
    "lmstudio: the window that it reports": Said(
        "lmstudio",
        StopReason.CONTEXT_WINDOW_EXCEEDED,
        "length",
        whole(
            {"content": "One"},
            "length",
            usage=used(4000, 96),
            model_info={"arch": "granite", "quant": "Q4_K_M", "format": "gguf", "context_length": 4096},
            runtime={"name": "llama.cpp", "version": "1.3.0"},
        ),
        text="One",
        output=96,
    ),
    "lmstudio: what its engine says": Said(
        "lmstudio",
        StopReason.CONTEXT_WINDOW_EXCEEDED,
        "contextLengthReached",
        whole(
            {"content": "One"},
            "stop",
            usage=used(4000, 96),
            stats={"tokens_per_second": 51.4, "generation_time": 0.9, "stop_reason": "contextLengthReached"},
        ),
        [
            bit({"role": "assistant", "content": "One"}),
            bit(
                {}, "stop", stats={"generation_time": 0.9, "stop_reason": "contextLengthReached"}, usage=used(4000, 96)
            ),
            LAST,
        ],
        text="One",
        output=96,
    ),
    "ollama: calls under the limit, said as it is": Said(
        "ollama",
        StopReason.MAX_TOKENS,
        "length",
        whole({"content": "", "tool_calls": [call("f", "{}", "call_x", index=0)]}, "length", usage=used(9, 32)),
        [
            bit({"role": "assistant", "content": "", "tool_calls": [call("f", "{}", "call_x", index=0)]}),
            bit({"role": "assistant", "content": ""}, "length"),
            bare(usage=used(9, 32)),
            LAST,
        ],
        tools=("f",),
        output=32,
        maximum=32,
    ),
    "ollama: calls that hide the limit": Said(
        "ollama",
        StopReason.TOOL_CALL,
        "tool_calls",
        whole({"content": "", "tool_calls": [call("f", "{}", "call_x", index=0)]}, "tool_calls", usage=used(9, 32)),
        tools=("f",),
        output=32,
        maximum=32,
        suspected=True,
    ),
    "ollama: nothing but loading": Said(
        "ollama",
        StopReason.END_TURN,
        "load",
        whole({"content": ""}, "load", usage=used(0, 0), system_fingerprint="fp_ollama"),
        [bit({"role": "assistant", "content": ""}, "load"), LAST],
        detail="no_generation",
    ),
    "ollama: the connection closed": Said(
        "ollama",
        StopReason.MISSING,
        None,
        stream=[bit({"role": "assistant", "content": "One"}), bit({"role": "assistant", "content": ""}), LAST],
        text="One",
    ),
}

SAID: dict[str, Said] = {**AZURE, **OPENROUTER, **DEEPSEEK, **GROQ, **XAI, **MISTRAL, **HOSTS, **LOCAL}
