"""A statistic of a question of its own, as the documentation shows it."""

from __future__ import annotations

import importlib
import math
import re
from typing import Any

import dask.array as da
import numpy as np
import pytest
from scipy.stats import trim_mean

from dask_gpuselect.engine import pilot
from dask_gpuselect.engine.questions import Question
from dask_gpuselect.engine.settings import OURS, RENAMED
from examples.trimmed_mean import trimmed_mean
from tests.data import make, uniform
from tests.docs.programs import EXAMPLES, ROOT
from tests.sources import Source

NAMES = ("normal", "constant", "two values", "tied", "sorted", "lognormal", "outliers")


def by_sorting(a: Any, cut: float) -> float:
    remaining = np.sort(a.ravel())[int(cut * a.size) : a.size - int(cut * a.size)].astype(float)
    return math.fsum(remaining) / remaining.size


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2"])
def test_trimmed_mean(name: str, dtype: str) -> None:
    for n in (1, 2, 33, 10_000):
        a = make(name, dtype, n)
        for cut in (0, 0.1, 0.49):
            wanted = by_sorting(a, cut)
            actual = {float(trimmed_mean(a, cut))}
            for chunks in (n, -(-n // 7)):
                x = da.from_array(a, chunks=chunks)
                actual |= {
                    float(trimmed_mean(y, cut).compute()) for y in (x, x.map_blocks(np.copy))
                }
            assert len(actual) == 1  # under any chunking, lazily and at once
            np.testing.assert_allclose(actual.pop(), wanted, rtol=2e-15)


@pytest.mark.usefixtures("nothing_kept")
def test_as_scipy_in_two_loads() -> None:
    source = Source((40, 500))
    x = source.lazy((10, 100))
    lazy = trimmed_mean(x, 0.2)
    assert not source.loads
    wanted = trim_mean(source.values((slice(None),) * 2), 0.2, axis=None)
    np.testing.assert_allclose(lazy.compute(), wanted)
    assert set(source.loads.values()) == {2}
    assert np.isnan(trimmed_mean(np.array([1.0, np.nan]), 0.1))


def test_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data in memory are read once, and summed in the same read."""
    monkeypatch.setattr(pilot, "PILOT_WORTH", 2000)
    monkeypatch.setattr(pilot, "PILOT_SIZE", 3000)
    a = uniform(60_000)
    lazy = trimmed_mean(da.from_array(a, chunks=20_000), 0.25)
    assert any("guess" in layer for layer in lazy.__dask_graph__().layers)
    assert lazy.compute() == trimmed_mean(a, 0.25) == pytest.approx(by_sorting(a, 0.25))


# --- What is stable -------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
STABLE = re.findall(r"^\| `(dask_gpuselect[\w.]+)` \|", PAGE, flags=re.MULTILINE)


@pytest.mark.any_dask
@pytest.mark.parametrize("name", STABLE)
def test_stable_names_exist(name: str) -> None:
    """Where the page says, and with a docstring."""
    module, _, last = name.rpartition(".")
    assert getattr(importlib.import_module(module), last).__doc__


@pytest.mark.any_dask
def test_deprecated_settings_are_listed() -> None:
    rows = re.findall(r"^\| setting `(.+)` \| `(.+)` \|", PAGE, flags=re.MULTILINE)
    assert {f"{OURS}{old}": f"{OURS}{new}" for old, new in rows} == RENAMED


@pytest.mark.any_dask
def test_stable_parts_are_those_of_a_question() -> None:
    (table,) = re.findall(r"^\| part of a question .*?\n\n", PAGE, flags=re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \|", table, flags=re.MULTILINE)
    parts = set(re.findall(r"`(\w+)", " ".join(rows)))
    assert len(parts) > 10
    assert {part for part in parts - {"ranks"} if not hasattr(Question, part)} == set()


@pytest.mark.any_dask
def test_the_example_uses_stable_names_alone() -> None:
    text = (EXAMPLES / "trimmed_mean.py").read_text(encoding="utf-8")
    imports = re.findall(r"^from (dask_gpuselect[\w.]*) import (.+)$", text, flags=re.MULTILINE)
    used = {f"{module}.{name}" for module, names in imports for name in names.split(", ")}
    assert used
    assert used <= set(STABLE)
