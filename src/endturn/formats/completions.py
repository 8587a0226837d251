"""Formats that continue a text prompt: OpenAI's legacy completions, and a dialect for every service with its own.

A reply is an answer, or lists several: each with a text, and a reason once it stops. Beside them stand figures of
usage, or an error. An event of a stream is read as a body is. `data/completion_shapes.tsv` says where a service has
what.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, reduce
from typing import Any, Final

from endturn.chat import ChatResponse, Json, Message, Request, Usage
from endturn.events import Strategy
from endturn.formats.format import Format
from endturn.formats.parts import Fault, Head, Part, Reason, Text, Tokens, Vocabulary
from endturn.formats.reading import count, items, member, text, text_or_none
from endturn.formats.request_summary import SEGMENTS, asked, routed_by
from endturn.formats.scripting import words
from endturn.formats.settings import with_extra
from endturn.formats.summaries import TAIL, Context, RequestSummary, Voice
from endturn.stop import find_row, raw_text
from endturn.stop_reasons import rows_of
from endturn.tables import lines, shipped

NAME: Final = "completions"
_FULL: Final = "limit+truncated=true"
"""llama.cpp's reason where the window was full."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Where one service's requests and replies hold what: members, or paths of them; "" where they do not.

    Attributes:
        prompt: the request's member that holds the prompt.
        settings: the member that holds limit, temperature and seed; "" where they stand beside the prompt.
        limit, seed: their names.
        names: the member that names the model; "" where only the path does.
        heads: members by any of which a reply of this shape is known.
        answers: the member that lists the answers; "" where the reply is the answer.
        index: an answer's member that says which it is; "" where its place does.
        text, reason, matched: from an answer, what it says, why it stopped, and on which stop sequence.
        spent: field of Usage → where its figure stands, first from the answer, then from the reply.
        id, by: the response's id and model.
    """

    prompt: str = "prompt"
    settings: str = ""
    limit: str = "max_tokens"
    seed: str = ""
    names: str = ""
    heads: tuple[str, ...] = ()
    answers: str = ""
    index: str = ""
    text: str = ""
    reason: str = ""
    matched: str = ""
    id: str = "id"
    by: str = "model"
    spent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def fits(self, reply: Any) -> bool:
        """Whether a reply, or an event of a stream, is of this shape."""
        return _has(reply, self.heads)

    def answers_in(self, reply: Any) -> Any:
        """The answers of a reply or an event: a list's, those that it lists, or itself."""
        listed = reply if isinstance(reply, list) else member(reply, self.answers)
        return (reply,) if listed is None else items(listed)


def _has(thing: Any, names: Iterable[str]) -> bool:
    for name in names:  # noqa: SIM110 - a generator costs twice as much, and this is asked of every event
        if member(thing, name) is not None:
            return True
    return False


def _shapes() -> Mapping[str, Shape]:
    found: dict[str, dict[str, Any]] = {}
    for _, (dialect, name, where) in lines(shipped(), "completion_shapes.tsv", range(3, 4)):
        shape = found.setdefault(dialect, {"spent": {}})
        if name.endswith("_tokens"):
            shape["spent"][name] = tuple(where.split())
        else:
            shape[name] = tuple(where.split()) if name == "heads" else where
    return {dialect: Shape(**shape) for dialect, shape in found.items()}


SHAPES: Final = _shapes()
"""dialect → its shape, in the order in which a reply is tried where nobody said whose it is."""


@cache
def _at(path: str) -> Callable[[Any], Any]:
    """What reads the end of a path of members."""
    names = path.split(".")
    return (lambda thing: reduce(member, names, thing)) if len(names) > 1 else lambda thing: member(thing, path)


def _text(answer: Any) -> Any:
    """A choice's text, or an event of Writer's, which is nothing but its `value`."""
    said = member(answer, "text")
    return member(answer, "value") if said is None else said


def _tgi_text(answer: Any) -> Any:
    """A body's whole text, or an event's token; special ones, such as the end's, are no part of the text."""
    token = member(answer, "token")
    if token is None:
        return member(answer, "generated_text")
    return None if member(token, "special") is True else member(token, "text")


