"""Tallies at new brackets, from the cached tallies of the first load.

If the first load cached a chunk's tally at guessed brackets, its tally at the proven ones may
follow from that, without a second load. Each slot in a part of the data is treated as a chunk of an
array of its own.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.maths.candidates import Candidates
from dask_gpuselect.maths.cuts import NO_SUMS, Brackets, IntArray, Tally, extremes_of
from dask_gpuselect.maths.finish import counts_at, places_among
from dask_gpuselect.maths.host_runs import gathered
from dask_gpuselect.maths.ragged import CellTally


def covers(cached: Brackets, wanted: Brackets, *, weighs: bool = False) -> bool:
    """Return whether a chunk's tally at the `cached` brackets determines its tally at `wanted`.

    `weighs` is True if candidates have individual weights. Elements that were only counted have
    none.
    """
    dtype = cached.ends.dtype
    asks_more = wanted.summed is not None and cached.summed is None
    if asks_more or weighs and _is_inside(wanted, cached.ends).any():
        return False
    is_left_out = ~cached.wanted
    # Nothing lies beyond the extreme values of the dtype, so outer cells there leave nothing out.
    least, largest = extremes_of(dtype) if dtype.kind in "iuf" else (None, None)
    if len(cached.ends):
        is_left_out[0] &= bool(cached.ends[0] != least)
        is_left_out[-1] &= bool(cached.ends[-1] != largest)
    # No wanted end may lie inside a cell that was left out, and no cell that is asked about may
    # overlap it.
    first = np.append(0, wanted.ends.searchsorted(cached.ends, "right"))
    last = np.append(wanted.ends.searchsorted(cached.ends), len(wanted.ends))
    needed = wanted.needed[last]
    if cached.summed is not None:  # a sum serves a sum
        needed = np.where(cached.summed, wanted.wanted[last], needed)
    return not ((first < last) | needed)[is_left_out].any()


def tally_by(cached: Brackets, tally: Tally, wanted: Brackets) -> Tally:
    """Compute the tally of a chunk at other brackets, which the cached ones must cover."""
    tally = tally.in_order()
    ordered = tally.candidates
    below, upto = counts_at(cached, tally, wanted.ends)
    places = wanted.places_inside(*ordered.counts(wanted.ends), len(ordered))
    # Only these elements move to the host: candidates of a chunk on a GPU are there.
    elements = ordered.elements_at(places)
    times: IntArray = (tally.upto - tally.below) * _is_inside(wanted, cached.ends)
    if times.any():  # counted elements that lie in wanted cells
        elements = np.concatenate([elements, np.repeat(cached.ends, times)])
    counted = replace(tally, below=below, upto=upto, candidates=Candidates(elements))
    if not tally.weighs:
        return counted
    order, products = gathered(cached, tally), NO_SUMS
    if wanted.summed is not None:  # cells that are between two ends
        begins = np.append(np.int64(0), upto)
        products = order.products(begins, np.where(wanted.summed, np.append(below, 0), begins))
    return replace(
        counted,
        weights=tally.weights[places],
        weight_below=order.weights_before(below),
        weight_upto=order.weights_before(upto),
        products=products,
    )


def cell_tally_by(
    cached: Brackets, tally: CellTally, wanted: Brackets, among: NDArray[Any] | None = None
) -> CellTally | None:
    """Compute the tally of a part at other brackets; None if the cached ones do not cover them.

    Parameters
    ----------
    cached, tally
        Cached brackets, and the tally at them.
    wanted : Brackets
    among : ndarray of int, shape (cached.n_slots,), optional
        Number of each cached slot among the wanted slots; by default, they are the same slots.
    """
    of_slot, tallies = wanted.by_slot(), {}
    for slot, old, some in tally.each(cached):
        number = slot if among is None else int(among[slot])
        own = of_slot(number)
        if not covers(old, own, weighs=tally.weighs):
            return None
        tallies[number] = tally_by(old, some, own)
    found = CellTally.of_each(wanted, tallies) if tallies else tally.empty
    if tally.slots is None:
        return found
    # Slots without elements have none of the tallies above, but may have some of weight 0.
    of_slots = {name: getattr(tally, name) for name in CellTally.OF_SLOTS}
    if among is not None:
        of_slots["slots"] = among[tally.slots].astype(np.int32)
    return replace(found, **of_slots)


def _is_inside(brackets: Brackets, values: NDArray[Any]) -> NDArray[np.bool_]:
    """Mark the values that are in wanted cells."""
    cell, is_end = places_among(brackets.ends, values)
    is_inside: NDArray[np.bool_] = brackets.wanted[cell] & ~is_end
    return is_inside
