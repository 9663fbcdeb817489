"""Labels of elements, on the host: which there are, and the number of each among some."""

from __future__ import annotations

from typing import Any

from dask_gpuselect.arrays import to_host
from dask_gpuselect.maths import labels as labels_
from dask_gpuselect.maths.labels import Codes, Labels


def distinct(labels: Any) -> Labels:
    """See `maths.labels.distinct`."""
    return labels_.distinct(to_host(labels).reshape(-1))


def codes_among(labels: Any, names: Labels) -> Codes:
    """See `maths.labels.codes_among`."""
    return labels_.codes_among(to_host(labels), names)
