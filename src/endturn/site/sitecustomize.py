"""Python imports this at its start in the processes that `endturn run` starts.

Its folder leads their PYTHONPATH.

It hands over to the `sitecustomize` that it stands in front of, if there is one.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

HERE = os.path.dirname(os.path.abspath(__file__))


def _hand_over() -> None:
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != HERE]
    spec = PathFinder.find_spec("sitecustomize")
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


# Said once in a tree of processes, and only while none of them has been observed.
first = os.environ.pop("ENDTURN_RUN", None)
try:
    from endturn.instrumentation import zero_code
except Exception as error:
    if first:
        sys.stderr.write(
            f"endturn: {sys.executable} is not observed, endturn cannot be imported "
            f"there: {error}\n"
        )
else:
    zero_code.start()
_hand_over()
