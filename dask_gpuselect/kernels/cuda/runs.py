"""Runs of CuPy chunks: all elements sorted by group and then by value, on their device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.arrays import all_true
from dask_gpuselect.kernels.companions import Accompanied, as_codes
from dask_gpuselect.kernels.cuda.chunk import as_float64
from dask_gpuselect.kernels.cuda.groups import Keys, keys_of
from dask_gpuselect.kernels.cuda.launch import Array, launch
from dask_gpuselect.kernels.cuda.moments import moments_of_runs
from dask_gpuselect.kernels.cuda.weighing import Summed, moments_of
from dask_gpuselect.kernels.reference.selection import elements_of
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.exact_sums import DIGIT, ExactSums, Running, Wholes
from dask_gpuselect.maths.keys import to_keys
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.runs import Runs

MOST_LIMBS = 8  # running sums of weights have 8 bytes in each limb, for every element


@dataclass(frozen=True, eq=False)
class SortedRuns(Runs):
    """Runs of the elements of some CuPy chunks.

    Parameters
    ----------
    keys : Keys
    weights : array, shape (n,)
        Weights of the elements; None if they have none.
    running : Running
        Sums of the weights of the elements of all runs, in one row.
    """

    keys: Keys
    weights: Array | None
    running: Running | None

    @property
    def home(self) -> Array:
        return self.keys.keys

    @property
    def has_weights(self) -> bool:
        return self.weights is not None

    @cached_property
    def values(self) -> Array:
        keys, values = self.keys.keys, cupy.empty(self.keys.keys.size, self.dtype)
        if keys.size:
            launch(self.dtype, "groups_values", keys, keys.size, values)
        return values

    @property
    def parts(self) -> list[Summed]:
        pairs = zip(self.starts.tolist(), self.stops.tolist(), strict=True)
        return [Summed(*pair) for pair in pairs]

    def find(self, run: IntArray, values: NDArray[Any], upto: NDArray[np.bool_]) -> IntArray:
        wanted = to_keys(values)
        if self.keys.numbers is None:
            wanted |= run.astype(np.uint64) << np.uint64(32)
        return self._search([self.keys.keys], run, [wanted.view(np.int64)], upto)

    def elements(self, places: IntArray) -> NDArray[Any]:
        last = max(self.keys.keys.size - 1, 0)
        return self.keys.elements_at(np.minimum(places, last))

    def weights_before(self, places: IntArray) -> ExactSums:
        assert self.running is not None
        sums = self.running
        if not len(places) or not self.keys.keys.size:
            return ExactSums.zeros(places.shape)
        at = cupy.asarray(np.maximum(places - 1, 0))
        digits = cupy.stack([limb[0].take(at) for limb in sums.limbs]).get()
        return sums.exact(np.where(places > 0, digits, 0))

    @property
    def unit(self) -> int:
        assert self.running is not None
        return self.running.exponent // DIGIT

    def reach(self, slot: IntArray, sums: ExactSums) -> IntArray:
        assert self.running is not None
        wanted = self.running.limbs_of(sums)
        limbs = [limb[0] for limb in self.running.limbs]
        return self._search(limbs, slot, wanted, np.zeros(len(slot), np.bool_))

    def _search(
        self,
        table: Sequence[Array],
        run: IntArray,
        wanted: Sequence[NDArray[Any]],
        upto: NDArray[np.bool_],
    ) -> IntArray:
        """Find numbers among the ascending ones of their run; the words of each are in a table."""
        n, n_wanted = int(table[0].size), len(run)
        if not n_wanted:
            return np.zeros(0, np.int64)
        sides = [self.starts[run], self.stops[run], upto]
        record = cupy.asarray(np.stack([*sides, *wanted]).astype(np.int64))
        words = table[0] if len(table) == 1 else cupy.concatenate(table)
        places = cupy.empty(n_wanted, np.int64)
        given = (words, n, len(table), *record[:3], record[3:], n_wanted)
        launch(self.dtype, "groups_find", *given, places, blocks=1)
        return np.asarray(places.get())

    def moments(self, near: NDArray[Any]) -> Moments:
        if not self.keys.keys.size:
            none = np.zeros(0, self.dtype), np.zeros(0, np.int64)
            return Moments.of(*none, len(self.stops), weights=none[0] if self.has_weights else None)
        if self.weights is not None:
            return moments_of(self.values, self.weights, self.parts)
        return moments_of_runs(self.values, self.stops, near)

    def squares_of(self, slot: IntArray) -> ExactSums:
        return moments_of(self.weights, self.weights, self.parts).total[slot]

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        pairs = zip(starts.tolist(), stops.tolist(), strict=True)
        return moments_of(self.values, self.weights, [Summed(*pair) for pair in pairs]).total


def sorted_runs(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], n_groups: int
) -> SortedRuns | None:
    """Sort the elements of each group of some chunks, whose labels are numbers of groups.

    None for weights so different that their running sums need too many digits.
    Scratch: 24 bytes for each element, and with weights as many more.
    """
    values, codes = (
        _joined([make(chunk) for chunk in chunks])
        for make in (lambda chunk: elements_of(chunk.values, dtype)[0], _codes)
    )
    kind, every, weights = np.dtype(values.dtype), codes, None
    n_left_out = n_idle = np.zeros(n_groups, np.int64)
    if any(chunk.keeps is not None for chunk in chunks):
        keeps = _joined([_keeps(chunk) for chunk in chunks])
        codes = cupy.where(keeps, codes, np.int32(-1))
        n_left_out = _sizes(every, n_groups) - _sizes(codes, n_groups)
    unmasked_codes, is_idle = codes, False
    if chunks[0].weights is not None:
        weights = _joined([_weights(chunk) for chunk in chunks])
        weighs = weights > 0
        is_idle = not all_true(weighs)
        if is_idle:
            codes = cupy.where(weighs, codes, np.int32(-1))
    keys, order = keys_of([(values, codes)], n_groups), None
    if weights is None:
        keys = keys.ordered()
    else:
        order = keys.order()
        keys = keys.taken(order)
    n_valid, n_missing = np.diff(keys.stops(2 * n_groups), prepend=0).reshape(2, -1)
    if is_idle:
        # NaN and NaT of weight 0 are left out.
        valid_codes = cupy.where(values == values, unmasked_codes, np.int32(-1))
        n_idle = _sizes(valid_codes, n_groups) - n_valid
        n_left_out = _sizes(every, n_groups) - n_valid - n_missing - n_idle
    n, running = int(n_valid.sum()), None
    if weights is not None and order is not None:
        weights = weights[order[:n]]
        wholes = Wholes.of(weights[None])
        if len(wholes.limbs) > MOST_LIMBS:
            return None
        running = wholes.running()
    numbers = n_valid, n_missing, n_left_out, n_idle
    return SortedRuns(kind, *numbers, keys.taken(slice(n)), weights, running)


def _joined(arrays: Sequence[Array]) -> Array:
    return cupy.ascontiguousarray(arrays[0]) if len(arrays) == 1 else cupy.concatenate(arrays)


def _codes(chunk: Accompanied) -> Array:
    if chunk.labels is None:
        return cupy.zeros(chunk.size, np.int32)
    return as_codes(chunk.labels.reshape(-1), chunk.values)


def _keeps(chunk: Accompanied) -> Array:
    return cupy.ones(chunk.size, bool) if chunk.keeps is None else chunk.keeps.reshape(-1)


def _weights(chunk: Accompanied) -> Array:
    """Return the weights of a chunk after a check, 0 for masked elements."""
    weights = chunk.weights
    assert weights is not None
    weights = weights.reshape(-1)
    if chunk.keeps is not None:
        weights = cupy.where(chunk.keeps.reshape(-1), weights, weights.dtype.type(0))
    return as_weights(as_float64(weights) if weights.dtype.kind == "f" else weights)


def _sizes(codes: Array, n_groups: int) -> IntArray:
    """Count the elements of each group."""
    counts = cupy.bincount(codes + 1, minlength=n_groups + 1).get()
    return np.asarray(counts[1 : n_groups + 1], np.int64)
