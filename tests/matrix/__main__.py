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
    asked = parser.parse_args()
    end = time.monotonic() + 60 * asked.minutes
    seen: Counter[str] = Counter()
    kinds: set[str] = set()
    for told in campaign(asked.seed, end=end, seen=seen):
        if told.kind in kinds:
            continue
        kinds.add(told.kind)
        print(told.script, flush=True)
        print(f"# {told.kind}\n", flush=True)
        if len(kinds) >= asked.failures:
            break
    checks = ", ".join(f"{law} {n}" for law, n in sorted(seen.items()))
    print(f"seed {asked.seed}: {checks}; {len(kinds)} kinds of failures")
    return bool(kinds)


if __name__ == "__main__":
    sys.exit(main())
