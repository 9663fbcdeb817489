"""Exact order statistics of dask's Series and DataFrames: ``import dask_gpuselect.dataframe``.

They then have the accessor ``exact``. While `dask_gpuselect.enable` is in force, their own
`quantile` and `median` are exact too.
"""

from dask_gpuselect.optional import needs

with needs("pandas", "dask_gpuselect.dataframe"):
    import pandas  # noqa: F401, ICN001
with needs("pyarrow", "dask_gpuselect.dataframe"):
    import pyarrow  # noqa: F401 -- dask.dataframe needs it

from dask_gpuselect.dataframe.accessors import ExactDataFrame, ExactSeries  # noqa: E402
from dask_gpuselect.dataframe.groups import ExactFrameGroupBy  # noqa: E402
from dask_gpuselect.dataframe.windows import ExactFrameRolling  # noqa: E402

__all__ = ["ExactDataFrame", "ExactFrameGroupBy", "ExactFrameRolling", "ExactSeries"]
