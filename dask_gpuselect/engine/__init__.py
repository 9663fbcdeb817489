"""The engine: plans, loads and graphs that answer a question about a dask array."""
