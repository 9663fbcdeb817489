"""Each chunk is changed at each load of every public function, in every way that we know: the
answer is that of one version of the data, or an error names the chunk."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

import dask_gpuselect
from dask_gpuselect import (
    Boxplot,
    argsort,
    describe_boxplot,
    digitize,
    median,
    quantile,
    quantile_bins,
    sort,
    sort_by,
)
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.groups import GroupBy, groupby
from dask_gpuselect.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    kneighbors,
)
from dask_gpuselect.robust import LeastMedianOfSquares, LeastTrimmedSquares, fitting, mad
from dask_gpuselect.sorting.radix_sort import radix_sort
from dask_gpuselect.sorting.sorted_boxes import describe_sorted
from dask_gpuselect.strategies import STRATEGIES
from dask_gpuselect.windows import median_filter, percentile_filter, rank_filter, rolling
from tests.calls import WITHOUT
from tests.data import cluster_at_the_fence, hashed, two_halves
from tests.matrix.cases import Counted
from tests.matrix.cases import _hidden as hidden
from tests.matrix.questions import QUESTIONS

Chunk = NDArray[Any]
Change = Callable[[Chunk, Chunk], Any]
N_CHUNKS = 3

# --------------------------------------------------------------------------------------------------
# Sources that change
# --------------------------------------------------------------------------------------------------


def first_as(value: Callable[[Chunk], Any]) -> Change:
    """One element becomes another."""

    def change(chunk: Chunk, other: Chunk) -> Chunk:
        changed = chunk.copy()
        changed.flat[chunk.size // 3] = value(chunk)
        return changed

    return change


def moved_within_a_cell(chunk: Chunk, other: Chunk) -> Chunk:
    """Two neighbours move, which no count at another element tells."""
    changed = chunk.copy()
    order = np.argsort(chunk, axis=None)
    i, j = order[chunk.size // 2 : chunk.size // 2 + 2]
    low, high = chunk.flat[i], chunk.flat[j]
    changed.flat[i], changed.flat[j] = low + (high - low) / 4, high - (high - low) / 4
    return changed


def doubled(chunk: Chunk, other: Chunk) -> Chunk:
    """The second half of the rows is the first one again."""
    changed = chunk.copy()
    half = len(chunk) // 2
    changed[-half:] = chunk[:half]
    return changed


WAYS: dict[str, Change] = {
    "longer": lambda chunk, other: np.concatenate([chunk, chunk[:1] + 0.5]),
    "shorter": lambda chunk, other: chunk[:-1],
    "empty": lambda chunk, other: chunk[:0],
    "reversed": lambda chunk, other: chunk[::-1],
    "rolled by a row": lambda chunk, other: np.roll(chunk, 1, axis=0),
    "a small element": first_as(lambda chunk: -1e6),
    "a large element": first_as(lambda chunk: 1e6),
    "an element inside": first_as(lambda chunk: np.nanmean(chunk)),
    "two neighbours": moved_within_a_cell,
    "next numbers": lambda chunk, other: np.nextafter(chunk, np.inf),
    "narrower floats": lambda chunk, other: chunk.astype(np.float32),
    "nan more": first_as(lambda chunk: np.nan),
    "nan less": lambda chunk, other: np.nan_to_num(chunk, nan=0.25),
    "other sign": lambda chunk, other: -chunk,
    "duplicates": doubled,
    "of another place": lambda chunk, other: other,
    # What the array does not say that it is:
    "complex": lambda chunk, other: chunk + 1j,
    "text": lambda chunk, other: chunk.astype("U3"),
    "masked": lambda chunk, other: np.ma.masked_greater(chunk, np.nanmean(chunk)),
    "another shape": lambda chunk, other: chunk[..., None],
    "no array": lambda chunk, other: chunk.tolist(),
}
A_FEW = ("shorter", "reversed", "an element inside", "two neighbours", "nan more")
REFUSED = {"complex", "text", "masked", "another shape", "no array"}


def changing(
    case: Case,
    way: str | None = None,
    at: int = 0,
    is_changed: Callable[[int], bool] = lambda load: True,
) -> tuple[da.Array, Counted]:
    """Make the lazy array of a case, of which one chunk is changed at some of its loads.

    Parameters
    ----------
    case : Case
    way : str, optional
        Of `WAYS`; nothing is changed without one.
    at : int
        The chunk.
    is_changed : callable
        Whether a load has the changed one, by its number from 1 on.
    """
    chunks = case.chunks()

    def changed(chunk: Chunk, place: Any, load: int) -> Any:
        i = place[0][0] // len(chunk)
        if way is None or i != at or not is_changed(load):
            return chunk
        return WAYS[way](chunk, chunks[(i + 1) % N_CHUNKS].copy())

    source = Counted(np.concatenate(chunks), changed)
    x = source.lazy(chunks[0].shape)
    return (x if case.is_known else hidden(x, x.ndim)), source


# --------------------------------------------------------------------------------------------------
# Every function
# --------------------------------------------------------------------------------------------------

Run = Callable[[da.Array], Any]


def thirds(x: da.Array) -> GroupBy:
    """Every third row."""
    return groupby(x, np.arange(x.shape[0]) % 3, 0)


@dataclass(frozen=True)
class Case:
    """A call.

    Parameters
    ----------
    run : callable
        From the lazy array to what is computed.
    loads : int
        Of every chunk, if nothing changes.
    shape : tuple of int
        Of a chunk.
    config : dict
        For dask.
    of : callable
        From numbers in [0, 1) to the elements.
    n_nan : int
        In each chunk.
    is_known : bool
        Whether sizes of chunks are.
    """

    run: Run
    loads: int
    shape: tuple[int, ...] = (40,)
    config: tuple[tuple[str, Any], ...] = ()
    of: Callable[[NDArray[np.float64]], NDArray[np.float64]] = lambda u: u
    n_nan: int = 0
    is_known: bool = True

    def chunks(self) -> list[Chunk]:
        size = int(np.prod(self.shape))
        made = []
        for i in range(N_CHUNKS):
            chunk = self.of(hashed(np.arange(size) + i * size))
            chunk[np.arange(self.n_nan) * 7] = np.nan
            made.append(chunk.reshape(self.shape))
        return made


def limited(size: int) -> tuple[tuple[str, Any], ...]:
    return (("dask_gpuselect.column-limit", size), ("dask_gpuselect.scratch-directory", False))


Q = [0.1, 0.5, 0.8]
QUERIES = hashed(np.arange(8) + 1000).reshape(4, 2)
LANES, PASSES = (100, 4), limited(4000)
SLABS = ((20, 8), limited(1000))
SLABS_OF_COLUMNS = ((5, 8), limited(200))
WITH_NAN: dict[str, Any] = {"n_nan": 5}
NARROWED = (("dask_gpuselect.root-limit", 0),)


def fitted(estimator: Any, *, is_reweighted: bool = False) -> Run:
    def run(x: da.Array) -> list[Any]:
        found = estimator(random_state=0, n_starts=20, reweight=is_reweighted)
        found.fit(x, da.from_array(hashed(np.arange(240) + 720), chunks=80))
        return [found.coef_, found.intercept_, found.scale_, found.support_]

    return run


def of_targets(x: da.Array) -> list[Any]:
    """The rows do not change, and y does."""
    rows = da.from_array(hashed(np.arange(480)).reshape(-1, 2), chunks=(80, 2))
    found = LeastTrimmedSquares(random_state=0, n_starts=20).fit(rows, x)
    return [found.coef_, found.intercept_, found.scale_, found.support_]


def predicted(x: da.Array) -> Any:
    y = np.arange(N_CHUNKS * 20.0)
    return KNeighborsRegressor(2).fit(x, y).predict(QUERIES)


def classified(x: da.Array) -> Any:
    y = np.arange(N_CHUNKS * 20) % 3
    return KNeighborsClassifier(3).fit(x, y).predict(QUERIES)


def neighbor_targets(x: da.Array) -> Any:
    rows = hashed(np.arange(240)).reshape(-1, 2)
    return KNeighborsRegressor(2).fit(rows, x).predict(QUERIES)


CASES: dict[str, list[Case]] = {
    "median": [
        Case(median, 2),
        Case(median, 2, is_known=False),
        Case(median, 2, (40,), NARROWED),
        Case(lambda x: median(x, axis=0), 1, LANES),
        Case(lambda x: median(x, axis=0), 2, LANES, PASSES),
        Case(lambda x: median(x, axis=0), 4, *SLABS),
        Case(lambda x: median(x, axis=0), 4, *SLABS_OF_COLUMNS),
    ],
    "quantile": [
        Case(lambda x: quantile([x, x.blocks[:2] + 1], Q), 2),
        Case(lambda x: quantile(x, Q, axis=0), 2, LANES, PASSES),
        *(
            Case(lambda x, name=name: quantile(x, Q, strategy=name), -1)  # type: ignore[misc]
            for name in STRATEGIES
        ),
    ],
    "quantile_bins": [
        Case(lambda x: quantile_bins(x, 4), 2, **WITH_NAN),
        Case(lambda x: quantile_bins(x, 4, axis=0), 3, LANES, PASSES, **WITH_NAN),
    ],
    "describe_boxplot": [
        Case(describe_boxplot, 2, **WITH_NAN),
        Case(describe_boxplot, 2, (5000,), NARROWED, **WITH_NAN),
        Case(lambda x: describe_boxplot(x, max_fliers=9), 3, (30_000,), of=cluster_at_the_fence),
        Case(lambda x: describe_boxplot({"a": x, "b": x.blocks[:2]}), 2),
        Case(lambda x: describe_boxplot(x, axis=0), 1, LANES),
        Case(lambda x: describe_boxplot(x, axis=0), 3, LANES, PASSES),
        Case(lambda x: describe_boxplot(x, axis=0), 4, *SLABS),
        Case(lambda x: describe_boxplot(x, axis=0), 4, *SLABS_OF_COLUMNS),
    ],
    "ecdf": [Case(lambda x: ecdf(x, 5), 2, **WITH_NAN), Case(lambda x: ecdf(x, [0.2, 0.4]), 1)],
    "mad": [
        Case(mad, 2),
        Case(mad, 3, (10_000,), of=two_halves),
        Case(lambda x: mad(x, axis=0), 1, LANES),
        Case(lambda x: mad(x, axis=0), 4, LANES, PASSES),
        Case(lambda x: mad(x, axis=0), 4, *SLABS),
    ],
    "sort": [Case(sort, 3, **WITH_NAN), Case(sort, 3, is_known=False)],
    "argsort": [Case(argsort, 3, **WITH_NAN)],
    "sort_by": [Case(lambda x: sort_by(x, x.blocks[:], da.arange(x.size, chunks=x.chunks)), 3)],
    "digitize": [Case(lambda x: digitize(x, [0.2, 0.5]), 1, **WITH_NAN)],
    "radix_sort": [Case(lambda x: radix_sort(x, bits=16), 1, **WITH_NAN)],
    "describe_sorted": [Case(lambda x: describe_sorted(radix_sort(x)), 1)],
    "kneighbors": [
        Case(lambda x: kneighbors(x, QUERIES, 3), 1, (20, 2)),
        Case(lambda x: kneighbors(QUERIES, x, 3), 1, (20, 2)),
    ],
    "NearestNeighbors": [
        Case(lambda x: NearestNeighbors(n_neighbors=2).fit(x).kneighbors(), 2, (20, 2))
    ],
    "KNeighborsRegressor": [Case(predicted, 1, (20, 2)), Case(neighbor_targets, 1)],
    "KNeighborsClassifier": [Case(classified, 1, (20, 2))],
    "LeastTrimmedSquares": [
        Case(fitted(LeastTrimmedSquares), -1, (80, 3)),
        Case(fitted(LeastTrimmedSquares, is_reweighted=True), -1, (80, 3), is_known=False),
        Case(of_targets, -1, (80,)),
    ],
    "groupby": [
        Case(lambda x: thirds(x).median(), 1, LANES),
        Case(lambda x: thirds(x).median(), 3, LANES, PASSES),
        Case(lambda x: thirds(x).describe_boxplot(), 4, LANES, PASSES),
    ],
    "LeastMedianOfSquares": [Case(fitted(LeastMedianOfSquares), -1, (80, 3))],
    "rolling": [Case(lambda x: rolling(x, 5, 0).nanquantile(Q), 1, LANES, **WITH_NAN)],
    "median_filter": [Case(lambda x: median_filter(x, 3), 1, (20, 2), **WITH_NAN)],
    "percentile_filter": [Case(lambda x: percentile_filter(x, 8.0, 3), 1, (20, 2), **WITH_NAN)],
    "rank_filter": [Case(lambda x: rank_filter(x, -1, 3, mode="wrap"), 1, (20, 2), **WITH_NAN)],
}

# What is returned, settings, what says something without a load, and what needs a device.
NOT_OF_CHUNKS = {name.rpartition(".")[2] for name in WITHOUT} | {"Strategy", "explain"}
NOT_OF_CHUNKS -= {"groupby", "SplineDerivative"}
# Of plain arrays.
NOT_OF_CHUNKS |= {"EmpiricalDistribution", "EstimatedDistribution", "isotonic_regression"}
NOT_OF_CHUNKS |= {"MonotoneQuadraticSpline", "MonotoneRationalSpline"}
PUBLIC = ("", ".boxplot", ".distribution", ".groups", ".neighbors", ".quantiles")
PUBLIC += (".robust", ".sorting", ".windows")


def test_no_function_is_forgotten() -> None:
    """A new public function is among the cases, or the matrix asks it about chunks that change, or
    it is said to have no chunks."""
    names = {
        name
        for module in PUBLIC
        for name in importlib.import_module(f"dask_gpuselect{module}").__all__
    }
    asked = {name for name in QUESTIONS if not name.startswith("rolling ")}
    known = {*CASES, *asked, *(NOT_OF_CHUNKS - {"Strategy"})} - {"count"}
    assert names | {"radix_sort", "describe_sorted"} == known
    assert not CASES.keys() & NOT_OF_CHUNKS


def test_no_module_of_functions_is_forgotten() -> None:
    """Packages that list what they offer are among those above, or hold no functions of arrays."""
    packages = {
        found.name.removeprefix("dask_gpuselect")
        for found in pkgutil.iter_modules(dask_gpuselect.__path__, "dask_gpuselect.")
        if found.ispkg and hasattr(importlib.import_module(found.name), "__all__")
    }
    # Accessors of these, with tests of their own; and a command.
    of_others = {".xarray", ".dataframe", ".warm"}
    assert packages - {".strategies", *of_others} == set(PUBLIC) - {""}


# --------------------------------------------------------------------------------------------------
# What comes of a change
# --------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In this thread, and with fits of more rows than a sample has."""
    monkeypatch.setattr(fitting, "SAMPLED", 60)
    monkeypatch.setattr(fitting, "SAMPLED_BYTES", 1)
    with dask.config.set(scheduler="sync"):
        yield


