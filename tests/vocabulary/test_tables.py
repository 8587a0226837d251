"""The tables of the package, in a folder or a zip file."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "endturn"

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import endturn
print(endturn.__file__.startswith(sys.argv[1]))
print(endturn.normalize("length", provider="openai").reason.name)
endturn.instrument()
body = {"choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}]}
print(endturn.read(body, format="openai_chat").stop_reason)
from endturn.cli._main import main
print(main(["reasons", "--provider", "mistral"]))
"""


def test_a_package_in_a_zip_reads_its_tables(tmp_path: Path) -> None:
    archive = tmp_path / "endturn.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for file in PACKAGE.rglob("*"):
            if file.is_file() and "__pycache__" not in file.parts:
                zipped.write(file, Path("endturn") / file.relative_to(PACKAGE))
    program = [sys.executable, "-I", "-c", PROGRAM, str(archive)]
    done = subprocess.run(program, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert (lines[:3], lines[-1]) == (["True", "MAX_TOKENS", "end_turn"], "0")
