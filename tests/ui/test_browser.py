"""The page in a real browser: clicked, typed at, updated while it is open, narrow, dark, and attacked."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from endturn.telemetry import schema
from endturn.ui import server
from endturn.ui.rows import Batch
from endturn.ui.store import Store
from tests.ui.support import CUT, SECOND, TRUNCATED, Served, batch, point, said, span
from tests.ui.test_alerts import ON_PAGE

pytestmark = pytest.mark.browser

HOSTILE = """</script><img src=x onerror="document.title='hit'"><svg onload=alert(1)>'"--"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, which `make test-all` installs where it is missing."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert binary, "no Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def tab(browser: Browser) -> Iterator[Page]:
    """A tab in which nothing may fail: no script error, no request that is refused, nothing that the policy blocks."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab = context.new_page()
    problems: list[str] = []
    tab.on("pageerror", lambda error: problems.append(str(error)))
    tab.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    yield tab
    context.close()
    assert not problems


def fill(page: Served, *, model: str = "gpt-5", service: str = "agent") -> None:
    """A cut and continued turn, an unfinished one, and their metrics."""
    known = {"gen_ai.request.model": model}
    cut = CUT | known | {"gen_ai.request.max_tokens": 40, "gen_ai.usage.output_tokens": 40, **words("the end is ne")}
    rest = known | {"endturn.continuation.index": 1, "endturn.turn.iteration": 2, "gen_ai.usage.output_tokens": 8}
    rest |= words("ar, and here it is.")
    begun = time.time_ns() - 10 * SECOND
    for id_, start, attributes in (
        ("a1", begun, cut), ("a2", begun + SECOND, rest), ("a3", begun, cut | {"endturn.turn.id": "t2"})
    ):  # fmt: skip
        request = span(spanId=id_ * 8, start_ns=start, attributes=attributes, resource={"service.name": service})
        assert page.post("traces", request).status == 200
    labels: dict[str, Any] = {"service": service, schema.REQUEST_MODEL.label: model}
    points = [
        point(schema.TURNS, 4, **TRUNCATED, **labels),
        point(schema.TRUNCATION_EXITS, 1, **said(schema.OUTCOME, "not_continued"), **labels),
        point(schema.RESPONSES, 5, **said(schema.REASON, "max_tokens"), **labels),
    ]
    page.store.write(Batch(points=points))


def words(text: str) -> dict[str, str]:
    """The attribute that has what a model said."""
    return {"gen_ai.output.messages": f'[{{"parts": [{{"type": "text", "content": "{text}"}}]}}]'}


def seen(tab: Page, page: Served) -> None:
    """Wait until the tab shows all that the page has been told."""
    expect(tab.locator("#page")).to_have_attribute("data-seen", str(page.store.commits))


def test_an_empty_page_copies_its_setup_and_fills_by_itself(page: Served, tab: Page) -> None:
    """Nobody has to reload it when telemetry comes; what is below what changes stays where it is."""
    tab.goto(page.url)
    expect(tab.get_by_role("heading", name="No telemetry yet")).to_be_visible()
    tab.get_by_role("button", name="Copy").click()
    assert f"OTEL_EXPORTER_OTLP_ENDPOINT={page.url}" in tab.evaluate("navigator.clipboard.readText()")
    fill(page)
    expect(tab.get_by_text("25.0%").first).to_be_visible()
    expect(tab.locator("#chart-reasons svg[role=img]")).to_be_visible()
    heading = tab.get_by_role("heading", name="Turn duration, continued and plain")
    before = heading.bounding_box()
    page.store.write(Batch(points=[point(schema.TURNS, 4, instance="two", **TRUNCATED)]))
    expect(tab.get_by_text("12.5%").first).to_be_visible()
    assert heading.bounding_box() == before


WRITTEN = """page => {
    for (const each of page.querySelectorAll("[data-drawn]")) each.remove();
    for (const each of page.querySelectorAll("details")) each.open = false;
    return page.innerHTML;
}"""


def test_everything_on_a_page_is_as_a_reload_would_show_it(page: Served, tab: Page) -> None:
    """Notes, choices, counts and pagers too: not only the numbers."""
    other = tab.context.new_page()
    assert page.post("traces", span()).status == 200
    for path, before, after in (
        ("/?range=24h", "There are spans, but no metrics", "truncated turns was not continued"),
        ("/turns?range=24h", "A turn is what", "1–50 of"),
        ("/reasons", "No call|end turn", "In no table: odd"),
        ("/alerts", "Nobody is told", f"1 of {len(ON_PAGE)} fires now"),
        ("/turns/t1", "40 tokens 4 times", "40 tokens 5 times"),
    ):
        tab.goto(f"{page.url}{path}")
        expect(tab.locator("main")).to_contain_text(re.compile(before))
        fill(page, model=f"of {path}")
        page.store.write(batch(span(), count=60, span_id=path + "{n}", turn_id=path + "{n}", raw="odd"))
        seen(tab, page)
        expect(tab.locator("main")).to_contain_text(after)
        other.goto(f"{page.url}{path}")
        assert tab.locator("#page").evaluate(WRITTEN) == other.locator("#page").evaluate(WRITTEN)


def test_news_leave_what_the_reader_does(page: Served, tab: Page) -> None:
    """The row with the focus, what is open, what is selected, and what is being typed stay."""

    def told() -> None:
        fill(page, model=f"gpt-{time.time_ns()}")
        seen(tab, page)

    fill(page)
    tab.goto(f"{page.url}/turns")
    tab.keyboard.press("j")
    focused = "document.activeElement.getAttribute('href')"
    before = tab.evaluate(focused)
    page.store.write(batch(span(start_ns=time.time_ns()), span_id="newest", turn_id="newest"))
    expect(tab.locator("tbody tr")).to_have_count(3)
    assert tab.evaluate(focused) == before
    tab.goto(f"{page.url}/alerts")
    tab.locator("#EndturnStopReasonUnknown summary").click()
    told()
    expect(tab.locator("#EndturnStopReasonUnknown")).to_have_attribute("open", "")
    tab.goto(f"{page.url}/reasons")
    tab.locator("#reason").fill("pau")
    tab.evaluate("scrollTo(0, 300)")
    told()
    expect(tab.locator("#reason")).to_have_value("pau")
    assert tab.evaluate("scrollY") == 300
    tab.goto(f"{page.url}/turns/t1")
    tab.evaluate("getSelection().selectAllChildren(document.querySelector('#trace'))")
    told()
    assert tab.evaluate("String(getSelection())") == "0af7651916cd43dd8448eb211c80319c"


def test_a_page_that_was_cut_off_catches_up(browser: Browser) -> None:
    """When the server is back it is asked for everything, though nothing came since."""
    store, listening = Store(), server.listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    tab = browser.new_page()
    with server.serving(store, listening) as url:
        fill(Served(url, store))
        tab.goto(f"{url}/turns")
        expect(tab.locator("tbody tr")).to_have_count(2)
    expect(tab.get_by_text("not connected")).to_be_visible()
    store.write(batch(span(), span_id="ee" * 8, turn_id="t3"))
    with server.serving(store, server.listen("127.0.0.1", port)):
        expect(tab.locator("tbody tr")).to_have_count(3, timeout=20_000)
        tab.close()
    store.close()


def test_print_is_light_and_whole(page: Served, tab: Page) -> None:
    """Whatever the theme: tables are not cut at the edge of a card, and charts have its colours."""
    fill(page)
    tab.emulate_media(color_scheme="dark")
    tab.set_viewport_size({"width": 720, "height": 1000})
    for path in ("/", "/turns", "/turns/t1", "/reasons"):
        tab.goto(f"{page.url}{path}")
        ink = "getComputedStyle(document.querySelector('.axis') ?? document.body).fill"
        dark = tab.evaluate(ink)
        tab.emulate_media(media="print", color_scheme="dark")
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        assert tab.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
        visible = "[...document.querySelectorAll('.scroll')].filter(e => e.checkVisibility())"
        assert tab.evaluate(f"{visible}.length")
        assert tab.evaluate(f"{visible}.every(e => e.scrollWidth <= e.clientWidth)")
        assert path != "/" or tab.evaluate(ink) != dark
        tab.emulate_media(media="screen", color_scheme="dark")


OVERLAPS = """() => {
    const words = [...document.querySelectorAll('svg.timeline text, svg.answer text')];
    const boxes = words.map(each => each.getBoundingClientRect()).filter(box => box.width);
    const meet = (a, b) => a.left < b.right && b.left < a.right && a.top + 2 < b.bottom && b.top + 2 < a.bottom;
    const outside = box => box.left < 0 || box.right > innerWidth;
    const wrong = (box, n) => outside(box) || boxes.slice(n + 1).some(other => meet(box, other));
    return boxes.filter(wrong).map(box => JSON.stringify(box) + words[boxes.indexOf(box)].textContent);
}"""


def test_a_choice_stands_in_the_address(page: Served, tab: Page) -> None:
    """And is kept from page to page; back undoes it.

    An arrow key moves through a list; Enter, or the button, shows what was chosen, whatever came meanwhile.
    """
    fill(page)
    fill(page, model="other")
    tab.goto(page.url)
    expect(tab.get_by_role("button", name="Apply")).to_be_hidden()
    tab.get_by_label("model").focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    fill(page, model="another")
    seen(tab, page)
    expect(tab.get_by_label("model")).to_have_value("other")
    expect(tab.get_by_role("button", name="Apply")).to_be_visible()
    assert "model=" not in tab.url
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(re.compile(r"\?model=other&range=all$"))
    tab.get_by_label("model").select_option("gpt-5")
    expect(tab).to_have_url(re.compile(r"model=gpt-5"))
    tab.get_by_role("link", name="15m").click()
    expect(tab).to_have_url(re.compile(r"range=15m"))
    tab.get_by_role("link", name="Turns", exact=True).click()
    expect(tab).to_have_url(re.compile(r"/turns\?.*model=gpt-5"))
    tab.go_back()
    tab.go_back()
    expect(tab).not_to_have_url(re.compile(r"range=15m"))


@pytest.mark.parametrize("width", [1280, 3840])
def test_a_range_is_chosen_by_dragging_over_a_chart(page: Served, tab: Page, width: int) -> None:
    """Every panel shows it then; it is as long as what was dragged over."""
    fill(page)
    tab.set_viewport_size({"width": width, "height": 900})
    tab.goto(f"{page.url}/?range=15m")
    box = tab.locator("#chart-reasons .hover").bounding_box()
    assert box
    tab.mouse.move(box["x"] + 50, box["y"] + 50)
    tab.mouse.down()
    tab.mouse.move(box["x"] + 250, box["y"] + 50, steps=5)
    tab.mouse.up()
    expect(tab).to_have_url(re.compile(r"from=\d{13}&to=\d{13}"))
    since, until = (int(each) for each in re.findall(r"\d{13}", tab.url))
    assert until - since == pytest.approx(200 / box["width"] * 900_000, rel=0.03)
    expect(tab.get_by_role("link", name="chosen")).to_be_visible()


def test_a_chart_shows_the_values_under_the_pointer(page: Served, tab: Page) -> None:
    """Those of the table, at a line through every chart; they stay while the page is updated."""
    fill(page)
    tab.goto(f"{page.url}/?range=all")
    step = tab.locator("#chart-reasons tbody tr").first.get_attribute("data-step")
    steps = tab.locator("#chart-reasons .chart").get_attribute("data-steps")
    layer = tab.locator("#chart-reasons .hover")
    layer.scroll_into_view_if_needed()
    box = layer.bounding_box()
    assert box
    assert step
    assert steps
    tab.mouse.move(box["x"] + (int(step) + 0.5) / int(steps) * box["width"], box["y"] + 20)
    readout = layer.locator(".readout")
    expect(readout).to_contain_text(re.compile(r"\d\d:\d\d:\d\d.*max tokens5"))
    assert tab.locator(".cross").count() == tab.locator(".chart").count() > 1
    page.store.write(Batch(points=[point(schema.TURNS, 4, instance="two", **TRUNCATED)]))
    seen(tab, page)
    expect(readout).to_contain_text("max tokens5")
    tab.mouse.move(0, 0)
    expect(tab.locator(".cross")).to_have_count(0)


def test_charts_need_no_scripts(browser: Browser, page: Served) -> None:
    """They are drawn, and their tables open."""
    fill(page)
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(f"{page.url}/?range=all")
    box = tab.locator("#chart-reasons .layers path").first.bounding_box()
    assert box
    assert min(box["width"], box["height"]) > 0
    tab.locator("#chart-reasons summary").click()
    expect(tab.locator("#chart-reasons tbody td").first).to_have_text("5")
    expect(tab.locator("#chart-reasons .zone").first).to_be_visible()
    context.close()


HARD_TO_READ = """() => {
    const parse = (text) => {
        const [, kind, inner] = text.match(/^(rgba?|color)\\((.*)\\)$/);
        const numbers = inner.replace("srgb ", "").split(/[\\s,/]+/).map(Number);
        return [...numbers.slice(0, 3).map(n => (kind === "color" ? n : n / 255)), numbers[3] ?? 1];
    };
    const over = ([r, g, b, a], below) => [r, g, b].map((n, i) => n * a + below[i] * (1 - a));
    const paint = (e) => parse(getComputedStyle(e).backgroundColor);
    const background = (e) => e ? over(paint(e), background(e.parentElement)) : [1, 1, 1];
    const light = (c) => c.map(n => n <= 0.04045 ? n / 12.92 : ((n + 0.055) / 1.055) ** 2.4)
        .reduce((sum, n, i) => sum + n * [0.2126, 0.7152, 0.0722][i], 0);
    const wrong = [];
    for (const e of document.querySelectorAll("body *")) {
        if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()) || !e.getClientRects().length) continue;
        const below = background(e), style = getComputedStyle(e);
        const color = over(parse(e instanceof SVGElement ? style.fill : style.color), below);
        const [a, b] = [light(color), light(below)].sort((x, y) => y - x);
        const text = `${e.getAttribute("class")}: ${e.textContent.trim().slice(0, 40)}`;
        if ((a + 0.05) / (b + 0.05) < 4.5) wrong.push(text);
    }
    return wrong;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read(page: Served, tab: Page, scheme: Literal["light", "dark"]) -> None:
    """Each word that is shown has a contrast of 4.5 with what is behind it."""
    fill(page)
    tab.emulate_media(color_scheme=scheme)
    for path in ("/", "/turns", "/turns/t1", "/turns/t2", "/reasons", "/alerts"):
        tab.goto(f"{page.url}{path}")
        tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert tab.evaluate(HARD_TO_READ) == [], path


