"""Compute quartiles and a box plot of a Zarr store larger than memory; measure reads and memory.

    python examples/out_of_core.py --gigabytes 32 --store /data/normal.zarr

generates 32 GB of float64, or uses an existing store of the same size and distribution. It sums the
store, computes its quartiles and its box plot, and sums it again. It prints the answers, how often
each chunk was read, the times, and the peak memory of the process.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
import zarr
from dask.diagnostics import ProgressBar

from dask_gpuselect import describe_boxplot, quantile

QUARTILES = [0.25, 0.5, 0.75]
SPEC = "out_of_core"  # the attribute that says what a store holds, and that we made it

Floats = npt.NDArray[np.float64]


class StoreError(Exception):
    """The store cannot be used or made."""


# What a store holds


def outliers(rng: np.random.Generator, start: int, size: int) -> Floats:
    """Draw normal values, and multiply one in a thousand to about 1e20."""
    return rng.standard_normal(size) * np.where(rng.random(size) < 1e-3, 1e20, 1.0)


# Each takes a generator, the position of the chunk's first element, and the chunk's size.
DISTRIBUTIONS: dict[str, Callable[[np.random.Generator, int, int], Floats]] = {
    "normal": lambda rng, start, size: rng.standard_normal(size),
    "uniform": lambda rng, start, size: rng.random(size),
    "lognormal": lambda rng, start, size: rng.lognormal(sigma=3.0, size=size),
    "integers": lambda rng, start, size: rng.integers(0, 10, size).astype(np.float64),
    "constant": lambda rng, start, size: np.full(size, 42.0),
    "sorted": lambda rng, start, size: np.arange(start, start + size, dtype=np.float64),
    "outliers": outliers,
}


@dataclass(frozen=True)
class Spec:
    """Everything that decides the content of a store; sizes in elements."""

    distribution: str
    size: int
    chunk: int
    seed: int

    @property
    def chunks(self) -> int:
        """Return the number of chunks."""
        return -(-self.size // self.chunk)

    @property
    def nbytes(self) -> int:
        """Return the disk space of the store; Zarr writes the last chunk in full."""
        return self.chunks * self.chunk * 8

    def attributes(self, *, complete: bool) -> dict[str, Any]:
        """Return the attributes of the store."""
        return {**asdict(self), "complete": complete}

    def __str__(self) -> str:
        return f"{self.size * 8 / 1e9:g} GB of {self.distribution} float64 in {self.chunks} chunks"


# Making it


def make_chunk(block_id: tuple[int], spec: Spec) -> Floats:
    """Return one chunk's values, which depend on nothing but the spec and its position."""
    start = block_id[0] * spec.chunk
    rng = np.random.default_rng([spec.seed, block_id[0]])
    return DISTRIBUTIONS[spec.distribution](rng, start, min(spec.chunk, spec.size - start))


def generate(path: Path, spec: Spec, threads: int) -> None:
    """Write the store chunk by chunk: one chunk per thread is in memory at a time.

    Without compression: random mantissas do not shrink, and so the bytes read are the bytes asked
    for, the room needed is known beforehand, and the times are those of the disk and of the
    selection rather than of a decoder.
    """
    target = zarr.create_array(
        path, shape=(spec.size,), chunks=(spec.chunk,), dtype="float64", compressors=None
    )
    target.attrs[SPEC] = spec.attributes(complete=False)
    lazy = da.map_blocks(
        make_chunk,
        spec=spec,
        dtype=np.float64,
        chunks=da.core.normalize_chunks((spec.chunk,), (spec.size,)),
        meta=np.empty(0),
    )
    with ProgressBar(), dask.config.set(scheduler="threads", num_workers=threads):
        lazy.to_zarr(target)
    target.attrs[SPEC] = spec.attributes(complete=True)


def generate_in_child(path: Path, spec: Spec, threads: int) -> None:
    """Generate in a separate process, whose memory is not measured."""
    print(f"generating {spec}: {path}", flush=True)
    child = multiprocessing.get_context("spawn").Process(
        target=generate, args=(path, spec, threads)
    )
    child.start()
    child.join()
    if child.exitcode != 0:
        raise StoreError(f"generating the store failed (exit code {child.exitcode}); see above")


def attributes_of(path: Path) -> dict[str, Any] | None:
    """Return the attributes of a store made by this program; None if there is none."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return None
    try:
        attributes = zarr.open_array(path, mode="r").attrs.asdict().get(SPEC)
    except (OSError, TypeError, ValueError):
        attributes = None
    if not isinstance(attributes, dict):
        raise StoreError(f"{path} holds something that this program did not write")
    return attributes


def require_room(path: Path, spec: Spec) -> None:
    """Raise an error for a store that would fill the disk."""
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    free = shutil.disk_usage(parent).free
    if free < 1.02 * spec.nbytes:
        raise StoreError(
            f"{parent} has {free / 1e9:.1f} GB free, and {spec} need {spec.nbytes / 1e9:.1f} GB"
        )


def prepare(path: Path, spec: Spec, threads: int) -> bool:
    """Make sure that the store exists; return whether this run made it."""
    attributes = attributes_of(path)
    if attributes == spec.attributes(complete=True):
        print(f"found {spec}: {path}")
        return False
    if attributes == spec.attributes(complete=False):
        print(f"{path} is incomplete and is generated again")
        shutil.rmtree(path)
    elif attributes is not None:
        raise StoreError(
            f"{path} holds something else: {attributes}, and not {asdict(spec)};"
            " remove it or name another --store"
        )
    require_room(path, spec)
    try:
        generate_in_child(path, spec, threads)
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    return True


# Measuring


class CountingReader:
    """A Zarr array that counts how often each of its chunks is read."""

    def __init__(self, array: zarr.Array[Any]) -> None:
        """Read through `array`, which is 1-D."""
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype
        self.ndim = array.ndim
        self.loads: Counter[int] = Counter()
        self.lock = threading.Lock()

    def __getitem__(self, key: Any) -> Floats:
        """Read a slice, and count every chunk that it touches."""
        (part,) = key if isinstance(key, tuple) else (key,)
        start, stop, _ = part.indices(self.shape[0])
        if stop > start:
            chunk = self.array.chunks[0]
            with self.lock:
                self.loads.update(range(start // chunk, (stop - 1) // chunk + 1))
        return np.asarray(self.array[part])

    def __dask_tokenize__(self) -> str:
        """Return the same token for two readers of one store."""
        return f"CountingReader({self.array.store_path})"


def forget(path: Path) -> None:
    """Drop the store from the page cache, so that a measurement begins at the disk (Linux)."""
    if not hasattr(os, "posix_fadvise"):
        return
    for file in path.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def peak_memory() -> int:
    """Return the largest resident size of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


