"""Source text of the CUDA kernels for each dtype, and the shared memory that they take.

Nothing here needs CuPy or a device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.companions import MOST_STACKED
from dask_gpuselect.maths import exact_sums
from dask_gpuselect.maths.keys import selection_dtype

# Constants that host and kernels share; the sources have them by the same names.
USUAL_THREADS = 256  # of kernels for which other numbers were not tried
TALLY_THREADS = 256
MOMENTS_THREADS = 256  # so that three blocks share a multiprocessor; of 512, only one would fit
PIECE = 23  # bits of a piece, into which elements are cut to be summed
TOP_OF_HALF = 16  # exponent of the power of two at which float16 are cut
FARTHEST_TOP = 400  # largest exponent at which wider floats are cut; its negative is the smallest
# Limits for float32: the number added to an element to cut it, and its last bit, are float32.
LEAST_TOP, MOST_TOP = -81, 126
TABLE_BITS = 12  # of the steps from the first of many ends to the last
PASSED = 4032  # bytes of a record that a kernel takes as an argument, of at most 4096
MEASURE_THREADS = 512
TABULATE_THREADS = 512
BITONIC_THREADS = 256
GROUPS_THREADS = 512
GROUPS_HELD = 1024  # counts that a block caches if not all fit in shared memory
GROUPS_EACH = 8  # elements of groups that a thread reads before the block gathers
FULL_WARP = 128  # elements of a group that keep all threads of a warp busy that sums them
WEIGH_THREADS = 512
ONCE_THREADS = 256
UNIT_SAMPLE = 256  # weights that the unit of sums is chosen from
ENDS_THREADS = 128
REACH_WORKING = 44  # registers of a thread of ``reach_lanes`` besides keys and weights
SORT_WORKING = 36  # registers of a thread of ``weighed_sorts.cu`` besides its elements
FETCHED_ROWS = 8  # rows of a thread that it fetches together for others
PIVOTS = 1024  # of a weighted lane that exceeds shared memory
REACH_SUMS = 5  # words of 8 bytes that the threads of a lane of ``reach_lanes`` find together
ENDS_BYTES = 288  # upper bound of the bytes of Ends of ``weighed_lanes.cu``
ADD_THREADS = 128  # threads, each of which has digits of three sums in shared memory
ADD_DIGITS = 8  # digits of a sum, next to those of the largest products
UNITS_BELOW = 29  # powers of two by which weights may be smaller or larger than most
WARP_STAGE = 64  # weighted candidates that a warp collects before it writes them
FEW_ENDS = 4  # up to which each thread adds up weights by itself
MOST_COPIES = 32  # copies of the sums of a segment among which a block chooses
MANY_BLOCKS = 50_000  # bytes of shared memory of a block up to which several run side by side
SCAN_THREADS = 1024  # threads of the one block that sums all
MERGE_EACH = 8  # elements that a thread merges
CHOOSE_THREADS = 1024
DEAL_THREADS = 512
DEAL_EACH = 8  # elements that a thread distributes at a time
DEAL_APART = 16  # distance of the counts of two classes, in counts: a cache line
SELECT_THREADS = 1024
NETWORK_THREADS = 128
TILE_LEVELS = 16  # levels of a tile of windows, at most
PAD_AXES = 8  # axes of a chunk that is padded in one launch
NEAR_ROOM = 2048  # capacity for the nearest rows of a query, which a block orders together
LONG_THREADS = 512  # threads for lanes too long for shared memory
MOST_LEFT, FEWEST_LEFT = 4096, 128  # largest and least room for elements of these lanes
# Bytes of the keys of lanes side by side from which on the lanes are read several times rather than
# sorted: medians of 8,000 float32 take 3.2 reads sorted and 4.1 this way, of 20,000 5.7 and 3.9.
LONG_SIDE_BY_SIDE = 48_000
DIGIT = 11  # bits
COUNTERS = 8192  # counters of bins in shared memory: several for each bin if there are few bins
MOST_RANKS = 6  # ranks that are selected together: their counts take 48 KiB, which every device has
MOST_SELECTED = 24  # the same if a block can have 192 KiB
MOST_ANSWERS = 6  # answers for a lane that are found together, digit by digit
# Answers from which on a lane is sorted. Of 365 float32, 9 took 0.75 ms selected and 0.61 sorted,
# and 99 took 3.0 and 0.8; of 3,650, 7 took 0.74 to 0.83 and 0.87 to 0.88.
MANY_ANSWERS = 12
SUMS = ("TOTAL", "SQUARE", "CUBE")  # sums of elements, of products of two, and of products of three
AGREED: dict[str, int] = {
    name: n for name, n in list(globals().items()) if name.isupper() and isinstance(n, int)
}
OF_SUMS = ("OFFSET", *(f"{sums}_{of}" for sums in SUMS for of in ("POINT", "DIGITS")))
AGREED |= {name: getattr(exact_sums, name) for name in OF_SUMS} | {"MOST_STACKED": MOST_STACKED}
"""All integer constants above, those of the exact sums, and `MOST_STACKED`."""

NEAR_ROWS, NEAR_QUERIES = 64, 128
"""Rows and queries that a block of ``distances.cu`` takes."""

MOST_ENDS = 1024  # ends of brackets that are counted in one read
MOST_MARKS = 511  # marks between which elements are distributed
SPANS = (1, 3, 5)  # spans of a kernel
FEW_SPANS = SPANS[-1]  # up to which comparing with each is faster than finding cells by a table

KINDS = {"b": 0, "u": 0, "i": 1, "f": 2}  # as in ``elements.cuh``


class Sizes(NamedTuple):
    """Sizes with which the kernels of load 1 are compiled, for the shared memory of a block."""

    buckets: int
    sampled: int
    threads: int  # as many as the registers of a multiprocessor allow, in one block or several


SIZES = (
    Sizes(8192, 1 << 14, 1024),
    Sizes(4096, 1 << 14, 512),
    Sizes(2048, 1 << 13, 512),
    Sizes(1024, 1 << 12, 512),
)
STATIC = 2048  # bytes of shared memory that kernels and the system use besides
# Bytes of shared memory for each bucket that `sizes_for` leaves unused. More buckets and threads
# instead, on an A100 or of elements of 8 bytes, were not measured.
UNUSED = 8


def sizes_for(dtype: np.dtype[Any], shared: int) -> Sizes | None:
    """Return the largest sizes that fit; None if none do: before compute capability 7.0."""
    for sizes in SIZES:
        of_buckets = classify_memory(dtype, sizes) + sizes.buckets * UNUSED
        if max(choose_memory(dtype, sizes), of_buckets) + STATIC <= shared:
            return sizes
    return None


PACKAGE = "dask_gpuselect.kernels.cuda"
INCLUDE = re.compile(r'^#include "(\w+\.cuh)"\n', re.MULTILINE)
KERNEL = re.compile(
    r'^extern "C" __global__ void __launch_bounds__\((\w+)[^()]*\)\s+(\w+)\(([^()]*)\) '
    r"\{\n.*?^\}\n",
    re.MULTILINE | re.DOTALL,
)
"""Matches the text of one kernel; captures its threads in a block, its name and its parameters."""


@cache
def with_included(file: str) -> dict[str, str]:
    """Return the text of a file, after those of the files that it includes."""
    text, texts = (files(PACKAGE) / file).read_text(), dict[str, str]()
    for each in INCLUDE.findall(text):
        texts |= with_included(each)
    return texts | {file: INCLUDE.sub("", text)}


@cache
def kernels() -> dict[str, tuple[str, str, tuple[str, ...]]]:
    """Return file, threads of a block and types of the parameters of all kernels, by their names.

    They are as the sources of the kernels have them.
    """
    names = sorted(each.name for each in files(PACKAGE).iterdir() if each.name.endswith(".cu"))
    return {
        name: (file, threads, tuple(re.findall(r"\s*(.*?)\s*\w+(?:,|$)", parameters)))
        for file in names
        for threads, name, parameters in KERNEL.findall(with_included(file)[file])
    }


TYPES = {"i64": "i8", "u64": "u8", "double": "f8", "int": "i4", "u32": "u4", "unsigned char": "u1"}
"""Dtypes of the types of fields."""
FIELD = re.compile(r"(\*?)\s*(\w+)(?:\[(\w+)\])?")


@cache
def fields_of(file: str, struct: str) -> list[tuple[str, str, str, str]]:
    """Return type, asterisk, name and size of each field of a struct without functions."""
    text = "".join(with_included(file).values())
    match = re.search(rf"^struct {struct} \{{[^\n]*\n(.*?)^\}};", text, re.MULTILINE | re.DOTALL)
    assert match is not None, struct
    body = re.sub(r"//.*", "", match[1])
    declared = re.findall(r"(?:const )?(unsigned char|\w+)\b([^;]+);", body)
    return [(kind, *each) for kind, names in declared for each in FIELD.findall(names)]


@cache
def record(file: str, struct: str, **sizes: int) -> np.dtype[Any]:
    """Return the dtype of a struct in a file or in those that it includes.

    `sizes` are those of its arrays that no constant here has.
    """
    fields: list[Any] = []
    for kind, asterisk, name, size in fields_of(file, struct):
        own = "u8" if asterisk else TYPES.get(kind) or record(file, kind)
        n = int(size) if size.isdigit() else (AGREED | sizes).get(size)
        fields.append((name, own, n) if n else (name, own))
    return np.dtype(fields, align=True)


Defined = tuple[tuple[str, Any], ...]
"""Additional definitions with which a source is compiled: numbers, or text of its language."""
SPANS_ARE = {"ends": 0, "cells": 1, "placed": 2}  # as in ``spans.cuh``
SPACES = {"none": 0, "value": 1, "key": 2, "log": 3}  # as in ``measures.cu``
KEEPS: Defined = (("KEEPS", 1),)
"""Definition for chunks with a mask."""


USUAL = {
    **dict.fromkeys(("KEEPS", "SPANS_ARE", "SPACE", "WHOLE", "IN_PARTS", "LISTED"), 0),
    **dict.fromkeys(("KEYED", "IN_SHARED", "NARROW", "IN_PAIRS", "MEANS", "WEIGHTED"), 0),
    **dict.fromkeys(("IN_UNITS", "ALONE", "ORDERED", "SUMMED", "ROWS"), 0),
    **{"SPANS": 1, "PIECES": 3, "WINDOW": 256, "ONLY_MOST": MOST_RANKS, "END_STEPS": 2},
}
"""Definitions with which a source is compiled if it is not compiled with others."""


def definitions(dtype: np.dtype[Any], sizes: Sizes, more: Defined = ()) -> dict[str, Any]:
    """Return the definitions with which a source is compiled for one dtype."""
    of_dtype = {"BITS": 8 * dtype.itemsize, "KIND": KINDS[dtype.kind]}
    of_sizes = zip(("BUCKETS", "SAMPLE", "CLASSIFY_THREADS"), sizes, strict=True)
    return USUAL | AGREED | of_dtype | dict(of_sizes) | dict(more)


def source(name: str, dtype: np.dtype[Any], sizes: Sizes, more: Defined = ()) -> str:
    """Return the CUDA C++ source of a kernel for one dtype.

    It contains this kernel only, because compiling others would take time: 3.1 s instead of 0.3 for
    the kernels of ``spans.cu``.
    """
    defined = definitions(dtype, sizes, more).items()
    file, *_ = kernels()[name]
    texts = with_included("elements.cuh") | with_included(file)
    text = "".join(texts.values())
    alone = KERNEL.sub(lambda match: match[0] if match[2] == name else "", text)
    return "".join([*(f"#define {name} {value}\n" for name, value in defined), alone])


def answered(question: Any) -> Defined:
    """Return the definition for the answers to a question: elements, or floats of some bits."""
    return (("ANSWER", 8 * question.dtype.itemsize if question.mixes else 0),)


def n_slots(dtype: np.dtype[Any]) -> int:
    """Return SLOTS of ``cells.cu``."""
    if dtype.itemsize == 1:
        return 256
    if dtype.kind == "f":
        return {2: 64, 4: 512, 8: 4096}[dtype.itemsize]
    bits = 8 * dtype.itemsize
    return 2 * bits if dtype.kind == "i" else bits + 1


def key_size(dtype: np.dtype[Any]) -> int:
    """Return the bytes of a Key of ``elements.cuh``."""
    return 8 if dtype.itemsize == 8 else 4


def choose_memory(dtype: np.dtype[Any], sizes: Sizes) -> int:
    """Return the shared bytes of a block of `choose`: the sample, and a number for each slot."""
    return sizes.sampled * key_size(dtype) + 4 * (n_slots(dtype) + 1)


def classify_memory(dtype: np.dtype[Any], sizes: Sizes) -> int:
    """Return the shared bytes of a block of `classify`.

    They hold windows, and for each bucket a pivot and three counts.
    """
    return 8 * n_slots(dtype) + sizes.buckets * (key_size(dtype) + 3 * 4)


def tabulate_memory(dtype: np.dtype[Any], shared: int) -> tuple[int, int]:
    """Return how many words a block of `tabulate_words` counts in one read, and its shared bytes.

    `shared` is the number of bytes that a block can have.
    """
    if dtype.itemsize == 1:
        return 256, 32 * 257 * 4
    window: int = 1 << 8 * dtype.itemsize
    while 4 * window + STATIC > shared:
        window //= 2
    return window, 4 * window


def tally_memory(dtype: np.dtype[Any], n_ends: int) -> int:
    """Return the shared bytes of a block of `tally`: staged elements, ends, and their counts."""
    value_size = selection_dtype(dtype).itemsize
    staged = 8 + 8 if dtype.itemsize == 8 else 16 + 16
    return staged * TALLY_THREADS * value_size + (n_ends + 1) * (value_size + 9)


@lru_cache(1 << 10)
def weighing(
    dtype: np.dtype[Any], weights: np.dtype[Any], n_ends: int, shared: int, *, is_rounded: bool
) -> tuple[int, int, Defined] | None:
    """Choose how `weigh_once` counts at so many ends; None if they need too much shared memory.

    `shared` is the number of bytes that a block can have. Returns the number of counts and sums
    that a block has of each segment, its bytes of shared memory, and what is defined.
    """
    is_own = n_ends <= FEW_ENDS and not is_rounded
    threads = ONCE_THREADS if is_own else WEIGH_THREADS
    n_words = 3 if is_rounded else 5 if weights == np.float64 else 4  # count and digits of a sum
    staged = 0 if is_rounded else threads // 32 * WARP_STAGE
    fixed = staged * (dtype.itemsize + 8) + n_ends * (dtype.itemsize + 1) + 8
    each = 4 * n_words * (2 * n_ends + 1)
    copies = threads if is_own else MOST_COPIES
    while copies > 1 and not is_own and fixed + copies * each > MANY_BLOCKS:
        copies //= 2
    n_bytes = -(-(fixed + copies * each) // 1024) * 1024  # rounded up, to prepare fewer variants
    if n_bytes + STATIC > shared:
        return None
    defined = ("ALONE", int(is_own)), ("IN_UNITS", int(is_rounded)), ("ONCE_THREADS", threads)
    return copies, n_bytes, defined


def most_rounded_ends(dtype: np.dtype[Any], shared: int) -> int:
    """Return the number of ends at which `weigh_once` can count rounded weights."""
    return int((shared - STATIC - 1024) // (dtype.itemsize + 1 + 4 * 3 * 2))


def add_memory() -> int:
    """Return the shared bytes of a block of `weigh_products`: digits of each thread and of all."""
    return 8 * len(SUMS) * ADD_DIGITS * (ADD_THREADS + 1)


def weighed_sums(item: int, n_groups: int, shared: int) -> tuple[int, int] | None:
    """Choose the elements of a tile of `weigh_groups`, and its bytes of shared memory.

    An element and its weight have `item` bytes. None for groups so many that half a block's memory
    has no room for them and a tile: at least two blocks run side by side.
    """
    step, fixed = 8 * ADD_THREADS, add_memory() + 8 * (n_groups + 1)
    most = (shared // 2 - STATIC - fixed) // (item * step)
    if most < 1:
        return None
    tile = step * min(most, max(-(-n_groups * 32 // step), 4))
    return tile, fixed + item * tile


def groups_memory(
    dtype: np.dtype[Any], n_groups: int, n_ends: int, steps: int, n_limbs: int = 0
) -> int:
    """Return the shared bytes of a block of `groups_tally`: ends, groups, counts, and sums.

    Each group has room for 2**steps ends, and each sum of weights `n_limbs` digits.
    """
    n_cells = n_ends + n_groups
    of_ends = (n_groups << steps) * key_size(dtype)
    own = of_ends + 4 * (2 * n_groups + 33 + 2 * n_cells * (1 + n_limbs)) + n_cells
    return -(-own // 1024) * 1024  # rounded up, so that fewer variants of the kernel are prepared


def group_sums(
    dtype: np.dtype[Any], n_groups: int, shared: int
) -> tuple[int, dict[str, Any]] | None:
    """Choose the elements of a tile of `moments_of_groups`, and how it is started.

    None for groups so many that a block has no room for their digits, or for a tile.
    """
    n_digits, is_wide = 3 + 5, dtype.kind == "f" and dtype.itemsize == 8
    if dtype.kind == "f":
        n_digits = exact_sums.TOTAL_DIGITS + exact_sums.SQUARE_DIGITS if is_wide else 13 + 25
    room, of_digits = shared - STATIC - 8 * (n_groups + 1), 8 * n_digits * n_groups
    # Digits of float64 have the layout of those in device memory, which blocks can add to.
    in_shared = not is_wide or 2 * of_digits <= room
    step = GROUPS_THREADS * (8 if dtype.itemsize == 8 else 16)
    most = (room - of_digits * in_shared) // (dtype.itemsize * step)
    if most < 1:
        return None
    tile = step * min(most, -(-n_groups * FULL_WARP // step))
    n_bytes = tile * dtype.itemsize + of_digits * in_shared + 8 * (n_groups + 1)
    return tile, {"shared": n_bytes, "defined": (("IN_SHARED", int(in_shared)),)}


def words_memory(n_groups: int, n_words: int) -> int:
    """Return the shared bytes of a block of `groups_words`: counts of words by group."""
    own = 4 * (n_groups * n_words + 32)
    return -(-own // 1024) * 1024  # rounded up, so that fewer variants of the kernel are prepared


def deal_memory(dtype: np.dtype[Any], room: int, n_marks: int) -> int:
    """Return the shared bytes of a block of `deal`: marks, a tile, and 16 bytes for each class."""
    n_classes = 2 * n_marks + 2
    tile = DEAL_THREADS * DEAL_EACH * (dtype.itemsize + 2)
    return tile + room * key_size(dtype) + n_classes * 16


REACH_WORDS, REACH_GROUP = 64, 512
"""Words of 4 bytes of a thread for keys and rounded weights, and threads of a lane, at most."""


class LaneKernel(NamedTuple):
    """A kernel of lanes: how it is compiled and started."""

    name: str
    threads: int
    lanes: int  # lanes of a block at the same time
    shared: int  # bytes
    defined: Defined = ()


def _weighted_lanes(
    threads: int, lanes: int, shared: int, more: Defined = (), *, is_side_by_side: bool
) -> LaneKernel:
    """Return the kernel of weighted lanes, which its caller names, for blocks of some threads."""
    made = ("REACH_THREADS", threads), ("A_BLOCK", lanes), ("SIDE_BY_SIDE", int(is_side_by_side))
    return LaneKernel("", threads, lanes, shared, (*made, *more))


def reach_kernel(
    dtype: np.dtype[Any], n: int, shared: int, *, is_side_by_side: bool
) -> LaneKernel | None:
    """Choose the kernel for lanes of n weighted elements; None if threads have no room for them.

    `shared` is the number of bytes of shared memory that a block can have.
    """
    words = key_size(dtype) // 4
    group = 1
    while not is_side_by_side and group < 32 and 8 * group < n:
        group *= 2  # so that neighbouring threads read neighbouring elements
    while group < REACH_GROUP and -(-n // group) * (words + 1) > REACH_WORDS:
        group *= 2
    each, threads = -(-n // group), max(group, 512 if group > 64 else 256)
    each += each % 2 if each > 8 else 0  # for fewer kernels
    own, lanes, warps = 0, threads // group, group // 32
    if warps > 1:
        own += lanes * warps * REACH_SUMS * 2 * 8
    if warps and is_side_by_side and lanes > 1:
        own += FETCHED_ROWS * lanes * (group + 32 // lanes) * dtype.itemsize
    registers = threads * (each * (words + 1) + REACH_WORKING)
    more = ("GROUP", group), ("EACH", each), ("MIN_BLOCKS", max(REGISTERS // registers, 1))
    own = -(-own // 1024) * 1024  # not a preparation for every number
    if own + STATIC > shared or -(-n // group) * (words + 1) > REACH_WORDS:
        return None
    return _weighted_lanes(threads, lanes, own, more, is_side_by_side=is_side_by_side)


SORT_EACH = {4: 29, 8: 25}
"""Elements of a lane that a thread of ``weighed_sorts.cu`` sorts, at most, by bytes of a key."""
MOST_COMMON = 4096
"""Weights of all lanes that are in shared memory, at most."""


def sort_kernel(
    dtype: np.dtype[Any], n: int, shared: int, *, is_side_by_side: bool, is_common: bool = False
) -> LaneKernel | None:
    """Choose the kernel that sorts lanes of n weighted elements; None if one exceeds a block.

    If all lanes have the same weights (`is_common`), these are in shared memory too.
    """
    group, most = 1, SORT_EACH[key_size(dtype)]
    while not is_side_by_side and group < 32 and 8 * group < n:
        group *= 2  # so that neighbouring threads read neighbouring elements
    while group < MOST_THREADS and -(-n // group) > most:
        group *= 2
    each, threads = min(-(-n // group), most), max(group, 512 if group > 64 else 256)
    # An odd number, for the banks of shared memory; or an even one, for fewer kernels.
    each += each % 2 == 0 if group > 1 else each % 2 and each > 8
    size = key_size(dtype)
    each_lane = 16 * (group + 1) + (group * each + 1) * (size + 2)
    while threads > max(group, 32) and threads // group * each_lane + STATIC > shared:
        threads //= 2
    own = threads // group * each_lane
    common = -(-n // 128) * 128 if is_common and n <= MOST_COMMON else 0
    common *= own + 8 * common + 1024 + STATIC <= shared
    own = -(-(own + 8 * common) // 1024) * 1024  # not a preparation for every number
    registers = threads * (each * (size // 4 + 1) + SORT_WORKING)
    n_blocks = max(min(REGISTERS // registers, shared // (own + STATIC)), 1)
    more = ("GROUP", group), ("EACH", each), ("MIN_BLOCKS", n_blocks), ("COMMON", common)
    if own + STATIC > shared or n > group * each:
        return None
    return _weighted_lanes(threads, threads // group, own, more, is_side_by_side=is_side_by_side)


SELECTS = *((2, 512, n) for n in (9, 7, 5)), *((1, 1024, n) for n in (7, 5, 3)), (1, 512, 2)
"""Lanes of a block, threads of a lane, and elements that a thread sorts."""


def select_kernel(
    dtype: np.dtype[Any], n: int, shared: int, *, is_side_by_side: bool
) -> LaneKernel | None:
    """Choose the kernel that sorts some buckets of lanes of n elements; None if there is none."""
    size = key_size(dtype)
    limb, limbs = (16, 4) if n < 1 << 16 else (11, 6)  # so that sums have 32 bits
    # At least two elements of a thread, in whose place its sums are at first.
    for lanes, group, each in SELECTS:
        own = (10 + size) * (group * each + 1) + size * PIVOTS + 8 * PIVOTS * (limbs + 1)
        own, threads = -(-lanes * own // 1024) * 1024, lanes * group
        if own + STATIC <= shared and n < 1 << 32 - limb:
            more = ("GROUP", group), ("EACH", each), ("LIMB", limb), ("LIMBS", limbs)
            return _weighted_lanes(threads, lanes, own, more, is_side_by_side=is_side_by_side)
    return None


SORTED_KERNEL = _weighted_lanes(ENDS_THREADS, ENDS_THREADS, 0, is_side_by_side=True)
"""The kernel `reach_sorted`."""
ENOUGH_THREADS = 1 << 18  # of all lanes together, so that a device is busy


def ends_kernel(n: int, n_lanes: int, *, is_side_by_side: bool) -> LaneKernel:
    """Choose how many lanes a block of `reach_ends` takes, for lanes of n elements.

    Neighbouring threads read neighbouring elements: 8 lanes or more side by side, or one lane.
    """
    lanes, least, enough = ENDS_THREADS, 1, n
    if is_side_by_side:
        least, enough = 8, ENOUGH_THREADS // n_lanes
    while lanes > least and ENDS_THREADS // lanes < min(enough, n // 4):
        lanes //= 2
    shared = ENDS_BYTES * ENDS_THREADS if lanes < ENDS_THREADS else 0
    return _weighted_lanes(ENDS_THREADS, lanes, shared, is_side_by_side=is_side_by_side)


def select_memory(n_ranks: int) -> int:
    """Return the shared bytes of a block of `select_digit`: counts for each rank and digit."""
    return n_ranks * 4 << DIGIT


def most_selected(shared: int) -> int:
    """Return how many ranks a block of `select_digit` can count for in `shared` bytes."""
    return min((shared - STATIC) // select_memory(1), MOST_SELECTED)


def digits(dtype: np.dtype[Any]) -> list[tuple[int, int]]:
    """Return the shift and the bits of each digit of a key, from the leading one."""
    bits = 8 * dtype.itemsize
    return [(max(top - DIGIT, 0), min(top, DIGIT)) for top in range(bits, 0, -DIGIT)]


# --- Moments --------------------------------------------------------------------------------------

ENOUGH = 0.99  # share of the elements that should fit into the pieces


def pieces_of(dtype: np.dtype[Any]) -> int:
    """Return the least number of pieces that elements are cut into.

    Two hold all float16. Integers are not cut.
    """
    return {2: 2, 4: 2, 8: 3}[dtype.itemsize] if dtype.kind == "f" else 1


def cut_for(near: NDArray[Any], dtype: np.dtype[Any]) -> tuple[int, int]:
    """Choose how many pieces to cut elements into, and at which power of two, from similar values.

    The sums are exact whatever the choice; elements that do not fit into the pieces take longer.
    `guess_box` of ``sampling.cu`` makes the same choice from few elements.
    """
    least = pieces_of(dtype)
    if dtype.kind != "f":
        return least, 0
    if dtype.itemsize == 2:
        return least, TOP_OF_HALF
    last_bit = 52 if dtype.itemsize == 8 else 23
    values = np.asarray(near, np.float64)
    tops = np.sort(np.frexp(values[np.isfinite(values) & (values != 0)])[1])
    tops = tops[np.abs(tops) < FARTHEST_TOP]
    for pieces in (least, least + 1):
        # Number of binades that an element may be smaller than the largest.
        room = PIECE * pieces - 2 - last_bit
        n_fit = np.searchsorted(tops, tops, "right") - np.searchsorted(tops, tops - room, "left")
        if pieces > least or not len(tops) or n_fit.max() >= ENOUGH * len(tops):
            break
    if not len(tops):
        return least, 0
    # Among cuts that fit equally many values, take the one that covers most of the range between
    # the first and the last: these may be the only values from the tails.
    reach = np.minimum(room, tops - tops[0])
    top = int(tops[np.lexsort((reach, n_fit))[-1]])
    lowest = int(tops[np.searchsorted(tops, top - room, "left")])
    top += min((room - (top - lowest)) // 2, 2)
    return pieces, top if dtype.itemsize == 8 else min(max(top, LEAST_TOP), MOST_TOP)


DigitRange = tuple[int, int]
"""A digit, and the number of digits from it on."""


def digits_for(
    dtype: np.dtype[Any], extent: tuple[float, float] | None
) -> tuple[DigitRange, DigitRange]:
    """Return the ranges of digits that the sums of elements, and of their squares, need.

    Parameters
    ----------
    dtype : dtype
        Dtype of the elements.
    extent : tuple of 2 floats, optional
        Smallest nonzero magnitude and largest one, for floats.
    """
    if extent is None or not 0 < extent[0] <= extent[1]:
        return (exact_sums.TOTAL_POINT, 3), (exact_sums.SQUARE_POINT, 5)
    low, high = (max(int(np.frexp(size)[1]) + 1022, 1) + exact_sums.OFFSET for size in extent)
    first, first_square = low // 32, 2 * low // 32
    return (first, high // 32 + 3 - first), (first_square, 2 * high // 32 + 5 - first_square)


# --- Rows -----------------------------------------------------------------------------------------

MOST_PARAMETERS = 10  # of a fit: a thread then has 66 sums of products in 132 of its 255 registers


def row_sums(p: int) -> int:
    """Return SUMS of ``residuals.cu`` for a fit with p parameters."""
    return p * (p + 1) // 2 + p + 1


# --- Lanes ----------------------------------------------------------------------------------------

ONLY_MADE = 6, 8, 24  # ranks and answers for which there are kernels of ``only_lane.cu``


LISTED: Defined = (("LISTED", 1),)
"""Definition for lanes made of some of the rows."""


Three = tuple[int, int, int]


def are_side_by_side(parts: Sequence[tuple[Three, Three]]) -> bool:
    """Return whether neighbouring outer lanes of all parts are closer in memory than rows are.

    Parts are given by shapes and strides as (outer, rows, inner). A part of one row says nothing.
    """
    n_outer, _, n_inner = parts[0][0]
    nearer = [outer < row for (_, n, _), (outer, row, _) in parts if n > 1]
    return n_inner == 1 and n_outer > 1 and bool(nearer) and all(nearer)


def long_lane_kernel(
    dtype: np.dtype[Any], n_answers: int, shared: int, *, side_by_side: bool
) -> tuple[LaneKernel, int]:
    """Return the kernel for lanes too long for shared memory, and its capacity.

    It finds up to `MOST_ANSWERS` answers. `shared` is the number of bytes a block can have; the
    capacity is the number of elements in shared memory for each lane and answer.
    """
    lanes = 8 if side_by_side else 1
    searches = lanes * n_answers
    own = searches * (32 + 257 * 4) + lanes * 2 * key_size(dtype) + (lanes + 1) * 4
    each = searches * key_size(dtype)
    # Half of the memory, so that two blocks share a multiprocessor, if that leaves enough capacity.
    # More capacity saves no read.
    most = shared // 2 if own + FEWEST_LEFT * each + STATIC <= shared // 2 else shared
    room = min((most - STATIC - own) // each, MOST_LEFT)
    own += room * each
    return LaneKernel("long_lanes", LONG_THREADS, lanes, own), room


BOX_WORKING = 56  # registers of a thread that boxes take besides keys
LANE_SUMS = 88  # upper bound of the bytes of LaneSums of ``lane_sums.cuh``


def box_kernel(dtype: np.dtype[Any], kernel: LaneKernel) -> LaneKernel:
    """Return the kernel for box plots of the lanes that another kernel selects from."""
    made = dict(kernel.defined)
    own = -(-kernel.shared // 8) * 8
    n_warps = kernel.threads // 32 if made["GROUP"] > 32 else 0
    shared = own + LANE_SUMS * n_warps + 4 * ((kernel.lanes + 2) // 2 * 2) + 8
    # Sums and statistics take registers too, so that fewer blocks run at the same time.
    words = made["RUN"] * key_size(dtype) // 4
    registers = kernel.threads * (words + BOX_WORKING)
    most = max(min(made["MIN_BLOCKS"], REGISTERS // registers), 1)
    made |= {"MIN_BLOCKS": most, "ANSWER": 64, "OWN": own}
    return LaneKernel("boxes_of_lanes", kernel.threads, kernel.lanes, shared, tuple(made.items()))


SHORT = 32  # elements that one thread sorts
MOST_KEPT = 64  # keys of 4 bytes that a thread sorts and holds in registers; half as many of 8
MOST_THREADS = 1024
REGISTERS = 1 << 16  # registers of a multiprocessor
WORKING = 36  # registers of a thread besides keys


# Cached, because lanes of the same lengths come repeatedly.
@lru_cache(maxsize=1024)
def lane_kernel(
    dtype: np.dtype[Any],
    n: int,
    shared: int,
    *,
    side_by_side: bool,
    most_runs: int = 2,
    n_answers: int = 1,
) -> LaneKernel | None:
    """Return the kernel for lanes of n elements, with `shared` bytes of shared memory for a block.

    None if they are too long for that. Lanes lie side by side, or one behind the other. A thread
    sorts at most `most_runs` runs, or one if many answers are wanted of each lane.
    """
    is_ordered = n_answers >= MANY_ANSWERS
    most = MOST_KEPT * 4 // key_size(dtype)
    group = 1
    while group <= MOST_THREADS:
        n_keys = -(-n // group)
        # A warp that has a lane for itself waits for no other. So two runs are better than two
        # warps: 2.9 reads instead of 3.6 for 3,650 elements (side by side, it is 4.0 instead of
        # 3.7).
        has_two = group == 32 and not side_by_side and n_keys > most
        runs = 2 if has_two and most_runs > 1 and not is_ordered else 1
        if n_keys <= (SHORT if group == 1 else runs * most):
            kernel = _lane_kernel(dtype, n_keys, group, runs, shared, side_by_side=side_by_side)
            if is_ordered and group > 1:  # one thread sorts its lane in any case
                kernel = kernel._replace(defined=(*kernel.defined, ("ORDERED", 1)))
            if kernel.shared + STATIC <= shared:
                return kernel
        group *= 2
    return None


def _lane_kernel(
    dtype: np.dtype[Any], n_keys: int, group: int, runs: int, shared: int, *, side_by_side: bool
) -> LaneKernel:
    """Return the kernel for groups of `group` threads, each with `n_keys` keys (``lanes.cu``)."""
    size = key_size(dtype)
    run = -(-n_keys // runs)
    step = 1 if run <= 4 else 2 if run <= 8 else 4  # rounded up, for fewer kernels
    run = -(-run // step) * step
    # Side by side: enough threads for rows of 32 bytes, which is what one access to memory reads.
    threads = 128 if runs > 1 else 256
    threads = max(threads, group * 32 // dtype.itemsize if side_by_side else group)
    threads = min(threads, max(MOST_THREADS // 2, group))
    lanes = threads // group
    in_a_warp = max(32 // group, 1)
    is_read_as_is = in_a_warp * dtype.itemsize >= 32 if side_by_side else group >= 32
    staged = lanes > 1 and not is_read_as_is
    pad = max(32 // lanes, 1) if staged and side_by_side else 0
    pitch = lanes * (group + pad) + (group if staged and not side_by_side else 0)
    few = 0 if group == 1 else min(8 * group, 32)
    sums = 64 if group > 32 else 0
    own = (run * runs * pitch + few * lanes) * size + sums * lanes * 4
    # Without this bound the compiler uses more registers: 2.6 reads instead of 2.4 for 365
    # elements.
    registers = threads * (run * size // 4 + WORKING)
    return LaneKernel(
        "lanes_select",
        threads,
        lanes,
        own,
        (
            ("GROUP", group),
            ("RUN", run),
            ("RUNS", runs),
            ("BLOCK", threads),
            ("MIN_BLOCKS", max(min(shared // (own + STATIC), REGISTERS // registers), 1)),
            ("SIDE_BY_SIDE", int(side_by_side)),
            ("STAGED", int(staged)),
        ),
    )
