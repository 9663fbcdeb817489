"""Exact quartiles of an array that is spread over the GPUs of a machine.

    python examples/gpu_cluster.py
    python examples/gpu_cluster.py --elements 16_000_000_000 --chunks 32

There is a worker for each GPU if there are GPUs, CuPy and dask-cuda. Otherwise two processes on the
CPU do the same with NumPy. The chunks are made on the workers and stay there; only about the square
root of each leaves its worker.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
import time

import dask
import dask.array as da
from distributed import Client, LocalCluster, wait

from dask_gpuselect import quantile

QUARTILES = [0.25, 0.5, 0.75]


def count_gpus() -> int:
    """Return how many GPUs can be used; 0 without CuPy or dask-cuda."""
    if not all(map(importlib.util.find_spec, ("cupy", "dask_cuda"))):
        return 0
    import cupy

    try:
        return int(cupy.cuda.runtime.getDeviceCount())
    except cupy.cuda.runtime.CUDARuntimeError:
        return 0


def start_cluster(workers: int | None) -> tuple[LocalCluster, str]:
    """Start one worker a GPU, or processes on the CPU; return also the kind of their chunks."""
    if n_gpus := count_gpus():
        from dask_cuda import LocalCUDACluster

        n_workers = workers or n_gpus
        print(f"LocalCUDACluster: CuPy chunks on {n_workers} of {n_gpus} GPUs")
        return LocalCUDACluster(n_workers=n_workers, dashboard_address=":0"), "cupy"
    n_workers = workers or 2
    print(f"LocalCluster: NumPy chunks in {n_workers} processes (no GPU, CuPy or dask-cuda)")
    cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address=":0")
    return cluster, "numpy"


def quartiles_are_exact(x: da.Array, quartiles: list[float]) -> bool:
    """Count the elements below and up to each quartile, which must lie between its neighbours."""
    counts = dask.compute([((x < value).sum(), (x <= value).sum()) for value in quartiles])[0]
    positions = [q * (x.size - 1) for q in QUARTILES]
    return all(
        int(below) <= math.ceil(position) and math.floor(position) < int(upto)
        for (below, upto), position in zip(counts, positions, strict=True)
    )


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--elements", type=int, default=20_000_000, help="of 8 bytes; 20 million")
    parser.add_argument("--chunks", type=int, default=8, help="how many; 8")
    parser.add_argument("--workers", type=int, help="one for each GPU, or 2 processes")
    return parser.parse_args()


def main() -> int:
    """Compute the quartiles and check them; 1 if they are wrong."""
    arguments = parse_arguments()
    cluster, kind = start_cluster(arguments.workers)
    with cluster, Client(cluster):
        with dask.config.set({"array.backend": kind}):
            rng = da.random.default_rng(2011)
        chunk = math.ceil(arguments.elements / arguments.chunks)
        x = rng.standard_normal(arguments.elements, chunks=chunk).persist()
        wait(x)
        quantile(x, QUARTILES).compute()  # the first call compiles the kernels on every worker
        begin = time.perf_counter()
        quartiles = [float(value) for value in quantile(x, QUARTILES).compute()]
        seconds = time.perf_counter() - begin
        is_exact = quartiles_are_exact(x, quartiles)
    print(f"{x.nbytes / 1e9:g} GB of normal float64 in {x.npartitions} chunks: {seconds:.2f} s")
    for q, value in zip(QUARTILES, quartiles, strict=True):
        print(f"  quantile {q:<4}  {value!r}")
    print("exact, by the counts of x" if is_exact else "WRONG, by the counts of x")
    return 0 if is_exact else 1


if __name__ == "__main__":
    sys.exit(main())