@dataclass(frozen=True)
class Measurement:
    """Time, reads and memory of computing one lazy result."""

    result: Any
    seconds: float
    loads: list[int]  # of each chunk
    peak: int  # memory of the process so far


def measure(name: str, path: Path, function: Callable[[Any], Any]) -> Measurement:
    """Compute `function` of the lazily opened store, from the disk, with a progress bar."""
    forget(path)
    reader = CountingReader(zarr.open_array(path, mode="r"))
    x = da.from_array(reader, chunks=reader.array.chunks)
    print(name, flush=True)
    with ProgressBar():
        begin = time.perf_counter()
        (result,) = dask.compute(function(x))
        seconds = time.perf_counter() - begin
    loads = [reader.loads[i] for i in range(x.npartitions)]
    return Measurement(result, seconds, loads, peak_memory())


def spread(values: list[int]) -> str:
    """Return '2', or '1 to 2, 1.02 in the mean' if not all are equal."""
    low, high = min(values), max(values)
    mean = sum(values) / len(values)
    return f"{low}" if low == high else f"{low} to {high}, {mean:.3g} in the mean"


def report(
    spec: Spec, before: Measurement, quartiles: Measurement, box: Measurement, after: Measurement
) -> None:
    """Print the answers, with time, reads and memory."""
    mean = (before.seconds + after.seconds) / 2
    print(f"\n{spec}")
    print(f"  x.sum()            {before.seconds:.2f} s before, {after.seconds:.2f} s after")
    print(f"  peak memory        {before.peak / 1e6:.0f} MB")
    for name, ours in (("quartiles", quartiles), ("box plot", box)):
        print(name)
        for q, value in zip(QUARTILES, ours.result, strict=True):
            print(f"  quantile {q:<4}      {float(value)!r}")
        rate = spec.size * 8e-9 / ours.seconds
        print(f"  reads per chunk    {spread(ours.loads)}")
        print(f"  time               {ours.seconds:.2f} s ({rate:.2f} GB/s)")
        print(f"  ratio              {ours.seconds / mean:.2f} times x.sum()")
        print(f"  peak memory so far {ours.peak / 1e6:.0f} MB")


def quartiles_of_box(x: da.Array) -> list[Any]:
    """Return the quartiles of a box plot, lazily."""
    box = describe_boxplot(x)[0]
    return [box.q1, box.med, box.q3]


# The program


def parser_of(description: str, gigabytes: float, chunk_mb: float) -> argparse.ArgumentParser:
    """Return a parser of the options of a store, with these defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--gigabytes", type=float, default=gigabytes, help="size of the array, in 1e9 bytes")
    add("--store", type=Path, required=True, help="folder of the Zarr array")
    add("--chunk-mb", type=float, default=chunk_mb, help="size of a chunk, in 1e6 bytes")
    add("--threads", type=int, default=2, help="number of threads")
    add("--keep", action="store_true", help="keep the stores that this run makes")
    add(
        "--distribution",
        choices=DISTRIBUTIONS,
        default="normal",
        help="distribution of the elements",
    )
    add("--seed", type=int, default=0, help="seed of the random numbers")
    return parser


def parse_arguments(
    parser: argparse.ArgumentParser, given: list[str] | None = None
) -> argparse.Namespace:
    """Read the command line."""
    arguments = parser.parse_args(given)
    if min(arguments.gigabytes, arguments.chunk_mb, arguments.threads) <= 0:
        parser.error("--gigabytes, --chunk-mb and --threads must be positive")
    return arguments


def spec_of(arguments: argparse.Namespace) -> Spec:
    """Turn the command line's sizes into elements."""
    size = max(1, round(arguments.gigabytes * 1e9 / 8))
    chunk = max(1, round(arguments.chunk_mb * 1e6 / 8))
    return Spec(arguments.distribution, size, min(chunk, size), arguments.seed)


def main() -> int:
    """Make the store if needed, measure and report; return 1 if there is no store."""
    arguments = parse_arguments(parser_of(__doc__.partition("\n")[0], 32.0, 128.0))
    path, spec = arguments.store, spec_of(arguments)
    try:
        made = prepare(path, spec, arguments.threads)
    except StoreError as error:
        print(f"out_of_core: {error}", file=sys.stderr)
        return 1
    try:
        with dask.config.set(scheduler="threads", num_workers=arguments.threads):
            before = measure("x.sum()", path, lambda x: x.sum())
            ours = measure("quartiles", path, lambda x: quantile(x, QUARTILES))
            box = measure("box plot", path, quartiles_of_box)
            after = measure("x.sum() once more", path, lambda x: x.sum())
        report(spec, before, ours, box, after)
    finally:
        if made and not arguments.keep:
            shutil.rmtree(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
