"""Imported in the process that those of `test_memory.py` are forked from: it does what each of them
would have to do first, once. No thread may be there when it forks, so the scheduler has none."""

from __future__ import annotations

import ctypes
import gc
import json
import os
from contextlib import suppress

import dask

from dask_gpuselect.kernels import compiling
from tests.engine import test_memory as memory


def warm_up() -> None:
    # The limit is set anew by questions, and is here for what it was to come back.
    limit = {"scheduler": "sync", "dask_gpuselect.column-limit": "1 GiB"}
    compiling.LARGE = 0  # and so it stays in children: NumPy has scratch of its own
    with dask.config.set(limit):
        for question in json.loads(os.environ.get(memory.WARM, "[]")):
            memory.answer_a_little(memory.function_of(question))
    gc.collect()
    # A child must not find memory that is free already: what it takes would not be noticed.
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).malloc_trim(0)


warm_up()
