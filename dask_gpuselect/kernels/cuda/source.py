"""What the CUDA kernels are made from: their source text for each dtype, and how much shared memory
they take. Nothing here needs CuPy or a device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.protocols import MOST_STACKED
from dask_gpuselect.maths import exact_sums
from dask_gpuselect.maths.keys import selection_dtype

# What host and kernels agree on; the sources have them by the same names.
TALLY_THREADS = 256
MOMENTS_THREADS = 256  # of which three blocks share a multiprocessor: of 512, one would have it
PIECE = 23  # bits of a piece of an element that is summed
TOP_OF_HALF = 16  # the power of two that float16 are cut at
FARTHEST_TOP = 400  # the farthest power of two, or as a negative one, that wider floats are cut at
# Of float32, so that what is added to an element to cut it is a float32, and its last bit too.
LEAST_TOP, MOST_TOP = -81, 126
PLACE_THREADS = 128
TABLE_BITS = 11  # of the steps from the first of many ends to the last
MARK_THREADS = 256
BLANK_THREADS = 256
REPORT_THREADS = 256
PASSED = 2048  # bytes of a record that a kernel takes as an argument
MEASURE_THREADS = 512
TABULATE_THREADS = 512
BITONIC_THREADS = 256
ROWS_THREADS = 256
GROUPS_THREADS = 512
GROUPS_HELD = 1024  # counts that a block keeps where not all are in shared memory
GROUPS_EACH = 8  # elements of groups that a thread looks at before the block gathers
SETS_THREADS = 256
WEIGH_THREADS = 512
ONCE_THREADS = 256
ADD_THREADS = 128  # of which each has digits of three sums in shared memory
ADD_DIGITS = 8  # of a sum, next to those of the largest products
UNITS_BELOW = 29  # powers of two that weights may be smaller than most; as many they may be larger
WARP_STAGE = 64  # candidates with weights that a warp keeps until it writes them
SCAN_THREADS = 1024  # of the one block that sums all
MERGE_EACH = 8  # elements that a thread merges
CHOOSE_THREADS = 1024
DEAL_THREADS = 512
DEAL_EACH = 8  # elements that a thread deals out at a time
DEAL_APART = 16  # counts of classes, in units of one: a cache line
SELECT_THREADS = 1024
NEAR_THREADS = 256
WINDOWS_THREADS = 128
NEAR_ROOM = 2048  # for the nearest of a query that a block orders at once
LONG_THREADS = 512  # for lanes too long for shared memory
MOST_LEFT, FEWEST_LEFT = 4096, 128  # elements of these that are looked at in shared memory
# Bytes of the keys of lanes side by side from which on these are read several times rather than
# sorted: medians of 8,000 float32 take 3.2 reads sorted and 4.1 so, of 20,000 5.7 and 3.9.
LONG_SIDE_BY_SIDE = 48_000
OFFSET_BITS = 12  # that are kept of an element's place in its bucket
OUTSIDE = 255  # a bucket's shift if it is outside all windows
DIGIT = 11  # bits
COUNTERS = 8192  # of bins, in shared memory: several for each bin if there are few
MOST_RANKS = 6  # selected together: their counts take 48 KiB, which every device has
MOST_SELECTED = 24  # where a block can have 192 KiB for them
MOST_SURVEYS = 4  # intervals of candidates that are looked at together
MOST_ANSWERS = 6  # for a lane, found together digit by digit
SUMS = ("TOTAL", "SQUARE", "CUBE")  # of elements, of products of two, and of three
AGREED: dict[str, int] = {
    name: n for name, n in list(globals().items()) if name.isupper() and isinstance(n, int)
}
OF_SUMS = ("OFFSET", *(f"{sums}_{of}" for sums in SUMS for of in ("POINT", "DIGITS")))
AGREED |= {name: getattr(exact_sums, name) for name in OF_SUMS}
"""All of these, and those of the exact sums."""

NEAR_ROWS, NEAR_QUERIES = 64, 128
"""That a block of ``distances.cu`` takes."""

MOST_ENDS = 1024  # of brackets, counted in one read
MOST_MARKS = 511  # between which elements are dealt out
SPANS = (1, 3, 5, 8, 12)  # for which there are kernels: of 24, one would take all registers

KINDS = {"b": 0, "u": 0, "i": 1, "f": 2}  # as in ``elements.cuh``


class Sizes(NamedTuple):
    """How large the kernels of load 1 are made, for the shared memory that a block can have."""

    buckets: int
    sampled: int
    threads: int  # as many as share a multiprocessor's registers, by one block or several


SIZES = (
    Sizes(8192, 1 << 14, 1024),
    Sizes(4096, 1 << 14, 512),
    Sizes(2048, 1 << 13, 512),
    Sizes(1024, 1 << 12, 512),
)
STATIC = 2048  # bytes of shared memory that the kernels and the system take besides


def sizes_for(dtype: np.dtype[Any], shared: int) -> Sizes | None:
    """The largest sizes that fit, or None if none do: before compute capability 7.0."""
    for sizes in SIZES:
        if max(choose_memory(dtype, sizes), classify_memory(dtype, sizes)) + STATIC <= shared:
            return sizes
    return None


INCLUDED = {
    "moments.cu": ("sums.cuh",),
    "spans.cu": ("spans.cuh",),
    "gathering.cu": ("spans.cuh", "sums.cuh"),
    "lanes.cu": ("lanes.cuh", "lane_runs.cuh"),
    "long_lanes.cu": ("lanes.cuh",),
    "only_lane.cu": ("lanes.cuh", "digits.cuh"),
    "candidates.cu": ("digits.cuh",),
    "lane_passes.cu": ("lanes.cuh", "lane_runs.cuh"),
    "lane_reports.cu": ("lane_reports.cuh",),
    "lane_answers.cu": ("lanes.cuh", "lane_reports.cuh"),
    "lane_boxes.cu": ("lanes.cuh", "lane_runs.cuh", "lane_sums.cuh", "lane_columns.cuh"),
    "windows.cu": ("lanes.cuh",),
    "lane_finish.cu": ("lanes.cuh", "lane_sums.cuh", "lane_columns.cuh"),
}
"""What files need beside ``elements.cuh``, which all do."""

FILES = {
    "choose": "cells.cu",
    "classify": "cells.cu",
    "sample": "sampling.cu",
    "kept": "sampling.cu",
    "guess": "sampling.cu",
    "lanes": "lanes.cu",
    "long": "long_lanes.cu",
    "only": "only_lane.cu",
    "passes": "lane_passes.cu",
    "reports": "lane_reports.cu",
    "answers": "lane_answers.cu",
    "boxes": "lane_boxes.cu",
    "finish": "lane_finish.cu",
    "moments": "moments.cu",
    "sum": "moments.cu",
    "place": "placing.cu",
    "blank": "masks.cu",
    "reach": "weighed_lanes.cu",
    "mark": "fingerprints.cu",
    "tabulate": "value_counts.cu",
    "extent": "measures.cu",
    "point": "measures.cu",
    "count": "measures.cu",
    "bitonic": "bitonic.cu",
    "merge": "bitonic.cu",
    "rows": "residuals.cu",
    "near": "distances.cu",
    "sets": "lower_sets.cu",
    "tally": "spans.cu",
    "gather": "gathering.cu",
    "weigh": "weighing.cu",
    "groups": "groups.cu",
    "locate": "candidates.cu",
    "select": "candidates.cu",
    "survey": "candidates.cu",
    "keys": "ordering.cu",
    "words": "ordering.cu",
    "deal": "ordering.cu",
    "windows": "windows.cu",
}
"""Where each kernel is, by the first word of its name."""


def file_of(kernel: str) -> str:
    return FILES[kernel.partition("_")[0]]


Defined = tuple[tuple[str, int], ...]
"""More of what a source is made for, by its names there."""
SPANS_ARE = {"ends": 0, "cells": 1, "any": 2}  # as in ``spans.cuh``
SPACES = {"none": 0, "value": 1, "key": 2, "log": 3}  # as in ``measures.cu``
KEEPS: Defined = (("KEEPS", 1),)
"""For chunks with a mask of the elements that take part."""


ONE_KERNEL = re.compile(
    r'^extern "C" __global__ void[^{]*?(\w+)\([^()]*\) \{\n.*?^\}\n', re.MULTILINE | re.DOTALL
)
"""The text of a kernel, and its name."""


def source(name: str, dtype: np.dtype[Any], sizes: Sizes, more: Defined = ()) -> str:
    """The CUDA C++ source of a kernel for one dtype.

    It is alone there, for compiling others takes as long though nobody asks for them: 3.1 s instead
    of 0.3 for the kernels of ``spans.cu``.
    """
    defined = {
        "BITS": 8 * dtype.itemsize,
        "KIND": KINDS[dtype.kind],
        "KEEPS": 0,
        "SPANS": 1,
        "SPANS_ARE": 0,
        "PIECES": 3,
        "SPACE": 0,
        "WHOLE": 0,
        "IN_PARTS": 0,
        "LISTED": 0,
        "NARROW": 0,
        "WINDOW": 256,
        "ONLY_MOST": MOST_RANKS,
        "BUCKETS": sizes.buckets,
        "SAMPLE": sizes.sampled,
        "CLASSIFY_THREADS": sizes.threads,
        **AGREED,
        **dict(more),
    }
    lines = [f"#define {name} {value}\n" for name, value in defined.items()]
    folder = files("dask_gpuselect.kernels.cuda")
    file = file_of(name)
    files_of = ("elements.cuh", *INCLUDED.get(file, ()), file)
    text = "".join((folder / each).read_text() for each in files_of)
    alone = ONE_KERNEL.sub(lambda found: found[0] if found[1] == name else "", text)
    return "".join([*lines, alone])


def n_slots(dtype: np.dtype[Any]) -> int:
    """SLOTS of ``cells.cu``."""
    if dtype.itemsize == 1:
        return 256
    if dtype.kind == "f":
        return {2: 64, 4: 512, 8: 4096}[dtype.itemsize]
    bits = 8 * dtype.itemsize
    return 2 * bits if dtype.kind == "i" else bits + 1


def key_size(dtype: np.dtype[Any]) -> int:
    """Bytes of a Key of ``elements.cuh``."""
    return 8 if dtype.itemsize == 8 else 4


def choose_memory(dtype: np.dtype[Any], sizes: Sizes) -> int:
    """Bytes of shared memory that a block of `choose` takes: the sample, and a number a slot."""
    return sizes.sampled * key_size(dtype) + 4 * (n_slots(dtype) + 1)


def classify_memory(dtype: np.dtype[Any], sizes: Sizes) -> int:
    """Bytes for a block of `classify`: windows, and pivots, three counts and two sums a bucket."""
    return 8 * n_slots(dtype) + sizes.buckets * (key_size(dtype) + 5 * 4)


def tabulate_memory(dtype: np.dtype[Any], shared: int) -> tuple[int, int]:
    """How many words a block of `tabulate_words` counts in one read, and the bytes it takes, where
    it can have so many bytes of shared memory."""
    if dtype.itemsize == 1:
        return 256, 32 * 257 * 4
    window: int = 1 << 8 * dtype.itemsize
    while 4 * window + STATIC > shared:
        window //= 2
    return window, 4 * window


def tally_memory(dtype: np.dtype[Any], n_ends: int) -> int:
    """Bytes for a block of `tally`: what its threads stage, the ends, and their counts."""
    value_size = selection_dtype(dtype).itemsize
    staged = 8 + 8 if dtype.itemsize == 8 else 16 + 16
    return staged * TALLY_THREADS * value_size + (n_ends + 1) * (value_size + 9)


def weigh_memory(dtype: np.dtype[Any], n_ends: int) -> int:
    """Bytes for a block of `weigh_segments`: the ends, and a count and a sum for each segment."""
    size = (n_ends * dtype.itemsize + 7) // 8 * 8 + 12 * (2 * n_ends + 1)
    return -(-size // 1024) * 1024  # not a preparation of the kernel for every number


def once_memory(n_ends: int) -> int:
    """Bytes for a block of `weigh_once`: what its threads sum and stage, and the ends."""
    n_segments = 2 * n_ends + 1
    return 20 * ONCE_THREADS * n_segments + ONCE_THREADS // 32 * WARP_STAGE * 16 + 8 * n_ends + 16


def add_memory() -> int:
    """Bytes for a block of `weigh_products`: digits of each thread, and of all together."""
    return 8 * len(SUMS) * ADD_DIGITS * (ADD_THREADS + 1)


def groups_memory(dtype: np.dtype[Any], n_groups: int, n_ends: int) -> int:
    """Bytes for a block of `groups_tally_shared`: ends, where those of groups begin, and counts."""
    n_cells = n_ends + n_groups
    own = n_ends * key_size(dtype) + 4 * (n_groups + 1 + 2 * n_cells + n_groups) + n_cells
    return -(-own // 1024) * 1024  # not a preparation of the kernel for every number


def words_memory(n_groups: int, n_words: int) -> int:
    """Bytes for a block of `groups_words_shared`: a count for each word of each group."""
    own = 4 * n_groups * n_words
    return -(-own // 1024) * 1024  # not a preparation of the kernel for every number


def deal_memory(dtype: np.dtype[Any], room: int, n_marks: int) -> int:
    """Bytes for a block of `deal`: marks, a tile, and what it knows of each class."""
    n_classes = 2 * n_marks + 2
    tile = DEAL_THREADS * DEAL_EACH * (dtype.itemsize + 2)
    return tile + room * key_size(dtype) + n_classes * 16


def deal_counts_memory(dtype: np.dtype[Any], room: int, n_marks: int) -> int:
    """Bytes for a block of `deal_counts`: marks and counts."""
    return room * key_size(dtype) + 4 * (2 * n_marks + 2)


REACH_LANES = np.dtype(
    [
        *((name, "i8") for name in ("n_lanes", "n_inner", "n", "outer", "row", "inner")),
        *((f"weights_{name}", "i8") for name in ("outer", "row", "inner")),
        ("n_targets", "i8"),
        ("slack", "f8"),
    ]
)
REACH_TARGET = np.dtype([("share", "f8"), ("is_passed", "i8")])
WEIGHTS_ARE = {"of lanes": 0, "of rows": 1, "apart": 2}  # as in ``weighed_lanes.cu``
REACH_ROOM = 56 << 10  # bytes of a block, so that several share a multiprocessor


class ReachKernel(NamedTuple):
    """How `reach_lanes` is made and started."""

    threads: int
    lanes: int  # of a block at the same time
    shared: int  # bytes
    weights: str  # of `WEIGHTS_ARE`


def reach_kernel(
    dtype: np.dtype[Any], n: int, shared: int, *, are_shared: bool
) -> ReachKernel | None:
    """Choose the kernel for lanes of n weighted elements; None if a block has no room for one lane.

    Parameters
    ----------
    shared : int
        Bytes of shared memory that a block can have.
    are_shared : bool
        Whether all lanes have the same weights.
    """
    kinds = ("of rows", "apart") if are_shared else ("of lanes",)
    for most, least, threads in ((REACH_ROOM, 8, 256), (shared - STATIC, 1, 1024)):
        for kind in kinds:
            lanes = threads
            while lanes >= least:
                pitch = lanes + (lanes > 1)
                held = {"of lanes": n * pitch, "of rows": n, "apart": 0}[kind]
                sums = 3 * lanes * (1 + min(threads // lanes, threads // 32))
                own = 8 * (held + sums * (lanes < threads)) + key_size(dtype) * n * pitch
                if own <= most:
                    own = -(-own // 1024) * 1024  # not a preparation for every number
                    return ReachKernel(threads, lanes, min(own, shared), kind)
                lanes //= 2
    return None


def select_memory(n_ranks: int) -> int:
    """Bytes for a block of `select_digit`: a count for each rank and value of the digit."""
    return n_ranks * 4 << DIGIT


def most_selected(shared: int) -> int:
    """How many ranks a block of `select_digit` can count for, with so many bytes at most."""
    return min((shared - STATIC) // select_memory(1), MOST_SELECTED)


def digits(dtype: np.dtype[Any]) -> list[tuple[int, int]]:
    """The shift and the bits of each digit of a key, the leading one first."""
    bits = 8 * dtype.itemsize
    return [(max(top - DIGIT, 0), min(top, DIGIT)) for top in range(bits, 0, -DIGIT)]


# --- Moments --------------------------------------------------------------------------------------

ENOUGH = 0.99  # of the elements should fit into the pieces


def pieces_of(dtype: np.dtype[Any]) -> int:
    """Into how many pieces elements are cut at least: two hold all float16, and integers are not
    cut."""
    return {2: 2, 4: 2, 8: 3}[dtype.itemsize] if dtype.kind == "f" else 1


def cut_for(near: NDArray[Any], dtype: np.dtype[Any]) -> tuple[int, int]:
    """How many pieces to cut elements into, and at which power of two, from some that are like
    them.

    However that is, the sums are exact; elements that the pieces do not hold take longer.
    `guess_box` of ``sampling.cu`` does the same of few elements.
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
        # How much smaller than the largest an element may be.
        room = PIECE * pieces - 2 - last_bit
        held = np.searchsorted(tops, tops, "right") - np.searchsorted(tops, tops - room, "left")
        if pieces > least or not len(tops) or held.max() >= ENOUGH * len(tops):
            break
    if not len(tops):
        return least, 0
    # Of those that hold as many, the one that holds most of what is between the first and the last:
    # these may be all that is told of the tails.
    reach = np.minimum(room, tops - tops[0])
    top = int(tops[np.lexsort((reach, held))[-1]])
    lowest = int(tops[np.searchsorted(tops, top - room, "left")])
    top += min((room - (top - lowest)) // 2, 2)
    return pieces, top if dtype.itemsize == 8 else min(max(top, LEAST_TOP), MOST_TOP)


DigitRange = tuple[int, int]
"""A digit, and how many there are from it on."""


def digits_for(
    dtype: np.dtype[Any], extent: tuple[float, float] | None
) -> tuple[DigitRange, DigitRange]:
    """The digits that the sums of elements, and of their squares, are made of.

    Parameters
    ----------
    extent : tuple of 2 floats, optional
        The smallest magnitude of floats but 0, and the largest. Not of integers.
    """
    if extent is None:
        return (exact_sums.TOTAL_POINT, 3), (exact_sums.SQUARE_POINT, 5)
    least, largest = extent
    if not 0 < least <= largest:
        return (exact_sums.TOTAL_POINT, 3), (exact_sums.SQUARE_POINT, 5)
    low, high = (
        max(int(np.frexp(size)[1]) + 1022, 1) + exact_sums.OFFSET for size in (least, largest)
    )
    first, first_square = low // 32, 2 * low // 32
    return (first, high // 32 + 3 - first), (first_square, 2 * high // 32 + 5 - first_square)


# --- Rows -----------------------------------------------------------------------------------------

MOST_PARAMETERS = 10  # of a fit: a thread has 66 sums of products then, in 132 registers of 255


def row_sums(p: int) -> int:
    """SUMS of ``residuals.cu``, of a fit with p parameters."""
    return p * (p + 1) // 2 + p + 1


# --- Lanes ----------------------------------------------------------------------------------------

PART = np.dtype([("data", "u8"), ("stop", "i8"), ("outer", "i8"), ("row", "i8"), ("inner", "i8")])
STACK = np.dtype(
    [
        ("parts", PART, MOST_STACKED),
        ("n_parts", "i8"),
        ("n", "i8"),
        ("n_inner", "i8"),
        ("n_lanes", "i8"),
        ("one", "i8"),
    ]
)
WANTED = np.dtype(
    [
        ("ranks", "u8"),
        ("weights", "u8"),
        ("first_v", "i8"),
        ("n_answers", "i4"),
        ("mixes", "i4"),
        ("skips_missing", "i4"),
        ("padding", "i4"),
    ]
)

DRAWN = np.dtype(
    [
        ("whis", "f8"),
        ("by_quantiles", "i4"),
        ("autorange", "i4"),
        ("omits_missing", "i4"),
        ("most_fliers", "u4"),
    ]
)
BOX_COLUMNS = (
    ("q", "mean", "deviation")
    + ("least", "most", "low", "high")
    + ("n_valid", "n_low", "n_high", "is_unsure")
)
BOX_TABLE = np.dtype([(name, "u8") for name in BOX_COLUMNS])
FLIERS = np.dtype([("elements", "u8"), ("room", "i8"), ("starts", "u8"), ("counts", "u8")])
TOLD = np.dtype([("all_missing", "u4"), ("too_wide", "u4"), ("n_fliers", "i8"), ("n_unsure", "i8")])

PASS_BRACKETS = np.dtype([("low", "u8"), ("high", "u8"), ("n_questions", "i4"), ("n_ranks", "i4")])
PASS_COUNTS = np.dtype(
    [(name, "u8") for name in ("n_valid", "n_missing", "below", "before", "inside", "upto")]
)
REPORT_KNOWN = np.dtype(
    [
        (name, "u8")
        for name in (
            *("below", "before", "inside", "upto", "n_valid", "n_missing", "stops", "candidates"),
            *("lower", "upper", "known_valid", "known_missing", "low", "high", "room"),
        )
    ]
)
REPORT_TOLD = np.dtype(
    [
        *((name, "u8") for name in ("has_changed", "any_missing", "least", "most")),
        *((name, "u4") for name in ("all_missing", "too_wide")),
    ]
)

ONLY_MADE = (6, 24)  # ranks and answers that there are kernels of ``only_lane.cu`` for


@lru_cache
def only_wanted(most: int) -> np.dtype[Any]:
    """`OnlyWanted` of ``only_lane.cu`` for so many ranks and answers."""
    return np.dtype(
        [
            ("n", "i8"),
            ("ranks", "i8", most),
            ("weights", "f8", most),
            ("lower", "i4", most),
            ("upper", "i4", most),
            ("n_ranks", "i4"),
            ("n_answers", "i4"),
            ("mixes", "i4"),
            ("padding", "i4"),
        ]
    )


ONLY_TOLD = np.dtype([("all_missing", "u4"), ("too_wide", "u4"), ("n_missing", "u8")])
ONLY_SHARED = 24  # bytes of OnlyShared of ``only_lane.cu``

LISTS = np.dtype([("rows", "u8"), ("each", "u8"), ("n", "i8"), ("n_all", "i8")])
LISTED: Defined = (("LISTED", 1),)
"""For lanes that are some of the rows."""


Three = tuple[int, int, int]


def are_side_by_side(parts: Sequence[tuple[Three, Three]]) -> bool:
    """Whether the outer lanes of all parts, by their shapes and strides as (outer, rows, inner),
    are nearer to each other than rows are. Of a part of one row the strides say nothing."""
    n_outer, _, n_inner = parts[0][0]
    nearer = [outer < row for (_, n, _), (outer, row, _) in parts if n > 1]
    return n_inner == 1 and n_outer > 1 and bool(nearer) and all(nearer)


class LaneKernel(NamedTuple):
    """How a kernel of lanes is made and started."""

    name: str
    threads: int
    lanes: int  # of a block at the same time
    shared: int  # bytes
    defined: Defined = ()


def long_lane_kernel(
    dtype: np.dtype[Any], n_answers: int, shared: int, *, side_by_side: bool
) -> tuple[LaneKernel, int]:
    """The kernel for lanes too long for shared memory, for up to `MOST_ANSWERS` answers, if a block
    can have so many bytes of it; and how many elements it has room for, of each lane and answer."""
    lanes = 8 if side_by_side else 1
    searches = lanes * n_answers
    own = searches * (32 + 257 * 4) + lanes * 2 * key_size(dtype) + (lanes + 1) * 4
    each = searches * key_size(dtype)
    # Two blocks of a multiprocessor, if there is some room left; more than that saves no read.
    most = shared // 2 if own + FEWEST_LEFT * each + STATIC <= shared // 2 else shared
    room = min((most - STATIC - own) // each, MOST_LEFT)
    own += room * each
    return LaneKernel("long_lanes", LONG_THREADS, lanes, own), room


BOX_WORKING = 56  # registers of a thread that boxes take beside keys
LANE_SUMS = 88  # bytes of LaneSums of ``lane_sums.cuh``, at most


def box_kernel(dtype: np.dtype[Any], kernel: LaneKernel) -> LaneKernel:
    """The kernel for the boxes of the lanes that another selects from."""
    made = dict(kernel.defined)
    own = -(-kernel.shared // 8) * 8
    n_warps = kernel.threads // 32 if made["GROUP"] > 32 else 0
    shared = own + LANE_SUMS * n_warps + 4 * ((kernel.lanes + 2) // 2 * 2) + 8
    # Sums and statistics take registers too: fewer blocks at the same time.
    words = made["RUN"] * key_size(dtype) // 4
    registers = kernel.threads * (words + BOX_WORKING)
    most = max(min(made["MIN_BLOCKS"], REGISTERS // registers), 1)
    made |= {"MIN_BLOCKS": most, "ANSWER": 64, "OWN": own}
    return LaneKernel("boxes_of_lanes", kernel.threads, kernel.lanes, shared, tuple(made.items()))


SHORT = 32  # elements that one thread sorts
MOST_KEPT = 64  # keys of 4 bytes that a thread sorts at once and keeps; half as many of 8
MOST_THREADS = 1024
REGISTERS = 1 << 16  # of a multiprocessor
WORKING = 36  # registers of a thread for all else than keys


# The same lengths come again and again.
@lru_cache(maxsize=1024)
def lane_kernel(
    dtype: np.dtype[Any],
    n: int,
    shared: int,
    *,
    side_by_side: bool,
    in_vectors: bool = False,
    most_runs: int = 2,
) -> LaneKernel | None:
    """The kernel for lanes of n elements, if a block can have so many bytes of shared memory; None
    if they are too long for that.

    They lie side by side or one behind the other, then perhaps so that short ones can be loaded in
    vectors of 16 bytes. A thread sorts so many runs at most.
    """
    most = MOST_KEPT * 4 // key_size(dtype)
    group = 1
    while group <= MOST_THREADS:
        kept = -(-n // group)
        # A warp that has a lane for itself waits for no other: rather two runs than two warps (2.9
        # reads instead of 3.6 for 3,650 elements; side by side, 4.0 instead of 3.7).
        has_two = group == 32 and not side_by_side and kept > most
        runs = 2 if has_two and most_runs > 1 else 1
        if kept <= (SHORT if group == 1 else runs * most):
            kernel = _lane_kernel(dtype, kept, group, runs, shared, side_by_side=side_by_side)
            if in_vectors and group == 1:
                vector = ("WORDS", 16 // dtype.itemsize)
                kernel = kernel._replace(defined=(*kernel.defined[:-1], vector))
            if kernel.shared + STATIC <= shared:
                return kernel
        group *= 2
    return None


def _lane_kernel(
    dtype: np.dtype[Any], kept: int, group: int, runs: int, shared: int, *, side_by_side: bool
) -> LaneKernel:
    """For groups of so many threads, each with so many keys; see ``lanes.cu``."""
    size = key_size(dtype)
    run = -(-kept // runs)
    step = 1 if run <= 4 else 2 if run <= 8 else 4  # not a kernel for every length
    run = -(-run // step) * step
    # Side by side: rows of 32 bytes, which memory reads at once, if there are so many threads.
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
    # The compiler would take more registers than that: 2.4 reads instead of 2.6 for 365 elements.
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
            ("WORDS", 1),
        ),
    )
