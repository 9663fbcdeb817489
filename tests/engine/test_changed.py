"""A source that differs between the two loads: an error that names the chunk, never a number."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from dask.base import tokenize
from numpy.typing import NDArray

from dask_gpuselect import (
    ChunksChangedError,
    describe_boxplot,
    median,
    nanmedian,
    order_statistic,
    quantile,
)
from dask_gpuselect.engine import group_loads
from dask_gpuselect.groups import groupby
from dask_gpuselect.maths import boxes
from dask_gpuselect.robust import deviations, mad
from tests.backends import Backend
from tests.data import cluster_at_the_fence, hashed
from tests.limits import limited
from tests.matrix.laws import same_computed
from tests.sources import changing

Floats = NDArray[np.float64]
Change = Callable[[Floats, int], Floats]


def second(change: Callable[[Floats], Floats]) -> Change:
    """Change the second load alone."""
    return lambda values, load: change(values) if load == 2 else values


CHANGES: dict[str, tuple[Change, str]] = {
    "fewer elements": (
        second(lambda values: values[2:]),
        r"chunk \(3,\) had \d+00 valid elements in the first read and \d+98 in the second",
    ),
    "more elements": (
        second(lambda values: np.append(values, 0.5)),
        r"chunk \(3,\) had \d+00 valid elements in the first read and \d+01 in the second"
        r"|chunk \(3,\) had more elements inside the brackets in the second read",
    ),
    "other content": (
        second(lambda values: values / 2),
        # Which of the two is noticed first depends on the pivots.
        r"chunk \(3,\) had \d+ to \d+ elements (below|up to) 0\.\d+ in the first read and \d+ in"
        r"|chunk \(3,\) had more elements inside the brackets in the second read",
    ),
    "all in the bracket": (
        second(lambda values: np.full_like(values, 0.5)),
        r"chunk \(3,\) had more elements inside the brackets in the second read",
    ),
    "now nan": (
        second(lambda values: np.where(np.arange(values.size) < 5, np.nan, values)),
        r"chunk \(3,\) had \d+00 valid elements in the first read and \d+95 in the second",
    ),
    "more nan": (
        second(lambda values: np.append(values, np.nan)),
        r"chunk \(3,\) had 0 missing \(NaN or NaT\) el",
    ),
}


@pytest.mark.parametrize("size", [1000, 20_000])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_the_changed_chunk_is_named(
    backend: Backend, change: str, scheduler: str, size: int, tmp_path: Path
) -> None:
    """Whether it was sorted or classified."""
    alter, message = CHANGES[change]
    x = backend.mapped(changing(alter, directory=tmp_path, size=size))
    with pytest.raises(ChunksChangedError, match=message) as caught:
        nanmedian(x).compute(scheduler=scheduler)
    assert "`.persist()` the array first" in str(caught.value)


def test_persisting_fixes_the_data(backend: Backend, tmp_path: Path) -> None:
    x = backend.mapped(changing(second(lambda values: values / 2), directory=tmp_path)).persist()
    ours, values = (backend.to_numpy(made.compute()) for made in (median(x), x))
    assert ours == np.median(values)


@pytest.mark.usefixtures("nothing_kept")  # or a device would take one load
def test_what_changes_is_named_in_all_dimensions(backend: Backend, tmp_path: Path) -> None:
    x = changing(second(lambda values: values / 2), directory=tmp_path, chunk=5)
    x._chunks = ((1000,) * 6,)
    with pytest.raises(ChunksChangedError, match=r"^chunk \(1, 2, 0\) had"):
        median(backend.mapped(x).reshape(2, 3000, 1)).compute(scheduler="sync")


# --- Rows in another order ------------------------------------------------------------------------


class Shuffled:
    """A source whose chunks have their rows in another order at each load, as partitions have that
    dask shuffles on disk.

    Parameters
    ----------
    altered : callable, optional
        What a chunk is from its third load on.
    """

    def __init__(self, altered: Callable[[Floats], Floats] | None = None) -> None:
        self.altered, self.rng = altered, np.random.default_rng(5)
        self.loads: Counter[int] = Counter()
        self.token = uuid.uuid4().hex

    def __dask_tokenize__(self) -> str:
        """Differ from every other source: expressions of equal tokens are one expression."""
        return self.token

    def whole(self) -> Floats:
        return cluster_at_the_fence(hashed(np.arange(100_000)))

    def lazy(self, *, width: int = 1) -> da.Array:
        zeros = da.zeros((100_000 // width, width), chunks=(10_000 // width, width))
        name = f"shuffled-{tokenize(self, width)}"
        x = zeros.map_blocks(self._read, dtype=float, name=name, meta=np.empty((0, 0)))
        return x if width > 1 else x.ravel()

    def _read(self, block: Floats, block_id: tuple[int, ...]) -> Floats:
        i = block_id[0]
        self.loads[i] += 1
        values = self.whole()[10_000 * i : 10_000 * (i + 1)].reshape(block.shape)
        if self.altered is not None and i == 3 and self.loads[i] > 2:
            values = self.altered(values)
        return self.rng.permutation(values)


@pytest.fixture
def _looks_once_more(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Little is kept, so that answers take all loads that they may take."""
    monkeypatch.setattr(deviations, "LEAST_ROOM", 0)
    monkeypatch.setattr(deviations, "ROOM", -1)
    monkeypatch.setattr(boxes, "LEAST_ROOM", 8)
    monkeypatch.setattr(boxes, "ROOM", 0)
    monkeypatch.setattr(group_loads, "room_of_groups", lambda *_: None)
    with limited(100_000), dask.config.set(scheduler="sync"):
        yield


