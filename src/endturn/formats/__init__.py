"""Formats of requests and responses of ten APIs.

Each is declared over functions between our types and the API's JSON.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.formats.accumulator import ResponseAccumulator as ResponseAccumulator
    from endturn.formats.answer_blocks import (
        together as together,
        unfinished as unfinished,
        with_text as with_text,
    )
    from endturn.formats.call_arguments import are_whole as are_whole, arguments as arguments
    from endturn.formats.content_parts import is_part as is_part
    from endturn.formats.errors import (
        MAX_ERROR_BYTES as MAX_ERROR_BYTES,
        error_of as error_of,
        error_within as error_within,
        quota as quota,
        request_id as request_id,
        safe_excerpt as safe_excerpt,
        says_of_stop as says_of_stop,
        status_of as status_of,
    )
    from endturn.formats.format import Format as Format
    from endturn.formats.framing import (
        CONTENT_TYPE as CONTENT_TYPE,
        DONE as DONE,
        BytesDecoder as BytesDecoder,
        decoder as decoder,
        parse as parse,
    )
    from endturn.formats.history import (
        ToolResult as ToolResult,
        body_of as body_of,
        calls_of as calls_of,
        canonical as canonical,
        canonical_message as canonical_message,
        json_fallback as json_fallback,
        only_text as only_text,
        own_result as own_result,
        parts_beside_text as parts_beside_text,
        results_of as results_of,
        role as role,
        text_of as text_of,
        tool_results as tool_results,
    )
    from endturn.formats.plain_bodies import PlainFacts as PlainFacts, plain_facts as plain_facts
    from endturn.formats.read_reply import begins_stream as begins_stream, read as read
    from endturn.formats.reading import (
        PLAIN as PLAIN,
        count as count,
        is_minted as is_minted,
        items as items,
        looks_random as looks_random,
        member as member,
        number as number,
        requested_calls as requested_calls,
        strict as strict,
        text as text,
        text_or_none as text_or_none,
    )
    from endturn.formats.registry import (
        FORMATS as FORMATS,
        check_any_dialect as check_any_dialect,
        checked_dialect as checked_dialect,
        dialect_in as dialect_in,
        format_of as format_of,
        summarize as summarize,
    )
    from endturn.formats.request_body import request_of as request_of
    from endturn.formats.request_summary import routed_by as routed_by
    from endturn.formats.scripting import reason_names as reason_names, reasons_of as reasons_of
    from endturn.formats.sdk_objects import as_json as as_json
    from endturn.formats.settings import (
        limit_in as limit_in,
        thinking_budget as thinking_budget,
        tool_schemas as tool_schemas,
        tools_of as tools_of,
        with_setting as with_setting,
    )
    from endturn.formats.summaries import (
        MAX_ITEMS as MAX_ITEMS,
        MAX_UNPARSED_BYTES as MAX_UNPARSED_BYTES,
        TAIL as TAIL,
        Attempt as Attempt,
        Context as Context,
        Event as Event,
        Framing as Framing,
        RequestSummary as RequestSummary,
        ResponseSummary as ResponseSummary,
        Route as Route,
        Routed as Routed,
        ScriptedStyle as ScriptedStyle,
        TooLargeError as TooLargeError,
        check_size as check_size,
    )
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "answer_blocks": ("together", "unfinished", "with_text"),
            "call_arguments": ("are_whole", "arguments"),
            "content_parts": ("is_part",),
            "errors": (
                "MAX_ERROR_BYTES",
                "error_of",
                "error_within",
                "quota",
                "request_id",
                "says_of_stop",
                "safe_excerpt",
                "status_of",
            ),
            "accumulator": ("ResponseAccumulator",),
            "format": ("Format",),
            "framing": ("BytesDecoder", "CONTENT_TYPE", "DONE", "decoder", "parse"),
            "history": (
                "ToolResult",
                "body_of",
                "calls_of",
                "canonical",
                "only_text",
                "own_result",
                "parts_beside_text",
                "results_of",
                "role",
                "canonical_message",
                "text_of",
                "tool_results",
                "json_fallback",
            ),
            "plain_bodies": ("PlainFacts", "plain_facts"),
            "read_reply": ("begins_stream", "read"),
            "reading": (
                "PLAIN",
                "count",
                "is_minted",
                "items",
                "looks_random",
                "member",
                "number",
                "requested_calls",
                "strict",
                "text",
                "text_or_none",
            ),
            "registry": (
                "FORMATS",
                "check_any_dialect",
                "checked_dialect",
                "dialect_in",
                "format_of",
                "summarize",
            ),
            "request_body": ("request_of",),
            "request_summary": ("routed_by",),
            "scripting": ("reason_names", "reasons_of"),
            "sdk_objects": ("as_json",),
            "settings": ("limit_in", "thinking_budget", "tool_schemas", "tools_of", "with_setting"),
            "summaries": (
                "Attempt",
                "Context",
                "Event",
                "Framing",
                "MAX_ITEMS",
                "MAX_UNPARSED_BYTES",
                "RequestSummary",
                "ResponseSummary",
                "Route",
                "Routed",
                "TAIL",
                "TooLargeError",
                "ScriptedStyle",
                "check_size",
            ),
        },
    )
