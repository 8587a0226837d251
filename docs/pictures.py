"""The pictures of the documentation, drawn anew: `make pictures`.

    python docs/pictures.py                    all of the following
    python docs/pictures.py machine            docs/state-diagram.svg; needs Graphviz (`dot`)
    python docs/pictures.py page               docs/page-*.png, of the local page with the demo
    python docs/pictures.py report scan        docs/report.png, docs/scan.png
    python docs/pictures.py --boards COMMAND   docs/overview.png and docs/dashboards/*.png

The pages are photographed in Chromium. The dashboards need a command that draws one without
Grafana, `COMMAND FILE.json --prometheus URL --from MS --to MS --theme dark|light --out FILE.png`,
and the Prometheus of `make stack`: they show the hours of `docs/dashboards/hours.py`.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from playwright.sync_api import Browser, sync_playwright

from endturn.continuation import machine

DOCS: Final = Path(__file__).parent
ROOT: Final = DOCS.parent
ENDTURN: Final = (sys.executable, "-m", "endturn")
WIDTH: Final = 1280
HEIGHT: Final = 860


# --- The continuation machine -----------------------------------------------------------------------------------------

STYLE: Final = """<style>
  svg { background: #fff; font-family: ui-sans-serif, system-ui, "Segoe UI", Roboto, Arial, sans-serif; }
  .node path, .node polygon, .node ellipse { fill: #f4f4f6; stroke: #6b6b76; }
  .final path { fill: #e7f5ee; stroke: #15935d; } .start path { fill: #ecebfd; stroke: #4f46e5; }
  .edge path { stroke: #94949f; } .edge polygon { fill: #94949f; stroke: #94949f; }
  text { fill: #18181b; } .edge text { fill: #55555f; }
  @media (prefers-color-scheme: dark) {
    svg { background: #16181d; }
    .node path { fill: #272a31; stroke: #9a9ba6; }
    .final path { fill: #17352a; stroke: #3fc48a; } .start path { fill: #262650; stroke: #8b8bf5; }
    .edge path { stroke: #70717c; } .edge polygon { fill: #70717c; stroke: #70717c; }
    text { fill: #ececf0; } .edge text { fill: #b5b6c0; }
  }
</style>"""


def machine_dot() -> str:
    """The continuation machine's table as a graph of Graphviz: one arrow for all signals between two states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, signal), leads_to in machine.TRANSITIONS.items():
        arrows.setdefault((state.value, leads_to.value), []).append(signal.value)
    lines = [
        "digraph machine {",
        '  graph [rankdir=LR, nodesep=0.3, ranksep=0.25, pad=0.3, bgcolor="transparent"]',
        '  node [shape=box, style="rounded,filled", fontsize=14, fontname="Helvetica", margin="0.16,0.08"]',
        '  edge [fontsize=11, fontname="Helvetica", arrowsize=0.7]',
    ]
    for state in machine.State:
        kind = "final" if state in machine.FINAL else "start" if state is machine.INITIAL else "state"
        lines.append(f'  {state.value} [class="{kind}"]')
    for (start, end), signals in arrows.items():
        label = "".join(rf"{signal}\l" for signal in signals)  # each on a line of its own, to the left
        lines.append(f'  {start} -> {end} [label="{label}"]')
    return "\n".join([*lines, "}"])


def draw_machine() -> None:
    """Draw the machine as SVG for light and dark readers."""
    dot = shutil.which("dot")
    if dot is None:
        raise SystemExit("the machine is drawn by Graphviz: apt-get install graphviz")
    done = subprocess.run([dot, "-Tsvg"], input=machine_dot(), capture_output=True, text=True, check=True)
    text = re.sub(r"(?s)^.*?(?=<svg)", "", done.stdout)
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.S)
    text = re.sub(r' (?:fill|stroke|font-family)="[^"]*"', "", text)  # the style sheet has them
    text = re.sub(r"<path(?= d=)", '<path fill="none"', text)
    text = re.sub(r"(<svg[^>]*>)", rf"\1\n{STYLE}", text, count=1, flags=re.S)
    (DOCS / "state-diagram.svg").write_text(text)


# --- Pages ------------------------------------------------------------------------------------------------------------


@contextmanager
def browser() -> Iterator[Browser]:
    """Chromium, as Debian has it."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if binary is None:
        raise SystemExit("pages are photographed in Chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield started
        started.close()


def photograph(browser: Browser, url: str, name: str, *, theme: str = "light", width: int = WIDTH) -> None:
    """Take a picture of the top of a page."""
    context = browser.new_context(
        viewport={"width": width, "height": HEIGHT}, color_scheme="dark" if theme == "dark" else "light",
        timezone_id="UTC", locale="en-GB", reduced_motion="reduce",
    )  # fmt: skip
    tab = context.new_page()
    tab.goto(url)
    tab.wait_for_timeout(1500)
    tab.screenshot(path=str(DOCS / name))
    context.close()


@contextmanager
def demo_page() -> Iterator[tuple[str, Path]]:
    """The local page, filled by the demo: its address, and the database that it keeps."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "demo.duckdb"
        command = [*ENDTURN, "ui", "--port", "0", "--no-open", "--file", str(file)]
        page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert page.stdout is not None
            match = re.search(r"http://[\d.:]+", page.stdout.readline())
            assert match, "endturn ui printed no address"
            environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
            environment |= {"OTEL_EXPORTER_OTLP_ENDPOINT": match[0]}
            environment |= {"OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_AND_EVENT"}
            subprocess.run([*ENDTURN, "demo", "--once"], env=environment, check=True, stdout=subprocess.DEVNULL)
            yield match[0], file
        finally:
            page.terminate()
            page.wait()


def draw_page() -> None:
    """The overview, and a turn that was truncated several times and finished."""
    with demo_page() as (address, _), browser() as started:
        with urllib.request.urlopen(f"{address}/turns?range=all&state=finished&sort=worst") as answer:
            links = re.findall(r'href="(/turns/[^"?]+[^"]*)"', answer.read().decode())
        turn = links[0].replace("&amp;", "&")
        for theme, suffix in (("light", ""), ("dark", "-dark")):
            photograph(started, f"{address}/?range=all", f"page-overview{suffix}.png", theme=theme)
            photograph(started, f"{address}{turn}", f"page-turn{suffix}.png", theme=theme)


def draw_report() -> None:
    """The report on the demo, with two conditions."""
    with demo_page() as (_, file), TemporaryDirectory() as folder, browser() as started:
        conditions = ["--fail-on", "truncation_without_continuation > 1%", "--fail-on", "unknown > 5"]
        copy = shutil.copy(file, folder)
        if (log := file.with_name(f"{file.name}.wal")).exists():
            shutil.copy(log, folder)
        done = subprocess.run(
            [*ENDTURN, "report", "--file", Path(copy).name, "--format", "html", *conditions],
            cwd=folder, capture_output=True, text=True,
        )  # fmt: skip
        page = Path(folder) / "report.html"
        page.write_text(done.stdout)
        for theme, suffix in (("light", ""), ("dark", "-dark")):
            photograph(started, page.as_uri(), f"report{suffix}.png", theme=theme)


def draw_scan() -> None:
    """The report on the past sessions of the tests."""
    with TemporaryDirectory() as folder, browser() as started:
        page = Path(folder) / "scan.html"
        sessions = [str(ROOT / "tests/scan" / name) for name in ("claude_code", "codex", "opencode", "pi")]
        subprocess.run([*ENDTURN, "scan", *sessions, "--report", str(page)], check=True, stdout=subprocess.DEVNULL)
        photograph(started, page.as_uri(), "scan.png", width=1200)


# --- Dashboards -------------------------------------------------------------------------------------------------------

BOARDS: Final = ("overview", "stop-reasons", "continuations", "model", "pipeline")


def draw_boards(command: str) -> None:
    """Draw the dashboards over the simulated hours.

    Args:
        command: what draws one of them.
    """
    with TemporaryDirectory() as folder:
        hours = subprocess.Popen(
            [sys.executable, str(DOCS / "dashboards/hours.py"), folder],
            stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        try:
            assert hours.stdout is not None
            url, _, _, _, end = hours.stdout.readline().split()
            start = str(int(end) - 9 * 3_600_000)
            for board in BOARDS:
                for theme, suffix in (("dark", ""), ("light", "-light")):
                    out = DOCS / f"dashboards/{board}{suffix}.png"
                    subprocess.run(
                        [*shlex.split(command), str(ROOT / f"dashboards/{board}.json"), "--prometheus", url,
                         "--from", start, "--to", end, "--theme", theme, "--out", str(out)],
                        check=True,
                    )  # fmt: skip
            shutil.copy(DOCS / "dashboards/overview.png", DOCS / "overview.png")
        finally:
            hours.terminate()
            hours.wait()


PICTURES: Final[dict[str, Callable[[], None]]] = {
    "machine": draw_machine, "page": draw_page, "report": draw_report, "scan": draw_scan,
}  # fmt: skip


def main() -> None:
    """Draw what the command line names; without names everything that needs no other command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help=f"of {', '.join(PICTURES)}; default: all")
    parser.add_argument("--boards", metavar="COMMAND", help="also draw the dashboards, with this command")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.pictures) - PICTURES.keys()):
        parser.error(f"no picture {', '.join(unknown)}; there are {', '.join(PICTURES)}")
    for name in arguments.pictures or PICTURES:
        PICTURES[name]()
    if arguments.boards:
        draw_boards(arguments.boards)


if __name__ == "__main__":
    main()
