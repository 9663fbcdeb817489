"""What `pytest --gpu` demands, and what is left out without it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import backends

pytest_plugins = ["pytester"]

Run = Callable[..., pytest.RunResult]

PASSES = """
@pytest.mark.gpu
def test_on_a_gpu():
    pass
"""

SKIPS = """
def test_skipped():
    pytest.skip("no time")
"""

ON_A_CPU = """
def test_on_a_cpu():
    pass
"""


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run tests under our conftest, as on a machine with a CUDA device, or with a problem."""

    def run_tests(tests: str, *options: str, problem: str = "") -> pytest.RunResult:
        monkeypatch.setattr(backends, "device_problem", lambda: problem)
        pytester.makeini("[pytest]\nmarkers =\n    gpu")
        pytester.makepyfile(f"import pytest\n{tests}")
        return pytester.runpytest_inprocess("-ra", "-p", "tests.conftest", *options)

    return run_tests


def test_without_a_device_all_else_runs(run: Run) -> None:
    done = run(PASSES + ON_A_CPU, problem="no device")
    done.assert_outcomes(passed=1, deselected=1)
    done.stdout.fnmatch_lines(["tests marked gpu are left out: no device"])


def test_with_a_device_all_runs(run: Run) -> None:
    done = run(PASSES + SKIPS)
    assert done.ret == 0
    done.assert_outcomes(passed=1, skipped=1)
    done.stdout.fnmatch_lines(["tests marked gpu can run"])


def test_a_device_is_demanded(run: Run) -> None:
    done = run(PASSES, "--gpu", problem="no CUDA device is visible")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert done.stderr.str().strip() == "ERROR: --gpu: no CUDA device is visible"
    done.stdout.no_fnmatch_line("*passed*")


@pytest.mark.parametrize(
    ("skips", "reason"),
    [
        (SKIPS, "no time"),
        ("@pytest.mark.skip(reason='no time')\ndef test_(): pass", "no time"),
        ("@pytest.mark.skipif('1 > 0')\ndef test_(): pass", "condition: 1 > 0"),
        ("@pytest.fixture\ndef x(): pytest.skip('no time')\ndef test_(x): pass", "no time"),
        ("pytest.importorskip('no_such_module')", "could not import 'no_such_module'*"),
    ],
    ids=["call", "mark", "condition", "fixture", "import"],
)
def test_a_skip_is_a_failure(run: Run, skips: str, reason: str) -> None:
    done = run(PASSES + skips, "--gpu")
    assert done.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert "skipped" not in done.parseoutcomes()
    done.stdout.fnmatch_lines([f"not to be skipped with --gpu: Skipped: {reason}"])


def test_a_run_without_any_is_a_failure(run: Run) -> None:
    done = run(ON_A_CPU, "--gpu")
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines(["*--gpu: no test marked gpu has passed*"])
    assert run(ON_A_CPU, "--gpu", "-m", "gpu").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert run(PASSES + ON_A_CPU, "--gpu").ret == 0
    assert run(PASSES, "--gpu", "--collect-only").ret == 0


@pytest.mark.slow
def test_several_processes_are_heard(tmp_path: Path) -> None:
    """Their skips fail, and their tests are counted."""
    (tmp_path / "pretended.py").write_text(
        "from tests import backends\nbackends.device_problem = lambda: ''"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    gpu")
    test = tmp_path / "test_some.py"
    paths = os.pathsep.join(map(str, (tmp_path, Path(__file__).parents[2])))
    command = [sys.executable, "-m", "pytest", "-p", "pretended", "-p", "tests.conftest", "-n", "1"]
    missed = "--gpu: no test marked gpu has passed"
    for tests, messages in (
        (ON_A_CPU + SKIPS, ["not to be skipped with --gpu: Skipped: no time", missed]),
        (PASSES, ["1 passed"]),
    ):
        test.write_text(f"import pytest\n{tests}")
        done = subprocess.run(
            [*command, "--gpu", test],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert not [message for message in messages if message not in done.stdout]
        assert (missed in done.stdout) == (missed in messages)
        assert (done.returncode == 0) == (tests is PASSES)


def test_dtypes_that_a_backend_lacks_are_left_out(run: Run) -> None:
    tests = """
@pytest.mark.parametrize("dtype", ["f8", "M8[s]"])
def test_it(backend, dtype):
    assert backend.supports(dtype)
"""
    done = run(tests, "--collect-only", "-q")
    collected = [line.split("::")[-1] for line in done.outlines if "::" in line]
    assert collected == ["test_it[numpy-f8]", "test_it[numpy-M8[s]]", "test_it[cupy-f8]"]
