"""Chunks with halos: the parts of neighbouring chunks that windows reach.

A task takes slices of the tasks that make the chunks, under the keys that these have: a chunk is
read once, whatever reaches into it, and several windows over one array share its reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from dask.array.utils import meta_from_array
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import kernels
from dask_gpuselect.engine.companions import concatenated
from dask_gpuselect.engine.grid import joined
from dask_gpuselect.engine.source import DaskArray, List, Task, TaskRef, extended
from dask_gpuselect.kernels.companions import copied
from dask_gpuselect.maths.windows import Piecewise
from dask_gpuselect.quiet import quietly

Places = NDArray[np.int64]
Cut = tuple[int, int] | tuple[int, ...]
"""A selection along an axis of a chunk: a (start, stop) range, or indices and a final -1."""


class Halo(NamedTuple):
    """The reach of windows along an axis, from the element that each stands for.

    Parameters
    ----------
    before, after : int
        Numbers of elements; may be negative.
    step : int
        Every `step`-th element has a window.
    mode : {"reflect", "mirror", "nearest", "wrap"}, optional
        Which elements stand for those beyond the ends, as in ``scipy.ndimage``; by default none.
    """

    before: int
    after: int
    step: int = 1
    mode: str | None = None

    @property
    def size(self) -> int:
        return self.before + self.after + 1

    def within(self, n: int) -> Halo:
        """Return the reach along an axis of n elements, beyond whose ends there is nothing."""
        if self.mode is not None:
            return self
        before, after = (min(each, max(n, 1)) for each in (self.before, self.after))
        return self._replace(before=before, after=after)

    def standing(self, places: Places, n: int) -> Places:
        """Return the elements that stand for those at some places along an axis of n, by `mode`."""
        if self.mode == "wrap":
            return places % n
        if self.mode == "nearest":
            return np.clip(places, 0, n - 1)
        if self.mode == "reflect":
            turned = places % (2 * n)
            return np.minimum(turned, 2 * n - 1 - turned)
        turned = places % max(2 * n - 2, 1)  # "mirror"
        return np.minimum(turned, 2 * n - 2 - turned)


class Stretch(NamedTuple):
    """The elements that one chunk of answers needs along an axis.

    Parameters
    ----------
    n_answers : int
        Number of answers.
    side : Piecewise
        How what is taken is padded.
    cuts : tuple of (int, Cut)
        Numbers of chunks, and what is taken of each.
    """

    n_answers: int
    side: Piecewise
    cuts: tuple[tuple[int, Cut], ...]


def stretches(reach: Halo, sizes: Sequence[int]) -> Iterator[Stretch]:
    """Yield what each chunk of answers needs along an axis of chunks of these sizes."""
    ends = np.cumsum(sizes)
    n = int(ends[-1])
    if n == 0:
        yield Stretch(0, Piecewise.plain(0), ((0, (0, 0)),))
    for start, stop in itertools.pairwise([0, *ends.tolist()]):
        first = -(-start // reach.step) * reach.step
        if first >= stop:
            continue
        n_answers = (stop - 1 - first) // reach.step + 1
        begin = first - reach.before
        end = first + (n_answers - 1) * reach.step + reach.after + 1
        inner = min(max(begin, 0), n), max(min(end, n), 0)
        before, behind = np.arange(begin, min(end, 0)), np.arange(max(begin, n), end)
        cuts = tuple(_cuts(*inner, sizes, ends)) if inner[0] < inner[1] else ()
        if reach.mode is None:  # windows may end before the first element
            side = Piecewise.plain(end - begin, (len(before), len(behind)))
            yield Stretch(n_answers, side, cuts or ((0, (0, 0)),))
            continue
        left, right = (_standing(reach.standing(each, n), sizes, ends) for each in (before, behind))
        yield Stretch(n_answers, Piecewise.plain(end - begin), (*left, *cuts, *right))


def _cuts(start: int, stop: int, sizes: Sequence[int], ends: Places) -> Iterator[tuple[int, Cut]]:
    """Yield the elements from `start` to before `stop`, as ranges of chunks."""
    for chunk in range(int(np.searchsorted(ends, start, side="right")), len(sizes)):
        begin = int(ends[chunk]) - sizes[chunk]
        if begin >= stop:
            break
        if sizes[chunk]:
            yield chunk, (max(start - begin, 0), min(stop - begin, sizes[chunk]))


def _standing(places: Places, sizes: Sequence[int], ends: Places) -> Iterator[tuple[int, Cut]]:
    """Yield the elements at some positions, in any order, as indices into chunks."""
    chunk = np.searchsorted(ends, places, side="right")
    bounds = [0, *(np.flatnonzero(np.diff(chunk)) + 1).tolist(), len(places)]
    for i, k in itertools.pairwise(bounds):
        if i < k:
            own = int(chunk[i])
            yield own, (*(places[i:k] - (int(ends[own]) - sizes[own])).tolist(), -1)


def with_halos(
    function: Callable[..., Any],
    label: str,
    x: DaskArray,
    reaches: Sequence[Halo],
    dtype: np.dtype[Any],
    fill: Any = None,
    new_axes: tuple[int, ...] = (),
) -> DaskArray:
    """Apply a function to each chunk with its halo, and return an array of the results.

    Parameters
    ----------
    function : callable
        Function of a padded chunk, which returns the answers of its windows. Deterministically
        tokenizable.
    label : str
        Prefix of the names of layers.
    x : dask array
        Array of known chunks. The result has the same chunks, except for what `step` leaves out.
    reaches : sequence of Halo
        One for each axis.
    dtype : dtype
        Dtype of the result.
    fill : scalar, optional
        Value beyond the ends where no element stands for it; by default it is masked out.
    new_axes : tuple of int
        Sizes of axes that precede all others in the answers.

    Raises
    ------
    ValueError
        If the size of a chunk is unknown.
    """
    if any(np.isnan(size) for sizes in x.chunks for size in sizes):
        raise ValueError(
            "windows need chunks of known sizes, and those of x are unknown: type "
            "x.compute_chunk_sizes() first"
        )
    token = tokenize(x.name, reaches, function, dtype, fill)
    name, part = f"{label}-{token}", f"{label}-halo-{token}"
    along = [
        list(stretches(*each)) if len(each[1]) > 1 else [_one_chunk(each[0], *each[1])]
        for each in zip(reaches, x.chunks, strict=True)
    ]
    kind = quietly(partial(_padded, function=function, fill=fill))
    slices: dict[Any, Any] = {}
    tasks: dict[Any, Any] = {}
    for place in np.ndindex(*map(len, along)):
        own = [stretches[i] for stretches, i in zip(along, place, strict=True)]
        refs = [
            TaskRef(_taken(cuts, x, part, slices))
            for cuts in itertools.product(*(each.cuts for each in own))
        ]
        key = (name, *(0 for _ in new_axes), *place)
        counts = tuple(len(each.cuts) for each in own)
        sides = tuple(each.side for each in own)
        tasks[key] = Task(key, kind, List(*refs), counts, sides)
    graph = extended(x.dask, part, slices, {x.name}) if slices else x.dask
    graph = extended(graph, name, tasks, {x.name} | ({part} if slices else set()))
    chunks = tuple(tuple(each.n_answers for each in stretches) for stretches in along)
    ndim = len(new_axes) + x.ndim
    meta = meta_from_array(x._meta, ndim=ndim, dtype=dtype)
    return DaskArray(graph, name, (*((n,) for n in new_axes), *chunks), meta=meta)


def _taken(cuts: Sequence[tuple[int, Cut]], x: DaskArray, part: str, slices: dict[Any, Any]) -> Any:
    """Return the key of a part of a chunk: the key of the chunk, or of a slice of it.

    The task of a slice is added to `slices`.
    """
    place = tuple(chunk for chunk, _ in cuts)
    taken = tuple(cut for _, cut in cuts)
    whole = tuple((0, sizes[i]) for i, sizes in zip(place, x.chunks, strict=True))
    if taken == whole:
        return (x.name, *place)
    key = (part, *place, tokenize(taken))
    if key not in slices:
        slices[key] = Task(key, sliced, TaskRef((x.name, *place)), taken)
    return key


def sliced(chunk: Any, taken: Sequence[Cut]) -> Any:
    """Take a part of a chunk, copied so that the chunk can be freed."""
    plain = tuple(slice(*cut) if cut[-1] >= 0 else slice(None) for cut in taken)
    part = chunk[plain]
    for axis, cut in enumerate(taken):
        if cut[-1] < 0:
            part = part[(*(slice(None),) * axis, np.array(cut[:-1]))]
    return copied(part)


def _padded(
    parts: Sequence[Any],
    counts: tuple[int, ...],
    sides: tuple[Piecewise, ...],
    *,
    function: Callable[..., Any],
    fill: Any,
) -> Any:
    """Join slices of chunks, and apply a function to the result with what is beyond the ends."""
    # No name keeps what is joined while the function runs.
    return function(kernels.windows.padded(joined(parts, counts, concatenated), sides, fill))


def in_memory(array: Any, reaches: Sequence[Halo], fill: Any) -> Any:
    """Pad an array in memory by what its windows reach; see `with_halos`."""
    own = list(map(_one_chunk, reaches, array.shape))
    cuts = [cut for ((_, cut),) in (each.cuts for each in own)]
    if any(cut[-1] < 0 for cut in cuts):
        array = sliced(array, cuts)
    return kernels.windows.padded(array, tuple(each.side for each in own), fill)


@lru_cache(maxsize=64)
def _one_chunk(reach: Halo, n: int) -> Stretch:
    """Return what an axis of one chunk needs: all of it, padded as it is read.

    It needs a list of elements where no steps between them say which these are.
    """
    own = next(stretches(reach, (n,)))
    ends: tuple[list[int], list[int]] = [], []
    start = stop = 0
    for _, cut in own.cuts:
        if cut[-1] < 0:
            ends[stop > start].extend(cut[:-1])
        else:
            start, stop = cut
    steps = [np.unique(np.diff(places)).tolist() or [0] for places in ends]
    if max(map(len, steps)) > 1:
        return own._replace(cuts=((0, (*ends[0], *range(start, stop), *ends[1], -1)),))
    standing = [(*(few[:1] or [0]), *step) for few, step in zip(ends, steps, strict=True)]
    about = (start - own.side.low, len(ends[0]), n, *standing[0], *standing[1])
    side = Piecewise(own.side.size, own.side.low, own.side.high, *about)
    return Stretch(own.n_answers, side, ((0, (0, n)),))
