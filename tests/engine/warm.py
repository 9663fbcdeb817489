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

M_MMAP_THRESHOLD = -3  # of <malloc.h>


def warm_up() -> None:
    # The limit is set anew by questions, and is here for what it was to come back.
    limit = {"scheduler": "sync", "dask_gpuselect.column-limit": "1 GiB"}
    compiling.LARGE = 0  # and so it stays in children: NumPy has scratch of its own
    with dask.config.set(limit):
        for question in json.loads(os.environ.get(memory.WARM, "[]")):
            # These need more kernels for many chunks. Box plots along an axis compiled seven in the
            # measurement: they took 233 MB with a cold cache, 88 with a warm one, and 70 now.
            needs_all = any(name in question for name in ("column-limit", "sort("))
            how = (memory.N_CHUNKS,) if needs_all else ()
            memory.answer_a_little(memory.function_of(question), *how)
            if "by_category" in question:  # large boxes need the kernels of one box
                memory.answer_a_little(memory.function_of("describe_boxplot(x)"), memory.N_CHUNKS)
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library
        # A child must not find memory that is free already: what it takes would not be noticed.
        ctypes.CDLL(None).malloc_trim(0)
        # A child returns large arrays to the system when it frees them. By default, malloc keeps
        # some of them for later: 13 of 60 MB for box plots along an axis.
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, memory.MEGABYTE)


warm_up()
