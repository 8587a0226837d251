"""Holds the shape of `src/endturn`: the length of its files and functions, and its late imports.

A line of code is one that is neither blank nor a comment nor part of a docstring. What breaks a rule today stands in
an exception list below, with its reason. An entry that no longer breaks its rule, or gives no reason, is an error too.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src/endturn"

FILE = 400
FUNCTION = 60

LONG_FILES = {
    "continuation/transcript.py": "the lines of a transcript are written and read back beside each other",
    "continuation/turn.py": "the course of a turn, a step for each state of the machine",
    "formats/apis/anthropic.py": "one API: its reader, requests and scripts beside each other",
    "formats/apis/gemini.py": "one API: its reader, requests and scripts beside each other",
    "formats/apis/openai_chat.py": "one reader, for the dialects of all servers that speak this API",
    "formats/apis/openai_responses_reader.py": "one reader, a method for each kind of event and item",
    "formats/accumulator.py": "one state that every format's parts change; a method for each kind of part",
    "generate/plan.py": "the sizing of a fleet, one formula after the other, as docs/plan.md explains them",
    "generate/redacted_names.py": "one table: names that hold content or credentials, by who uses them",
    "instrumentation/body.py": "one response as its bytes pass: which format it is in, and what it says",
    "telemetry/recorder.py": "one listener with a method for each record; what they share is its state",
    "telemetry/schema.py": "declarations alone: every span, event, metric and attribute, in one order",
    "telemetry/truncated_turns.py": "which truncated turn a request goes on with: the turns that wait, and each rule",
}
"""Files above `FILE` lines of code, by path below `src/endturn`, each with the reason why it is one file."""
LONG_FUNCTIONS: dict[str, str] = {
    "continuation/tool_gate.py: judge": "the gate's questions in their order; each may be the last",
    "continuation/transcript.py: resume": "rebuilds one value from a turn's lines, a field after the other",
}
"""Functions above `FUNCTION` lines of code, as `path: name`, each with the reason why it is one function."""
LAZY_FOLDER = "cli/commands/"
"""A command imports what it needs when it runs, so that `endturn --help` and the other commands start fast."""
LATE_IMPORTS = {
    "cli/_main.py: importlib.metadata",  # which imports much, and is used when uvx restarts a command
    "continuation/tool_gate.py: endturn.continuation.schema_check",
    "instrumentation/unpacking.py: httpx",
    # At the first request that may ask a model: it imports pydantic, whose plugins may import any library. The module
    # itself is imported by `instrument()`, which is quick, and a library's hook runs while the host's import does.
    "instrumentation/http_clients.py: endturn.instrumentation.exchange",
    "instrumentation/_instrument.py: endturn.telemetry.span_processor",
    "instrumentation/worker_exit.py: multiprocessing.process",
    "telemetry/content.py: endturn.formats",
    "telemetry/content.py: endturn.telemetry.messages",
    "telemetry/span_conventions.py: endturn.frameworks",
    "telemetry/span_conventions.py: endturn.vocabulary",
    # What `instrument()` alone does not need, so that a process starts quickly: the table of providers, which takes as
    # long to read as all others, and what is rarely asked for.
    "formats/registry.py: endturn.vocabulary",
    "errors.py: difflib",
    "settings/kinds.py: importlib.metadata",
    "vocabulary/tsv.py: importlib.resources",
    "telemetry/content.py: pkgutil",
    "telemetry/retries.py: endturn.formats",
}

CORE = sys.stdlib_module_names | {"endturn", "opentelemetry", "pydantic", "httpx", "jsonschema", "wrapt"}
"""What is always installed, and so is imported at the top of a file."""
OPTIONAL = (
    "endturn.ui",
    "endturn.generate",
    "endturn.instrumentation.early_provider",
    "endturn.instrumentation.export_session",
    "endturn.instrumentation.sdk_providers",
)
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
    long_files, long_functions, late = set(), set(), set()
    for path in sorted(SRC.rglob("*.py")):
        name = path.relative_to(SRC).as_posix()
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        code = code_lines(text, tree)
        if len(code) > FILE:
            long_files.add(name)
        for node in ast.walk(tree):
            if isinstance(node, Function):
                if len(code & set(range(node.lineno, (node.end_lineno or 0) + 1))) > FUNCTION:
                    long_functions.add(f"{name}: {node.name}")
                if not name.startswith(LAZY_FOLDER):
                    late |= {f"{name}: {module}" for module in late_imports(node)}
    problems = []
    for rule, found, excepted in (
        (f"a file of more than {FILE} lines of code", long_files, LONG_FILES.keys()),
        (f"a function of more than {FUNCTION} lines of code", long_functions, LONG_FUNCTIONS.keys()),
        ("an import inside a function of what is always installed", late, LATE_IMPORTS),
    ):
        problems += [f"{rule}: {name}" for name in sorted(found - excepted)]
        problems += [f"no longer {rule}, delete the exception: {name}" for name in sorted(excepted - found)]
    problems += [f"no reason: {name}" for name, why in (LONG_FILES | LONG_FUNCTIONS).items() if not why.strip()]
    for problem in problems:
        print(f".ci/sizes.py: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
