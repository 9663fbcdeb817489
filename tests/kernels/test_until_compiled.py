"""Where NumPy answers and where kernels do, and how these come to be."""

from __future__ import annotations

import itertools
import os
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

import dask_gpuselect as gs
from dask_gpuselect.kernels import compiling
from dask_gpuselect.kernels.cpu import spans
from dask_gpuselect.kernels.cpu import typed as t
from dask_gpuselect.maths.cuts import Brackets
from dask_gpuselect.robust import trimmed_mean
from dask_gpuselect.windows import rolling
from tests.engine.test_processes import run
from tests.processes import in_threads

pytestmark = pytest.mark.any_dask

N = 30_000  # in chunks that kernels classify, and do not sort


@contextmanager
def new_process(monkeypatch: pytest.MonkeyPatch, large: float, seconds: float) -> Iterator[None]:
    """As in a process that has compiled nothing yet: where arrays are large, and how long NumPy may
    take for others."""
    with monkeypatch.context() as patch, dask.config.set(scheduler="sync"):
        patch.setattr(compiling, "LARGE", large)
        patch.setattr(compiling, "PATIENCE", seconds)
        patch.setattr(compiling, "_kernels", {})
        patch.setattr(compiling, "_seconds", {})
        yield


def data(dtype: str) -> Any:
    rng = np.random.default_rng(0)
    values = rng.normal(0, 100, N).astype(dtype)
    values[::7] = values[0]  # ties
    if values.dtype.kind == "f":
        values[::11] = np.nan
    return values.reshape(300, 100)


def test_a_call_takes_one_way_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy finds the elements that weigh in a view, which no kernel takes."""
    values = np.random.default_rng(0).integers(0, 100, (2000, 4)).astype("f8")
    x, weights = da.from_array(values, chunks=(500, 1)), np.ones(values.shape)
    turns = itertools.cycle([False, True])
    monkeypatch.setattr(compiling, "_is_by_kernels", lambda *_: next(turns))
    result = gs.quantile(x, 0.5, weights=weights, method="inverted_cdf").compute(scheduler="sync")
    assert result == np.quantile(values, 0.5, method="inverted_cdf")


@pytest.mark.parametrize(
    ("large", "seconds", "expected"),
    [
        # From then on also about small ones of this kind, since they are there.
        (1000, 1e9, ["NumPy", "NumPy", "kernels", "kernels", "NumPy", "kernels"]),
        (np.inf, 0.0, ["NumPy", "kernels", "kernels", "kernels", "NumPy", "kernels"]),
    ],
)
def test_kernels_answer_about_large_arrays_and_after_a_time(
    large: float, seconds: float, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[str] = []

    @compiling.until_compiled(lambda *_: ways.append("NumPy"))
    def function(*_: Any) -> None:
        ways.append("kernels")

    with new_process(monkeypatch, large, seconds):
        for dtype, n in (("f8", 10), ("f8", 999), ("f8", 1000), ("f8", 10), ("f4", 10)):
            function(np.zeros(n, dtype))
        function([(np.zeros(600), np.zeros(400, "i4"))])  # chunks and their codes
    assert ways == expected


def test_a_kernel_that_cannot_be_compiled_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise OSError("no compiler")

    @compiling.until_compiled(lambda _: "by NumPy")
    def function(_: Any) -> Any:
        return compiling.ready("kernel", fail)()

    with new_process(monkeypatch, 1000, 1e9):
        assert function(np.zeros(10)) == "by NumPy"
        with pytest.raises(OSError, match="no compiler"):
            function(np.zeros(1000))


def test_what_a_call_has_waited_for_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Not what is loaded from the disk."""

    @compiling.kernel
    def kernel(values: t.Values, out: t.Out) -> None:
        out[0] = values[0]

    @compiling.one_way
    def function(values: Any) -> None:
        kernel(values, np.empty_like(values))

    compiling._declared.pop()
    monkeypatch.setattr(compiling.numba().config, "CACHE_DIR", str(tmp_path))
    with new_process(monkeypatch, 0, 1e9), caplog.at_level("INFO", "dask_gpuselect"):
        function(np.zeros(3))
        function(np.zeros(3))
        compiling._kernels.clear()
        function(np.zeros(3))
    (message,) = caplog.messages
    assert message.startswith("compiled 1 kernel for float64 in ")
    assert "dask_gpuselect.warm" in message
    assert str(tmp_path) in message


def test_each_kernel_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By one thread, while others that need it wait."""
    built = []

    def build() -> Any:
        built.append(1)
        return lambda: 1

    with new_process(monkeypatch, 0, 1e9):
        in_threads(4, lambda _: compiling.ready("kernel", build)())
    assert len(built) == 1


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_fork_while_kernels_are_compiled(tmp_path: Path) -> None:
    script = """
    import os, threading, warnings
    import numpy as np
    import dask_gpuselect as gs
    from dask_gpuselect.kernels import compiling
    warnings.simplefilter("ignore")
    a = np.random.default_rng(0).random(200_000).reshape(2, -1)
    def ask():
        return gs.quantile(a, 0.5, axis=1, weights=a).tolist()
    first = ask()
    compiling.LARGE = 0
    begun, numba = threading.Event(), compiling.numba
    def told():
        begun.set()
        return numba()
    compiling.numba = told
    thread = threading.Thread(target=ask)
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        os._exit(0 if ask() == first else 1)
    assert os.waitpid(child, 0)[1] == 0
    thread.join()
    print(ask() == first)
    """
    assert run(textwrap.dedent(script), NUMBA_CACHE_DIR=str(tmp_path)) == "True\n"


def test_scratch_of_numpy_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor do candidates hold on to a sorted chunk."""
    values = np.random.default_rng(0).random(N)
    brackets = Brackets(np.array([0.4, 0.41]), np.array([False, True, False]))
    with new_process(monkeypatch, np.inf, 1e9):
        tally = spans.tally(values, brackets, N)
    assert tally is not None
    candidates = tally.candidates.on_host()
    assert candidates.base is None or candidates.base.nbytes < values.nbytes / 10


def test_trimmed_means_are_rounded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By kernels and by NumPy; many are halfway between two floats."""
    rows = np.random.default_rng(1).integers(-(1 << 24), 1 << 24, (6, 300)).astype("f4")
    means = (np.sort(rows, axis=0)[1:-1].sum(axis=0, dtype="f8") / 4).astype("f4")
    for large in (0, np.inf):
        with new_process(monkeypatch, large, 1e9):
            assert trimmed_mean(rows, 0.2, axis=0).tolist() == means.tolist()


def test_elements_of_windows_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy sorts every window: an image of 90,000 elements would take it minutes."""

    def decide(kind: Any, size: int) -> bool:
        raise InterruptedError(size)

    monkeypatch.setattr(compiling, "_is_by_kernels", decide)
    with pytest.raises(InterruptedError) as stopped:
        rolling(np.zeros((300, 300)), (101, 101), (0, 1)).median()
    assert stopped.value.args[0] > compiling.LARGE
