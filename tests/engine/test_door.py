"""Every chunk comes through one door: what it is has to be what its array says."""

from __future__ import annotations

import itertools
import pickle
import re
from collections.abc import Callable
from typing import Any

import array_api_strict as xp
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

from dask_gpuselect import median, quantile, sort, sort_by
from dask_gpuselect.engine import door
from dask_gpuselect.engine.marks import marks_of
from dask_gpuselect.kernels.companions import Accompanied
from dask_gpuselect.kernels.fingerprints import begun_fingerprint, ended_fingerprints
from dask_gpuselect.neighbors import KNeighborsRegressor, NearestNeighbors, kneighbors
from dask_gpuselect.robust import LeastMedianOfSquares, LeastTrimmedSquares
from tests.backends import Backend
from tests.data import hashed
from tests.graphs import of_sources

entered = of_sources(door.entered)

X = hashed(np.arange(60)).reshape(30, 2)
Y = hashed(np.arange(30) + 100)


def declared(chunk: Any, dtype: str = "f8", shape: tuple[int, ...] = (4,)) -> da.Array:
    """Two chunks, the second of which is what is given."""

    def read(block: NDArray[Any], block_id: tuple[int, ...]) -> Any:
        return chunk if block_id[0] else block

    zeros = da.zeros((2 * shape[0], *shape[1:]), chunks=shape, dtype=dtype)
    return zeros.map_blocks(read, dtype=dtype, meta=zeros._meta)


# --------------------------------------------------------------------------------------------------
# What is declared, and what comes
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunk", "dtype", "error", "message"),
    [
        (np.zeros(3), "f8", ValueError, r"has shape \(3,\), but its array says \(4,\)"),
        (np.zeros((4, 1)), "f8", ValueError, r"has shape \(4, 1\), but its array says \(4,\)"),
        (np.ma.masked_equal([0, 1, 2, 3], 1), "i8", TypeError, "masked arrays are not supported"),
        ([0, 0, 0, 0], "f8", TypeError, "is of type list, which is not supported"),
        (None, "f8", TypeError, "is of type NoneType, which is not supported"),
    ],
)
def test_the_chunk_is_named(chunk: Any, dtype: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        median(declared(chunk, dtype)).compute(scheduler="sync")
    assert "chunk (1,)" in str(caught.value)


@pytest.mark.parametrize(
    ("dtype", "declares"),
    [
        *(("f8", "f4"), ("f4", "f2"), ("f8", "i8"), ("i8", "i4"), ("u8", "i8"), ("i4", "u8")),
        *(("i4", "?"), ("c16", "f8"), ("M8[ns]", "M8[s]"), ("m8[s]", "i8"), ("i8", "M8[s]")),
        *(("O", "f8"), ("U8", "f8")),
    ],
)
def test_another_dtype(backend: Backend, dtype: str, declares: str) -> None:
    x = declared(backend.asarray(np.arange(4).astype(dtype)), declares)
    message = f"chunk (1,) has dtype {np.dtype(dtype)}, but its array says {np.dtype(declares)}"
    with pytest.raises(TypeError, match=re.escape(message)):
        quantile(x, 0.5, method="lower").compute(scheduler="sync")


def test_the_array_is_named() -> None:
    with pytest.raises(ValueError, match=r"chunk \(1, 0\) of Q has shape \(3, 2\), .* \(4, 2\)"):
        kneighbors(X, declared(np.zeros((3, 2)), shape=(4, 2)), 1)[0].compute(scheduler="sync")


def test_sizes_that_are_not_known_are_not_compared(backend: Backend) -> None:
    x = backend.mapped(da.from_array(np.arange(10.0), chunks=4))
    few = x[x > 2]
    # Dask takes what a mask selects of one dimension for NumPy's, whatever the chunks are.
    assert float(median(few).compute(scheduler="sync")) == 6
    table = declared(np.zeros((3, 5)), shape=(4, 5))
    table._chunks = ((np.nan, np.nan), (5,))
    assert entered(table).compute(scheduler="sync").shape == (7, 5)
    wrong = declared(np.zeros((3, 6)), shape=(4, 5))
    wrong._chunks = table.chunks
    with pytest.raises(ValueError, match=r"has shape \(3, 6\), but its array says \(\?, 5\)"):
        entered(wrong).compute(scheduler="sync")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([2**53 + 1, 1, 2, 3]), "f8"),
        (np.array([2**63 - 1, 1, 2, 3]), "f8"),
        (np.array([2**64 - 1, 1, 2, 3], "u8"), "f8"),
        (np.array(["9999-01-01"] * 4, "M8[s]"), "M8[ns]"),
    ],
)
def test_what_would_be_rounded_or_wrapped_is_refused(values: NDArray[Any], dtype: str) -> None:
    """NumPy calls these casts safe."""
    with pytest.raises(TypeError, match=rf"chunk \(1,\) has dtype {values.dtype.name[:3]}.* says"):
        entered(declared(values, dtype)).compute(scheduler="sync")


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([-(2**63), 2**53, 2, 3]), "f8"),
        (np.array([2**63, 1, 2, 3], "u8"), "f8"),
        (np.array([1, 2, 3, 4], "i2"), "f4"),
        (np.array(["2000-01-01", "NaT"] * 2, "M8[s]"), "M8[ns]"),
        (np.array([1, 2, 3, 4], ">f4"), "f8"),
    ],
)
def test_what_stays_the_same_is_converted(values: NDArray[Any], dtype: str) -> None:
    chunk = entered(declared(values, dtype)).blocks[1].compute(scheduler="sync")
    assert type(chunk) is np.ndarray
    assert chunk.dtype == dtype
    np.testing.assert_array_equal(chunk, values.astype(dtype))


