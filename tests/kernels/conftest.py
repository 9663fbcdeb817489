"""Tests of kernels: these answer about arrays of any size."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True, scope="module")
def kernels_answer(by_kernels: None) -> None:
    """Take kernels, and not NumPy, in all tests of this folder."""
