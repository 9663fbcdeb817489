"""Functions that the matrix does not ask: a chunk is changed in every way that we know, and the
answer is that of one version of the data, or an error names the chunk."""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

import dask_gpuselect
from dask_gpuselect import describe_boxplot, quantile
from dask_gpuselect.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    NearestNeighbors,
    kneighbors,
)
from dask_gpuselect.robust import LeastMedianOfSquares, LeastTrimmedSquares, fitting
from dask_gpuselect.sorting.radix_sort import radix_sort
from dask_gpuselect.sorting.sorted_boxes import describe_sorted
from tests.calls import WITHOUT
from tests.data import hashed
from tests.matrix.cases import Counted
from tests.matrix.cases import _hidden as hidden
from tests.matrix.laws import CHANGES, RARE_CHANGES, UNDECLARED, is_same
from tests.matrix.questions import QUESTIONS

Chunk = NDArray[Any]
Change = Callable[[Chunk], Any]
N_CHUNKS = 3

# --------------------------------------------------------------------------------------------------
# Sources that change
# --------------------------------------------------------------------------------------------------


WAYS: dict[str, Change] = {
    **CHANGES,
    **RARE_CHANGES,
    "next numbers": lambda chunk: np.nextafter(chunk, np.inf),
    "narrower floats": lambda chunk: chunk.astype(np.float32),
}
A_FEW = ("shorter", "mirrored", "one missing", "within a cell")
REFUSED = {f"undeclared {i}": way for i, way in enumerate(UNDECLARED)}


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
        Of `WAYS` or `REFUSED`; nothing is changed without one.
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
        return (WAYS | REFUSED)[way](chunk)

    source = Counted(np.concatenate(chunks), changed)
    x = source.lazy(chunks[0].shape)
    return (x if case.is_known else hidden(x, x.ndim)), source


# --------------------------------------------------------------------------------------------------
# Every function
# --------------------------------------------------------------------------------------------------

Run = Callable[[da.Array], Any]


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
    is_known : bool
        Whether sizes of chunks are.
    """

    run: Run
    loads: int
    shape: tuple[int, ...] = (40,)
    is_known: bool = True

    def chunks(self) -> list[Chunk]:
        size = int(np.prod(self.shape))
        return [hashed(np.arange(size) + i * size).reshape(self.shape) for i in range(N_CHUNKS)]


Q = [0.1, 0.5, 0.8]
QUERIES = hashed(np.arange(8) + 1000).reshape(4, 2)


def fitted(estimator: Any, *, is_reweighted: bool = False) -> Run:
    def run(x: da.Array) -> tuple[Any, ...]:
        fit = estimator(random_state=0, n_starts=20, reweight=is_reweighted)
        fit.fit(x, da.from_array(hashed(np.arange(240) + 720), chunks=80))
        return fit.coef_, fit.intercept_, fit.scale_, fit.support_

    return run


def of_targets(x: da.Array) -> tuple[Any, ...]:
    """The rows do not change, and y does."""
    rows = da.from_array(hashed(np.arange(480)).reshape(-1, 2), chunks=(80, 2))
    fit = LeastTrimmedSquares(random_state=0, n_starts=20).fit(rows, x)
    return fit.coef_, fit.intercept_, fit.scale_, fit.support_


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
    "several arrays": [
        Case(lambda x: quantile([x, x.blocks[:2] + 1], Q), 2),
        Case(lambda x: describe_boxplot({"a": x, "b": x.blocks[:2]}), 2),
    ],
    "describe_sorted": [Case(lambda x: list(vars(describe_sorted(radix_sort(x))).values()), 1)],
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
    "LeastMedianOfSquares": [Case(fitted(LeastMedianOfSquares), -1, (80, 3))],
}

# What is returned, settings, what says something without a load, and what needs a device.
NOT_OF_CHUNKS = {name.rpartition(".")[2] for name in WITHOUT} | {"Strategy", "explain"}
NOT_OF_CHUNKS -= {"groupby", "SplineDerivative"}
# Of plain arrays.
NOT_OF_CHUNKS |= {"EmpiricalDistribution", "EstimatedDistribution", "isotonic_regression"}
NOT_OF_CHUNKS |= {"MonotoneQuadraticSpline", "MonotoneRationalSpline"}
PUBLIC = ("", ".distribution", ".groups", ".neighbors", ".robust", ".windows")


def test_no_function_is_forgotten() -> None:
    """A new public function is among the cases, or the matrix asks it about chunks that change, or
    it is said to have no chunks."""
    names = {
        name
        for module in PUBLIC
        for name in importlib.import_module(f"dask_gpuselect{module}").__all__
    }
    questions = {name for name in QUESTIONS if not name.startswith("rolling ")}
    known = {*CASES, *questions, *(NOT_OF_CHUNKS - {"Strategy"})} - {"count", "several arrays"}
    known |= {"groupby", "rolling"}
    assert names | {"radix_sort", "describe_sorted"} == known
    assert not CASES.keys() & NOT_OF_CHUNKS


def test_no_module_of_functions_is_forgotten() -> None:
    """Packages that list what they offer are among those above, or hold no functions of arrays."""
    packages = {
        module.name.removeprefix("dask_gpuselect")
        for module in pkgutil.iter_modules(dask_gpuselect.__path__, "dask_gpuselect.")
        if module.ispkg and hasattr(importlib.import_module(module.name), "__all__")
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


def answer(case: Case, x: da.Array) -> Any:
    with warnings.catch_warnings(action="ignore"):
        return dask.compute(case.run(x))


def outcome(case: Case, *changed: Any) -> Any:
    """Compute an answer, or return the error."""
    try:
        return answer(case, changing(case, *changed)[0])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is looked at
        return error


@cache
def version(case: Case, way: str | None = None, at: int = 0) -> Any:
    """The answer to data that are changed always, or never."""
    return outcome(case, way, at)


def check(case: Case, way: str, at: int, is_changed: Callable[[int], bool], when: str) -> bool:
    """Whether the change was noticed; an AssertionError for an answer of no version, or an error
    that does not name the chunk."""
    result = outcome(case, way, at, is_changed)
    if isinstance(result, Exception):
        is_named = re.search(rf"chunk \(?{at}\b", str(result))
        # What scikit-learn says of data that are in memory.
        is_plain = str(version(case, way, at)) == str(result)
        assert is_named or is_plain, f"{way}, {when}: {result!r}"
        return True
    versions = [version(case)] + ([] if way in REFUSED else [version(case, way, at)])
    versions = [each for each in versions if not isinstance(each, Exception)]
    assert any(is_same(result, each) for each in versions), f"{way}, {when}: {result}"
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


@pytest.mark.few(10)
@every_case
def test_what_the_array_does_not_declare_is_refused(name: str, i: int) -> None:
    case = CASES[name][i]
    for way in sorted(REFUSED):
        assert check(case, way, 1, lambda load: True, "always")


@pytest.mark.slow
def test_all_that_is_loaded_several_times_is_noticed() -> None:
    """A change that no count tells is noticed where loads are put together."""
    for name in ("LeastTrimmedSquares", "LeastMedianOfSquares"):
        for case in CASES[name]:
            for k in range(2, loads_of(case) + 1):
                assert check(case, "within a cell", 1, lambda load, k=k: load >= k, name)
