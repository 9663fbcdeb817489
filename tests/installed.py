"""What an installed package has to do: python -I tests/installed.py [VERSION]

The script needs nothing but the package and its dependencies. `make dist` runs it in a fresh
environment, and so do the conda recipe and the workflow that publishes.
"""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import dask
import dask.array as da
import numpy as np

import dask_gpuselect
from dask_gpuselect import describe_boxplot, median, quantile, sort
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.groups import groupby
from dask_gpuselect.neighbors import kneighbors
from dask_gpuselect.robust import mad

HERE = Path(dask_gpuselect.__file__).parent


def check_files(*wanted: str) -> None:
    """The package is the installed one, of the wanted version, and has all its files."""
    assert "site-packages" in HERE.parts, f"{HERE} is not installed"
    assert {version("dask-gpuselect"), *wanted} == {dask_gpuselect.__version__}
    assert (HERE / "py.typed").exists()
    assert list((HERE / "kernels" / "cuda").glob("*.cu"))
    assert dask.config.get("dask_gpuselect.column-limit") == "1 GiB"


def check_answers() -> None:
    """One answer of each part, beside NumPy's."""
    a = np.random.default_rng(0).standard_normal((1000, 30))
    x = da.from_array(a, chunks=(130, 10))
    q = [0.25, 0.5, 0.75]
    np.testing.assert_array_equal(quantile(x, q).compute(), np.quantile(a, q))
    np.testing.assert_array_equal(median(x, axis=0).compute(), np.median(a, axis=0))
    np.testing.assert_array_equal(median(a), np.median(a))
    (box,) = describe_boxplot(x).compute()
    assert (box.q1, box.med, box.q3) == tuple(np.quantile(a, q))
    np.testing.assert_array_equal(sort(x[:, 0]).compute(), np.sort(a[:, 0]))
    labels = np.arange(1000) % 3
    by_label = groupby(x, labels, axis=0).median().compute()
    np.testing.assert_array_equal(by_label[2], np.median(a[2::3], axis=0))
    assert mad(x, scale=1.0).compute() == np.median(abs(a - np.median(a)))
    assert ecdf(x).compute().n_valid == a.size
    distances, _ = kneighbors(x.rechunk({1: -1}), a[:2], 1)
    np.testing.assert_array_equal(distances, 0)


def main() -> int:
    """Check all; an exception says what is wrong."""
    check_files(*sys.argv[1:])
    check_answers()
    print(f"dask_gpuselect {dask_gpuselect.__version__} of {HERE} works")
    return 0


if __name__ == "__main__":
    sys.exit(main())