def test_strings_of_any_length_go_along() -> None:
    x = declared(np.array(["a", "bcd", "ef", "g"]), "U1")
    key = da.from_array(np.arange(8.0)[::-1], chunks=4)
    names = sort_by(key, x)[1].compute(scheduler="sync")
    assert names[:4].tolist() == ["g", "ef", "bcd", "a"]


def test_once_is_enough() -> None:
    assert entered(entered(key := da.zeros(10, chunks=5))).name == entered(key).name


@pytest.mark.legacy
def test_a_name_is_no_check() -> None:
    x = da.from_array(np.arange(4), chunks=2).map_blocks(
        lambda block: block + 0.5, dtype="i8", name="checked-by-me"
    )
    with pytest.raises(TypeError, match="has dtype float64, but its array says int64"):
        median(x).compute(scheduler="sync")


# --------------------------------------------------------------------------------------------------
# Kinds of arrays
# --------------------------------------------------------------------------------------------------


class COO:
    """As arrays of `sparse` are: with a namespace, and without DLPack."""

    shape, ndim, dtype, size = (4,), 1, np.dtype("f8"), 4

    def __array_namespace__(self, *_: Any, **__: Any) -> Any:
        return np

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Cannot convert a sparse array to dense automatically")


@pytest.mark.parametrize("function", [median, sort, lambda a: kneighbors(a, a, 1)])
def test_what_only_seems_to_be_an_array(function: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=rf"arrays of type {__name__}.COO are not supported"):
        function(COO())


def test_chunks_that_only_seem_to_be_arrays() -> None:
    with pytest.raises(
        TypeError, match=rf"chunk \(1,\) is of type {__name__}.COO, which is not supported"
    ):
        median(declared(COO())).compute(scheduler="sync")


def test_chunks_of_the_array_api() -> None:
    x = declared(xp.asarray([1.0, 2.0, 3.0, 4.0]))
    assert float(quantile(x.blocks[1], 0.5).compute(scheduler="sync")) == 2.5


# --------------------------------------------------------------------------------------------------
# Masks
# --------------------------------------------------------------------------------------------------


def masked(a: NDArray[Any]) -> da.Array:
    """An array that does not say that it is masked."""
    chunks = (15, *a.shape[1:])
    hidden = da.from_array(a, chunks=chunks)
    return hidden.map_blocks(lambda b: np.ma.masked_greater(b, 0.5), dtype="f8", meta=a[:0])


PLAIN = np.ma.masked_greater(X, 0.5)
LAZY = da.from_array(PLAIN)
ROWS: dict[str, Callable[[], Any]] = {
    "hidden": lambda: kneighbors(masked(X), X, 2)[0].compute(),
    "plain": lambda: kneighbors(PLAIN, X, 2),
    "declared": lambda: kneighbors(LAZY, X, 2),
    "hidden targets": lambda: KNeighborsRegressor().fit(X, masked(Y)),
    "plain neighbours": lambda: NearestNeighbors().fit(PLAIN),
    **{
        f"{estimator.__name__}, {name}": lambda make=estimator, rows=rows, y=y: make().fit(rows, y)
        for estimator in (LeastTrimmedSquares, LeastMedianOfSquares, KNeighborsRegressor)
        for name, rows, y in (
            ("rows", PLAIN, Y), ("targets", X, PLAIN[:, 0]), ("declared rows", LAZY, Y)
        )
    },
}  # fmt: skip
"""Masked rows. `test_every_load` has more of those that are hidden in chunks."""


@pytest.mark.parametrize("case", ROWS)
def test_masked_rows(case: str) -> None:
    """The advice is of rows: there is no nan function for them."""
    with pytest.raises(
        TypeError, match=r"masked arrays are not supported.* leave out th"
    ) as caught:
        ROWS[case]()
    assert "nan function" not in str(caught.value)