def test_a_turn_is_opened_by_key_and_by_click(page: Served, tab: Page) -> None:
    """j moves through the table, Enter opens; the drawing, the seam and the steps are there."""
    fill(page)
    tab.goto(f"{page.url}/turns?sort=worst")
    tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", name="Cut off, and waiting")).to_be_visible()
    tab.go_back()
    tab.locator("tbody tr").nth(1).click()
    expect(tab.get_by_role("heading", name="Cut off, then finished")).to_be_visible()
    expect(tab.get_by_role("img", name="Timeline of 2 steps")).to_be_visible()
    seam = tab.locator(".seamed")
    expect(seam).to_contain_text("the end is ne")
    expect(seam.locator("mark")).to_have_text("ar, and here it is.")


@pytest.mark.parametrize("path", ["/", "/turns", "/turns/t1", "/reasons", "/alerts"])
def test_a_turn_is_found_from_everywhere(page: Served, tab: Page, path: str) -> None:
    """/ goes to the field, Enter to the turn; ? lists the keys, Escape closes the list."""
    fill(page)
    tab.goto(f"{page.url}{path}")
    tab.keyboard.press("?")
    expect(tab.locator("#keys dl")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator("#keys dl")).to_be_hidden()
    tab.keyboard.press("/")
    tab.keyboard.type("t2?")  # what is typed there is no key
    expect(tab.locator("#find")).to_have_value("t2?")
    expect(tab.locator("#keys dl")).to_be_hidden()
    tab.locator("#find").fill("t2")
    tab.keyboard.press("Enter")
    expect(tab).to_have_url(re.compile(r"/turns/t2"))
    expect(tab.locator("#said")).to_contain_text("the end is ne")