def _llamacpp_reason(answer: Any) -> str | None:
    """`stop_type`, or the older servers' three booleans, once `stop` is true.

    `truncated` says that the window was full: of two limits, that one counts (context shift is off by default).
    """
    if member(answer, "stop") is not True:
        return None
    older = {"stopped_eos": "eos", "stopped_word": "word", "stopped_limit": "limit"}
    told = (kind for name, kind in older.items() if member(answer, name) is True)
    kind = text(member(answer, "stop_type")) or next(told, "none")
    return _FULL if kind == "limit" and member(answer, "truncated") is True else kind


def _sglang_matched(answer: Any) -> Any:
    """The stop string that matched (a number is a token's), or what an abort says of itself."""
    reason = member(member(answer, "meta_info"), "finish_reason")
    return text_or_none(member(reason, "matched")) or member(reason, "message")


_OWN: Final[Mapping[tuple[str, str], Callable[[Any], Any]]] = {
    ("", "text"): _text,
    ("tgi", "text"): _tgi_text,
    ("llamacpp", "reason"): _llamacpp_reason,
    ("sglang", "matched"): _sglang_matched,
}
"""What of a shape is no path."""


def told(reply: Any, dialect: str) -> str | None:
    """Whose shape a reply or an event has: the dialect's if it fits, else that of the first that does."""
    first = next(iter(reply), None) if isinstance(reply, list) else reply
    if dialect in SHAPES and SHAPES[dialect].fits(first):
        return dialect
    return next((name for name, shape in SHAPES.items() if shape.fits(first)), None)


class Reader:
    """Reads events or a body, each known by its members; of no known shape (pings) they say nothing."""

    def __init__(self, ctx: Context, keep: bool) -> None:
        self._ctx = ctx
        self._speaks(ctx.dialect if ctx.dialect in SHAPES else "")
        self._spent: dict[str, Any] = {}
        self._named = False
        self._begun: set[int] = set()
        # What was said, of a text that each event repeats: its end and its length. SGLang with `--stream-output` sends
        # pieces in the same shape: then nothing is repeated.
        self._tail, self._chars, self._apart = "", 0, False

    def _speaks(self, dialect: str) -> None:
        shape = SHAPES[dialect]
        self._dialect, self._shape, self._rows = dialect, shape, rows_of(NAME, self._ctx.dialect or dialect)
        self._text = _OWN.get((dialect, "text")) or _at(shape.text)
        self._reason = _OWN.get((dialect, "reason")) or _at(shape.reason)
        self._figures = tuple({path.partition(".")[0] for paths in shape.spent.values() for path in paths})

    def __call__(self, event: Any, /) -> Iterator[Part]:
        """The parts of an event or a body."""
        head = next(iter(event), None) if isinstance(event, list) else event
        dialect = self._dialect if _has(head, self._shape.heads) else told(head, self._ctx.dialect)
        if dialect is not None:
            if dialect != self._dialect:
                self._speaks(dialect)
                yield Vocabulary(self._rows)
            shape = self._shape
            answers = shape.answers_in(event)
            for position, answer in enumerate(answers):
                index = count(member(answer, shape.index)) if shape.index else None
                index = position if index is None else index
                if index == 0 and (said := text(self._text(answer))):
                    yield Text(self._added(said) if dialect == "sglang" else said)
                why = self._reason(answer)
                if why is not None or index not in self._begun:
                    self._begun.add(index)
                    yield self._stopped(raw_text(why), index, answer)
            if _has(head, self._figures) or (answers and _has(answers[0], self._figures)):
                yield from self._usage(answers[0] if answers else None, head)
            if not self._named:
                named = text_or_none(_at(shape.id)(head)), text_or_none(_at(shape.by)(head))
                self._named = None not in named
                yield Head(*named)
        if error := error_in(event):
            yield Fault(error)

    def _stopped(self, raw: str | None, index: int, answer: Any) -> Reason:
        row = None if raw is None else find_row(raw, self._rows)
        if row is not None and not row.terminal:
            return Reason(None, index)
        matched = _OWN.get((self._dialect, "matched")) or _at(self._shape.matched)
        return Reason(raw, index, text_or_none(matched(answer)))

    def _added(self, said: str) -> str:
        """What a text adds to what was said, where events repeat it from the beginning."""
        if not self._apart and said.startswith(self._tail, self._chars - len(self._tail)):
            added = said[self._chars :]
        else:
            self._apart, added = True, said
        self._tail, self._chars = (self._tail + added)[-TAIL:], self._chars + len(added)
        return added

    def _usage(self, answer: Any, event: Any) -> Iterator[Part]:
        """The largest figures: those of a stream grow, and some services say 0, or nothing, on its later events."""
        for name, paths in self._shape.spent.items():
            for path in paths:
                tokens = [count(_at(path)(holder)) for holder in (answer, event)]
                found = tokens[1] if tokens[0] is None else tokens[0]
                if found is not None and found >= self._spent.get(name, 0):
                    self._spent[name] = found
        if self._spent:
            yield Tokens(Usage(**self._spent))


