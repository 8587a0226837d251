"""First lines that announce a continuation, and those that are part of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from endturn.continuation.preambles import is_preamble, may_become_preamble
from endturn.continuation.stitching import stitch

REPLIES: Final = Path(__file__).parents[1] / "replies"
ANNOUNCEMENTS: Final = """
Sure, continuing:
Sure! Continuing from where I left off:
Continuing from where I left off...
Here's the rest of the response:
Here is the continuation:
Certainly! Here's the continuation of the code:
I apologize for the interruption. Continuing:
Continuing where we left off:
(continued)
[Continued]
...continued:
Picking up where I left off:
Let me continue from where I was cut off:
I'll continue exactly from where I left off.
Continuing exactly from where I left off:
Sure, I'll continue from where it was cut off:
Here's the remainder of the document:
Continuing the list:
Continuing the code:
Continuing with the next section:
Resuming from the cutoff:
Of course! Here is the rest of the story:
Understood. Continuing the output:
Here is the remaining code:
Here's the rest:
Continuing from the previous message:
Here is the rest of the answer, continuing from where it was cut off:
**Continued:**
Apologies for the cutoff. Here's the rest:
Continuation:
Sorry about that! Continuing from where I left off:
Natürlich, hier geht es weiter:
Claro, continúo donde lo dejé:
好的，继续：
Sure, here's the rest of the function:
Continuing from `return x`:
OK, resuming right where I was interrupted:
Got it. Let me pick up where I left off.
Below is the continuation of the report:
It looks like my response was cut off. Continuing:
I'll continue the explanation:
Let me finish the implementation:
Here is the second half of the script:
*Continuing from the last line…*
Voici la suite :
もちろんです。続きです：
Конечно, продолжаю:
**Continuing:**
Resuming: …
Continuing from "the price of the":
Continuing from “the price of the”:
Sure, picking up from "the price...":
Apologies for the interruption.
I apologize for the cut-off.
Sorry for the interruption!
As I was saying,
As I was saying:
""".strip().splitlines()
"""As models write them (reported by users of chat assistants and of agent frameworks, and their plain variants)."""
TEXTS: Final = """
continued
Continued.
Continuing
continued)
Continuing education is worth it.
Continuing the story of Anna:
Continuing 3:
Continuing from where I left off: the fox
Here's the rest of my family:
Here is the code:
Here is the list:
Here are the remaining three reasons:
The rest of the code:
Resuming work on Monday:
# Continuation
## Continuation
## Continuing the list
Sure.
Sure!
Sure:
"Sure, let me continue," she said.
"Sure," he said. "Continuing from where I left off."
- Sure, continuing:
Yes
Of course!
Right:
Okay, so:
Let me see.
I was cut off:
I'm sorry:
Above:
to continue press enter
// continued
continue;
    continue
return continued
`continued`:
"continued":
Continuing from "The Raven", we see
Continuing from "The Raven": the bird
"Apologies for the interruption."
"As I was saying," she went on.
As I was saying, the price
Apologies for the interruption of the service.
Apologies for the delay.
Apologies.
Continuing from `return x` we see
suite
""".strip("\n").splitlines()
"""What an answer may well hold in a line of its own."""


@pytest.mark.behaviour(30)
@pytest.mark.parametrize("line", ANNOUNCEMENTS)
def test_a_preamble_is_removed(line: str) -> None:
    """The empty line after it is removed too; each beginning of it may become a preamble, so it is held back."""
    assert is_preamble(line)
    assert all(may_become_preamble(line[:size]) for size in range(len(line)))
    cut = "The first reason is the price of the"
    assert stitch(cut, f"{line}\n\n machine itself.") == f"{cut} machine itself."


@pytest.mark.behaviour(30)
@pytest.mark.parametrize("line", TEXTS)
def test_a_line_of_the_answer_is_no_preamble(line: str) -> None:
    """It has new content, or may be part of the answer."""
    assert not is_preamble(line)
    assert stitch("First.\n", f"{line}\nSecond.") == f"First.\n{line}\nSecond."


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON value."""
    if isinstance(value, str):
        yield value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from texts(part)


def test_no_line_of_a_recorded_reply_is_an_announcement() -> None:
    """Recordings of providers have no preambles; scripts of ours may."""
    seen = 0
    for path in REPLIES.rglob("*.json"):
        for text in texts(json.loads(path.read_text("utf-8"))):
            for line in text.splitlines():
                seen += 1
                assert not is_preamble(line), (path.name, line)
    assert seen > 10_000
