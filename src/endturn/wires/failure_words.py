"""What providers say in their error answers: the sentences that tell of the stop, and the words that mean a status."""

from __future__ import annotations

import re
from typing import Final

from endturn.stop import Resume, Row, StopReason

# What errors say, wherever they say it: the code where there is one, else the sentence. Sources beside each.
CONTEXT: Final = re.compile(
    r"context_length_exceeded"  # OpenAI, Groq, xAI, Together, Cerebras; Responses' error.code
    r"|exceed_context_size_error|exceeds the available context size"  # llama.cpp server
    r"|model_max_prompt_tokens_exceeded|prompt token count of \d+ exceeds"  # GitHub Copilot
    r"|tokens_limit_reached"  # GitHub Models
    r"|maximum context length|maximum prompt length|maximum model length|context length (?:is|exceeded|of)"
    r"|(?:exceed|overflow|(?:long|larg|great)er than|too (?:long|large))[^.]{0,60}"
    r"context[ _](?:window|length|size|limit)"
    r"|context[ _](?:window|length|size|limit)[^.]{0,40}exceed"  # MiniMax: "context window exceeds limit"
    r"|prompt (?:is )?too long|input is too long"  # Anthropic, Fireworks, Ollama; Bedrock
    r"|prompt (?:has|contains) [\d,]+ tokens|too large for model with \d+"  # Mistral
    r"|input token count[^.]{0,30}(?:exceeds the maximum|only supports)"  # Gemini API; Vertex AI
    r"|too many tokens: (?!max)|too many input tokens"  # Cohere; Amazon Nova
    r"|input tokens \d+ cannot exceed|cannot exceed the total tokens limit"  # watsonx
    r"|`?inputs`? tokens \+ `?max_new_tokens`? must be|`inputs` must have less than"  # Hugging Face TGI; Together
    r"|maximum allowed input length|range of input length should be"  # OpenRouter; DashScope
    r"|exceeded model token limit"  # Moonshot
    r"|tokens in request more than max tokens allowed|prompt exceeds max(?:imum)? length"  # Z.AI: 1210, 1261
    r"|reduce the length of the (?:messages|input|prompt)",  # OpenAI, Groq
    re.IGNORECASE,
)
FILTER: Final = re.compile(
    r"content_filter|content filter|content management policy"  # Azure OpenAI
    r"|Responsible ?AI ?(?:PolicyViolation|practices)"  # Azure's innererror; Vertex AI
    r"|content_policy_violation|content_policy\b"  # OpenAI images, LiteLLM
    r"|content filtering policy"  # Anthropic, and it on Bedrock: 400 "Output blocked by content filtering policy"
    r"|data_?inspection_?failed"  # DashScope
    r"|flagged (?:as|for|by)|requires moderation"  # OpenAI's `invalid_prompt`; OpenRouter: 403 of its moderation
    r"|violates usage guidelines"  # xAI: 403 "… Failed check: SAFETY_CHECK_TYPE_…"
    r"|Content Exists Risk"  # DeepSeek
    r"|unsafe or sensitive content|bio_policy|cyber_policy|misalignment_policy_violation",  # Z.AI; OpenAI
    re.IGNORECASE,
)

# The model wrote a call that could not be read. Groq: `failed_generation` holds it; llama.cpp; Amazon Nova.
CALL: Final = re.compile(
    r"tool_use_failed|failed to parse tool call arguments|invalid sequence as part of ToolUse", re.IGNORECASE
)

SAYS: Final = (
    (CONTEXT, Row(StopReason.CONTEXT_WINDOW_EXCEEDED, True, source="error answers")),
    (FILTER, Row(StopReason.SAFETY_BLOCKED, True, source="error answers")),
    (CALL, Row(StopReason.ERROR, True, Resume.REPAIR, source="error answers")),
)

SILENT: Final = re.compile(
    # A rate limit: its tokens are a minute's. Groq says 413 to it, AWS's streams say it without any status.
    r"rate[_ ]limit|tokens?[ _]per[ _](?:min|hour|day)|\bTP[MD]\b|too many requests|throttl|please wait"
    # A parameter that no model takes, whatever the prompt: OpenAI, vLLM; Groq, Cohere, TGI.
    r"|(?<!\+ )(?<!\+ [`'])\bmax[_ ](?:completion_|new_|output_)?tokens\W{0,2} (?:is too large|must be)",
    re.IGNORECASE,
)
"""What makes a sentence say nothing of the stop, although it speaks of tokens and their limits."""

STATUS_OF: Final = {
    # OpenAI and its likes, Anthropic
    "invalid_request_error": 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "vector_store_timeout": 504,
    "overloaded_error": 529,
    # Google: https://cloud.google.com/apis/design/errors
    "invalid_argument": 400,
    "failed_precondition": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "aborted": 409,
    "resource_exhausted": 429,
    "cancelled": 499,
    "internal": 500,
    "unavailable": 503,
    "deadline_exceeded": 504,
    # Google's Interactions API: https://ai.google.dev/gemini-api/docs/api-errors
    "invalid_request": 400,
    "authentication": 401,
    "quota_exceeded": 429,
    "service_unavailable": 503,
    "gateway_timeout": 504,
    # AWS: the service model of bedrock-runtime in botocore; in a stream the name begins with a small letter
    "conflictexception": 400,
    "servicequotaexceededexception": 400,
    "validationexception": 400,
    "accessdeniedexception": 403,
    "expiredtokenexception": 403,
    "unrecognizedclientexception": 403,
    "resourcenotfoundexception": 404,
    "modeltimeoutexception": 408,
    "modelerrorexception": 424,
    "modelstreamerrorexception": 424,
    "modelnotreadyexception": 429,
    "throttlingexception": 429,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
    # Hugging Face TGI's `error_type`
    "validation": 422,
    "generation": 424,
    "overloaded": 429,
    "incomplete_generation": 500,
}
"""The status that an error inside a stream would have had, which comes under HTTP 200: by its type or code."""

REQUEST_IDS: Final = (
    "request-id",
    "x-request-id",
    "x-amzn-requestid",
    "apim-request-id",  # Azure
    "x-ms-request-id",
    "x-global-transaction-id",  # IBM
    "x-debug-trace-id",  # Cohere
    "mistral-correlation-id",
    "x-github-request-id",
    "x-ds-trace-id",  # DeepSeek
    "x-goog-request-id",
    "x-cloud-trace-context",
    "cf-ray",
)
"""The headers that hold a request's id, the provider's own before those of what stands before it."""
