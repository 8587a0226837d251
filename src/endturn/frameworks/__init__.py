"""Stop reasons as LangChain, LiteLLM, Pydantic AI, Vercel's AI SDK and OpenTelemetry hand them out, as ours.

Each reader takes the framework's own object, or the same as a mapping, and gives a Stop: what the provider said, where
the framework kept it, else the framework's word. `of_exception` gives what is known of a response that an exception
stands in place of. Nothing is imported of any framework, and nothing raises over what one holds; a wrong call raises
UsageError.
"""

from endturn.frameworks.answers import langchain, litellm, otel, pydantic_ai, vercel
from endturn.frameworks.exceptions import of_exception
from endturn.frameworks.rows import REASONS

__all__ = ["REASONS", "langchain", "litellm", "of_exception", "otel", "pydantic_ai", "vercel"]
