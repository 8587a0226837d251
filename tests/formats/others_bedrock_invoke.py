"""What invoked models of Bedrock are asked that is no text, and what they answer (user guide, model parameters)."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

VECTOR = [0.1, -0.2]
PICTURES: Json = {"images": ["aGk="]}
RANKED: Json = {"results": [{"index": 0, "relevance_score": 0.5}]}
PROFILE = "arn:aws:bedrock:us-east-1:111122223333:application-inference-profile/abc123"

OTHERS: dict[str, tuple[Json, Json]] = {
    "amazon.titan-embed-text-v1": ({"inputText": "hi"}, {"embedding": VECTOR, "inputTextTokenCount": 3}),
    "amazon.titan-embed-text-v2:0": (
        {"inputText": "hi", "dimensions": 256, "normalize": True},
        {"embedding": VECTOR, "embeddingsByType": {"float": VECTOR}, "inputTextTokenCount": 3},
    ),
    "amazon.titan-embed-image-v1": (
        {"inputImage": "aGk=", "embeddingConfig": {"outputEmbeddingLength": 256}},
        {"embedding": VECTOR, "inputTextTokenCount": 0, "message": None},
    ),
    "amazon.nova-2-multimodal-embeddings-v1:0": (
        {
            "schemaVersion": "nova-multimodal-embed-v1",
            "taskType": "SINGLE_EMBEDDING",
            "singleEmbeddingParams": {"embeddingPurpose": "GENERIC_INDEX", "text": {"value": "hi"}},
        },
        {"embeddings": [{"embeddingType": "TEXT", "embedding": VECTOR}]},
    ),
    "cohere.embed-english-v3": (
        {"texts": ["hi"], "input_type": "search_document"},
        {"embeddings": [VECTOR], "id": "e", "response_type": "embeddings_floats", "texts": ["hi"]},
    ),
    "cohere.embed-v4:0": (
        {"inputs": [{"content": [{"type": "text", "text": "hi"}]}], "input_type": "search_query"},
        {"embeddings": {"float": [VECTOR]}, "id": "e", "response_type": "embeddings_by_type"},
    ),
    "twelvelabs.marengo-embed-2-7-v1:0": ({"inputType": "text", "inputText": "hi"}, {"data": [{"embedding": VECTOR}]}),
    "cohere.rerank-v3-5:0": ({"query": "hi", "documents": ["a"], "api_version": 2}, RANKED),
    "amazon.rerank-v1:0": ({"query": "hi", "documents": ["a"]}, RANKED),
    "amazon.nova-canvas-v1:0": ({"taskType": "TEXT_IMAGE", "textToImageParams": {"text": "a cat"}}, PICTURES),
    "amazon.titan-image-generator-v2:0": (
        {"taskType": "TEXT_IMAGE", "textToImageParams": {"text": "a cat"}},
        {**PICTURES, "error": None},
    ),
    "stability.stable-image-core-v1:1": (
        {"prompt": "a cat", "output_format": "png"},
        {**PICTURES, "finish_reasons": [None], "seeds": [1]},
    ),
    "stability.stable-diffusion-xl-v1": (
        {"text_prompts": [{"text": "a cat"}], "cfg_scale": 10},
        {"result": "success", "artifacts": [{"base64": "aGk=", "finishReason": "SUCCESS"}]},
    ),
    "luma.ray-v2:0": ({"prompt": "a cat", "aspect_ratio": "16:9"}, {}),
}
"""model → a request's body, and an answer's."""
