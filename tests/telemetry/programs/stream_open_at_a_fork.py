"""A stream that is open when the process forks."""

import os
import sys
import warnings
from typing import Any

warnings.simplefilter("ignore", DeprecationWarning)
import openai

import endturn

endturn.configure()
ask: Any = {"max_tokens": 8, "messages": [{"role": "user", "content": "?"}]}
client = openai.OpenAI(max_retries=0)
client.chat.completions.create(model="cut", **ask)
stream = client.chat.completions.create(model="done", stream=True, **ask)
next(iter(stream))
child = os.fork()
if not child:
    client = openai.OpenAI(max_retries=0)
    client.chat.completions.create(model="done", max_tokens=8, messages=[{"role": "user", "content": "child"}])
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
for _ in stream:
    pass
