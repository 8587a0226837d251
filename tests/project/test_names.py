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
"""Words that say what happened to a value, not what it is; see style.md's glossary for nouns."""
QUESTION_WORDS: Final = ("What", "Whether", "How", "Why", "Who", "Whose", "Where", "When")

OLD_NAMES: Final = {
    ("calls/outcomes.py", "WHOLE"): "the name of FINISHED_REASONS in 0.1, kept for one release",
    ("testing/scripted/script.py", "cut"): "the name of break_off in 0.1, kept for one release",
    ("testing/scripted/script.py", "WHOLE"): "the name of COMPLETE in 0.1, kept for one release",
}
PACKAGES_WITH_PARTICIPLES: Final = {"calls", "cli", "instrumentation", "settings", "telemetry", "ui"}
"""Packages whose names are not changed yet. A package leaves this list when it has none left."""
PACKAGES_WITH_QUESTIONS: Final = {"cli", "instrumentation", "settings", "telemetry", "ui"}
"""Packages whose docstrings are not changed yet, likewise."""
SHARED_CLASS_NAMES: Final = {
    "Ending": "`endturn.scripted.Ending` is public; the page's is to be renamed",
    "Event": "of a stream, in `endturn.formats`; the schema's declaration of an event is to be renamed",
    "Kind": "of a setting, and of a span: both are to be renamed",
    "Series": "of the instruments, and of a chart: both are to be renamed",
    "Step": "of a turn, in `endturn.calls`; the page's is to be renamed",
    "TruncatedTurns": "of the recorder, and of the page: the page's is to be renamed",
}


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


def source_files() -> Iterator[tuple[str, str, ast.AST]]:
    """Yield the path of each module below src/endturn, its package, and its syntax tree."""
    for path in sorted(SOURCE.rglob("*.py")):
        relative = path.relative_to(SOURCE)
        package = relative.parts[0] if len(relative.parts) > 1 else ""
        yield relative.as_posix(), package, ast.parse(path.read_text(encoding="utf-8"))


def test_no_name_is_a_bare_participle() -> None:
    """Values are named by nouns; the list of exceptions only shrinks."""
    used: set[tuple[str, str]] = set()
    packages: set[str] = set()
    problems: list[str] = []
    for path, package, tree in source_files():
        for name, line in participles(tree):
            used.add((path, name))
            packages.add(package)
            if package not in PACKAGES_WITH_PARTICIPLES and (path, name) not in OLD_NAMES:
                problems.append(f"{path}:{line} {name}")
    assert not problems, "name these by the noun of what they are"
    assert OLD_NAMES.keys() <= used, "these old names are gone: remove them from OLD_NAMES"
    assert packages >= PACKAGES_WITH_PARTICIPLES, "remove packages without such names from the list"


def test_no_docstring_begins_with_a_question_word() -> None:
    """The first line is an imperative or a noun phrase; the list of exceptions only shrinks."""
    packages: set[str] = set()
    problems: list[str] = []
    for path, package, tree in source_files():
        for text, line in questions(tree):
            packages.add(package)
            if package not in PACKAGES_WITH_QUESTIONS:
                problems.append(f"{path}:{line} {text.splitlines()[0]}")
    assert not problems, "begin with an imperative (functions) or a noun phrase"
    assert packages >= PACKAGES_WITH_QUESTIONS, "remove packages without such docstrings from the list"


def test_no_two_classes_share_a_name() -> None:
    """A class is named by its domain; the list of exceptions only shrinks."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, _, tree in source_files():
        for name in class_names(tree):
            places[name].append(path)
    shared = {name: paths for name, paths in places.items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in SHARED_CLASS_NAMES} == {}
    assert SHARED_CLASS_NAMES.keys() <= shared.keys(), "remove names that only one class has from the list"


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