def test_the_vocabulary_is_filtered_while_one_types(page: Served, tab: Page) -> None:
    """The values that were seen come first; the others are folded, by API."""
    fill(page)
    tab.goto(f"{page.url}/reasons")
    expect(tab.locator("tbody tr:visible")).to_have_count(2)
    assert tab.evaluate("document.documentElement.scrollHeight") < 3000
    tab.locator("#reason").press_sequentially("pause_turn")
    expect(tab).to_have_url(re.compile(r"q=pause_turn"))
    expect(tab.locator("details.api[open] tbody tr").first).to_contain_text("pause_turn")
    expect(tab.locator("#reason")).to_be_focused()
    expect(tab.locator("#reason")).to_have_value("pause_turn")


def test_a_long_question_opens_by_a_click(page: Served, tab: Page) -> None:
    """Three lines are shown first."""
    text = "a long question " * 40
    messages = [{"role": "user", "parts": [{"type": "text", "content": text}]}]
    about = CUT | words("the end is ne") | {schema.INPUT_MESSAGES.key: json.dumps(messages)}
    assert page.post("traces", span(attributes=about)).status == 200
    tab.goto(f"{page.url}/turns/t1")
    asked = tab.locator(".clamp .words")
    box = asked.bounding_box()
    assert box is not None
    tab.get_by_text("a long question").first.click()
    expect(tab.locator(".clamp")).to_have_attribute("open", "")
    opened = asked.bounding_box()
    assert opened is not None
    assert opened["height"] > box["height"]


