"""Error answers as the providers send them: what each is, and what is to be made of it.

The sentences are from public bug reports and the providers' error pages; the shapes from botocore's service model of
bedrock-runtime, cohere 7.3.1, google-genai 3.4, mistralai, ollama, watsonx.ai's and TGI's documentation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from endturn.errors import ProviderError, ProviderTimeout, ProviderUnavailable, RequestRejected
from endturn.stop import StopReason

CONTEXT = StopReason.CONTEXT_WINDOW_EXCEEDED
BLOCKED = StopReason.SAFETY_BLOCKED
ERROR = StopReason.ERROR


@dataclass(frozen=True)
class Answer:
    """An error answer, and what its exception is."""

    status: int
    body: Any
    kind: type[ProviderError] = RequestRejected
    stop: StopReason | None = None
    raw: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    request_id: str | None = None
    retry_after_s: float | None = None
    says: str = ""


def openai(message: str, code: str | None = None, type_: str = "invalid_request_error") -> dict[str, Any]:
    """The body that most copy."""
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def google(code: int, status: str, message: str, *details: Any) -> dict[str, Any]:
    """Google's body."""
    error: dict[str, Any] = {"code": code, "message": message, "status": status}
    return {"error": {**error, "details": list(details)} if details else error}


def aws(name: str) -> dict[str, str]:
    """The headers of AWS's answers."""
    return {
        "x-amzn-ErrorType": f"{name}:http://internal.amazon.com/coral/com.amazon.bedrock/",
        "x-amzn-RequestId": "ca47a5ce-e260-4824-aa0e-2e62669d5d6e",
    }


AWS_ID = "ca47a5ce-e260-4824-aa0e-2e62669d5d6e"
AZURE_FILTER = {
    "error": {
        "message": "The response was filtered.",
        "type": None,
        "param": "prompt",
        "code": "400",
        "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": {"hate": {"filtered": True}}},
    }
}
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"}

