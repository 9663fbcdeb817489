"""The CUDA kernels, as far as no device is needed: they compile for every architecture, and fit."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

import numpy as np
import pytest

from dask_gpuselect.kernels.cuda.source import (
    FILES,
    MOST_ENDS,
    MOST_RANKS,
    SIZES,
    SPANS,
    choose_memory,
    classify_memory,
    digits,
    file_of,
    from_keys,
    n_slots,
    select_memory,
    selected_dtype,
    sizes_for,
    source,
    tally_memory,
)
from tests.data import FLOATS, INTEGER_DTYPES, INTEGERS

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


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "the newest"])
@pytest.mark.parametrize("dtype", DTYPES[1:])  # bool's kernels are those of uint8
def test_every_kernel_compiles(dtype: str, arch: str) -> None:
    from cuda.core import Program, ProgramOptions

    sizes = sizes_for(np.dtype(dtype), SHARED.get(arch, SHARED["sm_90"]))
    assert sizes is not None
    options = ProgramOptions(arch=newest() if arch == "the newest" else arch, std="c++17")
    compiled = {
        file: Program(source(file, np.dtype(dtype), sizes), "c++", options).compile("cubin").code
        for file in set(FILES.values())
    }
    kernels = [f"tally_{kinds}_{n}" for kinds in ("ends", "cells", "any") for n in SPANS]
    for kernel in ("sample", "guess", "choose", "classify", "locate", "select_digit", *kernels):
        assert kernel.encode() in compiled[file_of(kernel)]


@needs_nvrtc
def test_the_newest_architecture_is_new() -> None:
    assert int(newest().removeprefix("sm_")) >= 120


def test_the_kernels_of_bool_are_those_of_uint8() -> None:
    for file in FILES.values():
        assert source(file, np.dtype("?"), SIZES[0]) == source(file, np.dtype("u1"), SIZES[0])


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
    ):
        assert taken + 1024 <= SHARED[arch]
    # A run of unused slots takes a bucket, a used one four: there is room for all kinds of data
    # but floats all over their range.
    if kind.kind != "f" and kind.itemsize > 1:
        assert 4 * n_slots(kind) + 1 <= sizes.buckets * 3 // 4


def test_there_is_no_room_on_old_devices() -> None:
    assert sizes_for(np.dtype("f8"), 48 << 10) is None


def key(value: Any) -> int:
    """By NumPy's own order: the key of -0.0 is that of 0.0."""
    value = value + 0 if value.dtype.kind == "f" else value
    bits = 8 * value.dtype.itemsize
    word = int(value.view(f"u{value.dtype.itemsize}"))
    sign = 1 << (bits - 1)
    if value.dtype.kind in "bu":
        return word
    if value.dtype.kind == "i":
        return word ^ sign
    return (2 * sign - 1) ^ word if word & sign else word | sign


@pytest.mark.parametrize("dtype", DTYPES)
def test_keys_order_as_elements_do(dtype: str) -> None:
    kind = np.dtype(dtype)
    if kind.kind == "b":
        values = np.array([False, True])
    elif kind.kind == "f":
        with np.errstate(over="ignore"):
            values = np.concatenate([make(300) for make in FLOATS.values()]).astype(kind)
    else:
        values = np.concatenate([make(300, dtype) for make in INTEGERS.values()])
    keys = np.array([key(value) for value in values], np.uint64)
    selected = values.astype(selected_dtype(kind))
    np.testing.assert_array_equal(from_keys(keys, kind), selected)
    order = np.argsort(keys, kind="stable")
    assert (selected[order] == np.sort(selected)).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_digits_make_up_a_key(dtype: str) -> None:
    below = 8 * np.dtype(dtype).itemsize
    for shift, bits in digits(np.dtype(dtype)):
        assert shift + bits == below
        assert 0 < bits <= 11
        below = shift
    assert below == 0
