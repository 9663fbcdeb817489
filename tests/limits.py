"""Limits of dask's config that many tests set."""

from __future__ import annotations

from typing import Any

import dask


def limited(to: int | str) -> Any:
    """Limit the columns of chunks along an axis, none of which is written to disk."""
    return dask.config.set(
        {"dask_gpuselect.column-limit": to, "dask_gpuselect.scratch-directory": False}
    )
