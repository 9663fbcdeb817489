"""What the docstrings of medians and quantiles have in common, written once.

A docstring names a text in braces, on a line of its own, and `documented` puts it there.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

TEXTS = {
    "data": """
Of bool, integers, float16, float32 or float64; of any shape and chunks, sizes known or
not. Chunks may be NumPy, CuPy or other array-API arrays. A plain array is answered at
once, in kind.
""",
    "data_and_dates": """
Of bool, integers, float16, float32 or float64; datetime64 and timedelta64 with the
discrete methods; of any shape and chunks, sizes known or not. Chunks may be NumPy, CuPy or
other array-API arrays. A plain array is answered at once, in kind.
""",
    "axis_and_keepdims": """
axis : None, int or tuple of ints, optional
    Axes to reduce; all of them by default.
keepdims : bool, default False
    Whether the reduced axes stay, with size 1.
""",
    "axis": """
axis : None, int or tuple of ints, optional
    Axes to reduce; all of them by default.
""",
    "method_to_weights": """
method : str, default "linear"
    One of ``numpy.quantile``'s thirteen: see `quantile`.
keepdims : bool, default False
    Whether the reduced axes stay, with size 1.
weights : None
    Not implemented yet.
""",
    "raised_by_medians": """
TypeError
    At the call, for complex, object, string and masked arrays, and for datetimes, which cannot
    be averaged: take ``quantile(a, 0.5, method="lower")``.
numpy.exceptions.AxisError, ValueError
    At the call, for an axis that does not exist; for a ``dask_gpuselect.column-limit`` that is
    too small for any plan.
ChunksChangedError
    While computing, if a chunk differs between two loads.
MemoryError, RuntimeError
    For CuPy chunks: out of device memory; a device or driver that is too old.
""",
    "raised_while_computing": """
numpy.exceptions.AxisError, NotImplementedError
    At the call, for an axis that does not exist; for weights.
ChunksChangedError
    While computing, if a chunk differs between two loads.
MemoryError, RuntimeError
    For CuPy chunks: out of device memory; a device or driver that is too old.
""",
    "type_error": """
TypeError
    At the call, for complex, object, string and masked arrays; for bool and datetimes with a
    method that would interpolate; for a q that is complex, a string or lazy.
""",
    "if_empty": """
IndexError
    For an empty array: at the call if its size is known, else while computing.
""",
    "if_empty_in_the_end": """
IndexError
    While computing, for an array of unknown size that proves empty, if the answer's type has no
    NaN.
""",
    "loads_of_a_median": """
Loads, of all elements: every chunk of a lazy array at most twice, whatever its data; chunks in
memory (persisted, ``from_array``) are read in place. Nothing is computed by the call.
""",
    "loads": """
Loads, of all elements: every chunk of a lazy array at most twice, whatever its data and the
number of q; chunks in memory (persisted, ``from_array``) are read in place, large ones as a
rule once. Nothing is computed by the call.
""",
    "along_axes": """
Along some of the axes: nothing is rechunked, and the other chunks stay. Where the column of
chunks that an output chunk is made of is a single one, or fits ``dask_gpuselect.column-limit``
(dask config; 1 GiB): one load, and a worker holds a column for each of its threads. A larger
column is taken in slabs or in parts that fit, mostly in two loads (see `explain`); a worker holds
one of them for each of its threads, and what the parts of a column report, which fits the limit
too.
Scratch for NumPy chunks is 1 MB, or 3 lanes. CuPy chunks are read in place; a copy is made of
those whose axes are not evenly spaced, or where ``axis`` are not next to each other.
""",
    "memory_of_a_median": """
Memory: a worker holds, for each of its threads, one chunk and scratch of at most two. From each
chunk of n elements come about sqrt(n) pivots (40 bytes each) and about as many candidates.
A CuPy chunk has at most 8,192 pivots, and n / 9,000 candidates where that is more; of 8 bytes
an element, 4,096 and n / 5,000.
Data in memory that are read once (up to 2**28 elements) have 0.9 % of candidates instead.
""",
    "memory": """
Memory: a worker holds, for each of its threads, one chunk and scratch of at most two. From each
chunk of n elements come about sqrt(n) pivots (40 bytes each) and about as many candidates for
each q; past 8 of them, ``sqrt(n * len(q))`` of both.
A CuPy chunk has at most 8,192 pivots, and n / 9,000 candidates where that is more; of 8 bytes
an element, 4,096 and n / 5,000.
Data in memory that are read once (up to 2**28 elements and 8 q) have 0.9 % of candidates for
each q instead.
""",
    "algorithm": """
Algorithm: each chunk contributes a bundle of cutting planes of the objective ``sum |x - y|``
(Beliakov 2011, section IV; one bundle a chunk: Birge & Louveaux 1988), their sum brackets the
order statistics, and a second load counts and gathers what lies in the bracket. Two loads are
the fewest possible in so little memory (Munro & Paterson 1980).
""",
}


def documented(function: F) -> F:
    """The function, its docstring whole."""
    if function.__doc__:  # `python -OO` leaves none
        lines = inspect.cleandoc(function.__doc__).splitlines()
        function.__doc__ = "\n".join(map(_filled, lines)) + "\n"
    return function


def _filled(line: str) -> str:
    named = re.fullmatch(r"( *)\{(\w+)\}", line)
    return textwrap.indent(TEXTS[named[2]].strip("\n"), named[1]) if named else line