def test_light_and_dark(page: Served, tab: Page) -> None:
    """As the system says, until the button says otherwise; the choice is remembered."""
    paper = "getComputedStyle(document.body).backgroundColor"
    tab.emulate_media(color_scheme="dark")
    tab.goto(f"{page.url}/reasons")
    dark = tab.evaluate(paper)
    tab.get_by_role("button", name="Light or dark").click()
    light = tab.evaluate(paper)
    assert dark != light
    tab.reload()
    assert tab.evaluate(paper) == light


NARROW = """[...document.querySelectorAll('td')].filter(e => {
    const range = document.createRange();
    range.selectNodeContents(e);
    const lines = new Set([...range.getClientRects()].map(box => Math.round(box.top))).size;
    return lines > 3 && e.innerText.length / lines < 8;
}).map(e => e.innerText)"""
"""Cells whose words are broken into a few letters each."""


@pytest.mark.parametrize("width", [360, 768, 1280, 3840])
def test_every_page_fits_its_window(page: Served, tab: Page, width: int) -> None:
    """From a small phone to 4K: tables scroll within their card, and no label of a drawing covers another.

    The turn has many calls, and one that took no time.
    """
    fill(page)
    begun = time.time_ns() - 100 * SECOND
    for n, (start, took) in enumerate(((0, 9), (10, 30), (41, 20), (45, 0), (61, 5), (66, 33), (99, 1))):
        cut = CUT | {"endturn.stop.reason": "context_window_exceeded", "endturn.turn.id": "t3"}
        cut |= {"endturn.continuation.index": n, "gen_ai.usage.output_tokens": n + 3}
        ends = str(begun + (start + took) * SECOND)
        page.post(
            "traces", span(spanId=f"{n:016x}", start_ns=begun + start * SECOND, endTimeUnixNano=ends, attributes=cut)
        )
    tab.set_viewport_size({"width": width, "height": 900})
    for path in ("/", "/turns", "/turns/t1", "/turns/t3", "/reasons", "/alerts"):
        tab.goto(f"{page.url}{path}")
        tab.wait_for_load_state("load")
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert path != "/turns/t3" or tab.get_by_role("img", name="Timeline of 7 steps").is_visible()
        assert tab.evaluate(OVERLAPS) == [], path
        tab.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert tab.evaluate(
            "[...document.querySelectorAll('.alert, .events')].every(e => e.scrollWidth <= e.clientWidth)"
        ), path
        assert tab.evaluate(NARROW) == [], path


