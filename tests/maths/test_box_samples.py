"""What the elements of a sample at some places let expect of all, with ties and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dask_gpuselect.boxplot.questions import BoxQuestion
from dask_gpuselect.kernels.reference.selection import valid_in
from dask_gpuselect.maths.boxes import Rule, rungs_of


@pytest.mark.parametrize("n_missing", [0, 1, 700])
@pytest.mark.parametrize("size", [0, 1, 600, 5_000])
def test_places_follow_from_the_elements_that_are_no_nan(size: int, n_missing: int) -> None:
    ordered = np.append(np.arange(float(size)), np.full(n_missing, np.nan))
    elements, n = valid_in(ordered, rungs_of)
    assert n == size
    wanted = np.concatenate([np.arange(size)[part] for part in rungs_of(size)])
    np.testing.assert_array_equal(elements, wanted)


@pytest.mark.parametrize("size", [0, 1, 100, 20_000, 1 << 22])
@pytest.mark.parametrize("whis", [0.0, 1.5, 3.0, (0.05, 0.95)])
def test_what_a_device_is_told(whis: Any, size: int) -> None:
    rule = Rule(whis, autorange=False, max_fliers=10, method="weibull")
    guess = BoxQuestion.of(rule, np.dtype("f4"), omits_nan=True).in_memory.guess_there(size, 0.01)
    if isinstance(whis, tuple) or size <= 100:
        assert guess is None
        return
    assert guess is not None
    places = np.array(guess.places)
    assert (np.diff(places) > 0).all()
    quartiles = size * np.array([0.25, 0.5, 0.75])
    assert (places[::2] < quartiles).all()
    assert (quartiles < places[1::2]).all()
    assert 0 < guess.n_extreme < guess.most_near < 0.1 * size
    assert guess.n_ends == len(guess.brackets(np.arange(guess.n_ends)).ends) == 12
    assert guess.most_tied == size // 1000
