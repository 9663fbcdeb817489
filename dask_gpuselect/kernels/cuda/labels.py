"""Labels in CuPy arrays: integers stay on the device, others are looked up on the host."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from dask_gpuselect.kernels.cuda.chunk import layout_in_order
from dask_gpuselect.kernels.cuda.launch import Array, coded, launch, on_device
from dask_gpuselect.kernels.reference import labels as reference
from dask_gpuselect.maths import labels as labels_
from dask_gpuselect.maths.labels import Labels

WIDEST = 1 << 26  # entries of a lookup table

_mark_labels = cupy.ElementwiseKernel(
    "T label, int64 least",
    "raw bool flags",
    """
    // Writes to one place wait for each other, and reads do not.
    long long place = (long long)((unsigned long long)label - (unsigned long long)least);
    if (!flags[place]) flags[place] = true;
    """,
    "dask_gpuselect_labels",
)


def distinct(labels: Array) -> Labels:
    """Return the distinct labels, ascending, on the host; see `reference.labels.distinct`."""
    if labels.dtype.kind not in "biu" or not labels.size:
        return reference.distinct(labels)
    given = labels.view(np.uint8) if labels.dtype.kind == "b" else labels
    least, largest = (int(each) for each in cupy.stack([given.min(), given.max()]).get())
    if largest - least >= WIDEST or largest > np.iinfo(np.int64).max:
        return labels_.distinct(cupy.unique(labels.ravel()).get())
    flags = cupy.zeros(largest - least + 1, np.bool_)
    _mark_labels(given, np.int64(least), flags)
    return (np.flatnonzero(flags.get()) + least).astype(labels.dtype)


def codes_among(labels: Array, names: Labels) -> Any:
    """Return the position of each label among `names`; see `reference.labels.codes_among`.

    The codes are on the device, in as few bytes as hold them. Labels for which there can be no
    table are looked up on the host, and their codes stay there.
    """
    are_integers = labels.dtype.kind in "biu" and names.dtype.kind in "biu"
    if not (are_integers and names.size and labels.size):
        return reference.codes_among(labels, names)
    least, largest = int(names.min()), int(names.max())
    if largest - least >= WIDEST or largest > np.iinfo(np.int64).max:
        return reference.codes_among(labels, names)
    table = np.full(largest - least + 1, -1, np.int32)
    table[names.astype(np.int64) - least] = np.arange(len(names))
    is_identity = np.array_equal(table, np.arange(len(table)))
    given = labels.view(np.uint8) if labels.dtype.kind == "b" else labels
    about = None, None if is_identity else on_device(table), least, len(table)
    return _codes(given, *about, dtype=np.min_scalar_type(-len(names)))


def masked_codes(codes: Array, keeps: Array) -> Array:
    """Replace the codes that are not in a mask by -1; see `reference.labels.masked_codes`."""
    most = int(np.iinfo(codes.dtype).max)
    return _codes(codes, cupy.ascontiguousarray(keeps), None, 0, most, dtype=codes.dtype)


def _codes(
    labels: Array, keeps: Array | None, table: Array | None, least: int, size: int, dtype: Any
) -> Array:
    """Start the kernel that finds the codes of labels."""
    codes = cupy.empty(labels.shape, dtype)
    given = labels, labels.size, layout_in_order(labels), keeps, table, least, size, codes
    if labels.size:
        launch(labels.dtype, "label_codes", *given, defined=coded(codes))
    return codes