def error_in(reply: Any) -> Any:
    """The error that a reply or an event reports, if it does: an object, a text, or the first of a list (watsonx)."""
    listed = member(reply, "errors")
    return member(reply, "error") or (listed and next(iter(items(listed)), None))


def _failed(data: Any) -> Any:
    """The error that stands where an answer should."""
    first = next(iter(data), None) if isinstance(data, list) else data
    error = error_in(first)
    return {**first, "error": error} if error and isinstance(first, Mapping) and told(data, "") is None else None


# --- Requests ---------------------------------------------------------------------------------------------------------

_BEDROCK: Final = frozenset({"titan", "llama", "mistral", "command", "ai21", "claude_text"})
_PATHS: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(_BEDROCK),  # only `bedrock_invoke` reaches them
    "": "/completions",
    "tgi": "/[generate|generate_stream]",
    "sglang": "/generate",
    "llamacpp": "/completion",
    "watsonx": "/text/[generation|generation_stream]?version=2023-05-02",
    "alephalpha": "/complete",
}
_SPEAKERS: Final = {"user": "User: ", "assistant": "Assistant: ", "tool": "Tool: ", "system": ""}
_CLAUDE: Final = {"user": "\n\nHuman: ", "assistant": "\n\nAssistant: ", "tool": "Tool: ", "system": ""}

# Ollama has an /api/generate of its own. TGI and watsonx say in the path that an answer is streamed.
_PATH: Final = (
    rf"(?:{SEGMENTS}/v1)?(?:/completions|/completion|/complete)"
    rf"|{SEGMENTS}/openai/deployments/(?P<model>[^/]+)/completions"
    rf"|(?:(?:{SEGMENTS}/v1)?(?:/deployments/[^/]+)?/text/generation(?P<whole>$)?|{SEGMENTS}(?<!/api)/generate)"
    r"(?P<stream>_stream)?"
)


def encode(request: Request, *, stream: bool = False, dialect: str = "") -> Json:
    """The body of a request for text. The formats know no tools and no JSON format: both are left out.

    The prompt of a single user message is its text. Of more, it is a plain transcript: system messages as they are,
    `User: …`, `Assistant: …`, `Tool: …`, a blank line between, and `Assistant: ` at the end (Claude's text format:
    `Human:` and `Assistant:`, always). Assistant messages at the very end are what the answer begins with: their text
    follows the prompt, as it is.

    Args:
        dialect: whose; it decides every name. The families of Bedrock have the model in the path alone.
    """
    shape = SHAPES.get(dialect, SHAPES[""])
    body: Json = {shape.names: request.model} if shape.names else {}
    body[shape.prompt] = _prompt(request.messages, claude=dialect == "claude_text")
    # Without `details`, TGI's reply says nothing of its reason. It refuses a temperature of 0, and samples only where
    # it is told to. Claude demands a limit.
    settings: Json = {"details": True} if dialect == "tgi" else {}
    limit = request.max_tokens or (4_096 if dialect == "claude_text" else None)
    if limit is not None:
        settings[shape.limit] = limit
    if request.temperature is not None:
        if dialect != "tgi" or request.temperature > 0:
            settings["temperature"] = request.temperature
        if dialect == "tgi":
            settings["do_sample"] = request.temperature > 0
    if request.seed is not None and shape.seed:
        settings[shape.seed] = request.seed
    body |= {shape.settings: settings} if shape.settings and settings else settings
    if stream and dialect not in ("tgi", "watsonx", *(_BEDROCK - {"command"})):
        body["stream"] = True
        if shape is SHAPES[""]:
            # Without it a stream has no usage, and a used-up budget cannot be told from an answer that fits.
            body["stream_options"] = {"include_usage": True}
    return with_extra(body, request.extra)


