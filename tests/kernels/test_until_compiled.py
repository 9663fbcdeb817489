"""What answers before kernels are compiled, and how they come to be."""

from __future__ import annotations

import os
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_gpuselect as gs
from dask_gpuselect import kernels
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels import compiling
from dask_gpuselect.kernels.cpu import moments, plain_moments, spans
from dask_gpuselect.kernels.reference import moments as reference
from dask_gpuselect.maths.cuts import Brackets
from tests.engine.test_processes import run

pytestmark = pytest.mark.any_dask

N = 30_000  # in chunks that kernels classify, and do not sort


@contextmanager
def patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> Iterator[None]:
    """A process that has compiled nothing yet, and lets NumPy work for so many seconds."""
    with monkeypatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.setattr(compiling, "_is_patient", True)
        patch.setattr(compiling, "_kernels", {})
        patch.setattr(compiling, "_background", compiling._Background())
        patch.setattr(compiling, "PATIENCE", seconds)
        try:
            yield
        finally:
            compiling.wait()


def data(dtype: str) -> Any:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 100, N).astype(dtype)
    values[::7] = values[0]  # ties
    if values.dtype.kind == "f":
        values[::11] = np.nan
    return values.reshape(300, 100)


def lazily(values: Any) -> Any:
    return da.from_array(values, chunks=(130, 100))


def weights_of(values: Any) -> Any:
    return da.from_array(np.random.default_rng(1).random(values.shape), chunks=(130, 100))


def labels_of(values: Any) -> Any:
    return da.from_array(np.random.default_rng(2).integers(0, 9, values.shape), chunks=(130, 100))


Q = [0.0, 0.1, 0.5, 0.9]
QUESTIONS: dict[str, Callable[[Any], Any]] = {
    "quantile": lambda x: gs.nanquantile(lazily(x), Q),
    "many": lambda x: gs.nanquantile(lazily(x), np.linspace(0, 1, 60)),
    "in memory": lambda x: gs.nanquantile(x, Q),
    "where": lambda x: gs.nanquantile(lazily(x), Q, where=lazily(x) > 0),
    "axis": lambda x: gs.nanquantile(lazily(x), Q, axis=0),
    "rows": lambda x: gs.nanmedian(x, axis=1),
    "long rows": lambda x: gs.median(x.reshape(2, -1), axis=1),
    "boxes": lambda x: gs.describe_boxplot(lazily(x), nan_policy="omit").to_dict(),
    "boxes of lanes": lambda x: gs.describe_boxplot(lazily(x), axis=0, nan_policy="omit").to_dict(),
    "weights": lambda x: gs.nanquantile(lazily(x), Q, weights=weights_of(x), method="inverted_cdf"),
    "groups": lambda x: groupby(lazily(x), labels_of(x)).nanquantile(Q),
    "sort": lambda x: gs.sort(lazily(x).ravel()),
    "argsort": lambda x: gs.argsort(lazily(x).ravel()),
}


def answer(question: str, dtype: str) -> Any:
    with np.errstate(invalid="ignore"):
        (found,) = dask.compute(QUESTIONS[question](data(dtype)))
    if isinstance(found, dict):  # tables of box plots, with arrays of arrays
        return {name: [np.ravel(each) for each in np.ravel(found[name])] for name in found}
    return found


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i2", "u1"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_the_same(question: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with patience(monkeypatch, np.inf):
        by_numpy = answer(question, dtype)
        assert not compiling._kernels, "nothing was compiled"
    np.testing.assert_equal(answer(question, dtype), by_numpy)


