"""Medians and quantiles: what users call. Arguments are checked here, and the plan is chosen."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dask.array as da
import numpy as np
from dask.base import is_dask_collection
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.typing import ArrayLike, NDArray

from dask_gpuselect import passes
from dask_gpuselect.cuts import Brackets, FloatArray, IntArray, Tally
from dask_gpuselect.finish import order_statistics
from dask_gpuselect.interpolation import interpolate, is_weak, result_dtype
from dask_gpuselect.kernels import as_dtype, check_not_masked, generic
from dask_gpuselect.ranks import MEDIAN, METHODS, Method, check_method, ranks
from dask_gpuselect.strategies import pivot_share

Axis = int | Sequence[int] | None


def median(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    return _quantile("median", a, 0.5, axis, MEDIAN, keepdims=keepdims)


def nanmedian(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Any:
    return _quantile("nanmedian", a, 0.5, axis, MEDIAN, keepdims=keepdims)


def quantile(
    a: Any,
    q: ArrayLike,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: ArrayLike | None = None,
) -> Any:
    return _quantile("quantile", a, q, axis, method, keepdims=keepdims, weights=weights)


def nanquantile(
    a: Any,
    q: ArrayLike,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: ArrayLike | None = None,
) -> Any:
    return _quantile("nanquantile", a, q, axis, method, keepdims=keepdims, weights=weights)


def percentile(
    a: Any,
    q: ArrayLike,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: ArrayLike | None = None,
) -> Any:
    return _quantile("percentile", a, q, axis, method, keepdims=keepdims, weights=weights)


def nanpercentile(
    a: Any,
    q: ArrayLike,
    axis: Axis = None,
    *,
    method: str = "linear",
    keepdims: bool = False,
    weights: ArrayLike | None = None,
) -> Any:
    return _quantile("nanpercentile", a, q, axis, method, keepdims=keepdims, weights=weights)


# --- What is asked


@dataclass(frozen=True)
class Quantiles:
    """Some quantiles of all elements of an array; see `passes.Question`.

    Parameters
    ----------
    q : tuple of float
        In [0, 1].
    method : str
        Of `METHODS`, or ``"median"``.
    skips_missing : bool
        Whether NaN and NaT are left out; otherwise one of them makes every answer missing.
    source_dtype, dtype : dtype
        Of the array and of the answer.
    """

    q: tuple[float, ...]
    method: str
    skips_missing: bool
    source_dtype: np.dtype[Any]
    dtype: np.dtype[Any]

    @property
    def share(self) -> int:
        return pivot_share(len(self.q))

    @property
    def _method(self) -> Method:
        return MEDIAN if self.method == MEDIAN.name else METHODS[self.method]

    def ranks(self, n: int) -> tuple[IntArray, IntArray]:
        if n == 0 or not self.q:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        wanted = ranks(n, np.array(self.q), self._method)
        first, last = np.unique(np.stack([wanted.lower, wanted.upper]), axis=1)
        return first, last

    def answer(self, brackets: Brackets, tally: Tally) -> NDArray[Any]:
        if not self.q:
            return np.empty(0, self.dtype)
        if self._is_missing(tally):
            return np.full(len(self.q), np.nan if self.dtype.kind == "f" else "NaT", self.dtype)
        wanted = ranks(tally.n_valid, np.array(self.q), self._method)
        found = order_statistics(brackets, tally, np.stack([wanted.lower, wanted.upper]))
        lower, upper = as_dtype(found, self.source_dtype)
        return interpolate(lower, upper, wanted.weight, self._method, self.dtype)

    def _is_missing(self, tally: Tally) -> bool:
        """Whether every answer is NaN or NaT, with NumPy's warning or error where it gives one."""
        if tally.n_valid == tally.n_missing == 0:
            check_not_empty(self._method, skips_missing=self.skips_missing)
            if self.dtype.kind in "biu":
                raise IndexError(
                    f"an empty array has no quantiles, and {self.dtype} has no NaN to say so"
                )
            warnings.warn("Mean of empty slice", RuntimeWarning, stacklevel=2)
            return True
        if tally.n_valid == 0 and self.skips_missing:
            warnings.warn("All-NaN slice encountered", RuntimeWarning, stacklevel=2)
            return True
        return tally.n_missing > 0 and not self.skips_missing


