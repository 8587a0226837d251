"""Requests for text completion, with the member names of each service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from endturn.calls import Strategy
from endturn.formats.reading import items, text
from endturn.formats.request_summary import summarize_request
from endturn.formats.settings import with_extra
from endturn.formats.summaries import RequestSummary
from endturn.vocabulary import ChatResponse, Json, Message, Request

_NAME: Final = "completions"

BEDROCK: Final = frozenset({"titan", "llama", "mistral", "command", "ai21", "claude_text"})
"""The dialects that are families of Bedrock's models."""


class _RequestMembers(NamedTuple):
    """A service's names for the members of a request; "" for a member that it lacks.

    Attributes:
        settings: the object that holds limit, temperature and seed; "" if they are next to the
            prompt.
        model: "" where only the path names the model.
    """

    prompt: str = "prompt"
    limit: str = "max_tokens"
    settings: str = ""
    seed: str = ""
    model: str = ""


_MEMBERS: Final[Mapping[str, _RequestMembers]] = {
    "": _RequestMembers(seed="seed", model="model"),
    "tgi": _RequestMembers("inputs", "max_new_tokens", "parameters", seed="seed"),
    "llamacpp": _RequestMembers(limit="n_predict", seed="seed", model="model"),
    "sglang": _RequestMembers("text", "max_new_tokens", "sampling_params"),
    "titan": _RequestMembers("inputText", "maxTokenCount", "textGenerationConfig"),
    "watsonx": _RequestMembers(
        "input", "max_new_tokens", "parameters", seed="random_seed", model="model_id"
    ),
    "llama": _RequestMembers(limit="max_gen_len"),
    "mistral": _RequestMembers(),
    "command": _RequestMembers(),
    "claude_text": _RequestMembers(limit="max_tokens_to_sample"),
    "alephalpha": _RequestMembers(limit="maximum_tokens", model="model"),
    "ai21": _RequestMembers(limit="maxTokens"),
}
"""dialect → its members, in the order in which a request of an unknown dialect is tried."""

_PATH_STREAMS: Final = frozenset({"tgi", "watsonx"}) | (BEDROCK - {"command"})
"""The dialects whose path requests a stream or not."""
_CLAUDE_LIMIT: Final = 4_096
"""The default output limit for Claude's text format, which requires one."""

# --- Writing --------------------------------------------------------------------------------------


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """Write the body of a request for text; the APIs have no tools and no JSON format.

    The prompt for a single user message is its text. For several messages, it is a plain
    transcript: system messages as they are, `User: …`, `Assistant: …`, `Tool: …`, a blank line
    between, and `Assistant: ` at the end (Claude's text format: `Human:` and `Assistant:`, always).
    The text of assistant messages at the very end follows the prompt as it is: the answer begins
    with it.

    Args:
        dialect: determines all names. Bedrock's families have the model only in the path.
    """
    is_openai = dialect == "" or dialect not in _MEMBERS
    members = _MEMBERS["" if is_openai else dialect]
    body: Json = {members.model: request.model} if members.model else {}
    body[members.prompt] = _prompt(request.messages, claude=dialect == "claude_text")
    settings = _settings(request, members, dialect)
    body |= {members.settings: settings} if members.settings and settings else settings
    if stream and dialect not in _PATH_STREAMS:
        body["stream"] = True
        if is_openai:
            # Without usage, an answer that reached its limit looks complete.
            body["stream_options"] = {"include_usage": True}
    return with_extra(body, request.extra)


def _settings(request: Request, members: _RequestMembers, dialect: str) -> Json:
    is_tgi = dialect == "tgi"
    # Without `details`, TGI's reply has no stop reason. It refuses a temperature of 0, and samples
    # only with `do_sample`.
    settings: Json = {"details": True} if is_tgi else {}
    limit = request.max_tokens or (_CLAUDE_LIMIT if dialect == "claude_text" else None)
    if limit is not None:
        settings[members.limit] = limit
    if request.temperature is not None:
        if not is_tgi or request.temperature > 0:
            settings["temperature"] = request.temperature
        if is_tgi:
            settings["do_sample"] = request.temperature > 0
    if request.seed is not None and members.seed:
        settings[members.seed] = request.seed
    return settings


_SPEAKERS: Final = {"user": "User: ", "assistant": "Assistant: ", "tool": "Tool: ", "system": ""}
_CLAUDE: Final = {
    "user": "\n\nHuman: ",
    "assistant": "\n\nAssistant: ",
    "tool": "Tool: ",
    "system": "",
}


def _prompt(messages: tuple[Message, ...], *, claude: bool) -> str:
    end = len(messages)
    while end and messages[end - 1].role == "assistant":
        end -= 1
    history, prefill = messages[:end], "".join(message.text for message in messages[end:])
    is_alone = len(history) == 1 and history[0].role == "user"
    if not history or (is_alone and (not claude or _CLAUDE["user"].rstrip() in history[0].text)):
        return (history[0].text if history else "") + prefill
    speakers = _CLAUDE if claude else _SPEAKERS
    entries = [speakers[message.role] + message.text for message in history if message.text]
    model = speakers["assistant"].rstrip() if claude else speakers["assistant"]
    return ("" if claude else "\n\n").join([*entries, model]) + prefill


def resume(
    request: Request,
    response: ChatResponse,
    *,
    prompt: str,
    strategy: str = Strategy.PROMPT,
    dialect: str = "",
) -> Request:
    """Return the request that continues a truncated response: the prompt, then the text so far.

    All strategies send the same, without a nudge: these formats continue a text. Trailing white
    space is stripped, since a model writes it again with its next word.
    """
    prefix = response.text.rstrip()
    partial = (
        (response.message().but(content=prefix, tool_calls=(), blocks=None),) if prefix else ()
    )
    return request.but(messages=(*request.messages, *partial))


# --- Reading --------------------------------------------------------------------------------------


def dialect_of(body: Mapping[str, Any]) -> str:
    """Return the dialect of a request by its members; "" for OpenAI's, or if all share them."""
    for dialect, members in _MEMBERS.items():
        is_own = members.prompt != "prompt" or members.limit in body
        if dialect and is_own and members.limit != "max_tokens" and members.prompt in body:
            return dialect
    return ""


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """Summarize a call of an SDK, or a request body of any dialect.

    The first text of several prompts counts. Token ids are not text.
    """
    dialect = dialect_of(kwargs)
    prompt = kwargs.get(_MEMBERS[dialect].prompt)
    prompts = items(prompt)
    count = len(prompts) if prompts and isinstance(prompts[0], str | list) else 1
    first_text = text(prompt) or next(
        (text(entry) for entry in prompts if isinstance(entry, str)), ""
    )
    history = ({"role": "user", "content": first_text},) if first_text else ()
    summary = summarize_request(_NAME, kwargs, history=history)
    summary.stream_usage = summary.stream_usage or dialect != ""
    if count == 1:
        return summary
    return summary.with_facts(choice_count=count * summary.facts.choice_count)
