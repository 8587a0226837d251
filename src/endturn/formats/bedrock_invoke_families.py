"""Which format a model of Bedrock speaks when it is invoked: by its id, else by the shape of what is said."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from endturn.chat import Json
from endturn.formats import completions, format_of
from endturn.formats.format import Format
from endturn.formats.reading import items, member, text
from endturn.formats.summaries import Context


class Family(NamedTuple):
    """The models that share a format: the format that reads it, and that format's dialect."""

    format: str
    dialect: str = ""

    @property
    def inner(self) -> Format:
        """The format."""
        return format_of(self.format)

    def context(self, ctx: Context) -> Context:
        """What that format must know."""
        return Context(self.dialect, ctx.provider, ctx.asked, ctx.window)


FAMILIES: Final[Mapping[str, Family]] = {
    "claude": Family("anthropic", "bedrock"),
    "nova": Family("bedrock_converse"),
    "command_r": Family("cohere", "v1"),
    "chat": Family("openai_chat", "compatible"),
    "text": Family("completions"),
    "titan": Family("completions", "titan"),
    "llama": Family("completions", "llama"),
    "mistral": Family("completions", "mistral"),
    "command": Family("completions", "command"),
    "ai21": Family("completions", "ai21"),
    "claude_text": Family("completions", "claude_text"),
}
"""dialect of `bedrock_invoke` → the family. "chat" is OpenAI's chat format, "text" its completions."""

CHAT: Final = FAMILIES["chat"]

# The beginning of a model's id → its family; the first that fits. User guide, "Inference request parameters".
_MODELS: Final = (
    # Claude's own replies name it without its maker.
    (r"(?:anthropic\.)?claude-(?:v?[12]\b|instant)", "claude_text"),
    (r"anthropic\.|claude-", "claude"),
    (r"amazon\.nova", "nova"),
    (r"amazon\.titan", "titan"),
    (r"meta\.llama", "llama"),
    # The later ones, and these too where they are asked with messages, speak chat.
    (r"mistral\.(?:mistral-7b|mixtral|mistral-large-2402|mistral-small-2402)", "mistral"),
    (r"cohere\.command-r", "command_r"),
    (r"cohere\.command", "command"),
    (r"ai21\.j2", "ai21"),
    (r"deepseek\.r1", "text"),
    (r"(?:mistral|ai21|deepseek|openai|qwen|google|minimax|moonshot|moonshotai|nvidia|writer|zai)\.", "chat"),
)

# The beginnings of the ids of models that embed, rank, paint or speak: none says why it stopped.
_SILENT: Final = re.compile(
    r"amazon\.(?:titan-(?:embed|e1t|image)|nova-(?:\d+-)?(?:multimodal-embed|canvas|reel|sonic)|rerank)"
    r"|cohere\.(?:embed|rerank)|twelvelabs\.marengo|stability\.|luma\."
    r"|[a-z\d]+\.[\w-]*(?:embed|rerank)"  # those to come
)

# An inference profile's id begins with where it routes to; an ARN ends with the id.
_REGION: Final = re.compile(r"(?:us|us-gov|eu|apac|jp|au|ca|sa|me|af|il|uk|global)\.")

_WRITING: Final = (
    *("messages", "message", "inferenceConfig", "inputPrompt"),
    *("max_tokens", "max_tokens_to_sample", "max_gen_len", "maxTokens", "max_new_tokens", "max_completion_tokens"),
)
"""What only a request to write has; a prompt is of pictures, too."""
_OTHER: Final = (
    # Embeddings: of Titan, Nova, Cohere, Marengo, Hugging Face.
    *("dimensions", "embeddingConfig", "embeddingTypes", "taskType", "texts", "input_type", "embedding_types"),
    *("inputType", "inputImage", "encoding_format", "text_inputs"),
    # Pictures: of Stability, Luma.
    *("text_prompts", "aspect_ratio", "output_format", "negative_prompt", "style_preset", "cfg_scale", "image"),
)
"""What only requests for something else have. Nova's pictures are a `taskType`, too."""
_VECTORS: Final = ("embedding", "embeddings", "embeddingsByType")

