"""Counts of the values of many lanes say what looking at their elements would."""

from __future__ import annotations

import numpy as np

from dask_gpuselect.kernels.cpu import groups as compiled
from dask_gpuselect.kernels.reference import groups as reference

DTYPES = ("i1", "u1", "i2", "u2", "f2")


def test_the_kernel_is_the_references() -> None:
    random = np.random.default_rng(0)
    for kind, n_words in ((np.uint8, 256), (np.uint16, 1 << 16)):
        parts = [
            (random.integers(0, n_words, n).astype(kind), random.integers(-1, 5, n).astype("i4"))
            for n in (0, 1, 1000)
        ]
        found, wanted = (each.value_counts(parts, 5, n_words) for each in (compiled, reference))
        np.testing.assert_array_equal(found, wanted)
        assert found.dtype == wanted.dtype
