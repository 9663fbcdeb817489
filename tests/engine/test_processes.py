"""Answers about plain arrays in processes of all kinds: forked ones, those that are about to end,
and where nothing can be written."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.processes import ROOT, python

pytestmark = pytest.mark.any_dask  # of plain arrays


# All that threads have a share in, and an answer that can be compared.
ANSWERS = """
import numpy as np
from dask_gpuselect import describe_boxplot, median, quantile, sort
from dask_gpuselect.engine import threads
from dask_gpuselect.distribution import ecdf
from dask_gpuselect.neighbors import KNeighborsRegressor, kneighbors
from dask_gpuselect.robust import LeastTrimmedSquares, mad

for kind in threads.WORTH:
    threads.WORTH[kind] = 100
a = np.random.default_rng(0).normal(size=4_000)
table = a.reshape(-1, 4)

def answers():
    fit = LeastTrimmedSquares(n_starts=2, random_state=0).fit(table[:, 1:], table[:, 0])
    found = [
        median(a), quantile(table, [0.1, 0.5], axis=1), mad(a), mad(table, axis=0),
        describe_boxplot(a).to_dict(), describe_boxplot(table, axis=0).to_dict(),
        ecdf(a).cdf(0.3), ecdf(a, [0.0, 1.0]).upto, sort(a[:100]),
        kneighbors(table, table[:9], 3), fit.coef_,
        KNeighborsRegressor().fit(table[:, 1:], table[:, 0]).predict(table[:9, 1:]),
    ]
    return repr(found)
"""


def run(script: str, **environment: str) -> str:
    """What a script of a fresh interpreter prints; it fails if that hangs."""
    environment = {"DASK_NUM_WORKERS": "3"} | environment
    return python("-W", "ignore::DeprecationWarning", "-c", script, is_silent=True, **environment)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


@needs_fork
@pytest.mark.slow
def test_forked_children_answer() -> None:
    """Of the main thread, of another, and of a pool."""
    script = """
import multiprocessing, os, signal, threading
wanted = answers()
def fork():
    child = os.fork()
    if child == 0:
        signal.alarm(300)  # a child that waits for ever is ended
        os._exit(answers() != wanted)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
def same(i):
    return answers() == wanted
fork()
thread = threading.Thread(target=fork)
thread.start()
thread.join()
with multiprocessing.get_context("fork").Pool(2) as pool:
    print(pool.map_async(same, range(3)).get(300))
print(answers() == wanted)
"""
    assert run(ANSWERS + script).split("\n") == ["0", "0", "[True, True, True]", "True", ""]


@pytest.mark.slow
def test_functions_of_atexit_answer() -> None:
    """The interpreter starts no more threads then."""
    script = """
import atexit
wanted = answers()
atexit.register(lambda: print(answers() == wanted))
"""
    assert run(ANSWERS + script) == "True\n"


@pytest.mark.slow
def test_without_threads() -> None:
    """Where the system gives no more of them; and errors of tasks are theirs."""
    script = """
import threading
def fail(i):
    raise RuntimeError(f"item {i}")
def refused(thread):
    raise RuntimeError("can't start new thread")
wanted, start = answers(), threading.Thread.start
for threading.Thread.start in (start, refused):
    print(answers() == wanted)
    try:
        threads.each(fail, [7, 8], 3)
    except RuntimeError as error:
        print(error)
"""
    assert run(ANSWERS + script) == "True\nitem 7\n" * 2


# --- Where compiled kernels cannot be kept --------------------------------------------------------


# A superuser may write anywhere, unless it gives up that right before another program starts.
AS_OTHERS = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
os.execv(sys.executable, [sys.executable, "-c", sys.argv[1]])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="rights of Linux")
def test_a_read_only_installation_without_a_home(tmp_path: Path) -> None:
    """As in a container: nothing is written, and all is answered."""
    package, home = tmp_path / "site" / "dask_gpuselect", tmp_path / "home"
    unkept = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "dask_gpuselect", package, ignore=unkept)
    home.mkdir()
    for path in (home, package, *package.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    # CuPy makes a folder for its kernels when it is imported.
    script = f"""
import os, sys
sys.path[:0] = [{str(package.parent)!r}]
for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
    os.environ.pop(name, None)
os.environ |= {{"HOME": {str(home)!r}, "CUPY_CACHE_DIR": {str(tmp_path)!r}}}
if os.access({str(home)!r}, os.W_OK):
    print("writable")
    sys.exit()
