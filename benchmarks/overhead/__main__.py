"""Measures what endturn costs, prints one line for each figure, and writes docs/overhead.md.

    make bench                              everything, with the other instrumentations
    make bench ARGS=--quick                 fewer rounds, and without OpenLIT: at most two minutes
    make bench ARGS=--write                 everything, and writes the page
    make bench ARGS='--only simple batch'   some groups of figures

The other instrumentations have environments of their own, which `python tests/sdks/build.py peers openlit` installs.
Without these the other figures are still measured.

A figure is made from the lower quartiles of what each variant cost round by round, because what disturbs a process only
adds to its costs. In brackets: the middle nine tenths of the figure when the rounds are drawn anew, with repetition.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from benchmarks.overhead import page, runner
from benchmarks.overhead.figures import Row
from benchmarks.overhead.groups import GROUPS

PAGE: Final = runner.ROOT / "docs" / "overhead.md"


def parse_arguments() -> argparse.Namespace:
    """Read the command line; a bad one ends the process with a sentence that says why."""
    parser = argparse.ArgumentParser(
        prog="make bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and without OpenLIT")
    parser.add_argument("--rounds", type=int, metavar="N", help="no group has more rounds than this")
    parser.add_argument("--only", nargs="+", choices=GROUPS, metavar="GROUP", help=f"some of: {', '.join(GROUPS)}")
    parser.add_argument(
        "--write", nargs="?", type=Path, const=PAGE, metavar="FILE", help="write the page, to this file"
    )
    options = parser.parse_args()
    if options.rounds is not None and options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: give 2 or more")
    if options.write is not None and options.only:
        parser.error("--write needs all figures: leave --only out")
    if options.write is not None and not options.write.resolve().parent.is_dir():
        parser.error(f"--write {options.write}: there is no folder {str(options.write.parent)!r}")
    return options


def main() -> int:
    """Measure, print and write."""
    options = parse_arguments()
    names = options.only or list(GROUPS)
    if options.quick:
        names = [name for name in names if GROUPS[name].quick_rounds]
    for environment in runner.missing_environments(names):
        print(
            f"not installed, so not measured: {environment}. Run: python tests/sdks/build.py {environment}",
            file=sys.stderr,
        )

    def report(row: Row) -> None:
        print(row.line(), flush=True)

    results = runner.measure(names, is_quick=options.quick, most_rounds=options.rounds, report=report)
    if not options.only:
        runner.measure_sections(results, is_quick=options.quick, report=report)
    for failure in results.failures:
        print(failure, file=sys.stderr)
    if results.failures:
        return 1
    if options.write is not None:
        options.write.write_text(page.text(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
