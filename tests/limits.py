"""Limits of dask's config that many tests set."""

from __future__ import annotations

from typing import Any

import dask


def limited(to: int | str) -> Any:
    """Limit columns of chunks, none of which is written to disk or stays on a device."""
    limits = {"column-limit": to, "scratch-directory": False, "cache-limit": 0}
    return dask.config.set({f"dask_gpuselect.{name}": limit for name, limit in limits.items()})