import numpy as np, dask.array as da, dask_gpuselect
from dask_gpuselect.kernels import compiling
assert dask_gpuselect.__file__.startswith({str(home.parent)!r})
compiling.LARGE = 0
a = np.random.default_rng(0).normal(size=20_000)
assert dask_gpuselect.median(a) == np.median(a)
assert dask_gpuselect.median(da.from_array(a, chunks=10_000)).compute() == np.median(a)
print(dask_gpuselect.median(a.reshape(2, -1), axis=1).shape)
"""
    printed = run(f"import sys\nsys.argv = ['', {script!r}]\n{AS_OTHERS}", PYTHONPATH="")
    if printed == "writable\n":
        pytest.skip("everything is writable here")
    assert printed == "(2,)\n"
    assert not list(tmp_path.rglob("__pycache__"))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="rights of Linux")
def test_kernels_of_a_read_only_installation_are_kept_where_numba_is_told(tmp_path: Path) -> None:
    """As in an image that `python -m dask_gpuselect.warm` has filled."""
    package, cache = tmp_path / "site" / "dask_gpuselect", tmp_path / "cache"
    shutil.copytree(ROOT / "dask_gpuselect", package, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (package, *package.rglob("*")):
        path.chmod(path.stat().st_mode & ~0o222)
    own = {"NUMBA_CACHE_DIR": str(cache)}
    there = f"import sys; sys.path[:0] = [{str(package.parent)!r}]\n"  # before this folder

    def kept() -> dict[str, float]:
        return {path.name: path.stat().st_mtime for path in cache.rglob("*.nb[ci]")}

    warm = "import runpy; sys.argv = ['warm', 'float64', '--subjects', 'neighbors']; "
    run(f"{there}{warm}runpy.run_module('dask_gpuselect.warm', run_name='__main__')", **own)
    before = kept()
    assert any("_search" in name for name in before)
    script = f"""
import numpy as np, dask_gpuselect
from dask_gpuselect.neighbors import kneighbors
assert dask_gpuselect.__file__.startswith({str(tmp_path)!r})
rows = np.random.default_rng(1).normal(size=(600, 3))
print(kneighbors(rows, rows[:5], 1)[1].ravel())
"""
    assert run(f"{there}{script}", **own) == "[0 1 2 3 4]\n"
    assert kept() == before, "everything was there"
    assert not list(package.rglob("__pycache__"))


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_or_read(tmp_path: Path) -> None:
    """A disk that is full, files that are broken, a folder that has gone."""
    script = f"""
import resource, shutil
from pathlib import Path
import numpy as np
from dask_gpuselect.kernels import compiling
from dask_gpuselect.kernels.cpu import typed as t
folder = Path({str(tmp_path)!r})

@compiling.kernel
def sums(values: t.Values, out: t.Out) -> None:
    for value in values:
        out[0] += value

def check():
    compiling._kernels.clear()
    for kind in ("f8", "f4", "i8"):
        values, out = np.arange(5, dtype=kind), np.zeros(1, kind)
        sums(values, out)
        assert out[0] == 10
    return {{path.suffix for path in folder.rglob("*.nb*")}}

limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))  # bytes of a file
print(sorted(check()))
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, limits[1]))
print(sorted(check()))
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
print(sorted(check()))
for path in folder.rglob("*.nbi"):
    path.write_bytes(b"nothing")
check()
for path in folder.rglob("*.nbc"):
    path.write_bytes(b"nothing")
check()
shutil.rmtree(folder)
folder.write_text("a file")
check()
"""
    (tmp_path / "kernels.py").write_text(script)
    code = f"import runpy; runpy.run_path({str(tmp_path / 'kernels.py')!r})"
    cache = tmp_path / "cache"
    (tmp_path / "kernels.py").write_text(script.replace(str(tmp_path), str(cache)))
    printed = run(code, NUMBA_CACHE_DIR=str(cache)).splitlines()
    assert printed == ["[]", "['.nbi']", "['.nbc', '.nbi']"]


@needs_fork
@pytest.mark.slow
def test_ctrl_c_at_any_moment() -> None:
    """Three hundred, of which some come while Numba converts arguments or results."""
    printed = run("""
import os, random, signal, sys, threading
from collections import Counter
import numpy as np
from dask_gpuselect import describe_boxplot
from dask_gpuselect.kernels import compiling

sys.unraisablehook = lambda _: None  # Python drops one that comes while it collects garbage
a, told = np.random.default_rng(0).normal(size=2_000), Counter()
press = lambda: os.kill(os.getpid(), signal.SIGINT)
compiling.LARGE = 0
while told.total() < 300:
    describe_boxplot(a)
    try:
        signal_soon = threading.Timer(0.002 * random.random(), press)
        try:
            signal_soon.start()
            while signal_soon.is_alive():
                describe_boxplot(a)
        except Exception as error:
            told[type(error).__name__] += 1
        except KeyboardInterrupt as error:
            told["KeyboardInterrupt"] += 1
        signal_soon.join()
    except KeyboardInterrupt:
        told["late"] += 1
print(sorted(set(told) - {"late"}))
""")
    assert printed.split() == ["['KeyboardInterrupt']"]
