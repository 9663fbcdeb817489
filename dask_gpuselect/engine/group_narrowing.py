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
from dask_gpuselect.maths.cached import group_tally_by
from dask_gpuselect.maths.coarse import (
    cuts_of_group_tally,
    merged_groups_coarsely,
    narrower_groups,
)
from dask_gpuselect.maths.group_cuts import GroupCuts, GroupTally
from dask_gpuselect.maths.sizes import COARSE_EVERY, GroupNarrowing


def few_cuts(columns: Columns, cuts: Tasks, narrowing: GroupNarrowing, n_roots: int) -> list[Tasks]:
    """Merge the cuts of all parts until they are few, for each aggregating task."""
    if n_roots == 1:
        return [columns.merge(partial(_merged_cuts, most=narrowing.coarse), cuts, COARSE_EVERY)]
    merge = partial(merged_groups_coarsely, most=narrowing.coarse)
    lots = columns.lots(partial(_each_root, merge=merge), cuts, narrowing.lots, COARSE_EVERY)
    return [columns.merge(merge, each, COARSE_EVERY) for each in columns.divide(lots, n_roots)]


def few_candidates(
    columns: Columns,
    tallies: Tasks,
    brackets: Sequence[Tasks],
    narrowing: GroupNarrowing,
    label: str,
) -> tuple[list[Tasks], list[Tasks]]:
    """Narrow the tallies of lots of parts and their brackets, where the candidates are.

    Return one of each for every aggregating task.
    """
    n_roots = len(brackets)
    merge = GroupTally.merge if n_roots == 1 else partial(_each_root, merge=GroupTally.merge)
    lots = columns.lots(merge, tallies, narrowing.waits, COARSE_EVERY)
    found: list[Tasks] = []
    narrowed: list[Tasks] = []
    for load, known in zip(columns.divide(lots, n_roots), brackets, strict=True):
        for _ in range(narrowing.rounds):
            token = tokenize(label, load.name, known.name, narrowing)
            few = columns.each(
                partial(_few_of, most=narrowing.coarse),
                f"quantile-groups-few-{token}",
                load,
                [known],
            )
            how = partial(merged_groups_coarsely, most=narrowing.coarse)
            few = columns.merge(how, few, COARSE_EVERY)
            narrower = columns.settle(_narrower, f"quantile-groups-narrower-{token}", few, known)
            load = columns.each(
                _narrower_tally, f"quantile-groups-left-{token}", load, [known, narrower]
            )
            known = narrower
        found.append(load)
        narrowed.append(known)
    return found, narrowed


def _merged_cuts(partials: Sequence[Named], *, most: int) -> Named:
    names, cuts = renumbered(partials)
    return Named(names, merged_groups_coarsely(cuts, most))


def _each_root(partials: Sequence[Sequence[Any]], *, merge: Callable[..., Any]) -> list[Any]:
    """Merge the items of some lists that belong to the same aggregating task."""
    return [merge(list(items)) for items in zip(*partials, strict=True)]


def _few_of(tally: GroupTally, known: Named, *, most: int) -> GroupCuts:
    return cuts_of_group_tally(known.value, tally, most)


def _narrower(partials: Sequence[GroupCuts], known: Named, block: Block) -> Named:
    del block
    return Named(known.names, narrower_groups(known.value, GroupCuts.merge(partials)))


def _narrower_tally(tally: GroupTally, known: Named, narrower: Named) -> GroupTally:
    among = np.arange(known.value.n_groups)
    found = group_tally_by(known.value, tally, narrower.value, among)
    assert found is not None
    return found
