"""Strategies, and a search by plain NumPy: what the loops of the package are held to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import measures
from dask_gpuselect.maths.keys import from_keys, to_keys
from dask_gpuselect.strategies import (
    STRATEGIES,
    Bisection,
    BrentMinimize,
    BrentRoot,
    Bucket,
    GoldenSection,
    Kelley,
    Quickselect,
    Radix,
    Randomized,
    Strategy,
)
from dask_gpuselect.strategies.known import Known, Reply
from dask_gpuselect.strategies.probes import Copy, Measure, ProbeResult
from dask_gpuselect.strategies.spaces import NAMES

VARIANTS: Mapping[str, Strategy] = {
    **{name: make() for name, make in STRATEGIES.items()},
    **{
        f"{kind.__name__} {space}": kind(space=space)
        for kind in (Kelley, Bisection, BrentRoot, BrentMinimize, GoldenSection)
        for space in NAMES
        if kind().space != space
    },
    "Kelley once": Kelley(iterations=1),
    "Radix 4 copies": Radix(4, copies=True),
    "Radix 11": Radix(11, copies=False),
    "Bucket 16": Bucket(16),
    "Bucket copies": Bucket(64, phase_one=50),
    "Randomized small": Randomized(size=64),
    "Quickselect small": Quickselect(drawn=4),
}
"""Every strategy, and what its parameters change."""

Doctor = Callable[[ProbeResult], ProbeResult]


@dataclass
class Found:
    """What a search has found, and how.

    Parameters
    ----------
    values : tuple
        The elements of both ranks.
    rounds : int
        Measurements.
    probes : list of Measure
        What was measured.
    known : list of Known
        What was known before the first probe, and after each, of all elements.
    n_sorted : int
        Elements that were left to be sorted.
    """

    values: tuple[Any, Any] = (None, None)
    rounds: int = 0
    probes: list[Measure] = field(default_factory=list)
    known: list[Known] = field(default_factory=list)
    n_sorted: int = 0


def find(
    values: NDArray[Any],
    first: int,
    last: int,
    strategy: Strategy,
    *,
    copies: bool = True,
    doctor: Doctor = lambda report: report,
) -> Found:
    """The elements of one rank or two neighbouring ones, among the valid elements.

    Parameters
    ----------
    values : ndarray
        Of a `keys.selection_dtype`.
    first, last : int
        Ranks.
    strategy : Strategy
    copies : bool
        Whether what a strategy wants copied is.
    doctor : callable
        Changes what is reported.
    """
    found = Found()
    valid = values[values == values]
    known = Known.at_first(first, last, len(valid), values.dtype)
    n_before = 0
    found.known.append(known)

    def measure(probe: Measure) -> ProbeResult:
        found.probes.append(probe)
        found.rounds += 1
        return doctor(measures.answer_probe(values, probe))

    report = None
    if strategy.opening is not None:
        report = measure(strategy.opening)
        known = known.updated(strategy.opening, report)
        found.known.append(known)
    search = strategy.search(Reply(known, report))
    probe = next(search, None) if goes_on(known, strategy) else None
    while probe is not None and found.rounds < strategy.rounds:
        report = None
        if not isinstance(probe, Copy):
            report = measure(probe)
            known = known.updated(probe, report)
            found.known.append(shifted(known, n_before, len(valid)))
        elif copies and known.inside < known.n:
            values, n_before = inside(values, known), n_before + known.before
            known = shifted(known, -known.before, known.inside)
        try:
            probe = search.send(Reply(known, report)) if goes_on(known, strategy) else None
        except StopIteration:
            probe = None
    if known.is_settled:
        lower, upper = known.lower, known.upper
    else:
        ordered = np.sort(to_keys(inside(values, known)))
        found.n_sorted = len(ordered)
        assert len(ordered) == known.inside
        lower, upper = (int(ordered[rank - known.before]) for rank in (known.first, known.last))
    a, b = from_keys(np.array([lower, upper], np.uint64), known.dtype)
    found.values = (a, b)
    return found


def goes_on(known: Known, strategy: Strategy) -> bool:
    return not known.is_settled and known.inside > strategy.sort_below


def inside(values: NDArray[Any], known: Known) -> NDArray[Any]:
    """The elements strictly inside the bracket."""
    valid = values[values == values]
    keys = to_keys(valid).astype(object)
    return valid[((keys > known.lo) & (keys < known.hi)).astype(bool)]


def shifted(known: Known, by: int, n: int) -> Known:
    """The same bracket among `n` elements, `by` more of which come first."""
    first, last = known.first + by, known.last + by
    return replace(known, first=first, last=last, n=n, before=known.before + by)


def extreme_ranks(n: int) -> Iterator[tuple[int, int]]:
    """Those at the ends, and the middle pair."""
    for k in sorted({0, 1, n - 2, n - 1} & set(range(n))):
        yield k, k
    if n > 1:
        yield (n - 1) // 2, (n - 1) // 2 + 1
