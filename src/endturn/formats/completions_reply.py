"""Our responses as a service of text completion would send them: for a provider that plays a script."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from endturn.chat import ChatResponse, Json, Usage
from endturn.errors import UsageError
from endturn.formats.completions_reader import NAME
from endturn.formats.completions_shapes import FULL
from endturn.formats.framing import DONE
from endturn.formats.openai_chat import reply_error as reply_error
from endturn.formats.reading import raw_reason
from endturn.formats.summaries import Event
from endturn.stop import Row
from endturn.stop_reasons import COMPATIBLE, rows_of

_WORD: Final = re.compile(r"\s*\S+|\s+")
_ENDED: Final = frozenset({"", "llamacpp", "alephalpha"})
"""Dialects whose last event says nothing but that it is the last."""


def reply(response: ChatResponse, *, stream: bool, dialect: str = "") -> Json | list[Event]:
    """A response as the service of that dialect would send it: a body, or the events of a stream.

    Raises:
        UsageError: the service does not stream.
    """
    rows = rows_of(NAME, dialect or COMPATIBLE)
    writer = _Writer(response, dialect, raw_reason(response.stop, rows), _matched(response, rows))
    if not stream:
        return writer.body()
    if dialect == "ai21":
        raise UsageError("AI21's text models do not stream")
    return [Event("completion" if dialect == "claude_text" else None, data) for data in writer.events()]


def _matched(response: ChatResponse, rows: Mapping[str, Row]) -> str | None:
    """The stop sequence that ended the answer, as far as the Stop's detail is more than what its row says."""
    stop = response.stop
    row = rows.get(stop.raw or "")
    return None if row is None or stop.detail == row.detail else stop.detail


