"""What `asv_bench/at_scale.py` tells: that formulas hold, and of graphs what a dry run takes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dask_gpuselect import kernels
from dask_gpuselect.maths.sizes import PIVOT_BYTES, pivot_count
from tests.docs.programs import SUITE, benchmark

at_scale = benchmark("at_scale")


@pytest.mark.parametrize("question", at_scale.ASKED)
def test_a_dry_run(question: str) -> None:
    """Tasks in proportion to chunks; those of a sort are as many as there are pairs."""
    few, many = (int(at_scale.client_row(question, n, 10**6)[2].replace(",", "")) for n in (20, 40))
    assert many <= (4.1 if question == at_scale.SQUARE else 2.1) * few


@pytest.mark.parametrize("size", [10**3, 10**4, 10**5, 10**6])
def test_a_report_is_no_larger_than_its_formula(size: int) -> None:
    chunk = np.random.default_rng(size).normal(size=size)
    cuts = kernels.cuts(chunk, chunk.dtype, 1)
    n_bytes = sum(getattr(cuts, name).nbytes for name in at_scale.PER_PIVOT)
    assert 0.4 * PIVOT_BYTES * pivot_count(size) < n_bytes <= PIVOT_BYTES * pivot_count(size)


@pytest.mark.slow
def test_formulas_hold(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three decades of elements and of chunks."""
    monkeypatch.syspath_prepend(str(SUITE))  # for the processes that it starts
    assert at_scale.tell_reports()
    assert "10,000,000" in capsys.readouterr().out


def test_plans(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(at_scale, "SIZES", (10**8,))
    at_scale.tell_plans()
    largest = re.findall(r"GB \| ([\d.]+) GB \| [\d,]+ GB \|\n", capsys.readouterr().out)
    assert len(largest) == 10
    assert max(map(float, largest)) <= 1.07  # GiB: `root-limit`
