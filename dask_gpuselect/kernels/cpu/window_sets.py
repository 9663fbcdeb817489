"""Windows along several axes, as unions of the sets of their columns.

`window_blocks` sorts a block, so that each element has a rank. Here each column of a window has a
set of ranks, a bit for each, that follows the window down the rows: one element leaves it and one
enters. The window's set is the union of those of its columns. Only the word with the wanted rank is
united, a vector of columns at a time. The elements before that word are counted as columns enter
and leave the window, by comparing a vector of ranks at a time. So hardly any time depends on the
size of the window (compare Perreault and Hébert 2007).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dask_gpuselect.kernels.compiling import called_by_kernels, instructions
from dask_gpuselect.kernels.cpu.bits import first_bit, n_bits, nan_key, nth_bit
from dask_gpuselect.maths.windows import Frame

RANKS, WORDS = 16, 8  # ranks and words of a vector
LEAST = 12  # elements that enter a window by one move; with fewer, marks are moved faster
LEAST_NARROW, NARROW = 8, 64  # the same for windows along two axes of at most as many columns


def takes(frame: Frame) -> bool:
    """Return whether windows are found faster by sets of columns than by moving marks."""
    is_plain = frame.footprint is None and set(frame.step) == {1}
    is_narrow = len(frame.size) == 2 and frame.size[-1] <= NARROW
    least = LEAST_NARROW if is_narrow else LEAST
    return is_plain and len(frame.size) > 1 and frame.n // frame.size[-1] >= least


@called_by_kernels
def walk_columns(
    block: Any, moves: Any, ranks_of: Any, out: Any, n_windows: Any, outs: Any, _deviates: Any
) -> None:
    """Move the window through the rows of a block, and find its elements of wanted ranks.

    `below` is the number of elements of the window in words before the current one, for each
    question. Behind the ranks of a block are `RANKS` more, which do not count.
    """
    keys, _, ranks, _, n, is_whole = block
    own, of_out, (_, size, _, _, of_block, _, _, _, inner) = moves
    lower, upper, has_upper = ranks_of
    out_lower, out_upper = outs
    d = own.size
    height, width, stride = size[d - 2], size[d - 1], of_block[d - 1]
    reach = own[d - 1] + width - 1
    n_words = (n + 63) // 64
    sets = np.empty((n_words + 1, reach + WORDS), np.uint64)
    at_ranks, at_sets = np.int64(ranks.ctypes.data), np.int64(sets.ctypes.data)
    pitch, every = 8 * (reach + WORDS), 64 * n_words
    words = np.full(lower.shape[0], n_words // 2, np.int64)
    below = np.empty(lower.shape[0], np.int64)
    n_planes, nothing = 1, nan_key(keys)
    for a in range(d - 2):
        n_planes *= own[a]
    for plane in range(n_planes):
        rest, first, to_plane = plane, 0, out
        for a in range(d - 3, -1, -1):
            first += rest % own[a] * of_block[a]
            to_plane += rest % own[a] * of_out[a]
            rest //= own[a]
        sets[:] = 0
        for row in range(1 - height, own[d - 2]):
            for i in range(inner.size):
                begin = first + inner[i] + row + height - 1
                _toggle(ranks, begin, stride, reach, sets)
                if row > 0:
                    _toggle(ranks, begin - height, stride, reach, sets)
            if row < 0:
                continue
            n_in_window = inner.size * height * width if is_whole else 0
            below[:] = 0
            for x in range(reach):
                column = at_ranks + 4 * (first + row + x * stride)
                before = column - 4 * width * stride
                if not is_whole:
                    n_in_window += _in_column(column, inner, height, every)
                    if x >= width:
                        n_in_window -= _in_column(before, inner, height, every)
                for question in range(lower.shape[0]):
                    limit = 64 * words[question]
                    below[question] += _in_column(column, inner, height, limit)
                    if x >= width:
                        below[question] -= _in_column(before, inner, height, limit)
                place = x - width + 1
                if place < 0:
                    continue
                at = at_sets + 8 * place
                to = to_plane + row * of_out[d - 2] + place
                for question in range(lower.shape[0]):
                    wanted = lower[question, n_in_window]
                    if wanted < 0:
                        out_lower[to] = out_upper[to] = nothing
                        to += n_windows
                        continue
                    word, less = words[question], below[question]
                    while less > wanted:
                        word -= 1
                        less -= n_bits(_united(at + word * pitch, width))
                    bits = _united(at + word * pitch, width)
                    while less + n_bits(bits) <= wanted:
                        less += n_bits(bits)
                        word += 1
                        bits = _united(at + word * pitch, width)
                    words[question], below[question] = word, less
                    place_in_word = nth_bit(bits, wanted - less)
                    out_lower[to] = keys[64 * word + place_in_word]
                    if has_upper:
                        bits &= ~np.uint64(0) << np.uint64(place_in_word)
                        if upper[question, n_in_window] > wanted:
                            bits &= bits - np.uint64(1)
                            while bits == 0:
                                word += 1
                                bits = _united(at + word * pitch, width)
                        out_upper[to] = keys[64 * word + first_bit(bits)]
                    to += n_windows


@called_by_kernels
def _toggle(ranks: Any, begin: Any, stride: Any, n: Any, sets: Any) -> None:
    """Put the elements of a row into the sets of their columns, or take them out."""
    last = sets.shape[0] - 1  # which has the elements that take no part
    for x in range(n):
        rank = ranks[begin + x * stride]
        sets[min(rank >> 6, last), x] ^= np.uint64(1) << np.uint64(rank & 63)


@called_by_kernels
def _in_column(at: Any, inner: Any, height: Any, limit: Any) -> Any:
    """Count the elements of a column of a window whose ranks are less than a limit."""
    count = 0
    for i in range(inner.size):
        count += _count(at + 4 * inner[i], height, limit)
    return count


# --- Vectors --------------------------------------------------------------------------------------
# Numba turns neither loop into vectors: it checks for negative indices, and few elements are left
# to single steps.


def _each_vector(
    builder: Any, address: Any, n: Any, kind: Any, use: Callable[[Any, Any], None]
) -> None:
    """Write code that uses each vector of n items from an address on.

    `use` gets a vector, and marks of those of its items that are among the n; None if all are.
    """
    from llvmlite import ir
    from numba.core import cgutils

    long, length, n_bytes = ir.IntType(64), kind.count, kind.element.width // 8

    def load(number: Any) -> Any:
        at = builder.add(address, builder.mul(number, long(length * n_bytes)))
        return builder.load(builder.inttoptr(at, kind.as_pointer()), align=n_bytes)

    n_whole = builder.udiv(n, long(length))
    with cgutils.for_range(builder, n_whole) as loop:
        use(load(loop.index), None)
    left = _filled(builder, builder.urem(n, long(length)), length)
    numbers = ir.Constant(ir.VectorType(long, length), list(range(length)))
    use(load(n_whole), builder.icmp_unsigned("<", numbers, left))


def _filled(builder: Any, value: Any, n: int) -> Any:
    """Make a vector of n items that are all one value."""
    from llvmlite import ir

    nothing = ir.Constant(ir.VectorType(value.type, n), ir.Undefined)
    first = builder.insert_element(nothing, value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), n), [0] * n)
    return builder.shuffle_vector(first, nothing, zeros)


def _write_count(builder: Any, address: Any, n: Any, limit: Any) -> Any:
    """Write the code of `_count`."""
    from llvmlite import ir
    from numba.core import cgutils

    long, item = ir.IntType(64), ir.IntType(32)
    limits = _filled(builder, builder.trunc(limit, item), RANKS)
    count = cgutils.alloca_once_value(builder, long(0))

    def use(ranks: Any, marks: Any) -> None:
        is_less = builder.icmp_unsigned("<", ranks, limits)
        if marks is not None:
            is_less = builder.and_(is_less, marks)
        bits = builder.zext(builder.bitcast(is_less, ir.IntType(RANKS)), long)
        builder.store(builder.add(builder.load(count), builder.ctpop(bits)), count)

    _each_vector(builder, address, n, ir.VectorType(item, RANKS), use)
    return builder.load(count)


_count = instructions("count_ranks", "int64", ["int64"] * 3, _write_count)
"""Count the ranks that are less than a limit, of n from an address on."""


def _write_union(builder: Any, address: Any, n: Any) -> Any:
    """Write the code of `_united`."""
    from llvmlite import ir
    from numba.core import cgutils

    kind = ir.VectorType(ir.IntType(64), WORDS)
    nothing = ir.Constant(kind, [0] * WORDS)
    union = cgutils.alloca_once_value(builder, nothing)

    def use(words: Any, marks: Any) -> None:
        if marks is not None:
            words = builder.select(marks, words, nothing)
        builder.store(builder.or_(builder.load(union), words), union)

    _each_vector(builder, address, n, kind, use)
    of_join = ir.FunctionType(kind.element, [kind])
    name = f"llvm.vector.reduce.or.v{WORDS}i64"
    join = cgutils.get_or_insert_function(builder.module, of_join, name)
    return builder.call(join, [builder.load(union)])


_united = instructions("unite_words", "uint64", ["int64"] * 2, _write_union)
"""Unite n words from an address on."""
