"""Compute quantiles of a column of a dask DataFrame, for all rows and by hour.

    python examples/dataframe_column.py --output dataframe_column.png

writes Parquet files of synthetic taxi rides, one for each month, whose fares rise from month to
month. `df["fare"].exact.quantile(q)` is exact. dask's own `df["fare"].quantile(q)` is computed from
the quantiles of each partition, and is approximate. `df.exact.groupby("hour")` computes the
quantiles of each hour, without moving rows between partitions. All are checked with pandas.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd

import dask_gpuselect.dataframe  # noqa: F401  # adds the accessor `exact`

QUANTILES = [0.05, 0.25, 0.5, 0.75, 0.95]


def month(i: int, rows: int) -> Any:
    """Make the rides of a month: those at night are longer."""
    rng = np.random.default_rng(i)
    hour = (rng.normal(15, 5, rows) % 24).astype("i8")
    is_night = (hour < 5) | (hour > 21)
    kilometres = rng.lognormal(1.2, 0.6, rows) * np.where(is_night, 1.6, 1.0)
    rate = 1.8 + 0.15 * i
    return pd.DataFrame({"hour": hour, "fare": np.round(3.5 + rate * kilometres, 2)})


def write(folder: Path, months: int, rows: int) -> None:
    """Write a file for each month; the first ones have few rides."""
    for i in range(months):
        month(i, rows * (i + 1) // months).to_parquet(folder / f"{i:02}.parquet")


def draw(path: Path, exact: Any, approximate: Any, hours: Any) -> None:
    """Draw the errors of the approximate quantiles, and the fares by hour."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
    error = 100 * (approximate / exact - 1)
    bars: Any = left.bar([f"{100 * q:g}" for q in QUANTILES], error, color="0.7")
    left.bar_label(bars, [f"{each:+.1f} %" for each in error], padding=2, fontsize=8)
    left.axhline(0, color="tab:blue", linewidth=2, label="exact")
    left.margins(y=0.2)
    left.set(title="Error of dask's own quantiles", xlabel="percentile of all fares", ylabel="%")
    left.legend(frameon=False)
    table = hours.unstack()
    for low, high, shade in ((0.05, 0.95, 0.2), (0.25, 0.75, 0.45)):
        right.fill_between(
            table.index, table[low], table[high], color="tab:blue", alpha=shade, linewidth=0,
            label=f"{100 * low:g} to {100 * high:g} %", step="mid",
        )  # fmt: skip
    right.step(table.index, table[0.5], color="black", where="mid", label="median")
    right.set(title="Fares by hour, exact", xlabel="hour of the day", xlim=(0, 23))
    right.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=100)
    pyplot.close(figure)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add: Any = parser.add_argument
    add("--output", type=Path, default=Path("dataframe_column.png"), help="picture, PNG or JPEG")
    add("--months", type=int, default=12, help="number of months, one file each (12)")
    add("--rows", type=int, default=200_000, help="rides of the last month (200,000)")
    options = parser.parse_args(arguments)
    if options.months < 2 or options.rows < 1000:
        parser.error("needs two months and a thousand rides")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.months, options.rows)
        df = dd.read_parquet(folder)
        # One call answers all quantiles; both answers are lazy.
        of_all = df["fare"].exact.quantile(QUANTILES)
        of_hours = df.exact.groupby("hour")["fare"].quantile(QUANTILES)
        exact, hours, approximate, rows = dask.compute(
            of_all, of_hours, df["fare"].quantile(QUANTILES), df
        )
    print(f"{len(rows):,} rides in {df.npartitions} partitions")
    pd.testing.assert_series_equal(exact, rows["fare"].quantile(QUANTILES), check_exact=True)
    pd.testing.assert_series_equal(
        hours, rows.groupby("hour")["fare"].quantile(QUANTILES), check_exact=True
    )
    print(f"{len(exact)} quantiles of all rides and {len(hours)} of hours equal those of pandas")
    print(pd.DataFrame({"exact": exact, "dask's own": approximate}).round(2))
    draw(options.output, exact, approximate, hours)
    print(f"saved {options.output}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
