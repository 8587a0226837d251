"""The chat completions format, as OpenAI wrote it and as everyone else speaks it.

A reply is a list of choices: whole, each with a `message`, or streamed, with a `delta` in each chunk. A message holds
text (or parts of content), thinking, a refusal, calls, and what a server adds, which a replay sends back. Beside the
choices stand id, model, usage, and an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from endturn.chat import Blocks, ChatResponse, Json, Message, Request, Usage
from endturn.events import Strategy
from endturn.formats.encoding import encoded
from endturn.formats.fold import Fold, joined
from endturn.formats.format import Format
from endturn.formats.next_request import own_blocks, resent, resumes_message, without_lost_calls
from endturn.formats.parts import Block, Call, End, Fault, Head, Part, Reason, Reasoning, Text, Tokens, Window, usage_in
from endturn.formats.reading import arguments, count, first, items, member, minted, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, routed_by
from endturn.formats.summaries import Context, Voice
from endturn.stop import Row, StopReason, find_row, raw_text
from endturn.stop_reasons import rows_of

NAME: Final = "openai_chat"

# --- Replies ----------------------------------------------------------------------------------------------------------

# DeepSeek, vLLM, Moonshot, Qwen write the first; OpenRouter, Groq, newer vLLM the second. Of both, the first counts.
_THINKING: Final = ("reasoning_content", "reasoning")
_PLAIN: Final = frozenset({"role", "content"})
"""The members of a delta that does nothing but speak."""
_CALLS: Final = ("tool_calls", "function_call")
"""The last is the one call of a message, as OpenAI had it before tools; it has no id."""
_CALL: Final = frozenset({"index", "id", "type", "function", "custom"})
"""The members of a call that are read; what stands beside them goes back as it is: Gemini's thought signatures."""
_NATIVE: Final = "native_finish_reason"
"""What the model behind a gateway said."""
_NO_REASON: Final = frozenset({"null", "None"})
"""What some servers write for a reason that has not come: the word, as text."""
_BESIDE: Final = ("usage", "error", "x_groq", "model_info", "base_resp", "errors")
"""What is read of a chunk beside its choices."""


@dataclass(slots=True)
class _Call:
    """A call while it arrives. `pieces` are its arguments, where no id tells it from the next call."""

    number: int
    choice: int
    index: Any
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)