def test_hostile_names_run_nothing(page: Served, tab: Page) -> None:
    """Models, services and texts that are markup are shown as they are, when a page loads and when it updates."""
    fill(page, model=HOSTILE, service=HOSTILE)
    page.store.write(batch(span(spanId="ee" * 8, attributes={"endturn.stop.raw": HOSTILE})))
    for number, path in enumerate(("/", "/turns", "/turns/t1", "/reasons", "/alerts")):
        tab.goto(f"{page.url}{path}")
        expect(tab.get_by_text("live", exact=True)).to_be_visible()
        fill(page, model=f"{HOSTILE}{number}", service=HOSTILE)
        seen(tab, page)
        assert "hit" not in tab.title()
        assert tab.locator("img[src=x]").count() == 0
        assert tab.locator("svg[onload]").count() == 0


def test_a_browser_gets_in_with_the_token_once(browser: Browser, tab: Page) -> None:
    """The address, the history, the page and its scripts never show it; another browser is asked for it."""
    with (
        closing(Store()) as store,
        server.serving(store, server.listen("127.0.0.1", 0), token="to-ken+1/2=") as url,
    ):
        assert Served(url, store).ask("/").status == 401
        tab.goto(f"{url}/?token=to-ken%2B1%2F2%3D&range=24h")
        assert tab.url == f"{url}/?range=24h"
        expect(tab.get_by_text("with the page's token in the fourth")).to_be_visible()
        store.write(batch(span()))
        expect(tab.get_by_text("There are spans, but no metrics")).to_be_visible()  # by /live, with the cookie
        tab.get_by_role("link", name="Turns", exact=True).click()
        expect(tab.locator("tbody tr")).to_have_count(1)
        assert tab.evaluate("document.cookie") == ""
        assert "to-ken" not in tab.content()
        tab.go_back()
        tab.go_back()
        assert "to-ken" not in tab.url
        other = browser.new_context().new_page()
        refused = other.goto(url)
        assert refused is not None
        assert (refused.status, "?token=TOKEN" in other.content()) == (401, True)
        other.context.close()
