"""What mkdocs does to a page before it renders it: links out of `docs/` lead to the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Point a link that GitHub follows out of `docs/` to the repository, where a site can follow it."""
    source = ROOT / "docs" / page.file.src_uri
    if page.file.src_uri == "contributing.md":
        source = ROOT / "CONTRIBUTING.md"
        markdown = source.read_text("utf-8")

    def outside(link: re.Match[str]) -> str:
        path, mark, anchor = link[1].partition("#")
        target = (source.parent / path).resolve()
        if not target.is_relative_to(ROOT / "docs"):
            return f"]({config.repo_url}/blob/main/{target.relative_to(ROOT)}{mark}{anchor})"
        return (
            link[0]
            if source.parent == ROOT / "docs" or source.parent != ROOT
            else f"]({link[1].removeprefix('docs/')})"
        )

    return LINK.sub(outside, markdown)
