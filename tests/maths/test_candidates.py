"""Elements at places, of candidates on the host."""

from __future__ import annotations

import numpy as np
import pytest

from dask_gpuselect.maths.candidates import FEW_PLACES, HostCandidates, partitioned
from tests.data import FLOATS, make


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "u4", "i2", "u1"])
@pytest.mark.parametrize("n", [1, 2, 3, 100, 20_001])
@pytest.mark.parametrize("n_places", [0, 1, 2, 7, FEW_PLACES, FEW_PLACES + 1, 60])
def test_elements_at(n: int, n_places: int, dtype: str) -> None:
    """Any places, in any order and with repetitions; the candidates stay as they are."""
    rng = np.random.default_rng([n, n_places])
    values = (rng.standard_normal(n) * 50).astype(dtype if dtype[0] != "u" else "i8").astype(dtype)
    places = np.append(rng.integers(0, n, n_places), [n - 1, 0])[:n_places]
    kept = values.copy()
    found = HostCandidates(values).elements_at(places)
    np.testing.assert_array_equal(found, np.sort(values)[places])
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(values, kept)


@pytest.mark.parametrize("name", FLOATS)
def test_partitioned(name: str) -> None:
    """In place, and into what is less and what is more."""
    values = make(name, "f8", 3000)
    places = np.array([0, 1, 17, 1500, 1501, 2999])
    ordered = partitioned(values, places)
    assert ordered is values
    for place in places:
        assert (values[:place] <= values[place]).all()
        assert (values[place:] >= values[place]).all()
    np.testing.assert_array_equal(np.sort(values), np.sort(make(name, "f8", 3000)))
