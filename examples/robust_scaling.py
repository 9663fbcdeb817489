"""Scale the features of a table larger than memory: (x - median) / IQR.

    python examples/robust_scaling.py --output robust_scaling.png

`robust_scaled` does what scikit-learn's RobustScaler does in memory, `ordinal_bins` what
KBinsDiscretizer does, and `uniform` what QuantileTransformer does. The picture shows features that
have outliers, scaled by means and standard deviations, and by quartiles.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np

from dask_gpuselect import describe_boxplot, nanquantile, quantile_bins


def robust_scaled(x: Any) -> Any:
    """Subtract each column's median and divide by its interquartile range, ignoring NaN.

    The three quartiles of all columns share one pass over ``x``, and the scaling takes another.
    """
    q1, med, q3 = nanquantile(x, [0.25, 0.5, 0.75], axis=0)
    spread = q3 - q1
    return (x - med) / da.where(spread > 0, spread, 1)  # a constant column is only centred


def ordinal_bins(x: Any, n_bins: int) -> Any:
    """Return the bin of each element among the bins of its column, from 0 on."""
    edges = quantile_bins(x, n_bins, axis=0)
    return x.map_blocks(_binned, edges=edges[1:-1], dtype=np.int64)


def _binned(chunk: Any, edges: Any) -> Any:
    pairs = zip(chunk.T, edges.T, strict=True)
    return np.stack([np.digitize(column, own) for column, own in pairs], axis=1)


def uniform(x: Any, n_quantiles: int) -> Any:
    """Return the fraction of each column below each element, interpolated between quantiles.

    If several quantiles are equal, it is the middle of their fractions. NaN stays NaN.
    """
    shares = np.linspace(0, 1, n_quantiles)
    quantiles = nanquantile(x, shares, axis=0)
    return x.map_blocks(_shares_below, quantiles=quantiles, shares=shares, dtype=np.float64)


def _shares_below(chunk: Any, quantiles: Any, shares: Any) -> Any:
    answer = np.empty(chunk.shape)
    for below, column, own in zip(answer.T, chunk.T, quantiles.T, strict=True):
        rising = np.interp(column, own, shares)
        falling = np.interp(-column, -own[::-1], -shares[::-1])
        below[...] = 0.5 * (rising - falling)
        below[column == own[-1]] = 1
        below[column == own[0]] = 0
    return answer


def make(rows: int, columns: int) -> Any:
    """Make features of different sizes; one element of a hundred is far too large."""
    rng = da.random.default_rng(0)
    shape, chunks = (rows, columns), (-(-rows // 10), columns)
    x = rng.standard_normal(shape, chunks=chunks) * np.arange(1, columns + 1) + 5
    return da.where(rng.random(shape, chunks=chunks) < 0.01, 100 * x, x)


def draw(path: Path, x: Any) -> None:
    """Draw box plots of the features: unscaled, by mean and deviation, and by quartiles."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    ways = {
        "As they are": x,
        "(x - mean) / std: outliers decide": (x - x.mean(axis=0)) / x.std(axis=0),
        "(x - median) / IQR": robust_scaled(x),
    }
    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    all_boxes = dask.compute(*(describe_boxplot(each, axis=0) for each in ways.values()))
    for axis, title, boxes in zip(axes, ways, all_boxes, strict=True):
        boxes.plot(axis, showfliers=False, widths=0.6)
        axis.set(title=title, xlabel="feature")
        axis.set_xticks(range(1, len(boxes) + 1), [str(i) for i in range(len(boxes))])
    axes[1].set_ylim(axes[2].get_ylim())
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("robust_scaling.png"), help="picture, PNG or JPEG")
    add("--rows", type=int, default=300_000, help="number of rows (300,000)")
    options = parser.parse_args(arguments)
    import matplotlib  # noqa: F401 -- or raise before anything is computed

    if options.rows < 1000:
        parser.error("needs a thousand rows")
    x = make(options.rows, 8)
    scaled = robust_scaled(x).compute()
    q1, med, q3 = np.quantile(scaled, [0.25, 0.5, 0.75], axis=0)
    print(f"medians up to {abs(med).max():.1e}; quartile ranges {(q3 - q1).min():.6f} or more")
    numbers = [np.bincount(column) for column in ordinal_bins(x, 8).compute().T]
    print(f"rows in each bin: {np.min(numbers)} to {np.max(numbers)}")
    evenly = uniform(x, 1000).compute()
    print(f"quartiles of evenly spread columns {np.quantile(evenly, [0.25, 0.5, 0.75]).round(4)}")
    in_memory = x.compute()
    quartiles = np.quantile(in_memory, [0.25, 0.5, 0.75], axis=0)
    expected = (in_memory - quartiles[1]) / (quartiles[2] - quartiles[0])
    np.testing.assert_array_equal(scaled, expected)
    print("the scaled features equal NumPy's")
    draw(options.output, x)
    print(f"saved {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
