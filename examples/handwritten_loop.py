"""An agent without a framework: a loop that runs tools and continues truncated answers.

pip install endturn openai
OPENAI_API_KEY=… python examples/handwritten_loop.py "What is the weather in Oslo?"
"""

import json
import sys
from typing import Any

import openai
from telling import tell

import endturn

endturn.instrument()  # the one added line; endturn.configure() if OpenTelemetry is not set up
tell()

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a city.",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def weather(city: str) -> str:
    return f"It rains in {city}."


def answer(question: str) -> str:
    client = openai.OpenAI()
    messages: list[Any] = [{"role": "user", "content": question}]
    said = ""
    while True:
        response = client.chat.completions.create(model="gpt-5-mini", messages=messages, tools=TOOLS)
        choice = response.choices[0]
        said += choice.message.content or ""
        if choice.finish_reason == "length" and not choice.message.tool_calls:
            messages += [choice.message, {"role": "user", "content": "Continue exactly where you stopped."}]
        elif choice.finish_reason == "tool_calls":
            messages.append(choice.message)
            for call in choice.message.tool_calls or ():
                assert call.type == "function"
                result = weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        else:
            return said


if __name__ == "__main__":
    print(answer(" ".join(sys.argv[1:]) or "What is the weather in Oslo?"))
