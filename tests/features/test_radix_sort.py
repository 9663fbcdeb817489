"""The distributed radix sort: the scans, the keys, the sorted array and its box plot."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client
from numpy.typing import NDArray

from dask_gpuselect import describe_boxplot
from dask_gpuselect.kernels import radix
from dask_gpuselect.maths.scans import cut_positions
from dask_gpuselect.sorting import sorted_boxes
from dask_gpuselect.sorting.radix_sort import radix_sort
from dask_gpuselect.sorting.sorted_boxes import describe_sorted
from tests.backends import Backend
from tests.data import MISSING, hashed, normal, uniform
from tests.features.test_sorting import UNEVEN, N
from tests.sources import Source
from tests.spies import noted

pytestmark = pytest.mark.usefixtures("in_this_thread")


def check_sorted(actual: da.Array, values: NDArray[Any], backend: Backend) -> None:
    computed = actual.compute()
    assert type(computed) is backend.array_type
    assert computed.dtype == actual.dtype
    expected = np.sort(values, axis=None)
    host = backend.to_numpy(computed)
    np.testing.assert_array_equal(host, expected, strict=False)
    if values.dtype.kind == "f":
        assert not np.signbit(host[host == 0]).any()


# --- The scans ------------------------------------------------------------------------------------


def test_positions_beyond_32_bits() -> None:
    half = 3 << 40
    cuts = cut_positions(np.array([[half, half], [half, half]]))
    assert cuts is not None
    # All of the first value go to the first chunk.
    assert cuts.tolist() == [[0, half, 2 * half]] * 2


# --- The sort -------------------------------------------------------------------------------------


CHUNKS: dict[str, Any] = {
    "one": N,
    "uneven": (UNEVEN,),
    "many": 25,  # more than a merge takes
    "ascending": ((1, 2, 4, 8, 16, 970),),
}


@pytest.mark.parametrize(
    ("shape", "chunks"), [((), ()), ((0,), (5,)), ((0, 3), (2, 2)), ((6, 7), (4, 3))]
)
def test_any_shape(backend: Backend, shape: tuple[int, ...], chunks: Any) -> None:
    values = normal(int(np.prod(shape))).reshape(shape)
    x = backend.held(values, chunks) if shape else da.from_array(backend.asarray(values))
    result = radix_sort(x)
    assert result.shape == (values.size,)
    sizes = [block.size for block in dask.compute(*x.to_delayed().ravel())]
    assert list(result.chunks[0]) == sizes
    check_sorted(result, values, backend)


def test_a_chunk_that_is_a_scalar() -> None:
    """Reductions of dask's make them."""
    assert radix_sort(da.ones(10, chunks=3).sum()).compute().tolist() == [10.0]


def test_calling_computes_nothing_and_each_chunk_is_loaded_once() -> None:
    source = Source((N,))
    x = source.lazy(300)
    result = radix_sort(x)
    box = describe_sorted(result)
    assert source.loads == {}
    ordered, (described,) = dask.compute(result, [box])
    np.testing.assert_array_equal(ordered, np.sort(source.whole()))
    assert described.med == np.median(source.whole())
    assert set(source.loads.values()) == {1}
    assert len(source.loads) == x.npartitions


def test_what_is_sorted_is_not_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ("by_digit", "joined", "count_digit")
    calls = [noted(monkeypatch, radix, name, lambda _, first, *others: first) for name in steps]
    values = np.sort(normal(N))
    x = da.from_array(values, chunks=(UNEVEN,))
    np.testing.assert_array_equal(radix_sort(x).compute(), values)
    assert calls == [[], [], []]
    values[0] = 5.0
    result = radix_sort(da.from_array(values, chunks=(UNEVEN,))).compute()
    np.testing.assert_array_equal(result, np.sort(values))
    assert all(calls)


def test_distributed(cluster_here: Client) -> None:
    values = normal(3000)
    x = cluster_here.persist(da.from_array(values, chunks=700))
    result = cluster_here.persist(radix_sort(x))
    (fliers,) = cluster_here.compute([describe_sorted(result).fliers_high], sync=True)
    ordered = cluster_here.compute(result, sync=True)
    np.testing.assert_array_equal(ordered, np.sort(values))
    box = describe_boxplot(values, max_fliers=values.size)[0]
    np.testing.assert_array_equal(np.sort(fliers), np.sort(box.fliers[box.n_low :]))


# --- Box plots of what is sorted ------------------------------------------------------------------

SHARED = ("n", "n_nan", "q1", "med", "q3", "iqr", "whislo", "whishi", "n_low", "n_high")


def check_box(ordered: da.Array, values: NDArray[Any], backend: Backend, whis: float = 1.5) -> None:
    # Of few types, for its kernels are compiled for each; the statistics are those of float64.
    wide = values.astype(np.float64 if values.dtype.kind == "f" else np.int64)
    expected = describe_boxplot(wide, whis=whis, max_fliers=values.size)[0]
    lazy = describe_sorted(ordered, whis)
    (actual,) = dask.compute(lazy)
    for name in SHARED:
        ours = getattr(actual, name)
        assert ours.dtype == getattr(lazy, name).dtype
        np.testing.assert_array_equal(ours, np.float64(getattr(expected, name)), err_msg=name)
        assert not (ours == 0 and np.signbit(ours)), name
    fliers = [backend.to_numpy(side) for side in (actual.fliers_low, actual.fliers_high[::-1])]
    np.testing.assert_array_equal(
        np.concatenate(fliers), expected.fliers.astype(values.dtype), strict=True
    )
    assert lazy.fliers_low.dtype == lazy.fliers_high.dtype == ordered.dtype


@pytest.mark.parametrize("whis", [0.0, 0.5, 3.0, np.inf])
@pytest.mark.parametrize("chunks", CHUNKS.values(), ids=CHUNKS)
def test_boxes_of_any_chunks(backend: Backend, whis: float, chunks: Any) -> None:
    values = MISSING["some nan"](N)
    check_box(backend.held(np.sort(values), chunks), values, backend, whis)


def test_boxes_of_what_was_sorted(backend: Backend) -> None:
    """Unknown sizes on the way, and fliers at both ends that are more than a chunk."""
    values = np.where(hashed(np.arange(N)) < 0.1, -1e9, normal(N))
    x = backend.held(values, 60)
    check_box(radix_sort(x[x < 1.0]), values[values < 1.0], backend)


def test_few_elements_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 16 chunks of 10,000: the ends of all, two for each quartile, and two searches."""
    values = np.where(uniform(160_000) < 0.03, np.nan, normal(160_000))
    lazy = describe_sorted(da.from_array(np.sort(values), chunks=10_000))
    places: list[int] = []
    read = sorted_boxes.elements_at

    def noted(array: Any, where: NDArray[np.int64]) -> NDArray[Any]:
        places.extend(where.tolist())
        return read(array, where)

    monkeypatch.setattr(sorted_boxes, "elements_at", noted)
    (box,) = dask.compute(lazy)
    assert box.n_low > 0
    assert box.n_high > 0
    steps = 14  # of a search in 10,000
    # The last element of a chunk twice, to see whether it is NaN; a third search for the first NaN.
    # Beside each search, the two elements at the fence, of every chunk.
    assert len(places) <= 5 * 16 + 6 + 3 * steps
