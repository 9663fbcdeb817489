"""Calls that are refused: a row for each, with the class of its error and its message."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest

Refusal = tuple[Callable[..., Any], type[Exception], str]
"""A call, the class of its error, and what its message has."""

Refusals = dict[type[Exception], dict[str, Callable[[], Any] | list[Callable[[], Any]]]]
"""A call, or several, by the class of their error and the words of its message, in their order."""


def rows_of(refusals: Refusals) -> Iterable[Refusal]:
    """Yield a row for each call."""
    for error, calls in refusals.items():
        for words, call in calls.items():
            for each in call if isinstance(call, list) else [call]:
                yield each, error, words


def each_of(rows: Iterable[Refusal]) -> pytest.MarkDecorator:
    """Parametrize a test by the `call`, the `error` and the `message` of every row."""
    params = [pytest.param(*row, id=row[-1]) for row in rows]
    return pytest.mark.parametrize(("call", "error", "message"), params)


def messages_of(*refusals: Refusals) -> Callable[..., None]:
    """Make a test of every call: its message has its words, in this order, and whole ones."""

    @each_of(row for each in refusals for row in rows_of(each))
    def test(call: Any, error: Any, message: str) -> None:
        words = ".*".join(map(re.escape, message.split(" ... ")))
        with pytest.raises(error, match=rf"(?s)(?<!\w){words}"):
            call()

    return test
