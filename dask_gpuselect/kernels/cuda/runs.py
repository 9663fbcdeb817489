"""Runs of CuPy chunks: all elements sorted by group and then by value, on their device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import Accompanied, as_codes
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.chunk import as_selected, distances_from
from dask_gpuselect.kernels.cuda.groups import Keys, keys_of
from dask_gpuselect.kernels.cuda.lane_boxes import FACTS, drawn_by
from dask_gpuselect.kernels.cuda.launch import Array, beside, launch, on_device
from dask_gpuselect.kernels.cuda.moments import moments_of_runs
from dask_gpuselect.kernels.cuda.ordering import elements_of as elements_of_keys
from dask_gpuselect.kernels.cuda.weighing import (
    AsRead,
    in_bands,
    in_order,
    moments_of,
    moments_of_parts_ahead,
    products_of,
    readable,
)
from dask_gpuselect.kernels.reference.selection import elements_of
from dask_gpuselect.kernels.reference.weighing import as_weights
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.cuts import FloatArray, IntArray, extremes_of
from dask_gpuselect.maths.exact_sums import DIGIT, ExactSums, Wholes
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.keys import from_keys, to_keys
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import LaneOrder
from dask_gpuselect.maths.lane_weights import TYPE_7, picked
from dask_gpuselect.maths.moments import Moments
from dask_gpuselect.maths.orders import GatheredRuns
from dask_gpuselect.maths.runs import Runs, places_inside

RUN_BOX = source.record("run_boxes.cu", "RunBox")
EXTREMES = "least", "most", "low", "high"
# Valid elements, missing ones, those of weight 0, those left out, and missing ones of these.
BANDS = 5
MOST_LIMBS = 8  # running sums of weights have 8 bytes in each limb, for every element


@dataclass(frozen=True, eq=False)
class SortedRuns(Runs):
    """Runs of the elements of some CuPy chunks.

    Parameters
    ----------
    keys : Keys
    weights : array, shape (n,)
        Weights of the elements; None if they have none.
    running : Wholes
        Sums of the weights of the elements of all runs, in one row.
    """

    keys: Keys
    weights: Array | None
    running: Wholes | None

    @property
    def home(self) -> Array:
        return self.keys.keys

    @property
    def has_weights(self) -> bool:
        return self.weights is not None

    @cached_property
    def values(self) -> Array:
        words = self.keys.keys.astype(f"u{self.dtype.itemsize}")
        return elements_of_keys(words, self.dtype)

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
        at = on_device(np.maximum(places - 1, 0)).view(np.int64)
        parts = [limb[0].take(at) for limb in sums.limbs]
        digits = (parts[0][None] if len(parts) == 1 else cupy.stack(parts)).get()
        return sums.exact(np.where(places > 0, digits, 0))

    def weights_at(self, places: IntArray) -> NDArray[Any]:
        assert self.weights is not None
        weights = self.weights.take(on_device(places).view(np.int64)).get()
        return np.asarray(weights if weights.dtype.kind == "i" else weights.astype(np.float64))

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
        n_wanted = len(run)
        if not n_wanted:
            return np.zeros(0, np.int64)
        sides = [self.starts[run], self.stops[run], upto]
        record = np.stack([*sides, *wanted]).astype(np.int64)
        record = on_device(record).view(np.int64).reshape(record.shape)
        places = cupy.empty(n_wanted, np.int64)
        given = (*_words_of(table), *record[:3], record[3:], n_wanted)
        launch(self.dtype, "groups_find", *given, places, blocks=1)
        return np.asarray(places.get())

    def pivots(self, n: IntArray) -> tuple[IntArray, NDArray[Any], IntArray, IntArray]:
        assert self.running is not None
        n = np.where(self.n_valid > 0, n, 0)
        size = 2 * int(n.sum())
        edges = np.stack([np.append(self.starts, self.stops[-1:]), np.cumsum(np.append(0, 2 * n))])
        edges = on_device(edges).view(np.int64).reshape(edges.shape)
        words, n_keys, n_limbs = _words_of([limb[0] for limb in self.running.limbs])
        table = cupy.empty((3, size), np.int64)
        if size:
            given = self.keys.keys, *edges, len(n), size, words, n_limbs, n_keys
            launch(self.dtype, "groups_pivots", *given, *table, None)
        table = table[:, cupy.argsort(table[1])]
        is_new = cupy.ones(size, bool)
        is_new[1:] = table[1, 1:] != table[1, :-1]
        keys, below, upto = table[:, is_new].get()
        pivots = from_keys(keys.view(np.uint64), self.dtype)
        return self.stops.searchsorted(below, side="right"), pivots, below, upto

    def moments(self, near: NDArray[Any]) -> Moments:
        if not self.keys.keys.size:
            none = np.zeros(0, self.dtype), np.zeros(0, np.int64)
            return Moments.of(*none, len(self.stops), weights=none[0] if self.has_weights else None)
        if self.weights is not None:
            return moments_of(self.values, self.weights, self.starts, self.stops)
        return moments_of_runs(self.values, self.stops, near)

    def sums_between(self, first: IntArray, stop: IntArray, near: NDArray[Any]) -> ExactSums:
        edges = np.stack([first, stop], axis=1).ravel()
        if not self.keys.keys.size:
            return ExactSums.zeros(first.shape)
        # The runs of the sum are those between two of these places, and those before them.
        return moments_of_runs(self.values, edges, near).total[1::2]

    def boxes(self, question: LaneOrder, rule: Rule) -> LaneBoxes | None:
        if self.has_weights:
            moments: Callable[[], Moments] = partial(self.moments, np.zeros(0))
            if self.keys.keys.size:
                if rule.method == TYPE_7:
                    self.squares_of(np.zeros(0, np.int64))  # before moments, which delay it
                given = AsRead.of(self.values, self.weights)
                about = given, self.starts, self.stops
                moments = beside(partial(moments_of_parts_ahead, *about))
            return weighted_boxes(self, self.n_left_out + self.n_idle, question, rule, moments)
        if not self.values.size:
            return None
        edges = np.stack([self.starts, self.stops])
        result = cupy.zeros(bytes_of_boxes(len(self.stops)), np.uint8)
        drawn = draw_boxes(self, question, rule, edges, lambda ranks: ranks, result)
        if drawn is None:
            return None
        columns, _ = drawn
        extremes = [columns[name][self.n_valid > 0] for name in EXTREMES]
        mean, deviation = self.moments(np.concatenate(extremes)).mean_and_std()
        return LaneBoxes(**columns, mean=mean, deviation=deviation)

    def distances(self, centre: Any, dtype: np.dtype[Any]) -> SortedRuns:
        keys, numbers = self.keys.keys, self.keys.numbers
        upper = keys.view(np.int32)[1::2] if numbers is None else numbers.view(np.int32)
        codes = cupy.ascontiguousarray(upper)
        centres = cupy.asarray(centre).reshape(-1).take(codes)
        values = as_selected(distances_from(self.values, centres, dtype))
        ordered = keys_of([(values, codes)], len(self.stops)).ordered()
        return replace(self, dtype=np.dtype(values.dtype), keys=ordered)

    def squares_of(self, slot: IntArray) -> ExactSums:
        return self._squares[slot]

    @cached_property
    def _squares(self) -> ExactSums:
        return products_of(self.weights, self.weights, self.starts, self.stops)

    def products(self, starts: IntArray, stops: IntArray) -> ExactSums:
        return products_of(self.values, self.weights, starts, stops)


def _words_of(table: Sequence[Array]) -> tuple[Array, int, int]:
    """Join numbers of several words, each array with one word of all; return their lengths, too."""
    words = table[0] if len(table) == 1 else cupy.concatenate(table)
    return words, int(table[0].size), len(table)


def weighted_boxes(
    order: SortedRuns | GatheredRuns,
    n_left_out: IntArray,
    question: Any,
    rule: Rule,
    moments: Callable[[], Moments],
) -> LaneBoxes:
    """Compute the box plot of each run; the fliers stay on the device, with their weights.

    `n_left_out` includes the elements of weight 0.

    Raises
    ------
    ChunksChangedError
        If elements that are wanted were not gathered.
    """
    lanes = picked(order, question.wanted)
    q: FloatArray = question.lane_answer(lanes).astype(np.float64)
    bounds, n_runs = np.stack(rule.fences(q)), len(order.n_valid)
    inner, outer = places_inside(order, bounds)
    starts, stops, some = order.starts, order.stops, order.n_valid > 0
    there: Any = order
    at_hand: Callable[[IntArray], IntArray] = np.asarray
    if isinstance(order, GatheredRuns):
        order.check_beyond(inner, outer)
        there, at_hand = order.runs, order.at_hand
    edges = order.weights_before(np.concatenate([starts, inner, outer, stops]))
    upto, before = (
        edges[(np.array(rows)[:, None] * n_runs + np.arange(n_runs)).ravel()]
        for rows in ((3, 1, 3), (0, 0, 2))
    )
    measures = (upto - before).rounded().reshape(3, n_runs)
    places = np.stack([starts, stops - 1, np.minimum(inner, stops - 1), outer - 1])
    extremes = np.zeros((4, n_runs), order.dtype)
    near = order.elements(np.maximum(places, starts)[:, some].ravel())
    extremes[:, some] = unsigned_zero(near).reshape(4, -1)
    least, largest = extremes_of(order.dtype)
    is_none = ~(np.stack([inner, starts]) < np.stack([stops, outer]))
    extremes[2:] = np.where(is_none, np.array([[largest], [least]]), extremes[2:])
    if order.dtype.kind == "f":
        extremes[2:][np.isnan(bounds)] = np.nan
    mean, deviation = moments().mean_and_std()
    n_low, n_high = _listed(order, inner, outer, rule.max_fliers)
    n = np.stack([n_low, n_high], axis=1).ravel()
    at, sides = _ahead(at_hand(np.stack([starts, stops - n_high], axis=1).ravel()), n)
    weights = there.weights.take(at)
    return LaneBoxes(
        n=order.n_valid + order.n_missing + n_left_out,
        n_valid=order.n_valid,
        q=q,
        **dict(zip(("weight", "n_low", "n_high"), measures, strict=True)),
        mean=mean,
        deviation=deviation,
        **dict(zip(EXTREMES, extremes, strict=True)),
        fliers=there.values.take(at),
        flier_weights=weights if weights.dtype.kind == "i" else weights.astype(np.float64),
        sides=sides,
        starts=None,
        counts=None,
        most_fliers=rule.max_fliers,
        n_left_out=n_left_out,
    )


def _ahead(first: IntArray, n: IntArray) -> tuple[Array, Array]:
    """Return `n` consecutive places from each first one on, and the number of each one's piece.

    See `tables.ahead`.
    """
    stops = np.cumsum(n)
    edges = on_device(np.stack([stops, first - (stops - n)])).view(np.int64).reshape(2, -1)
    places = cupy.arange(int(n.sum()))
    pieces = cupy.searchsorted(edges[0], places, side="right")
    return places + edges[1].take(pieces), pieces


def _listed(
    order: SortedRuns | GatheredRuns, inner: IntArray, outer: IntArray, most: int
) -> IntArray:
    """Count the fliers below and above each box that are listed: `most`, and their ties."""
    n = np.stack([inner - order.starts, order.stops - outer])
    side, run = np.nonzero(n > most)
    if most and len(run):
        starts, stops = order.starts[run], order.stops[run]
        last = order.elements(np.where(side, stops - most, starts + most - 1))
        behind = order.find(run, last, side == 0)
        n[side, run] = np.where(side, stops - behind, behind - starts)
    return n if most else 0 * n


def sorted_runs(
    chunks: Sequence[Accompanied], dtype: np.dtype[Any], n_groups: int
) -> SortedRuns | None:
    """Sort the elements of each group of some chunks, whose labels are numbers of groups.

    None for weights so different that their running sums need too many digits.
    Scratch: 24 bytes for each element, and with weights as many more.
    """
    (values, codes, keeps), given = joined_columns(chunks, dtype), None
    kind, size = np.dtype(values.dtype), values.size
    unit, shift, n_limbs = 0, 0, 0
    if chunks[0].weights is not None:
        given = with_weights(chunks, values, keeps)
        codes, wait = in_bands(given, codes, n_groups)
        unit, n_bits = wait()
        n_limbs = limbs_for(n_bits, size)
        if n_limbs > MOST_LIMBS:
            return None
        shift = max(size - 1, 1).bit_length()
        if kind.itemsize == 8 or (BANDS * n_groups).bit_length() + 32 + shift > 64:
            shift = 0
    elif keeps is not None:
        codes = codes.astype(np.int32, copy=False)
        codes = cupy.where(keeps | (codes < 0), codes, codes + np.int32(3 * n_groups))
    keys = keys_of([(values, codes)], n_groups, none=BANDS * n_groups, shift=shift)
    ordered: Array | None = None
    whole: Array = ()
    if given is None:
        keys = keys.ordered()
    else:
        order = keys.ordered().keys if shift else keys.order()
        words, ordered, whole = in_order(given, order, shift, unit, n_limbs)
        keys = Keys(words, None, kind) if shift else keys.taken(order)
    numbers = np.diff(keys.stops(BANDS * n_groups), prepend=0).reshape(BANDS, -1)
    n_valid, n_missing, n_idle, n_masked, n_others = numbers
    n, running = int(n_valid.sum()), None
    if ordered is not None:
        ordered = ordered[:n]
        running = Wholes(unit, [limb[None, :n] for limb in whole]).running()
    counts = n_valid, n_missing, n_masked + n_others, n_idle
    return SortedRuns(kind, *counts, keys.taken(slice(n)), ordered, running)


def bytes_of_boxes(n_runs: int) -> int:
    """Return the size of the result of `draw_boxes`."""
    return FACTS.itemsize + n_runs * RUN_BOX.itemsize


def draw_boxes(
    runs: SortedRuns,
    question: LaneOrder,
    rule: Rule,
    edges: IntArray,
    places_of: Callable[[IntArray], IntArray | None],
    result: Array,
) -> tuple[dict[str, Any], NDArray[np.uint8]] | None:
    """Draw the box of each run; see `boxes_of_runs`. The host waits once.

    The keys of a run lie between two `edges`, and ranks among the elements of all runs at
    `places_of` them. `result` is zero before, and has at least `bytes_of_boxes`. Returns columns
    of `LaneBoxes` but for moments, and the result on the host; or None for integers that are
    too wide, and without the places of all ranks.
    """
    wanted = question.wanted_of_lanes(np.maximum(runs.n_valid, 1))
    places = places_of(np.stack([wanted.lower, wanted.upper]) + runs.starts)
    if places is None:
        return None
    keys, n_runs, size = runs.keys, len(runs.n_valid), question.n_answers
    weights = np.broadcast_to(wanted.weight, (size, n_runs)).astype(np.float64).view(np.int64)
    table = np.vstack([*edges, *np.broadcast_to(places, (2, size, n_runs)), weights])
    drawn, dtype = drawn_by(rule), keys.dtype
    most = int(drawn["most_fliers"])
    fliers = cupy.empty(min(2 * most * n_runs, len(keys)), dtype)
    given = keys.keys, on_device(table), n_runs, size, question.mixes, drawn
    into = result[FACTS.itemsize :], fliers, result
    how: dict[str, Any] = {"blocks": n_runs, "defined": (("ANSWER", 64),)}
    launch(dtype, "boxes_of_runs", *given, *into, **how)
    host = result.get()
    facts = host[: FACTS.itemsize].view(FACTS)[0]
    if facts["flags"]["too_wide"]:
        return None
    found = host[FACTS.itemsize : bytes_of_boxes(n_runs)].view(RUN_BOX)
    word = np.dtype(f"u{dtype.itemsize}")
    columns = {name: found[name].astype(word).view(dtype) for name in EXTREMES}
    columns |= {"n_low": found["n_low"], "n_high": found["n_high"], "q": found["q"].T}
    listed = {"fliers": fliers[: int(facts["n_fliers"])], "most_fliers": most}
    listed |= {"starts": found["start"], "counts": found["count"]}
    n_left_out = runs.n_left_out + runs.n_idle
    n = {"n": runs.n_valid + runs.n_missing + n_left_out, "n_valid": runs.n_valid}
    return columns | listed | n | {"n_left_out": n_left_out}, host


def joined_columns(chunks: Sequence[Accompanied], dtype: np.dtype[Any]) -> tuple[Array, Array, Any]:
    """Join the elements of chunks, their groups, and masks if there are any."""
    values = joined_flat([elements_of(chunk.values, dtype)[0] for chunk in chunks])
    is_masked = any(chunk.keeps is not None for chunk in chunks)
    keeps = joined_flat([flat_mask(chunk) for chunk in chunks]) if is_masked else None
    return values, joined_flat([flat_codes(chunk) for chunk in chunks]), keeps


def with_weights(chunks: Sequence[Accompanied], values: Array, keeps: Array | None) -> AsRead:
    """Join the weights of chunks."""
    return AsRead.of(values, joined_flat([_weights(chunk) for chunk in chunks]), keeps)


def limbs_for(n_bits: int, n: int) -> int:
    """Return how many numbers of 8 bytes sums of `n` weights of so many bits need.

    Sums of whole numbers fit int64, or those of their digits of 32 bits do.
    """
    return 1 if n_bits + n.bit_length() < 63 else -(-n_bits // DIGIT)


def joined_flat(arrays: Sequence[Array]) -> Array:
    """Join flat arrays in one that is contiguous, without a copy where one is enough."""
    return cupy.ascontiguousarray(arrays[0]) if len(arrays) == 1 else cupy.concatenate(arrays)


def flat_codes(chunk: Accompanied) -> Array:
    """Return the group numbers of a chunk, which are 0 if it has no labels."""
    if chunk.labels is None:
        return cupy.zeros(chunk.size, np.int32)
    return as_codes(chunk.labels.reshape(-1), chunk.values)


def flat_mask(chunk: Accompanied) -> Array:
    """Return which elements of a chunk take part."""
    return cupy.ones(chunk.size, bool) if chunk.keeps is None else chunk.keeps.reshape(-1)


def _weights(chunk: Accompanied) -> Array:
    """Return the weights of a chunk as kernels read them; those of uint64 after a check."""
    weights = chunk.weights
    assert weights is not None
    weights = weights.reshape(-1)
    if weights.dtype == np.uint64:
        keeps = True if chunk.keeps is None else chunk.keeps.reshape(-1)
        weights = as_weights(cupy.where(keeps, weights, np.uint64(0)))
    return readable(weights)
