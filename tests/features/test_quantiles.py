"""The six functions against NumPy: answers, types and shapes, for all data and kinds of array."""

from __future__ import annotations

import warnings
from typing import Any

import array_api_strict as xp
import dask
import dask.array as da
import numpy as np
import pytest
from numpy.typing import NDArray

import dask_gpuselect
from tests.backends import CUPY, NUMPY, Backend
from tests.data import INTEGER_DTYPES, hashed, make, normal, uniform
from tests.oracle import DISCRETE, FUNCTIONS, check, expected, methods_for, takes_q

pytestmark = pytest.mark.usefixtures("in_this_thread")

DATES = ("M8[s]", "M8[ns]", "m8[D]", "m8[us]")
DTYPES = ("?", *INTEGER_DTYPES, "f2", "f4", "f8", *DATES)
Q = (0.9, 0.25, 0.5, 0.5, 0.0, 1.0, 1 / 3, 0.999, 0.1)  # neither ascending nor distinct

every_function = pytest.mark.parametrize("function", FUNCTIONS)
functions_of_q = pytest.mark.parametrize("function", list(filter(takes_q, FUNCTIONS)))
every_dtype = pytest.mark.parametrize("dtype", DTYPES)


def some(dtype: str, n: int = 1000) -> NDArray[Any]:
    """Ordinary data of any dtype, with a few NaN or NaT where there are such."""
    if dtype == "?":
        return make("bools", dtype, n)
    if dtype in INTEGER_DTYPES:
        return make("whole range", dtype, n)
    if dtype in DATES:
        return np.where(uniform(n) < 0.05, np.iinfo("i8").min, make("few", "i8", n)).view(dtype)
    return make("some nan", dtype, n)


def untouchable(backend: Backend, shape: Any, dtype: str, chunks: Any) -> da.Array:
    """A source that no test can load."""

    def load(block: Any) -> Any:
        raise AssertionError("loaded")

    return da.zeros(shape, dtype=dtype, chunks=chunks).map_blocks(
        load, dtype=dtype, meta=backend.asarray(np.empty((0,) * len(shape), dtype))
    )


def call(function: str, a: Any, q: Any = Q, method: str = "median", **options: Any) -> Any:
    """Our function, with what it takes of q (as a share of 1) and the method."""
    ours = getattr(dask_gpuselect, function)
    if not takes_q(function):
        return ours(a, **options)
    return ours(a, scaled(function, q), method=method, **options)


def scaled(function: str, q: Any) -> Any:
    """A q in [0, 1] as the function wants it, of the same type."""
    if "percentile" not in function:
        return q
    return type(q)(100 * share for share in q) if isinstance(q, tuple | list) else 100 * q


def right(function: str, a: Any, q: Any = Q, method: str = "median") -> Any:
    if not takes_q(function):
        return expected(function, a)
    return expected(function, a, scaled(function, q), method)


# --------------------------------------------------------------------------------------------------
# All data
# --------------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.slow
def test_more_elements_on_a_gpu_than_32_bits_count() -> None:
    a = CUPY.xp.zeros(2**32 + 1000, np.uint8)
    a[-2000:] = 7
    for function in ("median", "nanmedian"):
        check(CUPY.to_numpy(call(function, a)), np.float64(0))
    ours = CUPY.to_numpy(call("quantile", a, [0.5, 1 - 2**-22, 1.0], "higher"))
    check(ours, np.array([0, 7, 7], "u1"))
    del a
    CUPY.free()


@functions_of_q
@pytest.mark.parametrize("shape", [(2, 1), (2, 2, 3), (0, 3), (1, 1)])
def test_q_of_any_shape(backend: Backend, function: str, shape: tuple[int, ...]) -> None:
    x = normal(60).reshape(6, 10)
    q = hashed(np.arange(np.prod(shape))).reshape(shape) * (100 if "percentile" in function else 1)
    theirs: Any = getattr(np, function)
    for a in (backend.asarray(x), backend.lazy(x, (4, 3))):
        for axis in (None, 1, [1], (0, -1), np.array([1, 0])):
            how: dict[str, Any] = {"method": "hazen", "keepdims": True}
            ours = getattr(dask_gpuselect, function)(a, q, axis=axis, **how)
            how["axis"] = tuple(axis) if np.ndim(axis) else axis
            flat = theirs(x, q.ravel() if q.size else [0.5], **how)
            wanted = flat[: q.size].reshape(*shape, *flat.shape[1:])
            assert ours.shape == wanted.shape
            (actual,) = dask.compute(ours)
            check(backend.to_numpy(actual), wanted)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("name", ["signed zeros", "zero and denormal"])
