"""Laws that hold for all data, under any chunking.

The examples are the same in every run. ``HYPOTHESIS_PROFILE=explore`` looks for new ones, for as
long as you like.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import dask
import dask.array as da
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import dask_gpuselect
from tests.backends import NUMPY, Backend
from tests.oracle import DISCRETE, METHODS, check, expected, methods_for

pytestmark = pytest.mark.any_dask  # the graphs are those of test_quantiles.py

settings.register_profile(
    "fixed",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "explore", settings.get_profile("fixed"), derandomize=False, max_examples=2000
)
PROFILE = settings.get_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
FEWER = settings(PROFILE, max_examples=PROFILE.max_examples // 2)

FLOATS = ("f2", "f4", "f8")
INTEGERS = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
DATES = ("M8[s]", "m8[ns]")
ALL = (*FLOATS * 4, *INTEGERS, *DATES, "?")


@pytest.fixture(autouse=True, scope="module")
def _in_this_thread() -> Iterator[None]:
    with dask.config.set(scheduler="sync"):
        yield


# --------------------------------------------------------------------------------------------------
# What there is to ask
# --------------------------------------------------------------------------------------------------


def elements(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    """Elements of a dtype: all of them, few of them (ties), and those that break things."""
    if dtype.kind == "f":
        limits = np.finfo(dtype)
        width: Any = 8 * dtype.itemsize
        largest = float(limits.max)
        special = [np.inf, -np.inf, np.nan, float(limits.tiny), 1 + float(limits.eps)]
        return st.one_of(
            st.floats(width=width),
            st.integers(-3, 3).map(float),
            st.sampled_from(special),
            st.sampled_from([largest, -largest, largest / 2]),
            st.sampled_from([0.0, -0.0, float(limits.smallest_subnormal)]),
        )
    if dtype.kind == "b":
        return st.booleans()
    integers = np.iinfo("i8" if dtype.kind in "mM" else dtype)
    least, most = int(integers.min), int(integers.max)
    few = st.integers(0, 5)
    return st.one_of(
        st.integers(least, most),
        few,
        few.map(lambda i: most - i),
        few.map(lambda i: least + i),
        few.map(lambda i: min(2**53 + i, most)),
    )


@st.composite
def arrays(draw: st.DrawFn, dtypes: tuple[str, ...] = ALL) -> Any:
    """Up to 1,500 elements: each drawn by itself, or few drawn and scattered."""
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    stored = np.dtype("i8") if dtype.kind in "mM" else dtype
    longest = draw(st.sampled_from([(1500,), (40, 37), (11, 11, 12), (6, 5, 7, 7), ()]))
    shape = tuple(draw(st.integers(1, size)) for size in longest)
    if np.prod(shape) <= 60:
        return draw(hnp.arrays(stored, shape, elements=elements(dtype), fill=st.nothing())).view(
            dtype
        )
    few = np.array(draw(st.lists(elements(dtype), min_size=2, max_size=20)), stored)
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return rng.choice(few, shape, p=rng.dirichlet(np.ones(len(few)))).view(dtype)


@st.composite
def chunkings(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """Any chunks of a shape, empty ones too."""

    def cut(size: int) -> tuple[int, ...]:
        at = draw(st.lists(st.integers(0, size), max_size=4).map(sorted))
        return tuple(np.diff([0, *at, size]).tolist())

    return tuple(map(cut, shape))


shares = st.one_of(
    st.sampled_from([0.5, 0.25, 0.0, 1.0, 1 - 2.0**-53]),
    st.integers(0, 64).map(lambda i: i / 64),
    st.floats(0, 1),
)
grid = st.integers(1, 40).map(lambda n: np.linspace(0, 1, n).tolist())
questions = st.one_of(shares, st.lists(shares, max_size=6), grid)


class Case(NamedTuple):
    """Data, its chunks, and a question."""

    x: NDArray[Any]
    chunks: tuple[tuple[int, ...], ...]
    function: str
    q: Any
    method: str
    backend: Backend = NUMPY

    def on(self, backend: Backend) -> Case:
        """The same with arrays of another kind; no example if it has no such dtype."""
        assume(backend.supports(self.x.dtype))
        return self._replace(backend=backend)

    @property
    def plain(self) -> Any:
        return self.backend.asarray(self.x)

    @property
    def source(self) -> da.Array:
        """Loaded anew each time."""
        return self.backend.lazy(self.x, self.chunks)

    def ask(self, a: Any) -> Any:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "All-NaN slice encountered", RuntimeWarning)
            answer = ask(self.function, a, self.q, self.method)
            answer = answer.compute() if isinstance(answer, da.Array) else answer
        return self.backend.to_numpy(answer)


def ask(function: str, a: Any, q: Any, method: str) -> Any:
    call: Any = getattr(dask_gpuselect, function)
    return call(a) if "median" in function else call(a, q, method=method)


@st.composite
def cases(draw: st.DrawFn, dtypes: tuple[str, ...] = ALL) -> Case:
    x = draw(arrays(dtypes))
    functions = ["quantile", "nanquantile", "percentile", "nanpercentile"]
    functions += [] if x.dtype.kind in "mM" else ["median", "nanmedian"]
    function = draw(st.sampled_from(functions))
    q = draw(questions)
    if "percentile" in function:
        q = [100 * share for share in q] if isinstance(q, list) else 100 * q
    method = draw(st.sampled_from(methods_for(function, x.dtype)))
    event(f"{function} {method}")
    event(f"{x.dtype}")
    return Case(x, draw(chunkings(x.shape)), function, q, method)


def in_bits(answer: Any) -> bytes:
    """The bits of an answer, all NaN being one."""
    answer = np.array(answer)
    if answer.dtype.kind == "f":
        answer[np.isnan(answer)] = np.nan
    return answer.tobytes()


# --------------------------------------------------------------------------------------------------
# The laws
# --------------------------------------------------------------------------------------------------


@given(case=cases())
@settings(PROFILE, max_examples=4 * PROFILE.max_examples)
@pytest.mark.slow
def test_answers_are_right(backend: Backend, case: Case) -> None:
    case = case.on(backend)
    check(case.ask(case.source), expected(case.function, case.x, case.q, case.method))
    for method in methods_for(case.function, case.x.dtype):
        theirs = expected(case.function, case.x, case.q, method)
        check(case._replace(method=method).ask(case.plain), theirs, method)


@pytest.mark.slow
@given(case=cases(), data=st.data())
@settings(PROFILE, max_examples=2 * PROFILE.max_examples)
def test_chunks_do_not_matter_to_the_last_bit(
    backend: Backend, case: Case, data: st.DataObject
) -> None:
    case = case.on(backend)
    answers = [case.ask(case.plain), case.ask(case.source)]
    other = case._replace(chunks=data.draw(chunkings(case.x.shape)))
    answers.append(other.ask(other.source))
    assert len({in_bits(answer) for answer in answers}) == 1, answers


@given(case=cases(), seed=st.integers(0, 2**32 - 1))
@settings(PROFILE)
@pytest.mark.slow
def test_the_order_of_elements_does_not_matter(backend: Backend, case: Case, seed: int) -> None:
    case = case.on(backend)
    order = np.random.default_rng(seed).permutation(case.x.size)
    shuffled = case._replace(x=case.x.ravel()[order].reshape(case.x.shape))
    answer = case.ask(case.source)
    check(shuffled.ask(shuffled.source), answer)
    assert in_bits(shuffled.ask(shuffled.plain)) == in_bits(answer)


@given(case=cases((*FLOATS, *INTEGERS)), q=st.lists(shares, min_size=2, max_size=12))
@settings(PROFILE)
@pytest.mark.slow
def test_monotone_in_q(backend: Backend, case: Case, q: list[float]) -> None:
    case = case.on(backend)
    function = "nanquantile"
    method = case.method if case.method in METHODS else "linear"
    asked = case._replace(function=function, q=sorted(q), method=method)
    ours = asked.ask(asked.source)
    ours = ours[ours == ours]  # NaN between -inf and inf
    assert np.all(ours[:-1] <= ours[1:])


@pytest.mark.slow
@given(case=cases(FLOATS), q=shares)
@settings(PROFILE)
def test_an_answer_lies_within_the_data(backend: Backend, case: Case, q: float) -> None:
    asked = case.on(backend)._replace(function="nanquantile", q=q)
    valid = case.x[~np.isnan(case.x)]
    method = case.method if case.method in METHODS else "hazen"
    ours = asked._replace(method=method).ask(asked.source)
    if method in DISCRETE and len(valid):
        assert ours in valid
    assert np.isnan(ours) or valid.min() <= ours <= valid.max()
    assert not np.isnan(ours) or len(valid) == 0 or np.isinf(valid).any()


@given(case=cases((*INTEGERS, *FLOATS)), method=st.sampled_from(DISCRETE))
@settings(FEWER)
def test_a_chosen_element_is_mapped_with_the_data(
    backend: Backend, case: Case, method: str
) -> None:
    """Discrete quantiles commute with every strictly increasing map."""
    x, q = case.x, case.q
    asked = case.on(backend)
    asked = asked._replace(function="nanpercentile" if "perc" in case.function else "nanquantile")
    asked = asked._replace(method=method)

    def rise(values: Any) -> Any:
        """Ranks among the distinct elements."""
        return np.searchsorted(np.unique(x[x == x]), values)

    ours = np.asarray(asked.ask(asked.source))
    mapped = asked._replace(x=np.where(x == x, rise(x), np.nan))
    theirs = np.asarray(mapped.ask(mapped.source))
    assert ours.shape == theirs.shape == np.shape(q)
    if np.all(ours == ours):
        assert np.all(rise(ours) == theirs)


@given(case=cases((*FLOATS, "i4", "i8")), q=questions)
@settings(FEWER)
@pytest.mark.slow
def test_lower_of_the_negated_is_the_higher(backend: Backend, case: Case, q: Any) -> None:
    case = case.on(backend)
    x = case.x.astype("f8")
    low = case._replace(x=-x, function="nanquantile", q=q, method="lower")
    high = low._replace(x=x, q=(1 - np.asarray(q))[()], method="higher")
    if np.all(1 - (1 - np.asarray(q)) == q):  # else they ask for different quantiles
        at = (np.asarray(q) * (np.count_nonzero(x == x) - 1)) % 1
        if np.all((at == 0) | ((at > 1e-9) & (at < 1 - 1e-9))):  # and nothing rounds to a rank
            np.testing.assert_array_equal(low.ask(low.source), -high.ask(high.source))


# --------------------------------------------------------------------------------------------------
# Chunks too large to be drawn element by element
# --------------------------------------------------------------------------------------------------


@st.composite
def large_cases(draw: st.DrawFn, sizes: tuple[int, int]) -> Case:
    """Chunks that are classified, with a mixture of continuous, tied, infinite and missing ones."""
    n = draw(st.integers(*sizes))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.standard_normal(n)
    match draw(st.sampled_from(["as it is", "heavy tail", "sorted", "few", "far"])):
        case "heavy tail":
            x = np.exp(4 * x)
        case "sorted":
            x.sort()
        case "few":
            x = np.floor(x * draw(st.sampled_from([1, 10, 1000])))
        case "far":
            x += 1e12
    for special in draw(
        st.lists(st.sampled_from([np.nan, np.inf, -np.inf, 1e20, 0.5]), max_size=3)
    ):
        x[rng.random(n) < draw(st.sampled_from([1e-4, 0.1, 0.6]))] = special
    dtype = draw(st.sampled_from(["f4", "f8"]))
    with np.errstate(over="ignore"):
        x = x.astype(dtype)
    if draw(st.booleans()) and not np.isnan(x).any() and np.abs(x).max() < 2**31:
        x = x.astype("i4")
    q = draw(st.one_of(st.lists(shares, max_size=4), st.just(np.linspace(0, 1, 101))))
    method = draw(st.sampled_from(METHODS))
    return Case(x, draw(chunkings(x.shape)), "nanquantile", q, method)


# Larger for CuPy, whose small chunks the host's kernels take.
LARGE = {"numpy": (9000, 50_000), "cupy": (17_000, 150_000)}


@pytest.mark.slow
@given(data=st.data())
@settings(FEWER)
def test_large_chunks(backend: Backend, data: st.DataObject) -> None:
    case = data.draw(large_cases(LARGE[backend.name])).on(backend)
    answer = case.ask(case.source)
    check(answer, expected(case.function, case.x, case.q, case.method))
    other = case._replace(chunks=data.draw(chunkings(case.x.shape)))
    for again in (other.ask(other.source), case.ask(case.plain)):
        assert in_bits(again) == in_bits(answer)
