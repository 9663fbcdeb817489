"""Sort a Zarr store larger than memory into another one; measure reads, time and memory.

    python examples/sorted_store.py --gigabytes 20 --store /data/normal.zarr --limit-gb 4

generates 20 GB of float64, or uses an existing store of the same size and distribution. It sorts
the store into a second one beside it, in chunks of the same size, with no more memory than the
limit. Then it reads both stores and checks that the second is the first in ascending order. The
disk needs space for three times the data: both stores, and the pieces in between.
"""

from __future__ import annotations

import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
import zarr
from dask.diagnostics import ProgressBar
from out_of_core import (
    CountingReader,
    StoreError,
    forget,
    parse_arguments,
    parser_of,
    peak_memory,
    prepare,
    spec_of,
    spread,
)

from dask_gpuselect import sort

Floats = npt.NDArray[np.float64]


class Summary(NamedTuple):
    """Sums that a permutation does not change, and the order."""

    size: int
    mixed: int  # the sum, modulo 2**64, of a hash of each element's bits
    first: float
    last: float
    ascends: bool


def summary(block: Floats) -> Summary:
    """Summarize one chunk."""
    z = (block + 0.0).view(np.uint64)  # zeros of both signs are one
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = int((z ^ (z >> np.uint64(31))).sum())
    return Summary(len(block), mixed, block[0], block[-1], bool((block[1:] >= block[:-1]).all()))


def joined(parts: list[Summary]) -> Summary:
    """Summarize all chunks, one after the other."""
    ascends = all(part.ascends for part in parts) and all(
        a.last <= b.first for a, b in zip(parts, parts[1:], strict=False)
    )
    mixed = sum(part.mixed for part in parts) % 2**64
    return Summary(sum(part.size for part in parts), mixed, parts[0].first, parts[-1].last, ascends)


def summary_of(path: Path) -> Summary:
    """Read a store once, chunk by chunk."""
    x = da.from_zarr(path)
    parts = [dask.delayed(summary)(block) for block in x.to_delayed()]
    with ProgressBar():
        return joined(list(dask.compute(*parts)))


def sort_store(source: Path, target: Path, spill: Path) -> tuple[float, list[int]]:
    """Sort a store into another; return the seconds, and the reads of each chunk."""
    forget(source)
    reader = CountingReader(zarr.open_array(source, mode="r"))
    chunks = reader.array.chunks
    x = da.from_array(reader, chunks=chunks, meta=np.empty(0))
    stored = zarr.create_array(
        target, shape=x.shape, chunks=chunks, dtype="float64", compressors=None
    )
    begin = time.perf_counter()
    with ProgressBar():
        # Not by `to_zarr`: a copy of 1 GB in chunks of 20 MB took 450 MB more by it.
        da.store(sort(x, chunks=chunks, spill=spill), cast(Any, stored), lock=False)
    seconds = time.perf_counter() - begin
    return seconds, [reader.loads[i] for i in range(x.npartitions)]


def limit_memory(nbytes: int) -> None:
    """Limit the memory of the process (on Linux, without mapped files)."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (nbytes, hard))


def report(arguments: Any, seconds: float, loads: list[int], before: float) -> None:
    """Print reads, time and memory."""
    print(f"  reads per chunk    {spread(loads)}")
    print(f"  time               {seconds:.1f} s")
    print(f"  reading it once    {before:.1f} s")
    print(f"  ratio              {seconds / before:.1f}")
    print(f"  peak memory        {peak_memory() / 1e6:.0f} MB of {arguments.limit_gb * 1e3:.0f}")


def main(arguments: list[str] | None = None) -> int:
    """Make the store if needed, sort it, and check; return 1 if anything fails."""
    parser = parser_of((__doc__ or "").partition("\n")[0], 20.0, 100.0)
    help_of_limit = "limit of the memory of the process, in 1e9 bytes"
    parser.add_argument("--limit-gb", type=float, default=4.0, help=help_of_limit)
    given = parse_arguments(parser, arguments)
    source, spec = given.store, spec_of(given)
    target = source.with_name(f"sorted-{source.name}")
    limit_memory(int(given.limit_gb * 1e9))
    try:
        if target.exists():
            raise StoreError(f"{target} is there already")
        made = prepare(source, spec, given.threads)
    except StoreError as error:
        print(f"sorted_store: {error}", file=sys.stderr)
        return 1
    try:
        with dask.config.set(scheduler="threads", num_workers=given.threads):
            forget(source)
            begin = time.perf_counter()
            expected = summary_of(source)
            before = time.perf_counter() - begin
            print(f"sorting {spec} into {target}", flush=True)
            seconds, loads = sort_store(source, target, source.absolute().parent)
            report(given, seconds, loads, before)
            ordered = summary_of(target)
    except MemoryError:
        print(
            f"sorted_store: {given.limit_gb:g} GB of memory are not enough: raise --limit-gb, "
            "or lower --chunk-mb or --threads",
            file=sys.stderr,
        )
        return 1
    finally:
        if not given.keep:
            shutil.rmtree(target, ignore_errors=True)
            if made:
                shutil.rmtree(source)
    is_right = ordered.ascends and ordered[:2] == expected[:2] and ordered.size == spec.size
    print("the sorted store is the first one in ascending order" if is_right else "WRONG ORDER")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
