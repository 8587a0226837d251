"""Convert UTF-16, which PowerShell's redirection writes, to UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Final

_BEGINNINGS: Final = (
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (b"", "utf-16-le"),
    (b"", "utf-16-be"),
)
"""The byte order marks of UTF-16."""
_JSON: Final = "{[ \t\r\n"
_UTF32_MARKS: Final = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)


def is_utf32(beginning: bytes) -> bool:
    """Return whether a JSON file is in UTF-32, from its first bytes."""
    letter = beginning[:4]
    if letter in _UTF32_MARKS:
        return True
    return letter.count(0) == 3 and letter.strip(b"\0").decode("latin-1") in _JSON


def utf16_of(beginning: bytes) -> str | None:
    """Return the name of a JSON file's UTF-16 encoding from its first bytes, None for any other."""
    if is_utf32(beginning):
        return None
    for mark, encoding in _BEGINNINGS:
        if beginning.startswith(mark):
            letter = beginning[len(mark) : len(mark) + 2].decode(encoding, "replace")
            if letter and letter in _JSON:
                return encoding
    return None


def utf8_blocks(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield blocks of text in UTF-8; blocks in other encodings than UTF-16 are unchanged."""
    first = next(blocks, b"")
    encoding = utf16_of(first)
    if encoding is None:
        yield first
        yield from blocks
        return
    # the byte order mark becomes that of UTF-8
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    yield decoder.decode(first).encode("utf-8", "replace")
    for block in blocks:
        yield decoder.decode(block).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")
