"""Clusters, and the kinds of chunks that cases have there, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import dask.array as da

from dask_gpuselect import to_gpu


@dataclass(frozen=True)
class Place:
    """A cluster of this machine.

    Parameters
    ----------
    n_workers : int or None
        None: one for each GPU, by dask-cuda.
    n_threads : int
        Of a worker.
    is_here : bool
        Whether workers are threads of this process.
    kinds : tuple of str
        Of chunks, in `KINDS`, of which one is drawn.
    """

    n_workers: int | None = 2
    n_threads: int = 1
    is_here: bool = False
    kinds: tuple[str, ...] = ("read",)

    def started(self, **options: Any) -> Any:
        options |= {"threads_per_worker": self.n_threads, "dashboard_address": None}
        if self.n_workers is None:
            from dask_cuda import LocalCUDACluster

            return LocalCUDACluster(**options)
        from distributed import LocalCluster

        return LocalCluster(n_workers=self.n_workers, processes=not self.is_here, **options)


CLUSTERS: dict[str, Place] = {
    "here": Place(3, is_here=True),
    "processes": Place(),
    "process-threads": Place(n_threads=2, kinds=("read", "made by numpy")),
    "gpus": Place(None, kinds=("made by cupy", "to_gpu")),
    "gpu-threads": Place(None, n_threads=2, kinds=("made by cupy", "to_gpu")),
}


def are_processes(scheduler: str) -> bool:
    return scheduler in CLUSTERS and not CLUSTERS[scheduler].is_here


# --- Kinds of chunks ------------------------------------------------------------------------------


def made_by(module: str) -> Callable[[da.Array], da.Array]:
    """Chunks that a task of their own makes, where it runs, of what another has read."""

    def made(x: da.Array) -> da.Array:
        meta = import_module(module).empty((0,) * x.ndim, x.dtype)
        return x.map_blocks(copied, module, dtype=x.dtype, meta=meta)

    return made


def copied(chunk: Any, module: str) -> Any:
    return import_module(module).array(chunk)


KINDS: Mapping[str, Callable[[da.Array], da.Array]] = {
    "read": lambda x: x,
    "made by numpy": made_by("numpy"),
    "made by cupy": made_by("cupy"),
    "to_gpu": to_gpu,
}
