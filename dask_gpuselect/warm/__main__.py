"""The command line of `dask_gpuselect.warm`."""

from __future__ import annotations

import argparse
import time

import numpy as np

from dask_gpuselect.warm import SUBJECTS, warm


def main() -> None:
    parser = argparse.ArgumentParser(
        "python -m dask_gpuselect.warm",
        description="Compile the kernels for some dtypes in advance, and cache them on disk.",
    )
    parser.add_argument(
        "dtypes",
        nargs="*",
        default=["float32", "float64"],
        type=np.dtype,
        help="dtypes of your arrays, such as uint16 (default: float32 float64)",
    )
    parser.add_argument(
        "--subjects",
        nargs="+",
        default=list(SUBJECTS),
        choices=SUBJECTS,
        metavar="SUBJECT",
        help=f"kinds of functions: {', '.join(SUBJECTS)} (default: all)",
    )
    given = parser.parse_args()
    begin = time.perf_counter()

    def show(done: int, total: int, name: str) -> None:
        print(f"{done:4} of {total} kernels, {time.perf_counter() - begin:5.1f} s: {name}")

    warm(given.dtypes, given.subjects, progress=show)


if __name__ == "__main__":
    main()
