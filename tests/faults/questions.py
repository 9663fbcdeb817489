"""What is asked, of which data, and the right answers: NumPy's, of a full sort."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import (
    argsort,
    describe_boxplot,
    median,
    order_statistic,
    quantile,
    sort,
    sort_by,
)
from dask_gpuselect.arrays import to_host
from dask_gpuselect.groups import groupby
from dask_gpuselect.robust import mad
from tests.data import hashed

Values = NDArray[Any]

Q = [0.1, 0.5, 0.75]
LINE, LINE_CHUNKS = (3005,), ((301,) * 9 + (296,),)  # an odd number: the median is an element
GRID, GRID_CHUNKS = (301, 8), ((30,) * 9 + (31,), (4, 4))
LABELS = (hashed(np.arange(4000)) * 5).astype("i8")
WEIGHTS = (hashed(np.arange(4000) + 7000) * 4).astype("i8") + 1

DATA: dict[str, Callable[[NDArray[np.float64]], Values]] = {
    "uniform": lambda u: u,
    "skewed": lambda u: np.exp(20 * u) - 7,
    "ties": lambda u: np.floor(u * 9) / 3,
    "ascending": lambda u: np.sort(u),
    "int64": lambda u: (u * 2**62).astype("i8") - 2**61,
    "uint8": lambda u: (u * 256).astype("u1"),
}
FLOATS = ("uniform", "skewed", "ties", "ascending")


def data_of(name: str, shape: tuple[int, ...]) -> Values:
    return DATA[name](hashed(np.arange(np.prod(shape)))).reshape(shape)


def on_host(value: Any) -> Values:
    """A value as a NumPy array, wherever it is."""
    return np.asarray(to_host(value))


@dataclass(frozen=True)
class Question:
    """What is asked.

    Parameters
    ----------
    ask : callable
        From a dask array to dask collections.
    expected : callable
        From the array by NumPy to what these are, as arrays.
    found : callable
        From what was computed to arrays.
    is_grid : bool
        Whether it is asked of two dimensions.
    config : mapping
        For dask.
    on_disk : bool
        Whether it writes pieces to disk, whatever is kept.
    data : tuple of str
        Of which it may be asked.
    """

    ask: Callable[[da.Array], tuple[Any, ...]]
    expected: Callable[[Values], list[Values]]
    found: Callable[[tuple[Any, ...]], list[Values]] = lambda computed: list(map(on_host, computed))
    is_grid: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    on_disk: bool = False
    data: tuple[str, ...] = tuple(DATA)
    mixed: Callable[[Values, Values], list[Values]] | None = None
    """Where several answers are computed together: the first of one version of the array, the
    second of another."""

    is_read_unchecked: bool = False
    """Whether dask itself reads the array, too, where the package does not see what is read."""

    def answers(self, versions: list[Values]) -> Iterator[list[Values]]:
        """What is right, if the array had these versions."""
        yield from map(self.expected, versions)
        if self.mixed is not None:
            yield from (self.mixed(a, b) for a, b in itertools.permutations(versions, 2))

    @property
    def shape(self) -> tuple[int, ...]:
        return GRID if self.is_grid else LINE

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        return GRID_CHUNKS if self.is_grid else LINE_CHUNKS


def beside(x: da.Array, values: Values) -> da.Array:
    """Values that go along with the elements."""
    return da.from_array(values[: x.shape[0]], chunks=(x.chunks[0],))


# --- Box plots ------------------------------------------------------------------------------------


def boxes_found(computed: tuple[Any, ...]) -> list[Values]:
    return [value for (boxes,) in [computed] for box in boxes for value in parts(box)]


def parts(box: Any) -> list[Values]:
    numbers = [box.q1, box.med, box.q3, box.whislo, box.whishi, box.mean]
    return [np.array(numbers, "f8"), np.sort(np.asarray(on_host(box.fliers), "f8"))]


def box_of(a: Values) -> list[Values]:
    a = a.ravel()
    low, middle, high = np.quantile(a, [0.25, 0.5, 0.75])
    reach = 1.5 * (high - low)
    inside = a[(a >= low - reach) & (a <= high + reach)]
    first, last = min(inside.min(), low), max(inside.max(), high)
    exact = sum(map(Fraction, a.tolist())) / a.size
    numbers = [low, middle, high, first, last, float(exact)]
    return [np.array(numbers, "f8"), np.sort(a[(a < first) | (a > last)]).astype("f8")]


def of_groups(a: Values, labels: Values, axis: int | None = None) -> Values:
    return np.stack([np.median(a[labels == k], axis=axis) for k in range(5)])


def by_weight(a: Values) -> list[Values]:
    repeated = np.repeat(a, WEIGHTS[: a.size])
    return [np.quantile(repeated, Q, method="inverted_cdf")]


def deviation(a: Values) -> Values:
    return np.median(np.abs(a - np.median(a)))


LIMIT = "dask_gpuselect.column-limit"

QUESTIONS: dict[str, Question] = {
    "median": Question(lambda x: (median(x),), lambda a: [np.median(a)]),
    "quantile": Question(lambda x: (quantile(x, Q),), lambda a: [np.quantile(a, Q)]),
    "order_statistic": Question(
        lambda x: (order_statistic(x, [3, 50, 2000]),), lambda a: [np.sort(a)[[3, 50, 2000]]]
    ),
    "quantile, axis": Question(
        lambda x: (quantile(x, Q, axis=0),), lambda a: [np.quantile(a, Q, axis=0)], is_grid=True
    ),
    "quantile, axis in passes": Question(
        lambda x: (quantile(x, Q, axis=0),),
        lambda a: [np.quantile(a, Q, axis=0)],
        is_grid=True,
        config={LIMIT: 5000},
    ),
    "describe_boxplot": Question(
        lambda x: (describe_boxplot(x, max_fliers=4000),), box_of, boxes_found, data=FLOATS
    ),
    "describe_boxplot, axis": Question(
        lambda x: (describe_boxplot(x, axis=0, max_fliers=400),),
        lambda a: [part for lane in a.T for part in box_of(lane)],
        boxes_found,
        is_grid=True,
        data=FLOATS,
    ),
    "groupby": Question(
        lambda x: (groupby(x, beside(x, LABELS), groups=range(5)).median(),),
        lambda a: [of_groups(a, LABELS[: a.size])],
    ),
    "groupby, axis": Question(
        lambda x: (groupby(x, LABELS[: x.shape[0]], 0, groups=range(5)).median(),),
        lambda a: [of_groups(a, LABELS[: len(a)], 0)],
        is_grid=True,
    ),
    "weighted quantile": Question(
        lambda x: (quantile(x, Q, weights=beside(x, WEIGHTS), method="inverted_cdf"),), by_weight
    ),
    "mad": Question(
        lambda x: (mad(x, scale=1.0),), lambda a: [deviation(a)], data=("uniform", "skewed", "ties")
    ),
    "sort": Question(lambda x: (sort(x, spill=False),), lambda a: [np.sort(a)]),
    "sort on disk": Question(
        lambda x: (sort(x, spill=True),), lambda a: [np.sort(a)], on_disk=True
    ),
    "argsort on disk": Question(
        lambda x: (argsort(x, spill=True),), lambda a: [np.argsort(a, kind="stable")], on_disk=True
    ),
    "sort_by on disk": Question(
        lambda x: tuple(sort_by(x, beside(x, WEIGHTS), spill=True)),
        lambda a: [np.sort(a), WEIGHTS[: a.size][np.argsort(a, kind="stable")]],
        on_disk=True,
    ),
    "x - median(x)": Question(
        lambda x: (x - median(x),),
        lambda a: [a - np.median(a)],
        data=FLOATS,
        mixed=lambda a, b: [a - np.median(b)],
        is_read_unchecked=True,
    ),
    "median and boxes": Question(
        lambda x: (median(x), describe_boxplot(x, max_fliers=4000)),
        lambda a: [np.median(a), *box_of(a)],
        lambda computed: [on_host(computed[0]), *boxes_found(computed[1:])],
        data=FLOATS,
        mixed=lambda a, b: [np.median(a), *box_of(b)],
    ),
}


def is_answer(found: list[Values], expected: list[Values]) -> bool:
    """Whether two answers are equal, to the last bit."""
    return len(found) == len(expected) and all(
        np.shape(a) == np.shape(b)
        and np.array_equal(a, b, equal_nan=np.asarray(b).dtype.kind == "f")
        for a, b in zip(found, expected, strict=True)
    )
