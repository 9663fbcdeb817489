"""Quantiles of a small array by one launch and one wait. The host side of ``only_lane.cu``."""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.candidates import most_selected
from dask_gpuselect.kernels.cuda.launch import Array, launch_together
from dask_gpuselect.maths.lane_cuts import ElementOrder

# Bytes read, over all digits, up to which this is faster than a sample and the steps after it:
# arrays of 2^25 float32, or 2^23 float64.
MOST_READ = 3 << 27
MOST_DIGITS = 6  # digits of elements of 8 bytes
SHARED = source.record("only_lane.cu", "OnlyShared")
TOLD = source.record("only_lane.cu", "OnlyTold")
BYTES_EACH = 64  # bytes for a thread: with fewer, some blocks would have no elements


def answer_only_lane(values: Array, question: ElementOrder) -> Array | None:
    """Answer a question about all elements, ``(n_answers,)``, on the device.

    See `reference.lanes.answer_only_lane`.

    Notes
    -----
    Reads the array once for each digit: 3 times for elements of 4 bytes, 6 for 8. None for large
    arrays, arrays with gaps, more than 24 ranks, arrays with missing elements, and integers beyond
    2**53 between which the answers interpolate.
    """
    dtype = np.dtype(values.dtype)
    is_dense = values.flags.c_contiguous or values.flags.f_contiguous
    n_digits = len(source.digits(dtype))
    if not is_dense or not 0 < n_digits * values.nbytes <= MOST_READ:
        return None
    wanted = _wanted(question, values.size)
    if wanted is None:
        return None
    record, n_ranks = wanted
    most = len(record["ranks"])
    blocks = -(-values.nbytes // (source.SELECT_THREADS * BYTES_EACH))
    answers = cupy.empty(question.n_answers, question.dtype)
    made = (*source.answered(question), ("ONLY_MOST", most))
    room = _ROOMS.here()
    arguments = (values.data.ptr, record, room.totals, room.shared, room.told_at, answers.data.ptr)
    how: dict[str, Any] = {"blocks": blocks, "defined": made}
    shared = source.select_memory(n_ranks)
    try:
        launch_together(dtype, "only_lane", arguments, shared, **how)
        cupy.cuda.get_current_stream().synchronize()
    except BaseException:
        _ROOMS.leave()  # after an error, its contents are undefined
        raise
    told = room.told
    return None if told["n_missing"] or told["flags"]["too_wide"] else answers


class _Room:
    """Device memory in which blocks count, and host memory in which they return flags."""

    def __init__(self) -> None:
        n_counts = MOST_DIGITS * (source.ONLY_MADE[-1] << source.DIGIT)
        self.zeros = cupy.zeros(n_counts + SHARED.itemsize // 8, np.uint64)
        self.totals = self.zeros.data.ptr
        self.shared = self.totals + 8 * n_counts
        self.pinned = cupy.cuda.alloc_pinned_memory(TOLD.itemsize)
        self.told = np.frombuffer(self.pinned, TOLD, 1)[0:1].reshape(())
        self.told_at = self.pinned.ptr


class _Rooms(threading.local):
    """One `_Room` for each thread and device, made once: 2.4 MB."""

    def __init__(self) -> None:
        self.by_device: dict[int, _Room] = {}

    def here(self) -> _Room:
        device = cupy.cuda.Device().id
        room = self.by_device.get(device)
        if room is None:
            room = self.by_device[device] = _Room()
            cupy.cuda.get_current_stream().synchronize()  # for calls in other streams
        return room

    def leave(self) -> None:
        self.by_device.pop(cupy.cuda.Device().id, None)


_ROOMS = _Rooms()


@lru_cache  # cached, because arrays of one size are asked repeatedly
def _wanted(question: ElementOrder, n: int) -> tuple[Any, int] | None:
    """Describe the wanted ranks of n elements, and return their number; None if too many."""
    n_answers = question.n_answers
    if not 0 < n_answers <= source.ONLY_MADE[-1]:
        return None
    found = question.wanted_of_lanes(np.array([n]))
    lower, upper, weight = (np.broadcast_to(each, (n_answers, 1))[:, 0] for each in found)
    ranks = np.unique(np.concatenate([lower, upper]))
    most = next((n for n in source.ONLY_MADE if n >= max(len(ranks), n_answers)), None)
    if most is None or len(ranks) > most_selected():
        return None
    wanted = np.zeros((), source.record("only_lane.cu", "OnlyWanted", ONLY_MOST=most))
    wanted["n"], wanted["n_ranks"], wanted["n_answers"] = n, len(ranks), n_answers
    wanted["ranks"][: len(ranks)], wanted["weights"][:n_answers] = ranks, weight
    wanted["lower"][:n_answers] = np.searchsorted(ranks, lower)
    wanted["upper"][:n_answers] = np.searchsorted(ranks, upper)
    wanted["mixes"] = question.mixes
    return wanted, len(ranks)
