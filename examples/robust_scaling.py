"""Features of any size for a model: scaled by median and quartiles, or put into bins of equal
numbers of rows. Answers are those of scikit-learn's RobustScaler and KBinsDiscretizer in memory."""

from typing import Any

import dask.array as da
import numpy as np

from dask_gpuselect import nanquantile, quantile_bins


def robust_scaled(x: Any) -> Any:
    """Each column less its median, divided by its interquartile range, NaN left out.

    The three quartiles of all columns share one pass over ``x``, and the scaling takes another.
    """
    q1, med, q3 = nanquantile(x, [0.25, 0.5, 0.75], axis=0)
    spread = q3 - q1
    return (x - med) / da.where(spread > 0, spread, 1)  # a constant column is only centred


def ordinal_bins(x: Any, n_bins: int) -> Any:
    """In which of the bins of its column each element is, from 0 on."""
    edges = quantile_bins(x, n_bins, axis=0)
    return x.map_blocks(_binned, edges=edges[1:-1], dtype=np.int64)


def _binned(chunk: Any, edges: Any) -> Any:
    pairs = zip(chunk.T, edges.T, strict=True)
    return np.stack([np.digitize(column, own) for column, own in pairs], axis=1)


if __name__ == "__main__":
    rng = da.random.default_rng(0)
    x = rng.standard_normal((1_000_000, 20), chunks=(100_000, 20)) ** 3 * np.arange(1, 21) + 5
    scaled = robust_scaled(x)
    q1, med, q3 = np.quantile(scaled.compute(), [0.25, 0.5, 0.75], axis=0)
    print(f"medians up to {abs(med).max():.1e}; quartile ranges {(q3 - q1).min():.6f} or more")
    numbers = [np.bincount(column) for column in ordinal_bins(x, 8).compute().T]
    print(f"rows in each bin: {np.min(numbers)} to {np.max(numbers)}")
