"""Fit a regression to ten million rows, of which 40 % are outliers, out of core.

    python examples/robust_regression.py                       robust_regression.png
    python examples/robust_regression.py --rows 1_000_000 --gpu

writes rows with ten columns to a Zarr store, chunk by chunk. A quarter of them are bad leverage
points: far out in the first column, and far below the true plane. Another 15 % are far above it.
Least squares, which takes one pass, follows the outliers; least trimmed squares finds the plane.
The peak memory is that of the whole process, which holds a few chunks of the store.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import zarr
from numpy.typing import NDArray

from dask_gpuselect import to_gpu

LEVERAGE, VERTICAL = 0.25, 0.15  # shares of the rows
INTERCEPT, PLANTED = 2.0, np.array([1.5, -1.0, 0.5, 2.0, -0.5, 1.0, -2.0, 0.3, 0.7, -1.2])
CHUNK = 800_000  # rows, of 64 MB
SHOWN = 4_000  # rows of the picture

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def make_rows(number: int, size: int) -> tuple[Floats, Floats, Flags]:
    """Make X, y and the outlier flags of one chunk."""
    rng = np.random.default_rng([2006, number])
    x, kind = rng.standard_normal((size, len(PLANTED))), rng.random(size)
    is_leverage, is_vertical = kind < LEVERAGE, kind >= 1 - VERTICAL
    x[is_leverage, 0] = rng.normal(6, 0.5, np.count_nonzero(is_leverage))
    y = INTERCEPT + x @ PLANTED + rng.standard_normal(size)
    y[is_leverage] -= 25
    y[is_vertical] += rng.uniform(10, 20, np.count_nonzero(is_vertical))
    return x, y, is_leverage | is_vertical


def write(path: Path, rows: int) -> tuple[da.Array, da.Array, da.Array]:
    """Write all rows to a store, and open it lazily."""
    store, chunk = zarr.create_group(path, overwrite=True), min(CHUNK, rows)
    p = len(PLANTED)
    shapes = {"X": ((rows, p), (chunk, p), "f8"), "y": ((rows,), (chunk,), "f8")}
    shapes["is_outlier"] = ((rows,), (chunk,), "?")
    arrays = [
        store.create_array(name, shape=shape, chunks=chunks, dtype=dtype, compressors=None)
        for name, (shape, chunks, dtype) in shapes.items()
    ]
    for number, start in enumerate(range(0, rows, chunk)):
        part = slice(start, min(start + chunk, rows))
        for array, values in zip(arrays, make_rows(number, part.stop - start), strict=True):
            array[part] = values
    x, y, is_outlier = (da.from_zarr(array) for array in arrays)
    return x, y, is_outlier


def least_squares(x: da.Array, y: da.Array) -> Floats:
    """Fit the intercept and the coefficients by the normal equations, in one pass."""
    lazy = (x.T @ x, x.sum(axis=0), x.T @ y, y.sum())
    gram, sums, moments, total = (np.asarray(to_host(each)) for each in dask.compute(*lazy))
    full = np.block([[np.array([[len(x)]]), sums[None]], [sums[:, None], gram]])
    return np.linalg.solve(full, np.append(total, moments))


def to_host(array: Any) -> Any:
    return array.get() if hasattr(array, "get") else array


def peak_memory() -> float:
    """Return the peak memory of this process so far, in MB."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def draw(path: Path, x: Floats, y: Floats, is_kept: Flags, fits: Mapping[str, Floats]) -> None:
    """Draw some rows against the first column, without the part of the others, and the fits."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    rest, ends = y - x[:, 1:] @ PLANTED[1:], np.array([-4.0, 8.0])
    for rows, colour, label in ((is_kept, "tab:blue", "used"), (~is_kept, "tab:red", "flagged")):
        axes.plot(x[rows, 0], rest[rows], ".", color=colour, markersize=2, alpha=0.5, label=label)
    for (name, fit), style in zip(fits.items(), ("k:", "k--", "k-"), strict=True):
        axes.plot(ends, fit[0] + fit[1] * ends, style, label=name)
    axes.set(xlabel="first column", ylabel="y minus the part of the other columns")
    axes.legend(markerscale=5)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def compare(options: argparse.Namespace, folder: Path) -> None:
    from dask_gpuselect.robust import LeastTrimmedSquares

    x, y, is_outlier = write(folder / "rows.zarr", options.rows)
    chunk, stored = x.blocks[0].nbytes / 1e6, (x.nbytes + y.nbytes) / 1e6
    print(
        f"{len(x):,} rows, {stored:,.0f} MB in {x.numblocks[0]} chunks of {chunk:.0f} MB;", end=" "
    )
    print(f"peak memory so far {peak_memory():,.0f} MB")
    shown, of_y = dask.compute(x[:SHOWN], y[:SHOWN])
    if options.gpu:
        x, y = to_gpu(x), to_gpu(y)
    begin = time.perf_counter()
    ols = least_squares(x, y)
    between = time.perf_counter()
    print(f"least squares: {between - begin:.2f} s, peak {peak_memory():,.0f} MB")
    fit = LeastTrimmedSquares(reweight=True, random_state=0).fit(x, y)
    seconds = time.perf_counter() - between
    print(f"least trimmed squares: {seconds:.2f} s, peak {peak_memory():,.0f} MB,", end=" ")
    print(f"{fit.n_passes_} passes, {seconds / (between - begin):.1f} times least squares")
    lts = np.append(fit.intercept_, fit.coef_)
    fits = {"planted": np.append(INTERCEPT, PLANTED), "least squares": ols}
    fits["least trimmed squares"] = lts
    print("\n" + " " * 10 + "".join(f"{name:>23}" for name in fits))
    for name, *row in zip(["intercept", *map(str, range(x.shape[1]))], *fits.values(), strict=True):
        print(f"{name:10}" + "".join(f"{value:23.4f}" for value in row))
    flagged = ~fit.support_.map_blocks(to_host, dtype=bool, meta=np.empty(0, bool))
    n_flagged, n_planted, n_right, is_out = dask.compute(
        flagged.sum(), is_outlier.sum(), (flagged & is_outlier).sum(), flagged[:SHOWN]
    )
    print(f"\n{n_flagged:,} rows are beyond 2.24 scales of {fit.scale_:.2f}:", end=" ")
    print(f"{n_right:,} of the {n_planted:,} outliers, and {n_flagged - n_right:,} others")
    draw(options.picture, shown, of_y, ~is_out, fits)
    print(f"saved {options.picture}")


def main(arguments: list[str] | None = None) -> int:
    """Write the rows, fit them, print and draw."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--rows", type=int, default=10_000_000, help="number of rows (10,000,000)")
    add(
        "--store",
        type=Path,
        help="folder of the store, which is kept (default: a temporary folder)",
    )
    add(
        "--output",
        "--picture",
        dest="picture",
        type=Path,
        default=Path("robust_regression.png"),
        help="picture, PNG or JPEG",
    )
    add("--gpu", action="store_true", help="copy each chunk to the GPU")
    options = parser.parse_args(arguments)
    if options.rows < 100:
        parser.error("needs 100 rows")
    try:
        import matplotlib  # noqa: F401
        import sklearn  # noqa: F401
    except ImportError:
        needs = "python -m pip install '.[gallery]'"
        print(f"this example fits and draws: {needs}", file=sys.stderr)
        return 1
    if options.store is not None:
        compare(options, options.store)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        compare(options, Path(folder))
    return 0


if __name__ == "__main__":
    sys.exit(main())