class Reader:
    """Reads chunks, or one body."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._keep, self._rows = keep, rows_of(NAME, ctx.dialect)
        self._merges = ctx.asked.choices == 1
        self._begun: set[int] = set()
        self._calls: list[_Call] = []
        self._seed: object = None
        self._named = self._streamed = self._in_parts = False

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of a chunk or a body."""
        if not isinstance(event, dict):
            return
        get = event.get
        if not self._named:
            id_, model = text_or_none(get("id")), text_or_none(get("model"))
            self._named = id_ is not None and model is not None
            self._seed = self._seed or id_ or get("created")
            yield Head(id_, model)
        for position, choice in enumerate(items(get("choices"))):
            if not isinstance(choice, dict):
                continue
            index = count(choice.get("index"))
            index = position if index is None else index
            delta = choice.get("delta")
            said = delta.get("content") if delta.__class__ is dict and delta.keys() <= _PLAIN else None
            if said.__class__ is str and said and not self._in_parts:
                self._streamed = True
                yield Text(said, index)
            elif isinstance(delta, dict) and (self._streamed or _holds(delta) or not _holds(choice.get("message"))):
                self._streamed = True
                yield from self._message(index, delta)
            elif isinstance(message := choice.get("message"), dict) and not self._streamed:
                # At the end of a stream, as MiniMax sends it, it repeats all that was said. In Perplexity's bodies an
                # empty delta stands beside it.
                yield End(whole=True)
                yield from self._message(index, message)
            if choice.get("finish_reason") is not None or index not in self._begun:
                self._begun.add(index)
                yield self._reason(index, choice, event)
            if error := choice.get("error"):
                yield Fault(error)
            if (own := choice.get("usage")) and (usage := usage_of(own)):  # Moonshot
                yield Tokens(usage)
        if any(map(get, _BESIDE)):
            yield from _beside(event)

    def _message(self, index: int, part: Json) -> Iterator[Part]:
        """A delta, or a message."""
        visible, thinking, declined = _said(part)
        if thinking:
            yield Reasoning(thinking, index)
        if visible or declined:
            yield Text(visible + declined, index, refusal=declined != "")
        keeps = self._keep and (index == 0 or self._merges)
        if keeps and (beside := self._kept(part)):
            yield Block("message", beside)
        legacy = part.get("function_call")
        only = [{"index": -1, "function": legacy}] if _holds(legacy) else ()  # Snowflake's has empty members
        for fragment in (*items(part.get("tool_calls")), *only):
            if isinstance(fragment, dict):
                yield (call := self._call(index, fragment))
                if keeps:
                    beside = {
                        name: value for name, value in fragment.items() if name not in _CALL and value is not None
                    }
                    is_custom = fragment.get("custom") and not fragment.get("function")
                    yield Block(call.key, {**beside, "kind": "custom" if is_custom else None})

    def _kept(self, part: Json) -> Json:
        """The members of a message that a replay sends, but for its calls, and for text, which the fold has."""
        content, audio = part.get("content"), part.get("audio")
        self._in_parts = self._in_parts or isinstance(content, list)
        kept = {name: value for name, value in part.items() if value not in (None, "") and name not in _CALLS}
        kept.pop("role", None)
        if isinstance(content, dict) or (isinstance(content, str) and self._streamed):
            kept.pop("content", None)
            if self._in_parts and content:
                kept["content"] = [{"type": "text", "text": content}]
        if isinstance(audio, dict) and self._streamed:
            # Without the sound: each chunk's is encoded for itself, and no API wants it back.
            kept["audio"] = {name: value for name, value in audio.items() if value is not None and name != "data"}
        return kept

    def _call(self, choice: int, fragment: Json) -> Call:
        """A call, or a piece of one."""
        body = fragment.get("function") or fragment.get("custom")
        id_, name = text(fragment.get("id")), text(member(body, "name"))
        id_ = "" if id_ == "null" else id_  # what Mistral's API once sent, and its SDK says, where there is none
        piece = _object_or_text(first(body, "arguments", "input"))  # older servers of Hugging Face's give an object
        index = fragment.get("index")
        call = self._found(choice, index, id_, name, piece) if self._streamed else None
        if call is None:
            call = _Call(len(self._calls), choice, index, id_, name)
            self._calls.append(call)
        call.name = call.name or name
        if not call.id:
            call.pieces.append(piece)
        return Call(call.number, call.id or minted(self._seed, call.number), call.name, piece, choice)

    def _found(self, choice: int, index: Any, id_: str, name: str, piece: str) -> _Call | None:
        """The call that a fragment goes on with; None where it begins one.

        Gemini's and other servers' chat endpoints give every parallel call the same index, or none: there a new id with
        a name begins a new call. A new id alone does not: some servers mint one for every chunk. Without any id,
        another name begins one, or the same name with arguments that begin anew when an object of them is whole: some
        servers name the call in every chunk.
        """
        same = [call for call in self._calls if call.choice == choice and index in (None, call.index)]
        known = next((call for call in same if id_ and call.id == id_), None)
        if known is not None or not same:
            return known
        last = same[-1]
        begins = name and (id_ or (last.name and name != last.name))
        anew = name and piece.lstrip().startswith("{") and arguments("".join(last.pieces)) is not None
        return None if begins or anew else last

    def _reason(self, index: int, choice: Json, event: Json) -> Reason:
        raw = choice.get("finish_reason")
        own = None if isinstance(raw, str) and raw in _NO_REASON else raw_text(raw)
        # OpenRouter's, LiteLLM's; and what stopped the engine of LM Studio, in its own API.
        native = choice.get(_NATIVE) or member(choice.get("provider_specific_fields"), _NATIVE)
        if index == 0:
            native = member(event.get("stats"), "stop_reason") or native
        # vLLM, SGLang: the stop string that matched. A number is a token's, and says nothing to a reader.
        matched = choice.get("stop_reason") or choice.get("matched_stop") or member(raw, "matched")
        detail = text_or_none(matched) or text_or_none(member(raw, "message"))
        return Reason(_chosen(own, raw_text(native), self._rows), index, detail, own)


def _holds(part: Any) -> bool:
    """Whether a message, a delta or a call holds anything beside its role."""
    return isinstance(part, dict) and any(value for name, value in part.items() if name != "role")


def _object_or_text(said: Any) -> str:
    """Text, or as JSON the object that a server made of it: Cloudflare's does of an answer in JSON."""
    return json.dumps(said, ensure_ascii=False) if isinstance(said, dict) else text(said)


def _said(part: Json) -> tuple[str, str, str]:
    """The visible text, the thinking and the refusal of a message or delta.

    The transcript of a spoken answer is visible text: it is what the user hears. Beside text it is the same once more.
    """
    content = part.get("content")
    visible, declined = _object_or_text(content), text(part.get("refusal"))
    thinking = next((said for name in _THINKING if (said := text(part.get(name)))), "")
    for piece in items(content):  # Mistral answers, and everyone is asked, in parts.
        match member(piece, "type"):
            case "text":
                visible += text(member(piece, "text"))
            case "refusal":
                declined += text(member(piece, "refusal"))
            case "thinking":
                inner = member(piece, "thinking")
                thinking += text(inner) or "".join(text(member(each, "text")) for each in items(inner))
    return visible or text(member(part.get("audio"), "transcript")), thinking, declined


