"""Compute exact quartiles of an array spread over several GPUs, or over processes without GPUs.

    python examples/gpu_cluster.py            20 million elements
    python examples/gpu_cluster.py 8e9        64 GB

Of a chunk of n elements, only about the square root of n leaves its worker.
"""

import argparse

import dask
import dask.array as da
from distributed import Client, LocalCluster

from dask_gpuselect import quantile

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "elements", nargs="?", type=float, default=2e7, help="number of elements (2e7)"
    )
    n = int(parser.parse_args().elements)
    try:
        import cupy
        from dask_cuda import LocalCUDACluster as Cluster

        cupy.cuda.runtime.getDeviceCount()
        kind = "cupy"
    except (ImportError, RuntimeError):  # no CuPy or dask-cuda, no driver, no device
        kind, Cluster = "numpy", LocalCluster
    with Cluster(dashboard_address=":0") as cluster, Client(cluster):
        print(f"{Cluster.__name__}: {kind} chunks on {len(cluster.workers)} workers")
        with dask.config.set({"array.backend": kind}):
            x = da.random.default_rng(2011).standard_normal(n, chunks=-(-n // 32)).persist()
        quartiles = quantile(x, [0.25, 0.5, 0.75], method="lower").compute()
        for q, value in zip([0.25, 0.5, 0.75], quartiles.tolist(), strict=True):
            below, upto = dask.compute((x < value).sum(), (x <= value).sum())
            is_exact = int(below) <= int(q * (n - 1)) < int(upto)
            print(f"quantile {q}: {value!r}, {'exact' if is_exact else 'WRONG'}: {below} below")
