"""A minute of the matrix: drawn cases, judged by definitions and by laws."""

from __future__ import annotations

import itertools

import pytest

from tests.matrix.campaign import PARTS, SEED, short_campaign
from tests.matrix.cases import drawn, of_standard, script
from tests.matrix.laws import problem_of
from tests.matrix.planted import MISTAKES, PACKAGE, ROOT


@pytest.mark.any_dask  # the graphs are those of other tests
@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold(part: int) -> None:
    """A failure shows a script that fails by itself."""
    failures = [*short_campaign(part)]
    assert not failures, "\n\n".join(failure.script for failure in failures)


@pytest.mark.gpu
@pytest.mark.few(2)
@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold_of_cupy_arrays(part: int) -> None:
    failures = [*short_campaign(part, device=True)]
    assert not failures, "\n\n".join(failure.script for failure in failures)


@pytest.mark.any_dask
def test_arrays_of_the_standard_are_answered_in_kind() -> None:
    for case in filter(None, map(of_standard, itertools.islice(drawn(SEED), 540))):
        assert problem_of(case, "right") is None, script(case, "right")


def test_mistakes_can_be_planted() -> None:
    """Each replaces a text that is there once."""
    for mistake in MISTAKES:
        text = (ROOT / PACKAGE / mistake.path).read_text()
        assert text.count(mistake.right) == 1, mistake.name