def test_fingerprints_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of elements in any order: by themselves, with companions of any size, and rows of many
    columns, wherever they lie in memory."""
    n = 70_000
    x = np.random.default_rng(0).random(2 * n)
    kinds = [x[::2].astype(dtype) for dtype in ("f8", "f4", "f2", "u1")] + [x[::2], x[n:] > 0.5]
    table = x[:n].reshape(700, 100)
    days = np.broadcast_to(np.arange(100.0), table.shape)
    rows = [[each] for each in kinds] + [kinds, [*kinds * 6, x[1::2]], [np.asfortranarray(table)]]
    rows += [[days, table], [table.T, days.T], [np.empty(0), np.empty(0, "u1")]]

    def marks() -> list[int]:
        return [kernels.fingerprint_of_rows(columns) for columns in rows]

    with patience(monkeypatch, np.inf):
        by_numpy = marks()
        assert not compiling._kernels, "nothing was compiled"
    assert marks() == by_numpy
    assert len(set(by_numpy)) == len(rows) - 1  # x[::2] is there twice


def test_kernels_come_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    values = data("f8").ravel()
    with patience(monkeypatch, 0.0):
        before = gs.nanquantile(lazily(data("f8")), Q).compute()
        compiling.wait()
        assert {kernel.__name__ for kernel, *_ in compiling._kernels} >= {"_tally_few"}
        seen = []
        monkeypatch.setattr(compiling._Background, "spend", lambda *_: seen.append(1))
        np.testing.assert_array_equal(gs.nanquantile(lazily(data("f8")), Q).compute(), before)
        assert not seen, "NumPy did some of it"
    np.testing.assert_array_equal(before, np.nanquantile(values, Q))


def test_a_kernel_that_cannot_be_compiled_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise OSError("no compiler")

    @compiling.until_compiled(lambda: "by NumPy")
    def function() -> Any:
        return compiling.ready("kernel", fail)()

    with patience(monkeypatch, 0.0):
        assert function() == "by NumPy"
        compiling.wait()
        with pytest.raises(OSError, match="no compiler"):
            function()


def test_each_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one thread, while others that need it wait."""
    built, start = [], threading.Barrier(4)

    def build() -> Any:
        built.append(1)
        return lambda: 1

    def work() -> None:
        start.wait()
        compiling.ready("kernel", build)()

    with patience(monkeypatch, np.inf):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(built) == 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_kernels_are_compiled() -> None:
    script = """
    import os, warnings
    import numpy as np
    import dask_gpuselect as gs
    from dask_gpuselect import kernels
from dask_gpuselect.kernels import compiling
    warnings.simplefilter("ignore")
    compiling.PATIENCE = 0
    a = np.random.default_rng(0).random(200_000).reshape(2, -1)
    def ask():
        with compiling.at_once():
            return gs.median(a, axis=1).tolist()
    first = gs.median(a, axis=1).tolist()
    child = os.fork()
    if not child:
        os._exit(0 if ask() == first else 1)
    assert os.waitpid(child, 0)[1] == 0
    print(ask() == first)
    """
    assert run(textwrap.dedent(script), NUMBA_CACHE_DIR="") == "True\n"


@pytest.mark.slow
def test_a_process_that_ends_while_kernels_are_compiled() -> None:
    """It waits for the one at hand, and no more come."""
    script = """
    import numpy as np
    from dask_gpuselect import kernels
from dask_gpuselect.kernels import compiling
    from dask_gpuselect.kernels.cpu import backend
    compiling.PATIENCE = 0
    a = np.random.default_rng(0).random(20_000)
    backend.BACKEND.selection.cuts(a, 100)
    print(compiling._background._thread is not None)
    """
    assert run(textwrap.dedent(script)) == "True\n"


CASES = [
    np.random.default_rng(0).normal(size=100_001),
    np.random.default_rng(0).lognormal(0, 60, 5000),  # more binades than one table reaches
    np.random.default_rng(0).normal(size=3000) * 1e-310,
    np.array([np.inf, 1, -np.inf, np.nan, 5e-324, 1.7e308, -0.0] * 100),
    np.random.default_rng(0).normal(size=3000).astype("f4"),
    np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 3000),
    np.random.default_rng(0).integers(0, 2**64 - 1, 3000, dtype="u8"),
    np.random.default_rng(0).integers(-128, 127, 3000, dtype="i1"),
    np.array([np.iinfo("i8").min] * 9),
    np.empty(0),
]


@pytest.mark.parametrize("values", CASES, ids=range(len(CASES)))
def test_exact_sums_by_numpy(values: Any) -> None:
    found, expected = plain_moments.moments(values), reference.moments(values, values[:0])
    assert found == expected
    assert moments.moments(values) == expected


def test_scratch_of_numpy_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do candidates hold on to a sorted chunk."""
    values = np.random.default_rng(0).random(N)
    brackets = Brackets(np.array([0.4, 0.41]), np.array([False, True, False]))
    with patience(monkeypatch, np.inf):
        found = spans.tally(values, brackets, N)
    assert found is not None
    held = found.candidates.on_host()
    assert held.base is None or held.base.nbytes < values.nbytes / 10
