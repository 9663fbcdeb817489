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
from dask_gpuselect.kernels.cpu.window_networks import Network, found_of, per_byte
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.windows import Frame, Shape, WindowOrder, ranks_by_count, strides_of

RARE = 256  # one of as many windows may have fewer elements than its network assumes
SAMPLE = 4096  # elements that tell how many are missing
FEWEST = 9  # elements of windows whose networks are short for any number of missing ones


def answers(
    values: NDArray[Any],
    keeps: NDArray[np.bool_] | None,
    frame: Frame,
    order: WindowOrder,
    *,
    may_lack: bool,
) -> NDArray[Any] | None:
    """Answer windows that may lack some elements, all at once, ``(n_answers, n_windows)``.

    Return None if another kernel must answer: if many windows have fewer elements than is assumed.

    Parameters
    ----------
    values : ndarray
        Floats, which are answers.
    keeps : ndarray, optional
        Their mask.
    frame, order : Frame, WindowOrder
        The windows, and the question.
    may_lack : bool
        False if all elements are valid.
    """
    n, needed = frame.n, max(order.least, 1)
    is_known = order.skips_missing or keeps is None or needed == n
    if not is_known or frame.footprint is not None or needed > n:
        return None
    assumed = n
    if order.skips_missing and may_lack:
        some = values.reshape(-1)[:: values.size // SAMPLE | 1]
        is_valid = some == some  # noqa: PLR0124
        if keeps is not None:
            is_valid &= keeps.reshape(-1)[:: values.size // SAMPLE | 1]
        share = float(is_valid.mean())
        fewest = n * share - 3 * math.sqrt(n * share * (1 - share))
        # A network of few ranks is short.
        assumed = needed if n <= FEWEST else max(needed, min(n * 3 // 4, math.floor(fewest)))
    n_valid = None if assumed == n else np.full(1, assumed)
    made = Network.fitting(values.shape, values.itemsize, frame, order, n_valid)
    if made is None:
        return None
    out = np.empty((order.n_answers, math.prod(frame.shape(values.shape))), values.dtype)
    lower, upper, weights = ranks_by_count(order, n)
    of = found_of(made, n)
    ranks = lower, upper, of[lower], of[upper], weights, len(made.ranks)
    marks = np.empty(0, np.uint8) if keeps is None else keeps.reshape(-1).view(np.uint8)
    rules = needed, assumed, order.mixes, order.skips_missing
    layout = *layout_of(values.shape, frame), frame.size[-1] - 1
    code = code_of(made, made.ranks, values.dtype)[1:4]
    is_answered = _answer_floats(values.reshape(-1), marks, layout, code, ranks, rules, out)
    return out if is_answered else None


def layout_of(padded: Shape, frame: Frame) -> tuple[IntArray, IntArray, int]:
    """Return where rows of windows begin, where their other rows lie from there, and a length.

    The length is the number of windows in a row.
    """
    *strides, _ = strides_of(padded).tolist()
    *others, length = frame.shape(padded)
    begins = rows = np.zeros((), np.int64)
    for stride, n, size, step in zip(strides, others, frame.size, frame.step, strict=False):
        begins = np.add.outer(begins, np.arange(n) * (stride * step))
        rows = np.add.outer(rows, np.arange(size) * stride)
    return begins.reshape(-1), rows.reshape(-1), length


@kernel_of("f8 f4")
def _answer_floats(
    values: t.Values,
    keeps: t.Marks,
    layout: tuple[t.Places, t.Places, int, int],
    code: tuple[int, int, int],
    ranks: tuple[t.IntRows, t.IntRows, t.IntRows, t.IntRows, t.RealRows, int],
    rules: tuple[int, int, int, bool],
    out: t.Table,
) -> Any:
    """Run a network over windows in runs, and answer them by the elements that they have.

    Missing elements are infinite there. `rules` says how many elements a window needs, how many are
    assumed if it has as many, how two of them make an answer, and whether missing ones are left
    out. A few windows with fewer than are assumed, such as those at the ends, are sorted. Return
    False, unfinished, if there are more.
    """
    begins, places, length, reach = layout
    lower, upper, of_lower, of_upper, weights, n_found = ranks
    needed, assumed, mixes, skips = rules
    kind = values.dtype.type
    infinity = kind(np.inf)
    room = per_byte(values, ROW)
    width = room + per_byte(values, code[2])
    n_rows = places.size
    rows, found = np.empty((n_rows, width), values.dtype), np.empty((n_found, room), values.dtype)
    row_places = np.int64(rows.ctypes.data) + np.arange(n_rows) * (width * values.itemsize)
    scratch = np.empty(code[1], np.uint8)
    lacks, counts = np.empty(width, np.int32), np.empty(room, np.int32)
    chosen = np.empty((2, room), values.dtype)
    size = n_rows * (reach + 1)
    n_left = out.shape[1] // RARE + 4 * size  # windows that may be sorted
    window = np.empty(size, values.dtype)
    for row in range(begins.size):
        for start in range(0, length, room):
            stop = min(room, length - start)
            n = stop + reach
            lacks[:n] = 0
            for i in range(n_rows):
                first = begins[row] + places[i] + start
                source, own = values[first : first + n], rows[i]
                for j in range(n):
                    is_nan = source[j] != source[j]
                    own[j] = infinity if is_nan else source[j]
                    lacks[j] += is_nan
                if keeps.size > 0:
                    marks = keeps[first : first + n]
                    for j in range(n):
                        is_left_out = marks[j] == 0
                        lacks[j] += is_left_out and source[j] == source[j]
                        own[j] = infinity if is_left_out else own[j]
            fewest, most = _count(lacks[:n], size, counts[:stop])
            has_few = skips and fewest < assumed
            for j in range(stop if has_few else 0):
                n_left -= needed <= counts[j] < assumed
            if n_left < 0:
                return False
            run_code(code[0], row_places, stop, scratch, found)
            to = row * length + start
            fewest, most = max(fewest, assumed), max(most, assumed)
            for question in range(lower.shape[0]):
                is_one = fewest == most and not has_few
                is_one &= of_lower[question, most] == of_upper[question, most]
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
                    for j in range(stop if has_few else 0):
                        if needed <= counts[j] < assumed:
                            first = begins[row] + start + j
                            _sort_window(values, keeps, first, places, reach, window)
                            rank = (upper if side else lower)[question, counts[j]]
                            own[j] = window[rank] + kind(0)  # no negative zero
                a, b = chosen[0], chosen[1]
                if how == 1:
                    for j in range(stop):
                        a[j] = mean_of(a[j], b[j])
                elif how == 2:
                    for j in range(stop):
                        if a[j] != b[j]:
                            weight = weights[question, counts[j]]
                            a[j] = kind(between(np.float64(a[j]), np.float64(b[j]), weight))
                own_answers = out[question, to : to + stop]
                enough = needed if skips else size
                for j in range(stop):
                    own_answers[j] = a[j] if counts[j] >= enough else kind(np.nan)
    return True


@called_by_kernels
def _sort_window(values: Any, keeps: Any, first: Any, places: Any, reach: Any, window: Any) -> None:
    """Sort the valid elements of one window by insertion."""
    n = 0
    for i in range(places.size):
        begin = first + places[i]
        for place in range(begin, begin + reach + 1):
            value = values[place]
            if value != value or (keeps.size > 0 and keeps[place] == 0):
                continue
            j = n
            while j > 0 and window[j - 1] > value:
                window[j] = window[j - 1]
                j -= 1
            window[j] = value
            n += 1


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
def between(a: Any, b: Any, weight: Any) -> Any:
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
