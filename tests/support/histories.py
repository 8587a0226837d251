"""Which histories an API takes, written from its documentation: each fault here is a 400 there.

    api = Api("anthropic")
    api.issued(response)       # what the API answered: its signatures and ids must come back
    assert not api.faults(body)

Each rule has the documentation that it is from beside it. A rule that needs what the API itself said
(an unmodified signature, the thinking that led to a call) is checked against what it has issued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, groupby, pairwise
from typing import Any, Final

from endturn.formats import format_of
from endturn.testing.scripted import Failure, ScriptedProvider
from endturn.testing.scripted.rendering import Received, Rendering
from endturn.testing.scripted.script import Reply
from endturn.vocabulary.messages import ChatResponse, Json, Request
from endturn.vocabulary.stop import StopReason


class Api:
    """One API, and what it has answered so far.

    Args:
        format, dialect: which.
    """

    def __init__(self, format: str, dialect: str = "") -> None:
        self.format, self.dialect = format, dialect
        self.answers: list[tuple[Json, ...]] = []
        self.pauses: list[list[Json]] = []

    def issued(self, response: ChatResponse) -> None:
        """Take note of a response's content in the format's own shape."""
        if response.blocks is not None:
            self.answers.append(response.blocks.items)
            if response.stop.reason is StopReason.PAUSED:
                self.pauses.append([*response.blocks.items])

    def faults(self, body: Mapping[str, Any]) -> list[str]:
        """What the API refuses of a request's body."""
        return [*_RULES[self.format](body, self)]

    def faults_of(self, request: Request) -> list[str]:
        """The same of a request of ours, as it is sent."""
        if request.retrieve is not None:
            return []
        return self.faults(format_of(self.format).encode(request, dialect=self.dialect))


