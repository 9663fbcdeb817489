"""Groups of all elements of few values: how often each value occurs in every group.

Reports are about the groups that a part of the data has, with what these are called where that is
not known before.
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
from dask_gpuselect.maths.labels import Labels, codes_among, union
from dask_gpuselect.maths.lane_value_counts import LaneValueCounts


@dataclass(frozen=True, eq=False)
class Named(Arrays):
    """What is known of groups, with their labels.

    Parameters
    ----------
    names : ndarray, group_tables.Names or None
        Distinct, labels of elements ascending; None if they are known before.
    value : object, or tuple of objects
    """

    names: Any
    value: Any

    def __sizeof__(self) -> int:
        values = self.value if isinstance(self.value, tuple) else (self.value,)
        sizes = (int(each.__sizeof__()) for each in values)
        return 64 + int(getattr(self.names, "nbytes", 0)) + sum(sizes)


class CountedGroups(GroupedLanes):
    """What is asked of every group of all elements, of which counts of all values may answer."""

    by_place: ClassVar[bool] = False

    def names_in(self, chunks: Sequence[Accompanied]) -> tuple[Labels | None, CodesOf]:
        """The labels in some chunks, if they are not known before, and what gives the number of
        each."""
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
        # Those of windows may have elements in common.
        return self.of_group.counts_values and self.grouping.windows is None

    @property
    def lanes_counted(self) -> float:
        return self.grouping.at_most

    def value_report(
        self,
        chunks: Sequence[Accompanied],
        dtype: np.dtype[Any],
        axes: tuple[int, ...],
        known: None,
    ) -> Named:
        names, codes_of = self.names_in(chunks)
        n_groups = self.n_groups_of(names)
        return Named(names, group_value_counts(chunks, dtype, codes_of, n_groups))

    def merge_value_reports(self, reports: Sequence[Named]) -> Named:
        merge, values = LaneValueCounts.merge, [report.value for report in reports]
        if not self.grouping.is_lazy:
            return Named(None, merge(values))
        names = union([report.names for report in reports])
        places = [codes_among(report.names, names) for report in reports]
        each = zip(values, places, strict=True)
        return Named(names, merge([value.spread(at, len(names)) for value, at in each]))

    def counted(self, report: Named, block: Block, dtype: np.dtype[Any], shape: AnswerAxes) -> Any:
        every = rows(self.n_groups_of(report.names))
        return self.of_group.counted(report.value, every, dtype, shape.of_rows)


def codes_of_names(names: Labels | None) -> CodesOf:
    """What gives the number of each label: itself, of labels that are numbers of groups."""
    return _itself if names is None else partial(kernels.codes_among, names=names)


def _itself(labels: Any) -> Any:
    return labels


def rows(n_groups: int) -> Block:
    """The shape of a table that has a row for each group, as far as answers depend on it."""
    return n_groups, 0
