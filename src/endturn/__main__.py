"""Run the command: `python -m endturn`."""

import sys

from endturn.cli import main

if __name__ == "__main__":
    sys.exit(main())
