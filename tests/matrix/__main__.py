"""A long campaign: ``python -m tests.matrix --minutes 60 --seed 1``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.matrix.campaign import campaign


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--failures", type=int, default=20, help="end after so many")
    options = parser.parse_args()
    end = time.monotonic() + 60 * options.minutes
    counts: Counter[str] = Counter()
    kinds: set[str] = set()
    for failure in campaign(options.seed, end=end, counts=counts):
        if failure.kind in kinds:
            continue
        kinds.add(failure.kind)
        print(failure.script, flush=True)
        print(f"# {failure.kind}\n", flush=True)
        if len(kinds) >= options.failures:
            break
    checks = ", ".join(f"{law} {n}" for law, n in sorted(counts.items()))
    print(f"seed {options.seed}: {checks}; {len(kinds)} kinds of failures")
    return bool(kinds)


if __name__ == "__main__":
    sys.exit(main())