# --------------------------------------------------------------------------------------------------
# Fingerprints
# --------------------------------------------------------------------------------------------------


either = pytest.mark.parametrize("ordered", [True, False])


def fingerprint(chunk: Any, *, ordered: bool = True) -> int:
    return int(marks_of([chunk], ordered=ordered)[0])


@either
def test_a_fingerprint_is_of_the_elements_and_not_of_their_memory(
    backend: Backend, *, ordered: bool
) -> None:
    values = hashed(np.arange(5 * 7 * 3)).reshape(5, 7, 3)
    known = fingerprint(backend.asarray(values), ordered=ordered)
    other = backend.asarray(np.ascontiguousarray(values.transpose(2, 0, 1))).transpose(1, 2, 0)
    wide = backend.asarray(np.repeat(values, 2, axis=1))
    back = backend.asarray(np.ascontiguousarray(values[:, ::-1]))
    assert {*marks_of([other, wide[:, ::2], back[:, ::-1]], ordered=ordered)} == {known}
    assert 0 <= known < 1 << 64


def changed(values: NDArray[Any], *places: int) -> NDArray[Any]:
    """The highest bit of elements, which a multiplication leaves alone, is another."""
    copy = values.copy()
    word = copy.view(f"u{copy.itemsize}")
    word[[*places]] ^= word.dtype.type(1 if values.dtype == bool else 1 << 8 * copy.itemsize - 1)
    return copy


@either
@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f2", "f4", "f8", "i8"])
def test_every_change_of_an_element_changes_the_fingerprint(
    backend: Backend, dtype: str, *, ordered: bool
) -> None:
    def mark(values: NDArray[Any]) -> int:
        return fingerprint(backend.asarray(values), ordered=ordered)

    for n, places in ((75, range(75)), (100_000, (0, 50_000, 99_999))):
        values = (hashed(np.arange(n)) * 100 % (2 if dtype == "?" else 100)).astype("i8")
        values = values.astype(dtype)
        known = mark(values)
        marks = [mark(changed(values, i)) for i in places]
        assert known not in marks
        assert not ordered or len({*marks}) == len(marks)
        table = values.reshape(25, -1)
        assert len({known, mark(table), mark(values[1:]), mark(values[:0])}) == 4
        others = [mark(a) for a in (np.roll(values, 3), values[::-1].copy(), np.sort(values))]
        assert ({known} == {*others}) is not ordered
        others = [mark(a.copy()) for a in (table[::-1, ::-1], table.T.copy().reshape(25, -1))]
        assert ({mark(table)} == {*others}) is not ordered


def test_elements_in_any_order_keep_their_companions(backend: Backend) -> None:
    """A mask, weights and labels that change places with each other are noticed."""
    n = 1000
    order = np.argsort(hashed(np.arange(n) + 7))
    arrays = {
        "values": hashed(np.arange(n)).astype("f4"),
        "keeps": np.arange(n) % 3 > 0,
        "weights": np.arange(n) / 8,
        "labels": np.arange(n) // 100,
    }
    for names in ("keeps",), ("weights",), ("labels",), ("keeps", "weights", "labels"):

        def mark(*moved: str, names: tuple[str, ...] = names) -> int:
            own = {
                name: backend.asarray(arrays[name][order] if name in moved else arrays[name])
                for name in ("values", *names)
            }
            return fingerprint(Accompanied(**own), ordered=False)

        known = mark()
        assert mark("values", *names) == known
        assert known not in {mark("values"), *map(mark, names)}


def test_fingerprints_that_have_begun(backend: Backend) -> None:
    """They end as they would at once, here or in another process, in any order."""
    chunks = [backend.asarray(hashed(np.arange(n)).astype("u1")) for n in (75, 0, 3, 16)]
    wanted = [fingerprint(chunk) for chunk in chunks]
    begun = [begun_fingerprint(chunk) for chunk in chunks]
    assert ended_fingerprints([*begun, 7]) == [*wanted, 7]
    free = [begun_fingerprint(chunk, ordered=False) for chunk in chunks]
    assert ended_fingerprints(free) == [fingerprint(chunk, ordered=False) for chunk in chunks]
    assert pickle.loads(pickle.dumps(begun)) == wanted
    assert ended_fingerprints([]) == []


def test_two_changes_do_not_undo_each_other(backend: Backend) -> None:
    values = hashed(np.arange(48))
    pairs = [(), *itertools.combinations(range(48), 2)]
    marks = {fingerprint(backend.asarray(changed(values, *pair))) for pair in pairs}
    assert len(marks) == len(pairs)