class _Writer:
    """One response in one dialect's words."""

    def __init__(self, response: ChatResponse, dialect: str, raw: str | None, matched: str | None) -> None:
        self._response = response
        self._dialect = dialect
        self._raw = raw
        self._matched = matched
        self._usage = response.usage or Usage()

    def body(self) -> Json:
        """The whole answer."""
        text, raw, usage, response = self._response.text, self._raw, self._usage, self._response
        match self._dialect:
            case "tgi":
                details: Json = {"finish_reason": raw, "generated_tokens": usage.output_tokens or 0, "prefill": []}
                return {"generated_text": text, "details": {**details, "tokens": [], "seed": None}}
            case "titan":
                result = {"tokenCount": usage.output_tokens or 0, "outputText": text, "completionReason": raw}
                return {"inputTextTokenCount": usage.input_tokens or 0, "results": [result]}
            case "command":
                generation = {"id": response.id, "text": text, "finish_reason": raw}
                return {"id": response.id, "generations": [generation], "prompt": ""}
            case "alephalpha":
                answer: Json = {"completion": text, "finish_reason": raw}
                return {"model_version": "2024-01", "completions": [answer], **self._counted()}
            case "ai21":
                answer = {"data": {"text": text, "tokens": []}, "finishReason": {"reason": raw}}
                return {"id": 1, "prompt": {"text": "", "tokens": []}, "completions": [answer]}
            case _:
                body = self._chunk(text, raw, text)
                return {**body, **self._counted()} if self._dialect == "" else body

    def events(self) -> list[Json | str]:
        """The answer in pieces; without its end where the response has none."""
        response, raw = self._response, self._raw
        words = _WORD.findall(response.text)
        if not response.stop.terminal_seen:
            raw = None
        elif self._dialect in _ENDED or not words:
            words.append("")
        events: list[Json | str] = []
        so_far = ""
        for position, word in enumerate(words):
            so_far += word
            last = position == len(words) - 1 and raw is not None
            events.append(self._chunk(word, raw if last else None, so_far, last=last, index=position))
        if response.stop.terminal_seen:
            events += self._afterwards()
        return events

    def _chunk(self, text: str, raw: str | None, so_far: str, *, last: bool = True, index: int = 0) -> Json:
        """One event of a stream; of services whose bodies look the same, the body too."""
        usage, response = self._usage, self._response
        asked, answered = usage.input_tokens or 0, usage.output_tokens or 0
        match self._dialect:
            case "tgi":
                details = {"finish_reason": raw, "generated_tokens": answered, "input_length": asked, "seed": None}
                token = {"id": 0, "text": text, "logprob": 0.0, "special": False}
                ending = {"generated_text": so_far if last else None, "details": details if last else None}
                return {"index": index + 1, "token": token, **ending}
            case "llamacpp":
                if not last:
                    return {"index": 0, "content": text, "tokens": [], "stop": False, "id_slot": 0}
                full = raw == FULL
                kind = {"stop_type": "limit" if full else raw or "none", "truncated": full}
                spent: Json = {"tokens_predicted": answered, "tokens_evaluated": asked}
                named = {"model": response.model or "scripted", "stopping_word": self._matched or ""}
                return {"index": 0, "content": text, "stop": True, **named, **spent, **kind}
            case "sglang":
                reason: Json | None = None if raw is None else {"type": raw}
                if reason is not None and self._matched:
                    reason["message" if raw == "abort" else "matched"] = self._matched
                meta: Json = {"id": response.id, "finish_reason": reason, "prompt_tokens": asked}
                return {"text": so_far, "meta_info": {**meta, "completion_tokens": answered, "cached_tokens": 0}}
            case "watsonx":
                result = {"generated_text": text, "generated_token_count": answered, "input_token_count": asked}
                result["stop_reason"] = raw or "not_finished"
                return {"model_id": response.model, "created_at": "2026-11-01T00:00:00.000Z", "results": [result]}
            case "titan":
                spent = {"totalOutputTextTokenCount": answered if last else None, "inputTextTokenCount": asked}
                return {"outputText": text, "index": 0, **spent, "completionReason": raw}
            case "llama":
                spent = {"prompt_token_count": asked, "generation_token_count": answered}
                return {"generation": text, **spent, "stop_reason": raw}
            case "mistral":
                return {"outputs": [{"text": text, "stop_reason": raw}]}
            case "command":
                return {"is_finished": last, "text": text, **({"finish_reason": raw} if last else {})}
            case "claude_text":
                return {"type": "completion", "completion": text, "stop_reason": raw, "stop": self._matched}
            case "alephalpha":
                if last:
                    return {"type": "stream_summary", "index": 0, "model_version": "2024-01", "finish_reason": raw}
                return {"type": "stream_chunk", "index": 0, "completion": text}
            case _:
                choice: Json = {"text": text, "index": 0, "logprobs": None, "finish_reason": raw}
                if raw is not None and self._matched:
                    choice["stop_reason"] = self._matched
                return {**self._head(), "choices": [choice]}

    def _head(self) -> Json:
        """What OpenAI's bodies and chunks begin with. What the response does not say is left out."""
        known = {"id": self._response.id, "model": self._response.model}
        return {"object": "text_completion", "created": 0} | {
            n: value for n, value in known.items() if value is not None
        }

    def _counted(self) -> Json:
        """What a body says of its tokens."""
        usage = self._response.usage
        if usage is None:
            return {}
        asked, answered = usage.input_tokens or 0, usage.output_tokens or 0
        if self._dialect == "alephalpha":
            return {"num_tokens_prompt_total": asked, "num_tokens_generated": answered}
        # A figure that is not known is left out.
        known = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
        written: Json = {name: tokens for name, tokens in known.items() if tokens is not None}
        written["total_tokens"] = asked + answered
        if usage.cache_read_tokens is not None:
            written["prompt_tokens_details"] = {"cached_tokens": usage.cache_read_tokens}
        if usage.reasoning_tokens is not None:
            written["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning_tokens}
        return {"usage": written}

    def _afterwards(self) -> list[Json | str]:
        """What follows the last event of the answer."""
        counted = self._counted()
        if self._dialect == "alephalpha":
            return [{"type": "completion_summary", **counted}, DONE]
        if self._dialect == "":
            return [*([{**self._head(), "choices": [], **counted}] if counted else []), DONE]
        return [DONE] if self._dialect == "sglang" else []
