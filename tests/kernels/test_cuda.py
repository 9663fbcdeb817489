"""The CUDA kernels, as far as no device is needed: they compile for every architecture, and fit."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from importlib.resources import files
from typing import Any

import numpy as np
import pytest

from dask_gpuselect.kernels.cuda.source import (
    KEEPS,
    LISTED,
    MOST_ANSWERS,
    MOST_ENDS,
    MOST_PARAMETERS,
    MOST_RANKS,
    SIZES,
    SPACES,
    SPANS,
    SPANS_ARE,
    STATIC,
    Defined,
    are_side_by_side,
    box_kernel,
    choose_memory,
    classify_memory,
    digits,
    key_size,
    lane_kernel,
    long_lane_kernel,
    most_selected,
    n_slots,
    reach_kernel,
    row_sums,
    select_kernel,
    select_memory,
    sizes_for,
    sort_kernel,
    source,
    tally_memory,
)
from dask_gpuselect.kernels.cuda.source import kernels as heads
from dask_gpuselect.kernels.cuda.window_networks import networks
from dask_gpuselect.kernels.cuda.window_tiles import MOST_HELD, tiling
from dask_gpuselect.maths.windows import Frame, Piecewise, Shape, unpadded
from dask_gpuselect.windows.questions import WindowQuestion
from tests.data import INTEGER_DTYPES

DTYPES = ("?", *INTEGER_DTYPES, "f2", "f4", "f8")

# Bytes of shared memory that a block can have, by architecture (by the CUDA C++ programming guide,
# table of compute capabilities).
SHARED = {"sm_75": 64 << 10, "sm_80": 163 << 10, "sm_86": 99 << 10, "sm_90": 227 << 10}

needs_nvrtc = pytest.mark.skipif(
    sys.platform != "linux", reason="NVRTC's wheels are installed for Linux only"
)


@cache
def newest() -> str:
    from cuda.bindings import nvrtc

    error, n = nvrtc.nvrtcGetNumSupportedArchs()
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS
    _, known = nvrtc.nvrtcGetSupportedArchs()
    assert len(known) == n
    return f"sm_{max(known)}"


# Sources differ between dtypes, and between sm_75 and all that is newer. So every dtype is compiled
# for sm_75, which also has the least shared memory, or for the newest. Thoroughly, every one is for
# sm_75, one of each width and each kind for the newest, and one for each between. Bool has the
# kernels of uint8.
EVERY = [
    *((dtype, "sm_75") for dtype in ("f2", "u2", "i4", "f8", "i8")),
    *((dtype, "the newest") for dtype in ("i1", "u1", "i2", "f4", "u4", "u8")),
]
THOROUGHLY = [
    *((dtype, "sm_75") for dtype in DTYPES[1:]),
    ("f8", "sm_80"),
    ("f4", "sm_90"),
    *((dtype, "the newest") for dtype in ("i1", "u2", "f2", "i4", "f4", "u8", "f8")),
]


def thorough(cases: Any) -> list[Any]:
    return [pytest.param(*case, marks=pytest.mark.thorough) for case in cases]


def compiled(
    name: str, dtype: str, arch: str, made: tuple[Any, ...] = (), sizes: Any = SIZES[0]
) -> bytes:
    """The code of a kernel."""
    from cuda.core import Program, ProgramOptions

    options = ProgramOptions(arch=newest() if arch == "the newest" else arch, std="c++17")
    text = source(name, np.dtype(dtype), sizes, made)
    code = bytes(Program(text, "c++", options).compile("cubin").code)
    assert name.encode() in code
    return code


def test_every_dtype_is_compiled() -> None:
    assert {dtype for dtype, _ in EVERY} >= set(DTYPES[1:])


HEAD = re.compile(r'extern "C" __global__ void (?:\s*__launch_bounds__\([^()]*\)\s*)?(\w+)\(')


@cache
def kernels(file: str) -> tuple[str, ...]:
    """The names of a file's kernels; of one that is written for two kinds, once."""
    text = (files("dask_gpuselect.kernels.cuda") / file).read_text()
    return tuple(dict.fromkeys(HEAD.findall(text)))


