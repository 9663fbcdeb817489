"""Calls that are refused: a row for each, with the class of its error and its message."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Refusal = tuple[Callable[..., Any], type[Exception], str]
"""A call, the class of its error, and what its message has."""


def each_of(rows: Iterable[Refusal]) -> pytest.MarkDecorator:
    """Parametrize a test by the `call`, the `error` and the `message` of every row."""
    params = [pytest.param(*row, id=row[-1]) for row in rows]
    return pytest.mark.parametrize(("call", "error", "message"), params)