_MESSAGES: Final = re.compile(r"error|message(?:_start|_delta|_stop)?|content_block_(?:start|delta|stop)")
_COHERE: Final = re.compile(r"(?:message|content|tool-plan|tool-call|citation)-(?:start|delta|end)")
_CONVERSE: Final = (
    *("messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"),
)


def of(model: str) -> Family | None:
    """The family of a model's id (an inference profile's and an ARN too), or of a dialect; None where it is unknown."""
    if model in FAMILIES:
        return FAMILIES[model]
    id_ = _named(model)
    return next((FAMILIES[name] for pattern, name in _MODELS if re.match(pattern, id_)), None)


def _named(model: str) -> str:
    return _REGION.sub("", model.rpartition("/")[2], count=1)


def generates(body: Mapping[str, Any]) -> bool:
    """Whether a request's body, `model` in it, asks a model to write: by the model's id, else by what is asked for.

    An inference profile's ARN may hide an id. Where nothing tells, it is taken to.
    """
    model = text(body.get("model"))
    if _SILENT.match(_named(model)):
        return False
    if of(model) is not None or any(name in body for name in _WRITING):
        return True
    if any(name in body for name in _OTHER) or ("query" in body and "documents" in body):
        return False
    # Titan's text models are given a limit along with it; to embed a text, it is enough.
    return "inputText" not in body or "textGenerationConfig" in body


def spoken(ctx: Context, said: Any) -> Family | None:
    """The family that a body, or the first event of a stream, is of.

    What is said counts above the model's id, for some models speak two formats; of text completions, the id tells the
    dialect.
    """
    known, found = of(ctx.dialect or ctx.asked.model), told(said)
    if known is None or found is None:
        return found or known
    return known if known.format == found.format == "completions" else found


def told(said: Any) -> Family | None:
    """The family whose words these are, by their shape; None where it does not tell."""
    ranked = (member(each, "relevance_score") for each in items(member(said, "results")))
    if any(each is not None for each in (*(member(said, name) for name in _VECTORS), *ranked)):
        return None
    kind = text(member(said, "type"))
    if _MESSAGES.fullmatch(kind):
        return FAMILIES["claude"]
    if member(member(said, "output"), "message") is not None or any(member(said, name) for name in _CONVERSE):
        return FAMILIES["nova"]
    if any(member(said, name) is not None for name in ("event_type", "generation_id", "chat_history")):
        return FAMILIES["command_r"]
    if _COHERE.fullmatch(kind) or isinstance(member(said, "message"), Mapping):
        return Family("cohere")  # v2, as `api_version` in the request asks for.
    choices = member(said, "choices")
    if choices is not None:
        if any(member(choice, name) is not None for choice in items(choices) for name in ("message", "delta")):
            return CHAT
        return FAMILIES["text"] if items(choices) else None
    dialect = completions.told(said, "")
    return None if dialect is None else Family("completions", dialect)


def asked(body: Mapping[str, Any]) -> Family:
    """The family that a request's body is written for, `model` in it."""
    known = of(text(body.get("model")))
    if known is not None and (known.format != "completions" or "messages" not in body):
        return known
    if "anthropic_version" in body:
        return FAMILIES["claude"]
    if isinstance(body.get("message"), str):
        return FAMILIES["command_r"]
    if "inferenceConfig" in body or "schemaVersion" in body:
        return FAMILIES["nova"]
    if "messages" in body:
        return CHAT
    return Family("completions", completions.asked_in(body))


def with_reasons(said: Json) -> Json:
    """A reply of OpenAI's format whose choices say `stop_reason` where the format has `finish_reason`.

    Mistral's chat and DeepSeek-R1 do on Bedrock (user guide, "Mistral AI chat completion", "DeepSeek models").
    """
    return {**said, "choices": [_with_reason(each) for each in items(said.get("choices"))]}


def _with_reason(choice: Any) -> Any:
    if member(choice, "stop_reason") is None or member(choice, "finish_reason") is not None:
        return choice
    return {**choice, "finish_reason": choice["stop_reason"], "stop_reason": None}
