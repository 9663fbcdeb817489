"""What all tests share: the kinds of array that they run over, and what `--gpu` demands."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import dask
import dask.array
import pytest
from hypothesis import settings

from dask_gpuselect.engine.spill import SpillFile
from dask_gpuselect.kernels import compiling, registry
from tests import backends, emulated
from tests.backends import CUPY, NUMPY, Backend
from tests.spies import noted

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

# The same examples every time, and no clock: the machines that run this are shared.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40)
settings.load_profile("repeatable")

# Nobody looks at what clusters notice of themselves. It took the two clusters of a process 14 % of
# a core while they had nothing to do; without it, they take 4 %.
dask.config.set(
    {
        "distributed.admin.system-monitor.interval": "10s",
        "distributed.admin.tick.interval": "1s",
        "distributed.worker.profile.enabled": False,
        # A machine with much else to do is slow, and nobody has gone away.
        "distributed.comm.timeouts.connect": "90s",
        "distributed.comm.timeouts.tcp": "300s",
    }
)

PACKAGE = Path(__file__).parents[1] / "dask_gpuselect"


@pytest.fixture(
    scope="module", params=[backends.param(kind, kind, id=kind.name) for kind in (NUMPY, CUPY)]
)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """NumPy, and CuPy in a test that is then marked `gpu`.

    A test whose `dtype` CuPy does not have runs over NumPy alone.
    """
    yield request.param
    request.param.free()


@pytest.fixture(autouse=True, scope="session")
def no_patience() -> Iterator[None]:
    """NumPy answers about small arrays, however long that takes together: most kernels would take
    longer to compile than they save, and a test must not depend on how fast a machine is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "PATIENCE", float("inf"))
        yield


