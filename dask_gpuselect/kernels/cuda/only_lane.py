"""Quantiles of a small array by one launch and one wait. The host side of ``only_lane.cu``."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.companions import Accompanied, Several
from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.candidates import most_selected
from dask_gpuselect.kernels.cuda.launch import Array, launch_together
from dask_gpuselect.kernels.cuda.moments import N_SUMS
from dask_gpuselect.maths.lane_cuts import ElementOrder

# Bytes read, over all digits, up to which this is faster than a sample and the steps after it:
# arrays of 2^25 float32, or 2^23 float64.
MOST_READ = 3 << 27
MOST_DIGITS = 6  # digits of elements of 8 bytes
SHARED = source.record("only_lane.cu", "OnlyShared")
RESULTS = source.record("only_lane.cu", "OnlyTold")
BOX_RESULTS = source.record("only_box.cu", "BoxFound")
MOST_LISTED = 1024  # fliers of a side that ``only_box.cu`` lists
BOX_BYTES = BOX_RESULTS.itemsize + 8 * N_SUMS + 2 * MOST_LISTED * 8
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
    started = Started.of(values, question)
    if started is None:
        return None
    answers = cupy.empty(question.n_answers, question.dtype)
    started.start(answers.data.ptr)
    with started.room.if_it_ends():
        cupy.cuda.get_current_stream().synchronize()
    return answers if started.is_complete() else None


class Started:
    """The kernel that answers a question about an array, and finds the elements of more ranks."""

    def __init__(self, values: Array, question: ElementOrder, record: Any, n_ranks: int) -> None:
        self._values, self._question = values, question
        self._record, self._n_ranks = record, n_ranks
        self.room = _room_here()

    @classmethod
    def of(
        cls, values: Array, question: ElementOrder, more: tuple[int, ...] = ()
    ) -> Started | None:
        """Prepare the kernel; None where it cannot answer, as far as that is known before."""
        if isinstance(values, Accompanied | Several):
            return None
        is_dense = values.flags.c_contiguous or values.flags.f_contiguous
        n_digits = len(source.digits(np.dtype(values.dtype)))
        if not is_dense or not 0 < n_digits * values.nbytes <= MOST_READ:
            return None
        wanted = wanted_of(question, values.size, more)
        return None if wanted is None else cls(values, question, *wanted)

    def start(self, answers: int) -> None:
        """Start the kernel, which writes the answers to an address."""
        values, room = self._values, self.room
        blocks = -(-values.nbytes // (source.SELECT_THREADS * BYTES_EACH))
        made = (*source.answered(self._question), ("ONLY_MOST", len(self._record["ranks"])))
        places = (room.totals, room.shared, room.results_at, answers)
        arguments = (values.data.ptr, self._record, *places)
        how: dict[str, Any] = {"blocks": blocks, "defined": made}
        shared = source.select_memory(self._n_ranks)
        with room.if_it_ends():
            launch_together(np.dtype(values.dtype), "only_lane", arguments, shared, **how)

    def is_complete(self) -> bool:
        """Return, after the kernel has ended, whether the answers are those of all elements."""
        results = self.room.results
        return not (results["n_missing"] or results["flags"]["too_wide"])


class _Room:
    """Device memory in which blocks count, and host memory in which they return what they find."""

    def __init__(self) -> None:
        n_counts = MOST_DIGITS * (source.ONLY_MADE[-1] << source.DIGIT)
        n_words = n_counts + SHARED.itemsize // 8
        self.zeros = cupy.zeros(n_words + BOX_BYTES // 8, np.uint64)
        self.totals = self.zeros.data.ptr
        self.shared = self.totals + 8 * n_counts
        self.box = np.uint64(self.totals + 8 * n_words)
        self.pinned = cupy.cuda.alloc_pinned_memory(BOX_BYTES + RESULTS.itemsize)
        self.box_results = np.frombuffer(self.pinned, np.uint8, BOX_BYTES)
        self.box_results_at = np.uint64(self.pinned.ptr)
        self.results = np.frombuffer(self.pinned, RESULTS, 1, BOX_BYTES).reshape(())
        self.results_at = self.pinned.ptr + BOX_BYTES

    @contextmanager
    def if_it_ends(self) -> Iterator[None]:
        """Give the room up after an error: its contents are undefined then."""
        try:
            yield
        except BaseException:
            vars(_rooms).pop(cupy.cuda.Device().id, None)
            raise


_rooms = threading.local()
"""The rooms of each thread, by the number of their device."""


def _room_here() -> _Room:
    """Return the room of this thread and device, which is made once: 2.4 MB."""
    rooms, device = vars(_rooms), cupy.cuda.Device().id
    if device not in rooms:
        rooms[device] = _Room()
        cupy.cuda.get_current_stream().synchronize()  # for calls in other streams
    room: _Room = rooms[device]
    return room


@lru_cache  # cached, because arrays of one size are asked repeatedly
def wanted_of(question: ElementOrder, n: int, more: tuple[int, ...]) -> tuple[Any, int] | None:
    """Describe the wanted ranks of n elements, and return their number; None if too many.

    The elements of the ranks in `more` follow the answers.
    """
    n_answers = question.n_answers + len(more)
    if not 0 < n_answers <= source.ONLY_MADE[-1]:
        return None
    ranks_and_weights = question.wanted_of_lanes(np.array([n]))
    own = (np.broadcast_to(each, (question.n_answers, 1))[:, 0] for each in ranks_and_weights)
    lower, upper, weight = (np.concatenate([each, np.zeros(len(more), each.dtype)]) for each in own)
    lower[question.n_answers :] = upper[question.n_answers :] = more
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
