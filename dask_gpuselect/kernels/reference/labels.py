"""Labels of elements, on the host: the distinct ones, and codes of elements among some."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_gpuselect.arrays import namespace, to_host
from dask_gpuselect.maths import labels as labels_
from dask_gpuselect.maths.labels import Codes, Labels


def distinct(labels: Any) -> Labels:
    """Return the distinct labels; see `maths.labels.distinct`."""
    return labels_.distinct(_on_host(labels).reshape(-1))


def codes_among(labels: Any, names: Labels) -> Codes:
    """Return the position of each label among `names`; see `maths.labels.codes_among`."""
    return labels_.codes_among(_on_host(labels), names)


def masked_codes(codes: Any, keeps: Any) -> Any:
    """Replace the codes of elements that are not in a mask by -1, which is no group."""
    return namespace(codes).where(keeps, codes, np.int32(-1))


def _on_host(labels: Any) -> Labels:
    """Return labels as a NumPy array; one with a mask keeps it."""
    return labels if isinstance(labels, np.ndarray) else to_host(labels)
