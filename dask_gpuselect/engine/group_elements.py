"""Questions about groups of all elements that order statistics answer, for all groups together.

`group_loads` has the graph.

A run is the set of elements of one group in one part. A part is as many chunks as one task takes.

For elements of one or two bytes in few groups, one load counts how often each value occurs in each
group: see `group_values` and `plans`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.arrays import in_kind, like
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.group_batches import GroupsOfAll
from dask_gpuselect.engine.group_values import Named, codes_of_names, numbered_together
from dask_gpuselect.engine.groups import ForGroups
from dask_gpuselect.engine.questions import Block, LaneQuestion
from dask_gpuselect.engine.source import DaskArray
from dask_gpuselect.kernels.companions import Accompanied, values_of
from dask_gpuselect.maths.cuts import Cuts
from dask_gpuselect.maths.labels import Labels
from dask_gpuselect.maths.lane_cuts import RanksOfLanes
from dask_gpuselect.maths.ragged import CellTally, bracket_slots, pivot_counts
from dask_gpuselect.maths.sizes import PIVOT_WORK, pivot_share

# With more groups nothing is cached: each group has a board, and 64 boards take 20 ms a part.
MOST_CACHED_GROUPS = 64


@dataclass(frozen=True, eq=False)
class GroupedElements(GroupsOfAll):
    """A question about every group of all elements that order statistics answer.

    It may have a further load.
    """

    @property
    def two_loads(self) -> GroupedElements:
        return self

    @property
    def ranks(self) -> RanksOfLanes:
        """The ranks that are wanted of each group."""
        return self.of_group.order.lane_ranks

    @property
    def keeps(self) -> bool:
        return self.grouping.is_lazy or self.grouping.number <= MOST_CACHED_GROUPS

    def root_bytes_of(self, sizes: Sequence[int], itemsize: int) -> int:
        """Return the bytes that the brackets of all groups need in one task, for these parts.

        `sizes` are the numbers of elements of the parts.
        """
        n_groups = 1 if self.grouping.is_lazy else max(self.grouping.number, 1)
        share = pivot_share(self.of_group.n_answers)
        runs = np.maximum(np.array(sizes) // n_groups, 1)
        pivots = np.minimum(pivot_counts(runs, share) * n_groups, np.array(sizes))
        return int(pivots.sum()) * (PIVOT_WORK + itemsize)

    @property
    def most_roots(self) -> int:
        return 1 if self.grouping.is_lazy else max(self.grouping.number, 1)

    def block(self, chunks: Sequence[Any], dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        if self.of_group.further is not None or not self.of_group.by_order:
            return self._block_by_group(chunks, dtype, shape)
        names, codes_of = self.names_in(chunks)
        n_groups = self.n_groups_of(names)
        found = kernels.group_elements(chunks, dtype, codes_of, n_groups, self.ranks)
        return in_kind(self.restored(Named(names, found), (), shape), values_of(chunks[0]))

    def restored(self, found: Named, block: Block, shape: AnswerAxes) -> Any:
        answer = self.of_group.finished(found.value)
        return answer[0, ...] if shape.is_scalar else answer

    def composed_by(
        self,
        ask: Callable[[DaskArray, GroupedElements, bool], DaskArray],
        x: DaskArray,
        label: str,
    ) -> DaskArray | None:
        """Compose the answer from other questions, by ``ask(x, question, seen)``.

        Return None if the question has loads of its own.
        """
        if not self.of_group.composes_groups:
            return None

        def ask_groups(x: DaskArray, question: LaneQuestion, seen: bool) -> DaskArray:
            return ask(x, replace(self, of_group=question), seen)

        return self.of_group.composed_of_groups(ask_groups, x, label)

    def edges(self, n_roots: int) -> tuple[int, ...] | None:
        """Return the group numbers that divide groups among several tasks; None for one task."""
        if n_roots < 2:
            return None
        n_groups = self.grouping.number
        return tuple(n_groups * i // n_roots for i in range(n_roots + 1))

    def cuts(
        self,
        chunks: Sequence[Accompanied],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        known: None,
        *,
        edges: tuple[int, ...] | None,
    ) -> Any:
        """Compute the cuts of the runs in some chunks, split by `edges` if given."""
        names, codes_of = self.names_in(chunks)
        share = pivot_share(self.of_group.n_answers)
        found = kernels.group_cuts(chunks, dtype, codes_of, self.n_groups_of(names), share)
        return Named(names, found) if edges is None else found.among(edges)

    def bracketed(
        self,
        partials: Sequence[Any],
        known: None,
        block: Block,
        *,
        edges: tuple[int, ...] | None,
        number: int,
    ) -> Named:
        """Find the brackets of all groups, or of those that belong to the task of that number."""
        if edges is not None:
            n_groups = edges[number + 1] - edges[number]
            return Named(None, bracket_slots(partials, n_groups, self.ranks))
        names, cuts = renumbered(partials)
        return Named(names, bracket_slots(cuts, self.n_groups_of(names), self.ranks))

    def tally(
        self,
        chunks: Sequence[Accompanied],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        known: Named,
        *,
        edges: tuple[int, ...] | None,
    ) -> Any:
        """Compute the tally of some chunks, split by `edges` if given."""
        brackets = known.value.brackets
        found = kernels.group_tally(chunks, dtype, codes_of_names(known.names), brackets)
        return found if edges is None else found.among(brackets, edges)

    def found(self, tallies: Sequence[CellTally], known: Named, block: Block) -> Named:
        """Select the order statistics of the groups that belong to one task."""
        found = kernels.order_statistics_of_groups(tallies, known.value, self.ranks)
        return Named(known.names, found)

    def _block_by_group(
        self, chunks: Sequence[Accompanied], dtype: np.dtype[Any], shape: AnswerAxes
    ) -> Any:
        names, _ = self.names_in(chunks)
        return self.numbered(names).of_groups(coded(chunks, names), dtype, shape)

    def numbered(self, names: Labels | None) -> GroupsOfAll:
        """Return the question about groups with these labels, which are now known."""
        n_groups = self.n_groups_of(names)
        return GroupsOfAll(self.of_group, replace(self.grouping, n_groups=n_groups))

    # A further load: its partial results are those of tables, with the labels that are known.

    @staticmethod
    def each(function: ForGroups, first: Any, *others: Any, **how: Any) -> Named:
        return Named(first.names, GroupsOfAll.each(function, first.value, *others, **how))

    def measured(
        self,
        measure: ForGroups,
        chunks: Sequence[Any],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        known: Named,
        **arguments: Any,
    ) -> Any:
        about, some = self.numbered(known.names), coded(chunks, known.names)
        return about.measured(measure, some, dtype, axes, known.value, **arguments)

    def finished_further(
        self,
        finish: Callable[..., Any],
        partials: Sequence[Any],
        known: Named,
        block: Block,
        dtype: np.dtype[Any],
        shape: AnswerAxes,
    ) -> Any:
        about = self.numbered(known.names)
        return about.finished_further(finish, partials, known.value, block, dtype, shape)


def renumbered(partials: Sequence[Named]) -> tuple[Labels | None, list[Cuts]]:
    """Return the labels in several partial results, and their cuts with group numbers among these.

    If the groups were known before, there are no labels, and the cuts stay as they are.
    """
    names, places = numbered_together(partials)
    cuts = [part.value for part in partials]
    if names is None:
        return None, cuts
    return names, [replace(c, slots=p[c.slots]) for c, p in zip(cuts, places, strict=True)]


def coded(chunks: Sequence[Accompanied], names: Labels | None) -> Sequence[Accompanied]:
    """Replace the labels of chunks by the numbers of their groups."""
    if names is None:
        return chunks
    each = [kernels.codes_among(chunk.labels, names) for chunk in chunks]
    return [
        replace(chunk, labels=like(codes, chunk.values) if isinstance(codes, np.ndarray) else codes)
        for chunk, codes in zip(chunks, each, strict=True)
    ]
