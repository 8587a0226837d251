"""The documentation's site, as `make docs` builds it: every address on it leads somewhere, and it loads only itself."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import sync_playwright

from endturn.continuation import machine
from tests.project.test_docs import anchors_of
from tests.support.processes import REPOSITORY

FORGE = "https://github.com/endturn/endturn"
LOADED = {
    ("script", "src"),
    ("img", "src"),
    ("source", "srcset"),
    ("source", "src"),
    ("iframe", "src"),
    ("link", "href"),
}
"""Tags and attributes whose address a browser loads by itself."""


@dataclass
class Page(HTMLParser):
    """The addresses and anchors of one page.

    Attributes:
        addresses: (tag, attribute, address) in the order of the page.
        anchors: every id and name.
    """

    addresses: list[tuple[str, str, str]] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.addresses.append((tag, name, value))
            elif name == "srcset" and value:
                self.addresses += [(tag, name, candidate.split()[0]) for candidate in value.split(",")]


def read(text: str) -> Page:
    page = Page()
    page.feed(text)
    return page


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site. mkdocs is strict: a page without a place, or a link to nothing, is an error."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=REPOSITORY, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: read(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def file_of(site: Path, page: Path, path: str) -> Path:
    """The file that a server sends for a path which stands on a page."""
    target = site / path.lstrip("/") if path.startswith("/") else page.parent / path
    target = target.resolve()
    return target / "index.html" if target.is_dir() else target


def test_every_address_leads_to_a_file_and_an_anchor_of_it(site: Path, pages: dict[Path, Page]) -> None:
    """Each `href`, `src` and `srcset`, in what Markdown made and in raw HTML."""
    missing = defaultdict(set)
    for path, page in pages.items():
        for tag, attribute, address in page.addresses:
            url = urlsplit(address)
            if url.scheme or url.netloc:
                continue
            file = file_of(site, path, unquote(url.path)) if url.path else path
            target = pages.get(file)
            anchor = unquote(url.fragment)
            if not file.is_file() or (anchor and target is not None and anchor not in target.anchors):
                missing[f"<{tag} {attribute}={address!r}>"].add(path.relative_to(site).as_posix())
    assert dict(missing) == {}
    assert len(pages) > 50


def test_links_to_the_repository_lead_to_files_and_headings_of_it(pages: dict[Path, Page]) -> None:
    """What stands out of docs/ is on the forge only."""
    missing = set()
    for page in pages.values():
        for _, _, address in page.addresses:
            path, _, anchor = address.partition("#")
            if path.startswith(f"{FORGE}/"):
                kind, _, name = path.removeprefix(f"{FORGE}/").partition("/main")
                file = REPOSITORY / name.lstrip("/")
                exists = kind in ("blob", "tree") and file.exists()
                if not exists or (anchor and anchor not in anchors_of(file.read_text(encoding="utf-8"))):
                    missing.add(address)
    assert missing == set()


def test_no_page_loads_anything_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    """No tag and no style sheet does, and nothing is on a page for which the theme's script would ask another host."""
    foreign = {
        address
        for page in pages.values()
        for tag, attribute, address in page.addresses
        if (tag, attribute) in LOADED and urlsplit(address).netloc
    }
    styles = {
        address
        for sheet in site.rglob("*.css")
        for address in re.findall(r"""(?:url\(|@import )\s*["']?((?:https?:)?//[^"')\s]+)""", sheet.read_text("utf-8"))
    }
    assert (foreign, styles) == (set(), set())
    for path in pages:
        text = path.read_text(encoding="utf-8")
        assert 'data-md-component="source"' not in text  # the theme asks api.github.com for its stars
        assert 'class="mermaid"' not in text  # the theme loads a library from a CDN to draw it
        assert "Content-Security-Policy" in text


def test_the_site_has_the_mark_of_the_product(site: Path, pages: dict[Path, Page]) -> None:
    mark = (REPOSITORY / "src/endturn/ui/static/icon.svg").read_text()
    assert (site / "icon.svg").read_text() == mark
    for path, page in pages.items():
        own = {(tag, file_of(site, path, address).name) for tag, _, address in page.addresses if "icon" in address}
        assert own == {("link", "icon.svg"), ("img", "icon.svg")}


def test_every_picture_is_on_a_page() -> None:
    """No picture stays behind when the page that showed it is gone."""
    texts = [path.read_text(encoding="utf-8") for path in (*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"))]
    pictures = [path.name for pattern in ("*.png", "*.svg") for path in (REPOSITORY / "docs").rglob(pattern)]
    assert [name for name in pictures if not any(name in text for text in texts)] == []


def test_the_readme_shows_pictures_that_exist() -> None:
    """Raw HTML too, which no other test of links reads."""
    readme = (REPOSITORY / "README.md").read_text()
    shown = [address for _, attribute, address in read(readme).addresses if attribute in ("src", "srcset")]
    shown += re.findall(r"!\[[^\]]*\]\(([^)]+)\)", readme)
    assert shown
    assert [address for address in shown if not (REPOSITORY / address).is_file()] == []


def test_the_drawn_machine_is_the_machine() -> None:
    """Every transition is an arrow with its signals, and no arrow is drawn that is not in the table.

    `make pictures` draws it anew.
    """
    root = ET.fromstring((REPOSITORY / "docs/state-diagram.svg").read_text(encoding="utf-8"))
    space = "{http://www.w3.org/2000/svg}"
    drawn: dict[tuple[str, str], set[str]] = {}
    kinds: dict[str, set[str]] = defaultdict(set)
    for group in root.iter(f"{space}g"):
        kind, _, style = group.get("class", "").partition(" ")
        title = group.findtext(f"{space}title") or ""
        if kind == "edge":
            start, _, end = title.partition("->")
            drawn[start, end] = {text.text or "" for text in group.iter(f"{space}text")}
        elif kind == "node":
            kinds[style].add(title)
    table: dict[tuple[str, str], set[str]] = defaultdict(set)
    for (state, signal), leads_to in machine.TRANSITIONS.items():
        table[state.value, leads_to.value].add(signal.value)
    assert drawn == dict(table)
    assert kinds["start"] == {machine.INITIAL.value}
    assert kinds["final"] == {state.value for state in machine.FINAL}


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and prints nothing."""

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.browser
def test_a_browser_asks_only_the_site(served: str, site: Path, pages: dict[Path, Page]) -> None:
    """With scripts, on every page, with the search open: each request goes to the site, and each is answered."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert binary, "no Chromium: apt-get install chromium"
    asked: set[str] = set()
    failed: set[str] = set()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        tab = browser.new_page()
        tab.on("request", lambda request: asked.add(request.url))
        tab.on("response", lambda response: failed.add(response.url) if response.status >= 400 else None)
        refused: set[str] = set()
        tab.on("console", lambda said: refused.add(said.text) if "Content Security Policy" in said.text else None)
        for path in pages:
            tab.goto(f"{served}/{path.relative_to(site).as_posix()}")
        tab.goto(f"{served}/")
        tab.get_by_label("Search").first.click()
        tab.keyboard.type("truncated")
        tab.locator(".md-search-result__link").first.wait_for()
        browser.close()
    assert {url for url in asked if not url.startswith((served, "data:", "blob:"))} == set()
    assert (failed, refused) == (set(), set())
