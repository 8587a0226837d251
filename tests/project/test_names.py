"""Names and docstrings of src: nouns for values, one name per class, docstrings that state a fact."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

import pytest

from tests.support.processes import REPOSITORY

SOURCE: Final = REPOSITORY / "src/endturn"

PARTICIPLES: Final = frozenset(
    {
        *("said", "told", "asked", "found", "given", "known", "seen", "each", "thing", "cut"),
        *("whole", "left", "beside"),
    }
)
"""Words that say what happened to a value, not what it is."""
QUESTION_WORDS: Final = ("What", "Whether", "How", "Why", "Who", "Whose", "Where", "When")

OLD_NAMES: Final = {
    ("calls/outcomes.py", "WHOLE"): "FINISHED_REASONS",
    ("calls/records.py", "beside"): "Content.is_system_separate",
    ("calls/records.py", "whole"): "CallEnded.is_finished",
    ("calls/turn.py", "cut"): "Turn.truncated_calls",
    ("testing/scripted/script.py", "cut"): "break_off",
    ("testing/scripted/script.py", "WHOLE"): "Ending.COMPLETE",
}
"""Names of 0.1 that are kept for one release, with the names that replace them."""


def bound_names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each name that the code binds, with its line; not imports under their own names."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                yield name, node.lineno
            case ast.arg(arg=name):
                yield name, node.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name, node.lineno
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                yield name, node.lineno
            case ast.MatchMapping(rest=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name, node.lineno
            case ast.alias(asname=str(name)) if name != node.name:
                yield name, node.lineno


def docstrings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Yield each docstring with its line: of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        documents_itself = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        for index, statement in enumerate(body):
            match statement:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    if (index == 0 and documents_itself) or (
                        index > 0 and isinstance(body[index - 1], (ast.Assign, ast.AnnAssign))
                    ):
                        yield text, statement.lineno


def participles(tree: ast.AST) -> list[tuple[str, int]]:
    """Return the bound names that are one bare participle, with their lines."""
    return [(name, line) for name, line in bound_names(tree) if name.strip("_").lower() in PARTICIPLES]


def questions(tree: ast.AST) -> list[tuple[str, int]]:
    """Return the docstrings that begin with a question word, with their lines."""
    pattern = re.compile(rf"\s*(?:{'|'.join(QUESTION_WORDS)})\b")
    return [(text, line) for text, line in docstrings(tree) if pattern.match(text)]


def class_names(tree: ast.AST) -> list[str]:
    """Return the names of all classes."""
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def source_files() -> Iterator[tuple[str, ast.AST]]:
    """Yield the path of each module below src/endturn, and its syntax tree."""
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def test_no_name_is_a_bare_participle() -> None:
    """Values are named by nouns, but for the old names that are still kept."""
    uses = {(path, name): f"{path}:{line} {name}" for path, tree in source_files() for name, line in participles(tree)}
    assert [use for place, use in uses.items() if place not in OLD_NAMES] == []
    assert OLD_NAMES.keys() <= uses.keys(), "these old names are gone: remove them from OLD_NAMES"


def test_no_code_of_ours_uses_an_old_name() -> None:
    """An attribute that is kept for hosts alone would be missed once it is removed."""
    old_names = {name for _, name in OLD_NAMES if name.islower()}
    uses = [
        f"{path}:{node.lineno} {node.attr}"
        for path, tree in source_files()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in old_names
    ]
    assert uses == []


def test_no_docstring_begins_with_a_question_word() -> None:
    """The first line is an imperative or a noun phrase."""
    problems = [
        f"{path}:{line} {text.splitlines()[0]}" for path, tree in source_files() for text, line in questions(tree)
    ]
    assert problems == []


def test_no_two_classes_share_a_name() -> None:
    """A class is named by its domain."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in source_files():
        for name in class_names(tree):
            places[name].append(path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("found = 1", ["found"]),
        ("_SEEN: int = 1", ["_SEEN"]),
        ("def told(given, *left, beside=None, **known): ...", ["told", "given", "left", "beside", "known"]),
        ("class Thing: ...", ["Thing"]),
        ("for each in range(3): ...", ["each"]),
        ("match x:\n    case [said, *asked]: ...", ["said", "asked"]),
        ("match x:\n    case {'a': 1, **whole}: ...", ["whole"]),
        ("try: ...\nexcept OSError as lost: ...\nexcept ValueError as found: ...", ["found"]),
        ("from x import y as seen, known, cut as cut", ["seen"]),
        ("cut_text = found_rows = 1", []),
        ("x = found.given", []),
    ],
)
def test_participles_are_recognised(code: str, names: list[str]) -> None:
    """Every way to bind a name is seen; uses and compound names are not."""
    assert sorted(name for name, _ in participles(ast.parse(code))) == sorted(names)


@pytest.mark.parametrize(
    ("code", "count"),
    [
        ('"""What it is."""', 1),
        ('def f():\n    """Whether it is."""', 1),
        ('class C:\n    """A thing."""\n    x: int = 1\n    """How many."""', 1),
        ('x = 1\n"""Why."""', 1),
        ('"""Whatever comes first."""', 0),
        ('def f():\n    """Return what it is."""', 0),
        ('f()\n"""What no attribute is."""', 0),
    ],
)
def test_question_words_are_recognised(code: str, count: int) -> None:
    """Docstrings of modules, functions, classes and attributes count."""
    assert len(questions(ast.parse(code))) == count
