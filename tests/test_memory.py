"""Peak memory on sources many times larger, measured in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

THREADS = 2
CHUNK = 8_000_000  # bytes
N_CHUNKS = 96
MEGABYTE = 1_000_000

PROGRAM = """
import gc, json, resource, sys
import dask, dask.array as da, numpy as np
from dask_gpuselect import median, quantile
from tests.sources import Source

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

dask.config.set(scheduler="threads", num_workers={threads})
n = {chunk} // 8
question = lambda x: {question}
# Compile and import everything on two chunks, so that the rest is what the data costs.
x = Source((2 * n,)).lazy(n)
question(x).compute()
gc.collect()
before = peak()
source = Source(({n_chunks} * n,))
x = source.lazy(n)
answer = question(x).compute()
print(json.dumps(dict(before=before, after=peak(), loads=sorted(set(source.loads.values())))))
"""


def measure(question: str) -> tuple[int, list[int]]:
    """Bytes beyond what two chunks had cost already, and the loads of the chunks."""
    program = PROGRAM.format(threads=THREADS, chunk=CHUNK, n_chunks=N_CHUNKS, question=question)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    return measured["after"] - measured["before"], measured["loads"]


@pytest.mark.parametrize(
    ("question", "loads"),
    [
        ("quantile(x, [0.25, 0.5, 0.75])", [2]),
        ("abs(x - median(x)).max()", [3]),
        ("median(abs(x - median(x)))", [4]),
        ("median(x.rechunk(n // 2 + 1))", [2]),
        ("median(x.reshape(-1, 1000)[:, ::2])", [2]),
        ("median(x.astype('f2'))", [2]),
    ],
)
def test_peak_memory_does_not_grow_with_the_data(question: str, loads: list[int]) -> None:
    """768 MB of source; what is allowed beyond the first two chunks is a tenth of that.

    A thread may hold a chunk and scratch of two. The process had reached that already with two
    chunks, one a thread, if both ran at once; if they did not, it is still to come.
    """
    grown, counted = measure(question)
    assert counted == loads
    limit = THREADS * CHUNK * 3 + 28 * MEGABYTE
    assert limit <= N_CHUNKS * CHUNK / 10
    assert grown <= limit


def test_the_measurement_sees_data_that_is_held() -> None:
    """The same question, of an array that is kept: the limit must be broken."""
    grown, counted = measure("median(x.persist())")
    assert counted == [1]
    assert grown > N_CHUNKS * CHUNK / 2