ANSWERS: dict[str, Answer] = {
    # Whose fault it is
    "google rate limit": Answer(
        429,
        google(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota: input_token_count per minute", RETRY_INFO),
        ProviderUnavailable,
        retry_after_s=34.074824224,
        says="429 RESOURCE_EXHAUSTED",
    ),
    "vertex, in a list": Answer(
        503, [google(503, "UNAVAILABLE", "The model is overloaded.")], ProviderUnavailable, says="503 UNAVAILABLE"
    ),
    "google deadline": Answer(504, google(504, "DEADLINE_EXCEEDED", "Deadline expired"), ProviderTimeout),
    "google key": Answer(
        400,
        google(400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
        headers={"x-goog-request-id": "g-1"},
        request_id="g-1",
        says="400 INVALID_ARGUMENT",
    ),
    "bedrock throttling": Answer(
        429,
        {"message": "Too many tokens, please wait before trying again."},
        ProviderUnavailable,
        headers=aws("ThrottlingException"),
        request_id=AWS_ID,
        says="429 ThrottlingException: Too many tokens",
    ),
    "bedrock access": Answer(
        403, {"Message": "User is not authorized"}, headers=aws("AccessDeniedException"), request_id=AWS_ID
    ),
    "aws, typed in the body": Answer(
        403,
        {"__type": "com.amazon.coral.service#UnrecognizedClientException", "message": "The token is invalid."},
        says="403 UnrecognizedClientException",
    ),
    "bedrock model not ready": Answer(429, {"message": "Not ready"}, ProviderUnavailable),
    "bedrock model timeout": Answer(408, {"message": "Timed out"}, ProviderTimeout),
    "bedrock model error": Answer(
        424, {"message": "The model failed.", "originalStatusCode": 500}, ProviderUnavailable
    ),
    "bedrock quota": Answer(400, {"message": "Quota"}, headers=aws("ServiceQuotaExceededException"), request_id=AWS_ID),
    "cohere trial": Answer(
        429,
        {"id": "c-1", "message": "trial token rate limit exceeded, limit is 100000 tokens per minute"},
        ProviderUnavailable,
        request_id="c-1",
    ),
    "cohere token": Answer(
        401, {"message": "invalid api token"}, headers={"x-debug-trace-id": "c-2"}, request_id="c-2"
    ),
    "ollama": Answer(404, {"error": "model 'm' not found"}, says="404: model 'm' not found"),
    "ollama, crashed": Answer(500, {"error": "llama runner process has terminated"}, ProviderUnavailable),
    "watsonx": Answer(
        400,
        {"errors": [{"code": "invalid_request_entity", "message": "bad"}], "trace": "f8a0", "status_code": 400},
        request_id="f8a0",
        says="400 invalid_request_entity: bad",
    ),
    "watsonx, with a header": Answer(
        429,
        {"errors": [{"code": "rate_limit_reached_requests", "message": "slow down"}], "trace": "f8a0"},
        ProviderUnavailable,
        headers={"X-Global-Transaction-Id": "ibm-1", "Retry-After": "3"},
        request_id="ibm-1",
        retry_after_s=3.0,
    ),
    "tgi overloaded": Answer(429, {"error": "Model is overloaded", "error_type": "overloaded"}, ProviderUnavailable),
    "tgi generation": Answer(
        424,
        {"error": "Request failed during generation", "error_type": "generation"},
        ProviderUnavailable,
        says="424 generation: Request failed",
    ),
    "fastapi": Answer(
        422,
        {"detail": [{"type": "missing", "loc": ["body", "messages"], "msg": "Field required", "input": "secret"}]},
        says="body.messages: Field required",
    ),
    "fastapi, text": Answer(404, {"detail": "Not Found"}, says="404: Not Found"),
    "mistral": Answer(
        422,
        {
            "object": "error",
            "message": {"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "Field required"}]},
            "type": "invalid_request_error",
            "code": None,
        },
        headers={"mistral-correlation-id": "m-1"},
        request_id="m-1",
        says="body.model: Field required",
    ),
    "azure key": Answer(
        401,
        {"error": {"code": "401", "message": "Access denied due to invalid subscription key."}},
        headers={"apim-request-id": "a-1"},
        request_id="a-1",
    ),
    "azure rate limit": Answer(
        429,
        {"error": {"code": "429", "message": "exceeded token rate limit of your tier. Please retry after 7 seconds."}},
        ProviderUnavailable,
        headers={"retry-after": "7"},
        retry_after_s=7.0,
    ),
    "copilot": Answer(403, b"forbidden\n", headers={"X-GitHub-Request-Id": "gh-1"}, request_id="gh-1"),
    # Rate limits and parameters, which speak of tokens too
    "groq, too large for a minute": Answer(
        413,
        openai(
            "Request too large for model `x` on tokens per minute (TPM): Limit 6000, Requested 9000, please reduce the "
            "length of the messages",
            "rate_limit_exceeded",
            "tokens",
        ),
    ),
    "openai output limit": Answer(
        400, openai("max_tokens is too large: 8192. This model supports at most 4096 completion tokens.")
    ),
    "vllm output limit": Answer(
        400,
        openai(
            "'max_tokens' or 'max_completion_tokens' is too large: 5000. This model's maximum context length is 4096 "
            "tokens and your request has 16 input tokens (5000 > 4096 - 16)."
        ),
    ),
    "groq output limit": Answer(
        400,
        openai(
            "`max_tokens` must be less than or equal to `32768`, the maximum value for `max_tokens` is less than the "
            "`context_window` for this model"
        ),
    ),
    "cohere output limit": Answer(
        400, {"message": "too many tokens: max tokens must be less than or equal to 4096, the maximum output"}
    ),
    "anthropic output limit": Answer(
        400, openai("max_tokens: 100000 > 8192, which is the maximum allowed number of output tokens for the model")
    ),
    "bedrock output limit": Answer(
        400, {"message": "The maximum tokens you requested exceeds the model limit of 10000. Try again with fewer."}
    ),
    "tgi output limit": Answer(422, {"error": "Input validation error: `max_new_tokens` must be <= 192"}),
    "deepseek output limit": Answer(
        400, openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]")
    ),
    # Filters
    "azure filter, by its inner code": Answer(400, AZURE_FILTER, stop=BLOCKED, raw="ResponsibleAIPolicyViolation"),
    "bedrock filter": Answer(
        400,
        {"message": "Output blocked by content filtering policy"},
        headers=aws("ValidationException"),
        request_id=AWS_ID,
        stop=BLOCKED,
        raw="ValidationException",
    ),
    "xai filter": Answer(
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines. Failed check: SAFETY_CHECK_TYPE_CSAM",
        },
        stop=BLOCKED,
        raw="violates usage guidelines",
    ),
    "deepseek filter": Answer(400, openai("Content Exists Risk"), stop=BLOCKED, raw="invalid_request_error"),
    "vertex filter": Answer(
        400,
        google(400, "INVALID_ARGUMENT", "The prompt contains words that violate Google's Responsible AI practices."),
        stop=BLOCKED,
        raw="INVALID_ARGUMENT",
    ),
    "openai prompt": Answer(
        400,
        openai("Invalid prompt: your prompt was flagged as potentially violating our usage policy.", "invalid_prompt"),
        stop=BLOCKED,
        raw="invalid_prompt",
    ),
    # Calls that could not be read
    "groq call": Answer(
        400,
        {
            "error": {
                "message": "Failed to call a function. Please adjust your prompt.",
                "type": "invalid_request_error",
                "code": "tool_use_failed",
                "failed_generation": '<tool-use>{"name": "get_info"}',
            }
        },
        stop=ERROR,
        raw="tool_use_failed",
    ),
    "nova call": Answer(
        424,
        {"message": "Model produced invalid sequence as part of ToolUse. Please refer to the guide."},
        headers=aws("ModelErrorException"),
        request_id=AWS_ID,
        stop=ERROR,
        raw="ModelErrorException",
    ),
    "llama.cpp call": Answer(
        500,
        {"error": {"code": 500, "message": "Failed to parse tool call arguments as JSON", "type": "server_error"}},
        stop=ERROR,
        raw="server_error",
    ),
    # The window, where the shape is the provider's own
    "bedrock window": Answer(
        400,
        {"message": "Input is too long for requested model."},
        headers=aws("ValidationException"),
        request_id=AWS_ID,
        stop=CONTEXT,
        raw="ValidationException",
    ),
    "cohere window": Answer(
        400,
        {"id": "c-3", "message": "too many tokens: total number of tokens in the prompt cannot exceed 4081"},
        request_id="c-3",
        stop=CONTEXT,
        raw="too many tokens: ",
    ),
    "gemini window": Answer(
        400,
        [
            google(
                400,
                "INVALID_ARGUMENT",
                "The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).",
            )
        ],
        stop=CONTEXT,
        raw="INVALID_ARGUMENT",
    ),
    "watsonx window": Answer(
        400,
        {
            "errors": [
                {
                    "code": "invalid_input_argument",
                    "message": "Invalid input argument for Model 'm': the number of input tokens 4098 cannot exceed "
                    "the total tokens limit 4096 for this model",
                }
            ],
            "trace": "f8a0",
            "status_code": 400,
        },
        request_id="f8a0",
        stop=CONTEXT,
        raw="invalid_input_argument",
    ),
    "tgi window": Answer(
        422,
        {
            "error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 2048. Given: 3474 `inputs` "
            "tokens and 60 `max_new_tokens`",
            "error_type": "validation",
        },
        stop=CONTEXT,
        raw="validation",
    ),
    "openrouter window, upstream's": Answer(
        400,
        {
            "error": {
                "message": "Provider returned error",
                "code": 400,
                "metadata": {"raw": '{"error":{"message":"prompt is too long: 2 tokens > 1 maximum"}}'},
            }
        },
        stop=CONTEXT,
        raw="prompt is too long",
    ),
    "copilot window": Answer(
        400,
        {"error": {"message": "prompt token count of 391491 exceeds the limit of 128000", "code": "", "type": ""}},
        stop=CONTEXT,
        raw="prompt token count of 391491 exceeds",
    ),
    "groq window": Answer(
        400,
        openai("Please reduce the length of the messages or completion.", "context_length_exceeded"),
        stop=CONTEXT,
        raw="context_length_exceeded",
    ),
    "a full window is no outage": Answer(
        500, {"error": "the input length exceeds the context length"}, stop=CONTEXT, raw="exceeds the context length"
    ),
}

WINDOWS: dict[str, str] = {
    "openai": "This model's maximum context length is 8192 tokens. However, you requested 8256 tokens.",
    "openai responses": "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "anthropic": "prompt is too long: 208732 tokens > 200000 maximum",
    "anthropic, with the output": "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000",
    "vertex": "Unable to submit request because the input token count is 1251952 but model only supports up to 10.",
    "nova": "Too many input tokens. Max input tokens: 128000, request input token count: 140000",
    "mistral": "Prompt contains 300000 tokens, too large for model with 131072 maximum context length",
    "together": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097.",
    "together, plain": "Input validation error: inputs tokens + max_new_tokens must be <= 40960.",
    "xai": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "fireworks": "The prompt is too long: 1000008, model maximum context length: 131071",
    "deepseek": "This model's maximum context length is 131072 tokens. However, you requested 131134 tokens.",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "llama-cpp-python": "Requested tokens (600) exceed context window of 512",
    "lm studio": "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with "
    "context length of only 32768 tokens, which is not enough.",
    "lm studio, newer": "The number of tokens to keep from the initial prompt is greater than the context length "
    "(n_keep: 13055>= n_ctx: 4096).",
    "ollama": "prompt too long; exceeded max context length by 4096 tokens",
    "vllm": "This model's maximum context length is 262144 tokens. However, you requested 0 output tokens and your "
    "prompt contains at least 262145 input tokens.",
    "vllm, older": "The prompt (total length 25938) is too long to fit into the model (context length 4096).",
    "sglang": "Requested token count exceeds the model's maximum context length of 202752 tokens.",
    "sglang, input": "The input (516368 tokens) is longer than the model's context length (262144 tokens).",
    "tgi, input": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5000",
    "openrouter": "This endpoint's maximum context length is 16384 tokens. However, you requested about 94307 tokens.",
    "poolside": "Input length 131393 exceeds the maximum allowed input length of 131040 tokens.",
    "cohere": "too many tokens: size limit exceeded by 11326 tokens. Try using shorter or fewer inputs.",
    "moonshot": "Your request exceeded model token limit: 262144 (requested: 300000)",
    "z.ai": "tokens in request more than max tokens allowed",
    "z.ai, 1261": "Prompt exceeds max length",
    "minimax": "invalid params, context window exceeds limit (2013)",
    "dashscope": "Range of input length should be [1, 129024]",
}
"""What providers say of a prompt that is larger than the model's window."""
