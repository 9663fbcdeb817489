"""The example of scaled features: answers of scikit-learn, in two loads."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pytest
from sklearn.preprocessing import KBinsDiscretizer, QuantileTransformer, RobustScaler

from examples.robust_scaling import ordinal_bins, robust_scaled, uniform
from tests.data import normal
from tests.sources import Source


@pytest.fixture
def a() -> Any:
    return normal(4000).reshape(500, 8) ** 3 * np.arange(1, 9) + 5


@pytest.mark.parametrize(
    ("ask", "theirs"),
    [
        (robust_scaled, RobustScaler()),
        (lambda x: uniform(x, 101), QuantileTransformer(n_quantiles=101, subsample=None)),
    ],
)
def test_scaled_and_spread_as_by_scikit_learn(ask: Any, theirs: Any, a: Any) -> None:
    a[:, 2] = 7.0
    a[:, 3] = np.round(a[:, 3] / 50)  # ties
    a[::11, 5] = np.nan
    x = da.from_array(a, chunks=(120, 8))
    np.testing.assert_allclose(ask(x), theirs.fit_transform(a), rtol=1e-12, atol=1e-15)


def test_bins_as_by_scikit_learn(a: Any) -> None:
    x = da.from_array(a, chunks=(120, 8))
    theirs = KBinsDiscretizer(6, encode="ordinal")
    if "quantile_method" in theirs.get_params():  # before scikit-learn 1.7 it has this one alone
        theirs.set_params(quantile_method="linear")
    np.testing.assert_array_equal(ordinal_bins(x, 6), theirs.fit_transform(a))
    assert ordinal_bins(x, 6).chunks == x.chunks


@pytest.mark.parametrize(
    "ask", [robust_scaled, lambda x: ordinal_bins(x, 4), lambda x: uniform(x, 9)]
)
def test_one_load_for_all_quantiles_and_one_to_transform(ask: Any) -> None:
    source = Source((600, 5))
    lazy = ask(source.lazy((100, 5)))
    assert not source.loads
    lazy.compute()
    assert set(source.loads.values()) == {2}
