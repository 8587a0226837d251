"""One module per command of `endturn`: `add_parser` declares its options, `run` runs it.

`run` imports what the command needs, so that `endturn --help` starts fast and works without the
extras.
"""