@pytest.mark.parametrize("method", ["inverted_cdf", "linear"])
def test_the_sign_of_zero_does_not_depend_on_chunks(
    backend: Backend, name: str, dtype: str, method: str
) -> None:
    x = make(name, dtype, 1000)
    forms = (backend.asarray(x), *(backend.lazy(x, chunks) for chunks in (1000, 300, 77)))
    answers = dask.compute(*(call("quantile", form, Q, method) for form in forms))
    ours = [backend.to_numpy(answer).tobytes() for answer in answers]
    assert ours == ours[:1] * len(ours)


# --------------------------------------------------------------------------------------------------
# Types and shapes, also before anything is computed
# --------------------------------------------------------------------------------------------------


class MyFloat(float):
    """A subclass of float that NumPy does not know."""


WEAK = (0.25, 1.0)
STRONG = (np.float64(0.25), np.array(0.25), [0.25], (0.9, 0.25, 0.9), np.array([]), [])
# To us float64, but for a Python number and a float of NumPy's.
OTHERS = (0, 1, True, np.int64(1), np.float32(0.25), np.float16(0.25), np.array([0.25], "f4"), [0])
OTHERS += (MyFloat(0.5), np.array([0.5], ">f4"))


@pytest.mark.any_dask
@every_function
@every_dtype
def test_dtype(backend: Backend, function: str, dtype: str) -> None:
    x = some(dtype, 50)
    a, source = backend.asarray(x), untouchable(backend, (50,), dtype, 20)
    for method in methods_for(function, x.dtype)[::3]:
        for q in (*WEAK, *STRONG, *(OTHERS if dtype in ("f4", "i4") else ())):
            theirs = right(function, x, q, method)
            check(backend.to_numpy(call(function, a, q, method)), theirs, (method, q))
            if np.size(q) > 1 or type(q) is np.ndarray:
                continue
            ours = call(function, source, q, method)
            assert ours.dtype == theirs.dtype, (method, q)
            assert ours.shape == theirs.shape, (method, q)
            assert type(ours._meta) is backend.array_type
            assert ours._meta.dtype == theirs.dtype
            assert ours._meta.ndim == theirs.ndim


# --------------------------------------------------------------------------------------------------
# NaN, NaT, and nothing
# --------------------------------------------------------------------------------------------------


def numpys_warning(function: str, dtype: str) -> str:
    """What NumPy warns of when asked about an empty array."""
    theirs: Any = getattr(np, function)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        theirs(np.empty(0, dtype), *((0.5,) if takes_q(function) else ()))
    return str(caught[0].message).rstrip(".")  # NumPy 2.1 has a full stop there


def nothing(backend: Backend, kind: str, dtype: str) -> Any:
    """An empty array: in memory, lazy and known to be empty, lazy and not known to be."""
    if kind == "in memory":
        return backend.asarray(np.empty((0, 3), dtype))
    source = backend.lazy(some(dtype, 12).reshape(4, 3), 2)
    return source[:0] if kind == "lazy" else source[(source == source) & (source != source)]


KINDS_OF_NOTHING = ("in memory", "lazy", "unknown size")


@pytest.mark.parametrize("kind", KINDS_OF_NOTHING)
@pytest.mark.parametrize("dtype", ["?", "i4", "f4", "M8[s]"])
@pytest.mark.parametrize("function", ["quantile", "percentile"])
def test_quantile_of_nothing(backend: Backend, function: str, dtype: str, kind: str) -> None:
    """As NumPy has it: an error, at the call if it is known then."""
    a = nothing(backend, kind, dtype)
    for method in methods_for(function, np.dtype(dtype))[::5]:
        for q in (0.5, [0.1, 0.5]):
            result = call(function, a, q, method) if kind == "unknown size" else None
            with pytest.raises(IndexError, match="an empty array has no quantiles"):
                call(function, a, q, method) if result is None else result.compute()


@pytest.mark.parametrize("dtype", ["?", "i8", "u1"])
@pytest.mark.parametrize("method", DISCRETE)
def test_nanquantile_of_no_integers(backend: Backend, method: str, dtype: str) -> None:
    """NaN as NumPy's float64 while it is known in time, as the type is; an error after that."""

    def ask(kind: str) -> Any:
        return dask_gpuselect.nanquantile(nothing(backend, kind, dtype), [0.5], method=method)

    for kind in ("in memory", "lazy"):
        with pytest.warns(RuntimeWarning, match=numpys_warning("nanquantile", dtype)):
            (answer,) = dask.compute(ask(kind))
        check(backend.to_numpy(answer), np.array([np.nan]))
    assert ask("lazy").dtype == "f8"
    result = ask("unknown size")
    assert result.dtype == np.dtype(dtype)
    with pytest.raises(IndexError, match=f"no quantiles, and {np.dtype(dtype)} has no NaN"):
        result.compute()


