"""How a question about a dask array is answered: plans, loads, graphs, and what is read."""