ALL = list(heads())


def test_a_kernel_is_alone_in_its_source() -> None:
    assert len(ALL) == len(set(ALL)) > 40
    for name in ALL:
        text = source(name, np.dtype("f4"), SIZES[0])
        assert set(HEAD.findall(text)) == {name}
        # All else of the file is there.
        whole = (files("dask_gpuselect.kernels.cuda") / heads()[name][0]).read_text()
        assert text.count("{") == text.count("}")
        assert text.count("__device__") >= whole.count("__device__")


# Made for a length of lanes, for a number of parameters, or for float64 alone.
OTHERS = {
    *("lanes.cu", "lane_boxes.cu", "lane_passes.cu", "lane_answers.cu"),
    *("residuals.cu", "lower_sets.cu", "window_networks.cu", "window_tiles.cu"),
    *("weighed_lanes.cu", "weighed_shares.cu", "weighed_sorts.cu", "weighed_buckets.cu"),
}
OF_SPANS: tuple[Defined, ...] = tuple(
    (("SPANS", n), ("SPANS_ARE", SPANS_ARE[kind])) for n in SPANS for kind in ("ends", "cells")
)
OF_MANY: Defined = (("SPANS_ARE", SPANS_ARE["placed"]),)
OF_SUMS = tuple((*made, ("KEYED", 1), ("SUMMED", 1)) for made in (*OF_SPANS, OF_MANY))
MADE: dict[str, tuple[Defined, ...]] = {
    "tally": (*OF_SPANS, OF_MANY, *OF_SUMS),
    "groups_tally": ((("IN_SHARED", 0),), (("IN_SHARED", 1),), (("IN_SHARED", 1), ("ROWS", 1))),
    "groups_words": ((("IN_SHARED", 0),), (("IN_SHARED", 1),)),
    "weigh_once": ((), *(((each, 1),) for each in ("WHOLE", "ALONE", "IN_UNITS"))),
    "sampled_box": ((("ANSWER", 64), ("ONLY_MOST", 8)),),
    "trim_lanes": tuple((("IN_PARTS", i), ("ANSWER", bits)) for i, bits in ((0, 64), (1, 32))),
    "point": tuple((("SPACE", space),) for space in SPACES.values()),
    "extent": tuple((("SPACE", SPACES[space]),) for space in ("value", "key")),
}
"""What else kernels are made for."""
MASKED = {"choose", "classify", "tally", "sample", "moments", "moments_between"}


def made_for(name: str, dtype: str) -> list[Defined]:
    """What a kernel is made for, each in a source of its own."""
    made = list(MADE.get(name, ((),)))
    if name in {"moments", "moments_between", "tally", "only_box"} and dtype[0] == "f":
        few = 3 if dtype == "f8" else 2
        made = [(*more, ("PIECES", few)) for more in made] + [(*made[-1], ("PIECES", few + 1))]
    if name in MASKED:
        made += [(*each, *KEEPS) for each in dict.fromkeys((made[0], made[-1]))]
    return made


@pytest.mark.slow
@needs_nvrtc
@pytest.mark.parametrize(
    ("dtype", "arch"), [*EVERY, *thorough(case for case in THOROUGHLY if case not in EVERY)]
)
def test_every_kernel_compiles(dtype: str, arch: str) -> None:
    sizes = sizes_for(np.dtype(dtype), SHARED.get(arch, SHARED["sm_90"]))
    assert sizes is not None
    counted = {"tabulate_words", "groups_words"}
    for name in ALL:
        if heads()[name][0] in OTHERS or (name in counted and np.dtype(dtype).itemsize > 2):
            continue
        codes = {compiled(name, dtype, arch, made, sizes) for made in made_for(name, dtype)}
        assert len(codes) == len(made_for(name, dtype))


Sources = Iterator[tuple[str, Defined]]


def of_rows(dtype: str, arch: str) -> Sources:
    for parameters, intercept in ((1, 0), (2, 1), (MOST_PARAMETERS, 1)):
        yield "rows_tally", (("PARAMETERS", parameters), ("INTERCEPT", intercept))
    assert row_sums(MOST_PARAMETERS) == 66
    for name in kernels("lower_sets.cu") if dtype == "f8" else ():
        yield name, (("WEIGHTED", 1),)


