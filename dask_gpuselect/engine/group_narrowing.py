"""Narrow cuts and candidates of few large groups before one task aggregates them.

::

    cuts of runs ──> lots ──few──> merge ──> brackets
                                               │
    tallies ──> lots ──few──> merge ──> narrower brackets   as often as needed
                  │                        │
                  └─────> narrower <───────┘ ──> elements

A lot is a set of neighbouring parts. Its candidates wait on its worker. See `maths.coarse`, and
`narrowing` for elements without groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect.engine.columns import Columns, Tasks
from dask_gpuselect.engine.group_elements import renumbered
from dask_gpuselect.engine.group_values import Named
from dask_gpuselect.engine.questions import Block
from dask_gpuselect.maths.cached import cell_tally_by
from dask_gpuselect.maths.coarse import cuts_of_cells, merged_coarsely, narrower_slots
from dask_gpuselect.maths.cuts import Cuts
from dask_gpuselect.maths.lane_cuts import RanksOfLanes
from dask_gpuselect.maths.ragged import CellTally
from dask_gpuselect.maths.sizes import COARSE_EVERY, Narrowing


def few_cuts(columns: Columns, cuts: Tasks, narrowing: Narrowing, n_roots: int) -> Tasks:
    """Merge the cuts of all parts until they are few, for each aggregating task."""
    if n_roots == 1:
        return columns.merge(partial(_merged_cuts, most=narrowing.coarse), cuts, COARSE_EVERY)
    merge = partial(merged_coarsely, most=narrowing.coarse)
    lots = columns.lots(partial(_each_root, merge=merge), cuts, narrowing.lots, COARSE_EVERY)
    return columns.merge(merge, columns.divide(lots, n_roots), COARSE_EVERY)


def few_candidates(
    columns: Columns,
    tallies: Tasks,
    brackets: Tasks,
    narrowing: Narrowing,
    n_roots: int,
    ranks: RanksOfLanes,
    label: str,
) -> tuple[Tasks, Tasks]:
    """Narrow the tallies of lots of parts and their brackets, where the candidates are.

    Return both for every aggregating task.
    """
    merge = CellTally.merge if n_roots == 1 else partial(_each_root, merge=CellTally.merge)
    lots = columns.lots(merge, tallies, narrowing.groups, COARSE_EVERY)
    load = columns.divide(lots, n_roots)
    for _ in range(narrowing.rounds):
        token = tokenize(label, load.name, brackets.name, narrowing)
        name = f"quantile-groups-few-{token}"
        few = columns.each(partial(_few_of, most=narrowing.coarse), name, load, [brackets])
        few = columns.merge(partial(merged_coarsely, most=narrowing.coarse), few, COARSE_EVERY)
        name = f"quantile-groups-narrower-{token}"
        narrower = columns.settle(partial(_narrower, ranks=ranks), name, few, brackets)
        name = f"quantile-groups-left-{token}"
        load = columns.each(_narrower_tally, name, load, [brackets, narrower])
        brackets = narrower
    return load, brackets


def _merged_cuts(partials: Sequence[Named], *, most: int) -> Named:
    names, cuts = renumbered(partials)
    return Named(names, merged_coarsely(cuts, most))


def _each_root(partials: Sequence[Sequence[Any]], *, merge: Callable[..., Any]) -> list[Any]:
    """Merge the items of some lists that belong to the same aggregating task."""
    return [merge(list(items)) for items in zip(*partials, strict=True)]


def _few_of(tally: CellTally, known: Named, *, most: int) -> Cuts:
    return cuts_of_cells(known.value.brackets, tally, most)


def _narrower(cuts: Sequence[Cuts], known: Named, block: Block, *, ranks: RanksOfLanes) -> Named:
    del block
    return Named(known.names, narrower_slots(known.value, Cuts.merge(cuts), ranks))


def _narrower_tally(tally: CellTally, known: Named, narrower: Named) -> CellTally:
    old, new = known.value.brackets, narrower.value.brackets
    found = cell_tally_by(old, tally, new, np.arange(old.n_slots))
    assert found is not None
    return found
