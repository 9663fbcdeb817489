"""Selection methods of the literature, as strategies of one engine.

A strategy is a pure generator. From what is known (`known`) it proposes what to measure next: it
yields probes (`probes`) and receives their results. Only integer counts narrow the bracket. A
strategy knows neither dask nor CuPy nor any element, and reads like the description of its method.

::

    cutting_plane.py  Kelley
    roots.py          Bisection, BrentRoot
    minima.py         GoldenSection, BrentMinimize
    digits.py         Radix
    buckets.py        Bucket
    random_pivots.py  Randomized, Quickselect
    sorting.py        SortAndChoose, BitonicMerge
    known.py          a bracket, and how counts narrow it
    probes.py         what can be measured in one read, and the results
    spaces.py         scales on which distances are measured
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dask_gpuselect.strategies.buckets import Bucket, Radix
from dask_gpuselect.strategies.cutting_plane import Kelley
from dask_gpuselect.strategies.known import Strategy
from dask_gpuselect.strategies.random_pivots import Quickselect, Randomized
from dask_gpuselect.strategies.roots import Bisection, BrentMinimize, BrentRoot, GoldenSection
from dask_gpuselect.strategies.sorting import BitonicMerge, SortAndChoose

__all__ = [
    "STRATEGIES",
    "Bisection",
    "BitonicMerge",
    "BrentMinimize",
    "BrentRoot",
    "Bucket",
    "GoldenSection",
    "Kelley",
    "Quickselect",
    "Radix",
    "Randomized",
    "SortAndChoose",
    "Strategy",
    "strategy_of",
]

STRATEGIES: Mapping[str, Callable[[], Strategy]] = {
    "kelley": Kelley,
    "bisection": Bisection,
    "golden_section": GoldenSection,
    "brent_minimize": BrentMinimize,
    "brent_root": BrentRoot,
    "radix": Radix,
    "bucket": Bucket,
    "randomized": Randomized,
    "quickselect": Quickselect,
    "sort_and_choose": SortAndChoose,
    "bitonic_merge": BitonicMerge,
}
"""Strategies by name, each with the parameters of its paper where that is possible."""


def strategy_of(strategy: Strategy | str) -> Strategy:
    """Return the strategy of that name, or the object itself.

    Parameters
    ----------
    strategy : Strategy or str

    Returns
    -------
    Strategy

    Raises
    ------
    ValueError
        If there is no strategy of that name; the message lists the names.
    TypeError
        If it is neither a strategy nor a str.
    """
    if isinstance(strategy, str):
        if strategy not in STRATEGIES:
            raise ValueError(f"unknown strategy {strategy!r}: choose from {', '.join(STRATEGIES)}")
        return STRATEGIES[strategy]()
    if not isinstance(strategy, Strategy):
        raise TypeError(
            "strategy must be a Strategy or its name, such as 'kelley', not "
            f"{type(strategy).__name__}"
        )
    return strategy
