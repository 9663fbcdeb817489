"""Peak memory on sources many times larger, measured in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

THREADS = 2
CHUNK = 4_000_000  # bytes
MEGABYTE = 1_000_000
# Pivots and candidates of all chunks, the graph, and what the allocator keeps: 8 MB and less
# were seen.
SLACK = 16 * MEGABYTE

PROGRAM = """
import gc, json, resource, sys
import dask, dask.array as da, numpy as np
from dask_gpuselect import median, quantile
from tests.sources import Source

def peak():
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

dask.config.set(scheduler="threads", num_workers={threads})
question = lambda x: {question}
# Import and compile everything, on chunks that are too small to be noticed.
n = 20_000
question(Source((2 * n,)).lazy(n)).compute()
gc.collect()
before = peak()
n = {chunk} // 8
source = Source(({n_chunks} * n,))
question(source.lazy(n)).compute()
print(json.dumps(dict(grown=peak() - before, loads=sorted(set(source.loads.values())))))
"""


def measure(question: str, n_chunks: int) -> tuple[int, list[int]]:
    """Bytes that answering takes at most, and the loads of the chunks."""
    program = PROGRAM.format(threads=THREADS, chunk=CHUNK, n_chunks=n_chunks, question=question)
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(__file__).parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    return measured["grown"], measured["loads"]


@pytest.mark.parametrize(
    ("question", "loads", "held"),
    [
        ("quantile(x, [0.25, 0.5, 0.75])", [2], 1),
        ("abs(x - median(x)).max()", [3], 1),
        ("median(abs(x - median(x)))", [4], 1),
        ("median(x[x > 0.5])", [2], 1),
        ("median(x.astype('f2'))", [2], 1),
        ("median(x.reshape(-1, 1000).T[::-1, ::2])", [2], 1),
        # Two chunks for each that is made of them; dask loads a few before it merges any.
        ("median(x.rechunk(n // 2 + 1))", [2], 3),
    ],
)
def test_peak_memory_does_not_grow_with_the_data(
    question: str, loads: list[int], held: int
) -> None:
    """A thread may hold its chunk, or as many as the source makes one of, and scratch of two. The
    data are ten times what that allows."""
    limit = THREADS * CHUNK * (held + 2) + SLACK
    grown, counted = measure(question, n_chunks=-(-10 * limit // CHUNK))
    assert counted == loads
    assert grown <= limit


def test_the_measurement_sees_data_that_is_held() -> None:
    """The same question, of an array that is kept: the limit must be broken."""
    grown, counted = measure("median(x.persist())", n_chunks=40)
    assert counted == [1]
    assert grown > 40 * CHUNK
