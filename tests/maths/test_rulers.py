"""Values at even steps, between which arithmetic tells where an element lies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect.kernels.reference import selection
from dask_gpuselect.maths.cuts import Brackets, IntArray, Tally
from dask_gpuselect.maths.rulers import Ruler, ruler_of

N = 20_001
rng = np.random.default_rng(5)
Z = rng.standard_normal(N)

FLOATS: dict[str, NDArray[Any]] = {
    "normal": Z,
    "far from zero": Z + 1e6,
    "lognormal": np.exp(3 * Z),
    "negative lognormal": -np.exp(3 * Z),
    "rounded": Z.round(2),
    "missing": np.where(Z > 1, np.nan, Z),
    "a few infinities": np.where(abs(Z) > 3, Z * np.inf, Z),
    "denormal": Z * 1e-310,
    "huge": Z * 1e307,
    "zeros of both signs": np.where(Z > 1.5, -0.0, np.where(Z > 1.4, 0.0, Z)),
    "around zero": np.concatenate([np.exp(9 * Z), -np.exp(9 * Z)]),
}
INTEGERS: dict[str, NDArray[Any]] = {
    "few": rng.integers(0, 300, N),
    "all": rng.integers(-(2**63), 2**63 - 1, N, dtype=np.int64),
    "unsigned": rng.integers(0, 2**64 - 1, N, dtype=np.uint64),
    "4 bytes": (Z * 1e5).astype(np.int32),
    "4 bytes, unsigned": rng.integers(0, 2**32 - 1, N, dtype=np.uint32),
}
SINGLE = {f"single {name}": a.astype(np.float32) for name, a in FLOATS.items() if name != "huge"}
DATA = FLOATS | SINGLE | INTEGERS


def ruler_for(values: NDArray[Any], most: float = 0.05) -> Ruler | None:
    """By the values themselves."""
    valid = np.sort(values[values == values])
    seen = np.unique(valid[::20])
    return ruler_of(seen, valid.searchsorted(seen, "right") / len(valid), most)


@pytest.fixture(params=DATA)
def data(request: pytest.FixtureRequest) -> NDArray[Any]:
    found: NDArray[Any] = DATA[request.param]
    return found


def measured(
    values: NDArray[Any], ruler: Ruler, brackets: Brackets
) -> tuple[Tally, IntArray, IntArray]:
    found = selection.tally_by_ruler(values, ruler, brackets, len(values))
    assert found is not None
    return found


def test_no_cell_holds_more_than_asked(data: NDArray[Any]) -> None:
    ruler = ruler_for(data)
    if ruler is None:
        return
    _, below, upto = measured(data, ruler, Brackets(data[:0], np.zeros(1, np.bool_)))
    n = np.count_nonzero(data == data)
    inside = np.append(below, n) - np.append(0, upto)
    assert inside.max() <= 0.05 * n * 1.1  # a twentieth of the elements has been looked at
    assert (ruler.bars[1:] >= ruler.bars[:-1]).all()
    assert ruler.bars.dtype == data.dtype


def test_one_value_has_none() -> None:
    assert ruler_of(np.array([3.0]), np.array([1.0]), 0.1) is None
    assert ruler_of(np.array([3, 4]), np.array([0.5, 1.0]), 0.1) is None
