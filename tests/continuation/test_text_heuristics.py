"""The open fence of a code block at the end of a text."""

from __future__ import annotations

import pytest

from endturn.continuation.text_heuristics import open_fence


@pytest.mark.behaviour(30)
@pytest.mark.parametrize(
    ("text", "fence"),
    [
        ("```py\n", ("```", "py")),
        ("```\n", ("```", "")),
        ("~~~~ Py \r\n", ("~~~~", "py")),
        ("      ```py\n", ("```", "py")),
        ("- ```py\n", ("```", "py")),
        ("12) ```py\n", ("```", "py")),
        ("```md\n    ```\n", ("```", "md")),
        ("```md\n- ```\n", ("```", "md")),
        ("````md\n```\n", ("````", "md")),
        ("```md\n```js\n", ("```", "md")),
        ("```a\n```\n```b\n", ("```", "b")),
    ],
)
def test_an_open_fence(text: str, fence: tuple[str, str]) -> None:
    """Its mark and its language."""
    assert open_fence(text) == fence


@pytest.mark.behaviour(30)
@pytest.mark.parametrize(
    "text",
    [
        "text ```py\n",
        "```py",
        "``py\n",
        "```a`b\n",
        "```py\nx\n```\n",
        "```py\nx\n   ````\n",
        "    ```py\nx\n    ```\n",
    ],
)
def test_no_open_fence(text: str) -> None:
    assert open_fence(text) is None
