"""Stop reasons, the tables of providers and of their stop reasons, and a chat's messages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.vocabulary.characters import (
        REPLACEMENT_CHARACTER as REPLACEMENT_CHARACTER,
        PieceJoiner as PieceJoiner,
        fix_json_surrogates as fix_json_surrogates,
        fix_surrogates as fix_surrogates,
        join_surrogates as join_surrogates,
    )
    from endturn.vocabulary.messages import (
        TEXT_TOOLS as TEXT_TOOLS,
        Blocks as Blocks,
        CallFragment as CallFragment,
        ChatResponse as ChatResponse,
        Delta as Delta,
        Json as Json,
        Message as Message,
        Request as Request,
        Tool as Tool,
        ToolCall as ToolCall,
        Usage as Usage,
    )
    from endturn.vocabulary.providers import (
        ALIASES as ALIASES,
        PROVIDERS as PROVIDERS,
        Auth as Auth,
        ProviderEndpoint as ProviderEndpoint,
        canonical as canonical,
        provider_at as provider_at,
        provider_of_path as provider_of_path,
    )
    from endturn.vocabulary.stop import (
        NO_GENERATION as NO_GENERATION,
        TRUNCATED as TRUNCATED,
        Resume as Resume,
        Row as Row,
        Stop as Stop,
        StopFacts as StopFacts,
        StopReason as StopReason,
        find_row as find_row,
        find_stop as find_stop,
        find_word as find_word,
        rank_of as rank_of,
        raw_text as raw_text,
        sanitize_reason as sanitize_reason,
        value_key as value_key,
    )
    from endturn.vocabulary.stop_reason_tables import (
        CHAT as CHAT,
        COMPATIBLE as COMPATIBLE,
        Api as Api,
        apis as apis,
        private as private,
        rows_of as rows_of,
        shared as shared,
        tables as tables,
        with_fallback as with_fallback,
    )
    from endturn.vocabulary.tsv import package_data as package_data, read_tsv as read_tsv
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "characters": (
                "REPLACEMENT_CHARACTER",
                "PieceJoiner",
                "fix_json_surrogates",
                "fix_surrogates",
                "join_surrogates",
            ),
            "messages": (
                "Blocks",
                "CallFragment",
                "ChatResponse",
                "Delta",
                "Json",
                "Message",
                "Request",
                "TEXT_TOOLS",
                "Tool",
                "ToolCall",
                "Usage",
            ),
            "providers": (
                "ALIASES",
                "Auth",
                "PROVIDERS",
                "ProviderEndpoint",
                "canonical",
                "provider_at",
                "provider_of_path",
            ),
            "stop": (
                "NO_GENERATION",
                "Resume",
                "Row",
                "Stop",
                "StopFacts",
                "StopReason",
                "TRUNCATED",
                "find_row",
                "find_stop",
                "find_word",
                "rank_of",
                "raw_text",
                "value_key",
                "sanitize_reason",
            ),
            "stop_reason_tables": (
                "Api",
                "CHAT",
                "COMPATIBLE",
                "apis",
                "private",
                "rows_of",
                "shared",
                "tables",
                "with_fallback",
            ),
            "tsv": ("read_tsv", "package_data"),
        },
    )