@pytest.fixture(autouse=True, scope="session")
def compiled_once(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[None]:
    """Of the processes of a run one compiles a kernel. Another that needs it meanwhile waits, and
    then reads it from the disk."""
    if fcntl is None or not hasattr(request.config, "workerinput"):
        yield
        return
    folder = tmp_path_factory.getbasetemp().parent  # of all processes
    jit = compiling._jit

    def alone(kernel: Any, signature: Any) -> Any:
        with (folder / f"{kernel.__module__}.{kernel.__name__}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return jit(kernel, signature)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "_jit", alone)
        yield


@pytest.fixture(scope="module")
def by_kernels() -> Iterator[None]:
    """Kernels answer about arrays of any size, as they do about large ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "LARGE", 0)
        yield


@pytest.fixture(scope="module")
def in_this_thread() -> Iterator[None]:
    """Warnings of tasks reach the test, and small graphs need no pool."""
    with dask.config.set(scheduler="sync"):
        yield


@pytest.fixture
def nothing_kept() -> Iterator[None]:
    """First loads keep nothing, so that every chunk takes two: see `tests/engine/test_keeping.py`
    for what they keep."""
    with dask.config.set({"dask_gpuselect.cache-limit": 0}):
        yield


@pytest.fixture(autouse=True)
def kernels_of_modules() -> Iterator[None]:
    """Find kernels in their modules again after a test that replaced some.

    pytest leaves the old ones in `Kernels`, which would hide what a later test puts in a module.
    """
    yield
    for name in ("reference", "cpu", "cuda"):
        for purpose in vars(registry.backend_of(name)).values():
            if isinstance(purpose, registry.Kernels):
                for replaced in [key for key in vars(purpose) if not key.startswith("_")]:
                    delattr(purpose, replaced)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of each array that is written to wait on disk, by tasks of this test alone."""
    return noted(monkeypatch, SpillFile, "write", lambda _, file, array: array.nbytes)


# --------------------------------------------------------------------------------------------------
# Clusters: one of each kind in a process, for all tests that need no other
# --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def workers() -> Iterator[Any]:
    """Two workers in processes of their own, which take seconds to start. Each may have all memory:
    its share is little on a machine of many cores."""
    from distributed import LocalCluster  # not everyone who reads this file needs it

    with LocalCluster(2, threads_per_worker=1, memory_limit=1.0, dashboard_address=":0") as workers:
        yield workers


@pytest.fixture(scope="session")
def worker_here() -> Iterator[Any]:
    """A worker of two threads in this process, whose memory earlier tests have a part of."""
    from distributed import LocalCluster

    how = {"processes": False, "memory_limit": 1.0, "dashboard_address": ":0"}
    with LocalCluster(n_workers=1, threads_per_worker=2, **how) as workers:
        yield workers


# Clients come and go with a test: while there is one, `compute()` goes to its cluster.


@pytest.fixture
def cluster(workers: Any) -> Iterator[Any]:
    """A client of two processes, which all else computes on meanwhile."""
    from distributed import Client

    with Client(workers) as client:
        yield client


@pytest.fixture
def cluster_here(worker_here: Any) -> Iterator[Any]:
    """The same of two threads."""
    from distributed import Client

    with Client(worker_here) as client:
        yield client


# --------------------------------------------------------------------------------------------------
# Tests that need a CUDA device: left out where there is none, unless they are demanded
# --------------------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu",
        action="store_true",
        help="demand the tests marked gpu: a skipped test fails, and so does a run without any",
    )
    parser.addoption(
        "--emulate",
        action="store_true",
        help="run the tests marked gpu, but for those marked device, on a CPU: tests/emulated",
    )
    parser.addoption(
        "--expressions",
        choices=["dask", "dask-array"],
        help="make the arrays of the tests expressions, by dask's query planning or by dask-array",
    )
    parser.addoption(
        "--thorough", action="store_true", help="run the tests marked thorough, too: minutes more"
    )


def pytest_configure(config: pytest.Config) -> None:
    if (package := config.getoption("expressions")) is not None:
        config.pluginmanager.register(Expressions(package), "expressions")
        # Of boxes, which are no expressions, beside what is.
        config.addinivalue_line("filterwarnings", "ignore:Computing mixed collections:UserWarning")
    if config.getoption("emulate"):
        try:
            emulated.begin()
        except ImportError as error:
            raise pytest.UsageError(f"--emulate: {error}") from error
    # Here and not later: while tests are collected, a warning of an import would be an error.
    problem = backends.device_problem()
    if config.getoption("gpu"):
        if problem:
            raise pytest.UsageError(f"--gpu: {problem}")
        config.pluginmanager.register(Demanded(config), "gpu-demanded")


def pytest_report_header(config: pytest.Config) -> str:
    if config.getoption("emulate"):
        return "tests marked gpu run on the CPU, without those marked device"
    problem = backends.device_problem()
    return f"tests marked gpu are left out: {problem}" if problem else "tests marked gpu can run"


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Thousands of skips would take time, and hide those that have something to say."""
    chosen: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        needs_device = item.get_closest_marker("gpu") is not None
        is_possible = is_supported(item) and not (needs_device and backends.device_problem())
        if config.getoption("emulate"):
            is_possible &= not needs_real_device(item)
        else:
            is_possible &= item.get_closest_marker("emulated") is None
        is_wanted = config.getoption("thorough") or item.get_closest_marker("thorough") is None
        (chosen if is_possible and is_wanted else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = chosen
    mark_all_but_some(items)


def mark_all_but_some(items: list[pytest.Item]) -> None:
    """Of the cases of a test with several parameters those stay that are the first to have some
    value of one of them. The others, which only combine values anew, are slow and have the same
    graphs."""
    earlier: set[tuple[str, str, Any]] = set()
    for item in items:
        if not hasattr(item, "callspec"):
            continue
        test = item.nodeid.partition("[")[0]
        values = {(test, name, id(value)) for name, value in item.callspec.params.items()}
        if values <= earlier:
            item.add_marker("slow")
            item.add_marker("any_dask")
        earlier |= values
    mark_all_but_a_few(items)


def mark_all_but_a_few(items: list[pytest.Item]) -> None:
    """Mark as slow all but the first cases of the tests marked `few`, which say how many stay."""
    n_quick: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("few")
        if mark is None or item.get_closest_marker("slow") is not None:
            continue
        test = item.nodeid.partition("[")[0]
        n_quick[test] += 1
        if n_quick[test] > mark.args[0]:
            item.add_marker("slow")


def is_supported(item: pytest.Item) -> bool:
    """Whether the backend of a test has its dtype."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if not {"backend", "dtype"} <= parameters.keys():
        return True
    return bool(parameters["backend"].supports(parameters["dtype"]))


def needs_real_device(item: pytest.Item) -> bool:
    """Whether a test cannot be emulated: it is about a device, or arrays go between processes,
    which distributed does by Numba's CUDA."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    are_processes = "workers" in [*getattr(item, "fixturenames", ()), *map(str, parameters)]
    is_gpu = item.get_closest_marker("gpu") is not None
    return item.get_closest_marker("device") is not None or (is_gpu and are_processes)


class Demanded:
    """What `--gpu` changes: nothing that did not run goes by unnoticed."""

    def __init__(self, config: pytest.Config) -> None:
        # With several processes the first one runs no tests itself and hears of all of them.
        self.is_first = not hasattr(config, "workerinput")
        self.runs_tests = not config.getoption("collectonly")
        self.n_passed = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self) -> Generator[None, Any, Any]:
        return failed_if_skipped((yield))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(self) -> Generator[None, Any, Any]:
        return failed_if_skipped((yield))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.n_passed += report.when == "call" and report.passed and "gpu" in report.keywords

    @property
    def is_missed(self) -> bool:
        return self.is_first and self.runs_tests and not self.n_passed

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if self.is_missed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if self.is_missed:
            terminalreporter.section("--gpu: no test marked gpu has passed", red=True)


def failed_if_skipped(report: Any) -> Any:
    """The report of a test or of a file, a skip made a failure. Expected failures stay."""
    if report.skipped and not hasattr(report, "wasxfail"):
        *_, reason = report.longrepr
        report.outcome = "failed"
        report.longrepr = f"not to be skipped with --gpu: {reason}"
    return report


# --------------------------------------------------------------------------------------------------
# Tests with expression arrays
# --------------------------------------------------------------------------------------------------


class Expressions:
    """What `--expressions` changes: `da` in the tests makes arrays that are expressions.

    A test is skipped where its array cannot be made, as neither package can do all that
    `dask.array` can, and left out if it is marked `legacy`: it is about the graph of arrays that
    are none.
    """

    def __init__(self, package: str) -> None:
        if package == "dask" and not dask.array.array_expr_enabled():
            raise pytest.UsageError("--expressions dask needs DASK_ARRAY__QUERY_PLANNING=True")
        self.module = import_module({"dask": "dask.array", "dask-array": "dask_array"}[package])
        if package == "dask-array":
            import_module("dask_array.xarray").register()

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        for name, module in list(sys.modules.items()):
            if name.partition(".")[0] == "tests" and hasattr(module, "da"):
                module.da = self.module
        chosen = [item for item in items if item.get_closest_marker("legacy") is None]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self) -> Generator[None, Any, Any]:
        return (yield from self.pytest_runtest_call())

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self) -> Generator[None, Any, Any]:
        try:
            return (yield)
        except Exception as error:
            if is_missing(error):
                pytest.skip(f"expressions cannot do that: {error!r}")
            raise


def is_missing(error: Exception) -> bool:
    """Whether a package of expressions says that it lacks something, to a test and not to us."""
    trace = error.__traceback__
    while trace is not None:
        if PACKAGE in Path(trace.tb_frame.f_code.co_filename).parents:
            return False
        trace = trace.tb_next
    if not isinstance(error, AttributeError):
        return isinstance(error, NotImplementedError) or "sizes are unknown" in str(error)
    lacks = error.obj if isinstance(error.obj, ModuleType) else type(error.obj)
    home = getattr(error.obj, "__module__", lacks.__name__) or ""
    return home.startswith(("dask.array", "dask_array"))