def check_not_empty(method: Method, *, skips_missing: bool) -> None:
    """Raise for an empty array where NumPy does: a quantile proper; medians and nan functions are
    NaN."""
    if method is not MEDIAN and not skips_missing:
        raise IndexError("an empty array has no quantiles")


# --- Checking arguments


def _quantile(
    name: str,
    a: Any,
    q: Any,
    axis: Axis,
    method: str | Method,
    *,
    keepdims: bool,
    weights: Any = None,
) -> Any:
    """What all six functions do: check, and ask a lazy array lazily, any other at once."""
    a = _as_array(a)
    chosen = method if isinstance(method, Method) else check_method(method)
    probabilities, is_scalar = _probabilities(q, scale=100 if "percentile" in name else 1)
    _check_axis(axis, a.ndim)
    if weights is not None:
        raise NotImplementedError(f"{name} with weights is not implemented yet")
    source_dtype = _numpy_dtype(a)
    dtype = result_dtype(source_dtype, chosen, weak_q=is_weak(q))
    skips_missing = name.startswith("nan")
    if a.size == 0 and len(probabilities):
        check_not_empty(chosen, skips_missing=skips_missing)
        dtype = dtype if dtype.kind in "fMm" else np.dtype(np.float64)  # for NaN, as NumPy
    question = Quantiles(
        tuple(probabilities.tolist()), chosen.name, skips_missing, source_dtype, dtype
    )

    shape = () if is_scalar else (len(probabilities),)
    shape += (1,) * a.ndim if keepdims else ()
    if isinstance(a, da.Array):
        return passes.ask(a, question, name, shape, dtype)
    answer = passes.ask_now(a, source_dtype, question).reshape(shape)
    if isinstance(a, np.ndarray):
        return answer[()]
    return generic.namespace(a).asarray(answer, device=a.device)


def _as_array(a: Any) -> Any:
    """A dask array, a NumPy array, or another array of the array API."""
    if isinstance(a, da.Array | np.ndarray) or hasattr(a, "__array_namespace__"):
        array = a
    elif is_dask_collection(a):
        raise TypeError(
            f"expected a dask array, not a {type(a).__name__}: pass its array (for example x.data)"
        )
    else:
        array = np.asarray(a)
    check_not_masked(getattr(array, "_meta", array))
    return array


def _numpy_dtype(array: Any) -> np.dtype[Any]:
    """The dtype of an array as NumPy's; array-API dtypes print as ``<namespace>.<name>``."""
    if isinstance(array.dtype, np.dtype):
        return array.dtype
    return np.dtype(str(array.dtype).rpartition(".")[2])


def _probabilities(q: Any, scale: int) -> tuple[FloatArray, bool]:
    """q as float64 in [0, 1], one-dimensional, and whether it was a scalar."""
    if is_dask_collection(q):
        raise TypeError("q must be known when the graph is built: compute it first")
    given = np.asarray(q)
    if given.size and given.dtype.kind not in "biuf":
        raise TypeError(f"q must be real, not {given.dtype}")
    if given.ndim > 1:
        raise ValueError(f"q must be a scalar or one-dimensional, not of shape {given.shape}")
    values = given.astype(np.float64)
    outside = ~((values >= 0) & (values <= scale))  # NaN too
    if outside.any():
        raise ValueError(f"q must lie in [0, {scale}], and {values[outside][0]} does not")
    return np.atleast_1d(values / scale), given.ndim == 0


def _check_axis(axis: Axis, ndim: int) -> None:
    """Raise unless `axis` is None or names all axes once."""
    if axis is not None and len(normalize_axis_tuple(axis, ndim)) < ndim:
        raise NotImplementedError(
            f"a reduction along axis={axis!r} alone of an array of {ndim} dimensions is not "
            "implemented yet: only axis=None, over all elements"
        )