WEIGHTED = {
    reach_kernel: "reach_lanes",
    sort_kernel: "sort_and_reach",
    select_kernel: "select_and_reach",
}


def of_weighted_lanes(dtype: str, arch: str) -> Sources:
    about = np.dtype(dtype), SHARED["sm_90"]
    for n, side_by_side in itertools.product((24, 365, 3650, 10_001, 40_000, 66_000), (0, 1)):
        for choose, name in WEIGHTED.items():
            kernel = choose(about[0], n, about[1], is_side_by_side=bool(side_by_side))
            assert kernel is not None or n > 10_001
            if kernel is not None and (n + side_by_side) % 2:
                yield name, (*kernel.defined, ("MEANS", side_by_side))


def of_network(size: Shape, dtype: str, masks: Any) -> tuple[Any, ...]:
    """The definitions of medians of windows of an image with less at its ends."""
    sides, own = (Piecewise.plain(67, (3, 0)),) * 2, np.dtype(dtype)
    question = WindowQuestion((0.5,), "linear", True, own, np.dtype(float), np.dtype(float))
    made: Any = networks(sides, Frame(size, (1, 1)), question, own, is_masked=bool(masks))
    return ("DEVIATES", 0), *made[2]


def of_windows(dtype: str, arch: str) -> Sources:
    bits = {"f4": 32, "f2": 16}.get(dtype, 64)
    for answer, size, masks in ((0, (3, 3), ()), (bits, (2, 9), KEEPS)):
        yield "window_networks", (("ANSWER", answer), *masks, *of_network(size, dtype, masks))
    for axes, runs in ((1, 1), (2, 15), (3, MOST_HELD)):
        made = (("ANSWER", bits), ("AXES", axes), ("RUNS", runs), ("UNROLLED", runs))
        made += (("TILE_THREADS", 2048 >> axes), ("TILE_BLOCKS", 1), ("DEVIATES", axes % 2))
        yield "window_tiles", made
        yield "window_tiles", (*made, *KEEPS)


@pytest.mark.parametrize("itemsize", [1, 2, 4, 8])
@pytest.mark.parametrize(
    ("padded", "size"),
    [((1 << 20,), (10_001,)), ((99, 300), (51, 51)), ((8, 600, 600), (5, 5, 5)), ((40,), (40,))],
)
def test_tiles_of_windows_fit_a_block(padded: Shape, size: Shape, itemsize: int) -> None:
    frame = Frame(size, (1,) * len(size))
    for shared in SHARED.values():
        tiles = tiling(unpadded(padded), frame, itemsize, shared)
        if tiles is None:  # then the host answers
            assert size == (10_001,)
            assert shared < 200_000
            continue
        _, about, defined, how = tiles
        assert how["shared"] + STATIC <= shared
        assert about["n_elements"] <= about["size"]
        assert about["axes"]["n_windows"] == np.prod(frame.shape(padded))
        assert (about["outs"] * about["tiles"] >= about["axes"]["shape"][: len(size)]).all()
        assert dict(defined)["TILE_THREADS"] % 32 == 0
        assert dict(defined)["RUNS"] * max(size) == frame.n


@pytest.mark.parametrize("dtype", ["f4", "f8", "u1"])
@pytest.mark.parametrize("is_side_by_side", [True, False])
def test_weighted_lanes_fit_a_block(dtype: str, is_side_by_side: bool) -> None:
    lengths = (1, 2, 9, 24, 25, 29, 31, 60, 365, 480, 1290, 3650, 10_000, 20_000, 66_000, 1 << 20)
    ways = *WEIGHTED, partial(sort_kernel, is_common=True)
    for shared, n, choose in itertools.product(SHARED.values(), lengths, ways):
        kernel = choose(np.dtype(dtype), n, shared, is_side_by_side=is_side_by_side)
        is_select = choose is select_kernel
        if kernel is None:
            # Besides the elements and their rows: sums, and elements that fill up a lane.
            large = 1.1 * n * (key_size(np.dtype(dtype)) + 2) > shared - (24 << 10)
            assert shared < 100_000 if is_select else n > 10_000 or large
            continue
        made = dict(kernel.defined)
        assert kernel.shared + STATIC <= shared
        assert kernel.threads == kernel.lanes * made["GROUP"] <= 1024
        assert (made["EACH"] > 1) if is_select else n <= made["GROUP"] * made["EACH"] < 2**16 - 1
        assert n << made.get("LIMB", 0) < 1 << 32
        assert made.get("COMMON", 0) in {0, *range(n, shared)}