def flat(found: Any) -> list[NDArray[Any]]:
    """All arrays and numbers of an answer."""
    if isinstance(found, Boxplot):
        found = list(found)
    if isinstance(found, list | tuple):
        return [array for each in found for array in flat(each)]
    if is_dataclass(found):
        return [array for each in fields(found) for array in flat(getattr(found, each.name))]
    if type(found).__module__.startswith("dask_gpuselect"):
        return [a for name in sorted(vars(found)) for a in flat(vars(found)[name])]
    return [np.asarray(found)]


def answer(case: Case, x: da.Array) -> list[NDArray[Any]]:
    with dask.config.set(dict(case.config)), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return flat(dask.compute(case.run(x)))


def is_equal(one: list[NDArray[Any]], other: list[NDArray[Any]]) -> bool:
    return len(one) == len(other) and all(
        np.array_equal(a, b, equal_nan=a.dtype.kind == "f" and b.dtype.kind == "f")
        for a, b in zip(one, other, strict=True)
    )


def outcome(case: Case, *changed: Any) -> list[NDArray[Any]] | Exception:
    try:
        return answer(case, changing(case, *changed)[0])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return error


@cache
def version(case: Case, way: str | None = None, at: int = 0) -> list[NDArray[Any]] | Exception:
    """The answer to data that are changed always, or never."""
    return outcome(case, way, at)