def groups(x: Any) -> Any:
    return groupby(x, ((x * 1000) // 1 % 7).astype("i8"), groups=range(7))


ANY_ORDER: dict[str, tuple[Callable[[Any], Any], int]] = {
    "quantiles": (lambda x: quantile(x, [0.1, 0.5]), 2),
    "boxes": (describe_boxplot, 3),
    "boxes of some": (lambda x: describe_boxplot(x, where=x > 0.01), 3),
    "boxes that weigh": (lambda x: describe_boxplot(x, weights=1 + x / 1e6), 3),
    "mad": (mad, 3),
    "mad of some": (lambda x: mad(x, where=x > 0.2), 3),
    "a strategy": (lambda x: order_statistic(x, 40_000, strategy="kelley"), 3),
    "another strategy": (lambda x: order_statistic(x, 40_000, strategy="bucket"), 3),
    "boxes of groups": (lambda x: groups(x).describe_boxplot(), 3),
    "mad of groups": (lambda x: groups(x).mad(), 3),
}


@pytest.mark.few(5)
@pytest.mark.usefixtures("_looks_once_more")
@pytest.mark.parametrize("name", ANY_ORDER)
def test_rows_in_another_order_are_the_same(backend: Backend, name: str) -> None:
    ask, n_loads = ANY_ORDER[name]
    source = Shuffled()
    (result,) = dask.compute(ask(backend.mapped(source.lazy())))
    assert min(source.loads.values()) >= n_loads
    same_computed(result, ask(backend.lazy(source.whole(), 10_000)))


@pytest.mark.usefixtures("_looks_once_more")
@pytest.mark.parametrize("name", [name for name, (_, loads) in ANY_ORDER.items() if loads > 2])
def test_other_rows_are_named_in_any_order(backend: Backend, name: str) -> None:
    """One element of the third load is another."""

    def altered(values: Floats) -> Floats:
        return np.where(np.arange(len(values))[:, None] == 77, np.nextafter(values, 1e9), values)

    source = Shuffled(altered)
    with pytest.raises(ChunksChangedError, match=r"chunk \((0, )?3"):
        dask.compute(ANY_ORDER[name][0](backend.mapped(source.lazy())))


@pytest.mark.usefixtures("_looks_once_more")
def test_along_an_axis_the_order_of_rows_counts(backend: Backend) -> None:
    source = Shuffled()
    x = backend.mapped(source.lazy(width=10))
    with pytest.raises(ChunksChangedError, match=r"chunk \(0, 0\)"):
        median(x, axis=0).compute()


def test_elements_that_change_places_beside_their_weights() -> None:
    """No count tells of it, and it moves the median out of its bracket."""
    values = np.array([0.0, 1, 0, 0])
    weights = np.array([2.0**48, 2.0**-56, 2.0**53, 2.0**-47])
    reads = iter([values, np.flip(values)])
    how: dict[str, Any] = {"name": "flipped", "dtype": values.dtype, "meta": values[:0]}
    x = da.core.map_blocks(lambda _: next(reads), da.core.from_array(values), **how)
    with pytest.raises(ChunksChangedError, match=r"^chunk \(0,\) had other weights"):
        quantile(x, 0.5, weights=weights).compute(scheduler="sync")
