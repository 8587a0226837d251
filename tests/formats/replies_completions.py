"""Text completions as the services send them, written out by hand.

OpenAI's legacy completions (openai 3.54), vLLM and Fireworks in its format, TGI (huggingface_hub 2.4's types, TGI 3),
llama.cpp's server (b5000s, and one of before `stop_type`), SGLang 0.5's /generate, watsonx.ai's text/generation
(2023-05-02), Aleph Alpha's /complete, and the bodies of Bedrock's text models (user guide, 2023-09-30).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from openai.types import Completion

from endturn.formats import Context, Event, RequestSummary
from endturn.formats.framing import DONE

Json = dict[str, Any]
DONE_EVENT = Event(None, DONE)
SAID = "Grüezi 👋🏽, the answer is 42.\n\n  Done. "


def openai(text: str, reason: Any = "stop", /, **more: Any) -> Json:
    """A completion of one choice."""
    return {
        "id": "cmpl-Cq7",
        "object": "text_completion",
        "created": 1763700000,
        "model": "gpt-3.5-turbo-instruct",
        "choices": [{"text": text, "index": 0, "logprobs": None, "finish_reason": reason}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21},
        **more,
    }


def chunk(text: str, reason: Any = None, /, index: int = 0, **more: Any) -> Event:
    """A chunk of a completion's stream."""
    choice = {"text": text, "index": index, "logprobs": None, "finish_reason": reason, **more}
    head = {"id": "cmpl-Cq7", "object": "text_completion", "created": 1763700000, "model": "gpt-3.5-turbo-instruct"}
    return Event(None, {**head, "choices": [choice]})


def usage_chunk() -> Event:
    """The chunk after the last: usage, and no choice."""
    usage = {"prompt_tokens": 12, "completion_tokens": 9, "total_tokens": 21}
    return Event(None, {"id": "cmpl-Cq7", "model": "gpt-3.5-turbo-instruct", "choices": [], "usage": usage})


def tgi(text: str, reason: Any = "eos_token") -> Json:
    """TGI's /generate with details."""
    details = {"finish_reason": reason, "generated_tokens": 9, "seed": None, "prefill": [], "tokens": []}
    return {"generated_text": text, "details": details}


def token(index: int, text: str, *, special: bool = False, whole: str | None = None, reason: Any = None) -> Event:
    """An event of TGI's /generate_stream; the last has the whole text and the details."""
    details = {"finish_reason": reason, "generated_tokens": index, "input_length": 12, "seed": None}
    data: Json = {"index": index, "token": {"id": 7, "text": text, "logprob": -0.1, "special": special}}
    return Event(None, {**data, "generated_text": whole, "details": None if reason is None else details})


def llamacpp(text: str, kind: str = "eos", /, **more: Any) -> Json:
    """The last event, or the body, of llama.cpp's /completion."""
    return {
        "index": 0,
        "content": text,
        "tokens": [],
        "id_slot": 0,
        "stop": True,
        "model": "gguf/qwen3-8b.gguf",
        "tokens_predicted": 9,
        "tokens_evaluated": 12,
        "generation_settings": {"n_predict": 16, "seed": 1},
        "prompt": "Hello",
        "has_new_line": False,
        "truncated": False,
        "stop_type": kind,
        "stopping_word": "",
        "tokens_cached": 20,
        **more,
    }


def piece(text: str) -> Event:
    """An event of llama.cpp's stream before the last."""
    spent = {"tokens_predicted": 1, "tokens_evaluated": 12}
    return Event(None, {"index": 0, "content": text, "tokens": [5], "stop": False, "id_slot": -1, **spent})


def sglang(text: str, reason: Any = None, tokens: int = 9) -> Json:
    """A body, or an event, of SGLang's /generate: the text so far."""
    meta = {"id": "a1b2", "finish_reason": reason, "prompt_tokens": 12, "completion_tokens": tokens, "cached_tokens": 4}
    return {"text": text, "output_ids": [1, 2], "meta_info": {**meta, "weight_version": "default", "e2e_latency": 0.1}}


def watsonx(text: str, reason: str = "eos_token", asked: int = 12, answered: int = 9) -> Json:
    """A body, or an event, of watsonx's text generation."""
    result = {"generated_text": text, "generated_token_count": answered, "input_token_count": asked}
    head = {"model_id": "ibm/granite-13b-instruct-v2", "created_at": "2026-11-01T10:00:00.000Z"}
    return {**head, "results": [{**result, "stop_reason": reason}]}


def alephalpha(text: str, reason: str = "end_of_text") -> Json:
    """Aleph Alpha's /complete."""
    answer = {"completion": text, "finish_reason": reason}
    spent = {"num_tokens_prompt_total": 12, "num_tokens_generated": 9}
    return {"model_version": "2022-04", "completions": [answer], "optimized_prompt": [], **spent}


def titan(text: str, reason: str = "FINISH") -> Json:
    """A body of Amazon Titan."""
    result = {"tokenCount": 9, "outputText": text, "completionReason": reason}
    return {"inputTextTokenCount": 12, "results": [result]}