class StrictProvider(ScriptedProvider):
    """A scripted provider that refuses a history with a 400, as the real API does.

    Attributes:
        refused: what it refused, and why.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.refused: list[str] = []
        self._apis: dict[str, Api] = {}

    def _play(self, received: Received) -> Rendering:
        api = self._apis.setdefault(received.format, Api(received.format, self.dialect))
        if faults := [] if received.request.retrieve else api.faults(received.body):
            self.refused += faults
            reply = Reply(failure=Failure(400, "invalid_request_error", "; ".join(faults)))
            return Rendering(reply, received, 0, dialect=self.dialect)
        return super()._play(received)


def _texts(parts: Sequence[Any]) -> Iterator[str]:
    for part in parts:
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            yield part["text"]


def _turns(messages: Sequence[Json], content: str) -> list[tuple[str, list[Json]]]:
    """Messages as (role, blocks), those of one role in a row combined."""
    turns: list[tuple[str, list[Json]]] = []
    for role, group in groupby(messages, key=lambda message: message.get("role", "")):
        blocks: list[Json] = []
        for message in group:
            said = message[content]
            blocks += [{"type": "text", "text": said}] if isinstance(said, str) else said
        turns.append((role, blocks))
    return turns


def _answered(
    turns: Sequence[tuple[str, list[Json]]],
    call_id: Callable[[Json], str | None],
    result_id: Callable[[Json], str | None],
) -> Iterator[str]:
    """Each call is answered in the next message, and nothing else is."""
    waiting: list[str] = []
    for role, blocks in turns:
        results = [id_ for block in blocks if (id_ := result_id(block)) is not None]
        if sorted(results) != sorted(waiting):
            yield f"the calls {waiting} are answered by results of {results}"
        calls = [id_ for block in blocks if (id_ := call_id(block)) is not None]
        if len(set(calls)) < len(calls):
            yield f"call ids are not unique: {calls}"
        waiting = calls if role in ("assistant", "model") else []
    if waiting:
        yield f"the calls {waiting} have no results"


def _kept(
    turns: Sequence[list[Json]],
    api: Api,
    *,
    is_thought: Callable[[Json], bool],
    call: Callable[[Json], str | None],
) -> Iterator[str]:
    """Thinking is unmodified, and what led to a call stands before it in its turn."""
    issued = [block for answer in api.answers for block in answer if is_thought(block)]
    led: dict[str, list[Json]] = {}
    for answer in api.answers:
        thoughts: list[Json] = []
        for block in answer:
            thoughts += [block] if is_thought(block) else []
            if (id_ := call(block)) is not None:
                led[id_] = [*thoughts]
    for blocks in turns:
        before: list[Json] = []
        for block in blocks:
            if is_thought(block):
                before.append(block)
                if api.answers and block not in issued:
                    yield "thinking was modified"
            elif (id_ := call(block)) is not None and any(each not in before for each in led.get(id_, ())):
                yield f"the thinking that led to the call {id_} is missing"


# --- Anthropic: docs.anthropic.com, "Messages", "Tool use", "Extended thinking" -----------------------


def _anthropic(body: Mapping[str, Any], api: Api) -> Iterator[str]:
    messages = body["messages"]
    if not messages or messages[0]["role"] != "user":
        yield "the first message is not the user's"  # "first message must use the user role"
    turns = _turns(messages, "content")
    for message in messages:
        blocks = [{"type": "text", "text": said}] if isinstance(said := message["content"], str) else said
        if not blocks:
            yield "a message is empty"  # "all messages must have non-empty content"
        if any(block.get("type") == "text" and not block["text"].strip() for block in blocks):
            yield "a text block is blank"  # "text content blocks must contain non-whitespace text"
    yield from _answered(
        turns,
        lambda block: block["id"] if block.get("type") == "tool_use" else None,
        lambda block: block["tool_use_id"] if block.get("type") == "tool_result" else None,
    )
    for number, (role, blocks) in enumerate(turns):
        kinds = [block.get("type", "") for block in blocks]
        if "tool_result" in kinds[next((n for n, kind in enumerate(kinds) if kind != "tool_result"), len(kinds)) :]:
            yield "a tool result comes after other content"  # "tool_result blocks must come first"
        if role != "assistant":
            continue
        if kinds[-1:] in (["thinking"], ["redacted_thinking"]):
            yield "the final block is thinking"  # "The final block in an assistant message cannot be `thinking`"
        if any(block.get("type") == "thinking" and not block.get("signature") for block in blocks):
            yield "thinking has no signature"
        served = {block.get("tool_use_id") for block in blocks}
        if number + 1 < len(turns) and any(
            block.get("type") == "server_tool_use" and block["id"] not in served for block in blocks
        ):
            yield "a server's tool use has no result"
    thinks = body.get("thinking", {}).get("type") == "enabled"
    last = turns[-1]
    if last[0] == "assistant":
        # "Handling stop reasons", `pause_turn`: "continue the conversation by sending the response back as-is"
        is_pause = any(last[1][-len(paused) :] == paused for paused in api.pauses)
        # "final assistant content cannot end with trailing whitespace"
        if not is_pause and last[1] and (said := last[1][-1].get("text", ".")) != said.rstrip():
            yield "a prefill ends in white space"
        if thinks and not is_pause and not any(block.get("type") == "server_tool_use" for block in last[1]):
            yield "a prefill with thinking"  # "You cannot pre-fill responses when thinking is enabled"
    elif thinks and len(turns) > 1 and any(block.get("type") == "tool_result" for block in last[1]):
        # "a final `assistant` message must start with a thinking block"
        starts = turns[-2][1][0].get("type")
        if starts not in ("thinking", "redacted_thinking"):
            yield "the assistant's message before tool results does not start with thinking"
    yield from _kept(
        [blocks for role, blocks in turns if role == "assistant"],
        api,
        is_thought=lambda block: "signature" in block or block.get("type") == "redacted_thinking",
        call=lambda block: block["id"] if block.get("type") == "tool_use" else None,
    )


# --- Bedrock Converse: docs.aws.amazon.com, API_runtime_Message, API_runtime_ToolUseBlock -------------


def _converse_call(block: Json) -> str | None:
    return block["toolUse"]["toolUseId"] if "toolUse" in block else None


def _bedrock_converse(body: Mapping[str, Any], api: Api) -> Iterator[str]:
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    if roles[:1] != ["user"]:
        yield "the first message is not the user's"  # "A conversation must start with a user message."
    if any(one == other for one, other in pairwise(roles)):
        yield "roles do not alternate"  # "A conversation must alternate between user and assistant roles."
    turns = _turns(messages, "content")
    if any(not blocks for _, blocks in turns):
        yield "a message is empty"
    if any(not said.strip() for _, blocks in turns for said in _texts(blocks)):
        yield "a text block is blank"  # "The text field in the ContentBlock object is blank."
    yield from _answered(
        turns, _converse_call,
        lambda block: block["toolResult"]["toolUseId"] if "toolResult" in block else None,
    )  # fmt: skip
    if "toolConfig" not in body and any(
        {"toolUse", "toolResult"} & block.keys() for _, each in turns for block in each
    ):
        yield "tools are used and not configured"  # "The toolConfig field must be defined when using toolUse …"
    for role, blocks in turns:
        if role == "assistant" and "reasoningContent" in blocks[-1]:
            yield "the final block is thinking"
        for block in blocks:
            thought = block.get("reasoningContent", {})
            if "reasoningText" in thought and not thought["reasoningText"].get("signature"):
                yield "thinking has no signature"
    if turns[-1][0] == "assistant" and (said := turns[-1][1][-1].get("text", ".")) != said.rstrip():
        yield "a prefill ends in white space"
    yield from _kept(
        [blocks for role, blocks in turns if role == "assistant"], api,
        is_thought=lambda block: "reasoningContent" in block, call=_converse_call,
    )  # fmt: skip


# --- Gemini: ai.google.dev, "Function calling", "Thought signatures" ----------------------------------


def _gemini(body: Mapping[str, Any], api: Api) -> Iterator[str]:
    turns = _turns(body["contents"], "parts")
    if not turns or any(not parts for _, parts in turns):
        yield "a content has no parts"  # "contents.parts must not be empty."
    signed: dict[tuple[str, str], set[str | None]] = {}
    for part in chain(*api.answers):
        if call := part.get("functionCall"):
            key = call["name"], repr(call.get("args") or {})
            signed.setdefault(key, set()).add(part.get("thoughtSignature"))
    waiting: list[str] = []
    for role, parts in turns:
        names = [part["functionResponse"]["name"] for part in parts if "functionResponse" in part]
        if sorted(names) != sorted(waiting):
            # "the number of function response parts is equal to the number of function call parts"
            yield f"the calls {waiting} are answered by results of {names}"
        calls = [part for part in parts if "functionCall" in part]
        waiting = [part["functionCall"]["name"] for part in calls] if role == "model" else []
        for part in calls:
            call = part["functionCall"]
            issued = signed.get((call["name"], repr(call.get("args") or {})))
            if issued is not None and part.get("thoughtSignature") not in issued:
                # "Function call `…` in the … content block is missing a `thought_signature`."
                yield f"the call of {call['name']} lost its thought signature"
    if waiting:
        yield f"the calls {waiting} have no results"


def _gemini_interactions(body: Mapping[str, Any], api: Api) -> Iterator[str]:
    steps = body.get("input", [])
    if not steps and "continuation_token" not in body:
        yield "there is no input"
    calls = [step["id"] for step in steps if step["type"] == "function_call"]
    results = [step["call_id"] for step in steps if step["type"] == "function_result"]
    if sorted(calls) != sorted(results):
        yield f"the calls {calls} are answered by results of {results}"
    for step in steps:
        if step["type"] in ("model_output", "user_input"):
            content = step.get("content")
            if not content or any(not said.strip() for said in _texts(content if isinstance(content, list) else [])):
                yield "a step is empty"
    yield from _kept(
        [steps], api, is_thought=lambda step: step["type"] == "thought" and "signature" in step,
        call=lambda step: step["id"] if step["type"] == "function_call" else None,
    )  # fmt: skip


# --- OpenAI's Responses: platform.openai.com, "Function calling", "Reasoning" -------------------------


def _openai_responses(body: Mapping[str, Any], api: Api) -> Iterator[str]:
    items = body["input"]
    kinds = [item.get("type", "message") for item in items]
    calls = [item["call_id"] for item, kind in zip(items, kinds, strict=True) if kind == "function_call"]
    outputs = [item["call_id"] for item, kind in zip(items, kinds, strict=True) if kind == "function_call_output"]
    if sorted(calls) != sorted(outputs):
        # "No tool output found for function call …", "No tool call found for function call output …"
        yield f"the calls {calls} are answered by outputs of {outputs}"
    if any(kind == "message" and not item.get("content") for item, kind in zip(items, kinds, strict=True)):
        yield "a message is empty"
    led, follows = dict[str, str](), dict[str, str]()
    for answer in api.answers:
        thought = None
        for item in answer:
            if item["type"] == "reasoning":
                thought = item["id"]
            elif thought is not None:
                follows.setdefault(thought, item["id"])
                led[item["id"]] = thought
    for number, item in enumerate(items):
        if kinds[number] == "reasoning":
            following = items[number + 1 :]
            next_ids = [each.get("id", "") for each in following if each.get("type") != "reasoning"]
            if item["id"] not in follows or led.get("".join(next_ids[:1])) != item["id"]:
                # "Item '…' of type 'reasoning' was provided without its required following item."
                yield f"the reasoning {item['id']} has lost what followed it"
            if body.get("store") is False and not item.get("encrypted_content"):
                yield f"the reasoning {item['id']} is not kept by the server"
    sent = {item["id"] for item, kind in zip(items, kinds, strict=True) if kind == "reasoning"}
    by_call = {item.get("call_id"): item["id"] for answer in api.answers for item in answer if "call_id" in item}
    for call in calls:
        thought = led.get(by_call.get(call, ""))
        if thought is not None and thought not in sent and body.get("store") is not False:
            # "Item '…' of type 'function_call' was provided without its required 'reasoning' item"
            yield f"the reasoning that led to the call {call} is missing"


# --- Chat formats ------------------------------------------------------------------------------------

_CHAT_THOUGHTS: Final = ("reasoning_content", "reasoning", "reasoning_details", "thinking")


def _chat(body: Mapping[str, Any], api: Api) -> Iterator[str]:
    messages = body["messages"]
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            id_ = message.get("tool_call_id")
            if id_ not in waiting:
                # "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"
                yield f"a result of {id_} answers no call"
            waiting = [each for each in waiting if each != id_]
            continue
        if waiting:
            # "An assistant message with 'tool_calls' must be followed by tool messages …"
            yield f"the calls {waiting} have no results"
        calls = message.get("tool_calls") or []
        waiting = [call["id"] for call in calls]
        if message["role"] != "assistant":
            continue
        content = message.get("content")
        says = content.strip() if isinstance(content, str) else content
        if not says and not calls and not message.get("refusal"):
            yield "an answer is empty"
        if isinstance(content, list) and any(not said.strip() for said in _texts(content)):
            yield "a text part is blank"
        yield from _with_thinking(message, calls, api)
    if waiting:
        yield f"the calls {waiting} have no results"
    if api.dialect == "mistral":
        roles = [message["role"] for message in messages]
        if any(one == other == "assistant" for one, other in pairwise(roles)):
            yield "two answers in a row"
        if roles[-1] == "assistant" and not messages[-1].get("prefix"):
            # "Expected last role User or Tool (or Assistant with prefix True) for serving"
            yield "the last message is an answer"
        if any(message.get("prefix") for message in messages[:-1]):
            yield "a prefix that is not last"


def _with_thinking(message: Json, calls: Sequence[Json], api: Api) -> Iterator[str]:
    """DeepSeek, "Thinking mode": the `reasoning_content` of a tool loop must be passed back, else a 400.

    OpenRouter, "Preserving reasoning"; Gemini's `extra_content` of a call likewise; Mistral's and Cohere's are parts.
    """
    for answer in api.answers:
        issued = answer[0]
        same = [(given, call) for given in issued.get("tool_calls", ()) for call in calls if given["id"] == call["id"]]
        for given, call in same:
            if given.get("extra_content") != call.get("extra_content"):
                yield f"the call {call['id']} lost its signature"
        if not same:
            continue
        for name in _CHAT_THOUGHTS:
            thought, sent = issued.get(name), message.get(name)
            if isinstance(thought, list):
                is_there = all(each in (sent or []) for each in thought)
            else:  # thinking of a part before it, a list perhaps, may stand there as well
                is_there = not thought or thought in (sent or "")
            if not is_there:
                yield f"the {name} that led to the calls is missing"
        content = issued.get("content")
        parts = [part for part in content if part.get("type") == "thinking"] if isinstance(content, list) else []
        if any(part not in (message.get("content") or []) for part in parts):
            yield "the thinking that led to the calls is missing"


def _completions(body: Mapping[str, Any], api: Api) -> Iterator[str]:
    if not isinstance(body["prompt"], str):
        yield "the prompt is no text"


def _bedrock_invoke(body: Mapping[str, Any], api: Api) -> Iterator[str]:
    yield from (_anthropic if "anthropic_version" in body else _chat)(body, api)


_RULES: Final[Mapping[str, Callable[[Mapping[str, Any], Api], Iterator[str]]]] = {
    "anthropic": _anthropic,
    "bedrock_converse": _bedrock_converse,
    "bedrock_invoke": _bedrock_invoke,
    "cohere": _chat,
    "completions": _completions,
    "gemini": _gemini,
    "gemini_interactions": _gemini_interactions,
    "ollama": _chat,
    "openai_chat": _chat,
    "openai_responses": _openai_responses,
}