# --------------------------------------------------------------------------------------------------
# Chunks of any size
# --------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_the_array_says_of_what_kind_the_answer_is() -> None:
    """Chunks of several kinds, NumPy's by what the array says, or CuPy's."""
    x = normal(40_000)

    def alternating(block: Any, block_id: tuple[int, ...]) -> Any:
        return CUPY.asarray(block) if block_id[0] % 2 else block

    for kind in (NUMPY, CUPY):
        a = da.from_array(x, chunks=9000).map_blocks(
            alternating, dtype=x.dtype, meta=kind.asarray(x[:0])
        )
        ours = kind.to_numpy(dask_gpuselect.quantile(a, Q).compute())
        check(ours, expected("quantile", x, Q, "linear"))


# --------------------------------------------------------------------------------------------------
# Chunks of any layout
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [100, 50_000])
def test_chunks_of_a_narrower_dtype_are_widened(backend: Backend, n: int) -> None:
    """As NumPy's own functions would: the array says what its elements are."""
    x = (normal(n) * 10).astype("f4")
    a = backend.held(x, n * 2 // 5).map_blocks(lambda b: b.astype("i2"), dtype="f8")
    theirs = expected("quantile", x.astype("i2").astype("f8"), Q, "linear")
    check(backend.to_numpy(dask_gpuselect.quantile(a, Q).compute()), theirs)


# --------------------------------------------------------------------------------------------------
# Arrays that are not lazy
# --------------------------------------------------------------------------------------------------


LIKES: list[Any] = [(3.5, 1, 2, 8), [[1, 2], [3, 5]], range(7), 2.5, [True, False, False]]
LIKES += [np.float32(1.5), np.int8(3), np.bool_(True), np.array(1.5)]


@every_function
@pytest.mark.parametrize("a", LIKES, ids=repr)
def test_array_likes(function: str, a: Any) -> None:
    for method in methods_for(function, np.asarray(a).dtype):
        for q in (0.3, [0.3, 0.5]):
            check(call(function, a, q, method), right(function, a, q, method), (method, q))


STRICT = ("?", *INTEGER_DTYPES, "f4", "f8")


@pytest.mark.parametrize("keepdims", [False, True])
def test_array_api_shapes(keepdims: bool) -> None:
    for shape in ((), (1,), (4,), (2, 3, 2)):
        left = (1,) * len(shape) if keepdims else ()
        x = xp.ones(shape)
        assert dask_gpuselect.median(x, keepdims=keepdims).shape == left
        assert dask_gpuselect.quantile(x, [0.1, 0.5], keepdims=keepdims).shape == (2, *left)
        assert dask_gpuselect.quantile(x, [], keepdims=keepdims).shape == (0, *left)
    device = xp.Device("device1")
    assert dask_gpuselect.median(xp.ones((3,), device=device)).device == device


@pytest.mark.parametrize("dtype", STRICT)
def test_array_api_nothing(dtype: str) -> None:
    empty = xp.asarray(np.empty((0, 2), dtype))
    with pytest.warns(RuntimeWarning, match="Mean of empty slice"):
        ours = dask_gpuselect.median(empty)
    assert type(ours) is type(empty)
    check(np.asarray(ours), np.full((), np.nan, "f4" if dtype == "f4" else "f8"))
    with pytest.raises(IndexError, match="an empty array has no quantiles"):
        dask_gpuselect.quantile(empty, 0.5, method="lower")


@pytest.mark.parametrize("dtype", STRICT)
def test_array_api_chunks(dtype: str) -> None:
    """Dask cannot hold an array whose meta is neither NumPy's nor like it, but such chunks."""
    x = some(dtype, 1000)
    parts = (300, 0, 699, 1)
    source = da.from_array(x, chunks=(parts,)).map_blocks(xp.asarray, dtype=dtype, meta=x[:0])
    for function, method in [("nanquantile", "lower"), ("quantile", "higher")]:
        check(call(function, source, Q, method).compute(), right(function, x, Q, method))
    check(dask_gpuselect.nanmedian(source).compute(), expected("nanmedian", x))
