"""Policies that do what the designs do which the controller grew from, and what Anthropic's own tool loop does.

    ContinuationPolicy.preset("forgeflare", max_iterations=20)

A preset sets what its source says. Where the source is silent, the contract's defaults stand. A source that names no
budget of tokens has none, one that sends a prompt sends it to every model, and one that leaves `max_tokens` alone asks
for no JSON answer again. What no policy can say, because the contract never does it, is
said beside the preset: nothing brace-closed is run, a batch runs whole or not at all but for `any_parsed`, an empty
answer is not continued, and no answer that was cut is called complete.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from endturn.continuation.policy import PROMPT, ContinuationPolicy

ZEROCLAW: Final = ContinuationPolicy(
    continuation_max_attempts=3,
    continuation_max_output_chars=120_000,
    continuation_tool_repair_attempts=1,
    continuation_max_resumes=0,
    continuation_strategies=("native_token", "resend", "prompt"),
    dispatch="verified_terminal",
    prompt=PROMPT,
    history="collapsed",
)
"""ZeroClaw's request for implementation: a cut answer is continued three times and merged, within four times the
maximum and 120 000 characters; a call of a cut response is asked for once more, and never run as it came.

Only output that was cut is continued, so a provider's pause ends the turn: its stop reasons know none. The prompt is a
user message here, where the source says system-side. The implementation that followed ran calls of a cut response that
parse; its request does not, nor does this.
"""

FORGEFLARE: Final = ContinuationPolicy(
    continuation_max_attempts=3,
    continuation_max_total_completion_tokens="none",
    continuation_tool_repair_attempts=0,
    continuation_max_resumes=0,
    continuation_strategies=("native_token", "resend", "prompt"),
    json_reask=False,
    max_iterations=50,
    dispatch="any_parsed",
    promote=False,
    on_cut_call="drop",
    prompt="Continue from where you left off.",
    history="segments",
)
"""Forgeflare's specification of continuation: a cut response with calls runs those that parse; one with text alone, or
whose calls do not parse, is asked to continue, three times a turn; an empty one ends it. The parts stay messages of
their own, the prompt between them. `end_turn` ends the turn, whatever calls it holds.

A call that parses and does not fit its tool's schema is not run here; the source accepts that risk. A call of a tool
that does not exist, in a batch with others, is dropped.
"""

BOTNEXUS: Final = ContinuationPolicy(
    continuation_max_attempts=0,
    continuation_max_total_completion_tokens="none",
    continuation_tool_repair_attempts=0,
    continuation_max_resumes=0,
    json_reask=False,
    dispatch="tool_call_only",
    suspect_full_budget=False,
    promote=True,
    stream_json="eager",
)
"""BotNexus' gate of tool dispatch: calls run on the terminal `tool_call` alone, to which the parser promotes complete
calls of a clean stop; any other response loses its calls, keeps its text, and ends the turn. Nothing is asked again.

Arguments are not held against the tool's schema, as there; a call whose arguments are no JSON object is answered with
the error. A truncated end counts as a success there, and never does here.
"""

WAVE: Final = ContinuationPolicy(
    continuation_max_attempts=3,
    continuation_attempts_per="answer",
    continuation_max_total_completion_tokens="none",
    continuation_tool_repair_attempts=0,
    continuation_max_resumes=0,
    continuation_strategies=("native_token", "resend", "prompt"),
    json_reask=False,
    dispatch="any_parsed",
    on_cut_call="drop",
    history="segments",
)
"""wave's specification of finish reasons: `length` always leads to another call, with the results of the tools that
were called, or, if there were none, for the rest of the answer; the parts stay messages of their own, each with its
finish reason. As implemented, three times in a row without tools.

The specification names no prompt: the contract's is used. It limits the calls of a turn by their depth: here
`max_iterations`, which counts no continuations. The implementation closes the braces of a cut call and runs that; here
it is dropped. A cut answer without text is not continued.
"""

ANTHROPIC: Final = ContinuationPolicy(
    continuation_max_attempts=0,
    continuation_max_total_completion_tokens="none",
    continuation_tool_repair_attempts=0,
    json_reask=False,
    dispatch="tool_call_only",
    suspect_full_budget=False,
    promote=False,
    stream_json="eager",
)
"""The tool runner of Anthropic's Python SDK (2.12, its table of stop reasons): `tool_use` runs the tools; `pause_turn`
and `compaction` send the response back unchanged and run nothing; everything else stops, known or not, and its calls
are not run.

The runner has no limit of its own on resumes, and on replies only if it is told one: here the contract's ten and fifty
stand. A batch in which one call names no tool, or has arguments that are no JSON object, is answered with errors and
not run in part.
"""

PRESETS: Final[Mapping[str, ContinuationPolicy]] = MappingProxyType(
    {
        "anthropic": ANTHROPIC,
        "botnexus": BOTNEXUS,
        "forgeflare": FORGEFLARE,
        "wave": WAVE,
        "zeroclaw": ZEROCLAW,
    }
)
"""The presets by the names that configuration knows them by."""
