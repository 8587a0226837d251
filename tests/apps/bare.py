"""An agent without a line of telemetry: asks each of the models that it is given, once.

`bare.py MODEL …`, with OPENAI_BASE_URL and OPENAI_API_KEY in its environment; ends as ENDING says: by itself, `exit`
with status 3, `raise`, or `term` itself.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import urllib.request


def ask(model: str, question: str) -> str:
    """One call, of at most eight tokens, by what comes with Python, which begins the soonest; the answer."""
    asked = {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": 8}
    headers = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "content-type": "application/json"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(asked).encode(), headers)) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


if __name__ == "__main__":
    for number, model in enumerate(sys.argv[1:]):
        ask(model, f"{model} {number} of {os.getpid()}")
    match os.environ.get("ENDING"):
        case "exit":
            sys.exit(3)
        case "raise":
            raise RuntimeError("the agent failed")
        case "term":
            os.kill(os.getpid(), signal.SIGTERM)
