"""Hooks of mkdocs: links out of `docs/` lead to the repository, and the site has the product's mark.

GitHub and the site show the same Markdown. Two things differ between them: a link out of `docs/`
has no page on the site, and mkdocs does not rewrite the addresses of raw HTML.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
ICON = ROOT / "src/endturn/ui/static/icon.svg"
"""The mark of the local page: the site's logo and favicon."""
LINK = re.compile(r"\]\((?!\w+:|#)([^)\s]+)\)")
RAW = re.compile(r'(<(?:img|source|a)\b[^>]*?\b(?:src|srcset|href)=")(?!\w+:|#|/)([^"]+)(")')


def on_files(files: Files, *, config: Any, **_: Any) -> Files:
    """Add the mark."""
    files.append(File.generated(config, "icon.svg", content=ICON.read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files, **_: Any) -> str:
    """Rewrite the links of a page for the site."""
    source = DOCS / page.file.src_uri
    if page.file.src_uri == "contributing.md":
        source = ROOT / "CONTRIBUTING.md"
        markdown = source.read_text("utf-8")

    def link(match: re.Match[str]) -> str:
        path, mark, anchor = match[1].partition("#")
        target = (source.parent / path).resolve()
        if not target.is_relative_to(DOCS):
            return f"]({config.repo_url}/blob/main/{target.relative_to(ROOT)}{mark}{anchor})"
        return f"]({match[1].removeprefix('docs/')})" if source.parent == ROOT else match[0]

    def raw(match: re.Match[str]) -> str:
        """Return a tag with the address that its file has from this page on."""
        target = (source.parent / match[2]).resolve()
        file = files.get_file_from_path(target.relative_to(DOCS).as_posix())
        if file is None:
            raise FileNotFoundError(f"{source.relative_to(ROOT)}: {match[2]!r} is not in docs/")
        return f"{match[1]}{get_relative_url(file.url, page.url)}{match[3]}"

    return RAW.sub(raw, LINK.sub(link, markdown))