def titan_chunk(text: str, reason: str | None = None) -> Json:
    """An event of Amazon Titan's stream."""
    spent = {"totalOutputTextTokenCount": 9 if reason else None, "inputTextTokenCount": 12 if reason else None}
    return {"outputText": text, "index": 0, **spent, "completionReason": reason}


def llama(text: str, reason: str | None = "stop", asked: int | None = 12, answered: int = 9) -> Json:
    """A body, or an event, of Meta's Llama on Bedrock."""
    spent = {"prompt_token_count": asked, "generation_token_count": answered}
    return {"generation": text, **spent, "stop_reason": reason}


def mistral(text: str, reason: str | None = "stop") -> Json:
    """A body, or an event, of Mistral's text models on Bedrock."""
    return {"outputs": [{"text": text, "stop_reason": reason}]}


def command(text: str, reason: str = "COMPLETE") -> Json:
    """A body of Cohere Command on Bedrock."""
    return {"id": "g-1", "generations": [{"id": "g-1-0", "text": text, "finish_reason": reason}], "prompt": "Hello"}


def generation(text: str, reason: str = "COMPLETE") -> Json:
    """A body of Cohere's own /v1/generate."""
    billed = {"input_tokens": 10.0, "output_tokens": 9.0}
    meta = {"api_version": {"version": "1"}, "billed_units": billed, "tokens": {**billed, "input_tokens": 12.0}}
    return {**command(text, reason), "meta": meta}


def ai21(text: str, reason: Any) -> Json:
    """A body of AI21's Jurassic-2."""
    return {
        "id": 1234,
        "prompt": {"text": "Hello", "tokens": []},
        "completions": [{"data": {"text": text, "tokens": []}, "finishReason": reason}],
    }


def claude(text: str, reason: str | None = "stop_sequence", stop: str | None = "\n\nHuman:") -> Json:
    """A body, or an event, of Claude's text completion."""
    return {"type": "completion", "completion": text, "stop_reason": reason, "stop": stop if reason else None}


def events(*data: Json) -> list[Event]:
    """A stream of events without names."""
    return [Event(None, each) for each in data]


BODIES: dict[str, Json] = {
    "text": openai(SAID),
    "length": openai("The answer is", "length"),
    "content_filter": openai("Well, ", "content_filter"),
    "empty": openai(""),
    "unknown": openai("Hm", "tired"),
    "null": openai("Hm", None),
    "cached": openai(
        "x", usage={"prompt_tokens": 9, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 8}}
    ),
    "no usage": {"choices": [{"text": "x", "index": 0, "finish_reason": "stop"}]},
    "several": openai(
        "one",
        choices=[
            {"text": "one", "index": 0, "finish_reason": "length"},
            {"text": "two", "index": 1, "finish_reason": "stop"},
        ],
    ),
    "vllm: abort": openai("Hm", "abort"),
    "vllm: repetition": openai("ha ha ha ha", "repetition"),
    "vllm: stop string": openai(
        "One, two", choices=[{"text": "One, two", "index": 0, "finish_reason": "stop", "stop_reason": "three"}]
    ),
    "vllm: stop token": openai(
        "One", choices=[{"text": "One", "index": 0, "finish_reason": "stop", "stop_reason": 128009}]
    ),
    "fireworks: error": openai("", "error"),
    "tgi: text": tgi(SAID),
    "tgi: length": tgi("The answer", "length"),
    "tgi: stop sequence": tgi("One\n", "stop_sequence"),
    "tgi: no details": {"generated_text": "Hm"},
    "llamacpp: text": llamacpp(SAID),
    "llamacpp: word": llamacpp("One", "word", stopping_word="###"),
    "llamacpp: limit": llamacpp("The answer", "limit"),
    "llamacpp: full": llamacpp("The answer", "limit", truncated=True),
    "llamacpp: none": llamacpp("Hm", "none"),
    "sglang: text": sglang(SAID, {"type": "stop", "matched": 128009}),
    "sglang: string": sglang("One", {"type": "stop", "matched": "###"}),
    "sglang: length": sglang("The answer", {"type": "length", "length": 9}),
    "sglang: abort": sglang(
        "", {"type": "abort", "message": "Abort in waiting queue", "status_code": 503, "err_type": None}
    ),
    "watsonx: text": watsonx(SAID),
    "watsonx: max_tokens": watsonx("The answer", "max_tokens"),
    "watsonx: time_limit": watsonx("The answer", "time_limit"),
    "alephalpha: text": alephalpha(SAID),
    "alephalpha: maximum": alephalpha("The answer", "maximum_tokens"),
    "titan: text": titan(SAID),
    "titan: length": titan("The answer", "LENGTH"),
    "titan: filtered": titan("Sorry", "CONTENT_FILTERED"),
    "llama: text": llama(SAID),
    "llama: length": llama("The answer", "length"),
    "mistral: text": mistral(SAID),
    "mistral: length": mistral("The answer", "length"),
    "command: text": command(SAID),
    "command: length": command("The answer", "MAX_TOKENS"),
    "command: toxic": command("", "ERROR_TOXIC"),
    "command: timeout": command("The", "TIMEOUT"),
    "command: cohere": generation("The answer", "MAX_TOKENS"),
    "ai21: text": ai21(SAID, {"reason": "endoftext"}),
    "ai21: length": ai21("The answer", {"reason": "length", "length": 9}),
    "ai21: stop": ai21("One", {"reason": "stop", "sequence": "##"}),
    "claude_text: text": claude(SAID),
    "claude_text: length": claude("The answer", "max_tokens", None),
}

