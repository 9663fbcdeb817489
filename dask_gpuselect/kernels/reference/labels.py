"""Labels of elements, on the host: which there are, and the number of each among some."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.arrays import to_host
from dask_gpuselect.maths import labels as labels_
from dask_gpuselect.maths.labels import Codes, Labels


def distinct(labels: Any) -> Labels:
    """See `maths.labels.distinct`."""
    return labels_.distinct(_on_host(labels).reshape(-1))


def codes_among(labels: Any, names: Labels) -> Codes:
    """See `maths.labels.codes_among`."""
    return labels_.codes_among(_on_host(labels), names)


def _on_host(labels: Any) -> Labels:
    """Labels as a NumPy array, which keeps its mask."""
    return labels if isinstance(labels, np.ndarray) else to_host(labels)
