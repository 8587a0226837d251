"""Normalise stop reasons from frameworks, and look raw values up.

Each reader (LangChain, LiteLLM, Pydantic AI, Vercel's AI SDK, OpenTelemetry) takes the framework's
own object, or the same as a mapping, and returns a Stop: from the provider's value if the framework
kept it, else from the framework's own. `of_exception` reads the response that an exception hides.
No framework is imported, and no content of a response makes a reader raise; wrong arguments raise
UsageError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.frameworks.exceptions import of_exception as of_exception
    from endturn.frameworks.langchain_response import langchain as langchain
    from endturn.frameworks.litellm_response import litellm as litellm
    from endturn.frameworks.lookup import (
        MEANING as MEANING,
        RESUMES as RESUMES,
        Entry as Entry,
        explain as explain,
        is_of as is_of,
        normalize as normalize,
        table as table,
    )
    from endturn.frameworks.otel_span import otel as otel
    from endturn.frameworks.pydantic_ai_response import pydantic_ai as pydantic_ai
    from endturn.frameworks.rows import REASONS as REASONS
    from endturn.frameworks.vercel_finish_reason import vercel as vercel
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "exceptions": ("of_exception",),
            "langchain_response": ("langchain",),
            "litellm_response": ("litellm",),
            "lookup": ("Entry", "MEANING", "RESUMES", "explain", "is_of", "normalize", "table"),
            "otel_span": ("otel",),
            "pydantic_ai_response": ("pydantic_ai",),
            "rows": ("REASONS",),
            "vercel_finish_reason": ("vercel",),
        },
    )
