"""How pivots are chosen: pure policies that know neither dask nor GPUs."""

from __future__ import annotations

import math

# Up to this many quantiles share the pivots of a single one: their brackets are few beside the
# pivots, and the cuts of one array then serve all such calls by key.
FEW_QUANTILES = 8


def pivot_share(n_q: int) -> int:
    """The factor by which `n_q` quantiles multiply the elements that pivots are chosen for: 1 if
    they are few."""
    return 1 if n_q <= FEW_QUANTILES else n_q


def pivot_count(n: int, share: int = 1) -> int:
    """How many pivots a chunk of `n` elements gets: about sqrt(n * share).

    A chunk sends its pivots in load 1 and, for each quantile, about ``n / pivots`` candidates in
    load 2: the sum is least where both are the square root (Munro & Paterson 1980 prove that two
    passes need that much). At least 16, so that small chunks are worth their task.
    """
    return min(n, max(16, math.isqrt(n * share)))