STREAMS: dict[str, list[Event]] = {
    "text": [*[chunk(f"wörd {i} ") for i in range(150)], chunk("", "stop"), usage_chunk(), DONE_EVENT],
    "length": [chunk("The "), chunk("answer", "length"), DONE_EVENT],
    "cut": [chunk("The "), chunk("answer")],
    "two prompts": [chunk("b", None, 1), chunk("a"), chunk("", "length", 1), chunk("A"), chunk("", "stop"), DONE_EVENT],
    "error after length": [chunk("So", "length"), Event(None, {"error": {"message": "too late"}}), DONE_EVENT],
    "tgi: text": [
        token(1, "Gr"),
        token(2, "üezi 👋🏽"),
        token(3, "</s>", special=True, whole="Grüezi 👋🏽", reason="eos_token"),
    ],
    "tgi: length": [token(1, "One"), token(2, " two", whole="One two", reason="length")],
    "llamacpp: text": [piece("One"), piece(" two"), Event(None, llamacpp(""))],
    "llamacpp: full": [piece("One"), Event(None, llamacpp("", "limit", truncated=True))],
    "sglang: text": [
        *events(
            sglang("Gr", None, 1), sglang("Grüezi", None, 2), sglang("Grüezi 👋🏽", {"type": "stop", "matched": 2}, 3)
        ),
        DONE_EVENT,
    ],
    "sglang: apart": [
        *events(sglang("One", None, 1), sglang(" two", None, 2), sglang(" two", {"type": "length", "length": 3}, 3)),
        DONE_EVENT,
    ],
    "watsonx: text": events(
        watsonx("", "not_finished", 12, 0),
        watsonx("One", "not_finished", 0, 1),
        watsonx(" two", "not_finished", 0, 2),
        watsonx("", "eos_token", 0, 3),
    ),
    "watsonx: cut": events(watsonx("One", "not_finished", 12, 1)),
    "alephalpha: text": [
        *events(
            {"type": "stream_chunk", "index": 0, "completion": "One"},
            {"type": "stream_chunk", "index": 0, "completion": " two"},
            {"type": "stream_summary", "index": 0, "model_version": "2022-04", "finish_reason": "maximum_tokens"},
            {
                "type": "completion_summary",
                "num_tokens_prompt_total": 12,
                "num_tokens_generated": 9,
                "optimized_prompt": [],
            },
        ),
        DONE_EVENT,
    ],
    "titan: text": events(titan_chunk("One"), titan_chunk(" two", "FINISH")),
    "llama: text": events(llama("One", None, 12, 1), llama(" two", None, None, 2), llama("", "length", None, 2)),
    "mistral: text": events(mistral("One", None), mistral(" two", None), mistral("", "stop")),
    "command: text": events(
        {"is_finished": False, "text": "One"},
        {"is_finished": False, "text": " two"},
        {"is_finished": True, "finish_reason": "COMPLETE"},
    ),
    "command: cohere": events(
        {"event_type": "text-generation", "text": "One", "is_finished": False},
        {"event_type": "text-generation", "text": " two", "is_finished": False},
        {
            "event_type": "stream-end",
            "is_finished": True,
            "finish_reason": "MAX_TOKENS",
            "response": {**command("One two", "MAX_TOKENS"), "id": "g-1"},
        },
    ),
    "command: cohere's error": events(
        {"event_type": "text-generation", "text": "One", "is_finished": False},
        {"event_type": "stream-error", "is_finished": True, "finish_reason": "ERROR_LIMIT", "err": "too long"},
    ),
    "claude_text: text": [
        Event("completion", claude(" One", None)),
        Event("ping", {"type": "ping"}),
        Event("completion", claude("", "stop_sequence")),
    ],
}


def context(name: str) -> Context:
    """The dialect that a reply's name begins with."""
    dialect, colon, _ = name.partition(": ")
    return Context(dialect if colon else "", "acme", RequestSummary(maximum=1000))


def body_object(body: Json) -> Any:
    """A body as the SDK hands it out, which knows OpenAI's shape alone."""
    return cast(Any, Completion).construct(**body) if "choices" in body else body


def event_objects(stream: Sequence[Event]) -> list[Any]:
    """A stream's events as the SDK hands them out; errors it raises itself."""
    return [
        body_object(event.data) if "error" not in event.data else event.data for event in stream if event.data != DONE
    ]
