"""Selection of the elements of some ranks among candidates: the host side of ``candidates.cu``."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.kernels.cuda import source
from dask_gpuselect.kernels.cuda.launch import Array, launch, most_shared, on_device
from dask_gpuselect.maths.cuts import IntArray
from dask_gpuselect.maths.keys import from_keys

# Up to this many wanted elements are selected, some of them together; for more, all are sorted.
# Selecting 6 of 2^24 float32 took 0.25 ms, sorting 0.53. The crossover was not measured.
FEW_PLACES = 48
SELECTION = source.record("candidates.cu", "Selection")


def most_selected() -> int:
    """Return the number of elements that this device can select together."""
    return source.most_selected(most_shared(cupy.cuda.Device().id))


def select_few(elements: Array, places: IntArray) -> tuple[dict[int, Any], int]:
    """Select the elements at up to `most_selected` places of the sorted array.

    Also returns the number of missing elements. If there are any, the elements may be wrong.
    """
    device_sheet = _start_few(elements, places)
    selection = device_sheet.get().view(SELECTION)[0]
    return selected(selection, len(places), elements.dtype), int(selection["n_missing"])


def _start_few(elements: Array, places: IntArray) -> Array:
    selection = np.zeros((), SELECTION)
    selection["n"] = elements.size
    selection["places"][: len(places)] = selection["ranks"][: len(places)] = places
    device_sheet = on_device(selection)
    start_selection(elements, np.uint64(device_sheet.data.ptr), len(places))
    return device_sheet


def select(elements: Array, places: IntArray) -> NDArray[Any]:
    """Select the elements at some places of the sorted array.

    Reads the array once for each digit of the keys: 3 times for elements of 4 bytes, 6 for 8.
    """
    started = []
    n_together = most_selected()
    for start in range(0, len(places), n_together):
        ranks = places[start : start + n_together]
        started.append((_start_few(elements, ranks), len(ranks)))
    parts: dict[int, Any] = {}
    for device_sheet, n_ranks in started:
        parts |= selected(device_sheet.get().view(SELECTION)[0], n_ranks, elements.dtype)
    return np.array([parts[place] for place in places.tolist()], elements.dtype)


def start_selection(elements: Array, selection: np.uint64, n_ranks: int) -> None:
    dtype = np.dtype(elements.dtype)
    totals = cupy.zeros(n_ranks << source.DIGIT, np.uint64)
    for shift, bits in source.digits(dtype):
        memory, numbers = source.select_memory(n_ranks), (n_ranks, shift, bits)
        launch(dtype, "select_digit", elements, selection, totals, *numbers, shared=memory)


def selected(selection: Any, n_ranks: int, dtype: np.dtype[Any]) -> dict[int, Any]:
    """Return the selected elements by their places."""
    places = selection["places"][:n_ranks].tolist()
    return dict(zip(places, from_keys(selection["prefixes"][:n_ranks], dtype), strict=True))
