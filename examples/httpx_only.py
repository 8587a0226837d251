"""An agent without an SDK: it posts to a provider's API directly. endturn knows the provider's address.

pip install endturn httpx
OPENAI_API_KEY=… python examples/httpx_only.py "What is the weather in Oslo?"
"""

import os
import sys

import httpx
from telling import tell

import endturn

endturn.instrument()
tell()

URL = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")


# endturn recognises a provider's own address. For a proxy's, declare what the function does.
@endturn.observe_provider_call(provider="openai", format="openai_chat")
def ask(messages: list[dict[str, str]]) -> dict:
    response = httpx.post(
        f"{URL}/chat/completions",
        headers={"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"},
        json={"model": "gpt-5-mini", "messages": messages, "max_tokens": 200},
        timeout=60,
    )
    return response.raise_for_status().json()


if __name__ == "__main__":
    question = " ".join(sys.argv[1:]) or "What is the weather in Oslo?"
    print(ask([{"role": "user", "content": question}])["choices"][0]["message"]["content"])
