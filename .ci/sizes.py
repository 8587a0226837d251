"""Holds the size and shape of `src/endturn`: its total, its files, its functions, its imports.

A line of code is one that is neither blank nor a comment nor part of a docstring. What breaks a rule today stands in
an exception list below. Those lists may only get shorter: an entry that no longer breaks its rule is an error too.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src/endturn"

TOTAL = 17_930
"""Lines of code without `ui`. Lower it when the code has become shorter; the goal is 15,000."""
FILE = 400
FUNCTION = 60

LONG_FILES: set[str] = set()
LONG_FUNCTIONS: set[str] = set()
LATE_IMPORTS = {
    "continuation/tool_gate.py: endturn.continuation.schema_check",
    "instrumentation/body.py: httpx",
    "instrumentation/http_clients.py: endturn.instrumentation.exchange",
    "instrumentation/instrument.py: endturn.telemetry.span_processor",
    "instrumentation/instrument.py: multiprocessing.process",
    "telemetry/content.py: endturn.formats.settings",
    "telemetry/content.py: endturn.telemetry.messages",
    "telemetry/span_conventions.py: endturn.frameworks",
    "telemetry/span_conventions.py: endturn.chat",
}

CORE = sys.stdlib_module_names | {"endturn", "opentelemetry", "pydantic", "httpx", "jsonschema", "wrapt"}
"""What is always installed, and so is imported at the top of a file."""
OPTIONAL = ("endturn.ui", "endturn.generate", "endturn.instrumentation.sdk_providers")
"""Our own modules whose own imports need an extra."""

NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
Function = ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(text: str, tree: ast.Module) -> set[int]:
    """The numbers of the lines that hold code."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    code = {line for token in tokens if token.type not in NOT_CODE for line in range(token.start[0], token.end[0] + 1)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | Function) and ast.get_docstring(node) is not None:
            code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return code


def late_imports(function: Function) -> Iterator[str]:
    """Full names of the modules that a function imports, where they are neither optional packages nor need one."""
    for node in ast.walk(function):
        match node:
            case ast.Import(names=names):
                modules = [alias.name for alias in names]
            case ast.ImportFrom(module=str(module), names=names):
                inside = [f"{module}.{alias.name}" for alias in names]
                modules = [name if _is_module(name) else module for name in inside]
            case _:
                continue
        for module in modules:
            needs_extra = any(module == own or module.startswith(f"{own}.") for own in OPTIONAL)
            if module.partition(".")[0] in CORE and not needs_extra:
                yield module


def _is_module(name: str) -> bool:
    path = SRC.parent.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def main() -> int:
    total, long_files, long_functions, late = 0, set(), set(), set()
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        code = code_lines(text, tree)
        total += 0 if name.startswith("ui/") else len(code)
        if len(code) > FILE:
            long_files.add(name)
        for node in ast.walk(tree):
            if isinstance(node, Function):
                if len(code & set(range(node.lineno, (node.end_lineno or 0) + 1))) > FUNCTION:
                    long_functions.add(f"{name}: {node.name}")
                late |= {f"{name}: {module}" for module in late_imports(node)}
    problems = []
    if total > TOTAL:
        way = "delete what it makes dead, or raise TOTAL here, and say what for"
        problems.append(f"src/endturn has {total:,} lines of code without ui, more than {TOTAL:,}: {way}")
    for rule, found, excepted in (
        (f"a file of more than {FILE} lines of code", long_files, LONG_FILES),
        (f"a function of more than {FUNCTION} lines of code", long_functions, LONG_FUNCTIONS),
        ("an import inside a function of what is always installed", late, LATE_IMPORTS),
    ):
        problems += [f"{rule}: {name}" for name in sorted(found - excepted)]
        problems += [f"no longer {rule}, delete the exception: {name}" for name in sorted(excepted - found)]
    for problem in problems:
        print(f".ci/sizes.py: {problem}", file=sys.stderr)
    print(f"src/endturn: {total:,} lines of code without ui; at most {TOTAL:,}, the goal is 15,000")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
