"""Run the command: `python -m endturn.cli`."""

import sys

from endturn.cli._main import main

if __name__ == "__main__":
    sys.exit(main())
