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
from dask_gpuselect.kernels.cpu.bits import as_floats
from dask_gpuselect.kernels.cpu.scalars import mean_of
from dask_gpuselect.kernels.cpu.window_code import run_code
from dask_gpuselect.kernels.cpu.window_networks import (
    ROUND,
    ROW,
    Network,
    aligned,
    as_code,
    as_ordered,
    flip_of,
    key_of,
    per_byte,
    place_of,
    places_of,
    starts_of,
    word_of,
)
from dask_gpuselect.maths.windows import Frame, WindowOrder, ranks_by_count

RARE = 256  # one of as many windows may have fewer elements than its network assumes
FEWEST = 9  # elements of windows whose networks are short for any number of missing ones


def answers(
    words: NDArray[Any],
    keeps: NDArray[np.bool_] | None,
    coding: tuple[Any, Any],
    frame: Frame,
    order: WindowOrder,
    *,
    may_lack: bool,
) -> NDArray[Any] | None:
    """Answer windows that may lack some elements, all at once, ``(n_answers, n_windows)``.

    Return None if another kernel must answer: if many windows have fewer elements than is assumed.

    Parameters
    ----------
    words : ndarray
        Words of floats, which are answers.
    keeps : ndarray, optional
        Their mask.
    coding : tuple
        The bit of the sign, and infinity.
    frame, order : Frame, WindowOrder
        The windows, and the question.
    may_lack : bool
        False if all elements are valid.
    """
    n, needed = frame.n, max(order.least, 1)
    is_known = order.skips_missing or keeps is None or needed == n
    if not is_known or frame.footprint is not None or needed > n:
        return None
    # A network of few ranks is short.
    assumed = needed if n <= FEWEST else max(needed, n * 3 // 4)
    assumed = assumed if order.skips_missing and may_lack else n
    made = Network.fitting(words, frame, order, None if assumed == n else np.full(1, assumed))
    if made is None:
        return None
    shape = frame.shape(words.shape)
    out = np.empty((order.n_answers, math.prod(shape)), words.dtype)
    about = (np.array(shape), *places_of(words.shape, frame), frame.size[-1] - 1)
    lower, upper, weights = ranks_by_count(order, n)
    marks = np.empty(0, np.uint8) if keeps is None else keeps.reshape(-1).view(np.uint8)
    rules = needed, assumed, order.mixes, order.skips_missing
    given = words.reshape(-1), marks, *coding
    network = as_code(made, words, frame)
    is_answered = _answer_floats(*given, about, network, (lower, upper, weights), rules, out)
    return out if is_answered else None


@kernel_of("u8 u4")
def _answer_floats(
    words: t.Values,
    keeps: t.Marks,
    sign: t.Value,
    infinity: t.Value,
    layout: tuple[t.Places, t.Places, t.Places, int],
    network: tuple[int, int, int, t.IntRows],
    ranks: tuple[t.IntRows, t.IntRows, t.RealRows],
    rules: tuple[int, int, int, bool],
    out: t.Table,
) -> Any:
    """Run a network over windows in runs, and answer them by the elements that they have.

    `rules` says how many elements a window needs, how many are assumed if it has as many, how two
    of them make an answer, and whether missing ones are left out. A few windows with fewer than are
    assumed, such as those at the ends, are sorted. Return False, unfinished, if there are more.
    """
    shape, strides, row_places, reach = layout
    address, width, n_rows, places = network
    lower, upper, weights = ranks
    needed, assumed, mixes, skips = rules
    d = shape.size
    compared = as_ordered(out)
    flip = flip_of(compared)
    room, turn = per_byte(words, ROW), per_byte(words, ROUND)
    rows = aligned(n_rows * width, compared)
    as_key, last = compared.dtype.type, ~words.dtype.type(0)
    from_lower, from_upper = starts_of(lower, places, width), starts_of(upper, places, width)
    keys, some = np.empty((2, width), compared.dtype), np.empty((2, width), words.dtype)
    lacks, counts = np.empty(width, compared.dtype), np.empty(width, compared.dtype)
    values = as_floats(some)
    answers = as_floats(out)
    kind = values.dtype.type
    size = row_places.size * (reach + 1)
    length = shape[d - 1]
    n_left = out.shape[1] // RARE + 4 * size  # windows that may be sorted
    window = np.empty(size, words.dtype)
    for row in range(out.shape[1] // length):
        first = place_of(row, shape, strides)
        for start in range(0, length, room):
            stop = min(room, length - start)
            n = (stop + reach + turn - 1) // turn * turn
            lacks[: stop + reach] = 0
            for i in range(row_places.size):
                begin = first + row_places[i] + start
                source, own = words[begin : begin + stop + reach], rows[i * width :]
                for j in range(source.size):
                    is_nan = (source[j] & ~sign) > infinity
                    key = last if is_nan else key_of(source[j], 1, sign)
                    own[j] = as_key(key) ^ flip
                    lacks[j] += is_nan
                if keeps.size > 0:
                    marks = keeps[begin : begin + stop + reach]
                    for j in range(source.size):
                        is_left_out = marks[j] == 0
                        lacks[j] += is_left_out and (source[j] & ~sign) <= infinity
                        own[j] = as_key(last) ^ flip if is_left_out else own[j]
            fewest, most = _count(lacks[: stop + reach], size, counts[:stop])
            has_few = skips and fewest < assumed
            for j in range(stop if has_few else 0):
                n_left -= needed <= counts[j] < assumed
            if n_left < 0:
                return False
            run_code(address, rows.ctypes.data, n * words.itemsize)
            to = row * length + start
            fewest, most = max(fewest, assumed), max(most, assumed)
            for question in range(lower.shape[0]):
                is_one = fewest == most and not has_few
                is_one &= from_lower[question, most] == from_upper[question, most]
                how = 0 if is_one else mixes
                for side in range(1 + (how > 0)):
                    begins, own = (from_upper if side else from_lower)[question], keys[side]
                    own[:stop] = rows[begins[fewest] : begins[fewest] + stop]
                    if most - fewest < FEWEST:  # vectors of all counts take less than gathering
                        for count in range(fewest + 1, most + 1):
                            if begins[count] == begins[count - 1]:
                                continue
                            some_keys, at_least = rows[begins[count] :], as_key(count)
                            for j in range(stop):
                                own[j] = some_keys[j] if counts[j] >= at_least else own[j]
                    else:
                        for j in range(stop):
                            own[j] = rows[begins[max(counts[j], assumed)] + j]
                    for j in range(stop if has_few else 0):
                        if needed <= counts[j] < assumed:
                            layout_of = first + start + j, row_places, reach
                            _sort_window(words, keeps, (sign, infinity), layout_of, window)
                            rank = (upper if side else lower)[question, counts[j]]
                            own[j] = as_key(window[rank]) ^ flip
                    for j in range(stop):
                        some[side, j] = word_of(own[j] ^ flip, sign)
                a, b = values[0], values[1]
                if how == 1:
                    for j in range(stop):
                        a[j] = mean_of(a[j], b[j])
                elif how == 2:
                    for j in range(stop):
                        if a[j] != b[j]:
                            weight = weights[question, counts[j]]
                            a[j] = kind(between(np.float64(a[j]), np.float64(b[j]), weight))
                own_answers = answers[question, to : to + stop]
                enough = needed if skips else size
                for j in range(stop):
                    own_answers[j] = a[j] if counts[j] >= enough else kind(np.nan)
    return True


@called_by_kernels
def _sort_window(words: Any, keeps: Any, coding: Any, layout: Any, window: Any) -> None:
    """Sort the keys of the valid elements of one window by insertion."""
    sign, infinity = coding
    first, row_places, reach = layout
    n = 0
    for i in range(row_places.size):
        begin = first + row_places[i]
        for place in range(begin, begin + reach + 1):
            is_left_out = keeps.size > 0 and keeps[place] == 0
            if is_left_out or (words[place] & ~sign) > infinity:
                continue
            key = key_of(words[place], 1, sign)
            j = n
            while j > 0 and window[j - 1] > key:
                window[j] = window[j - 1]
                j -= 1
            window[j] = key
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
