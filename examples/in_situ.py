"""Run a simulation whose field stays on a cluster, and store box plots of the field.

    python examples/in_situ.py                            two processes of this machine
    python examples/in_situ.py --gpu --size 40000         all its GPUs, with CuPy chunks

If a simulation makes more data than can be stored, the five-number summary and the outliers of a
field may be enough (K. L. Spafford, J. S. Meredith and J. S. Vetter, "Quartile and Outlier
Detection on Heterogeneous Clusters Using Distributed Radix Sort", 2011). Here heat spreads from hot
spots of an uneven plate. Workers exchange the borders of their chunks. For a box plot, only counts
and a few values of every chunk leave the workers. Each stored step is a line of JSON, with the
names of `dask_gpuselect.Box`:

    {"step": 5, "n": 1048576, "n_nan": 0, "min": 19.48, "q1": 19.92, ..., "fliers": [19.48, ...]}

Numbers have enough digits to restore float64 exactly. Fliers are the 100 most extreme on each side;
n_low and n_high count all of them. At the end, the last line is compared with NumPy's statistics of
the field itself, if the field is small enough.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster
from numpy.typing import NDArray

from dask_gpuselect import Box, describe_boxplot, to_gpu

CONDUCTIVITY = 0.2
SUBSTEPS = 10  # time steps between two exchanges of borders, which are as many cells wide
MAX_FLIERS = 100  # stored of each side
CHECKED = 1 << 30  # bytes of a field that is gathered in the end, at most


# --- The simulation -------------------------------------------------------------------------------


def start(size: int, workers: int) -> da.Array:
    """Return the initial temperatures, in two chunks or more per worker."""
    part = math.ceil(size / math.ceil(math.sqrt(2 * workers)))
    plate = da.random.default_rng(2011).normal(20, 2, (size, size), chunks=part)
    y, x = da.arange(size, chunks=part)[:, None], da.arange(size, chunks=part)
    field: da.Array = da.where(da.sin(y / 40) * da.sin(x / 40) > 0.99, 100, plate)
    return field


def advance(bordered: Any) -> Any:
    """Advance a part of the plate, NumPy's or CuPy's, by `SUBSTEPS`, and drop its border.

    A cell's next temperature is made of its neighbours', so each time uses up a cell at every edge.
    """
    field = bordered
    for _ in range(SUBSTEPS):
        inner = field[1:-1, 1:-1]
        flow = field[:-2, 1:-1] + field[2:, 1:-1]
        flow += field[1:-1, :-2]
        flow += field[1:-1, 2:]
        flow -= 4 * inner
        flow *= CONDUCTIVITY
        flow += inner
        field = flow
    return field


def step(field: da.Array) -> da.Array:
    """Advance all chunks on the workers, each with the borders of its neighbours.

    The plate's edges meet: what flows out at one flows in at the opposite one.
    """
    bordered = da.overlap.overlap(field, depth=SUBSTEPS, boundary="periodic")
    later: da.Array = bordered.map_blocks(advance, chunks=field.chunks, meta=field._meta).persist()
    return later


def run(field: da.Array, steps: int, every: int, path: Path) -> da.Array:
    """Store the box of every n-th step, and return the field of the last step."""
    with path.open("w", encoding="ascii", newline="\n") as file:
        for number in range(1, steps + 1):
            field = step(field)
            if number % every == 0:
                file.write(line(number, describe_boxplot(field, max_fliers=MAX_FLIERS)[0]))
                file.flush()  # a simulation that fails leaves what it stored
    return field


# --- What is stored -------------------------------------------------------------------------------


def line(number: int, box: Box) -> str:
    """Return the line that is stored for a step."""
    stored = {"step": number, **box.to_dict(), "fliers": box.fliers.tolist()}
    del stored["label"]
    return json.dumps(stored, separators=(",", ":")) + "\n"


def table(path: Path) -> Iterator[str]:
    """Return the stored steps as lines of text."""
    names = ("min", "q1", "med", "q3", "max")
    yield "step" + "".join(f"{name:>8}" for name in names) + f"{'fliers':>10}{'bytes':>8}"
    for text in path.read_text(encoding="ascii").splitlines(keepends=True):
        box = json.loads(text)
        numbers = "".join(f"{box[name]:8.3f}" for name in names)
        yield f"{box['step']:4}{numbers}{box['n_low'] + box['n_high']:10,}{len(text):8,}"


def differences(path: Path, field: NDArray[np.float64]) -> Iterator[str]:
    """Compare the last stored line with NumPy's statistics of the field, bit for bit."""
    stored = json.loads(path.read_text(encoding="ascii").splitlines()[-1])
    q1, med, q3 = np.quantile(field, [0.25, 0.5, 0.75])
    reach = 1.5 * (q3 - q1)
    inside = field[(field >= q1 - reach) & (field <= q3 + reach)]
    whislo, whishi = min(inside.min(), q1), max(inside.max(), q3)
    low, high = np.sort(field[field < whislo]), np.sort(field[field > whishi])[::-1]
    expected = {
        "n": field.size,
        "min": field.min(),
        "q1": q1,
        "med": med,
        "q3": q3,
        "max": field.max(),
        "whislo": whislo,
        "whishi": whishi,
        "n_low": low.size,
        "n_high": high.size,
        "fliers": [*low[:MAX_FLIERS].tolist(), *high[:MAX_FLIERS].tolist()],
    }
    for name, value in expected.items():
        if stored[name] != value:
            yield f"{name} is {stored[name]}, and NumPy says {value}"


