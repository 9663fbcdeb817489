"""Compile kernels before they are needed, as while the image of a container is built:
``python -m dask_gpuselect.warm float32 float64``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import dask
import dask.array as da
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect.boxplot import describe_boxplot
from dask_gpuselect.groups import groupby
from dask_gpuselect.kernels import compiling
from dask_gpuselect.quantiles import median, nanquantile, quantile
from dask_gpuselect.sorting import argsort, sort

__all__ = ["SUBJECTS", "warm"]

N = 60_000
CHUNK = 20_000  # elements: enough for a chunk to be classified, and not sorted
MANY = np.linspace(0, 1, 60)


def _chunked(values: NDArray[Any]) -> Any:
    return da.from_array(values, chunks=CHUNK)


def _table(values: NDArray[Any]) -> Any:
    return da.from_array(values.reshape(200, -1), chunks=(60, 100))


def _numbered(values: NDArray[Any]) -> Any:
    return da.from_array(np.arange(values.size) % 7, chunks=CHUNK)


def _quantiles(values: NDArray[Any]) -> list[Any]:
    x = _chunked(values)
    return [nanquantile(x, [0.1, 0.5]), quantile(x, MANY), median(x, where=x > x.mean())]


def _lanes(values: NDArray[Any]) -> list[Any]:
    x, how = _table(values), {"dask_gpuselect.column-limit": 60 * 100 * values.itemsize}
    with dask.config.set(how):
        passes = quantile(x, [0.25, 0.5], axis=0)
    rows = values.reshape(2, -1)
    return [passes, quantile(x, [0.1, 0.5], axis=0), median(rows, axis=1), median(x, axis=1)]


def _boxes(values: NDArray[Any]) -> list[Any]:
    return [describe_boxplot(_chunked(values)), describe_boxplot(_table(values), axis=0)]


def _weights(values: NDArray[Any]) -> list[Any]:
    x = _chunked(values)
    how: dict[str, Any] = {"weights": _numbered(values) * 1.5, "method": "inverted_cdf"}
    return [quantile(x, [0.1, 0.5], **how), quantile(x, MANY, **how)]


def _groups(values: NDArray[Any]) -> list[Any]:
    return [groupby(_chunked(values), _numbered(values)).quantile([0.1, 0.5])]


def _sorting(values: NDArray[Any]) -> list[Any]:
    return [sort(_chunked(values)), argsort(_chunked(values))]


SUBJECTS: Mapping[str, Callable[[NDArray[Any]], list[Any]]] = {
    "quantiles": _quantiles,
    "axis": _lanes,
    "boxes": _boxes,
    "weights": _weights,
    "groups": _groups,
    "sorting": _sorting,
}


def warm(
    dtypes: Iterable[Any] = ("float32", "float64"), subjects: Iterable[str] = tuple(SUBJECTS)
) -> None:
    """Compile the kernels for NumPy chunks of some dtypes, and keep them on disk.

    Without this, NumPy answers the first calls of a process, and kernels are compiled in the
    background. The folder is the first that can be written of: the one that the environment
    variable ``NUMBA_CACHE_DIR`` names, ``__pycache__`` beside the package, and one of the user.

    Parameters
    ----------
    dtypes : iterable of dtypes, optional
        Of the arrays that will be asked about.
    subjects : iterable of str, optional
        Of "quantiles", "axis", "boxes", "weights", "groups" and "sorting"; all by default.

    Notes
    -----
    Small arrays are made and asked about: some megabytes. A dtype takes about 20 seconds for all
    subjects, and less than one if all kernels are on disk already.

    Examples
    --------
    >>> from dask_gpuselect.warm import warm
    >>> warm(["uint8"], ["quantiles"])
    """
    chosen = [SUBJECTS[subject] for subject in subjects]
    with compiling.at_once(), dask.config.set(scheduler="sync"):
        for dtype in dtypes:
            values = np.random.default_rng(0).normal(100, 20, N).astype(dtype)
            for ask_about in chosen:
                dask.compute(ask_about(values))


def main() -> None:
    parser = argparse.ArgumentParser("python -m dask_gpuselect.warm", description=__doc__)
    parser.add_argument("dtypes", nargs="*", default=["float32", "float64"], type=np.dtype)
    parser.add_argument("--subjects", nargs="+", default=list(SUBJECTS), choices=SUBJECTS)
    given = parser.parse_args()
    warm(given.dtypes, given.subjects)


if __name__ == "__main__":
    main()
