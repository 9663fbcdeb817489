"""Reports of kernels beside those of the reference."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields
from typing import Any

import numpy as np


def assert_same(actual: Any, expected: Any, names: Collection[str] = (), where: Any = ...) -> None:
    """Assert that all fields of two reports are the same, or those of some names; of arrays what
    lies at some places."""
    for name in names or [field.name for field in fields(expected)]:
        mine, theirs = (np.asarray(getattr(each, name)) for each in (actual, expected))
        assert mine.dtype == theirs.dtype, name
        np.testing.assert_array_equal(mine[where], theirs[where], err_msg=name)
