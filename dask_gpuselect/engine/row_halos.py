"""Partitions of frames with the rows around them that windows reach.

The rows before a partition come along a chain: each link holds the last rows of all partitions so
far, so partitions may be of any size. Rows behind it are taken from the next few partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.base import tokenize

from dask_gpuselect.engine.expressions import LowLevel
from dask_gpuselect.engine.frames import partitions_of
from dask_gpuselect.engine.graphs import objects
from dask_gpuselect.engine.source import GraphNode, Key, List, Task, TaskRef, extended
from dask_gpuselect.quiet import quietly

AHEAD = 4  # partitions behind its own that a task may take rows of

TOO_FAR = (
    f"windows reach beyond the {AHEAD} partitions behind their own: join small partitions by "
    "df.repartition(...), or leave out center=True"
)


@dataclass(frozen=True)
class RowReach:
    """Say how far windows reach from their row: a number of rows, or a span of the index.

    Parameters
    ----------
    before, after : int or Timedelta
        How far they reach at most.
    """

    before: Any
    after: Any

    @property
    def is_of_time(self) -> bool:
        """True if it is a span of the index."""
        return not isinstance(self.before, int)

    def last(self, rows: Any) -> Any:
        """Return the rows that a window of a later row may reach."""
        if not len(rows):
            return rows
        if not self.is_of_time:
            return rows.iloc[max(len(rows) - self.before, 0) :]
        return rows.iloc[_place(rows, rows.index[-1] - self.before, "left") :]

    def first(self, rows: Any) -> Any:
        """Return the rows that a window of an earlier row may reach, and one more."""
        if not len(rows):
            return rows
        if not self.is_of_time:
            return rows.iloc[: self.after]
        return rows.iloc[: _place(rows, rows.index[0] + self.after, "right") + 1]

    def is_enough(self, own: Any, behind: Any) -> bool:
        """Return whether windows of some rows reach no further than the rows behind these."""
        if not len(own):
            return True
        if not self.is_of_time:
            return bool(len(behind) >= self.after)
        return len(behind) > 0 and bool(behind.index[-1] > own.index[-1] + self.after)


def _place(rows: Any, at: Any, side: Any) -> int:
    """Find where a label is among those of some rows, which must ascend."""
    check_ascending(rows.index)
    return int(rows.index.searchsorted(at, side=side))


def check_ascending(index: Any) -> None:
    """Raise for an index that does not ascend, or lacks labels."""
    if index.hasnans or not index.is_monotonic_increasing:
        raise ValueError(
            "windows of time need an ascending index: df.sort_index(), or df.set_index(...), first"
        )


def with_rows_around(
    function: Callable[[Any, int, int], Any], label: str, frame: Any, reach: RowReach, meta: Any
) -> Any:
    """Call a function with each partition and the rows around it, and return a lazy frame.

    Parameters
    ----------
    function : callable
        Of rows, the number of the first own row, and that behind the last; to what is answered
        about the own rows. Deterministically tokenizable.
    label : str
        Of the names of layers.
    frame : dask DataFrame or Series
        Each partition is read once.
    reach : RowReach
    meta : Series or DataFrame
        Empty, of what the function returns.
    """
    optimized = frame.optimize()
    graph, keys, source = partitions_of(optimized)
    token = tokenize(keys, function, reach)
    before, behind, name = f"{label}-before-{token}", f"{label}-behind-{token}", f"{label}-{token}"
    parts: dict[Key, GraphNode] = {}
    tasks: dict[Key, GraphNode] = {}
    for i, key in enumerate(keys):
        earlier = [TaskRef((before, i - 1))] if i else []
        later = range(i + 1, min(i + 1 + AHEAD, len(keys))) if reach.after else ()
        if reach.before and i + 1 < len(keys):
            parts[before, i] = Task((before, i), _last, List(*earlier, TaskRef(key)), reach)
        if reach.after and i:
            parts[behind, i] = Task((behind, i), _first, TaskRef(key), reach)
        around = (
            List(*(earlier if reach.before else [])),
            List(*(TaskRef((behind, k)) for k in later)),
        )
        is_last = not reach.after or i + 1 + AHEAD >= len(keys)
        how = (quietly(_answered), function, *around, TaskRef(key), reach, is_last)
        tasks[name, i] = Task((name, i), *how)
    of = f"{label}-parts-{token}"
    needs = {source} | ({of} if parts else set())
    graph = extended(graph, of, parts, {source}) if parts else graph
    made = LowLevel(objects(extended(graph, name, tasks, needs), name, (len(keys),)))
    return dd.from_graph(made, meta, optimized.divisions, made.keys_of_blocks, label)


def _last(parts: Sequence[Any], reach: RowReach) -> Any:
    """Join the last rows of the partitions so far, copied so that these can be freed."""
    some = [part for part in parts if len(part)] or list(parts[-1:])
    joined = pd.concat(some) if len(some) > 1 else some[0]
    return reach.last(joined).copy()


def _first(part: Any, reach: RowReach) -> Any:
    return reach.first(part).copy()


def _answered(
    function: Callable[[Any, int, int], Any],
    before: Sequence[Any],
    behind: Sequence[Any],
    own: Any,
    reach: RowReach,
    is_last: bool,
) -> Any:
    """Answer about a partition with the rows around it."""
    behind = [part for part in behind if len(part)]
    joined = pd.concat(behind) if behind else own.iloc[:0]
    if not is_last and not reach.is_enough(own, joined):
        raise ValueError(TOO_FAR)
    some = [part for part in (*before, own, *behind) if len(part)]
    rows = pd.concat(some) if len(some) > 1 else some[0] if some else own
    if reach.is_of_time:
        check_ascending(rows.index)
    n_before = sum(map(len, before))
    return function(rows, n_before, n_before + len(own))


def bounds(index: Any, span: pd.Timedelta, closed: str, *, center: bool) -> tuple[Any, Any]:
    """Find where the windows of a span begin and end around the rows of an ascending index.

    They are those of pandas: a window that is closed at its right holds of equal labels those of
    earlier rows, and one that is open none.
    """
    labels = index.asi8
    width = span // pd.Timedelta(1, index.unit)
    rows = np.arange(len(labels))
    has_first, has_last = closed in ("left", "both"), closed in ("right", "both")
    if center:
        width //= 2
    ends = labels.searchsorted(labels + width * center, "right" if has_last else "left")
    if has_last and not center:
        ends = rows + 1
    begins = labels.searchsorted(labels - width, "left" if has_first else "right")
    begins = np.minimum(begins, rows)
    return begins.astype(np.int64), np.maximum(ends, begins).astype(np.int64)
