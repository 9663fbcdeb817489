"""`trimmed_mean` against its definition, and what it promises of reads and memory."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import explain
from dask_gpuselect.maths.exact_sums import ExactSums
from dask_gpuselect.maths.moments import means
from dask_gpuselect.robust import nantrimmed_mean, trimmed, trimmed_mean
from tests.data import uniform
from tests.features.test_boxplot import Shaped
from tests.limits import limited
from tests.matrix import definitions
from tests.oracle import check
from tests.sources import Source


def defined(a: NDArray[Any], cut: float, *, name: str = "trimmed_mean") -> Any:
    slot = definitions.Slot(a.ravel(), None, 0)
    return definitions.trimmed_mean(name, slot, a.dtype, proportiontocut=cut)


def defined_along(a: NDArray[Any], cut: float, axis: int) -> NDArray[Any]:
    return np.array([defined(lane, cut) for lane in np.moveaxis(a, axis, -1)])


# --- Values ---------------------------------------------------------------------------------------


def test_means_are_rounded_once() -> None:
    """A float64 halfway between two float32 does not tell which of them is nearer."""
    total = ExactSums.of(np.zeros(2, np.int64), 1, np.array([2.0 + 2.0**-23, 2.0**-60]))
    (found,) = means(np.array([2]), total, np.dtype("f4"))
    assert found == np.float32(1 + 2.0**-23)
    (nothing,) = means(np.array([0]), ExactSums.zeros((1,)), np.dtype("f8"))
    assert np.isnan(nothing)


# --- NaN, infinity, nothing -----------------------------------------------------------------------


@pytest.mark.parametrize("is_lazy", [False, True])
def test_nothing(is_lazy: bool) -> None:
    def ask(function: Any, a: NDArray[Any], **how: Any) -> Any:
        x = da.from_array(a, chunks=2) if is_lazy else a
        found = function(x, 0.1, **how)
        return found.compute() if is_lazy else found

    with pytest.warns(RuntimeWarning, match="Mean of empty slice") as told:
        assert np.isnan(ask(trimmed_mean, np.empty(0)))
    assert len(told) == 1
    for how in ({}, {"axis": 0}):
        with pytest.warns(RuntimeWarning, match="All-NaN slice") as told:
            assert np.isnan(ask(nantrimmed_mean, np.full(4, np.nan), **how))
        assert len(told) == 1
        with pytest.warns(RuntimeWarning, match="All-NaN slice"):
            assert np.isnan(ask(trimmed_mean, np.ones(4), where=np.zeros(4, bool), **how))


# --- Reads, and what is gathered ------------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, (0, 2), (1, 2)])
def test_pieces_of_lanes(axis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes are clipped and summed piece by piece, in the order of the answer."""
    a = uniform(9 * 10 * 11).reshape(9, 10, 11)
    wanted = trimmed_mean(a, 0.2, axis)
    monkeypatch.setattr(trimmed, "PIECE", 200)
    check(trimmed_mean(a, 0.2, axis), wanted)
    check(trimmed_mean(da.from_array(a, chunks=(4, 3, 11)), 0.2, axis).compute(), wanted)


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("shape", ["uniform", "few values"])
def test_reads_of_all_elements(shape: str) -> None:
    spread = {"uniform": lambda u: u, "few values": lambda u: np.floor(u * 20)}[shape]
    source = Shaped(200_000, spread)
    lazy = trimmed_mean(source.lazy(20_000), 0.1)
    assert not source.loads
    check(lazy.compute(scheduler="sync"), defined(source.whole(), 0.1))
    assert set(source.loads.values()) == {2}


def test_reads_along_an_axis() -> None:
    """Once; and once more than quantiles, if columns are read in passes."""
    source = Source((600, 40))
    x = source.lazy((50, 20))
    wanted = defined_along(source.values((slice(None),) * 2), 0.1, 0)
    check(trimmed_mean(x, 0.1, 0).compute(scheduler="sync"), wanted)
    assert set(source.loads.values()) == {1}
    with limited(22_000):
        source.counts.clear()
        found = trimmed_mean(x, 0.1, 0)
        assert any("clipped" in layer for layer in found.dask.layers)
        check(found.compute(scheduler="sync"), wanted)
        assert set(source.loads.values()) == {explain(x, [0.1, 0.9], axis=0).loads + 1}
