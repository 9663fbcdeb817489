"""The box plot of a small array by two launches and one wait. The host side of ``only_box.cu``.

Also the box of any array, from what kernels find.
"""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.launch import Array, launch, offsets
from dask_gpuselect.kernels.cuda.moments import N_SUMS, moments_of
from dask_gpuselect.kernels.cuda.only_lane import BOX_RESULTS, MOST_LISTED, Started
from dask_gpuselect.maths.boxes import Rule
from dask_gpuselect.maths.exact_sums import TOTAL_DIGITS
from dask_gpuselect.maths.finish import unsigned_zero
from dask_gpuselect.maths.keys import from_keys, selection_dtype
from dask_gpuselect.maths.lane_boxes import LaneBoxes
from dask_gpuselect.maths.lane_cuts import ElementOrder
from dask_gpuselect.maths.moments import Moments, RoundedMoments

EACH = 16  # elements of a thread


def box_alone(values: Array, question: ElementOrder, rule: Rule) -> LaneBoxes | None:
    """Find the box of all elements; see `reference.lanes.box_alone`.

    None as for `answer_only_lane`; for whiskers between quantiles, many fliers, and if quartiles
    are elements or infinite.
    """
    dtype, n = np.dtype(values.dtype), values.size
    k = most_listed(question, n, rule)
    started = Started.of(values, question, (k - 1, n - k)) if k else None
    if started is None:
        return None
    room = started.room
    started.start(int(room.box) + offsets(BOX_RESULTS)["answers"])
    given, made = (values, n, rule.whis, room.box, k), (("PIECES", source.pieces_of(dtype)),)
    with room.if_it_ends():
        launch(
            dtype, "only_box", *given, room.box_results_at, n_threads=-(-n // EACH), defined=made
        )
        cupy.cuda.get_current_stream().synchronize()
    if not started.is_complete():
        return None
    return box_of(room.box_results, n, rule, dtype)


def most_listed(order: ElementOrder, n: int, rule: Rule) -> int:
    """Return how many elements of each side kernels list for a box; 0 if they cannot find it."""
    k = min(max(rule.max_fliers, 1), n)
    mixes = order.mixes and order.dtype == np.float64
    return 0 if isinstance(rule.whis, tuple) or k > MOST_LISTED or not mixes else k


def box_of(host: NDArray[Any], n: int, rule: Rule, dtype: np.dtype[Any]) -> LaneBoxes | None:
    """Make the box of n elements of a dtype from the bytes of kernels: `BoxFound`.

    None if quartiles are infinite, or whiskers reach the extremes because quartiles are equal.
    """
    sums_at, k = BOX_RESULTS.itemsize, min(max(rule.max_fliers, 1), n)
    listed_at = sums_at + 8 * N_SUMS
    results = host[:sums_at].view(BOX_RESULTS)[0]
    answers = results["answers"]
    q = answers[:3].copy()
    is_open = rule.autorange and q[0] == q[2]
    if is_open or not np.isfinite(q).all():
        return None
    kind, ends = selection_dtype(dtype), np.array([~results["least"], results["most"]])
    elements = host[listed_at:].view(kind)[: 2 * k].reshape(2, k)
    nearest = unsigned_zero(from_keys(ends, dtype))
    numbers = int(results["n_below"]), int(results["n_above"])
    low, high = (
        _outermost(elements[i, : results["n_listed"][i]], numbers[i], k, nearest[i], answers[3 + i])
        for i in range(2)
    )
    mean, deviation = _moments(host[sums_at:listed_at].view(np.int64), n).mean_and_std()
    n_low, n_high = numbers
    most = rule.max_fliers
    fliers = np.concatenate([low[: min(n_low, most)], high[::-1][: min(n_high, most)]])
    return LaneBoxes(
        n,
        n_valid=np.array([n]),
        n_low=np.array([n_low]),
        n_high=np.array([n_high]),
        q=q[:, None],
        mean=mean,
        deviation=deviation,
        least=low[:1],
        most=high[-1:],
        low=nearest[:1],
        high=nearest[1:],
        fliers=fliers,
        starts=np.zeros(1, np.int64),
        counts=np.array([len(fliers)]),
        most_fliers=most,
    )


def _moments(sums: NDArray[np.int64], n: int) -> Moments | RoundedMoments:
    """Round the mean and the deviation, or return the moments if some elements are infinite."""
    if sums[-3:].any():
        return moments_of(sums[None].copy(), n)
    return RoundedMoments.of_digits(n, sums[:TOTAL_DIGITS], sums[TOTAL_DIGITS:-3])


def _outermost(listed: NDArray[Any], number: int, k: int, nearest: Any, last: Any) -> NDArray[Any]:
    """Return the outermost elements of a side, ascending: those beyond the fence, at most k.

    At least one is returned. `listed` are the elements beyond both the fence and `last`, the k-th.
    """
    if number == 0:
        return np.array([nearest], listed.dtype)
    tied = np.repeat(last, k - len(listed) if number >= k else 0).astype(listed.dtype)
    return unsigned_zero(np.sort(np.concatenate([listed, tied])))