# --- The program ----------------------------------------------------------------------------------


def start_cluster(workers: int | None, *, gpu: bool) -> LocalCluster:
    """Start one process per worker, with one GPU each if `gpu` is True."""
    if not gpu:
        return LocalCluster(n_workers=workers or 2, threads_per_worker=1, dashboard_address=":0")
    try:
        import cupy
        from dask_cuda import LocalCUDACluster
    except ImportError as error:
        sys.exit(f"--gpu needs CuPy and dask-cuda ({error}): pip install cupy-cuda13x dask-cuda")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        sys.exit(f"--gpu needs a CUDA device: {error}")
    cluster: LocalCluster = LocalCUDACluster(n_workers=workers, dashboard_address=":0")
    return cluster


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    add = parser.add_argument
    add("--size", type=int, default=1024, help="cells per side of the plate (1024)")
    add(
        "--steps", type=int, default=40, help=f"number of steps, of {SUBSTEPS} time steps each (40)"
    )
    add("--every", type=int, default=5, help="store a box plot after this many steps (5)")
    add("--workers", type=int, help="number of processes (2, or with --gpu one per GPU)")
    add("--gpu", action="store_true", help="use CuPy chunks on a dask-cuda cluster")
    add(
        "--out",
        type=Path,
        default=Path("in_situ.jsonl"),
        help="file of the box plots (in_situ.jsonl)",
    )
    options = parser.parse_args(arguments)
    if options.size < 128 or not 1 <= options.every <= options.steps:
        parser.error("needs 128 cells on a side, and a step that is stored")
    if options.workers is not None and options.workers < 1:
        parser.error("needs a worker")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Simulate, print what was stored, and check it; return 1 if it is wrong."""
    options = parse_arguments(arguments)
    with start_cluster(options.workers, gpu=options.gpu) as cluster, Client(cluster):
        field = start(options.size, len(cluster.workers))
        field = to_gpu(field) if options.gpu else field
        print(
            f"{options.steps} steps of {options.size} x {options.size} float64 in"
            f" {field.npartitions} chunks on {len(cluster.workers)} workers"
        )
        last = run(field.persist(), options.steps, options.every, options.out)
        print(*table(options.out), sep="\n")
        written, avoided = options.out.stat().st_size, options.steps // options.every * last.nbytes
        print(f"{written:,} bytes written to {options.out}")
        print(f"{avoided:,} bytes avoided, of these steps' fields: {avoided / written:,.0f} times")
        if options.steps % options.every or last.nbytes > CHECKED:
            print("Not compared with NumPy: the last field is not stored, or too large to gather.")
            return 0
        whole = last.compute()
    wrong = list(differences(options.out, whole.get() if options.gpu else whole))
    if wrong:
        print("DIFFERENT FROM NUMPY", *wrong, sep="\n  ", file=sys.stderr)
        return 1
    print(f"The box of step {options.steps} equals NumPy's of the gathered field exactly.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
