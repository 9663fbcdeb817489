"""Windows of few floats, some of which may be missing: networks of comparisons, and what follows.

A run of windows is read, compared and answered at once, so that nothing but the answers is written.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.compiling import called_by_kernels, kernel_of
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.kernels.cpu.scalars import mean_of
from dask_gpuselect.kernels.cpu.window_code import ROW, code_of, run_code
from dask_gpuselect.kernels.cpu.window_networks import Network, found_of, per_byte, places_of
from dask_gpuselect.kernels.reference.windows import lanes_of
from dask_gpuselect.maths.windows import Frame, WindowOrder, ranks_by_count, strides_of, unpadded

RARE = 32  # one of as many windows may have fewer elements than its network assumes
SAMPLE = 4096  # elements that tell how many are missing
FEWEST = 9  # elements of windows whose networks are short for any number of missing ones


def answers(
    values: NDArray[Any], frame: Frame, order: WindowOrder, needed: int, *, may_lack: bool
) -> NDArray[Any] | None:
    """Answer windows that may lack some elements, all at once, ``(n_answers, n_windows)``.

    Return None if another kernel must answer.

    Parameters
    ----------
    values : ndarray
        Floats; those that are missing or left out are NaN.
    frame, order : Frame, WindowOrder
        The windows, and the question.
    needed : int
        The number of elements without which a window is answered by NaN.
    may_lack : bool
        False if no element is NaN.
    """
    n = assumed = frame.n
    if frame.footprint is not None or needed > n:
        return None
    if may_lack and needed < n:
        sample = values.reshape(-1)[:: values.size // SAMPLE | 1]
        share = float((sample == sample).mean())  # noqa: PLR0124
        fewest = n * share - 3 * math.sqrt(n * share * (1 - share))
        # A network of few ranks is short.
        assumed = needed if n <= FEWEST else max(needed, min(n * 3 // 4, math.floor(fewest)))
    out = np.empty((order.n_answers, math.prod(frame.shape(values.shape))), values.dtype)
    lower, upper, weights = ranks_by_count(order, n)
    strides = tuple(strides_of(values.shape).tolist())
    rows, *_ = places_of(unpadded(values.shape)[:-1], strides, frame.size, frame.step, 0)
    flat, length = values.reshape(-1), frame.shape(values.shape)[-1]
    layout = rows, length, frame.size[-1] - 1
    rare = np.empty(out.shape[1] // RARE + 4 * n, np.int64)
    n_rare = -1
    while n_rare < 0:
        made = Network.fitting(values.shape, values.itemsize, frame, order, assumed)
        if made is None:
            return None
        of, code = found_of(made, n), code_of(made, made.ranks, values.dtype)[1:4]
        ranks = of[lower], of[upper], weights, len(made.ranks)
        rules = needed, assumed, order.mixes
        n_rare = _answer_floats(flat, layout, code, ranks, rules, rare, out)
        assumed = needed
    if n_rare:
        row, column = np.divmod(rare[:n_rare], length)
        firsts = rows[row] + column[:, None]
        some = flat[firsts[..., None] + np.arange(frame.size[-1])].reshape(n_rare, -1)
        some.sort(axis=-1)
        counts = np.count_nonzero(some == some, axis=-1)  # noqa: PLR0124
        out[:, rare[:n_rare]] = order.lane_values(lanes_of(some, counts, 0 * counts, order))
    return out


@kernel_of("f8 f4")
def _answer_floats(
    values: t.Values,
    layout: tuple[t.IntRows, int, int],
    code: tuple[int, int, int],
    ranks: tuple[t.IntRows, t.IntRows, t.RealRows, int],
    rules: tuple[int, int, int],
    rare: t.Ints,
    out: t.Table,
) -> Any:
    """Run a network over windows in runs, and answer them by the elements that they have.

    Missing elements are infinite there. `rules` says how many elements a window needs, how many are
    assumed if it has as many, and how two of them make an answer. Return how many windows have
    fewer than are assumed, such as those at the ends, with their numbers in `rare`; -1, unfinished,
    if there are more than that holds.
    """
    places, length, reach = layout
    of_lower, of_upper, weights, n_found = ranks
    needed, assumed, mixes = rules
    kind = values.dtype.type
    infinity = kind(np.inf)
    room = per_byte(values, ROW)
    width = room + per_byte(values, code[2])
    n_rows = places.shape[1]
    rows, found = np.empty((n_rows, width), values.dtype), np.empty((n_found, room), values.dtype)
    row_places = np.int64(rows.ctypes.data) + np.arange(n_rows) * (width * values.itemsize)
    scratch = np.empty(code[1], np.uint8)
    lacks, counts = np.empty(width, np.int32), np.empty(room, np.int32)
    chosen = np.empty((2, room), values.dtype)
    n_rare = 0
    for row in range(places.shape[0]):
        for start in range(0, length, room):
            stop = min(room, length - start)
            n, to = stop + reach, row * length + start
            lacks[:n] = 0
            for i in range(n_rows):
                first = places[row, i] + start
                source, own = values[first : first + n], rows[i]
                for j in range(n):
                    is_nan = source[j] != source[j]
                    own[j] = infinity if is_nan else source[j]
                    lacks[j] += is_nan
            fewest, most = _count(lacks[:n], n_rows * (reach + 1), counts[:stop])
            for j in range(stop if fewest < assumed else 0):
                if needed <= counts[j] < assumed:
                    if n_rare == rare.size:
                        return -1
                    rare[n_rare] = to + j
                    n_rare += 1
            run_code(code[0], row_places, stop, scratch, found)
            fewest, most = max(fewest, assumed), max(most, assumed)
            for question in range(of_lower.shape[0]):
                is_one = fewest == most and of_lower[question, most] == of_upper[question, most]
                how = 0 if is_one else mixes
                for side in range(1 + (how > 0)):
                    of, own = (of_upper if side else of_lower)[question], chosen[side]
                    own[:stop] = found[of[fewest], :stop]
                    if most - fewest < FEWEST:  # vectors of all counts take less than gathering
                        for count in range(fewest + 1, most + 1):
                            if of[count] == of[count - 1]:
                                continue
                            some, at_least = found[of[count]], np.int32(count)
                            for j in range(stop):
                                own[j] = some[j] if counts[j] >= at_least else own[j]
                    else:
                        for j in range(stop):
                            own[j] = found[of[max(counts[j], assumed)], j]
                a, own_answers = chosen[0, :stop], out[question, to : to + stop]
                mix(a, chosen[1, :stop], how, weights[question], counts)
                for j in range(stop):
                    own_answers[j] = a[j] if counts[j] >= needed else kind(np.nan)
    return n_rare


@called_by_kernels
def _count(lacks: Any, size: Any, counts: Any) -> Any:
    """Count the elements of windows by those that each place lacks; return the fewest and most."""
    total, kind = 0, counts.dtype.type
    for j in range(lacks.size):
        total += lacks[j]
    if total == 0:
        counts[:] = size
        return size, size
    reach = lacks.size - counts.size
    behind, total = lacks[reach:], kind(0)
    for j in range(reach):
        total += lacks[j]
    for j in range(counts.size):
        total += behind[j]
        counts[j] = kind(size) - total
        total -= lacks[j]
    fewest, most = counts[0], counts[0]
    for j in range(counts.size):
        fewest, most = min(fewest, counts[j]), max(most, counts[j])
    return np.int64(fewest), np.int64(most)


@called_by_kernels
def mix(a: Any, b: Any, how: Any, weights: Any, counts: Any) -> None:
    """Turn pairs of floats into answers between them, in place of the first ones.

    `how` is 0 for the first alone, 1 for the mean, 2 for a mixture by weights, with the bits of
    `interpolation.interpolate`, whose passes take about 20 ns more for each window. `counts` are
    those of elements, or one for all windows.
    """
    kind = a.dtype.type
    if how == 1:
        for i in range(a.size):
            a[i] = kind(mean_of(a[i], b[i]))
    elif how == 2:
        for i in range(a.size):
            if a[i] != b[i]:
                weight = weights[counts[i if counts.size > 1 else 0]]
                a[i] = kind(_between(np.float64(a[i]), np.float64(b[i]), weight))


@called_by_kernels
def _between(a: Any, b: Any, weight: Any) -> Any:
    """Mix two floats, at half scale where their difference overflows."""
    if weight == 0:
        return a
    if weight == 1:
        return b
    width = b - a
    if np.isfinite(width):
        return a + width * weight if weight < 0.5 else b - width * (1 - weight)
    if not (np.isfinite(a) and np.isfinite(b)):
        return a + b
    width = b / 2 - a / 2
    half = a / 2 + width * weight if weight < 0.5 else b / 2 - width * (1 - weight)
    return 2 * half
