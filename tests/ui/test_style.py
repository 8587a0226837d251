"""The style sheet: each colour of text can be read on each background that it stands on."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest

from endturn.ui.views import COLOURS

CSS = re.sub(r"(?s)/\*.*?\*/", "", files("endturn.ui").joinpath("static/page.css").read_text())
VARIABLES = {
    name: (light, dark)
    for name, light, dark in re.findall(r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)", CSS)
}
THEMES = {"light": 0, "dark": 1}
BACKGROUNDS = ("paper", "card")
TINTS = {
    "a row under the pointer": ("card", "ink", 0.03), "the current page": ("paper", "ink", 0.08),
    "the part after a seam": ("card", "good", 0.16),
}  # fmt: skip
"""Mixed backgrounds: the one below, the colour above, and its part."""
ON_TINTS = {
    "a row under the pointer": ("ink", "dim", "cut-text", "lost-text", "accent"),
    "the current page": ("ink", "dim", "accent"), "the part after a seam": ("ink",),
}  # fmt: skip
READABLE = 4.5
"""WCAG 2.2, criterion 1.4.3, for text of any size."""

Colour = tuple[float, ...]


def rgb(name: str, theme: str) -> Colour:
    """A variable's colour, each channel from 0 to 1."""
    text = VARIABLES[name][THEMES[theme]]
    return tuple(int(text[at : at + 2], 16) / 255 for at in (1, 3, 5))


def luminance(colour: Colour) -> float:
    """The relative luminance, as WCAG defines it."""
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(text: Colour, background: Colour) -> float:
    """The contrast ratio, from 1 to 21."""
    lower, higher = sorted((luminance(text), luminance(background)))
    return (higher + 0.05) / (lower + 0.05)


def text_colours() -> set[str]:
    """The variables that colour words: of `color`, and of what fills the text of a drawing."""
    direct = set(re.findall(r"(?<![\w-])color: var\(--([\w-]+)\)", CSS))
    labels = set(re.findall(r"\.(?:label|axis)[^{]*\{[^}]*fill: var\(--([\w-]+)\)", CSS))
    by_class = set(re.findall(r"--t: var\(--([\w-]+)\)", CSS))
    fallbacks = set(re.findall(r"var\(--t, var\(--([\w-]+)\)\)", CSS))
    return direct | labels | by_class | fallbacks


def test_contrast_is_computed_as_wcag_has_it() -> None:
    """Black on white is 21; the orange that fills shapes could not be read as text."""
    assert contrast((0, 0, 0), (1, 1, 1)) == pytest.approx(21)
    assert contrast(rgb("cut", "light"), rgb("card", "light")) == pytest.approx(2.95, abs=0.01)


def test_colours_of_text_are_those_of_text() -> None:
    """A colour that fills shapes is not used for words."""
    texts = {"good", "tool", "cut", "window", "lost", "error", "withheld", "refused", "paused"}
    assert text_colours() - {"t"} == {"ink", "dim", "accent", *(f"{name}-text" for name in texts)}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", sorted(text_colours() - {"t"}))
def test_text_can_be_read(name: str, theme: str) -> None:
    """On the page and on its cards."""
    ratios = {each: contrast(rgb(name, theme), rgb(each, theme)) for each in BACKGROUNDS}
    assert {each: ratio for each, ratio in ratios.items() if ratio < READABLE} == {}


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("tint", TINTS)
def test_text_can_be_read_on_a_tint(tint: str, theme: str) -> None:
    """Where something is pointed at, chosen or marked."""
    below, above, part = TINTS[tint]
    mixed = tuple(a * part + b * (1 - part) for a, b in zip(rgb(above, theme), rgb(below, theme), strict=True))
    ratios = {name: contrast(rgb(name, theme), mixed) for name in ON_TINTS[tint]}
    assert {name: ratio for name, ratio in ratios.items() if ratio < READABLE} == {}


def test_each_word_has_its_class() -> None:
    """Each colour that a word of the schema can have: as a fill, as a stroke and as text."""
    for name in set(COLOURS.values()) - {"unknown"}:
        rules = re.findall(r"([^{}]*)\{[^}]*--c: var\(--" + name + r"\)", CSS)
        assert any(re.search(rf"\.f-{name}\b", rule) and re.search(rf"\.c-{name}\b", rule) for rule in rules), name
