"""`python -m tests.torture`: every scenario, one line of JSON each; 1 when a promise was broken."""

from __future__ import annotations

import argparse
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

from tests.torture.scenarios import FULL, SMALL, play


def main() -> int:
    options = _options()
    scenarios = SMALL if options.small else FULL
    folder = Path(tempfile.mkdtemp(prefix="edgeq-torture-"))
    broken = 0
    for name in options.scenario or scenarios:
        finding = play(name, scenarios[name], options.seed, folder)
        print(finding.to_json(), flush=True)
        broken += bool(finding.violations)
    if broken:
        print(f"broken promises; what is left of it is in {folder}", file=sys.stderr)
        return 1
    shutil.rmtree(folder)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--scenario", action="append", choices=list(FULL))
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="what `make torture` runs (the default)")
    size.add_argument("--small", action="store_true", help="as in the tests, about a minute")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
