"""What the tests of all doors share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dask_gpuselect import disable


@pytest.fixture(autouse=True)
def not_enabled() -> Iterator[None]:
    """Dask has its own functions, whatever a test has left behind."""
    disable()
    yield
    disable()
