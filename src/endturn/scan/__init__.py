"""Read the sessions and logs that agents already wrote, and report which answers were truncated.

Each kind of file is a source: one module in `endturn.scan.sources`. `docs/scan.md` says how to add
one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from endturn._exports import lazy_exports

if TYPE_CHECKING:
    from endturn.scan.answers import (
        CHANGED as CHANGED,
        question_of as question_of,
        text_of as text_of,
    )
    from endturn.scan.command import run as run, scan as scan
    from endturn.scan.copies import without_copies as without_copies
    from endturn.scan.head import FileHead as FileHead, FileShape as FileShape
    from endturn.scan.live_records import EndedTurn as EndedTurn, ended_turns as ended_turns
    from endturn.scan.past_calls import (
        Evidence as Evidence,
        PastCall as PastCall,
        PastTurn as PastTurn,
    )
    from endturn.scan.reading import FileResult as FileResult, read_file as read_file
    from endturn.scan.registry import SOURCES as SOURCES, recognise as recognise
    from endturn.scan.scanned_file import ScannedFile as ScannedFile
    from endturn.scan.source import Source as Source
    from endturn.scan.summary import Summary as Summary
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        {
            "answers": ("CHANGED", "question_of", "text_of"),
            "command": ("run", "scan"),
            "copies": ("without_copies",),
            "live_records": ("EndedTurn", "ended_turns"),
            "past_calls": ("Evidence", "PastCall", "PastTurn"),
            "reading": ("FileResult", "read_file"),
            "registry": ("SOURCES", "recognise"),
            "head": ("FileHead", "FileShape"),
            "scanned_file": ("ScannedFile",),
            "source": ("Source",),
            "summary": ("Summary",),
        },
    )
