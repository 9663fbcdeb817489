"""A minute of the matrix: drawn cases, judged by definitions and by laws."""

from __future__ import annotations

import pytest

from tests.matrix.campaign import PARTS, short_campaign
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


def test_mistakes_can_be_planted() -> None:
    """Each replaces a text that is there once."""
    for mistake in MISTAKES:
        text = (ROOT / PACKAGE / mistake.path).read_text()
        assert text.count(mistake.right) == 1, mistake.name
