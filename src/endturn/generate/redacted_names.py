"""Names of attributes that hold credentials or message content, each with its source.

This is the one list behind the statements of `transform/drop_credentials` and
`transform/drop_message_content`: `redaction.py` makes regular expressions of it, and a test plants
a secret under each name and searches the output of a real Collector for it. To add a name, add it
to the entry of its source, or add an entry.

Names are matched in any case. Letters, digits, `_`, `-` and dots stand for themselves; nothing is a
pattern.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

Kind = Literal[
    "content", "content_trees", "content_lists", "errors", "event_fields", "credentials",
    "credential_trees", "urls",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class NameSource:
    """The names that one standard or instrumentation uses.

    Attributes:
        source: The standard or the instrumentation, with the place that documents the names.
        content: Message content under exactly this name.
        content_trees: Message content under this name and below it: `llm.prompts` and
            `llm.prompts.0.content`.
        content_lists: Message content below this name and an index: `gen_ai.prompt.0.content`.
        errors: Texts of errors. Providers quote the text that they reject, and tracebacks the
            arguments of functions.
        event_fields: Names so generic that they are content only in an event of a model or of an
            agent program.
        credentials: A key, a password or a cookie under exactly this name.
        credential_trees: The same under this name and below it: `http.request.header.cookie`.
        urls: A URL or the query of one, whose user and secret parameters are replaced.
    """

    source: str
    content: tuple[str, ...] = ()
    content_trees: tuple[str, ...] = ()
    content_lists: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    event_fields: tuple[str, ...] = ()
    credentials: tuple[str, ...] = ()
    credential_trees: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()


def _join(starts: tuple[str, ...], ends: tuple[str, ...]) -> tuple[str, ...]:
    """Return every start with every end."""
    return tuple(start + end for start in starts for end in ends)


_INPUTS_AND_OUTPUTS: Final = ("input", "inputs", "output", "outputs")
_AS_JSON: Final = (*_INPUTS_AND_OUTPUTS, "input_json", "inputs_json", "output_json", "outputs_json")

NAME_SOURCES: Final = (
    NameSource(
        source="OpenTelemetry GenAI conventions: opentelemetry.io/docs/specs/semconv/gen-ai",
        content=(
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.result",
            "gen_ai.tool.description",
            "gen_ai.agent.description",
            "gen_ai.request.stop_sequences",
        ),
        content_trees=(
            "gen_ai.input.messages",
            "gen_ai.output.messages",
            "gen_ai.system_instructions",
            "gen_ai.tool.definitions",
            "gen_ai.retrieval.query.text",
            "gen_ai.retrieval.documents",
            "gen_ai.memory.query",
            "gen_ai.memory.content",
            "gen_ai.evaluation.explanation",
        ),
    ),
    NameSource(
        source="OpenTelemetry GenAI conventions before 1.37, and instrumentations of that time",
        content=(
            *_join(("gen_ai.", "gen_ai.content."), ("prompt", "completion")),
            *_join(
                ("gen_ai.request.", "gen_ai.response."),
                ("message", "messages", "text", "content", "prompt", "instructions"),
            ),
            *_join(
                ("gen_ai.input.", "gen_ai.output."),
                ("message", "text", "content", "prompt", "instructions"),
            ),
            *_join(("gen_ai.tool.",), ("arguments", "result", "input", "output", "message")),
            "genai.prompt",
        ),
        content_trees=("gen_ai.system_prompt", "gen_ai.event.content", "gen_ai.data"),
        content_lists=("gen_ai.prompt", "gen_ai.completion"),
        event_fields=(
            "message", "text", "body", "parts", "tool_calls", "delta", "result", "error",
            "reason_text",
        ),
    ),
    NameSource(
        source="OpenTelemetry exceptions: opentelemetry.io/docs/specs/semconv/exceptions",
        errors=_join(("exception.", "error."), ("message", "stacktrace", "stack")),
    ),
    NameSource(
        source="OpenTelemetry HTTP and RPC: opentelemetry.io/docs/specs/semconv/http",
        content_trees=("http.request.body", "http.response.body"),
        credential_trees=(
            "http.request.header",
            "http.response.header",
            "rpc.request.metadata",
            "rpc.response.metadata",
            "rpc.grpc.request.metadata",
            "rpc.grpc.response.metadata",
            "rpc.connect_rpc.request.metadata",
            "rpc.connect_rpc.response.metadata",
        ),
    ),
    NameSource(
        source="OpenTelemetry URLs, since 1.21 and before: opentelemetry.io/docs/specs/semconv/url",
        urls=("url.full", "url.original", "url.query", "url.fragment", "http.url", "http.target"),
    ),
    NameSource(
        source="OpenTelemetry processes: opentelemetry.io/docs/specs/semconv/resource/process",
        # How a program was called: `claude -p "…"`
        content=("process.command_args", "process.command_line"),
        credential_trees=("process.environment_variable",),
    ),
    NameSource(
        source="OpenTelemetry databases: opentelemetry.io/docs/specs/semconv/db",
        # A statement holds values where an instrumentation does not sanitise it; OpenLIT writes the
        # documents and the question of a vector search there. `db.statement` is the name before
        # 1.25.
        content=("db.query.text", "db.statement"),
        content_trees=("db.query.parameter",),
    ),
    NameSource(
        source="OpenTelemetry GraphQL: opentelemetry.io/docs/specs/semconv/graphql, and"
        " github.com/open-telemetry/opentelemetry-js-contrib, instrumentation-graphql",
        content=("graphql.document", "graphql.source"),
        content_trees=("graphql.variables",),
    ),
    NameSource(
        source="OpenInference: github.com/Arize-ai/openinference, spec/semantic_conventions.md",
        content=(
            "input.value",
            "output.value",
            *_join(("tool.",), ("parameters", "input", "output", "description", "json_schema")),
            "tool_call.function.arguments",
            "embedding.text",
            "embedding.vector",
            # Of speech: the URL may hold the recording itself (`data:`).
            *_join(("input.audio.", "output.audio."), ("transcript", "url")),
            "message.function_call_arguments_json",
            # JSON that the host adds; its meaning is up to the host.
            "metadata",
            "document.metadata",
            "annotation.explanation",
            "evaluation.explanation",
        ),
        content_lists=_join(("", "trace.", "session."), ("annotations", "evaluations")),
        content_trees=(
            # The parameters of a call hold its instructions and tools, too.
            *_join(
                ("llm.",),
                ("input_messages", "output_messages", "prompts", "completions", "tools", "choices",
                 "function_call", "invocation_parameters"),
            ),
            "llm.prompt_template.template",
            "llm.prompt_template.variables",
            "message.content",
            "message.contents",
            "message.tool_calls",
            "message_content",
            "document.content",
            "retrieval.documents",
            *_join(("reranker.",), ("input_documents", "output_documents", "query")),
            "embedding.embeddings",
        ),
    ),
    NameSource(
        source="OpenLLMetry (Traceloop): github.com/traceloop/openllmetry, semantic-conventions-ai",
        content=("llm.chat.stop_sequences",),
        content_trees=(
            "traceloop.entity.input",
            "traceloop.entity.output",
            "traceloop.prompt.template",
            "traceloop.prompt.template_variables",
            "llm.user.message",
            "llm.request.functions",
        ),
        credential_trees=("llm.headers",),
        urls=("gen_ai.openai.api_base",),
    ),
    NameSource(
        source="OpenLIT: github.com/openlit/openlit, sdk/python/src/openlit/semcov",
        content=(
            *_join(
                ("gen_ai.agent.",),
                ("goal", "context", "task", "params", "instructions", "expected_output",
                 "actual_output", "human_input", "tool_results", "action.log",
                 "action.tool_input", "evaluation", "final_result", "finish.log", "finish.output",
                 "introduction", "memory", "next_goal", "step_messages", "thinking"),
            ),
            *_join(("gen_ai.tool.",), ("args", "input_kwargs", "parameters", "schema")),
            *_join(("gen_ai.content.",), ("reasoning", "revised_prompt")),
            *_join(("gen_ai.execution.", "gen_ai.workflow."), ("input", "output")),
            *_join(("gen_ai.request.",), ("parameters", "speech.prompt")),
            *_join(
                ("gen_ai.response.",), ("audio.text", "image", "speech.timestamps", "tool_calls")
            ),
            *_join(("gen_ai.task.",), ("description", "expected_output")),
            *_join(("gen_ai.knowledge.", "gen_ai.memory.", "gen_ai.vectordb."), ("search.query",)),
            *_join(("gen_ai.memory.",), ("input", "metadata")),
            *_join(("gen_ai.framework.pipeline.",), ("input_data", "output_data")),
            "gen_ai.framework.query.text",
            "gen_ai.retrieval.query",
            "gen_ai.message.content",
            "gen_ai.extraction.instruction",
            *_join(("gen_ai.browser.",), ("task.description", "action.value", "console.logs")),
            *_join(("db.",), ("filter", "metadata", "where_document", "update.values")),
            *_join(("mcp.",), ("params", "result", "sampling.messages", "completion.values")),
            *_join(("mcp.completion.",), ("argument.value", "context.arguments")),
            *_join(("mcp.fastmcp.",), ("prompt.arguments", "server.instructions")),
            "guard.explanation",
        ),
        errors=(
            *_join(("mcp.error.",), ("data", "message")),
            *_join(
                ("gen_ai.browser.error.", "gen_ai.framework.error."), ("message",)
            ),
            *_join(("gen_ai.execution.", "gen_ai.tool."), ("error",)),
        ),
        credentials=("mcp.auth.authorization_code",),
        urls=("gen_ai.llm.base_url",),
    ),
    NameSource(
        source="Vercel's AI SDK: ai-sdk.dev/docs/ai-sdk-core/telemetry",
        content=(
            *_join(("ai.",), ("value", "values", "embedding", "embeddings")),
            *_join(
                ("ai.response.",),
                # The provider's metadata have logprobs, citations and signed reasoning.
                ("text", "object", "reasoning", "toolCalls", "files", "providerMetadata"),
            ),
            *_join(("ai.result.",), ("text", "object", "toolCalls")),
            "ai.toolCall.args",
            "ai.toolCall.result",
        ),
        content_trees=("ai.prompt",),
        credential_trees=("ai.request.headers",),
    ),
    NameSource(
        source="Logfire and Pydantic AI: ai.pydantic.dev/logfire",
        content=(
            "all_messages",
            "all_messages_events",
            "pydantic_ai.all_messages",
            "pydantic_ai.final_result",
            "logfire.msg",
            "events",
            "final_result",
            *_join(("fastapi.arguments.",), ("values", "errors")),
        ),
    ),
    NameSource(
        source="Google's Agent Development Kit: github.com/google/adk-python, telemetry",
        content=_join(
            ("gcp.vertex.agent.",),
            ("llm_request", "llm_response", "tool_call_args", "tool_response", "data"),
        ),
    ),
    NameSource(
        source="MLflow: mlflow.org/docs/latest/genai/tracing",
        content=(
            "mlflow.chat.messages",
            "mlflow.chat.tools",
            *_join(
                ("mlflow.span_", "mlflow.span", "mlflow.trace_", "mlflow.trace"),
                (*_INPUTS_AND_OUTPUTS, "request", "response"),
            ),
        ),
    ),
    NameSource(
        source="Haystack: docs.haystack.deepset.ai/docs/tracing",
        # A pipeline's data are tags of its span even where content is not traced.
        content=_join(("haystack.pipeline.",), ("input_data", "output_data")),
        content_trees=_join(
            ("haystack.component.", "haystack.agent.", "haystack.agent.step.llm.",
             "haystack.agent.step.tool."),
            ("input", "output"),
        ),
    ),
    NameSource(
        source="MCP: OpenLLMetry and OpenLIT as above, and docs.sentry.io (its MCP servers)",
        content=(
            "mcp.tool.arguments",
            "mcp.tool.result",
            "mcp.tool.result.content",
            *_join(("mcp.request.", "mcp.response."), ("payload", "value")),
        ),
        content_trees=("mcp.request.argument",),
    ),
    NameSource(
        source="Spring AI: docs.spring.io/spring-ai/reference/observability",
        content=(
            *_join(("spring.ai.tool.call.",), ("arguments", "result")),
            *_join(("spring.ai.tool.definition.",), ("description", "schema")),
            *_join(("db.vector.query.",), ("content", "response.documents")),
            # Of 1.0 before its release candidates.
            *_join(
                ("spring.ai.chat.client.",),
                ("user.text", "user.params", "system.text", "system.params", "advisor.params"),
            ),
        ),
    ),
    NameSource(
        source="AgentOps: github.com/AgentOps-AI/agentops, agentops/semconv",
        content=(
            *_join(
                _join(
                    ("agentops.",),
                    ("entity.", "session.", "workflow.", "agent.", "task.", "operation.", "tool."),
                ),
                ("input", "output"),
            ),
            *_join(("workflow.",), ("input", "output", "final_output")),
            *_join(("agent.",), ("action", "decision", "reasoning", "thinking")),
            "tool.result",
            *_join(("langchain.agent.action.", "langchain.agent.finish."), ("log",)),
            "langchain.agent.action.input",
            "langchain.agent.finish.return_values",
            *_join(
                ("langchain.tool.",), ("input", "output", "description", "args_schema")
            ),
            "langchain.text.content",
            "gen_ai.openai.instructions",
            "gen_ai.request.system_instruction",
            "gen_ai.completion.chunk",
        ),
        content_trees=_join(("gen_ai.request.",), ("functions", "tools")),
        errors=_join(("langchain.",), ("chain.error", "llm.error", "tool.error")),
        credential_trees=("gen_ai.request.headers",),
    ),
    NameSource(
        source="Langtrace: github.com/Scale3-Labs/langtrace-python-sdk and langtrace",
        content=(
            "llm.responses",
            *_join(
                ("langchain.", "llamaindex.", "graphlit."), ("inputs", "outputs", "metadata")
            ),
            *_join(("phidata.",), ("agent.response", "memory.inputs", "memory.output")),
            "phidata.memory.summary",
            *_join(("dspy.signature.", "dspy.evaluate."), ("args", "result")),
            *_join(("crewai.",), ("crew.config", "task.config")),
        ),
    ),
    NameSource(
        source="Prompt flow: github.com/microsoft/promptflow, promptflow/tracing/_trace.py",
        content=("inputs", "llm.generated_message"),
        event_fields=("payload",),
    ),
    NameSource(
        source="Langfuse: langfuse.com/integrations/native/opentelemetry",
        content_trees=(
            *_join(
                ("langfuse.", "langfuse.trace.", "langfuse.observation."),
                ("input", "output", "metadata", "status_message"),
            ),
            *_join(
                ("langfuse.experiment.",), ("metadata", "item.metadata", "item.expected_output")
            ),
        ),
    ),
    NameSource(
        source="LangSmith: docs.langchain.com/langsmith/trace-with-opentelemetry",
        content=(
            *_join(("langsmith.",), _AS_JSON),
            "gen_ai.request.extra_body",
            "gen_ai.serialized.doc",
        ),
        # LangChain's metadata, which a host fills in: Dify puts a workflow's inputs there.
        content_trees=("langsmith.metadata",),
        credentials=("gen_ai.request.extra_query",),
        credential_trees=("langsmith.request.headers",),
    ),
    NameSource(
        source="Braintrust: braintrust.dev/docs/integrations/sdk-integrations/opentelemetry",
        content=_join(("braintrust.",), _AS_JSON),
    ),
    NameSource(
        source="LiveKit Agents: github.com/livekit/agents, telemetry/trace_types.py",
        content=(
            *_join(
                ("lk.",),
                ("user_input", "user_transcript", "instructions", "chat_ctx", "input_text"),
            ),
            "lk.response.text",
            "lk.response.function_calls",
            "lk.function_tool.arguments",
            "lk.function_tool.output",
        ),
    ),
    NameSource(
        source="CrewAI and its instrumentations (OpenLLMetry, AgentOps, SigNoz)",
        content=(
            *_join(("crewai.task.",), ("description", "expected_output")),
            *_join(("crewai.crew.",), ("tasks", "agents", "result")),
            *_join(("gen_ai.crewai.agent.",), ("role", "goal", "backstory")),
            *_join(("gen_ai.crewai.task.",), ("description", "expected_output")),
            "gen_ai.crewai.crew.result",
        ),
        content_trees=("crewai.agent",),
    ),
    NameSource(
        source="Claude Code, Codex and Gemini CLI: the fields of their events, and their spans",
        content=(
            *_join(("request_", "response_"), ("text", "data")),
            "response",
            "response.model_output",
            "system_prompt",
            "system_prompt_preview",
            "user_prompt",
            "user_system_prompt",
            *_join(
                ("tool_",), ("arguments", "input", "output", "parameters", "response", "result")
            ),
            "model_response",
            "model_request_parameters",
            "function_args",
            "new_context",
        ),
        errors=("error_message", "stacktrace", "stack_trace"),
    ),
    NameSource(
        source="plain names, as agents write them by hand and log libraries pass them on",
        content=(
            "prompt", "prompts", "completion", "completions", "messages", "content", "contents",
            "question", "answer", "arguments", "input", "output", "outputs",
        ),
        credentials=(
            "authorization", "proxy-authorization", "proxy_authorization", "cookie", "set-cookie",
            "set_cookie", "api_key", "api-key", "apikey", "x-api-key", "x_api_key",
            "x-goog-api-key", "access_token", "refresh_token", "id_token", "auth_token",
            "bearer_token", "session_token", "client_secret", "secret_key", "private_key", "secret",
            "password", "passwd", "passphrase", "jwt", "token", "aws_secret_access_key",
            "aws_session_token", "x-amz-security-token", "x-auth-token", "x-access-token",
            "db.password",
        ),
        credential_trees=(
            "headers", "request.headers", "response.headers", "http.headers",
            "http.request.headers", "http.response.headers",
        ),
    ),
    NameSource(
        source="settings of clients as attributes: api_key of OpenAI's SDK and of those like it",
        credentials=(
            *_join(
                ("openai.", "anthropic.", "azure.", "azure_openai.", "azure.openai.", "cohere.",
                 "gemini.", "google.", "groq.", "mistral.", "litellm.", "llm.", "gen_ai.",
                 "gen_ai.request.", "gen_ai.openai.", "client.", "model."),
                ("api_key",),
            ),
            *_join(
                ("openai", "anthropic", "azure", "azure_openai", "cohere", "gemini", "google",
                 "groq", "mistral"),
                ("_api_key",),
            ),
        ),
        credential_trees=("extra_headers", "default_headers", "llm.extra_headers"),
    ),
    NameSource(
        source="Datadog: github.com/DataDog/dd-trace-py, contrib/openai and contrib/anthropic",
        content=("anthropic.request.system", "anthropic.request.parameters"),
        content_trees=(
            *_join(("openai.request.",), ("messages", "prompt", "input")),
            "openai.response.choices",
            "anthropic.request.messages",
            "anthropic.response.completions",
        ),
        credentials=("openai.user.api_key",),
    ),
    NameSource(
        source="LiteLLM: docs.litellm.ai/docs/observability/opentelemetry_integration",
        # Its span `raw_gen_ai_request` has each parameter of the request, and each field of the
        # answer, below the provider's name: `llm.openai.messages`, `llm.anthropic.system`.
        content_trees=_join(
            ("llm.",),
            ("openai", "azure", "azure_ai", "anthropic", "bedrock", "cohere", "databricks",
             "deepseek", "fireworks_ai", "gemini", "groq", "hosted_vllm", "huggingface", "mistral",
             "ollama", "ollama_chat", "openrouter", "perplexity", "sagemaker", "together_ai",
             "vertex_ai", "watsonx", "xai"),
        ),
        credentials=("metadata.user_api_key", "user_api_key"),
        credential_trees=("metadata.headers",),
    ),
)  # fmt: skip

GENAI_EVENTS: Final = r"(?i)^(gen_ai|claude_code|codex|gemini_cli|qwen_code|qwen-code|promptflow)\."
"""Names of events whose fields and bodies are message content, or may be."""


def names_of(*kinds: Kind) -> tuple[str, ...]:
    """Return the names of these kinds, each once, in the order of the table."""
    names = [
        name
        for entry in NAME_SOURCES
        for field in fields(entry)
        if field.name in kinds
        for name in getattr(entry, field.name)
    ]
    return tuple(dict.fromkeys(names))
