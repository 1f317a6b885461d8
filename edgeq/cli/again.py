"""This program once more: the command line of a child that is another `edgeq`."""

from __future__ import annotations

import json
import sys

# With this process's own search path: `-m` would look into the current folder first, where a
# user's queue.py would hide that of the standard library.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); "
    "from edgeq.cli import main; main()"
)


def edgeq_again(*words: str) -> list[str]:
    return [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), *words]
