"""Questions about groups of all elements, answered by counts of every value in each group.

This serves dtypes of few values. A partial result is about the groups in a part of the data, and
has their labels if these are not known before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dask_gpuselect import kernels
from dask_gpuselect.engine.answers import AnswerAxes
from dask_gpuselect.engine.groups import GroupedLanes
from dask_gpuselect.engine.questions import Block
from dask_gpuselect.kernels.companions import Accompanied, CodesOf
from dask_gpuselect.kernels.values import group_value_counts
from dask_gpuselect.maths.cuts import Arrays
from dask_gpuselect.maths.labels import Codes, Labels, codes_among, union
from dask_gpuselect.maths.lane_value_counts import LaneValueCounts


@dataclass(frozen=True, eq=False)
class Named(Arrays):
    """Something about each of several groups, with the labels of the groups.

    Parameters
    ----------
    names : ndarray, group_tables.Names or None
        Distinct labels, ascending if they are labels of elements. None if the groups are known
        before.
    value : object, or tuple of objects
    """

    names: Any
    value: Any

    def __sizeof__(self) -> int:
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        sizes = (int(each.__sizeof__()) for each in values)
        return 64 + int(getattr(self.names, "nbytes", 0)) + sum(sizes)


class CountedGroups(GroupedLanes):
    """A question about every group of all elements, which counts of all values may answer."""

    by_place: ClassVar[bool] = False

    def names_in(self, chunks: Sequence[Accompanied]) -> tuple[Labels | None, CodesOf]:
        """Return the labels in some chunks, and a function from labels to group numbers.

        The labels are None if the groups are known before.
        """
        if not self.grouping.is_lazy:
            return None, codes_of_names(None)
        names = union([kernels.distinct_labels(chunk.labels) for chunk in chunks])
        if self.grouping.is_numbered:
            names = names[names >= 0]  # -1 is no group
        return names, codes_of_names(names)

    def n_groups_of(self, names: Labels | None) -> int:
        return self.grouping.number if names is None else len(names)

    @property
    def counts_values(self) -> bool:  # type: ignore[override]
        # Windows may share elements, so counts of elements by group do not work.
        return self.of_group.counts_values and self.grouping.windows is None

    @property
    def lanes_counted(self) -> float:
        return self.grouping.at_most

    def count_values(
        self,
        chunks: Sequence[Accompanied],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        known: None,
    ) -> Named:
        names, codes_of = self.names_in(chunks)
        n_groups = self.n_groups_of(names)
        return Named(names, group_value_counts(chunks, dtype, codes_of, n_groups))

    def merge_value_counts(self, partials: Sequence[Named]) -> Named:
        names, places = numbered_together(partials)
        values = [part.value for part in partials]
        if names is not None:
            pairs = zip(values, places, strict=True)
            values = [value.spread(at, len(names)) for value, at in pairs]
        return Named(names, LaneValueCounts.merge(values))

    def counted(self, part: Named, block: Block, dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        every = rows(self.n_groups_of(part.names))
        return self.of_group.counted(part.value, every, dtype, shape.of_rows)


def numbered_together(parts: Sequence[Named]) -> tuple[Labels | None, list[Codes]]:
    """Return the labels of all parts together, and the numbers of each part's groups among these.

    If the groups were known before, there are neither labels nor numbers.
    """
    if parts[0].names is None:
        return None, []
    names = union([part.names for part in parts])
    return names, [codes_among(part.names, names) for part in parts]


def codes_of_names(names: Labels | None) -> CodesOf:
    """Return a function from labels to their numbers: the identity if labels are numbers."""
    return _itself if names is None else partial(kernels.codes_among, names=names)


def _itself(labels: Any) -> Any:
    return labels


def rows(n_groups: int) -> Block:
    """Return the shape of a table with one row a group, as far as answers depend on it."""
    return n_groups, 0