def _chosen(raw: str | None, native: str | None, rows: Mapping[str, Row]) -> str | None:
    """The raw value that counts: a gateway's upstream's where it has a row, unless it hides that the answer is cut."""
    if raw is None or native is None:
        return raw
    above, below = find_row(raw, rows), find_row(native, rows)
    hides = above is not None and above.incomplete and below is not None and not below.incomplete
    return raw if below is None or hides else native


def _beside(event: Json) -> Iterator[Part]:
    """What stands beside the choices."""
    if usage := usage_of(event.get("usage") or member(event.get("x_groq"), "usage")):
        yield Tokens(usage)
    # LM Studio: the window that the model was loaded with.
    if window := count(member(event.get("model_info"), "context_length")):
        yield Window(window)
    if error := _error_in(event):
        yield Fault(error)


def _error_in(event: Any) -> Any:
    """The error that a body or a chunk reports: OpenAI's, Groq's beside it, the first of watsonx', MiniMax' status."""
    base, errors = member(event, "base_resp"), items(member(event, "errors"))
    code = count(member(base, "status_code"))
    said = text(member(base, "status_msg"))
    failed = {"code": str(code), "type": f"minimax_{code}", "message": said} if code else None
    return member(event, "error") or member(member(event, "x_groq"), "error") or next(iter(errors), failed)


def _failed(data: Any) -> Any:
    """The error that stands where an answer should; flat ones too: Cerebras', Mistral's, older vLLM's."""
    if not isinstance(data, Mapping) or data.get("choices"):
        return None
    is_flat = isinstance(data.get("message"), str) and ("code" in data or "type" in data)
    if is_flat or data.get("error") or data.get("errors"):
        return data
    error = data.get("base_resp") and _error_in(data)
    return {"error": error} if error else None


def usage_of(said: Any) -> Usage | None:
    """Tokens as the chat format counts them: cached ones are part of the prompt's, reasoning of the completion's.

    xAI, and some gateways before Gemini, count reasoning beside the completion: the total tells
    (https://docs.x.ai/docs/key-information/consumption-and-rate-limits).
    """
    found = usage_in(NAME, said)
    if found is not None and found.reasoning_tokens and found.output_tokens is not None:
        apart = found.output_tokens + found.reasoning_tokens
        if count(member(said, "total_tokens")) == (found.input_tokens or 0) + apart:
            return replace(found, output_tokens=apart)
    return found


def _blocks(fold: Fold) -> Iterable[Json]:
    """The one message, as the server would have it back."""
    kept = fold.blocks
    message: Json = {"role": "assistant", "content": None, **kept.pop("message", {})}
    if all(name in message for name in _THINKING):
        del message[_THINKING[1]]
    if message["content"] is None:  # What was said as text, but for what stands in members of its own.
        apart = (text(message.get("refusal")), text(member(message.get("audio"), "transcript")))
        message["content"] = "".join(fold.text).removesuffix(apart[0]).removesuffix(apart[1]) or None
    for name in () if fold.whole else ("content", "reasoning_details"):
        if isinstance(message.get(name), list):
            message[name] = _entries(message[name])
    for key, call in fold.calls.items():
        if (beside := kept.get(key)) is None:  # of a choice that does not count
            continue
        kind, holder = ("custom", "input") if beside.pop("kind") == "custom" else ("function", "arguments")
        written = {"id": call.id, "type": kind, kind: {"name": call.name, holder: "".join(call.pieces)}, **beside}
        message.setdefault("tool_calls", []).append(written)
    if fold.text or fold.reasoning or "tool_calls" in message or _shows(message):
        yield message


_IN_PIECES: Final = ("text", "thinking", "refusal", "summary", "data")
"""The members of a part or an entry that arrive in pieces."""


def _entries(pieces: Iterable[Any]) -> list[Any]:
    """The entries of a list that a stream sends in pieces: the parts of a content, OpenRouter's reasoning details."""
    entries: list[Any] = []
    for piece in pieces:
        if entries and _goes_on(entries[-1], piece):
            entries[-1] = joined((entries[-1], piece))
        else:
            entries.append(piece)
    return entries


def _goes_on(last: Any, piece: Any) -> bool:
    """Whether a piece belongs to the entry before it. A signature ends one: a provider refuses it beside other text."""
    kind, ids = text(member(piece, "type")), {member(last, "id"), member(piece, "id")} - {None}
    has_words = kind in _IN_PIECES or kind.startswith("reasoning.")
    alike = all(member(last, name) == member(piece, name) for name in ("type", "index")) and len(ids) < 2
    # Encrypted data says nothing of what it belongs to but its index.
    alone = member(last, "signature") or (member(piece, "data") and member(piece, "index") is None)
    return has_words and alike and not alone


