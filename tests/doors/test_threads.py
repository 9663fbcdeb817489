"""Many threads at once, and processes that fork after the package was used."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest

from dask_gpuselect import describe_boxplot, median, quantile, sort
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import mad
from tests.data import normal
from tests.engine.test_processes import needs_fork, run
from tests.processes import in_threads

pytestmark = pytest.mark.any_dask

N_THREADS = 8

VALUES = normal(7000)
LABELS = np.arange(7000) % 7


CALLS: dict[str, Callable[[Any], Any]] = {
    "median": median,
    "quantile": lambda a: quantile(a, [0.1, 0.5, 0.9]),
    "mad": mad,
    "boxes": lambda a: describe_boxplot(a).to_dict(),
    "groups": lambda a: groupby(a, LABELS).median(),
    "lanes": lambda a: quantile(a.reshape(70, 100), [0.1, 0.5], axis=0),
    "sort": sort,
}


@pytest.mark.few(5)
@pytest.mark.parametrize("name", CALLS)
def test_eager_calls_from_many_threads(name: str) -> None:
    arrays = [VALUES * (i + 1) for i in range(N_THREADS)]
    wanted = [repr(CALLS[name](a)) for a in arrays]

    def ask(i: int) -> str:
        return [repr(CALLS[name](arrays[i])) for _ in range(5)][-1]

    assert in_threads(N_THREADS, ask) == wanted


def test_lazy_answers_from_many_threads() -> None:
    """Of one source, so that boards and files of the same names meet."""
    x = da.from_array(VALUES, chunks=1000).map_blocks(np.copy)
    answer, ordered = median(x), sort(x, spill=True)
    wanted = np.median(VALUES), np.sort(VALUES)

    def ask(i: int) -> bool:
        actual, whole = dask.compute(answer, ordered, scheduler="sync" if i % 2 else "threads")
        return bool(actual == wanted[0] and (whole == wanted[1]).all())

    assert all(in_threads(N_THREADS, ask))


FIRST_CALLS = """
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from dask_gpuselect import describe_boxplot, median, quantile
from dask_gpuselect.kernels import compiling
made = Counter()
jit = compiling.jit
def counted(kernel, signature):
    made[kernel, signature] += 1
    return jit(kernel, signature)
compiling.jit = counted
compiling.LARGE = 0
a = np.random.default_rng(0).normal(size=600_000)
barrier = threading.Barrier(8)
def ask(i):
    barrier.wait()
    lanes = quantile(a.reshape(600, -1), 0.3, axis=1)
    return repr([median(a), describe_boxplot(a).to_dict(), lanes])
with ThreadPoolExecutor(8) as pool:
    found = set(pool.map(ask, range(8)))
barrier = threading.Barrier(1)
assert found == {ask(0)}
assert made, "kernels are compiled"
print(max(made.values()))
"""


@pytest.mark.slow
def test_first_calls_of_many_threads_compile_once(tmp_path: Path) -> None:
    assert run(FIRST_CALLS, NUMBA_CACHE_DIR=str(tmp_path)) == "1\n"


# --- Forks ----------------------------------------------------------------------------------------

# Threads that hold this package's locks nearly always, while another forks.
FORKING = """
import os, signal, threading, time
import dask, dask.array as da, numpy as np
from dask_gpuselect import disable, enable, median, sort
from dask_gpuselect.engine import boards, spill
from dask_gpuselect.kernels import compiling

values = np.random.default_rng(0).normal(size=20_000)
x = da.from_array(values, chunks=1000).map_blocks(np.copy)
def answers():
    with dask.config.set(scheduler="sync"), enable():
        return median(values), median(x).compute(), sort(x, spill=True).compute().tobytes()
wanted = answers()
median(x).compute(scheduler="threads")  # dask has a pool now

def hold(lock):
    while not done:
        with lock:
            time.sleep(0.002)
done = False
from dask_gpuselect.routing import lock
ours = boards._boards_lock, boards.room._lock, spill._files_lock, compiling._building, lock
for lock in ours:
    threading.Thread(target=hold, args=(lock,), daemon=True).start()
codes = []
for _ in range(4):
    child = os.fork()
    if child == 0:
        signal.alarm(300)  # a child that waits for ever is ended
        os._exit(answers() != wanted)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
done = True
print(codes)
print(answers() == wanted)
"""


@pytest.mark.slow
@needs_fork
def test_a_child_finds_no_lock_taken() -> None:
    assert run(FORKING) == f"{[0] * 4}\nTrue\n"


@needs_fork
def test_a_file_of_the_parent_is_not_read_by_a_child(tmp_path: Path) -> None:
    script = f"""
import os
import numpy as np
from dask_gpuselect.engine.spill import SpillFile
piece = SpillFile({str(tmp_path)!r}).write(np.arange(5))
child = os.fork()
if child == 0:
    try:
        piece.read()
    except RuntimeError as error:
        os._exit(0 if "forked" in str(error) else 2)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), piece.read().tolist())
"""
    assert run(script) == "0 [0, 1, 2, 3, 4]\n"
