"""The first load of all elements: the cuts of every chunk, and a pilot ahead of it or a cache."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from dask.base import tokenize

from dask_gpuselect import kernels
from dask_gpuselect.engine import graphs, pilot
from dask_gpuselect.engine.keeping import cuts_of, first_partials, grouped
from dask_gpuselect.engine.plans import ElementPlan
from dask_gpuselect.engine.questions import ArrayQuestion, Question
from dask_gpuselect.engine.reads import Reads, each_if_needed
from dask_gpuselect.engine.source import DaskArray, private_copy
from dask_gpuselect.maths.chunk_order import ChunkOrder
from dask_gpuselect.maths.cuts import Cuts, IntArray
from dask_gpuselect.maths.sizes import Narrowing


@dataclass(frozen=True)
class FirstLoad:
    """The first load of one array, for one question.

    Parameters
    ----------
    request : ArrayQuestion
        The array and the question.
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

    request: ArrayQuestion
    plan: ElementPlan
    cuts: DaskArray
    settled: DaskArray | None = None
    groups: DaskArray | None = None

    @property
    def question(self) -> Question:
        return self.request.question

    @property
    def narrowing(self) -> Narrowing | None:
        """Return how cuts are narrowed on their way to one task, if they are too many."""
        return self.plan.narrowing

    @property
    def rounds(self) -> Narrowing | None:
        """The narrowing, if candidates are narrowed where they wait before one task merges them."""
        return self.narrowing if self.narrowing is not None and self.narrowing.rounds else None

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the grid of chunks."""
        return tuple(self.request.x.numblocks)

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
        return keeping.reads if keeping is not None and is_alone else Reads(self.request.x)


def first_loads(
    requests: Sequence[ArrayQuestion],
    plans: Sequence[ElementPlan],
    label: str,
    among: str | None,
    *,
    is_marked: bool,
) -> list[FirstLoad]:
    """Make the first loads of arrays that are loaded together; `among` is their token."""
    pairs, keeping = list(zip(requests, plans, strict=True)), plans[0].keeping
    if keeping is None:
        return [_first_load(*pair, label, among) for pair in pairs]
    partials = [
        first_partials(keeping, each.x, each.question, plan.share, among, is_marked=is_marked)
        for each, plan in pairs
    ]
    groups = grouped(keeping, partials)
    return [FirstLoad(*pair, cuts_of(groups, i), groups=groups) for i, pair in enumerate(pairs)]


def _first_load(
    request: ArrayQuestion, plan: ElementPlan, label: str, among: str | None
) -> FirstLoad:
    """Compute the cuts of every chunk, in the chunks' own grid; None if a pilot has the answer.

    Questions about one array share these tasks.
    """
    x = request.x
    if plan.name == "guess":
        return first_load_unless(request, plan, pilot.ask_pilot(x, request.question, label), label)
    # Each array has a seed of its own: if x and x - median(x) had the same copy of x, x would stay
    # in memory until its median is known.
    source = private_copy(x, f"load 1 of {among or x.name}")
    arguments: dict[str, Any] = {"dtype": x.dtype, "share": plan.share}
    known = list(arguments.items())  # dask 2025.1 gives a dict another token in each process
    name = f"quantile-cuts-{tokenize(source.name, known)}"
    return FirstLoad(request, plan, graphs.each_chunk(kernels.cuts, name, [source], **arguments))


def first_load_unless(
    request: ArrayQuestion, plan: ElementPlan, settled: DaskArray, label: str
) -> FirstLoad:
    """Make the first load of an array, which reads nothing if the answer is `settled` before."""
    x = request.x
    name = f"{label}-cuts-{tokenize(x.name, plan.share, settled.name)}"
    how = {"dtype": x.dtype, "share": plan.share}
    cuts = each_if_needed(_cuts, name, Reads(x), [settled], partial(operator.is_, None), **how)
    return FirstLoad(request, plan, cuts, settled)


def _cuts(chunk: Any, settled: None, place: Any, *, dtype: np.dtype[Any], share: int) -> Cuts:
    return kernels.cuts(chunk, dtype, share)