def _shows(message: Json) -> bool:
    """Whether a message holds an answer that is not words: sound (OpenAI), pictures (OpenRouter)."""
    return bool(message.get("audio") or message.get("images"))


# --- Requests ---------------------------------------------------------------------------------------------------------

_GOES_ON: Final = {"continue_final_message": True, "add_generation_prompt": False}
"""How vLLM and SGLang are told to go on with a last message that is the assistant's own."""
_PATH: Final = (
    rf"(?:{SEGMENTS}/v1)?/chat/completions|{SEGMENTS}/openai/deployments/(?P<model>[^/]+)/chat/completions"
    rf"|(?:{SEGMENTS}/v1)?/text/chat(?P<stream>_stream)?"
)


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of POST /chat/completions, in a dialect's names."""
    body = encoded(NAME, request, stream=stream, dialect=dialect, replay=_replayed)
    for written in body["messages"][:-1]:
        # A prefill that was answered is a message like any other: marked, it may only be the last.
        written.pop("prefix", None)
    return body


def _replayed(message: Message, own: Sequence[Json]) -> list[Json]:
    written = without_lost_calls(message, own[0])
    audio = written.pop("audio", None)
    if id_ := text(member(audio, "id")):
        written["audio"] = {"id": id_}  # All that OpenAI takes back of an answer that was spoken.
    elif not written.get("content"):
        written["content"] = text(member(audio, "transcript")) or written.get("content")
    content = written.get("content")
    # Thinking alone says nothing.
    says = any(member(part, "type") != "thinking" for part in content) if isinstance(content, list) else content
    speaks = "tool_calls" in written or says or written.get("refusal") or _shows(written)
    return [written] if speaks else []


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that asks for the rest of a cut response. The original's messages stand first, unchanged.

    Args:
        prompt: the nudge; the last user message, marked synthetic. Not used by prefill and resend.
        strategy: `prompt`; `prefill` (the partial answer is the last message, its trailing whitespace stripped: servers
            refuse it there); `resend` (the answer verbatim, nothing after it).
        dialect: how a server is told to go on with a prefill.
    """
    if (again := resent(request, cut, strategy)) is not None:
        return again
    *before, last = request.messages or (Message(role="user", content=""),)
    if last.role == "assistant":
        # The answer that was cut went on with a prefill: both are one message, and servers take no two in a row.
        request, cut = request.but(messages=before), cut.but(text=last.text + cut.text, blocks=None)
    request = request.but(extra={name: value for name, value in request.extra.items() if name not in _GOES_ON})
    found = resumes_message(NAME, _visible)(request, cut, prompt=prompt, strategy=strategy)
    *before, last = found.messages
    if strategy != Strategy.PREFILL or last.role != "assistant":
        return found
    if dialect in ("mistral", "deepseek"):
        block = (own_blocks(last, NAME) or ({"role": "assistant", "content": last.content},))[0]
        return found.but(messages=(*before, last.but(blocks=Blocks(NAME, ({**block, "prefix": True},)))))
    return found.but(extra=found.extra | _GOES_ON) if dialect in ("vllm", "sglang") else found


def _visible(message: Json, said: str) -> Json:
    """The message of a cut response without its calls. Thinking that led to visible text goes back with it."""
    content = message.get("content")
    if not content:
        return {"role": "assistant", "content": said}
    kept = {name: value for name, value in message.items() if name not in ("tool_calls", "refusal")}
    if isinstance(content, list):
        before = [part for part in content if member(part, "type") not in ("text", "refusal")]
        return {**kept, "content": [*before, {"type": "text", "text": said}]}
    return {**kept, "content": said}


def _says(response: ChatResponse, stop: str | None, dialect: str) -> Json:
    # Mistral sends a call whole, and its SDK takes nothing else.
    is_whole = dialect == "mistral"
    return {"at_once": is_whole or None, "pieces": not is_whole or None}


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    # A refusal is a member of the message, and its reason is the usual one.
    voice=Voice("chatcmpl-", "call_", "x-request-id", {StopReason.REFUSED: "stop"}),
    paths={"": "/chat/completions", "watsonx": "/text/chat[|_stream]"},
    routed=routed_by(_PATH),
    body=encode,
    resume=resume,
    reader=Reader,
    called=("a chat completion", "a chunk of a chat stream"),
    needs=("choices",),
    objects=("choices[].delta", "choices[].message"),
    failed=_failed,
    blocks=_blocks,
    closes_calls=False,
    splits=True,
    says=_says,
)