def _prompt(messages: tuple[Message, ...], *, claude: bool) -> str:
    end = len(messages)
    while end and messages[end - 1].role == "assistant":
        end -= 1
    asked, begun = messages[:end], "".join(message.text for message in messages[end:])
    alone = len(asked) == 1 and asked[0].role == "user"
    if not asked or (alone and (not claude or _CLAUDE["user"].rstrip() in asked[0].text)):
        return (asked[0].text if asked else "") + begun
    says = _CLAUDE if claude else _SPEAKERS
    turns = [says[message.role] + message.text for message in asked if message.text]
    model = says["assistant"].rstrip() if claude else says["assistant"]
    return ("" if claude else "\n\n").join([*turns, model]) + begun


def resume(
    request: Request, cut: ChatResponse, *, prompt: str, strategy: str = Strategy.PROMPT, dialect: str = ""
) -> Request:
    """The request that goes on with a cut response: the same prompt, followed by the text so far.

    Every strategy does the same, and no nudge is written: going on with a text is what these formats do. White space at
    the text's end is left out, as a model writes it again with its next word.
    """
    said = cut.text.rstrip()
    partial = (cut.message().but(content=said, tool_calls=(), blocks=None),) if said else ()
    return request.but(messages=(*request.messages, *partial))


def asked_in(body: Mapping[str, Any]) -> str:
    """The dialect that a request is written in, as far as its members tell: "" where they are OpenAI's, or anyone's."""
    for dialect, shape in SHAPES.items():
        own = shape.prompt != "prompt" or shape.limit in body
        if dialect and own and shape.limit != "max_tokens" and shape.prompt in body:
            return dialect
    return ""


def request_summary(kwargs: Mapping[str, Any]) -> RequestSummary:
    """What a call of an SDK, or a request body of any dialect, asks for. Of several prompts, the first text counts.

    Token numbers are no text.
    """
    dialect = asked_in(kwargs)
    prompt = kwargs.get(SHAPES[dialect].prompt)
    prompts = items(prompt)
    several = len(prompts) if prompts and isinstance(prompts[0], str | list) else 1
    said = text(prompt) or next((text(each) for each in prompts if isinstance(each, str)), "")
    own = {"stream_usage": True} if dialect else {}
    found = asked(NAME, kwargs, history=({"role": "user", "content": said},) if said else (), **own)
    return replace(found, choices=several * found.choices)


# --- Scripted replies -------------------------------------------------------------------------------------------------


def _says(response: ChatResponse, stop: str | None, dialect: str) -> Json:
    kind = "limit" if stop == _FULL else stop or "none"
    return {
        "text": response.text,
        "number": len(words(response.text)) + 1,
        "typed": stop and {"type": stop},
        "stop_type": kind,
        "truncated": stop == _FULL,
    }


FORMAT: Final = Format(
    name=NAME,
    provider="openai",
    voice=Voice("cmpl-", "call_", "x-request-id"),
    paths=_PATHS,
    routed=routed_by(_PATH),
    body=encode,
    resume=resume,
    own_summary=request_summary,
    reader=Reader,
    called=("a completion", "an event of a completion"),
    needs=tuple(head for shape in SHAPES.values() for head in shape.heads),
    objects=tuple(f"{shape.answers}[]" for shape in SHAPES.values() if shape.answers),
    lists=True,
    failed=_failed,
    says=_says,
)
