"""The first load of all elements: the cuts of every chunk, and a pilot ahead of it or a cache."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs, pilot
from dask_gpuselect.engine.keeping import FirstPartial, cuts_of, first_partials
from dask_gpuselect.engine.plans import ElementPlan
from dask_gpuselect.engine.questions import ArrayQuestion
from dask_gpuselect.engine.reads import Reads, each_if_needed
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.maths.chunk_sample import ChunkOrder
from dask_gpuselect.maths.cuts import Cuts, IntArray
from dask_gpuselect.maths.sizes import Narrowing


@dataclass(frozen=True, eq=False)
class FirstLoad(ArrayQuestion):
    """The first load of one array, for one question.

    Parameters
    ----------
    plan : ElementPlan
        How the question is answered.
    cuts : dask array
        Partial results of the first load: one for each chunk, or for each group of chunks.
    settled : dask array or None
        A task before the loads, whose result is `Resolved` if they need not read anything, else
        None: a pilot, or a strategy.
    groups : dask array or None
        The groups of chunks, of all arrays that are loaded together, with what is cached of them.
    """

    plan: ElementPlan = field(kw_only=True)
    cuts: DaskArray = field(kw_only=True)
    settled: DaskArray | None = None
    groups: DaskArray | None = None

    @classmethod
    def of(cls, request: ArrayQuestion, plan: ElementPlan, cuts: DaskArray, **others: Any) -> Self:
        """Add to a question what its first load has made."""
        return cls(**vars(request), plan=plan, cuts=cuts, **others)

    @property
    def narrowing(self) -> Narrowing | None:
        """Return how cuts are narrowed on their way to one task, if they are too many."""
        return self.plan.narrowing

    @property
    def rounds(self) -> Narrowing | None:
        """The narrowing, if candidates are narrowed where they wait before one task merges them."""
        return self.narrowing if self.narrowing is not None and self.narrowing.rounds else None

    @property
    def order(self) -> ChunkOrder | None:
        """The order of the chunks, if `cuts` are those of groups."""
        return None if self.plan.keeping is None else self.plan.keeping.order

    @property
    def turns(self) -> IntArray | None:
        """The position of each chunk in that order."""
        return None if self.order is None else self.order.turns()

    @property
    def reads(self) -> Reads:
        """Return how a further load reads the array."""
        keeping = self.plan.keeping
        is_alone = keeping is not None and len(keeping.reads.arrays) == 1
        return keeping.reads if keeping is not None and is_alone else Reads(self.x)


def first_loads(requests: Sequence[ArrayQuestion], plans: Sequence[ElementPlan]) -> list[FirstLoad]:
    """Make the first loads of arrays that are loaded together."""
    pairs, keeping = list(zip(requests, plans, strict=True)), plans[0].keeping
    if keeping is None:
        return [_first_load(*pair) for pair in pairs]
    partials = [first_partials(each, keeping.limits, plan.share) for each, plan in pairs]
    label, begun = "quantile-groups", []
    groups = graphs.grouped(partials, keeping.size, FirstPartial.of_group, label, keeping.numbers)
    for i, pair in enumerate(pairs):
        cuts = graphs.each_chunk(cuts_of, "quantile-cuts", [groups], i=i)
        begun.append(FirstLoad.of(*pair, cuts, groups=groups))
    return begun


def _first_load(request: ArrayQuestion, plan: ElementPlan) -> FirstLoad:
    """Compute the cuts of every chunk, in the chunks' own grid; None if a pilot has the answer.

    Questions about one array share these tasks.
    """
    if plan.name == "guess":
        return first_load_unless(request, plan, pilot.ask_pilot(request))
    how = {"dtype": request.x.dtype, "share": plan.share}
    cuts = graphs.each_chunk(kernels.cuts, "quantile-cuts", [request.source], **how)
    return FirstLoad.of(request, plan, cuts)


def first_load_unless(request: ArrayQuestion, plan: ElementPlan, settled: DaskArray) -> FirstLoad:
    """Make the first load of an array, which reads nothing if the answer is `settled` before."""
    x, label = request.x, f"{request.label}-cuts"
    how = {"dtype": x.dtype, "share": plan.share}
    cuts = each_if_needed(_cuts, label, Reads(x), [settled], partial(operator.is_, None), **how)
    return FirstLoad.of(request, plan, cuts, settled=settled)


def _cuts(chunk: Any, settled: None, place: Any, *, dtype: np.dtype[Any], share: int) -> Cuts:
    return kernels.cuts(chunk, dtype, share)