def check(case: Case, way: str, at: int, is_changed: Callable[[int], bool], when: str) -> bool:
    """Whether the change was noticed; an AssertionError for an answer of no version, or an error
    that does not name the chunk."""
    found = outcome(case, way, at, is_changed)
    if isinstance(found, Exception):
        is_named = re.search(rf"chunk \(?{at}\b", str(found))
        # What scikit-learn says of data that are in memory.
        is_plain = str(version(case, way, at)) == str(found)
        assert is_named or is_plain, f"{way}, {when}: {found!r}"
        return True
    versions = [version(case)] + ([] if way in REFUSED else [version(case, way, at)])
    assert any(is_equal(found, known) for known in versions if not isinstance(known, Exception)), (
        f"{way}, {when}: {found}"
    )
    return False


def loads_of(case: Case) -> int:
    x, source = changing(case)
    answer(case, x)
    (loads,) = set(source.counts.values())
    return loads


EVERY = [(name, i) for name, cases in CASES.items() for i in range(len(cases))]
every_case = pytest.mark.parametrize(("name", "i"), EVERY, ids=lambda value: str(value))


@every_case
@pytest.mark.slow
def test_one_version_or_an_error(name: str, i: int) -> None:
    """Changed from the second load on, and in the last of a few, in every way."""
    case = CASES[name][i]
    loads = loads_of(case)
    assert case.loads in (loads, -1)
    for way in WAYS if loads <= 4 else A_FEW:
        for first in {min(loads, 2), loads if loads <= 4 else 2}:
            check(case, way, 1, lambda load, k=first: load >= k, f"from load {first} on")


