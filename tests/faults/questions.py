"""What is asked, of which data, and the right answers: questions of the matrix, and sorts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import dask.array as da
import numpy as np
from numpy.typing import NDArray

from dask_gpuselect import median
from tests.data import hashed, make
from tests.matrix import cases

Values = NDArray[Any]

Q = [0.1, 0.5, 0.75]
LINE, LINE_CHUNKS = (3005,), ((301,) * 9 + (296,),)  # an odd number: the median is an element
GRID, GRID_CHUNKS = (301, 8), ((30,) * 9 + (31,), (4, 4))
LABELS = (hashed(np.arange(4000)) * 5).astype("i8")
WEIGHTS = (hashed(np.arange(4000) + 7000) * 4).astype("i8") + 1

FLOATS = ("normal", "lognormal", "tied", "sorted")
INTEGERS = {"whole range of int64": "i8", "whole range of uint8": "u1"}
DATA = (*FLOATS, *INTEGERS)


def data_of(name: str, shape: tuple[int, ...]) -> Values:
    """Make data of a name in `DATA`."""
    dtype = INTEGERS.get(name, "f8")
    return make(name.partition(" of")[0], dtype, int(np.prod(shape))).reshape(shape)


# --- Questions ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """What is asked.

    Parameters
    ----------
    ask : callable
        From a dask array to a tuple of dask collections.
    expected : callable
        From `n_reads` versions of the array to the same, computed.
    is_grid : bool
        Whether it is asked of two dimensions.
    config : mapping
        For dask.
    on_disk : bool
        Whether it writes pieces to disk, whatever is kept.
    data : tuple of str
        Of which it may be asked.
    n_reads : int
        Of several answers that are computed together, each may be of another version.
    is_read_unchecked : bool
        Whether dask itself reads the array, too, where the package does not see what is read.
    """

    ask: Callable[[da.Array], tuple[Any, ...]]
    expected: Callable[..., Any]
    is_grid: bool = False
    config: Mapping[str, Any] = field(default_factory=dict)
    on_disk: bool = False
    data: tuple[str, ...] = DATA
    n_reads: int = 1
    is_read_unchecked: bool = False

    def answers(self, *versions: Values) -> Iterator[Any]:
        """Yield what is right, if the array had these versions."""
        for picked in itertools.product(versions, repeat=self.n_reads):
            yield self.expected(*picked)

    @property
    def shape(self) -> tuple[int, ...]:
        return GRID if self.is_grid else LINE

    @property
    def chunks(self) -> tuple[tuple[int, ...], ...]:
        return GRID_CHUNKS if self.is_grid else LINE_CHUNKS


@dataclass(frozen=True)
class Asked:
    """A question of the matrix, its slots and arguments, and what goes with the elements."""

    name: str
    slots: str = "all"
    how: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Values] = field(default_factory=dict)

    def case(self, a: Values) -> cases.Case:
        row = {"question": self.name, "slots": self.slots, "home": "tasks"}
        beside = {name: each[: len(a)] for name, each in self.beside.items()}
        groups = [*range(5)] if "labels" in beside else None
        return cases.Case(row, a, (), self.how, beside, groups=groups)

    def ask(self, x: da.Array) -> Any:
        case = self.case(np.empty(x.shape, x.dtype))
        is_lazy = "along" not in self.slots
        beside = {k: lazy(x, a) if is_lazy else a for k, a in case.beside.items()}
        return cases.ask(case, x, beside)

    def expected(self, a: Values) -> Any:
        return self.case(a).expected()


def lazy(x: da.Array, values: Values) -> da.Array:
    """Values that go along with the elements."""
    return da.from_array(values[: x.shape[0]], chunks=(x.chunks[0],))


def together(*rows: Asked, **about: Any) -> Question:
    """Ask questions of the matrix, and compute them together."""
    return Question(
        lambda x: tuple(each.ask(x) for each in rows),
        lambda *versions: tuple(each.expected(a) for each, a in zip(rows, versions, strict=True)),
        n_reads=len(rows),
        **about,
    )


FEW = {"q": Q, "method": "linear"}
BOX_RULES = {"whis": 1.5, "method": "linear", "nan_policy": "omit", "autorange": False}
BOXES = Asked("describe_boxplot", how=BOX_RULES | {"max_fliers": 4000})
MEDIAN = Asked("median")

QUESTIONS: dict[str, Question] = {
    "median": together(MEDIAN),
    "quantile": together(Asked("quantile", how=FEW)),
    "order_statistic": together(
        Asked("order_statistic", how={"k": [3, 50, 2000], "strategy": None})
    ),
    "quantile, axis": together(Asked("quantile", "first axis", FEW), is_grid=True),
    "quantile, axis in passes": together(
        Asked("quantile", "first axis", FEW),
        is_grid=True,
        config={"dask_gpuselect.column-limit": 5000, "dask_gpuselect.scratch-directory": False},
    ),
    "quantile, axis on disk": together(
        Asked("quantile", "first axis", FEW),
        is_grid=True,
        config={"dask_gpuselect.column-limit": 2500, "dask_gpuselect.scratch-limit": "1 GB"},
        on_disk=True,
    ),
    "describe_boxplot": together(BOXES, data=FLOATS),
    "describe_boxplot, axis": together(replace(BOXES, slots="first axis"), is_grid=True),
    "groupby": together(Asked("median", "groups, lazy labels", beside={"labels": LABELS})),
    "groupby, axis": together(
        Asked("median", "groups along the first axis", beside={"labels": LABELS}), is_grid=True
    ),
    "weighted quantile": together(
        Asked("quantile", how=FEW | {"method": "inverted_cdf"}, beside={"weights": WEIGHTS})
    ),
    "mad": together(Asked("mad", how={"scale": 1.0})),
    "sort": together(Asked("sort", how={"spill": False})),
    **{
        f"{name} on disk": together(Asked(name, how={"spill": True}), on_disk=True)
        for name in ("sort", "argsort", "sort_by")
    },
    "x - median(x)": Question(
        lambda x: (x - median(x),),
        lambda a, b: (a - np.median(b),),
        data=FLOATS,
        n_reads=2,
        is_read_unchecked=True,
    ),
    "median and boxes": together(MEDIAN, BOXES),
}