# By a thread, a part of a warp, a warp or two, a block; and whether lanes are side by side.
LENGTHS = ((7, True), (24, False), (365, True), (365, False), (3650, True), (3650, False))


# By dtype, what answers are and the lengths of lanes.
LANES = {
    "f4": (32, (*LENGTHS, (40_000, True))),
    "f8": (64, (*LENGTHS, (20_000, False))),
    "f2": (16, LENGTHS[1:3]),
    "i2": (64, LENGTHS[:2]),
    "u8": (0, LENGTHS[1:3]),
}


ARCHITECTURES = ("sm_75", "the newest")


def of_lanes(dtype: str, arch: str) -> Sources:
    answer, lengths = LANES[dtype]
    kind, shared = np.dtype(dtype), SHARED.get(arch, SHARED["sm_90"])
    for n, side_by_side in lengths:
        kernel = lane_kernel(kind, n, shared, side_by_side=side_by_side)
        if kernel is None:
            assert arch == "sm_75"
            assert n > 10_000
            continue
        for more in ((), LISTED) if n < 400 else ((),):
            yield "lanes_select", (("ANSWER", answer), *more, *kernel.defined)
        if sorting := lane_kernel(kind, n, shared, n_answers=99, side_by_side=side_by_side):
            yield "lanes_select", (("ANSWER", answer), *sorting.defined)
        # Passes and boxes take kernels whose threads have one run.
        kernel = lane_kernel(kind, n, shared, most_runs=1, side_by_side=side_by_side)
        if kernel is None:
            continue
        for is_tally in range(2):
            yield "passes_of_lanes", (("ANSWER", 0), ("IS_TALLY", is_tally), *kernel.defined)
        for in_parts in (0, 1) if n < 400 else (0,):
            yield "boxes_of_lanes", (("IN_PARTS", in_parts), *box_kernel(kind, kernel).defined)
    for name in ("long_lanes", "answers_of_tally"):
        for of in (answer, 0) if name == "answers_of_tally" else (answer,):
            yield name, (("ANSWER", of),)


@needs_nvrtc
@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("kernels_of", "dtype", "arch"),
    [
        *itertools.product(
            (of_rows, of_weighted_lanes, of_windows),
            ("f8", "f4", "f2", "i8", "u1", "?"),
            ARCHITECTURES,
        ),
        *((of_lanes, dtype, ARCHITECTURES[i % 2]) for i, dtype in enumerate(LANES)),
        *thorough((of_lanes, dtype, ARCHITECTURES[(i + 1) % 2]) for i, dtype in enumerate(LANES)),
        *thorough([(of_lanes, "f8", "sm_80"), (of_lanes, "f4", "sm_90")]),
    ],
)
def test_kernels_of_some_lengths_compile(kernels_of: Any, dtype: str, arch: str) -> None:
    for name, made in kernels_of(dtype, arch):
        compiled(name, dtype, arch, made)