def every_change(loads: int) -> Iterator[tuple[str, int, int, bool]]:
    """The way, the chunk (the first or the last), the load, and whether it is that load alone.

    The second load, the last, and one between: rounds of a strategy are all alike.
    """
    some = sorted({min(loads, 2), (loads + 2) // 2, loads})
    return itertools.product(WAYS, (0, N_CHUNKS - 1), some, (False, True))


def check_changes(case: Case, changes: Iterable[tuple[str, int, int, bool]]) -> None:
    for way, at, k, alone in changes:
        if alone:
            check(case, way, at, lambda load, k=k: load == k, f"chunk {at} at load {k}")
        else:
            check(case, way, at, lambda load, k=k: load >= k, f"chunk {at} from load {k} on")


@pytest.mark.slow
@pytest.mark.thorough
@every_case
def test_one_version_or_an_error_at_every_load(name: str, i: int) -> None:
    case = CASES[name][i]
    check_changes(case, every_change(loads_of(case)))


@pytest.mark.few(10)
@every_case
def test_what_the_array_does_not_declare_is_refused(name: str, i: int) -> None:
    case = CASES[name][i]
    for way in sorted(REFUSED):
        assert check(case, way, 1, lambda load: True, "always")


@pytest.mark.slow
def test_all_that_is_loaded_several_times_is_noticed() -> None:
    """A change that no count tells is noticed where loads are put together. The two loads of `mad`
    and of boxes of all elements are not: the second one proves the answer, and takes the sums."""
    first_of_lanes = {"describe_boxplot": 3, "mad": 2}
    for name in ("describe_boxplot", "mad", "LeastTrimmedSquares", "LeastMedianOfSquares"):
        for i, case in enumerate(CASES[name]):
            loads = loads_of(case)
            is_proven_by_one = i < first_of_lanes.get(name, 0)
            for k in range(3 if is_proven_by_one else 2, loads + 1):
                assert check(case, "two neighbours", 1, lambda load, k=k: load >= k, name)