@pytest.mark.parametrize("shared", SHARED.values())
@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("dtype", ["?", "i2", "f4", "f8"])
def test_lanes_fit_into_their_kernels(dtype: str, side_by_side: bool, shared: int) -> None:
    kind = np.dtype(dtype)
    longest = shared // (5 * max(kind.itemsize, 4))
    for n in (*range(1, 1200), *range(1200, longest, 11), longest):
        kernel = lane_kernel(kind, n, shared, side_by_side=side_by_side)
        assert kernel is not None
        assert kernel.shared + STATIC <= shared
        boxes = box_kernel(kind, kernel)
        assert boxes.threads * dict(boxes.defined)["MIN_BLOCKS"] <= 2048
        assert boxes.shared <= shared
        made = dict(kernel.defined)
        group, rows = made["GROUP"], made["RUN"] * made["RUNS"]
        # As many rows for each thread, all of which are there but for the last four of each run.
        assert (rows - 4 * made["RUNS"]) * group <= n <= rows * group
        assert made["BLOCK"] == kernel.threads == kernel.lanes * group <= 1024
        assert kernel.threads % 32 == 0
        assert kernel.threads * made["MIN_BLOCKS"] <= 2048
        # Barriers have 15 names beside that of the block.
        assert group <= 32 or kernel.lanes <= 15
    assert lane_kernel(kind, 65_537, shared, side_by_side=side_by_side) is None
    for n_answers in range(1, MOST_ANSWERS + 1):
        long, room = long_lane_kernel(kind, n_answers, shared, side_by_side=side_by_side)
        assert long.shared + STATIC <= shared
        assert room > 30
        if shared > 1 << 17:  # two blocks, unless too little room is left on an A100
            is_alone = 2 * (long.shared + STATIC) > shared
            assert is_alone == (side_by_side and dtype == "f8" and n_answers > 4 and shared < 2e5)
            assert room > 128
        assert long.lanes * n_answers <= long.threads


@needs_nvrtc
def test_the_newest_architecture_is_new() -> None:
    assert int(newest().removeprefix("sm_")) >= 120


def test_the_kernels_of_bool_are_those_of_uint8() -> None:
    for name in ALL:
        assert source(name, np.dtype("?"), SIZES[0]) == source(name, np.dtype("u1"), SIZES[0])


@pytest.mark.parametrize("arch", SHARED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_blocks_fit_into_shared_memory(dtype: str, arch: str) -> None:
    kind = np.dtype(dtype)
    sizes = sizes_for(kind, SHARED[arch])
    assert sizes is not None
    for taken in (
        choose_memory(kind, sizes),
        classify_memory(kind, sizes),
        tally_memory(kind, MOST_ENDS),
        select_memory(MOST_RANKS),
        select_memory(most_selected(SHARED[arch])),
    ):
        assert taken + 1024 <= SHARED[arch]
    # A run of unused slots takes a bucket, a used one four: there is room for all kinds of data
    # but floats all over their range.
    if kind.kind != "f" and kind.itemsize > 1:
        assert 4 * n_slots(kind) + 1 <= sizes.buckets * 3 // 4


def test_there_is_no_room_on_old_devices() -> None:
    assert sizes_for(np.dtype("f8"), 48 << 10) is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_digits_make_up_a_key(dtype: str) -> None:
    below = 8 * np.dtype(dtype).itemsize
    for shift, bits in digits(np.dtype(dtype)):
        assert shift + bits == below
        assert 0 < bits <= 11
        below = shift
    assert below == 0


def test_parts_of_one_row_have_the_layout_of_the_others() -> None:
    """Parts are told with one layout: of three lanes, by shapes and strides."""
    rows_first, lanes_first = ((3, 5, 1), (1, 3, 0)), ((3, 5, 1), (5, 1, 0))
    one_row = ((3, 1, 1), (1, 0, 0))
    assert are_side_by_side([rows_first])
    assert are_side_by_side([one_row, rows_first])
    assert are_side_by_side([rows_first, one_row])
    assert not are_side_by_side([lanes_first])
    assert not are_side_by_side([one_row, lanes_first])
    assert not are_side_by_side([one_row, rows_first, lanes_first])
    assert not are_side_by_side([one_row, one_row])


# --- On a device ----------------------------------------------------------------------------------


@pytest.mark.gpu
def test_a_thread_without_a_context() -> None:
    """The first thing that a thread does may be to prepare a kernel: memory comes from a pool."""
    import cupy

    from dask_gpuselect.kernels.cuda import launch

    cupy.empty(1 << 20, np.uint8)  # the pool has some now
    launch.blocks_at_once(np.dtype("u1"), "place")
    launch._prepared.cache_clear()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(launch.blocks_at_once, np.dtype("u1"), "place").result() > 0
